//! Dates as a text prints them. What the order leaves ambiguous is a fault, never a guess.

use std::ops::Range;
use std::sync::LazyLock;

use jiff::civil::Date;
use regex::Captures;
use regex::Regex;

use crate::contract::token;

/// Which part comes first in a date of digits alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrder {
    /// `03/04/2025` is 3 April.
    DayFirst,
    /// `03/04/2025` is 4 March.
    MonthFirst,
    /// Only dates that begin with the year, or name the month.
    Iso,
}

impl DateOrder {
    /// The order of this name: `day_first`, `month_first`, `iso`; none for another.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "day_first" => Self::DayFirst,
            "month_first" => Self::MonthFirst,
            "iso" => Self::Iso,
            _ => return None,
        })
    }
}

/// A date as it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintedDate {
    /// The day.
    pub date: Date,
    /// Its bytes.
    pub range: Range<usize>,
}

/// Why a text prints no date for certain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DateFault {
    /// Nothing in it is a date.
    #[error("it prints no date")]
    Missing,
    /// Which one is meant is not said.
    #[error("it prints more than one date: `{first}` and `{second}`")]
    Several {
        /// The first of them.
        first: String,
        /// The next.
        second: String,
    },
    /// Day and month could be either, or the century is not printed.
    #[error("`{text}` can be read as more than one date")]
    Ambiguous {
        /// The date as printed.
        text: String,
    },
    /// The calendar has no such day, read in this order.
    #[error("`{text}` is no day of the calendar in the order that is stated")]
    NoDay {
        /// The date as printed.
        text: String,
    },
}

/// The forms of dates: year first, digits alone, Japanese, day and named month, named month and day.
static FORMS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let forms = Regex::new(
        r"(?x)
        (?<iy>[0-9]{4})(?<is1>[-/.])(?<im>[0-9]{1,2})(?<is2>[-/.])(?<id>[0-9]{1,2})
        | (?<na>[0-9]{1,2})(?<ns1>[-/.])(?<nb>[0-9]{1,2})(?<ns2>[-/.])(?<ny>[0-9]{4}|[0-9]{2})
        | (?<jy>[0-9]{4})年(?<jm>[0-9]{1,2})月(?<jd>[0-9]{1,2})日
        | (?<dd>[0-9]{1,2})(?:st|nd|rd|th|er|\.|º)?(?:\s+|-)(?:(?:day\s+)?of\s+|de\s+)?(?<dm>\p{L}{3,12}|\p{L}{2,10}[-\u{2010}]\s*\n\s*\p{L}{2,10})\.?,?(?:\s+|-)(?:of\s+|de\s+)?(?<dy>[0-9]{4})
        | (?<mm>\p{L}{3,12}|\p{L}{2,10}[-\u{2010}]\s*\n\s*\p{L}{2,10})\.?(?:\s+|-)(?:the\s+)?(?<md>[0-9]{1,2})(?:st|nd|rd|th)?(?:,?\s+|-)(?<my>[0-9]{4})",
    );
    forms.ok() // a pattern of ours, which the tests reach
});

/// All dates that `text` prints, in order, each with the reason where it cannot be read. O(len).
pub fn read_all(text: &str, order: Option<DateOrder>) -> Vec<Result<PrintedDate, DateFault>> {
    let whole = 0..text.len();
    dates(text, whole, order).map(|(range, read)| read.map(|date| PrintedDate { date, range })).collect()
}

/// The one date that `text` prints within `range`.
///
/// # Errors
/// Where there is none, more than one, or one that cannot be read for certain.
pub fn read_one(text: &str, range: Range<usize>, order: Option<DateOrder>) -> Result<PrintedDate, DateFault> {
    let mut dates = dates(text, range, order);
    let (only, read) = dates.next().ok_or(DateFault::Missing)?;
    if let Some((other, _)) = dates.next() {
        return Err(DateFault::Several { first: excerpt(text, &only), second: excerpt(text, &other) });
    }
    read.map(|date| PrintedDate { date, range: only })
}

type Found = (Range<usize>, Result<Date, DateFault>);

fn dates(text: &str, range: Range<usize>, order: Option<DateOrder>) -> impl Iterator<Item = Found> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        loop {
            // What stands before the range is no part of it: the pattern looks at nothing around it.
            let own = text.get(at..range.end)?;
            if !own.bytes().any(|byte| byte.is_ascii_digit()) {
                return None;
            }
            let captures = FORMS.as_ref()?.captures(own)?;
            let found = captures.get(0)?;
            let place = at + found.start()..at + found.end();
            if is_apart(text, &place)
                && let Some(read) = read(&captures, order)
            {
                at = place.end;
                let text = || excerpt(text, &place);
                let read = read.map_err(|ambiguous| match ambiguous {
                    true => DateFault::Ambiguous { text: text() },
                    false => DateFault::NoDay { text: text() },
                });
                return Some((place, read));
            }
            // Not a date: on behind its first token, for another may begin within.
            let rest = text.get(place.start..)?;
            let token = rest.char_indices().skip(1).map(|(size, _)| place.start + size);
            at = token.take_while(|at| *at < place.end).find(|at| token::is_border(text, *at)).unwrap_or(place.end);
        }
    })
}

