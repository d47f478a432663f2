//! Numbers as a text prints them: sign, parentheses, groups, currency, percent and scale, by locale. What a locale
//! leaves ambiguous is a fault, never a guess.

use std::ops::Range;

use crate::contract::currency;
use crate::contract::currency::Currency;
use crate::contract::locale::Locale;
use crate::contract::locale::SPACES;
use crate::contract::locale::well_grouped;
use crate::contract::token;
use crate::json::decimal::Decimal;
use crate::json::decimal::DecimalError;

/// How the numbers of a text are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberFormat {
    /// Whose marks they have; without one, only what reads alike everywhere is read.
    pub locale: Option<Locale>,
    /// What a percent sign does.
    pub percent: Percent,
    /// What numbers are multiplied by.
    pub scale: Scale,
}

/// What a percent sign does to the number before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Percent {
    /// `15%` prints 15.
    #[default]
    AsPrinted,
    /// `15%` prints 0.15.
    Fraction,
}

/// What printed numbers are multiplied by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Nothing: `1,204` under `EUR thousands` is 1204, and so is `1,204 million`.
    #[default]
    AsPrinted,
    /// The power of ten that the contract states; a scale word at the number must say the same.
    Stated(i32),
    /// The scale word at the number, if there is one: `1.2 million` is 1200000.
    Words,
}

impl Scale {
    /// The scale of this name: `as_printed`, `words`, `thousands`, `millions`, `billions`; none for another.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "as_printed" => Self::AsPrinted,
            "words" => Self::Words,
            "thousands" => Self::Stated(3),
            "millions" => Self::Stated(6),
            "billions" => Self::Stated(9),
            _ => return None,
        })
    }
}

/// A number as it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// With its sign, percent and scale applied.
    pub value: Decimal,
    /// Digits after the point that were printed, less the scale: -3 for whole thousands.
    pub places: i32,
    /// The bytes of its digits and marks, without sign, currency and percent.
    pub range: Range<usize>,
    /// Whether a percent sign follows it.
    pub percent: bool,
}

/// Why a text prints no number for certain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberFault {
    /// Nothing in it is a number; `A12` and `12-34` are not.
    #[error("it prints no number")]
    Missing,
    /// Which one is meant is not said.
    #[error("it prints more than one number: `{first}` and `{second}`")]
    Several {
        /// The first of them.
        first: String,
        /// The next.
        second: String,
    },
    /// Readings differ.
    #[error("`{text}` can be read as more than one number{}", .locale.map(|locale| format!(" in locale `{}`", locale.name())).unwrap_or(" without a locale".to_owned()))]
    Ambiguous {
        /// The number as printed.
        text: String,
        /// The locale by which it was read.
        locale: Option<Locale>,
    },
    /// Its marks stand where the locale has none.
    #[error("`{text}` is not a number as locale `{}` writes it", .locale.map_or("any", Locale::name))]
    Malformed {
        /// The number as printed.
        text: String,
        /// The locale by which it was read.
        locale: Option<Locale>,
    },
    /// What stands around it may be a minus sign, or something else.
    #[error("the sign of `{text}` is not certain")]
    Sign {
        /// The number as printed.
        text: String,
    },
    /// A scale word at the number says another scale than the contract.
    #[error("`{text}` has the scale word `{word}`, which is not the scale stated")]
    Scale {
        /// The number as printed.
        text: String,
        /// The word.
        word: String,
    },
    /// Out of bounds.
    #[error("`{text}`: {source}")]
    Decimal {
        /// The beginning of the number.
        text: String,
        /// What is wrong with it.
        source: DecimalError,
    },
}

/// All numbers that `text` prints, in order, each with the reason where it cannot be read. O(len).
pub fn read_all(text: &str, format: NumberFormat) -> Vec<Result<Printed, NumberFault>> {
    Tokens { text, at: 0, end: text.len() }.map(|range| read_token(text, range, format)).collect()
}

