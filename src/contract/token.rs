//! Words and numbers as tokens: where one may begin or end.

use unicode_normalization::char::is_combining_mark;

use crate::contract::currency;
use crate::contract::locale::SPACES;
use crate::contract::unit;

/// Invisible characters in a row up to which a border is looked for beyond them.
const INVISIBLE_MAX: usize = 16;

/// Letters, digits, marks on them, and the underscore: what words and numbers are made of.
pub fn is_word(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphanumeric() || c == '_' } else { c.is_alphanumeric() || is_combining_mark(c) }
}

/// Whether a token may begin or end at byte `at`: no word and no number runs across it.
///
/// Inside a number are also its decimal and group marks (`90` ends no token in `90.50`, nor `1` in `1,204`), and the
/// dashes, slashes and colons that make one thing of digits: dates, ranges, identifiers (`12-34`, `EX-104`, `10:30`).
/// A sign, parentheses, a currency and a unit of trade are outside it: `90.00` may be quoted out of `-90.00`, `EUR90.00`
/// or `90.00/pc`, and whoever reads the number looks at what stands around. Scripts that put no space between words have a border at each letter.
/// O(1).
pub fn is_border(text: &str, at: usize) -> bool {
    let (Some(left), Some(right)) = (text.get(..at), text.get(at..)) else { return false };
    let (mut left, mut right) = (left.chars().rev(), right.chars());
    let (before, after) = match (visible(&mut left), visible(&mut right)) {
        (Seen::Char(before), Seen::Char(after)) => (before, after),
        (Seen::Hidden, _) | (_, Seen::Hidden) => return false, // what stands beyond so many is not looked for
        (Seen::Edge, _) | (_, Seen::Edge) => return true,
    };
    let (mut left, mut right) = (
        left.take(INVISIBLE_MAX).filter(|c| !is_invisible(*c)),
        right.take(INVISIBLE_MAX).filter(|c| !is_invisible(*c)),
    );
    match (is_word(before), is_word(after)) {
        (true, true) => {
            !is_joined(before, after)
                || is_currency_beside(text, at, before, after)
                || is_unit_beside(text, at, before, after)
        }
        (false, false) => true,
        (true, false) => match right.next() {
            Some(next) if is_word(next) => {
                !connects(before, after, next)
                    || (SPACES.contains(&after) && !three_digits(next, right))
                    || (after == '/' && before.is_ascii_digit() && unit::begins_at(text, at + 1))
            }
            _ => true,
        },
        (false, true) => match left.next() {
            Some(last) if is_word(last) => {
                !connects(last, before, after) || (SPACES.contains(&before) && !three_digits(after, right))
            }
            // `.5` is a number that begins with its point; in `Total.....5` the points are leaders.
            last => !(matches!(before, '.' | ',') && after.is_ascii_digit() && !matches!(last, Some('.' | ')' | '"'))),
        },
    }
}

/// What stands next on one side of a place.
enum Seen {
    Char(char),
    /// The text ends.
    Edge,
    /// Nothing but invisible characters, up to the bound.
    Hidden,
}

fn visible(side: &mut impl Iterator<Item = char>) -> Seen {
    for _ in 0..INVISIBLE_MAX {
        match side.next() {
            Some(c) if is_invisible(c) => {}
            Some(c) => return Seen::Char(c),
            None => return Seen::Edge,
        }
    }
    Seen::Hidden
}

/// Whether `range` is one whole token: no white space in it, and neither letters and digits nor anything that binds
/// them (`-`, `_`, `/`, `.`, `@`, ...) goes on beyond it.
pub fn is_whole(text: &str, start: usize, end: usize) -> bool {
    let (Some(left), Some(own), Some(right)) = (text.get(..start), text.get(start..end), text.get(end..)) else {
        return false;
    };
    let free = |mut outward: Box<dyn Iterator<Item = char> + '_>| match outward.next() {
        None => true,
        Some(next) if is_word(next) || is_invisible(next) => false,
        Some(next) => !binds(next) || !outward.next().is_some_and(|c| is_word(c) || binds(c)),
    };
    !own.is_empty()
        && !own.contains(char::is_whitespace)
        && is_border(text, start)
        && is_border(text, end)
        && free(Box::new(left.chars().rev()))
        && free(Box::new(right.chars()))
}

/// What stands in a text without being seen: a soft hyphen, joiners, a byte order mark.
pub(super) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}')
}

/// A dash that may bind digits, or be a minus sign: not the long ones, which are punctuation.
pub(super) fn is_short_dash(c: char) -> bool {
    matches!(c, '-' | '\u{2010}'..='\u{2013}' | '\u{2212}')
}

/// Whether `mark` makes one token of the characters on its sides.
fn connects(before: char, mark: char, after: char) -> bool {
    let (left, right) = (before.is_numeric(), after.is_numeric());
    match mark {
        '.' | ',' | '\'' | '\u{2019}' | ':' | '\u{66b}' | '\u{66c}' => left && right,
        mark if SPACES.contains(&mark) => left && right,
        '/' | '^' | '\u{2044}' => left || right,
        mark if is_short_dash(mark) => left || right,
        _ => false,
    }
}

/// Whether exactly three digits follow, as in a group.
fn three_digits(first: char, mut rest: impl Iterator<Item = char>) -> bool {
    let mut digit = || rest.next().is_some_and(|c| c.is_ascii_digit());
    first.is_ascii_digit() && digit() && digit() && !digit()
}

