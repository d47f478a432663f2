//! The `unique` gate: the values are pairwise different.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde_json::Value;

use crate::contract::gate::At;
use crate::contract::gate::Build;
use crate::contract::gate::BuildError;
use crate::contract::gate::Finding;
use crate::contract::gate::Findings;
use crate::contract::gate::Gate;
use crate::contract::gate::Kind;
use crate::contract::gate::Presence;
use crate::contract::gate::written;
use crate::contract::scene::Scene;
use crate::json::decimal::Decimal;
use crate::json::query::Query;
use crate::json::tape::Place;
use crate::json::tape::What;

/// The kind.
pub const KIND: Kind = Kind { name: "unique", schema: |generator| Settings::json_schema(generator), build };

/// The path of values that are pairwise different: texts character for character, numbers by their value, arrays and
/// objects by what they hold.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "the settings are this text alone; the structure is their schema")]
struct Settings(String);

#[derive(Debug)]
struct UniqueGate {
    path: Query,
    presence: Presence,
}

fn build(settings: &Value, build: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let wrong = |error: BuildError| vec![BuildError { at: Vec::new(), ..error }];
    let path = written::path(settings, "").map_err(wrong)?;
    Ok(Box::new(UniqueGate { path, presence: build.presence }))
}

impl Gate for UniqueGate {
    fn check(&self, _: &Scene<'_>, found: &mut Findings<'_>) {
        let nodes = found.nodes(&self.path, self.presence);
        let mut seen: HashMap<String, Place<'_>> = HashMap::with_capacity(nodes.len());
        for node in nodes {
            let mut key = String::new();
            write(node.value, &mut key);
            let Some(first) = seen.get(&key).copied() else {
                seen.insert(key, node.place);
                continue;
            };
            found.report(At::Place(node.place), |at| {
                let path = first.path().to_string();
                let mut finding =
                    Finding::new(at, format!("expected a value of its own, found that of `{path}` again"));
                finding.with = vec![("first", Value::String(path))];
                finding
            });
        }
    }

    fn adds(&self) -> &'static [&'static str] {
        &["first"]
    }

    fn paths(&self) -> Vec<&Query> {
        vec![&self.path]
    }
}

/// Writes a value so that two are written alike only where they are equal. At most as deep as an answer may nest.
fn write(place: Place<'_>, out: &mut String) {
    match place.what() {
        What::Null | What::True | What::False => out.push_str(place.raw()),
        // A number as an integer and a power of ten, without trailing zeros.
        What::Number => match Decimal::read(place.raw()) {
            Ok(number) => {
                let text = number.to_string();
                let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
                out.push_str(if text == "-0" { "0" } else { text });
            }
            Err(_) => out.push_str(place.raw()),
        },
        What::String => quote(&place.text(), out),
        What::Array => {
            out.push('[');
            for element in place.elements() {
                write(element, out);
                out.push(',');
            }
            out.push(']');
        }
        What::Object => {
            let mut members: Vec<_> = place.members().map(|(key, value)| (key.text(), value)).collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            out.push('{');
            for (key, value) in members {
                quote(&key, out);
                write(value, out);
                out.push(',');
            }
            out.push('}');
        }
    }
}

/// A text with its length before it, so that no text can look like the end of another.
fn quote(text: &str, out: &mut String) {
    out.push_str(&format!("\"{}:", text.len()));
    out.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::gate::trial::Trial;
    use crate::contract::gate::trial::table;

    #[test]
    fn values_are_pairwise_different() {
        let (ids, all) = (r#""$.i[*].id""#, r#""$.i[*]""#);
        table(
            Trial::default,
            &KIND,
            &[
                (ids, r#"{"i":[{"id":1},{"id":2}]}"#, ""),
                (ids, r#"{"i":[]}"#, ""),
                (
                    ids,
                    r#"{"i":[{"id":1},{"id":1.0}]}"#,
                    "$['i'][1]['id']: expected a value of its own, found that of `$['i'][0]['id']` again",
                ),
                (ids, r#"{"i":[{"id":1},{}]}"#, "missing"),
                (ids, r#"{"i":[{"id":1},{"id":null}]}"#, "found null"),
                (ids, r#"{"i":3}"#, "expected an array"),
                (all, r#"{"i":["a","\u0061"]}"#, "again"),
                (all, r#"{"i":["a","A","ä","a\u0308","",1,"1",true,"true",[],{},["a"]]}"#, ""),
                (all, r#"{"i":[{"a":1,"b":[2]},{"b":[2.0],"a":1e0}]}"#, "$['i'][1]"),
                (all, r#"{"i":[{"a":1},{"a":2}]}"#, ""),
                (all, r#"{"i":[0,-0.0]}"#, "again"),
                (all, r#"{"i":[100,10]}"#, ""),
                (all, r#"{"i":["\"1:a",["a"]]}"#, ""),
            ],
        );
        assert!(Trial::default().optional().judged(&KIND, ids, r#"{"i":[{"id":null},{"id":null},{}]}"#).is_empty());
        assert_eq!(Trial::default().judged(&KIND, all, r#"{"i":[1,1,1]}"#).len(), 2);
        assert_eq!(Trial::default().with_evidence().judged(&KIND, all, r#"{"i":[{"value":1},1]}"#).len(), 1);
        let hostile = format!("{{\"i\":[{}{}]}}", "[".repeat(100), "]".repeat(100));
        assert!(Trial::default().judged(&KIND, all, &hostile).is_empty());
        assert!(Trial::default().refused(&KIND, "3")[0].contains("expected a path, found 3"));
        assert!(Trial::default().refused(&KIND, "\"a\"")[0].contains("not a JSONPath"));
    }
}
