//! Bodies on their way out: pieces, a relayed stream, and a held stream that is kept alive until its verdict.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use tokio::time::Instant;
use tokio::time::Sleep;

use crate::exchange::missed;
use crate::exchange::sifted::Sifted;
use crate::record::Outcome;
use crate::server::entry::Entry;
use crate::stage::admit::Share;
use crate::stage::send::UpstreamBody;
use crate::wire::fault::Code;
use crate::wire::sse::KEEPALIVE;

/// Bytes that are handed to the connection at once: it takes no more than it can send, so that a body is
/// held until it is out.
const HANDED: usize = 64 << 10;

/// A body on its way out.
pub enum OutBody<U> {
    /// A finished answer.
    Pieces {
        /// What is still to be sent.
        rest: VecDeque<Bytes>,
        /// Bytes of it.
        left: u64,
        /// What the answer holds until it is out: its bytes, and its place among those under way.
        shares: Vec<Share>,
    },
    /// A backend's answer as it comes, with the record that is closed at its end.
    Relay(UpstreamBody, Box<Entry<U>>),
    /// A stream whose tool calls are held, with the record that is closed at its end.
    Sifted(Box<Sifted>, Box<Entry<U>>),
    /// A stream that is held: comments until the verdict, then the answer.
    Held(Held),
}

/// The rest of an exchange whose status has gone out: it gives the events of the answer, and what they hold
/// until they are out.
pub type PendingEvents = Pin<Box<dyn Future<Output = (Vec<Bytes>, Vec<Share>)> + Send>>;

/// A held stream whose status has gone out.
pub struct Held {
    pending: Option<PendingEvents>,
    clock: Pin<Box<Sleep>>,
    every: Duration,
    rest: VecDeque<Bytes>,
    shares: Vec<Share>,
}

impl Held {
    /// A held stream: the first comment goes out at once.
    pub fn new(pending: PendingEvents, every: Duration) -> Self {
        let rest = VecDeque::from([Bytes::from_static(KEEPALIVE)]);
        Self { pending: Some(pending), clock: Box::pin(tokio::time::sleep(every)), every, rest, shares: Vec::new() }
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(piece) = self.rest.pop_front() {
            return Poll::Ready(Some(piece));
        }
        let Some(pending) = &mut self.pending else {
            self.shares.clear();
            return Poll::Ready(None);
        };
        if let Poll::Ready((events, shares)) = pending.as_mut().poll(context) {
            self.pending = None;
            self.shares = shares;
            self.rest = events.into();
            return Poll::Ready(self.rest.pop_front());
        }
        if self.clock.as_mut().poll(context).is_ready() {
            self.clock.as_mut().reset(Instant::now() + self.every);
            let _ = self.clock.as_mut().poll(context); // so that it wakes this task again
            return Poll::Ready(Some(Bytes::from_static(KEEPALIVE)));
        }
        Poll::Pending
    }
}

impl<U> OutBody<U> {
    /// The body as it begins: one that ends at once is never polled, so its record is closed here.
    pub fn begun(mut self) -> Self {
        if let Self::Relay(body, entry) = &mut self
            && is_over(body)
        {
            entry.close_now();
        }
        self
    }

    /// A finished answer.
    pub fn pieces(pieces: Vec<Bytes>, shares: Vec<Share>) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self::Pieces { rest: pieces.into(), left, shares }
    }
}

/// Whether nothing more of a body will go out. Over HTTP/2 its end may be told after the last byte that was declared.
fn is_over(body: &UpstreamBody) -> bool {
    body.is_end_stream() || body.size_hint().exact() == Some(0)
}

/// A body broke off. The answer is cut, so that the client sees it too.
#[derive(Debug, thiserror::Error)]
pub enum BrokenOff {
    /// The backend's did.
    #[error("the answer broke off")]
    Upstream(#[from] crate::stage::send::UpstreamError),
    /// Nobody took it.
    #[error(transparent)]
    LetGo(#[from] crate::server::idle::LetGo),
    /// The gateway failed in the middle of it.
    #[error("the gateway failed")]
    Fault,
}

impl<U: Send + Sync + 'static> OutBody<U> {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match self {
            Self::Pieces { rest, left, shares } => {
                let piece = match rest.front_mut() {
                    Some(piece) if piece.len() > HANDED => Some(piece.split_to(HANDED)),
                    _ => rest.pop_front(),
                };
                if piece.is_none() {
                    shares.clear();
                }
                *left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
                Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
            }
            Self::Held(held) => held.next(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
            Self::Sifted(stream, entry) => {
                let next = std::task::ready!(stream.poll_next(context, &mut entry.record));
                if next.is_none() {
                    entry.close_now();
                }
                Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
            }
            Self::Relay(body, entry) => match body.as_mut().poll_frame(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        entry.passes(data);
                    }
                    // A body of declared length, or with trailers, is not polled for its end.
                    if frame.is_trailers() || is_over(body) {
                        entry.ended_now();
                    }
                    Poll::Ready(Some(Ok(frame)))
                }
                Poll::Ready(None) => {
                    entry.ended_now();
                    Poll::Ready(None)
                }
                Poll::Ready(Some(Err(error))) => {
                    missed::broke_off(&error, &mut entry.record);
                    entry.close_now();
                    Poll::Ready(Some(Err(error.into())))
                }
            },
        }
    }

    /// Ends it where the gateway itself failed: this answer is cut, and no other.
    fn fail(&mut self) {
        if let Self::Relay(_, entry) | Self::Sifted(_, entry) = self {
            entry.server().metrics.panicked();
            tracing::error!(request_id = entry.record.request_id, "an answer ended in a fault of the gateway's own");
            entry.record.outcome = Outcome::Failed;
            entry.record.code = Some(Code::InternalError);
            entry.record.reason = Some("internal");
            entry.close_now();
        }
        *self = Self::pieces(Vec::new(), Vec::new());
    }
}

impl<U: Send + Sync + 'static> Body for OutBody<U> {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let this = self.get_mut();
        // One answer's fault must not end the others of its connection.
        catch_unwind(AssertUnwindSafe(|| this.poll_next(context))).unwrap_or_else(|_| {
            this.fail();
            Poll::Ready(Some(Err(BrokenOff::Fault)))
        })
    }

    fn is_end_stream(&self) -> bool {
        // A relayed body says itself when it ends, so that its record is closed there.
        matches!(self, Self::Pieces { rest, .. } if rest.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pieces { left, .. } => SizeHint::with_exact(*left),
            Self::Relay(body, _) => body.size_hint(),
            Self::Held(_) | Self::Sifted(..) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test(start_paused = true)]
    async fn a_held_stream_is_kept_alive_until_its_verdict() {
        let pending: PendingEvents = Box::pin(async {
            tokio::time::sleep(Duration::from_secs(25)).await;
            (vec![Bytes::from_static(b"data: x\n\n"), Bytes::from_static(b"data: [DONE]\n\n")], Vec::new())
        });
        let body = OutBody::<()>::Held(Held::new(pending, Duration::from_secs(10)));
        let all = body.collect().await.unwrap().to_bytes();
        assert_eq!(all, ": portcullis\n\n: portcullis\n\n: portcullis\n\ndata: x\n\ndata: [DONE]\n\n");
    }
}
