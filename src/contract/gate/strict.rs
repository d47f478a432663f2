//! The `schema` gate of a policy's own: what the schema lets pass and yet does not declare.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::contract::declared::Declared;
use crate::contract::declared::Met;
use crate::contract::declared::Unknown;
use crate::contract::gate;
use crate::contract::gate::Build;
use crate::contract::gate::BuildError;
use crate::contract::gate::Findings;
use crate::contract::gate::Gate;
use crate::contract::gate::Kind;
use crate::contract::gate::written;
use crate::contract::gate::written::quoted;
use crate::contract::scene::Scene;
use crate::json::tape::Place;
use crate::json::tape::What;

/// The kind.
pub const KIND: Kind = Kind { name: "schema", schema: |generator| Settings::json_schema(generator), build };

/// Reads the schema more strictly than JSON Schema does.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// `1.0` and `1e0` are no integers, and members that no part of the schema declares fail at every level, whatever
    /// `additionalProperties` says. `additionalProperties` with a schema declares all other members.
    strict_types: bool,
}

#[derive(Debug)]
struct StrictGate;

fn build(settings: &Value, _: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let Settings { strict_types } = written::settings(settings)?;
    match strict_types {
        true => Ok(Box::new(StrictGate)),
        false => Err(vec![BuildError::at("strict_types", "expected `true`: without it the gate checks nothing")]),
    }
}

impl Gate for StrictGate {
    fn check(&self, scene: &Scene<'_>, found: &mut Findings<'_>) {
        if scene.schemas.is_empty() {
            return found.say(gate::At::Answer, || "not checked: there is no schema".to_owned());
        }
        let mut declared = Declared::default();
        let roots = scene.schemas.iter().map(|schema| schema.value());
        // Each schema declares for itself: of two, both must declare what stands in the answer.
        for root in roots {
            let unknown = declared.top([root]).and_then(|top| check(&mut declared, scene.answer.root(), top, found));
            if let Err(unknown) = unknown {
                found.say(gate::At::Answer, || format!("not checked: {unknown}"));
            }
        }
    }
}

