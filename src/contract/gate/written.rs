//! What several kinds of gates have in their settings.

use regex::Regex;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::contract::gate::BuildError;
use crate::json::query::Query;

/// The path that a string writes.
pub(super) fn path(value: &Value, member: &str) -> Result<Query, BuildError> {
    let text = value.as_str().ok_or_else(|| BuildError::at(member, format!("expected a path, found {value}")))?;
    Query::read(text).map_err(|error| BuildError::at(member, error.to_string()))
}

/// A pattern of linear time.
pub(super) fn pattern(text: &str, member: &str) -> Result<Regex, BuildError> {
    Regex::new(text).map_err(|error| BuildError::at(member, error.to_string()))
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
