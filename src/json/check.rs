//! A check of JSON text without building anything: iterative, linear, no recursion on the input's depth.
//!
//! Two strengths share one machine. [`strict`] is for text that a model wrote: beyond the grammar of
//! RFC 8259 it refuses duplicate keys, lone surrogates, numbers out of range and more than 127 open
//! containers. [`skip`] is for wire text that is passed on unread: the grammar and the depth alone.

use super::DEPTH_MAX;
use super::fault::{JsonFault, JsonFaultKind as Kind};
use super::string;
use super::string::Spot;

/// The largest exponent, either way, that a number may be written with.
const EXPONENT_MAX: u32 = 400;
/// Digits that a number may be written with.
const DIGITS_MAX: usize = 1_000;
/// Objects of up to this many keys are compared pairwise; larger ones are sorted.
const PAIRWISE_MAX: usize = 16;

/// Checks that `text` is exactly one JSON value, white space around it allowed.
///
/// O(len), but for objects of more than 16 keys, whose keys are sorted.
pub fn strict(text: &str) -> Result<(), JsonFault> {
    let bytes = text.as_bytes();
    let start = white(bytes, 0);
    let end = Machine::<true>::new(bytes).value(start)?;
    let rest = white(bytes, end);
    if rest == bytes.len() { Ok(()) } else { Err(JsonFault::new(Kind::TrailingText, rest)) }
}

/// Returns where the value that starts at `start` ends, after checking its grammar and depth alone.
pub fn skip(text: &[u8], start: usize) -> Result<usize, JsonFault> {
    match text.get(start) {
        // Most values that are skipped are no containers, and need none of the machine.
        Some(b'"') => string::spot(text, start).map(|spot| spot.after()),
        Some(b'n') if text.get(start..).is_some_and(|rest| rest.starts_with(b"null")) => Ok(start + 4),
        Some(b'-' | b'0'..=b'9') => number::<false>(text, start),
        _ => Machine::<false>::new(text).value(start),
    }
}

/// How many containers are open at once in `text`, at the most. Meant for text that is known to be JSON.
pub fn depth(text: &[u8]) -> usize {
    let (mut at, mut open, mut most) = (0, 0usize, 0usize);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at = string::spot(text, at).map_or(text.len(), |spot| spot.after());
                continue;
            }
            b'{' | b'[' => {
                open += 1;
                most = most.max(open);
            }
            b'}' | b']' => open = open.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    most
}

/// The first byte from `at` on that is no JSON white space.
#[inline]
pub fn white(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

struct Machine<'a, const STRICT: bool> {
    text: &'a [u8],
    /// Keys of all open objects, innermost last; used when `STRICT`.
    keys: Vec<Spot>,
    /// For each open container, where its keys begin in `keys`; [`ARRAY`] for one that has none.
    marks: [u32; DEPTH_MAX],
    depth: usize,
}

/// What stands for an array among the open containers.
const ARRAY: u32 = u32::MAX;

impl<'a, const STRICT: bool> Machine<'a, STRICT> {
    fn new(text: &'a [u8]) -> Self {
        Self { text, keys: Vec::new(), marks: [ARRAY; DEPTH_MAX], depth: 0 }
    }

