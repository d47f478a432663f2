//! What one recorded answer came to: the one form in which `check` and `golden` tell a verdict, to programs and people.

use std::sync::Arc;

use serde::Serialize;
use serde::Serializer;
use serde::ser::SerializeMap as _;
use serde_json::Value;

use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::exchange::recorded::Heard;
use crate::exchange::recorded::Judge;
use crate::extraction::Extracted;
use crate::extraction::Rung;
use crate::json::tree;
use crate::record::Outcome;
use crate::record::Stage;
use crate::stage::judge::Accepted;
use crate::stage::judge::Failed;
use crate::stage::judge::Judgement;
use crate::stage::judge::Refused;
use crate::stage::judge::Verdict;
use crate::stage::respond::Respond;
use crate::wire::fault::Code;

/// How a judged answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ended {
    /// The contract is satisfied.
    Accepted,
    /// The caller is asked back.
    Clarified,
    /// The contract is broken.
    Rejected,
    /// The model refused, or the provider's filter cut the answer.
    Refused,
    /// There was nothing to judge, or no telling whether it is whole.
    Failed,
}

impl Ended {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Accepted, Self::Clarified, Self::Rejected, Self::Refused, Self::Failed];

    /// How an answer with this verdict ended.
    pub fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Accept(_) => Self::Accepted,
            Verdict::Clarify(_) => Self::Clarified,
            Verdict::Reject(_) => Self::Rejected,
            Verdict::Refuse(_) => Self::Refused,
            Verdict::Fail(_) => Self::Failed,
        }
    }

    /// The name as records and error bodies have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => Outcome::Accepted,
            Self::Clarified => Outcome::Clarified,
            Self::Rejected => Outcome::Rejected,
            Self::Refused => Outcome::Refused,
            Self::Failed => Outcome::Failed,
        }
        .as_str()
    }

    /// The outcome of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ended| ended.as_str() == name)
    }
}

/// What one recorded answer came to. As JSON it is what `check --format json` prints; offsets are bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// How it ended.
    pub outcome: Ended,
    /// The code that a caller gets; none where there is no error.
    pub code: Option<Code>,
    /// The stage that decided: `extract`, `judge` or `tools`.
    pub stage: Stage,
    /// The policies that judged it.
    pub policy: Vec<Arc<str>>,
    /// Where in the text the answer was found, where it was.
    pub extraction: Option<Extracted>,
    /// How many violations there are, listed or not.
    pub violations_total: usize,
    /// Those that are listed, in the order of the gates, then of the document.
    pub violations: Vec<Violation>,
    /// Gates that were not checked, everywhere or somewhere.
    pub not_checked: Vec<Arc<str>>,
    /// What the caller is asked; of a rejected answer, what the gates' own words say of it.
    pub questions: Vec<String>,
    /// The object that would be delivered.
    pub answer: Option<Value>,
    /// The text of that object, where it is not just a part of the model's text. For people alone.
    pub delivered: Option<String>,
    /// What there is to say where there is no violation to name. For people alone.
    pub note: &'static str,
}

impl Judged {
    /// What a recorded answer came to.
    pub fn of(heard: &Heard, judge: &Judge) -> Self {
        let Judgement { verdict, observed, not_checked, .. } = &heard.judgement;
        let outcome = Ended::of(verdict);
        let mut judged = Self {
            outcome,
            code: code(verdict),
            stage: Stage::Judge,
            policy: heard.policies(),
            extraction: None,
            violations_total: 0,
            violations: Vec::new(),
            not_checked: not_checked.clone(),
            questions: Vec::new(),
            answer: None,
            delivered: None,
            note: "",
        };
        match verdict {
            Verdict::Accept(accepted) => {
                judged.accepted(accepted, heard.text());
                observed.iter().for_each(|violations| judged.broken_by(violations));
            }
            Verdict::Clarify(asked) => {
                judged.questions.clone_from(&asked.questions);
                judged.stopped(heard, judge, &asked.violations, asked.rung);
            }
            Verdict::Reject(rejection) => {
                judged.stage = rejection.stage;
                judged.questions.clone_from(&rejection.reasons);
                judged.stopped(heard, judge, &rejection.violations, rejection.rung);
            }
            Verdict::Refuse(Refused::Model) => (judged.stage, judged.note) = (Stage::Extract, "the model refused"),
            Verdict::Refuse(Refused::Filter) => {
                (judged.stage, judged.note) = (Stage::Extract, "the provider's filter cut the answer");
            }
            Verdict::Fail(failed) => {
                judged.stage = Stage::Extract;
                judged.note = match failed {
                    Failed::Empty => "the backend returned nothing",
                    Failed::Reported => "the finish reason reports a failure",
                    Failed::Unfinished => "the finish reason is not known",
                };
            }
        }
        judged
    }

    fn accepted(&mut self, accepted: &Accepted, text: &str) {
        let Some(choice) = accepted.choices().first() else { return };
        let Some((range, rung)) = choice.slice.clone().zip(choice.rung) else {
            self.answer = tree::parse(text).ok(); // the arguments of a tool call
            return;
        };
        let slice = text.get(range.clone()).unwrap_or_default();
        self.delivered = choice.around.as_ref().map(|around| around.around(slice));
        self.answer = tree::built(self.delivered.as_deref().unwrap_or(slice)).ok();
        self.extraction = Some(Extracted { range, rung });
    }

