//! Units of trade that bills write against a number: `2pcs`, `x2`, `90.00/pc`.

use crate::contract::token;

/// The units, in lower case. None of them is a scale word or an ordinal: `5m` may be millions, `1st` is no quantity.
static UNITS: &[&str] = &[
    "x", "pc", "pcs", "pce", "pces", "piece", "pieces", "ea", "each", "unit", "units", "nos", "set", "sets", "box",
    "boxes", "stk", "stück", "h", "hr", "hrs", "hour", "hours", "min", "day", "days", "week", "weeks", "month",
    "months", "year", "years", "night", "nights", "g", "kg", "mg", "lb", "lbs", "oz", "l", "ml", "cl", "ltr", "mm",
    "cm", "km", "kwh", "mwh", "mb", "gb", "tb", "user", "users", "seat", "seats", "person", "persons",
];

/// Bytes of the longest unit.
const LONGEST: usize = 8;

/// Whether a unit begins at byte `at` and is a word of its own. One of a single letter is written small: `4G` is no
/// weight. O(1).
pub(super) fn begins_at(text: &str, at: usize) -> bool {
    let rest = text.get(at..).unwrap_or_default();
    let end = rest.char_indices().take(LONGEST + 1).find(|(_, c)| !token::is_word(*c)).map(|(end, _)| end);
    let word = match end {
        Some(end) => rest.get(..end).unwrap_or_default(),
        None if rest.len() <= LONGEST => rest,
        None => return false,
    };
    if word.len() == 1 {
        return UNITS.contains(&word);
    }
    UNITS.iter().any(|unit| unit.len() == word.len() && unit.eq_ignore_ascii_case(word))
}

/// Whether the `x` of `x2` ends at byte `at`, and is a word of its own but for the number.
pub(super) fn times_ends_at(text: &str, at: usize) -> bool {
    let Some(left) = text.get(..at).and_then(|left| left.strip_suffix('x')) else { return false };
    !left.ends_with(|c: char| token::is_word(c) || token::binds(c) || token::is_invisible(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_a_word_of_its_own() {
        for text in ["pcs", "pc 4", "PCS.", "Kg", "h", "x 4.00", "Stück,", "persons"] {
            assert!(begins_at(text, 0), "{text}");
        }
        for text in ["", "pcsx", "H", "G", "m", "k", "st", "th", "e5", "x4", "pc_1", "personss", "kg\u{301}", " kg"] {
            assert!(!begins_at(text, 0), "{text}");
        }
        assert!(UNITS.iter().all(|unit| unit.len() <= LONGEST && !unit.contains(char::is_uppercase)));
    }

    #[test]
    fn times_stands_before_a_number_alone() {
        for text in ["x", " x", "(x", "Wrap x"] {
            assert!(times_ends_at(text, text.len()), "{text}");
        }
        for text in ["", "ax", "0x", "-x", "X", "2x", "_x"] {
            assert!(!times_ends_at(text, text.len()), "{text}");
        }
    }
}
