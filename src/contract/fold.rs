//! Folds: named tolerances that apply to a quote and to the source alike. None of them lets one letter or digit match
//! another, but for its own case: `0` is not `O`, and nothing here measures a distance.

use std::borrow::Cow;
use std::fmt;

use unicode_normalization::IsNormalized;
use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::is_nfc_quick;

use crate::contract::currency::Currency;
use crate::contract::locale::Locale;
use crate::contract::number;

mod map;

pub use map::Map;

/// One tolerance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Runs of white space, line breaks too, are one space; none stands around a quote.
    Whitespace,
    /// Curly and angle quotes are straight, all dashes `-`, ligatures spelled out, no-break spaces plain, an ellipsis
    /// three points, soft hyphens gone; Unicode normalization form C.
    Typography,
    /// A currency beside a number may be absent on one side.
    Currency,
    /// Well-formed groups of digits lose their marks: the locale's, no-break and thin spaces, never a plain space.
    DigitGrouping,
    /// A word that a hyphen splits at a line end is whole.
    Hyphenation,
    /// Letters match their own other case.
    Case,
}

impl Fold {
    /// Every fold, in the order of the documentation.
    pub const ALL: [Self; 6] =
        [Self::Whitespace, Self::Typography, Self::Currency, Self::DigitGrouping, Self::Hyphenation, Self::Case];

    /// Its name in a policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whitespace => "whitespace",
            Self::Typography => "typography",
            Self::Currency => "currency",
            Self::DigitGrouping => "digit_grouping",
            Self::Hyphenation => "hyphenation",
            Self::Case => "case",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A fold that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fold `{name}` is not known; known are {known}", known = Fold::ALL.map(Fold::name).join(", "))]
pub struct UnknownFold {
    /// The name as it was given.
    pub name: String,
}

/// A set of folds, with the locale whose marks group digits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Folds {
    set: u8,
    /// Kept only where a fold depends on it, so that sets which fold alike are equal.
    locale: Option<Locale>,
}

impl Folds {
    /// No fold: letter by letter.
    pub const NONE: Self = Self { set: 0, locale: None };

    /// The set of these names.
    ///
    /// # Errors
    /// At the first name that is not known; the message lists those that are.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownFold> {
        names.into_iter().try_fold(Self::NONE, |folds, name| {
            let fold = Fold::ALL.into_iter().find(|fold| fold.name() == name);
            fold.map(|fold| folds.with(fold)).ok_or_else(|| UnknownFold { name: name.to_owned() })
        })
    }

    /// This set and one fold more.
    #[must_use]
    pub fn with(self, fold: Fold) -> Self {
        Self { set: self.set | fold.bit(), ..self }
    }

    /// This set with the group marks of a locale. Without one, only no-break and thin spaces group.
    #[must_use]
    pub fn in_locale(self, locale: Option<Locale>) -> Self {
        Self { locale: locale.filter(|_| self.has(Fold::DigitGrouping)), ..self }
    }

    /// Whether a fold is in the set.
    pub fn has(self, fold: Fold) -> bool {
        self.set & fold.bit() != 0
    }

    /// The part of the set that leaves words and numbers where they are. What stands by it stands, also where a fold
    /// of the rest would take away a part that the quote has.
    #[must_use]
    pub fn plain(self) -> Self {
        let plain = Fold::Whitespace.bit() | Fold::Typography.bit() | Fold::Case.bit();
        Self { set: self.set & plain, locale: None }
    }

    /// A quote as it looks in a text folded by the same set. O(len).
    pub fn quote(self, text: &str) -> Quote<'_> {
        let outer = |c: char| c.is_whitespace() || (c == '\u{ad}' && self.has(Fold::Typography));
        let text = if self.has(Fold::Whitespace) { text.trim_matches(outer) } else { text };
        if self.leaves(text) {
            return Quote { text: Cow::Borrowed(text), currencies: Vec::new() };
        }
        let mut folded = Folded { map: None, ..Folded::default() };
        folded.append(self, text);
        Quote { text: Cow::Owned(folded.text), currencies: folded.currencies }
    }

    /// Whether nothing of `text` can change: words in plain letters with a blank between two of them, as quotes mostly are.
    fn leaves(self, text: &str) -> bool {
        if self.set & !(Fold::Whitespace.bit() | Fold::Typography.bit()) != 0 {
            return false;
        }
        let mut blank = false;
        text.bytes().all(|byte| {
            let twice = blank && byte == b' ';
            blank = byte == b' ';
            byte.is_ascii_graphic() || (blank && !twice)
        })
    }
}

