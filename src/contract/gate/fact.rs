//! The `fact` gate: what the messages state is in the answer, and what is in the answer is stated.

use std::borrow::Cow;
use std::collections::HashSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::contract::fact::FACTS_MAX;
use crate::contract::fact::Fact;
use crate::contract::gate::At;
use crate::contract::gate::Build;
use crate::contract::gate::BuildError;
use crate::contract::gate::Finding;
use crate::contract::gate::Findings;
use crate::contract::gate::Gate;
use crate::contract::gate::Kind;
use crate::contract::gate::Presence;
use crate::contract::gate::written;
use crate::contract::gate::written::quoted;
use crate::contract::scene::Node;
use crate::contract::scene::Scene;
use crate::contract::scene::kind_of;
use crate::contract::scene::said;
use crate::contract::verdict::SourceAt;
use crate::json::query::Query;
use crate::json::tape::Place;
use crate::json::tape::What;

/// The kind.
pub const KIND: Kind = Kind { name: "fact", schema: |generator| Settings::json_schema(generator), build };
/// Terms that a message lists.
const LISTED: usize = 10;

/// Compares an array, or one value, with a fact of the policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The path of an array. Exactly one of `includes`, `equals` and `within` goes with it.
    array: Option<String>,
    /// Every term of this fact is in the array.
    includes: Option<String>,
    /// The array holds the terms of this fact and nothing else.
    equals: Option<String>,
    /// The array holds nothing but terms of this fact.
    within: Option<String>,
    /// The path of one value. `in` goes with it.
    value: Option<String>,
    /// The value is a term of this fact.
    #[serde(rename = "in")]
    one_of: Option<String>,
    /// Values that need not be stated, such as `unknown`; for `equals`, `within` and `in`.
    #[serde(default)]
    besides: Vec<String>,
}

#[derive(Debug)]
struct FactGate {
    path: Query,
    fact: String,
    demand: Demand,
    besides: Vec<String>,
    presence: Presence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Demand {
    Includes,
    Equals,
    Within,
    In,
}

fn build(settings: &Value, build: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let Settings { array, includes, equals, within, value, one_of, besides } = written::settings(settings)?;
    let wrong = |message: &str| vec![BuildError { at: Vec::new(), message: message.to_owned() }];
    let (member, path, demands) = match (&array, &value) {
        (Some(path), None) if one_of.is_none() => {
            let demands = [
                ("includes", includes, Demand::Includes),
                ("equals", equals, Demand::Equals),
                ("within", within, Demand::Within),
            ];
            ("array", path, demands.to_vec())
        }
        (None, Some(path)) if includes.is_none() && equals.is_none() && within.is_none() => {
            ("value", path, vec![("in", one_of, Demand::In)])
        }
        _ => return Err(wrong("expected `array` with `includes`, `equals` or `within`, or `value` with `in`")),
    };
    let mut given = demands.into_iter().filter_map(|(member, fact, demand)| Some((member, fact?, demand)));
    let (Some((named, fact, demand)), None) = (given.next(), given.next()) else {
        return Err(wrong(
            "expected exactly one of `includes`, `equals` and `within` beside `array`, and `in` beside `value`",
        ));
    };
    if !build.contract.facts.iter().any(|rule| **rule.name() == *fact) {
        let known: Vec<&str> = build.contract.facts.iter().map(|rule| &**rule.name()).collect();
        let message = format!("the policy has no fact {}; it has `{}`", quoted(&fact), known.join("`, `"));
        return Err(vec![BuildError::at(named, message)]);
    }
    if demand == Demand::Includes && !besides.is_empty() {
        return Err(vec![BuildError::at("besides", "`includes` has no use for it: it allows every other value")]);
    }
    let path = written::path(&Value::String(path.clone()), member).map_err(|error| vec![error])?;
    Ok(Box::new(FactGate { path, fact, demand, besides, presence: build.presence }))
}

impl Gate for FactGate {
    fn check(&self, scene: &Scene<'_>, found: &mut Findings<'_>) {
        let facts = scene.ground.facts.of(&self.fact);
        for node in found.nodes(&self.path, self.presence) {
            let place = node.place;
            if facts.len() > FACTS_MAX {
                found.say(At::Place(place), || {
                    format!("not checked: the messages state more than {FACTS_MAX} of `{}`", self.fact)
                });
                continue;
            }
            match (self.demand, node.value.what()) {
                (Demand::In, _) => self.value(node, facts, found),
                (_, What::Array) => self.array(scene, node, facts, found),
                _ => found.say(At::Place(place), || format!("expected an array, found {}", kind_of(node.value))),
            }
        }
    }

