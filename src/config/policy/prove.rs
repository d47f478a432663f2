//! Controls, run: each recorded answer is judged as `check` and `golden` judge one, and so as on the wire.

use std::sync::Arc;

use bytes::Bytes;

use crate::api::backend::openai;
use crate::api::ingress::chat::ChatRequest;
use crate::api::reply::Finish;
use crate::api::reply::Usage;
use crate::config::policy::controls::Control;
use crate::config::policy::controls::Expect;
use crate::config::policy::controls::Given;
use crate::contract::gate::GateHealth;
use crate::contract::scene::Call;
use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::exchange::recorded::Judge;
use crate::exchange::recorded::Recorded;
use crate::json::cursor::Cursor;
use crate::json::fault::shown;
use crate::policy::Policy;
use crate::record::Stage;
use crate::settings::SchemaLimits;
use crate::stage::judge::Judgement;
use crate::stage::judge::Verdict;

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

/// Judges every control of a policy by that policy alone, in their order, whatever the policy's mode.
pub fn run_controls(policy: &Arc<Policy>, controls: &[Control], limits: SchemaLimits) -> Vec<ControlOutcome> {
    let judge =
        Judge::by_policy(Arc::clone(policy), limits).map_err(|error| format!("{:#}", anyhow::Error::from(error)));
    let outcome = |control: &Control| {
        let judgement = judge.as_ref().map_err(String::clone).and_then(|judge| judged(judge, control));
        ControlOutcome {
            name: control.name.clone(),
            line: control.line,
            fault: judgement.map_or_else(Some, |judgement| fault(control, &judgement)),
        }
    };
    controls.iter().map(outcome).collect()
}

/// Judges the answer of one control. What goes wrong is said in words.
fn judged(judge: &Judge, control: &Control) -> Result<Judgement, String> {
    let (request, source) = match &control.given {
        Given::Request(request) => {
            let request = ChatRequest::read(Bytes::from(request.to_string()));
            (Some(request.map_err(|error| format!("its request cannot be read: {error}"))?), None)
        }
        Given::Source(pages) => (None, Some(pages.iter().map(|page| page.as_str().into()).collect())),
        Given::Nothing => (None, None),
    };
    let call = Call {
        usage: usage(control)?,
        cost_usd: control.cost_usd.clone(),
        latency: control.latency,
        ..Call::default()
    };
    let finish = control.finish_reason.as_deref().map_or(Finish::Stop, Finish::read);
    let recorded = Recorded { request, source, output: control.output.clone(), finish, call };
    judge.judge(recorded).map(|heard| heard.judgement).map_err(|error| format!("{:#}", anyhow::Error::from(error)))
}

/// The tokens of a control, read as they are out of a backend's reply.
fn usage(control: &Control) -> Result<Option<Usage>, String> {
    let Some(written) = &control.usage else { return Ok(None) };
    let (text, mut usage) = (written.to_string(), None);
    let read = openai::usage(&mut Cursor::of(&text), &mut usage);
    read.map(|_| usage).map_err(|fault| format!("its usage cannot be read: {fault}"))
}

/// Why a control does not hold, in words.
fn fault(control: &Control, judgement: &Judgement) -> Option<String> {
    let (outcome, code, stage) = match &judgement.verdict {
        Verdict::Accept(_) => (Some(Expect::Accepted), None, Stage::Judge),
        Verdict::Clarify(_) => (Some(Expect::Clarified), None, Stage::Judge),
        Verdict::Reject(rejection) => (Some(Expect::Rejected), Some(rejection.code), rejection.stage),
        Verdict::Refuse(_) => (Some(Expect::Refused), None, Stage::Extract),
        Verdict::Fail(_) => (None, None, Stage::Extract),
    };
    let found = violations(judgement);
    let because = found.map_or_else(String::new, |all| because(&all));
    if outcome != Some(control.expect) {
        let outcome = outcome.map_or("failed", Expect::as_str);
        return Some(format!("expected `{}`, found `{outcome}`{because}", control.expect.as_str()));
    }
    if let Some(gate) = &control.gate {
        let fired = judgement.gates.iter().any(|seen| *seen.gate == **gate && seen.health == GateHealth::Fired);
        let before = (gate == "extraction" && stage == Stage::Extract)
            || (["schema", "assign"].contains(&gate.as_str())
                && found.is_some_and(|all| all.iter().any(|violation| is_of(violation, gate, stage))));
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

/// Whether what comes before the gates found this. A call's arguments are judged under the name `tools`, by kind.
fn is_of(violation: &Violation, gate: &str, stage: Stage) -> bool {
    *violation.gate == *gate || (stage == Stage::Tools && violation.kind == gate)
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
