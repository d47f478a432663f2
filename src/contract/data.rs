//! Reference data of a policy: tables that rules, facts and gates look things up in.
//!
//! A table is read once, when the policy is loaded, from bytes that the loader has fetched: JSON, JSON Lines, CSV or
//! YAML, told apart by the file's name. With a key it is a map by that column, else a list in the order of the file.

mod csv;
mod yaml;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Map;
use serde_json::Value;

use crate::contract::message;
use crate::contract::scene::said;
use crate::json::decimal::Decimal;
use crate::json::fault::shown;
use crate::json::tape::Place;
use crate::json::tape::What;
use crate::json::tree;

/// Bytes of one file.
pub const FILE_BYTES_MAX: usize = 16 << 20;
/// Rows of one table.
pub const ROWS_MAX: usize = 1_000_000;

/// The tables of one policy, by the names that it gives them.
#[derive(Debug, Default)]
pub struct Data(pub BTreeMap<Arc<str>, Table>);

/// One table.
#[derive(Debug)]
pub struct Table {
    /// The column that it is keyed by.
    key: Option<String>,
    /// A map by key, or the rows.
    value: Value,
}

/// Why a file is no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// The name of the file does not tell what is in it.
    #[error("`{0}` does not end with .json, .jsonl, .ndjson, .csv, .yaml or .yml")]
    Format(String),
    /// The file, or the table in it, is too large.
    #[error("the file has {found} {unit}, at most {max} are allowed")]
    Size {
        /// What was counted.
        unit: &'static str,
        /// How many there are.
        found: usize,
        /// How many are allowed.
        max: usize,
    },
    /// Something in the file is not as its format demands.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column, in characters from 1.
        column: usize,
        /// What was found and what was expected.
        message: String,
    },
    /// The file holds something else than a list of rows.
    #[error("expected a list of rows, found {0}")]
    NoRows(&'static str),
    /// A row cannot be keyed.
    #[error("row {row}: {message}")]
    Row {
        /// The row, from 1.
        row: usize,
        /// What was found and what was expected.
        message: String,
    },
    /// Two rows have one key.
    #[error("rows {first} and {second} have the same `{column}`: `{key}`")]
    DuplicateKey {
        /// The column.
        column: String,
        /// The key.
        key: String,
        /// The row that has it first, from 1.
        first: usize,
        /// The row that has it again.
        second: usize,
    },
}

impl Table {
    /// The table in a file of this name, keyed by a column or not.
    ///
    /// JSON and YAML hold a list of rows; JSON Lines one row a line; CSV is RFC 4180 with a header row, and all of its
    /// values are texts. Everything is read strictly: a key that stands twice, a row of another width, an open quote
    /// is an error.
    ///
    /// # Errors
    /// Where the file breaks its format or a bound, and where two rows have one key, or a row none.
    pub fn read(file_name: &str, bytes: &[u8], key: Option<&str>) -> Result<Self, DataError> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(DataError::Size { unit: "bytes", found: bytes.len(), max: FILE_BYTES_MAX });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            syntax(bytes, error.valid_up_to(), "expected UTF-8, found a byte that is none".to_owned())
        })?;
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let extension = file_name.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
        let value = match extension.as_str() {
            "json" => tree::parse(text).map_err(|fault| syntax(text.as_bytes(), fault.at, fault.to_string()))?,
            "jsonl" | "ndjson" => Value::Array(lines(text)?),
            "csv" => Value::Array(csv::rows(text)?),
            "yaml" | "yml" => yaml::value(text)?,
            _ => return Err(DataError::Format(shown(file_name))),
        };
        let Value::Array(rows) = value else { return Err(DataError::NoRows(message::type_of(&value))) };
        if rows.len() > ROWS_MAX {
            return Err(DataError::Size { unit: "rows", found: rows.len(), max: ROWS_MAX });
        }
        let value = match key {
            Some(column) => Value::Object(keyed(rows, column)?),
            None => Value::Array(rows),
        };
        Ok(Self { key: key.map(str::to_owned), value })
    }

    /// A map by key where the table has one, else a list of its rows.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The column that it is keyed by.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    fn rows(&self) -> impl Iterator<Item = (Option<&str>, &Value)> {
        let (map, list) = match &self.value {
            Value::Object(map) => (Some(map), None),
            Value::Array(rows) => (None, Some(rows)),
            _ => (None, None),
        };
        let keyed = map.into_iter().flatten().map(|(key, row)| (Some(key.as_str()), row));
        keyed.chain(list.into_iter().flatten().map(|row| (None, row)))
    }

    /// Whether a row has this column.
    fn has(&self, column: &str) -> bool {
        self.rows().any(|(_, row)| row.get(column).is_some())
    }
}

