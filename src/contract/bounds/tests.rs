//! Hostile schemas are refused, legitimate ones pass; a legitimate one is also compiled and run.

mod legitimate;

use proptest::prelude::*;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::contract::bounds::Bounds;
use crate::contract::bounds::BoundsError;
use crate::contract::bounds::check;
use crate::contract::bounds::measure;
use crate::contract::bounds::tests::legitimate::legitimate;

const MAX: usize = 10_000;

/// Definitions `d0` to `d(count)`, each made from the name of the next one; the last is an object with `a`.
fn chain(count: usize, each: impl Fn(&str) -> Value) -> Value {
    let mut definitions = Map::new();
    for at in 0..count {
        definitions.insert(format!("d{at}"), each(&format!("#/$defs/d{}", at + 1)));
    }
    definitions.insert(format!("d{count}"), json!({"properties": {"a": true}}));
    json!({"$ref": "#/$defs/d0", "$defs": definitions})
}

/// One recursive definition.
fn recursive(node: Value) -> Value {
    json!({"$ref": "#/$defs/N", "$defs": {"N": node}})
}

fn build(schema: &Value) -> Result<jsonschema::Validator, String> {
    let options = jsonschema::options().offline().with_pattern_options(jsonschema::PatternOptions::regex());
    options.build(schema).map_err(|error| error.to_string())
}

fn nest(depth: usize, key: &str, leaf: Value) -> Value {
    (0..depth).fold(leaf, |inner, _| json!({key: inner}))
}

#[track_caller]
fn refused(schema: &Value) -> BoundsError {
    check(schema, MAX).expect_err(&schema.to_string().chars().take(300).collect::<String>())
}

#[track_caller]
fn passes(schema: &Value) -> Bounds {
    measure(schema, MAX).unwrap_or_else(|error| panic!("{error}: {schema}"))
}

#[test]
fn doubling_in_place_is_refused() {
    let twice = |keyword: &'static str| move |next: &str| json!({keyword: [{"$ref": next}, {"$ref": next}]});
    for keyword in ["allOf", "anyOf", "oneOf"] {
        assert!(matches!(refused(&chain(30, twice(keyword))), BoundsError::Expansion { .. }), "{keyword}");
        // Few enough levels are only large, not endless.
        assert!(passes(&chain(8, twice(keyword))).expanded < MAX, "{keyword}");
    }
    let shapes: [fn(&str) -> Value; 6] = [
        |next| json!({"not": {"$ref": next}, "$ref": next}),
        |next| json!({"if": {"$ref": next}, "then": {"$ref": next}, "else": {"$ref": next}}),
        |next| json!({"dependentSchemas": {"a": {"$ref": next}, "b": {"$ref": next}}}),
        |next| json!({"dependencies": {"a": {"$ref": next}, "b": {"$ref": next}}}),
        |next| json!({"$ref": next, "$dynamicRef": next}),
        |next| json!({"allOf": [{"allOf": [{"$ref": next}]}, {"anyOf": [{"not": {"$ref": next}}]}]}),
    ];
    for shape in shapes {
        assert!(matches!(refused(&chain(30, shape)), BoundsError::Expansion { .. }), "{}", shape("x"));
    }
}

#[test]
fn thirty_doublings_are_counted_exactly_until_they_saturate() {
    let twice = |next: &str| json!({"allOf": [{"$ref": next}, {"$ref": next}]});
    // d(n) = 1 + 2 * (1 + d(n + 1)), d(last) = 1, and the root's reference.
    let count = |levels: u32| 4 * 2_usize.pow(levels) - 3 + 1;
    assert_eq!(passes(&chain(3, twice)).expanded, count(3));
    assert_eq!(passes(&chain(8, twice)).expanded, count(8));
    let four = |next: &str| json!({"allOf": [{"$ref": next}, {"$ref": next}, {"$ref": next}, {"$ref": next}]});
    assert!(matches!(measure(&chain(40, four), usize::MAX), Ok(Bounds { expanded: usize::MAX, .. })));
}

#[test]
fn a_chain_of_unevaluated_counts_what_the_compiler_does() {
    // Measured with jsonschema 0.60.2: each level multiplies the time by 2.6 (16 levels: 2.5 s unoptimised).
    for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
        let each = move |next: &str| json!({keyword: false, "allOf": [{"$ref": next}]});
        assert!(matches!(refused(&chain(12, each)), BoundsError::Expansion { .. }), "{keyword}");
        let (four, five) = (passes(&chain(4, each)).expanded, passes(&chain(5, each)).expanded);
        assert!((25..32).contains(&(five * 10 / four)), "{keyword}: {four}, {five}");
    }
    // One such keyword over a long chain is cheap: each link is worked out once.
    let mut long = chain(40, |next| json!({"anyOf": [{"$ref": next}]}));
    long["unevaluatedProperties"] = json!(false);
    assert!(passes(&long).expanded < 4_000);
}

