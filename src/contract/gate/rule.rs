//! The rule gate: an expression of CEL that must be true of the answer, or of every node that a path reaches.

use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use schemars::json_schema;
use serde_json::Value;

use crate::contract::gate::At;
use crate::contract::gate::Build;
use crate::contract::gate::BuildError;
use crate::contract::gate::Finding;
use crate::contract::gate::Findings;
use crate::contract::gate::Gate;
use crate::contract::gate::Kind;
use crate::contract::gate::Presence;
use crate::contract::rule::Known;
use crate::contract::rule::Rule as Expression;
use crate::contract::rule::RuleValue;
use crate::contract::rule::Variable;
use crate::contract::scene::Scene;
use crate::json::fault::shown;
use crate::json::query::Query;

/// The kind as policies name it.
pub const KIND: Kind = Kind { name: "rule", schema: |generator| Settings::json_schema(generator), build };

/// The settings: the expression itself.
struct Settings;

impl JsonSchema for Settings {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Rule".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1,
            "description": "A CEL expression that must be `true`. It sees `output`, `this` (the node, where the gate has `each`), \
                `source` (pages), `facts`, `data`, `request` (`model`, `team`, which is null in this version, `user`, `time`) and `usage` (`input_tokens`, \
                `output_tokens`, `reasoning_tokens`). Numbers are exact, work is bounded; an error is a violation."})
    }
}

/// The gate.
#[derive(Debug)]
struct Rule {
    expression: Expression,
    /// The nodes that it runs on; none for the answer as a whole.
    each: Option<Query>,
    presence: Presence,
}

/// The names that rules of a policy may use.
pub fn known(contract: &crate::contract::PolicyContract) -> Known {
    let facts = contract.facts.iter().map(|fact| fact.name().to_string());
    let tables = contract.data.0.keys().map(ToString::to_string);
    Known::new(facts.collect::<Vec<_>>(), tables.collect::<Vec<_>>())
}

fn build(settings: &Value, build: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let wrong = |message: String| vec![BuildError { at: Vec::new(), message }];
    let source = settings.as_str().ok_or_else(|| wrong(format!("expected an expression, found {settings}")))?;
    let known = known(build.contract);
    let known = if build.each.is_some() { known.with_this() } else { known };
    let expression = Expression::compile(source, &known).map_err(|error| wrong(error.to_string()))?;
    Ok(Box::new(Rule { expression, each: build.each.clone(), presence: build.presence }))
}

impl Gate for Rule {
    fn reads_usage(&self) -> bool {
        self.expression.reads(Variable::Usage)
    }

    fn check(&self, scene: &Scene<'_>, found: &mut Findings<'_>) {
        let mut bindings = scene.bindings();
        match &self.each {
            Some(each) => {
                for place in found.places(each, self.presence) {
                    bindings.set(Variable::This, RuleValue::from_place(place));
                    self.run(&bindings, At::Place(place), found);
                }
            }
            None if found.is_blocked(scene.answer.root()) => {}
            None => self.run(&bindings, At::Answer, found),
        }
        scene.spent(&bindings);
    }

    fn adds(&self) -> &'static [&'static str] {
        &["rule"]
    }

    /// Only a rule that looks at nothing of the answer but its nodes can be said to judge these.
    fn paths(&self) -> Vec<&Query> {
        if self.expression.reads(Variable::Output) { Vec::new() } else { self.each.iter().collect() }
    }
}

