use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn tags() -> Vec<ReasoningTag> {
    crate::dialect::table::Capabilities::of(crate::dialect::table::BackendKind::Openai).reasoning_tags
}

fn ladder(text: &str, admits: Admits) -> Result<(&str, Rung), Reason> {
    let tags = tags();
    extract(text, Wanted { admits, mode: Mode::Ladder, reasoning: &tags })
        .map(|found| (&text[found.range], found.rung))
        .map_err(|not| not.reason)
}

fn any(text: &str) -> Result<(&str, Rung), Reason> {
    ladder(text, Admits::ANY)
}

/// The cases of `tests/cases/extract.jsonl`; those with a finish reason are judged a step earlier and
/// tested there too.
#[test]
fn every_case_of_the_extraction_file() {
    for line in include_str!("../../tests/cases/extract.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let given = &case["given"];
        if given.get("finish_reason").is_some() {
            continue;
        }
        let admits = match given.get("types") {
            Some(types) => Admits {
                object: types.as_array().unwrap().iter().any(|t| t == "object"),
                array: types.as_array().unwrap().iter().any(|t| t == "array"),
            },
            None => Admits::ANY,
        };
        let expect = &case["expect"];
        let found = ladder(given["text"].as_str().unwrap(), admits);
        match expect["outcome"].as_str().unwrap() {
            "value" => {
                let (slice, _) = found.unwrap_or_else(|reason| panic!("{}: {reason:?}", case["id"]));
                if let Some(raw) = expect.get("raw") {
                    assert_eq!(slice, raw.as_str().unwrap(), "{}", case["id"]);
                }
                if let Some(value) = expect.get("value") {
                    let read = tree::parse(slice).unwrap();
                    assert!(compare::equal(&read, value), "{}: {slice}", case["id"]);
                }
            }
            _ => {
                let reason = found.expect_err(&case["id"].to_string());
                assert_eq!(reason.as_str(), expect["reason"].as_str().unwrap(), "{}", case["id"]);
            }
        }
    }
}

