//! The JSON Schemas of the files, from the structs they are read into.

use std::collections::HashSet;
use std::sync::LazyLock;

use jsonschema::PatternOptions;
use jsonschema::Validator;
use schemars::JsonSchema;
use serde_json::Map;
use serde_json::Value;

use crate::config::file::ConfigFile;
use crate::config::unavailable;

/// The configuration file.
pub(super) static CONFIG: LazyLock<Format> =
    LazyLock::new(|| Format::of::<ConfigFile>("the file", "`version`, `auth`, `backends` and `models`"));

/// A file format: its JSON Schema, and what messages say of it.
pub(super) struct Format {
    /// The schema.
    pub(super) schema: Value,
    /// The same, compiled. A unit test compiles every format's, so nothing is never met in practice.
    pub(super) validator: Option<Validator>,
    /// What the whole of it is called.
    pub(super) whole: &'static str,
    /// What a file must hold at least.
    pub(super) least: &'static str,
}

impl Format {
    /// The format of the files that `T` is read from.
    pub(super) fn of<T: JsonSchema>(whole: &'static str, least: &'static str) -> Self {
        let mut schema = schemars::SchemaGenerator::default().into_root_schema_for::<T>().to_value();
        never_null(&mut schema);
        let options = jsonschema::options().offline().with_pattern_options(PatternOptions::regex());
        Self { validator: options.build(&schema).ok(), schema, whole, least }
    }

    /// The values that a part of the schema lists, references followed; none where it lists none.
    pub(super) fn allowed(&self, part: &Value) -> Vec<String> {
        let part = self.resolved(part);
        let constant = part.get("const").into_iter().map(plain);
        let listed = part.get("enum").and_then(Value::as_array).into_iter().flatten().map(plain);
        let options = part.get("oneOf").and_then(Value::as_array).into_iter().flatten();
        constant.chain(listed).chain(options.flat_map(|option| self.allowed(option))).collect()
    }

    /// The names of the members that a part of the schema lists.
    pub(super) fn members<'s>(&'s self, part: &'s Value) -> Vec<&'s str> {
        let members = self.resolved(part).get("properties").and_then(Value::as_object);
        members.into_iter().flat_map(Map::keys).map(String::as_str).collect()
    }

    /// What a part of the schema refers to, or the part itself.
    pub(super) fn resolved<'s>(&'s self, part: &'s Value) -> &'s Value {
        let pointer = part.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        pointer.and_then(|pointer| self.schema.pointer(pointer)).unwrap_or(part)
    }

    /// The part of the schema that a keyword stands in.
    pub(super) fn parent_of(&self, schema_path: &str) -> Option<&Value> {
        let (parent, _) = schema_path.rsplit_once('/')?;
        self.schema.pointer(parent)
    }
}

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

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Every word that the format itself is made of: names of members and listed values, available or not.
pub(super) fn vocabulary() -> HashSet<String> {
    let mut words: HashSet<String> =
        unavailable::MEMBERS.iter().copied().flatten().map(|word| (*word).to_owned()).collect();
    collect(&CONFIG.schema, &mut words);
    words.extend(["true", "false", "*"].map(str::to_owned));
    words
}

fn collect(part: &Value, words: &mut HashSet<String>) {
    words.extend(CONFIG.members(part).into_iter().map(str::to_owned));
    words.extend(CONFIG.allowed(part));
    match part {
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        Value::Object(members) => members.values().for_each(|member| collect(member, words)),
        _ => {}
    }
}
