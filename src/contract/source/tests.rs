use std::num::NonZeroUsize;

use proptest::prelude::*;

use super::*;
use crate::contract::fold::Fold;
use crate::contract::locale::Locale;
use crate::contract::number::Percent;
use crate::contract::number::Scale;

fn folds(names: &str) -> Folds {
    Folds::named(names.split_whitespace()).unwrap().in_locale(Locale::named("en").ok())
}

fn all() -> Folds {
    Fold::ALL.into_iter().fold(Folds::NONE, Folds::with).in_locale(Locale::named("en").ok())
}

const V1: &str = "whitespace typography";

fn format(locale: &str) -> NumberFormat {
    NumberFormat { locale: Locale::named(locale).ok(), percent: Percent::AsPrinted, scale: Scale::AsPrinted }
}

/// A source that is prepared for these folds.
fn source(pages: &[&str], folds: Folds) -> Source {
    let mut needs = Needs::default();
    needs.fold(folds);
    needs.numbers(format("de"));
    needs.numbers(format(""));
    Source::new(pages.iter().map(|page| Arc::from(*page)).collect(), &needs)
}

/// Whether a quote stands: in the text alone, and in one so long that it is indexed.
fn stands(names: &str, text: &str, quote: &str) -> bool {
    let folds = folds(names);
    let short = source(&[text], folds).find(folds, Some(1), quote, &Searches::default());
    let filler = "lorem ipsum dolor sit amet 7 77 777\n".repeat(200);
    let long = source(&[text, &filler], folds).find(folds, Some(1), quote, &Searches::default());
    assert_eq!(short, long, "{text:?} {quote:?}");
    short.is_some()
}

#[test]
fn the_cases_of_the_gate_table_stand_or_not() {
    for (id, text, quote, expected) in [
        ("gate-022", "stored at 5\u{2011}10 \u{b0}C", "5-10 \u{b0}C", true),
        ("gate-023", "stored at 5\u{2011}10 \u{b0}C", "5 to 10 \u{b0}C", false),
        ("gate-026", "\u{201e}Ja\u{201c}, sagte er", "\"Ja\", sagte er", true),
        ("gate-030", "Z\u{fc}rich", "Z\0rich", false),
        ("gate-031", "", "anything", false),
        ("gate-032", "some text", "", false),
        ("gate-032", "some text", " \n", false),
    ] {
        assert_eq!(stands(V1, text, quote), expected, "{id}");
    }
    assert!(stands("typography", "cafe\u{301} bar", "caf\u{e9} bar")); // gate-028
    assert!(!stands("", "cafe\u{301} bar", "caf\u{e9} bar"));
}

#[test]
fn numbers_of_the_gate_table_are_printed_or_not() {
    let printed = source(&["Summe 1.234,56 EUR"], Folds::NONE); // gate-016
    let value = |text: &str| Decimal::read(text).unwrap();
    assert!(printed.prints(format("de"), &value("1234.56")) && !printed.prints(format("de"), &value("1.234")));
    let printed = source(&["Amount: 3.400"], Folds::NONE); // gate-018: never a guess
    assert!(!printed.prints(format(""), &value("3400")) && !printed.prints(format(""), &value("3.4")));
    assert!(!printed.prints(format("fr"), &value("3.4"))); // not prepared for
    let dated = source(&["Datum 07.09.2025"], Folds::NONE); // gate-034
    let stand = dated.find(Folds::NONE, None, "07.09.2025", &Searches::default()).unwrap();
    let date = dated.date_at(&stand, Some(DateOrder::DayFirst)).unwrap().date;
    assert_eq!(date.to_string(), "2025-09-07");
}

#[test]
fn a_quote_stands_on_token_borders_alone() {
    for (text, quote) in [
        ("12", "2"),
        ("90.00", "90.0"),
        ("90.50", "90"),
        ("1,204", "1,2"),
        ("1,204", "204"),
        ("A12", "12"),
        ("cat", "at"),
        ("EX-104", "104"),
        ("2025-04-03", "04"),
    ] {
        assert!(!stands("", text, quote) && !stands(V1, text, quote), "{text} {quote}");
    }
    for (text, quote) in [
        ("-90.00", "90.00"),
        ("(90.00)", "90.00"),
        ("(5)", "(5)"),
        ("-5", "-5"),
        ("EUR 5.", "5"),
        ("12 2", "2"),
        ("a \u{2014} b", "\u{2014}"),
        ("\u{6771}\u{4eac}\u{90fd}", "\u{4eac}"),
    ] {
        assert!(stands("", text, quote) && stands(V1, text, quote), "{text} {quote}");
    }
}

