//! Schemas as clients send them: each gets an instance that it accepts, and one that it refuses.

use proptest::prelude::*;
use serde_json::Value;
use serde_json::json;

use crate::upstream::sample::instance;
use crate::upstream::sample::validator;
use crate::upstream::sample::wrong_type;

fn file(text: &str) -> Value {
    serde_json::from_str(text).expect("the schema is JSON")
}

/// Schemas of real clients.
fn schemas() -> Vec<(&'static str, Value)> {
    let mut all = vec![
        ("order", file(include_str!("../../../tests/schemas/order.schema.json"))),
        ("ticket", file(include_str!("../../../tests/schemas/ticket.schema.json"))),
        ("invoice", file(include_str!("../../../tests/schemas/invoice.schema.json"))),
        ("statement", file(include_str!("../../../tests/schemas/statement.schema.json"))),
    ];
    all.extend(structured());
    all.extend(unions());
    all.extend(details());
    all
}

fn structured() -> Vec<(&'static str, Value)> {
    vec![
        (
            "calendar event, strict",
            json!({"type": "object", "properties": {"name": {"type": "string"}, "date": {"type": "string"},
            "participants": {"type": "array", "items": {"type": "string"}}}, "required": ["name", "date", "participants"], "additionalProperties": false}),
        ),
        (
            "maths tutor",
            json!({"type": "object", "properties": {"steps": {"type": "array", "items": {"type": "object",
            "properties": {"explanation": {"type": "string"}, "output": {"type": "string"}}, "required": ["explanation", "output"], "additionalProperties": false}},
            "final_answer": {"type": "string"}}, "required": ["steps", "final_answer"], "additionalProperties": false}),
        ),
        (
            "pydantic nested",
            json!({"$defs": {"Address": {"properties": {"street": {"title": "Street", "type": "string"}, "city": {"title": "City", "type": "string"},
            "zip_code": {"pattern": "^\\d{5}(-\\d{4})?$", "title": "Zip", "type": "string"}}, "required": ["street", "city", "zip_code"], "title": "Address", "type": "object"}},
            "properties": {"name": {"type": "string"}, "age": {"exclusiveMinimum": 0, "maximum": 150, "type": "integer"}, "email": {"format": "email", "type": "string"},
            "address": {"$ref": "#/$defs/Address"}, "tags": {"items": {"type": "string"}, "type": "array", "uniqueItems": true, "minItems": 3}},
            "required": ["name", "age", "email", "address", "tags"], "title": "User", "type": "object"}),
        ),
        (
            "pydantic optional",
            json!({"properties": {"nickname": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}], "default": null},
            "height": {"anyOf": [{"type": "number", "minimum": 0, "exclusiveMaximum": 3}, {"type": "null"}]}}, "required": ["height"], "type": "object"}),
        ),
        (
            "linked list",
            json!({"$defs": {"Node": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/Node"}},
            "required": ["value"], "additionalProperties": false}}, "$ref": "#/$defs/Node"}),
        ),
        (
            "linked list, required",
            json!({"$defs": {"Node": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
            "required": ["value", "next"], "additionalProperties": false}}, "type": "object", "properties": {"head": {"$ref": "#/$defs/Node"}}, "required": ["head"]}),
        ),
        (
            "ui tree, recursive root",
            json!({"type": "object", "properties": {"type": {"type": "string", "enum": ["div", "button", "form"]}, "label": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#"}}, "attributes": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
            "required": ["name", "value"], "additionalProperties": false}}}, "required": ["type", "label", "children", "attributes"], "additionalProperties": false}),
        ),
        (
            "zod to draft 7",
            json!({"$ref": "#/definitions/Weather", "definitions": {"Weather": {"type": "object", "properties": {"location": {"type": "string", "minLength": 1},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}, "days": {"type": "integer", "minimum": 1, "maximum": 16}, "at": {"type": "string", "format": "date-time"}},
            "required": ["location", "unit", "days", "at"], "additionalProperties": false}}, "$schema": "http://json-schema.org/draft-07/schema#"}),
        ),
        (
            "composition",
            json!({"$defs": {"Base": {"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}}, "required": ["id"]}},
            "allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"price": {"type": "number", "multipleOf": 0.01, "minimum": 0.99, "maximum": 1}}, "required": ["price"]}], "unevaluatedProperties": false}),
        ),
    ]
}

fn unions() -> Vec<(&'static str, Value)> {
    vec![
        (
            "discriminated",
            json!({"type": "object", "properties": {"pet": {"discriminator": {"propertyName": "kind"}, "oneOf": [
            {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["kind", "lives"], "additionalProperties": false},
            {"type": "object", "properties": {"kind": {"const": "dog"}, "good": {"type": "boolean"}}, "required": ["kind", "good"], "additionalProperties": false}]}}, "required": ["pet"]}),
        ),
        (
            "overlapping oneOf",
            json!({"oneOf": [{"type": "number"}, {"type": "integer"}, {"type": "string", "format": "ipv4"}]}),
        ),
        (
            "expression",
            json!({"$ref": "#/$defs/E", "$defs": {"E": {"anyOf": [
            {"type": "object", "properties": {"op": {"enum": ["add", "mul"]}, "left": {"$ref": "#/$defs/E"}, "right": {"$ref": "#/$defs/E"}}, "required": ["op", "left", "right"], "additionalProperties": false},
            {"type": "object", "properties": {"number": {"type": "number"}}, "required": ["number"], "additionalProperties": false}]}}}),
        ),
        (
            "condition",
            json!({"type": "object", "properties": {"country": {"enum": ["US", "PT"]}, "zip": {"type": "string"}}, "required": ["country", "zip"],
            "if": {"properties": {"country": {"const": "US"}}}, "then": {"properties": {"zip": {"pattern": "^[0-9]{5}$"}}}, "else": {"properties": {"zip": {"pattern": "^[0-9]{4}-[0-9]{3}$"}}}}),
        ),
        (
            "excluding options",
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "not": {"required": ["a", "b"]}}),
        ),
        (
            "nullable enum",
            json!({"type": "object", "properties": {"level": {"type": ["string", "null"], "enum": ["low", "high", null]}}, "required": ["level"]}),
        ),
    ]
}

