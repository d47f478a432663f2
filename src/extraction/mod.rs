//! Cutting JSON out of text, without repair.
//!
//! The result is a sub-slice of the text, byte for byte. The order is fixed: a block of reasoning is
//! set aside, then the whole text is tried (*whole*), then code fences (*fence*) and balanced regions
//! outside them (*scan*) together. All candidates must agree, and a malformed one spoils the answer:
//! the text under judgement never chooses which object counts. Linear in the text, whatever it holds.

mod fence;
mod region;

use std::ops::Range;

use crate::dialect::table::ReasoningTag;
use crate::json::JsonFault;
use crate::json::JsonFaultKind;
use crate::json::check;
use crate::json::compare;
use crate::json::path;
use crate::json::tree;

/// What to look for in a text.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Which containers the schema admits at its top.
    pub admits: Admits,
    /// How far the text may be from bare JSON.
    pub mode: Mode,
    /// Tags of the block of reasoning that may open the text.
    pub reasoning: &'a [ReasoningTag],
}

/// Which containers a schema admits at its top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admits {
    /// Objects.
    pub object: bool,
    /// Arrays.
    pub array: bool,
}

impl Admits {
    /// Both.
    pub const ANY: Self = Self { object: true, array: true };
    /// Objects alone.
    pub const OBJECT: Self = Self { object: true, array: false };
}

/// How far the text may be from bare JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whole, fence, scan.
    Ladder,
    /// Whole alone.
    Strict,
}

/// Where on the ladder the JSON was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// The trimmed text is exactly one JSON value.
    Whole,
    /// Inside a Markdown code fence.
    Fence,
    /// A balanced region in prose.
    Scan,
}

impl Rung {
    /// The name as records and metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Fence => "fence",
            Self::Scan => "scan",
        }
    }
}

/// The JSON that was found: where it stands in the text, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extracted {
    /// Byte range in the text. The bytes there are JSON that [`check::strict`] accepts.
    pub range: Range<usize>,
    /// How it was found.
    pub rung: Rung,
}

/// Why nothing was cut out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotExtracted {
    /// The kind of failure.
    pub reason: Reason,
    /// Byte offset in the text of what is wrong.
    pub at: usize,
    /// The fault of the JSON there, its offset being into the whole text.
    pub fault: Option<JsonFault>,
    /// For a duplicate key, the path of the object that holds it.
    pub path: Option<path::Path>,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Nothing was written.
    Empty,
    /// Nothing in the text begins like JSON.
    NoJson,
    /// Something begins like JSON and is not.
    Invalid,
    /// In strict mode, something stands beside the JSON.
    TrailingText,
    /// Several different values.
    Ambiguous,
    /// The text stops before the value does.
    Truncated,
    /// A key stands twice in one object.
    DuplicateKey,
    /// More than 127 containers are open.
    TooDeep,
    /// A number with an exponent beyond ±400 or more than 1,000 digits.
    NumberOutOfRange,
}

impl Reason {
    /// The name as records and metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::NoJson => "no_json",
            Self::Invalid => "invalid",
            Self::TrailingText => "trailing_text",
            Self::Ambiguous => "ambiguous",
            Self::Truncated => "truncated",
            Self::DuplicateKey => "duplicate_key",
            Self::TooDeep => "too_deep",
            Self::NumberOutOfRange => "number_out_of_range",
        }
    }

    fn of(fault: &JsonFault) -> Self {
        match fault.kind {
            JsonFaultKind::DuplicateKey(_) => Self::DuplicateKey,
            JsonFaultKind::TooDeep => Self::TooDeep,
            JsonFaultKind::NumberOutOfRange => Self::NumberOutOfRange,
            _ => Self::Invalid,
        }
    }
}

/// Something in the text that begins like JSON.
#[derive(Debug)]
struct Candidate {
    range: Range<usize>,
    rung: Rung,
    /// What is wrong with it, if anything is.
    wrong: Option<(Reason, Option<JsonFault>)>,
}

/// Cuts the one JSON value out of `text`. O(len), no copy of the text.
///
/// The caller has already looked at refusals and finish reasons: this function sees the text alone.
pub fn extract(text: &str, wanted: Wanted<'_>) -> Result<Extracted, NotExtracted> {
    let start = text.len() - text.strip_prefix('\u{feff}').unwrap_or(text).len();
    let body = text.get(start..).unwrap_or_default();
    if body.trim().is_empty() {
        return Err(NotExtracted { reason: Reason::Empty, at: 0, fault: None, path: None });
    }
    let start = start + after_reasoning(body, wanted.reasoning).map_err(|at| plain(Reason::Truncated, start + at))?;
    let answer = text.get(start..).unwrap_or_default();
    let trimmed = answer.trim_start();
    let begin = text.len() - trimmed.len();
    let trimmed = trimmed.trim_end();
    if trimmed.is_empty() {
        return Err(plain(Reason::Empty, start));
    }
    let whole = check::strict(trimmed);
    match (whole, wanted.mode) {
        (Ok(()), _) => Ok(Extracted { range: begin..begin + trimmed.len(), rung: Rung::Whole }),
        (Err(fault), Mode::Strict) => Err(strictly(text, begin, trimmed, fault)),
        (Err(_), Mode::Ladder) => decide(text, candidates(text, start..begin + trimmed.len()), wanted.admits),
    }
}