#[test]
fn each_fold_lets_a_quote_stand() {
    for (names, text, quote) in [
        ("whitespace", "Net\n  total", "Net total"),
        ("typography", "o\u{fb03}ce", "office"),
        ("case", "NET Total", "net total"),
        ("hyphenation", "pay-\nment due", "payment due"),
        ("digit_grouping", "1,204.50", "1204.50"),
        ("digit_grouping", "1204.50", "1,204.50"),
        ("digit_grouping", "1\u{a0}204", "1204"),
        ("currency", "Total EUR 90.00", "Total 90.00"),
        ("currency", "Total 90.00", "Total \u{20ac}90.00"),
        ("currency", "EUR 90.00", "\u{20ac}90.00"),
        ("currency", "EUR 90.00", "90.00 EUR"),
    ] {
        assert!(stands(names, text, quote), "{names} {text} {quote}");
        assert!(!stands("", text, quote), "{names} {text} {quote}");
    }
    for (names, text, quote) in [
        ("currency", "EUR 90.00", "USD 90.00"),
        ("currency", "EUR 90.00", "90.00 USD"),
        ("currency", "$ 90.00", "USD 90.00"),
        ("digit_grouping", "1 204", "1204"),
        ("digit_grouping", "1,20", "120"),
        ("digit_grouping", "1204", "204"),
        ("case", "O", "0"),
        ("typography", "o\u{fb03}ce", "fice"),
        ("typography", "wait\u{2026}", "wait."),
        ("hyphenation", "12-\n34", "1234"),
    ] {
        assert!(!stands(names, text, quote), "{names} {text} {quote}");
    }
}

#[test]
fn what_a_fold_takes_away_can_be_quoted_all_the_same() {
    for (names, text, quote) in [
        ("currency", "Amounts in EUR 5", "EUR"),
        ("hyphenation whitespace", "pay-\nment", "pay- ment"),
        ("digit_grouping typography", "1\u{a0}204", "1 204"),
    ] {
        assert!(stands(names, text, quote), "{names} {text} {quote}");
    }
}

#[test]
fn a_quote_stands_on_its_page_and_on_no_two() {
    let folds = folds(V1);
    let source = source(&["Total 90.00 and", "so 90.00 on"], folds);
    let page =
        |page, quote| source.find(folds, page, quote, &Searches::default()).map(|stand| (stand.page, stand.range));
    assert_eq!(page(Some(2), "90.00"), Some((2, 3..8)));
    assert_eq!(page(None, "90.00"), Some((1, 6..11)));
    assert_eq!(source.stands(folds, None, "90.00", &Searches::default()).count(), 2);
    for (at, quote) in
        [(Some(0), "so"), (Some(3), "so"), (Some(1), "so"), (None, "and so"), (None, "andso"), (Some(usize::MAX), "so")]
    {
        assert_eq!(page(at, quote), None, "{at:?} {quote}");
    }
    assert!(source.find(Folds::NONE, None, "on", &Searches::default()).is_none()); // folds that were not prepared find nothing
}

#[test]
fn the_number_is_read_from_the_source_around_the_quote() {
    let text = "Net 90.00\nCredit (90.00)\nRefund -12.50\nVAT 15%\nItems 3.40 4.50";
    let source = source(&[text], Folds::NONE);
    let numbers = |quote: &str| -> Vec<String> {
        let searches = Searches::default();
        source
            .stands(Folds::NONE, Some(1), quote, &searches)
            .map(|stand| source.number_at(&stand, format("en")))
            .map(|read| read.map_or_else(|fault| fault.to_string(), |printed| printed.value.to_string()))
            .collect()
    };
    assert_eq!(numbers("90.00"), ["90.00", "-90.00"]); // either may be meant
    assert_eq!(numbers("Credit (90.00"), ["-90.00"]);
    assert_eq!(numbers("12.50"), ["-12.50"]);
    assert_eq!(numbers("15"), ["15"]);
    assert_eq!(numbers("Items"), ["it prints no number"]);
    assert_eq!(numbers("3.40 4.50"), ["it prints more than one number: `3.40` and `4.50`"]);
}

