//! A policy as it is written.
//!
//! As with the configuration, these structs are the file's JSON Schema, too, and every member is an `Option`, because a
//! file with errors is read as far as it goes. The settings of gates are those of [`KINDS`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use schemars::json_schema;
use serde::Deserialize;
use serde::Deserializer;
use serde::de::Error;
use serde::de::MapAccess;
use serde::de::Visitor;
use serde_json::Map;
use serde_json::Number;
use serde_json::Value;

use crate::contract::fact::FactFile;
use crate::contract::gate::KINDS;
use crate::contract::gate::Kind;
use crate::contract::verdict::Action;
use crate::policy::Choices;
use crate::policy::Inject;
use crate::policy::Mode;
use crate::policy::NativeUse;
use crate::policy::OnConflict;
use crate::policy::OtherTools;
use crate::policy::SourceRole;
use crate::policy::StructuredOutput;

/// A Portcullis policy: what an answer must satisfy, for which requests, and what is said of one that does not.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Portcullis policy")]
pub(super) struct PolicyFile {
    /// The version of this format.
    #[schemars(required, extend("const" = 1))]
    pub(super) version: Option<u32>,
    /// What the policy is for, in words.
    pub(super) description: Option<String>,
    /// Which requests the policy concerns: any entry suffices; within an entry all conditions hold.
    #[schemars(required)]
    pub(super) r#match: Option<MatchesFile>,
    /// The policy's own JSON Schema: a file in its folder, or `from_request` for the request's.
    #[schemars(length(min = 1), extend("default" = "from_request"))]
    pub(super) schema: Option<String>,
    /// What is done where the request has another schema than the policy's file.
    pub(super) on_schema_conflict: Option<OnConflict>,
    /// Whether a request without a response format gets the policy's: `required` where `schema` is a file, else
    /// `when_asked`.
    pub(super) structured_output: Option<StructuredOutput>,
    /// What becomes of other tools in the request.
    #[schemars(extend("default" = "judge"))]
    pub(super) tools: Option<OtherTools>,
    /// Whether the policy's verdict decides.
    #[schemars(extend("default" = "enforce"))]
    pub(super) mode: Option<Mode>,
    /// When the exact schema is written into the prompt.
    #[schemars(extend("default" = "always"))]
    pub(super) inject: Option<Inject>,
    /// How the backend's native mode is used.
    #[schemars(extend("default" = "prefer"))]
    pub(super) native: Option<NativeUse>,
    /// How the answer is cut out of the model's text.
    #[schemars(extend("default" = "ladder"))]
    pub(super) extraction: Option<ExtractionFile>,
    /// What an answer must be grounded in.
    pub(super) source: Option<SourceFile>,
    /// What is put around an answer.
    pub(super) envelope: Option<EnvelopeFile>,
    /// The fields of the top-level object that code sets and the model must not, in their order.
    pub(super) assign: Option<Ordered<AssignFile>>,
    /// Reference data, by the name that gates use.
    pub(super) data: Option<BTreeMap<String, DataFile>>,
    /// What plain patterns find in the messages, by the name that gates use.
    #[schemars(with = "Option<BTreeMap<String, FactFile>>")]
    pub(super) facts: Option<BTreeMap<String, Value>>,
    /// What gates fold away in quote and source alike, where they say nothing else.
    pub(super) folds: Option<Vec<String>>,
    /// Parts of the source, by the name that gates use.
    pub(super) regions: Option<BTreeMap<String, RegionFile>>,
    /// Where objects that carry their own evidence keep it.
    pub(super) evidence: Option<EvidenceFile>,
    /// What a caller gets whose answer is not accepted.
    pub(super) respond: Option<RespondFile>,
    /// The gates, in their order.
    pub(super) gates: Option<Vec<GateFile>>,
    /// When and how the model is asked once more.
    pub(super) retry: Option<RetryFile>,
    /// Members of the request that are capped or set.
    pub(super) limits: Option<LimitsFile>,
    /// With `n > 1`: what goes on.
    #[schemars(extend("default" = "all"))]
    pub(super) choices: Option<Choices>,
}

/// Which requests a policy concerns.
pub(super) enum MatchesFile {
    /// Only those that ask for it by name, or whose key is bound to it.
    ByName,
    /// Those of any of these entries.
    Any(Vec<MatchFile>),
}

