//! A request of a path that no contract guards: passed on as it is, to the backend of the model that it names or to
//! the default one.

use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::header;
use http_body_util::BodyExt as _;
use http_body_util::Empty;

use crate::api::ingress::open::OpenRequest;
use crate::catalog::Alias;
use crate::catalog::Target;
use crate::dialect::table::BackendKind;
use crate::exchange;
use crate::exchange::Gateway;
use crate::exchange::Out;
use crate::exchange::deadline::InTime;
use crate::exchange::missed;
use crate::exchange::missed::Missed;
use crate::json::fault::shown;
use crate::record::Outcome;
use crate::record::Record;
use crate::record::Stage;
use crate::stage::admit::Share;
use crate::stage::answer::Fault;
use crate::stage::authenticate::Caller;
use crate::stage::headers;
use crate::stage::headers::Reading;
use crate::stage::plan;
use crate::stage::send::Call;
use crate::stage::send::CallBody;
use crate::stage::send::Upload;
use crate::stage::send::Upstream;
use crate::stage::send::UpstreamBody;
use crate::wire::fault::Code;

/// A request of a path that no contract guards.
pub struct Open {
    /// Who is calling.
    pub caller: Caller,
    /// The method.
    pub method: Method,
    /// The path below the version, with its query: `/files?limit=2`.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: OpenBody,
    /// When the head had arrived.
    pub arrived: Instant,
}

/// The body of such a request.
pub enum OpenBody {
    /// JSON, taken in whole to see which model it names, with its share of what all may hold.
    Json(Bytes, Share),
    /// Anything else: it goes on as it comes, to the default backend.
    Upload(Upload),
}

/// Whether the body of such a request is JSON that can be read, as far as any of its media types says so.
pub fn is_json(headers: &HeaderMap) -> bool {
    let said = |kind: &HeaderValue| {
        let kind = kind.to_str().unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
    };
    let plain = headers.get_all(header::CONTENT_ENCODING).iter().all(|coding| coding == "identity");
    plain && headers.get_all(header::CONTENT_TYPE).iter().any(said)
}

/// Passes a request on and gives what the caller gets.
pub async fn pass<U: Upstream>(gateway: &Gateway<U>, open: Open, record: &mut Record) -> Out {
    match planned(gateway, open, record) {
        Ok(passing) => passing.run(gateway, record).await,
        Err(fault) => Out::Fault(fault),
    }
}

/// Such a request with the targets that it may go to.
struct Passing {
    caller: Caller,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Shaped,
    /// The body's share of the bytes that are held.
    _held: Option<Share>,
    targets: Vec<Target>,
    deadline: Instant,
}

/// An upload was to be sent twice: a fault of the program.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request is gone")]
struct Gone;

enum Shaped {
    /// It can be sent again, to the next target.
    Json(OpenRequest),
    /// It can be sent once; none once it was.
    Upload(Option<Upload>),
}

fn planned<U: Upstream>(gateway: &Gateway<U>, open: Open, record: &mut Record) -> Result<Passing, Box<Fault>> {
    let (body, _held) = match open.body {
        OpenBody::Json(body, held) => (Shaped::Json(OpenRequest::read(body).map_err(exchange::denied)?), Some(held)),
        OpenBody::Upload(upload) => (Shaped::Upload(Some(upload)), None),
    };
    let (named, own) = match &body {
        Shaped::Json(request) => (request.model.as_ref().map(|(name, _)| name.as_str()), &request.own),
        Shaped::Upload(_) => (None, &None),
    };
    exchange::unguarded(gateway, own.as_ref().map(|(_, own)| own), &open.headers, record)?;
    let alias = match named {
        Some(model) => plan::alias(&gateway.catalog, model).map_err(|error| exchange::unknown_model(&error))?,
        None => gateway.catalog.fallback.clone().ok_or_else(|| nowhere(&open.path))?,
    };
    record.alias = Some(alias.name.clone());
    let targets = targets(&alias, named.is_some());
    let Some(first) = targets.first() else { return Err(not_so_shaped(&alias, &open.path)) };
    let deadline = open.arrived + first.backend.timeouts.total;
    let Open { caller, method, path, headers, .. } = open;
    Ok(Passing { caller, method, path, headers, body, _held, targets, deadline })
}

