//! Sockets: binding, accepting, and ending well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioIo;
use hyper_util::rt::TokioTimer;
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::server::graceful::Watcher;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::server::Server;
use crate::server::admin;
use crate::server::edge;
use crate::server::http;
use crate::server::http::Arrival;
use crate::server::idle::Activity;
use crate::server::idle::Counted;
use crate::server::socket::Guarded;
use crate::server::transport::HandshakeError;
use crate::server::transport::Speaks;
use crate::server::transport::Transport;
use crate::stage::send::Upstream;

/// Connections beyond `limits.in_flight` that may be open: idle ones, and those that are told to wait.
const SPARE_CONNECTIONS: usize = 4_096;
/// An HTTP/2 client that is silent for so long is asked whether it is still there.
const HTTP2_PING: Duration = Duration::from_secs(20);
/// Requests of one HTTP/2 connection under way at once.
const HTTP2_STREAMS: u32 = 200;
/// Bytes of request bodies that a client may send ahead of what was read: of one request, and of all on its connection.
const HTTP2_STREAM_WINDOW: u32 = 256 << 10;
const HTTP2_WINDOW: u32 = 512 << 10;
/// Bytes of one answer that wait for an HTTP/2 client to take them.
const HTTP2_SEND_BUFFER: usize = 64 << 10;
/// Bytes of a head beyond `limits.headers` that the library reads over HTTP/2, so that what is too large is told so: of
/// one that goes further it may lose its place in the compression, and then all requests of the connection end.
const HTTP2_HEAD_SPARE: usize = 64 << 10;
/// Time for a head on the admin listener to arrive, and for a connection to it to lie idle.
const ADMIN_HEAD: Duration = Duration::from_secs(5);
/// Connections of the admin listener that may be open.
const ADMIN_CONNECTIONS: usize = 256;

/// A listener could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// Both listeners, bound and not yet served.
pub struct Listeners {
    main: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    admin: TcpListener,
}

impl Listeners {
    /// Binds both addresses.
    pub async fn bind(main: SocketAddr, admin: SocketAddr) -> Result<Self, ListenError> {
        Ok(Self { main: bind(main).await?, tls: None, admin: bind(admin).await? })
    }

    /// The same with TLS on the main listener.
    pub fn secured(self, tls: Option<Arc<ServerConfig>>) -> Self {
        Self { tls, ..self }
    }

    /// `https` or `http`: what the main listener speaks.
    pub fn main_scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The address of the main listener, its port resolved.
    pub fn main_address(&self) -> std::io::Result<SocketAddr> {
        self.main.local_addr()
    }

    /// The address of the admin listener, its port resolved.
    pub fn admin_address(&self) -> std::io::Result<SocketAddr> {
        self.admin.local_addr()
    }

    /// Serves until `ending` is cancelled, then lets requests under way finish within `drain`.
    ///
    /// `at_once` ends the wait: connections that are still open are cut.
    pub async fn serve<U: Upstream>(
        self,
        server: Arc<Server<U>>,
        ending: CancellationToken,
        at_once: CancellationToken,
        drain: Duration,
    ) {
        let tracker = TaskTracker::new();
        // The admin listener outlives the main one, so that a draining gateway can be watched.
        let drained = CancellationToken::new();
        let main = tracker.spawn(accept_main(
            self.main,
            self.tls,
            Arc::clone(&server),
            ending.clone(),
            at_once.clone(),
            drain,
        ));
        tracker.spawn(accept_admin(self.admin, Arc::clone(&server), drained.clone()));
        tracker.close();
        if let Err(error) = main.await {
            tracing::error!(%error, "the main listener ended in a fault of its own");
        }
        drained.cancel();
        tracker.wait().await;
        if let Some(audit) = &server.audit {
            audit.close();
        }
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(address).await.map_err(|source| ListenError { address, source })
}

async fn accept_main<U: Upstream>(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    server: Arc<Server<U>>,
    ending: CancellationToken,
    at_once: CancellationToken,
    drain: Duration,
) {
    let limits = server.gateway.settings.listen.limits;
    let tls = tls.map(TlsAcceptor::from);
    // The edge refuses a head that is too large, with an answer that says so. The library must take what the edge passes.
    let head_max = limits.headers.saturating_add(8 << 10);
    let mut plain = http1::Builder::new();
    plain.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(head_max);
    let mut either = auto::Builder::new(TokioExecutor::new());
    either.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(head_max);
    either
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HTTP2_PING)
        .initial_stream_window_size(HTTP2_STREAM_WINDOW)
        .initial_connection_window_size(HTTP2_WINDOW)
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_send_buf_size(HTTP2_SEND_BUFFER)
        .max_header_list_size(u32::try_from(limits.headers.saturating_add(HTTP2_HEAD_SPARE)).unwrap_or(u32::MAX));
    let common = Arc::new(Common { server: Arc::clone(&server), http1: plain, either, tls, at_once: at_once.clone() });
    let graceful = GracefulShutdown::new();
    let connections = TaskTracker::new();
    let places =
        Arc::new(Semaphore::new(limits.in_flight.saturating_add(SPARE_CONNECTIONS).min(Semaphore::MAX_PERMITS)));
    loop {
        let Some(accepted) = accepted(&listener, &places, &ending).await else { break };
        connections.spawn(connection(Arc::clone(&common), accepted, graceful.watcher(), ending.clone()));
    }
    drop(listener);
    server.drain();
    connections.close();
    tracing::info!(within = ?drain, in_flight = server.gateway.in_flight.now(), "draining");
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(drain) => {
            tracing::warn!(in_flight = server.gateway.in_flight.now(), "the drain time is over; connections are cut");
        }
        () = at_once.cancelled() => tracing::warn!("a second signal came; connections are cut"),
    }
    at_once.cancel();
    connections.wait().await;
}