fn check<'s, 'a>(
    declared: &mut Declared<'s>,
    root: Place<'a>,
    top: Met<'s>,
    found: &mut Findings<'_>,
) -> Result<(), Unknown> {
    let mut open = vec![(root, top)];
    while let Some((place, met)) = open.pop() {
        if found.is_blocked(place) {
            continue;
        }
        let first = open.len();
        match place.what() {
            What::Number if !place.raw().bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()) => {
                let says = |name: &str, branches: bool| {
                    met.iter().any(|at| {
                        let types = at.schema.get("type");
                        let names = types.is_some_and(|types| {
                            types == name || types.as_array().is_some_and(|list| list.iter().any(|one| one == name))
                        });
                        names && (at.is_branch || !branches)
                    })
                };
                let own = met.iter().any(|at| {
                    let list = at.schema.get("type").and_then(Value::as_array);
                    list.is_some_and(|list| list.iter().any(|one| one == "number"))
                });
                if says("integer", false) && !says("number", true) && !own {
                    found.say(gate::At::Place(place), || {
                        format!("expected an integer written as one, found {}", quoted(place.raw()))
                    });
                }
            }
            What::Array => {
                for (index, element) in place.elements().enumerate() {
                    if matches!(element.what(), What::Array | What::Object | What::Number) {
                        open.push((element, declared.element(&met, index)?));
                    }
                }
            }
            What::Object => {
                for (key, value) in place.members() {
                    let key = key.text();
                    let below = declared.member(&met, &key)?;
                    if below.is_empty() {
                        found.say(gate::At::Place(value), || format!("the schema declares no member {}", quoted(&key)));
                    } else {
                        open.push((value, below));
                    }
                }
            }
            _ => {}
        }
        open.get_mut(first..).unwrap_or_default().reverse(); // so that violations come in the order of the text
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::gate::trial::Trial;

    fn told(schema: &str, answer: &str) -> String {
        Trial::default().with_schema(schema).judged(&KIND, r#"{"strict_types": true}"#, answer).join("; ")
    }

    #[test]
    fn integers_are_written_as_integers() {
        for (types, number, ok) in [
            (r#"{"type":"integer"}"#, "1", true),
            (r#"{"type":"integer"}"#, "-12345678901234567890123", true),
            (r#"{"type":"integer"}"#, "1.0", false),
            (r#"{"type":"integer"}"#, "1e0", false),
            (r#"{"type":"number"}"#, "1.0", true),
            (r#"{"type":["integer","null"]}"#, "1.0", false),
            (r#"{"type":["integer"]}"#, "1.0", false),
            (r#"{"type":["integer","number"]}"#, "1.0", true),
            (r#"{"anyOf":[{"type":"integer"},{"type":"number"}]}"#, "1.0", true),
            (r#"{"anyOf":[{"type":"integer"},{"type":"string"}]}"#, "1.0", false),
            (r#"{"allOf":[{"type":"integer"},{"type":"number"}]}"#, "1.0", false),
            (r##"{"$ref":"#/$defs/n"}"##, "1.0", false),
            (r##"{"$ref":"#whole"}"##, "1.0", false),
            ("true", "1.0", true),
        ] {
            let schema = format!(
                r#"{{"properties":{{"a":{types}}},"$defs":{{"n":{{"type":"integer"}},"m":{{"anyOf":[true,{{"$anchor":"whole","type":"integer"}}]}}}}}}"#
            );
            let told = told(&schema, &format!(r#"{{"a":{number}}}"#));
            assert_eq!(told.is_empty(), ok, "{types} {number}: {told}");
        }
        assert!(
            told(r#"{"items":{"type":"integer"}}"#, "[1,2.0]")
                .starts_with("$[1]: expected an integer written as one, found `2.0`")
        );
        assert!(
            told(r#"{"prefixItems":[{"type":"number"}],"items":{"type":"integer"}}"#, "[1.0,2.0]").starts_with("$[1]")
        );
    }

    #[test]
    fn members_that_no_part_declares_fail_at_every_level() {
        let schema = r##"{"$id":"https://example.com/s","properties":{"a":{"properties":{"b":{"$ref":"#/$defs/x"},"list":{"items":{"$ref":"https://example.com/s#/$defs/x"}}}},
            "open":{"additionalProperties":{"type":"string"}},"loose":{"additionalProperties":true},"free":{},
            "t":{"$ref":"#node"},"p":{"patternProperties":{"^x-":true}}},
            "allOf":[{"properties":{"all":true}}],"anyOf":[{"properties":{"any":true}}],"if":{"properties":{"if":true}},
            "$defs":{"x":{"properties":{"c":true}},"t":{"$anchor":"node","properties":{"n":{"$ref":"#node"},"v":true}}}}"##;
        for (answer, expected) in [
            (r#"{"a":{"b":{"c":1}},"all":1,"any":2,"if":3}"#, ""),
            (r#"{"z":1}"#, "$['z']: the schema declares no member `z`"),
            (r#"{"a":{"b":{"d":1}}}"#, "$['a']['b']['d']: the schema declares no member `d`"),
            (r#"{"a":{"list":[{"c":1},{"é":1}]}}"#, "$['a']['list'][1]['é']: the schema declares no member `é`"),
            (r#"{"open":{"x":"y"}}"#, ""),
            (r#"{"loose":{"x":1}}"#, "$['loose']['x']: the schema declares no member `x`"),
            (r#"{"free":{"x":1}}"#, "$['free']['x']: the schema declares no member `x`"),
            (r#"{"free":[1.0,"x",null]}"#, ""),
            (r#"{"p":{"x-1":1}}"#, ""),
            (r#"{"p":{"y-1":1}}"#, "$['p']['y-1']: the schema declares no member `y-1`"),
            (r#"{"t":{"n":{"n":{"v":1}}}}"#, ""),
            (r#"{"t":{"n":{"n":{"w":1}}}}"#, "$['t']['n']['n']['w']: the schema declares no member `w`"),
            ("{}", ""),
            ("null", ""),
        ] {
            assert_eq!(told(schema, answer), expected, "{answer}");
        }
    }

    #[test]
    fn without_a_schema_it_is_not_checked_and_of_two_both_declare() {
        let strict = r#"{"strict_types": true}"#;
        assert!(Trial::default().judged(&KIND, strict, "{}")[0].contains("there is no schema"));
        let mut two =
            Trial::default().with_schema(r#"{"properties":{"a":true}}"#).with_schema(r#"{"properties":{"b":true}}"#);
        assert_eq!(two.judged(&KIND, strict, r#"{"a":1,"b":1}"#).len(), 2);
        assert!(Trial::default().refused(&KIND, r#"{"strict_types": false}"#)[0].starts_with("strict_types: "));
        assert!(Trial::default().refused(&KIND, "{}")[0].contains("missing field"));
    }

    #[test]
    fn much_work_is_not_done() {
        let schema = r##"{"$ref":"#/$defs/t","$defs":{"t":{"items":{"$ref":"#/$defs/t"}}}}"##;
        let answer = format!("[{}[]]", "[[1.0]],".repeat(100_000));
        assert!(told(schema, &answer).contains("not checked: the schema declares more"));
    }
}
