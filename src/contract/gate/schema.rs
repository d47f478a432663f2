//! The schema gate: implied by every contract with a schema, and first.

use crate::contract::instance::Judged;
use crate::contract::message;
use crate::contract::schema::CompiledSchema;
use crate::contract::schema::path_in;
use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::json::path::Path;
use crate::json::tape::Tape;

/// The gate's name and kind.
pub const NAME: &str = "schema";
/// Bytes of a key up to which violations are listed: each of them spells its whole path out.
const LISTED_KEY_MAX: usize = 1 << 10;

/// Judges `answer`, which must be JSON that was cut out strictly; none means that it passed.
pub fn check(schema: &CompiledSchema, answer: &str) -> Option<Violations> {
    match Tape::of(answer) {
        Ok(tape) => check_tape(schema, &tape),
        Err(fault) => {
            let message = format!("not checked: {fault}");
            Some(Violations::one(violation(NAME, Path::root(), message, answer)))
        }
    }
}

/// The same for an answer that was read already.
pub fn check_tape(schema: &CompiledSchema, tape: &Tape<'_>) -> Option<Violations> {
    let answer = tape.text();
    if tape.root().equals(schema.value()) {
        let message = "the answer is the schema itself, not an instance of it".to_owned();
        return Some(Violations::one(violation("schema_echo", Path::root(), message, answer)));
    }
    if schema.validator().is_valid(Judged::Place(tape.root())) {
        return None;
    }
    if !schema.can_list(tape.values()) || tape.longest_key() > LISTED_KEY_MAX {
        let message = "the answer breaks its schema; its violations cannot be listed in bounded time";
        return Some(Violations::one(violation(NAME, Path::root(), message.to_owned(), answer)));
    }
    let found = violations(schema, tape, answer);
    // The validator said no, so something must be said even if it then lists nothing.
    let unlisted = || violation(NAME, Path::root(), "the answer breaks its schema".to_owned(), answer);
    Some(found.unwrap_or_else(|| Violations::one(unlisted())))
}

fn violations(schema: &CompiledSchema, tape: &Tape<'_>, answer: &str) -> Option<Violations> {
    let root = Judged::Place(tape.root());
    let tree = tape.root().tree();
    let named = |error: jsonschema::ValidationError<'_>| {
        let path = path_in(&tree, error.instance_path().as_str());
        violation(NAME, path, message::of(&error), answer)
    };
    Violations::counted(schema.validator().iter_errors(root), named)
}

fn violation(kind: &'static str, path: Path, message: String, answer: &str) -> Violation {
    let at = path.locate(answer.as_bytes());
    Violation::own(NAME, kind, path, message, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SchemaLimits;

    fn found(schema: &str, answer: &str) -> Vec<String> {
        let schema = CompiledSchema::compile(schema.to_owned().into(), SchemaLimits::default()).unwrap();
        let found = check(&schema, answer);
        found.iter().flat_map(Violations::iter).map(|v| format!("{} {}: {}", v.kind, v.path, v.message)).collect()
    }

    #[test]
    fn every_violation_is_told_with_its_place() {
        let schema = r#"{"type":"object","required":["name","age","kind"],"additionalProperties":false,"properties":{
            "name":{"type":"string","minLength":2},"age":{"type":"integer","maximum":150},"kind":{"enum":["a","b"]},
            "tags":{"type":"array","items":{"type":"string"},"maxItems":2,"uniqueItems":true},
            "mail":{"type":"string","format":"email","pattern":"@example"},"n":{"multipleOf":0.5,"exclusiveMinimum":0},
            "u":{"anyOf":[{"type":"string"},{"type":"object","required":["x"]}]},"c":{"const":1},"z":false}}"#;
        let answer = r#"{"name":"A","age":"17","kind":"c","tags":["x","x",3],"mail":"nobody","n":0.3,"u":{},"c":true,"z":1,"extra":1,"it's":2}"#;
        insta::assert_snapshot!(found(schema, answer).join("\n"));
    }

    #[test]
    fn an_echo_of_the_schema_is_a_violation_even_where_it_is_valid() {
        let schema = r#"{"type":"object","properties":{"name":{"type":"string"}}}"#;
        assert_eq!(found(schema, r#"{"properties":{"name":{"type":"string"}},"type":"object"}"#).len(), 1);
        assert!(found(schema, r#"{"name":"x"}"#).is_empty());
    }

    #[test]
    fn values_are_quoted_up_to_eighty_characters() {
        let long = format!("\"{}\"", "x".repeat(500));
        let told = found(r#"{"type":"integer"}"#, &long).join("");
        assert!(told.contains('…') && told.len() < 200, "{told}");
    }

    #[test]
    fn a_recursive_union_is_refused_without_listing() {
        let schema = r##"{"$defs":{"E":{"anyOf":[{"type":"object","required":["l","r"],"properties":{"l":{"$ref":"#/$defs/E"},"r":{"$ref":"#/$defs/E"}}},{"type":"object","required":["not"],"properties":{"not":{"$ref":"#/$defs/E"}}},{"type":"integer"}]}},"$ref":"#/$defs/E"}"##;
        let deep = format!("{}\"x\"{}", "{\"not\":".repeat(100), "}".repeat(100));
        assert_eq!(found(schema, &deep).len(), 1);
        let good = format!("{}1{}", "{\"not\":".repeat(100), "}".repeat(100));
        assert!(found(schema, &good).is_empty());
    }

    #[test]
    fn a_huge_enum_of_objects_is_refused_without_listing() {
        let options: Vec<String> = (0..1_000).map(|i| format!("{{\"i\":{i}}}")).collect();
        let schema = format!("{{\"items\":{{\"enum\":[{}]}}}}", options.join(","));
        let answer = format!("[{}0]", "0,".repeat(500));
        assert_eq!(found(&schema, &answer).len(), 1);
    }

    /// Each of these once took gigabytes: an error for every value, each with a copy of a large part.
    #[test]
    fn what_would_take_gigabytes_to_list_is_refused_without_listing() {
        let keys = |count: usize| (0..count).map(|i| format!("\"k{i}\":1")).collect::<Vec<_>>().join(",");
        let names = r#"{"type":"object","propertyNames":{"pattern":"^[a-z]+$"}}"#;
        assert_eq!(found(names, &format!("{{{}}}", keys(10_000))).len(), 100);
        assert_eq!(found(names, &format!("{{{}}}", keys(300_000))).len(), 1);
        let all = format!(r#"{{"allOf":[{}]}}"#, vec![r#"{"type":"string"}"#; 500].join(","));
        assert_eq!(found(&all, &format!("[{}0]", "0,".repeat(120_000))).len(), 1);
        let any = all.replace("allOf", "anyOf");
        assert_eq!(found(&any, &format!("[{}0]", "0,".repeat(120_000))).len(), 1);
        let long = format!("{{\"{}\":[{}\"a\"]}}", "k".repeat(100_000), "\"a\",".repeat(20_000));
        assert_eq!(found(r#"{"additionalProperties":{"items":{"type":"integer"}}}"#, &long).len(), 1);
    }
}
