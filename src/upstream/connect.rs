//! New connections to a backend: name, TCP, the way through a proxy, and TLS, all within one time.

use std::pin::Pin;
use std::time::Duration;

use http::Uri;
use hyper_rustls::HttpsConnector;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::catalog::Backend;
use crate::upstream::client::PoolError;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection, with TLS or without.
pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// A new connection, and what is spoken on it.
pub(super) struct Connected {
    /// The connection.
    pub(super) stream: Stream,
    /// The backend chose HTTP/2 (ALPN).
    pub(super) http2: bool,
}

/// No connection stands.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// Not within the time.
    Late,
    /// Refused, unknown, or not to be trusted.
    Failed(BoxError),
}

/// Makes connections to one backend.
pub(super) struct Connector {
    tls: HttpsConnector<HttpConnector>,
    to: Uri,
    patience: Duration,
}

impl Connector {
    /// The connector of a backend, whose address is `to`.
    pub(super) fn new(backend: &Backend, to: Uri) -> Result<Self, PoolError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(60)));
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let tls = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(provider)?
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(tcp);
        Ok(Self { tls, to, patience: backend.timeouts.connect })
    }

    /// Makes a connection: name, TCP and TLS together within the backend's `timeouts.connect`.
    pub(super) async fn connect(&self) -> Result<Connected, ConnectError> {
        let mut tls = self.tls.clone();
        let to = self.to.clone();
        let connecting: Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>> = Box::pin(async move {
            std::future::poll_fn(|context| tls.poll_ready(context)).await?;
            tls.call(to).await
        });
        match tokio::time::timeout(self.patience, connecting).await {
            Ok(Ok(stream)) => Ok(Connected { http2: stream.connected().is_negotiated_h2(), stream }),
            Ok(Err(error)) => Err(ConnectError::Failed(error)),
            Err(_) => Err(ConnectError::Late),
        }
    }
}