#[test]
fn a_region_is_found_or_says_why_not() {
    let pages: Vec<Arc<str>> =
        ["Reminder\nInvoice no 1\nold 5\n", "Invoice no 2\r\nTotal 90\nAmount due 90\nInvoice", "Amount due 3"]
            .map(Arc::from)
            .into();
    let span =
        |from, through, occurrence| Region::read(from, through, NonZeroUsize::new(occurrence)).unwrap().span(&pages);
    let (from, through) = ("(?i)^invoice no", "(?i)^amount due");
    assert_eq!(span(from, through, 2), Ok(Span { from: (2, 0), through: (2, 36) }));
    assert_eq!(span(from, through, 1), Ok(Span { from: (1, 9), through: (2, 36) }));
    assert!(matches!(span(from, through, 0), Err(RegionFault::Several { .. })));
    assert_eq!(
        span(from, through, 3).unwrap_err().to_string(),
        "no line matches `(?i)^invoice no` for the occurrence 3"
    );
    assert!(matches!(span("^Bill", "end", 0), Err(RegionFault::NoLine { .. })));
    assert!(matches!(span(from, "^Bill", 1), Err(RegionFault::NoEnd { .. })));
    assert_eq!(span("^Amount due 3$", "end", 0), Ok(Span { from: (3, 0), through: (3, 12) }));
    assert!(matches!(span("^Amount due 3$", "^Amount due", 0), Err(RegionFault::NoEnd { .. }))); // the next line, not the same
    assert_eq!(span("start", "^Total", 0), Ok(Span { from: (1, 0), through: (2, 22) }));
    assert!(matches!(span("start", through, 0), Err(RegionFault::Several { .. })));
    assert_eq!(span("start", "end", 0), Ok(Span { from: (1, 0), through: (3, 12) }));
    let held = span(from, through, 2).unwrap();
    assert!(held.holds(&Stand { page: 2, range: 14..22 }) && !held.holds(&Stand { page: 2, range: 30..37 }));
    assert!(!held.holds(&Stand { page: 1, range: 0..1 }) && !held.holds(&Stand { page: 3, range: 0..1 }));
    assert!(Region::read("(", "end", None).is_err() && Region::read("start", "(?=x)", None).is_err());
    assert_eq!(Region::read("start", "end", NonZeroUsize::new(1)).unwrap_err(), RegionError::Occurrence);
    let nothing = Region::read("^x", "end", None).unwrap().span(&[]);
    assert!(nothing.is_err());
}

