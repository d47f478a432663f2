//! How numbers are written where: which mark begins the fraction and which marks group digits.

use std::fmt;

/// How a language or country writes its numbers.
#[derive(Clone, Copy)]
pub struct Locale(&'static Row);

/// One row of the table.
struct Row {
    name: &'static str,
    decimal: char,
    /// Marks that group digits; [`SPACES`] group everywhere.
    groups: &'static str,
    /// Groups of two before the last three: `1,23,456`.
    lakh: bool,
    /// Plain spaces group in careless text, so a plain space between groups of three is ambiguous.
    spaced: bool,
}

/// No-break, narrow no-break and thin space: they group digits in every locale (SI brochure, 5.4.4).
pub const SPACES: [char; 3] = ['\u{a0}', '\u{202f}', '\u{2009}'];

const fn row(name: &'static str, decimal: char, groups: &'static str) -> Row {
    Row { name, decimal, groups, lakh: false, spaced: groups.is_empty() }
}

/// After the number patterns of Unicode CLDR. A region stands here only where it differs from its language.
static ROWS: &[Row] = &[
    row("en", '.', ","),
    row("de", ',', "."),
    row("fr", ',', ""),
    row("es", ',', "."),
    row("it", ',', "."),
    row("nl", ',', "."),
    row("pt", ',', "."),
    row("sv", ',', ""),
    row("da", ',', "."),
    row("nb", ',', ""),
    row("fi", ',', ""),
    row("pl", ',', ""),
    row("cs", ',', ""),
    row("ch", '.', "'\u{2019}"),
    row("ja", '.', ","),
    row("zh", '.', ","),
    row("ko", '.', ","),
    row("th", '.', ","),
    row("he", '.', ","),
    row("sk", ',', ""),
    row("uk", ',', ""),
    row("ru", ',', ""),
    row("bg", ',', ""),
    row("hu", ',', ""),
    row("et", ',', ""),
    row("lv", ',', ""),
    row("lt", ',', ""),
    row("ro", ',', "."),
    row("tr", ',', "."),
    row("el", ',', "."),
    row("hr", ',', "."),
    row("sl", ',', "."),
    row("id", ',', "."),
    row("vi", ',', "."),
    row("is", ',', "."),
    row("ca", ',', "."),
    Row { name: "en-IN", decimal: '.', groups: ",", lakh: true, spaced: false },
    row("es-MX", '.', ","),
];

/// Other names of a row, and regions that write as their language does.
static ALIASES: &[(&str, &str)] = &[
    ("de-CH", "ch"),
    ("it-CH", "ch"),
    ("de-LI", "ch"),
    ("no", "nb"),
    ("nn", "nb"),
    ("en-US", "en"),
    ("en-GB", "en"),
    ("en-IE", "en"),
    ("en-CA", "en"),
    ("en-AU", "en"),
    ("en-NZ", "en"),
    ("de-DE", "de"),
    ("fr-FR", "fr"),
    ("fr-CA", "fr"),
    ("fr-BE", "fr"),
    ("es-ES", "es"),
    ("es-AR", "es"),
    ("it-IT", "it"),
    ("nl-NL", "nl"),
    ("pt-PT", "pt"),
    ("pt-BR", "pt"),
    ("sv-SE", "sv"),
    ("da-DK", "da"),
    ("nb-NO", "nb"),
    ("fi-FI", "fi"),
    ("pl-PL", "pl"),
    ("cs-CZ", "cs"),
    ("ja-JP", "ja"),
    ("zh-CN", "zh"),
    ("ko-KR", "ko"),
    ("hi-IN", "en-IN"),
];

/// A locale that is not in the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("locale `{name}` is not known; known are {known}", known = Locale::known().collect::<Vec<_>>().join(", "))]
pub struct UnknownLocale {
    /// The name as it was given.
    pub name: String,
}

impl Locale {
    /// The locale of this name, in any case: a language, or a language and a country that the table has.
    ///
    /// # Errors
    /// Where the table does not have it: another country of the same language may write otherwise.
    pub fn named(name: &str) -> Result<Self, UnknownLocale> {
        let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map_or(name, |(_, own)| own);
        let found = ROWS.iter().find(|row| row.name.eq_ignore_ascii_case(alias));
        found.map(Self).ok_or_else(|| UnknownLocale { name: name.to_owned() })
    }

    /// All names that [`named`](Self::named) takes.
    pub fn known() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name).chain(ALIASES.iter().map(|(alias, _)| *alias))
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The mark that begins the fraction.
    pub fn decimal(self) -> char {
        self.0.decimal
    }

    /// Whether this mark groups digits here.
    pub fn groups_by(self, mark: char) -> bool {
        self.0.groups.contains(mark) || SPACES.contains(&mark)
    }

    /// Whether groups of two stand before the last three.
    pub(super) fn lakh(self) -> bool {
        self.0.lakh
    }

    /// Whether digits are grouped by spaces alone.
    pub(super) fn spaced(self) -> bool {
        self.0.spaced
    }
}

impl PartialEq for Locale {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Locale {}

impl fmt::Debug for Locale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Locale({})", self.0.name)
    }
}

/// Whether `whole` is one to three digits and then groups, all by one mark that `groups_by` takes. O(len).
pub(super) fn well_grouped(whole: &str, lakh: bool, groups_by: impl Fn(char) -> bool) -> bool {
    let Some(mark) = whole.chars().find(|c| !c.is_ascii_digit()) else { return false };
    if !groups_by(mark) || whole.starts_with('0') {
        return false;
    }
    let count = whole.split(mark).count();
    let three_or_two = |place: usize| if lakh && place + 1 < count { 2 } else { 3 };
    whole.split(mark).enumerate().all(|(place, group)| {
        let size = if place == 0 {
            (1..=three_or_two(place)).contains(&group.len())
        } else {
            group.len() == three_or_two(place)
        };
        size && group.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_others_are_refused() {
        for name in Locale::known() {
            assert!(Locale::named(name).is_ok(), "{name}");
        }
        assert_eq!(Locale::named("DE-ch").unwrap().decimal(), '.');
        assert_eq!(Locale::named("de").unwrap().decimal(), ',');
        for name in ["", "xx", "en-", "de-XX", "english"] {
            assert!(Locale::named(name).unwrap_err().to_string().starts_with(&format!("locale `{name}` is not known")));
        }
    }

    #[test]
    fn groups_are_well_formed_or_no_groups() {
        let comma = |c| c == ',';
        for text in ["1,204", "12,204", "999,999,999"] {
            assert!(well_grouped(text, false, comma), "{text}");
        }
        for text in
            ["1204", "1,20", "1,2045", "1234,567", "0,123", ",123", "1,204,5", "1.204", "1,204'300", "1,,204", ""]
        {
            assert!(!well_grouped(text, false, comma), "{text}");
        }
        assert!(well_grouped("1,23,456", true, comma) && well_grouped("12,34,567", true, comma));
        assert!(well_grouped("1,234", true, comma) && !well_grouped("1,234,567", true, comma));
        assert!(!well_grouped("123,45,678", true, comma));
    }
}
