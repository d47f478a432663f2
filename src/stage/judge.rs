//! The verdict: every gate on every choice, every violation collected. Same reply, same contract: same verdict.

use std::ops::Range;

use crate::api::reply::Choice;
use crate::api::reply::Reply;
use crate::api::reply::ToolCall;
use crate::contract::ContentContract;
use crate::contract::Contract;
use crate::contract::ToolContract;
use crate::contract::gate;
use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::dialect::table::ReasoningTag;
use crate::extraction;
use crate::extraction::NotExtracted;
use crate::extraction::Reason;
use crate::extraction::Rung;
use crate::json::check;
use crate::json::fault::shown;
use crate::json::path::Path;
use crate::stage::extract;
use crate::stage::extract::Extraction;
use crate::wire::fault::Code;

/// What the gates concluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every choice satisfies the contract.
    Accept(Accepted),
    /// At least one choice breaks it.
    Reject(Rejection),
    /// A choice was refused by the model, or cut by the provider's filter.
    Refuse(Refused),
    /// The backend returned nothing, failed while answering, or did not say that it had ended.
    Fail(Failed),
}

/// A reply that passed its contract. Only [`judge`] makes one and the answer takes nothing else, so an
/// unjudged reply cannot reach a caller on a held route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    choices: Vec<AcceptedChoice>,
    /// Calls to tools that no contract binds whose arguments break their parameters: counted, passed on.
    loose: u32,
}

/// The part of one choice that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedChoice {
    /// The slice of the content that is the answer; none where the content goes on as it is.
    pub slice: Option<Range<usize>>,
    /// How it was found.
    pub rung: Option<Rung>,
}

impl Accepted {
    /// What passed of each choice, in the reply's order.
    pub fn choices(&self) -> &[AcceptedChoice] {
        &self.choices
    }

    /// Calls to unbound tools with arguments that break their parameters.
    pub fn loose(&self) -> u32 {
        self.loose
    }
}

/// Why a reply is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The code for the caller: that of the first choice that is not accepted.
    pub code: Code,
    /// The stage that rejected it: `extract`, `judge` or `tools`.
    pub stage: &'static str,
    /// The reason in one word, for records and metrics.
    pub reason: &'static str,
    /// Every violation, of every choice.
    pub violations: Violations,
    /// How the answer was found, where it was.
    pub rung: Option<Rung>,
}

/// Who declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The model, in a refusal.
    Model,
    /// The provider's content filter.
    Filter,
}

impl Refused {
    /// The name as records and metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "refusal",
            Self::Filter => "content_filter",
        }
    }
}

/// What the backend failed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It returned nothing.
    Empty,
    /// It reported a failure as its finish reason.
    Reported,
    /// It gave no finish reason, or one that is not known.
    Unfinished,
}

/// Judges a reply. A choice that is not accepted decides for all: first rejections, then failures, then refusals.
pub fn judge(contract: &Contract, reply: &Reply, reasoning: &[ReasoningTag]) -> Verdict {
    let (mut rejection, mut failed, mut refused) = (None::<Rejection>, None, None);
    let mut accepted = Accepted { choices: Vec::with_capacity(reply.choices.len()), loose: 0 };
    for choice in &reply.choices {
        match one(contract, choice, reasoning, &mut accepted.loose) {
            Ok(passed) => accepted.choices.push(passed),
            Err(Stopped::Rejected(found)) => match &mut rejection {
                Some(first) => first.violations.extend(found.violations),
                None => rejection = Some(*found),
            },
            Err(Stopped::Failed(how)) => failed = failed.or(Some(how)),
            Err(Stopped::Refused(who)) => refused = refused.or(Some(who)),
        }
    }
    match (rejection, failed, refused) {
        (Some(rejection), _, _) => Verdict::Reject(rejection),
        (None, Some(failed), _) => Verdict::Fail(failed),
        (None, None, Some(refused)) => Verdict::Refuse(refused),
        (None, None, None) if accepted.choices.is_empty() => Verdict::Fail(Failed::Empty),
        (None, None, None) => Verdict::Accept(accepted),
    }
}