    fn value(mut self, start: usize) -> Result<usize, JsonFault> {
        let mut at = start;
        loop {
            // One value begins at `at`.
            at = match self.text.get(at) {
                Some(b'"') => self.string(at)?.after(),
                Some(b'{') => {
                    self.open(at, true)?;
                    at = white(self.text, at + 1);
                    match self.text.get(at) {
                        Some(b'}') => self.close(at)?,
                        Some(b'"') => {
                            at = self.key(at)?;
                            continue;
                        }
                        Some(_) => return Err(JsonFault::new(Kind::Expected("a key in double quotes or `}`"), at)),
                        None => return Err(JsonFault::new(Kind::Ends("a key or `}`"), at)),
                    }
                }
                Some(b'[') => {
                    self.open(at, false)?;
                    at = white(self.text, at + 1);
                    match self.text.get(at) {
                        Some(b']') => self.close(at)?,
                        Some(_) => continue,
                        None => return Err(JsonFault::new(Kind::Ends("a value or `]`"), at)),
                    }
                }
                Some(b'-' | b'0'..=b'9') => number::<STRICT>(self.text, at)?,
                Some(b't') => self.literal(at, b"true")?,
                Some(b'f') => self.literal(at, b"false")?,
                Some(b'n') => self.literal(at, b"null")?,
                Some(_) => return Err(JsonFault::new(Kind::Expected("a value"), at)),
                None => return Err(JsonFault::new(Kind::Ends("a value"), at)),
            };
            // A value ended just before `at`: close what closes, until another value begins.
            loop {
                if self.depth == 0 {
                    return Ok(at);
                }
                at = white(self.text, at);
                let object = self.in_object();
                match (self.text.get(at), object) {
                    (Some(b','), true) => {
                        at = white(self.text, at + 1);
                        match self.text.get(at) {
                            Some(b'"') => at = self.key(at)?,
                            Some(_) => return Err(JsonFault::new(Kind::Expected("a key in double quotes"), at)),
                            None => return Err(JsonFault::new(Kind::Ends("a key"), at)),
                        }
                        break;
                    }
                    (Some(b','), false) => {
                        at = white(self.text, at + 1);
                        break;
                    }
                    (Some(b'}'), true) | (Some(b']'), false) => at = self.close(at)?,
                    (Some(_), true) => return Err(JsonFault::new(Kind::Expected("`,` or `}`"), at)),
                    (Some(_), false) => return Err(JsonFault::new(Kind::Expected("`,` or `]`"), at)),
                    (None, true) => return Err(JsonFault::new(Kind::Ends("`,` or `}`"), at)),
                    (None, false) => return Err(JsonFault::new(Kind::Ends("`,` or `]`"), at)),
                }
            }
        }
    }

    /// Whether the innermost open container is an object.
    fn in_object(&self) -> bool {
        self.depth.checked_sub(1).and_then(|last| self.marks.get(last)).is_some_and(|mark| *mark != ARRAY)
    }

    fn open(&mut self, at: usize, object: bool) -> Result<(), JsonFault> {
        let Some(mark) = self.marks.get_mut(self.depth) else {
            return Err(JsonFault::new(Kind::TooDeep, at));
        };
        *mark = if object { self.keys.len() as u32 } else { ARRAY };
        self.depth += 1;
        Ok(())
    }

    /// Closes the innermost container at its closer; returns where the text goes on.
    fn close(&mut self, at: usize) -> Result<usize, JsonFault> {
        self.depth -= 1;
        if STRICT && let Some(mark) = self.marks.get(self.depth).copied().filter(|mark| *mark != ARRAY) {
            let keys = self.keys.get(mark as usize..).unwrap_or_default();
            if let Some((key, at)) = duplicate(self.text, keys) {
                return Err(JsonFault::new(Kind::DuplicateKey(key), at));
            }
            self.keys.truncate(mark as usize);
        }
        Ok(at + 1)
    }

    /// Reads a key and its colon; returns where the value begins.
    fn key(&mut self, at: usize) -> Result<usize, JsonFault> {
        let spot = self.string(at)?;
        if STRICT {
            if spot.raw(self.text).starts_with(string::RESERVED) || (spot.escaped && reserved(self.text, spot)) {
                return Err(JsonFault::new(Kind::ReservedKey, at));
            }
            self.keys.push(spot);
        }
        let at = white(self.text, spot.after());
        match self.text.get(at) {
            Some(b':') => Ok(white(self.text, at + 1)),
            Some(_) => Err(JsonFault::new(Kind::Expected("`:`"), at)),
            None => Err(JsonFault::new(Kind::Ends("`:`"), at)),
        }
    }

    #[inline]
    fn string(&self, at: usize) -> Result<Spot, JsonFault> {
        let spot = string::spot(self.text, at)?;
        if STRICT && spot.escaped {
            string::paired(self.text, spot)?;
        }
        Ok(spot)
    }

    fn literal(&self, at: usize, word: &'static [u8]) -> Result<usize, JsonFault> {
        let rest = self.text.get(at..).unwrap_or_default();
        if rest.starts_with(word) {
            Ok(at + word.len())
        } else if word.starts_with(rest) {
            Err(JsonFault::new(Kind::Ends("the rest of a literal"), self.text.len()))
        } else {
            Err(JsonFault::new(Kind::Expected("a value"), at))
        }
    }
}

