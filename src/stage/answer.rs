//! The answer: an accepted reply, a refusal, or an error that names every violation.

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::StatusCode;
use http::header;

use crate::api::backend::openai::WholeReply;
use crate::api::backend::openai_stream::Collected;
use crate::api::ingress::chat_answer;
use crate::api::ingress::chat_answer::Instead;
use crate::api::reply::Reply;
use crate::api::reply::Usage;
use crate::contract::verdict::Violations;
use crate::json::splice::SpliceError;
use crate::json::string;
use crate::record::Outcome;
use crate::record::PolicyRef;
use crate::record::Record;
use crate::record::Stage;
use crate::stage::admit::Share;
use crate::stage::judge::Accepted;
use crate::stage::judge::Clarification;
use crate::stage::judge::Rejection;
use crate::wire::fault::Code;
use crate::wire::fault::Kind;
use crate::wire::fault::Reported;
use crate::wire::sse;

/// The reply of a backend, as it came: in one piece or as a stream.
#[derive(Debug)]
pub enum Came {
    /// In one piece; the body is edited in place.
    Whole(Bytes, WholeReply),
    /// As a stream, collected; it is written anew.
    Stream(Collected),
}

impl Came {
    /// What it says.
    pub fn reply(&self) -> &Reply {
        match self {
            Self::Whole(_, whole) => &whole.reply,
            Self::Stream(collected) => &collected.reply,
        }
    }
}

/// A finished answer, held back until now.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers, but for those of the gateway's own that every answer gets.
    pub headers: HeaderMap,
    /// Its body, in pieces.
    pub body: Vec<Bytes>,
    /// The body's share of the bytes that are held, given back when it is out.
    pub held: Option<Share>,
}

/// The answer for a reply that was accepted. `total` is what all attempts took, where there were several.
pub fn accepted(came: &Came, accepted: &Accepted, usage: bool, total: Option<&str>) -> Result<Answer, SpliceError> {
    let parts = accepted.choices();
    Ok(match came {
        Came::Whole(body, whole) => json(StatusCode::OK, chat_answer::accepted(body, whole, parts, total)?),
        Came::Stream(collected) => events(chat_answer::accepted_events(collected, parts, usage, total)),
    })
}

/// The answer for a reply that the model, or the provider's filter, refused.
pub fn refused(came: &Came, filtered: bool, usage: bool, total: Option<&str>) -> Result<Answer, SpliceError> {
    let said = came.reply().choices.iter().find_map(|choice| choice.refusal.as_deref()).unwrap_or_default();
    instead(came, if filtered { Instead::Filtered } else { Instead::Said(said) }, usage, total)
}

/// The answer for a reply that does not go on.
pub fn instead(came: &Came, by: Instead<'_>, usage: bool, total: Option<&str>) -> Result<Answer, SpliceError> {
    Ok(match came {
        Came::Whole(body, whole) => json(StatusCode::OK, chat_answer::instead(body, whole, by, total)?),
        Came::Stream(collected) => events(chat_answer::instead_events(collected, by, usage, total)),
    })
}

fn json(status: StatusCode, body: Vec<Bytes>) -> Answer {
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    Answer { status, headers, body, held: None }
}

fn events(body: Vec<u8>) -> Answer {
    Answer { status: StatusCode::OK, headers: event_headers(), body: vec![body.into()], held: None }
}

/// The headers of every event stream.
pub fn event_headers() -> HeaderMap {
    HeaderMap::from_iter([
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ])
}

/// Everything that an error body says.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The status.
    pub status: StatusCode,
    /// The gateway's own code: what the fault is counted under.
    pub own: Code,
    /// The code for the caller: the upstream's where it reported one.
    pub code: String,
    /// The `type`.
    pub kind: String,
    /// The member of the request that is meant.
    pub param: Option<String>,
    /// What was found, what was expected, and where.
    pub message: String,
    /// How the exchange ended.
    pub outcome: Outcome,
    /// The stage that ended it.
    pub stage: Stage,
    /// What is wrong with the answer.
    pub violations: Option<Violations>,
    /// Whether a stock SDK may try again.
    pub retry: Retry,
}

/// Whether a stock SDK may try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The status alone says.
    ByStatus,
    /// It must not: `x-should-retry: false`.
    Never,
    /// After a while: `retry-after`.
    After(HeaderValue),
}

