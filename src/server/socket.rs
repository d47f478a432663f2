//! A client's socket as the HTTP library sees it: what must not be read is refused before, what is written and read is
//! noticed, and the end is not abrupt.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::ready;
use std::time::Duration;

use bytes::Buf as _;
use bytes::BytesMut;
use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::ReadBuf;
use tokio::time::Sleep;

use crate::server::edge::Edge;
use crate::server::edge::EdgeFault;
use crate::server::edge::Fed;
use crate::server::edge::Limits;
use crate::server::idle::Activity;

/// The method of the request that stands in the place of one that was refused.
pub(super) const REFUSED: &str = "REFUSED";
/// That request. It is answered as any other, and ends the connection.
const STAND_IN: &[u8] = b"REFUSED / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// How long what still comes is read after the last answer is out and the connection's end is announced. Closed with
/// bytes unread, a connection is reset, and the reset may overtake the answer (RFC 9112 section 9.6).
const LINGER: Duration = Duration::from_secs(2);
/// Bytes of a head that are read at once, once it has come in more than one piece.
const PIECE: usize = 4 << 10;
/// Bytes that are read ahead while a request is under way. A client that says more than that is read on when it has been
/// answered, and its end is noticed then.
const AHEAD: usize = 64 << 10;

/// A socket with a guard at its edge.
pub struct Guarded<S> {
    socket: S,
    activity: Arc<Activity>,
    /// None once the client speaks HTTP/2.
    edge: Option<Edge>,
    /// Read, and not yet handed on: a head that is not whole, or what did not fit.
    held: BytesMut,
    /// Bytes of `held` that may go on.
    whole: usize,
    /// What follows them in `held` is behind a whole request and was not looked at.
    waits: bool,
    /// The stand-in for what was refused is to be handed on, or was.
    refused: Refused,
    /// Until when what still comes is read and thrown away.
    linger: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    No,
    Due,
    Done,
    /// It is within a body. The library takes in what came before, and then an error: a stand-in would be read as a
    /// part of the body, and might even end it.
    Body(EdgeFault),
}

impl<S> Guarded<S> {
    /// `socket`, guarded.
    pub fn new(socket: S, activity: Arc<Activity>, limits: Limits) -> Self {
        let edge = Some(Edge::new(limits));
        Self {
            socket,
            activity,
            edge,
            held: BytesMut::new(),
            whole: 0,
            waits: false,
            refused: Refused::No,
            linger: None,
        }
    }

    /// Shows the edge what was not handed on yet; gives how much of it may be.
    fn look(&mut self, unhanded: &[u8]) -> usize {
        let Some(edge) = &mut self.edge else { return unhanded.len() };
        let whole = match edge.feed(unhanded) {
            Fed::Pass { whole } => whole,
            Fed::Refuse { whole, fault } => {
                self.activity.refuse(fault);
                self.refused = if edge.has_broken_body() { Refused::Body(fault) } else { Refused::Due };
                whole
            }
        };
        self.waits = edge.is_between() && whole < unhanded.len();
        self.activity.read(edge.is_in_head() && !self.waits);
        if edge.is_http2() {
            self.activity.speaks_http2();
            self.edge = None;
        }
        whole
    }

    /// Hands on what may be of what is held. False where there is nothing.
    fn hand(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        if self.whole == 0 && self.refused == Refused::Due {
            self.refused = Refused::Done;
            self.held.clear();
            self.held.extend_from_slice(STAND_IN);
            self.whole = STAND_IN.len();
        }
        let length = self.whole.min(buffer.remaining());
        buffer.put_slice(self.held.get(..length).unwrap_or_default());
        self.held.advance(length);
        self.whole -= length;
        if self.held.is_empty() {
            self.held = BytesMut::new(); // most heads come in one piece: a connection that waits holds nothing
        }
        length > 0
    }
}

impl<S: AsyncRead + Unpin> Guarded<S> {
    /// Reads straight into the library's buffer, and takes back what may not go on. False where nothing may.
    fn poll_first(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        let came = buffer.filled().get(before..).unwrap_or_default();
        if came.is_empty() {
            return Poll::Ready(Ok(true)); // the end
        }
        let whole = self.look(came);
        if self.refused == Refused::No {
            self.held.extend_from_slice(came.get(whole..).unwrap_or_default());
        }
        buffer.set_filled(before + whole);
        Poll::Ready(Ok(whole > 0))
    }