/// Where the number that begins at `start` ends.
fn number<const STRICT: bool>(text: &[u8], start: usize) -> Result<usize, JsonFault> {
    let digits = |mut at: usize| {
        while let Some(b'0'..=b'9') = text.get(at) {
            at += 1;
        }
        at
    };
    let missing = |at: usize| match text.get(at) {
        Some(_) => JsonFault::new(Kind::BadNumber, at),
        None => JsonFault::new(Kind::Ends("a digit"), at),
    };
    let whole = if text.get(start) == Some(&b'-') { start + 1 } else { start };
    let mut at = match text.get(whole) {
        Some(b'0') => whole + 1,
        Some(b'1'..=b'9') => digits(whole + 1),
        _ => return Err(missing(whole)),
    };
    if let Some(b'0'..=b'9') = text.get(at) {
        return Err(JsonFault::new(Kind::BadNumber, at)); // a leading zero
    }
    if text.get(at) == Some(&b'.') {
        let end = digits(at + 1);
        if end == at + 1 {
            return Err(missing(end));
        }
        at = end;
    }
    let mantissa = at;
    if let Some(b'e' | b'E') = text.get(at) {
        let sign = at + 1;
        let first = if let Some(b'+' | b'-') = text.get(sign) { sign + 1 } else { sign };
        at = digits(first);
        if at == first {
            return Err(missing(at));
        }
        if STRICT && exponent(text.get(first..at).unwrap_or_default()) > EXPONENT_MAX {
            return Err(JsonFault::new(Kind::NumberOutOfRange, start));
        }
    }
    if STRICT && mantissa - start > DIGITS_MAX + 2 {
        return Err(JsonFault::new(Kind::NumberOutOfRange, start));
    }
    Ok(at)
}

/// The exponent that these digits write, saturating.
fn exponent(digits: &[u8]) -> u32 {
    digits.iter().fold(0u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')))
}

fn reserved(text: &[u8], spot: Spot) -> bool {
    string::decode(text, spot).is_ok_and(|key| key.as_bytes().starts_with(string::RESERVED))
}

/// The key that stands twice, and where its second place is.
pub(super) fn duplicate(text: &[u8], keys: &[Spot]) -> Option<(String, usize)> {
    if keys.len() < 2 || (keys.len() <= PAIRWISE_MAX && told_apart(text, keys)) {
        return None;
    }
    let named = |spot: &Spot| (string::decode(text, *spot).map(|key| key.into_owned()).unwrap_or_default(), spot.open);
    if keys.len() <= PAIRWISE_MAX && keys.iter().all(|key| !key.escaped) {
        for (i, later) in keys.iter().enumerate().skip(1) {
            let raw = later.raw(text);
            if keys.iter().take(i).any(|earlier| earlier.raw(text) == raw) {
                return Some(named(later));
            }
        }
        return None;
    }
    let mut decoded: Vec<_> = keys.iter().map(|key| (string::decode(text, *key).unwrap_or_default(), key)).collect();
    decoded.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.open.cmp(&b.1.open)));
    let twice = decoded.windows(2).filter_map(|pair| match pair {
        [(a, _), (b, later)] if a == b => Some(*later),
        _ => None,
    });
    twice.min_by_key(|key| key.open).map(named)
}

