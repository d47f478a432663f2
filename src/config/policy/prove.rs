//! Controls, run: each recorded answer is judged by the same extraction and the same gates as on the wire.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use crate::api::backend::openai;
use crate::api::ingress::chat::ChatRequest;
use crate::api::reply::Usage;
use crate::config::policy::controls::Control;
use crate::config::policy::controls::Expect;
use crate::config::policy::controls::Given;
use crate::contract::gate::GateHealth;
use crate::contract::scene::Asker;
use crate::contract::scene::Call;
use crate::contract::schema::CompiledSchema;
use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::dialect::table::BackendKind;
use crate::dialect::table::Capabilities;
use crate::json::fault::shown;
use crate::policy::Policy;
use crate::settings::SchemaLimits;
use crate::stage::judge::Judgement;
use crate::stage::judge::Verdict;
use crate::stage::recorded;
use crate::stage::recorded::Said;

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
    let (mut prompt_bytes, mut asker) = (None, Asker::default());
    let contract = match &control.given {
        Given::Request(request) => {
            let request = ChatRequest::read(Bytes::from(request.to_string()))
                .map_err(|error| format!("its request cannot be read: {error}"))?;
            let compile = |text: Bytes| CompiledSchema::compile(text, SchemaLimits::default()).map(Arc::new);
            let content = request.schema().map(compile).transpose();
            let content = content.map_err(|error| format!("the schema of its request cannot be used: {error}"))?;
            prompt_bytes = Some(request.messages.list.iter().map(|message| request.said(message).0.len()).sum());
            asker = Asker { model: Some(request.model.clone()), user: request.user.clone(), ..Asker::default() };
            recorded::contract(policy, recorded::Given::Request(&request, content))
        }
        Given::Source(pages) => {
            prompt_bytes = Some(pages.iter().map(String::len).sum::<usize>());
            let pages = pages.iter().map(|page| page.as_str().into()).collect();
            recorded::contract(policy, recorded::Given::Source(pages))
        }
        Given::Nothing => recorded::contract(policy, recorded::Given::Source(Vec::new())),
    };
    let contract = contract.map_err(|refused| format!("the policy refuses its request: {refused}"))?;
    let call = Call {
        usage: usage(control)?,
        cost_usd: control.cost_usd.clone(),
        latency: control.latency,
        prompt_bytes: prompt_bytes.and_then(|bytes| u64::try_from(bytes).ok()),
        context: None,
        request: asker,
    };
    let finish_reason = control.finish_reason.as_deref().unwrap_or("stop");
    let said = Said { output: &control.output, finish_reason, call };
    let tags = Capabilities::of(BackendKind::OpenaiCompatible).reasoning_tags;
    Ok(recorded::judge(&contract, &said, &tags))
}

/// The tokens of a control, read as they are out of a backend's reply.
fn usage(control: &Control) -> Result<Option<Usage>, String> {
    let Some(usage) = &control.usage else { return Ok(None) };
    let choice = json!({"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}});
    let body = json!({"choices": [choice], "usage": usage}).to_string();
    let whole = openai::read(body.as_bytes()).map_err(|error| format!("its usage cannot be read: {error}"))?;
    Ok(whole.reply.usage)
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
            || (["schema", "assign"].contains(&gate.as_str())
                && found.is_some_and(|all| all.iter().any(|violation| *violation.gate == **gate)));
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
