//! HTTP/2 for tests: a client, raw frames, and an upstream that is told what to do frame by frame.

use std::net::Shutdown;

use bytes::Bytes;
use h2::RecvStream;
use h2::SendStream;
use h2::client::ResponseFuture;
use http::Request;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::runtime::Runtime;

use super::*;

/// What a client says first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// Error codes (RFC 9113 section 7).
pub const NO_ERROR: u32 = 0;
pub const REFUSED_STREAM: u32 = 7;
pub const CANCEL: u32 = 8;
pub const INTERNAL_ERROR: u32 = 2;

/// One frame (RFC 9113 section 4.1).
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A block of headers, none of them compressed (RFC 7541 section 6.2.2).
pub fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        assert!(text.len() < 127);
        [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    };
    headers.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// A frame that was read.
#[derive(Clone, Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Client {
    /// The next frame; none where the connection ends before.
    pub fn frame(&mut self) -> Option<Frame> {
        self.wire.frame(PATIENCE)
    }

    /// The next frame of this kind.
    #[track_caller]
    pub fn frame_of(&mut self, kind: u8) -> Frame {
        let mut seen = Vec::new();
        while let Some(frame) = self.frame() {
            if frame.kind == kind {
                return frame;
            }
            seen.push(frame);
        }
        panic!("no frame of kind {kind}, but {seen:?}");
    }
}

impl Wire {
    fn frame(&mut self, patience: Duration) -> Option<Frame> {
        loop {
            if let Some(head) = self.read.get(..9) {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                if self.read.len() >= 9 + length {
                    let (kind, flags) = (head[3], head[4]);
                    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
                    let payload = self.read[9..9 + length].to_vec();
                    self.read.drain(..9 + length);
                    return Some(Frame { kind, flags, stream, payload });
                }
            }
            if !self.more(patience) {
                return None;
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------- the client

/// A client of HTTP/2: many requests on one connection. Dropped, it closes the connection.
pub struct Http2 {
    runtime: Runtime,
    sender: h2::client::SendRequest<Bytes>,
    ended: Arc<AtomicBool>,
    address: SocketAddr,
    scheme: &'static str,
}

/// One request under way. Dropped, it is cancelled.
pub struct Exchange<'a> {
    client: &'a Http2,
    answer: Option<ResponseFuture>,
    /// What the request's body goes into.
    pub up: SendStream<Bytes>,
    head: Option<Head>,
    down: Option<RecvStream>,
}

impl Http2 {
    /// By prior knowledge, without TLS.
    #[track_caller]
    pub fn plain(gateway: &Gateway) -> Self {
        Self::with(gateway.address, None, h2::client::Builder::new())
    }

    /// By prior knowledge, with a window of so many bytes for each stream, which is never made larger.
    #[track_caller]
    pub fn narrow(gateway: &Gateway, window: u32) -> Self {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window);
        Self::with(gateway.address, None, builder)
    }

    /// With TLS.
    #[track_caller]
    pub fn secure(gateway: &Gateway, config: &Arc<ClientConfig>) -> Self {
        Self::with(gateway.address, Some(config), h2::client::Builder::new())
    }

    #[track_caller]
    fn with(address: SocketAddr, config: Option<&Arc<ClientConfig>>, builder: h2::client::Builder) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let ended = Arc::<AtomicBool>::default();
        let sender = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            match config {
                None => Self::begun(builder, stream, &ended).await,
                Some(config) => {
                    let connector = tokio_rustls::TlsConnector::from(Arc::clone(config));
                    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
                    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
                    Self::begun(builder, stream, &ended).await
                }
            }
        });
        Self { runtime, sender, ended, address, scheme: if config.is_some() { "https" } else { "http" } }
    }

    async fn begun<S>(
        builder: h2::client::Builder,
        stream: S,
        ended: &Arc<AtomicBool>,
    ) -> h2::client::SendRequest<Bytes>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = builder.handshake(stream).await.unwrap();
        let ended = Arc::clone(ended);
        tokio::runtime::Handle::current().spawn(async move {
            let _ = connection.await;
            ended.store(true, Ordering::Relaxed);
        });
        sender
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    #[track_caller]
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await }).expect("it took too long")
    }

    /// Begins a request whose body may follow.
    pub fn ask(
        &self,
        method: &str,
        authority: &str,
        path: &str,
        headers: &[(&str, &str)],
        ends: bool,
    ) -> Result<Exchange<'_>, h2::Error> {
        let mut request = Request::builder().method(method).uri(format!("{}://{authority}{path}", self.scheme));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut sender = self.wait(self.sender.clone().ready())?;
        let (answer, up) = sender.send_request(request.body(()).unwrap(), ends)?;
        Ok(Exchange { client: self, answer: Some(answer), up, head: None, down: None })
    }

    /// Begins a request with this body.
    #[track_caller]
    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Exchange<'_> {
        let authority = self.address.to_string();
        let headers = [headers, &[("content-type", "application/json")]].concat();
        let mut exchange = self.ask("POST", &authority, path, &headers, false).unwrap();
        exchange.up.send_data(Bytes::from(body.to_owned()), true).unwrap();
        exchange
    }

    /// Begins a chat.
    #[track_caller]
    pub fn chat(&self, body: &str) -> Exchange<'_> {
        self.post("/v1/chat/completions", &[], body)
    }
}