    /// Reads on where a head has begun. False at the end.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut piece = [MaybeUninit::uninit(); PIECE];
        let mut buffer = ReadBuf::uninit(&mut piece);
        ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Ok(false));
        }
        self.held.extend_from_slice(buffer.filled());
        let held = std::mem::take(&mut self.held);
        self.whole = self.look(&held);
        self.held = held;
        Poll::Ready(Ok(true))
    }

    /// Reads ahead while a request is under way, and hands nothing on: a library that has been given the next request
    /// would not notice that the client is gone.
    fn poll_ahead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waits {
            self.activity.then_wake(context);
        }
        while self.held.len() < AHEAD {
            let mut piece = [MaybeUninit::uninit(); PIECE];
            let mut buffer = ReadBuf::uninit(&mut piece);
            ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.held.extend_from_slice(buffer.filled());
            self.waits = true;
            self.activity.then_wake(context);
        }
        Poll::Pending
    }

    /// Reads and throws away until the other side has closed, too, or the time is up.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if clock.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let mut bytes = [MaybeUninit::uninit(); 4 * PIECE];
        for _ in 0..16 {
            let mut buffer = ReadBuf::uninit(&mut bytes);
            match ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
        }
        context.waker().wake_by_ref(); // others have their turn
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.edge.is_none() && this.held.is_empty() {
                return Pin::new(&mut this.socket).poll_read(context, buffer);
            }
            if this.hand(buffer) {
                return Poll::Ready(Ok(()));
            }
            match this.refused {
                Refused::No | Refused::Due => {}
                Refused::Done => return Poll::Pending, // the answer to the stand-in ends the connection
                Refused::Body(fault) => return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, fault))),
            }
            if this.edge.as_ref().is_some_and(Edge::is_between) && this.activity.is_under_way() {
                return this.poll_ahead(context);
            }
            if std::mem::take(&mut this.waits) {
                let held = std::mem::take(&mut this.held);
                this.whole = this.look(&held);
                this.held = held;
                continue;
            }
            let goes_on = match this.held.is_empty() {
                true => ready!(this.poll_first(context, buffer))?,
                false => !ready!(this.poll_more(context))?,
            };
            if goes_on {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.activity.wrote(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, pieces);
        self.activity.wrote(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.socket).poll_shutdown(context))?;
        }
        self.poll_linger(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    const LIMITS: Limits = Limits { head_bytes: 1 << 10, headers: 10 };

    /// What is handed on of these pieces, read through a buffer of `room` bytes.
    async fn handed(pieces: &[&str], room: usize) -> (String, Option<EdgeFault>) {
        let (mut client, server) = tokio::io::duplex(64);
        let activity = Activity::new();
        let mut socket = Guarded::new(server, Arc::clone(&activity), LIMITS);
        let mut all = Vec::new();
        let reading = async {
            let mut buffer = vec![0; room];
            loop {
                let read = tokio::time::timeout(Duration::from_millis(50), socket.read(&mut buffer)).await;
                match read {
                    Ok(Ok(length)) if length > 0 => all.extend_from_slice(&buffer[..length]),
                    _ => break,
                }
            }
        };
        let writing = async {
            for piece in pieces {
                client.write_all(piece.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
            client.shutdown().await.unwrap();
        };
        tokio::join!(reading, writing);
        (String::from_utf8(all).unwrap(), activity.refused())
    }

    #[tokio::test]
    async fn a_head_goes_on_when_it_is_whole_and_a_body_as_it_comes() {
        let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n";
        for room in [1, 7, 4096] {
            let whole = format!("{head}abcdGET /2 HTTP/1.1\r\nhost: a\r\n\r\n");
            assert_eq!(handed(&[&whole], room).await, (whole.clone(), None));
            let bytes: Vec<String> = whole.chars().map(String::from).collect();
            let split: Vec<&str> = bytes.iter().map(String::as_str).collect();
            assert_eq!(handed(&split, room).await, (whole.clone(), None));
            assert_eq!(handed(&[head, "ab", "cd", "GET /2 HT"], room).await.0, format!("{head}abcd"));
        }
    }

    #[tokio::test]
    async fn the_next_request_waits_for_the_answer_and_the_end_does_not() {
        let (mut client, server) = tokio::io::duplex(1024);
        let activity = Activity::new();
        let mut socket = Guarded::new(server, Arc::clone(&activity), LIMITS);
        let one = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        client.write_all(one.repeat(3).as_bytes()).await.unwrap();
        let mut buffer = [0; 1024];
        for _ in 0..2 {
            assert_eq!(socket.read(&mut buffer).await.unwrap(), one.len());
            let exchange = activity.begin(http::Version::HTTP_11);
            let ahead = tokio::time::timeout(Duration::from_millis(20), socket.read(&mut buffer)).await;
            assert!(ahead.is_err(), "{ahead:?}");
            let answered = async {
                tokio::task::yield_now().await;
                drop(exchange);
            };
            let (length, ()) = tokio::join!(async { socket.read(&mut buffer).await.unwrap() }, answered);
            assert_eq!(length, one.len());
            let _exchange = activity.begin(http::Version::HTTP_11);
            client.write_all(one.as_bytes()).await.unwrap();
            client.write_all(one.as_bytes()).await.unwrap();
        }
        let _exchange = activity.begin(http::Version::HTTP_11);
        client.shutdown().await.unwrap();
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 0);
    }

    /// A stand-in would be read as the rest of the trailers, and end the body.
    #[tokio::test]
    async fn what_is_refused_within_a_body_is_an_error_in_it() {
        let (mut client, server) = tokio::io::duplex(1024);
        let activity = Activity::new();
        let mut socket = Guarded::new(server, Arc::clone(&activity), LIMITS);
        let whole = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: y";
        client.write_all(format!("{whole}\0\r\n\r\n").as_bytes()).await.unwrap();
        let mut all = Vec::new();
        let error = socket.read_to_end(&mut all).await.unwrap_err();
        assert_eq!((String::from_utf8(all).unwrap().as_str(), error.kind()), (whole, io::ErrorKind::InvalidData));
        assert_eq!(activity.refused(), Some(EdgeFault::ControlCharacter));
    }

    #[tokio::test]
    async fn what_is_refused_is_never_handed_on() {
        let good = "GET /1 HTTP/1.1\r\nhost: a\r\n\r\n";
        let stand_in = String::from_utf8(STAND_IN.to_vec()).unwrap();
        for room in [1, 4096] {
            let bad = "GET /2 HTTP/1.1\r\nhost: a\nx: y\r\n\r\n";
            for pieces in [vec![good, bad, good], vec![good, "GET /2 HTTP/1.1\r\nhost: a", "\nx: y\r\n\r\n"]] {
                let (all, fault) = handed(&pieces, room).await;
                assert_eq!(all, format!("{good}{stand_in}"));
                assert!(fault.is_some());
            }
        }
    }
}
