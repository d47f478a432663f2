use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

fn folds(names: &str) -> Folds {
    Folds::named(names.split_whitespace()).unwrap()
}

fn all() -> Folds {
    Fold::ALL.into_iter().fold(Folds::NONE, Folds::with)
}

fn folded(names: &str, text: &str) -> String {
    folds(names).quote(text).text().to_owned()
}

#[test]
fn folds_are_known_by_name() {
    assert_eq!(folds("whitespace case"), Folds::NONE.with(Fold::Case).with(Fold::Whitespace));
    assert_eq!(
        Folds::named(["fuzzy"]).unwrap_err().to_string(),
        "fold `fuzzy` is not known; known are whitespace, typography, currency, digit_grouping, hyphenation, case"
    );
    let de = Locale::named("de").ok();
    assert_eq!(folds("case").in_locale(de), folds("case")); // the locale matters to digit grouping alone
    assert_ne!(folds("digit_grouping").in_locale(de), folds("digit_grouping"));
}

#[test]
fn each_fold_does_its_part_and_no_more() {
    for (names, text, expected) in [
        ("", "a \u{a0}\n\u{201c}B\u{201d}", "a \u{a0}\n\u{201c}B\u{201d}"),
        ("whitespace", " a \t\n  b\u{2003}c\u{a0} ", "a b c"),
        ("whitespace", "a\u{ad} b", "a\u{ad} b"),
        ("typography", "a  b", "a  b"),
        (
            "typography",
            "\u{201e}Ja\u{201c} \u{2018}so\u{2019} \u{ab}x\u{bb} \u{2039}y\u{203a}",
            "\"Ja\" 'so' \"x\" 'y'",
        ),
        ("typography", "5\u{2011}10 \u{2010}\u{2012}\u{2013}\u{2014}\u{2015}\u{2212}", "5-10 ------"),
        ("typography", "o\u{fb03}ce \u{fb01}n \u{fb06}", "office fin st"),
        ("typography", "a\u{a0}b\u{202f}c co\u{ad}op wait\u{2026}", "a b c coop wait..."),
        ("typography case", "\u{fb01}\u{301} E\u{ad}\u{301}", "f\u{ed} \u{e9}"),
        ("typography", "cafe\u{301} \u{212b} e\u{323}\u{302}", "caf\u{e9} \u{c5} \u{1ec7}"),
        ("typography whitespace", "a \u{ad} \u{a0}b", "a b"),
        ("hyphenation", "pay-\nment pay-\r\n  ment well-known", "payment payment well-known"),
        ("hyphenation", "12-\n34 a-\n\nb x -\ny", "12-\n34 a-\n\nb x -\ny"),
        ("hyphenation typography", "pay\u{ad}\nment", "payment"),
        ("case", "\u{c9}COLE \u{3a3}\u{3a3} \u{3c2} I \u{131}", "\u{e9}cole \u{3c3}\u{3c3} \u{3c3} i \u{131}"),
        (
            "digit_grouping",
            "1\u{a0}204 1\u{2009}204\u{202f}300 1 204 1,204",
            "1204 1\u{2009}204\u{202f}300 1 204 1,204",
        ),
        ("currency", "Total EUR 90.00 due", "Total 90.00 due"),
        ("currency", "90.00 EUR, \u{20ac}5, -\u{20ac}5, 5 z\u{142} a", "90.00, 5, -5, 5 a"),
        ("currency", "EUR and 5 EURO", "EUR and 5 EURO"),
        (
            "currency",
            "5 USD 6, 5\u{20ac}6, 5\u{20ac}.50, 3-\u{20ac}5, 5 USD6",
            "5 6, 5\u{20ac}6, 5\u{20ac}.50, 3-\u{20ac}5, 5 6",
        ),
        ("currency", "(EUR 5) 5\u{20ac}. 5\u{20ac}/day", "(5) 5. 5\u{20ac}/day"),
    ] {
        assert_eq!(folded(names, text), expected, "{names}: {text}");
    }
}