/// One entry of `match`: all that it names must hold.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Match")]
#[schemars(extend("minProperties" = 1))]
pub(super) struct MatchFile {
    /// The model alias, or several: globs, in which `*` stands for any characters and `?` for one.
    pub(super) model: Option<OneOrMore>,
    /// The name of the request's schema, or several: globs. A caller can evade it by renaming.
    pub(super) schema_name: Option<OneOrMore>,
    /// A tool that the request offers, or several: the policy then judges that tool's arguments. A caller can evade it by
    /// renaming.
    pub(super) tool: Option<OneOrMore>,
}

/// One text, or a list of them.
#[derive(Default)]
pub(super) struct OneOrMore(pub(super) Vec<String>);

/// How the answer is cut out of the model's text.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "Extraction")]
pub(super) enum ExtractionFile {
    /// The whole text, else one code fence, else one balanced region of it.
    Ladder,
    /// The whole text alone.
    Strict,
}

/// What an answer must be grounded in.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Source")]
pub(super) struct SourceFile {
    /// Whose messages are the source.
    #[schemars(length(min = 1), extend("default" = ["user"]))]
    pub(super) roles: Option<Vec<SourceRole>>,
    /// Only what stands between `<tag>` and `</tag>` in them.
    #[schemars(length(min = 1))]
    pub(super) tag: Option<String>,
    /// What parts two pages of one message: a regular expression, so that a plain text stands for itself. Each message
    /// starts a page; pages count from 1.
    #[schemars(length(min = 1))]
    pub(super) page_break: Option<String>,
    /// Whether the request may bring the source itself, as `portcullis.source`.
    #[schemars(extend("default" = "denied"))]
    pub(super) request: Option<RequestSourceFile>,
    /// What is done where the messages hold what cannot be read as text: images, audio, files.
    #[schemars(extend("default" = "refuse"))]
    pub(super) unreadable: Option<UnreadableFile>,
}

/// Whether the request may bring the source itself.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "RequestSource")]
pub(super) enum RequestSourceFile {
    /// A request that does is refused.
    Denied,
    /// It is used in the place of the messages.
    Allowed,
}

/// What is done with content that cannot be read as text.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "Unreadable")]
pub(super) enum UnreadableFile {
    /// The request is refused where a gate is tied to the source.
    Refuse,
    /// It is passed over.
    Ignore,
}

/// What is put around an answer.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Envelope")]
pub(super) struct EnvelopeFile {
    /// A bare array becomes an object with this member.
    #[schemars(required, length(min = 1))]
    pub(super) wrap_array: Option<String>,
}

/// Where the value of a field comes from: exactly one of these.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Assign")]
#[schemars(extend("minProperties" = 1))]
pub(super) struct AssignFile {
    /// A new UUID.
    pub(super) uuid: Option<UuidFile>,
    /// The time of the verdict.
    pub(super) now: Option<NowFile>,
    /// This value.
    #[serde(default, rename = "const", deserialize_with = "written")]
    pub(super) constant: Option<Value>,
    /// Small letters and digits of the text at this path, joined by hyphens.
    pub(super) slugify: Option<String>,
    /// What a keyed table of `data` holds for the text at a path.
    pub(super) lookup: Option<LookupFile>,
}

/// A member that is written has a value, be it null.
fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The version of a UUID.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "Uuid")]
pub(super) enum UuidFile {
    /// Random.
    V4,
    /// Sorted by time.
    V7,
}

/// How a time is written.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", rename = "Now")]
pub(super) enum NowFile {
    /// As RFC 3339 has it.
    Rfc3339,
}

/// What a keyed table of `data` holds for the text at a path.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Lookup")]
pub(super) struct LookupFile {
    /// The table's name in `data`.
    #[schemars(required)]
    pub(super) r#in: Option<String>,
    /// The path of the key.
    #[schemars(required)]
    pub(super) by: Option<String>,
    /// The column.
    #[schemars(required)]
    pub(super) column: Option<String>,
}

/// A table of reference data.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Data")]
pub(super) struct DataFile {
    /// JSON, JSON Lines, CSV or YAML, by the ending of its name; a path inside of the policy's folder.
    #[schemars(required, length(min = 1))]
    pub(super) file: Option<String>,
    /// The column that rows are found by; without it, the table is a list.
    #[schemars(length(min = 1))]
    pub(super) key: Option<String>,
}

/// A part of the source, from one line through another. Lines are searched as they are printed and as the policy's folds
/// leave them.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Region")]
pub(super) struct RegionFile {
    /// The first line: a regular expression that is searched in each line, or `start`.
    #[schemars(required, length(min = 1))]
    pub(super) from: Option<String>,
    /// The last line: the next one after the first that matches, or `end`.
    #[schemars(required, length(min = 1))]
    pub(super) through: Option<String>,
    /// Which of several first lines is meant, from 1; without it, several are a violation.
    #[schemars(range(min = 1))]
    pub(super) occurrence: Option<u32>,
}

