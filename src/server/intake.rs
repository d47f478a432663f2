//! Bodies of requests on their way in, within bounds of size and time.

use std::io::ErrorKind;
use std::pin::Pin;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use bytes::BytesMut;
use http::HeaderMap;
use http::header;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::Instant;
use tokio::time::Sleep;

use crate::json::fault::shown;
use crate::record::Outcome;
use crate::record::Stage;
use crate::settings::Limits;
use crate::stage::admit::Gauge;
use crate::stage::admit::Share;
use crate::stage::answer::Fault;
use crate::stage::send::UploadError;
use crate::wire::fault::Code;

/// Bytes a second below which a body drips.
const SLOWEST: u64 = 4 << 10;
/// Bytes of a body that is copied, so that the connection's buffer can be used again: a new one costs more.
const SMALL: usize = 4 << 10;
/// How much more is reserved of what a body declares than has come of it.
const TRUST: usize = 16;

/// A request's body as it comes. It fails where it is larger than `limits.body`, pauses for longer than
/// `limits.idle_timeout`, or drips: beyond that pause, each second of waiting must have brought its share. Time in
/// which nobody asks for it is not counted.
pub(super) struct Intake {
    body: Incoming,
    max: usize,
    pause: Duration,
    taken: usize,
    /// Time spent waiting for its sender, but for the pause under way.
    waited: Duration,
    /// Since when it has been waited for.
    since: Option<Instant>,
    clock: Option<Pin<Box<Sleep>>>,
}

impl Intake {
    /// `body`, bounded. Fails at once where it says that it is too large.
    pub(super) fn new(body: Incoming, limits: &Limits) -> Result<Self, UploadError> {
        if body.size_hint().lower() > u64::try_from(limits.body).unwrap_or(u64::MAX) {
            return Err(UploadError::TooLarge(limits.body));
        }
        let pause = limits.idle_timeout;
        Ok(Self { body, max: limits.body, pause, taken: 0, waited: Duration::ZERO, since: None, clock: None })
    }

    /// How much longer this pause may last.
    fn left(&self, pausing: Duration) -> Duration {
        let share = Duration::from_secs(u64::try_from(self.taken).unwrap_or(u64::MAX) / SLOWEST);
        let patience = (self.pause + share).saturating_sub(self.waited).min(self.pause);
        patience.saturating_sub(pausing)
    }

    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let now = Instant::now();
        let pausing = now.duration_since(*self.since.get_or_insert(now));
        let left = self.left(pausing);
        if left.is_zero() {
            return true;
        }
        let clock = self.clock.get_or_insert_with(|| Box::pin(tokio::time::sleep(left)));
        clock.as_mut().reset(now + left);
        clock.as_mut().poll(context).is_ready()
    }

    fn came(&mut self, bytes: usize) -> Result<(), UploadError> {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
        self.taken = self.taken.saturating_add(bytes);
        if self.taken > self.max { Err(UploadError::TooLarge(self.max)) } else { Ok(()) }
    }
}

impl Body for Intake {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let this = self.get_mut();
        let frame = match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Pending if this.is_late(context) => return Poll::Ready(Some(Err(UploadError::TooSlow(this.pause)))),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(frame) => frame,
        };
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| if is_gone(&error) { UploadError::Gone } else { UploadError::Broken })?;
            this.came(frame.data_ref().map_or(0, Bytes::len))?;
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether a body broke off because its sender went away, and not because it broke HTTP.
fn is_gone(error: &hyper::Error) -> bool {
    use std::error::Error as _;
    let io = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let cut = io.is_some_and(|io| {
        matches!(io.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
    });
    let reset = error.source().and_then(|source| source.downcast_ref::<h2::Error>()).is_some();
    cut || reset || error.is_incomplete_message() || error.is_closed() || error.is_canceled()
}

/// Why a request's body could not be taken in.
pub(super) enum Unread {
    /// The caller is told.
    Denied(Box<Fault>),
    /// The caller has gone.
    Gone,
}

impl From<UploadError> for Unread {
    fn from(error: UploadError) -> Self {
        let code = match error {
            UploadError::TooLarge(_) => Code::BodyTooLarge,
            UploadError::TooSlow(_) => Code::RequestTimeout,
            UploadError::Broken => Code::InvalidHttp,
            UploadError::Gone => return Self::Gone,
        };
        Self::denied(code, error.to_string())
    }
}

impl Unread {
    fn denied(code: Code, message: String) -> Self {
        Self::Denied(Box::new(Fault::new(code, Outcome::Denied, Stage::Listen, message)))
    }
}

/// Takes a request's whole body in, within what all may hold.
pub(super) async fn whole(
    limits: &Limits,
    held: &std::sync::Arc<Gauge>,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<(Bytes, Share), Unread> {
    let full =
        |_| Unread::denied(Code::Overloaded, "the gateway holds as many bytes as it may; try again later".to_owned());
    if let Some(coding) = headers.get_all(header::CONTENT_ENCODING).iter().find(|coding| *coding != "identity") {
        let coding = shown(coding.to_str().unwrap_or("?"));
        let message = format!("the body's coding `{coding}` is not read; send it as it is");
        return Err(Unread::denied(Code::InvalidJson, message));
    }
    let declared = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
    let mut body = Intake::new(body, limits)?;
    let mut held = held.take(0).map_err(full)?;
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        held.grow(data.len()).map_err(full)?;
        match first.take() {
            None if all.is_empty() && data.len() <= SMALL => first = Some(Bytes::copy_from_slice(&data)),
            None if all.is_empty() => first = Some(data),
            begin => {
                let begin = begin.unwrap_or_default();
                all.reserve(room(declared, body.taken, all.len(), begin.len() + data.len()));
                all.extend_from_slice(&begin);
                all.extend_from_slice(&data);
            }
        }
    }
    Ok((first.unwrap_or_else(|| all.freeze()), held))
}

/// Bytes to reserve for `more` that have come, where `length` have in all and `kept` are in the buffer.
///
/// Room is made for all of a declared body as soon as a part of it is there, so that few bytes are copied again; before
/// that, a promise alone takes no memory.
fn room(declared: Option<usize>, length: usize, kept: usize, more: usize) -> usize {
    let promised = declared.map_or(0, |declared| declared.saturating_sub(kept));
    promised.min(length.saturating_mul(TRUST)).max(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_alone_takes_no_memory() {
        assert_eq!(room(Some(32 << 20), 2, 1, 1), 32);
        assert_eq!(room(None, 5 << 20, 4 << 20, 100), 100);
        assert_eq!(room(Some(1 << 20), 128 << 10, 100, 50), (1 << 20) - 100);
        assert_eq!(room(Some(32 << 20), 1 << 20, 100, 50), 16 << 20);
        assert_eq!(room(Some(300), 300, 100, 200), 200);
    }
}