impl fmt::Debug for Folds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Fold::ALL.into_iter().filter(|fold| self.has(*fold)).map(Fold::name);
        f.debug_set().entries(names).entries(self.locale).finish()
    }
}

/// A quote as it looks in a folded text.
#[derive(Debug)]
pub struct Quote<'t> {
    text: Cow<'t, str>,
    currencies: Vec<(usize, Currency)>,
}

impl Quote<'_> {
    /// The folded text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The currencies that were taken out, each with the byte of the folded text at which its number begins.
    pub fn currencies(&self) -> &[(usize, Currency)] {
        &self.currencies
    }
}

/// A folded text, and the way back to the bytes it was made of.
#[derive(Debug)]
pub struct Folded {
    text: String,
    map: Option<Map>,
    currencies: Vec<(usize, Currency)>,
}

impl Default for Folded {
    fn default() -> Self {
        Self { text: String::new(), map: Some(Map::default()), currencies: Vec::new() }
    }
}

impl Folded {
    /// The folded text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The currencies that were taken out, each with the byte of the folded text at which its number begins.
    pub fn currencies(&self) -> &[(usize, Currency)] {
        &self.currencies
    }

    /// The unfolded bytes of a range of the folded text; none where it takes a part of what one character became (`f`
    /// of a ligature), and for a quote, which keeps no map.
    pub fn unfolded(&self, start: usize, end: usize) -> Option<(usize, usize)> {
        self.map.as_ref()?.range(start, end)
    }

    /// Where the byte `at` of the source is written, or the piece begins that it became a part of.
    pub(super) fn folded_before(&self, at: usize) -> usize {
        self.map.as_ref().map_or(0, |map| map.folded_before(at))
    }

    /// Bytes that were folded so far.
    pub(super) fn source_bytes(&self) -> usize {
        self.map.as_ref().map_or(0, Map::source_bytes)
    }

    /// Bytes that the map takes.
    #[cfg(test)]
    pub(super) fn map_bytes(&self) -> usize {
        self.map.as_ref().map_or(0, Map::bytes)
    }

    /// Folds `text` and appends it. No fold sees across the seam. O(len).
    pub fn append(&mut self, folds: Folds, text: &str) {
        self.text.reserve(text.len());
        let mut fold = Writer { folds, source: text, kept: 0, into: self };
        fold.run(&cuts(folds, text));
    }
}

/// A stretch of the source that is taken out, or the place of a number that a currency stood at.
struct Cut {
    start: usize,
    end: usize,
    currency: Option<Currency>,
}

/// What the folds of words and numbers take out of a text, in order.
fn cuts(folds: Folds, text: &str) -> Vec<Cut> {
    let mut cuts = Vec::new();
    if folds.has(Fold::Currency) {
        for beside in number::currencies(text) {
            if let Some(range) = beside.removable {
                cuts.push(Cut { start: range.start, end: range.end, currency: None });
            }
            cuts.push(Cut { start: beside.number, end: beside.number, currency: Some(beside.currency) });
        }
    }
    if folds.has(Fold::DigitGrouping) {
        let marks = number::group_marks(text, folds.locale);
        cuts.extend(marks.into_iter().map(|mark| Cut { start: mark.start, end: mark.end, currency: None }));
    }
    if folds.has(Fold::Hyphenation) {
        cuts.extend(split_words(text));
    }
    cuts.sort_by_key(|cut| (cut.start, cut.end));
    cuts
}

