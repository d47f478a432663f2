//! What gates find: violations, each with its place, and never fewer than one in a rejection.

use std::ops::Range;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::json::fault::shown;
use crate::json::path::Path;

/// Violations that are listed; further ones are only counted.
pub const LISTED_MAX: usize = 100;

/// One way in which an answer breaks its contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The policy whose gate it is; none where the request's own contract is broken.
    pub policy: Option<Arc<str>>,
    /// The name of the gate.
    pub gate: Arc<str>,
    /// The kind of check that failed.
    pub kind: &'static str,
    /// Where in the answer.
    pub path: Path,
    /// What was expected and what was found.
    pub message: String,
    /// What follows from it.
    pub action: Action,
    /// The bytes of the model's text that are meant, where they can be named.
    pub at: Option<Range<usize>>,
    /// The part of the source that is meant, where there is one.
    pub source_at: Option<SourceAt>,
    /// Where the gate is written: file and line of the policy. For people who mend a policy, not for callers.
    pub declared: Option<Arc<str>>,
}

impl Violation {
    /// A violation of what holds without any policy: it rejects.
    pub fn own(gate: &str, kind: &'static str, path: Path, message: String, at: Option<Range<usize>>) -> Self {
        let (policy, source_at, declared) = (None, None, None);
        Self { policy, gate: gate.into(), kind, path, message, action: Action::Reject, at, source_at, declared }
    }
}

/// What follows from a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is recorded and counted; the answer goes on.
    Monitor,
    /// The caller is asked back.
    Clarify,
    /// The answer is stopped.
    #[default]
    Reject,
}

impl Action {
    /// The name as policies, error bodies and records have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Monitor => "monitor",
            Self::Clarify => "clarify",
            Self::Reject => "reject",
        }
    }
}

/// A part of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceAt {
    /// The page, from 1.
    pub page: usize,
    /// Bytes of the page, as it came.
    pub range: Range<usize>,
}

/// One or more violations; an empty list cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations {
    first: Violation,
    rest: Vec<Violation>,
    total: usize,
}

impl Violations {
    /// A list of one.
    pub fn one(first: Violation) -> Self {
        Self { first, rest: Vec::new(), total: 1 }
    }

    /// The violations that were found, or none where there are none.
    ///
    /// At most [`LISTED_MAX`] are kept, all are counted.
    pub fn of(found: impl IntoIterator<Item = Violation>) -> Option<Self> {
        let mut found = found.into_iter();
        let mut all = Self::one(found.next()?);
        for violation in found {
            all.push(violation);
        }
        Some(all)
    }

    /// The violations that `named` makes of what was found. Beyond [`LISTED_MAX`] they are counted without
    /// being made: a place and a message each cost work.
    pub fn counted<T>(found: impl IntoIterator<Item = T>, mut named: impl FnMut(T) -> Violation) -> Option<Self> {
        let mut found = found.into_iter();
        let mut all = Self::one(named(found.next()?));
        for one in found.by_ref().take(LISTED_MAX - 1) {
            all.push(named(one));
        }
        all.total += found.count();
        Some(all)
    }

    /// Adds one; beyond [`LISTED_MAX`] it is only counted.
    pub fn push(&mut self, violation: Violation) {
        self.total += 1;
        if self.rest.len() + 1 < LISTED_MAX {
            self.rest.push(violation);
        }
    }

    /// Adds all of `others`.
    pub fn extend(&mut self, others: Self) {
        let unlisted = others.total - others.rest.len() - 1;
        self.push(others.first);
        others.rest.into_iter().for_each(|violation| self.push(violation));
        self.total += unlisted;
    }

    /// These violations, of which there are `total`; none where there are none.
    pub fn listed(found: Vec<Violation>, total: usize) -> Option<Self> {
        let mut all = Self::of(found)?;
        all.total = all.total.max(total);
        Some(all)
    }

    /// Moves the bytes that the violations name to where `place` says that they stand; none for nowhere.
    pub fn place(&mut self, place: impl Fn(Range<usize>) -> Option<Range<usize>>) {
        for violation in self.each() {
            violation.at = violation.at.take().and_then(&place);
        }
    }

    /// The same with no bytes named: they were of a text that is not the model's.
    pub fn without_places(mut self) -> Self {
        self.place(|_| None);
        self
    }

    /// The same as violations of a policy.
    pub fn of_policy(mut self, policy: &Arc<str>) -> Self {
        self.each().for_each(|violation| violation.policy = Some(Arc::clone(policy)));
        self
    }

    /// The same with another action.
    pub fn with_action(mut self, action: Action) -> Self {
        self.each().for_each(|violation| violation.action = action);
        self
    }

    /// The same as violations of a tool call: `arguments` is the path of its arguments, and each message says where in them.
    pub fn inside(mut self, tool: &str, arguments: &Path) -> Self {
        for violation in self.each() {
            violation.message = format!("`{}` {}: {}", shown(tool), violation.path, violation.message);
            violation.path = arguments.clone();
        }
        self
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Violation> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }

    /// How many there are, listed or not.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Those that are listed, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Violation> + Clone {
        std::iter::once(&self.first).chain(&self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violation() -> Violation {
        Violation::own("schema", "schema", Path::root(), String::new(), None)
    }

    #[test]
    fn the_list_is_bounded_and_the_count_is_not() {
        let mut all = Violations::of(std::iter::repeat_n(violation(), 150)).unwrap();
        assert_eq!((all.iter().count(), all.total()), (100, 150));
        all.extend(Violations::of(std::iter::repeat_n(violation(), 130)).unwrap());
        assert_eq!((all.iter().count(), all.total()), (100, 280));
        assert_eq!(Violations::of([]), None);
    }
}
