//! Why an attempt gave no answer, and what the caller and the log hear of it.

use bytes::BytesMut;
use http::HeaderValue;
use http::StatusCode;
use http::header;
use http_body_util::BodyExt as _;

use crate::api::reply::Reply;
use crate::api::reply::ReplyError;
use crate::catalog::Backend;
use crate::catalog::Credentials;
use crate::record::Outcome;
use crate::record::Record;
use crate::record::Stage;
use crate::stage::answer::Fault;
use crate::stage::answer::Retry;
use crate::stage::judge::Failed;
use crate::stage::send::UploadError;
use crate::stage::send::UpstreamError;
use crate::stage::send::UpstreamReply;
use crate::wire::fault::Code;
use crate::wire::fault::Reported;

/// Bytes of a backend's error body that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Why one attempt gave no answer.
pub(super) struct Missed {
    pub(super) fault: Box<Fault>,
    /// In one word, for records and metrics.
    pub(super) reason: &'static str,
    /// Whether the next target may be asked.
    transient: bool,
    /// What the log gets beyond the caller's message: the chain of causes.
    cause: Option<String>,
}

impl Missed {
    /// Whether the next target may be asked.
    pub(super) fn is_transient(&self) -> bool {
        self.transient
    }

    /// The same with no secret of the operator's in what the caller and the log get: a message may quote the backend.
    pub(super) fn without_secrets(mut self, backend: &Backend) -> Self {
        self.fault.message = backend.blotted(self.fault.message);
        self.fault.code = backend.blotted(self.fault.code);
        self.cause = self.cause.map(|cause| backend.blotted(cause));
        self
    }

    /// Writes to the log what went wrong, under the request's id. A fault of the operator's to mend is an error.
    pub(super) fn log(&self, record: &Record) {
        let (request_id, backend, reason) = (&record.request_id, record.backend.as_deref(), self.reason);
        let cause = self.cause.as_deref().unwrap_or_default();
        match self.fault.own {
            Code::InternalError | Code::UpstreamAuth => {
                tracing::error!(request_id, backend, reason, cause, "{}", self.fault.message);
            }
            // These messages may quote the backend's own words, which no log gets.
            Code::UpstreamError | Code::UpstreamProtocol | Code::OutputEmpty => {
                tracing::warn!(request_id, backend, reason, cause, "an upstream call gave no answer");
            }
            _ => tracing::warn!(request_id, backend, reason, cause, "{}", self.fault.message),
        }
    }
}

/// A status that is no success: the caller gets it in our shape, with what the backend said.
pub(super) async fn reported(backend: &Backend, reply: UpstreamReply) -> Missed {
    let status = reply.status;
    let retry_after = reply.headers.get(header::RETRY_AFTER).cloned();
    let encoded = reply.headers.contains_key(header::CONTENT_ENCODING);
    let mut body = reply.body;
    let mut text = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            text.extend_from_slice(data.get(..data.len().min(ERROR_BYTES_MAX - text.len())).unwrap_or_default());
        }
        if text.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    if text.len() >= ERROR_BYTES_MAX {
        // What was cut may end in a part of a secret, which nobody would find.
        let longest = backend.secrets().map(str::len).max().unwrap_or(0);
        text.truncate(text.len() - longest.min(text.len()));
    }
    let said = if encoded { Reported::default() } else { Reported::read(&text) };
    refused_by(backend, status, said, retry_after)
}

/// What a backend failed to do, as the verdict found it.
pub(super) fn failed(how: Failed, reply: &Reply) -> Missed {
    match how {
        Failed::Empty => {
            missed(Code::OutputEmpty, Stage::Extract, "empty", true, "the backend returned nothing".to_owned())
        }
        Failed::Reported => missed(
            Code::UpstreamError,
            Stage::Extract,
            "finish_error",
            true,
            "the backend failed while it answered".to_owned(),
        ),
        Failed::Unfinished => {
            let finish = reply.choices.iter().find_map(|choice| choice.finish.as_ref());
            let message = match finish {
                Some(word) => {
                    format!("the backend's finish reason `{}` is not known", crate::json::fault::shown(word.as_str()))
                }
                None => "the backend gave no finish reason, so nothing tells that the answer is whole".to_owned(),
            };
            protocol(&message, "unfinished")
        }
    }
}

fn missed(code: Code, stage: Stage, reason: &'static str, transient: bool, message: String) -> Missed {
    Missed { fault: Box::new(Fault::new(code, Outcome::Failed, stage, message)), reason, transient, cause: None }
}

pub(super) fn protocol(message: &str, reason: &'static str) -> Missed {
    missed(Code::UpstreamProtocol, Stage::Send, reason, false, message.to_owned())
}