/// What the connections of the main listener share.
struct Common<U> {
    server: Arc<Server<U>>,
    http1: http1::Builder,
    either: auto::Builder<TokioExecutor>,
    tls: Option<TlsAcceptor>,
    at_once: CancellationToken,
}

/// Serves one connection of the main listener to its end.
async fn connection<U: Upstream>(
    common: Arc<Common<U>>,
    accepted: Accepted,
    watcher: Watcher,
    ending: CancellationToken,
) {
    let limits = common.server.gateway.settings.listen.limits;
    let Accepted { stream, peer, _place } = accepted;
    let opening = Box::pin(async {
        let stream = Transport::open(stream, common.tls.clone(), limits.header_timeout).await?;
        let speaks = tokio::time::timeout(limits.header_timeout, stream.speaks()).await;
        Ok::<_, HandshakeError>(speaks.ok().and_then(Result::ok).map(|speaks| (stream, speaks)))
    });
    let opened = tokio::select! {
        opened = opening => opened,
        () = ending.cancelled() => return, // nobody waits for an answer yet
    };
    let (stream, speaks) = match opened {
        Ok(Some(opened)) => opened,
        Ok(None) => return, // it said nothing
        Err(error) => {
            if !matches!(error, HandshakeError::Silent) {
                common.server.metrics.no_tls();
            }
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            return tracing::debug!(%error, cause, %peer, "a connection ended early");
        }
    };
    let activity = Activity::new();
    let edge = edge::Limits { head_bytes: limits.headers, headers: http::HEADERS_MAX };
    let stream = Guarded::new(stream, Arc::clone(&activity), edge);
    let (seen, server) = (Arc::clone(&activity), Arc::clone(&common.server));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (exchange, server) = (seen.begin(request.version()), Arc::clone(&server));
        let arrival = Arrival { peer: peer.ip(), activity: Arc::clone(&seen) };
        async move {
            http::serve(server, request, arrival).await.map(|answer| answer.map(|body| Counted::new(body, exchange)))
        }
    });
    let served = async {
        let stream = TokioIo::new(stream);
        let ended = match speaks {
            Speaks::Http1 => {
                watcher.watch(common.http1.serve_connection(stream, service)).await.map_err(|error| error.to_string())
            }
            // In a box: it is large, and rare.
            Speaks::PerhapsHttp2 => {
                let connection = common.either.serve_connection(stream, service).into_owned();
                Box::pin(watcher.watch(connection)).await.map_err(|error| error.to_string())
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error, %peer, "a connection ended early");
        }
    };
    tokio::select! {
        () = served => {}
        () = common.at_once.cancelled() => {}
        () = activity.ended(limits.header_timeout, limits.idle_timeout) => {}
    }
}

async fn accept_admin<U: Upstream>(listener: TcpListener, server: Arc<Server<U>>, ending: CancellationToken) {
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(ADMIN_CONNECTIONS));
    while let Some(Accepted { stream, _place, .. }) = accepted(&listener, &places, &ending).await {
        let (server, cut) = (Arc::clone(&server), ending.clone());
        connections.spawn(async move {
            let _place = _place;
            let service = service_fn(move |request| admin::serve(Arc::clone(&server), request));
            let mut builder = hyper::server::conn::http1::Builder::new();
            let connection = builder
                .timer(TokioTimer::new())
                .header_read_timeout(ADMIN_HEAD)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                result = connection => if let Err(error) = result {
                    tracing::debug!(%error, "an admin connection ended early");
                },
                () = cut.cancelled() => {}
            }
        });
    }
    connections.close();
    connections.wait().await;
}

/// A connection that was accepted, with its place among those that may be open.
struct Accepted {
    stream: TcpStream,
    peer: SocketAddr,
    _place: OwnedSemaphorePermit,
}

/// The next connection; none once `ending` is cancelled. A failed accept is logged and waited out.
async fn accepted(listener: &TcpListener, places: &Arc<Semaphore>, ending: &CancellationToken) -> Option<Accepted> {
    // Without a place nothing is accepted: further callers wait in the system's own queue.
    let place = tokio::select! {
        biased;
        () = ending.cancelled() => return None,
        place = Arc::clone(places).acquire_owned() => place.ok()?,
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = ending.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true); // a socket without it is slower, not wrong
                return Some(Accepted { stream, peer, _place: place });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await; // out of descriptors: others must end first
            }
        }
    }
}