/// The one number that `text` prints within `range`, which begins and ends on borders. What stands around the range
/// counts: quoting `90.00` out of `(90.00)` quotes minus ninety.
///
/// # Errors
/// Where there is none, more than one, or one that cannot be read for certain.
pub fn read_one(text: &str, range: Range<usize>, format: NumberFormat) -> Result<Printed, NumberFault> {
    let mut tokens = Tokens { text, at: range.start, end: range.end };
    let only = tokens.next().ok_or(NumberFault::Missing)?;
    if let Some(other) = tokens.next() {
        return Err(NumberFault::Several { first: excerpt(text, &only), second: excerpt(text, &other) });
    }
    read_token(text, only, format)
}

/// The places of `text` that hold a number: digits and their marks. What is glued to letters, or by dashes and
/// slashes, is a token of its own and not among them; nor is a date.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
    end: usize,
}

impl Iterator for Tokens<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        loop {
            let ahead = self.text.as_bytes().get(self.at..self.end)?;
            let digit = self.at + ahead.iter().position(u8::is_ascii_digit)?;
            let leading = matches!(digit.checked_sub(1).and_then(|at| self.text.as_bytes().get(at)), Some(b'.' | b','));
            let mut start = digit;
            if leading && digit > self.at && !token::is_border(self.text, digit) {
                start = digit - 1;
            }
            let mut end = number_end(self.text, digit);
            let whole = token::is_border(self.text, start) && token::is_border(self.text, end);
            while end < self.end && !token::is_border(self.text, end) {
                end += self.text.get(end..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
                if let Some(b'0'..=b'9') = self.text.as_bytes().get(end) {
                    end = number_end(self.text, end);
                }
            }
            self.at = end.max(digit + 1);
            if whole && end <= self.end && !is_date(self.text.get(start..end).unwrap_or_default()) {
                return Some(start..end);
            }
        }
    }
}

/// Where the digits from `at` end, with the marks between them.
fn number_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut end = at;
    loop {
        while let Some(b'0'..=b'9') = bytes.get(end) {
            end += 1;
        }
        let Some(mark) = text.get(end..).and_then(|rest| rest.chars().next()) else { return end };
        let next = end + mark.len_utf8();
        let goes_on = match mark {
            '.' | ',' | '\'' | '\u{2019}' => matches!(bytes.get(next), Some(b'0'..=b'9')),
            mark if SPACES.contains(&mark) => !token::is_border(text, end),
            _ => false,
        };
        if !goes_on {
            return end;
        }
        end = next;
    }
}

/// Whether it has the form of a date with points, which no locale writes a number in.
fn is_date(text: &str) -> bool {
    let mut parts = text.split('.').map(|part| (part.len(), part.bytes().all(|byte| byte.is_ascii_digit())));
    matches!(
        (parts.next(), parts.next(), parts.next(), parts.next()),
        (Some((1..=2, true)), Some((1..=2, true)), Some((4, true)), None)
    )
}

fn read_token(text: &str, range: Range<usize>, format: NumberFormat) -> Result<Printed, NumberFault> {
    let digits = text.get(range.clone()).unwrap_or_default();
    let around = Around::of(text, &range)?;
    if format.locale.is_some_and(Locale::spaced) && is_spaced(text, &range) {
        return Err(NumberFault::Ambiguous { text: excerpt(text, &range), locale: format.locale });
    }
    let value = read_digits(digits, format.locale).map_err(|fault| fault.into_fault(digits, format.locale))?;
    let word = (format.scale != Scale::AsPrinted).then(|| scale_word(text, around.end, format.locale)).flatten();
    let power = match (format.scale, word) {
        (Scale::AsPrinted, _) | (Scale::Words, None) => 0,
        (Scale::Words, Some((_, power))) => power,
        (Scale::Stated(stated), Some((word, power))) if power != stated => {
            return Err(NumberFault::Scale { text: excerpt(text, &range), word: word.to_owned() });
        }
        (Scale::Stated(stated), _) => stated,
    };
    let power = power - if format.percent == Percent::Fraction { around.hundredths } else { 0 };
    let places = i32::try_from(value.places()).unwrap_or(i32::MAX) - power;
    let value = if around.negative { value.neg() } else { value };
    let value = if power == 0 { Ok(value) } else { value.shifted(power) };
    let value = value.map_err(|source| NumberFault::Decimal { text: excerpt(text, &range), source })?;
    Ok(Printed { value, places, range, percent: around.hundredths > 0 })
}