fn details() -> Vec<(&'static str, Value)> {
    vec![
        ("map", json!({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 3})),
        (
            "pattern map",
            json!({"type": "object", "patternProperties": {"^x-[a-z]{3,8}$": {"type": "boolean"}}, "additionalProperties": false, "minProperties": 1}),
        ),
        (
            "named map",
            json!({"type": "object", "propertyNames": {"enum": ["en", "pt", "ja"]}, "additionalProperties": {"type": "string"}, "minProperties": 2}),
        ),
        (
            "tuple",
            json!({"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": false, "minItems": 2}),
        ),
        (
            "draft 7 tuple",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"type": "number"}, {"type": "string"}], "additionalItems": {"type": "boolean"}, "minItems": 4}),
        ),
        (
            "contains",
            json!({"type": "array", "items": {"type": "integer"}, "contains": {"type": "integer", "minimum": 100}, "minItems": 2}),
        ),
        (
            "draft 4 bounds",
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "minimum": 5, "exclusiveMinimum": true, "maximum": 6, "exclusiveMaximum": true}),
        ),
        (
            "numbers",
            json!({"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 7, "minimum": 100}, "b": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001},
            "c": {"type": "integer", "maximum": -5}, "d": {"type": "number", "multipleOf": 2.5, "minimum": -3, "maximum": -2}, "e": {"type": "integer", "minimum": 12345678901234567890_u64}}}),
        ),
        (
            "formats",
            json!({"type": "object", "properties": {"a": {"type": "string", "format": "date"}, "b": {"type": "string", "format": "time"}, "c": {"type": "string", "format": "uri"}, "d": {"type": "string", "format": "ipv6"},
            "e": {"type": "string", "format": "hostname"}, "f": {"type": "string", "format": "duration"}, "g": {"type": "string", "format": "uuid"}, "h": {"type": "string", "format": "x-unknown"}}}),
        ),
        (
            "lengths",
            json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 40, "maxLength": 41}, "b": {"type": "string", "maxLength": 1}, "c": {"type": "string", "minLength": 3, "maxLength": 3}}}),
        ),
        (
            "patterns",
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(INV|ORD)-[0-9]{4}-[A-Z]+$"}, "b": {"type": "string", "pattern": "^[^@\\s]+@[^@\\s]+\\.[a-z]{2,}$"},
            "c": {"type": "string", "pattern": "^\\+?[1-9]\\d{7,14}$"}, "d": {"type": "string", "pattern": "^[a-z0-9]+(?:-[a-z0-9]+)*$", "minLength": 12}, "e": {"type": "string", "pattern": "^#[0-9a-fA-F]{6}$"}}}),
        ),
        (
            "examples",
            json!({"type": "object", "properties": {"a": {"type": "string", "examples": ["as given"]}, "b": {"type": "integer", "default": "not a number"}, "c": {"type": "integer", "default": 3, "minimum": 4}}}),
        ),
        (
            "no types",
            json!({"properties": {"a": {"minimum": 3}, "b": {"items": {"const": "x"}}, "c": {"maxLength": 2}, "d": {}}}),
        ),
        (
            "anchors",
            json!({"$id": "https://e.example/r", "$defs": {"a b": {"$anchor": "word", "type": "integer"}}, "type": "array", "prefixItems": [{"$ref": "#word"}, {"$ref": "#/$defs/a%20b"}, {"$ref": "r#word"}], "minItems": 3}),
        ),
    ]
}

#[test]
fn each_schema_accepts_its_instance_and_refuses_the_wrong_one() {
    for (name, schema) in schemas() {
        let validator = validator(&schema).unwrap_or_else(|| panic!("{name} compiles"));
        for seed in 0..5 {
            let value = instance(&schema, seed);
            assert!(validator.is_valid(&value), "{name}: {value}: {:?}", validator.validate(&value).err());
            assert_eq!(value, instance(&schema, seed), "{name}");
            let wrong = wrong_type(&schema, &value);
            assert!(!validator.is_valid(&wrong), "{name}: {wrong}");
        }
    }
}

