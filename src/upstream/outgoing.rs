//! The body of a call on its way out, and the clock that starts once it is out.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use tokio::time::Instant;

use crate::catalog::Backend;
use crate::stage::headers;
use crate::stage::send::CallBody;
use crate::stage::send::Upload;
use crate::stage::send::UploadError;

/// Bytes of a body that are handed to the connection at once, so that its progress can be seen.
const HANDED: usize = 64 << 10;

/// A body on its way to a backend.
pub struct Outgoing {
    what: What,
    progress: Arc<Progress>,
}

enum What {
    /// Pieces, sent as they are: none is copied.
    Pieces { rest: VecDeque<Bytes>, left: u64 },
    /// A caller's body, sent as it comes.
    Upload(Upload, Arc<Backend>),
}

/// When the last piece of a body was handed to its connection.
pub(super) struct Progress {
    begun: Instant,
    /// Milliseconds after `begun`; none yet is `u64::MAX`.
    handed: AtomicU64,
    /// Why the caller's body came to no end. HTTP/2 tells the backend so, and nobody here.
    failed: OnceLock<UploadError>,
}

/// The time was up.
pub(super) struct Elapsed;

impl Progress {
    fn new() -> Self {
        Self { begun: Instant::now(), handed: AtomicU64::new(u64::MAX), failed: OnceLock::new() }
    }

    /// The last piece is handed over.
    fn whole(&self) {
        self.handed.store(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1), Ordering::Relaxed);
    }

    /// Why the caller's body failed, if it did.
    pub(super) fn failed(&self) -> Option<UploadError> {
        self.failed.get().copied()
    }

    /// Whether the last piece was handed over.
    pub(super) fn is_whole(&self) -> bool {
        self.handed.load(Ordering::Relaxed) != u64::MAX
    }

    /// Waits for `future` until `patience` has passed since the last piece was handed over. Until then only
    /// the exchange's deadline bounds the wait: a backend that takes a long request in slowly is not late.
    pub(super) async fn within<F: Future>(
        &self,
        patience: Duration,
        mut future: Pin<&mut F>,
    ) -> Result<F::Output, Elapsed> {
        let mut until = self.begun + patience;
        loop {
            if let Ok(output) = tokio::time::timeout_at(until, future.as_mut()).await {
                return Ok(output);
            }
            let handed = self.handed.load(Ordering::Relaxed);
            until = match handed {
                u64::MAX => Instant::now() + patience,
                handed => self.begun + Duration::from_millis(handed) + patience,
            };
            if until <= Instant::now() {
                return Err(Elapsed);
            }
        }
    }
}

impl Outgoing {
    /// A body as a call to `backend` has it.
    pub fn new(body: CallBody, backend: &Arc<Backend>) -> Self {
        let what = match body {
            CallBody::Pieces(pieces) => {
                let left = pieces.iter().map(|piece| piece.len() as u64).sum();
                What::Pieces { rest: pieces.into(), left }
            }
            CallBody::Upload(upload) => What::Upload(upload, Arc::clone(backend)),
        };
        let outgoing = Self { what, progress: Arc::new(Progress::new()) };
        if outgoing.is_end_stream() {
            outgoing.progress.whole(); // a body of nothing is never asked for a piece
        }
        outgoing
    }

    /// The clock of it.
    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// The same body for another try, where it can be had again.
    pub(super) fn again(&self) -> Option<Self> {
        match &self.what {
            What::Pieces { rest, left } => Some(Self {
                what: What::Pieces { rest: rest.clone(), left: *left },
                progress: Arc::clone(&self.progress),
            }),
            What::Upload(..) => None,
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let this = &mut *self;
        match &mut this.what {
            What::Pieces { rest, left } => {
                let next = match rest.front_mut() {
                    Some(piece) if piece.len() > HANDED => Some(piece.split_to(HANDED)),
                    _ => rest.pop_front(),
                };
                if rest.is_empty() {
                    this.progress.whole();
                }
                *left -= next.as_ref().map_or(0, |piece| piece.len() as u64);
                Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
            }
            What::Upload(upload, backend) => {
                let frame = std::task::ready!(upload.as_mut().poll_frame(context));
                if let Some(Err(error)) = &frame {
                    let _ = this.progress.failed.set(*error); // the first is the one that counts
                }
                if frame.is_none() || upload.is_end_stream() {
                    this.progress.whole();
                }
                // A trailer may hold what a header may not.
                Poll::Ready(frame.map(|frame| {
                    frame.map(|frame| match frame.into_trailers() {
                        Ok(trailers) => Frame::trailers(headers::trailers_out(&trailers, backend)),
                        Err(data) => data,
                    })
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.what {
            What::Pieces { rest, .. } => rest.is_empty(),
            What::Upload(upload, _) => upload.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.what {
            What::Pieces { left, .. } => SizeHint::with_exact(*left),
            What::Upload(upload, _) => upload.size_hint(),
        }
    }
}