/// Why digits and marks are no number.
enum DigitsFault {
    Malformed,
    Ambiguous,
    Decimal(DecimalError),
}

impl DigitsFault {
    fn into_fault(self, digits: &str, locale: Option<Locale>) -> NumberFault {
        let text = excerpt(digits, &(0..digits.len()));
        match self {
            Self::Malformed => NumberFault::Malformed { text, locale },
            Self::Ambiguous => NumberFault::Ambiguous { text, locale },
            Self::Decimal(source) => NumberFault::Decimal { text, source },
        }
    }
}

/// The number of these digits and marks.
fn read_digits(digits: &str, locale: Option<Locale>) -> Result<Decimal, DigitsFault> {
    let Some(locale) = locale else {
        let point = read_marked(digits, '.', false, |mark| ",'\u{2019}".contains(mark) || SPACES.contains(&mark));
        let comma = read_marked(digits, ',', false, |mark| ".'\u{2019}".contains(mark) || SPACES.contains(&mark));
        return match (point, comma) {
            (Ok(a), Ok(b)) if a == b => Ok(a),
            (Ok(_), Ok(_)) => Err(DigitsFault::Ambiguous),
            (Ok(value), Err(_)) | (Err(_), Ok(value)) => Ok(value),
            (Err(fault), Err(_)) => Err(fault),
        };
    };
    read_marked(digits, locale.decimal(), locale.lakh(), |mark| locale.groups_by(mark))
}

fn read_marked(
    text: &str,
    decimal: char,
    lakh: bool,
    groups_by: impl Fn(char) -> bool,
) -> Result<Decimal, DigitsFault> {
    let (whole, fraction) = text.split_once(decimal).unwrap_or((text, ""));
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(fraction) {
        return Err(DigitsFault::Malformed);
    }
    let read = |whole: &str| Decimal::of_digits(false, whole, fraction, 0).map_err(DigitsFault::Decimal);
    if plain(whole) {
        return read(whole);
    }
    if !well_grouped(whole, lakh, groups_by) {
        return Err(DigitsFault::Malformed);
    }
    read(&whole.chars().filter(char::is_ascii_digit).collect::<String>())
}

/// What the text around a number adds to it.
struct Around {
    negative: bool,
    /// 2 for percent, 3 for per mille, 0 for neither.
    hundredths: i32,
    /// Where the number ends with its percent sign and currency.
    end: usize,
}

impl Around {
    fn of(text: &str, range: &Range<usize>) -> Result<Self, NumberFault> {
        let uncertain = || NumberFault::Sign { text: excerpt(text, range) };
        let left = Left::of(text, range.start);
        let (hundredths, end) = right(text, range.end);
        let mut negative = left.sign.negative().ok_or_else(uncertain)?;
        // A minus after the number is one in ledgers, where it ends the column; in other texts it is a dash.
        let after = text.get(end..).unwrap_or_default();
        if let Some(rest) = after.strip_prefix(token::is_short_dash)
            && !rest.starts_with(|c: char| token::is_word(c))
        {
            let minus = after.starts_with(['-', '\u{2212}']) && end == range.end && left.sign == Sign::None;
            if !minus || !ends_column(rest) {
                return Err(uncertain());
            }
            return Ok(Self { negative: true, hundredths, end });
        }
        // With one blank before it, at the end of its column, it may be that minus or the dash of an empty column.
        let set_off = after.strip_prefix(is_blank).and_then(|rest| rest.strip_prefix(['-', '\u{2212}']));
        if set_off.is_some_and(ends_column) {
            return Err(uncertain());
        }
        if books_after(after) {
            return Err(uncertain());
        }
        let opens = text.get(..left.start).unwrap_or_default().trim_end_matches(is_blank);
        if let Some(outside) = opens.strip_suffix(['(', '\u{ff08}'])
            && after.trim_start_matches(is_blank).starts_with([')', '\u{ff09}'])
        {
            let touching = outside.chars().next_back();
            let bound = touching.is_some_and(|c| token::is_word(c) || token::is_short_dash(c))
                && currency::ending_at(text, outside.len()).is_none();
            if bound || left.sign != Sign::None {
                return Err(uncertain());
            }
            negative = true;
        }
        Ok(Self { negative, hundredths, end })
    }
}