/// The hyphens and line breaks inside words: letter, hyphen, one line break among blanks, letter.
fn split_words(text: &str) -> impl Iterator<Item = Cut> {
    text.char_indices().filter(|(_, c)| matches!(c, '-' | '\u{2010}' | '\u{ad}')).filter_map(|(start, hyphen)| {
        let letter = |c: char| c.is_alphabetic();
        let rest = text.get(start + hyphen.len_utf8()..)?;
        let next = rest.trim_start();
        let gap = rest.get(..rest.len() - next.len())?;
        let breaks = gap.replace("\r\n", "\n").matches(['\n', '\r', '\u{85}', '\u{2028}']).count();
        let before = text.get(..start)?.chars().next_back()?;
        let split = breaks == 1 && letter(before) && letter(next.chars().next()?);
        split.then(|| Cut { start, end: text.len() - next.len(), currency: None })
    })
}

/// Writes one folded text.
struct Writer<'a, 'b> {
    folds: Folds,
    source: &'a str,
    /// Up to where the source was written.
    kept: usize,
    into: &'b mut Folded,
}

impl Writer<'_, '_> {
    fn run(&mut self, cuts: &[Cut]) {
        let bytes = self.source.as_bytes();
        let mut cuts = cuts.iter().peekable();
        let (white, typography, case) =
            (self.folds.has(Fold::Whitespace), self.folds.has(Fold::Typography), self.folds.has(Fold::Case));
        let mut at = 0;
        loop {
            while let Some(cut) = cuts.next_if(|cut| cut.start <= at) {
                if let Some(currency) = cut.currency {
                    self.keep(at);
                    self.into.currencies.push((self.into.text.len(), currency));
                } else if cut.end > at {
                    self.replace(at, cut.end, "");
                    at = cut.end;
                }
            }
            let Some(&byte) = bytes.get(at) else { break };
            let next = bytes.get(at + 1).copied().unwrap_or(b'\n');
            if byte.is_ascii_graphic() && next.is_ascii() {
                at += 1;
            } else if white && self.white_at(at) > at {
                let limit = cuts.peek().map_or(bytes.len(), |cut| cut.start);
                let end = self.white_at(at).min(limit.max(at + 1));
                if end - at > 1 || byte != b' ' {
                    self.replace(at, end, " ");
                }
                at = end;
            } else if byte.is_ascii() && (next.is_ascii() || !typography) {
                at += 1;
            } else {
                let limit = cuts.peek().map_or(bytes.len(), |cut| cut.start.max(at + 1));
                at = self.char_at(at, limit, typography, case);
            }
        }
        self.keep(bytes.len());
        self.kept = bytes.len();
    }

    /// Where the white space from `at` ends, soft hyphens in it included where they are nothing.
    fn white_at(&self, at: usize) -> usize {
        let rest = self.source.get(at..).unwrap_or_default();
        if !rest.starts_with(char::is_whitespace) {
            return at;
        }
        let typography = self.folds.has(Fold::Typography);
        let after = rest.trim_start_matches(|c: char| c.is_whitespace() || (typography && c == '\u{ad}'));
        self.source.len() - after.len()
    }

    /// Writes the character at `at` with the marks that belong to it before `limit`; where they end.
    fn char_at(&mut self, at: usize, limit: usize, typography: bool, case: bool) -> usize {
        let rest = self.source.get(at..).unwrap_or_default();
        let Some(first) = rest.chars().next() else { return self.source.len() };
        if !typography {
            let end = at + first.len_utf8();
            if case && !first.is_ascii() {
                self.lower(at, end, first);
            }
            return end;
        }
        let begins = |&(size, c): &(usize, char)| at + size >= limit || (is_starter(c) && c != '\u{ad}');
        let size = rest.char_indices().skip(1).find(begins).map_or(rest.len(), |(size, _)| size);
        let own = rest.get(..size).unwrap_or_default();
        let end = at + size;
        if size == first.len_utf8() {
            match typographic(first) {
                Some(spelled) => self.replace(at, end, spelled),
                None if is_starter(first) => self.lower_if(case, at, end, first),
                None => self.normal(at, end, own, case),
            }
        } else {
            self.normal(at, end, own, case);
        }
        end
    }