impl Data {
    /// All tables in one object, by name.
    pub fn json(&self) -> Value {
        Value::Object(self.0.iter().map(|(name, table)| (name.to_string(), table.value().clone())).collect())
    }

    /// The table of this name.
    pub fn table(&self, name: &str) -> Result<&Table, String> {
        self.0.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.0.keys().map(AsRef::as_ref).collect();
            match known.is_empty() {
                true => format!("the policy has no data `{}`: it has none at all", shown(name)),
                false => format!("the policy has no data `{}`; it has `{}`", shown(name), known.join("`, `")),
            }
        })
    }

    /// The table and column that `TABLE.COLUMN` or `TABLE` names.
    fn column<'n>(&self, name: &'n str) -> Result<(&Table, Option<&'n str>), String> {
        let (table, column) = match name.split_once('.') {
            Some((table, column)) => (table, Some(column)),
            None => (name, None),
        };
        let found = self.table(table)?;
        match column {
            Some(column) if !found.has(column) => Err(format!("no row of `{table}` has a column `{}`", shown(column))),
            _ => Ok((found, column)),
        }
    }

    /// The values of `TABLE.COLUMN`, to look others up in; of `TABLE` alone, its keys, or its items where it is a list
    /// of texts and numbers. A list in a column counts item by item.
    ///
    /// # Errors
    /// Where there is no such table or column, and where what it names holds anything but texts, numbers and booleans.
    pub fn index(&self, name: &str) -> Result<Index, String> {
        let (table, column) = self.column(name)?;
        let mut index = Index::default();
        for (key, row) in table.rows() {
            match (column, key) {
                (Some(column), _) => match row.get(column) {
                    Some(Value::Array(items)) => items.iter().try_for_each(|item| index.add(item, name))?,
                    Some(value) => index.add(value, name)?,
                    None => {}
                },
                (None, Some(key)) => index.add(&Value::String(key.to_owned()), name)?,
                (None, None) => index.add(row, name)?,
            }
        }
        Ok(index)
    }

    /// The words in `TABLE.COLUMN`, row by row under the row's key.
    ///
    /// # Errors
    /// Where there is no such column, the table has no key, or the column holds anything but texts and lists of texts.
    pub fn words(&self, name: &str) -> Result<Vec<(String, Vec<String>)>, String> {
        let (table, Some(column)) = self.column(name)? else {
            return Err(format!("expected `TABLE.COLUMN`, found `{}`", shown(name)));
        };
        if table.key.is_none() {
            return Err(format!("`{}` needs a table with a `key`", shown(name)));
        }
        let text = |value: &Value| match value {
            Value::String(text) if !text.trim().is_empty() => Ok(text.clone()),
            other => Err(format!("expected texts in `{}`, found {}", shown(name), message::value(other))),
        };
        let mut all = Vec::new();
        for (key, row) in table.rows() {
            let words = match row.get(column) {
                Some(Value::Array(items)) => items.iter().map(text).collect::<Result<_, _>>()?,
                Some(value) => vec![text(value)?],
                None => Vec::new(),
            };
            all.push((key.unwrap_or_default().to_owned(), words));
        }
        Ok(all)
    }
}

/// Values to look others up in.
#[derive(Clone, Debug, Default)]
pub struct Index {
    said: HashSet<Box<str>>,
    numbers: HashSet<Decimal>,
}

impl Index {
    fn add(&mut self, value: &Value, name: &str) -> Result<(), String> {
        match value {
            Value::String(text) => self.said.insert(text.as_str().into()),
            Value::Bool(flag) => self.said.insert(flag.to_string().into()),
            Value::Number(number) => {
                let text = number.to_string();
                let read = Decimal::read(&text);
                self.numbers.insert(read.map_err(|error| format!("`{}` holds {error}", shown(name)))?);
                self.said.insert(text.into())
            }
            Value::Null => false,
            other => {
                let found = message::type_of(other);
                return Err(format!("expected texts and numbers in `{}`, found an {found}", shown(name)));
            }
        };
        Ok(())
    }

    /// Whether the value is one of them: a text character for character, a number by its value. A null never is.
    pub fn has(&self, value: Place<'_>) -> bool {
        match value.what() {
            What::Null | What::Array | What::Object => false,
            What::Number => {
                self.said.contains(value.raw()) || Decimal::read(value.raw()).is_ok_and(|it| self.numbers.contains(&it))
            }
            _ => said(value).is_some_and(|text| self.said.contains(&*text)),
        }
    }

    /// How many different texts there are.
    pub fn len(&self) -> usize {
        self.said.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.said.is_empty()
    }
}

