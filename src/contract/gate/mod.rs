//! The gates, one file each. The next one is one file and one line in [`KINDS`].

pub mod budget;
pub mod context;
pub mod fact;
pub mod math;
pub mod member;
#[cfg(test)]
pub(crate) mod properties;
pub mod provenance;
pub mod quote;
pub mod rule;
pub mod schema;
pub mod strict;
#[cfg(test)]
pub(crate) mod testing;
pub mod text;
#[cfg(test)]
mod trial;
pub mod unique;
mod written;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::contract::PolicyContract;
use crate::contract::number::Printed;
use crate::contract::rule::Rule;
use crate::contract::rule::RuleFault;
use crate::contract::rule::Variable;
use crate::contract::scene::Evidence;
use crate::contract::scene::Node;
use crate::contract::scene::Scene;
use crate::contract::scene::kind_of;
use crate::contract::source::Needs;
use crate::contract::template::Template;
use crate::contract::template::TemplateValue;
use crate::contract::verdict::Action;
use crate::contract::verdict::LISTED_MAX;
use crate::contract::verdict::SourceAt;
use crate::contract::verdict::Violation;
use crate::json::path::Path;
use crate::json::query::Lacks;
use crate::json::query::Query;
use crate::json::query::Reached;
use crate::json::tape::Place;
use crate::json::tape::What;

/// One deterministic check. It is pure: it calls no model, reads no clock, waits for nothing.
pub trait Gate: fmt::Debug + Send + Sync {
    /// Reports every violation that it finds in the answer. What it cannot check is a violation too.
    fn check(&self, scene: &Scene<'_>, found: &mut Findings<'_>);

    /// The paths whose values it judges.
    fn paths(&self) -> Vec<&Query> {
        Vec::new()
    }

    /// The names that it adds to what its `say` sees.
    fn adds(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it looks at the tokens that the backend reports, so that a stream must be asked for them.
    fn reads_usage(&self) -> bool {
        false
    }

    /// Whether what it judges is tied to the source, so that a model cannot please it by changing the answer alone.
    fn is_tied_to_source(&self) -> bool {
        false
    }

    /// Whether it looks at the facts that the messages state.
    fn reads_facts(&self) -> bool {
        false
    }

    /// Says what it will ask of the source, so that it can be prepared while the upstream call runs.
    fn prepare(&self, needs: &mut Needs) {
        let _ = needs;
    }

    /// What can only be said of it beside the policy's other gates; asked once, when all of them are built.
    fn check_beside(&self, contract: &PolicyContract) -> Result<(), BuildError> {
        let _ = contract;
        Ok(())
    }

    /// Whether it ties numbers that `query` reaches to what their quotes print.
    fn reads_numbers_of(&self, query: &Query) -> bool {
        let _ = query;
        false
    }

    /// The number that the quote at a node prints, where this gate finds it in order; none where it does not.
    fn printed_at(&self, scene: &Scene<'_>, node: Node<'_>) -> Option<Printed> {
        let _ = (scene, node);
        None
    }
}

/// A gate, or every reason why its settings make none.
pub type Built = Result<Box<dyn Gate>, Vec<BuildError>>;

/// A kind of gate, as policies name it.
pub struct Kind {
    /// The member of the gate that holds its settings.
    pub name: &'static str,
    /// The JSON Schema of its settings.
    pub schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
    /// Makes a gate of its settings, which that schema has accepted.
    pub build: fn(&Value, &Build<'_>) -> Built,
}

/// The kind of a violation that says that the prompt did not arrive whole.
pub const CONTEXT_TRUNCATED: &str = "context_truncated";

impl Kind {
    /// Whether its settings are members beside the one that names it: then `build` takes an object of all the gate's
    /// members but the common ones (`{"quote": "$.id", "token": true}`), and else the value of that one member.
    pub fn stands_beside(&self) -> bool {
        let schema = (self.schema)(&mut schemars::SchemaGenerator::default());
        schema.get("properties").is_some_and(|properties| properties.get(self.name).is_some())
    }
}

/// All kinds of gates that a policy can name.
pub const KINDS: &[Kind] = &[
    budget::KIND,
    context::KIND,
    fact::KIND,
    math::KIND,
    member::KIND,
    provenance::KIND,
    quote::KIND,
    rule::KIND,
    strict::KIND,
    text::KIND,
    unique::KIND,
];

/// What a gate is built from besides its own settings.
pub struct Build<'b> {
    /// What the policy's gates look things up in, resolved before the first of them is built.
    pub contract: &'b PolicyContract,
    /// What is said of missing and null values.
    pub presence: Presence,
    /// The nodes that a `rule` runs on.
    pub each: Option<Query>,
}

/// Why a gate cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildError {
    /// The members that lead from the gate's settings to what is wrong: `["sum"]`. Empty for the settings as a whole.
    pub at: Vec<String>,
    /// What was found and what was expected.
    pub message: String,
}