/// Why one choice is not accepted.
enum Stopped {
    Rejected(Box<Rejection>),
    Failed(Failed),
    Refused(Refused),
}

fn one(
    contract: &Contract,
    choice: &Choice,
    reasoning: &[ReasoningTag],
    loose: &mut u32,
) -> Result<AcceptedChoice, Stopped> {
    let passed = match extract::extract(choice, contract, reasoning) {
        Extraction::Refusal => return Err(Stopped::Refused(Refused::Model)),
        Extraction::ContentFilter => return Err(Stopped::Refused(Refused::Filter)),
        Extraction::Empty => return Err(Stopped::Failed(Failed::Empty)),
        Extraction::Failed => return Err(Stopped::Failed(Failed::Reported)),
        Extraction::Unfinished => return Err(Stopped::Failed(Failed::Unfinished)),
        Extraction::Truncated => {
            return Err(reject(Code::OutputTruncated, "extract", "truncated", Violations::one(truncated())));
        }
        Extraction::Not(not) => return Err(not_extracted(&not, choice.content.as_deref().unwrap_or_default())),
        Extraction::Json(found) => {
            content(contract, choice, &found)?;
            AcceptedChoice { slice: Some(found.range), rung: Some(found.rung) }
        }
        Extraction::ToolCalls | Extraction::Unbound => AcceptedChoice { slice: None, rung: None },
    };
    match tools(contract, choice, loose) {
        None => Ok(passed),
        Some(violations) => Err(reject(Code::ToolViolation, "tools", "tool_violation", violations)),
    }
}

fn reject(code: Code, stage: &'static str, reason: &'static str, violations: Violations) -> Stopped {
    Stopped::Rejected(Box::new(Rejection { code, stage, reason, violations, rung: None }))
}

fn truncated() -> Violation {
    plain("truncated", "the answer was cut off by a token limit".to_owned())
}

fn plain(kind: &'static str, message: String) -> Violation {
    Violation::own("extraction", kind, Path::root(), message, None)
}

fn content(contract: &Contract, choice: &Choice, found: &extraction::Extracted) -> Result<(), Stopped> {
    let text = choice.content.as_deref().unwrap_or_default();
    let slice = text.get(found.range.clone()).unwrap_or_default();
    let violations = match &contract.content {
        None => None,
        Some(ContentContract::Schema(schema)) => gate::schema::check(schema, slice),
        Some(ContentContract::JsonObject) => not_object(slice).map(Violations::one),
    };
    let Some(mut violations) = violations else { return Ok(()) };
    violations.shift(found.range.start);
    let rejection =
        Rejection { code: Code::SchemaViolation, stage: "judge", reason: "schema", violations, rung: Some(found.rung) };
    Err(Stopped::Rejected(Box::new(rejection)))
}

fn not_object(slice: &str) -> Option<Violation> {
    if slice.starts_with('{') {
        return None;
    }
    let message = "expected an object, as `response_format` says".to_owned();
    Some(Violation::own(gate::schema::NAME, gate::schema::NAME, Path::root(), message, Some(0..slice.len())))
}

/// The rejection of a text that nothing could be cut out of. The text itself is not quoted.
fn not_extracted(not: &NotExtracted, text: &str) -> Stopped {
    let code = match not.reason {
        Reason::Empty | Reason::NoJson | Reason::Invalid | Reason::TrailingText => Code::OutputNotJson,
        Reason::Ambiguous => Code::OutputAmbiguous,
        Reason::Truncated => Code::OutputTruncated,
        Reason::DuplicateKey => Code::OutputDuplicateKey,
        Reason::TooDeep => Code::OutputTooDeep,
        Reason::NumberOutOfRange => Code::OutputNumberOutOfRange,
    };
    let violation = Violation::own(
        "extraction",
        not.reason.as_str(),
        not.path.clone().unwrap_or_default(),
        told(not, text),
        Some(not.at..not.at),
    );
    reject(code, "extract", not.reason.as_str(), Violations::one(violation))
}

