//! A body that must end in time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use tokio::time::Sleep;

use crate::stage::send::Phase;
use crate::stage::send::UpstreamBody;
use crate::stage::send::UpstreamError;

/// A backend's body that fails once the exchange's time is up.
pub struct InTime {
    body: UpstreamBody,
    backend: Arc<str>,
    deadline: Instant,
    begun: Instant,
    /// Made when the body first pauses: most never do.
    clock: Option<Pin<Box<Sleep>>>,
}

impl InTime {
    /// `body`, which must end by `deadline`.
    pub fn new(body: UpstreamBody, backend: Arc<str>, deadline: Instant) -> Self {
        Self { body, backend, deadline, begun: Instant::now(), clock: None }
    }

    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let deadline = tokio::time::Instant::from_std(self.deadline);
        let clock = self.clock.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        clock.as_mut().poll(context).is_ready()
    }
}

impl Body for InTime {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let this = self.get_mut();
        // A body that always has more never pauses.
        let late = Instant::now() >= this.deadline;
        match if late { Poll::Pending } else { this.body.as_mut().poll_frame(context) } {
            Poll::Pending if late || this.is_over(context) => {
                let (backend, after) = (this.backend.clone(), this.deadline.saturating_duration_since(this.begun));
                Poll::Ready(Some(Err(UpstreamError::Stall { backend, phase: Phase::Total, after })))
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
