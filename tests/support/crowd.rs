//! Many slow streams at once: a client and an upstream that are driven by events, as a thread for each would be too many.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::Resource;
use rustix::process::getrlimit;
use rustix::process::setrlimit;
use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Events of each stream: the first at once, the others once they may come.
const EVENTS: usize = 5;
/// Between two of the others.
const PAUSE: Duration = Duration::from_millis(150);
/// Clients that connect at once.
const CONNECTING: usize = 100;

/// Streams, their clients and the upstream behind them.
pub struct Crowd {
    runtime: Runtime,
    listener: Option<TcpListener>,
    pub upstream: SocketAddr,
    begun: Arc<AtomicUsize>,
    on: watch::Sender<bool>,
    clients: Vec<tokio::task::JoinHandle<Result<(), String>>>,
}

impl Crowd {
    /// An upstream that nobody calls yet. This process, and those that it starts, may have as many descriptors as the
    /// system lets them have.
    pub fn new() -> Self {
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let upstream = listener.local_addr().unwrap();
        let (on, _) = watch::channel(false);
        Self { runtime, listener: Some(listener), upstream, begun: Arc::default(), on, clients: Vec::new() }
    }

    /// Starts so many streams through the gateway, and waits until each has its first event.
    pub fn begin(&mut self, gateway: SocketAddr, count: usize) {
        let (listener, on) = (self.listener.take().unwrap(), self.on.clone());
        self.runtime.spawn(async move {
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                serving.spawn(serve(stream, on.subscribe()));
            }
        });
        let connecting = Arc::new(Semaphore::new(CONNECTING));
        for number in 0..count {
            let (connecting, begun) = (Arc::clone(&connecting), Arc::clone(&self.begun));
            self.clients.push(self.runtime.spawn(async move {
                let place = connecting.acquire_owned().await.unwrap();
                let stream = TcpStream::connect(gateway).await.map_err(|error| error.to_string())?;
                read(stream, number, || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    drop(place);
                })
                .await
            }));
        }
        let begun = Arc::clone(&self.begun);
        self.runtime.block_on(async move {
            let all = async {
                while begun.load(Ordering::Relaxed) < count {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let in_time = tokio::time::timeout(super::PATIENCE, all).await;
            assert!(in_time.is_ok(), "{} of {count} streams have begun", begun.load(Ordering::Relaxed));
        });
    }

    /// Lets the streams go on, and waits for their ends. Gives what was wrong with each that was not whole.
    pub fn end(&mut self) -> Vec<String> {
        self.on.send_replace(true);
        let clients = std::mem::take(&mut self.clients);
        self.runtime.block_on(async move {
            let mut wrong = Vec::new();
            for client in clients {
                match tokio::time::timeout(super::PATIENCE, client).await {
                    Ok(ended) => wrong.extend(ended.unwrap().err()),
                    Err(_) => wrong.push("a stream does not end".to_owned()),
                }
            }
            wrong
        })
    }
}

/// Event `event` of stream `number`.
fn event(number: &str, event: usize) -> String {
    format!("data: {{\"stream\":{number},\"event\":{event}}}\n\n")
}

async fn serve(mut stream: TcpStream, mut on: watch::Receiver<bool>) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let number = request.split("number ").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or("?").to_owned();
    let chunk = |index: usize| {
        let event = event(&number, index);
        format!("{:x}\r\n{event}\r\n", event.len())
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(format!("{head}{}", chunk(0)).as_bytes()).await?;
    let _ = on.wait_for(|on| *on).await;
    for index in 1..EVENTS {
        tokio::time::sleep(PAUSE).await;
        stream.write_all(chunk(index).as_bytes()).await?;
    }
    stream.write_all(b"0\r\n\r\n").await
}

async fn read(mut stream: TcpStream, number: usize, begun: impl FnOnce()) -> Result<(), String> {
    let body = format!(r#"{{"model":"m","stream":true,"messages":[{{"role":"user","content":"number {number}"}}]}}"#);
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.map_err(|error| format!("{number}: {error}"))?;
    let (mut answer, mut begun) = (Vec::new(), Some(begun));
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        let length = stream.read_buf(&mut answer).await.map_err(|error| format!("{number}: {error}"))?;
        if length == 0 {
            break;
        }
        if answer.windows(6).any(|window| window == b"data: ")
            && let Some(begun) = begun.take()
        {
            begun();
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let own = number.to_string();
    let is_whole = answer.starts_with("HTTP/1.1 200 ")
        && answer.ends_with("\r\n0\r\n\r\n")
        && answer.matches("data: ").count() == EVENTS
        && (0..EVENTS).all(|index| answer.contains(&event(&own, index)));
    if is_whole { Ok(()) } else { Err(format!("{number}: {answer}")) }
}
