//! Places in a JSON value: RFC 9535 normalized paths, and the bytes that a path reaches.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::check;
use super::cursor::{Begins, Cursor};
use super::fault::JsonFault;
use super::string;

/// A place in a JSON value; `$` is the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<Segment>);

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// Into an object.
    Key(String),
    /// Into an array, from 0.
    Index(usize),
}

impl Path {
    /// The root.
    pub fn root() -> Self {
        Self::default()
    }

    /// The path of these steps.
    pub fn new(segments: Vec<Segment>) -> Self {
        Self(segments)
    }

    /// The steps from the root.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// This path and one key more.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.push(Segment::Key(key.into()));
        self
    }

    /// This path and one index more.
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Segment::Index(index));
        self
    }

    /// Whether this path leads to `other` or to what holds it.
    pub fn holds(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Where in `text` the value stands that this path reaches; none where it reaches nothing.
    pub fn locate(&self, text: &[u8]) -> Option<Range<usize>> {
        let mut range = Cursor::new(text).skip().ok()?;
        for segment in &self.0 {
            let mut cursor = Cursor::at(text, range.start);
            let mut found = None;
            match segment {
                Segment::Key(wanted) if cursor.begins() == Begins::Object => {
                    cursor
                        .object(|cursor, member| {
                            let here = cursor.skip()?;
                            if member.key == *wanted {
                                found = Some(here);
                            }
                            Ok::<(), JsonFault>(())
                        })
                        .ok()?;
                }
                Segment::Index(wanted) if cursor.begins() == Begins::Array => {
                    let mut index = 0;
                    cursor
                        .array(|cursor| {
                            let here = cursor.skip()?;
                            if index == *wanted {
                                found = Some(here);
                            }
                            index += 1;
                            Ok::<(), JsonFault>(())
                        })
                        .ok()?;
                }
                _ => {}
            }
            range = found?;
        }
        Some(range)
    }
}

/// The path of the innermost container in `text` that is still open at byte `offset`.
///
/// `text` must be well formed up to `offset`; what follows is not read.
pub fn open_at(text: &[u8], offset: usize) -> Path {
    let mut stack: Vec<Segment> = Vec::new();
    let mut at = 0;
    while at < offset {
        match text.get(at) {
            Some(b'"') => {
                let Ok(spot) = string::spot(text, at) else { break };
                let is_key = text.get(check::white(text, spot.after())) == Some(&b':');
                if let (true, Some(Segment::Key(key))) = (is_key, stack.last_mut()) {
                    *key = string::decode(text, spot).map(Cow::into_owned).unwrap_or_default();
                }
                at = spot.after();
                continue;
            }
            Some(b'{') => stack.push(Segment::Key(String::new())),
            Some(b'[') => stack.push(Segment::Index(0)),
            Some(b'}' | b']') => {
                stack.pop();
            }
            Some(b',') => {
                if let Some(Segment::Index(index)) = stack.last_mut() {
                    *index += 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    stack.pop();
    Path(stack)
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        for segment in &self.0 {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    f.write_str("['")?;
                    for c in key.chars() {
                        match c {
                            '\'' => f.write_str("\\'")?,
                            '\\' => f.write_str("\\\\")?,
                            '\u{8}' => f.write_str("\\b")?,
                            '\u{c}' => f.write_str("\\f")?,
                            '\n' => f.write_str("\\n")?,
                            '\r' => f.write_str("\\r")?,
                            '\t' => f.write_str("\\t")?,
                            c if (c as u32) < 0x20 => write!(f, "\\u{:04x}", c as u32)?,
                            c => write!(f, "{c}")?,
                        }
                    }
                    f.write_str("']")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normalized_path_escapes_what_rfc_9535_escapes() {
        let path = Path::new(vec![Segment::Key("it's\\\n\u{1}".into()), Segment::Index(3)]);
        assert_eq!(path.to_string(), r"$['it\'s\\\n\u0001'][3]");
        assert_eq!(Path::root().to_string(), "$");
    }

    #[test]
    fn a_path_finds_its_bytes() {
        let text = br#" {"a":[1,{"b\u0062": "x"}],"c":{}} "#;
        let path = Path::new(vec![Segment::Key("a".into()), Segment::Index(1), Segment::Key("bb".into())]);
        assert_eq!(&text[path.locate(text).unwrap()], br#""x""#);
        assert_eq!(&text[Path::root().locate(text).unwrap()], &text[1..text.len() - 1]);
        assert_eq!(Path::root().key("a").key("b").locate(text), None);
        assert_eq!(Path::root().key("zz").locate(text), None);
    }

    #[test]
    fn the_open_container_at_a_byte_has_a_path() {
        let text = br#"{"x":[{"y":1},{"z":{"k":1,"k":2}}]}"#;
        let second = 26;
        assert_eq!(&text[second..second + 3], b"\"k\"");
        assert_eq!(open_at(text, second).to_string(), "$['x'][1]['z']");
        assert_eq!(open_at(text, 0).to_string(), "$");
    }
}
