//! The cases of `tests/cases/gate.jsonl` that need a policy, each with a policy of its own, through the commands and on the wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;
use serde_json::json;
use support::*;

/// The cases that are judged here, each with its gate; the others are judged in `src/stage/judge/tests.rs`.
const HERE: &[(&str, &str)] = &[
    ("gate-016", r#"quote: "$.amount", number: {locale: de}"#),
    ("gate-021", r#"math: {sum: "$.lines[*]", equals: "$.total", tolerance: "0"}"#),
    ("gate-022", r#"quote: "$.q", folds: [whitespace, typography]"#),
    ("gate-023", r#"quote: "$.q", folds: [whitespace, typography]"#),
    ("gate-026", r#"quote: "$.q", folds: [whitespace, typography]"#),
    ("gate-028", r#"quote: "$.q", folds: [typography]"#),
    ("gate-030", r#"quote: "$.q", folds: [whitespace, typography]"#),
    ("gate-031", r#"quote: "$.q""#),
    ("gate-032", r#"quote: "$.q""#),
    ("gate-034", r#"provenance: "$.date", numbers_match_quotes: {locale: de, dates: day_first}"#),
];
/// Cases that have a test of their own below.
const ALONE: &[&str] = &["gate-010", "gate-013", "gate-014", "gate-018"];

fn policy(gate: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let evidence = "evidence: {value: value, quote: source_span.text, page: source_span.page}";
    let text = format!("version: 1\nmatch: by_name\n{evidence}\ngates: [{{name: g, {gate}}}]\n");
    std::fs::create_dir(folder.path().join("p")).unwrap();
    std::fs::write(folder.path().join("p/policy.yaml"), text).unwrap();
    folder
}

/// What `check` says of an answer.
fn checked(gate: &str, source: &str, answer: &Value) -> Value {
    let folder = policy(gate);
    std::fs::write(folder.path().join("source"), source).unwrap();
    let mut child = portcullis()
        .args(["check", "--format", "json", "--policy"])
        .arg(folder.path().join("p"))
        .arg("--source")
        .arg(folder.path().join("source"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(answer.to_string().as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done.stderr)))
}

/// The answer of a case: its own, its quote, or a date with the quote that the source prints.
fn answer(given: &Value) -> Value {
    if let Some(quote) = given.get("quote") {
        return json!({"q": quote});
    }
    let answer = given["answer"].clone();
    match answer.get("date") {
        Some(date) => {
            let printed = given["source"].as_str().unwrap().rsplit(' ').next().unwrap();
            json!({"date": {"value": date, "source_span": {"page": 1, "text": printed}}})
        }
        None if answer.get("lines").is_some() => {
            // The case has its numbers as texts, so that no reader of the file can round them.
            serde_json::from_str(
                &answer.to_string().replace("\"0.", "0.").replace("\",", ",").replace("\"]", "]").replace("\"}", "}"),
            )
            .unwrap()
        }
        None => answer,
    }
}

/// A case of the file.
fn case(id: &str) -> Value {
    cases("gate.jsonl").into_iter().find(|case| case["id"] == id).unwrap()
}

#[test]
fn every_case_that_needs_a_policy_comes_out_right() {
    for (id, gate) in HERE {
        let case = case(id);
        let given = &case["given"];
        let found = checked(gate, given["source"].as_str().unwrap_or_default(), &answer(given));
        let expected = if case["expect"]["outcome"] == "value" { "accepted" } else { "rejected" };
        assert_eq!(found["outcome"], expected, "{id}: {found}");
        if expected == "rejected" {
            assert_eq!(found["violations"][0]["gate"], "g", "{id}: {found}");
        }
    }
}

#[test]
fn no_case_of_the_file_is_judged_nowhere() {
    let elsewhere = std::fs::read_to_string(in_repository("src/stage/judge/tests.rs")).unwrap();
    let own = std::fs::read_to_string(in_repository("tests/gates.rs")).unwrap();
    let here: BTreeSet<&str> = HERE.iter().map(|(id, _)| *id).chain(ALONE.iter().copied()).collect();
    for case in cases("gate.jsonl") {
        let id = case["id"].as_str().unwrap();
        // That file judges every case but those that it names.
        assert_ne!(here.contains(id), !elsewhere.contains(&format!("\"{id}\"")), "{id}");
    }
    for id in ALONE {
        case(id);
        assert!(own.contains(&format!("case(\"{id}\")")), "{id} is named and judged nowhere");
    }
}

/// gate-018: without a locale `3.400` could be two numbers, so a policy cannot leave it open.
#[test]
fn a_locale_is_never_guessed() {
    let folder = policy(r#"quote: "$.amount", number: {}"#);
    let done = portcullis().args(["check", "--policy"]).arg(folder.path().join("p")).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("locale"), "{}", text(&done.stderr));
    let given = case("gate-018")["given"].clone();
    for (locale, outcome) in [("en", "rejected"), ("de", "accepted")] {
        let gate = format!(r#"quote: "$.amount", number: {{locale: {locale}}}"#);
        let found = checked(&gate, given["source"].as_str().unwrap(), &given["answer"]);
        assert_eq!(found["outcome"], outcome, "{locale}: {found}");
    }
}

/// gate-013 and gate-014: a prompt that was cut before the model saw it shows in the tokens that the backend reports.
#[test]
fn a_prompt_that_did_not_arrive_whole_is_told_by_its_tokens() {
    let schema = r#"{"type":"object","properties":{"ids":{"type":"array"}},"required":["ids"]}"#;
    let policy = "match: [{model: m}]\nschema: ids.schema.json\ninject: never\ngates: [{name: whole, context: {}}]";
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).policy("ids", policy).policy_file("ids", "ids.schema.json", schema).start();
    for (case, code) in [(case("gate-013"), Some("context_truncated")), (case("gate-014"), None)] {
        let given = &case["given"];
        // A token stands for some four bytes of text.
        let prompt = "word ".repeat(given["request_prompt_tokens_estimate"].as_u64().unwrap() as usize * 4 / 5);
        let said = completion(given["message"]["content"].as_str().unwrap());
        let usage = format!("\"prompt_tokens\":{}", given["usage"]["prompt_tokens"]);
        upstream.always(Script::json(200, said.replace("\"prompt_tokens\":3", &usage)));
        let answer =
            gateway.chat(&format!(r#"{{"model":"m","messages":[{{"role":"user","content":{}}}]}}"#, quoted(&prompt)));
        match code {
            Some(code) => answer.assert_error(422, "contract_violation", code),
            None => assert_eq!(answer.outcome(), "accepted", "{}: {answer}", case["id"]),
        }
    }
    upstream.always(Script::json(200, completion(r#"{"ids":[]}"#).replace("\"prompt_tokens\":3,", "")));
    // Unknown is not enough, but it is not known to be cut either.
    gateway.chat(&request("")).assert_error(422, "contract_violation", "contract_rejected");
}

/// gate-010: nothing that was rejected is kept for whoever asks the same again.
#[test]
fn a_rejected_answer_is_never_kept() {
    let case = case("gate-010");
    let upstream = Upstream::that(Script::says(case["given"]["message"]["content"].as_str().unwrap()));
    let gateway = Setup::of(&upstream).start();
    for calls in 1..=2 {
        gateway.chat(&judged()).assert_error(422, "contract_violation", "output_not_json");
        assert_eq!(upstream.calls().len(), calls);
    }
}