#[test]
fn groups_go_by_the_locale_and_only_where_they_are_well_formed() {
    let grouped = |locale: &str, text: &str| {
        folds("digit_grouping").in_locale(Locale::named(locale).ok()).quote(text).text().to_owned()
    };
    assert_eq!(grouped("en", "1,204 1,20 1,204.50 0,123 1,2045 12,34,567"), "1204 1,20 1204.50 0,123 1,2045 12,34,567");
    assert_eq!(grouped("de", "1.204,50 1.20 1,204"), "1204,50 1.20 1,204");
    assert_eq!(grouped("fr", "1\u{202f}204,50 1 204"), "1204,50 1 204");
    assert_eq!(grouped("ch", "1\u{2019}204.50"), "1204.50");
    assert_eq!(grouped("en-IN", "1,23,456"), "123456");
    assert_eq!(grouped("en", "A1,204 1,204B 1,204-5"), "A1,204 1,204B 1,204-5"); // no numbers
}

#[test]
fn a_currency_is_remembered_with_its_number() {
    let folded = folds("currency").quote("a EUR 5 and 6 USD");
    assert_eq!(folded.text(), "a 5 and 6");
    assert_eq!(folded.currencies(), [(2, Currency::Code(*b"EUR")), (8, Currency::Code(*b"USD"))]);
}

#[test]
fn the_map_leads_back_to_the_unfolded_bytes() {
    let text = "The o\u{fb03}ce  paid\nEUR 1\u{a0}204.50 for pay-\nment \u{201c}so\u{201d}.";
    let mut folded = Folded::default();
    folded.append(all(), text);
    assert_eq!(folded.text(), "the office paid 1204.50 for payment \"so\".");
    let back = |part: &str| {
        let at = folded.text().find(part).unwrap();
        let (start, end) = folded.unfolded(at, at + part.len()).unwrap();
        &text[start..end]
    };
    assert_eq!(back("office"), "o\u{fb03}ce");
    assert_eq!(back("ffi"), "\u{fb03}");
    assert_eq!(folded.unfolded(5, 6), None); // part of a ligature is no part of the source
    assert_eq!(back("1204.50"), "1\u{a0}204.50");
    assert_eq!(back("paid 1204.50"), "paid\nEUR 1\u{a0}204.50");
    assert_eq!(back("payment"), "pay-\nment");
    assert_eq!(back("\"so\""), "\u{201c}so\u{201d}");
    assert_eq!(back(folded.text()), text);
}

/// 100 KB as an extractor leaves a document: columns are runs of spaces, lines are broken, ligatures stay.
fn document() -> String {
    let page = "Invoice no INV-2025-0417            Date 3 April 2025\n\
        Acme Tools GmbH \u{2013} Musterstra\u{df}e 5, 80331 M\u{fc}nchen\n\n\
        Description                    Qty      Unit price      Amount\n\
        O\u{fb03}ce chair, \u{201c}Ergo\u{201d} model      2        EUR 1,204.50    2,409.00\n\
        Cleaning of the ware-\nhouse, as agreed upon in our letter of the second of March, which we thank you for\n\
        Delivery to the fourth \u{fb02}oor by the goods lift, unpacking, and removal of all the packaging afterwards\n\
        Discount                                                (109.00)\n\
        Amounts are payable within thirty days from the date of this invoice without any deduction being made.\n\n";
    page.repeat(100_000 / page.len() + 1)
}

#[test]
fn the_map_takes_at_most_a_tenth_of_the_source() {
    let text = document();
    let mut folded = Folded::default();
    folded.append(all().in_locale(Locale::named("en").ok()), &text);
    assert!(folded.map_bytes() * 10 <= text.len(), "{} of {}", folded.map_bytes(), text.len());
}

/// The spelling by which letters may be one: form C, lower case, ligatures spelled out. Written apart from the folds.
fn spelling(c: char) -> String {
    let ligature = match u32::from(c) {
        0xfb00 => "ff",
        0xfb01 => "fi",
        0xfb02 => "fl",
        0xfb03 => "ffi",
        0xfb04 => "ffl",
        0xfb05 | 0xfb06 => "st",
        _ => return c.to_string().nfc().collect::<String>().to_lowercase().replace('\u{3c2}', "\u{3c3}"),
    };
    ligature.to_owned()
}

