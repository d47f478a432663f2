//! Currencies as they stand beside numbers: a sign or an ISO 4217 code.

use iso_currency::Currency as Iso;

use crate::contract::token;

/// A currency as it is printed. Two of them are the [same](Self::is_same) or they never match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Currency {
    /// An ISO 4217 code.
    Code([u8; 3]),
    /// A sign that more than one currency uses.
    Sign(&'static str),
}

/// Signs, longest first where one ends another, each with its code where it can mean no other currency.
static SIGNS: &[(&str, Option<&[u8; 3]>)] = &[
    ("US$", Some(b"USD")),
    ("CA$", Some(b"CAD")),
    ("NZ$", Some(b"NZD")),
    ("HK$", Some(b"HKD")),
    ("R$", Some(b"BRL")),
    ("C$", Some(b"CAD")),
    ("A$", Some(b"AUD")),
    ("S$", Some(b"SGD")),
    ("$", None),
    ("€", Some(b"EUR")),
    ("£", Some(b"GBP")),
    ("¥", None),
    ("￥", None),
    ("₹", Some(b"INR")),
    ("₩", Some(b"KRW")),
    ("₽", Some(b"RUB")),
    ("₺", Some(b"TRY")),
    ("₴", Some(b"UAH")),
    ("₫", Some(b"VND")),
    ("₪", Some(b"ILS")),
    ("₦", Some(b"NGN")),
    ("₱", Some(b"PHP")),
    ("฿", Some(b"THB")),
    ("zł", Some(b"PLN")),
    ("Kč", Some(b"CZK")),
    ("SFr.", Some(b"CHF")),
    ("SFr", Some(b"CHF")),
    ("Fr.", None),
    ("kr.", None),
    ("kr", None),
    ("Ft", Some(b"HUF")),
    ("円", Some(b"JPY")),
    ("원", Some(b"KRW")),
];

impl Currency {
    /// Whether both name the same currency for certain: `€` is `EUR`, but `$` is not `USD`.
    pub fn is_same(self, other: Self) -> bool {
        self == other
    }

    fn of_sign((sign, code): &(&'static str, Option<&[u8; 3]>)) -> Self {
        code.map_or(Self::Sign(sign), |code| Self::Code(*code))
    }
}

/// The currency that ends at byte `at`, and where it begins. A code or a sign of letters is a word of its own.
pub(super) fn ending_at(text: &str, at: usize) -> Option<(Currency, usize)> {
    let before = text.get(..at)?;
    let last = before.chars().next_back()?;
    if last.is_ascii_digit() || last == ' ' {
        return None;
    }
    let own_word =
        |start: usize| !before.get(..start).and_then(|left| left.chars().next_back()).is_some_and(token::is_word);
    if last.is_ascii_uppercase()
        && let Some(start) = at.checked_sub(3)
        && let Some(code) = before.get(start..).and_then(code)
        && own_word(start)
    {
        return Some((code, start));
    }
    if last.is_ascii() && !matches!(last, '$' | '.' | 'r' | 't') {
        return None; // what signs end with, the most common text last
    }
    SIGNS.iter().find_map(|entry| {
        let start = before.strip_suffix(entry.0)?.len();
        let letters = entry.0.starts_with(|c: char| c.is_ascii_alphabetic());
        (!letters || own_word(start)).then(|| (Currency::of_sign(entry), start))
    })
}

/// The currency that begins at byte `at`, and where it ends.
pub(super) fn beginning_at(text: &str, at: usize) -> Option<(Currency, usize)> {
    let after = text.get(at..)?;
    let first = after.chars().next()?;
    if first.is_ascii_digit() || first == ' ' {
        return None;
    }
    let own_word = |rest: &str| !rest.chars().next().is_some_and(token::is_word);
    if first.is_ascii_uppercase()
        && let Some((word, rest)) = after.split_at_checked(3)
        && let Some(code) = code(word)
        && own_word(rest)
    {
        return Some((code, at + 3));
    }
    if first.is_ascii() && !matches!(first, '$' | 'U' | 'C' | 'N' | 'H' | 'R' | 'A' | 'S' | 'z' | 'K' | 'F' | 'k') {
        return None;
    }
    SIGNS.iter().find_map(|entry| {
        let rest = after.strip_prefix(entry.0)?;
        let letters = entry.0.ends_with(|c: char| c.is_alphabetic());
        (!letters || own_word(rest)).then(|| (Currency::of_sign(entry), at + entry.0.len()))
    })
}

fn code(word: &str) -> Option<Currency> {
    let letters: [u8; 3] = word.as_bytes().try_into().ok()?;
    (letters.iter().all(u8::is_ascii_uppercase) && Iso::from_code(word).is_some()).then_some(Currency::Code(letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_or_a_code_is_a_word_of_its_own() {
        let before = |text: &str| ending_at(text, text.len());
        assert_eq!(before("x EUR"), Some((Currency::Code(*b"EUR"), 2)));
        assert_eq!(before("US$"), Some((Currency::Code(*b"USD"), 0)));
        assert_eq!(before("$"), Some((Currency::Sign("$"), 0)));
        assert_eq!(
            (before("NEUR"), before("XYZ"), before("eur"), before("xkr"), before("")),
            (None, None, None, None, None)
        );
        let after = |text: &str| beginning_at(text, 0);
        assert_eq!(after("EUR."), Some((Currency::Code(*b"EUR"), 3)));
        assert_eq!(after("zł netto"), Some((Currency::Code(*b"PLN"), 3)));
        assert_eq!((after("EURO"), after("krone"), after("Kčs")), (None, None, None));
    }

    /// The quick way out knows every sign.
    #[test]
    fn every_sign_is_found_at_both_ends() {
        for entry in SIGNS {
            let sign = entry.0;
            let longest = |found: Option<(Currency, usize)>| found.map(|(currency, _)| currency);
            assert_eq!(longest(ending_at(sign, sign.len())), Some(Currency::of_sign(entry)), "{sign}");
            assert!(beginning_at(sign, 0).is_some(), "{sign}");
        }
    }

    #[test]
    fn two_different_ones_never_match() {
        let of = |text: &str| beginning_at(text, 0).unwrap().0;
        assert!(of("€").is_same(of("EUR")) && of("£").is_same(of("GBP")) && of("$").is_same(of("$")));
        for (a, b) in [("$", "USD"), ("$", "€"), ("USD", "EUR"), ("US$", "CA$"), ("¥", "JPY"), ("kr", "SEK")] {
            assert!(!of(a).is_same(of(b)), "{a} {b}");
        }
    }
}