#[test]
fn matches_give_the_first_group_where_there_is_one() {
    let (whole, group) = (Regex::new("HD-[0-9]{4}").unwrap(), Regex::new("(?m)^Ticket: (HD-[0-9]{4})").unwrap());
    let mut needs = Needs::default();
    needs.pattern(&whole);
    needs.pattern(&group);
    let source = Source::new(vec![Arc::from("Ticket: HD-1234\nlike HD-9999")], &needs);
    let texts = |pattern: &Regex| {
        source.matches(pattern).map(|all| all.iter().map(|stand| source.text(stand).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(texts(&whole).unwrap(), ["HD-1234", "HD-9999"]);
    assert_eq!(texts(&group).unwrap(), ["HD-1234"]);
    assert_eq!(texts(&Regex::new("x").unwrap()), None);
}

/// Sources and quotes that would take forever to compare byte by byte end within the bound.
#[test]
fn hostile_texts_end() {
    for (text, quote) in [
        ("a ".repeat(100_000), "a ".repeat(5_000) + "b a"),
        ("5-".repeat(100_000), "5".to_owned()),
        ("ab ".repeat(60_000) + &"cd ".repeat(60_000), "ab ".repeat(9_000) + "cd cd ab"),
        ("(".repeat(200_000), "(".repeat(50_000) + ")"),
        ("e\u{301}\u{323}".repeat(30_000), "e\u{301}".repeat(100)),
        ("\u{ad}".repeat(100_000), "\u{ad}".to_owned()),
    ] {
        for folds in [Folds::NONE, folds(V1)] {
            let source = source(&[&text], folds);
            assert_eq!(source.stands(folds, None, &quote, &Searches::default()).count(), 0);
        }
    }
}

/// However many quotes an answer has: once their searches have done as much as one judgement may, nothing more is found.
#[test]
fn all_searches_of_a_judgement_are_bounded() {
    let (text, searches) = ("5-".repeat(100_000), Searches::of(64 << 20)); // as many as 16 of the longest searches
    let source = source(&[&text, "a quote"], Folds::NONE);
    let find = || source.find(Folds::NONE, Some(2), "a quote", &searches).is_some();
    let mut count = 0;
    while find() {
        assert_eq!(source.stands(Folds::NONE, Some(1), "5", &searches).count(), 0);
        count += 1;
        assert!(count < 1_000, "no bound is met");
    }
    assert!(count > 10, "{count} searches are not many");
    assert!(
        source.find(Folds::NONE, Some(2), "a quote", &Searches::default()).is_some(),
        "another judgement is not held up"
    );
}

proptest! {
    /// Any stretch of a page that lies on token borders stands there, by every set of folds, short or long the page.
    #[test]
    fn what_is_cut_from_a_page_stands_on_it(
        words in prop::collection::vec("[a-c]{1,3}|[0-9]{1,4}|[0-9],[0-9]{3}|\u{e9}|o\u{fb03}ce|EUR|\\$|\u{201c}|pay-\n", 1..12),
        gap in "[ \n]{1,3}", from in 0_usize..12, count in 1_usize..12, long: bool, set in 0_usize..4,
    ) {
        let text = words.join(&gap);
        let from = from % words.len();
        let quote = words[from..(from + count).min(words.len())].join(&gap);
        let filler = "lorem ipsum dolor sit amet\n".repeat(if long { 200 } else { 1 });
        let folds = [Folds::NONE, folds(V1), folds("whitespace typography case"), all()][set];
        let source = source(&[&filler, &text], folds);
        let place = text.find(&quote).unwrap();
        let bordered = crate::contract::token::is_border(&text, place) && crate::contract::token::is_border(&text, place + quote.len());
        if bordered && !quote.trim().is_empty() {
            prop_assert!(source.find(folds, Some(2), &quote, &Searches::default()).is_some(), "{:?} in {:?}", quote, text);
        }
    }

    /// What stands is, letter by letter and digit by digit, what was quoted.
    #[test]
    fn what_stands_is_what_was_quoted(text in "[a-bA-B0-1 .,\n-]{0,40}", quote in "[a-bA-B0-1 .,-]{1,6}") {
        let source = source(&[&text], all());
        let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
        for stand in source.stands(all(), None, &quote, &Searches::default()) {
            prop_assert_eq!(plain(source.text(&stand)), plain(&quote));
        }
    }
}

#[test]
fn lines_of_a_region_are_folded() {
    let pages = [Arc::from("Bill\n  Statement  of \u{fb01}nancial\u{a0}position\nTotal\u{a0} due 5\nrest")];
    let region = || Region::read("^Statement of financial position", "^Total due", None).unwrap();
    assert!(region().span(&pages).is_err());
    let folds = Folds::named(["whitespace", "typography", "hyphenation"]).unwrap();
    let span = region().folded(folds).span(&pages).unwrap();
    assert_eq!(
        &pages[0][span.from.1..span.through.1],
        "  Statement  of \u{fb01}nancial\u{a0}position\nTotal\u{a0} due 5"
    );
    assert!(Region::read("^  Statement", "end", None).unwrap().folded(folds).span(&pages).is_ok());
}

proptest! {
    #[test]
    fn looking_within_a_region_misses_nothing_of_it(
        words in prop::collection::vec("(1|22|o\u{fb01}ce|pay-\nment|a  b|\u{ad}x|1,204\u{a0}5|Bill|Total|\n)", 1..60),
        from in 0_usize..60, size in 0_usize..40, quote in 0_usize..60,
    ) {
        let text = words.join(" ");
        let edge = |at: usize| text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(at).unwrap_or(text.len());
        let span = Span { from: (1, edge(from)), through: (1, edge(from + size)) };
        let quote = &words[quote % words.len()];
        for folds in [folds(V1), all()] {
            let spans = [span];
            let pages: Vec<Arc<str>> = vec![text.as_str().into()];
            let layers = [folds, folds.plain()].map(|folds| Layer::new(&pages, folds, &spans));
            let source = Source { pages, layers: layers.into(), ..Source::default() };
            let held = |stands: Stands<'_>| stands.filter(|stand| span.holds(stand)).collect::<Vec<_>>();
            let all = held(source.stands(folds, Some(1), quote, &Searches::default()));
            prop_assert_eq!(held(source.stands_within(folds, 1, quote, Some(&span), &Searches::default())), all);
        }
    }
}
