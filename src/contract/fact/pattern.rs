//! From a fact's patterns to the few automata that look for them.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::OnceLock;

use regex::bytes::Regex;
use regex::bytes::RegexBuilder;
use regex::bytes::RegexSet;
use regex::bytes::RegexSetBuilder;
use regex::bytes::SetMatches;
use regex_syntax::ParserBuilder;

/// Bytes that one automaton may take, and what it builds while it runs as well.
const AUTOMATON_BYTES_MAX: usize = 4 << 20;
/// Bytes that the automaton of several patterns may take.
const SEVERAL_BYTES_MAX: usize = 8 * AUTOMATON_BYTES_MAX;
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
    builder(pattern, ascii).size_limit(AUTOMATON_BYTES_MAX).build().map_err(|error| said(&error))
}

fn builder(pattern: &str, ascii: bool) -> RegexBuilder {
    let mut builder = RegexBuilder::new(pattern);
    builder.case_insensitive(true).multi_line(true).unicode(!ascii).dfa_size_limit(AUTOMATON_BYTES_MAX);
    builder
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

/// Automata by what they look for, so that facts with the same words share them. It lives as long as a policy is read.
#[derive(Debug, Default)]
pub struct Automata {
    one: HashMap<(bool, String), Regex>,
    several: HashMap<(bool, Vec<String>), Arc<Several>>,
}

impl Automata {
    /// What [`automaton`] makes of this pattern.
    pub(super) fn one(&mut self, pattern: String, ascii: bool) -> Result<Regex, String> {
        Ok(match self.one.entry((ascii, pattern)) {
            Entry::Occupied(made) => made.get().clone(),
            Entry::Vacant(place) => {
                let made = automaton(&place.key().1, ascii)?;
                place.insert(made).clone()
            }
        })
    }

    /// What [`Several::of`] makes of these patterns.
    pub(super) fn several(&mut self, patterns: Vec<String>, ascii: bool) -> Result<Arc<Several>, String> {
        Ok(match self.several.entry((ascii, patterns)) {
            Entry::Occupied(made) => Arc::clone(made.get()),
            Entry::Vacant(place) => {
                let made = Several::of(&place.key().1, ascii)?;
                Arc::clone(place.insert(Arc::new(made)))
            }
        })
    }
}

/// Several patterns, each of which may match where another one does.
///
/// One automaton tells which of them match at all. Most texts hold none or two, so where one matches is left to an
/// automaton that is made when it is first asked for.
#[derive(Debug)]
pub(super) struct Several {
    set: RegexSet,
    each: Vec<Alone>,
}

/// One pattern of several, and its automaton once it is needed.
#[derive(Debug)]
struct Alone {
    pattern: String,
    ascii: bool,
    made: OnceLock<Option<Regex>>,
}

impl Several {
    /// These patterns in one automaton.
    ///
    /// # Errors
    /// Why there is no such automaton.
    pub(super) fn of(patterns: &[String], ascii: bool) -> Result<Self, String> {
        let set = RegexSetBuilder::new(patterns)
            .case_insensitive(true)
            .multi_line(true)
            .unicode(!ascii)
            .size_limit(SEVERAL_BYTES_MAX)
            .dfa_size_limit(AUTOMATON_BYTES_MAX)
            .build()
            .map_err(|error| said(&error))?;
        let alone = |pattern: &String| Alone { pattern: pattern.clone(), ascii, made: OnceLock::new() };
        Ok(Self { set, each: patterns.iter().map(alone).collect() })
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Those that match somewhere in `text`.
    pub(super) fn which(&self, text: &[u8]) -> SetMatches {
        self.set.matches(text)
    }

    /// Where they match in a stretch of `text`, by where the matches begin; nothing if that cannot be told. One scan a
    /// pattern that matches at all.
    pub(super) fn matches(&self, text: &[u8], stretch: &Range<usize>) -> Option<Vec<Range<usize>>> {
        let part = text.get(stretch.clone()).unwrap_or_default();
        let mut all: Vec<Range<usize>> = Vec::new();
        if self.is_empty() {
            return Some(all);
        }
        for index in self.which(part) {
            let pattern = self.each.get(index)?.made()?;
            all.extend(pattern.find_iter(part).map(|found| stretch.start + found.start()..stretch.start + found.end()));
        }
        all.sort_unstable_by_key(|found| found.start);
        Some(all)
    }
}

impl Alone {
    /// The set of all patterns was within its bounds, and so one of them is; there is none only if that were wrong.
    fn made(&self) -> Option<&Regex> {
        let made = || builder(&self.pattern, self.ascii).size_limit(SEVERAL_BYTES_MAX).build().ok();
        self.made.get_or_init(made).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stands_for_itself_and_where_asked_for_its_plurals() {
        for (word, plurals, expected) in [
            ("nut", true, "nut(?:e?s)?"),
            ("nut", false, "nut"),
            ("berry", true, "berr(?:y|ys|ies)"),
            ("berry", false, "berry"),
            ("E-100", true, "E[ -]100"),
            ("E-100", false, "E[ -]100"),
            ("pine nut", false, "pine[ -]nut"),
            ("a.b", true, "a\\.b(?:e?s)?"),
        ] {
            assert_eq!(literal(word, plurals), expected, "{word} {plurals}");
        }
    }
}
