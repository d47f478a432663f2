//! One HTTP/1 connection to a backend, driven by the exchange that uses it.
//!
//! hyper gives a connection as a future of its own, which is usually spawned. Here it is polled where its answer is
//! read: no task is woken for a piece of an answer, what has come is taken in one go, and a call that is dropped takes
//! its connection with it at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::task::Waker;

use bytes::Bytes;
use http::Request;
use http::Response;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1;

use crate::upstream::outgoing::Outgoing;
use crate::upstream::pool::Idle;
use crate::upstream::stream::Refusal;
use crate::upstream::stream::Stream;

/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 256 << 10;

/// A connection that carries one exchange at a time.
pub(super) struct Link {
    sender: http1::SendRequest<Outgoing>,
    /// None once it has ended: what still waits in it learns of that when it goes.
    connection: Option<Box<http1::Connection<Stream, Outgoing>>>,
    refusal: Refusal,
}

impl Link {
    /// Sets HTTP/1 up on a connection; nothing is sent yet.
    pub(super) async fn new(stream: Stream) -> hyper::Result<Self> {
        let refusal = stream.refusal();
        let (sender, connection) =
            http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake::<_, Outgoing>(stream).await?;
        Ok(Self { sender, connection: Some(Box::new(connection)), refusal })
    }

    /// Where a refusal is noted, should there be one.
    pub(super) fn refusal(&self) -> Refusal {
        self.refusal.clone()
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
        let mut answer = pin!(self.sender.try_send_request(request));
        let response = poll_fn(|context| {
            self.drive(context);
            answer.as_mut().poll(context)
        })
        .await?;
        Ok((response, self))
    }

    /// Lets the connection come to rest after an answer was read. False where it can carry no other.
    fn rests(&mut self) -> bool {
        // Nobody waits for an idle connection: whether it has ended shows when it is taken up again.
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }

    /// Whether an idle connection still stands, as far as this side has heard.
    pub(super) fn stands(&mut self) -> bool {
        self.rests()
    }
}

/// An answer's body, which drives its connection and gives it back at its end.
pub(super) struct LinkBody {
    incoming: Incoming,
    link: Option<Link>,
    idle: Arc<Idle>,
}

impl LinkBody {
    /// The body of an answer that came over `link`, which goes back to `idle`.
    pub(super) fn new(incoming: Incoming, link: Link, idle: Arc<Idle>) -> Self {
        let mut body = Self { incoming, link: Some(link), idle };
        if body.incoming.is_end_stream() {
            body.give_back();
        }
        body
    }

    fn give_back(&mut self) {
        if let Some(mut link) = self.link.take()
            && link.rests()
        {
            self.idle.put(link);
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
            // A body of declared length is not asked for its end.
            Poll::Ready(Some(Ok(_))) if this.incoming.is_end_stream() => this.give_back(),
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
