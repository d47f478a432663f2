//! HTTP on the main listener: hyper's requests in, hyper's responses out, an exchange in between.

use std::convert::Infallible;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use std::time::SystemTime;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderName;
use http::HeaderValue;
use http::Method;
use http::Request;
use http::Response;
use http::StatusCode;
use http::header;
use http::request::Parts;
use hyper::body::Body as _;
use hyper::body::Incoming as Body;

use crate::audit::AuditError;
use crate::exchange;
use crate::exchange::Incoming;
use crate::exchange::Out;
use crate::exchange::Prepared;
use crate::exchange::open;
use crate::exchange::open::Open;
use crate::exchange::open::OpenBody;
use crate::json::fault::shown;
use crate::json::string;
use crate::record::Outcome;
use crate::record::Stage;
use crate::server::Server;
use crate::server::entry::Entry;
use crate::server::idle::Activity;
use crate::server::intake;
use crate::server::intake::Intake;
use crate::server::intake::Unread;
use crate::server::route::Route;
use crate::server::route::route;
use crate::server::socket;
use crate::server::stream::Held;
use crate::server::stream::OutBody;
use crate::stage::admit::Share;
use crate::stage::answer;
use crate::stage::answer::Answer;
use crate::stage::answer::Fault;
use crate::stage::answer::Told;
use crate::stage::authenticate;
use crate::stage::authenticate::Caller;
use crate::stage::headers;
use crate::stage::send::Upstream;
use crate::wire::fault::Code;
use crate::wire::sse;

/// Headers of a request.
pub(super) const HEADERS_MAX: usize = 100;

const OUTCOME: HeaderName = HeaderName::from_static("x-portcullis-outcome");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-portcullis-request-id");
const BACKEND: HeaderName = HeaderName::from_static("x-portcullis-backend");
const NATIVE: HeaderName = HeaderName::from_static("x-portcullis-native");
const POLICY: HeaderName = HeaderName::from_static("x-portcullis-policy");
const DROPPED: HeaderName = HeaderName::from_static("x-portcullis-dropped");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-portcullis-attempts");
const OVERHEAD: HeaderName = HeaderName::from_static("x-portcullis-overhead-us");

/// Headers of answers that a page of an allowed origin may read.
const EXPOSED: &str = "x-request-id, retry-after, x-portcullis-outcome, x-portcullis-request-id, x-portcullis-backend, \
                       x-portcullis-policy, x-portcullis-dropped, x-portcullis-native, x-portcullis-attempts, x-portcullis-overhead-us";

/// What is known of a request besides itself.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The other end of the connection.
    pub peer: IpAddr,
    /// The connection, and why the edge reads no more of it.
    pub activity: Arc<Activity>,
}

/// Serves one request. It never fails: whatever goes wrong is an answer.
pub async fn serve<U: Upstream>(
    server: Arc<Server<U>>,
    request: Request<Body>,
    arrival: Arrival,
) -> Result<Response<OutBody<U>>, Infallible> {
    let started = Instant::now();
    let id = server.ids.next(SystemTime::now()).to_string();
    let told = HeaderValue::from_str(&id).ok();
    let own = server.gateway.settings.listen.headers;
    let (head, body) = request.into_parts();
    let origin = head.headers.get(header::ORIGIN).cloned();
    let handled = Box::pin(handle(Arc::clone(&server), head, body, started, id, arrival));
    let mut response = match caught(handled).await {
        Some(response) => response,
        None => {
            server.metrics.panicked();
            let id = told.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default();
            tracing::error!(request_id = id, "a request ended in a fault of the gateway's own");
            plain(failed().answer(&Told::of_id(id)))
        }
    };
    let headers = response.headers_mut();
    if let Some(id) = told {
        if own {
            headers.insert(REQUEST_ID, id.clone());
        }
        headers.insert(X_REQUEST_ID, id);
    }
    if let Some(origin) =
        origin.filter(|origin| server.gateway.settings.listen.cors.iter().any(|allowed| origin == allowed))
    {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
    Ok(response)
}

/// What a caller hears of a fault of the gateway's own.
fn failed() -> Fault {
    let message = "the gateway failed; the request id finds it in the log";
    Fault::new(Code::InternalError, Outcome::Failed, Stage::Answer, message)
}

/// Polls a future and catches a panic in it: one request's fault must not end the others of its connection.
async fn caught<T>(mut future: Pin<Box<impl Future<Output = T>>>) -> Option<T> {
    std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(value)) => Poll::Ready(Some(value)),
        Err(_) => Poll::Ready(None),
    })
    .await
}

