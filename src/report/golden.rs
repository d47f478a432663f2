//! What a recorded set came to: counted record by record, with a denominator for every share.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;
use serde::Serializer;
use serde::ser::SerializeMap as _;

use crate::contract::gate::GateHealth;
use crate::contract::gate::GateSeen;
use crate::report::count;
use crate::report::outcome;
use crate::report::outcome::Ended;
use crate::report::outcome::Judged;
use crate::report::shown;
use crate::report::text::Paint;
use crate::wire::fault::Code;

/// Unexpected records that the text form lists, and violations of each of them.
const TOLD_MAX: (usize, usize) = (20, 5);
/// Verdicts from which on a share of them means something.
const SHARE_OF_MIN: u64 = 10;

/// A record of the set, as far as it is not judged.
#[derive(Clone, Debug)]
pub struct Record<'r> {
    /// Its line in the file, from 1.
    pub line: u64,
    /// Its name.
    pub name: &'r str,
    /// What it should come to.
    pub expected: Expected,
    /// Whose fault a rejection is, in the words of whoever classified it.
    pub cause: Option<Cause>,
}

/// What a record should come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// How it should end.
    pub outcome: Ended,
    /// The gate that must fire.
    pub gate: Option<Arc<str>>,
    /// The code that the caller must get.
    pub code: Option<Code>,
}

impl Default for Expected {
    fn default() -> Self {
        Self { outcome: Ended::Accepted, gate: None, code: None }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.outcome.as_str())?;
        if let Some(code) = self.code {
            write!(f, ": {}", code.as_str())?;
        }
        match &self.gate {
            Some(gate) => write!(f, " by `{gate}`"),
            None => Ok(()),
        }
    }
}

/// Whose fault a rejection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The model erred.
    Model,
    /// The document is wrong: the model read what stands there.
    Document,
    /// The contract is wrong: the answer is right.
    Contract,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Model, Self::Document, Self::Contract];

    /// The name as records have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Document => "document",
            Self::Contract => "contract",
        }
    }

    /// The cause of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == name)
    }
}

/// What one gate came to over the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GateTally {
    /// Its name.
    pub name: Arc<str>,
    /// The kind of check.
    pub kind: &'static str,
    /// Where it is written.
    pub declared: Arc<str>,
    /// Records on which it ran.
    pub ran: u64,
    /// Records on which it found a violation.
    pub fired: u64,
    /// Those of them that did not come to what they should.
    pub fired_unexpectedly: u64,
    /// Records on which it was not checked anywhere, because a gate that it needs had not passed.
    pub not_checked: u64,
    /// Records on which its `when` did not hold.
    pub idle: u64,
}

impl GateTally {
    /// What its figures hint at, if they hint at anything.
    pub fn hint(&self) -> &'static str {
        match (self.ran, self.fired) {
            (0, _) => "never ran",
            (_, 0) => "never fired",
            (ran, fired) if ran >= SHARE_OF_MIN && fired * 2 >= ran => "fires on a large share",
            _ => "",
        }
    }
}

/// One record that did not come to what it should.
#[derive(Clone, Debug)]
pub struct Unexpected {
    /// Its line in the file, from 1.
    pub line: u64,
    /// Its name.
    pub name: String,
    /// What it should have come to.
    pub expected: Expected,
    /// Whose fault it is, where someone classified it.
    pub cause: Option<Cause>,
    /// What it came to.
    pub judged: Judged,
    /// The model's text and the source's pages, where they are kept for a report.
    pub shown: Option<(String, Vec<Arc<str>>)>,
}

/// What a set came to.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Records.
    pub records: u64,
    /// Those that came to what they should.
    pub as_expected: u64,
    /// Records by outcome, in the order of [`Ended::ALL`].
    pub outcomes: [u64; 5],
    /// Records that are not accepted, by code, or by outcome where there is no code.
    pub by_class: BTreeMap<&'static str, u64>,
    /// Records that are not accepted, by cause, in the order of [`Cause::ALL`].
    pub by_cause: [u64; 3],
    /// Records with violations of what holds without any policy: `extraction`, `schema`, `tools`.
    pub own: BTreeMap<Arc<str>, u64>,
    /// The gates of the policy, in its order.
    pub gates: Vec<GateTally>,
}

/// What one record came to, as far as it is counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'c> {
    /// How it ended.
    pub outcome: Ended,
    /// Its code, or its outcome where it has none.
    pub class: &'static str,
    /// Whether that is what it should be.
    pub as_expected: bool,
    /// Its cause.
    pub cause: Option<Cause>,
    /// Names of gates of no policy that fired; each once.
    pub own: &'c [Arc<str>],
    /// What each of the policy's gates came to; empty where they did not run.
    pub gates: &'c [GateSeen],
}

