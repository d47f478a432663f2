//! Controls, run: each recorded answer is judged by the same extraction and the same gates as on the wire.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use crate::api::backend::openai;
use crate::api::ingress::chat::ChatRequest;
use crate::api::reply::Reply;
use crate::config::policy::controls::Control;
use crate::config::policy::controls::Expect;
use crate::config::policy::controls::Given;
use crate::contract::Contract;
use crate::contract::Subject;
use crate::contract::gate::GateHealth;
use crate::contract::ground::LazyGround;
use crate::contract::scene::Call;
use crate::contract::schema::CompiledSchema;
use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::dialect::table::BackendKind;
use crate::dialect::table::Capabilities;
use crate::json::fault::shown;
use crate::policy::Asked;
use crate::policy::Policy;
use crate::settings::SchemaLimits;
use crate::stage::bind::Bound;
use crate::stage::judge;
use crate::stage::judge::Judgement;
use crate::stage::judge::Known;
use crate::stage::judge::Verdict;
use crate::stage::plan;
use crate::stage::plan::Schemas;

/// What became of one control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlOutcome {
    /// The control's name.
    pub name: String,
    /// Its line in the file.
    pub line: usize,
    /// Why it does not hold; none where it does what it should.
    pub fault: Option<String>,
}

/// Judges every control of a policy, in their order.
pub fn run_controls(policy: &Arc<Policy>, controls: &[Control]) -> Vec<ControlOutcome> {
    let outcome = |control: &Control| ControlOutcome {
        name: control.name.clone(),
        line: control.line,
        fault: judged(policy, control).map_or_else(Some, |judgement| fault(control, &judgement)),
    };
    controls.iter().map(outcome).collect()
}

/// Judges the answer of one control by its policy alone, whatever the policy's mode.
///
/// # Errors
/// In words, where the control's request cannot be read, or the policy refuses it.
pub fn judged(policy: &Arc<Policy>, control: &Control) -> Result<Judgement, String> {
    let request = request(policy, &control.given)?;
    let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    let schema_name = request.schema_name.as_deref();
    let asked = Asked { model: &request.model, team: None, schema_name, tools: &tools };
    let bound = Bound { policy: Arc::clone(policy), subject: policy.named(asked) };
    let subject = bound.subject.clone();
    let mut contract = plan::contract(&request, schemas(&request)?, &[bound]).map_err(|error| error.to_string())?;
    if let Given::Source(pages) = &control.given {
        ground_in(&mut contract, pages);
    }
    let reply = reply(control, &subject)?;
    let known = Known { call: call(control, &request, &reply), ..Known::nothing() };
    let tags = Capabilities::of(BackendKind::OpenaiCompatible).reasoning_tags;
    Ok(judge::judge(&contract, &reply, &tags, &known))
}

/// The request of a control. Where it has none, the smallest that the policy can judge an answer to.
fn request(policy: &Policy, given: &Given) -> Result<ChatRequest, String> {
    let body = match given {
        Given::Request(request) => request.clone(),
        Given::Nothing | Given::Source(_) => {
            let judges_content = policy.matches.is_empty() || policy.matches.iter().any(|entry| entry.tools.is_empty());
            let tool = policy.matches.iter().find_map(|entry| entry.tools.first()).filter(|_| !judges_content);
            match tool {
                Some(name) => {
                    let function = json!({"name": name});
                    json!({"model": "control", "messages": [], "tools": [{"type": "function", "function": function}]})
                }
                None => json!({"model": "control", "messages": []}),
            }
        }
    };
    ChatRequest::read(Bytes::from(body.to_string())).map_err(|error| format!("its request cannot be read: {error}"))
}

/// The schemas that the request itself brings.
fn schemas(request: &ChatRequest) -> Result<Schemas, String> {
    let compile = |text: Bytes| {
        let compiled = CompiledSchema::compile(text, SchemaLimits::default());
        compiled.map(Arc::new).map_err(|error| format!("a schema of its request cannot be used: {error}"))
    };
    let content = request.schema().map(compile).transpose()?;
    let parameters = |range: &Option<std::ops::Range<usize>>| {
        range
            .clone()
            .filter(|range| range.end <= request.body.len())
            .map(|range| compile(request.body.slice(range)))
            .transpose()
    };
    let tools = request.tools.iter().map(|tool| parameters(&tool.parameters)).collect::<Result<_, _>>()?;
    Ok(Schemas { content, tools })
}