#[test]
fn growth_through_recursion_is_refused() {
    let n = || json!({"$ref": "#/$defs/N"});
    let shapes = [
        json!({"allOf": [{"properties": {"c": n()}}, {"properties": {"c": n()}}]}),
        json!({"allOf": [{"properties": {"c": n()}}], "properties": {"c": n()}}),
        json!({"allOf": [{"properties": {"c": n()}}, {"additionalProperties": n()}]}),
        json!({"properties": {"c": n()}, "patternProperties": {"^c": n()}}),
        json!({"patternProperties": {"c": n(), "d": n()}}),
        json!({"patternProperties": {"^ab": n(), "^a": n()}}),
        json!({"patternProperties": {"^a|b": n(), "^b": n()}}),
        json!({"items": n(), "contains": n()}),
        json!({"allOf": [{"items": n()}, {"prefixItems": [n()]}]}),
        json!({"items": {"allOf": [n(), n()]}}),
        json!({"allOf": [{"unevaluatedProperties": n()}, {"additionalProperties": n()}]}),
        json!({"properties": {"c": n()}, "not": {"properties": {"c": n()}}}),
        json!({"properties": {"c": {"properties": {"d": {"allOf": [n(), {"not": n()}]}}}}}),
        json!({"dependentSchemas": {"a": {"properties": {"c": n()}}}, "properties": {"c": n()}}),
    ];
    for shape in shapes {
        assert!(
            matches!(refused(&recursive(shape.clone())), BoundsError::Expansion { found: usize::MAX, .. }),
            "{shape}"
        );
    }
    let mutual = json!({"$ref": "#/$defs/A", "$defs": {
        "A": {"allOf": [{"properties": {"c": {"$ref": "#/$defs/B"}}}, {"properties": {"c": {"$ref": "#/$defs/C"}}}]},
        "B": {"properties": {"c": {"$ref": "#/$defs/A"}}},
        "C": {"properties": {"c": {"$ref": "#/$defs/A"}}},
    }});
    assert!(matches!(refused(&mutual), BoundsError::Expansion { .. }));
}

#[test]
fn growth_down_a_chain_of_children_is_refused() {
    // No definition is recursive, yet the thirtieth child meets 2^30 subschemas.
    let down =
        |next: &str| json!({"allOf": [{"properties": {"c": {"$ref": next}}}, {"properties": {"c": {"$ref": next}}}]});
    assert!(matches!(refused(&chain(30, down)), BoundsError::Expansion { .. }));
    // What a recursive schema leaves behind at each level piles up.
    let mut pile = chain(7, down);
    pile["$defs"]["N"] = json!({"allOf": [{"properties": {"c": {"$ref": "#/$defs/N"}}}, {"$ref": "#/$defs/d0"}]});
    pile["$ref"] = json!("#/$defs/N");
    assert!(passes(&pile).expanded > 1_000);
}

#[test]
fn many_markings_are_refused_although_each_is_small() {
    // The compiler builds one tree for each `unevaluatedProperties`; hundreds of large ones add up.
    let mut schema = chain(10, |next| json!({"allOf": [{"$ref": next}, {"$ref": next}]}));
    let each: Map<String, Value> =
        (0..300).map(|at| (format!("p{at}"), json!({"$ref": "#/$defs/d0", "unevaluatedProperties": false}))).collect();
    schema["properties"] = Value::Object(each);
    assert!(matches!(refused(&schema), BoundsError::Expansion { .. }));
}

#[test]
fn cycles_that_consume_nothing_are_refused() {
    let schemas = [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"not": {"$ref": "#"}}),
        json!({"properties": {"a": {"$ref": "#/properties/a"}}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [true, {"$ref": "#/$defs/a"}]}}}),
        json!({"if": {"$ref": "#"}}),
        json!({"dependentSchemas": {"x": {"$ref": "#"}}}),
        json!({"$dynamicAnchor": "me", "$dynamicRef": "#me"}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "anyOf": [{"$recursiveRef": "#"}]}),
        json!({"$id": "https://e.example/a", "oneOf": [{"$ref": "https://e.example/a"}]}),
    ];
    for schema in schemas {
        assert!(matches!(refused(&schema), BoundsError::Cycle { .. }), "{schema}: {:?}", refused(&schema));
    }
}