    /// What the caller gets in the place of the answer counts as delivered too.
    fn stopped(&mut self, heard: &Heard, judge: &Judge, violations: &Violations, rung: Option<Rung>) {
        self.broken_by(violations);
        self.extraction = rung.and_then(|_| heard.found(judge));
        match heard.respond(judge) {
            Some(Respond::Object(object)) => {
                self.answer = tree::parse(&object).ok();
                self.delivered = Some(object);
            }
            Some(Respond::Error) if self.outcome == Ended::Clarified => self.code = Some(Code::ClarificationRequired),
            Some(Respond::Error | Respond::Refusal(_)) | None => {}
        }
    }

    fn broken_by(&mut self, violations: &Violations) {
        self.violations_total = violations.total();
        self.violations = violations.iter().cloned().collect();
    }

    /// How it ended, with its code: `rejected: schema_violation`.
    pub fn told(&self) -> String {
        match self.code {
            Some(code) => format!("{}: {}", self.outcome.as_str(), code.as_str()),
            None => self.outcome.as_str().to_owned(),
        }
    }

    /// What it is counted under: its code, or its outcome where it has none.
    pub fn class(&self) -> &'static str {
        self.code.map_or(self.outcome.as_str(), Code::as_str)
    }
}

/// What a verdict is counted under, without all that [`Judged`] says of it.
pub fn class(heard: &Heard, judge: &Judge) -> &'static str {
    let verdict = &heard.judgement.verdict;
    match (verdict, code(verdict)) {
        (Verdict::Clarify(_), _) if heard.respond(judge) == Some(Respond::Error) => {
            Code::ClarificationRequired.as_str()
        }
        (_, Some(code)) => code.as_str(),
        (verdict, None) => Ended::of(verdict).as_str(),
    }
}

fn code(verdict: &Verdict) -> Option<Code> {
    match verdict {
        Verdict::Accept(_) | Verdict::Clarify(_) | Verdict::Refuse(_) => None,
        Verdict::Reject(rejection) => Some(rejection.code),
        Verdict::Fail(Failed::Empty) => Some(Code::OutputEmpty),
        Verdict::Fail(Failed::Reported) => Some(Code::UpstreamError),
        Verdict::Fail(Failed::Unfinished) => Some(Code::UpstreamProtocol),
    }
}

impl Serialize for Judged {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("outcome", self.outcome.as_str())?;
        map.serialize_entry("code", &self.code.map(Code::as_str))?;
        map.serialize_entry("stage", self.stage.as_str())?;
        map.serialize_entry("policy", &names(&self.policy))?;
        map.serialize_entry("extraction", &self.extraction.as_ref().map(Found::of))?;
        map.serialize_entry("violations_total", &self.violations_total)?;
        map.serialize_entry("violations", &told(&self.violations))?;
        map.serialize_entry("not_checked", &names(&self.not_checked))?;
        map.serialize_entry("questions", &self.questions)?;
        if let Some(answer) = &self.answer {
            map.serialize_entry("answer", answer)?;
        }
        map.end()
    }
}

fn names(list: &[Arc<str>]) -> Vec<&str> {
    list.iter().map(|name| &**name).collect()
}

/// Violations as programs read them.
pub fn told(violations: &[Violation]) -> Vec<impl Serialize + '_> {
    violations.iter().map(Told::of).collect()
}

#[derive(Serialize)]
struct Found {
    rung: &'static str,
    start: usize,
    end: usize,
}

impl Found {
    fn of(found: &Extracted) -> Self {
        Self { rung: found.rung.as_str(), start: found.range.start, end: found.range.end }
    }
}

/// A violation as JSON. Where its gate is written is left out: that is for those who mend the policy.
#[derive(Serialize)]
struct Told<'v> {
    policy: Option<&'v str>,
    gate: &'v str,
    kind: &'static str,
    path: String,
    message: &'v str,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_at: Option<PageBytes>,
}

#[derive(Serialize)]
struct Bytes {
    start: usize,
    end: usize,
}

#[derive(Serialize)]
struct PageBytes {
    page: usize,
    start: usize,
    end: usize,
}

impl<'v> Told<'v> {
    fn of(violation: &'v Violation) -> Self {
        Self {
            policy: violation.policy.as_deref(),
            gate: &violation.gate,
            kind: violation.kind,
            path: violation.path.to_string(),
            message: &violation.message,
            action: violation.action.as_str(),
            at: violation.at.as_ref().map(|at| Bytes { start: at.start, end: at.end }),
            source_at: (violation.source_at.as_ref()).map(|at| PageBytes {
                page: at.page,
                start: at.range.start,
                end: at.range.end,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::verdict::Action;
    use crate::contract::verdict::SourceAt;
    use crate::json::path::Path;

    #[test]
    fn the_members_are_those_of_the_documentation_in_their_order() {
        let violation = Violation {
            policy: Some("invoices".into()),
            action: Action::Clarify,
            source_at: Some(SourceAt { page: 2, range: 3..9 }),
            declared: Some("policies/invoices/policy.yaml:21".into()),
            ..Violation::own("grounded", "provenance", Path::root().key("total"), "not there".into(), Some(4..7))
        };
        let judged = Judged {
            outcome: Ended::Clarified,
            code: None,
            stage: Stage::Judge,
            policy: vec!["invoices".into()],
            extraction: Some(Extracted { range: 0..9, rung: Rung::Whole }),
            violations_total: 3,
            violations: vec![violation],
            not_checked: vec!["later".into()],
            questions: vec!["What is the total?".into()],
            answer: Some(tree::parse("{\"total\":1.0}").unwrap()),
            delivered: None,
            note: "",
        };
        insta::assert_snapshot!(serde_json::to_string_pretty(&judged).unwrap());
    }

    #[test]
    fn every_outcome_is_found_by_its_name() {
        assert!(Ended::ALL.into_iter().all(|ended| Ended::named(ended.as_str()) == Some(ended)));
        assert_eq!(Ended::named("denied"), None);
    }
}