/// What stands to the left of a number.
struct Left {
    sign: Sign,
    /// Where the number begins with its sign and currency.
    start: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    None,
    Plus,
    Minus,
    Uncertain,
}

impl Sign {
    fn negative(self) -> Option<bool> {
        match self {
            Self::None | Self::Plus => Some(false),
            Self::Minus => Some(true),
            Self::Uncertain => None,
        }
    }
}

impl Left {
    fn of(text: &str, number: usize) -> Self {
        let (sign, start) = sign_before(text, number);
        if sign != Sign::None {
            let currency = currency::ending_at(text, skip_blank_back(text, start));
            return Self { sign, start: currency.map_or(start, |(_, start)| start) };
        }
        match currency::ending_at(text, skip_blank_back(text, number)) {
            Some((_, start)) => {
                let (sign, start) = sign_before(text, start);
                Self { sign, start }
            }
            None => Self { sign, start: number },
        }
    }
}

/// Whether a column of figures ends here: the line does, or a gap follows that no words have between them.
fn ends_column(rest: &str) -> bool {
    let next = rest.trim_start_matches(is_blank);
    let blanks = rest.get(..rest.len() - next.len()).unwrap_or_default();
    next.is_empty() || next.starts_with(['\n', '\r', '|']) || blanks.contains('\t') || blanks.chars().nth(1).is_some()
}

/// Whether a bookkeeper's `CR` or `DR` follows: which of them is a minus depends on whose books they are.
fn books_after(after: &str) -> bool {
    let word = after.trim_start_matches(is_blank);
    let mark = word.strip_prefix("CR").or_else(|| word.strip_prefix("DR"));
    mark.is_some_and(|rest| !rest.starts_with(token::is_word))
}

/// The sign that stands before byte `at`, and where it begins.
fn sign_before(text: &str, at: usize) -> (Sign, usize) {
    let left = text.get(..at).unwrap_or_default();
    let near = left.trim_end_matches(is_blank);
    let touching = near.len() == left.len();
    let Some(mark) = near.chars().next_back() else { return (Sign::None, at) };
    let start = near.len() - mark.len_utf8();
    let before = near.get(..start).unwrap_or_default();
    let last = before.chars().next_back();
    match mark {
        '+' if touching && !matches!(last, Some('/' | '-')) => (Sign::Plus, start),
        '\u{b1}' | '\u{2213}' | '+' if touching => (Sign::Uncertain, start),
        '\u{2014}' | '\u{2015}' if touching && !last.is_some_and(token::is_word) => (Sign::Uncertain, start),
        mark if token::is_short_dash(mark) => {
            let opens = last.is_none_or(|c| c.is_whitespace() || "(=:|;<>[\u{ff08}".contains(c));
            if touching {
                let certain = opens || currency::ending_at(text, start).is_some();
                return (if certain { Sign::Minus } else { Sign::Uncertain }, start);
            }
            // Set off by gaps on both sides a dash is a column that holds nothing; with the gap on its left alone it
            // is the sign of its column, also where that column stands behind another number.
            let gap = |blanks: &str| blanks.contains('\t') || blanks.chars().nth(1).is_some();
            let outer = before.trim_end_matches(is_blank);
            let apart = !outer.is_empty() && !outer.ends_with(['\n', '\r']);
            if apart && gap(before.get(outer.len()..).unwrap_or_default()) {
                let empty = gap(left.get(near.len()..).unwrap_or_default());
                return if empty { (Sign::None, at) } else { (Sign::Minus, start) };
            }
            // `10 - 20` is a range or a difference; in `Discount - 20` the dash may be either.
            let infix = before.trim_end_matches(is_blank).ends_with(|c: char| c.is_ascii_digit() || c == '%');
            match (infix, mark) {
                (true, _) => (Sign::None, at),
                (false, '\u{2212}') if opens => (Sign::Minus, start),
                (false, _) => (Sign::Uncertain, start),
            }
        }
        _ => (Sign::None, at),
    }
}

