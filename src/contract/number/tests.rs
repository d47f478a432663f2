use proptest::prelude::*;

use super::*;

fn format(locale: &str) -> NumberFormat {
    let locale = (!locale.is_empty()).then(|| Locale::named(locale).unwrap());
    NumberFormat { locale, percent: Percent::AsPrinted, scale: Scale::AsPrinted }
}

/// What a text prints, or why not, in short.
fn printed(text: &str, locale: &str) -> Vec<String> {
    read_with(text, format(locale))
}

fn read_with(text: &str, format: NumberFormat) -> Vec<String> {
    let short = |read: Result<Printed, NumberFault>| match read {
        Ok(printed) => printed.value.to_string() + if printed.percent { "%" } else { "" },
        Err(NumberFault::Ambiguous { .. }) => "ambiguous".to_owned(),
        Err(NumberFault::Malformed { .. }) => "malformed".to_owned(),
        Err(NumberFault::Sign { .. }) => "sign".to_owned(),
        Err(other) => other.to_string(),
    };
    read_all(text, format).into_iter().map(short).collect()
}

#[test]
fn each_locale_reads_its_own_marks() {
    for (text, locale, expected) in [
        ("1,234.56", "en", "1234.56"),
        ("3.400", "en", "3.400"),
        ("1.234,56", "de", "1234.56"), // gate-016: never 1.234
        ("1.234", "de", "1234"),
        ("1\u{202f}234,56", "fr", "1234.56"),
        ("1\u{a0}234,56", "sv", "1234.56"),
        ("1'234.50", "ch", "1234.50"),
        ("1\u{2019}234.50", "de-CH", "1234.50"),
        ("1,23,456.70", "en-IN", "123456.70"),
        ("1\u{2009}204", "en", "1204"),
        (".5", "en", "0.5"),
        ("007", "en", "7"),
        ("12345678901234567890.12", "en", "12345678901234567890.12"),
        ("1,20", "en", "malformed"),
        ("1.23", "de", "malformed"),
        ("1,2,3", "en", "malformed"),
        ("1.2.3", "en", "malformed"),
        ("1,204.5.6", "en", "malformed"),
        ("1.204", "fr", "malformed"),
        ("1,204'300", "en", "malformed"),
    ] {
        assert_eq!(printed(text, locale), [expected], "{text} {locale}");
    }
}

#[test]
fn without_a_locale_only_what_is_certain_is_read() {
    for (text, expected) in [
        ("3.400", "ambiguous"), // gate-018
        ("1,204", "ambiguous"),
        ("3.40", "3.40"),
        ("3,4", "3.4"),
        ("1,234.56", "1234.56"),
        ("1.234,56", "1234.56"),
        ("1.234.567", "1234567"),
        ("0.400", "0.400"),
        ("12345.678", "12345.678"),
        ("42", "42"),
        ("1,20.5", "malformed"),
    ] {
        assert_eq!(printed(text, ""), [expected], "{text}");
    }
}

#[test]
fn scales_have_names() {
    let named = ["as_printed", "words", "thousands", "millions", "billions", "hundreds"].map(Scale::named);
    let [thousands, millions, billions] = [3, 6, 9].map(|power| Some(Scale::Stated(power)));
    assert_eq!(named, [Some(Scale::AsPrinted), Some(Scale::Words), thousands, millions, billions, None]);
}