#[test]
fn what_the_ladder_makes_of_texts_beyond_the_cases() {
    use Rung::{Fence, Scan, Whole};
    for (text, expected) in [
        ("{}", Ok(("{}", Whole))),
        ("```json\n{\"a\":1}\n```", Ok(("{\"a\":1}", Fence))),
        ("```\n{\"a\":1}\n```", Ok(("{\"a\":1}", Fence))),
        ("```JSON\n{\"a\":1}\n```", Ok(("{\"a\":1}", Fence))),
        ("````json\n{\"a\":1}\n```\n````", Err(Reason::Invalid)),
        ("```json\n{\"a\":1}\n````", Ok(("{\"a\":1}", Fence))),
        ("    ```json\n    {\"a\":1}\n    ```", Ok(("{\"a\":1}", Scan))),
        ("```python\nx = {\"a\": 1}\n```\n{\"b\":2}", Ok(("{\"b\":2}", Scan))),
        ("```python\nx = {\"a\": 1}\n```", Err(Reason::NoJson)),
        ("```json\n1\n```", Ok(("1", Fence))),
        ("```\n1\n```", Err(Reason::NoJson)),
        ("```json\nnot json\n```", Err(Reason::Invalid)),
        ("```json\n{\"a\":1} and more\n```", Err(Reason::Invalid)),
        ("```json\n{\"a\":1}\n{\"a\":2}\n```", Err(Reason::Invalid)),
        ("```json\n{\"a\":1,\"a\":2}\n```", Err(Reason::DuplicateKey)),
        ("```json\n{\"a\":", Err(Reason::Truncated)),
        ("```json\n{\"a\":\n```", Err(Reason::Invalid)),
        ("```json {\"a\":1}\n{\"a\":2}\n```", Err(Reason::Ambiguous)),
        ("```json {\"a\":1}\n{\"a\":1}\n```", Ok(("{\"a\":1}", Scan))),
        ("```json\r{\"a\":1}\r```\r", Ok(("{\"a\":1}", Fence))),
        ("Sure! {\"a\":1} Anything else?", Ok(("{\"a\":1}", Scan))),
        ("see [note] and {short form}", Err(Reason::NoJson)),
        ("{a: 1} {\"b\":1}", Err(Reason::Invalid)),
        ("{'a': 1}", Err(Reason::Invalid)),
        ("{ // c\n\"a\":1}", Err(Reason::Invalid)),
        ("[NaN]", Err(Reason::Invalid)),
        ("[1e999]", Err(Reason::NumberOutOfRange)),
        ("x {\"a\":1e999} y", Err(Reason::NumberOutOfRange)),
        ("{", Err(Reason::Truncated)),
        ("ok {", Err(Reason::Truncated)),
        ("ok [1, 2", Err(Reason::Truncated)),
        ("{\"a\":\"unclosed}", Err(Reason::Truncated)),
        ("\u{feff}", Err(Reason::Empty)),
        (" \n\u{a0}", Err(Reason::Empty)),
        ("<think>never closed {\"a\":1}", Err(Reason::Truncated)),
        ("\n<think>x</think>\n```json\n{\"a\":1}\n```", Ok(("{\"a\":1}", Fence))),
        ("<think>a</think><think>b</think>{\"a\":1}", Ok(("{\"a\":1}", Scan))),
        ("{\"a\":1} {\"a\":1.0} {\"a\":10e-1}", Ok(("{\"a\":1}", Scan))),
        ("{\"a\":1,\"b\":2} or {\"b\":2,\"a\":1}", Ok(("{\"a\":1,\"b\":2}", Scan))),
        ("[[1]] [2]", Err(Reason::Ambiguous)),
        ("{{\"a\":1}}", Err(Reason::Invalid)),
        ("{“status”: “rejected”, “would_be”: {\"a\":1}}", Err(Reason::Invalid)),
        ("{\u{a0}\"rejected\": {\"a\":1}}", Err(Reason::Invalid)),
        ("['rejected', {\"a\":1}]", Err(Reason::Invalid)),
        ("[False, {\"a\":1}]", Err(Reason::Invalid)),
        ("{...base, order: {\"a\":1}}", Err(Reason::Invalid)),
        ("{ # no\n \"order\": {\"a\":1}}", Err(Reason::Invalid)),
        ("[note {x} ] {\"a\":1} [end]", Ok(("{\"a\":1}", Scan))),
        ("{ open, then {\"a\":1}", Ok(("{\"a\":1}", Scan))),
        ("} ] {\"a\":1} } ]", Ok(("{\"a\":1}", Scan))),
    ] {
        assert_eq!(any(text), expected, "{text:?}");
    }
}

#[test]
fn an_array_schema_sets_objects_aside_and_an_object_schema_arrays() {
    let arrays = Admits { object: false, array: true };
    assert_eq!(ladder("e.g. {\"a\":1}: [1,2]", arrays), Ok(("[1,2]", Rung::Scan)));
    assert_eq!(ladder("see [1]: {\"a\":1} [2, 3]", Admits::OBJECT), Ok(("{\"a\":1}", Rung::Scan)));
    // A malformed region is not set aside, whatever its kind.
    assert_eq!(ladder("see [1,]: {\"a\":1}", Admits::OBJECT), Err(Reason::Invalid));
    // A fenced array is an answer, not a citation.
    assert_eq!(ladder("```json\n[1]\n```\n{\"a\":1}", Admits::OBJECT), Err(Reason::Ambiguous));
}

#[test]
fn strict_mode_takes_bare_json_alone() {
    let strict = |text| {
        extract(text, Wanted { admits: Admits::ANY, mode: Mode::Strict, reasoning: &[] }).map_err(|not| not.reason)
    };
    assert!(strict(" {\"a\":1} ").is_ok());
    for (text, reason) in [
        ("```json\n{\"a\":1}\n```", Reason::TrailingText),
        ("Sure: {\"a\":1}", Reason::TrailingText),
        ("{\"a\":1} ok", Reason::TrailingText),
        ("{\"a\":", Reason::Truncated),
        ("{\"a\":1,}", Reason::Invalid),
        ("{\"a\":1,\"a\":1}", Reason::DuplicateKey),
        ("no", Reason::NoJson),
        ("\"cut", Reason::NoJson),
    ] {
        assert_eq!(strict(text).unwrap_err(), reason, "{text:?}");
    }
}

