//! The connections to one backend: a call goes over one that is kept or over a new one, and there is a bound on calls.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::Request;
use http::Response;
use http::StatusCode;
use http::Uri;
use http::Version;
use http::header;
use http::uri::Scheme;
use http_body::Body as _;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use hyper_util::rt::TokioTimer;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::catalog::Backend;
use crate::catalog::BaseUrl;
use crate::upstream::client::PoolError;
use crate::upstream::connect::ConnectError;
use crate::upstream::connect::Connector;
use crate::upstream::connect::Form;
use crate::upstream::head;
use crate::upstream::head::HeadError;
use crate::upstream::kept::Kept;
use crate::upstream::kept::Shared;
use crate::upstream::link::Link;
use crate::upstream::link::LinkBody;
use crate::upstream::outgoing::Outgoing;
use crate::upstream::reply::ReplyBody;
use crate::upstream::stream::LastWord;
use crate::upstream::stream::Stream;

/// Calls that nothing was written of, begun anew on a new connection.
const FRESH_MAX: usize = 2;
/// An HTTP/2 connection that is silent for so long while it carries calls is asked whether it still stands.
const PING: Duration = Duration::from_secs(20);
/// Bytes of one answer over HTTP/2 that may come ahead of what was taken.
const STREAM_WINDOW: u32 = 256 << 10;

/// A request to the backend of a pool.
pub(super) struct Outbound {
    pub(super) method: Method,
    /// The path and query, from the root of the server.
    pub(super) path: String,
    /// Headers without `host`.
    pub(super) headers: HeaderMap,
    pub(super) body: Outgoing,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// No connection.
    Connect(ConnectError),
    /// The address and the path make no URI.
    Address,
    /// The connection broke, or the backend broke HTTP.
    Broken(hyper::Error),
    /// The library takes the head of the answer, and others would read it in another way.
    Head(HeadError),
}

