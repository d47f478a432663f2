use super::*;
use crate::contract::fold::Folds;
use crate::contract::gate::testing;
use crate::contract::scene::Evidence;

fn judged(settings: &str, presence: Presence, answer: &str) -> Vec<String> {
    let mut contract = PolicyContract::default();
    testing::add(&mut contract, "math", settings, presence).unwrap();
    testing::judged(&contract, &[], answer)
}

fn strict(settings: &str, answer: &str) -> Vec<String> {
    judged(settings, Presence::default(), answer)
}

const SUM: &str = r#"{"sum": "$.lines[*].amount", "equals": "$.total"}"#;

#[test]
fn sums_are_exact() {
    for answer in [
        r#"{"lines": [{"amount": 0.1}, {"amount": 0.2}], "total": 0.3}"#, // gate-021
        r#"{"lines": [{"amount": 1e-7}, {"amount": 12345678901234567890.10}], "total": 12345678901234567890.1000001}"#,
        r#"{"lines": [], "total": 0.00}"#,
        r#"{"lines": [{"amount": -5}], "total": -5.0}"#,
    ] {
        assert!(strict(SUM, answer).is_empty(), "{answer}: {:?}", strict(SUM, answer));
    }
    assert_eq!(
        strict(SUM, r#"{"lines": [{"amount": 40.00}, {"amount": 34.50}], "total": 100.00}"#),
        ["$['total']: the sum of `$.lines[*].amount` is 74.50, but `$.total` is 100.00"]
    );
    let long = format!(r#"{{"lines": [{{"amount": {}}}], "total": 1}}"#, "9".repeat(1_001));
    assert!(strict(SUM, &long)[0].contains("more digits"));
}

#[test]
fn what_is_wanting_is_said_and_nothing_is_calculated_from_the_rest() {
    for (answer, said) in [
        (
            r#"{"lines": [{"amount": 1}, {}], "total": 1}"#,
            "$['lines'][1]['amount']: expected a value, found nothing: it is missing",
        ),
        (
            r#"{"lines": [{"amount": 1}, {"amount": null}], "total": 1}"#,
            "$['lines'][1]['amount']: expected a value, found null",
        ),
        (
            r#"{"lines": [{"amount": "1"}], "total": 1}"#,
            "$['lines'][0]['amount']: expected a number, found the text `1`",
        ),
        (r#"{"lines": [{"amount": [1]}], "total": 1}"#, "$['lines'][0]['amount']: expected a number, found array"),
        (r#"{"lines": [{"amount": true}], "total": 1}"#, "$['lines'][0]['amount']: expected a number, found boolean"),
        (r#"{"total": 0}"#, "$['lines']: expected a value, found nothing: it is missing"),
        (r#"{"lines": []}"#, "$['total']: expected a value, found nothing: it is missing"),
        (r#"{"lines": [], "total": "0"}"#, "$['total']: expected a number, found the text `0`"),
    ] {
        assert_eq!(strict(SUM, answer), [said], "{answer}");
    }
    let lenient = Presence { optional: true, nullable: true, at_least: 0 };
    assert!(judged(SUM, lenient, r#"{"lines": [{"amount": 1}, {}, {"amount": null}], "total": 1}"#).is_empty());
    assert!(judged(SUM, lenient, r#"{"lines": [{"amount": 1}]}"#).is_empty());
    assert_eq!(judged(SUM, lenient, r#"{"lines": [{"amount": 1}], "total": 2}"#).len(), 1);
    assert_eq!(judged(SUM, Presence { at_least: 1, ..lenient }, r#"{"lines": [], "total": 0}"#).len(), 1);
}

#[test]
fn several_paths_and_nested_arrays_add_up() {
    let two = r#"{"sum": ["$.subtotal", "$.tax"], "equals": "$.total"}"#;
    assert!(strict(two, r#"{"subtotal": 90.00, "tax": 10, "total": 1e2}"#).is_empty());
    assert_eq!(
        strict(two, r#"{"subtotal": 90.00, "tax": 9.99, "total": 100}"#),
        ["$['total']: the sum of `$.subtotal` and `$.tax` is 99.99, but `$.total` is 100"]
    );
    let nested = r#"{"sum": "$.a[*].b[*]", "equals": "$.t"}"#;
    assert!(strict(nested, r#"{"a": [{"b": [1, 2]}, {"b": []}, {"b": [3]}], "t": 6}"#).is_empty());
}

#[test]
fn the_other_calculations_go_in_step() {
    let product = r#"{"product": ["$.l[*].q", "$.l[*].p"], "equals": "$.l[*].a", "tolerance": "printed", "places": 2}"#;
    assert!(strict(product, r#"{"l": [{"q": 3, "p": 0.335, "a": 1.01}, {"q": 2, "p": 5, "a": 10}]}"#).is_empty());
    assert_eq!(
        strict(product, r#"{"l": [{"q": 3, "p": 0.335, "a": 1.02}]}"#),
        ["$['l'][0]['a']: the product of `$.l[*].q` and `$.l[*].p` is 1.005, but `$.l[*].a` is 1.02 (tolerance 0.005)"]
    );
    let rate = r#"{"product": ["$.l[*].q", "$.rate"], "equals": "$.l[*].a"}"#;
    assert!(strict(rate, r#"{"l": [{"q": 3, "a": 6}, {"q": 4, "a": 8}], "rate": 2}"#).is_empty());
    let lenient = Presence { optional: true, nullable: true, at_least: 0 };
    let shifted = r#"{"l": [{"q": 1, "a": 5}, {"p": 5, "q": 1, "a": 5}, {"p": 5, "a": 5}]}"#;
    let exact = r#"{"product": ["$.l[*].q", "$.l[*].p"], "equals": "$.l[*].a"}"#;
    assert_eq!(judged(exact, lenient, shifted).len(), 1, "two of three are not in step");
    assert_eq!(judged(exact, lenient, r#"{"l": [{"q": 1, "a": 5}, {"p": 5, "a": 5}]}"#).len(), 1);
    let difference = r#"{"difference": ["$.paid", "$.total"], "equals": "$.change"}"#;
    assert!(strict(difference, r#"{"paid": 10, "total": 7.5, "change": 2.50}"#).is_empty());
    assert_eq!(
        strict(difference, r#"{"paid": 10, "total": 7.5, "change": -2.50}"#),
        ["$['change']: the difference of `$.paid` and `$.total` is 2.5, but `$.change` is -2.50"]
    );
    let count = r#"{"count": "$.l[*]", "equals": "$.n"}"#;
    assert!(strict(count, r#"{"l": [{}, "x", [1]], "n": 3.0}"#).is_empty());
    assert_eq!(strict(count, r#"{"l": [], "n": 1}"#), ["$['n']: the count of `$.l[*]` is 0, but `$.n` is 1"]);
}

#[test]
fn comparisons_and_ranges_are_exact() {
    let limit = r#"{"compare": ["$.total", "<=", 5000]}"#;
    assert!(strict(limit, r#"{"total": 5000.00}"#).is_empty());
    assert_eq!(strict(limit, r#"{"total": 5000.01}"#), ["$['total']: expected a number <= 5000, found 5000.01"]);
    for (sign, holds) in [("<", false), ("<=", true), ("==", true), ("!=", false), (">=", true), (">", false)] {
        let settings = format!(r#"{{"compare": ["$.a[*]", "{sign}", "$.b"]}}"#);
        assert_eq!(
            strict(&settings, r#"{"a": [9007199254740993, 9007199254740993.0], "b": 9007199254740993}"#).is_empty(),
            holds,
            "{sign}"
        );
    }
    assert_eq!(
        strict(r#"{"compare": ["$.a[*]", "<", "$.b[*]"]}"#, r#"{"a": [1, 2], "b": [3]}"#),
        ["$: expected as many values at `$.a[*]` as at `$.b[*]`, found 2 and 1"]
    );
    assert_eq!(
        strict(r#"{"compare": ["$.a[*]", "<", "$.b[*]"]}"#, r#"{"a": [1, 4], "b": [3, 4]}"#),
        ["$['a'][1]: expected a number < `$.b[*]`, which is 4, found 4"]
    );
    let rate = r#"{"range": {"path": "$.rates[*]", "min": 0, "max": "0.25"}}"#;
    assert_eq!(
        strict(rate, r#"{"rates": [0, 0.25, 0.2500001, -1e-9]}"#),
        [
            "$['rates'][2]: expected at most 0.25, found 0.2500001",
            "$['rates'][3]: expected at least 0, found -0.000000001"
        ]
    );
    assert_eq!(
        strict(r#"{"range": {"path": "$.x", "min": 1}}"#, r#"{"x": "5"}"#),
        ["$['x']: expected a number, found the text `5`"]
    );
}

#[test]
fn a_tolerance_is_what_the_policy_says() {
    let with = |tolerance: &str| format!(r#"{{"sum": "$.a[*]", "equals": "$.t", {tolerance}}}"#);
    let off = r#"{"a": [0.33, 0.33, 0.33], "t": 1.00}"#;
    assert!(strict(&with(r#""tolerance": "0.01""#), off).is_empty());
    assert!(strict(&with(r#""tolerance": 0.01"#), off).is_empty());
    assert_eq!(strict(&with(r#""tolerance": 0.009"#), off).len(), 1);
    assert!(strict(&with(r#""tolerance": "printed", "places": 2"#), off).is_empty()); // 4 half units
    assert_eq!(
        strict(&with(r#""tolerance": "printed", "places": 2"#), r#"{"a": [0.33, 0.33, 0.33], "t": 1.02}"#).len(),
        1
    );
    assert!(strict(&with(r#""tolerance": "printed", "places": 0"#), r#"{"a": [1, 1], "t": 3}"#).is_empty());
}

/// A contract that reads places from verified quotes.
fn quoted_contract(math: &str) -> PolicyContract {
    let path = |text: &str| Query::read(text).unwrap();
    let evidence = Evidence { value: path("$.value"), quote: path("$.text"), page: path("$.page") };
    let mut contract = PolicyContract { evidence: Some(evidence), folds: Folds::NONE, ..PolicyContract::default() };
    let provenance = r#"{"provenance": ["$.a[*]", "$.t"], "numbers_match_quotes": {"locale": "en"}}"#;
    testing::add(&mut contract, "provenance", provenance, Presence::default()).unwrap();
    testing::add(&mut contract, "math", math, Presence::default()).unwrap();
    contract
}

#[test]
fn places_are_read_from_the_verified_quote_and_never_from_the_answer() {
    let evidence = |value: &str, text: &str| format!(r#"{{"value": {value}, "text": "{text}", "page": 1}}"#);
    let answer = |a: (&str, &str), b: (&str, &str), t: (&str, &str)| {
        format!(r#"{{"a": [{}, {}], "t": {}}}"#, evidence(a.0, a.1), evidence(b.0, b.1), evidence(t.0, t.1))
    };
    let printed = r#"{"sum": "$.a[*]", "equals": "$.t", "tolerance": "printed"}"#;
    let contract = quoted_contract(printed);
    let page = ["a 1.33 b 1.33 t 2.67 u 2.68 x 1 y 1 z 3"];
    let said = |answer: &str| testing::judged(&contract, &page, answer);
    assert!(said(&answer(("1.33", "1.33"), ("1.33", "1.33"), ("2.67", "2.67"))).is_empty()); // 0.015 allowed
    assert_eq!(
        said(&answer(("1.33", "1.33"), ("1.33", "1.33"), ("2.68", "2.68"))),
        ["$['t']: the sum of `$.a[*]` is 2.66, but `$.t` is 2.68 (tolerance 0.015)"]
    );
    // Whole numbers are printed: 1.5 may be lost, however many digits the answer writes.
    assert!(said(&answer(("1.000000", "x 1"), ("1", "y 1"), ("3.0000", "z 3"))).is_empty());
    // A quote that does not stand lends no tolerance: the gate that looked for it says so, and the sum is exact.
    assert_eq!(said(&answer(("1.33", "7.33"), ("1.33", "7.33"), ("2.67", "7.67"))).len(), 4);
}

#[test]
fn settings_that_cannot_hold_are_refused() {
    let mut bare = PolicyContract::default();
    for (settings, said) in [
        ("{}", ": expected one of `sum`"),
        (r#"{"sum": "$.a", "count": "$.b", "equals": "$.t"}"#, "count: expected one of `sum`"),
        (r#"{"sum": "$.a"}"#, "sum: `sum` needs `equals`"),
        (r#"{"sum": "$.a", "equals": "$.t[*]"}"#, "equals: `sum` has one result, and `$.t[*]` may select many"),
        (r#"{"sum": "$.a", "equals": ["$.t", "$.u"]}"#, "equals: expected one path, found 2"),
        (r#"{"product": "$.a", "equals": "$.t"}"#, "product: expected two paths, found 1"),
        (r#"{"difference": ["$.a", "$.b", "$.c"], "equals": "$.t"}"#, "difference: expected two paths, found 3"),
        (r#"{"compare": ["$.a", "=<", 5]}"#, "compare: expected one of `<`"),
        (r#"{"compare": ["$.a", "<="]}"#, "compare: expected a path, a sign, and a path or number, found 2 members"),
        (r#"{"compare": ["$.a", "<=", true]}"#, "compare: expected a path, found true"),
        (r#"{"compare": ["$.a", "<=", 5], "equals": "$.t"}"#, "equals: `compare` has no `equals`"),
        (r#"{"compare": ["$.a", "<=", 5], "tolerance": 1}"#, "tolerance: `compare` has no tolerance"),
        (r#"{"range": {"path": "$.a"}}"#, "range: expected `min`, `max` or both"),
        (r#"{"range": {"path": "$.a", "min": 2, "max": 1}}"#, "range: `min` is 2, which is above `max`, 1"),
        (r#"{"range": {"path": "$.a", "min": "x"}}"#, "range: expected a number, found \"x\""),
        (r#"{"sum": "$.a", "equals": "$.t", "tolerance": "some"}"#, "tolerance: expected a number, found \"some\""),
        (r#"{"sum": "$.a", "equals": "$.t", "tolerance": -1}"#, "tolerance: expected 0 or more, found -1"),
        (r#"{"sum": "$.a", "equals": "$.t", "places": 2}"#, "places: `places` is for `tolerance: printed`"),
        (
            r#"{"sum": "$.a", "equals": "$.t", "tolerance": "printed"}"#,
            "tolerance: `printed` needs `places`, or a provenance gate",
        ),
        (r#"{"sum": "x", "equals": "$.t"}"#, "sum: `x` is not a JSONPath"),
        (r#"{"total": "$.t"}"#, ": unknown field `total`"),
    ] {
        let found = testing::add(&mut bare, "math", settings, Presence::default()).unwrap_err();
        assert!(found.starts_with(said), "{settings}: {found}");
        bare.gates.clear();
    }
    assert!(!KIND.stands_beside());
}