#[test]
fn the_sign_is_read_from_what_stands_around() {
    for (text, expected) in [
        ("-90.00", "-90.00"),
        ("\u{2212}90.00", "-90.00"),
        ("x \u{2013}90.00", "-90.00"),
        ("(90.00)", "-90.00"),
        ("( 90.00 )", "-90.00"),
        ("(EUR 90.00)", "-90.00"),
        ("(90.00 EUR)", "-90.00"),
        ("EUR (90.00)", "-90.00"),
        ("$(90.00)", "-90.00"),
        ("EUR(90.00)", "-90.00"),
        ("-\u{20ac}90.00", "-90.00"),
        ("\u{20ac}-90.00", "-90.00"),
        ("-EUR 90.00", "-90.00"),
        ("(15%)", "-15%"),
        ("+5", "5"),
        ("\u{2212} 5", "-5"),
        ("(5 items)", "5"),
        ("90.00 (net)", "90.00"),
        ("90.-", "90"),
        ("90.00 \u{2014} net", "90.00"),
        ("Total 90.00.", "90.00"),
        ("- 5", "sign"),
        ("Discount - 5", "sign"),
        ("Discount \u{2013} 5", "sign"),
        ("\u{2014}5", "sign"),
        ("\u{b1}5", "sign"),
        ("+/-5", "sign"),
        ("--5", "sign"),
        ("(-5)", "sign"),
        ("-(5)", "sign"),
        ("f(5)", "sign"),
        ("90.00-", "-90.00"),
        ("Credit 1,204-\nNet", "-1204"),
        ("$136.66-", "-136.66"),
        ("90.00\u{2013}", "sign"),
        ("90.00 -", "sign"),
        ("90.00 CR", "sign"),
        ("EUR 90.00 DR\n", "sign"),
        ("90.00 CRM seats", "90.00"),
        ("Credit 90.00 -\nNet", "sign"),
        ("90.00 -   7A", "sign"),
        ("90.00 - net", "90.00"),
        ("90.00  -", "90.00"), // a column of its own, which holds nothing
        ("(2pcs)", "2"),
        ("-90.00/pc", "-90.00"),
        ("(90.00-)", "sign"),
        ("-90.00-", "sign"),
        ("90.00- net", "sign"),
        ("Goodwill  -  5", "5"),
        ("Goodwill\t\u{2013}\t5", "5"),
        ("Goodwill   - US$ 5", "-5"),
        ("Goodwill - US$ 5", "sign"),
        ("x\n   - 5", "sign"),
        ("90.00- EUR", "sign"),
        ("90.00 EUR-", "sign"),
    ] {
        assert_eq!(printed(text, "en"), [expected], "{text}");
    }
    assert_eq!(printed("10 - 20", "en"), ["10", "20"]);
    assert_eq!(printed("1   - 20", "en"), ["1", "-20"]); // a column's sign, not a range
    assert_eq!(printed("1   -   20", "en"), ["1", "20"]); // a column that holds nothing
    assert_eq!(printed("198-   204-\t7", "en"), ["-198", "-204", "7"]);
    assert_eq!(printed("3kg x2 at 1,204.50/unit, 4G, 12h30, 5m", "en"), ["3", "2", "1204.50"]);
    assert_eq!(printed("x\n- \n5", "en"), ["5"]); // a dash on another line is no sign
}

#[test]
fn what_is_glued_is_no_number() {
    for text in [
        "A12",
        "12A",
        "12-34",
        "EX-104",
        "2025-04-03",
        "03/04/2025",
        "07.09.2025",
        "10:30",
        "1e5",
        "5kgx",
        "3rd",
        "5-year",
        "x_1",
        "v1.2",
        "\u{663}",
        "10^5",
        "٣٤",
        "",
    ] {
        assert!(printed(text, "en").is_empty() && printed(text, "de").is_empty(), "{text}");
    }
    assert_eq!(printed("A12 costs 5, on 2025-04-03 or 12-34 it is 6.50; 7kg", "en"), ["5", "6.50", "7"]);
    assert_eq!(printed("EUR5 5EUR 5\u{20ac} 5 kr $5 \u{a3}5.00", "en"), ["5", "5", "5", "5", "5", "5.00"]);
}

#[test]
fn a_plain_space_never_groups() {
    assert_eq!(printed("1 204", "en"), ["1", "204"]);
    assert_eq!(printed("1 204,50", "fr"), ["ambiguous", "ambiguous"]);
    assert_eq!(printed("90,50 204,50", "fr"), ["90.50", "204.50"]);
    assert_eq!(printed("2   204,50", "fr"), ["2", "204.50"]);
    assert_eq!(printed("5 pi\u{e8}ces 204,50", "fr"), ["5", "204.50"]);
}

