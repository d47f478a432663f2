//! A fact as a policy writes it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use schemars::json_schema;
use serde::Deserialize;
use serde::Deserializer;
use serde::de::Error as _;
use serde_json::Value;

use crate::contract::fact::scope::Scope;

/// One fact: what plain patterns find in the messages.
///
/// Patterns are regular expressions without look-around; they match whatever the case of letters, on text whose white
/// space and typography are plain. `{NAME}` in one of them stands for any of the words that `words` gives that name.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FactFile {
    /// What can be stated: each term with the patterns of the words that say it, as whole words. Or `TABLE.COLUMN`: the
    /// keys of a data table, said by the words in that column.
    #[serde(default)]
    pub terms: Option<Words>,
    /// Instead of `terms`: every match is a term of its own, or the match's first group where it has one.
    #[serde(default)]
    pub pattern: Option<String>,
    /// Names for sets of words, for use in the other patterns: patterns, or `TABLE.COLUMN`.
    #[serde(default)]
    pub words: BTreeMap<String, Words>,
    /// Whether the words of a column are matched in their English plural too.
    #[serde(default)]
    pub plurals: bool,
    /// Stretches that are left out before anything is looked for: quoted text, or names that only contain a term
    /// (`soy milk`). `^` and `$` match at line breaks.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// A term counts only where one of these stands in the same scope. Without `cues` and `phrases` it counts anywhere.
    #[serde(default)]
    pub cues: Vec<String>,
    /// Where one of these stands, nothing in the same scope counts.
    #[serde(default)]
    pub unless: Vec<String>,
    /// How far cues reach.
    #[serde(default)]
    pub scope: Scope,
    /// Ways to state terms: `{terms}` stands for a list of them with nothing but light words before and between, `{term}`
    /// for one.
    /// Every term inside a match counts.
    #[serde(default)]
    pub phrases: Vec<String>,
    /// The same, but what is named there does not count at that place, whatever else matches.
    #[serde(default)]
    pub denied: Vec<String>,
    /// The light words of a list, besides `,`, `/` and `&`. Default: and, or, nor, any, all, also, both, either, the.
    #[serde(default)]
    pub between: Option<Vec<String>>,
}

/// Words, or where they are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Words {
    /// By what they say.
    Named(Vec<(String, Vec<String>)>),
    /// Patterns alone.
    Listed(Vec<String>),
    /// A column of a data table.
    Column(String),
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = |value: Value| match value {
            Value::Array(items) => items.into_iter().map(text).collect::<Result<Vec<_>, _>>(),
            one => text(one).map(|one| vec![one]),
        };
        let read = match Value::deserialize(deserializer)? {
            Value::String(column) => Ok(Self::Column(column)),
            Value::Object(members) => members
                .into_iter()
                .map(|(name, value)| Ok((name, list(value)?)))
                .collect::<Result<_, String>>()
                .map(Self::Named),
            value => list(value).map(Self::Listed),
        };
        read.map_err(D::Error::custom)
    }
}

/// The text of a pattern; a bare number is one too, since YAML takes `20` for a number.
fn text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(format!("expected a pattern, found `{other}`")),
    }
}

impl JsonSchema for Words {
    fn schema_name() -> Cow<'static, str> {
        "Words".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pattern = || json_schema!({"type": ["string", "number"]});
        let list = || json_schema!({"type": "array", "items": pattern(), "minItems": 1});
        json_schema!({"anyOf": [
            {"type": "string", "description": "`TABLE.COLUMN` of the policy's data."},
            list(),
            {"type": "object", "additionalProperties": {"anyOf": [pattern(), list()]}, "minProperties": 1},
        ]})
    }
}
