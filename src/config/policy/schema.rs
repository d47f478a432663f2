//! The schema that a policy brings, and what the model is shown of it.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use crate::config::policy::bundle::Files;
use crate::config::resolve::Notes;
use crate::contract::schema::CompiledSchema;
use crate::json::JsonFault;
use crate::json::cursor::Begins;
use crate::json::cursor::Cursor;
use crate::json::splice::Splice;
use crate::policy::OnConflict;
use crate::policy::PolicySchema;
use crate::settings::SchemaLimits;

/// What `schema` says where the request's is judged.
pub(super) const FROM_REQUEST: &str = "from_request";

/// Reads and compiles the schema's file; `assigned` are the members that the model does not see. None where it cannot
/// be used, which is reported.
pub(super) fn resolve(
    file: &str,
    on_conflict: OnConflict,
    assigned: &[String],
    files: &Files,
    limits: SchemaLimits,
    notes: &mut Notes<'_>,
) -> Option<PolicySchema> {
    let path = ["schema"];
    let bytes = match files.read(file) {
        Ok(bytes) => Bytes::from(bytes.into_owned()),
        Err(error) => {
            notes.error(&path, format!("the file {} of `schema`: {error}", notes.quoted(&path)));
            return None;
        }
    };
    let complete = match CompiledSchema::compile(bytes, limits) {
        Ok(schema) => Arc::new(schema),
        Err(error) => {
            notes.error(&path, format!("the file {} of `schema`: {error}", notes.quoted(&path)));
            return None;
        }
    };
    let mut known = true;
    for name in assigned.iter().filter(|name| !declares(complete.value(), name)) {
        known = false;
        let all = complete.value().get("properties").and_then(Value::as_object);
        let near = crate::nearest::did_you_mean(name, all.into_iter().flat_map(|all| all.keys()).map(String::as_str));
        let message =
            format!("`assign` sets `{name}`, which the top of the schema does not have in its `properties`{near}");
        notes.error_at_name(&["assign", name], message);
    }
    if assigned.is_empty() || !known {
        return Some(PolicySchema { shown: Arc::clone(&complete), complete, on_conflict });
    }
    let shown = without(complete.text(), assigned).map(|text| CompiledSchema::compile(text, limits));
    match shown {
        Some(Ok(shown)) => Some(PolicySchema { complete, shown: Arc::new(shown), on_conflict }),
        Some(Err(error)) => {
            notes.error(&path, format!("the schema without the members of `assign`, as a model is shown it: {error}"));
            None
        }
        None => None, // text that compiled can be taken apart
    }
}

/// Whether the schema names this member at its top.
pub(super) fn declares(schema: &Value, name: &str) -> bool {
    schema.get("properties").and_then(|all| all.get(name)).is_some()
}

/// The text of a schema without these members of its top-level object; every other byte stays.
pub(super) fn without(text: &Bytes, names: &[String]) -> Option<Bytes> {
    let mut splice = Splice::new();
    let is_gone = |name: &str| names.iter().any(|own| own == name);
    let mut whole = Members::default();
    Cursor::new(text)
        .object::<JsonFault>(|cursor, member| {
            match (&*member.key, cursor.begins()) {
                ("properties", Begins::Object) => {
                    let mut properties = Members::default();
                    let end = cursor.object::<JsonFault>(|cursor, member| {
                        properties.take(cursor, is_gone(&member.key), member.key_at)
                    })?;
                    splice.remove_members(&properties.ranges, |index| properties.is_gone(index));
                    whole.push(member.key_at..end.end, false);
                }
                ("required", Begins::Array) => {
                    let mut required = Members::default();
                    let end = cursor.array::<JsonFault>(|cursor| {
                        let at = cursor.offset();
                        let raw = cursor.text().get(at..).unwrap_or_default();
                        let name = Cursor::new(raw).said().map(|(_, name)| name.into_owned()).unwrap_or_default();
                        required.take(cursor, is_gone(&name), at)
                    })?;
                    // Draft 4 has no empty `required`.
                    let none_left = !required.ranges.is_empty() && required.gone.iter().all(|gone| *gone);
                    if !none_left {
                        splice.remove_members(&required.ranges, |index| required.is_gone(index));
                    }
                    whole.push(member.key_at..end.end, none_left);
                }
                _ => whole.take(cursor, false, member.key_at)?,
            }
            Ok(())
        })
        .ok()?;
    splice.remove_members(&whole.ranges, |index| whole.is_gone(index));
    Some(splice.apply(text).ok()?.concat().into())
}

/// The members of an object or the elements of an array, and which of them go.
#[derive(Default)]
struct Members {
    ranges: Vec<std::ops::Range<usize>>,
    gone: Vec<bool>,
}

impl Members {
    fn push(&mut self, range: std::ops::Range<usize>, gone: bool) {
        self.ranges.push(range);
        self.gone.push(gone);
    }

    fn take(&mut self, cursor: &mut Cursor<'_>, gone: bool, from: usize) -> Result<(), JsonFault> {
        let value = cursor.skip()?;
        self.push(from..value.end, gone);
        Ok(())
    }

    fn is_gone(&self, index: usize) -> bool {
        self.gone.get(index).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        String::from_utf8(without(&Bytes::copy_from_slice(text.as_bytes()), &names).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn assigned_members_are_cut_out_and_every_other_byte_stays() {
        let text = "{ \"type\" : \"object\",\n  \"required\": [\"id\", \"a\" , \"at\"],\n  \"properties\": {\"id\": {\"type\":\"string\"},  \"a\":{ }, \"\\u0061t\": {}},\n \"x\":1.50}";
        assert_eq!(
            shown(text, &["id", "at"]),
            "{ \"type\" : \"object\",\n  \"required\": [\"a\"],\n  \"properties\": {\"a\":{ }},\n \"x\":1.50}"
        );
        assert_eq!(shown(text, &["none"]), text);
        assert_eq!(shown(r#"{"required":["id"],"properties":{"id":{}}}"#, &["id"]), r#"{"properties":{}}"#);
        assert_eq!(shown(r#"{"properties":{"id":{}},"required":["id"]}"#, &["id"]), r#"{"properties":{}}"#);
        let nested = r#"{"properties":{"a":{"properties":{"id":{}},"required":["id"]}},"required":[]}"#;
        assert_eq!(shown(nested, &["id"]), nested);
    }
}
