//! JSON Schemas, bounded before they are compiled, and compiled once.

use bytes::Bytes;
use jsonschema::PatternOptions;
use jsonschema::ValidationError;
use jsonschema::Validator;
use serde_json::Value;

use crate::contract::bounds;
use crate::contract::bounds::BoundsError;
use crate::contract::instance::OnTape;
use crate::contract::message;
use crate::contract::pattern;
use crate::digest::Digest;
use crate::extraction::Admits;
use crate::json::JsonFault;
use crate::json::check;
use crate::json::compare;
use crate::json::path::Path;
use crate::json::path::Segment;
use crate::json::string;
use crate::json::tree;
use crate::settings::SchemaLimits;

/// Steps that a pattern with look-around may take on one string; more of them is a violation.
const BACKTRACK_MAX: usize = 100_000;
/// Bytes that one compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A schema ready to judge with. It keeps its exact text, which is what the model is shown.
#[derive(Debug)]
pub struct CompiledSchema {
    text: Bytes,
    value: Value,
    digest: Digest,
    validator: Validator<OnTape>,
    admits: Admits,
    /// How many violations one value can have at the most; none where that knows no bound.
    met: Option<usize>,
    escaped: Bytes,
    squashed: String,
}

/// Why a schema cannot be used. All of these are the caller's to mend.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// Its text is no JSON, or holds a key twice.
    #[error("the schema is not strict JSON: {0}")]
    Json(JsonFault),
    /// Its text has too many bytes.
    #[error("the schema has {found} bytes, at most {max} are allowed")]
    Bytes {
        /// How many it has.
        found: usize,
        /// `limits.schema.bytes`
        max: usize,
    },
    /// It is nested too deeply.
    #[error("the schema is nested {found} deep, at most {max} is allowed")]
    Depth {
        /// How deep it is.
        found: usize,
        /// `limits.schema.depth`
        max: usize,
    },
    /// It is beyond what may be compiled, or a reference leads nowhere.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// It is no schema of its draft.
    #[error("{path}: {message}")]
    Invalid {
        /// Where in the schema.
        path: Path,
        /// What its meta-schema or the compiler says.
        message: String,
    },
    /// Compiling it ended the thread that did it: a fault of ours, or of the compiler's.
    #[error("the schema could not be compiled")]
    Unfinished,
}

impl CompiledSchema {
    /// Checks and compiles a schema. Milliseconds for a large one, so not on a thread that serves others.
    pub fn compile(text: Bytes, limits: SchemaLimits) -> Result<Self, SchemaError> {
        if text.len() > limits.bytes {
            return Err(SchemaError::Bytes { found: text.len(), max: limits.bytes });
        }
        let said = std::str::from_utf8(&text).map_err(|error| {
            SchemaError::Json(JsonFault::new(crate::json::JsonFaultKind::Expected("UTF-8"), error.valid_up_to()))
        })?;
        let value = tree::parse(said).map_err(SchemaError::Json)?;
        let depth = check::depth(&text);
        if depth > limits.depth {
            return Err(SchemaError::Depth { found: depth, max: limits.depth });
        }
        if !(value.is_object() || value.is_boolean()) {
            let message = "expected an object, `true` or `false`".to_owned();
            return Err(SchemaError::Invalid { path: Path::root(), message });
        }
        known_draft(&value)?;
        let bounds = bounds::measure(&value, limits.expanded)?;
        let validator = validator(&value)?;
        let admits = admits(&value);
        let bounded = !bounds.errors_grow && heavy_options(&value) <= HEAVY_OPTIONS_MAX;
        let met = bounded.then_some(bounds.expanded);
        let mut escaped = Vec::with_capacity(text.len() + text.len() / 4);
        string::escape_onto(said, &mut escaped);
        let squashed = said.split_ascii_whitespace().collect();
        let (digest, escaped) = (Digest::of(&text), escaped.into());
        Ok(Self { digest, value, validator, admits, met, escaped, squashed, text })
    }

    /// The exact text.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The exact text as the inside of a JSON string.
    pub fn escaped(&self) -> &Bytes {
        &self.escaped
    }

    /// The text without its white space, to be found in a prompt whatever its layout there.
    pub fn squashed(&self) -> &str {
        &self.squashed
    }

