//! The admin listener: probes and metrics.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::Request;
use http::Response;
use http::StatusCode;
use http::header;
use http_body_util::Full;
use hyper::body::Incoming;
use secrecy::ExposeSecret as _;
use serde_json::json;
use subtle::ConstantTimeEq as _;

use crate::server::Server;
use crate::stage::authenticate;
use crate::stage::send::Upstream;

/// Serves one request of the admin listener.
pub async fn serve<U: Upstream>(
    server: Arc<Server<U>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n"));
    }
    let hosts = request.headers().get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut hosts = hosts.chain(request.uri().authority().map(|authority| authority.as_str())).peekable();
    let local = hosts.peek().is_some() && hosts.all(authenticate::is_loopback);
    if server.gateway.settings.admin.address.ip().is_loopback() && !local {
        // A page of another origin could have made its name resolve to here.
        return Ok(text(StatusCode::FORBIDDEN, "only loopback names are served here\n"));
    }
    Ok(match request.uri().path() {
        "/livez" => text(StatusCode::OK, "alive\n"),
        "/readyz" if request.uri().query() == Some("verbose") => verbose(&server, &request),
        "/readyz" if server.is_draining() => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        "/readyz" => text(StatusCode::OK, "ready\n"),
        "/metrics" => {
            let Some(metrics) = server.metrics.text() else {
                return Ok(text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n"));
            };
            let mut response = text(StatusCode::OK, metrics);
            let kind = header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        _ => text(StatusCode::NOT_FOUND, "served here: /livez, /readyz, /readyz?verbose, /metrics\n"),
    })
}

/// Readiness with what stands behind it. It names backends, so it asks for the token where there is one.
fn verbose<U: Upstream>(server: &Server<U>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if let Some(token) = &server.gateway.settings.admin.token {
        let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let shown = shown.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        if !bool::from(shown.as_bytes().ct_eq(token.expose_secret().as_bytes())) {
            return text(StatusCode::UNAUTHORIZED, "`authorization: Bearer <admin.token>` is needed here\n");
        }
    }
    let catalog = &server.gateway.catalog;
    let mut backends: Vec<&str> = catalog
        .aliases
        .values()
        .chain(&catalog.fallback)
        .flat_map(|alias| &alias.targets)
        .map(|target| &*target.backend.name)
        .collect();
    backends.sort_unstable();
    backends.dedup();
    let ready = !server.is_draining();
    let audit = server.audit.as_ref().map(|audit| if audit.is_sound() { "sound" } else { "failing" });
    let body = json!({
        "ready": ready,
        "draining": server.is_draining(),
        "backends": backends,
        "audit": audit.unwrap_or("off"),
        "in_flight": server.gateway.in_flight.now(),
        "held_bytes": server.gateway.held.now(),
    });
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = text(status, format!("{body:#}\n"));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
