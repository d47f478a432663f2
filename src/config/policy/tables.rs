//! What a policy's gates look things up in: tables of reference data, facts, and the fields that code sets.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::config::policy::bundle::Files;
use crate::config::policy::file::AssignFile;
use crate::config::policy::file::DataFile;
use crate::config::policy::file::LookupFile;
use crate::config::policy::file::NowFile;
use crate::config::policy::file::UuidFile;
use crate::config::policy::gates;
use crate::config::resolve::Notes;
use crate::contract::assign::Assigned;
use crate::contract::assign::AssignedValue;
use crate::contract::data::Data;
use crate::contract::data::Table;
use crate::contract::fact::Automata;
use crate::contract::fact::FactRule;
use crate::contract::gate::GateEntry;
use crate::json::query::Query;
use crate::nearest::did_you_mean;

/// Reads every table. One that cannot be read is reported and left out.
pub(super) fn data(tables: BTreeMap<String, DataFile>, files: &Files, notes: &mut Notes<'_>) -> Data {
    let mut data = Data::default();
    for (name, DataFile { file, key }) in tables {
        let path = ["data", &name, "file"];
        is_identifier(&["data", &name], &name, notes);
        let Some(file) = file else { continue };
        let bytes = match files.read(&file) {
            Ok(bytes) => bytes,
            Err(error) => {
                notes.error(&path, format!("the file {} of `data.{name}`: {error}", notes.quoted(&path)));
                continue;
            }
        };
        match Table::read(&file, &bytes, key.as_deref()) {
            Ok(table) => {
                data.0.insert(name.into(), table);
            }
            Err(error) => notes.error(&path, format!("the file {} of `data.{name}`: {error}", notes.quoted(&path))),
        }
    }
    data
}

/// Compiles every fact. One that cannot be is reported and left out.
pub(super) fn facts(files: &BTreeMap<String, Value>, data: &Data, notes: &mut Notes<'_>) -> Vec<FactRule> {
    let mut facts = Vec::with_capacity(files.len());
    let mut automata = Automata::default();
    for (name, settings) in files {
        let path = ["facts", name.as_str()];
        is_identifier(&path, name, notes);
        if notes.has_broken(&path) {
            continue;
        }
        match FactRule::compile(name, settings, data, &mut automata) {
            Ok(fact) => facts.push(fact),
            Err(errors) => {
                for error in errors {
                    let path: Vec<&str> = path.into_iter().chain(error.at.iter().map(String::as_str)).collect();
                    notes.error(&path, format!("fact `{name}`: {}", error.message));
                }
            }
        }
    }
    facts
}

/// Rules and templates name tables and facts as `data.menu`, so a name must be one that they can write.
fn is_identifier(path: &[&str], name: &str, notes: &mut Notes<'_>) {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !(starts && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')) {
        let message = format!(
            "the name `{name}` must be 1 to 64 letters, digits or `_`, no digit first: rules write it as `{}.{name}`",
            path.first().copied().unwrap_or_default()
        );
        notes.error_at_name(path, message);
    }
}

/// Resolves `assign`.
pub(super) fn assign(fields: Vec<(String, AssignFile)>, data: &Data, notes: &mut Notes<'_>) -> Vec<Assigned> {
    let mut all = Vec::with_capacity(fields.len());
    for (name, file) in fields {
        let path = ["assign", name.as_str()];
        let AssignFile { uuid, now, constant, slugify, lookup } = file;
        let written = [uuid.is_some(), now.is_some(), constant.is_some(), slugify.is_some(), lookup.is_some()];
        if written.iter().filter(|is_there| **is_there).count() > 1 {
            let message = format!(
                "`assign.{name}` has more than one value; it takes exactly one of `uuid`, `now`, `const`, `slugify`, `lookup`"
            );
            notes.error(&path, message);
            continue;
        }
        let value = match (uuid, now, constant, slugify, lookup) {
            (Some(UuidFile::V4), ..) => Some(AssignedValue::UuidV4),
            (Some(UuidFile::V7), ..) => Some(AssignedValue::UuidV7),
            (_, Some(NowFile::Rfc3339), ..) => Some(AssignedValue::NowRfc3339),
            (_, _, Some(value), ..) => Some(AssignedValue::Const(value)),
            (_, _, _, Some(text), _) => {
                singular(&["assign", &name, "slugify"], &text, notes).map(AssignedValue::Slugify)
            }
            (_, _, _, _, Some(file)) => lookup_in(&name, file, data, notes),
            _ => None, // its one member was reported
        };
        all.extend(value.map(|value| Assigned { name: name.as_str().into(), value }));
    }
    all
}

