//! One HTTP/1 connection to a backend, driven by the exchange that uses it.
//!
//! hyper gives a connection as a future of its own, which is usually spawned. Here it is polled where its answer is
//! read: no task is woken for a piece of an answer, what has come is taken in one go, and a call that is dropped takes
//! its connection with it at once.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;
use std::task::ready;

use bytes::Bytes;
use http::Request;
use http::Response;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use crate::upstream::kept::Kept;
use crate::upstream::outgoing::Outgoing;
use crate::upstream::outgoing::Progress;
use crate::upstream::stream::LastWord;
use crate::upstream::stream::Stream;

/// Bytes of an answer's head, and of all that come before an answer: interim ones have no number that bounds them.
const HEAD_BYTES_MAX: usize = 256 << 10;

/// Bytes of it that are read at once where it comes close to that.
const PIECE: usize = 4 << 10;

/// A connection that carries one exchange at a time.
pub(super) struct Link {
    sender: http1::SendRequest<Outgoing>,
    /// None once it has ended: what still waits in it learns of that when it goes.
    connection: Option<Box<http1::Connection<TokioIo<Metered>, Outgoing>>>,
    last_word: LastWord,
    meter: Arc<Meter>,
    /// How far the request has gone out.
    sent: Option<Arc<Progress>>,
}

impl Link {
    /// Sets HTTP/1 up on a connection; nothing is sent yet.
    pub(super) async fn new(stream: Stream) -> hyper::Result<Self> {
        let last_word = stream.last_word();
        let meter = Arc::new(Meter::default());
        let stream = TokioIo::new(stream.read_on());
        let stream = TokioIo::new(Metered { stream, meter: Arc::clone(&meter) });
        let (sender, connection) =
            http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake::<_, Outgoing>(stream).await?;
        Ok(Self { sender, connection: Some(Box::new(connection)), last_word, meter, sent: None })
    }

    /// Where a last_word is noted, should there be one.
    pub(super) fn last_word(&self) -> LastWord {
        self.last_word.clone()
    }

    fn drive(&mut self, context: &mut Context<'_>) {
        // How it ends is told to whoever waits for the answer, or for the next piece of it.
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(context).is_ready()
        {
            self.connection = None;
        }
    }

    /// Sends a request and waits for the head of the answer.
    ///
    /// # Errors
    /// What went wrong, with the request where nothing of it was written.
    pub(super) async fn exchange(
        mut self,
        request: Request<Outgoing>,
    ) -> Result<(Response<Incoming>, Self), TrySendError<Request<Outgoing>>> {
        self.meter.begin(self.sent.is_some());
        self.sent = Some(request.body().progress());
        let mut answer = pin!(self.sender.try_send_request(request));
        let response = poll_fn(|context| {
            self.drive(context);
            answer.as_mut().poll(context)
        })
        .await?;
        self.meter.end();
        Ok((response, self))
    }

    /// Lets the connection come to rest after an answer was read, or looks whether it still does. False where it can
    /// carry no other answer, as far as this side has heard.
    pub(super) fn rests(&mut self) -> bool {
        // Nobody waits for an idle connection: whether it has ended shows when it is taken up again.
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready() && !self.meter.unheard.load(Ordering::Relaxed)
    }
}

/// What may still be read before the head of an answer is whole.
#[derive(Default)]
struct Meter {
    /// Whether a head is waited for.
    waits: AtomicBool,
    left: AtomicUsize,
    /// Whether to look for what the backend has said since its last answer.
    unasked: AtomicBool,
    /// The backend has closed, and what was written since went nowhere.
    unheard: AtomicBool,
    /// Nobody wants the answer, or the rest of the request will not come: the connection ends at once. An orderly end
    /// would stand in line behind what the backend has not read, and it may never read it.
    cut: AtomicBool,
}