/// What a caller gets whose answer is not accepted.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Respond")]
pub(super) struct RespondFile {
    /// Where gates ask back.
    #[schemars(extend("default" = "refusal"))]
    pub(super) clarify: Option<ResponseFile>,
    /// Where gates reject.
    #[schemars(extend("default" = "error"))]
    pub(super) reject: Option<ResponseFile>,
}

/// One way to say that an answer is not accepted.
pub(super) enum ResponseFile {
    /// A refusal, with the question or the reason as its words.
    Refusal,
    /// An error.
    Error,
    /// An object that satisfies the schema: JSON whose strings are templates, and whose members `{$value: EXPRESSION}` become
    /// arrays, objects or numbers.
    Object(Value),
}

impl<'de> Deserialize<'de> for ResponseFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(word) if word == "refusal" => Ok(Self::Refusal),
            Value::String(word) if word == "error" => Ok(Self::Error),
            Value::Object(mut members) => match members.shift_remove("object") {
                Some(object) => Ok(Self::Object(object)),
                None => Err(D::Error::custom("expected `object`")),
            },
            _ => Err(D::Error::custom("expected `refusal`, `error` or `object`")),
        }
    }
}

/// `if` and `else` rather than `anyOf`, so that what is wrong inside of it is said where it is.
impl JsonSchema for ResponseFile {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Response".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "if": {"type": "object"},
            "then": {
                "type": "object",
                "properties": {"object": {
                    "type": "object",
                    "description": "JSON whose strings are templates, and whose members `{$value: EXPRESSION}` become values."
                }},
                "required": ["object"],
                "additionalProperties": false
            },
            "else": {"enum": ["refusal", "error"]}
        })
    }
}

/// Where objects that carry their own evidence keep value, quote and page: names of members, joined by dots.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Evidence")]
pub(super) struct EvidenceFile {
    /// The value.
    #[schemars(required, length(min = 1))]
    pub(super) value: Option<String>,
    /// The quote.
    #[schemars(required, length(min = 1))]
    pub(super) quote: Option<String>,
    /// The page, from 1.
    #[schemars(required, length(min = 1))]
    pub(super) page: Option<String>,
}

/// When and how the model is asked once more.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Retry")]
pub(super) struct RetryFile {
    /// How many times more, at the most.
    #[schemars(range(min = 1, max = 3), extend("default" = 1))]
    pub(super) attempts: Option<u32>,
    /// The gates whose violations are worth asking again for, and `extraction` and `schema`.
    #[schemars(required, length(min = 1))]
    pub(super) on: Option<Vec<String>>,
    /// The aliases that are asked, one after the other; the request's own where there is none left.
    pub(super) escalate: Option<Vec<String>>,
}

/// Members of the request that are capped or set. What a model does not take is left out.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "RequestLimits")]
pub(super) struct LimitsFile {
    /// Tokens of the answer, at the most.
    #[schemars(range(min = 1))]
    pub(super) max_output_tokens: Option<u32>,
    /// The temperature, at the most.
    #[schemars(range(min = 0, max = 2))]
    pub(super) temperature: Option<Number>,
    /// The share of probability that tokens are taken from, at the most.
    #[schemars(range(min = 0, max = 1))]
    pub(super) top_p: Option<Number>,
    /// Answers to one request, at the most.
    #[schemars(range(min = 1))]
    pub(super) n: Option<u32>,
    /// The seed, whatever the caller says.
    pub(super) seed: Option<i64>,
    /// How much a model reasons, whatever the caller says.
    #[schemars(length(min = 1))]
    pub(super) reasoning_effort: Option<String>,
    /// Whether a model may call several tools at once, whatever the caller says.
    pub(super) parallel_tool_calls: Option<bool>,
}

/// One gate: what stands on each, and the settings of its one kind.
#[derive(Default)]
pub(super) struct GateFile {
    /// What stands on each gate.
    pub(super) common: GateCommon,
    /// The members beside that, as JSON: the kind, and settings of it that stand beside it.
    pub(super) settings: Map<String, Value>,
}