#[test]
fn an_implied_opening_tag_sets_the_thinking_aside() {
    let tags = [ReasoningTag { open: "<think>".into(), close: "</think>".into(), opening_implied: true }];
    let text = "so maybe {\"x\":1}\n</think>\n{\"a\":2}";
    let found = extract(text, Wanted { admits: Admits::ANY, mode: Mode::Ladder, reasoning: &tags }).unwrap();
    assert_eq!(&text[found.range], "{\"a\":2}");
}

#[test]
fn a_failure_names_its_place() {
    let text = "Sure:\n{\"lines\":[{\"sku\":1,\"sku\":2}]}";
    let not = extract(text, Wanted { admits: Admits::ANY, mode: Mode::Ladder, reasoning: &[] }).unwrap_err();
    assert_eq!(not.reason, Reason::DuplicateKey);
    assert_eq!(not.path.unwrap().to_string(), "$['lines'][0]");
    assert_eq!(not.fault.unwrap().position(text.as_bytes()), (2, 20));
}

/// Inputs that make a careless scanner quadratic: each is a quarter of a megabyte, and the test would take minutes if it were.
#[test]
fn adversarial_inputs_are_linear() {
    let size = 1 << 18;
    for unit in [
        "[",
        "{",
        "\"",
        "{\"",
        "[\"",
        "[1,",
        "{\"a\":",
        "`",
        "```\n",
        "```json\n",
        "~~~\n{",
        "[ ",
        "{ a",
        "{a",
        "[-",
        "\\",
        "{\"\\",
        "}",
        "{}",
        "[1] ",
        "<think>",
        "{\"a\":1}\n",
        "[nul",
    ] {
        let text = unit.repeat(size / unit.len());
        let _ = any(&text);
        let _ = ladder(&text, Admits::OBJECT);
    }
}

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any_number(),
        "[a-z{}\\[\\]`~ é]{0,8}".prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    let tree = leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" ,"))),
            prop::collection::btree_map("[a-z]{1,3}", inner, 0..4).prop_map(|members| {
                let members: Vec<_> = members.into_iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    });
    prop::collection::btree_map("[a-z]{1,3}", tree, 1..4).prop_map(|members| {
        let members: Vec<_> = members.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    })
}

fn any_number() -> impl Strategy<Value = String> {
    "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,4})?([eE][+-]?[0-9]{1,2})?"
}

proptest! {
    #[test]
    fn what_is_found_is_a_slice_and_is_json(text in "[\\[\\]{}\"`~a-c1:,\\\\ \n]{0,60}") {
        if let Ok((slice, _)) = any(&text) {
            prop_assert!(text.contains(slice));
            prop_assert!(check::strict(slice).is_ok());
        }
    }

    #[test]
    fn prose_without_braces_around_a_value_never_changes_it(before in "[a-zA-Z .,!\n]{0,30}", value in json(), after in "[a-zA-Z .,!\n]{0,30}") {
        let text = format!("{before} {value} {after}");
        let (slice, _) = any(&text).unwrap();
        prop_assert_eq!(slice, value);
    }

    #[test]
    fn a_fence_around_a_value_never_changes_it(value in json(), tag in "(|json|JSON)", mark in "(```|~~~|````)") {
        let text = format!("Here:\n{mark}{tag}\n{value}\n{mark}\nDone.");
        prop_assert_eq!(any(&text), Ok((value.as_str(), Rung::Fence)));
    }

    #[test]
    fn nothing_panics(text in "\\PC{0,80}") {
        let _ = any(&text);
    }
}