impl BuildError {
    /// An error at a member of the settings.
    pub fn at(member: &str, message: impl Into<String>) -> Self {
        Self { at: vec![member.to_owned()], message: message.into() }
    }
}

/// What is said of values that are not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// A missing value is no violation.
    pub optional: bool,
    /// A null is no violation.
    pub nullable: bool,
    /// How many values there must be.
    pub at_least: usize,
}

/// A gate with its place in a policy.
#[derive(Debug)]
pub struct GateEntry {
    /// Its name, unique in the policy.
    pub name: Arc<str>,
    /// The member that holds its settings.
    pub kind: &'static str,
    /// Where it is written: file and line.
    pub declared: Arc<str>,
    /// What follows from a violation.
    pub action: Action,
    /// The gate runs where this holds; none runs always.
    pub when: Option<Rule>,
    /// What is asked, or told, of a violation.
    pub say: Option<Template>,
    /// Gates that must have passed for the same node, by their places in the policy: all before this one.
    pub needs: Vec<usize>,
    /// The check.
    pub gate: Box<dyn Gate>,
}

impl GateEntry {
    /// Whether it looks at the tokens that the backend reports.
    pub fn reads_usage(&self) -> bool {
        self.gate.reads_usage() || self.when.as_ref().is_some_and(|when| when.reads(Variable::Usage))
    }
}

/// What one gate finds.
pub struct Findings<'s> {
    scene: Scene<'s>,
    entry: &'s GateEntry,
    /// Bytes of the answer for which a needed gate has not passed, apart from each other and in their order.
    blocked: &'s [Range<usize>],
    violations: Vec<Violation>,
    /// What is asked of each of them.
    questions: Vec<String>,
    total: usize,
    skipped: Vec<Range<usize>>,
}

/// Where a violation is.
#[derive(Clone, Copy, Debug)]
pub enum At<'a> {
    /// At a value.
    Place(Place<'a>),
    /// At what a value lacks.
    Below(Place<'a>, Lacks<'a>),
    /// At the answer as a whole.
    Answer,
}

/// What a gate says of one violation.
pub struct Finding<'a> {
    /// Where it is.
    pub at: At<'a>,
    /// What kind of violation it is, where that is not the kind of the gate.
    pub kind: Option<&'static str>,
    /// What was expected and what was found; lower case, no full stop, values quoted up to 80 characters.
    pub message: String,
    /// What the gate's `say` sees besides `value`, `path`, `this`, `output`, `facts` and `data`.
    pub with: Vec<(&'static str, Value)>,
    /// The part of the source that is meant.
    pub source_at: Option<SourceAt>,
}

impl<'a> Finding<'a> {
    /// A finding with nothing more to say.
    pub fn new(at: At<'a>, message: impl Into<String>) -> Self {
        Self { at, kind: None, message: message.into(), with: Vec::new(), source_at: None }
    }
}

impl<'s> Findings<'s> {
    /// Reports one violation. Beyond [`LISTED_MAX`] they are only counted; `finding` is then not asked.
    pub fn report<'a>(&mut self, at: At<'a>, finding: impl FnOnce(At<'a>) -> Finding<'a>) {
        self.total += 1;
        if self.violations.len() >= LISTED_MAX {
            return;
        }
        let Finding { at, kind, message, with, source_at } = finding(at);
        let (path, range) = match at {
            At::Place(place) => (place.path(), place.range()),
            At::Below(parent, lacks) => (lacks.below(parent), parent.range()),
            At::Answer => (Path::root(), self.scene.answer.root().range()),
        };
        if self.entry.action == Action::Clarify || (self.entry.action == Action::Reject && self.entry.say.is_some()) {
            self.questions.push(self.question(at, &path, &message, with));
        }
        self.violations.push(Violation {
            policy: Some(Arc::clone(&self.scene.contract.policy)),
            gate: Arc::clone(&self.entry.name),
            kind: kind.unwrap_or(self.entry.kind),
            path,
            message,
            action: self.entry.action,
            at: Some(range),
            source_at,
            declared: Some(Arc::clone(&self.entry.declared)),
        });
    }

