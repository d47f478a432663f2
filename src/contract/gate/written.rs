//! What several kinds of gates have in their settings.

use std::borrow::Cow;

use regex::Regex;
use schemars::JsonSchema;
use schemars::Schema;
use schemars::SchemaGenerator;
use schemars::json_schema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::contract::fold::Folds;
use crate::contract::gate::Build;
use crate::contract::gate::BuildError;
use crate::contract::linear;
use crate::contract::locale::Locale;
use crate::contract::number::NumberFormat;
use crate::contract::number::Percent;
use crate::contract::number::Scale;
use crate::json::query::Query;

/// One path, or a list of them.
#[derive(Debug, Deserialize)]
#[serde(from = "Value")]
pub(super) struct Paths(Vec<Value>);

impl From<Value> for Paths {
    fn from(value: Value) -> Self {
        match value {
            Value::Array(paths) => Self(paths),
            path => Self(vec![path]),
        }
    }
}

impl JsonSchema for Paths {
    fn schema_name() -> Cow<'static, str> {
        "Paths".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["string", "array"], "items": {"type": "string"}, "minItems": 1,
            "description": "A JSONPath (RFC 9535), or a list of them."})
    }
}

impl Paths {
    /// The paths, read; errors are at `member`.
    pub(super) fn read(&self, member: &str) -> Result<Vec<Query>, BuildError> {
        if self.0.is_empty() {
            return Err(BuildError::at(member, "expected at least one path"));
        }
        self.0.iter().map(|value| path(value, member)).collect()
    }
}

/// The path that a string writes.
pub(super) fn path(value: &Value, member: &str) -> Result<Query, BuildError> {
    let text = value.as_str().ok_or_else(|| BuildError::at(member, format!("expected a path, found {value}")))?;
    Query::read(text).map_err(|error| BuildError::at(member, error.to_string()))
}

/// How printed numbers are to be read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NumberFile {
    /// Whose marks the numbers have: `en`, `de`, `fr`, ...
    pub(super) locale: String,
    /// What a percent sign does: `as_printed` (`15%` prints 15) or `fraction` (it prints 0.15).
    pub(super) percent: Option<String>,
    /// What printed numbers are multiplied by: `as_printed`, `thousands`, `millions`, `billions`, or `words` (the scale
    /// word at the number, if there is one).
    pub(super) scale: Option<String>,
}

impl NumberFile {
    pub(super) fn read(&self, member: &str) -> Result<NumberFormat, BuildError> {
        number_format(&self.locale, self.percent.as_deref(), self.scale.as_deref(), member)
    }
}

/// The format of these names.
pub(super) fn number_format(
    locale: &str,
    percent: Option<&str>,
    scale: Option<&str>,
    member: &str,
) -> Result<NumberFormat, BuildError> {
    let below = |name: &str, message: String| BuildError { at: vec![member.to_owned(), name.to_owned()], message };
    let locale = Locale::named(locale).map_err(|error| below("locale", error.to_string()))?;
    let percent = match percent.unwrap_or("as_printed") {
        "as_printed" => Percent::AsPrinted,
        "fraction" => Percent::Fraction,
        other => return Err(below("percent", format!("expected `as_printed` or `fraction`, found `{other}`"))),
    };
    let known = "`as_printed`, `thousands`, `millions`, `billions` or `words`";
    let scale = scale.unwrap_or("as_printed");
    let scale = Scale::named(scale).ok_or_else(|| below("scale", format!("expected {known}, found `{scale}`")))?;
    Ok(NumberFormat { locale: Some(locale), percent, scale })
}

/// The folds that a gate names, or those of its policy, with the marks of a locale.
pub(super) fn folds(own: Option<&[String]>, build: &Build<'_>, locale: Option<Locale>) -> Result<Folds, BuildError> {
    let folds = match own {
        Some(names) => Folds::named(names.iter().map(String::as_str))
            .map_err(|error| BuildError::at("folds", error.to_string()))?,
        None => build.contract.folds,
    };
    Ok(if locale.is_some() { folds.in_locale(locale) } else { folds })
}

/// A pattern of linear time.
pub(super) fn pattern(text: &str, member: &str) -> Result<Regex, BuildError> {
    linear::pattern(text).map_err(|error| BuildError::at(member, error))
}

/// A kind's settings as its structure has them.
pub(super) fn settings<T: DeserializeOwned>(value: &Value) -> Result<T, Vec<BuildError>> {
    T::deserialize(value).map_err(|error| vec![BuildError { at: Vec::new(), message: error.to_string() }])
}

/// A text of the answer or the source as a message quotes it: one line, at most 80 characters.
pub(super) fn quoted(text: &str) -> String {
    let shown = crate::json::fault::shown(text);
    format!("`{shown}`")
}
