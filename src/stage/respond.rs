//! What a caller gets in the place of an answer that is not accepted: as the policy whose gate decided says.

use serde_json::Value;
use serde_json::json;

use crate::contract::Contract;
use crate::contract::gate;
use crate::contract::template::ResponseObject;
use crate::contract::template::TemplateContext;
use crate::contract::template::TemplateValue;
use crate::contract::verdict::Action;
use crate::contract::verdict::Violations;
use crate::json::tree;
use crate::policy::Response;
use crate::record::Outcome;
use crate::stage::bind::Binding;
use crate::stage::bind::Bound;
use crate::stage::judge::Clarification;
use crate::stage::judge::Rejection;

/// A verdict that does not let the answer go on.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// How the exchange ends.
    pub outcome: Outcome,
    /// The action that decided.
    pub action: Action,
    /// What the caller is asked, or what the gates that reject say.
    pub questions: &'a [String],
    /// Every violation.
    pub violations: &'a Violations,
    /// The answer as it was judged; empty where no gate looked at it.
    pub answer: &'a str,
}

impl<'a> Decision<'a> {
    /// Of an answer that is rejected.
    pub fn rejected(rejection: &'a Rejection) -> Self {
        let Rejection { reasons, violations, answer, .. } = rejection;
        Self { outcome: Outcome::Rejected, action: Action::Reject, questions: reasons, violations, answer }
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
    match response {
        Response::Error => Respond::Error,
        Response::Refusal => Respond::Refusal(words(decision)),
        Response::Object(template) => object(template, decision, bound, contract).unwrap_or(Respond::Error),
    }
}

/// The object that a template makes; none where it fails, or does not satisfy every schema that the answer had to.
fn object(template: &ResponseObject, decision: &Decision<'_>, bound: &Bound, contract: &Contract) -> Option<Respond> {
    let scope = contract.scopes.iter().find(|scope| scope.contract.policy == bound.policy.name)?;
    let context = context(decision, &bound.policy.name)
        .with("facts", scope.ground.get().facts_of_templates().clone())
        .with("data", scope.contract.data_of_templates().clone());
    let text = template.render(&context).ok()?.to_string();
    let content = contract.content.as_ref()?;
    let whole = if content.assign.is_some() { &content.complete } else { &content.schemas };
    let satisfied = whole.iter().all(|own| gate::schema::check(&own.schema, &text).is_none());
    satisfied.then_some(Respond::Object(text))
}

/// What a template of the policy sees of a decision, but for facts and data.
pub fn context(decision: &Decision<'_>, policy: &str) -> TemplateContext {
    let own = || decision.violations.iter().filter(|violation| violation.policy.as_deref() == Some(policy));
    let mut gates: Vec<&str> = Vec::new();
    for violation in own() {
        if !gates.contains(&&*violation.gate) {
            gates.push(&violation.gate);
        }
    }
    let violations: Vec<Value> = own()
        .map(|violation| {
            json!({
                "gate": &*violation.gate, "kind": violation.kind, "path": violation.path.to_string(),
                "message": violation.message, "action": violation.action.as_str(),
            })
        })
        .collect();
    let output = tree::built(decision.answer).unwrap_or_default();
    TemplateContext::new()
        .with("questions", TemplateValue::from_json(&json!(decision.questions)))
        .with("violations", TemplateValue::from_json(&Value::Array(violations)))
        .with("gates", TemplateValue::from_json(&json!(gates)))
        .with("output", TemplateValue::from_json(&output))
}

/// The words of a refusal: the questions, or where there are none every violation.
fn words(decision: &Decision<'_>) -> String {
    if !decision.questions.is_empty() {
        return decision.questions.join(" ");
    }
    decision.violations.iter().map(|violation| violation.message.as_str()).collect::<Vec<_>>().join("; ")
}
