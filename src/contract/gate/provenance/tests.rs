use super::*;
use crate::contract::PolicyContract;
use crate::contract::gate::testing;

const MATCH: &str = r#""numbers_match_quotes": {"locale": "en", "dates": "day_first"}"#;

fn contract() -> PolicyContract {
    let path = |text: &str| Query::read(text).unwrap();
    let evidence = Evidence { value: path("$.value"), quote: path("$.span.text"), page: path("$.span.page") };
    let bill = Region::read("(?i)^invoice no", "(?i)^amount due", std::num::NonZeroUsize::new(1)).unwrap();
    PolicyContract {
        policy: "invoices".into(),
        evidence: Some(evidence),
        folds: Folds::named(["whitespace", "typography"]).unwrap(),
        regions: [(Arc::from("bill"), bill)].into(),
        ..PolicyContract::default()
    }
}

fn judged(settings: &str, presence: Presence, pages: &[&str], answer: &str) -> Vec<String> {
    let mut contract = contract();
    testing::add(&mut contract, "provenance", settings, presence).unwrap();
    testing::judged(&contract, pages, answer)
}

/// What is said of one evidence object, without its path.
fn one(more: &str, pages: &[&str], evidence: &str) -> String {
    let settings = format!(r#"{{"provenance": "$.x"{}{more}}}"#, if more.is_empty() { "" } else { ", " });
    let said = judged(&settings, Presence::default(), pages, &format!(r#"{{"x": {evidence}}}"#));
    said.join(" | ").replace("$['x']: ", "")
}

fn evidence(value: &str, page: usize, text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!(r#"{{"value": {value}, "span": {{"page": {page}, "text": {text}}}}}"#)
}

const PAGES: [&str; 2] = [
    "Reminder: Total 80.00\nInvoice no 7\nSubtotal  90.00\nTax\n(15.00)\nVAT 15%\nDate 3 April 2025, due 07.09.2025\nAmount due 75.00\nPaid 12.00",
    "Page two: 90.00 and -5.00, o\u{fb03}ce pay-\nment",
];

#[test]
fn a_value_is_borne_out_by_its_quote() {
    for (value, page, text) in [
        ("90.00", 1, "90.00"),
        ("90", 1, "Subtotal 90.00"),
        ("9e1", 1, "90.00"),
        ("-15", 1, "15.00"),
        ("-15.00", 1, "Tax (15.00)"),
        ("15", 1, "VAT 15%"),
        ("15", 1, "15"),
        ("-5", 2, "5.00"),
        (r#""2025-04-03""#, 1, "3 April 2025"),
        (r#""2025-09-07""#, 1, "due 07.09.2025"),
        (r#""any text""#, 2, "office"),
    ] {
        assert_eq!(one(MATCH, &PAGES, &evidence(value, page, text)), "", "{value} {text}");
    }
}

#[test]
fn what_is_not_borne_out_says_why() {
    for (value, page, text, said) in [
        ("91", 1, "90.00", "the quote `90.00` prints 90.00, not 91"),
        ("15", 1, "15.00", "the quote `15.00` prints -15.00, not 15"),
        ("9000", 1, "90.00", "the quote `90.00` prints 90.00, not 9000"),
        ("90", 1, "90", "the quote `90` does not stand on page 1"),
        ("0.00", 1, "0.00", "the quote `0.00` does not stand on page 1"),
        ("75", 2, "75.00", "the quote `75.00` does not stand on page 2; it stands on page 1"),
        ("75", 9, "75.00", "the quote `75.00` does not stand on page 9; it stands on page 1"),
        ("90", 1, "Subtotal", "the quote `Subtotal`: it prints no number"),
        (
            "90",
            1,
            "Subtotal 90.00 Tax (15.00)",
            "the quote `Subtotal 90.00 Tax (15.00)`: it prints more than one number: `90.00` and `15.00`",
        ),
        (r#""2025-07-09""#, 1, "07.09.2025", "the quote `07.09.2025` prints 2025-09-07, not 2025-07-09"), // gate-034
        (r#""2025-02-30""#, 1, "3 April 2025", "`2025-02-30` is no day of the calendar"),
        (r#""2025-04-03""#, 1, "Tax", "the quote `Tax`: it prints no date"),
        ("true", 1, "Tax", "expected a number or a text, found boolean"),
        ("[1]", 1, "Tax", "expected a number or a text, found array"),
        ("90", 1, "", "expected a quote of 1 to 500 characters, found 0"),
        ("90", 1, " \u{a0}\n", "expected a quote of 1 to 500 characters, found 0"),
        ("90", 0, "90.00", "expected the number of a page at `$.span.page`, found `0`"),
        (r#""x""#, 1, "Z\0rich", "the quote `Z\u{fffd}rich` does not stand on page 1"),
    ] {
        assert_eq!(one(MATCH, &PAGES, &evidence(value, page, text)), said, "{value} {text}");
    }
}

#[test]
fn evidence_that_is_wanting_is_a_violation() {
    for (given, said) in [
        ("90.00", "expected an object with a value, a quote and a page, found a bare number"),
        ("{}", "expected an object with a value, a quote and a page, found a bare object"),
        ("null", "expected a value, found null"),
        (r#"{"value": null, "span": {"page": 1, "text": "Tax"}}"#, "expected a value, found null"),
        (r#"{"value": 90}"#, "the quote is missing at `$.span.text`"),
        (r#"{"value": 90, "span": "90.00"}"#, "the quote is missing at `$.span.text`"),
        (r#"{"value": 90, "span": {"page": 1, "text": null}}"#, "expected a quote at `$.span.text`, found null"),
        (r#"{"value": 90, "span": {"page": 1, "text": 90.00}}"#, "expected a quote at `$.span.text`, found number"),
        (
            r#"{"value": 90, "span": {"text": "90.00"}}"#,
            "expected the number of a page at `$.span.page`, found `nothing`",
        ),
        (
            r#"{"value": 90, "span": {"page": "1", "text": "90.00"}}"#,
            "expected the number of a page at `$.span.page`, found `\"1\"`",
        ),
        (
            r#"{"value": 90, "span": {"page": 1.5, "text": "90.00"}}"#,
            "expected the number of a page at `$.span.page`, found `1.5`",
        ),
        (
            r#"{"value": 90, "span": {"page": 1e300, "text": "90.00"}}"#,
            "expected the number of a page at `$.span.page`, found `1e300`",
        ),
        (r#"{"value": 90, "span": {"page": 1.0, "text": "90.00"}}"#, ""),
    ] {
        assert_eq!(one(MATCH, &PAGES, given), said, "{given}");
    }
    assert_eq!(one(MATCH, &[], &evidence("90", 1, "90.00")), "the quote `90.00` does not stand on page 1");
}

#[test]
fn every_node_must_yield_its_value_and_presence_is_heeded() {
    let settings = r#"{"provenance": ["$.lines[*].amount", "$.total"], "numbers_match_quotes": {"locale": "en"}}"#;
    let good = evidence("90", 1, "90.00");
    let answer = format!(
        r#"{{"lines": [{{"amount": {good}}}, {{}}, {{"amount": null}}, {{"amount": {}}}]}}"#,
        evidence("1", 1, "90.00")
    );
    assert_eq!(
        judged(settings, Presence::default(), &PAGES, &answer),
        [
            "$['total']: expected a value, found nothing: it is missing",
            "$['lines'][1]['amount']: expected a value, found nothing: it is missing",
            "$['lines'][2]['amount']: expected a value, found null",
            "$['lines'][3]['amount']: the quote `90.00` prints 90.00, not 1",
        ]
    );
    let lenient = Presence { optional: true, nullable: true, at_least: 0 };
    assert_eq!(
        judged(settings, lenient, &PAGES, &answer),
        ["$['lines'][3]['amount']: the quote `90.00` prints 90.00, not 1"]
    );
    let empty = judged(settings, Presence { at_least: 1, ..lenient }, &PAGES, r#"{"lines": []}"#);
    assert_eq!(empty.len(), 2, "{empty:?}");
}

#[test]
fn the_region_holds_the_very_place_that_prints_the_value() {
    let within = &format!(r#"{MATCH}, "within": "bill""#);
    assert_eq!(one(within, &PAGES, &evidence("90", 1, "90.00")), "");
    assert_eq!(one(within, &PAGES, &evidence("75", 1, "Amount due 75.00")), "");
    assert_eq!(
        one(within, &PAGES, &evidence("80", 1, "80.00")),
        "the quote `80.00` stands on page 1, but outside the region `bill`"
    );
    assert_eq!(
        one(within, &PAGES, &evidence("12", 1, "12.00")),
        "the quote `12.00` stands on page 1, but outside the region `bill`"
    );
    // The sign of one place and the region of another do not make one that is true.
    let twice = ["(5.00)\nInvoice no 1\n5.00\nAmount due 5.00"];
    assert_eq!(one(within, &twice, &evidence("5", 1, "5.00")), "");
    assert_eq!(one(within, &twice, &evidence("-5", 1, "5.00")), "the quote `5.00` prints 5.00, not -5");
    assert_eq!(one(MATCH, &twice, &evidence("-5", 1, "5.00")), "");
    // A region that is not there is said once; what does not depend on it is still looked at.
    let said = one(within, &["Subtotal 90.00"], &evidence("91", 1, "90.00"));
    assert!(
        said.starts_with("$: the source has no region `bill` for certain: no line matches `(?i)^invoice no`"),
        "{said}"
    );
    assert!(said.ends_with("the quote `90.00` prints 90.00, not 91"), "{said}");
}

#[test]
fn every_option_is_heeded() {
    assert_eq!(one("", &PAGES, &evidence("91", 1, "90.00")), ""); // numbers are not compared
    assert_eq!(
        one(r#""min_chars": 6"#, &PAGES, &evidence("90", 1, "90.00")),
        "expected a quote of 6 to 500 characters, found 5"
    );
    assert_eq!(
        one(r#""max_chars": 4"#, &PAGES, &evidence("90", 1, "90.00")),
        "expected a quote of 1 to 4 characters, found more"
    );
    assert!(one(r#""folds": []"#, &PAGES, &evidence("90", 1, "Subtotal 90.00")).contains("does not stand"));
    assert_eq!(one(r#""folds": ["case", "whitespace"]"#, &PAGES, &evidence("90", 1, "SUBTOTAL 90.00")), "");
    assert_eq!(
        one(r#""numbers_match_quotes": {"locale": "en", "percent": "fraction"}"#, &PAGES, &evidence("0.15", 1, "15%")),
        ""
    );
    assert_eq!(
        one(
            r#""numbers_match_quotes": {"locale": "en", "scale": "thousands"}"#,
            &PAGES,
            &evidence("90000", 1, "90.00")
        ),
        ""
    );
    assert_eq!(
        one(r#""numbers_match_quotes": {"locale": "de"}"#, &PAGES, &evidence("90", 1, "90.00")),
        "the quote `90.00`: `90.00` is not a number as locale `de` writes it"
    );
    assert_eq!(
        one(r#""numbers_match_quotes": {"locale": "en"}"#, &PAGES, &evidence(r#""2025-01-01""#, 1, "3 April 2025")),
        ""
    );
    let text = r#""text_matches_quotes": true"#;
    assert_eq!(one(text, &PAGES, &evidence(r#""payment""#, 2, "pay-\nment")), "");
    assert_eq!(one(text, &PAGES, &evidence(r#""office""#, 2, "o\u{fb03}ce")), "");
    assert_eq!(
        one(text, &PAGES, &evidence(r#""off""#, 2, "o\u{fb03}ce")),
        "the quote `o\u{fb03}ce` does not print `off`"
    );
    let grouped = r#""folds": ["digit_grouping"], "numbers_match_quotes": {"locale": "de"}"#;
    assert_eq!(one(grouped, &["Summe 1.234,56"], &evidence("1234.56", 1, "1234,56")), "");
}

#[test]
fn settings_that_cannot_hold_are_refused() {
    let refused = |settings: &str, contract: &mut PolicyContract| {
        testing::add(contract, "provenance", settings, Presence::default()).unwrap_err()
    };
    for (settings, said) in [
        (r#"{"provenance": "x"}"#, "provenance: `x` is not a JSONPath"),
        (r#"{"provenance": []}"#, "provenance: expected at least one path"),
        (r#"{"provenance": "$.x", "within": "bull"}"#, "within: region `bull` is not declared; declared are `bill`"),
        (
            r#"{"provenance": "$.x", "numbers_match_quotes": {"locale": "xx"}}"#,
            "numbers_match_quotes.locale: locale `xx` is not known",
        ),
        (
            r#"{"provenance": "$.x", "numbers_match_quotes": {"locale": "en", "dates": "us"}}"#,
            "numbers_match_quotes.dates: expected `day_first`, `month_first` or `iso`, found `us`",
        ),
        (
            r#"{"provenance": "$.x", "numbers_match_quotes": {"locale": "en", "percent": "half"}}"#,
            "numbers_match_quotes.percent: expected",
        ),
        (
            r#"{"provenance": "$.x", "numbers_match_quotes": {"locale": "en", "scale": "dozens"}}"#,
            "numbers_match_quotes.scale: expected",
        ),
        (r#"{"provenance": "$.x", "folds": ["fuzzy"]}"#, "folds: fold `fuzzy` is not known"),
        (
            r#"{"provenance": "$.x", "min_chars": 0}"#,
            "min_chars: expected 1 <= min_chars <= max_chars, found 0 and 500",
        ),
        (r#"{"provenance": "$.x", "min_chars": 9, "max_chars": 8}"#, "min_chars: expected"),
        (r#"{"provenance": "$.x", "fuzzy": true}"#, ": unknown field `fuzzy`"),
    ] {
        let found = refused(settings, &mut contract());
        assert!(found.starts_with(said), "{settings}: {found}");
    }
    let bare = refused(r#"{"provenance": "$.x"}"#, &mut PolicyContract::default());
    assert!(bare.starts_with("provenance: the policy declares no `evidence`"), "{bare}");
    assert!(KIND.stands_beside());
}

#[test]
fn a_word_that_a_line_end_splits_is_whole() {
    let pages = [
        "Sacri-\n\u{fb01}cial anodes\nAlarm call-\nouts, mid-\nweek\nA4-\n80 paper\nCo\u{ad}\noking\nTrade re\u{2010}\nceivables\nday-\nand night-shift, mainte-\nnance - yearly",
    ];
    let text = r#""text_matches_quotes": true"#;
    for (value, quote) in [
        ("Sacrificial anodes", "Sacri-\n\u{fb01}cial anodes"),
        ("Sacrificial anodes", "Sacri- ficial anodes"),
        ("Alarm call-outs, midweek", "Alarm call-\nouts, mid-\nweek"),
        ("Alarm callouts, mid-week", "Alarm call-\nouts, mid-\nweek"),
        ("A4-80 paper", "A4-\n80 paper"),
        ("Cooking", "Co\u{ad}\noking"),
        ("Trade receivables", "Trade re\u{2010}\nceivables"),
        ("day- and night-shift", "day-\nand night-shift"),
        ("maintenance - yearly", "mainte-\nnance - yearly"),
        ("Trade re-ceivables", "Trade re\u{2010}\nceivables"),
    ] {
        let value = serde_json::to_string(value).unwrap();
        assert_eq!(one(text, &pages, &evidence(&value, 1, quote)), "", "{value} {quote}");
    }
    for (value, quote) in [
        ("Sacrifical anodes", "Sacri-\n\u{fb01}cial anodes"),
        ("Sacri ficial", "Sacri-\n\u{fb01}cial anodes"),
        ("Alarm call", "Alarm call-\nouts"),
        ("outs", "call-\nouts"),
        ("A480 paper", "A4-\n80 paper"),
    ] {
        let value = serde_json::to_string(value).unwrap();
        assert!(one(text, &pages, &evidence(&value, 1, quote)).contains("does not print"), "{value} {quote}");
    }
}

#[test]
fn quotes_in_order_stand_at_places_of_their_own() {
    let pages = ["Delivery 5.00\nOak shelf 9.00\nDelivery 5.00\nShelf, oak 1.00", "Oak shelf 2.00"];
    let lines = |names: &[(&str, usize)]| {
        let lines: Vec<String> = names.iter().map(|(name, page)| evidence(r#""x""#, *page, name)).collect();
        let answer = format!(r#"{{"lines": [{}]}}"#, lines.join(","));
        ["[\"whitespace\"]", "[\"whitespace\", \"hyphenation\"]"].map(|folds| {
            let settings = format!(r#"{{"provenance": "$.lines[*]", "in_order": true, "folds": {folds}}}"#);
            judged(&settings, Presence::default(), &pages, &answer)
        })
    };
    for names in [
        &[("Delivery", 1), ("Oak shelf", 1), ("Delivery", 1), ("Shelf, oak", 1), ("Oak shelf", 2)][..],
        &[("Delivery", 1), ("Delivery", 1)],
        &[("Oak shelf", 1), ("Oak shelf", 2)],
        &[],
    ] {
        assert_eq!(lines(names), [vec![""; 0], vec![""; 0]], "{names:?}");
    }
    let said = "the quote `Oak shelf` stands on page 1 only where an earlier one stands, or before it; each is quoted once, in the order of the page";
    for (names, at) in [
        (&[("Oak shelf", 1), ("Oak shelf", 1)][..], 1),
        (&[("Delivery", 1), ("Delivery", 1), ("Oak shelf", 1)], 2),
        (&[("Oak shelf", 2), ("Oak shelf", 1)], 1),
        (&[("shelf 9.00", 1), ("Nothing", 1), ("Oak shelf", 1)], 2),
    ] {
        let found = lines(names);
        let own = format!("$['lines'][{at}]: {said}");
        assert!(found.iter().all(|found| found.contains(&own)), "{names:?} {found:?}");
    }
}

#[test]
fn a_date_is_the_latest_of_the_columns_beside_it() {
    let more = r#""numbers_match_quotes": {"locale": "en", "dates": "day_first"}, "latest_of_columns": true"#;
    for (line, value, said) in [
        ("as at    31/12/2023    31/12/2024", "2024-12-31", ""),
        ("as at    31/12/2024    31/12/2023", "2024-12-31", ""),
        ("as at 31/12/2024", "2024-12-31", ""),
        ("at 31 December 2024 and 31 December 2023", "2024-12-31", ""),
        ("at 31/12/2024, approved 15/03/2025", "2024-12-31", ""),
        ("at 31/12/2024 (restated 15/03/2025)", "2024-12-31", ""),
        ("at 31/12/2024\n15/03/2025", "2024-12-31", ""),
        ("30/06/2025 note 31/12/2024 31/12/2023", "2024-12-31", ""),
        ("at 31/12/2024 99/99/2025", "2024-12-31", ""),
        ("as at    31/12/2023    31/12/2024", "2023-12-31", "31/12/2023"),
        ("as at    31/12/2024 | 31/12/2023", "2023-12-31", "31/12/2023"),
        ("31/12/2022\t31/12/2023 (restated)\t31/12/2024", "2022-12-31", "31/12/2022"),
        ("at 31 December 2023 and 31 December 2024", "2023-12-31", "31 December 2023"),
    ] {
        let quote = if said.is_empty() { "31/12/2024" } else { said };
        let quote = if line.contains("December") && said.is_empty() { "31 December 2024" } else { quote };
        let found = one(more, &[line], &evidence(&format!("\"{value}\""), 1, quote));
        let said = if said.is_empty() {
            String::new()
        } else {
            format!("the quote `{said}` heads a column beside a later one, of 2024-12-31")
        };
        assert_eq!(found, said, "{line}");
    }
    let mut contract = contract();
    let error = testing::add(
        &mut contract,
        "provenance",
        r#"{"provenance": "$.x", "latest_of_columns": true}"#,
        Presence::default(),
    );
    assert!(error.is_err());
}

/// What is wanting where a quote does stand is shown at its place in the source.
#[test]
fn the_place_of_a_quote_that_bears_out_something_else_is_told() {
    let mut contract = contract();
    testing::add(&mut contract, "provenance", &format!(r#"{{"provenance": "$.x", {MATCH}}}"#), Presence::default())
        .unwrap();
    let at = |value: &str, page: usize, text: &str| {
        let answer = format!(r#"{{"x": {}}}"#, evidence(value, page, text));
        let found = testing::violations(&contract, &PAGES, &answer);
        found.first().map(|violation| violation.source_at.clone())
    };
    let start = PAGES[0].find("90.00").unwrap();
    assert_eq!(at("90", 1, "90.00"), None);
    assert_eq!(at("91", 1, "90.00"), Some(Some(SourceAt { page: 1, range: start..start + 5 })));
    assert_eq!(at("91", 1, "91.00"), Some(None));
}