/// One gate: a deterministic check. Beside these members it has exactly one kind.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "Gate")]
pub(super) struct GateCommon {
    /// Its name, which no other gate of the policy has.
    #[schemars(required, regex(pattern = GATE_NAME))]
    pub(super) name: Option<String>,
    /// What follows from a violation.
    #[schemars(extend("default" = "reject"))]
    pub(super) on_violation: Option<Action>,
    /// What the caller is asked, or told, of a violation: a MiniJinja template. It sees `value`, `path`, `message`, `this`,
    /// `output`, `facts`, `data`, and what the kind adds.
    #[schemars(length(min = 1))]
    pub(super) say: Option<String>,
    /// The gate runs where this CEL expression holds; an error in it is a violation.
    #[schemars(length(min = 1))]
    pub(super) when: Option<String>,
    /// Gates above this one that must have passed for the same node; else this one is not checked there.
    pub(super) needs: Option<Vec<String>>,
    /// The nodes that a `rule` runs on, each as `this`.
    #[schemars(length(min = 1))]
    pub(super) each: Option<String>,
    /// A missing value is no violation.
    #[schemars(extend("default" = false))]
    pub(super) optional: Option<bool>,
    /// A null is no violation.
    #[schemars(extend("default" = false))]
    pub(super) nullable: Option<bool>,
    /// How many values there must be.
    #[schemars(extend("default" = 0))]
    pub(super) at_least: Option<u32>,
}

/// How a gate may be called: it stands in error bodies, headers and metrics.
pub(in crate::config) const GATE_NAME: &str = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$";
/// The same in words.
pub(in crate::config) const GATE_NAME_HELP: &str = "1 to 64 letters, digits, `-`, `_` or `.`, a letter or digit first";

/// The members of a gate that hold settings of a kind, by their schemas: see [`Kind::stands_beside`].
fn members_of(kind: &Kind, generator: &mut SchemaGenerator) -> Map<String, Value> {
    let schema = (kind.schema)(generator).to_value();
    match schema.get("properties").and_then(Value::as_object).filter(|_| kind.stands_beside()) {
        Some(properties) => properties.clone(),
        None => Map::from_iter([(kind.name.to_owned(), schema)]),
    }
}

/// The names of the members of a gate that hold settings of a kind.
pub(super) fn members(kind: &Kind) -> Vec<String> {
    members_of(kind, &mut SchemaGenerator::default()).into_iter().map(|(name, _)| name).collect()
}

impl<'de> Deserialize<'de> for GateFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = Map::deserialize(deserializer)?;
        let known = SchemaGenerator::default().into_root_schema_for::<GateCommon>();
        let known = known.get("properties").and_then(Value::as_object);
        let names: Vec<&String> = known.into_iter().flat_map(Map::keys).collect();
        let mut common = Map::new();
        for name in names {
            if let Some(value) = settings.shift_remove(name) {
                common.insert(name.clone(), value);
            }
        }
        let common = serde_json::from_value(Value::Object(common)).map_err(D::Error::custom)?;
        Ok(Self { common, settings })
    }
}

impl JsonSchema for GateFile {
    fn schema_name() -> Cow<'static, str> {
        "Gate".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut gate = GateCommon::json_schema(generator);
        let mut members = Map::new();
        for kind in KINDS {
            // Two kinds may have a member of one name: each is read by its own kind's settings.
            for (name, schema) in members_of(kind, generator) {
                members.entry(name).and_modify(|other| either(other, &schema)).or_insert(schema);
            }
        }
        if let Some(properties) = gate.ensure_object().get_mut("properties").and_then(Value::as_object_mut) {
            for (name, schema) in members {
                properties.entry(name).or_insert(schema);
            }
        }
        gate
    }
}

fn either(one: &mut Value, other: &Value) {
    if one != other {
        *one = serde_json::json!({"anyOf": [one.take(), other]});
    }
}

/// A mapping in the order of the file.
pub(super) struct Ordered<T>(pub(super) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Vec<(String, T)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Members(PhantomData)).map(Self)
    }
}

impl<T: JsonSchema> JsonSchema for Ordered<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Ordered".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, T>::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for MatchesFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(_) => Ok(Self::ByName),
            list => serde_json::from_value(list).map(Self::Any).map_err(D::Error::custom),
        }
    }
}

/// `if` and `else` rather than `anyOf`, so that what is wrong inside of a list is said where it is.
impl JsonSchema for MatchesFile {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Matches".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let entry = generator.subschema_for::<MatchFile>();
        json_schema!({
            "if": {"type": "string"},
            "then": {"const": "by_name"},
            "else": {"type": "array", "minItems": 1, "items": entry},
        })
    }
}

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(one) => Ok(Self(vec![one])),
            list => serde_json::from_value(list).map(Self).map_err(D::Error::custom),
        }
    }
}

impl JsonSchema for OneOrMore {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "OneOrMore".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let text = json_schema!({"type": "string", "minLength": 1});
        json_schema!({
            "if": {"type": "array"},
            "then": {"minItems": 1, "items": text},
            "else": text,
        })
    }
}
