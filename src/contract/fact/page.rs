//! A page of text as facts are looked for in it: typography and white space folded, and a way back to the bytes as
//! they came.

use std::borrow::Cow;
use std::ops::Range;

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::canonical_combining_class;

/// Stands for one byte of a letter or digit outside ASCII where patterns are matched in ASCII alone: a word
/// character that no pattern names.
const LETTER: u8 = b'_';
/// The same for anything else outside ASCII, and for what is left out: nothing that a pattern names matches it.
pub(super) const BLANK: u8 = 0x01;

/// One page, folded.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The text with its line breaks: a run of white space is one space, one with a line break in it one line break,
    /// one with an empty line in it two.
    pub(super) lines: String,
    /// Stretches that are not as they came, in their order.
    odd: Vec<Odd>,
}

/// A stretch that the fold has changed.
#[derive(Debug)]
struct Odd {
    folded: Range<usize>,
    source: Range<usize>,
}

impl Page {
    /// Folds a page. O(len).
    pub(super) fn of(text: &str) -> Self {
        let mut page = Self { lines: String::with_capacity(text.len()), odd: Vec::new() };
        let mut rest = text.char_indices().peekable();
        while let Some((at, first)) = rest.next() {
            let start = page.lines.len();
            let mut end = at + first.len_utf8();
            let mut changed = true;
            if is_space(first) {
                let mut breaks = usize::from(is_break(first));
                let mut before = first;
                while let Some((at, next)) = rest.next_if(|(_, next)| is_space(*next)) {
                    breaks += usize::from(is_break(next) && !(before == '\r' && next == '\n'));
                    before = next;
                    end = at + next.len_utf8();
                }
                page.lines.push_str(match breaks {
                    0 => " ",
                    1 => "\n",
                    _ => "\n\n",
                });
            } else if rest.peek().is_some_and(|(_, next)| canonical_combining_class(*next) != 0) {
                while let Some((at, next)) = rest.next_if(|(_, next)| canonical_combining_class(*next) != 0) {
                    end = at + next.len_utf8();
                }
                page.lines.extend(text.get(at..end).unwrap_or_default().nfc());
            } else if let Some(plain) = plain(first) {
                page.lines.push_str(plain);
            } else {
                page.lines.push(first);
                changed = false;
            }
            if changed && page.lines.get(start..) != text.get(at..end) {
                page.odd.push(Odd { folded: start..page.lines.len(), source: at..end });
            }
        }
        page
    }

    /// The bytes of the page as it came that `folded` stands for, whole characters.
    pub(super) fn source(&self, folded: &Range<usize>) -> Range<usize> {
        let start = self.lines.floor_char_boundary(folded.start);
        let end = self.lines.ceil_char_boundary(folded.end);
        let before = |at: usize, odd: usize| match odd.checked_sub(1).and_then(|odd| self.odd.get(odd)) {
            Some(odd) if at < odd.folded.end => Err(odd),
            Some(odd) => Ok(odd.source.end + (at - odd.folded.end)),
            None => Ok(at),
        };
        let from = before(start, self.odd.partition_point(|odd| odd.folded.start <= start));
        let to = before(end, self.odd.partition_point(|odd| odd.folded.start < end));
        from.unwrap_or_else(|odd| odd.source.start)..to.unwrap_or_else(|odd| odd.source.end)
    }

    /// The text that `folded` covers, as a term is called: on one line.
    pub(super) fn words(&self, folded: &Range<usize>) -> String {
        let start = self.lines.floor_char_boundary(folded.start);
        let end = self.lines.ceil_char_boundary(folded.end);
        self.lines.get(start..end).unwrap_or_default().replace('\n', " ")
    }

    /// The text in bytes of ASCII, one for one: what is outside of it only tells word characters from others.
    pub(super) fn in_ascii(&self) -> Cow<'_, [u8]> {
        if self.lines.is_ascii() {
            return Cow::Borrowed(self.lines.as_bytes());
        }
        let mut bytes = Vec::with_capacity(self.lines.len());
        for c in self.lines.chars() {
            let byte = match u8::try_from(c) {
                Ok(byte) if byte.is_ascii() => byte,
                _ if c.is_alphanumeric() || canonical_combining_class(c) != 0 => LETTER,
                _ => BLANK,
            };
            bytes.extend(std::iter::repeat_n(byte, c.len_utf8()));
        }
        Cow::Owned(bytes)
    }
}

/// White space; the no-break spaces are among it.
fn is_space(c: char) -> bool {
    c.is_whitespace() || c == '\u{200B}'
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{0B}' | '\u{0C}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// What stands for a typographic character; none where it stands for itself.
fn plain(c: char) -> Option<&'static str> {
    if c.is_ascii() {
        return None;
    }
    Some(match c {
        '\u{2018}'..='\u{201B}' | '\u{2039}' | '\u{203A}' | '\u{2032}' | '\u{02BC}' => "'",
        '\u{201C}'..='\u{201F}' | '\u{00AB}' | '\u{00BB}' | '\u{2033}' => "\"",
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{FE58}' | '\u{FE63}' | '\u{FF0D}' => "-",
        '\u{2026}' => "...",
        '\u{FB00}' => "ff",
        '\u{FB01}' => "fi",
        '\u{FB02}' => "fl",
        '\u{FB03}' => "ffi",
        '\u{FB04}' => "ffl",
        '\u{FB05}' | '\u{FB06}' => "st",
        // A soft hyphen, joiners and marks of order are not seen, so they part no word.
        '\u{00AD}' | '\u{200C}' | '\u{200D}' | '\u{2060}' | '\u{FEFF}' | '\u{200E}' | '\u{200F}' => "",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn white_space_and_typography_are_folded_and_lead_back() {
        for (text, folded) in [
            ("can\u{2019}t  eat\t milk", "can't eat milk"),
            ("a \n b\r\nc\r\n\r\nd\n\n\ne", "a\nb\nc\n\nd\n\ne"),
            ("\u{201C}of\u{FB01}ce\u{201D} \u{2014} so\u{AD}y\u{2026}", "\"office\" - soy..."),
            ("cafe\u{301} no\u{A0}milk", "café no milk"),
            ("", ""),
        ] {
            assert_eq!(Page::of(text).lines, folded, "{text:?}");
        }
        let text = "I can\u{2019}t   eat of\u{FB01}cial so\u{AD}y";
        let page = Page::of(text);
        let range = |word: &str| {
            let at = page.lines.find(word).unwrap();
            text.get(page.source(&(at..at + word.len()))).unwrap()
        };
        assert_eq!(range("can't"), "can\u{2019}t");
        assert_eq!(range("can't eat"), "can\u{2019}t   eat");
        assert_eq!(range("official"), "of\u{FB01}cial");
        assert_eq!(range("soy"), "so\u{AD}y");
        assert_eq!(range("eat"), "eat");
    }

    proptest! {
        #[test]
        fn every_range_leads_back_to_whole_characters(text in "[a-z \\n\u{201C}\u{FB01}\u{AD}é\u{301}\u{1F600}]{0,30}") {
            let page = Page::of(&text);
            prop_assert_eq!(page.in_ascii().len(), page.lines.len());
            for start in 0..=page.lines.len() {
                for end in start..=page.lines.len() {
                    let source = page.source(&(start..end));
                    prop_assert!(start == end || text.get(source.clone()).is_some(), "{:?}", source);
                }
            }
        }
    }
}
