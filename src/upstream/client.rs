//! Backends over HTTP: pooled connections, one pool a backend, with a deadline on every wait.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::Uri;
use http::Version;
use http_body::Body;
use http_body::Frame;
use http_body::SizeHint;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioTimer;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio::time::Sleep;
use tower_service::Service;

use crate::catalog::Backend;
use crate::catalog::Catalog;
use crate::dialect::table::BackendKind;
use crate::stage::send::Call;
use crate::stage::send::Phase;
use crate::stage::send::Upstream;
use crate::stage::send::UpstreamBody;
use crate::stage::send::UpstreamError;
use crate::stage::send::UpstreamReply;
use crate::upstream::scripted::Scripted;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Idle connections are dropped before a server's own keep-alive ends them (15 s and more are usual).
const POOL_IDLE: Duration = Duration::from_secs(14);
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 256 << 10;

/// Every backend of a catalogue, with its pool.
pub struct Backends {
    pools: HashMap<String, Pool>,
    scripted: Scripted,
}

struct Pool {
    client: Client<InTime<HttpsConnector<HttpConnector>>, Pieces>,
    places: Arc<Semaphore>,
}

/// TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The TLS provider offers no usable versions.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

impl Backends {
    /// One pool for every backend that `catalog` can reach.
    pub fn new(catalog: &Catalog) -> Result<Self, PoolError> {
        let mut pools = HashMap::new();
        let aliases = catalog.aliases.values().chain(&catalog.fallback);
        for backend in aliases.flat_map(|alias| &alias.targets).map(|target| &target.backend) {
            if backend.kind != BackendKind::Demo && !pools.contains_key(&backend.name) {
                pools.insert(backend.name.clone(), Pool::new(backend)?);
            }
        }
        Ok(Self { pools, scripted: Scripted::default() })
    }

    async fn over_http(&self, call: Call) -> Result<UpstreamReply, UpstreamError> {
        let backend = Arc::clone(&call.target.backend);
        let (Some(pool), Some(request)) = (self.pools.get(&backend.name), request(call)) else {
            let source = "the backend has no address".into();
            return Err(UpstreamError::Connect { backend: backend.name.clone(), source });
        };
        let place = pool.place(&backend).await?;
        let first_byte = backend.timeouts.first_byte;
        let progress = Arc::clone(&request.body().progress);
        let reply = match progress.within(first_byte, pool.client.request(request)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) if error.is_connect() && is_late(&error) => {
                let (backend, after) = (backend.name.clone(), backend.timeouts.connect);
                return Err(UpstreamError::Stall { backend, phase: Phase::Connect, after });
            }
            Ok(Err(error)) if error.is_connect() => {
                return Err(UpstreamError::Connect { backend: backend.name.clone(), source: error.into() });
            }
            Ok(Err(error)) => {
                return Err(UpstreamError::Broken { backend: backend.name.clone(), source: error.into() });
            }
            Err(Elapsed) => {
                let (backend, phase) = (backend.name.clone(), Phase::FirstByte);
                return Err(UpstreamError::Stall { backend, phase, after: first_byte });
            }
        };
        let (head, incoming) = reply.into_parts();
        let body: UpstreamBody = Box::pin(Timed { incoming, idle: None, backend, _place: place });
        Ok(UpstreamReply { status: head.status, headers: head.headers, body })
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

impl Pool {
    fn new(backend: &Backend) -> Result<Self, PoolError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(60)));
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(provider)?
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(backend.concurrency)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(InTime { connector, patience: backend.timeouts.connect });
        Ok(Self { client, places: Arc::new(Semaphore::new(backend.concurrency)) })
    }

    /// Waits for a place among the calls that may be under way. The exchange's deadline bounds the wait.
    async fn place(&self, backend: &Backend) -> Result<OwnedSemaphorePermit, UpstreamError> {
        Arc::clone(&self.places)
            .acquire_owned()
            .await
            .map_err(|error| UpstreamError::Connect { backend: backend.name.clone(), source: error.into() })
    }
}