    /// Writes a character and its marks in their composed form.
    fn normal(&mut self, at: usize, end: usize, own: &str, case: bool) {
        let mut spelled = String::with_capacity(own.len());
        for c in own.nfc() {
            match typographic(c) {
                Some(form) => spelled.push_str(form),
                None if case => spelled.extend(lowered(c)),
                None => spelled.push(c),
            }
        }
        let composed: String = spelled.nfc().collect(); // a mark may now stand on a spelled letter
        if composed != own {
            self.replace(at, end, &composed);
        }
    }

    fn lower_if(&mut self, case: bool, at: usize, end: usize, c: char) {
        if case && !c.is_ascii() {
            self.lower(at, end, c);
        }
    }

    fn lower(&mut self, at: usize, end: usize, c: char) {
        let mut lower = lowered(c);
        if lower.next() != Some(c) || lower.next().is_some() {
            self.replace(at, end, &lowered(c).collect::<String>());
        }
    }

    /// Writes the source up to `to` as it is, but for the case of ASCII letters.
    fn keep(&mut self, to: usize) {
        let kept = self.source.get(self.kept..to).unwrap_or_default();
        let from = self.into.text.len();
        self.into.text.push_str(kept);
        if self.folds.has(Fold::Case)
            && let Some(own) = self.into.text.get_mut(from..)
        {
            own.make_ascii_lowercase();
        }
        if let Some(map) = &mut self.into.map {
            map.keep(kept.len());
        }
        self.kept = to;
    }

    /// Writes `folded` for the source from `start` to `end`.
    fn replace(&mut self, start: usize, end: usize, folded: &str) {
        self.keep(start);
        self.into.text.push_str(folded);
        if let Some(map) = &mut self.into.map {
            // A character for a character of the same size leads back as it is.
            let whole = end - start == folded.len() && folded.chars().count() == 1;
            if whole && self.source.get(start..end).is_some_and(|own| own.chars().count() == 1) {
                map.keep(folded.len());
            } else {
                map.replace(end - start, folded.len());
            }
        }
        self.kept = end;
    }
}

/// Whether nothing before a character can change by it, or it by what stands before: it begins a composition.
fn is_starter(c: char) -> bool {
    c.is_ascii()
        || (unicode_normalization::char::canonical_combining_class(c) == 0
            && is_nfc_quick(std::iter::once(c)) == IsNormalized::Yes)
}

/// What a typographic form stands for.
fn typographic(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{2018}'..='\u{201b}' | '\u{2039}' | '\u{203a}' => "'",
        '\u{201c}'..='\u{201f}' | '\u{ab}' | '\u{bb}' => "\"",
        '\u{2010}'..='\u{2015}' | '\u{2212}' => "-",
        '\u{2026}' => "...",
        '\u{a0}' | '\u{202f}' | '\u{2007}' => " ",
        '\u{ad}' => "",
        '\u{fb00}' => "ff",
        '\u{fb01}' => "fi",
        '\u{fb02}' => "fl",
        '\u{fb03}' => "ffi",
        '\u{fb04}' => "ffl",
        '\u{fb05}' | '\u{fb06}' => "st",
        _ => return None,
    })
}

/// The lower case of a character; a final sigma is a sigma.
fn lowered(c: char) -> impl Iterator<Item = char> {
    c.to_lowercase().map(|c| if c == 'ς' { 'σ' } else { c })
}

#[cfg(test)]
mod tests;
