//! What one recorded answer came to: the one form in which `check` and `golden` tell a verdict, to programs and people.

use std::sync::Arc;

use serde::Serialize;
use serde::Serializer;
use serde::ser::SerializeMap as _;
use serde_json::Value;

use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::extraction::Extracted;
use crate::json::tree;
use crate::stage::judge::Failed;
use crate::stage::judge::Judgement;
use crate::stage::judge::Refused;
use crate::stage::judge::Verdict;
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

    /// The name as records and error bodies have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Clarified => "clarified",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
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
    pub stage: &'static str,
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
    /// What the caller is asked.
    pub questions: Vec<String>,
    /// The object that would be delivered.
    pub answer: Option<Value>,
    /// The text of that object, where it is not just a part of the model's text. For people alone.
    pub delivered: Option<String>,
    /// What there is to say where there is no violation to name. For people alone.
    pub note: &'static str,
}

impl Judged {
    /// What this verdict on `text` says; `found` is what was cut out of it.
    pub fn of(judgement: &Judgement, text: &str, found: Option<Extracted>) -> Self {
        let bare = |outcome, code, stage, note| Self {
            outcome,
            code,
            stage,
            policy: Vec::new(),
            extraction: None,
            violations_total: 0,
            violations: Vec::new(),
            not_checked: Vec::new(),
            questions: Vec::new(),
            answer: None,
            delivered: None,
            note,
        };
        let not_checked = judgement.not_checked.clone();
        match &judgement.verdict {
            Verdict::Clarify(asked) => Self {
                extraction: found.filter(|_| asked.rung.is_some()),
                questions: asked.questions.clone(),
                not_checked,
                ..bare(Ended::Clarified, None, "judge", "").breaking(&asked.violations)
            },
            Verdict::Accept(accepted) => {
                let choice = accepted.choices().first();
                let extraction = choice.and_then(|choice| {
                    choice.slice.clone().zip(choice.rung).map(|(range, rung)| Extracted { range, rung })
                });
                let slice = extraction.as_ref().and_then(|found| text.get(found.range.clone()));
                let answer = slice.and_then(|slice| tree::built(slice).ok());
                Self { extraction, answer, ..bare(Ended::Accepted, None, "judge", "") }
            }
            Verdict::Reject(rejection) => Self {
                extraction: found.filter(|_| rejection.rung.is_some()),
                not_checked,
                ..bare(Ended::Rejected, Some(rejection.code), rejection.stage, "").breaking(&rejection.violations)
            },
            Verdict::Refuse(Refused::Model) => bare(Ended::Refused, None, "extract", "the model refused"),
            Verdict::Refuse(Refused::Filter) => {
                bare(Ended::Refused, None, "extract", "the provider's filter cut the answer")
            }
            Verdict::Fail(failed) => {
                let (code, note) = match failed {
                    Failed::Empty => (Code::OutputEmpty, "the backend returned nothing"),
                    Failed::Reported => (Code::UpstreamError, "the finish reason reports a failure"),
                    Failed::Unfinished => (Code::UpstreamProtocol, "the finish reason is not known"),
                };
                bare(Ended::Failed, Some(code), "extract", note)
            }
        }
    }

    fn breaking(mut self, violations: &Violations) -> Self {
        self.violations_total = violations.total();
        self.violations = violations.iter().cloned().collect();
        self
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

impl Serialize for Judged {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("outcome", self.outcome.as_str())?;
        map.serialize_entry("code", &self.code.map(Code::as_str))?;
        map.serialize_entry("stage", self.stage)?;
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
    use crate::extraction::Rung;
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
            stage: "judge",
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