    fn adds(&self) -> &'static [&'static str] {
        &["missing", "surplus"]
    }

    fn paths(&self) -> Vec<&Query> {
        vec![&self.path]
    }

    fn is_tied_to_source(&self) -> bool {
        true
    }

    fn reads_facts(&self) -> bool {
        true
    }
}

impl FactGate {
    fn value(&self, node: Node<'_>, facts: &[Fact], found: &mut Findings<'_>) {
        let text = (node.value.what() == What::String).then(|| node.value.text());
        if text.as_ref().is_some_and(|text| self.is_beside(text) || facts.iter().any(|fact| *fact.term == **text)) {
            return;
        }
        found.report(At::Place(node.place), |at| {
            let surplus = said(node.value).map(Cow::into_owned);
            let told = match &surplus {
                Some(text) => quoted(text),
                None => format!("an {}", kind_of(node.value)),
            };
            let mut finding =
                Finding::new(at, format!("expected what the messages state{}, found {told}", stated(facts)));
            finding.with = with(&[], surplus.as_slice());
            finding
        });
    }

    fn array(&self, scene: &Scene<'_>, node: Node<'_>, facts: &[Fact], found: &mut Findings<'_>) {
        let value = |place: Place<'_>| {
            scene.contract.evidence.as_ref().map_or(place.what(), |evidence| evidence.node(place).value.what())
        };
        let text = |place| -> Option<Cow<'_, str>> {
            let inner = scene.contract.evidence.as_ref().map_or(place, |evidence| evidence.node(place).value);
            (inner.what() == What::String).then(|| inner.text())
        };
        let elements: Vec<(Place<'_>, Option<Cow<'_, str>>)> =
            node.value.elements().map(|element| (element, text(element))).collect();
        if matches!(self.demand, Demand::Includes | Demand::Equals) {
            let has: HashSet<&str> = elements.iter().filter_map(|(_, text)| text.as_deref()).collect();
            let missing: Vec<&Fact> = facts.iter().filter(|fact| !has.contains(&*fact.term)).collect();
            if let Some(first) = missing.first() {
                found.report(At::Place(node.place), |at| {
                    let terms: Vec<String> = missing.iter().map(|fact| fact.term.to_string()).collect();
                    let message = format!("expected what the messages state; missing: {}", listed(&terms));
                    let mut finding = Finding::new(at, message);
                    finding.with = with(&terms, &[]);
                    finding.source_at = Some(SourceAt { page: first.page, range: first.range.clone() });
                    finding
                });
            }
        }
        if matches!(self.demand, Demand::Within | Demand::Equals) {
            let stands: HashSet<&str> = facts.iter().map(|fact| &*fact.term).collect();
            for (place, text) in &elements {
                let Some(text) = text else {
                    found.say(At::Place(*place), || format!("expected a text, found {}", named(value(*place))));
                    continue;
                };
                if !stands.contains(&**text) && !self.is_beside(text) {
                    found.report(At::Place(*place), |at| {
                        let message = format!("the messages do not state {}{}", quoted(text), stated(facts));
                        let mut finding = Finding::new(at, message);
                        finding.with = with(&[], &[text.to_string()]);
                        finding
                    });
                }
            }
        }
    }

    fn is_beside(&self, text: &str) -> bool {
        self.besides.iter().any(|one| one == text)
    }
}

