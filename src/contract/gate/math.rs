//! The math gate: sums, products, counts and comparisons of the answer's numbers, in exact decimals.

use std::borrow::Cow;
use std::cmp::Ordering;

use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use schemars::json_schema;
use serde::Deserialize;
use serde_json::Value;

use crate::contract::PolicyContract;
use crate::contract::gate::At;
use crate::contract::gate::Build;
use crate::contract::gate::BuildError;
use crate::contract::gate::Findings;
use crate::contract::gate::Gate;
use crate::contract::gate::Kind;
use crate::contract::gate::Presence;
use crate::contract::gate::written;
use crate::contract::gate::written::Paths;
use crate::contract::gate::written::quoted;
use crate::contract::scene::Node;
use crate::contract::scene::Scene;
use crate::contract::scene::kind_of;
use crate::json::decimal::Decimal;
use crate::json::decimal::DecimalError;
use crate::json::path::Segment;
use crate::json::query::Query;
use crate::json::tape::What;

/// The kind as policies name it.
pub const KIND: Kind = Kind { name: "math", schema: |generator| generator.subschema_for::<Settings>(), build };

/// Arithmetic on the numbers of the answer: exactly one of `sum`, `product`, `difference`, `count` (each with `equals`),
/// `compare` and `range`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Settings {
    /// The sum of all values at these paths is that of `equals`.
    sum: Option<Paths>,
    /// The product of two values is that of `equals`; in step where paths select many.
    product: Option<Paths>,
    /// The first value less the second is that of `equals`; in step where paths select many.
    difference: Option<Paths>,
    /// How many values there are at this path is the value of `equals`.
    count: Option<Paths>,
    /// What the result has to be.
    equals: Option<Paths>,
    /// A path, one of `<`, `<=`, `==`, `!=`, `>=`, `>`, and a path or a number; in step where paths select many.
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    compare: Option<Vec<Value>>,
    /// The values at a path lie between two numbers, both included.
    range: Option<RangeFile>,
    /// By how much a result may differ: a number (0 where nothing is said), or `printed`: half a unit in the last printed
    /// place, for each addend and for the result.
    tolerance: Option<Figure>,
    /// The places of printed numbers, where no quote that was verified tells them.
    places: Option<u8>,
}

/// Values between two numbers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RangeFile {
    /// The values.
    path: Paths,
    /// The least of them.
    min: Option<Figure>,
    /// The greatest.
    max: Option<Figure>,
}

/// A number, as such or in quotation marks.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Figure(Value);

impl JsonSchema for Figure {
    fn schema_name() -> Cow<'static, str> {
        "Figure".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["number", "string"], "description": "A number, as such or in quotation marks: `\"0.01\"`."})
    }
}

impl Figure {
    fn read(&self, member: &str) -> Result<Decimal, BuildError> {
        number(&self.0).ok_or_else(|| BuildError::at(member, format!("expected a number, found {}", self.0)))
    }
}

/// The number that a value is, or writes.
fn number(value: &Value) -> Option<Decimal> {
    match value {
        Value::Number(number) => Decimal::read(number.as_str()).ok(),
        Value::String(text) => Decimal::read(text).ok(),
        _ => None,
    }
}

/// The gate.
#[derive(Debug)]
struct Math {
    check: Check,
    presence: Presence,
    tolerance: Tolerance,
}

#[derive(Debug)]
enum Check {
    Sum { addends: Vec<Query>, equals: Query },
    Product { factors: [Query; 2], equals: Query },
    Difference { of: [Query; 2], equals: Query },
    Count { of: Query, equals: Query },
    Compare { left: Query, by: Comparison, right: Operand },
    Range { path: Query, min: Option<Decimal>, max: Option<Decimal> },
}

#[derive(Debug)]
enum Operand {
    Path(Query),
    Number(Decimal),
}

#[derive(Debug)]
enum Tolerance {
    By(Decimal),
    Printed { places: Option<i32> },
}

#[derive(Clone, Copy, Debug)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    Unequal,
    AtLeast,
    Greater,
}