/// Takes these pages for the source and for the messages, as they are.
fn ground_in(contract: &mut Contract, pages: &[String]) {
    let pages: Vec<Arc<str>> = pages.iter().map(|page| page.as_str().into()).collect();
    for scope in &mut contract.scopes {
        scope.ground = Arc::new(LazyGround::new(Arc::clone(&scope.contract), pages.clone(), pages.clone()));
    }
}

/// The reply that a backend would have sent, read by the reader of such replies.
fn reply(control: &Control, subject: &Subject) -> Result<Reply, String> {
    let message = match subject {
        Subject::Content => json!({"role": "assistant", "content": control.output}),
        Subject::Tool(name) => {
            let function = json!({"name": &**name, "arguments": control.output});
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": "call_0", "type": "function", "function": function}]})
        }
    };
    let finish = control.finish_reason.as_deref().unwrap_or(match subject {
        Subject::Content => "stop",
        Subject::Tool(_) => "tool_calls",
    });
    let mut body = json!({"choices": [{"index": 0, "finish_reason": finish, "message": message}]});
    if let (Some(usage), Some(members)) = (&control.usage, body.as_object_mut()) {
        members.insert("usage".to_owned(), usage.clone());
    }
    let whole = openai::read(body.to_string().as_bytes());
    whole.map(|whole| whole.reply).map_err(|error| format!("its answer cannot be read: {error}"))
}

fn call(control: &Control, request: &ChatRequest, reply: &Reply) -> Call {
    let bytes = match &control.given {
        Given::Nothing => None,
        Given::Source(pages) => Some(pages.iter().map(String::len).sum::<usize>()),
        Given::Request(_) => Some(request.messages.list.iter().map(|message| request.said(message).0.len()).sum()),
    };
    Call {
        usage: reply.usage,
        cost_usd: control.cost_usd.clone(),
        latency: control.latency,
        prompt_bytes: bytes.and_then(|bytes| u64::try_from(bytes).ok()),
        context: None,
        ..Call::default()
    }
}

/// Why a control does not hold, in words.
fn fault(control: &Control, judgement: &Judgement) -> Option<String> {
    let (outcome, code, stage) = match &judgement.verdict {
        Verdict::Accept(_) => (Some(Expect::Accepted), None, "judge"),
        Verdict::Clarify(_) => (Some(Expect::Clarified), None, "judge"),
        Verdict::Reject(rejection) => (Some(Expect::Rejected), Some(rejection.code), rejection.stage),
        Verdict::Refuse(_) => (Some(Expect::Refused), None, "extract"),
        Verdict::Fail(_) => (None, None, "extract"),
    };
    let found = violations(judgement);
    let because = found.map_or_else(String::new, |all| because(&all));
    if outcome != Some(control.expect) {
        let outcome = outcome.map_or("failed", Expect::as_str);
        return Some(format!("expected `{}`, found `{outcome}`{because}", control.expect.as_str()));
    }
    if let Some(gate) = &control.gate {
        let fired = judgement.gates.iter().any(|seen| *seen.gate == **gate && seen.health == GateHealth::Fired);
        let before = (gate == "extraction" && stage == "extract")
            || (gate == "schema" && found.is_some_and(|all| all.iter().any(|violation| &*violation.gate == "schema")));
        if !fired && !before {
            return Some(format!("gate `{gate}` was to fire and did not{because}"));
        }
    }
    match (control.code, code) {
        (Some(expected), found) if Some(expected) != found => {
            let found = found.map_or("none", |code| code.as_str());
            Some(format!("expected the code `{}`, found `{found}`{because}", expected.as_str()))
        }
        _ => None,
    }
}

fn violations(judgement: &Judgement) -> Option<&Violations> {
    match &judgement.verdict {
        Verdict::Clarify(clarification) => Some(&clarification.violations),
        Verdict::Reject(rejection) => Some(&rejection.violations),
        Verdict::Accept(_) | Verdict::Refuse(_) | Verdict::Fail(_) => judgement.observed.as_ref(),
    }
}

/// The first violations, for a message.
fn because(all: &&Violations) -> String {
    const SHOWN: usize = 3;
    let one = |violation: &Violation| format!("{}: {}: {}", violation.gate, violation.path, shown(&violation.message));
    let listed: Vec<String> = all.iter().take(SHOWN).map(one).collect();
    let more = all.total().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!(" ({}{more})", listed.join("; "))
}