fn keyed(rows: Vec<Value>, column: &str) -> Result<Map<String, Value>, DataError> {
    let mut firsts: HashMap<String, usize> = HashMap::with_capacity(rows.len());
    let mut map = Map::with_capacity(rows.len());
    for (index, row) in rows.into_iter().enumerate() {
        let second = index + 1;
        let wrong = |message: String| DataError::Row { row: second, message };
        let Value::Object(members) = &row else {
            return Err(wrong(format!("expected an object, found {}", message::value(&row))));
        };
        let key = match members.get(column) {
            Some(Value::String(text)) if !text.is_empty() => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => {
                return Err(wrong(format!("expected a text or number in `{column}`, found {}", message::value(other))));
            }
            None => return Err(wrong(format!("the column `{column}` is missing"))),
        };
        if let Some(first) = firsts.insert(key.clone(), second) {
            return Err(DataError::DuplicateKey { column: column.to_owned(), key: shown(&key), first, second });
        }
        map.insert(key, row);
    }
    Ok(map)
}

fn lines(text: &str) -> Result<Vec<Value>, DataError> {
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let row = tree::parse(line).map_err(|fault| {
            let (_, column) = fault.position(line.as_bytes());
            DataError::Syntax { line: index + 1, column, message: fault.to_string() }
        })?;
        rows.push(row);
    }
    Ok(rows)
}