impl Tally {
    /// Counts one record.
    pub fn add(&mut self, counted: Counted<'_>) {
        self.records += 1;
        self.as_expected += u64::from(counted.as_expected);
        if let Some(outcome) = self.outcomes.get_mut(counted.outcome as usize) {
            *outcome += 1;
        }
        if counted.outcome != Ended::Accepted {
            *self.by_class.entry(counted.class).or_default() += 1;
            if let Some(cause) = counted.cause.and_then(|cause| self.by_cause.get_mut(cause as usize)) {
                *cause += 1;
            }
        }
        for name in counted.own {
            match self.own.get_mut(name) {
                Some(count) => *count += 1,
                None => _ = self.own.insert(Arc::clone(name), 1),
            }
        }
        for (gate, seen) in self.gates.iter_mut().zip(counted.gates) {
            match seen.health {
                GateHealth::Passed => gate.ran += 1,
                GateHealth::Fired => {
                    gate.ran += 1;
                    gate.fired += 1;
                    gate.fired_unexpectedly += u64::from(!counted.as_expected);
                }
                GateHealth::NotChecked => gate.not_checked += 1,
                GateHealth::Idle => gate.idle += 1,
            }
        }
    }

    /// Adds what other records of the same set came to.
    pub fn extend(&mut self, other: &Self) {
        self.records += other.records;
        self.as_expected += other.as_expected;
        self.outcomes.iter_mut().zip(other.outcomes).for_each(|(own, more)| *own += more);
        self.by_cause.iter_mut().zip(other.by_cause).for_each(|(own, more)| *own += more);
        for (class, more) in &other.by_class {
            *self.by_class.entry(class).or_default() += more;
        }
        for (name, more) in &other.own {
            *self.own.entry(Arc::clone(name)).or_default() += more;
        }
        for (own, more) in self.gates.iter_mut().zip(&other.gates) {
            own.ran += more.ran;
            own.fired += more.fired;
            own.fired_unexpectedly += more.fired_unexpectedly;
            own.not_checked += more.not_checked;
            own.idle += more.idle;
        }
    }

    /// The share of records that came to what they should; of no records, all of them.
    pub fn rate(&self) -> f64 {
        if self.records == 0 { 1.0 } else { self.as_expected as f64 / self.records as f64 }
    }

    /// Records that are not accepted.
    pub fn not_accepted(&self) -> u64 {
        self.records - self.outcomes.first().copied().unwrap_or_default()
    }
}

/// A set as it is told.
#[derive(Clone, Debug, Default)]
pub struct Golden {
    /// The policy that judged it.
    pub policy: String,
    /// The figures.
    pub tally: Tally,
    /// The records that did not come to what they should, in the order of the file: all of them, or the first.
    pub unexpected: Vec<Unexpected>,
}

impl Serialize for Golden {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tally = &self.tally;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("records", &tally.records)?;
        map.serialize_entry("as_expected", &tally.as_expected)?;
        map.serialize_entry("rate", &tally.rate())?;
        map.serialize_entry("by_gate", &Pairs(&self.by_gate()))?;
        map.serialize_entry("by_class", &tally.by_class)?;
        map.serialize_entry("by_cause", &Pairs(&self.by_cause()))?;
        let unexpected: Vec<Told<'_, _>> = (self.unexpected.iter())
            .map(|one| Told {
                name: &one.name,
                outcome: one.judged.outcome.as_str(),
                violations: outcome::told(&one.judged.violations),
            })
            .collect();
        map.serialize_entry("unexpected", &unexpected)?;
        map.end()
    }
}

#[derive(Serialize)]
struct Told<'t, V: Serialize> {
    name: &'t str,
    outcome: &'static str,
    violations: Vec<V>,
}

