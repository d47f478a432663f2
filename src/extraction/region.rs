//! Balanced regions in prose: from an opening brace or bracket that begins like JSON to the one that closes it.

use std::ops::Range;

use super::Candidate;
use super::Reason;
use super::Rung;
use crate::json::DEPTH_MAX;
use crate::json::JsonFault;
use crate::json::JsonFaultKind;
use crate::json::check;

/// Prose brackets that may be open at once; a candidate inside more of them spoils the answer.
const WRAPPERS_MAX: usize = 128;

/// Hands over every region of `within` that begins like JSON.
///
/// A bracket that does not begin like JSON is prose. If it closes around a region, it was no prose after all
/// but something malformed: `{“status”: “no”, “would_be”: {"item": 1}}` must not yield its inside.
///
/// Linear: a region is passed over as a whole, and an opener that does not begin like JSON costs the
/// white space and the word after it, which hold no opener.
pub(super) fn candidates(text: &str, within: Range<usize>, take: &mut impl FnMut(Candidate)) {
    let part = text.get(..within.end).unwrap_or_default();
    let bytes = part.as_bytes();
    let mut wrappers: Vec<Wrapper> = Vec::new();
    let mut at = within.start;
    while let Some(here) = next_bracket(bytes, at, !wrappers.is_empty()) {
        let byte = bytes.get(here).copied().unwrap_or_default();
        at = here + 1;
        if matches!(byte, b'}' | b']') {
            let opener = if byte == b'}' { b'{' } else { b'[' };
            let Some(place) = wrappers.iter().rposition(|wrapper| wrapper.opener == opener) else { continue };
            let closed =
                wrappers.drain(place..).fold(None, |outer: Option<Wrapper>, inner| Some(outer.unwrap_or(inner)));
            if let Some(wrapper) = closed.filter(|wrapper| wrapper.holds) {
                take(Candidate { range: wrapper.at..at, rung: Rung::Scan, wrong: Some((Reason::Invalid, None)) });
            }
        } else if begins(bytes, here) {
            wrappers.iter_mut().for_each(|wrapper| wrapper.holds = true);
            let region = region(part, here);
            at = region.range.end;
            take(region);
            if wrappers.len() >= WRAPPERS_MAX {
                take(Candidate { range: here..at, rung: Rung::Scan, wrong: Some((Reason::TooDeep, None)) });
            }
        } else if wrappers.len() < WRAPPERS_MAX {
            wrappers.push(Wrapper { opener: byte, at: here, holds: false });
        }
    }
}

/// A bracket in prose that is still open.
struct Wrapper {
    opener: u8,
    at: usize,
    /// A region begins inside.
    holds: bool,
}

/// The next opening bracket, or with `closers` the next bracket of any kind.
fn next_bracket(bytes: &[u8], at: usize, closers: bool) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let step = if closers {
        rest.iter().position(|byte| matches!(byte, b'{' | b'[' | b'}' | b']'))
    } else {
        memchr::memchr2(b'{', b'[', rest)
    };
    step.map(|step| at + step)
}

/// The region that begins at `open`.
fn region(part: &str, open: usize) -> Candidate {
    let (end, closed, too_deep) = balance(part.as_bytes(), open);
    let inside = part.get(open..end).unwrap_or_default();
    let wrong = if too_deep {
        Some((Reason::TooDeep, None))
    } else if !closed {
        Some((Reason::Truncated, None))
    } else {
        check::strict(inside).err().map(|fault| {
            let reason = Reason::of(&fault);
            (reason, Some(JsonFault::new(fault.kind, open + fault.at)))
        })
    };
    Candidate { range: open..end, rung: Rung::Scan, wrong }
}

/// The next opener from `at` on that begins like JSON.
pub(super) fn next(text: &str, mut at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    while let Some(step) = memchr::memchr2(b'{', b'[', bytes.get(at..)?) {
        let open = at + step;
        if begins(bytes, open) {
            return Some(open);
        }
        at = open + 1;
    }
    None
}

/// Whether the opener at `open` begins like JSON, or like JSON gone wrong.
pub(super) fn begins(text: &[u8], open: usize) -> bool {
    let at = check::white(text, open + 1);
    let rest = text.get(at..).unwrap_or_default();
    match (text.get(open), rest) {
        // An opener at the very end may be the start of anything: the text stops there.
        (Some(b'{' | b'['), []) => true,
        (Some(b'{'), [b'"' | b'\'' | b'}', ..] | [b'/', b'/' | b'*', ..]) => true,
        (Some(b'{'), _) => bare_key(text, at),
        (Some(b'['), [b'"' | b'{' | b'[' | b']', ..]) => true,
        (Some(b'['), _) => scalar_then_separator(text, at),
        _ => false,
    }
}

/// Whether a bare key and its colon stand at `at`, as in JavaScript.
fn bare_key(text: &[u8], at: usize) -> bool {
    let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-' | b'.');
    let length = text.get(at..).unwrap_or_default().iter().take_while(|byte| word(byte)).count();
    length > 0 && text.get(check::white(text, at + length)) == Some(&b':')
}

/// Whether a number or a literal stands at `at`, followed by a comma or a closing bracket.
fn scalar_then_separator(text: &[u8], at: usize) -> bool {
    let rest = text.get(at..).unwrap_or_default();
    let literals: [&[u8]; 5] = [b"true", b"false", b"null", b"NaN", b"Infinity"];
    let length = match literals.iter().find(|word| rest.starts_with(word)) {
        Some(word) => word.len(),
        None => rest.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).count(),
    };
    let numeric = rest.first().is_some_and(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.'));
    let literal = rest.first().is_some_and(u8::is_ascii_alphabetic) && length > 1;
    if length == 0 || !(numeric || literal) || dated(rest.get(..length).unwrap_or_default()) {
        return false;
    }
    match text.get(check::white(text, at + length)) {
        Some(b',' | b']') => true,
        // The text stops inside the list.
        None => true,
        Some(_) => false,
    }
}

/// Whether these number-like bytes are a date or a range: a minus after a digit that is no exponent's.
fn dated(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| matches!(pair, [b'0'..=b'9' | b'.', b'-' | b'+']))
}

/// Where the region opened at `open` ends: past its closer, or at the end of the text.
/// Tells also whether it closed, and whether it opened more containers than may be open.
fn balance(text: &[u8], open: usize) -> (usize, bool, bool) {
    let (mut at, mut depth, mut too_deep) = (open, 0usize, false);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at = past_string(text, at);
                continue;
            }
            b'{' | b'[' => {
                depth += 1;
                too_deep |= depth > DEPTH_MAX;
            }
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return (at + 1, true, too_deep);
                }
            }
            _ => {}
        }
        at += 1;
    }
    (text.len(), false, too_deep)
}

/// Where the string opened at `open` ends, past its closing quote; escapes are only stepped over.
fn past_string(text: &[u8], open: usize) -> usize {
    let mut at = open + 1;
    while let Some(step) = memchr::memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
        at += step;
        if text.get(at) == Some(&b'"') {
            return at + 1;
        }
        at += 2;
    }
    text.len()
}

/// The reason that a fault of a fenced text is reported with.
pub(super) fn wrong(fault: JsonFault, from: usize) -> (Reason, Option<JsonFault>) {
    let reason = match fault.kind {
        JsonFaultKind::TrailingText => Reason::Invalid,
        _ => Reason::of(&fault),
    };
    (reason, Some(JsonFault::new(fault.kind, from + fault.at)))
}