fn named(what: What) -> &'static str {
    match what {
        What::Null => "null",
        What::True | What::False => "a boolean",
        What::Number => "a number",
        What::String => "a text",
        What::Array => "an array",
        What::Object => "an object",
    }
}

fn with(missing: &[String], surplus: &[String]) -> Vec<(&'static str, Value)> {
    vec![("missing", missing.into()), ("surplus", surplus.into())]
}

fn stated(facts: &[Fact]) -> String {
    match facts {
        [] => " (nothing of it)".to_owned(),
        facts => {
            let terms: Vec<String> = facts.iter().take(LISTED + 1).map(|fact| fact.term.to_string()).collect();
            format!(" ({})", listed(&terms))
        }
    }
}

fn listed(terms: &[String]) -> String {
    let mut text = terms.iter().take(LISTED).map(|term| quoted(term)).collect::<Vec<_>>().join(", ");
    if terms.len() > LISTED {
        text.push_str(", …");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::gate::trial::Trial;
    use crate::contract::gate::trial::table;
    use serde_json::json;

    const ALLERGENS: &str = r#"{"terms": {"egg": "eggs?", "milk": ["milk", "dairy"], "überall": "überall"}}"#;

    fn stating(text: &'static str) -> impl Fn() -> Trial {
        move || Trial::default().with_fact("allergens", ALLERGENS, text)
    }

    #[test]
    fn an_array_includes_equals_or_lies_within_what_is_stated() {
        let (includes, equals, within) = (
            r#"{"array": "$.a", "includes": "allergens"}"#,
            r#"{"array": "$.a", "equals": "allergens"}"#,
            r#"{"array": "$.a", "within": "allergens"}"#,
        );
        table(
            stating("Eggs and dairy"),
            &KIND,
            &[
                (includes, r#"{"a":["milk","egg"]}"#, ""),
                (includes, r#"{"a":["milk","egg","soy",3]}"#, ""),
                (includes, r#"{"a":["milk"]}"#, "$['a']: expected what the messages state; missing: `egg`"),
                (includes, r#"{"a":[]}"#, "missing: `egg`, `milk`"),
                (includes, r#"{"a":["Egg","milk"]}"#, "missing: `egg`"),
                (includes, r#"{"a":["\u0065gg","milk"]}"#, ""),
                (includes, r#"{"a":[["egg"],"milk"]}"#, "missing: `egg`"),
                (includes, r#"{"a":null}"#, "expected a value, found null"),
                (includes, r#"{}"#, "it is missing"),
                (includes, r#"{"a":"egg milk"}"#, "expected an array, found string"),
                (includes, r#"{"a":{"egg":1}}"#, "expected an array, found object"),
                (includes, r#"[]"#, "expected an object, found array"),
                (equals, r#"{"a":["egg","milk"]}"#, ""),
                (equals, r#"{"a":["egg","milk","egg"]}"#, ""),
                (equals, r#"{"a":["egg"]}"#, "missing: `milk`"),
                (equals, r#"{"a":["egg","milk","soy"]}"#, "$['a'][2]: the messages do not state `soy` (`egg`, `milk`)"),
                (within, r#"{"a":["egg"]}"#, ""),
                (within, r#"{"a":[]}"#, ""),
                (within, r#"{"a":["egg",1]}"#, "$['a'][1]: expected a text, found a number"),
                (within, r#"{"a":["egg",null]}"#, "found null"),
                (within, r#"{"a":["nut"]}"#, "do not state `nut`"),
                (r#"{"array": "$.a", "within": "allergens", "besides": ["nut"]}"#, r#"{"a":["nut","egg"]}"#, ""),
                (
                    r#"{"array": "$.o[*].a", "includes": "allergens"}"#,
                    r#"{"o":[{"a":["egg","milk"]},{"a":["egg"]}]}"#,
                    "$['o'][1]['a']",
                ),
            ],
        );
        table(
            stating("nothing"),
            &KIND,
            &[(equals, r#"{"a":[]}"#, ""), (within, r#"{"a":["egg"]}"#, "(nothing of it)")],
        );
        table(stating("\u{dc}BERALL"), &KIND, &[(equals, r#"{"a":["überall"]}"#, "")]);
    }

    #[test]
    fn a_value_is_stated() {
        let one = r#"{"value": "$.v", "in": "allergens"}"#;
        table(
            stating("Eggs and dairy"),
            &KIND,
            &[
                (one, r#"{"v":"egg"}"#, ""),
                (one, r#"{"v":"soy"}"#, "$['v']: expected what the messages state (`egg`, `milk`), found `soy`"),
                (one, r#"{"v":""}"#, "found ``"),
                (one, r#"{"v":1}"#, "found `1`"),
                (one, r#"{"v":["egg"]}"#, "found an array"),
                (one, r#"{"v":null}"#, "found null"),
                (one, r#"{}"#, "missing"),
                (r#"{"value": "$.v", "in": "allergens", "besides": ["unknown"]}"#, r#"{"v":"unknown"}"#, ""),
                (r#"{"value": "$.v[*].x", "in": "allergens"}"#, r#"{"v":[{"x":"egg"},{"x":"no"}]}"#, "$['v'][1]['x']"),
            ],
        );
        assert!(stating("")().optional().judged(&KIND, one, r#"{"v":null}"#).is_empty());
        assert!(stating("")().optional().judged(&KIND, one, "{}").is_empty());
    }

    #[test]
    fn evidence_stands_for_its_value() {
        let evidence = || stating("eggs")().with_evidence();
        table(
            evidence,
            &KIND,
            &[
                (r#"{"value": "$.v", "in": "allergens"}"#, r#"{"v":{"value":"egg","quote":"eggs"}}"#, ""),
                (r#"{"array": "$.a", "equals": "allergens"}"#, r#"{"a":[{"value":"egg"}]}"#, ""),
            ],
        );
    }

    #[test]
    fn what_is_missing_and_where_it_is_stated_is_told() {
        let mut trial = stating("No. Two eggs.")();
        let found = trial.violations(&KIND, r#"{"array": "$.a", "includes": "allergens"}"#, r#"{"a":[]}"#);
        assert_eq!(found[0].source_at, Some(SourceAt { page: 1, range: 8..12 }));
        assert_eq!(with(&["egg".into()], &[])[0], ("missing", json!(["egg"])));
    }

    #[test]
    fn more_facts_than_are_kept_fail() {
        let text: String = (0..2_000).map(|n| format!("w{n} ")).collect();
        let mut trial = Trial::default().with_fact("words", r#"{"pattern": "w[0-9]+"}"#, &text);
        let told = trial.judged(&KIND, r#"{"array": "$.a", "includes": "words"}"#, r#"{"a":[]}"#);
        assert!(told[0].contains("not checked: the messages state more than 1000"), "{told:?}");
    }

    #[test]
    fn settings_are_checked() {
        let trial = stating("")();
        for (settings, expected) in [
            ("{}", "expected `array` with"),
            (r#"{"array": "$.a"}"#, "exactly one of"),
            (r#"{"array": "$.a", "includes": "allergens", "within": "allergens"}"#, "exactly one of"),
            (r#"{"array": "$.a", "in": "allergens"}"#, "expected `array` with"),
            (r#"{"value": "$.a", "includes": "allergens"}"#, "expected `array` with"),
            (r#"{"value": "$.a", "in": "allergen"}"#, "in: the policy has no fact `allergen`; it has `allergens`"),
            (r#"{"value": "a", "in": "allergens"}"#, "value: `a` is not a JSONPath"),
            (r#"{"array": "$.a", "includes": "allergens", "besides": ["x"]}"#, "besides: "),
            (r#"{"array": "$.a", "include": "allergens"}"#, "unknown field `include`"),
            ("3", "invalid type"),
        ] {
            let told = trial.refused(&KIND, settings);
            assert!(told.iter().any(|one| one.contains(expected)), "{settings}: {told:?}");
        }
    }
}