fn lookup_in(field: &str, file: LookupFile, data: &Data, notes: &mut Notes<'_>) -> Option<AssignedValue> {
    let at = |member| ["assign", field, "lookup", member];
    let (table_name, by, column_name) = (file.r#in?, file.by?, file.column?);
    let by = singular(&at("by"), &by, notes);
    if notes.has_broken(&["data"]) {
        return None;
    }
    let Some(table) = data.0.get(table_name.as_str()) else {
        if !notes.is_written(&["data", &table_name]) {
            let near = did_you_mean(&table_name, data.0.keys().map(|name| &**name));
            notes.error(
                &at("in"),
                format!("`assign.{field}` looks in `{table_name}`, which is no table of `data`{near}"),
            );
        }
        return None;
    };
    let (Some(_), Value::Object(rows)) = (table.key(), table.value()) else {
        let message = format!("`assign.{field}` looks in `{table_name}`, which has no `key` to find rows by");
        notes.error(&at("in"), message);
        return None;
    };
    let column: BTreeMap<String, Value> =
        rows.iter().filter_map(|(key, row)| Some((key.clone(), row.get(&column_name)?.clone()))).collect();
    if column.is_empty() {
        let columns = rows.values().filter_map(Value::as_object).flat_map(|row| row.keys()).map(String::as_str);
        let near = did_you_mean(&column_name, columns);
        notes.error(&at("column"), format!("no row of `data.{table_name}` has the column `{column_name}`{near}"));
        return None;
    }
    Some(AssignedValue::Lookup {
        column: Arc::new(column),
        name: format!("{table_name}.{column_name}").into(),
        by: by?,
    })
}

fn singular(path: &[&str], text: &str, notes: &mut Notes<'_>) -> Option<Query> {
    let query = gates::query(path, text, notes)?;
    if query.is_singular() {
        return Some(query);
    }
    notes.error(path, format!("{} selects many values; a path to one is needed", notes.quoted(path)));
    None
}

/// A field that code sets is not there while gates run: nothing else may speak of it.
pub(super) fn not_used_otherwise(
    names: &[String],
    envelope: Option<&str>,
    assign: &[Assigned],
    gates: &[Option<GateEntry>],
    notes: &mut Notes<'_>,
) {
    for name in names {
        if envelope == Some(name) {
            let message = format!("`{name}` is set by `assign` and by `envelope`; one must go");
            notes.error(&["envelope", "wrap_array"], message);
        }
        let Ok(own) = Query::read(&format!("$[{}]", Value::String(name.clone()))) else { continue };
        for (index, gate) in gates.iter().enumerate() {
            let Some(gate) = gate else { continue };
            if let Some(path) = gate.gate.paths().into_iter().find(|path| own.covers(path)) {
                let message = format!(
                    "gate `{}` looks at `{path}`, which `assign` sets only after every gate has run",
                    gate.name
                );
                notes.error(&["gates", &index.to_string()], message);
            }
        }
        for field in assign {
            let read = match &field.value {
                AssignedValue::Slugify(path) | AssignedValue::Lookup { by: path, .. } => path,
                AssignedValue::UuidV4 | AssignedValue::UuidV7 | AssignedValue::NowRfc3339 | AssignedValue::Const(_) => {
                    continue;
                }
            };
            if own.covers(read) {
                let message =
                    format!("`assign.{}` reads `{read}`, which is not the model's but set by code itself", field.name);
                notes.error(&["assign", &field.name], message);
            }
        }
    }
}
