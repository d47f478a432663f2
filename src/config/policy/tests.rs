//! The room as a whole: policies as people write them, and what is said of those that are wrong.

use std::path::Path;
use std::sync::Arc;

use super::bundle::Files;
use super::*;
use crate::config::load_text;
use crate::contract::fold::Fold;
use crate::contract::verdict::Action;
use crate::policy::Choices;
use crate::policy::Inject;
use crate::policy::Limit;
use crate::policy::Mode;
use crate::policy::NativeUse;
use crate::policy::OnConflict;
use crate::policy::OtherTools;
use crate::policy::Policy;
use crate::policy::Response;
use crate::policy::SourceRole;
use crate::policy::StructuredOutput;
use crate::settings::SchemaLimits;

const SCHEMA: &str = r#"{"type":"object","required":["id","a"],"properties":{"id":{"type":"string"},"a":{"type":"string"},"items":{"type":"array"},"total":{"type":"number"}}}"#;

/// A folder with the policy `p`: what it says, a schema, tables, and more files.
fn bundle(policy: &str, more: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("p");
    std::fs::create_dir(&own).unwrap();
    let files = [
        ("policy.yaml", policy),
        ("s.json", SCHEMA),
        ("menu.json", r#"[{"sku":"A","price":1.50},{"sku":"B","price":2}]"#),
        ("list.json", r#"["x","y"]"#),
    ];
    for (name, text) in files.iter().chain(more) {
        std::fs::write(own.join(name), text).unwrap();
    }
    folder
}

fn read(policy: &str, more: &[(&str, &str)]) -> Result<Loaded, String> {
    let folder = bundle(policy, more);
    let files = Files::folder(&folder.path().join("p")).unwrap();
    load(&files, SchemaLimits::default())
        .map_err(|errors| errors.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

/// A policy with the smallest of everything and these members.
fn with(members: &str) -> String {
    let matches = if members.starts_with("match:") || members.contains("\nmatch:") { "" } else { "match: by_name\n" };
    format!("version: 1\n{matches}{members}\n")
}

fn policy(members: &str) -> Policy {
    read(&with(members), &[]).unwrap_or_else(|errors| panic!("{errors}")).policy
}

fn errors(members: &str) -> String {
    read(&with(members), &[]).map_or_else(|errors| errors, |_| "(no error)".to_owned())
}

macro_rules! assert_report {
    ($report:expr) => {
        insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!($report) })
    };
}

fn fixture(name: &str) -> Result<Loaded, String> {
    let folder = Path::new("tests/policies").join(name);
    let files = Files::folder(&folder).unwrap();
    load(&files, SchemaLimits::default()).map_err(|errors| errors.to_string())
}

#[test]
fn every_option_reaches_the_policy() {
    let bare = policy("");
    assert_eq!((&*bare.name, bare.matches.len(), bare.schema.is_some()), ("p", 0, false));
    assert_eq!(bare.structured_output, StructuredOutput::WhenAsked);
    let defaults = (bare.tools, bare.mode, bare.inject, bare.native, bare.extraction, bare.choices);
    let expected = (
        OtherTools::Judge,
        Mode::Enforce,
        Inject::Always,
        NativeUse::Prefer,
        crate::extraction::Mode::Ladder,
        Choices::All,
    );
    assert_eq!(defaults, expected);
    let with = policy(
        "description: Words.\ntools: deny\nmode: monitor\ninject: never\nnative: require\nextraction: strict\nchoices: passing\nschema: s.json\non_schema_conflict: reject\nenvelope: {wrap_array: items}",
    );
    assert_eq!((&*with.description, with.tools, with.mode), ("Words.", OtherTools::Deny, Mode::Monitor));
    assert_eq!((with.inject, with.native, with.choices), (Inject::Never, NativeUse::Require, Choices::Passing));
    assert_eq!(
        (with.extraction, with.structured_output),
        (crate::extraction::Mode::Strict, StructuredOutput::Required)
    );
    assert_eq!(with.schema.as_ref().unwrap().on_conflict, OnConflict::Reject);
    assert_eq!(with.envelope.as_deref(), Some("items"));
    assert_eq!(policy("schema: from_request\ninject: unless_native\nnative: never").inject, Inject::UnlessNative);
    assert_eq!(policy("schema: s.json\nstructured_output: when_asked").structured_output, StructuredOutput::WhenAsked);
    assert_eq!(policy("schema: s.json").schema.unwrap().on_conflict, OnConflict::Both);
}

#[test]
fn every_condition_of_a_match_is_kept() {
    let policy = policy(
        "match:\n  - {model: \"order-*\", schema_name: s}\n  - schema_name: [a, b]\n  - tool: place_order\n  - {model: [x, y], tool: [t]}",
    );
    let [first, second, third, fourth] = policy.matches.as_slice() else { panic!("{:?}", policy.matches) };
    assert!(first.models[0].matches("order-desk"));
    assert!(first.schema_names[0].matches("s"));
    assert_eq!(second.schema_names.iter().map(|glob| glob.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(third.tools, ["place_order"]);
    assert_eq!((fourth.models.len(), fourth.tools.len()), (2, 1));
}

#[test]
fn the_source_is_what_is_written() {
    let bare = policy("").source;
    assert_eq!((bare.roles, bare.tag, bare.request), (vec![SourceRole::User], None, false));
    assert!(bare.page_break.is_none() && !bare.ignore_unreadable);
    let source = policy(
        "source: {roles: [user, system, developer, tool], tag: document, page_break: \"\\f\", request: allowed, unreadable: ignore}",
    )
    .source;
    assert_eq!(source.roles, [SourceRole::User, SourceRole::System, SourceRole::Developer, SourceRole::Tool]);
    assert_eq!(source.tag.as_deref(), Some("document"));
    assert!(source.page_break.unwrap().is_match("a\u{c}b"));
    assert!(source.request && source.ignore_unreadable);
}

#[test]
fn limits_cap_numbers_and_set_the_rest() {
    let limits = policy(
        "limits: {max_output_tokens: 2000, temperature: 0.10, top_p: 1, n: 1, seed: 7, reasoning_effort: low, parallel_tool_calls: false}",
    )
    .limits;
    let told: Vec<String> = limits
        .iter()
        .map(|(name, limit)| match limit {
            Limit::AtMost(number) => format!("{name} <= {number}"),
            Limit::Set(value) => format!("{name} = {value}"),
        })
        .collect();
    let expected = [
        "max_output_tokens <= 2000",
        "n <= 1",
        "parallel_tool_calls = false",
        "reasoning_effort = \"low\"",
        "seed = 7",
        "temperature <= 0.10",
        "top_p <= 1",
    ];
    assert_eq!(told, expected);
}

#[test]
fn assigned_fields_are_taken_out_of_what_the_model_sees() {
    let policy = policy(
        "schema: s.json\ndata: {menu: {file: menu.json, key: sku}}\nassign:\n  id: {uuid: v7}\n  total: {lookup: {in: menu, by: \"$.a\", column: price}}",
    );
    let assign = policy.assign.unwrap();
    assert_eq!(assign.fields.iter().map(|field| &*field.name).collect::<Vec<_>>(), ["id", "total"]);
    let schema = policy.schema.unwrap();
    let shown = std::str::from_utf8(schema.shown.text()).unwrap();
    assert_eq!(
        shown,
        r#"{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"items":{"type":"array"}}}"#
    );
    assert_eq!(schema.complete.text(), SCHEMA);
    let all = super::tests::policy(
        "assign: {z: {uuid: v4}, y: {now: rfc3339}, x: {const: null}, w: {slugify: \"$.a\"}, v: {const: [1.50]}}",
    );
    let told = format!("{:?}", all.assign.unwrap().fields);
    for part in ["UuidV4", "NowRfc3339", "Const(Null)", "Slugify", "1.50"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn the_digest_is_of_everything_that_decides() {
    let of = |members: &str, more: &[(&str, &str)]| read(&with(members), more).unwrap().policy.digest;
    let members = "schema: s.json\ndata: {menu: {file: menu.json, key: sku}}";
    let digest = of(members, &[]);
    assert_eq!(digest, of(members, &[("README.md", "x"), ("controls.jsonl", "")]));
    assert_ne!(digest, of(members, &[("menu.json", "[]")]));
    assert_ne!(digest, of(members, &[("s.json", "{}")]));
    assert_ne!(digest, of(&format!("{members}\nmode: monitor"), &[]));
}

#[test]
fn what_is_wrong_with_the_settings_is_said_clearly() {
    let cases = [
        ("empty", read("", &[]).unwrap_err()),
        ("nothing that is needed", read("description: x\n", &[]).unwrap_err()),
        ("another version", read("version: 2\nmatch: by_name\n", &[]).unwrap_err()),
        ("not there", {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("p")).unwrap();
            let files = Files::folder(&folder.path().join("p")).unwrap();
            let told = load(&files, SchemaLimits::default()).unwrap_err().to_string();
            told.replace(&format!("{}/", folder.path().display()), "")
        }),
        ("members", errors("scheme: s.json\ngate: []\ncache: {ttl: 10m}")),
        ("match", errors("match: byname")),
        ("match 2", errors("match: []")),
        ("match 3", errors("match: [{}, {modle: x}, {model: []}, {model: 3}, x]")),
        ("match 4", errors("match: {model: x}")),
        ("match 5", errors("match: [{model: x, team: [pos]}, {team: 3}]")),
        (
            "values",
            errors(
                "mode: enforced\ntools: allow\ninject: allways\nnative: prefered\nextraction: lenient\nchoices: any\nstructured_output: yes\non_schema_conflict: rejekt",
            ),
        ),
        ("schema", errors("schema: t.json")),
        ("schema 2", errors("schema: ../s.json")),
        ("schema 3", errors("schema: menu.json")),
        ("schema 4", errors("schema: [s.json]")),
        ("no schema", errors("structured_output: required\non_schema_conflict: both")),
        (
            "source",
            errors("source: {roles: [], tag: \"<document>\", page_break: \"(\", request: yes, unreadable: pass}"),
        ),
        ("source 2", errors("source: {roles: [assistant], page_break: \"x*\", tags: x}")),
        ("evidence", errors("evidence: {value: value, quote: \"$.q[*]\"}")),
        ("evidence 2", errors("evidence: {value: \"a b\", quote: q, page: p}")),
        ("envelope", errors("envelope: {wrap: items}")),
        (
            "assign",
            errors("schema: s.json\nassign: {it: {uuid: v7}, id: {uuid: v5}, a: {}, total: {uuid: v4, now: rfc3339}}"),
        ),
        (
            "assign 2",
            errors(
                "data: {menu: {file: menu.json, key: sku}, list: {file: list.json}}\nassign: {a: {lookup: {in: menue, by: \"$.x\", column: price}}, b: {lookup: {in: list, by: \"$.x\", column: price}}, c: {lookup: {in: menu, by: \"$.x[*]\", column: prize}}, d: {slugify: x}, e: {slugify: \"$.a\"}, f: {lookup: {in: menu}}}",
            ),
        ),
        ("assign and envelope", errors("envelope: {wrap_array: a}\nassign: {a: {uuid: v7}}")),
        (
            "data",
            errors(
                "data: {menu: {file: menu.xml}, a: {file: ../x.json}, b: {file: none.json}, c: {}, d: {file: menu.json, key: name}, \"e-f\": {file: list.json}}",
            ),
        ),
        (
            "facts",
            errors(
                "facts: {a: {}, b: {terms: {x: [\"(\"]}}, c: {terms: {x: [y]}, cue: [z]}, \"d e\": {terms: {x: [y]}}}",
            ),
        ),
        ("retry", errors("retry: {}")),
        ("retry 2", errors("retry: {attempts: 4, on: []}")),
        ("retry 3", errors("retry: {attempts: 0, on: [extraction, schema, schema, sum], escalate: x}")),
        ("limits", errors("limits: {max_output_tokens: 0, temperature: 3, top_p: x, max_tokens: 5}")),
    ];
    let report: Vec<String> = cases.iter().map(|(name, told)| format!("=== {name}\n{told}\n")).collect();
    assert_report!(report.join("\n"));
}

fn gates(gates: &str) -> Policy {
    policy(&format!("evidence: {{value: v, quote: q, page: p}}\ngates:\n{gates}"))
}

#[test]
fn what_stands_on_every_gate_is_kept() {
    let policy = gates(
        "  - {name: first, unique: \"$.a\"}\n  - {name: second, unique: \"$.b\", on_violation: clarify, needs: [first], when: \"output.a == 1\", say: \"Is it {{ value }}?\"}\n  - {name: third, unique: \"$.c\", on_violation: monitor, needs: [second, first]}",
    );
    let [first, second, third] = policy.contract.gates.as_slice() else { panic!() };
    assert_eq!((first.action, first.when.is_none(), first.say.is_none()), (Action::Reject, true, true));
    assert_eq!(
        (second.action, &*second.needs, second.when.is_some(), second.say.is_some()),
        (Action::Clarify, &[0][..], true, true)
    );
    assert_eq!((third.action, &*third.needs, third.kind), (Action::Monitor, &[1, 0][..], "unique"));
    assert!(first.declared.ends_with("p/policy.yaml:5") && third.declared.ends_with(":7"), "{}", third.declared);
}

/// What a gate with this setting says of an answer.
fn judged(settings: &str, output: &str) -> String {
    let control = serde_json::json!({"name": "n", "output": output, "expect": "accepted"});
    proof(&format!("gates: [{{name: g, {settings}}}]"), &control).unwrap_or_default()
}

/// What becomes of a policy's one control.
fn proof(policy: &str, control: &serde_json::Value) -> Option<String> {
    let loaded = read(&with(policy), &[("controls.jsonl", &control.to_string())]).unwrap();
    run_controls(&Arc::new(loaded.policy), &loaded.controls, SchemaLimits::default()).remove(0).fault
}

#[test]
fn a_control_of_a_tool_is_judged_as_the_arguments_of_a_call() {
    let policy = "match: [{tool: place}]\nschema: s.json\ngates: [{name: named, rule: output.id == 'x'}]";
    let request = serde_json::json!({
        "model": "m", "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "place"}}],
    });
    for (output, expected) in [
        (r#"{"id":"x","a":""}"#, serde_json::json!({"expect": "accepted"})),
        (r#"{"id":"y","a":""}"#, serde_json::json!({"expect": "rejected", "gate": "named"})),
        (r#"{"id":"x"}"#, serde_json::json!({"expect": "rejected", "gate": "schema", "code": "tool_violation"})),
        (r#"See: {"id":"x","a":""}"#, serde_json::json!({"expect": "rejected", "code": "tool_violation"})),
    ] {
        let mut control = expected.clone();
        control["name"] = "n".into();
        control["output"] = output.into();
        assert_eq!(proof(policy, &control), None, "{output}");
        control["request"] = request.clone();
        assert_eq!(proof(policy, &control), None, "{output}");
    }
}

#[test]
fn what_a_kind_adds_can_be_said() {
    for (settings, name) in [
        ("fact: {array: \"$.a\", includes: f}", "missing"),
        ("fact: {array: \"$.a\", equals: f}", "surplus"),
        ("unique: \"$.a[*]\"", "first"),
        ("rule: output.a == 1", "rule"),
    ] {
        let facts = "facts: {f: {terms: {x: [y]}}}";
        policy(&format!("{facts}\ngates: [{{name: g, say: \"{{{{ {name} }}}}\", {settings}}}]"));
    }
}

#[test]
fn presence_reaches_the_gate() {
    let unique = "unique: \"$.a[*].b\"";
    assert!(judged(unique, r#"{"a":[{"b":1},{"b":1}]}"#).contains("expected `accepted`, found `rejected`"));
    for (option, output) in [("optional: true", r#"{"a":[{}]}"#), ("nullable: true", r#"{"a":[{"b":null}]}"#)] {
        assert!(!judged(unique, output).is_empty(), "{option}");
        assert_eq!(judged(&format!("{unique}, {option}"), output), "", "{option}");
    }
    assert_eq!(judged(unique, r#"{"a":[]}"#), "");
    assert!(!judged(&format!("{unique}, at_least: 1"), r#"{"a":[]}"#).is_empty());
    assert_eq!(judged(&format!("{unique}, when: \"output.x == 1\""), r#"{"a":[{"b":1},{"b":1}],"x":2}"#), "");
}

#[test]
fn what_is_wrong_with_gates_is_said_clearly() {
    let grounded = "evidence: {value: v, quote: q, page: p}\nregions: {bill: {from: start, through: end}}\nfacts: {f: {terms: {x: [y]}}}\n";
    let on = |gates: &str| errors(&format!("{grounded}{gates}"));
    let cases = [
        (
            "names",
            on(
                "gates: [{name: a, unique: \"$.a\"}, {name: a, unique: \"$.b\"}, {name: \"b c\", unique: \"$.b\"}, {unique: \"$.b\"}, {name: schema, unique: \"$.b\"}]",
            ),
        ),
        (
            "kinds",
            on(
                "gates: [{name: a}, {name: b, uniqe: \"$.b\"}, {name: c, unique: \"$.b\", quote: \"$.c\"}, {name: d, unique: \"$.d\", token: true}]",
            ),
        ),
        ("not a gate", on("gates: [x]")),
        (
            "settings",
            on(
                "gates: [{name: a, unique: 3}, {name: b, math: {sum: \"$.a\"}}, {name: c, math: {summe: \"$.a\", equals: \"$.b\"}}, {name: d, unique: \"$.[\"}]",
            ),
        ),
        (
            "needs",
            on(
                "gates: [{name: a, unique: \"$.a\", needs: [b]}, {name: b, unique: \"$.b\", on_violation: monitor}, {name: cc, unique: \"$.c\", needs: [b, a, c]}, {name: d, unique: \"$.d\", needs: [d]}]",
            ),
        ),
        (
            "templates and rules",
            on(
                "gates: [{name: a, unique: \"$.a\", say: \"{{ valu }}\"}, {name: b, unique: \"$.b\", say: \"{{ value\"}, {name: c, unique: \"$.c\", when: \"output.a ==\"}, {name: d, unique: \"$.d\", when: \"facts.g == []\"}, {name: e, unique: \"$.e\", say: \"{{ facts.g }}\"}]",
            ),
        ),
        ("each", on("gates: [{name: a, unique: \"$.a\", each: \"$.b\"}]")),
        ("presence", on("gates: [{name: a, budget: {output_tokens: 1}, optional: true, nullable: true, at_least: 2}]")),
        ("printed", on("gates: [{name: a, math: {sum: \"$.a[*]\", equals: \"$.b\", tolerance: printed}}]")),
        ("facts", on("gates: [{name: a, fact: {array: \"$.a\", includes: g}}]")),
        ("regions", on("gates: [{name: a, provenance: \"$.a\", within: bil}]")),
        ("folds", on("folds: [whitespace, fuzzy]\ngates: [{name: a, quote: \"$.a\", folds: [cases]}]")),
        (
            "retry of what is tied",
            on(
                "gates: [{name: a, quote: \"$.a\"}, {name: b, unique: \"$.a\"}, {name: c, quote: \"$.c\", on_violation: monitor}, {name: d, unique: \"$.c\"}, {name: e, budget: {output_tokens: 1}}, {name: f, quote: \"$.f\", when: \"true\"}, {name: g, unique: \"$.f\"}]\nretry: {on: [a, b, d, e, g]}",
            ),
        ),
        (
            "assigned",
            on(
                "schema: s.json\nassign: {id: {uuid: v7}}\ngates: [{name: a, unique: \"$.id\"}, {name: b, unique: \"$.items[*].id\"}]",
            ),
        ),
        ("respond", on("respond: {clarify: ask, reject: {objekt: {}}}")),
        ("respond 2", on("respond: {clarify: {object: {id: \"x\"}}}")),
        (
            "respond 3",
            on(
                "schema: s.json\nrespond: {clarify: {object: {id: \"{{ questions | join(' ') }}\"}}, reject: {object: {id: x, a: \"{{ questons }}\"}}}",
            ),
        ),
        (
            "respond 4",
            on(
                "schema: s.json\nrespond: {clarify: {object: {id: x, a: \"{{ output.a }}\"}}, reject: {object: {id: x, a: \"{{ output.items[7] }}\"}}}",
            ),
        ),
        (
            "region patterns",
            errors(
                "regions: {a: {from: \"(\", through: end}, b: {from: start, through: end, occurrence: 2}, c: {from: x}}",
            ),
        ),
    ];
    let report: Vec<String> = cases.iter().map(|(name, told)| format!("=== {name}\n{told}\n")).collect();
    assert_report!(report.join("\n"));
}

#[test]
fn regions_folds_and_answers_reach_the_policy() {
    let policy = policy(
        "schema: s.json\nfolds: [whitespace, case]\nregions: {bill: {from: start, through: total, occurrence: 2}}\nrespond: {clarify: error, reject: {object: {id: \"{{ questions | join(' ') }}\", a: b}}}",
    );
    assert!(policy.contract.folds.has(Fold::Case) && !policy.contract.folds.has(Fold::Typography));
    assert!(policy.contract.regions.contains_key("bill"));
    assert!(matches!((&policy.respond.clarify, &policy.respond.reject), (Response::Error, Response::Object(_))));
    let policy = super::tests::policy("respond: {clarify: refusal, reject: refusal}");
    assert!(matches!((&policy.respond.clarify, &policy.respond.reject), (Response::Refusal, Response::Refusal)));
    let retry = super::tests::policy("retry: {attempts: 2, on: [extraction, schema], escalate: [a]}").retry.unwrap();
    assert_eq!((retry.attempts, retry.on.len(), &*retry.escalate[0]), (2, 2, "a"));
    assert_eq!(super::tests::policy("retry: {on: [schema]}").retry.unwrap().attempts, 1);
}

/// Every sample of the design is loaded, and proved by controls.
fn proved(name: &str) -> Policy {
    let loaded = fixture(name).unwrap_or_else(|errors| panic!("{errors}"));
    let policy = Arc::new(loaded.policy);
    let faults: Vec<String> = run_controls(&policy, &loaded.controls, SchemaLimits::default())
        .into_iter()
        .filter_map(|outcome| Some(format!("{}: {}", outcome.name, outcome.fault?)))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(untested(&policy, &loaded.controls), Vec::<String>::new());
    Arc::try_unwrap(policy).unwrap()
}

#[test]
fn the_sample_of_invoices_is_loaded_and_proved() {
    let policy = proved("invoices");
    let kinds: Vec<&str> = policy.contract.gates.iter().map(|gate| gate.kind).collect();
    assert_eq!(kinds, ["provenance", "math", "math", "text", "text", "budget"]);
    assert_eq!(policy.retry.unwrap().on.len(), 2);
    assert!(policy.contract.evidence.is_some() && policy.contract.regions.contains_key("bill"));
}

#[test]
fn the_sample_of_orders_is_loaded_and_proved() {
    let policy = proved("orders");
    assert_eq!(policy.contract.gates.iter().map(|gate| gate.needs.len()).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
    assert_eq!(policy.matches.len(), 3);
    assert!(matches!((&policy.respond.clarify, &policy.respond.reject), (Response::Object(_), Response::Object(_))));
}

#[test]
fn the_samples_of_each_kind_are_loaded() {
    let loaded = fixture("kinds").unwrap_or_else(|errors| panic!("{errors}"));
    let found: std::collections::BTreeSet<&str> = loaded.policy.contract.gates.iter().map(|gate| gate.kind).collect();
    let all = crate::contract::gate::KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(found, all);
}

#[test]
fn every_policy_of_the_repository_is_loaded_and_its_controls_hold() {
    for folder in std::fs::read_dir("policies").unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        let files = Files::folder(&folder).unwrap();
        let loaded = load(&files, SchemaLimits::default()).unwrap_or_else(|errors| panic!("{errors}"));
        let policy = Arc::new(loaded.policy);
        let outcomes = run_controls(&policy, &loaded.controls, SchemaLimits::default());
        assert!(outcomes.iter().all(|outcome| outcome.fault.is_none()), "{outcomes:?}");
    }
}

#[test]
fn the_schemas_compile_and_describe_their_samples() {
    for format in [&*load::POLICY_FORMAT, &*controls::CONTROL_FORMAT] {
        assert!(format.validator.is_some());
        assert!(jsonschema::meta::is_valid(&format.schema));
    }
    let text = schema().to_string();
    for kind in crate::contract::gate::KINDS {
        assert!(text.contains(&format!("\"{}\":", kind.name)), "{}", kind.name);
    }
    assert!(!text.contains("\"cache\""));
}

fn policies(all: &[(&str, &str)]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in all {
        let own = folder.path().join("policies").join(name);
        std::fs::create_dir_all(&own).unwrap();
        std::fs::write(own.join("s.json"), SCHEMA).unwrap();
        std::fs::write(own.join("policy.yaml"), with(text)).unwrap();
    }
    let text = "version: 1\nauth: {mode: none}\nbackends: {demo: {kind: demo}}\nmodels: {order-desk: {targets: [{backend: demo, price: {input: \"0.25\", output: \"2.00\"}}]}}\npolicies: policies\n";
    (folder, text.to_owned())
}

fn told_together(all: &[(&str, &str)]) -> String {
    let (folder, text) = policies(all);
    let told = match load_text("portcullis.yaml", &text, folder.path(), &|_| None) {
        Ok(configuration) => format!("(no error)\n{}", configuration.warnings.join("\n")),
        Err(errors) => errors.to_string(),
    };
    told.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn policies_that_claim_one_thing_are_told_apart() {
    let desk = "match: [{model: \"order-*\"}]";
    let report = [
        ("both bring a schema", format!("{desk}\nschema: s.json"), format!("{desk}\nschema: s.json")),
        ("one alone", format!("{desk}\nschema: s.json\non_schema_conflict: reject"), format!("{desk}\nschema: s.json")),
        (
            "two envelopes",
            format!("{desk}\nenvelope: {{wrap_array: a}}"),
            "match: [{model: [x, \"*-desk\"]}]\nenvelope: {wrap_array: b}".into(),
        ),
        (
            "two envelopes elsewhere",
            format!("{desk}\nenvelope: {{wrap_array: a}}"),
            "match: [{model: chat}, {schema_name: x}, {model: \"order-*\", tool: t}]\nenvelope: {wrap_array: b}".into(),
        ),
        ("by name", "envelope: {wrap_array: a}".into(), format!("{desk}\nenvelope: {{wrap_array: b}}")),
        (
            "one field",
            format!("{desk}\nassign: {{id: {{uuid: v7}}}}"),
            "match: [{model: order-desk}]\nassign: {id: {uuid: v4}}".into(),
        ),
        ("an alias that is not there", format!("{desk}\nretry: {{on: [schema], escalate: [order-dekk]}}"), desk.into()),
    ]
    .map(|(name, one, two)| format!("=== {name}\n{}\n", told_together(&[("one", &one), ("two", &two)])));
    assert_report!(report.join("\n"));
}

#[test]
fn the_configuration_holds_its_policies_and_proofs() {
    let (folder, text) = policies(&[("b", "match: [{model: order-desk}]"), ("a", "")]);
    let control = r#"{"name":"n","output":"{}","expect":"accepted"}"#;
    let controls = folder.path().join("policies/a/controls.jsonl");
    std::fs::write(&controls, control).unwrap();
    let read = |text: &str| load_text("portcullis.yaml", text, folder.path(), &|_| None);
    let configuration = read(&text).unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<&str> = configuration.policies.iter().map(|policy| &*policy.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(configuration.proofs.iter().map(|proof| proof.controls.len()).collect::<Vec<_>>(), [1, 0]);
    assert!(Arc::ptr_eq(&configuration.proofs[0].policy, configuration.policies.get("a").unwrap()));
    assert!(
        configuration
            .warnings
            .iter()
            .any(|warning| warning.contains("policy `b` is not proved: no control must be accepted")),
        "{:?}",
        configuration.warnings
    );
    let required = read(&format!("{text}controls: required\n")).unwrap_err().to_string();
    assert!(required.contains("b/controls.jsonl: policy `b` is not proved"), "{required}");
    let target = &configuration.catalog.aliases["order-desk"].targets[0];
    assert_eq!(target.price.as_ref().unwrap().cached_input.to_string(), "0.25");
    std::fs::write(&controls, control.replace("{}", "no JSON")).unwrap();
    let broken = read(&text).unwrap_err().to_string();
    assert!(
        broken.contains("a/controls.jsonl:1:1: the control `n` does not hold: expected `accepted`, found `rejected`"),
        "{broken}"
    );
    let nowhere = read(&text.replace("policies: policies", "policies: nowhere")).unwrap_err().to_string();
    assert!(nowhere.contains("portcullis.yaml:5:11: the folder `nowhere` of `policies` cannot be opened"), "{nowhere}");
}