/// Percent and currency after a number: the power of ten that the sign divides by, and where they end.
fn right(text: &str, number: usize) -> (i32, usize) {
    let (mut hundredths, mut end) = (0, number);
    let rest = text.get(number..).unwrap_or_default();
    let sign = rest.strip_prefix(is_blank).unwrap_or(rest);
    for (mark, power) in [("%", 2), ("\u{ff05}", 2), ("\u{2030}", 3), ("percent", 2), ("per cent", 2)] {
        if let Some(after) = sign.strip_prefix(mark)
            && !(mark.starts_with('p') && after.starts_with(token::is_word))
        {
            (hundredths, end) = (power, text.len() - after.len());
            break;
        }
    }
    let blank = text.get(end..).unwrap_or_default().trim_start_matches(is_blank);
    if let Some((_, after)) = currency::beginning_at(text, text.len() - blank.len()) {
        end = after;
    }
    (hundredths, end)
}

/// The power of ten of the scale word after a number, and the word.
fn scale_word(text: &str, at: usize, locale: Option<Locale>) -> Option<(&str, i32)> {
    let rest = text.get(at..)?;
    let word = rest.strip_prefix(is_blank).unwrap_or(rest);
    let end = word.find(|c: char| !token::is_word(c)).unwrap_or(word.len());
    let word = word.get(..end).filter(|word| word.len() <= 16)?;
    let power = match word.to_lowercase().as_str() {
        "thousand" | "thousands" | "tsd" | "tausend" => 3,
        "million" | "millions" | "millionen" | "mio" | "mln" | "mn" | "millones" | "millón" | "milioni" | "milione"
        | "milhões" | "milhão" | "miljoen" | "millioner" | "miljoner" => 6,
        "mrd" | "milliarde" | "milliarden" | "milliard" | "milliards" | "miliardi" | "miliardo" | "mld" | "bn"
        | "miljard" | "miljarder" | "milliarder" => 9,
        // A billion has twelve zeros in most languages.
        "billion" | "billions" if locale.is_some_and(|locale| locale.name().starts_with("en")) => 9,
        "trillion" | "trillions" if locale.is_some_and(|locale| locale.name().starts_with("en")) => 12,
        _ => return None,
    };
    Some((word, power))
}

/// Whether plain spaces seem to group this number: one space, and three digits on its right.
fn is_spaced(text: &str, range: &Range<usize>) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let own = text.get(range.clone()).unwrap_or_default();
    let left = text.get(..range.start).unwrap_or_default();
    let right = text.get(range.end..).unwrap_or_default();
    let after = right.strip_prefix(' ').is_some_and(|next| digits(next) == 3);
    let before = left.strip_suffix(' ').is_some_and(|last| {
        let rest = last.trim_end_matches(|c: char| c.is_ascii_digit());
        (1..=3).contains(&(last.len() - rest.len())) && !rest.ends_with(['.', ','])
    });
    (after && own.bytes().all(|byte| byte.is_ascii_digit()) && own.len() <= 3) || (before && digits(own) == 3)
}