impl Fault {
    /// A fault under one of the gateway's own codes.
    pub fn new(code: Code, outcome: Outcome, stage: Stage, message: impl Into<String>) -> Self {
        let retry = match code.kind() {
            Kind::Contract | Kind::Capability | Kind::Internal | Kind::Upstream => Retry::Never,
            Kind::Overload => Retry::After(HeaderValue::from_static("1")),
            _ if code == Code::NotSupported => Retry::Never,
            Kind::InvalidRequest | Kind::Authentication | Kind::Permission => Retry::ByStatus,
        };
        Self {
            status: code.status(),
            own: code,
            code: code.as_str().to_owned(),
            kind: code.kind().as_str().to_owned(),
            param: None,
            message: message.into(),
            outcome,
            stage,
            violations: None,
            retry,
        }
    }

    /// The same fault about one member of the request.
    pub fn about(mut self, param: Option<&str>) -> Self {
        self.param = param.map(str::to_owned);
        self
    }

    /// The fault of a rejected answer.
    pub fn rejected(rejection: &Rejection) -> Self {
        let policies = names(&rejection.violations);
        let what = match rejection.stage {
            Stage::Extract => "no answer could be cut out of the model's text".to_owned(),
            Stage::Tools => "a tool call broke its contract".to_owned(),
            _ if rejection.code == Code::SchemaViolation => "the answer broke its schema".to_owned(),
            _ => format!("the answer broke the contract {policies}"),
        };
        Self::violated(rejection.code, Outcome::Rejected, rejection.stage, &what, &rejection.violations)
    }

    /// The fault of an answer that the caller is asked back about, where the policy says so in an error.
    pub fn clarification(asked: &Clarification) -> Self {
        let what = format!("{} The answer broke the contract {}", asked.questions.join(" "), names(&asked.violations));
        Self::violated(Code::ClarificationRequired, Outcome::Clarified, Stage::Judge, &what, &asked.violations)
    }

    fn violated(code: Code, outcome: Outcome, stage: Stage, what: &str, violations: &Violations) -> Self {
        let total = violations.total();
        let plural = if total == 1 { "violation" } else { "violations" };
        let listed = violations.iter().take(5).map(|v| format!("{}: {}", v.path, v.message));
        let mut message = format!("{what} ({total} {plural}): {}", listed.collect::<Vec<_>>().join("; "));
        if total > 5 {
            message.push_str("; ...");
        }
        let mut fault = Self::new(code, outcome, stage, message);
        fault.violations = Some(violations.clone());
        fault
    }

    /// The fault that a backend reported with this status. What it said goes on, in our shape.
    pub fn reported(status: StatusCode, reported: Reported, retry: Retry) -> Self {
        let message = if reported.message.is_empty() {
            format!("the backend answered {status} and said nothing")
        } else {
            reported.message
        };
        Self {
            status,
            own: Code::UpstreamError,
            code: reported.code.unwrap_or_else(|| Code::UpstreamError.as_str().to_owned()),
            kind: reported.kind.unwrap_or_else(|| Kind::Upstream.as_str().to_owned()),
            param: reported.param,
            message,
            outcome: Outcome::Failed,
            stage: Stage::Send,
            violations: None,
            retry,
        }
    }

    /// The error body.
    pub fn body(&self, told: &Told<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(512 + self.message.len());
        out.extend_from_slice(b"{\"error\":{");
        member(&mut out, "message", &self.message);
        member(&mut out, ",type", &self.kind);
        member(&mut out, ",code", &self.code);
        optional(&mut out, ",param", self.param.as_deref());
        out.extend_from_slice(b",\"portcullis\":{");
        member(&mut out, "request_id", told.request_id);
        member(&mut out, ",outcome", self.outcome.as_str());
        member(&mut out, ",stage", self.stage.as_str());
        out.extend_from_slice(b",\"policy\":[");
        for (index, policy) in told.policies.iter().filter(|policy| policy.enforced).enumerate() {
            out.extend_from_slice(if index > 0 { b"," } else { b"" });
            out.extend_from_slice(&string::quoted(&policy.name));
        }
        out.extend_from_slice(format!("],\"attempts\":{}", told.attempts).as_bytes());
        if let Some(usage) = told.usage {
            out.extend_from_slice(format!(",\"usage\":{}", usage.json()).as_bytes());
        }
        if let Some(violations) = &self.violations {
            out.extend_from_slice(format!(",\"violations_total\":{},\"violations\":", violations.total()).as_bytes());
            list(&mut out, violations);
        }
        if !told.questions.is_empty() {
            out.extend_from_slice(b",\"questions\":");
            strings(&mut out, told.questions);
        }
        out.extend_from_slice(b"}}}");
        out
    }

    /// The error as an answer of its own.
    pub fn answer(&self, told: &Told<'_>) -> Answer {
        let mut answer = json(self.status, vec![self.body(told).into()]);
        match &self.retry {
            Retry::ByStatus => {}
            Retry::Never => {
                let name = header::HeaderName::from_static("x-should-retry");
                answer.headers.insert(name, HeaderValue::from_static("false"));
            }
            Retry::After(wait) => {
                answer.headers.insert(header::RETRY_AFTER, wait.clone());
            }
        }
        answer
    }