#[test]
fn references_that_leave_the_document_are_refused() {
    let schemas = [
        (json!({"$ref": "#/$defs/missing"}), "#/$defs/missing"),
        (json!({"$ref": "#nowhere"}), "#nowhere"),
        (json!({"$ref": "https://e.example/other.json"}), "https://e.example/other.json"),
        (json!({"$id": "https://e.example/root", "$ref": "other.json"}), "other.json"),
        (json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}), "file:///etc/passwd"),
        (json!({"$defs": {"unused": {"$ref": "http://e.example/x"}}}), "http://e.example/x"),
        (json!({"$defs": {"unused": {"$ref": "#/nope"}}}), "#/nope"),
        (json!({"items": {"$dynamicRef": "#x"}}), "#x"),
        (
            json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
            "https://json-schema.org/draft/2020-12/schema",
        ),
        (
            json!({"properties": {"a": {"$ref": "http://json-schema.org/draft-07/schema#"}}}),
            "http://json-schema.org/draft-07/schema#",
        ),
        (json!({"$schema": "https://e.example/dialect"}), "https://e.example/dialect"),
        // The compiler ignores an empty reference, so what it should check would pass unchecked.
        (json!({"properties": {"a": {"$ref": ""}}}), ""),
    ];
    for (schema, expected) in schemas {
        match refused(&schema) {
            BoundsError::UnresolvableRef { reference, .. } => assert_eq!(reference, expected, "{schema}"),
            other => panic!("{other}: {schema}"),
        }
    }
}

#[test]
fn dynamic_references_with_more_than_one_end_are_refused() {
    let schema = json!({
        "$id": "https://e.example/a", "$dynamicAnchor": "node", "properties": {"c": {"$dynamicRef": "#node"}},
        "$defs": {"b": {"$id": "b", "$dynamicAnchor": "node", "properties": {"c": {"$dynamicRef": "#node"}}}},
    });
    assert!(matches!(refused(&schema), BoundsError::UnresolvableRef { .. }));
}

#[test]
fn legitimate_schemas_pass_compile_and_accept() {
    for (name, schema, instance) in legitimate() {
        let bounds = measure(&schema, MAX).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(bounds.expanded < 1_000, "{name}: {bounds:?}");
        let validator = build(&schema).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(validator.is_valid(&instance), "{name}");
    }
}

/// Expressions and statements that refer to each other, as a language would have them.
fn grammar() -> Value {
    let e = || json!({"$ref": "#/$defs/Expr"});
    let binary = |op: &str| json!({"type": "object", "properties": {"op": {"const": op}, "left": e(), "right": e()}, "required": ["op", "left", "right"], "additionalProperties": false});
    let variants: Vec<Value> = (0..100).map(|at| binary(&format!("op{at}"))).collect();
    json!({
        "$ref": "#/$defs/Stmt",
        "$defs": {
            "Stmt": {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "if"}, "test": e(), "then": {"$ref": "#/$defs/Block"}, "else": {"$ref": "#/$defs/Block"}}, "required": ["kind", "test"]},
                {"type": "object", "properties": {"kind": {"const": "return"}, "value": e()}, "required": ["kind"]}]},
            "Block": {"type": "array", "items": {"$ref": "#/$defs/Stmt"}},
            "Expr": {"anyOf": [
                {"oneOf": variants},
                {"type": "object", "properties": {"params": {"type": "array"}, "body": {"$ref": "#/$defs/Block"}}, "required": ["body"]},
                {"type": "number"}]},
        }
    })
}

#[test]
fn grammars_pass_and_are_known_to_have_growing_errors() {
    let schema = grammar();
    let bounds = passes(&schema);
    assert!(bounds.errors_grow && bounds.expanded < 1_000, "{bounds:?}");
    assert!(
        !passes(&recursive(json!({"properties": {"left": {"$ref": "#/$defs/N"}, "right": {"$ref": "#/$defs/N"}}})))
            .errors_grow
    );
    let validator = build(&schema).expect("compiles");
    let deep = |leaf: Value| {
        let expression = (0..100).fold(leaf, |inner, _| json!({"op": "op7", "left": inner, "right": 1}));
        json!({"kind": "return", "value": expression})
    };
    // Only the verdict is asked for: a list of errors would take 2^100 steps.
    assert!(validator.is_valid(&deep(json!(1))));
    assert!(!validator.is_valid(&deep(json!("x"))));
}