    /// What the caller is asked of a violation: what `say` makes of it; where that fails, or is not there, the message.
    fn question(&self, at: At<'_>, path: &Path, message: &str, with: Vec<(&'static str, Value)>) -> String {
        let Some(say) = &self.entry.say else { return message.to_owned() };
        let value = match at {
            At::Place(place) => place.tree(),
            At::Below(..) | At::Answer => Value::Null,
        };
        let this =
            with.iter().find(|(name, _)| *name == "this").map_or_else(|| value.clone(), |(_, this)| this.clone());
        let mut context = self.scene.context();
        context.set("value", TemplateValue::from_json(&value));
        context.set("path", TemplateValue::from_text(&path.to_string()));
        context.set("message", TemplateValue::from_text(message));
        for (name, value) in with {
            context.set(name, TemplateValue::from_json(&value));
        }
        context.set("this", TemplateValue::from_json(&this));
        say.render(&context).unwrap_or_else(|_| message.to_owned())
    }

    /// Reports one violation that has nothing but a message.
    pub fn say(&mut self, at: At<'_>, message: impl FnOnce() -> String) {
        self.report(at, |at| Finding::new(at, message()));
    }

    /// Whether a gate that this one needs has not passed for the value at `place`, for what holds it or for a part of it.
    /// The value then is *not checked*, which is noted.
    pub fn is_blocked(&mut self, place: Place<'_>) -> bool {
        let range = place.range();
        let first = self.blocked.partition_point(|other| other.end <= range.start);
        let blocked = self.blocked.get(first).is_some_and(|other| other.start < range.end);
        if blocked {
            self.skipped.push(range);
        }
        blocked
    }

    /// The values that `query` reaches and that are to be checked, in the order of the text. What is missing, null or of
    /// another type than the path goes through is reported here, as `presence` says; so are fewer values than it demands.
    pub fn nodes<'a>(&mut self, query: &Query, presence: Presence) -> Vec<Node<'a>>
    where
        's: 'a,
    {
        self.reached(query, presence, self.scene.contract.evidence.as_ref())
    }

    /// The same for a gate that looks at evidence objects themselves.
    pub fn places<'a>(&mut self, query: &Query, presence: Presence) -> Vec<Place<'a>>
    where
        's: 'a,
    {
        self.reached(query, presence, None).into_iter().map(|node| node.place).collect()
    }

    fn reached<'a>(&mut self, query: &Query, presence: Presence, evidence: Option<&Evidence>) -> Vec<Node<'a>>
    where
        's: 'a,
    {
        let scene = self.scene;
        let mut nodes = Vec::new();
        let mut count = 0_usize;
        query.reach(scene.answer.root(), &mut |reached| match reached {
            Reached::Value(place) => {
                count += 1;
                if self.is_blocked(place) {
                    return;
                }
                let node = match evidence {
                    Some(evidence) => evidence.node(place),
                    None => Node { place, value: place, has_evidence: false },
                };
                match node.value.what() {
                    What::Null if presence.nullable => {}
                    What::Null => self.say(At::Place(node.place), || "expected a value, found null".to_owned()),
                    _ => nodes.push(node),
                }
            }
            Reached::Missing { parent, lacks } => {
                if !presence.optional && !self.is_blocked(parent) {
                    self.say(At::Below(parent, lacks), || "expected a value, found nothing: it is missing".to_owned());
                }
            }
            Reached::Other { place, expected } => {
                let missing = place.what() == What::Null && presence.optional;
                if !missing && !self.is_blocked(place) {
                    self.say(At::Place(place), || format!("expected an {expected}, found {}", kind_of(place)));
                }
            }
        });
        if count < presence.at_least {
            let (found, least) = (count, presence.at_least);
            self.say(At::Answer, || format!("expected at least {least} values at `{query}`, found {found}"));
        }
        nodes
    }
}

/// What the gates of one policy came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// The violations, in the order of the gates, then of the document; of each gate at most [`LISTED_MAX`].
    pub violations: Vec<Violation>,
    /// How many there are, listed or not.
    pub total: usize,
    /// Gates that were not checked, everywhere or somewhere, because one that they need had not passed.
    pub not_checked: Vec<Arc<str>>,
    /// What the caller is asked, in the order of the violations.
    pub questions: Vec<String>,
    /// What gates that reject say of it, in the order of the violations.
    pub reasons: Vec<String>,
    /// The strictest action of any violation.
    pub action: Option<Action>,
    /// Of each gate of the policy, in its order: what it came to.
    pub health: Vec<GateHealth>,
}