/// Whether it makes one token of itself and the word that it stands against.
pub(super) fn binds(c: char) -> bool {
    is_short_dash(c)
        || matches!(c, '_' | '/' | '\\' | '.' | '@' | '#' | '&' | '+' | '\'' | '\u{2019}' | '^' | '~' | '*')
}

/// Whether two neighbouring word characters belong to one word.
fn is_joined(before: char, after: char) -> bool {
    if before.is_ascii() && after.is_ascii() || is_combining_mark(after) {
        return true;
    }
    let numeral = |c: char| c.is_numeric() || "一二三四五六七八九十百千万億兆萬亿만억조천백십".contains(c);
    let hangul = |c: char| matches!(c, '\u{1100}'..='\u{11ff}' | '\u{ac00}'..='\u{d7af}');
    if numeral(before) && numeral(after) {
        return true;
    }
    let unit = |digit: char, letter: char| digit.is_ascii_digit() && hangul(letter);
    !(is_unspaced(before) || is_unspaced(after) || unit(before, after) || unit(after, before))
}

/// Letters of scripts that are written without spaces between words.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x2e80..=0x2fdf | 0x3005..=0x3007 | 0x3021..=0x3035
        | 0x3040..=0x30ff | 0x31f0..=0x31ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0xff66..=0xff9f
        | 0x20000..=0x3ffff)
}

/// Whether the letters on one side of `at` are a currency and the other side is a digit.
fn is_currency_beside(text: &str, at: usize, before: char, after: char) -> bool {
    (after.is_ascii_digit() && !before.is_ascii_digit() && currency::ending_at(text, at).is_some())
        || (before.is_ascii_digit() && !after.is_ascii_digit() && currency::beginning_at(text, at).is_some())
}

/// Whether a digit stands on one side of `at`, and a unit of trade on the other.
fn is_unit_beside(text: &str, at: usize, before: char, after: char) -> bool {
    (before.is_ascii_digit() && after.is_alphabetic() && unit::begins_at(text, at))
        || (before == 'x' && after.is_ascii_digit() && unit::times_ends_at(text, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the part between the bars begins and ends on borders.
    fn stands(marked: &str) -> bool {
        let parts: Vec<&str> = marked.split('|').collect();
        let text = parts.concat();
        is_border(&text, parts[0].len()) && is_border(&text, parts[0].len() + parts[1].len())
    }

    #[test]
    fn a_token_is_not_cut() {
        for marked in [
            "1|2|",
            "|90.0|0",
            "|90|.50",
            "|1,2|,204",
            "|1,2|04",
            "|1|,204",
            "1,|204|",
            "90.|50|",
            "|90.|50",
            "90|.50|",
            "|ca|t",
            "c|at|",
            "A|12|",
            "|12|A",
            "|12|-34",
            "12-|34|",
            "EX-|104|",
            "|EX|-104",
            "|03|/04/2025",
            "03/|04|/2025",
            "2025|-04|-03",
            "|10|:30",
            "1'|204|",
            "1\u{2019}|204|",
            "1\u{a0}|204|",
            "|1|\u{202f}204",
            "|5|-year",
            ".|5|",
            "(.|5|)",
            "x_|1|",
            "co\u{ad}|op|",
            "|cafe|\u{301}",
            "10|²|",
            "|10|²",
            "|1|½",
            "5\u{2013}|10|",
            "10^|5|",
            "|5|万",
            "EURO|5|",
            "|5|EURO",
            "|2|e5",
            "二|十|",
            "|5|m",
            "|1|st",
            "|4|G",
            "0x|2|",
            "|2|x4",
            "|12|h30",
            "|5|/week2",
            "90.00/|pc|",
        ] {
            assert!(!stands(marked), "{marked}");
        }
    }

    #[test]
    fn a_token_stands_where_it_is_whole() {
        for marked in [
            "|90.00|",
            "-|90.00|",
            "|-90.00|",
            "(|90.00|)",
            "|(90.00)|",
            "EUR|90.00|",
            "|90.00|EUR",
            "$|5|",
            "|15|%",
            "#|5|",
            "No.|5|",
            "Qty:|5|",
            "Total.....|5|",
            "it costs |5|.",
            "it costs |5|, so",
            "a |5| b",
            "well-|known|",
            "l'|article|",
            "|Smith|'s",
            "|a|.b",
            "東|京|都",
            "|2|pcs",
            "|2.5|kg",
            "x|2|",
            "|90.00|/pc",
            "EUR|90.00|/hour.",
            "|1,204|円",
            "|1,204|원",
            "\u{201e}|Ja|\u{201c}",
            "|5|\u{2014}a",
            "2\u{a0}|90.00|",
            "|12|\u{a0}5",
            "",
            "||",
        ] {
            assert!(marked.is_empty() || stands(marked), "{marked}");
        }
    }

    #[test]
    fn a_whole_token_has_nothing_bound_to_it() {
        let whole = |marked: &str| {
            let parts: Vec<&str> = marked.split('|').collect();
            is_whole(&parts.concat(), parts[0].len(), parts[0].len() + parts[1].len())
        };
        for marked in ["|EX-104|", "(|EX-104|),", "Ticket:|EX-104|", "see |EX-104|.", "\"|EX-104|\"", "|EX-104|…"] {
            assert!(whole(marked), "{marked}");
        }
        for marked in [
            "|EX-104|-7",
            "A-|EX-104|",
            "|EX-104|/2",
            "|EX|-104",
            "|EX-10|4",
            "|a b|",
            "||",
            "me@|ex|",
            "|ex|.com",
            "|a|_b",
        ] {
            assert!(!whole(marked), "{marked}");
        }
    }
}
