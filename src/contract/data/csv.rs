//! CSV as RFC 4180 has it, with a header row; strict where that leaves room.

use std::collections::HashSet;

use serde_json::Map;
use serde_json::Value;

use crate::contract::data::DataError;
use crate::contract::data::syntax;
use crate::json::fault::shown;

/// The rows under a header row, each an object of texts.
pub(super) fn rows(text: &str) -> Result<Vec<Value>, DataError> {
    let mut reader = Reader { text, at: 0 };
    let header = reader.row()?.unwrap_or_default();
    if header.is_empty() {
        return Err(syntax(text.as_bytes(), 0, "expected a header row, found nothing".to_owned()));
    }
    let mut seen = HashSet::with_capacity(header.len());
    for name in &header {
        let wrong = match name.as_str() {
            "" => "a column has no name".to_owned(),
            name if !seen.insert(name) => format!("the column `{}` stands twice", shown(name)),
            _ => continue,
        };
        return Err(syntax(text.as_bytes(), 0, wrong));
    }
    let mut rows = Vec::new();
    loop {
        let start = reader.at;
        let Some(fields) = reader.row()? else { return Ok(rows) };
        if fields.len() != header.len() {
            let message = format!("expected {} fields, found {}", header.len(), fields.len());
            return Err(syntax(text.as_bytes(), start, message));
        }
        let row: Map<String, Value> = header.iter().cloned().zip(fields.into_iter().map(Value::String)).collect();
        rows.push(Value::Object(row));
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    /// The fields of the next row; none at the end of the text.
    fn row(&mut self) -> Result<Option<Vec<String>>, DataError> {
        if self.at >= self.text.len() {
            return Ok(None);
        }
        let mut fields = Vec::new();
        loop {
            fields.push(self.field()?);
            let rest = self.text.get(self.at..).unwrap_or_default();
            if rest.starts_with(',') {
                self.at += 1;
                continue;
            }
            self.at += match rest.as_bytes() {
                [b'\r', b'\n', ..] => 2,
                [b'\n', ..] => 1,
                [] => 0,
                _ => return Err(self.wrong(self.at, "expected `,` or the end of the line after a quoted field")),
            };
            return Ok(Some(fields));
        }
    }

    fn field(&mut self) -> Result<String, DataError> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if let Some(inside) = rest.strip_prefix('"') {
            return self.quoted(inside);
        }
        let end = rest.find([',', '\n', '"']).unwrap_or(rest.len());
        if rest.get(end..).is_some_and(|rest| rest.starts_with('"')) {
            return Err(self.wrong(self.at + end, "a quote stands inside of a field that does not begin with one"));
        }
        let field = rest.get(..end).unwrap_or_default();
        let is_line_end = rest.get(end..).is_some_and(|rest| rest.starts_with('\n'));
        let field = if is_line_end { field.strip_suffix('\r').unwrap_or(field) } else { field };
        self.at += field.len();
        Ok(field.to_owned())
    }

    fn quoted(&mut self, inside: &str) -> Result<String, DataError> {
        let mut field = String::new();
        let mut rest = inside;
        loop {
            let Some((before, after)) = rest.split_once('"') else {
                return Err(self.wrong(self.at, "this quote is never closed"));
            };
            field.push_str(before);
            match after.strip_prefix('"') {
                Some(after) => {
                    field.push('"');
                    rest = after;
                }
                None => {
                    self.at = self.text.len() - after.len();
                    return Ok(field);
                }
            }
        }
    }

    fn wrong(&self, at: usize, message: &str) -> DataError {
        syntax(self.text.as_bytes(), at, message.to_owned())
    }
}