/// The connections to one backend.
pub(super) struct Pool {
    connector: Connector,
    base: BaseUrl,
    host: HeaderValue,
    kept: Arc<Kept>,
    /// The backend speaks HTTP/1, as far as is known: each call has a connection of its own.
    alone: AtomicBool,
    /// Whose turn it is to connect, where that may serve others, too.
    turn: tokio::sync::Mutex<()>,
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Pool {
    /// The pool of a backend, with no connection yet.
    pub(super) fn new(backend: &Backend, base: &BaseUrl) -> Result<Self, PoolError> {
        let to = uri(base, "/").ok_or(PoolError::Address)?;
        let host = HeaderValue::from_str(host(base)).map_err(|_| PoolError::Address)?;
        let tasks = TaskTracker::new();
        Ok(Self {
            connector: Connector::new(backend, to)?,
            base: base.clone(),
            host,
            kept: Arc::new(Kept::new(backend.concurrency, tasks.clone())),
            alone: AtomicBool::new(base.scheme != Scheme::HTTPS), // HTTP/2 is agreed on in the handshake
            turn: tokio::sync::Mutex::new(()),
            places: Arc::new(Semaphore::new(backend.concurrency)),
            tasks,
        })
    }

    /// Waits for a place among the calls that may be under way; none once the pool is closed. The exchange's deadline
    /// bounds the wait.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// Sends a request and waits for the head of the answer. It is sent again only where nothing of it was written, or,
    /// once, where an HTTP/2 server says that it has not begun with it (RFC 9113 section 8.7).
    pub(super) async fn send(&self, outbound: Outbound) -> Result<Response<ReplyBody>, CallError> {
        let mut outbound = outbound;
        let (mut fresh, mut resent) = (0, false);
        loop {
            // In boxes: what is rare, and large.
            let sent = if let Some(shared) = self.kept.shared() {
                Box::pin(self.over_shared(shared, outbound)).await?
            } else if let Some(link) = self.kept.take() {
                self.over_link(link, outbound).await?
            } else {
                fresh += 1;
                if fresh > FRESH_MAX {
                    return Err(CallError::Connect(ConnectError::Failed("the backend ends each connection".into())));
                }
                match Box::pin(self.open()).await? {
                    Some(link) => self.over_link(link, outbound).await?,
                    None => continue, // it is shared
                }
            };
            let mut failed = match sent {
                Ok(response) => return Ok(response),
                Err(failed) => failed,
            };
            if let Some(refused) = failed.last_word.get() {
                return Err(CallError::Connect(ConnectError::Failed(refused.into())));
            }
            let untouched = failed.is_untouched();
            if failed.http2 && !failed.is_refused() {
                self.kept.forget(&failed.last_word); // it may not know yet that it has ended
            }
            let spare = failed.spare.take().map(|spare| *spare).filter(|_| untouched && !resent);
            let (error, unsent) = failed.parts();
            resent |= unsent.is_none();
            outbound = match unsent.or(spare).filter(|_| fresh < FRESH_MAX) {
                Some(again) => again,
                // Nobody has begun with it, so the next target may be asked.
                None if untouched => return Err(CallError::Connect(ConnectError::Failed(error.into()))),
                None => return Err(CallError::Broken(error)),
            };
        }
    }

    /// Makes a connection: one that is the caller's alone, or none where it speaks HTTP/2 and is shared from now on.
    /// Until the backend is known to speak HTTP/1, one call connects and the others wait for what it finds.
    async fn open(&self) -> Result<Option<Link>, CallError> {
        let until = Instant::now() + self.connector.patience();
        let late = |_| CallError::Connect(ConnectError::Late);
        let mut turn = None;
        if !self.alone.load(Ordering::Relaxed) {
            turn = Some(tokio::time::timeout_at(until, self.turn.lock()).await.map_err(late)?);
            if self.kept.shared().is_some() {
                return Ok(None);
            }
            if self.alone.load(Ordering::Relaxed) {
                turn = None;
            }
        }
        let connected = self.connector.connect(until).await.map_err(CallError::Connect)?;
        self.alone.store(!connected.http2, Ordering::Relaxed);
        if connected.http2 {
            self.share(connected.stream).await.map_err(CallError::Broken)?;
            return Ok(None);
        }
        drop(turn);
        Link::new(connected.stream).await.map(Some).map_err(CallError::Broken)
    }

    async fn over_link(
        &self,
        link: Link,
        outbound: Outbound,
    ) -> Result<Result<Response<ReplyBody>, Box<Failed>>, CallError> {
        let path = outbound.path;
        let mut request = Request::new(outbound.body);
        let form = self.connector.form();
        let target = match form {
            Form::Origin => Uri::try_from(path.as_str()).ok(),
            Form::Absolute { .. } => uri(&self.base, &path),
        };
        *request.uri_mut() = target.ok_or(CallError::Address)?;
        *request.method_mut() = outbound.method;
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = outbound.headers;
        if let Form::Absolute { credentials: Some(credentials) } = form {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, credentials.clone());
        }
        request.headers_mut().insert(header::HOST, self.host.clone());
        say_empty(&mut request);
        let last_word = link.last_word();
        Ok(match link.exchange(request).await {
            // It is the proxy that says so, and the backend has heard of nothing.
            Ok((response, _))
                if form != Form::Origin && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED =>
            {
                let reason = "the proxy does not take the gateway's credentials, or wants some (407)";
                return Err(CallError::Connect(ConnectError::Failed(reason.into())));
            }
            Ok((response, link)) => {
                head::sound(&response).map_err(CallError::Head)?; // the connection goes with it
                Ok(response.map(|incoming| ReplyBody::Link(LinkBody::new(incoming, link, Arc::clone(&self.kept)))))
            }
            Err(error) => Err(Box::new(Failed { error, path, http2: false, last_word, spare: None })),
        })
    }

    async fn over_shared(
        &self,
        shared: Shared,
        outbound: Outbound,
    ) -> Result<Result<Response<ReplyBody>, Box<Failed>>, CallError> {
        let (mut sender, last_word, call) = shared.begin();
        let spare = outbound.body.again().map(|body| {
            let (method, path) = (outbound.method.clone(), outbound.path.clone());
            Box::new(Outbound { method, path, headers: outbound.headers.clone(), body })
        });
        let path = outbound.path;
        let mut request = Request::new(outbound.body);
        *request.uri_mut() = uri(&self.base, &path).ok_or(CallError::Address)?;
        *request.method_mut() = outbound.method;
        *request.version_mut() = Version::HTTP_2;
        *request.headers_mut() = outbound.headers;
        say_empty(&mut request);
        Ok(match sender.try_send_request(request).await {
            Ok(response) => Ok(response.map(|body| ReplyBody::Shared { body, _call: call })),
            Err(error) => Err(Box::new(Failed { error, path, http2: true, last_word, spare })),
        })
    }

