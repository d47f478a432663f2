//! JSON strings: where one ends, what it says, and which raw bytes say it.

use std::borrow::Cow;
use std::ops::Range;

use super::fault::{JsonFault, JsonFaultKind as Kind};

/// Keys that `serde_json` gives a meaning of its own; text that holds one is refused before it sees it.
pub const RESERVED: &[u8] = b"$serde_json::private::";

/// Where a string stands: its quotes, and whether a backslash stands between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Offset of the opening quote.
    pub open: usize,
    /// Offset of the closing quote.
    pub close: usize,
    /// Whether any escape stands inside.
    pub escaped: bool,
}

impl Spot {
    /// The bytes between the quotes.
    pub fn raw<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        text.get(self.open + 1..self.close).unwrap_or_default()
    }

    /// The first byte after the closing quote.
    pub fn after(&self) -> usize {
        self.close + 1
    }

    /// The range between the quotes.
    pub fn inside(&self) -> Range<usize> {
        self.open + 1..self.close
    }
}

/// Finds the end of the string whose opening quote stands at `open`, checking its escapes.
#[inline]
pub fn spot(text: &[u8], open: usize) -> Result<Spot, JsonFault> {
    let close = special(text, open + 1);
    if text.get(close) == Some(&b'"') {
        return Ok(Spot { open, close, escaped: false });
    }
    past_escapes(text, open, close)
}

