//! What verdicts leave in the record of an exchange.

use crate::contract::verdict::Action;
use crate::record::Outcome;
use crate::record::Record;
use crate::stage::judge::Judgement;
use crate::stage::judge::Verdict;

/// Enters what was seen on the way to a verdict.
pub(super) fn seen(judgement: &Judgement, record: &mut Record) {
    record.gates.extend(judgement.gates.iter().cloned());
    record.wrapped += judgement.wrapped;
    match (&mut record.observed, &judgement.observed) {
        (Some(all), Some(more)) => all.extend(more.clone()),
        (None, more) => record.observed.clone_from(more),
        (Some(_), None) => {}
    }
}

/// Enters what policies that only watch would have made of the answer.
pub(super) fn watching(judgement: Judgement, record: &mut Record) {
    seen(&judgement, record);
    let (outcome, violations) = match judgement.verdict {
        Verdict::Accept(_) => (Outcome::Accepted, None),
        Verdict::Clarify(asked) => (Outcome::Clarified, Some(asked.violations)),
        Verdict::Reject(rejection) => (Outcome::Rejected, Some(rejection.violations)),
        Verdict::Refuse(_) => (Outcome::Refused, None),
        Verdict::Fail(_) => (Outcome::Failed, None),
    };
    record.watched = Some(outcome);
    let violations = violations.map(|violations| violations.with_action(Action::Monitor));
    match (&mut record.observed, violations) {
        (Some(all), Some(more)) => all.extend(more),
        (None, more) => record.observed = more,
        (Some(_), None) => {}
    }
}