async fn handle<U: Upstream>(
    server: Arc<Server<U>>,
    head: Parts,
    body: Body,
    started: Instant,
    id: String,
    arrival: Arrival,
) -> Response<OutBody<U>> {
    let path = head.uri.path().to_owned();
    let mut record = exchange::record(id, &shown(&path));
    let trusted = &server.gateway.settings.listen.trusted_proxies;
    record.client = Some(authenticate::client(arrival.peer, trusted, &head.headers));
    record.trace_id = headers::trace_id(&head.headers);
    let mut entry = Entry::open(Arc::clone(&server), record, started);
    if let Some(fault) = arrival.activity.refused().filter(|_| head.method.as_str() == socket::REFUSED) {
        entry.record.reason = Some(fault.reason());
        let code = if fault.is_size() { Code::HeadersTooLarge } else { Code::InvalidHttp };
        return deny(entry, &Fault::new(code, Outcome::Denied, Stage::Listen, fault.to_string())).await;
    }
    let caller = match admitted(&server, &head) {
        Ok(Admitted::Caller(caller)) => caller,
        Ok(Admitted::Preflight) => {
            entry.record.outcome = Outcome::Unchecked;
            return preflight(entry).await;
        }
        Err(fault) => return deny(entry, &fault).await,
    };
    let Ok(place) = server.gateway.in_flight.take(1) else {
        let message = "as many requests are under way as may be; try again later";
        return deny(entry, &Fault::new(Code::Overloaded, Outcome::Denied, Stage::Admit, message)).await;
    };
    entry.keep(place);
    match route(&head.method, &path, &head.headers) {
        Route::Chat => {
            entry.follow(arrival.activity);
            chat(server, entry, head, body, caller).await
        }
        Route::Open(below) => {
            entry.follow(arrival.activity);
            Box::pin(open(server, entry, head, below, body, caller)).await
        }
        Route::Models => {
            let list = models(&server);
            listed(entry, list).await
        }
        Route::Model(name) => match server.gateway.catalog.aliases.get(name.as_ref()) {
            Some(alias) => {
                let body = model(&alias.name);
                listed(entry, body).await
            }
            None => {
                let message =
                    format!("the model `{}` is not served here; `GET /v1/models` lists what is", shown(&name));
                deny(entry, &Fault::new(Code::ModelNotFound, Outcome::Denied, Stage::Plan, message)).await
            }
        },
        Route::Options(methods) => options(entry, methods).await,
        other => Box::pin(unserved(entry, &other, &path)).await,
    }
}

/// The answer to what is not served, with the reason.
async fn unserved<U: Upstream>(entry: Box<Entry<U>>, route: &Route<'_>, path: &str) -> Response<OutBody<U>> {
    let path = shown(path);
    let (code, message) = match route {
        Route::WebSocket => (Code::NotSupported, "WebSocket is not served; use `POST /v1/chat/completions`".to_owned()),
        Route::Unjudged => {
            let message = "is not judged in this version, so it is not served; use `POST /v1/chat/completions`";
            (Code::NotSupported, format!("`{path}` {message}"))
        }
        Route::Wrong(methods) => (Code::MethodNotAllowed, format!("`{path}` is served with {methods} alone")),
        Route::Spelling(own) => (Code::UnknownPath, format!("nothing is served under `{path}`; write `/v1/{own}`")),
        _ => (Code::UnknownPath, format!("nothing is served under `{path}`")),
    };
    let mut response = deny(entry, &Fault::new(code, Outcome::Denied, Stage::Listen, message)).await;
    if let Route::Wrong(methods) = route {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    }
    response
}

/// Bytes of a request's head, as HTTP/1 would write it.
fn head_bytes(head: &Parts) -> usize {
    let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let line = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + ": \r\n".len();
    target + head.headers.iter().map(line).sum::<usize>()
}

/// Who passed the door.
enum Admitted {
    Caller(Caller),
    /// A browser's question whether it may ask, which carries no credentials.
    Preflight,
}