/// The same from `at` on, where the first byte stands that needs a closer look.
fn past_escapes(text: &[u8], open: usize, mut at: usize) -> Result<Spot, JsonFault> {
    loop {
        at = match (text.get(at), text.get(at + 1)) {
            (Some(b'"'), _) => return Ok(Spot { open, close: at, escaped: true }),
            (Some(b'\\'), Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')) => at + 2,
            (Some(b'\\'), Some(b'u')) => hex_end(text, at)?,
            (Some(b'\\'), Some(_)) => return Err(JsonFault::new(Kind::BadEscape, at)),
            (Some(b'\\'), None) => return Err(JsonFault::new(Kind::Ends("the end of a string"), at + 1)),
            (Some(_), _) => return Err(JsonFault::new(Kind::ControlCharacter, at)),
            (None, _) => return Err(JsonFault::new(Kind::Ends("the end of a string"), at)),
        };
        at = special(text, at);
    }
}

/// Finds the end of the string whose opening quote stands at `open` and reads what it says, in one pass.
///
/// Fails where [`spot`] or [`decode`] would.
pub fn read(text: &[u8], open: usize) -> Result<(Spot, Cow<'_, str>), JsonFault> {
    let first = special(text, open + 1);
    if text.get(first) == Some(&b'"') {
        let spot = Spot { open, close: first, escaped: false };
        return Ok((spot, Cow::Borrowed(utf8(spot.raw(text), open)?)));
    }
    let mut said: Vec<u8> = Vec::with_capacity(1024.min(text.len() - open));
    let (mut begin, mut at) = (open + 1, first);
    loop {
        match (text.get(at), text.get(at + 1)) {
            (Some(b'"'), _) => break,
            (Some(b'\\'), Some(b'u')) => {
                // Rare: the halves of a pair are joined by the slower reader.
                let spot = spot(text, open)?;
                return decode(text, spot).map(|said| (spot, said));
            }
            (Some(b'\\'), Some(escape @ (b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't'))) => {
                said.extend_from_slice(text.get(begin..at).unwrap_or_default());
                said.push(simple(*escape) as u8);
                begin = at + 2;
                at = special(text, begin);
            }
            // A fault: the slower reader tells which.
            _ => {
                let spot = spot(text, open)?;
                return decode(text, spot).map(|said| (spot, said));
            }
        }
    }
    said.extend_from_slice(text.get(begin..at).unwrap_or_default());
    let said = String::from_utf8(said).map_err(|_| JsonFault::new(Kind::Expected("UTF-8"), open))?;
    Ok((Spot { open, close: at, escaped: true }, Cow::Owned(said)))
}

fn hex_end(text: &[u8], backslash: usize) -> Result<usize, JsonFault> {
    for at in backslash + 2..backslash + 6 {
        match text.get(at) {
            Some(byte) if byte.is_ascii_hexdigit() => {}
            Some(_) => return Err(JsonFault::new(Kind::BadEscape, backslash)),
            None => return Err(JsonFault::new(Kind::Ends("the end of a string"), at)),
        }
    }
    Ok(backslash + 6)
}

/// The first byte from `at` on that is a quote, a backslash or a control character; eight at a time.
#[inline]
fn special(text: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let zero_in = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let quote = zero_in(word ^ (ONES * b'"' as u64));
        let backslash = zero_in(word ^ (ONES * b'\\' as u64));
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
        let hits = quote | backslash | control;
        if hits != 0 {
            // Borrows make only bytes above the first hit doubtful, and the first is what counts.
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(byte) = text.get(at) {
        if *byte == b'"' || *byte == b'\\' || *byte < 0x20 {
            return at;
        }
        at += 1;
    }
    at
}

/// Checks that every `\u` surrogate in the string has its other half.
pub fn paired(text: &[u8], spot: Spot) -> Result<(), JsonFault> {
    let mut at = spot.open + 1;
    while let Some(step) = memchr::memchr(b'\\', text.get(at..spot.close).unwrap_or_default()) {
        at += step;
        if text.get(at + 1) != Some(&b'u') {
            at += 2;
            continue;
        }
        let unit = unit(text, at);
        at += match unit {
            0xD800..=0xDBFF if text.get(at + 6) == Some(&b'\\') && text.get(at + 7) == Some(&b'u') => {
                if !(0xDC00..=0xDFFF).contains(&self::unit(text, at + 6)) {
                    return Err(JsonFault::new(Kind::LoneSurrogate, at));
                }
                12
            }
            0xD800..=0xDFFF => return Err(JsonFault::new(Kind::LoneSurrogate, at)),
            _ => 6,
        };
    }
    Ok(())
}

/// The UTF-16 code unit of the `\uXXXX` whose backslash stands at `at`.
fn unit(text: &[u8], at: usize) -> u32 {
    let digits = text.get(at + 2..at + 6).unwrap_or_default();
    digits.iter().fold(0, |sum, digit| sum * 16 + (*digit as char).to_digit(16).unwrap_or_default())
}

/// What the string says. Borrowed where it holds no escape.
///
/// Fails on a lone surrogate, and on bytes that are not UTF-8.
pub fn decode(text: &[u8], spot: Spot) -> Result<Cow<'_, str>, JsonFault> {
    let raw = spot.raw(text);
    if !spot.escaped {
        return utf8(raw, spot.open).map(Cow::Borrowed);
    }
    let mut out = String::with_capacity(raw.len());
    let mut pending = Pending::default();
    decode_onto(text, spot, &mut out, &mut pending)?;
    if pending.is_waiting() {
        return Err(JsonFault::new(Kind::LoneSurrogate, spot.close));
    }
    Ok(Cow::Owned(out))
}

fn utf8(raw: &[u8], at: usize) -> Result<&str, JsonFault> {
    std::str::from_utf8(raw).map_err(|_| JsonFault::new(Kind::Expected("UTF-8"), at))
}

/// The first half of a surrogate pair whose second half has not come yet: streams cut between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending(Option<u16>);

impl Pending {
    /// Whether a second half is awaited.
    pub fn is_waiting(&self) -> bool {
        self.0.is_some()
    }
}

/// Appends what the string says to `out`, joining a surrogate pair that began in an earlier piece.
pub fn decode_onto(text: &[u8], spot: Spot, out: &mut String, pending: &mut Pending) -> Result<(), JsonFault> {
    let raw = spot.raw(text);
    if raw.is_empty() {
        return Ok(()); // an empty piece between the halves of a pair says nothing
    }
    let said = utf8(raw, spot.open)?;
    if !spot.escaped {
        if pending.is_waiting() {
            return Err(JsonFault::new(Kind::LoneSurrogate, spot.open + 1));
        }
        out.push_str(said);
        return Ok(());
    }
    out.reserve(raw.len());
    let mut at = 0;
    while at < raw.len() {
        let rest = raw.get(at..).unwrap_or_default();
        let plain = memchr::memchr(b'\\', rest).unwrap_or(rest.len());
        if plain > 0 {
            if pending.is_waiting() {
                return Err(JsonFault::new(Kind::LoneSurrogate, spot.open + 1 + at));
            }
            out.push_str(said.get(at..at + plain).unwrap_or_default());
            at += plain;
            continue;
        }
        match rest.get(1) {
            Some(b'u') => {
                unit_onto(text, spot.open + 1 + at, out, pending)?;
                at += 6;
            }
            Some(_) if pending.is_waiting() => return Err(JsonFault::new(Kind::LoneSurrogate, spot.open + 1 + at)),
            Some(other) => {
                out.push(simple(*other));
                at += 2;
            }
            None => return Err(JsonFault::new(Kind::BadEscape, spot.open + 1 + at)),
        }
    }
    Ok(())
}

/// Appends what the `\uXXXX` at `at` says, or keeps it as the first half of a pair.
fn unit_onto(text: &[u8], at: usize, out: &mut String, pending: &mut Pending) -> Result<(), JsonFault> {
    let scalar = unit(text, at);
    match (pending.0, scalar) {
        (Some(high), 0xDC00..=0xDFFF) => {
            let joined = 0x10000 + ((u32::from(high) - 0xD800) << 10) + (scalar - 0xDC00);
            out.extend(char::from_u32(joined));
            pending.0 = None;
        }
        (None, 0xD800..=0xDBFF) => pending.0 = Some(scalar as u16),
        (Some(_), _) | (None, 0xDC00..=0xDFFF) => return Err(JsonFault::new(Kind::LoneSurrogate, at)),
        (None, _) => out.extend(char::from_u32(scalar)),
    }
    Ok(())
}

fn simple(escape: u8) -> char {
    match escape {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        other => char::from(other),
    }
}

/// The raw bytes, as a range of `text`, that say `part` of what the string says.
///
/// `part` is a range of the decoded string and lies on character borders.
pub fn raw_range(text: &[u8], spot: Spot, part: Range<usize>) -> Range<usize> {
    if !spot.escaped {
        return spot.open + 1 + part.start..spot.open + 1 + part.end;
    }
    let (mut said, mut at) = (0, spot.open + 1);
    let mut start = at;
    while at < spot.close && said < part.end {
        if said <= part.start {
            start = at;
        }
        let (raw, decoded) = step(text, at);
        at += raw;
        said += decoded;
    }
    if said <= part.start {
        start = at;
    }
    start..at
}

/// Raw and decoded length in bytes of the character at `at`.
fn step(text: &[u8], at: usize) -> (usize, usize) {
    if text.get(at) != Some(&b'\\') {
        return (1, 1);
    }
    if text.get(at + 1) != Some(&b'u') {
        return (2, 1);
    }
    match unit(text, at) {
        0..=0x7F => (6, 1),
        0x80..=0x7FF => (6, 2),
        0xD800..=0xDBFF => (12, 4),
        _ => (6, 3),
    }
}

/// Appends `text` as the inside of a JSON string: only what RFC 8259 demands is escaped.
pub fn escape_onto(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let next = special(bytes, at);
        out.extend_from_slice(bytes.get(at..next).unwrap_or_default());
        if let Some(byte) = bytes.get(next) {
            match byte {
                b'"' => out.extend_from_slice(b"\\\""),
                b'\\' => out.extend_from_slice(b"\\\\"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\t' => out.extend_from_slice(b"\\t"),
                control => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
            }
        }
        at = next + 1;
    }
}

/// `text` as a JSON string, quotes included.
pub fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    out.push(b'"');
    escape_onto(text, &mut out);
    out.push(b'"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Spot {
        spot(text.as_bytes(), 0).unwrap()
    }

    #[test]
    fn every_escape_is_read() {
        let text = r#""a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude80""#;
        assert_eq!(decode(text.as_bytes(), of(text)).unwrap(), "a\"\\/\u{8}\u{c}\n\r\té🚀");
    }

    #[test]
    fn a_pair_split_over_two_pieces_is_joined() {
        let (first, second) = (r#""x\ud83d""#, r#""\ude80y""#);
        let (mut out, mut pending) = (String::new(), Pending::default());
        decode_onto(first.as_bytes(), of(first), &mut out, &mut pending).unwrap();
        assert!(pending.is_waiting());
        decode_onto(second.as_bytes(), of(second), &mut out, &mut pending).unwrap();
        assert_eq!((out.as_str(), pending.is_waiting()), ("x🚀y", false));
    }

    #[test]
    fn a_plain_piece_after_half_a_pair_is_refused() {
        let (mut out, mut pending) = (String::new(), Pending(Some(0xD83D)));
        assert!(decode_onto(b"\"x\"", of("\"x\""), &mut out, &mut pending).is_err());
    }

    proptest! {
        #[test]
        fn what_is_escaped_reads_back(text in "\\PC*|[\\x00-\\x7f]*") {
            let json = quoted(&text);
            let spot = spot(&json, 0).unwrap();
            prop_assert_eq!(spot.after(), json.len());
            prop_assert_eq!(decode(&json, spot).unwrap(), text);
        }

        #[test]
        fn one_pass_reads_what_two_do(inside in r#"([a-zé🚀"\\n]|\\["\\/bfnrt]|\\u[0-9a-d]{4}){0,12}"#) {
            let json = format!("\"{inside}\" tail");
            let two = spot(json.as_bytes(), 0).and_then(|spot| decode(json.as_bytes(), spot).map(|said| (spot, said)));
            prop_assert_eq!(read(json.as_bytes(), 0), two);
        }

        #[test]
        fn a_raw_range_says_its_part(pieces in prop::collection::vec("[a-zé🚀\"\\\\\n]{0,3}", 1..6), from in 0usize..6, to in 0usize..6) {
            let (from, to) = (from.min(pieces.len()), to.min(pieces.len()));
            prop_assume!(from <= to);
            let whole = pieces.concat();
            let json = serde_json::to_string(&whole).unwrap().replace('é', "\\u00e9").replace('🚀', "\\ud83d\\ude80");
            let spot = spot(json.as_bytes(), 0).unwrap();
            let start = pieces.iter().take(from).map(String::len).sum::<usize>();
            let end = pieces.iter().take(to).map(String::len).sum::<usize>();
            let range = raw_range(json.as_bytes(), spot, start..end);
            let part = format!("\"{}\"", &json[range]);
            let part_spot = super::spot(part.as_bytes(), 0).unwrap();
            prop_assert_eq!(decode(part.as_bytes(), part_spot).unwrap(), &whole[start..end]);
        }
    }
}
