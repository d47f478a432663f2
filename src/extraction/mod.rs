//! Cutting JSON out of text, without repair.
//!
//! The result is a sub-slice of the text, byte for byte. The order is fixed: a block of reasoning is
//! set aside, then the whole text is tried (*whole*), then code fences (*fence*) and balanced regions
//! outside them (*scan*) together. All candidates must agree, and a malformed one spoils the answer:
//! the text under judgement never chooses which object counts. Linear in the text, whatever it holds.

mod fence;
mod region;

use std::ops::Range;

use serde_json::Value;

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Whole, fence, scan.
    #[default]
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

    /// The reason that a fault of JSON text is.
    pub fn of(fault: &JsonFault) -> Self {
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
        (Err(_), Mode::Ladder) => candidates(text, start..begin + trimmed.len(), wanted.admits),
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

/// Looks at everything in `within` that begins like JSON, in the order of the text, and decides.
///
/// Only what the decision needs is kept: a text can hold millions of candidates.
fn candidates(text: &str, within: Range<usize>, admits: Admits) -> Result<Extracted, NotExtracted> {
    let admitted = match (admits.object, admits.array) {
        (true, false) => Some(b'{'),
        (false, true) => Some(b'['),
        _ => None,
    };
    let mut all = Agreement::new(text);
    // Where one of the admitted kind is there, sound regions of the other kind are no candidates: a
    // citation `[1]` is not the answer.
    let mut without_asides = Agreement::new(text);
    let mut admitted_is_there = false;
    let mut take = |candidate: Candidate| {
        let opens = text.as_bytes().get(candidate.range.start).copied();
        let fits = admitted.is_some() && opens == admitted;
        admitted_is_there |= fits;
        if fits || candidate.rung != Rung::Scan || candidate.wrong.is_some() {
            without_asides.take(&candidate);
        }
        all.take(&candidate);
    };
    fence::split(text, within, |part| match part {
        fence::Part::Outside(range) => region::candidates(text, range, &mut take),
        fence::Part::Fence(fence) => fence.candidate(text).into_iter().for_each(&mut take),
    });
    if admitted_is_there { without_asides.decide() } else { all.decide() }
}

/// What the candidates so far agree on.
struct Agreement<'t> {
    text: &'t str,
    first: Option<(Range<usize>, Rung)>,
    /// The first candidate as a tree, once another is not the same to the byte.
    value: Option<Result<Value, JsonFault>>,
    /// The first malformed one.
    bad: Option<(usize, Reason, Option<JsonFault>)>,
    /// Where the first begins that says something else.
    differs: Option<usize>,
}

impl<'t> Agreement<'t> {
    fn new(text: &'t str) -> Self {
        Self { text, first: None, value: None, bad: None, differs: None }
    }

    fn take(&mut self, candidate: &Candidate) {
        if let Some((reason, fault)) = &candidate.wrong {
            if self.bad.is_none() {
                self.bad = Some((candidate.range.start, *reason, fault.clone()));
            }
            return;
        }
        let Some((first, _)) = &self.first else {
            self.first = Some((candidate.range.clone(), candidate.rung));
            return;
        };
        let (one, other) = (slice(self.text, first), slice(self.text, &candidate.range));
        if self.differs.is_some() || one == other {
            return;
        }
        let equal = match (self.value.get_or_insert_with(|| tree::built(one)), tree::built(other)) {
            (Ok(one), Ok(other)) => compare::equal(one, &other),
            _ => false,
        };
        if !equal {
            self.differs = Some(candidate.range.start);
        }
    }

    fn decide(self) -> Result<Extracted, NotExtracted> {
        if let Some((begin, reason, fault)) = self.bad {
            return Err(located(self.text, begin, reason, fault));
        }
        match (self.first, self.differs) {
            (Some(_), Some(at)) => Err(plain(Reason::Ambiguous, at)),
            (Some((range, rung)), None) => Ok(Extracted { range, rung }),
            (None, _) => Err(plain(Reason::NoJson, 0)),
        }
    }
}

fn slice<'a>(text: &'a str, range: &Range<usize>) -> &'a str {
    text.get(range.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