impl Rule {
    fn run(&self, bindings: &crate::contract::rule::Bindings<'_>, at: At<'_>, found: &mut Findings<'_>) {
        let rule = || shown(&self.expression.source().split_whitespace().collect::<Vec<_>>().join(" "));
        let message = match self.expression.holds(bindings) {
            Ok(true) => return,
            Ok(false) => format!("the rule `{}` does not hold", rule()),
            Err(fault) => format!("the rule `{}` cannot be told: {fault}", rule()),
        };
        found.report(at, |at| Finding {
            with: vec![("rule", Value::from(self.expression.source()))],
            ..Finding::new(at, message)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::PolicyContract;
    use crate::contract::data::Data;
    use crate::contract::data::Table;
    use crate::contract::gate::GateEntry;
    use crate::contract::gate::testing;
    use crate::contract::scene::Evidence;
    use crate::contract::verdict::Action;

    #[test]
    fn the_format_says_what_a_rule_is() {
        let schema = (KIND.schema)(&mut SchemaGenerator::default());
        assert_eq!(schema.get("type").and_then(Value::as_str), Some("string"));
        assert!(schema.get("description").and_then(Value::as_str).is_some_and(|text| text.contains("CEL")));
    }

    fn contract() -> PolicyContract {
        let menu = br#"[{"sku":"PIZ","sizes":["S","M"],"price":9.50},{"sku":"CAF\u00c9","sizes":["S"],"price":2}]"#;
        let menu = Table::read("menu.json", menu, Some("sku")).unwrap();
        PolicyContract { data: Data([("menu".into(), menu)].into()), ..PolicyContract::default() }
    }

    fn add(contract: &mut PolicyContract, rule: &str, each: Option<&str>, presence: Presence, needs: Vec<usize>) {
        let each = each.map(|each| Query::read(each).unwrap());
        let gate = build(&Value::from(rule), &Build { contract, presence, each }).unwrap();
        let (name, declared) = (format!("rule-{}", contract.gates.len()).into(), "policy.yaml:1".into());
        let (when, say, action) = (None, None, Action::Reject);
        contract.gates.push(GateEntry { name, kind: "rule", declared, action, when, say, needs, gate });
    }

    fn found(rule: &str, each: Option<&str>, presence: Presence, answer: &str) -> Vec<String> {
        let mut contract = contract();
        add(&mut contract, rule, each, presence, Vec::new());
        testing::judged(&contract, &["the first page", "the second"], answer)
    }

    fn refused(rule: &str) -> String {
        let contract = contract();
        let built =
            build(&Value::from(rule), &Build { contract: &contract, presence: Presence::default(), each: None });
        built.unwrap_err().into_iter().map(|error| error.message).collect()
    }

    #[test]
    fn the_answer_as_a_whole() {
        let none = Presence::default();
        for (rule, answer, told) in [
            ("size(output.a) > 0", r#"{"a":[1]}"#, ""),
            ("size(output.a) > 0", r#"{"a":[]}"#, "$: the rule `size(output.a) > 0` does not hold"),
            ("size(output.a) > 0", r#"{"a":""}"#, "$: the rule `size(output.a) > 0` does not hold"),
            ("size(output.a) > 0", "{}", "$: the rule `size(output.a) > 0` cannot be told: no member `a`"),
            ("has(output.a) && output.a == null", r#"{"a":null}"#, ""),
            (
                "size(output.a) > 0",
                r#"{"a":null}"#,
                "$: the rule `size(output.a) > 0` cannot be told: `size` is for strings, arrays and objects, found null",
            ),
            (
                "output.a",
                r#"{"a":"true"}"#,
                "$: the rule `output.a` cannot be told: expected true or false, found a string",
            ),
            ("output.a\n  == 'é🚀'", r#"{"a":"e"}"#, "$: the rule `output.a == 'é🚀'` does not hold"),
            ("output.a == 'é🚀'", r#"{"a":"\u00e9\ud83d\ude80"}"#, ""),
            ("output.t == output.n + output.x", r#"{"t":0.30,"n":0.1,"x":0.2}"#, ""),
            ("output.t == 12345678901234567890.10", r#"{"t":12345678901234567890.1}"#, ""),
            ("output[0][1][0] == 3", "[[1,[3]]]", ""),
            ("source[0].contains('first') && size(source) == 2", "1", ""),
            ("output in data.menu && data.menu[output].price == 9.5", "\"PIZ\"", ""),
            ("output in data.menu", "\"CAF\u{c9}\"", ""),
            ("usage.input_tokens == null && request.team == null", "1", ""),
            (
                "usage.output_tokens < 10",
                "1",
                "$: the rule `usage.output_tokens < 10` cannot be told: null and a number have no order",
            ),
        ] {
            let expected: Vec<&str> = Some(told).filter(|told| !told.is_empty()).into_iter().collect();
            assert_eq!(found(rule, None, none, answer), expected, "{rule} on {answer}");
        }
    }

    #[test]
    fn each_node_by_itself() {
        let (none, rule) = (Presence::default(), "this.sku in data.menu && this.size in data.menu[this.sku].sizes");
        let each = Some("$.items[*]");
        let good = r#"{"sku":"PIZ","size":"M"}"#;
        let of = |items: &[&str]| format!("{{\"items\":[{}]}}", items.join(","));
        assert!(found(rule, each, none, &of(&[good, good])).is_empty());
        assert!(found(rule, each, none, &of(&[])).is_empty());
        let bad = of(&[good, r#"{"sku":"PIZ","size":"L"}"#, r#"{"sku":"X"}"#, r#"{"sku":"PIZ"}"#, "3"]);
        let told = found(rule, each, none, &bad);
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].starts_with("$['items'][1]: the rule `this.sku in data.menu"), "{told:?}");
        assert!(told[0].ends_with("does not hold"), "{told:?}");
        assert!(told[1].starts_with("$['items'][2]: ") && told[1].ends_with("does not hold"), "{told:?}");
        assert!(told[2].ends_with("cannot be told: no member `size`"), "{told:?}");
        assert!(told[3].ends_with("cannot be told: no members or elements in int and string"), "{told:?}");
        // Nested arrays, and what the rest of the answer says.
        assert_eq!(
            found("this.all(x, x > output.least)", Some("$.a[*]"), none, r#"{"a":[[2,3],[1]],"least":1.0}"#).len(),
            1
        );
        // Missing and null nodes.
        assert_eq!(found(rule, each, none, "{}"), ["$['items']: expected a value, found nothing: it is missing"]);
        assert_eq!(found(rule, each, none, r#"{"items":1}"#).len(), 1);
        assert_eq!(found(rule, each, none, r#"{"items":[null]}"#), ["$['items'][0]: expected a value, found null"]);
        let lenient = Presence { optional: true, nullable: true, at_least: 0 };
        assert!(found(rule, each, lenient, "{}").is_empty());
        assert!(found(rule, each, lenient, r#"{"items":[null]}"#).is_empty());
        assert_eq!(found(rule, each, Presence { at_least: 2, ..none }, &of(&[good])).len(), 1);
    }

    #[test]
    fn what_is_needed_comes_first() {
        let mut contract = contract();
        let (none, each) = (Presence::default(), Some("$.items[*]"));
        add(&mut contract, "this.sku in data.menu", each, none, Vec::new());
        add(&mut contract, "this.size in data.menu[this.sku].sizes", each, none, vec![0]);
        add(&mut contract, "output.items.all(i, i.size in data.menu[i.sku].sizes)", None, none, vec![0]);
        let told = testing::judged(&contract, &[], r#"{"items":[{"sku":"X","size":"M"},{"sku":"PIZ","size":"L"}]}"#);
        let paths: Vec<&str> = told.iter().map(|told| told.split(": ").next().unwrap()).collect();
        assert_eq!(paths, ["$['items'][0]", "$['items'][1]"], "{told:?}");
    }

    #[test]
    fn evidence_objects_are_seen_as_they_are() {
        let path = |text: &str| Query::read(text).unwrap();
        let evidence = Evidence { value: path("$.value"), quote: path("$.quote"), page: path("$.page") };
        let mut contract = PolicyContract { evidence: Some(evidence), ..contract() };
        add(&mut contract, "has(this.page) && this.value == null", Some("$.a"), Presence::default(), Vec::new());
        assert!(testing::judged(&contract, &[], r#"{"a":{"value":null,"quote":"x","page":1}}"#).is_empty());
    }

    #[test]
    fn wrong_rules_are_told_at_load() {
        assert!(refused("outptu.a").starts_with("unknown variable `outptu`; did you mean `output`?"));
        assert!(refused("this.a == 1").starts_with("unknown variable `this`"));
        assert!(refused("1 in data.menus").starts_with("unknown member of `data` `menus`; did you mean `menu`?"));
        assert!(
            refused("output.a ==\n  == 1").ends_with("\n  |   == 1\n  |   ^"),
            "{}",
            refused("output.a ==\n  == 1")
        );
        assert!(refused("").starts_with("mismatched input"));
        let contract = contract();
        let context = Build { contract: &contract, presence: Presence::default(), each: None };
        assert!(
            build(&Value::from(1), &context).unwrap_err()[0].message.starts_with("expected an expression, found 1")
        );
    }

    #[test]
    fn only_nodes_alone_are_judged_by_path() {
        let contract = contract();
        let built = |rule: &str| {
            let each = Some(Query::read("$.items[*]").unwrap());
            build(&Value::from(rule), &Build { contract: &contract, presence: Presence::default(), each }).unwrap()
        };
        assert_eq!(built("this.a > 1").paths().len(), 1);
        assert!(built("this.a > output.b").paths().is_empty());
    }

    #[test]
    fn hostile_answers_end_as_violations() {
        let many = format!("[{}]", vec!["1"; 2000].join(","));
        let told =
            found("output.all(a, output.all(b, output.all(c, a + b + c > 0)))", None, Presence::default(), &many);
        assert!(told[0].contains("work limit"), "{told:?}");
        // All nodes share the steps of one answer.
        let told = found("output.exists(x, x == 2)", Some("$[*]"), Presence::default(), &many);
        assert_eq!(told.len(), 100);
        assert!(told[0].ends_with("does not hold"), "{told:?}");
        let nodes = format!("[{}]", vec![many.as_str(); 100].join(","));
        let told = found("this.all(a, this.all(b, a != b || true))", Some("$[*]"), Presence::default(), &nodes);
        assert!(told.len() == 100 && told.iter().all(|told| told.contains("work limit")), "{}", told[0]);
        let deep = format!("{}{}", "[".repeat(120), "]".repeat(120));
        assert_eq!(found("output == [[[1]]]", None, Presence::default(), &deep).len(), 1);
        assert!(found("output == output", None, Presence::default(), &deep).is_empty());
        let long = format!("\"{}\"", "a".repeat(1 << 20));
        assert_eq!(found("output.find('a') == []", None, Presence::default(), &long).len(), 1);
    }
}