impl Exchange<'_> {
    /// The answer's head.
    pub fn head(&mut self) -> Result<Head, h2::Error> {
        if let Some(answer) = self.answer.take() {
            let (head, down) = self.client.wait(answer)?.into_parts();
            let headers = head.headers.iter().map(|(name, value)| {
                (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            });
            self.head = Some(Head { line: format!("HTTP/2 {}", head.status.as_u16()), headers: headers.collect() });
            self.down = Some(down);
        }
        Ok(self.head.clone().unwrap())
    }

    /// The next piece of the body; none at its end.
    pub fn piece(&mut self) -> Option<Result<Bytes, h2::Error>> {
        let down = self.down.as_mut().expect("the head comes first");
        let piece = self.client.wait(down.data());
        if let Some(Ok(piece)) = &piece {
            down.flow_control().release_capacity(piece.len()).unwrap();
        }
        piece
    }

    /// The whole answer.
    #[track_caller]
    pub fn answer(mut self) -> Answer {
        let head = self.head().unwrap();
        let mut body = Vec::new();
        loop {
            match self.piece() {
                Some(Ok(piece)) => body.extend_from_slice(&piece),
                end => return Answer { head, body, complete: end.is_none() },
            }
        }
    }

    /// Cancels it.
    pub fn cancel(mut self) {
        self.up.send_reset(h2::Reason::CANCEL);
    }
}

// ---------------------------------------------------------------------------------------------- the upstream

/// What an [`Http2Upstream`] does with one stream once its request is whole.
#[derive(Clone)]
pub enum Act {
    /// Waits until the test opens the gate.
    Gate(Gate),
    /// Sends the head of an answer of status 200 and this type.
    Head(&'static str),
    Data(Vec<u8>),
    /// Ends the stream.
    End,
    Reset(u32),
    /// Says that the connection ends: no stream after this one was begun with, and why.
    GoAway(u32, u32),
    /// Hangs up in good order.
    Close,
}

/// Answers with a chat completion that says this.
pub fn says(content: &str) -> Vec<Act> {
    vec![Act::Head("application/json"), Act::Data(completion(content).into_bytes()), Act::End]
}

/// The same, once the gate is open.
pub fn says_after(gate: &Gate, content: &str) -> Vec<Act> {
    [vec![Act::Gate(gate.clone())], says(content)].concat()
}

/// A request that came to an [`Http2Upstream`].
#[derive(Clone, Debug)]
pub struct StreamCall {
    /// The number of its connection, from 0.
    pub connection: usize,
    pub stream: u32,
    pub body: Vec<u8>,
    /// The request is whole.
    pub whole: bool,
    /// How the gateway reset it.
    pub reset: Option<u32>,
}

/// An upstream that speaks HTTP/2 over TLS. Dropped, it ends.
pub struct Http2Upstream {
    pub address: SocketAddr,
    shared: Arc<Book>,
    acceptor: Option<JoinHandle<()>>,
}

struct Book {
    tls: Arc<ServerConfig>,
    streams_max: u32,
    next: Mutex<VecDeque<Vec<Act>>>,
    otherwise: Mutex<Vec<Act>>,
    calls: Mutex<Vec<StreamCall>>,
    connections: AtomicUsize,
    /// Streams whose answer is not out.
    under_way: AtomicUsize,
    most: AtomicUsize,
    stop: Arc<AtomicBool>,
}

impl Http2Upstream {
    /// An upstream that does this with every stream.
    pub fn that(tls: &Arc<ServerConfig>, acts: Vec<Act>) -> Self {
        Self::within(tls, 100, acts)
    }

