//! From a fact's patterns to the few automata that look for them.

use std::collections::BTreeMap;
use std::ops::Range;

use regex::bytes::Regex;
use regex::bytes::RegexBuilder;
use regex::bytes::RegexSet;
use regex::bytes::RegexSetBuilder;

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

/// A list of at least one of `term`, with nothing but light words between.
pub(super) fn list_of(term: &str, light: &[String]) -> String {
    let light = if light.is_empty() { String::new() } else { format!("| ?{}", whole(&any_of(light))) };
    format!("{term}(?:(?: ?[,/&]{light})+ ?{term})*")
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
        // The last line says what is wrong; the ones before it draw the whole pattern.
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("not a regular expression: {last}")
        }
    }
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
        let set = RegexSetBuilder::new(patterns)
            .case_insensitive(true)
            .multi_line(true)
            .unicode(!ascii)
            .size_limit(8 * AUTOMATON_BYTES_MAX)
            .dfa_size_limit(AUTOMATON_BYTES_MAX)
            .build()
            .map_err(|error| said(&error))?;
        Ok(Self { set, each })
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Those that match somewhere in `text`.
    pub(super) fn which<'t>(&self, text: &'t [u8]) -> impl Iterator<Item = usize> + use<'_, 't> {
        let found = if self.each.is_empty() { None } else { Some(self.set.matches(text)) };
        found.into_iter().flat_map(|found| found.into_iter())
    }

    /// Where they match in a stretch of `text`, by where the matches begin. One scan a pattern that matches at all.
    pub(super) fn matches(&self, text: &[u8], stretch: &Range<usize>) -> Vec<Range<usize>> {
        let part = text.get(stretch.clone()).unwrap_or_default();
        let mut all: Vec<Range<usize>> = Vec::new();
        for pattern in self.which(part).filter_map(|index| self.each.get(index)) {
            all.extend(pattern.find_iter(part).map(|found| stretch.start + found.start()..stretch.start + found.end()));
        }
        all.sort_unstable_by_key(|found| found.start);
        all
    }
}
