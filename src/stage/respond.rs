//! What a caller gets in the place of an answer that is not accepted: as the policy whose gate decided says.

use crate::contract::Contract;
use crate::contract::verdict::Action;
use crate::contract::verdict::Violations;
use crate::policy::Response;
use crate::record::Outcome;
use crate::stage::bind::Binding;
use crate::stage::judge::Clarification;
use crate::stage::judge::Rejection;

/// A verdict that does not let the answer go on.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// How the exchange ends.
    pub outcome: Outcome,
    /// The action that decided.
    pub action: Action,
    /// What the caller is asked.
    pub questions: &'a [String],
    /// Every violation.
    pub violations: &'a Violations,
    /// The answer as it was judged; empty where no gate looked at it.
    pub answer: &'a str,
}

impl<'a> Decision<'a> {
    /// Of an answer that is rejected.
    pub fn rejected(rejection: &'a Rejection) -> Self {
        let Rejection { questions, violations, answer, .. } = rejection;
        Self { outcome: Outcome::Rejected, action: Action::Reject, questions, violations, answer }
    }

    /// Of an answer that the caller is asked back about.
    pub fn asked(asked: &'a Clarification) -> Self {
        let Clarification { questions, violations, answer, .. } = asked;
        Self { outcome: Outcome::Clarified, action: Action::Clarify, questions, violations, answer }
    }
}

/// What the caller gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Respond {
    /// An error.
    Error,
    /// A refusal with these words.
    Refusal(String),
    /// An object, as JSON.
    Object(String),
}

/// Finds what the caller gets. Where no policy's gate decided, or an object cannot be made that satisfies the schema, an error.
pub fn respond(decision: &Decision<'_>, binding: &Binding, contract: &Contract) -> Respond {
    let deciding = decision.violations.iter().find(|violation| violation.action == decision.action);
    let name = deciding.and_then(|violation| violation.policy.as_deref());
    let Some(bound) = binding.enforced.iter().find(|bound| name == Some(&*bound.policy.name)) else {
        return Respond::Error;
    };
    // What breaks the container has no contents that a template could speak of.
    if decision.answer.is_empty() {
        return Respond::Error;
    }
    let respond = &bound.policy.respond;
    let response = if decision.action == Action::Clarify { &respond.clarify } else { &respond.reject };
    let _ = contract;
    match response {
        Response::Error => Respond::Error,
        Response::Refusal => Respond::Refusal(words(decision)),
        Response::Object(_) => Respond::Error,
    }
}

/// The words of a refusal: the questions, or where there are none every violation.
fn words(decision: &Decision<'_>) -> String {
    if !decision.questions.is_empty() {
        return decision.questions.join(" ");
    }
    decision.violations.iter().map(|violation| violation.message.as_str()).collect::<Vec<_>>().join("; ")
}
