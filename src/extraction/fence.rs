//! Markdown code fences, as CommonMark has them, and what lies outside them.

use std::ops::Range;

use super::Candidate;
use super::Reason;
use super::Rung;
use super::region;
use crate::json::check;

/// A stretch of the text.
pub(super) enum Part {
    /// Prose: no fence takes part here.
    Outside(Range<usize>),
    /// A fence with something in it that takes part.
    Fence(Fence),
}

/// A fence that may hold the answer: one tagged `json`, or with no tag.
pub(super) struct Fence {
    /// The text between the fence's lines.
    inside: Range<usize>,
    /// It says `json`, so it must hold JSON.
    json: bool,
    /// It has a closing line.
    closed: bool,
}

impl Fence {
    /// The candidate that the fence holds; none where it holds prose.
    pub(super) fn candidate(&self, text: &str) -> Option<Candidate> {
        let inside = text.get(self.inside.clone()).unwrap_or_default();
        let trimmed = inside.trim();
        let begin = self.inside.start + (inside.len() - inside.trim_start().len());
        if !self.json && !region::begins(trimmed.as_bytes(), 0) {
            return None;
        }
        let wrong = check::strict(trimmed).err().map(|fault| {
            if !self.closed
                && !matches!(Reason::of(&fault), Reason::DuplicateKey | Reason::TooDeep | Reason::NumberOutOfRange)
            {
                (Reason::Truncated, None)
            } else {
                region::wrong(fault, begin)
            }
        });
        Some(Candidate { range: begin..begin + trimmed.len(), rung: Rung::Fence, wrong })
    }
}

/// Cuts `within` into fences and what lies outside them, in their order.
pub(super) fn split(text: &str, within: Range<usize>, mut each: impl FnMut(Part)) {
    let bytes = text.as_bytes().get(..within.end).unwrap_or_default();
    let body = bytes.get(within.start..).unwrap_or_default();
    if memchr::memmem::find(body, b"```").is_none() && memchr::memmem::find(body, b"~~~").is_none() {
        return each(Part::Outside(within));
    }
    let mut outside = within.start;
    let mut line = within.start;
    while line < within.end {
        let end = line_end(bytes, line);
        let Some(opening) = Opening::read(text, line..end) else {
            line = past_line_end(bytes, end);
            continue;
        };
        let inside = past_line_end(bytes, end);
        let (close, after) = opening.closing(bytes, inside);
        let closed = close.is_some();
        let content = inside..close.unwrap_or(within.end);
        let empty = text.get(content.clone()).unwrap_or_default().trim().is_empty();
        if empty && opening.tag != Tag::Other {
            // No fence at all: some models put the JSON on the opening line.
            line = after;
            continue;
        }
        let scanned = opening.scanned(line, end);
        if outside < scanned {
            each(Part::Outside(outside..scanned));
        }
        if opening.tag != Tag::Other {
            each(Part::Fence(Fence { inside: content, json: opening.tag == Tag::Json, closed }));
        }
        outside = after;
        line = after;
    }
    if outside < within.end {
        each(Part::Outside(outside..within.end));
    }
}

/// The line that opens a fence.
struct Opening {
    mark: u8,
    length: usize,
    tag: Tag,
    /// The tag line holds more than a tag.
    rest: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    None,
    Json,
    Other,
}

impl Opening {
    fn read(text: &str, line: Range<usize>) -> Option<Self> {
        let line = text.get(line)?;
        let unindented = line.trim_start_matches(' ');
        let mark = *unindented.as_bytes().first()?;
        if line.len() - unindented.len() > 3 || !matches!(mark, b'`' | b'~') {
            return None;
        }
        let length = unindented.bytes().take_while(|byte| *byte == mark).count();
        let info = unindented.get(length..)?.trim();
        if length < 3 || (mark == b'`' && info.contains('`')) {
            return None;
        }
        let (tag, rest) = match info.find(|c: char| c.is_whitespace() || c == '{' || c == '[') {
            Some(end) => info.split_at(end),
            None => (info, ""),
        };
        let kind = match tag {
            "" => Tag::None,
            json if json.eq_ignore_ascii_case("json") => Tag::Json,
            _ => Tag::Other,
        };
        Some(Self { mark, length, tag: kind, rest: !rest.trim().is_empty() })
    }

    /// Up to where the prose before the fence is scanned: with the opening line where it may hold JSON.
    fn scanned(&self, line: usize, end: usize) -> usize {
        if self.tag != Tag::Other && self.rest { end } else { line }
    }

    /// Where the closing line starts, and where the text goes on after it.
    fn closing(&self, bytes: &[u8], from: usize) -> (Option<usize>, usize) {
        let mut line = from;
        while line < bytes.len() {
            let end = line_end(bytes, line);
            if self.closes(bytes.get(line..end).unwrap_or_default()) {
                return (Some(line), past_line_end(bytes, end));
            }
            line = past_line_end(bytes, end);
        }
        (None, bytes.len())
    }

    fn closes(&self, line: &[u8]) -> bool {
        let indent = line.iter().take_while(|byte| **byte == b' ').count();
        let rest = line.get(indent..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| **byte == self.mark).count();
        let tail = rest.get(length..).unwrap_or_default();
        indent <= 3 && length >= self.length && tail.iter().all(|byte| matches!(byte, b' ' | b'\t'))
    }
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    memchr::memchr2(b'\n', b'\r', rest).map_or(bytes.len(), |step| from + step)
}

fn past_line_end(bytes: &[u8], end: usize) -> usize {
    match (bytes.get(end), bytes.get(end + 1)) {
        (Some(b'\r'), Some(b'\n')) => end + 2,
        (Some(_), _) => end + 1,
        (None, _) => end,
    }
}