impl Comparison {
    const ALL: [(&'static str, Self); 6] = [
        ("<", Self::Less),
        ("<=", Self::AtMost),
        ("==", Self::Equal),
        ("!=", Self::Unequal),
        (">=", Self::AtLeast),
        (">", Self::Greater),
    ];

    fn sign(self) -> &'static str {
        let index = self as usize;
        Self::ALL.get(index).map_or("", |(sign, _)| sign)
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::AtMost => ordering.is_le(),
            Self::Equal => ordering.is_eq(),
            Self::Unequal => ordering.is_ne(),
            Self::AtLeast => ordering.is_ge(),
            Self::Greater => ordering.is_gt(),
        }
    }
}

fn build(value: &Value, build: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let settings: Settings = written::settings(value)?;
    gate(&settings, build).map(|gate| Box::new(gate) as Box<dyn Gate>).map_err(|error| vec![error])
}

fn gate(settings: &Settings, build: &Build<'_>) -> Result<Math, BuildError> {
    let named = [
        ("sum", settings.sum.is_some()),
        ("product", settings.product.is_some()),
        ("difference", settings.difference.is_some()),
        ("count", settings.count.is_some()),
        ("compare", settings.compare.is_some()),
        ("range", settings.range.is_some()),
    ];
    let mut named = named.into_iter().filter(|(_, set)| *set).map(|(name, _)| name);
    let (name, other) = (named.next(), named.next());
    let all = "`sum`, `product`, `difference`, `count`, `compare` and `range`";
    let name =
        name.ok_or_else(|| BuildError { at: Vec::new(), message: format!("expected one of {all}, found none") })?;
    if let Some(other) = other {
        return Err(BuildError::at(other, format!("expected one of {all}, found `{name}` and `{other}`")));
    }
    let check = check(settings, name)?;
    let tolerance = match &settings.tolerance {
        Some(Figure(Value::String(word))) if word == "printed" => {
            Tolerance::Printed { places: settings.places.map(i32::from) }
        }
        Some(figure) => Tolerance::By(figure.read("tolerance")?),
        None => Tolerance::By(Decimal::ZERO),
    };
    let calculated = matches!(check, Check::Sum { .. } | Check::Product { .. } | Check::Difference { .. });
    let refused = match &tolerance {
        _ if settings.tolerance.is_some() && !calculated => Some(("tolerance", format!("`{name}` has no tolerance"))),
        Tolerance::By(by) if by.is_negative() => Some(("tolerance", format!("expected 0 or more, found {by}"))),
        Tolerance::By(_) if settings.places.is_some() => {
            Some(("places", "`places` is for `tolerance: printed`".to_owned()))
        }
        _ => None,
    };
    match refused {
        Some((member, message)) => Err(BuildError::at(member, message)),
        None => Ok(Math { check, presence: build.presence, tolerance }),
    }
}

fn check(settings: &Settings, name: &str) -> Result<Check, BuildError> {
    let read = |paths: &Option<Paths>, member: &str| paths.as_ref().map_or(Ok(Vec::new()), |paths| paths.read(member));
    let one = |paths: Vec<Query>, member: &str| {
        let count = paths.len();
        let mut paths = paths.into_iter();
        match (paths.next(), count) {
            (Some(path), 1) => Ok(path),
            _ => Err(BuildError::at(member, format!("expected one path, found {count}"))),
        }
    };
    let two = |paths: Vec<Query>, member: &str| {
        let message = format!("expected two paths, found {}", paths.len());
        <[Query; 2]>::try_from(paths).map_err(|_| BuildError::at(member, message))
    };
    let equals = match (&settings.equals, name) {
        (None, "compare" | "range") => None,
        (Some(_), "compare" | "range") => return Err(BuildError::at("equals", format!("`{name}` has no `equals`"))),
        (None, _) => return Err(BuildError::at(name, format!("`{name}` needs `equals`"))),
        (Some(paths), _) => Some(one(paths.read("equals")?, "equals")?),
    };
    let single = |equals: Query| match equals.selects_many() {
        true => Err(BuildError::at("equals", format!("`{name}` has one result, and `{equals}` may select many"))),
        false => Ok(equals),
    };
    match (name, equals) {
        ("sum", Some(equals)) => Ok(Check::Sum { addends: read(&settings.sum, name)?, equals: single(equals)? }),
        ("product", Some(equals)) => Ok(Check::Product { factors: two(read(&settings.product, name)?, name)?, equals }),
        ("difference", Some(equals)) => {
            Ok(Check::Difference { of: two(read(&settings.difference, name)?, name)?, equals })
        }
        ("count", Some(equals)) => {
            Ok(Check::Count { of: one(read(&settings.count, name)?, name)?, equals: single(equals)? })
        }
        ("compare", _) => comparison(settings.compare.as_deref().unwrap_or_default()),
        _ => {
            let Some(file) = &settings.range else { return Err(BuildError::at("range", "expected a range")) };
            let bound = |figure: &Option<Figure>| figure.as_ref().map(|figure| figure.read("range")).transpose();
            let (min, max) = (bound(&file.min)?, bound(&file.max)?);
            if min.is_none() && max.is_none() {
                return Err(BuildError::at("range", "expected `min`, `max` or both, found neither"));
            }
            if let (Some(min), Some(max)) = (&min, &max)
                && min > max
            {
                return Err(BuildError::at("range", format!("`min` is {min}, which is above `max`, {max}")));
            }
            Ok(Check::Range { path: one(file.path.read("range")?, "range")?, min, max })
        }
    }
}