/// White space within a line.
fn is_blank(c: char) -> bool {
    c.is_whitespace() && !matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn skip_blank_back(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().trim_end_matches(is_blank).len()
}

/// The number as printed, cut where it is long.
fn excerpt(text: &str, range: &Range<usize>) -> String {
    let own = text.get(range.clone()).unwrap_or_default();
    match own.char_indices().nth(40) {
        Some((cut, _)) => format!("{}...", own.get(..cut).unwrap_or_default()),
        None => own.to_owned(),
    }
}

/// The currency beside a number.
pub(super) struct Beside {
    /// Where the number begins.
    pub(super) number: usize,
    pub(super) currency: Currency,
    /// The bytes of the currency that can go without bringing two things together that stand apart.
    pub(super) removable: Option<Range<usize>>,
}

/// Every currency that stands beside a number of `text`, in order; one between two numbers is that of both.
pub(super) fn currencies(text: &str) -> Vec<Beside> {
    let mut found: Vec<Beside> = Vec::new();
    let mut removed = 0;
    for range in (Tokens { text, at: 0, end: text.len() }) {
        let number = range.start;
        let (sign, signed) = sign_before(text, number);
        let start = if sign == Sign::None { number } else { signed };
        if let Some((currency, begins)) = currency::ending_at(text, skip_blank_back(text, start)) {
            let removable = (begins >= removed && is_open(text, begins)).then_some(begins..start);
            removed = removable.as_ref().map_or(removed, |range| range.end);
            found.push(Beside { number, currency, removable });
        }
        let rest = text.get(range.end..).unwrap_or_default();
        let blank = rest.len() - rest.trim_start_matches(is_blank).len();
        if let Some((currency, ends)) = currency::beginning_at(text, range.end + blank) {
            let removable = is_closed(text, ends).then_some(range.end..ends);
            removed = removable.as_ref().map_or(removed, |range| range.end);
            found.push(Beside { number, currency, removable });
        }
    }
    found
}

/// Whether what ends at `at` cannot be part of a number that would begin there.
fn is_open(text: &str, at: usize) -> bool {
    let apart = |c: Option<char>| c.is_none_or(|c| c.is_whitespace() || matches!(c, '(' | '['));
    let mut left = text.get(..at).unwrap_or_default().chars().rev();
    match left.next() {
        Some(sign) if sign == '+' || token::is_short_dash(sign) => apart(left.next()),
        other => apart(other),
    }
}

/// Whether what begins at `at` cannot be part of a number that would end there.
fn is_closed(text: &str, at: usize) -> bool {
    let mut right = text.get(at..).unwrap_or_default().chars();
    match right.next() {
        Some('.' | ',') => right.next().is_none_or(char::is_whitespace),
        other => other.is_none_or(|c| c.is_whitespace() || matches!(c, ')' | ']' | ';' | ':' | '!' | '?')),
    }
}

/// The group marks of every well-grouped number of `text`, in order.
pub(super) fn group_marks(text: &str, locale: Option<Locale>) -> Vec<Range<usize>> {
    let mut marks = Vec::new();
    for range in (Tokens { text, at: 0, end: text.len() }) {
        let own = text.get(range.clone()).unwrap_or_default();
        let whole = locale.map_or(own, |locale| own.split(locale.decimal()).next().unwrap_or_default());
        // Without a locale a point or a comma ends the group: which of them it is, is not known.
        let whole = if locale.is_some() { whole } else { whole.split(['.', ',']).next().unwrap_or_default() };
        let groups_by = |mark| locale.map_or(SPACES.contains(&mark), |locale| locale.groups_by(mark));
        let sound = locale.is_none_or(|locale| read_digits(own, Some(locale)).is_ok());
        if sound && well_grouped(whole, locale.is_some_and(Locale::lakh), groups_by) {
            let separators = whole.char_indices().filter(|(_, c)| !c.is_ascii_digit());
            marks.extend(separators.map(|(at, c)| range.start + at..range.start + at + c.len_utf8()));
        }
    }
    marks
}

#[cfg(test)]
#[path = "number/tests.rs"]
mod tests;