/// Members in an order of their own.
struct Pairs<'p>(&'p [(&'p str, u64)]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl Golden {
    /// Records in which each gate fired: those of no policy, where they fired, then the policy's, in its order.
    fn by_gate(&self) -> Vec<(&str, u64)> {
        let mut all: Vec<_> = self.tally.own.iter().map(|(name, fired)| (&**name, *fired)).collect();
        for gate in &self.tally.gates {
            // No record makes both fire: the policy's gates run only where nothing implied has fired.
            match all.iter_mut().find(|(name, _)| **name == *gate.name) {
                Some((_, fired)) => *fired += gate.fired,
                None => all.push((&gate.name, gate.fired)),
            }
        }
        all
    }

    /// Records that are not accepted, by cause, where one is given.
    fn by_cause(&self) -> Vec<(&str, u64)> {
        let all = Cause::ALL.into_iter().zip(self.tally.by_cause);
        all.filter(|(_, count)| *count > 0).map(|(cause, count)| (cause.as_str(), count)).collect()
    }

    /// For a person at a terminal.
    pub fn text(&self, colour: bool) -> String {
        let (paint, tally) = (Paint { colour }, &self.tally);
        let share = percent(tally.as_expected, tally.records);
        let line = format!("{} of {} records as expected", count(tally.as_expected), count(tally.records));
        let line = if tally.as_expected == tally.records { paint.good(&line) } else { paint.bad(&line) };
        let mut out = format!("{}: {line} ({share})\n", shown(&self.policy));
        self.gates_onto(&mut out, &paint);
        let outcomes = Ended::ALL.into_iter().zip(tally.outcomes).filter(|(_, count)| *count > 0);
        let outcomes: Vec<(&str, u64)> = outcomes.map(|(ended, count)| (ended.as_str(), count)).collect();
        let classes: Vec<(&str, u64)> = tally.by_class.iter().map(|(class, count)| (*class, *count)).collect();
        for (title, whole, rows) in [
            ("outcome", tally.records, outcomes),
            ("not accepted, by class", tally.not_accepted(), classes),
            ("not accepted, by cause", tally.not_accepted(), self.by_cause()),
        ] {
            if rows.is_empty() {
                continue;
            }
            let _ = writeln!(out, "\n{}", paint.bold(title));
            for (name, number) in rows {
                let _ =
                    writeln!(out, "  {name:<28} {:>9} of {} ({})", count(number), count(whole), percent(number, whole));
            }
        }
        self.unexpected_onto(&mut out, &paint);
        out
    }

    fn gates_onto(&self, out: &mut String, paint: &Paint) {
        let tally = &self.tally;
        if tally.gates.is_empty() && tally.own.is_empty() {
            return;
        }
        let names = tally.gates.iter().map(|gate| gate.name.chars().count());
        let width =
            names.chain(tally.own.keys().map(|name| name.chars().count())).max().unwrap_or_default().clamp(10, 40);
        let head = format!(
            "{:<width$}  {:<10} {:>9} {:>9} {:>10} {:>11}",
            "gate", "kind", "ran", "fired", "unexpected", "not checked"
        );
        let _ = writeln!(out, "\n{}", paint.bold(&head));
        for (name, fired) in &tally.own {
            let _ = writeln!(out, "{name:<width$}  {:<10} {:>9} {:>9}", "implied", "", count(*fired));
        }
        for gate in &tally.gates {
            let line = format!(
                "{:<width$}  {:<10} {:>9} {:>9} {:>10} {:>11}  {}",
                gate.name,
                gate.kind,
                count(gate.ran),
                count(gate.fired),
                count(gate.fired_unexpectedly),
                count(gate.not_checked),
                paint.warn_unless_empty(gate.hint())
            );
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }

    fn unexpected_onto(&self, out: &mut String, paint: &Paint) {
        let (records_max, violations_max) = TOLD_MAX;
        if self.unexpected.is_empty() {
            return;
        }
        let _ = writeln!(out, "\n{}", paint.bold("not as expected"));
        for one in self.unexpected.iter().take(records_max) {
            let name = paint.bold(&shown(&one.name));
            let _ = writeln!(
                out,
                "  line {}: {name}: expected {}, found {}",
                one.line,
                one.expected,
                paint.bad(&one.judged.told())
            );
            for violation in one.judged.violations.iter().take(violations_max) {
                let told = format!("{}: {}: {}", violation.gate, violation.path, violation.message);
                let _ = writeln!(out, "    {}", shown(&told));
            }
            let unlisted = one.judged.violations_total.saturating_sub(violations_max);
            if unlisted > 0 {
                let _ = writeln!(out, "    and {unlisted} more");
            }
        }
        let listed = self.unexpected.len().min(records_max) as u64;
        let more = (self.tally.records - self.tally.as_expected).saturating_sub(listed);
        if more > 0 {
            let _ = writeln!(out, "  and {} more; --format json lists all of them", count(more));
        }
    }
}

/// A share in percent, rounded down, so that only all of them are 100 %.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "none".to_owned();
    }
    let tenths = u128::from(part) * 1_000 / u128::from(whole);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use crate::contract::verdict::Violation;
    use crate::json::path::Path;
    use crate::record::Stage;

    /// A rejection in which everything that can be set by a model or an author is `hostile`.
    pub(crate) fn rejected(hostile: &str) -> Judged {
        let violation = Violation {
            policy: Some(hostile.into()),
            declared: Some(hostile.into()),
            ..Violation::own(hostile, "rule", Path::root().key(hostile), hostile.to_owned(), Some(2..7))
        };
        Judged {
            outcome: Ended::Rejected,
            code: Some(Code::SchemaViolation),
            stage: Stage::Judge,
            policy: vec![hostile.into()],
            extraction: None,
            violations_total: 1,
            violations: vec![violation],
            not_checked: vec![hostile.into()],
            questions: vec![hostile.to_owned()],
            answer: None,
            delivered: None,
            note: "",
        }
    }

    /// A set of 40 records, two of them not as expected.
    pub(crate) fn golden(hostile: &str) -> Golden {
        let gate = |name: &str, kind| GateTally {
            name: name.into(),
            kind,
            declared: "policies/p/policy.yaml:7".into(),
            ..GateTally::default()
        };
        let gates =
            vec![gate("grounded", "provenance"), gate("adds-up", "math"), gate(hostile, "rule"), gate("late", "text")];
        let mut tally = Tally { gates, ..Tally::default() };
        let add = |tally: &mut Tally, outcome, class, cause: Option<Cause>, own: &[Arc<str>], health: &str| {
            let seen = health.chars().zip(&tally.gates).map(|(c, gate)| GateSeen {
                policy: hostile.into(),
                gate: Arc::clone(&gate.name),
                health: match c {
                    'p' => GateHealth::Passed,
                    'f' => GateHealth::Fired,
                    'n' => GateHealth::NotChecked,
                    _ => GateHealth::Idle,
                },
            });
            let gates: Vec<GateSeen> = seen.collect();
            tally.add(Counted { outcome, class, as_expected: cause.is_none(), cause, own, gates: &gates });
        };
        for _ in 0..30 {
            add(&mut tally, Ended::Accepted, "accepted", None, &[], "pfpi");
        }
        for _ in 0..7 {
            add(&mut tally, Ended::Rejected, "contract_rejected", None, &[], "pfni");
        }
        add(&mut tally, Ended::Rejected, "schema_violation", None, &["schema".into()], "");
        add(&mut tally, Ended::Clarified, "clarified", Some(Cause::Document), &[], "fppi");
        add(&mut tally, Ended::Rejected, "contract_rejected", Some(Cause::Model), &[], "ppfi");
        let one = |line, cause| Unexpected {
            line,
            name: hostile.to_owned(),
            expected: Expected { outcome: Ended::Accepted, gate: Some(hostile.into()), code: None },
            cause: Some(cause),
            judged: rejected(hostile),
            shown: Some((format!("{{ {hostile} }}"), vec![hostile.into(), hostile.into()])),
        };
        Golden { policy: hostile.to_owned(), tally, unexpected: vec![one(39, Cause::Document), one(40, Cause::Model)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_told_to_people() {
        insta::assert_snapshot!(testing::golden("no\u{1b}-allergen").text(false));
    }

    #[test]
    fn the_figures_are_told_to_programs() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&testing::golden("no-allergen")).unwrap());
    }

    #[test]
    fn a_sum_of_parts_is_the_whole() {
        let whole = testing::golden("x").tally;
        let mut sum = Tally {
            gates: whole
                .gates
                .iter()
                .map(|gate| GateTally {
                    name: gate.name.clone(),
                    kind: gate.kind,
                    declared: gate.declared.clone(),
                    ..GateTally::default()
                })
                .collect(),
            ..Tally::default()
        };
        sum.extend(&whole);
        sum.extend(&whole);
        assert_eq!((sum.records, sum.as_expected, sum.not_accepted()), (80, 76, 20));
        assert_eq!(sum.by_class["contract_rejected"], 16);
        assert_eq!((sum.gates[1].ran, sum.gates[1].fired), (2 * whole.gates[1].ran, 2 * whole.gates[1].fired));
        assert_eq!(sum.own["schema"], 2);
        assert_eq!(sum.by_cause, [2, 2, 0]);
    }

    #[test]
    fn only_all_of_them_are_a_hundred_percent() {
        let told = [percent(1, 1), percent(999_999, 1_000_000), percent(1, 3), percent(0, 0), percent(0, 5)];
        assert_eq!(told, ["100.0 %", "99.9 %", "33.3 %", "none", "0.0 %"]);
    }

    #[test]
    fn what_a_gate_s_figures_hint_at() {
        let hint = |ran, fired| GateTally { ran, fired, ..GateTally::default() }.hint();
        let told = [hint(0, 0), hint(5, 0), hint(5, 5), hint(10, 5), hint(10, 4)];
        assert_eq!(told, ["never ran", "never fired", "", "fires on a large share", ""]);
    }
}
