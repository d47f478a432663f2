//! New connections to a backend: name, TCP, the way through a proxy, and TLS, all within one time.

use std::time::Duration;

use http::HeaderValue;
use http::Uri;
use http::uri::Scheme;
use hyper_rustls::HttpsConnector;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::Connection as _;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use tokio::time::Instant;
use tower_service::Service;

use crate::catalog::Backend;
use crate::catalog::Proxy;
use crate::tls;
use crate::upstream::client::PoolError;
use crate::upstream::stream::Stream;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

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
    way: Way,
    to: Uri,
    patience: Duration,
}

/// How a request names what it is for (RFC 9112 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form<'c> {
    /// By its path.
    Origin,
    /// By the whole address, for a proxy that reads it, with what the proxy wants to see.
    Absolute { credentials: Option<&'c HeaderValue> },
}

/// How a backend is reached.
enum Way {
    /// Without TLS: to the backend itself, or to a proxy that reads the requests (RFC 9112 section 3.2.2).
    Plain { tcp: HttpConnector, first: Uri, proxied: Option<Option<HeaderValue>> },
    /// With TLS.
    Secure(HttpsConnector<HttpConnector>),
    /// With TLS through a proxy, which sees that there is a connection and nothing of it (RFC 9110 section 9.3.6).
    Tunnel(HttpsConnector<Tunnel<HttpConnector>>),
}

impl Connector {
    /// The connector of a backend, whose address is `to`.
    pub(super) fn new(backend: &Backend, to: Uri) -> Result<Self, PoolError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(60)));
        let way = if to.scheme() == Some(&Scheme::HTTPS) {
            let config = tls::client(backend.tls.as_ref())?;
            let secure =
                HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().enable_http2();
            match &backend.proxy {
                None => Way::Secure(secure.wrap_connector(tcp)),
                Some(proxy) => {
                    let tunnel = Tunnel::new(address(proxy)?, tcp);
                    let tunnel = match &proxy.credentials {
                        Some(credentials) => tunnel.with_auth(credentials.clone()),
                        None => tunnel,
                    };
                    Way::Tunnel(secure.wrap_connector(tunnel))
                }
            }
        } else {
            let first = backend.proxy.as_ref().map_or(Ok(to.clone()), address)?;
            Way::Plain { tcp, first, proxied: backend.proxy.as_ref().map(|proxy| proxy.credentials.clone()) }
        };
        Ok(Self { way, to, patience: backend.timeouts.connect })
    }

    /// How a request names what it is for.
    pub(super) fn form(&self) -> Form<'_> {
        match &self.way {
            Way::Plain { proxied: Some(credentials), .. } => Form::Absolute { credentials: credentials.as_ref() },
            Way::Plain { proxied: None, .. } | Way::Secure(_) | Way::Tunnel(_) => Form::Origin,
        }
    }

    /// The backend's `timeouts.connect`.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Makes a connection: name, TCP, proxy and TLS together by this time.
    pub(super) async fn connect(&self, until: Instant) -> Result<Connected, ConnectError> {
        let connecting = async {
            match &self.way {
                Way::Plain { tcp, first, .. } => called(tcp, first).await.map(MaybeHttpsStream::Http),
                Way::Secure(connector) => called(connector, &self.to).await,
                Way::Tunnel(connector) => called(connector, &self.to).await,
            }
        };
        match tokio::time::timeout_at(until, connecting).await {
            Ok(Ok(stream)) => {
                Ok(Connected { http2: stream.connected().is_negotiated_h2(), stream: Stream::new(stream) })
            }
            Ok(Err(error)) => Err(ConnectError::Failed(error)),
            Err(_) => Err(ConnectError::Late),
        }
    }
}

async fn called<C>(connector: &C, to: &Uri) -> Result<C::Response, BoxError>
where
    C: Service<Uri> + Clone,
    C::Error: Into<BoxError>,
{
    let mut connector = connector.clone();
    std::future::poll_fn(|context| connector.poll_ready(context)).await.map_err(Into::into)?;
    connector.call(to.clone()).await.map_err(Into::into)
}

fn address(proxy: &Proxy) -> Result<Uri, PoolError> {
    let parts = Uri::builder().scheme(Scheme::HTTP).authority(proxy.authority.clone());
    parts.path_and_query("/").build().map_err(|_| PoolError::Address)
}