#[test]
fn the_limit_is_the_callers() {
    let schema = json!({"allOf": [true, true, true]});
    assert_eq!(passes(&schema).expanded, 4);
    assert_eq!(check(&schema, 4), Ok(()));
    assert_eq!(check(&schema, 3), Err(BoundsError::Expansion { path: String::new(), found: 4, max: 3 }));
    let refusal = refused(&recursive(json!({"items": {"$ref": "#/$defs/N"}, "contains": {"$ref": "#/$defs/N"}})));
    assert_eq!(
        refusal.to_string(),
        "the schema at `#/$defs/N` makes one instance node meet an exponential number of subschemas, references followed; the limit is 10000"
    );
}

/// jsonschema remembers one reference of each cycle only: what lies between may grow.
#[test]
fn unions_around_a_long_cycle_are_refused() {
    let cycle = |count: usize| {
        let next = |at: usize| json!({"$ref": format!("#/$defs/d{}", (at + 1) % count)});
        let each = |at| json!({"type": "object", "anyOf": [{"properties": {"c": next(at)}}, {"properties": {"c": next(at), "x": true}}]});
        let definitions: Map<String, Value> = (0..count).map(|at| (format!("d{at}"), each(at))).collect();
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    };
    assert!(passes(&cycle(3)).errors_grow);
    assert!(matches!(refused(&cycle(18)), BoundsError::Expansion { .. }));
    // One definition under many names is as many definitions.
    let names: Vec<Value> =
        ["#/$defs/N", "#/%24defs/N", "#/$def%73/N", "#/$de%66s/N", "#/$d%65fs/N", "#/$%64efs/N", "#/$defs/%4e"]
            .iter()
            .map(|name| json!({"properties": {"c": {"$ref": name}}}))
            .collect();
    assert!(matches!(refused(&recursive(json!({"anyOf": names}))), BoundsError::Expansion { .. }));
}

/// Working out what is evaluated goes through references and remembers nothing.
#[test]
fn marking_that_runs_through_recursion_is_refused() {
    let schema = recursive(json!({
        "allOf": [{"unevaluatedProperties": false, "contains": {"unevaluatedItems": false, "oneOf": [{"$ref": "#/$defs/N"}]}}],
        "unevaluatedProperties": false
    }));
    assert!(matches!(refused(&schema), BoundsError::Expansion { found: usize::MAX, .. }));
}

/// Many kinds of nodes, each a definition of its own, told apart by one property: as syntax trees are.
#[test]
fn a_syntax_tree_of_many_definitions_passes() {
    let reference = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
    let mut definitions = Map::new();
    for union in ["Expression", "Statement", "Pattern", "Type"] {
        let names: Vec<String> = (0..30).map(|at| format!("{union}{at}")).collect();
        for name in &names {
            let properties = json!({"kind": {"const": name}, "left": reference("Expression"), "right": reference("Expression"),
                "body": {"type": "array", "items": reference("Statement")}, "target": reference("Pattern"), "annotation": reference("Type")});
            definitions.insert(name.clone(), json!({"type": "object", "properties": properties, "required": ["kind"]}));
        }
        let branches: Vec<Value> = names.iter().map(|name| reference(name)).collect();
        definitions.insert(union.to_owned(), json!({"oneOf": branches}));
    }
    let schema = json!({"$defs": definitions, "type": "array", "items": reference("Statement")});
    let bounds = passes(&schema);
    assert!(bounds.errors_grow && bounds.expanded < MAX, "{bounds:?}");
    let deep = (0..60).fold(json!({"kind": "Expression7"}), |inner, _| json!({"kind": "Expression3", "left": inner}));
    let validator = build(&schema).expect("compiles");
    assert!(validator.is_valid(&json!([{"kind": "Statement1", "body": [{"kind": "Statement2", "right": deep}]}])));
    assert!(
        !validator.is_valid(
            &json!([{"kind": "Statement1", "body": [{"kind": "Statement2", "right": {"kind": "Pattern1"}}]}])
        )
    );
}

/// Long chains of references are walked without recursion, and refused: a validator would recurse.
#[test]
fn deep_chains_are_refused_before_they_overflow_the_stack() {
    assert!(matches!(refused(&chain(5_000, |next| json!({"$ref": next}))), BoundsError::Depth { .. }));
    // However many, each of these needs a level of the instance, which has its own limit.
    assert!(build(&chain(1_000, |next| json!({"properties": {"c": {"$ref": next}}}))).is_ok());
    assert!(passes(&chain(5_000, |next| json!({"properties": {"c": {"$ref": next}}}))).expanded < 5);
    assert!(passes(&chain(90, |next| json!({"$ref": next}))).expanded < 100);
    // A recursive schema pays its levels again for each level of the instance.
    let mut schema = chain(20, |next| json!({"allOf": [{"$ref": next}]}));
    schema["$defs"]["d20"] = json!({"properties": {"c": {"$ref": "#/$defs/d0"}}});
    assert!(matches!(refused(&schema), BoundsError::Depth { .. }));
}

