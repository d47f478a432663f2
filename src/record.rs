//! The record of one exchange: what the log, the metrics and the audit file are made of.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;

use http::StatusCode;

use crate::api::reply::Usage;
use crate::contract::gate::GateSeen;
use crate::contract::verdict::Violations;
use crate::digest::Digest;
use crate::extraction::Rung;
use crate::json::path::Path;
use crate::wire::fault::Code;

/// How an exchange ended. These are counted apart and never merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The contract was satisfied.
    Accepted,
    /// The caller is asked back.
    Clarified,
    /// The contract was broken.
    Rejected,
    /// The model refused, or the provider's filter cut the answer.
    Refused,
    /// The upstream or the transport failed.
    Failed,
    /// The caller went away.
    Cancelled,
    /// Refused before any upstream call.
    Denied,
    /// No contract concerned the request.
    Unchecked,
}

impl Outcome {
    /// The name as headers, metrics and records have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Clarified => "clarified",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Denied => "denied",
            Self::Unchecked => "unchecked",
        }
    }
}

/// Where an exchange was decided: the stages of the floor plan, as error bodies and reports name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The request was read.
    Listen,
    /// The caller was looked at.
    Authenticate,
    /// The load was looked at.
    Admit,
    /// What to do was decided.
    Plan,
    /// A backend was asked.
    Send,
    /// The answer was looked for in what the model said.
    Extract,
    /// The contract was held against the answer.
    Judge,
    /// The contracts of tools were held against their calls.
    Tools,
    /// What the caller gets was written.
    Answer,
}

impl Stage {
    /// The name in error bodies and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Authenticate => "authenticate",
            Self::Admit => "admit",
            Self::Plan => "plan",
            Self::Send => "send",
            Self::Extract => "extract",
            Self::Judge => "judge",
            Self::Tools => "tools",
            Self::Answer => "answer",
        }
    }
}

/// How the native structured-output mode was used for the answer that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Native {
    /// The schema was sent to a backend that promises to enforce it.
    JsonSchema,
    /// The schema was sent to a backend known to enforce a part of it.
    JsonSchemaRelaxed,
    /// JSON mode.
    JsonObject,
    /// A forced tool.
    Tool,
    /// The prompt alone carries the contract.
    Prompt,
    /// There is no contract on the content.
    None,
}

impl Native {
    /// The name as headers, metrics and records have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::JsonSchema => "json_schema",
            Self::JsonSchemaRelaxed => "json_schema_relaxed",
            Self::JsonObject => "json_object",
            Self::Tool => "tool",
            Self::Prompt => "prompt",
            Self::None => "none",
        }
    }
}

/// A policy that bound a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRef {
    /// Its name.
    pub name: Arc<str>,
    /// The digest of its bundle.
    pub digest: Digest,
    /// Whether its verdict decided.
    pub enforced: bool,
}

/// Everything that is known of one exchange when it ends. It holds no key and no header.
#[derive(Clone, Debug)]
pub struct Record {
    /// The gateway's own id of the request.
    pub request_id: String,
    /// When the request's head had arrived.
    pub arrived: SystemTime,
    /// The path that was asked for, without its query.
    pub path: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The status that the caller got; 499 where the caller had gone.
    pub status: StatusCode,
    /// Where the request came from, as far as the proxies before the gateway can be trusted.
    pub client: Option<IpAddr>,
    /// The trace that the caller says it belongs to.
    pub trace_id: Option<String>,
    /// The code of the error, where there was one.
    pub code: Option<Code>,
    /// What went wrong in the extraction, the gates or the upstream, in one word.
    pub reason: Option<&'static str>,
    /// The model alias as configured.
    pub alias: Option<Arc<str>>,
    /// The backend whose answer counts, or the last one tried.
    pub backend: Option<Arc<str>>,
    /// The model's name there.
    pub upstream_model: Option<String>,
    /// The backend's own request id.
    pub upstream_request_id: Option<String>,
    /// How the native mode was used.
    pub native: Native,
    /// The digest of the schema of the content.
    pub schema: Option<Digest>,
    /// Where on the ladder the answer was found: of the first choice.
    pub rung: Option<Rung>,
    /// Whether the answer was streamed.
    pub stream: bool,
    /// Upstream calls made.
    pub attempts: u32,
    /// One entry for every attempt that failed: backend and reason.
    pub failures: Vec<(Arc<str>, &'static str)>,
    /// What is wrong with the answer.
    pub violations: Option<Violations>,
    /// Violations that decided nothing: of gates, or whole policies, that only watch.
    pub observed: Option<Violations>,
    /// The policies that bound the request.
    pub policies: Vec<PolicyRef>,
    /// How the answer would have come out under the policies that only watch.
    pub watched: Option<Outcome>,
    /// Policies watched, and some of what they demand could not be judged: the answer could not be read, was too large to be
    /// copied, or nobody had asked for its tokens.
    pub unwatched: bool,
    /// What each gate came to, in every verdict of the exchange.
    pub gates: Vec<GateSeen>,
    /// What the caller is asked.
    pub questions: Vec<String>,
    /// Paths that a further attempt changed although no violation named them.
    pub retry_changed_paths: Vec<Path>,
    /// Bare arrays that were wrapped.
    pub wrapped: u32,
    /// Limits of policies that the request could not carry.
    pub dropped: Vec<String>,
    /// Answers that were judged.
    pub rounds: u32,
    /// What was accepted after more than one of them, of the first choice.
    pub accepted: Option<String>,
    /// What all attempts together took; none where one of them did not say.
    pub usage_total: Option<Usage>,
    /// Calls to tools that no contract binds whose arguments break their parameters.
    pub loose_tool_violations: u32,
    /// What the answer cost, as far as the backend said.
    pub usage: Option<Usage>,
    /// The model's text, for the audit record alone.
    pub text: Option<String>,
    /// The caller's tags.
    pub tags: BTreeMap<String, String>,
    /// From the request's head to the answer's last byte, or to the verdict where it was held.
    pub total: Duration,
    /// Of that, time spent waiting on upstreams.
    pub upstream: Duration,
    /// Since when an upstream is waited for; it is not in `upstream` yet.
    pub waits_since: Option<Instant>,
}

impl Record {
    /// The record of a request that has just arrived.
    pub fn new(request_id: String, arrived: SystemTime, path: String) -> Self {
        Self {
            request_id,
            arrived,
            path,
            outcome: Outcome::Cancelled,
            status: StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
            client: None,
            trace_id: None,
            code: None,
            reason: None,
            alias: None,
            backend: None,
            upstream_model: None,
            upstream_request_id: None,
            native: Native::None,
            schema: None,
            rung: None,
            stream: false,
            attempts: 0,
            failures: Vec::new(),
            violations: None,
            observed: None,
            policies: Vec::new(),
            watched: None,
            unwatched: false,
            gates: Vec::new(),
            questions: Vec::new(),
            retry_changed_paths: Vec::new(),
            wrapped: 0,
            dropped: Vec::new(),
            rounds: 0,
            accepted: None,
            usage_total: None,
            loose_tool_violations: 0,
            usage: None,
            text: None,
            tags: BTreeMap::new(),
            total: Duration::ZERO,
            upstream: Duration::ZERO,
            waits_since: None,
        }
    }

    /// Enters the time that an upstream was waited for until now.
    pub fn answered(&mut self) {
        if let Some(since) = self.waits_since.take() {
            self.upstream += since.elapsed();
        }
    }

    /// Time that the gateway itself took.
    pub fn own(&self) -> Duration {
        self.total.saturating_sub(self.upstream)
    }
}
