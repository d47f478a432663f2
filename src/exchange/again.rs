//! Whether a model is asked once more, where, and with what words.

use crate::contract::verdict::Action;
use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::exchange::Out;
use crate::exchange::attempt::Attempts;
use crate::json::diff;
use crate::json::path::Path;
use crate::json::tree;
use crate::record::Outcome;
use crate::record::Record;
use crate::record::Stage;
use crate::stage::plan;
use crate::stage::plan::Delivery;
use crate::stage::plan::RetryTerms;
use crate::stage::plan::TargetPlan;
use crate::stage::prompt;
use crate::stage::shape::Again;

/// An answer that is not accepted, and what the caller gets where it stays at that.
pub(super) struct Stopped {
    pub(super) out: Out,
    pub(super) outcome: Outcome,
    pub(super) stage: Stage,
    pub(super) reason: &'static str,
    pub(super) violations: Violations,
    /// What the model said in the choice that decided.
    pub(super) said: String,
    /// The answer as it was judged; empty where none was cut out.
    pub(super) answer: String,
}

/// Where, and with what words, the next round asks.
pub(super) struct Round {
    pub(super) targets: Vec<TargetPlan>,
    pub(super) again: Option<Again>,
    /// Rounds before this one.
    pub(super) number: u32,
}

impl<U> Attempts<'_, U> {
    /// The next round, where every violation is one that a policy finds worth another attempt.
    pub(super) fn once_more(&self, stopped: &Stopped, round: &Round, calls: u32) -> Option<Round> {
        let terms = self.plan.terms.retry.as_ref()?;
        if round.number >= terms.attempts || calls == 0 || self.delivery != Delivery::Hold {
            return None;
        }
        let is_named = |policy: Option<&str>, gate: &str| {
            terms.on.iter().any(|(own, named)| **named == *gate && policy.is_none_or(|policy| **own == *policy))
        };
        let worth = |violation: &Violation| match stopped.stage {
            Stage::Extract => is_named(None, "extraction"),
            _ if stopped.reason == "schema" => is_named(None, "schema"),
            Stage::Judge => {
                violation.action == Action::Monitor || is_named(violation.policy.as_deref(), &violation.gate)
            }
            _ => false,
        };
        // Beyond those that are listed nobody has looked.
        let all_listed = stopped.violations.total() == stopped.violations.iter().count();
        if !all_listed || !stopped.violations.iter().all(worth) {
            return None;
        }
        let targets = self.escalated(terms, round.number)?;
        let told = stopped.violations.iter().map(|violation| (violation.path.to_string(), violation.message.clone()));
        let again = Again { said: stopped.said.clone(), feedback: prompt::feedback(told) };
        Some(Round { targets, again: Some(again), number: round.number + 1 })
    }

    /// The targets of the round after round `number`: of the alias that stands next in `escalate`, else the request's own.
    fn escalated(&self, terms: &RetryTerms, number: u32) -> Option<Vec<TargetPlan>> {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(name) = terms.escalate.get(index) else { return Some(self.plan.targets.clone()) };
        let alias = self.gateway.catalog.alias(name)?;
        let mut targets = plan::targets(alias, &self.plan.contract, &self.plan.terms, self.request).ok()?;
        for plan in &mut targets {
            // A target without a name of its own is asked by the alias's, and that is not what the caller wrote.
            plan.target.model.get_or_insert_with(|| name.to_string());
        }
        Some(targets)
    }
}

/// Enters the paths that a further attempt changed although no violation named them.
pub(super) fn changed_paths(before: &Stopped, after: &str, record: &mut Record) {
    let (Ok(old), Ok(new)) = (tree::parse(&before.answer), tree::parse(after)) else { return };
    let named = |path: &Path| before.violations.iter().any(|violation| violation.path.holds(path));
    let changed = diff::changed(&old, &new).into_iter().filter(|path| !named(path));
    record.retry_changed_paths.extend(changed);
    record.retry_changed_paths.truncate(100);
}