fn plain(reason: Reason, at: usize) -> NotExtracted {
    NotExtracted { reason, at, fault: None, path: None }
}

/// Where the answer starts once a block of reasoning that opens the text is set aside.
/// Fails with the block's place where it never closes.
fn after_reasoning(body: &str, tags: &[ReasoningTag]) -> Result<usize, usize> {
    let lead = body.len() - body.trim_start().len();
    let opened = body.get(lead..).unwrap_or_default();
    for tag in tags {
        if let Some(inside) = opened.strip_prefix(tag.open.as_str()).filter(|_| !tag.open.is_empty()) {
            let closing = memchr::memmem::find(inside.as_bytes(), tag.close.as_bytes()).ok_or(lead)?;
            return Ok(lead + tag.open.len() + closing + tag.close.len());
        }
    }
    for tag in tags.iter().filter(|tag| tag.opening_implied) {
        if let Some(closing) = memchr::memmem::find(body.as_bytes(), tag.close.as_bytes()) {
            return Ok(closing + tag.close.len());
        }
    }
    Ok(0)
}

/// What strict mode says of a text that is not one JSON value.
fn strictly(text: &str, begin: usize, trimmed: &str, fault: JsonFault) -> NotExtracted {
    let begins = trimmed.starts_with(['{', '[']);
    let reason = match fault.kind {
        JsonFaultKind::TrailingText => Reason::TrailingText,
        JsonFaultKind::Ends(_) if begins => Reason::Truncated,
        _ if begins => Reason::of(&fault),
        _ if region::next(trimmed, 0).is_some() => Reason::TrailingText,
        _ => Reason::NoJson,
    };
    let fault = JsonFault::new(fault.kind, begin + fault.at);
    located(text, begin, reason, Some(fault))
}

fn located(text: &str, begin: usize, reason: Reason, fault: Option<JsonFault>) -> NotExtracted {
    let path = fault.as_ref().filter(|fault| matches!(fault.kind, JsonFaultKind::DuplicateKey(_))).map(|fault| {
        let from = text.as_bytes().get(begin..).unwrap_or_default();
        path::open_at(from, fault.at.saturating_sub(begin))
    });
    NotExtracted { reason, at: fault.as_ref().map_or(begin, |fault| fault.at), fault, path }
}

/// Everything in `within` that begins like JSON, in the order of the text.
fn candidates(text: &str, within: Range<usize>) -> Vec<Candidate> {
    let mut found = Vec::new();
    fence::split(text, within, |part| match part {
        fence::Part::Outside(range) => region::candidates(text, range, &mut found),
        fence::Part::Fence(fence) => found.extend(fence.candidate(text)),
    });
    found
}

fn decide(text: &str, mut found: Vec<Candidate>, admits: Admits) -> Result<Extracted, NotExtracted> {
    set_aside(text, &mut found, admits);
    if let Some(bad) = found.iter_mut().find(|candidate| candidate.wrong.is_some()) {
        let (reason, fault) = bad.wrong.take().unwrap_or((Reason::Invalid, None));
        return Err(located(text, bad.range.start, reason, fault));
    }
    let mut rest = found.iter();
    let Some(first) = rest.next() else {
        return Err(plain(Reason::NoJson, 0));
    };
    let mut value = None;
    for other in rest {
        let (a, b) = (slice(text, &first.range), slice(text, &other.range));
        if a == b {
            continue;
        }
        let equal = match (value.get_or_insert_with(|| tree::built(a)), tree::built(b)) {
            (Ok(a), Ok(b)) => compare::equal(a, &b),
            _ => false,
        };
        if !equal {
            return Err(plain(Reason::Ambiguous, other.range.start));
        }
    }
    Ok(Extracted { range: first.range.clone(), rung: first.rung })
}

/// Where the schema admits one kind of container alone and one of that kind is there, sound regions of
/// the other kind are no candidates: a citation `[1]` is not the answer.
fn set_aside(text: &str, found: &mut Vec<Candidate>, admits: Admits) {
    let admitted = match (admits.object, admits.array) {
        (true, false) => b'{',
        (false, true) => b'[',
        _ => return,
    };
    let opens = |candidate: &Candidate| text.as_bytes().get(candidate.range.start).copied();
    if found.iter().any(|candidate| opens(candidate) == Some(admitted)) {
        found.retain(|candidate| {
            candidate.rung != Rung::Scan || candidate.wrong.is_some() || opens(candidate) == Some(admitted)
        });
    }
}

fn slice<'a>(text: &'a str, range: &Range<usize>) -> &'a str {
    text.get(range.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