    /// The same, which allows so many streams at once.
    pub fn within(tls: &Arc<ServerConfig>, streams_max: u32, acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Book {
            tls: Arc::clone(tls),
            streams_max,
            next: Mutex::default(),
            otherwise: Mutex::new(acts),
            calls: Mutex::default(),
            connections: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            stop: Arc::default(),
        });
        let book = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            let mut connections = Vec::new();
            for stream in listener.incoming() {
                if book.stop.load(Ordering::Relaxed) {
                    break;
                }
                let (Ok(stream), book) = (stream, Arc::clone(&book)) else { continue };
                let number = book.connections.fetch_add(1, Ordering::Relaxed);
                connections.push(std::thread::spawn(move || book.serve(stream, number)));
            }
            connections.into_iter().for_each(|connection| drop(connection.join()));
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// What to do with the next stream that has no acts yet.
    pub fn next(&self, acts: Vec<Act>) {
        self.shared.next.lock().unwrap().push_back(acts);
    }

    pub fn calls(&self) -> Vec<StreamCall> {
        self.shared.calls.lock().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.calls().len()
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Streams that were under way at once, at most.
    pub fn most(&self) -> usize {
        self.shared.most.load(Ordering::Relaxed)
    }
}

impl Drop for Http2Upstream {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the acceptor
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

/// A stream that is answered.
struct Served {
    stream: u32,
    acts: VecDeque<Act>,
    /// Its last frame is out.
    over: bool,
}

impl Book {
    fn serve(&self, stream: TcpStream, number: usize) -> Option<()> {
        let session = ServerConnection::new(Arc::clone(&self.tls)).unwrap();
        let socket = Socket::Server(Box::new(StreamOwned::new(session, stream)));
        let mut wire = Wire::new(socket, Arc::clone(&self.stop));
        wire.stream.tcp().set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        wire.through(PREFACE, PATIENCE)?;
        let most = [&[0, 3][..], &self.streams_max.to_be_bytes()].concat();
        wire.stream.write_all(&frame(SETTINGS, 0, 0, &most)).ok()?;
        let mut served: Vec<Served> = Vec::new();
        let ended = loop {
            // What has come is taken first, so that a frame that was sent before is seen before the next act.
            match wire.frame(Duration::ZERO) {
                Some(frame) => {
                    if self.take(&mut wire, &mut served, frame, number).is_none() {
                        break false;
                    }
                    continue;
                }
                None if self.stop.load(Ordering::Relaxed) || wire.has_ended() => break false,
                None => {}
            }
            let went = served.iter_mut().map(|one| one.act(&mut wire)).collect::<Option<Vec<bool>>>();
            let Some(went) = went else { break true };
            let before = served.len();
            let mut over = went.iter();
            served.retain(|_| !over.next().copied().unwrap_or_default());
            self.under_way.fetch_sub(before - served.len(), Ordering::Relaxed);
        };
        self.under_way.fetch_sub(served.len(), Ordering::Relaxed);
        if ended {
            wire.stream.tcp().shutdown(Shutdown::Write).ok()?;
        }
        None
    }