fn comparison(written: &[Value]) -> Result<Check, BuildError> {
    let member = "compare";
    let [left, sign, right] = written else {
        let message = format!("expected a path, a sign, and a path or number, found {} members", written.len());
        return Err(BuildError::at(member, message));
    };
    let by = Comparison::ALL.into_iter().find(|(name, _)| sign.as_str() == Some(name)).map(|(_, by)| by);
    let known = Comparison::ALL.map(|(name, _)| format!("`{name}`")).join(", ");
    let by = by.ok_or_else(|| BuildError::at(member, format!("expected one of {known}, found {sign}")))?;
    let right = match number(right) {
        Some(number) => Operand::Number(number),
        None => Operand::Path(written::path(right, member)?),
    };
    Ok(Check::Compare { left: written::path(left, member)?, by, right })
}

/// A number of the answer.
struct Term<'a> {
    node: Node<'a>,
    value: Decimal,
}

impl Gate for Math {
    fn check(&self, scene: &Scene<'_>, found: &mut Findings<'_>) {
        // None: what was wanting is reported, or is not checked, and half a calculation would only mislead.
        let _ = self.calculate(scene, found);
    }

    fn paths(&self) -> Vec<&Query> {
        match &self.check {
            Check::Sum { addends, equals } => addends.iter().chain([equals]).collect(),
            Check::Product { factors: of, equals } | Check::Difference { of, equals } => {
                of.iter().chain([equals]).collect()
            }
            Check::Count { of, equals } => vec![of, equals],
            Check::Compare { left, right: Operand::Path(right), .. } => vec![left, right],
            Check::Compare { left: path, .. } | Check::Range { path, .. } => vec![path],
        }
    }

    fn check_beside(&self, contract: &PolicyContract) -> Result<(), BuildError> {
        let Tolerance::Printed { places: None } = self.tolerance else { return Ok(()) };
        let told = |query: &Query| contract.gates.iter().any(|entry| entry.gate.reads_numbers_of(query));
        let rounded: Vec<&Query> = match &self.check {
            Check::Product { equals, .. } => vec![equals], // the factors are exact
            _ => self.paths(),
        };
        match rounded.into_iter().find(|query| !told(query)) {
            None => Ok(()),
            Some(query) => Err(BuildError::at(
                "tolerance",
                format!("`printed` needs `places`, or a provenance gate with `numbers_match_quotes` for `{query}`"),
            )),
        }
    }
}