#[test]
fn percent_and_scale_are_what_the_contract_says() {
    let with = |text: &str, percent, scale| {
        let mut read = read_all(text, NumberFormat { percent, scale, ..format("en") });
        read.pop().unwrap().map(|printed| (printed.value.to_string(), printed.places))
    };
    let ok = |value: &str, places| Ok((value.to_owned(), places));
    assert_eq!(with("15%", Percent::AsPrinted, Scale::AsPrinted), ok("15", 0));
    assert_eq!(with("15 %", Percent::Fraction, Scale::AsPrinted), ok("0.15", 2));
    assert_eq!(with("15.5 percent", Percent::Fraction, Scale::AsPrinted), ok("0.155", 3));
    assert_eq!(with("15 percentage points", Percent::Fraction, Scale::AsPrinted), ok("15", 0));
    assert_eq!(with("5\u{2030}", Percent::Fraction, Scale::AsPrinted), ok("0.005", 3));
    assert_eq!(with("15", Percent::Fraction, Scale::AsPrinted), ok("15", 0));
    assert_eq!(with("1.2 million", Percent::AsPrinted, Scale::AsPrinted), ok("1.2", 1));
    assert_eq!(with("1.2 million", Percent::AsPrinted, Scale::Words), ok("1200000", -5));
    assert_eq!(with("EUR 3 bn", Percent::AsPrinted, Scale::Words), ok("3000000000", -9));
    assert_eq!(with("1,204", Percent::AsPrinted, Scale::Stated(3)), ok("1204000", -3));
    assert_eq!(with("(1,204 thousand)", Percent::AsPrinted, Scale::Stated(3)), ok("1204000", -3));
    assert!(matches!(with("1,204 million", Percent::AsPrinted, Scale::Stated(3)), Err(NumberFault::Scale { .. })));
    assert_eq!(Scale::named("thousands"), Some(Scale::Stated(3)));
    assert_eq!(Scale::named("dozens"), None);
}

#[test]
fn a_quote_prints_one_number() {
    let text = "Subtotal 90.00  (12.50) A12";
    let one = |range| read_one(text, range, format("en")).map(|printed| printed.value.to_string());
    assert_eq!(one(0..14), Ok("90.00".to_owned()));
    assert_eq!(one(17..22), Ok("-12.50".to_owned()));
    assert_eq!(one(0..8), Err(NumberFault::Missing));
    assert_eq!(one(24..27), Err(NumberFault::Missing));
    assert_eq!(one(0..text.len()).unwrap_err().to_string(), "it prints more than one number: `90.00` and `12.50`");
}

#[test]
fn faults_say_what_was_found() {
    let fault = |text: &str, locale: &str| read_all(text, format(locale)).remove(0).unwrap_err().to_string();
    assert_eq!(fault("3.400", ""), "`3.400` can be read as more than one number without a locale");
    assert_eq!(fault("1,20", "en"), "`1,20` is not a number as locale `en` writes it");
    assert_eq!(fault("- 5", "en"), "the sign of `5` is not certain");
    assert!(fault(&"9".repeat(2_000), "en").starts_with(&format!("`{}...`: more digits", "9".repeat(40))));
}

proptest! {
    /// A number that is printed by a locale's rules reads back as itself.
    #[test]
    fn what_is_printed_is_read_back(whole in 0_u64..10_000_000_000, cents in 0_u64..100, negative: bool, row in 0_usize..36) {
        let locale = Locale::named(Locale::known().nth(row).unwrap()).unwrap();
        let mark = [',', '.', '\'', '\u{a0}'].into_iter().find(|mark| locale.groups_by(*mark)).unwrap();
        let digits = whole.to_string();
        let mut grouped = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at) % 3 == 0 {
                grouped.push(mark);
            }
            grouped.push(digit);
        }
        let text = format!("x {}{grouped}{}{cents:02} y", if negative { "-" } else { "" }, locale.decimal());
        let value = format!("{}{whole}.{cents:02}", if negative { "-" } else { "" });
        let read = read_all(&text, NumberFormat { locale: Some(locale), percent: Percent::AsPrinted, scale: Scale::AsPrinted });
        prop_assert_eq!(read.len(), 1);
        let read = read[0].clone().unwrap();
        prop_assert_eq!(read.value, Decimal::read(&value).unwrap());
        prop_assert_eq!(read.places, 2);
    }

    #[test]
    fn any_text_is_read_without_a_fault_of_ours(text in "[0-9.,'()$%€\\- \u{a0}\u{2212}\u{ad}aEUR\n]{0,40}") {
        for locale in ["", "en", "de", "fr", "ch", "en-IN"] {
            for printed in read_all(&text, format(locale)).into_iter().flatten() {
                prop_assert!(token::is_border(&text, printed.range.start) && token::is_border(&text, printed.range.end));
            }
            let _ = group_marks(&text, format(locale).locale);
        }
        let _ = currencies(&text);
    }
}