/// A connector that must have its connection within a time: name, TCP and TLS together.
#[derive(Clone)]
struct InTime<C> {
    connector: C,
    patience: Duration,
}

/// The connection did not stand in time.
#[derive(Debug, thiserror::Error)]
#[error("the connection did not stand in time")]
struct Late;

impl<C> Service<Uri> for InTime<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
    C::Response: 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, patience) = (self.connector.call(uri), self.patience);
        Box::pin(async move {
            match tokio::time::timeout(patience, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(Late.into()),
            }
        })
    }
}

/// Whether an error is a connection that did not stand in time.
fn is_late(error: &dyn std::error::Error) -> bool {
    let mut source = error.source();
    while let Some(inner) = source {
        if inner.is::<Late>() {
            return true;
        }
        source = inner.source();
    }
    false
}

fn request(call: Call) -> Option<Request<Pieces>> {
    let base = call.target.backend.base.as_ref()?;
    let path = format!("{}{}", base.path, call.path);
    let uri = Uri::builder()
        .scheme(base.scheme.clone())
        .authority(base.authority.clone())
        .path_and_query(path)
        .build()
        .ok()?;
    let mut request = Request::new(Pieces::new(call.body));
    *request.method_mut() = call.method;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = call.headers;
    Some(request)
}

/// Bytes of a body that are handed to the connection at once, so that its progress can be seen.
const HANDED: usize = 64 << 10;

/// A body in pieces, sent as they are: none is copied.
pub struct Pieces {
    rest: VecDeque<Bytes>,
    left: u64,
    progress: Arc<Progress>,
}

/// When the last piece of a body was handed to its connection.
struct Progress {
    begun: Instant,
    /// Milliseconds after `begun`; none yet is `u64::MAX`.
    handed: AtomicU64,
}

/// The time was up.
struct Elapsed;

impl Progress {
    fn new() -> Self {
        Self { begun: Instant::now(), handed: AtomicU64::new(u64::MAX) }
    }

    /// The last piece is handed over.
    fn whole(&self) {
        self.handed.store(u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1), Ordering::Relaxed);
    }

    /// Waits for `future` until `patience` has passed since the last piece was handed over. Until then only
    /// the exchange's deadline bounds the wait: a backend that takes a long request in slowly is not late.
    async fn within<F: Future>(&self, patience: Duration, future: F) -> Result<F::Output, Elapsed> {
        let mut future = std::pin::pin!(future);
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

impl Pieces {
    /// A body of these pieces.
    pub fn new(pieces: Vec<Bytes>) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { left, rest: pieces.into(), progress: Arc::new(Progress::new()) }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.rest.front_mut() {
            Some(piece) if piece.len() > HANDED => Some(piece.split_to(HANDED)),
            _ => self.rest.pop_front(),
        };
        if self.rest.is_empty() {
            self.progress.whole();
        }
        self.left -= next.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// An answer's body that fails when it pauses too long. It holds its place among the calls under way.
struct Timed {
    incoming: Incoming,
    /// The clock of the pause under way. Made when the body first pauses: most answers never do.
    idle: Option<Pin<Box<Sleep>>>,
    backend: Arc<Backend>,
    _place: OwnedSemaphorePermit,
}

impl Body for Timed {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let this = self.get_mut();
        let after = this.backend.timeouts.idle;
        match Pin::new(&mut this.incoming).poll_frame(context) {
            Poll::Ready(frame) => {
                if let Some(clock) = &mut this.idle {
                    clock.as_mut().reset(Instant::now() + after);
                }
                let broken = |source: hyper::Error| UpstreamError::Broken {
                    backend: this.backend.name.clone(),
                    source: source.into(),
                };
                Poll::Ready(frame.map(|frame| frame.map_err(broken)))
            }
            Poll::Pending => {
                let clock = this.idle.get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
                match clock.as_mut().poll(context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(()) => {
                        let (backend, phase) = (this.backend.name.clone(), Phase::Idle);
                        Poll::Ready(Some(Err(UpstreamError::Stall { backend, phase, after })))
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