impl Math {
    fn calculate(&self, scene: &Scene<'_>, found: &mut Findings<'_>) -> Option<()> {
        match &self.check {
            Check::Sum { addends, equals } => {
                let mut all = Vec::new();
                for path in addends {
                    all.push((path, self.terms(found, path)?));
                }
                let result = self.result(found, equals)?;
                let calculated = self.sum(scene, &all, (equals, &result));
                let names = addends.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(" and ");
                self.compare_result(found, &result, calculated, || format!("the sum of {names}"), equals);
            }
            Check::Product { factors: of, equals } | Check::Difference { of, equals } => {
                let [first, second] = of;
                let lists = [
                    (first, self.terms(found, first)?),
                    (second, self.terms(found, second)?),
                    (equals, self.terms(found, equals)?),
                ];
                let product = matches!(self.check, Check::Product { .. });
                for step in 0..self.steps(found, &lists)? {
                    let [Some(a), Some(b), Some(result)] = lists.each_ref().map(|(_, terms)| at_step(terms, step))
                    else {
                        break;
                    };
                    let calculated = if product {
                        a.value.mul(&b.value).and_then(|value| Ok((value, self.allowed(scene, equals, result)?)))
                    } else {
                        a.value.sub(&b.value).and_then(|value| {
                            let allowed = self.allowed(scene, first, a)?.add(&self.allowed(scene, second, b)?)?;
                            Ok((value, allowed.add(&self.allowed(scene, equals, result)?)?))
                        })
                    };
                    let what = if product { "product" } else { "difference" };
                    self.compare_result(
                        found,
                        result,
                        calculated,
                        || format!("the {what} of `{first}` and `{second}`"),
                        equals,
                    );
                }
            }
            Check::Count { of, equals } => {
                let before = (found.total, found.skipped.len());
                let count = found.nodes(of, self.presence).len();
                let same = before == (found.total, found.skipped.len());
                let result = self.result(found, equals).filter(|_| same)?;
                let count = Decimal::from(u64::try_from(count).unwrap_or(u64::MAX));
                self.compare_result(
                    found,
                    &result,
                    Ok((count, Decimal::ZERO)),
                    || format!("the count of `{of}`"),
                    equals,
                );
            }
            Check::Compare { left, by, right } => self.compare(found, left, *by, right)?,
            Check::Range { path, min, max } => {
                for term in self.terms(found, path)? {
                    let (low, high) =
                        (min.as_ref().filter(|min| term.value < **min), max.as_ref().filter(|max| term.value > **max));
                    if let Some(bound) = low.or(high) {
                        let word = if low.is_some() { "least" } else { "most" };
                        found.say(At::Place(term.node.place), || {
                            format!("expected at {word} {bound}, found {}", term.value)
                        });
                    }
                }
            }
        }
        Some(())
    }