/// Whether length, first and last byte alone tell all keys apart, as they nearly always do.
fn told_apart(text: &[u8], keys: &[Spot]) -> bool {
    let mut seen = 0u64;
    keys.iter().all(|key| {
        let raw = key.raw(text);
        let end = |byte: Option<&u8>| byte.map_or(0, |byte| u64::from(*byte));
        let traits = ((raw.len() as u64) << 16) ^ (end(raw.first()) << 8) ^ end(raw.last());
        // The upper bits of a product depend on all bits of its factors.
        let bit = 1 << (traits.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 58);
        let new = seen & bit == 0 && !key.escaped;
        seen |= bit;
        new
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conformance table: text, and the fault it must show (none: it is valid).
    const TABLE: &[(&str, Option<&str>)] = &[
        ("null", None),
        ("true", None),
        ("false", None),
        (" \t\r\n0 ", None),
        ("-0", None),
        ("0.10", None),
        ("1E2", None),
        ("1e+2", None),
        ("1e-400", None),
        ("1e400", None),
        ("1e00000000000400", None),
        ("12345678901234567890", None),
        ("\"\"", None),
        (r#""\"\\\/\b\f\n\r\t\u0041""#, None),
        (r#""\ud83d\ude80""#, None),
        ("\"\u{2028}\u{7f}\"", None),
        ("[]", None),
        ("[ ]", None),
        ("{}", None),
        ("{ }", None),
        ("[1,2]", None),
        (r#"{"a":1,"b":{"a":1}}"#, None),
        (r#"[{"a":1},{"a":2}]"#, None),
        ("[[[]],[]]", None),
        ("", Some("the text ends where a value is expected")),
        ("   ", Some("the text ends where a value is expected")),
        ("tru", Some("the text ends where the rest of a literal is expected")),
        ("trux", Some("expected a value")),
        ("True", Some("expected a value")),
        ("NaN", Some("expected a value")),
        ("Infinity", Some("expected a value")),
        ("-Infinity", Some("a number that breaks JSON's grammar")),
        ("undefined", Some("expected a value")),
        ("01", Some("a number that breaks JSON's grammar")),
        ("-01", Some("a number that breaks JSON's grammar")),
        ("+1", Some("expected a value")),
        (".5", Some("expected a value")),
        ("1.", Some("the text ends where a digit is expected")),
        ("1.e3", Some("a number that breaks JSON's grammar")),
        ("1e", Some("the text ends where a digit is expected")),
        ("1e+", Some("the text ends where a digit is expected")),
        ("-", Some("the text ends where a digit is expected")),
        ("0x10", Some("text follows the value")),
        ("1_000", Some("text follows the value")),
        ("1 2", Some("text follows the value")),
        ("{}{}", Some("text follows the value")),
        ("\u{feff}1", Some("expected a value")),
        ("'a'", Some("expected a value")),
        ("\"a", Some("the text ends where the end of a string is expected")),
        ("\"a\nb\"", Some("a raw control character stands in a string")),
        ("\"a\tb\"", Some("a raw control character stands in a string")),
        ("\"\u{0}\"", Some("a raw control character stands in a string")),
        (r#""\x""#, Some("an escape that JSON does not know")),
        (r#""\u12G4""#, Some("an escape that JSON does not know")),
        (r#""\u12"#, Some("the text ends where the end of a string is expected")),
        (r#""\"#, Some("the text ends where the end of a string is expected")),
        (r#""\ud83d""#, Some("half of a surrogate pair stands alone")),
        (r#""\ude80\ud83d""#, Some("half of a surrogate pair stands alone")),
        (r#""\ud83dx""#, Some("half of a surrogate pair stands alone")),
        (r#"{"\ud83d":1}"#, Some("half of a surrogate pair stands alone")),
        ("[1,]", Some("expected a value")),
        ("[1,,2]", Some("expected a value")),
        ("[,1]", Some("expected a value")),
        ("[1 2]", Some("expected `,` or `]`")),
        ("[1}", Some("expected `,` or `]`")),
        ("[", Some("the text ends where a value or `]` is expected")),
        ("[1", Some("the text ends where `,` or `]` is expected")),
        ("[1,", Some("the text ends where a value is expected")),
        ("]", Some("expected a value")),
        ("{a:1}", Some("expected a key in double quotes or `}`")),
        ("{'a':1}", Some("expected a key in double quotes or `}`")),
        ("{1:1}", Some("expected a key in double quotes or `}`")),
        (r#"{"a":1,}"#, Some("expected a key in double quotes")),
        (r#"{"a" 1}"#, Some("expected `:`")),
        (r#"{"a":}"#, Some("expected a value")),
        (r#"{"a":1 "b":2}"#, Some("expected `,` or `}`")),
        (r#"{"a":1]"#, Some("expected `,` or `}`")),
        ("{", Some("the text ends where a key or `}` is expected")),
        (r#"{"a""#, Some("the text ends where `:` is expected")),
        (r#"{"a":"#, Some("the text ends where a value is expected")),
        (r#"{"a":1"#, Some("the text ends where `,` or `}` is expected")),
        (r#"{"a":1,"#, Some("the text ends where a key is expected")),
        (r#"{"a":1/*c*/}"#, Some("expected `,` or `}`")),
        ("// c\n1", Some("expected a value")),
        (r#"{"a":1,"a":1}"#, Some("the key `a` stands twice in one object")),
        (r#"{"a":1,"\u0061":2}"#, Some("the key `a` stands twice in one object")),
        (r#"{"\u0061b":1,"a\u0062":2}"#, Some("the key `ab` stands twice in one object")),
        (r#"[{"b":{"x":1,"y":2,"x":3}}]"#, Some("the key `x` stands twice in one object")),
        (r#"{"":1,"":2}"#, Some("the key `` stands twice in one object")),
        ("1e401", Some("a number with an exponent beyond 400 or more than 1,000 digits")),
        ("780e9780", Some("a number with an exponent beyond 400 or more than 1,000 digits")),
        ("1e-99999999999999999999", Some("a number with an exponent beyond 400 or more than 1,000 digits")),
        (r#"{"$serde_json::private::Number":"12"}"#, Some("a key that begins with `$serde_json::private::`")),
        (r#"{"\u0024serde_json::private::RawValue":"[1]"}"#, Some("a key that begins with `$serde_json::private::`")),
    ];

    #[test]
    fn the_conformance_table_holds() {
        for (text, expected) in TABLE {
            let found = strict(text).map_err(|fault| fault.to_string()).err();
            assert_eq!(found.as_deref(), *expected, "{text:?}");
        }
    }

    #[test]
    fn a_key_twice_among_many_is_found_at_its_second_place() {
        let mut text: String = (0..200).map(|i| format!("\"k{i}\":{i},")).collect();
        text = format!("{{{text}\"k7\":0}}");
        let fault = strict(&text).unwrap_err();
        assert_eq!(fault.kind, Kind::DuplicateKey("k7".into()));
        assert_eq!(fault.at, text.rfind("\"k7\"").unwrap());
    }

    #[test]
    fn keys_alike_in_length_and_ends_are_told_apart_all_the_same() {
        assert_eq!(strict(r#"{"abc":1,"axc":2,"":3,"é":4,"e":5}"#), Ok(()));
        for (text, at) in [(r#"{"abc":1,"axc":2,"abc":3}"#, 17), (r#"{"":1,"a":2,"":3}"#, 12)] {
            assert_eq!(strict(text).unwrap_err().at, at, "{text}");
        }
    }

    #[test]
    fn the_depth_limit_is_127_open_containers() {
        assert_eq!(strict(&format!("{}{}", "[".repeat(127), "]".repeat(127))), Ok(()));
        let deep = strict(&format!("{}{}", "[".repeat(128), "]".repeat(128))).unwrap_err();
        assert_eq!((deep.kind, deep.at), (Kind::TooDeep, 127));
        assert_eq!(strict(&"{\"a\":".repeat(200_000)).unwrap_err().kind, Kind::TooDeep);
    }

    #[test]
    fn a_thousand_digits_are_read_and_more_are_not() {
        assert_eq!(strict(&"1".repeat(1_000)), Ok(()));
        assert_eq!(strict(&"1".repeat(1_003)).unwrap_err().kind, Kind::NumberOutOfRange);
    }

    #[test]
    fn the_loose_check_leaves_keys_and_surrogates_to_others() {
        let text = br#" {"a":"\ud83d","a":1e999} tail"#;
        assert_eq!(skip(text, 1).unwrap(), text.len() - 5);
    }

    #[test]
    fn what_is_skipped_ends_where_it_ends() {
        for (text, end) in [
            ("null,", 4),
            ("true ]", 4),
            ("false", 5),
            ("-0.5e+3,", 7),
            ("7", 1),
            ("\"a\\\"b\" ", 6),
            ("[1, [] ]x", 8),
            ("{\"a\": {}}}", 9),
        ] {
            assert_eq!(skip(text.as_bytes(), 0), Ok(end), "{text}");
        }
        for text in ["nul", "nil", "n", "tru", "-", "\"a", "[1", "{]", "", "x"] {
            assert!(skip(text.as_bytes(), 0).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_counts_the_containers_that_are_open_at_once() {
        for (text, expected) in [
            ("7", 0),
            ("[]", 1),
            ("[[],[{}],[]]", 3),
            ("{\"a\":[1],\"b\":{\"c\":{}}}", 3),
            ("[\"[[[\",\"{\\\"{\",1]", 1),
            ("]]][", 1),
            ("[\"[[", 1),
        ] {
            assert_eq!(depth(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn agrees_with_serde_json_on_the_grammar() {
        for (text, expected) in TABLE {
            let ours = expected.is_none();
            let theirs = serde_json::from_str::<serde_json::Value>(text).is_ok();
            // We are stricter, never looser.
            assert!(!ours || theirs, "{text:?}");
        }
    }
}
