//! The JSON Schema of the file, from the structs it is read into.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde_json::Map;
use serde_json::Value;

use crate::config::file::ConfigFile;
use crate::config::unavailable;

/// The schema, made once.
pub(super) static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = schemars::SchemaGenerator::default().into_root_schema_for::<ConfigFile>().to_value();
    never_null(&mut schema);
    schema
});

/// An absent member is left away, not written as nothing, so the `null` that schemars allows for each `Option` goes.
fn never_null(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(never_null),
        Value::Object(members) => {
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|name| name != "null");
                if let [one] = types.as_slice() {
                    let one = one.clone();
                    members.insert("type".into(), one);
                }
            }
            if let Some(Value::Array(values)) = members.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            if let Some(one) = only_other_than_null(members) {
                members.shift_remove("anyOf");
                members.extend(one);
            }
            members.values_mut().for_each(never_null);
        }
        _ => {}
    }
}

fn only_other_than_null(members: &Map<String, Value>) -> Option<Map<String, Value>> {
    let others: Vec<_> =
        members.get("anyOf")?.as_array()?.iter().filter(|one| one.get("type") != Some(&"null".into())).collect();
    match others.as_slice() {
        [Value::Object(one)] => Some(one.clone()),
        _ => None,
    }
}

/// The values that a part of the schema lists, references followed; none where it lists none.
pub(super) fn allowed(part: &Value) -> Vec<String> {
    let part = resolved(part);
    let constant = part.get("const").into_iter().map(plain);
    let listed = part.get("enum").and_then(Value::as_array).into_iter().flatten().map(plain);
    let described = part.get("oneOf").and_then(Value::as_array).into_iter().flatten().flat_map(allowed);
    constant.chain(listed).chain(described).collect()
}

/// The names of the members that a part of the schema lists.
pub(super) fn members(part: &Value) -> Vec<&str> {
    let members = resolved(part).get("properties").and_then(Value::as_object);
    members.into_iter().flat_map(Map::keys).map(String::as_str).collect()
}

fn resolved(part: &Value) -> &Value {
    let pointer = part.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| SCHEMA.pointer(pointer)).unwrap_or(part)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Every word that the format itself is made of: names of members and listed values, available or not.
pub(super) fn vocabulary() -> HashSet<String> {
    let mut words: HashSet<String> =
        unavailable::MEMBERS.iter().copied().flatten().map(|word| (*word).to_owned()).collect();
    collect(&SCHEMA, &mut words);
    words.extend(["true", "false", "*"].map(str::to_owned));
    words
}

fn collect(part: &Value, words: &mut HashSet<String>) {
    words.extend(members(part).into_iter().map(str::to_owned));
    words.extend(allowed(part));
    match part {
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        Value::Object(members) => members.values().for_each(|member| collect(member, words)),
        _ => {}
    }
}
