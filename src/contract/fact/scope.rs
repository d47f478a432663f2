//! The stretches of a text in which a word and its cue belong together.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;

/// How far a cue reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// To the ends of its sentence: `.`, `!` or `?` before white space, or an empty line.
    #[default]
    Sentence,
    /// To the ends of its clause: also `,`, `;`, `:`, a dash between spaces, and conjunctions such as `and` or `but`.
    Clause,
    /// Over the whole page.
    Page,
}

/// Words that a point ends without ending a sentence.
const ABBREVIATIONS: [&[u8]; 14] =
    [b"mr", b"mrs", b"ms", b"dr", b"prof", b"st", b"vs", b"etc", b"approx", b"nr", b"e.g", b"i.e", b"a.m", b"p.m"];

/// Words that join two clauses.
const CONJUNCTIONS: [&[u8]; 14] = [
    b"and",
    b"but",
    b"or",
    b"nor",
    b"so",
    b"yet",
    b"because",
    b"while",
    b"although",
    b"though",
    b"however",
    b"whereas",
    b"since",
    b"plus",
];

impl Scope {
    /// The stretches of `text`, in their order; together they are all of it that is not a border. O(len).
    ///
    /// `text` is on one line: two spaces stand for an empty line. A point does not end a sentence after an
    /// abbreviation, an initial, or within a number or name (`3.5`, `example.com`).
    pub(super) fn stretches(self, text: &[u8]) -> Vec<Range<usize>> {
        let mut all = Vec::new();
        let mut start = 0;
        let mut at = 0;
        if self == Self::Page {
            all.push(0..text.len());
            return all;
        }
        while at < text.len() {
            match self.border(text, at) {
                Some(end) => {
                    if start < end.start {
                        all.push(start..end.start);
                    }
                    start = end.end;
                    at = end.end.max(at + 1);
                }
                None => at += 1,
            }
        }
        if start < text.len() {
            all.push(start..text.len());
        }
        all
    }

    /// Where the stretch before the byte at `at` ends and the next begins, if they do.
    fn border(self, text: &[u8], at: usize) -> Option<Range<usize>> {
        let after = |at: usize| text.get(at).copied();
        match after(at)? {
            b' ' if after(at + 1) == Some(b' ') => Some(at..at + 2),
            b'!' | b'?' => Some(at + 1..at + 1),
            b'.' => {
                let closers =
                    text.get(at + 1..).unwrap_or_default().iter().take_while(|b| b"'\")]".contains(b)).count();
                let end = at + 1 + closers;
                (matches!(after(end), None | Some(b' ')) && !is_abbreviated(text, at)).then_some(end..end)
            }
            b',' | b';' | b':' if self == Self::Clause => {
                let digits = after(at + 1).is_some_and(|byte| byte.is_ascii_digit());
                (!digits).then_some(at..at + 1)
            }
            b'-' if self == Self::Clause => {
                let alone = at.checked_sub(1).and_then(after) == Some(b' ') && after(at + 1) == Some(b' ');
                alone.then_some(at..at + 1)
            }
            b' ' if self == Self::Clause => {
                let word = word_at(text, at + 1);
                CONJUNCTIONS.iter().any(|one| one.eq_ignore_ascii_case(word)).then_some(at..at + 1 + word.len())
            }
            _ => None,
        }
    }
}

fn word_at(text: &[u8], at: usize) -> &[u8] {
    let rest = text.get(at..).unwrap_or_default();
    // No conjunction is longer, and so a long word costs no more.
    let length = rest.iter().take(12).take_while(|byte| is_word(**byte)).count();
    rest.get(..length).unwrap_or_default()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// Whether the point at `at` belongs to the word before it.
fn is_abbreviated(text: &[u8], at: usize) -> bool {
    let before = text.get(at.saturating_sub(8)..at).unwrap_or_default();
    let length = before.iter().rev().take_while(|byte| is_word(**byte) || **byte == b'.').count();
    let word = before.get(before.len() - length..).unwrap_or_default();
    // A capital letter alone is an initial, but for the word `I`.
    let initial = matches!(word, [letter] if letter.is_ascii_uppercase() && *letter != b'I');
    initial || ABBREVIATIONS.iter().any(|one| one.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretches(scope: Scope, text: &str) -> Vec<&str> {
        scope.stretches(text.as_bytes()).into_iter().map(|range| text[range].trim()).filter(|s| !s.is_empty()).collect()
    }

    #[test]
    fn sentences_end_at_their_marks() {
        for (text, expected) in [
            ("One. Two! Three? Four", vec!["One.", "Two!", "Three?", "Four"]),
            ("Dr. Who, e.g. at 3.5 or example.com. Yes", vec!["Dr. Who, e.g. at 3.5 or example.com.", "Yes"]),
            ("He said \"no.\" Then left.", vec!["He said \"no.\"", "Then left."]),
            ("J. Smith and I. Then", vec!["J. Smith and I.", "Then"]),
            ("no mark  next paragraph", vec!["no mark", "next paragraph"]),
            ("...", vec!["..."]),
            ("", vec![]),
        ] {
            assert_eq!(stretches(Scope::Sentence, text), expected, "{text}");
        }
    }

    #[test]
    fn clauses_end_at_commas_and_conjunctions() {
        assert_eq!(stretches(Scope::Clause, "no nuts, milk is fine"), ["no nuts", "milk is fine"]);
        assert_eq!(stretches(Scope::Clause, "no nuts but milk: yes - 1,5"), ["no nuts", "milk", "yes", "1,5"]);
        assert_eq!(stretches(Scope::Clause, "sandwich andrew"), ["sandwich andrew"]);
        assert_eq!(stretches(Scope::Page, "a. b, c"), ["a. b, c"]);
    }

    #[test]
    fn hostile_text_ends() {
        for text in
            ["!".repeat(10_000), ". ".repeat(10_000), " ".repeat(10_001), " and".repeat(10_000), "é.".repeat(5_000)]
        {
            let _ = Scope::Sentence.stretches(text.as_bytes());
            let _ = Scope::Clause.stretches(text.as_bytes());
        }
    }
}
