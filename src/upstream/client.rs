//! Backends over HTTP: one pool a backend, with a deadline on every wait.

use std::collections::HashMap;
use std::pin::Pin;
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;

use bytes::Bytes;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tokio::time::Sleep;

use crate::catalog::Backend;
use crate::catalog::Catalog;
use crate::dialect::table::BackendKind;
use crate::stage::headers;
use crate::stage::send::Call;
use crate::stage::send::Phase;
use crate::stage::send::Upstream;
use crate::stage::send::UpstreamBody;
use crate::stage::send::UpstreamError;
use crate::stage::send::UpstreamReply;
use crate::tls::TlsError;
use crate::upstream::connect::ConnectError;
use crate::upstream::gathered::Gathered;
use crate::upstream::outgoing::Elapsed;
use crate::upstream::outgoing::Outgoing;
use crate::upstream::outgoing::Progress;
use crate::upstream::pool::CallError;
use crate::upstream::pool::Outbound;
use crate::upstream::pool::Pool;
use crate::upstream::reply::ReplyBody;
use crate::upstream::scripted::Scripted;

/// Every backend of a catalogue, with its pool.
pub struct Backends {
    pools: HashMap<Arc<str>, Pool, ahash::RandomState>,
    scripted: Scripted,
}

/// A backend's connections cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// Its certificates or key cannot be used.
    #[error("TLS cannot be set up")]
    Tls(#[from] TlsError),
    /// The base URL makes no address.
    #[error("the backend's address cannot be used")]
    Address,
}

impl Backends {
    /// One pool for every backend that `catalog` can reach.
    pub fn new(catalog: &Catalog) -> Result<Self, PoolError> {
        let mut pools = HashMap::default();
        let aliases = catalog.aliases.values().chain(&catalog.fallback);
        for backend in aliases.flat_map(|alias| &alias.targets).map(|target| &target.backend) {
            if let Some(base) = backend.base.as_ref().filter(|_| !pools.contains_key(&backend.name)) {
                pools.insert(backend.name.clone(), Pool::new(backend, base)?);
            }
        }
        Ok(Self { pools, scripted: Scripted::default() })
    }

    async fn over_http(&self, call: Call) -> Result<UpstreamReply, UpstreamError> {
        let backend = Arc::clone(&call.target.backend);
        let connect = |source| UpstreamError::Connect { backend: backend.name.clone(), source };
        let (Some(pool), Some(base)) = (self.pools.get(&backend.name), &backend.base) else {
            return Err(connect("the backend has no address".into()));
        };
        let Some(place) = pool.place().await else { return Err(connect("the pool is closed".into())) };
        let path = format!("{}{}", base.path, call.path);
        let body = Outgoing::new(call.body, &backend);
        let progress = body.progress();
        let outbound = Outbound { method: call.method, path, headers: call.headers, body };
        let stall = |phase, after| UpstreamError::Stall { backend: backend.name.clone(), phase, after };
        let first_byte = backend.timeouts.first_byte;
        let sending = pin!(pool.send(outbound));
        let reply = match progress.within(first_byte, sending).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(CallError::Connect(ConnectError::Late))) => {
                return Err(stall(Phase::Connect, backend.timeouts.connect));
            }
            Ok(Err(CallError::Connect(ConnectError::Failed(source)))) => return Err(connect(source)),
            Ok(Err(CallError::Address)) => return Err(connect("the path makes no address".into())),
            Ok(Err(CallError::Broken(error))) => return Err(broken(&backend, &progress, error)),
            Ok(Err(CallError::Head(error))) => {
                return Err(UpstreamError::Broken { backend: backend.name.clone(), source: error.into() });
            }
            Err(Elapsed) => return Err(stall(Phase::FirstByte, first_byte)),
        };
        let (mut head, body) = reply.into_parts();
        headers::scrub(&mut head.headers, &backend);
        let body: UpstreamBody =
            Box::pin(Timed { body: Gathered::new(body), idle: None, backend, progress, _place: place });
        Ok(UpstreamReply { status: head.status, headers: head.headers, body })
    }
}

/// A call that broke: by the caller's own body, or by the backend.
fn broken(backend: &Backend, progress: &Progress, error: hyper::Error) -> UpstreamError {
    match progress.failed() {
        Some(upload) => UpstreamError::Upload(upload),
        None => UpstreamError::Broken { backend: backend.name.clone(), source: error.into() },
    }
}

impl Upstream for Backends {
    async fn send(&self, call: Call) -> Result<UpstreamReply, UpstreamError> {
        match call.target.backend.kind {
            BackendKind::Demo => self.scripted.send(call).await,
            _ => self.over_http(call).await,
        }
    }
}

/// An answer's body that fails when it pauses too long. It holds its place among the calls under way.
struct Timed {
    body: Gathered<ReplyBody>,
    /// The clock of the pause under way. Made when the body first pauses: most answers never do.
    idle: Option<Pause>,
    backend: Arc<Backend>,
    progress: Arc<Progress>,
    _place: OwnedSemaphorePermit,
}

struct Pause {
    clock: Pin<Box<Sleep>>,
    /// The last piece came after the clock was set.
    since: Option<Instant>,
}

impl Timed {
    /// Whether nothing has come for too long.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let after = self.backend.timeouts.idle;
        let idle = self.idle.get_or_insert_with(|| Pause { clock: Box::pin(tokio::time::sleep(after)), since: None });
        loop {
            if idle.clock.as_mut().poll(context).is_pending() {
                return false;
            }
            // Set anew when it runs out and not with each piece: there are many of them.
            let Some(since) = idle.since.take() else { return true };
            idle.clock.as_mut().reset(since + after);
        }
    }
}

impl Body for Timed {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(frame) => {
                if let Some(idle) = &mut this.idle {
                    idle.since = Some(Instant::now());
                }
                let frame = frame.map(|frame| {
                    frame.map(|frame| match frame.into_trailers() {
                        Ok(trailers) => Frame::trailers(headers::trailers_in(trailers, &this.backend)),
                        Err(data) => data,
                    })
                });
                Poll::Ready(frame.map(|frame| frame.map_err(|error| broken(&this.backend, &this.progress, error))))
            }
            Poll::Pending if this.is_late(context) => {
                let after = this.backend.timeouts.idle;
                let (backend, phase) = (this.backend.name.clone(), Phase::Idle);
                Poll::Ready(Some(Err(UpstreamError::Stall { backend, phase, after })))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