    /// The digest of the exact text.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The schema as a tree.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Which containers it admits at the top.
    pub fn admits(&self) -> Admits {
        self.admits
    }

    /// Whether the violations of an answer of this many values can be listed in bounded time and memory: the
    /// validator makes all of them before the first can be read. It remembers what it found of a recursive
    /// union only when it answers yes or no, and copies the options of an `enum` into every error.
    pub fn can_list(&self, values: usize) -> bool {
        self.met.is_some_and(|met| values.saturating_mul(met.max(1)) <= LISTING_MAX)
    }

    /// The compiled validator.
    pub fn validator(&self) -> &Validator<OnTape> {
        &self.validator
    }
}

/// Members of a schema that say nothing about instances.
const ANNOTATIONS: [&str; 9] =
    ["title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "$schema"];

/// Whether two schemas are the same once what says nothing about instances is taken away. Their depth was bounded when they
/// were compiled.
pub fn same_constraints(one: &CompiledSchema, two: &CompiledSchema) -> bool {
    one.digest == two.digest || compare::equal(&bare(&one.value, true), &bare(&two.value, true))
}

/// A schema without its annotations. Under `properties` and the like, names are members and no keywords.
fn bare(schema: &Value, keywords: bool) -> Value {
    match schema {
        Value::Object(members) => Value::Object(
            members
                .iter()
                .filter(|(key, _)| !(keywords && ANNOTATIONS.contains(&key.as_str())))
                .map(|(key, value)| {
                    let literal = keywords && matches!(key.as_str(), "enum" | "const");
                    let named = keywords
                        && matches!(
                            key.as_str(),
                            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                        );
                    (key.clone(), if literal { value.clone() } else { bare(value, !named) })
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(|item| bare(item, keywords)).collect()),
        other => other.clone(),
    }
}

/// Violations that the validator may have to make to list those of one answer: some 300 bytes each.
const LISTING_MAX: usize = 200_000;
/// Containers among the options of all `enum`s up to which violations are listed.
const HEAVY_OPTIONS_MAX: usize = 500;

/// How many objects and arrays stand among the options of the schema's `enum`s.
fn heavy_options(schema: &Value) -> usize {
    match schema {
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| match value {
                Value::Array(options) if key == "enum" => {
                    options.iter().filter(|option| option.is_object() || option.is_array()).count()
                }
                other => heavy_options(other),
            })
            .sum(),
        Value::Array(items) => items.iter().map(heavy_options).sum(),
        _ => 0,
    }
}

/// The drafts that are known, without scheme and fragment.
const DRAFTS: [&str; 5] = [
    "json-schema.org/draft/2020-12/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft-06/schema",
    "json-schema.org/draft-04/schema",
];

/// Refuses a `$schema` that is none of the drafts: nobody could say what the schema means.
fn known_draft(schema: &Value) -> Result<(), SchemaError> {
    let Some(named) = schema.get("$schema") else { return Ok(()) };
    let bare = named.as_str().map(|uri| uri.trim_end_matches('#'));
    let bare = bare.and_then(|uri| uri.strip_prefix("https://").or(uri.strip_prefix("http://")));
    if bare.is_some_and(|bare| DRAFTS.contains(&bare)) {
        return Ok(());
    }
    let message = format!("expected draft 2020-12, 2019-09, 7, 6 or 4, found {}", message::value(named));
    Err(SchemaError::Invalid { path: Path::root().key("$schema"), message })
}

/// Compiles with linear-time patterns; only where one needs look-around, with the backtracking engine,
/// bounded in its steps.
fn validator(schema: &Value) -> Result<Validator<OnTape>, SchemaError> {
    let options = || {
        jsonschema::options_for::<OnTape>().offline().should_validate_formats(true).should_ignore_unknown_formats(true)
    };
    let linear = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
    let first = match options().with_pattern_options(linear).build(schema) {
        Ok(validator) => return Ok(validator),
        Err(error) => error,
    };
    if pattern::looks_around(schema) {
        let backtracking = PatternOptions::fancy_regex()
            .backtrack_limit(BACKTRACK_MAX)
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX);
        let spelt_out = pattern::spelt_out(schema)
            .map_err(|found| SchemaError::Invalid { path: Path::root(), message: found.to_string() })?;
        let built = options().with_pattern_options(backtracking).build(&spelt_out);
        return built.map_err(|error| invalid(schema, &error));
    }
    Err(invalid(schema, &first))
}

fn invalid(schema: &Value, error: &ValidationError<'_>) -> SchemaError {
    let path = path_in(schema, error.instance_path().as_str());
    let types = "expected `array`, `boolean`, `integer`, `null`, `number`, `object`, `string`, or a list of them";
    let message = match path.segments().last() {
        Some(Segment::Key(key)) if key == "type" => format!("{types}; found {}", message::value(error.instance())),
        _ => message::of(error),
    };
    SchemaError::Invalid { path, message }
}

/// Which containers a schema admits at its top, as far as `type` and local references tell.
fn admits(schema: &Value) -> Admits {
    // Up to draft 7, what stands beside a reference means nothing.
    let reference_alone = schema.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("/draft-0"));
    let mut here = schema;
    for _ in 0..8 {
        let pointer = here.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        match (pointer, here.get("type")) {
            (Some(pointer), types) if reference_alone || types.is_none() => match schema.pointer(pointer) {
                Some(target) => here = target,
                None => break,
            },
            (_, Some(types)) => {
                let has =
                    |name: &str| types == name || types.as_array().is_some_and(|list| list.iter().any(|t| t == name));
                return Admits { object: has("object"), array: has("array") };
            }
            (_, None) => break,
        }
    }
    Admits::ANY
}