impl Meter {
    /// A request is about to go out; `again` tells that it is not the first one.
    fn begin(&self, again: bool) {
        self.unasked.store(again, Ordering::Relaxed);
        self.left.store(HEAD_BYTES_MAX, Ordering::Relaxed);
        self.waits.store(true, Ordering::Relaxed);
    }

    fn end(&self) {
        self.waits.store(false, Ordering::Relaxed);
    }
}

/// A connection that fails where a backend says more before its answer than a head may have. The library passes over
/// interim answers as fast as they come and would do nothing else for as long as they do.
struct Metered {
    stream: TokioIo<Stream>,
    meter: Arc<Meter>,
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

impl Metered {
    fn tcp(&self) -> &TcpStream {
        self.stream.inner().tcp()
    }

    /// A backend that has closed may have said why before it did: an answer to a request that it did not read to its
    /// end. The library reads no more after a failed write, so what is written is thrown away until it has read.
    fn or_unheard(&self, written: Poll<io::Result<usize>>, length: usize) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Err(error)) if self.meter.waits.load(Ordering::Relaxed) && is_closed(&error) => {
                self.meter.unheard.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(length))
            }
            written => written,
        }
    }

    /// Asks the system itself, as the runtime may not have heard yet: what lies there was said before the request, and
    /// would be taken for the answer to it. The library reads before it writes, so the request goes out elsewhere.
    fn heard_nothing(&self) -> io::Result<()> {
        match SockRef::from(self.tcp()).peek(&mut [MaybeUninit::uninit()]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "the backend spoke before it was asked")),
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.meter.waits.load(Ordering::Relaxed) {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        if this.meter.unasked.swap(false, Ordering::Relaxed) {
            this.heard_nothing()?;
        }
        let left = this.meter.left.load(Ordering::Relaxed);
        if left == 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "too much comes before the answer")));
        }
        let before = buffer.filled().len();
        if left < buffer.remaining() {
            let mut piece = [MaybeUninit::uninit(); PIECE];
            let room = piece.get_mut(..left.min(PIECE)).unwrap_or_default();
            let mut last = ReadBuf::uninit(room);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut last))?;
            buffer.put_slice(last.filled());
        } else {
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        }
        this.meter.left.store(left.saturating_sub(buffer.filled().len() - before), Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_unheard(written, bytes.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.or_unheard(written, pieces.iter().map(|piece| piece.len()).sum())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let is_sent = self.sent.as_ref().is_none_or(|sent| sent.is_whole());
        self.meter.cut.store(!is_sent || self.meter.waits.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        if !self.meter.cut.load(Ordering::Relaxed) {
            return;
        }
        let _ = self.tcp().set_zero_linger(); // without it the end is told later
    }
}

/// An answer's body, which drives its connection and gives it back at its end.
pub(super) struct LinkBody {
    incoming: Incoming,
    link: Option<Link>,
    kept: Arc<Kept>,
}

impl LinkBody {
    /// The body of an answer that came over `link`, which goes back to what is `kept`.
    pub(super) fn new(incoming: Incoming, link: Link, kept: Arc<Kept>) -> Self {
        let mut body = Self { incoming, link: Some(link), kept };
        if body.incoming.is_end_stream() {
            body.give_back();
        }
        body
    }

    fn give_back(&mut self) {
        if let Some(mut link) = self.link.take()
            && link.rests()
        {
            self.kept.put(link);
        }
    }
}

impl Body for LinkBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let mut frame = Pin::new(&mut this.incoming).poll_frame(context);
        if frame.is_pending()
            && let Some(link) = &mut this.link
        {
            link.drive(context);
            frame = Pin::new(&mut this.incoming).poll_frame(context);
        }
        match &frame {
            Poll::Ready(None) => this.give_back(),
            // A body of declared length, or with trailers, is not asked for its end.
            Poll::Ready(Some(Ok(frame))) if frame.is_trailers() || this.incoming.is_end_stream() => this.give_back(),
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