    /// The error as the last event of a stream whose status has gone out already.
    pub fn event(&self, told: &Told<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        sse::event_onto(&self.body(told), &mut out);
        out
    }
}

/// What an error body tells of its exchange.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told<'a> {
    request_id: &'a str,
    attempts: u32,
    policies: &'a [PolicyRef],
    usage: Option<Usage>,
    questions: &'a [String],
}

impl<'a> Told<'a> {
    /// Of an exchange that nothing but its id is known of.
    pub fn of_id(request_id: &'a str) -> Self {
        Self { request_id, ..Self::default() }
    }
}

impl<'a> From<&'a Record> for Told<'a> {
    fn from(record: &'a Record) -> Self {
        Self {
            request_id: &record.request_id,
            attempts: record.attempts,
            policies: &record.policies,
            usage: record.usage_total,
            questions: &record.questions,
        }
    }
}

/// What `portcullis` tells in a message that a policy has put in the place of the answer.
pub fn told(outcome: Outcome, questions: &[String], violations: &Violations) -> String {
    let mut out = format!("{{\"outcome\":\"{}\",\"questions\":", outcome.as_str()).into_bytes();
    strings(&mut out, questions);
    out.extend_from_slice(format!(",\"violations_total\":{},\"violations\":", violations.total()).as_bytes());
    list(&mut out, violations);
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

fn strings(out: &mut Vec<u8>, texts: &[String]) {
    out.push(b'[');
    for (index, text) in texts.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b"," } else { b"" });
        out.extend_from_slice(&string::quoted(text));
    }
    out.push(b']');
}

fn list(out: &mut Vec<u8>, violations: &Violations) {
    out.push(b'[');
    for (index, violation) in violations.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b"," } else { b"" });
        out.push(b'{');
        optional(out, "policy", violation.policy.as_deref());
        member(out, ",gate", &violation.gate);
        member(out, ",kind", violation.kind);
        member(out, ",path", &violation.path.to_string());
        member(out, ",message", &violation.message);
        member(out, ",action", violation.action.as_str());
        out.push(b'}');
    }
    out.push(b']');
}

/// The policies whose gates found something, for a message.
fn names(violations: &Violations) -> String {
    let mut names: Vec<&str> = violations.iter().filter_map(|violation| violation.policy.as_deref()).collect();
    names.dedup();
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// Writes one string member; a comma at the start of `key` is put before it.
fn member(out: &mut Vec<u8>, key: &str, value: &str) {
    name(out, key);
    out.push(b'"');
    string::escape_onto(value, out);
    out.push(b'"');
}

fn optional(out: &mut Vec<u8>, key: &str, value: Option<&str>) {
    match value {
        Some(value) => member(out, key, value),
        None => {
            name(out, key);
            out.extend_from_slice(b"null");
        }
    }
}

fn name(out: &mut Vec<u8>, key: &str) {
    let (comma, key) = key.strip_prefix(',').map_or(("", key), |key| (",", key));
    out.extend_from_slice(comma.as_bytes());
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::verdict::Violation;
    use crate::json::path::Path;

    #[test]
    fn an_error_body_names_every_violation() {
        let violation = |key: &str| {
            let message = format!("expected \"x\" at {key}");
            Violation::own("schema", "schema", Path::root().key(key), message, None)
        };
        let rejection = Rejection {
            code: Code::SchemaViolation,
            stage: Stage::Judge,
            reason: "schema",
            violations: Violations::of([violation("a"), violation("b")]).unwrap(),
            rung: None,
            reasons: Vec::new(),
            answer: String::new(),
        };
        let fault = Fault::rejected(&rejection);
        insta::assert_snapshot!(String::from_utf8(fault.body(&Told { attempts: 1, ..Told::of_id("id") })).unwrap());
        let answer = fault.answer(&Told::of_id("id"));
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["x-should-retry"]),
            (422, &HeaderValue::from_static("false"))
        );
    }

    #[test]
    fn what_an_upstream_reported_goes_on_in_our_shape() {
        let fault = Fault::reported(StatusCode::BAD_REQUEST, Reported::read(b"bad model"), Retry::ByStatus);
        let body: serde_json::Value =
            serde_json::from_slice(&fault.body(&Told { attempts: 1, ..Told::of_id("id") })).unwrap();
        assert_eq!(body["error"]["message"], "bad model");
        assert_eq!(body["error"]["code"], "upstream_error");
        assert_eq!(body["error"]["portcullis"]["outcome"], "failed");
    }
}