#[test]
fn words_follow_names() {
    let schema = json!({"type": "object", "properties": {
        "name": {"type": "string"}, "city": {"type": "string"}, "email": {"type": "string"}, "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
        "quantity": {"type": "integer"}, "createdAt": {"type": "string"}, "invoice_date": {"type": "string"}, "people": {"type": "array", "items": {"type": "object", "properties": {"firstName": {"type": "string"}}}}}});
    let expected = json!({"name": "Ada Lovelace", "city": "Lisbon", "email": "ada@example.com", "currency": "EUR", "quantity": 2, "createdAt": "2025-03-14T09:30:00Z",
        "invoice_date": "2025-03-14", "people": [{"firstName": "Ada"}, {"firstName": "Grace"}]});
    assert_eq!(instance(&schema, 0), expected);
    assert_ne!(instance(&schema, 1), expected);
    assert_eq!(
        instance(&json!({"type": "object", "properties": {"a": {"type": "string", "examples": ["as given"]}}}), 7),
        json!({"a": "as given"})
    );
}

#[test]
fn order_follows_the_schema() {
    let schema = json!({"type": "object", "properties": {"z": {"type": "null"}, "a": {"type": "null"}, "m": {"type": "null"}}, "required": ["m"]});
    assert_eq!(instance(&schema, 0).to_string(), r#"{"z":null,"a":null,"m":null}"#);
}

#[test]
fn recursion_ends() {
    let schema = json!({"$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}, "required": ["next"]}}, "$ref": "#/$defs/N"});
    // No finite instance exists: the best attempt is finite all the same.
    assert!(instance(&schema, 0).to_string().len() < 10_000);
    let tree = json!({"type": "object", "properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#"}}}, "required": ["v", "c"]});
    assert_eq!(instance(&tree, 0), json!({"v": 3, "c": [{"v": 3, "c": []}, {"v": 4, "c": []}]}));
}

#[test]
fn a_hostile_schema_is_answered_soon() {
    let definitions: serde_json::Map<String, Value> = (0..40)
        .map(|at| {
            (
                format!("d{at}"),
                json!({"allOf": [{"$ref": format!("#/$defs/d{}", at + 1)}, {"$ref": format!("#/$defs/d{}", at + 1)}]}),
            )
        })
        .collect();
    let schemas = [
        json!({"$ref": "#/$defs/d0", "$defs": definitions}),
        json!({"$ref": "#"}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"type": "array", "minItems": 1_000_000_000, "items": {"type": "array", "minItems": 1_000_000_000}}),
        json!({"type": "string", "minLength": 4_000_000_000_u64}),
        json!({"minProperties": 1_000_000_000}),
        json!({"type": "string", "pattern": "(((a{1000}){1000}){1000}){1000}"}),
        json!({"type": "number", "minimum": serde_json::from_str::<Value>("1e400").expect("a number")}),
        json!({"enum": []}),
        json!({"type": []}),
        json!(false),
        json!(7),
    ];
    for schema in schemas {
        let value = instance(&schema, 0);
        assert!(value.to_string().len() < 4_000_000, "{schema}");
        let _ = wrong_type(&schema, &value);
    }
}

#[test]
fn the_wrong_one_is_a_likely_mistake() {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}, "quantity": {"type": "integer"}}, "required": ["name", "quantity"]});
    assert_eq!(wrong_type(&schema, &json!({"name": "a", "quantity": 2})), json!({"name": "a", "quantity": "2"}));
    // What a schema does not care about is left, and what it takes of any type is not chosen.
    assert_eq!(
        wrong_type(
            &json!({"properties": {"a": {"type": ["number", "string"]}, "b": {"type": "boolean"}}}),
            &json!({"a": 1, "b": true})
        ),
        json!({"a": 1, "b": "true"})
    );
    assert_eq!(wrong_type(&json!(true), &json!({"a": 1})), json!({"a": 1}));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A schema that only lists what a value may be is always met.
    #[test]
    fn bounds_are_met(low in -1000_i64..1000, width in 0_i64..50, seed: u64) {
        let schema = json!({"type": "integer", "minimum": low, "maximum": low + width});
        let value = instance(&schema, seed);
        prop_assert!(value.as_i64().is_some_and(|value| (low..=low + width).contains(&value)), "{}", value);
    }

    #[test]
    fn lengths_are_met(least in 0_usize..60, more in 0_usize..5, seed: u64) {
        let schema = json!({"type": "string", "minLength": least, "maxLength": least + more});
        let length = instance(&schema, seed).as_str().map(|text| text.chars().count());
        prop_assert!(length.is_some_and(|length| (least..=least + more).contains(&length)));
    }

    #[test]
    fn any_pattern_is_survived(pattern in "[\\^\\$a-c\\[\\]\\(\\)\\|\\*\\+\\?\\{\\}0-9,\\\\d\\.\\-]{0,20}", seed: u64) {
        let _ = instance(&json!({"type": "string", "pattern": pattern}), seed);
    }
}
