//! What can be wrong with JSON text, and where.

use std::fmt;

/// The first fault found in a text, with the byte at which it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonFault {
    /// What is wrong.
    pub kind: JsonFaultKind,
    /// Byte offset into the text that was read.
    pub at: usize,
}

/// What is wrong with a JSON text. RFC 8259 is the measure; the last four are stricter than its grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonFaultKind {
    /// Something else stands where the named thing should.
    Expected(&'static str),
    /// The text ends where the named thing should follow.
    Ends(&'static str),
    /// Text follows the value.
    TrailingText,
    /// A raw control character stands in a string.
    ControlCharacter,
    /// An escape that RFC 8259 does not know.
    BadEscape,
    /// A number that breaks the grammar: a leading zero, a bare point, a missing digit.
    BadNumber,
    /// A value of the wrong JSON type for where it stands.
    WrongType(&'static str),
    /// A `\u` escape that is half of a surrogate pair: it has no UTF-8 form.
    LoneSurrogate,
    /// The same key twice in one object, after its escapes are read.
    DuplicateKey(String),
    /// More than [`DEPTH_MAX`](super::DEPTH_MAX) containers are open.
    TooDeep,
    /// An exponent beyond ±400, or more than 1,000 digits.
    NumberOutOfRange,
    /// A key that the JSON library reserves for itself, and that would change how the value is read.
    ReservedKey,
}

impl JsonFault {
    /// A fault of this kind at this byte.
    pub fn new(kind: JsonFaultKind, at: usize) -> Self {
        Self { kind, at }
    }

    /// Line and column of the fault in `text`, both from 1; the column counts characters.
    pub fn position(&self, text: &[u8]) -> (usize, usize) {
        let before = text.get(..self.at.min(text.len())).unwrap_or_default();
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let column = before.get(line_start..).unwrap_or_default().iter().filter(|byte| (**byte & 0xC0) != 0x80).count();
        (line, column + 1)
    }
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for JsonFault {}

impl fmt::Display for JsonFaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expected(what) => write!(f, "expected {what}"),
            Self::Ends(what) => write!(f, "the text ends where {what} is expected"),
            Self::TrailingText => f.write_str("text follows the value"),
            Self::ControlCharacter => f.write_str("a raw control character stands in a string"),
            Self::BadEscape => f.write_str("an escape that JSON does not know"),
            Self::BadNumber => f.write_str("a number that breaks JSON's grammar"),
            Self::WrongType(what) => write!(f, "expected {what}"),
            Self::LoneSurrogate => f.write_str("half of a surrogate pair stands alone"),
            Self::DuplicateKey(key) => write!(f, "the key `{}` stands twice in one object", shown(key)),
            Self::TooDeep => write!(f, "more than {} containers are open", super::DEPTH_MAX),
            Self::NumberOutOfRange => f.write_str("a number with an exponent beyond 400 or more than 1,000 digits"),
            Self::ReservedKey => f.write_str("a key that begins with `$serde_json::private::`"),
        }
    }
}

/// At most 80 characters of `text`, with control characters replaced, fit for a message.
pub fn shown(text: &str) -> String {
    // Most names are short and plain, and every request has some.
    if text.len() <= 80 && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(80).map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect();
    if text.chars().nth(80).is_some() {
        out.push('…');
    }
    out
}