    fn take(&self, wire: &mut Wire, served: &mut Vec<Served>, frame: Frame, number: usize) -> Option<()> {
        let Frame { kind, flags, stream, payload } = frame;
        let mut calls = self.calls.lock().unwrap();
        let mut call = calls.iter_mut().find(|call| call.connection == number && call.stream == stream);
        match kind {
            SETTINGS if flags & ACK == 0 => wire.stream.write_all(&self::frame(SETTINGS, ACK, 0, &[])).ok()?,
            PING if flags & ACK == 0 => wire.stream.write_all(&self::frame(PING, ACK, 0, &payload)).ok()?,
            HEADERS if call.is_none() => {
                let open = calls.iter().filter(|call| call.connection == number && !call.whole && call.reset.is_none());
                if open.count() + served.len() >= self.streams_max as usize {
                    let refused = self::frame(RST_STREAM, 0, stream, &REFUSED_STREAM.to_be_bytes());
                    return wire.stream.write_all(&refused).ok();
                }
                let new = StreamCall { connection: number, stream, body: Vec::new(), whole: false, reset: None };
                calls.push(new);
                let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
                self.most.fetch_max(now, Ordering::Relaxed);
                call = calls.last_mut();
            }
            DATA => {
                if let Some(call) = &mut call {
                    call.body.extend_from_slice(&payload);
                }
                if !payload.is_empty() {
                    let more = u32::try_from(payload.len()).unwrap().to_be_bytes();
                    wire.stream.write_all(&self::frame(WINDOW_UPDATE, 0, 0, &more)).ok()?;
                    if flags & END_STREAM == 0 {
                        wire.stream.write_all(&self::frame(WINDOW_UPDATE, 0, stream, &more)).ok()?;
                    }
                }
            }
            RST_STREAM => {
                if let Some(call) = &mut call {
                    call.reset = Some(u32::from_be_bytes(payload.try_into().unwrap()));
                    let before = served.len();
                    served.retain(|one| one.stream != stream);
                    let gone = before - served.len() + usize::from(!call.whole);
                    self.under_way.fetch_sub(gone, Ordering::Relaxed);
                }
            }
            _ => {}
        }
        if matches!(kind, HEADERS | DATA)
            && flags & END_STREAM != 0
            && let Some(call) = call.filter(|call| !call.whole)
        {
            call.whole = true;
            let acts = self.next.lock().unwrap().pop_front();
            let acts = acts.unwrap_or_else(|| self.otherwise.lock().unwrap().clone());
            served.push(Served { stream, acts: acts.into(), over: false });
        }
        Some(())
    }
}

impl Served {
    /// Does what can be done now. True where the stream is over; none where the connection is.
    fn act(&mut self, wire: &mut Wire) -> Option<bool> {
        while let Some(act) = self.acts.front() {
            let (bytes, over) = match act {
                Act::Gate(gate) if !gate.is_open() => return Some(false),
                Act::Gate(_) => (Vec::new(), false),
                Act::Head(kind) => {
                    let status = [0x88]; // `:status: 200` is in the static table
                    let headers = [&status[..], &block(&[("content-type", kind)])].concat();
                    (frame(HEADERS, END_HEADERS, self.stream, &headers), false)
                }
                Act::Data(bytes) => (frame(DATA, 0, self.stream, bytes), false),
                Act::End => (frame(DATA, END_STREAM, self.stream, &[]), true),
                Act::Reset(code) => (frame(RST_STREAM, 0, self.stream, &code.to_be_bytes()), true),
                Act::GoAway(last, code) => {
                    (frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat()), false)
                }
                Act::Close => return None,
            };
            self.acts.pop_front();
            wire.stream.write_all(&bytes).ok()?;
            self.over |= over;
        }
        Some(self.over)
    }
}

impl Wire {
    /// Whether the other side has closed the connection.
    fn has_ended(&mut self) -> bool {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => true,
            Ok(length) => {
                self.read.extend_from_slice(&piece[..length]);
                false
            }
            Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
        }
    }
}

/// An upstream that answers `{}` to everything, as far as the gateway grants it a window, and keeps the head of the last
/// request as HTTP/2 had it. A request with `x-endless` gets an answer without end.
pub struct PlainUpstream {
    pub address: SocketAddr,
    heads: Arc<Mutex<Option<http::request::Parts>>>,
    sent: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl PlainUpstream {
    pub fn new(tls: &Arc<ServerConfig>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(tls));
        let heads = Arc::<Mutex<Option<http::request::Parts>>>::default();
        let (sent, connections) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (kept, counted, accepted) = (Arc::clone(&heads), Arc::clone(&sent), Arc::clone(&connections));
        let handle = runtime.handle().clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::Relaxed);
                let stream = acceptor.accept(stream).await.unwrap();
                let (kept, counted, spawner) = (Arc::clone(&kept), Arc::clone(&counted), handle.clone());
                handle.spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let head = request.into_parts().0;
                        let endless = head.headers.contains_key("x-endless");
                        *kept.lock().unwrap() = Some(head);
                        spawner.spawn(answer(respond, endless, Arc::clone(&counted)));
                    }
                });
            }
        });
        Self { address, heads, sent, connections, _runtime: runtime }
    }

    /// The head of the last request.
    pub fn head(&self) -> http::request::Parts {
        self.heads.lock().unwrap().clone().expect("no request came")
    }

    /// Bytes of answers without end that the gateway has had room for.
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn answer(mut respond: h2::server::SendResponse<Bytes>, endless: bool, sent: Arc<AtomicUsize>) -> Option<()> {
    let head = http::Response::builder().header("content-type", "application/json").header("x-back", "1");
    let mut body = respond.send_response(head.body(()).unwrap(), false).ok()?;
    if endless {
        loop {
            body.reserve_capacity(16 << 10);
            let room = std::future::poll_fn(|context| body.poll_capacity(context)).await?.ok()?;
            body.send_data(Bytes::from(vec![b'x'; room]), false).ok()?;
            sent.fetch_add(room, Ordering::Relaxed);
        }
    }
    body.reserve_capacity(2);
    std::future::poll_fn(|context| body.poll_capacity(context)).await?.ok()?;
    body.send_data(Bytes::from_static(b"{}"), true).ok()
}