/// The path that a JSON Pointer reaches in `value`: what is an index and what a key, only the value can tell.
pub(super) fn path_in(value: &Value, pointer: &str) -> Path {
    let mut here = Some(value);
    let segments = pointer.split('/').skip(1).map(|raw| {
        let key = raw.replace("~1", "/").replace("~0", "~");
        match (here, key.parse::<usize>()) {
            (Some(Value::Array(items)), Ok(index)) => {
                here = items.get(index);
                Segment::Index(index)
            }
            _ => {
                here = here.and_then(|value| value.get(&key));
                Segment::Key(key)
            }
        }
    });
    Path::new(segments.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::gate;
    use serde_json::json;

    fn compile(schema: &Value) -> Result<CompiledSchema, SchemaError> {
        CompiledSchema::compile(Bytes::from(schema.to_string()), SchemaLimits::default())
    }

    /// Every case of `tests/cases/schema.jsonl`, through the same gate that serves.
    #[test]
    fn every_case_of_the_schema_file() {
        for line in include_str!("../../tests/cases/schema.jsonl").lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let given = &case["given"];
            let schema = match given.get("schema_generator") {
                None => given["schema"].clone(),
                Some(_) => {
                    let mut defs = serde_json::Map::new();
                    for i in 0..30 {
                        let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
                        defs.insert(format!("d{i}"), json!({"allOf": [next, next]}));
                    }
                    defs.insert("d30".into(), json!({"type": "object"}));
                    json!({"$defs": defs, "$ref": "#/$defs/d0"})
                }
            };
            let compiled = compile(&schema);
            if case["expect"]["compile"] == "reject" {
                assert!(compiled.is_err(), "{}", case["id"]);
                continue;
            }
            let compiled = compiled.unwrap_or_else(|error| panic!("{}: {error}", case["id"]));
            let found = gate::schema::check(&compiled, given["instance"].as_str().unwrap());
            assert_eq!(found.is_none(), case["expect"]["valid"] == true, "{} {found:?}", case["id"]);
        }
    }

    #[test]
    fn every_draft_is_known_and_asserts_formats() {
        for draft in [
            "https://json-schema.org/draft/2020-12/schema",
            "https://json-schema.org/draft/2019-09/schema",
            "http://json-schema.org/draft-07/schema#",
            "http://json-schema.org/draft-06/schema#",
            "http://json-schema.org/draft-04/schema#",
        ] {
            let schema = compile(&json!({"$schema": draft, "type": "string", "format": "email"})).unwrap();
            assert!(gate::schema::check(&schema, "\"a@example.com\"").is_none(), "{draft}");
            assert!(gate::schema::check(&schema, "\"nobody\"").is_some(), "{draft}");
        }
    }

    #[test]
    fn what_is_no_schema_is_refused_with_its_place() {
        let limits = SchemaLimits::default();
        let refused =
            |schema: &str| CompiledSchema::compile(Bytes::from(schema.to_owned()), limits).unwrap_err().to_string();
        assert!(refused(r#"{"type":"strin"}"#).starts_with("$['type']"), "{}", refused(r#"{"type":"strin"}"#));
        assert!(refused(r#"{"properties":{"a":{"minimum":"1"}}}"#).starts_with("$['properties']['a']['minimum']"));
        assert_eq!(refused("[]"), "$: expected an object, `true` or `false`");
        assert!(refused(r#"{"a":1,"a":2}"#).contains("stands twice"));
        assert!(refused(r#"{"$schema":"https://example.com/mine"}"#).starts_with('$'));
        assert!(refused(r#"{"pattern":"(a{1000}){1000}"}"#).starts_with('$'));
        assert!(refused(r#"{"pattern":"("}"#).starts_with('$'));
    }

    #[test]
    fn annotations_make_no_other_schema() {
        let same = |one: Value, two: Value| same_constraints(&compile(&one).unwrap(), &compile(&two).unwrap());
        let plain = json!({"type": "object", "properties": {"title": {"type": "string"}}});
        let told = json!({"title": "T", "description": "d", "properties": {"title": {"type": "string", "examples": ["x"]}}, "type": "object"});
        assert!(same(plain.clone(), told));
        assert!(!same(plain.clone(), json!({"type": "object", "properties": {}})));
        assert!(!same(plain, json!({"type": "object", "properties": {"title": {"type": "string", "maxLength": 1}}})));
        assert!(!same(json!({"const": {"title": 1}}), json!({"const": {}})));
    }

    #[test]
    fn bytes_and_depth_are_bounded() {
        let limits = SchemaLimits { bytes: 64, depth: 3, expanded: 100 };
        let long = format!("{{\"title\":\"{}\"}}", "x".repeat(64));
        assert!(matches!(CompiledSchema::compile(long.into(), limits), Err(SchemaError::Bytes { .. })));
        let deep = r#"{"not":{"not":{"not":{}}}}"#;
        assert!(matches!(CompiledSchema::compile(deep.into(), limits), Err(SchemaError::Depth { found: 4, max: 3 })));
    }

    #[test]
    fn look_around_works_and_its_bound_is_a_violation() {
        let schema = compile(&json!({"type": "string", "pattern": "^(?!secret).*$"})).unwrap();
        assert!(gate::schema::check(&schema, "\"open\"").is_none());
        assert!(gate::schema::check(&schema, "\"secret\"").is_some());
        // ECMA 262 classes are ASCII's, with look-around as without.
        let digits = compile(&json!({"type": "string", "pattern": "^(?=.*\\d)[\\d_]+$"})).unwrap();
        assert!(gate::schema::check(&digits, "\"1_2\"").is_none());
        assert!(gate::schema::check(&digits, "\"\u{661}\"").is_some());
        let words = compile(&json!({"type": "string", "pattern": "^(?!x)\\w+$"})).unwrap();
        assert!(gate::schema::check(&words, "\"é\"").is_some());
        let slow = compile(&json!({"type": "string", "pattern": "^(?=(a+)+$)b"})).unwrap();
        assert!(gate::schema::check(&slow, &format!("\"{}c\"", "a".repeat(2_000))).is_some());
    }

    #[test]
    fn the_top_of_a_schema_tells_what_it_admits() {
        let of = |schema: Value| compile(&schema).unwrap().admits();
        assert_eq!(of(json!({"type": "object"})), Admits::OBJECT);
        assert_eq!(of(json!({"type": ["array", "null"]})), Admits { object: false, array: true });
        assert_eq!(of(json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}})), Admits::OBJECT);
        assert_eq!(of(json!({"anyOf": [{"type": "object"}, {"type": "array"}]})), Admits::ANY);
        assert_eq!(of(json!(true)), Admits::ANY);
        let beside = json!({"type": "object", "$ref": "#/definitions/a", "definitions": {"a": {"type": "array"}}});
        assert_eq!(of(beside.clone()), Admits::OBJECT);
        let mut old = beside;
        old["$schema"] = json!("http://json-schema.org/draft-07/schema#");
        assert_eq!(of(old), Admits { object: false, array: true });
    }
}