/// One gate of one policy, and what it came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateSeen {
    /// The policy.
    pub policy: Arc<str>,
    /// The gate.
    pub gate: Arc<str>,
    /// What it came to.
    pub health: GateHealth,
}

/// What one gate came to in one verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateHealth {
    /// It ran and found nothing.
    Passed,
    /// It found violations.
    Fired,
    /// It was not checked, everywhere or somewhere.
    NotChecked,
    /// Its `when` did not hold.
    Idle,
}

impl GateHealth {
    /// The name as metrics and reports have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Fired => "fired",
            Self::NotChecked => "not_checked",
            Self::Idle => "idle",
        }
    }
}

/// Violations in the order of the document, each with its question where there are any.
fn in_order(violations: Vec<Violation>, questions: Vec<String>) -> (Vec<Violation>, Vec<String>) {
    let mut questions = questions.into_iter();
    let mut all: Vec<(Violation, Option<String>)> =
        violations.into_iter().map(|violation| (violation, questions.next())).collect();
    all.sort_by_key(|(violation, _)| violation.at.as_ref().map_or(0, |range| range.start));
    let (violations, questions): (Vec<Violation>, Vec<Option<String>>) = all.into_iter().unzip();
    (violations, questions.into_iter().flatten().collect())
}

/// The same bytes as ranges that do not overlap, in their order: there may be one for every node of an answer, and each node
/// of it may be looked for.
fn apart(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let overlaps = next.start < last.end;
        if overlaps {
            last.end = last.end.max(next.end);
        }
        overlaps
    });
    ranges
}

/// Whether a gate runs on this answer.
fn runs(scene: &Scene<'_>, entry: &GateEntry) -> Result<bool, RuleFault> {
    let Some(when) = &entry.when else { return Ok(true) };
    let bindings = scene.bindings();
    let holds = when.holds(&bindings);
    scene.spent(&bindings);
    holds
}

/// Runs every gate of the scene's policy, in their order.
pub fn run(scene: &Scene<'_>) -> Judged {
    let mut judged = Judged::default();
    // Of each gate: the bytes of the answer for which it has not passed.
    let mut failed: Vec<Vec<Range<usize>>> = Vec::with_capacity(scene.contract.gates.len());
    for entry in &scene.contract.gates {
        let blocked = apart(entry.needs.iter().filter_map(|need| failed.get(*need)).flatten().cloned().collect());
        let mut findings = Findings {
            scene: *scene,
            entry,
            blocked: &blocked,
            violations: Vec::new(),
            questions: Vec::new(),
            total: 0,
            skipped: Vec::new(),
        };
        if scene.call.unasked && entry.reads_usage() {
            judged.health.push(GateHealth::NotChecked);
            judged.not_checked.push(Arc::clone(&entry.name));
            failed.push(vec![scene.answer.root().range()]);
            continue;
        }
        match runs(scene, entry) {
            Ok(true) => entry.gate.check(scene, &mut findings),
            Ok(false) => {
                judged.health.push(GateHealth::Idle);
                failed.push(Vec::new());
                continue;
            }
            Err(fault) => findings.say(At::Answer, || format!("`when` cannot be told: {fault}")),
        }
        let Findings { violations, questions, total, skipped, .. } = findings;
        let (violations, questions) = in_order(violations, questions);
        match entry.action {
            Action::Clarify => judged.questions.extend(questions),
            Action::Reject => judged.reasons.extend(questions),
            Action::Monitor => {}
        }
        judged.health.push(match (total, skipped.is_empty()) {
            (0, true) => GateHealth::Passed,
            (0, false) => GateHealth::NotChecked,
            (_, _) => GateHealth::Fired,
        });
        if !skipped.is_empty() {
            judged.not_checked.push(Arc::clone(&entry.name));
        }
        let mut ranges: Vec<Range<usize>> = violations.iter().filter_map(|violation| violation.at.clone()).collect();
        if total > violations.len() {
            ranges.push(scene.answer.root().range()); // those that are not listed may be anywhere
        }
        ranges.extend(skipped);
        failed.push(ranges);
        if total > 0 {
            judged.action = judged.action.max(Some(entry.action));
        }
        judged.total += total;
        judged.violations.extend(violations);
    }
    judged
}