/// What is said of a text that nothing could be cut out of.
pub fn told(not: &NotExtracted, text: &str) -> String {
    let place = |at: usize| {
        let (line, column) =
            crate::json::JsonFault::new(crate::json::JsonFaultKind::TrailingText, at).position(text.as_bytes());
        format!("line {line}, column {column}")
    };
    match (not.reason, &not.fault) {
        (Reason::Empty, _) => "the text is empty".to_owned(),
        (Reason::NoJson, _) => "the text holds nothing that begins like JSON".to_owned(),
        (Reason::Ambiguous, _) => {
            format!("the text holds several JSON values that differ; the second begins at {}", place(not.at))
        }
        (Reason::Truncated, _) => format!("the text stops inside what begins at {}", place(not.at)),
        (_, Some(fault)) => format!("{}: {fault}", place(fault.at)),
        (Reason::TooDeep, None) => format!("{}: more than 127 containers are open", place(not.at)),
        (reason, None) => format!("{}: {}", place(not.at), reason.as_str()),
    }
}

/// Judges the calls of one choice. Calls to unbound tools are counted and passed on.
fn tools(contract: &Contract, choice: &Choice, loose: &mut u32) -> Option<Violations> {
    let mut found = Vec::new();
    for (index, call) in choice.tool_calls.iter().enumerate() {
        let place = Path::root().key("tool_calls").index(index);
        let Some(tool) = contract.tool(&call.name) else {
            let message = match call.name.as_str() {
                "" => "a call that names no function cannot be judged".to_owned(),
                name => format!("the tool `{}` was not offered in the request", shown(name)),
            };
            found.push(Violation::own("tools", "unknown_tool", place, message, None));
            continue;
        };
        let wrong = arguments(tool, call);
        if tool.bound {
            found.extend(wrong.into_iter().map(|violation| Violation {
                message: format!("`{}` {}: {}", shown(&call.name), violation.path, violation.message),
                path: place.clone().key("arguments"),
                gate: "tools".into(),
                ..violation
            }));
        } else {
            *loose += u32::from(!wrong.is_empty());
        }
    }
    if let Some(forced) = contract.forced.and_then(|index| contract.tools.get(index))
        && !choice.tool_calls.iter().any(|call| call.name == forced.name)
    {
        let message = format!("the tool `{}` must be called and was not", shown(&forced.name));
        found.push(Violation::own("tools", "not_called", Path::root(), message, None));
    }
    Violations::of(found)
}

/// What is wrong with a call's arguments: they must be exactly one JSON object that satisfies the parameters.
fn arguments(tool: &ToolContract, call: &ToolCall) -> Vec<Violation> {
    let text = match call.arguments.as_str() {
        "" if !requires(tool) => "{}",
        other => other,
    };
    if text.is_empty() {
        return vec![plain(Reason::Empty.as_str(), "the arguments are empty, and some are required".to_owned())];
    }
    // The text goes on whole, so it is judged whole: nothing but JSON's own white space may stand around it.
    if let Err(fault) = check::strict(text) {
        let (line, column) = fault.position(text.as_bytes());
        return vec![plain(Reason::of(&fault).as_str(), format!("line {line}, column {column}: {fault}"))];
    }
    let slice = text.trim_ascii();
    if let Some(mut violation) = not_object(slice) {
        violation.message = "the arguments must be an object".to_owned();
        return vec![violation];
    }
    let broken = tool.parameters.as_ref().and_then(|schema| gate::schema::check(schema, slice));
    broken.iter().flat_map(Violations::iter).cloned().collect()
}

/// Whether a tool's parameters have a required property, so that empty arguments cannot mean none.
fn requires(tool: &ToolContract) -> bool {
    let required = tool.parameters.as_ref().and_then(|schema| schema.value().get("required"));
    required.and_then(|list| list.as_array()).is_some_and(|list| !list.is_empty())
}

#[cfg(test)]
mod tests;