pub(super) fn overloaded() -> Missed {
    missed(
        Code::Overloaded,
        Stage::Admit,
        "held",
        false,
        "the gateway holds as many bytes as it may; try again later".to_owned(),
    )
}

pub(super) fn out_of_time() -> Missed {
    missed(Code::UpstreamTimeout, Stage::Send, "deadline", false, "no backend answered within the deadline".to_owned())
}

pub(super) fn internal(error: &dyn std::error::Error) -> Missed {
    let message = "the gateway failed; the request id finds it in the log".to_owned();
    let failed = missed(Code::InternalError, Stage::Answer, "internal", false, message);
    Missed { cause: Some(error.to_string()), ..failed }
}

pub(super) fn unsent(error: UpstreamError) -> Missed {
    missed_by(&error)
}

/// Enters in the record that an answer broke off which had begun to go out.
pub fn broke_off(error: &UpstreamError, record: &mut Record) {
    ended_badly(&missed_by(error), record);
}

/// Enters in the record, and in the log, a failure that no other target can make good: bytes are out.
pub(super) fn ended_badly(missed: &Missed, record: &mut Record) {
    missed.log(record);
    record.outcome = missed.fault.outcome;
    record.reason = Some(missed.reason);
    record.code = Some(missed.fault.own);
    record.failures.extend(record.backend.clone().map(|backend| (backend, missed.reason)));
}

fn missed_by(error: &UpstreamError) -> Missed {
    let code = match error {
        UpstreamError::Connect { .. } => Code::UpstreamUnreachable,
        UpstreamError::Stall { .. } => Code::UpstreamTimeout,
        UpstreamError::Broken { .. } | UpstreamError::Coding { .. } => Code::UpstreamProtocol,
        UpstreamError::TooLarge { .. } => Code::UpstreamTooLarge,
        UpstreamError::Upload(UploadError::TooLarge(_)) => Code::BodyTooLarge,
        UpstreamError::Upload(UploadError::TooSlow(_)) => Code::RequestTimeout,
        UpstreamError::Upload(UploadError::Broken | UploadError::Gone) => Code::InvalidHttp,
    };
    let (reason, transient) = (error.reason(), error.is_transient());
    let mut causes = Vec::new();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        causes.push(inner.to_string());
        source = inner.source();
    }
    let mut failed = missed(code, Stage::Send, reason, transient, error.to_string());
    if let UpstreamError::Upload(upload) = error {
        failed.fault.outcome = if *upload == UploadError::Gone { Outcome::Cancelled } else { Outcome::Denied };
        failed.fault.stage = Stage::Listen;
    }
    Missed { cause: Some(causes.join(": ")), ..failed }
}

/// An answer in a 200 that cannot be read, or that carries an error.
pub(super) fn unread(backend: &Backend, error: ReplyError) -> Missed {
    match error {
        ReplyError::Reported(reported) => {
            let status = reported.status().unwrap_or(StatusCode::BAD_GATEWAY);
            let mut missed = refused_by(backend, status, reported, None);
            missed.transient = true;
            missed
        }
        ReplyError::NoChoices => missed(Code::OutputEmpty, Stage::Extract, "no_choices", true, error.to_string()),
        ReplyError::Json(_)
        | ReplyError::TooMany
        | ReplyError::TwoFinishes
        | ReplyError::ToolIndexConflict(_)
        | ReplyError::Unfinished => protocol(&error.to_string(), "protocol"),
    }
}

/// An error that a backend reported under this status.
fn refused_by(backend: &Backend, status: StatusCode, said: Reported, retry_after: Option<HeaderValue>) -> Missed {
    let operators = !matches!(backend.credentials, Credentials::Caller);
    let credentials = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::PAYMENT_REQUIRED | StatusCode::FORBIDDEN);
    if operators && credentials {
        let message =
            format!("the backend `{}` refused the operator's credentials ({})", backend.name, status.as_u16());
        return missed(Code::UpstreamAuth, Stage::Send, "auth", false, message);
    }
    let transient =
        status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::REQUEST_TIMEOUT || status.is_server_error();
    let retry = match (status, retry_after) {
        (StatusCode::TOO_MANY_REQUESTS, Some(wait)) => Retry::After(wait),
        (StatusCode::TOO_MANY_REQUESTS, None) => Retry::ByStatus,
        _ if transient => Retry::Never,
        _ => Retry::ByStatus,
    };
    let said = said.passed_on(|text| backend.blotted(text));
    let reason = match status.as_u16() {
        429 => "rate_limited",
        408 => "request_timeout",
        500.. => "server_error",
        _ => "client_error",
    };
    // A redirect or an informational status is no answer that a caller could use.
    let status = if status.is_client_error() || status.is_server_error() { status } else { StatusCode::BAD_GATEWAY };
    Missed { fault: Box::new(Fault::reported(status, said, retry)), reason, transient, cause: None }
}
