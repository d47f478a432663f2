//! YAML as data: the JSON that it writes, numbers digit for digit. Anchors, aliases and tags are no data.

use std::ops::Range;

use serde_json::Map;
use serde_json::Number;
use serde_json::Value;
use serde_saphyr::granit_parser;
use serde_saphyr::granit_parser::Event;
use serde_saphyr::granit_parser::Parser;
use serde_saphyr::granit_parser::ScalarStyle;
use serde_saphyr::granit_parser::Span;

use crate::contract::data::DataError;
use crate::contract::data::syntax;
use crate::json::decimal::Decimal;
use crate::json::fault::shown;

/// Open containers that a file may nest.
const DEPTH_MAX: usize = 64;

/// The value of a text with one YAML document.
pub(super) fn value(text: &str) -> Result<Value, DataError> {
    let options = granit_parser::options! {
        emit_unresolved_aliases: true,
        disallow_directives: true,
        flow_nesting_limit: DEPTH_MAX,
        block_nesting_limit: DEPTH_MAX,
    };
    let wrong = |at: usize, message: String| syntax(text.as_bytes(), at.min(text.len()), message);
    let mut builder = Builder { open: Vec::new(), root: None };
    let mut documents = 0;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker().byte_offset().unwrap_or(0);
            wrong(at, format!("this is not YAML: {}", error.kind()))
        })?;
        let span = bytes(&span);
        if let Event::DocumentStart(..) = event {
            documents += 1;
            if documents > 1 {
                return Err(wrong(span.start, "a second document starts here; one file holds one".to_owned()));
            }
        }
        builder.take(event, &span).map_err(|message| wrong(span.start, message))?;
    }
    builder.root.ok_or_else(|| wrong(0, "the file is empty".to_owned()))
}

fn bytes(span: &Span) -> Range<usize> {
    let start = span.start.byte_offset().unwrap_or(0);
    start..span.end.byte_offset().unwrap_or(start).max(start)
}

struct Builder {
    open: Vec<Open>,
    root: Option<Value>,
}

enum Open {
    List(Vec<Value>),
    Map(Map<String, Value>, Option<String>),
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: &Range<usize>) -> Result<(), String> {
        let marked = match &event {
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
            Event::SequenceStart(_, anchor, tag) | Event::MappingStart(_, anchor, tag) => (*anchor, tag.is_some()),
            Event::Alias(_) | Event::UnresolvedAlias(_) => (1, false),
            _ => (0, false),
        };
        match marked {
            (_, true) => return Err("tags (`!...`) are not taken".to_owned()),
            (anchor, _) if anchor > 0 => return Err("anchors and aliases (`&...`, `*...`) are not taken".to_owned()),
            _ => {}
        }
        match event {
            Event::Scalar(text, style, ..) => {
                let plain = style == ScalarStyle::Plain;
                if let Some(Open::Map(map, key @ None)) = self.open.last_mut() {
                    if map.contains_key(&*text) {
                        return Err(format!("the member `{}` stands twice in one mapping", shown(&text)));
                    }
                    *key = Some(text.into_owned());
                    return Ok(());
                }
                let value = if plain { scalar(&text, span.is_empty())? } else { Value::String(text.into_owned()) };
                self.place(value)
            }
            Event::SequenceStart(..) => self.open(Open::List(Vec::new())),
            Event::MappingStart(..) => self.open(Open::Map(Map::new(), None)),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List(items)) => self.place(Value::Array(items)),
                Some(Open::Map(members, _)) => self.place(Value::Object(members)),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn open(&mut self, open: Open) -> Result<(), String> {
        if let Some(Open::Map(_, None)) = self.open.last() {
            return Err("a name must be a text, not a list or a mapping".to_owned());
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} levels are nested"));
        }
        self.open.push(open);
        Ok(())
    }

    fn place(&mut self, value: Value) -> Result<(), String> {
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open::List(items)) => items.push(value),
            Some(Open::Map(members, key)) => {
                let key = key.take().ok_or("a name must be a text, not a list or a mapping")?;
                members.insert(key, value);
            }
        }
        Ok(())
    }
}

/// A plain scalar by the core schema (YAML 1.2.2 section 10.3.2), as far as JSON has a value for it.
fn scalar(text: &str, empty: bool) -> Result<Value, String> {
    match text {
        _ if empty => return Ok(Value::Null),
        "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(Value::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Value::Bool(false)),
        _ => {}
    }
    // A number keeps its digits, so it must be written as JSON writes it.
    if Decimal::read(text).is_ok()
        && let Ok(number) = text.parse::<Number>()
    {
        return Ok(Value::Number(number));
    }
    let unsigned = text.trim_start_matches(['+', '-']).trim_start_matches('.');
    let looks = unsigned.starts_with(|first: char| first.is_ascii_digit())
        && unsigned.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    // `12-34`, `1.2.3` and `2025-04-03` are texts to YAML as well.
    let number = looks && text.parse::<f64>().is_ok();
    let based = text.strip_prefix("0x").or_else(|| text.strip_prefix("0o"));
    let special = [".nan", ".inf", "+.inf", "-.inf"].iter().any(|one| one.eq_ignore_ascii_case(text));
    if number
        || special
        || based.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit()))
    {
        return Err(format!("`{}` is not a number as JSON writes it; put it in quotes if text is meant", shown(text)));
    }
    Ok(Value::String(text.to_owned()))
}