/// Where a request may go. What names no model lives in one place (a file, a batch), so the first target has it or
/// none.
fn targets(alias: &Alias, by_model: bool) -> Vec<Target> {
    let calls = usize::try_from(alias.upstream_calls_max).unwrap_or(usize::MAX);
    let listed = if by_model { alias.targets.as_slice() } else { alias.targets.get(..1).unwrap_or_default() };
    listed.iter().filter(|target| target.backend.kind != BackendKind::Demo).take(calls).cloned().collect()
}

fn path_only(path: &str) -> &str {
    path.split('?').next().unwrap_or_default()
}

fn nowhere(path: &str) -> Box<Fault> {
    let message = format!(
        "`{}` names no model here, so it goes to the backend of the model `*`, and none is configured",
        shown(path_only(path))
    );
    Box::new(Fault::new(Code::UnknownPath, Outcome::Denied, Stage::Plan, message))
}

fn not_so_shaped(alias: &Alias, path: &str) -> Box<Fault> {
    let message = format!(
        "`{}` is passed on to OpenAI-shaped backends, and the model `{}` goes to the demo backend, which serves chat \
         completions alone",
        shown(path_only(path)),
        shown(&alias.name)
    );
    Box::new(Fault::new(Code::UnknownPath, Outcome::Denied, Stage::Plan, message))
}

impl Passing {
    /// Asks target after target until one has an answer.
    async fn run<U: Upstream>(mut self, gateway: &Gateway<U>, record: &mut Record) -> Out {
        let mut last = None;
        for target in std::mem::take(&mut self.targets) {
            record.attempts += 1;
            record.backend = Some(target.backend.name.clone());
            record.upstream_model.clone_from(&target.model);
            record.waits_since = Some(Instant::now());
            let left = tokio::time::Instant::from_std(self.deadline);
            let tried = tokio::time::timeout_at(left, self.attempt(gateway, &target, record)).await;
            record.answered();
            let missed = match tried {
                Ok(Ok(out)) => return out,
                Ok(Err(missed)) => missed.without_secrets(&target.backend),
                Err(_) => missed::out_of_time(),
            };
            missed.log(record);
            record.failures.push((target.backend.name.clone(), missed.reason));
            let again = missed.is_transient();
            last = Some(missed);
            if !again {
                break;
            }
        }
        let missed = last.unwrap_or_else(missed::out_of_time);
        record.reason = Some(missed.reason);
        Out::Fault(missed.fault)
    }

    async fn attempt<U: Upstream>(
        &mut self,
        gateway: &Gateway<U>,
        target: &Target,
        record: &mut Record,
    ) -> Result<Out, Missed> {
        let backend = &target.backend;
        let body = match &mut self.body {
            Shaped::Json(request) => {
                let pieces = request.shaped(target.model.as_deref()).map_err(|error| missed::internal(&error))?;
                CallBody::Pieces(pieces)
            }
            Shaped::Upload(upload) => CallBody::Upload(upload.take().ok_or_else(|| missed::internal(&Gone))?),
        };
        let call = Call {
            target: target.clone(),
            method: self.method.clone(),
            path: self.path.clone(),
            headers: headers::outbound(&self.headers, &self.caller, backend, Reading::Relayed),
            body,
        };
        let reply = gateway.upstream.send(call).await.map_err(missed::unsent)?;
        record.upstream_request_id =
            headers::request_id(&reply.headers).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if reply.status.is_client_error() || reply.status.is_server_error() {
            return Err(missed::reported(backend, reply).await);
        }
        record.outcome = Outcome::Unchecked;
        let mut headers = headers::inbound(&reply.headers, backend, Reading::Relayed);
        let body: UpstreamBody = if self.method == Method::HEAD {
            headers.extend(length(&reply.headers)); // that of the body which a GET would have had
            Box::pin(Empty::new().map_err(|never| match never {}))
        } else {
            Box::pin(InTime::new(reply.body, backend.name.clone(), self.deadline))
        };
        Ok(Out::Relay { watch: None, status: reply.status, headers, body })
    }
}

fn length(headers: &HeaderMap) -> Option<(header::HeaderName, HeaderValue)> {
    headers.get(header::CONTENT_LENGTH).map(|length| (header::CONTENT_LENGTH, length.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_told_by_its_media_type() {
        let with = |kind: &'static str| HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
        for kind in ["application/json", "Application/JSON; charset=utf-8", "application/scim+json"] {
            assert!(is_json(&with(kind)), "{kind}");
        }
        for kind in ["multipart/form-data; boundary=json", "application/jsonl", "text/json", ""] {
            assert!(!is_json(&with(kind)), "{kind}");
        }
        let mut packed = with("application/json");
        packed.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(!is_json(&packed));
    }
}