/// A fault at a byte of the text.
fn syntax(text: &[u8], at: usize, message: String) -> DataError {
    let fault = crate::json::JsonFault::new(crate::json::JsonFaultKind::TrailingText, at);
    let (line, column) = fault.position(text);
    DataError::Syntax { line, column, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::tape::Tape;
    use proptest::prelude::*;

    fn table(file: &str, text: &str, key: Option<&str>) -> Result<String, String> {
        Table::read(file, text.as_bytes(), key)
            .map(|table| table.value().to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_knows_its_key() {
        let text = br#"[{"id":"a"}]"#;
        assert_eq!(Table::read("t.json", text, Some("id")).unwrap().key(), Some("id"));
        assert_eq!(Table::read("t.json", text, None).unwrap().key(), None);
    }

    #[test]
    fn every_format_is_read_into_the_same_table() {
        let expected = r#"{"a":{"k":"a","n":"1"},"b":{"k":"b","n":"2"}}"#;
        for (file, text) in [
            ("t.json", r#"[{"k":"a","n":"1"},{"k":"b","n":"2"}]"#),
            ("t.jsonl", "{\"k\":\"a\",\"n\":\"1\"}\n\n{\"k\":\"b\",\"n\":\"2\"}\n"),
            ("T.NDJSON", "{\"k\":\"a\",\"n\":\"1\"}\r\n{\"k\":\"b\",\"n\":\"2\"}"),
            ("t.csv", "k,n\na,1\nb,2\n"),
            ("t.csv", "\u{FEFF}\"k\",n\r\n\"a\",\"1\"\r\nb,2"),
            ("t.yaml", "- {k: a, n: '1'}\n- k: b\n  n: \"2\"\n"),
        ] {
            assert_eq!(table(file, text, Some("k")).as_deref(), Ok(expected), "{file} {text}");
        }
        assert_eq!(table("t.json", "[1,2]", None).as_deref(), Ok("[1,2]"));
        assert_eq!(table("t.yml", "[]", None).as_deref(), Ok("[]"));
        assert_eq!(table("t.csv", "a,b\n", None).as_deref(), Ok("[]"));
    }

    #[test]
    fn numbers_keep_their_digits() {
        let long = "0.1234567890123456789012345678901";
        assert_eq!(table("t.json", &format!("[{long}]"), None).unwrap(), format!("[{long}]"));
        assert_eq!(
            table("t.yaml", &format!("- {long}\n- 12345678901234567890123\n- 1.10"), None).unwrap(),
            format!("[{long},12345678901234567890123,1.10]")
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (file, text, key, expected) in [
            ("t.txt", "", None, "`t.txt` does not end with"),
            ("menu", "[]", None, "`menu` does not end with"),
            ("t.json", "{\"a\":1}", None, "expected a list of rows, found object"),
            ("t.json", "[{\"a\":1,\n\"a\":2}]", None, "line 2, column 1: the key `a` stands twice"),
            ("t.json", "[1,]", None, "line 1, column 4"),
            ("t.jsonl", "{\"a\":1}\n{\"a\" 2}", None, "line 2, column 6"),
            ("t.csv", "a,b\n1\n", None, "line 2, column 1: expected 2 fields, found 1"),
            ("t.csv", "a,a\n", None, "line 1, column 1: the column `a` stands twice"),
            ("t.csv", "a,\n", None, "line 1, column 1: a column has no name"),
            ("t.csv", "", None, "line 1, column 1: expected a header row"),
            ("t.csv", "a\n\"x\n", None, "line 2, column 1: this quote is never closed"),
            ("t.csv", "a\nx\"y\n", None, "line 2, column 2: a quote stands inside of a field"),
            ("t.csv", "a\n\"x\"y\n", None, "line 2, column 4: expected `,` or the end of the line"),
            ("t.yaml", "- a: 1\n  a: 2\n", None, "line 2, column 3: the member `a` stands twice"),
            ("t.yaml", "- &x 1\n- *x\n", None, "line 1"),
            ("t.yaml", "- !!str 1\n", None, "tags"),
            ("t.yaml", "[1", None, "line 1"),
            ("t.yaml", "- 1\n---\n- 2\n", None, "second document"),
            ("t.json", "[{\"k\":\"a\"},{\"k\":\"b\"},{\"k\":\"a\"}]", Some("k"), "rows 1 and 3 have the same `k`: `a`"),
            ("t.json", "[{\"k\":1},{\"j\":1}]", Some("k"), "row 2: the column `k` is missing"),
            ("t.json", "[{\"k\":null}]", Some("k"), "row 1: expected a text or number in `k`, found `null`"),
            ("t.json", "[\"a\"]", Some("k"), "row 1: expected an object, found `\"a\"`"),
        ] {
            let error = table(file, text, key).unwrap_err();
            assert!(error.contains(expected), "{file} {text}: {error}");
        }
        assert!(
            Table::read("t.json", b"[\"\xFF\"]", None).unwrap_err().to_string().contains("column 3: expected UTF-8")
        );
    }

    fn data(text: &str, key: Option<&str>) -> Data {
        Data([("t".into(), Table::read("t.json", text.as_bytes(), key).unwrap())].into())
    }

    #[test]
    fn an_index_holds_texts_and_numbers() {
        let keyed = data(r#"[{"k":"A","codes":["x",1.0,true],"n":null},{"k":"B","codes":"y"}]"#, Some("k"));
        let has = |data: &Data, name: &str, value: &str| data.index(name).unwrap().has(Tape::of(value).unwrap().root());
        for (name, value, expected) in [
            ("t", "\"A\"", true),
            ("t", "\"a\"", false),
            ("t", "\"C\"", false),
            ("t.codes", "\"x\"", true),
            ("t.codes", "\"\\u0079\"", true),
            ("t.codes", "1", true),
            ("t.codes", "1.00", true),
            ("t.codes", "true", true),
            ("t.codes", "null", false),
            ("t.n", "null", false),
            ("t.codes", "[\"x\"]", false),
        ] {
            assert_eq!(has(&keyed, name, value), expected, "{name} {value}");
        }
        assert!(has(&data("[\"EUR\",7]", None), "t", "7.0"));
        assert!(data("[{\"a\":1}]", None).index("t").is_err());
        assert!(keyed.index("t.gone").unwrap_err().contains("column `gone`"));
        assert!(keyed.index("menu").unwrap_err().contains("it has `t`"));
        assert_eq!(keyed.words("t.k").unwrap(), [("A".into(), vec!["A".into()]), ("B".into(), vec!["B".into()])]);
        assert!(keyed.words("t.codes").is_err() && keyed.words("t").is_err());
    }

    proptest! {
        #[test]
        fn no_file_panics(text in "[a-c,\"\\r\\n: {}\\[\\]&*!-]{0,30}|\\PC{0,30}") {
            for file in ["t.csv", "t.json", "t.jsonl", "t.yaml"] {
                let _ = Table::read(file, text.as_bytes(), Some("a"));
            }
        }

        #[test]
        fn csv_reads_back_what_was_written(rows in proptest::collection::vec(proptest::collection::vec("[ab,\"\\r\\n é]{0,6}", 2), 0..5)) {
            let field = |text: &String| format!("\"{}\"", text.replace('"', "\"\""));
            let lines: Vec<String> = rows.iter().map(|row| row.iter().map(field).collect::<Vec<_>>().join(",")).collect();
            let text = format!("x,y\r\n{}", lines.iter().map(|line| format!("{line}\r\n")).collect::<String>());
            let table = Table::read("t.csv", text.as_bytes(), None).unwrap();
            let expected: Vec<Value> = rows.iter().map(|row| serde_json::json!({"x": row[0], "y": row[1]})).collect();
            prop_assert_eq!(table.value(), &Value::Array(expected));
        }
    }
}
