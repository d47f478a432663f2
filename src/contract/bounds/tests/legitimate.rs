//! Schemas as people write them, which must pass.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::contract::bounds::tests::nest;
use crate::contract::bounds::tests::recursive;

/// Legitimate schemas, each with an instance that it accepts.
pub(super) fn legitimate() -> Vec<(&'static str, Value, Value)> {
    let n = || json!({"$ref": "#/$defs/N"});
    let wide: Map<String, Value> = (0..300).map(|at| (format!("p{at}"), json!({"type": ["string", "null"]}))).collect();
    let wide_nested: Map<String, Value> =
        (0..20).map(|at| (format!("o{at}"), json!({"type": "object", "properties": wide.clone()}))).collect();
    vec![
        (
            "list",
            recursive(json!({"type": "object", "properties": {"value": {"type": "integer"}, "next": n()}})),
            nest(60, "next", json!({"value": 1})),
        ),
        (
            "nullable list",
            recursive(json!({"type": "object", "properties": {"next": {"anyOf": [n(), {"type": "null"}]}}})),
            nest(60, "next", json!({"next": null})),
        ),
        (
            "tree",
            recursive(
                json!({"type": "object", "properties": {"left": n(), "right": n()}, "additionalProperties": false}),
            ),
            nest(60, "left", json!({"right": {}})),
        ),
        (
            "children",
            recursive(
                json!({"properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": n()}}, "required": ["v"]}),
            ),
            (0..25).fold(json!({"v": 1}), |inner, _| json!({"v": 1, "c": [inner]})),
        ),
        (
            "tuple",
            recursive(json!({"type": ["array", "null"], "prefixItems": [n(), n()], "items": false})),
            (0..60).fold(json!(null), |inner, _| json!([inner, null])),
        ),
        (
            "json value",
            recursive(json!({"anyOf": [
            {"type": ["string", "number", "boolean", "null"]}, {"type": "array", "items": n()}, {"type": "object", "additionalProperties": n()}]})),
            nest(60, "x", json!([1])),
        ),
        (
            "patterns apart",
            recursive(json!({"patternProperties": {"^x-": n(), "^y-": n()}, "additionalProperties": false})),
            nest(60, "x-a", json!({})),
        ),
        (
            "extended node",
            recursive(
                json!({"allOf": [{"properties": {"v": {"type": "integer"}, "c": n()}}], "properties": {"w": true}, "unevaluatedProperties": false}),
            ),
            nest(60, "c", json!({"v": 1, "w": 2})),
        ),
        (
            "recursive root",
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}}),
            nest(60, "next", json!({})),
        ),
        (
            "dynamic tree",
            json!({"$id": "https://e.example/tree", "$dynamicAnchor": "node", "type": "object",
            "properties": {"c": {"type": "array", "items": {"$dynamicRef": "#node"}}}}),
            json!({"c": [{"c": [{}]}]}),
        ),
        (
            "recursive 2019",
            json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true,
            "type": "object", "properties": {"c": {"$recursiveRef": "#"}}}),
            nest(60, "c", json!({})),
        ),
        (
            "wide and nested",
            json!({"type": "object", "properties": wide_nested, "additionalProperties": false}),
            json!({"o1": {"p1": "a"}, "o19": {"p299": null}}),
        ),
        (
            "composition",
            json!({
            "$defs": {"Base": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
                "Mid": {"allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"name": {"type": "string"}}}]}},
            "allOf": [{"$ref": "#/$defs/Mid"}, {"properties": {"age": {"type": "integer"}}}], "unevaluatedProperties": false}),
            json!({"id": "a", "name": "b", "age": 3}),
        ),
        (
            "anchors and ids",
            json!({
            "$id": "https://e.example/root.json",
            "$defs": {"a": {"$anchor": "word", "type": "string"}, "b": {"$id": "part.json", "$defs": {"c": {"type": "integer"}}, "$ref": "#/$defs/c"},
                "odd ~/name%": {"type": "boolean"}},
            "properties": {"a": {"$ref": "#word"}, "b": {"$ref": "part.json"}, "c": {"$ref": "https://e.example/part.json#/$defs/c"},
                "d": {"$ref": "#/$defs/odd%20~0~1name%25"}, "e": {"$ref": "root.json#word"}}}),
            json!({"a": "x", "b": 1, "c": 2, "d": true, "e": "y"}),
        ),
        (
            "draft 4",
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://e.example/r",
            "definitions": {"p": {"id": "#p", "type": "integer"}}, "properties": {"a": {"$ref": "#p"}, "b": {"$ref": "http://e.example/r#/definitions/p"}}}),
            json!({"a": 1, "b": 2}),
        ),
        // Up to draft 7 the siblings of a reference are no schema: this is no growth.
        (
            "draft 7 siblings",
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"N": {"type": "object",
            "properties": {"c": {"$ref": "#/definitions/N", "allOf": [{"$ref": "#/definitions/N"}, {"$ref": "#nowhere"}]}}}},
            "$ref": "#/definitions/N"}),
            nest(60, "c", json!({})),
        ),
        (
            "names that look like keywords",
            json!({"type": "object", "properties": {"$ref": {"type": "string"}, "allOf": {"type": "integer"},
            "properties": {"type": "object"}}, "enum": [{"$ref": "http://e.example/not-a-reference"}], "default": {"$ref": "#/nowhere"}}),
            json!({"$ref": "http://e.example/not-a-reference"}),
        ),
        (
            "pydantic",
            pydantic(),
            json!({"name": "a", "manager": {"name": "b", "reports": [{"name": "c"}]}, "pet": {"kind": "cat", "lives": 9}}),
        ),
        ("booleans", json!(true), json!(1)),
        ("empty", json!({}), json!(1)),
        ("draft 7 meta-schema", jsonschema_draft_7(), nest(50, "not", json!({"type": "string"}))),
    ]
}

