//! Regions: the part of a source between two lines.

use std::num::NonZeroUsize;
use std::sync::Arc;

use regex::Regex;

use crate::contract::fold::Folds;
use crate::contract::linear;
use crate::contract::source::Stand;

/// A part of a source, by its first and last line. Both lines are in it.
#[derive(Clone, Debug)]
pub struct Region {
    /// None for the start of the source.
    from: Option<Regex>,
    /// None for its end.
    through: Option<Regex>,
    /// Which of several, from 1.
    occurrence: Option<NonZeroUsize>,
    /// By which lines are folded before patterns are searched in them.
    folds: Folds,
}

/// A region that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// A pattern is none.
    #[error("`{member}`: {reason}")]
    Pattern {
        /// `from` or `through`.
        member: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing is searched that could occur more than once.
    #[error("`occurrence` counts matches, but the region runs from `start` to `end`")]
    Occurrence,
}

/// Why a source has not the region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionFault {
    /// Too few lines match.
    #[error("no line matches `{pattern}`{}", .occurrence.map(|n| format!(" for the occurrence {n}")).unwrap_or_default())]
    NoLine {
        /// The pattern that was searched.
        pattern: String,
        /// Which match was asked for.
        occurrence: Option<NonZeroUsize>,
    },
    /// The first line is there, the last is not.
    #[error("no line after the first matches `{pattern}`")]
    NoEnd {
        /// The pattern that was searched.
        pattern: String,
    },
    /// Which one is meant is not said.
    #[error("more than one line matches `{pattern}`, and no `occurrence` says which")]
    Several {
        /// The pattern that was searched.
        pattern: String,
    },
}

/// Where a region is: from a byte of one page to a byte of the same or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Page, from 1, and byte at which it begins.
    pub from: (usize, usize),
    /// Page and byte at which it ends.
    pub through: (usize, usize),
}

impl Span {
    /// Whether the stretch lies wholly within.
    pub fn holds(&self, stand: &Stand) -> bool {
        (stand.page, stand.range.start) >= self.from && (stand.page, stand.range.end) <= self.through
    }
}

impl Region {
    /// The region of these lines: `from` is `start` or a pattern, `through` is `end` or a pattern. A pattern is searched
    /// in each line by itself, without its line break.
    ///
    /// # Errors
    /// Where a pattern is not a regular expression of linear time, or `occurrence` has nothing to count.
    pub fn read(from: &str, through: &str, occurrence: Option<NonZeroUsize>) -> Result<Self, RegionError> {
        let pattern = |member, text: &str, edge| {
            let error = |reason| RegionError::Pattern { member, reason };
            (text != edge).then(|| linear::pattern(text)).transpose().map_err(error)
        };
        let (from, through) = (pattern("from", from, "start")?, pattern("through", through, "end")?);
        if occurrence.is_some() && from.is_none() && through.is_none() {
            return Err(RegionError::Occurrence);
        }
        Ok(Self { from, through, occurrence, folds: Folds::NONE })
    }

    /// The same with lines folded as quotes are, so that a pattern need not spell the ligatures, no-break spaces and runs
    /// of blanks that a line may be printed with. A line matches as it is printed, or as it is folded. Folds that reach
    /// across lines, or into numbers, do nothing here.
    #[must_use]
    pub fn folded(self, folds: Folds) -> Self {
        Self { folds: folds.plain(), ..self }
    }

    fn matches(&self, pattern: &Regex, line: &str) -> bool {
        pattern.is_match(line) || (self.folds != Folds::NONE && pattern.is_match(self.folds.quote(line).text()))
    }

    /// Where it is in these pages. `occurrence` counts the lines that match `from`; where the region begins at the start,
    /// those that match `through`. `through` is otherwise the next matching line after the first.
    ///
    /// # Errors
    /// Where a line is not there, or more than one could be meant.
    pub fn span(&self, pages: &[Arc<str>]) -> Result<Span, RegionFault> {
        let start = (1, 0);
        let end = (pages.len().max(1), pages.last().map_or(0, |page| page.len()));
        let Some(from) = &self.from else {
            let Some(through) = &self.through else { return Ok(Span { from: start, through: end }) };
            let line = self.counted(through, lines(pages))?;
            return Ok(Span { from: start, through: line.end() });
        };
        let first = self.counted(from, lines(pages))?;
        let through = match &self.through {
            None => end,
            Some(through) => {
                let mut after = lines(pages).filter(|line| line.start() > first.start());
                let last = after.find(|line| self.matches(through, line.text));
                last.ok_or_else(|| RegionFault::NoEnd { pattern: through.as_str().to_owned() })?.end()
            }
        };
        Ok(Span { from: first.start(), through })
    }

    /// The line that matches, and that is meant.
    fn counted<'a>(&self, pattern: &Regex, lines: impl Iterator<Item = Line<'a>>) -> Result<Line<'a>, RegionFault> {
        let mut matching = lines.filter(|line| self.matches(pattern, line.text));
        let text = || pattern.as_str().to_owned();
        let occurrence = self.occurrence;
        let nth = occurrence.map_or(0, |nth| nth.get() - 1);
        let line = matching.nth(nth).ok_or_else(|| RegionFault::NoLine { pattern: text(), occurrence })?;
        match occurrence {
            None if matching.next().is_some() => Err(RegionFault::Several { pattern: text() }),
            _ => Ok(line),
        }
    }
}

/// One line of a source, without its line break.
struct Line<'a> {
    page: usize,
    at: usize,
    text: &'a str,
}

impl Line<'_> {
    fn start(&self) -> (usize, usize) {
        (self.page, self.at)
    }

    fn end(&self) -> (usize, usize) {
        (self.page, self.at + self.text.len())
    }
}

fn lines(pages: &[Arc<str>]) -> impl Iterator<Item = Line<'_>> {
    pages.iter().enumerate().flat_map(|(page, text)| {
        let mut at = 0;
        text.split_inclusive('\n').map(move |line| {
            let start = at;
            at += line.len();
            Line { page: page + 1, at: start, text: line.trim_end_matches(['\n', '\r']) }
        })
    })
}