/// Whether nothing goes on at either end but a time.
fn is_apart(text: &str, range: &Range<usize>) -> bool {
    let mut after = text.get(range.end..).unwrap_or_default().chars();
    let timed = after.next() == Some('T') && after.next().is_some_and(|c| c.is_ascii_digit());
    token::is_border(text, range.start) && (timed || token::is_border(text, range.end))
}

/// The date of a match; none where the word is no month, and `Err(true)` where it is ambiguous, `Err(false)` where
/// there is no such day.
fn read(captures: &Captures<'_>, order: Option<DateOrder>) -> Option<Result<Date, bool>> {
    let text = |name: &str| captures.name(name).map(|part| part.as_str());
    let number = |name: &str| text(name).and_then(|part| part.parse::<i16>().ok());
    let day = |year: i16, month: i16, day: i16| {
        let (month, day) = (i8::try_from(month).unwrap_or(0), i8::try_from(day).unwrap_or(0));
        Date::new(year, month, day).map_err(|_| false)
    };
    if let (Some(year), Some(month), Some(own)) = (number("iy"), number("im"), number("id")) {
        return (text("is1") == text("is2")).then(|| day(year, month, own));
    }
    if let (Some(year), Some(month), Some(own)) = (number("jy"), number("jm"), number("jd")) {
        return Some(day(year, month, own));
    }
    if let (Some(own), Some(name), Some(year)) = (number("dd"), text("dm"), number("dy")) {
        return month(name).map(|month| day(year, month, own));
    }
    if let (Some(name), Some(own), Some(year)) = (text("mm"), number("md"), number("my")) {
        return month(name).map(|month| day(year, month, own));
    }
    let (a, b, year) = (number("na")?, number("nb")?, number("ny")?);
    if text("ns1") != text("ns2") {
        return None;
    }
    if text("ny")?.len() == 2 {
        return Some(Err(true)); // of which century, is not printed
    }
    Some(match (order, day(year, b, a), day(year, a, b)) {
        (Some(DateOrder::DayFirst), day_first, _) => day_first,
        (Some(DateOrder::MonthFirst), _, month_first) => month_first,
        (_, Ok(day_first), Ok(month_first)) if day_first == month_first => Ok(day_first),
        (_, Ok(_), Ok(_)) | (Some(DateOrder::Iso), _, _) => Err(true),
        (None, Ok(date), Err(_)) | (None, Err(_), Ok(date)) => Ok(date),
        (None, Err(_), Err(_)) => Err(false),
    })
}

/// The month of this name, full or shortened. No name here means another month in another of these languages: English,
/// German, French, Spanish, Italian, Dutch, Portuguese, Swedish, Danish and Norwegian.
fn month(name: &str) -> Option<i16> {
    // A line end may split it.
    let whole: String = name.chars().filter(|c| c.is_alphabetic()).collect();
    Some(match whole.to_lowercase().as_str() {
        "january" | "jan" | "januar" | "jänner" | "janvier" | "enero" | "gennaio" | "januari" | "janeiro" => 1,
        "february" | "feb" | "februar" | "février" | "febrero" | "febbraio" | "februari" | "fevereiro" => 2,
        "march" | "mar" | "märz" | "mars" | "marzo" | "maart" | "março" | "marts" => 3,
        "april" | "apr" | "avril" | "abril" | "aprile" => 4,
        "may" | "mai" | "mayo" | "maggio" | "mei" | "maio" | "maj" => 5,
        "june" | "jun" | "juni" | "juin" | "junio" | "giugno" | "junho" => 6,
        "july" | "jul" | "juli" | "juillet" | "julio" | "luglio" | "julho" => 7,
        "august" | "aug" | "août" | "agosto" | "augustus" | "augusti" => 8,
        "september" | "sep" | "sept" | "septembre" | "septiembre" | "settembre" | "setembro" => 9,
        "october" | "oct" | "oktober" | "okt" | "octobre" | "octubre" | "ottobre" | "outubro" => 10,
        "november" | "nov" | "novembre" | "noviembre" | "novembro" => 11,
        "december" | "dec" | "dezember" | "dez" | "décembre" | "diciembre" | "dicembre" | "dezembro" | "desember" => {
            12
        }
        _ => return None,
    })
}