fn admitted<U: Upstream>(server: &Server<U>, head: &Parts) -> Result<Admitted, Box<Fault>> {
    let settings = &server.gateway.settings;
    // What came over HTTP/1 was measured at the edge.
    let max = settings.listen.limits.headers;
    if head_bytes(head) > max || head.headers.len() > HEADERS_MAX {
        let message = format!("the request's head has more than {max} bytes or {HEADERS_MAX} headers");
        return Err(Box::new(Fault::new(Code::HeadersTooLarge, Outcome::Denied, Stage::Listen, message)));
    }
    let named = || {
        let hosts = head.headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
        hosts.chain(head.uri.authority().map(|authority| authority.as_str()))
    };
    // Several names may be read several ways: one that is not served decides.
    let host = named().find(|host| !authenticate::is_loopback(host)).or_else(|| named().next());
    let asked = head.method == Method::OPTIONS && head.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    match authenticate::authenticate(settings.auth, &settings.listen.cors, host, &head.headers) {
        Ok(_) if server.is_draining() => {
            let message = "the gateway is ending; another replica may answer";
            Err(Box::new(Fault::new(Code::Draining, Outcome::Denied, Stage::Admit, message)))
        }
        Ok(_) if asked => Ok(Admitted::Preflight),
        Ok(caller) => Ok(Admitted::Caller(caller)),
        Err(authenticate::AuthError::MissingKey) if asked => Ok(Admitted::Preflight),
        Err(error) => Err(Box::new(Fault::new(error.code(), Outcome::Denied, Stage::Authenticate, error.to_string()))),
    }
}

async fn chat<U: Upstream>(
    server: Arc<Server<U>>,
    mut entry: Box<Entry<U>>,
    head: Parts,
    body: Body,
    caller: Caller,
) -> Response<OutBody<U>> {
    let limits = &server.gateway.settings.listen.limits;
    let (body, held) = match intake::whole(limits, &server.gateway.held, &head.headers, body).await {
        Ok(read) => read,
        Err(unread) => return untaken(entry, unread).await,
    };
    let arrived = entry.started();
    let time = jiff::Timestamp::try_from(entry.record.arrived).unwrap_or_default();
    let incoming = Incoming { caller, headers: head.headers, body, held, arrived, time };
    let prepared = match exchange::prepare(&server.gateway, incoming, &mut entry.record).await {
        Ok(prepared) => prepared,
        Err(fault) => return deny(entry, &fault).await,
    };
    let unrecorded = server.audit.as_ref().is_some_and(|audit| audit.is_required() && !audit.is_sound());
    if unrecorded && prepared.is_judged() {
        // The disk may have come back: this record is the trial.
        let message = "the audit record cannot be written, and it is required";
        return deny(entry, &Fault::new(Code::AuditUnavailable, Outcome::Denied, Stage::Admit, message)).await;
    }
    let held_stream = prepared.is_held() && prepared.request.stream;
    let every = server.gateway.settings.listen.keepalive_after;
    // In a box of its own: what is carried around with every request stays small.
    let mut settled = Box::pin(settle(Arc::clone(&server), prepared, entry));
    if !held_stream {
        return settled.await;
    }
    // A held stream: an early verdict still chooses the status; a late one finds the stream kept alive.
    tokio::select! {
        biased;
        response = &mut settled => response,
        () = tokio::time::sleep(every) => {
            let verdict = Box::pin(async move {
                match caught(settled).await {
                    Some(response) => events(response),
                    None => {
                        server.metrics.panicked();
                        (vec![failed().event(&Told::of_id("")).into()], Vec::new())
                    }
                }
            });
            let mut response = Response::new(OutBody::Held(Held::new(verdict, every)));
            *response.headers_mut() = answer::event_headers();
            response
        }
    }
}

/// A path that no contract guards: the request goes on as it is.
async fn open<U: Upstream>(
    server: Arc<Server<U>>,
    mut entry: Box<Entry<U>>,
    head: Parts,
    below: &str,
    body: Body,
    caller: Caller,
) -> Response<OutBody<U>> {
    let limits = &server.gateway.settings.listen.limits;
    let body = if open::is_json(&head.headers) && !body.is_end_stream() {
        match intake::whole(limits, &server.gateway.held, &head.headers, body).await {
            Ok((body, held)) => OpenBody::Json(body, held),
            Err(unread) => return untaken(entry, unread).await,
        }
    } else {
        match Intake::new(body, limits) {
            Ok(intake) => OpenBody::Upload(Box::pin(intake)),
            Err(error) => return untaken(entry, error.into()).await,
        }
    };
    let path = match head.uri.query() {
        Some(query) => format!("{below}?{query}"),
        None => below.to_owned(),
    };
    let Parts { method, headers, .. } = head;
    let open = Open { caller, method, path, headers, body, arrived: entry.started() };
    let out = open::pass(&server.gateway, open, &mut entry.record).await;
    answered(entry, out).await
}

