use super::*;
use crate::contract::PolicyContract;
use crate::contract::gate::testing;

fn judged(settings: &str, presence: Presence, pages: &[&str], answer: &str) -> Vec<String> {
    let mut contract =
        PolicyContract { folds: Folds::named(["whitespace", "typography"]).unwrap(), ..PolicyContract::default() };
    testing::add(&mut contract, "quote", settings, presence).unwrap();
    testing::judged(&contract, pages, answer)
}

/// What is said of one value, without its path.
fn one(more: &str, source: &str, value: &str) -> String {
    let settings = format!(r#"{{"quote": "$.x"{}{more}}}"#, if more.is_empty() { "" } else { ", " });
    judged(&settings, Presence::default(), &[source], &format!(r#"{{"x": {value}}}"#))
        .join(" | ")
        .replace("$['x']: ", "")
}

#[test]
fn the_cases_of_the_gate_table() {
    let number = |locale: &str| format!(r#""number": {{"locale": "{locale}"}}"#);
    assert_eq!(one(&number("de"), "Summe 1.234,56 EUR", "1.234"), "the source prints no number `1.234`"); // gate-016
    assert_eq!(one(&number("de"), "Summe 1.234,56 EUR", "1234.56"), "");
    assert_eq!(one(&number("fr"), "Amount: 3.400", "3400"), "the source prints no number `3400`"); // as gate-018
    for (id, source, value, stands) in [
        ("gate-022", "stored at 5\u{2011}10 \u{b0}C", r#""5-10 °C""#, true),
        ("gate-023", "stored at 5\u{2011}10 \u{b0}C", r#""5 to 10 °C""#, false),
        ("gate-026", "\u{201e}Ja\u{201c}, sagte er", r#""\"Ja\", sagte er""#, true),
        ("gate-028", "cafe\u{301} bar", r#""café bar""#, true),
        ("gate-030", "Z\u{fc}rich", r#""Z\u0000rich""#, false),
        ("gate-031", "", r#""anything""#, false),
        ("gate-032", "some text", r#""""#, false),
    ] {
        assert_eq!(one("", source, value).is_empty(), stands, "{id}");
    }
}

#[test]
fn what_is_no_text_or_not_there_is_a_violation() {
    for (value, said) in [
        ("null", "expected a value, found null"),
        ("1", "expected a text, found number"),
        ("[]", "expected a text, found array"),
        ("{}", "expected a text, found object"),
        (r#""""#, "`` does not stand in the source"),
        (r#""ext""#, "`ext` does not stand in the source"),
        (r#""text""#, ""),
    ] {
        assert_eq!(one("", "some text", value), said, "{value}");
    }
    assert_eq!(one(r#""number": {"locale": "en"}"#, "5", r#""5""#), "expected a number, found string");
    let nested = r#"{"a": [{"b": ["some", "none"]}, {"b": []}, {}]}"#;
    assert_eq!(
        judged(r#"{"quote": "$.a[*].b[*]"}"#, Presence::default(), &["some text"], nested),
        [
            "$['a'][0]['b'][1]: `none` does not stand in the source",
            "$['a'][2]['b']: expected a value, found nothing: it is missing"
        ]
    );
    let lenient = Presence { optional: true, nullable: true, at_least: 0 };
    assert!(judged(r#"{"quote": ["$.x", "$.y"]}"#, lenient, &["some text"], r#"{"x": null}"#).is_empty());
    assert_eq!(judged(r#"{"quote": "$.x"}"#, Presence::default(), &["some", "text"], r#"{"x": "some text"}"#).len(), 1);
}

#[test]
fn a_token_is_whole_and_the_only_match() {
    let id = r#""token": true, "only": "\\bEX-[0-9]{3}\\b""#;
    assert_eq!(one(id, "see EX-104, then EX-104", r#""EX-104""#), "");
    assert_eq!(
        one(id, "see EX-104 and EX-105", r#""EX-104""#),
        "`EX-104` is not the only match of `\\bEX-[0-9]{3}\\b` in the source: `EX-105` is another"
    );
    assert_eq!(
        one(id, "see EX-104", r#""EX-999""#),
        "expected the match of `\\bEX-[0-9]{3}\\b` in the source, `EX-104`, found `EX-999`"
    );
    assert_eq!(one(id, "see", r#""EX-104""#), "nothing in the source matches `\\bEX-[0-9]{3}\\b`");
    assert_eq!(one(r#""token": true"#, "a EX-104/7", r#""EX-104""#), "`EX-104` does not stand in the source");
    assert_eq!(one(r#""token": true"#, "mail me@ex.com", r#""ex""#), "`ex` stands only as a part of a longer token");
    assert_eq!(one(r#""token": true"#, "a b", r#""a b""#), "`a b` stands only as a part of a longer token");
    assert_eq!(one(r#""only": "(?m)^Ticket: (HD-[0-9]{4})$""#, "Ticket: HD-1234\nlike HD-9999", r#""HD-1234""#), "");
    assert!(
        one(r#""only": "(?m)^Ticket: (HD-[0-9]{4})$""#, "Ticket: HD-1234\nlike HD-9999", r#""HD-9999""#)
            .starts_with("expected the match")
    );
}

#[test]
fn occurrences_that_do_not_count_are_passed_over() {
    let own = r#""outside": ["(?m)^>.*$", "\"[^\"]*\""]"#;
    assert_eq!(
        one(own, "> Reset it.\nhello", r#""Reset it.""#),
        "`Reset it.` stands only in a part of the source that does not count"
    );
    assert_eq!(one(own, "> Reset it.\nReset it.", r#""Reset it.""#), "");
    assert_eq!(
        one(own, "He said \"Reset it.\" again", r#""Reset it.""#),
        "`Reset it.` stands only in a part of the source that does not count"
    );
    let kept = r#""not_before": ["(?i)never mind"], "outside": ["(?m)^>.*$"]"#;
    assert_eq!(
        one(kept, "Reset it. Never mind.", r#""Reset it.""#),
        "`Reset it.` stands only before words that take it back"
    );
    assert_eq!(one(kept, "Reset it.\n> never mind", r#""Reset it.""#), "");
    assert_eq!(one(kept, "Never mind. Reset it.", r#""Reset it.""#), "");
    assert_eq!(one(kept, "Reset it. Never mind. Reset it.", r#""Reset it.""#), "");
}

#[test]
fn a_sentence_is_whole() {
    let whole = r#""sentence": true"#;
    assert_eq!(one(whole, "It broke. Please reset\nit. Bye", r#""Please reset it.""#), "");
    assert_eq!(
        one(whole, "It broke. Please reset it. Bye", r#""reset it.""#),
        "`reset it.` stands only as a part of a sentence"
    );
}

#[test]
fn folds_of_the_gate_stand_for_those_of_the_policy() {
    assert_eq!(one(r#""folds": ["case"]"#, "Some  Text", r#""some  text""#), "");
    assert!(!one(r#""folds": []"#, "Some  Text", r#""Some Text""#).is_empty());
    assert!(!one("", "Some  Text", r#""some text""#).is_empty());
    let number = r#""number": {"locale": "en", "percent": "fraction"}"#;
    assert_eq!(one(number, "VAT 15%, (3.00)", "0.15"), "");
    assert_eq!(one(number, "VAT 15%, (3.00)", "-3"), "");
    assert!(!one(number, "VAT 15%, (3.00)", "3").is_empty());
}

#[test]
fn settings_that_cannot_hold_are_refused() {
    for (settings, said) in [
        (r#"{"quote": "$.x", "only": "(?=x)"}"#, "only: "),
        (r#"{"quote": "$.x", "outside": ["("]}"#, "outside: "),
        (r#"{"quote": "$.x", "token": true, "number": {"locale": "en"}}"#, "token: `token` is for texts"),
        (r#"{"quote": "$.x", "number": {"locale": "klingon"}}"#, "number.locale: locale `klingon` is not known"),
        (r#"{"quote": "$.x", "near": 1}"#, ": unknown field `near`"),
        (r#"{"quote": 5}"#, "quote: expected a path, found 5"),
    ] {
        let found = testing::add(&mut PolicyContract::default(), "quote", settings, Presence::default()).unwrap_err();
        assert!(found.starts_with(said), "{settings}: {found}");
    }
    assert!(KIND.stands_beside());
}

#[test]
fn hostile_texts_end() {
    let source = "a ".repeat(50_000) + &"> ".repeat(50_000);
    let value = serde_json::to_string(&("a ".repeat(20_000) + "b")).unwrap();
    assert!(
        one(r#""outside": ["(?m)^>.*$"], "not_before": ["a"]"#, &source, &value)
            .ends_with("does not stand in the source")
    );
    assert_eq!(one(r#""not_before": [">"]"#, &source, r#""a""#), "`a` stands only before words that take it back");
    // Words that take back, most of which do not count, behind very many occurrences.
    let source = "Do it.\n".repeat(50_000) + &"> never mind\n".repeat(50_000);
    let options = r#""outside": ["(?m)^>.*$"], "not_before": ["never mind"]"#;
    assert_eq!(one(options, &source, r#""Do it.""#), "");
    let taken = "`Do it.` stands only before words that take it back";
    assert_eq!(one(options, &(source.clone() + "never mind"), r#""Do it.""#), taken);
    assert_eq!(one(options, &("never mind\n".to_owned() + &source), r#""Do it.""#), "");
}

#[test]
fn one_pattern_for_very_many_texts_is_matched_once() {
    let settings = r#"{"quote": "$.x[*]", "only": "R[0-9]+"}"#;
    let answer = |value: &str| format!(r#"{{"x": [{}]}}"#, vec![value; 20_000].join(","));
    let same = "R1 ".repeat(20_000);
    assert!(judged(settings, Presence::default(), &[&same], &answer("\"R1\"")).is_empty());
    let other = same + "R2";
    let first = |value: &str| judged(settings, Presence::default(), &[&other], &answer(value)).remove(0);
    let said = |text: &str| format!("$['x'][0]: {text}");
    assert_eq!(first("\"R1\""), said("`R1` is not the only match of `R[0-9]+` in the source: `R2` is another"));
    assert_eq!(first("\"R2\""), said("`R2` is not the only match of `R[0-9]+` in the source: `R1` is another"));
    assert_eq!(first("\"R3\""), said("expected the match of `R[0-9]+` in the source, `R1`, found `R3`"));
}

proptest::proptest! {
    /// By the words of the option: an occurrence counts unless it is quoted, or words that are not quoted stand behind it.
    #[test]
    fn what_takes_back_is_what_the_option_says(
        pieces in proptest::collection::vec(proptest::sample::select(vec!["Do it. ", "\nDo it.\n", "\n> Do it.\n", "never mind ", "\n> never mind\n", "x "]), 0..9),
    ) {
        let source = pieces.concat();
        let is_quoted = |at: usize| source[..at].rsplit('\n').next().unwrap().starts_with('>');
        let counts = |text: &str| -> Vec<usize> {
            source.match_indices(text).map(|(at, _)| at).filter(|at| !is_quoted(*at)).collect()
        };
        let back = counts("never mind");
        let holds = counts("Do it.").into_iter().any(|at| !back.iter().any(|words| *words > at));
        let told = one(r#""outside": ["(?m)^>.*$"], "not_before": ["never mind"]"#, &source, r#""Do it.""#);
        proptest::prop_assert_eq!(told.is_empty(), holds, "{:?} {}", source, told);
    }
}
