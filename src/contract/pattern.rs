//! Patterns with look-around: they run on an engine that reads classes as Unicode has them, where ECMA 262,
//! which JSON Schema follows, has ASCII's. So the classes are spelt out before that engine sees them.

use serde_json::Map;
use serde_json::Value;

/// A pattern that cannot be spelt out.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern `{pattern}` has look-around and `{class}` in a place where it cannot be spelt out")]
pub struct Unspeakable {
    pattern: String,
    class: String,
}

/// White space as ECMA 262 has it (sections 12.2 and 12.3).
const SPACE: &str = r"\t\n\x0B\f\r \x{A0}\x{FEFF}\x{2028}\x{2029}\x{1680}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}";

/// Whether any pattern of the schema has a look-around or a back-reference, which the linear engine refuses.
pub fn looks_around(schema: &Value) -> bool {
    match schema {
        Value::Object(members) => members.iter().any(|(key, value)| match value {
            Value::String(pattern) if key == "pattern" => fancy(pattern),
            Value::Object(patterns) if key == "patternProperties" => {
                patterns.iter().any(|(pattern, schema)| fancy(pattern) || looks_around(schema))
            }
            other => looks_around(other),
        }),
        Value::Array(items) => items.iter().any(looks_around),
        _ => false,
    }
}

fn fancy(pattern: &str) -> bool {
    ["(?=", "(?!", "(?<=", "(?<!", "\\1", "\\2", "\\3"].iter().any(|mark| pattern.contains(mark))
}

/// The schema with the classes of its look-around patterns spelt out.
pub fn spelt_out(schema: &Value) -> Result<Value, Unspeakable> {
    Ok(match schema {
        Value::Object(members) => {
            let mut out = Map::with_capacity(members.len());
            for (key, value) in members {
                let value = match value {
                    Value::String(text) if key == "pattern" && fancy(text) => Value::String(pattern(text)?),
                    Value::Object(patterns) if key == "patternProperties" => {
                        let mut all = Map::with_capacity(patterns.len());
                        for (text, schema) in patterns {
                            let text = if fancy(text) { pattern(text)? } else { text.clone() };
                            all.insert(text, spelt_out(schema)?);
                        }
                        Value::Object(all)
                    }
                    other => spelt_out(other)?,
                };
                out.insert(key.clone(), value);
            }
            Value::Object(out)
        }
        Value::Array(items) => Value::Array(items.iter().map(spelt_out).collect::<Result<_, _>>()?),
        other => other.clone(),
    })
}

/// One pattern with its classes spelt out.
fn pattern(text: &str) -> Result<String, Unspeakable> {
    let mut out = String::with_capacity(text.len() * 2);
    let mut inside = false;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' => {
                let escaped = characters.next().unwrap_or('\\');
                match class(escaped, inside) {
                    Some(spelt) => out.push_str(&spelt),
                    None if matches!(escaped, 'D' | 'W' | 'S' | 'B') => {
                        return Err(Unspeakable {
                            pattern: text.chars().take(80).collect(),
                            class: format!("\\{escaped}"),
                        });
                    }
                    None => out.extend(['\\', escaped]),
                }
                continue;
            }
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        out.push(c);
    }
    Ok(out)
}

/// What a class escape stands for; `inside` a bracketed class, where no negated one can stand.
fn class(escape: char, inside: bool) -> Option<String> {
    let list = match escape.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => SPACE,
        'b' if escape == 'b' && !inside => return Some("(?-u:\\b)".to_owned()),
        _ => return None,
    };
    match (inside, escape.is_ascii_uppercase()) {
        (true, true) => None,
        (true, false) => Some(list.to_owned()),
        (false, true) => Some(format!("[^{list}]")),
        (false, false) => Some(format!("[{list}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_around_is_found_in_patterns_alone() {
        let found = |schema: &str| looks_around(&serde_json::from_str(schema).unwrap());
        for schema in [
            r#"{"pattern":"^(?=a)"}"#,
            r#"{"patternProperties":{"(?!a)":true}}"#,
            r#"{"patternProperties":{"a":{"pattern":"(?<=b)c"}}}"#,
            r#"{"anyOf":[true,{"items":{"pattern":"(a)\\1"}}]}"#,
        ] {
            assert!(found(schema), "{schema}");
        }
        for schema in [
            "true",
            r#"{"pattern":"^a+$","title":"(?=a)"}"#,
            r#"{"properties":{"(?=a)":true,"pattern":{"type":"string"}}}"#,
            r#"{"patternProperties":{"^a":{"const":"(?<!b)"}}}"#,
        ] {
            assert!(!found(schema), "{schema}");
        }
    }

    #[test]
    fn classes_are_spelt_out_where_they_stand() {
        let of = |text: &str| pattern(text).unwrap();
        assert_eq!(of(r"^(?=.*\d)\w+$"), r"^(?=.*[0-9])[0-9A-Za-z_]+$");
        assert_eq!(of(r"[\d.]\D"), r"[0-9.][^0-9]");
        assert_eq!(of(r"\\d\."), r"\\d\.");
        assert_eq!(of(r"\bx"), r"(?-u:\b)x");
        assert!(pattern(r"[\D]").is_err());
        assert!(pattern(r"\B").is_err());
    }
}