/// The answer to a request whose body could not be taken in.
async fn untaken<U: Upstream>(entry: Box<Entry<U>>, unread: Unread) -> Response<OutBody<U>> {
    match unread {
        Unread::Denied(fault) => deny(entry, &fault).await,
        // The entry goes as it is: a record of someone who went away.
        Unread::Gone => gone(),
    }
}

/// The answer to a caller that went away before its body was whole. It may still listen.
fn gone<U>() -> Response<OutBody<U>> {
    let mut response = plain(
        Fault::new(Code::InvalidHttp, Outcome::Cancelled, Stage::Listen, "the body broke off").answer(&Told::of_id("")),
    );
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What a settled answer says on a stream whose status has gone out: its events, or its error as one.
fn events<U>(response: Response<OutBody<U>>) -> (Vec<Bytes>, Vec<Share>) {
    let (head, body) = response.into_parts();
    match body {
        OutBody::Pieces { rest, shares, .. } if headers::is_event_stream(&head.headers) => (rest.into(), shares),
        OutBody::Pieces { rest, shares, .. } => {
            let mut event = Vec::new();
            let pieces: Vec<Bytes> = rest.into();
            sse::event_onto(&pieces.concat(), &mut event);
            (vec![event.into()], shares)
        }
        // A held exchange is settled whole; were it not, the caller must see that the stream broke.
        OutBody::Relay(..) | OutBody::Sifted(..) | OutBody::Held(_) => {
            tracing::error!("a held exchange was settled by a stream");
            (vec![failed().event(&Told::of_id("")).into()], Vec::new())
        }
    }
}

/// Carries a prepared request to its answer and closes its record.
async fn settle<U: Upstream>(
    server: Arc<Server<U>>,
    prepared: Box<Prepared>,
    mut entry: Box<Entry<U>>,
) -> Response<OutBody<U>> {
    let out = exchange::carry(&server.gateway, &prepared, &mut entry.record).await;
    drop(prepared); // what it holds is free before the answer goes out
    answered(entry, out).await
}

/// What the caller gets, with the record closed or to be closed at its end.
async fn answered<U: Upstream>(mut entry: Box<Entry<U>>, out: Out) -> Response<OutBody<U>> {
    let answer = match out {
        Out::Relay { status, headers, body, watch } => {
            entry.watch(watch);
            return relay(entry, status, headers, |entry| OutBody::Relay(body, entry));
        }
        Out::Sift { headers, stream } => {
            return relay(entry, StatusCode::OK, headers, |entry| OutBody::Sifted(stream, entry));
        }
        Out::Held(answer) => answer,
        // The entry goes as it is: a record of someone who went away.
        Out::Fault(fault) if fault.outcome == Outcome::Cancelled => return gone(),
        Out::Fault(fault) => {
            entry.record.outcome = fault.outcome;
            entry.record.code = Some(fault.own);
            fault.answer(&Told::from(&entry.record))
        }
    };
    finish(entry, answer).await
}

/// An answer that goes out as it comes: its record is closed when its last byte has.
fn relay<U: Upstream>(
    mut entry: Box<Entry<U>>,
    status: StatusCode,
    headers: HeaderMap,
    body: impl FnOnce(Box<Entry<U>>) -> OutBody<U>,
) -> Response<OutBody<U>> {
    entry.record.status = status;
    entry.begin_relay();
    let mut headers = headers;
    if headers::is_event_stream(&headers) {
        for (name, value) in &answer::event_headers() {
            headers.entry(name).or_insert_with(|| value.clone());
        }
    }
    own_headers(&entry, &mut headers);
    let mut response = Response::new(OutBody::begun(body(entry)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

async fn deny<U: Upstream>(mut entry: Box<Entry<U>>, fault: &Fault) -> Response<OutBody<U>> {
    entry.record.outcome = fault.outcome;
    entry.record.code = Some(fault.own);
    let answer = fault.answer(&Told::from(&entry.record));
    finish(entry, answer).await
}

async fn listed<U: Upstream>(mut entry: Box<Entry<U>>, body: Vec<u8>) -> Response<OutBody<U>> {
    entry.record.outcome = Outcome::Unchecked;
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    finish(entry, Answer { status: StatusCode::OK, headers, body: vec![body.into()], held: None }).await
}

async fn options<U: Upstream>(mut entry: Box<Entry<U>>, methods: &'static str) -> Response<OutBody<U>> {
    entry.record.outcome = Outcome::Unchecked;
    let headers = HeaderMap::from_iter([(header::ALLOW, HeaderValue::from_static(methods))]);
    finish(entry, Answer { status: StatusCode::NO_CONTENT, headers, body: Vec::new(), held: None }).await
}

async fn preflight<U: Upstream>(entry: Box<Entry<U>>) -> Response<OutBody<U>> {
    let headers = HeaderMap::from_iter([
        (
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
        ),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("authorization, content-type, x-portcullis-policy, *"),
        ),
        (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600")),
    ]);
    finish(entry, Answer { status: StatusCode::NO_CONTENT, headers, body: Vec::new(), held: None }).await
}

/// Closes the record, then lets the answer go.
async fn finish<U: Upstream>(mut entry: Box<Entry<U>>, answer: Answer) -> Response<OutBody<U>> {
    entry.record.status = answer.status;
    let mut answer = answer;
    if let Some(Code::BodyTooLarge | Code::RequestTimeout | Code::InvalidHttp) = entry.record.code {
        // The rest of the request is not read, so no other can follow it.
        answer.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Some(fault) = entry.broken_body() {
            entry.record.reason = Some(fault.reason());
        }
    }
    let closed: Result<(), AuditError> = entry.close().await;
    let judged = !matches!(entry.record.outcome, Outcome::Denied | Outcome::Unchecked);
    if closed.is_err() && judged {
        entry.record.outcome = Outcome::Failed;
        entry.record.code = Some(Code::AuditUnavailable);
        let message = "the audit record cannot be written, and it is required";
        let fault = Fault::new(Code::AuditUnavailable, Outcome::Failed, Stage::Answer, message);
        answer = fault.answer(&Told::from(&entry.record));
        entry.record.status = answer.status;
    }
    if closed.is_err() {
        entry.tell();
    }
    own_headers(&entry, &mut answer.headers);
    let mut response = plain(answer);
    if let OutBody::Pieces { shares, .. } = response.body_mut() {
        shares.extend(entry.place());
    }
    response
}

fn plain<U>(answer: Answer) -> Response<OutBody<U>> {
    let mut response = Response::new(OutBody::pieces(answer.body, answer.held.into_iter().collect()));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

/// Adds the gateway's own headers.
fn own_headers<U: Upstream>(entry: &Entry<U>, headers: &mut HeaderMap) {
    let record = &entry.record;
    if !entry.server().gateway.settings.listen.headers {
        headers.remove("x-portcullis-upstream-request-id");
        return;
    }
    let text = |value: &str| HeaderValue::from_str(value).ok();
    let mut put = |name: HeaderName, value: Option<HeaderValue>| {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    };
    // Of an answer that goes out as it comes, nobody knows yet how it ends.
    let ended = record.outcome != Outcome::Cancelled;
    put(OUTCOME, ended.then(|| HeaderValue::from_static(record.outcome.as_str())));
    if let Some(backend) = &record.backend {
        put(BACKEND, text(backend));
        put(NATIVE, Some(HeaderValue::from_static(record.native.as_str())));
    }
    let names: Vec<&str> =
        record.policies.iter().filter(|policy| policy.enforced).map(|policy| &*policy.name).collect();
    put(POLICY, if names.is_empty() { None } else { text(&names.join(",")) });
    put(DROPPED, if record.dropped.is_empty() { None } else { text(&record.dropped.join(",")) });
    let attempts = if record.attempts == 1 { HeaderValue::from_static("1") } else { record.attempts.into() };
    put(ATTEMPTS, Some(attempts));
    put(OVERHEAD, Some(HeaderValue::from(u64::try_from(record.own().as_micros()).unwrap_or(u64::MAX))));
}

fn models<U: Upstream>(server: &Server<U>) -> Vec<u8> {
    let names = server.gateway.catalog.aliases.keys();
    let mut out = br#"{"object":"list","data":["#.to_vec();
    for (index, name) in names.enumerate() {
        out.extend_from_slice(if index > 0 { b"," } else { b"" });
        out.extend_from_slice(&model(name));
    }
    out.extend_from_slice(b"]}");
    out
}

fn model(name: &str) -> Vec<u8> {
    let mut out = br#"{"id":"#.to_vec();
    out.extend_from_slice(&string::quoted(name));
    out.extend_from_slice(br#","object":"model","created":0,"owned_by":"portcullis"}"#);
    out
}