fn excerpt(text: &str, range: &Range<usize>) -> String {
    text.get(range.clone()).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every name that a language of the list has for a month, in the order of the year.
    #[test]
    fn months_are_known_by_their_names() {
        for year in [
            "January February March April May June July August September October November December",
            "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec",
            "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
            "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
            "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
            "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
            "januari februari maart april mei juni juli augustus september oktober november december",
            "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
            "januari februari mars april maj juni juli augusti september oktober november december",
            "januar februar marts april maj juni juli august september oktober november desember",
        ] {
            let months: Vec<Option<i16>> = year.split(' ').map(month).collect();
            assert_eq!(months, (1..=12).map(Some).collect::<Vec<_>>(), "{year}");
        }
        assert_eq!((month("Jänner"), month("Dez"), month("Okt"), month("Sep")), (Some(1), Some(12), Some(10), Some(9)));
        assert_eq!((month(""), month("Ma"), month("Juny")), (None, None, None));
    }

    fn short(text: &str, order: &str) -> Vec<String> {
        let short = |read: Result<PrintedDate, DateFault>| match read {
            Ok(printed) => printed.date.to_string(),
            Err(DateFault::Ambiguous { .. }) => "ambiguous".to_owned(),
            Err(DateFault::NoDay { .. }) => "no day".to_owned(),
            Err(other) => other.to_string(),
        };
        read_all(text, DateOrder::named(order)).into_iter().map(short).collect()
    }

    #[test]
    fn every_form_is_read() {
        for text in [
            "2025-04-03",
            "2025/04/03",
            "2025.4.3",
            "2025-04-03T10:30:00Z",
            "3 April 2025",
            "03 Apr 2025",
            "3rd of April, 2025",
            "3. April 2025",
            "3-Apr-2025",
            "April 3, 2025",
            "Apr. 3rd 2025",
            "3 avril 2025",
            "3 de abril de 2025",
            "3\nApril\n2025",
            "2025年4月3日",
            "03/04/2025",
            "3.4.2025",
            "03-04-2025",
            "(3 APRIL 2025)",
            "the 3rd day of April 2025",
            "April the 3rd, 2025",
            "Apr-03-2025",
            "Ap-\nril 3, 2025",
            "3 Ap\u{2010}\n  ril 2025",
        ] {
            assert_eq!(short(text, "day_first"), ["2025-04-03"], "{text}");
        }
        assert_eq!(short("1er mars 2025, 5 M\u{e4}rz 2025", "iso"), ["2025-03-01", "2025-03-05"]);
    }

    #[test]
    fn the_order_decides_and_without_it_only_what_is_certain() {
        for (text, order, expected) in [
            ("07.09.2025", "day_first", "2025-09-07"), // gate-034: not 9 July
            ("03/04/2025", "month_first", "2025-03-04"),
            ("03/04/2025", "", "ambiguous"),
            ("03/04/2025", "iso", "ambiguous"),
            ("03/03/2025", "", "2025-03-03"),
            ("13/04/2025", "", "2025-04-13"),
            ("04/13/2025", "", "2025-04-13"),
            ("13/04/2025", "iso", "ambiguous"),
            ("04/13/2025", "day_first", "no day"),
            ("13/04/2025", "month_first", "no day"),
            ("13/14/2025", "", "no day"),
            ("03/04/25", "day_first", "ambiguous"),
            ("2025-02-29", "iso", "no day"),
            ("31 April 2025", "iso", "no day"),
            ("2024-02-29", "iso", "2024-02-29"),
        ] {
            assert_eq!(short(text, order), [expected], "{text} {order}");
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for text in [
            "",
            "2025",
            "April 2025",
            "Ap- ril 3, 2025",
            "Ap-\nples 3, 2025",
            "12 units 2025",
            "A2025-04-03",
            "2025-04-031",
            "12-2025-04-03",
            "2025-04/03",
            "1.2.3",
            "03/04",
            "12345-04-03",
            "EX-03-04-2025",
        ] {
            assert!(short(text, "day_first").is_empty(), "{text} {:?}", short(text, "day_first"));
        }
        assert_eq!(short("12 units 3 April 2025", "iso"), ["2025-04-03"]);
        assert_eq!(short("from 3 April 2025 to 5 May 2025", "iso"), ["2025-04-03", "2025-05-05"]);
    }

    #[test]
    fn a_quote_prints_one_date() {
        let text = "due 3 April 2025, or 2025-05-01";
        assert_eq!(read_one(text, 0..16, None).unwrap().date.to_string(), "2025-04-03");
        assert_eq!(read_one(text, 0..3, None), Err(DateFault::Missing));
        assert_eq!(
            read_one(text, 0..text.len(), None).unwrap_err().to_string(),
            "it prints more than one date: `3 April 2025` and `2025-05-01`"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[0-9]{0,4}[-/. a-z年]{0,3}(April|[0-9]{1,2})[-/. ]{0,2}[0-9]{0,5}\\PC{0,4}") {
            for order in [None, Some(DateOrder::DayFirst), Some(DateOrder::Iso)] {
                let _ = read_all(&text, order);
            }
        }
    }
}