/// What passes must not overflow the stack of a worker thread.
#[test]
fn the_deepest_that_pass_run_on_a_small_stack() {
    let shapes: [fn(Value) -> Value; 5] = [
        |next| json!({"allOf": [next, {"type": "object"}]}),
        |next| json!({"if": true, "then": next}),
        |next| json!({"dependentSchemas": {"c": next}, "type": "object"}),
        |next| json!({"oneOf": [next, {"type": "string"}]}),
        |next| json!({"anyOf": [next], "unevaluatedProperties": {"type": "object"}}),
    ];
    for shape in shapes {
        for levels in 1..60 {
            let inner = (0..levels).fold(json!({"properties": {"c": {"$ref": "#/$defs/N"}}}), |next, _| shape(next));
            let (deep, wide) = (recursive(inner), chain(levels, |next| shape(json!({"$ref": next}))));
            let wide = json!({"unevaluatedProperties": false, "$ref": wide["$ref"], "$defs": wide["$defs"]});
            let work = move || {
                for schema in [deep, wide].iter().filter(|schema| check(schema, MAX).is_ok()) {
                    let validator = build(schema).expect("compiles");
                    let instance = nest(126, "c", json!({}));
                    assert_eq!(validator.is_valid(&instance), validator.iter_errors(&instance).next().is_none());
                }
            };
            std::thread::Builder::new().stack_size(2 << 20).spawn(work).expect("a thread").join().expect("no overflow");
        }
    }
}

/// Counting must not become the attack: hundreds of names times thousands of schemas.
#[test]
fn the_count_itself_is_bounded() {
    let parts: Vec<Value> = (0..4_000)
        .map(|at| json!({"properties": {format!("p{at}"): true}, "additionalProperties": {"$ref": "#/$defs/N"}}))
        .collect();
    let _ = check(&json!({"$defs": {"N": {"type": "string"}}, "allOf": parts}), MAX);
    let mut definitions = chain(90, |next| json!({"$ref": next, "properties": {"x": true}}));
    definitions["$defs"]["d90"] =
        json!({"properties": (0..6_000).map(|at| (format!("p{at}"), json!(true))).collect::<Map<_, _>>()});
    assert!(matches!(refused(&definitions), BoundsError::Expansion { .. }));
}

/// Schema-like values: keywords with any values, so that most of the code is met.
fn schema_like() -> impl Strategy<Value = Value> {
    let keywords = [
        "$ref",
        "$dynamicRef",
        "$recursiveRef",
        "$id",
        "id",
        "$anchor",
        "$dynamicAnchor",
        "$recursiveAnchor",
        "$schema",
        "$defs",
        "definitions",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentSchemas",
        "dependencies",
        "properties",
        "patternProperties",
        "additionalProperties",
        "unevaluatedProperties",
        "propertyNames",
        "items",
        "prefixItems",
        "additionalItems",
        "contains",
        "unevaluatedItems",
        "x",
    ];
    let texts = [
        "#",
        "#/$defs/x",
        "#/properties/x",
        "#x",
        "x",
        "",
        "#/allOf/0",
        "#/%zz",
        "#/~2",
        "http://e.example/",
        "json-schema:///",
        "\u{0}",
        "%",
        "[",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "x#y#z",
        "//",
        "#/items",
        ":",
    ];
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!(null)),
        Just(json!(1)),
        prop::sample::select(texts.to_vec()).prop_map(|text| json!(text)),
        "\\PC{0,6}".prop_map(|text| json!(text)),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((prop::sample::select(keywords.to_vec()), inner), 0..6).prop_map(|pairs| {
                Value::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_value_is_answered(schema in schema_like()) {
        let first = measure(&schema, MAX);
        prop_assert_eq!(&first, &measure(&schema, MAX));
        if let Ok(bounds) = first {
            prop_assert!(bounds.expanded <= MAX);
        }
    }

    /// What passes is quick to run, and a reference that passes is one that the compiler finds.
    #[test]
    fn what_passes_does_not_hang_the_compiler(schema in schema_like()) {
        if check(&schema, 500).is_ok() && let Ok(validator) = build(&schema) {
            let _ = validator.is_valid(&nest(20, "x", json!([[1], {"x": {}}])));
        }
    }
}