    /// Sets HTTP/2 up on a new connection, to be shared from now on.
    async fn share(&self, stream: Stream) -> hyper::Result<()> {
        let last_word = stream.last_word();
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(connection_window(self.kept.most()))
            .max_header_list_size(HEAD_LIST_MAX)
            .handshake::<_, Outgoing>(stream)
            .await?;
        self.tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an HTTP/2 connection to a backend ended early");
            }
        });
        self.kept.share(Shared::new(sender, last_word));
        Ok(())
    }
}

/// Bytes of all answers over one HTTP/2 connection that may come ahead of what was taken: so many that callers who take
/// nothing, each with a stream's worth held back, never leave the others without.
fn connection_window(calls: usize) -> u32 {
    const MOST: u32 = i32::MAX as u32; // RFC 9113 section 6.9.1
    u32::try_from(calls).unwrap_or(MOST).saturating_mul(STREAM_WINDOW).min(MOST)
}

/// Bytes of the headers of an answer over HTTP/2.
const HEAD_LIST_MAX: u32 = 256 << 10;

/// A request that failed, perhaps before anything was written.
struct Failed {
    error: TrySendError<Request<Outgoing>>,
    path: String,
    http2: bool,
    /// Why the backend ended the connection before it took anything, where it said so.
    last_word: LastWord,
    /// The same request once more, where it can be had again.
    spare: Option<Box<Outbound>>,
}

impl Failed {
    /// Whether nobody has begun with the request: nothing of it was written, or an HTTP/2 server says so, who refused
    /// the stream or went away before it.
    fn is_untouched(&self) -> bool {
        let error = self.error.error();
        let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
        let said = |cause: &h2::Error| {
            cause.is_remote() && (cause.is_go_away() || cause.reason() == Some(h2::Reason::REFUSED_STREAM))
        };
        // What waits for its stream to be opened goes with the connection's task, and that is all that is heard of it: of
        // the errors that the library lays at its user's door, a request over HTTP/2 can end in no other.
        let unopened = self.http2 && error.is_user();
        self.error.message().is_some() || unopened || cause.is_some_and(said)
    }

    /// Whether an HTTP/2 server refused this request alone, and not all that come after it.
    fn is_refused(&self) -> bool {
        let cause = std::error::Error::source(self.error.error()).and_then(|source| source.downcast_ref::<h2::Error>());
        cause.is_some_and(|cause| cause.is_reset())
    }

    /// The error, and the request where nothing of it was written.
    fn parts(mut self) -> (hyper::Error, Option<Outbound>) {
        let unsent = self.error.take_message().map(|request| {
            let (head, body) = request.into_parts();
            let mut headers = head.headers;
            headers.remove(header::HOST);
            Outbound { method: head.method, path: self.path, headers, body }
        });
        (self.error.into_error(), unsent)
    }
}

/// Says that there is no body where one could be meant: servers may demand it, and the library leaves it out (RFC 9110
/// section 8.6).
fn say_empty(request: &mut Request<Outgoing>) {
    if request.body().is_end_stream() && matches!(*request.method(), Method::POST | Method::PUT | Method::PATCH) {
        request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
}

fn uri(base: &BaseUrl, path: &str) -> Option<Uri> {
    let parts = Uri::builder().scheme(base.scheme.clone()).authority(base.authority.clone());
    parts.path_and_query(path).build().ok()
}

/// The `host` of a backend: without the port that its scheme has anyway (RFC 9110 section 7.2).
fn host(base: &BaseUrl) -> &str {
    let own = if base.scheme == Scheme::HTTPS { 443 } else { 80 };
    match base.authority.port_u16() {
        Some(port) if port != own => base.authority.as_str(),
        _ => base.authority.host(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_room_for_every_call_that_may_be_stuck() {
        assert_eq!(connection_window(1), STREAM_WINDOW);
        assert_eq!(connection_window(256), 64 << 20);
        for many in [8_192, 1 << 20, usize::MAX] {
            assert_eq!(connection_window(many), 0x7fff_ffff);
        }
    }

    #[test]
    fn a_host_has_no_port_that_its_scheme_has_anyway() {
        let host_of = |text: &str| {
            let parts = text.parse::<Uri>().unwrap().into_parts();
            let base =
                BaseUrl { scheme: parts.scheme.unwrap(), authority: parts.authority.unwrap(), path: "/v1".into() };
            host(&base).to_owned()
        };
        for (url, host) in [
            ("https://api.example", "api.example"),
            ("https://api.example:443", "api.example"),
            ("http://api.example:443", "api.example:443"),
            ("http://127.0.0.1:8000", "127.0.0.1:8000"),
            ("http://[::1]:80", "[::1]"),
        ] {
            assert_eq!(host_of(url), host);
        }
    }
}
