//! An HTTP proxy on loopback that knows its own names and remembers what it saw.

use super::*;

/// A proxy that forwards: `CONNECT` as a tunnel, a request with a whole URL to where it leads. Dropped, it ends.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Seen>,
    acceptor: Option<JoinHandle<()>>,
}

struct Seen {
    /// Where each `host:port` leads.
    places: Vec<(String, SocketAddr)>,
    heads: Mutex<Vec<Head>>,
    /// Every byte that clients sent.
    bytes: Mutex<Vec<u8>>,
    stop: Arc<AtomicBool>,
}

impl Proxy {
    /// A proxy that resolves these names, and no others.
    pub fn to(places: &[(&str, SocketAddr)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Seen {
            places: places.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect(),
            heads: Mutex::default(),
            bytes: Mutex::default(),
            stop: Arc::default(),
        });
        let seen = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || {
            let mut connections = Vec::new();
            for stream in listener.incoming() {
                if seen.stop.load(Ordering::Relaxed) {
                    break;
                }
                let (Ok(stream), seen) = (stream, Arc::clone(&seen)) else { continue };
                connections.push(std::thread::spawn(move || seen.serve(stream)));
            }
            connections.into_iter().for_each(|connection| drop(connection.join()));
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// The heads of the requests that it read.
    pub fn heads(&self) -> Vec<Head> {
        self.shared.heads.lock().unwrap().clone()
    }

    /// Every byte that came from clients, those in tunnels included.
    pub fn bytes(&self) -> Vec<u8> {
        self.shared.bytes.lock().unwrap().clone()
    }
}

impl Seen {
    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut wire = Wire::new(Socket::Tcp(stream), Arc::clone(&self.stop));
        while let Some(bytes) = wire.through(b"\r\n\r\n", PATIENCE) {
            self.bytes.lock().unwrap().extend_from_slice(&bytes);
            let head = Head::read(&bytes);
            self.heads.lock().unwrap().push(head.clone());
            let (method, rest) = head.line.split_once(' ')?;
            let target = rest.split(' ').next()?;
            let place = match target.strip_prefix("http://") {
                Some(target) => target.split('/').next()?,
                None => target,
            };
            let Some((_, at)) = self.places.iter().find(|(name, _)| name == place) else {
                let _ = wire.stream.write_all(b"HTTP/1.1 502 Unknown\r\ncontent-length: 0\r\n\r\n");
                continue;
            };
            let onward = TcpStream::connect(at).ok()?;
            if method == "CONNECT" {
                wire.stream.write_all(b"HTTP/1.1 200 Go on\r\n\r\n").ok()?;
                self.tunnel(wire, onward);
                return Some(());
            }
            let (body, _) = wire.body(&head, true);
            self.bytes.lock().unwrap().extend_from_slice(&body);
            self.forward(&mut wire, onward, &head, target, &body)?;
        }
        Some(())
    }

    fn tunnel(&self, client: Wire, onward: TcpStream) {
        let Socket::Tcp(stream) = &client.stream else { return };
        let mut down = stream.try_clone().unwrap();
        let mut from = onward.try_clone().unwrap();
        let back = std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut down);
            let _ = down.shutdown(std::net::Shutdown::Both);
        });
        let (mut client, mut onward) = (client, onward);
        while client.more(PATIENCE) {
            let piece = std::mem::take(&mut client.read);
            self.bytes.lock().unwrap().extend_from_slice(&piece);
            if onward.write_all(&piece).is_err() {
                break;
            }
        }
        let _ = onward.shutdown(std::net::Shutdown::Both);
        let _ = back.join();
    }

    /// Sends a request on, without what was for the proxy, and the answer back.
    fn forward(&self, client: &mut Wire, onward: TcpStream, head: &Head, target: &str, body: &[u8]) -> Option<()> {
        let mut onward = Wire::new(Socket::Tcp(onward), Arc::clone(&self.stop));
        let path = target.strip_prefix("http://").and_then(|rest| rest.find('/').map(|at| &rest[at..]))?;
        let mut request = head.line.replace(target, path);
        for (name, value) in head.headers.iter().filter(|(name, _)| name != "proxy-authorization") {
            request.push_str(&format!("\r\n{name}: {value}"));
        }
        onward.stream.write_all(&[request.as_bytes(), b"\r\n\r\n", body].concat()).ok()?;
        let answer = onward.through(b"\r\n\r\n", PATIENCE)?;
        let (body, _) = onward.body(&Head::read(&answer), false);
        client.stream.write_all(&[answer, body].concat()).ok()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the acceptor
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}