    /// The sum, and by how much it may differ.
    fn sum(
        &self,
        scene: &Scene<'_>,
        addends: &[(&Query, Vec<Term<'_>>)],
        result: (&Query, &Term<'_>),
    ) -> Result<(Decimal, Decimal), DecimalError> {
        let (mut sum, mut allowed) = (Decimal::ZERO, self.allowed(scene, result.0, result.1)?);
        for (path, terms) in addends {
            for term in terms {
                sum = sum.add(&term.value)?;
                if let Tolerance::Printed { .. } = self.tolerance {
                    allowed = allowed.add(&self.allowed(scene, path, term)?)?;
                }
            }
        }
        Ok((sum, allowed))
    }

    fn compare(&self, found: &mut Findings<'_>, left: &Query, by: Comparison, right: &Operand) -> Option<()> {
        let terms = self.terms(found, left)?;
        match right {
            Operand::Number(number) => {
                for term in terms.iter().filter(|term| !by.holds(term.value.cmp(number))) {
                    let message = || format!("expected a number {} {number}, found {}", by.sign(), term.value);
                    found.say(At::Place(term.node.place), message);
                }
            }
            Operand::Path(right) => {
                let lists = [(left, terms), (right, self.terms(found, right)?)];
                for step in 0..self.steps(found, &lists)? {
                    let [Some(a), Some(b)] = lists.each_ref().map(|(_, terms)| at_step(terms, step)) else { break };
                    if !by.holds(a.value.cmp(&b.value)) {
                        let message = || {
                            format!(
                                "expected a number {} `{right}`, which is {}, found {}",
                                by.sign(),
                                b.value,
                                a.value
                            )
                        };
                        found.say(At::Place(a.node.place), message);
                    }
                }
            }
        }
        Some(())
    }

    /// Reports a result that is not the one calculated.
    fn compare_result(
        &self,
        found: &mut Findings<'_>,
        result: &Term<'_>,
        calculated: Result<(Decimal, Decimal), DecimalError>,
        what: impl Fn() -> String,
        equals: &Query,
    ) {
        let place = At::Place(result.node.place);
        let (value, allowed) = match calculated {
            Ok(calculated) => calculated,
            Err(error) => return found.say(place, || format!("{} cannot be calculated: {error}", what())),
        };
        let close = value.sub(&result.value).is_ok_and(|difference| difference.abs() <= allowed);
        if !close {
            let tolerance = if allowed.is_zero() { String::new() } else { format!(" (tolerance {allowed})") };
            found.say(place, || format!("{} is {value}, but `{equals}` is {}{tolerance}", what(), result.value));
        }
    }

    /// By how much this number may differ from what it was before it was rounded for print. Never told by the answer's
    /// own digits: by the quote that provenance verified, or by the policy.
    fn allowed(&self, scene: &Scene<'_>, query: &Query, term: &Term<'_>) -> Result<Decimal, DecimalError> {
        let places = match &self.tolerance {
            Tolerance::By(by) => return Ok(by.clone()),
            Tolerance::Printed { places } => {
                let gates = scene.contract.gates.iter().map(|entry| &entry.gate);
                let mut reading = gates.filter(|gate| gate.reads_numbers_of(query));
                let printed = reading.find_map(|gate| gate.printed_at(scene, term.node));
                printed.map(|printed| printed.places).or(*places)
            }
        };
        // A quote that does not stand is a violation of its own, and no reason for a tolerance.
        places.map_or(Ok(Decimal::ZERO), Decimal::half_unit)
    }

    /// The numbers at a path; none where one is wanting, which is reported, or not checked.
    fn terms<'s: 'a, 'a>(&self, found: &mut Findings<'s>, path: &Query) -> Option<Vec<Term<'a>>> {
        self.terms_of(found, path, self.presence)
    }

    /// The one number at a path that selects one; none also where it may be absent and is.
    fn result<'s: 'a, 'a>(&self, found: &mut Findings<'s>, path: &Query) -> Option<Term<'a>> {
        self.terms_of(found, path, Presence { at_least: 0, ..self.presence })?.into_iter().next()
    }

    fn terms_of<'s: 'a, 'a>(
        &self,
        found: &mut Findings<'s>,
        path: &Query,
        presence: Presence,
    ) -> Option<Vec<Term<'a>>> {
        let before = (found.total, found.skipped.len());
        let mut terms = Vec::new();
        for node in found.nodes(path, presence) {
            let raw = node.value.raw();
            match (node.value.what(), Decimal::read(raw)) {
                (What::Number, Ok(value)) => terms.push(Term { node, value }),
                (What::Number, Err(error)) => found.say(At::Place(node.place), || format!("{}: {error}", quoted(raw))),
                (What::String, _) => {
                    let text = node.value.text();
                    found.say(At::Place(node.place), || format!("expected a number, found the text {}", quoted(&text)));
                }
                (_, _) => {
                    found.say(At::Place(node.place), || format!("expected a number, found {}", kind_of(node.value)))
                }
            }
        }
        (before == (found.total, found.skipped.len())).then_some(terms)
    }

    /// How many steps the lists have, where they go in step: those of paths that select one value stand for every step.
    fn steps(&self, found: &mut Findings<'_>, lists: &[(&Query, Vec<Term<'_>>)]) -> Option<usize> {
        if lists.iter().any(|(path, terms)| !path.selects_many() && terms.is_empty()) {
            return None; // it may be absent, and is
        }
        let mut many = lists.iter().filter(|(path, _)| path.selects_many());
        let Some((path, terms)) = many.next() else { return Some(1) };
        for (other, others) in many {
            if others.len() != terms.len() {
                let (a, b) = (terms.len(), others.len());
                found.say(At::Answer, || {
                    format!("expected as many values at `{path}` as at `{other}`, found {a} and {b}")
                });
                return None;
            }
            let absent = self.presence.optional || self.presence.nullable;
            // Where values may be absent, the same number of them does not put them in step.
            if absent && let Some((a, _)) = terms.iter().zip(others).find(|(a, b)| holder(a) != holder(b)) {
                let message =
                    || format!("`{path}` and `{other}` are not in step: one has a value here and the other none");
                found.say(At::Place(a.node.place), message);
                return None;
            }
        }
        Some(terms.len())
    }
}

/// The term of a step; a list of one stands for every step.
fn at_step<'t, 'a>(terms: &'t [Term<'a>], step: usize) -> Option<&'t Term<'a>> {
    terms.get(step).or_else(|| terms.first().filter(|_| terms.len() == 1))
}

/// The last element of an array that a value lies in.
fn holder(term: &Term<'_>) -> Vec<Segment> {
    let path = term.node.place.path();
    let end = path.segments().iter().rposition(|segment| matches!(segment, Segment::Index(_))).map_or(0, |at| at + 1);
    path.segments().get(..end).unwrap_or_default().to_vec()
}

#[cfg(test)]
#[path = "math/tests.rs"]
mod tests;
