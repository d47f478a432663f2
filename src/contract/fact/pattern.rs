//! From a fact's patterns to the few automata that look for them.

use std::collections::BTreeMap;
use std::ops::Range;

use regex::bytes::Regex;
use regex::bytes::RegexBuilder;
use regex::bytes::RegexSet;
use regex::bytes::RegexSetBuilder;
use regex_syntax::ParserBuilder;

/// Bytes that one automaton may take, and what it builds while it runs as well.
const AUTOMATON_BYTES_MAX: usize = 4 << 20;
/// The start of a word and its end. Half a boundary each, so that a pattern may begin or end with a mark.
const WORD: (&str, &str) = (r"\b{start-half}(?:", r")\b{end-half}");

/// A set of words as one pattern: of two that begin at one place, the one that is written longer is tried first.
pub(super) fn any_of(patterns: &[String]) -> String {
    let mut patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    patterns.sort_by_key(|pattern| std::cmp::Reverse(pattern.len()));
    patterns.dedup();
    patterns.iter().map(|pattern| format!("(?:{pattern})")).collect::<Vec<_>>().join("|")
}

/// `pattern` as whole words.
pub(super) fn whole(pattern: &str) -> String {
    [WORD.0, pattern, WORD.1].concat()
}

/// A list of at least one of `term`, with nothing but light words before and between.
pub(super) fn list_of(term: &str, light: &[String]) -> String {
    if light.is_empty() {
        return format!("{term}(?:(?: ?[,/&])+ ?{term})*");
    }
    let light = whole(&any_of(light));
    format!("(?:{light} )*{term}(?:(?: ?[,/&]| ?{light})+ ?{term})*")
}

/// A word from a data table as a pattern: it stands for itself, a space in it for a hyphen too.
pub(super) fn literal(word: &str, plurals: bool) -> String {
    let plain = regex::escape(word).replace(' ', "[ -]").replace("\\-", "[ -]");
    if !plurals || !word.ends_with(|last: char| last.is_alphabetic()) {
        return plain;
    }
    match plain.strip_suffix(['y', 'Y']) {
        Some(stem) => format!("{stem}(?:y|ys|ies)"),
        None => format!("{plain}(?:e?s)?"),
    }
}

/// Puts the words in for `{NAME}` in a pattern. A count such as `{2,3}` and a class such as `\p{L}` stay.
pub(super) fn filled(pattern: &str, names: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        out.push_str(before);
        let name = from.get(1..).and_then(|inside| inside.split_once('}')).map(|(name, _)| name);
        let escaped = out.ends_with("\\p") || out.ends_with("\\P") || out.ends_with("\\b") || out.ends_with('\\');
        match name {
            Some(name) if !escaped && name.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                let Some(words) = names.get(name) else {
                    let known: Vec<&str> = names.keys().map(String::as_str).collect();
                    return Err(format!("`{{{name}}}` stands for nothing; known are `{}`", known.join("`, `")));
                };
                out.push_str(words);
                rest = from.get(name.len() + 2..).unwrap_or_default();
            }
            _ => {
                out.push('{');
                rest = from.get(1..).unwrap_or_default();
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// The shortest text that a pattern matches; none where it can match nothing. It makes no automaton, which costs a
/// thousand times as much.
///
/// # Errors
/// Why it is no pattern.
pub(super) fn shortest(pattern: &str, ascii: bool) -> Result<Option<usize>, String> {
    ParserBuilder::new()
        .case_insensitive(true)
        .multi_line(true)
        .unicode(!ascii)
        .utf8(false)
        .build()
        .parse(pattern)
        .map(|read| read.properties().minimum_len())
        .map_err(|error| unread(&error.to_string()))
}

/// One automaton, matched in ASCII alone where it can be.
pub(super) fn automaton(pattern: &str, ascii: bool) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .case_insensitive(true)
        .multi_line(true)
        .unicode(!ascii)
        .size_limit(AUTOMATON_BYTES_MAX)
        .dfa_size_limit(AUTOMATON_BYTES_MAX)
        .build()
        .map_err(|error| said(&error))
}

fn said(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(limit) => format!("the pattern takes more than {limit} bytes"),
        other => unread(&other.to_string()),
    }
}

/// The last line says what is wrong; the ones before it draw the whole pattern.
fn unread(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
    format!("not a regular expression: {last}")
}

/// Several patterns in one automaton that tells which of them match.
///
/// # Errors
/// Why there is no such automaton.
pub(super) fn set(patterns: &[String], ascii: bool) -> Result<RegexSet, String> {
    RegexSetBuilder::new(patterns)
        .case_insensitive(true)
        .multi_line(true)
        .unicode(!ascii)
        .size_limit(8 * AUTOMATON_BYTES_MAX)
        .dfa_size_limit(AUTOMATON_BYTES_MAX)
        .build()
        .map_err(|error| said(&error))
}

/// Several patterns, each of which may match where another one does.
#[derive(Debug)]
pub(super) struct Several {
    set: RegexSet,
    each: Vec<Regex>,
}

impl Several {
    /// These patterns, which [`automaton`] takes one by one.
    pub(super) fn of(patterns: &[String], ascii: bool) -> Result<Self, String> {
        let each = patterns.iter().map(|pattern| automaton(pattern, ascii)).collect::<Result<_, _>>()?;
        Ok(Self { set: set(patterns, ascii)?, each })
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Where they match in a stretch of `text`, by where the matches begin. One scan a pattern that matches at all.
    pub(super) fn matches(&self, text: &[u8], stretch: &Range<usize>) -> Vec<Range<usize>> {
        let part = text.get(stretch.clone()).unwrap_or_default();
        let mut all: Vec<Range<usize>> = Vec::new();
        if self.is_empty() {
            return all;
        }
        for pattern in self.set.matches(part).into_iter().filter_map(|index| self.each.get(index)) {
            all.extend(pattern.find_iter(part).map(|found| stretch.start + found.start()..stretch.start + found.end()));
        }
        all.sort_unstable_by_key(|found| found.start);
        all
    }
}