#[test]
fn no_letter_or_digit_matches_another() {
    let mut groups: HashMap<String, char> = HashMap::new();
    for c in ('\0'..=char::MAX).filter(|c| c.is_alphanumeric()) {
        let key = all().quote(&c.to_string()).text().to_owned();
        assert!(!key.is_empty(), "{c:?} vanishes");
        let other = *groups.entry(key).or_insert(c);
        assert_eq!(spelling(c), spelling(other), "{c:?} {other:?}");
    }
    for (a, b) in [
        ('0', 'O'),
        ('1', 'l'),
        ('5', 'S'),
        ('5', '\u{ff15}'),
        ('2', '\u{b2}'),
        ('5', '\u{665}'),
        ('I', '\u{131}'),
        ('\u{df}', 's'),
        ('e', '\u{e9}'),
    ] {
        assert_ne!(all().quote(&a.to_string()).text(), all().quote(&b.to_string()).text());
    }
}

proptest! {
    /// Letters and digits come through in their order, whatever stands between them; only currencies go.
    #[test]
    fn letters_and_digits_stay(text in "[a-cA-C0-2.,'\\-\u{ad}\u{a0}\u{2009}\u{201c}\u{2014}\u{fb01}\u{e9}e\u{301} \n\r]{0,40}") {
        let plain = |text: &str| -> String {
            let spelled: String = text.nfc().filter(|c| *c != '\u{ad}').map(spelling).collect();
            spelled.nfc().filter(|c| c.is_alphanumeric()).collect()
        };
        for locale in [None, Locale::named("en").ok(), Locale::named("ch").ok()] {
            let mut folded = Folded::default();
            folded.append(all().in_locale(locale), &text);
            prop_assert_eq!(plain(folded.text()), plain(&text));
        }
    }

    /// No fold joins two numbers, or parts one: those of the folded text are those of the source. Where two currencies stood
    /// at one number it may become unreadable, which fails closed, and never another number.
    #[test]
    fn numbers_stay(text in "([0-9.,$\u{20ac}()%\u{a0} \n/-]|EUR|kr|1,204){0,16}") {
        let locale = Locale::named("en").ok();
        let format = number::NumberFormat { locale, percent: number::Percent::AsPrinted, scale: number::Scale::AsPrinted };
        let values = |text: &str| number::read_all(text, format).into_iter().map(|read| read.ok().map(|read| read.value)).collect::<Vec<_>>();
        let folded = folds("currency digit_grouping").in_locale(locale).quote(&text);
        let (folded_values, plain) = (values(folded.text()), values(&text));
        prop_assert_eq!(folded_values.len(), plain.len(), "{}", folded.text());
        for (folded, plain) in folded_values.into_iter().zip(plain) {
            prop_assert!(folded.is_none() || folded == plain, "{:?} {:?} {}", folded, plain, text);
        }
    }

    /// Every stretch leads back to whole characters, in order, and all of it to all of the source.
    #[test]
    fn every_stretch_leads_back(text in "([a-c0-9.,$\u{e9}\u{ad}\u{a0}\u{201c}\u{fb03}\u{301}\u{2026} \n-]|EUR ){0,30}", set in 0_u8..64) {
        let folds = Folds { set, locale: Locale::named("en").ok() };
        let mut folded = Folded::default();
        folded.append(folds, &text);
        let ends: Vec<usize> = folded.text().char_indices().map(|(at, _)| at).chain([folded.text().len()]).collect();
        let mut last = 0;
        for pair in ends.windows(2) {
            let Some((start, end)) = folded.unfolded(pair[0], pair[1]) else { continue };
            prop_assert!(start < end && text.get(start..end).is_some(), "{:?} {:?}", text, pair);
            prop_assert!(start >= last);
            last = start;
        }
    }

    /// The quick way for plain words is the long way.
    #[test]
    fn what_is_left_as_it_is_would_have_come_out_so(set in 0_u8..64, text in "[aZ0 .\"\\-\u{e9}\u{a0}\n]{0,12}") {
        let folds = Folds { set, locale: None };
        let quote = folds.quote(&text);
        let mut folded = Folded::default();
        folded.append(folds, if folds.has(Fold::Whitespace) { text.trim() } else { &text });
        prop_assert_eq!(quote.text(), folded.text());
        prop_assert_eq!(quote.currencies(), folded.currencies());
    }

    /// Folding twice is folding once.
    #[test]
    fn a_folded_text_stays(text in "[a-cA-C0-2\u{ad}\u{a0}\u{201c}\u{2014}\u{fb01}\u{e9}e\u{301}\u{130} \n\r]{0,40}") {
        let folds = folds("whitespace typography case");
        let once = folds.quote(&text).text().to_owned();
        let twice = folds.quote(&once);
        prop_assert_eq!(twice.text(), once.as_str());
    }
}