fn pydantic() -> Value {
    json!({
        "$defs": {
            "Cat": {"properties": {"kind": {"const": "cat", "title": "Kind", "type": "string"}, "lives": {"title": "Lives", "type": "integer"}}, "required": ["kind", "lives"], "title": "Cat", "type": "object"},
            "Dog": {"properties": {"kind": {"const": "dog", "title": "Kind", "type": "string"}, "good": {"default": true, "type": "boolean"}}, "required": ["kind"], "title": "Dog", "type": "object"},
            "Person": {"properties": {
                "name": {"title": "Name", "type": "string"},
                "manager": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}], "default": null},
                "reports": {"items": {"$ref": "#/$defs/Person"}, "title": "Reports", "type": "array"},
                "pet": {"anyOf": [{"discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"}, "propertyName": "kind"}, "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}, {"type": "null"}], "default": null}},
                "required": ["name"], "title": "Person", "type": "object"}},
        "$ref": "#/$defs/Person"
    })
}

fn jsonschema_draft_7() -> Value {
    let list = json!({"type": "array", "minItems": 1, "items": {"$ref": "#"}});
    let map = json!({"type": "object", "additionalProperties": {"$ref": "#"}, "default": {}});
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "$id": "http://json-schema.org/draft-07/schema#",
        "definitions": {"schemaArray": list, "stringArray": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}},
        "type": ["object", "boolean"],
        "properties": {
            "$ref": {"type": "string", "format": "uri-reference"}, "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/definitions/schemaArray"}]},
            "additionalItems": {"$ref": "#"}, "contains": {"$ref": "#"}, "additionalProperties": {"$ref": "#"},
            "definitions": map, "properties": map, "patternProperties": map,
            "dependencies": {"type": "object", "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#/definitions/stringArray"}]}},
            "propertyNames": {"$ref": "#"}, "if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"},
            "allOf": {"$ref": "#/definitions/schemaArray"}, "anyOf": {"$ref": "#/definitions/schemaArray"},
            "oneOf": {"$ref": "#/definitions/schemaArray"}, "not": {"$ref": "#"}},
        "default": true
    })
}
