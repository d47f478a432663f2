//! The commands as a black box: what they print, and the exit code that scripts go by.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;
use support::*;

const COMMANDS: [&str; 9] =
    ["serve", "demo", "validate", "check", "golden", "certs", "schema", "health", "completions"];

/// What a command came to.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    /// Fails where the exit code is another, or where it ended in a fault of its own.
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    /// All of it, for a snapshot.
    fn shown(&self) -> String {
        let err = if self.err.is_empty() { String::new() } else { format!("--- stderr\n{}", self.err) };
        format!("exit {}\n{}{err}", self.code.unwrap_or(-1), self.out)
    }
}

/// Runs a command in `folder` with `input` on its standard input.
#[track_caller]
fn run_in(folder: &Path, arguments: &[&str], input: &[u8]) -> Ran {
    let mut command = portcullis();
    command.args(arguments).current_dir(folder);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(input); // a command that reads nothing is free to
    let done = child.wait_with_output().unwrap();
    Ran { code: done.status.code(), out: text(&done.stdout), err: text(&done.stderr) }
}

#[track_caller]
fn run(arguments: &[&str]) -> Ran {
    run_in(tempfile::tempdir().unwrap().path(), arguments, b"")
}

/// A folder with a schema, a request that brings the same schema, and an answer in a fence.
fn desk() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let schema = r#"{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"],"additionalProperties":false}"#;
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("person.schema.json", schema);
    write("request.json", &request(&format_of(schema)));
    write("object.json", &request(r#""response_format":{"type":"json_object"}"#));
    write("plain.json", &request(""));
    write("good.txt", "Sure!\n```json\n{\"name\": \"Ada\", \"age\": 36}\n```\n");
    write("bad.txt", "Sure!\n```json\n{\"name\": \"Ada\",\n \"age\": \"36\", \"é\": 1}\n```\n");
    write("broken.schema.json", r#"{"type":"objekt"}"#);
    write("remote.schema.json", r#"{"$ref":"https://example.com/x"}"#);
    std::fs::write(folder.path().join("latin1.txt"), b"{\"name\":\"\xe9\"}").unwrap();
    folder
}

// ------------------------------------------------------------------------------------- check

#[test]
fn check_prints_verdicts_as_compilers_print_errors() {
    let desk = desk();
    let mut all = Vec::new();
    for (arguments, input, code) in [
        (&["--schema", "person.schema.json", "good.txt"][..], "", 0),
        (&["--schema", "person.schema.json", "bad.txt"], "", 1),
        (&["--request", "request.json", "bad.txt"], "", 1),
        (&["--request", "request.json", "--finish-reason", "length", "good.txt"], "", 1),
        (&["--schema", "person.schema.json", "--finish-reason", "content_filter", "good.txt"], "", 1),
        (&["--schema", "person.schema.json", "--finish-reason", "who_knows", "good.txt"], "", 1),
        (&["--schema", "person.schema.json"], "{\"name\":\"Ada\",\"age\":36,}", 1),
        (&["--schema", "person.schema.json", "-"], "{\"name\":\"Ada\",\"name\":\"Bob\",\"age\":36}", 1),
        (&["--schema", "person.schema.json"], "", 1),
        (&["--schema", "person.schema.json"], "nothing to see here", 1),
        (&["--request", "object.json"], "so {\"any\": \"object\"} it is", 0),
        (&["--request", "object.json"], "[1, 2]", 1),
    ] {
        let arguments = [&["check"], arguments].concat();
        let ran = run_in(desk.path(), &arguments, input.as_bytes()).expect(code);
        all.push(format!("$ portcullis {} <<< {}\n{}", arguments.join(" "), quoted(input), ran.shown()));
    }
    insta::assert_snapshot!("check_text", all.join("\n"));
}

#[test]
fn check_tells_programs_the_same() {
    let desk = desk();
    let mut all = Vec::new();
    for (arguments, input, code) in [
        (&["--schema", "person.schema.json", "good.txt"][..], "", 0),
        (&["--schema", "person.schema.json", "bad.txt"], "", 1),
        (&["--request", "request.json", "--finish-reason", "length", "good.txt"], "", 1),
        (&["--request", "object.json"], "{\"a\":1} or {\"a\":2}", 1),
        (&["--request", "object.json"], "", 1),
        (&["--request", "object.json"], "{\"n\": 1.0, \"big\": 12345678901234567890}", 0),
    ] {
        let arguments = [&["check", "--format", "json"], arguments].concat();
        let ran = run_in(desk.path(), &arguments, input.as_bytes()).expect(code);
        let value: Value = serde_json::from_str(&ran.out).unwrap();
        for member in [
            "outcome",
            "code",
            "stage",
            "policy",
            "extraction",
            "violations_total",
            "violations",
            "not_checked",
            "questions",
        ] {
            assert!(value.get(member).is_some(), "{member}: {}", ran.out);
        }
        all.push(format!("$ portcullis {} <<< {}\n{}", arguments.join(" "), quoted(input), ran.shown()));
    }
    insta::assert_snapshot!("check_json", all.join("\n"));
}

#[test]
fn check_points_at_the_bytes_that_are_meant() {
    let desk = desk();
    let answer = std::fs::read_to_string(desk.path().join("bad.txt")).unwrap();
    let ran =
        run_in(desk.path(), &["check", "--format", "json", "--schema", "person.schema.json", "bad.txt"], b"").expect(1);
    let value: Value = serde_json::from_str(&ran.out).unwrap();
    let at = |path: &str| {
        let violations = value["violations"].as_array().unwrap();
        let found = violations
            .iter()
            .find(|violation| violation["path"] == path)
            .unwrap_or_else(|| panic!("{path}: {}", ran.out));
        let place = |end: &str| usize::try_from(found["at"][end].as_u64().unwrap()).unwrap();
        &answer[place("start")..place("end")]
    };
    assert_eq!(at("$['age']"), "\"36\"");
    let ran = run_in(desk.path(), &["check", "--format", "json", "--schema", "person.schema.json", "good.txt"], b"")
        .expect(0);
    let good = std::fs::read_to_string(desk.path().join("good.txt")).unwrap();
    let value: Value = serde_json::from_str(&ran.out).unwrap();
    let place = |end: &str| usize::try_from(value["extraction"][end].as_u64().unwrap()).unwrap();
    assert_eq!(&good[place("start")..place("end")], "{\"name\": \"Ada\", \"age\": 36}");
    assert_eq!((&value["extraction"]["rung"], &value["answer"]), (&json!("fence"), &json!({"name": "Ada", "age": 36})));
}

#[test]
fn what_check_cannot_use_is_told_on_stderr() {
    let desk = desk();
    let mut all = Vec::new();
    for arguments in [
        &["--schema", "broken.schema.json", "good.txt"][..],
        &["--schema", "remote.schema.json", "good.txt"],
        &["--schema", "nowhere.json", "good.txt"],
        &["--schema", "good.txt", "good.txt"],
        &["--schema", "person.schema.json", "nowhere.txt"],
        &["--schema", "person.schema.json", "latin1.txt"],
        &["--request", "plain.json", "good.txt"],
        &["--request", "good.txt", "good.txt"],
    ] {
        let arguments = [&["check"], arguments].concat();
        let ran = run_in(desk.path(), &arguments, b"").expect(2);
        assert_eq!(ran.out, "", "{arguments:?}");
        all.push(format!("$ portcullis {}\n{}", arguments.join(" "), ran.shown()));
    }
    insta::assert_snapshot!("check_errors", all.join("\n"));
    for arguments in [
        &["check"][..],
        &["check", "--schema", "a", "--request", "b"],
        &["check", "--schema"],
        &["check", "--format", "xml"],
    ] {
        let ran = run_in(desk.path(), arguments, b"").expect(2);
        assert!(!ran.err.is_empty() && ran.out.is_empty(), "{ran:?}");
    }
}

/// The same text under the same schema: `check` and the wire must agree.
#[test]
fn offline_and_online_agree() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("schema.json"), SCHEMA).unwrap();
    for (said, finish) in [
        (GOOD, "stop"),
        ("```\n{\"z\":\"x\",\"a\":1}\n```", "stop"),
        ("<think>{}</think>{\"z\":\"x\",\"a\":1}", "stop"),
        ("{\"z\":\"x\",\"a\":1} {\"z\":\"y\",\"a\":1}", "stop"),
        ("{\"z\":\"x\",\"a\":1.5}", "stop"),
        ("{\"z\":\"x\",\"a\":1e999}", "stop"),
        ("{\"z\":\"x\"", "stop"),
        ("prose", "stop"),
        (GOOD, "length"),
        (GOOD, "content_filter"),
        (GOOD, "eos"),
        ("", "stop"),
    ] {
        let arguments = ["check", "--format", "json", "--schema", "schema.json", "--finish-reason", finish];
        let ran = run_in(folder.path(), &arguments, said.as_bytes());
        let offline: Value = serde_json::from_str(&ran.out).unwrap();
        upstream.next(Script::json(200, finished(said, finish)));
        let online = gateway.chat(&judged());
        assert_eq!(offline["outcome"], online.outcome(), "{said}\n{}\n{online}", ran.out);
        if online.status() == 200 {
            assert!(offline["code"].is_null(), "{}", ran.out);
            continue;
        }
        let error = &online.json()["error"];
        assert_eq!(offline["code"], error["code"], "{said}");
        if let Some(violations) = error["portcullis"]["violations"].as_array() {
            for (one, other) in violations.iter().zip(offline["violations"].as_array().unwrap()) {
                assert_eq!((&one["path"], &one["message"]), (&other["path"], &other["message"]), "{said}");
            }
        }
    }
}

// ------------------------------------------------------------------------------------- check and golden, by a policy

const BILLS: &str = r#"version: 1
description: Bills that are quoted from a page.
match: by_name
schema: bill.schema.json
gates:
  - {name: id-on-page, quote: "$.id", token: true}
  - {name: words-kept, quote: "$.action", nullable: true, on_violation: clarify}
  - {name: words-short, needs: [words-kept], quote: "$.action", nullable: true, only: "Please[^.]*[.]"}
  - {name: note-on-page, quote: "$.note", optional: true, on_violation: monitor}
"#;
const BILL_SCHEMA: &str = r#"{"type":"object","properties":{"id":{"type":"string"},"action":{"type":["string","null"]},"note":{"type":"string"}},"required":["id","action"],"additionalProperties":false}"#;
const PAGE: &str = "Bill B-17\nPlease pay by Monday.\nTotal 12.10\n";
const BILL: &str = r#"{"id":"B-17","action":"Please pay by Monday."}"#;

/// A folder with a policy, two pages and some answers.
fn bills() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("policies/bills")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("policies/bills/policy.yaml", BILLS);
    write("policies/bills/bill.schema.json", BILL_SCHEMA);
    write("page1.txt", "nothing here\n");
    write("page2.txt", PAGE);
    let content = serde_json::to_string(PAGE).unwrap();
    let request = format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"B-99"}},{{"role":"user","content":{content}}}]}}"#
    );
    write("request.json", &request);
    let controls = [
        json!({"name": "good", "source": [PAGE], "output": BILL, "expect": "accepted"}),
        json!({"name": "another id", "source": [PAGE], "output": BILL.replace("17", "18"), "expect": "rejected", "gate": "id-on-page"}),
    ];
    write("policies/bills/controls.jsonl", &controls.map(|control| control.to_string()).join("\n"));
    folder
}

const BY_BILLS: [&str; 7] = ["check", "--policy", "policies/bills", "--source", "page1.txt", "--source", "page2.txt"];

#[test]
fn check_judges_by_a_policy_and_shows_answer_and_source() {
    let bills = bills();
    let mut all = Vec::new();
    for (answer, code) in [
        (BILL.to_owned(), 0),
        (BILL.replace("B-17", "B-18"), 1),
        (BILL.replace("B-17", "B-1"), 1),
        (BILL.replace("Please pay", "Pay"), 1),
        (r#"{"id":"B-17","action":"pay by Monday.","note":"x"}"#.to_owned(), 1),
        (r#"{"id":"B-17","action":null,"note":"urgent"}"#.to_owned(), 0),
        (r#"{"id":17,"action":null}"#.to_owned(), 1),
    ] {
        let ran = run_in(bills.path(), &BY_BILLS, answer.as_bytes()).expect(code);
        all.push(format!("$ portcullis {} <<< {answer}\n{}", BY_BILLS.join(" "), ran.shown()));
    }
    let arguments = [&BY_BILLS[..], &["--format", "json"]].concat();
    for answer in [BILL.replace("B-17", "B-1"), BILL.replace("Please pay", "Pay"), BILL.to_owned()] {
        all.push(run_in(bills.path(), &arguments, answer.as_bytes()).shown());
    }
    insta::assert_snapshot!("check_policy", all.join("\n"));
}

/// The request's own messages are the source; what the policy does not read in them is none.
#[test]
fn check_finds_the_source_in_a_request() {
    let bills = bills();
    let arguments = ["check", "--policy", "policies/bills", "--request", "request.json"];
    run_in(bills.path(), &arguments, BILL.as_bytes()).expect(0);
    run_in(bills.path(), &arguments, BILL.replace("B-17", "B-99").as_bytes()).expect(1);
    let with_pages = [&arguments[..], &["--source", "page1.txt"]].concat();
    run_in(bills.path(), &with_pages, BILL.as_bytes()).expect(1);
    run_in(bills.path(), &["check", "--policy", "policies/bills"], BILL.as_bytes()).expect(1);
}

#[test]
fn a_policy_is_found_by_its_name_or_its_folder() {
    let bills = bills();
    let config = "version: 1\nauth: {mode: none}\nbackends: {d: {kind: demo}}\nmodels: {\"*\": {targets: [{backend: d}]}}\npolicies: policies\n";
    std::fs::write(bills.path().join("portcullis.yaml"), config).unwrap();
    let source = ["--source", "page2.txt"];
    let named = ["check", "--config", "portcullis.yaml", "--policy", "bills"];
    run_in(bills.path(), &[&named[..], &source].concat(), BILL.as_bytes()).expect(0);
    for (policy, said) in [("bils", "did you mean `bills`?"), ("./nowhere", "nowhere"), ("policies", "policies")] {
        let arguments = ["check", "--config", "portcullis.yaml", "--policy", policy];
        let ran = run_in(bills.path(), &arguments, BILL.as_bytes()).expect(2);
        assert!(ran.out.is_empty() && ran.err.contains(said), "{policy}: {ran:?}");
    }
    std::fs::write(bills.path().join("policies/bills/policy.yaml"), BILLS.replace("token: true", "tokens: true"))
        .unwrap();
    let ran = run_in(bills.path(), &BY_BILLS, BILL.as_bytes()).expect(2);
    assert!(ran.err.contains("policies/bills/policy.yaml:6:") && ran.err.contains("tokens"), "{}", ran.err);
}

/// A set of `count` records: of twenty, one is stopped, one asked about and one is no JSON, all as they should be. The
/// unexpected ones stand at `wrong`.
fn golden_set(count: usize, wrong: &[usize]) -> String {
    let record = |index: usize| {
        let mut record = json!({"name": format!("bill {index}"), "source": ["first page", PAGE], "output": BILL});
        let with = match index % 20 {
            3 => {
                json!({"output": BILL.replace("17", "18"), "expect": "rejected", "gate": "id-on-page", "cause": "model"})
            }
            4 => json!({"output": BILL.replace("Please", "Do"), "expect": "clarified", "cause": "document"}),
            5 => json!({"output": "Sorry!", "expect": "rejected", "gate": "extraction", "code": "output_not_json"}),
            6 => json!({"output": "{", "finish_reason": "length", "expect": "rejected", "code": "output_truncated"}),
            _ if wrong.contains(&index) => {
                json!({"output": BILL.replace("Monday", "</pre><img src=x onerror=alert(1)>")})
            }
            _ => json!({}),
        };
        record.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        record.to_string()
    };
    (0..count).map(record).collect::<Vec<_>>().join("\n")
}

#[test]
fn golden_tells_what_a_set_comes_to() {
    let bills = bills();
    let set = |name: &str, text: String| std::fs::write(bills.path().join(name), text).unwrap();
    set("good.jsonl", golden_set(40, &[]));
    set("bad.jsonl", golden_set(40, &[1, 22]));
    let mut all = Vec::new();
    for (arguments, code) in [
        (&["good.jsonl"][..], 0),
        (&["bad.jsonl"], 1),
        (&["bad.jsonl", "--min-pass-rate", "0.95"], 0),
        (&["bad.jsonl", "--min-pass-rate", "0.951", "--format", "json"], 1),
    ] {
        let arguments = [&["golden", "--policy", "policies/bills"], arguments].concat();
        let ran = run_in(bills.path(), &arguments, b"").expect(code);
        all.push(format!("$ portcullis {}\n{}", arguments.join(" "), ran.shown()));
    }
    insta::assert_snapshot!("golden", all.join("\n"));
    let controls = ["golden", "--policy", "policies/bills", "policies/bills/controls.jsonl"];
    run_in(bills.path(), &controls, b"").expect(0);
    let standard = ["golden", "--policy", "policies/bills", "-"];
    run_in(bills.path(), &standard, golden_set(3, &[]).as_bytes()).expect(0);
}

#[test]
fn golden_writes_reports_that_an_answer_cannot_break() {
    let bills = bills();
    std::fs::write(bills.path().join("set.jsonl"), golden_set(40, &[1, 22])).unwrap();
    let arguments = ["golden", "--policy", "policies/bills", "set.jsonl", "--report", "r.html", "--junit", "j.xml"];
    run_in(bills.path(), &arguments, b"").expect(1);
    let html = std::fs::read_to_string(bills.path().join("r.html")).unwrap();
    assert!(html.contains("38 of 40") && html.contains("bill 22") && html.contains("<mark "), "{html}");
    assert!(html.contains("&lt;img src=x onerror=alert(1)&gt;") && !html.contains("<img") && !html.contains("<script"));
    let xml = std::fs::read_to_string(bills.path().join("j.xml")).unwrap();
    assert_eq!((xml.matches("<testcase ").count(), xml.matches("<failure ").count()), (40, 2));
    assert!(xml.contains("tests=\"40\" failures=\"2\"") && !xml.contains("<img"), "{xml}");
    let nowhere = ["golden", "--policy", "policies/bills", "set.jsonl", "--report", "no/such/folder/r.html"];
    run_in(bills.path(), &nowhere, b"").expect(3);
}

#[test]
fn golden_is_strict_about_its_input() {
    let bills = bills();
    let good = r#"{"name":"n","output":"{}"}"#;
    let mut all = Vec::new();
    for set in [
        "".to_owned(),
        "\n\n".to_owned(),
        format!("{good}\n\n{{\"name\":\"n\"}}"),
        format!("{good}\n{good} x"),
        format!("{good}\nnot json"),
        r#"{"name":"n","output":"{}","expct":"rejected"}"#.to_owned(),
        r#"{"name":"n","output":"{}","output":"{}"}"#.to_owned(),
        r#"{"name":"n","output":"{}","gate":"id-on-pag"}"#.to_owned(),
        r#"{"name":"n","output":"{}","expect":"fine"}"#.to_owned(),
        // What the policy does not let through on the wire is not judged here either.
        r#"{"name":"n","output":"{}","request":{"model":"m","messages":[],"store":true}}"#.to_owned(),
        r#"{"name":"n","output":"{}","request":{"model":"m","messages":[],"portcullis":{"source":["x"]}}}"#.to_owned(),
    ] {
        std::fs::write(bills.path().join("set.jsonl"), &set).unwrap();
        let ran = run_in(bills.path(), &["golden", "--policy", "policies/bills", "set.jsonl"], b"").expect(2);
        assert_eq!(ran.out, "", "{set}");
        all.push(format!("{set}\n{}", ran.shown()));
    }
    std::fs::write(bills.path().join("set.jsonl"), [good.as_bytes(), b"\n\xff\n"].concat()).unwrap();
    all.push(run_in(bills.path(), &["golden", "--policy", "policies/bills", "set.jsonl"], b"").expect(2).shown());
    insta::assert_snapshot!("golden_errors", all.join("\n"));
    std::fs::write(bills.path().join("set.jsonl"), good).unwrap();
    for arguments in [
        &["set.jsonl"][..],
        &["--policy", "policies/bills"],
        &["--policy", "policies/bills", "nowhere.jsonl"],
        &["--policy", "policies/bills", "set.jsonl", "--min-pass-rate", "1.1"],
        &["--policy", "policies/bills", "set.jsonl", "--min-pass-rate", "NaN"],
        &["--policy", "policies/bills", "set.jsonl", "--threads", "0"],
    ] {
        let ran = run_in(bills.path(), &[&["golden"], arguments].concat(), b"").expect(2);
        assert!(!ran.err.is_empty() && ran.out.is_empty(), "{ran:?}");
    }
}

/// The set is larger than what one thread takes at a time, and its last line does not end.
#[test]
fn golden_says_the_same_on_any_number_of_threads() {
    let bills = bills();
    let count = 3_000;
    let set = golden_set(count, &[0, 1, 1_321, 2_999]).replace("first page", &"page ".repeat(100));
    assert!(set.len() > 1 << 20);
    std::fs::write(bills.path().join("set.jsonl"), &set).unwrap();
    let on = |threads: &str| {
        let arguments = ["golden", "--policy", "policies/bills", "set.jsonl", "--format", "json", "--junit", "j.xml"];
        let arguments = [&arguments[..], &["--report", "r.html", "--threads", threads]].concat();
        let ran = run_in(bills.path(), &arguments, b"").expect(1);
        let read = |name: &str| std::fs::read_to_string(bills.path().join(name)).unwrap();
        (ran.out, read("j.xml"), read("r.html"))
    };
    let one = on("1");
    let told: Value = serde_json::from_str(&one.0).unwrap();
    assert_eq!((&told["records"], &told["as_expected"]), (&json!(count), &json!(count - 4)), "{}", one.0);
    for threads in ["2", "3", "8"] {
        assert!(on(threads) == one, "not the same on {threads} threads");
    }
    // The first error is the one that is told, however many threads find one.
    let broken: Vec<&str> =
        set.lines().enumerate().map(|(index, line)| if index % 1_000 == 999 { "{" } else { line }).collect();
    std::fs::write(bills.path().join("set.jsonl"), broken.join("\n")).unwrap();
    let arguments = ["golden", "--policy", "policies/bills", "set.jsonl", "--threads", "8"];
    let ran = run_in(bills.path(), &arguments, b"").expect(2);
    assert!(ran.err.contains("set.jsonl:1000:"), "{}", ran.err);
}

// ------------------------------------------------------------------------------------- configuration

#[test]
fn validate_says_that_a_good_file_is_good() {
    let file = in_repository("config/portcullis.yaml");
    let ran = run(&["validate", "--config", file.to_str().unwrap()]).expect(0);
    assert!(ran.out.contains("is valid") && ran.err.is_empty(), "{ran:?}");
    let ran = run(&["validate"]).expect(0);
    assert!(ran.out.contains("the embedded default is valid"), "{ran:?}");
    let folder = tempfile::tempdir().unwrap();
    let mut command = portcullis();
    let done = command.arg("validate").current_dir(folder.path()).env("PORTCULLIS_CONFIG", &file).output().unwrap();
    assert!(done.status.success() && text(&done.stdout).contains("portcullis.yaml is valid"));
    // The default file, where it is there, with the policies beside it.
    std::os::unix::fs::symlink(in_repository("policies"), folder.path().join("policies")).unwrap();
    std::fs::create_dir(folder.path().join("config")).unwrap();
    std::fs::copy(&file, folder.path().join("config/portcullis.yaml")).unwrap();
    let ran = run_in(folder.path(), &["validate"], b"").expect(0);
    assert!(ran.out.contains("config/portcullis.yaml is valid"), "{ran:?}");
}

const BAD: &str = r#"version: 1
listen: {address: "localhost:8787", limits: {body: 32, in_flight: 0}, hold: {keepalive_after: soon}, cors: ["https://app.example/"]}
auth: {mode: nobody}
backends:
  openai: {kind: openai, base_url: "http://127.0.0.1:1", api_key: sk-very-secret, api_kye: sk-very-secret}
  other: {kind: opnai, base_url: "http://user:sk-very-secret@127.0.0.1"}
  third: {kind: vllm, api_key: "${env:PORTCULLIS_TEST_UNSET}", headers: {authorization: sk-very-secret}}
models:
  m: {targets: [{backend: opennai}], upstream_calls_max: 0}
  "a*": {targets: [{backend: third}]}
policies: ../policies
telemetry: {log: inof}
"#;

#[test]
fn validate_lists_every_error_with_its_place_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("bad.yaml"), BAD).unwrap();
    let ran = run_in(folder.path(), &["validate", "--config", "bad.yaml"], b"").expect(2);
    assert_eq!(ran.out, "");
    assert!(!ran.err.contains("sk-very-secret"), "{}", ran.err);
    for line in [2, 3, 5, 6, 7, 9, 10, 11, 12] {
        assert!(ran.err.contains(&format!("bad.yaml:{line}:")), "no error at line {line}: {}", ran.err);
    }
    insta::assert_snapshot!("validate_errors", ran.shown());
    let served = run_in(folder.path(), &["serve", "--config", "bad.yaml"], b"").expect(2);
    assert_eq!((served.out, served.err), (ran.out, ran.err));
    for (name, content) in [("empty.yaml", ""), ("broken.yaml", "version: [1\nx"), ("list.yaml", "- 1\n")] {
        std::fs::write(folder.path().join(name), content).unwrap();
        let ran = run_in(folder.path(), &["validate", "--config", name], b"").expect(2);
        assert!(ran.err.contains(name), "{ran:?}");
    }
    let ran = run_in(folder.path(), &["validate", "--config", "nowhere.yaml"], b"").expect(2);
    assert!(ran.err.contains("nowhere.yaml"), "{ran:?}");
}

#[test]
fn the_schema_of_the_configuration_is_a_json_schema_that_knows_good_from_bad() {
    let ran = run(&["schema", "config"]).expect(0);
    let schema: Value = serde_json::from_str(&ran.out).unwrap();
    assert!(schema["$schema"].is_string());
    assert!(jsonschema::meta::is_valid(&schema));
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good = json!({"version": 1, "auth": {"mode": "none"}, "backends": {"d": {"kind": "demo"}}, "models": {"*": {"targets": [{"backend": "d"}]}}});
    assert!(validator.is_valid(&good));
    for (path, bad) in [
        ("/version", json!(2)),
        ("/auth/mode", json!("nobody")),
        ("/backends/d/kind", json!("opnai")),
        ("/models", json!({})),
    ] {
        let mut wrong = good.clone();
        *wrong.pointer_mut(path).unwrap() = bad;
        assert!(!validator.is_valid(&wrong), "{wrong}");
    }
    let mut misspelt = good;
    misspelt["lisen"] = json!({});
    assert!(!validator.is_valid(&misspelt));
    run(&["schema", "nothing"]).expect(2);
}

// ------------------------------------------------------------------------------------- certs

const CERTS: [&str; 5] = ["ca.pem", "server.pem", "server.key", "client.pem", "client.key"];

/// What was said between two lines, without them.
#[track_caller]
fn said_between<'o>(out: &'o str, before: &str, after: &str) -> &'o str {
    let (_, rest) = out.split_once(before).unwrap_or_else(|| panic!("no `{before}` in {out}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no `{after}` in {rest}")).0
}

#[test]
fn certs_dev_makes_what_listen_tls_takes() {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("it's made/certs");
    let at = certs.to_str().unwrap();
    let ran =
        run_in(folder.path(), &["certs", "dev", "it's made/certs", "--host", "gateway.test", "--host", "::1"], b"");
    let ran = ran.expect(0);
    for name in CERTS {
        let mode = std::fs::metadata(certs.join(name)).unwrap().permissions().mode() & 0o777;
        let expected = if name.ends_with(".key") { mode == 0o600 } else { mode & 0o022 == 0 };
        assert!(expected, "{name} {mode:o}");
        assert!(ran.out.contains(name), "{}", ran.out);
    }
    assert_eq!(std::fs::read_dir(&certs).unwrap().count(), CERTS.len());
    assert!(!ran.out.contains("PRIVATE KEY"), "{}", ran.out);

    // The snippet is YAML that loads as it is printed, its comment taken in too.
    let snippet = said_between(&ran.out, "For the configuration:\n\n", "\n\n").replace("# client_ca", "client_ca");
    let rest = "auth: {mode: none}\nbackends: {d: {kind: demo}}\nmodels: {\"*\": {targets: [{backend: d}]}}\n";
    let yaml = format!("version: 1\n{snippet}\n{rest}");
    std::fs::write(folder.path().join("p.yaml"), &yaml).unwrap();
    let valid = run_in(folder.path(), &["validate", "--config", "p.yaml"], b"").expect(0);
    assert!(valid.out.contains("p.yaml is valid") && !valid.out.contains("warning"), "{valid:?}");
    for (good, bad, said) in [
        ("server.key", "client.key", "does not fit the certificate"),
        ("server.pem", "nowhere.pem", "cannot be opened"),
        ("ca.pem", "client.key", "holds no certificate, but a private key"),
    ] {
        std::fs::write(folder.path().join("p.yaml"), yaml.replace(good, bad)).unwrap();
        let wrong = run_in(folder.path(), &["validate", "--config", "p.yaml"], b"").expect(2);
        assert!(wrong.err.contains(said) && wrong.err.contains(bad), "{wrong:?}");
    }
    // And for a backend.
    let backend = format!(
        "version: 1\nauth: {{mode: none}}\nbackends:\n  d:\n    kind: vllm\n    base_url: https://127.0.0.1:1\n    tls: \
         {{ca: \"{at}/ca.pem\", certificate: \"{at}/client.pem\", key: \"{at}/client.key\"}}\nmodels: {{\"*\": {{targets: \
         [{{backend: d}}]}}}}\n"
    );
    std::fs::write(folder.path().join("p.yaml"), backend).unwrap();
    run_in(folder.path(), &["validate", "--config", "p.yaml"], b"").expect(0);
}

#[test]
fn certs_dev_replaces_nothing_unless_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let dev = |more: &[&str]| run_in(folder.path(), &[&["certs", "dev", "."], more].concat(), b"");
    std::fs::write(path("client.key"), "mine").unwrap();
    let refused = dev(&[]).expect(2);
    assert!(refused.out.is_empty() && refused.err.starts_with("error: "), "{refused:?}");
    assert!(refused.err.contains("client.key is there already") && refused.err.contains("--force"), "{refused:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    // A link is there, too, wherever it leads; `--force` replaces the link, not what it leads to.
    std::fs::remove_file(path("client.key")).unwrap();
    std::fs::write(path("elsewhere"), "mine").unwrap();
    std::os::unix::fs::symlink("elsewhere", path("server.key")).unwrap();
    std::os::unix::fs::symlink("nowhere", path("ca.pem")).unwrap();
    let refused = dev(&[]).expect(2);
    assert!(refused.err.contains("ca.pem") && refused.err.contains("server.key are there already"), "{refused:?}");
    dev(&["--force"]).expect(0);
    assert_eq!(std::fs::read_to_string(path("elsewhere")).unwrap(), "mine");
    assert!(!path("nowhere").exists());
    let before: Vec<_> = CERTS.iter().map(|name| std::fs::read(path(name)).unwrap()).collect();
    dev(&[]).expect(2);
    assert!(CERTS.iter().zip(&before).all(|(name, before)| std::fs::read(path(name)).unwrap() == *before));
    dev(&["--force"]).expect(0);
    assert!(CERTS.iter().zip(&before).all(|(name, before)| std::fs::read(path(name)).unwrap() != *before));
    assert_eq!(std::fs::metadata(path("server.key")).unwrap().permissions().mode() & 0o777, 0o600);

    for wrong in [&["--host", "a b"][..], &["--host", ""], &["--host", "*.10.0.0.1"], &["--host", "http://a"]] {
        dev(wrong).expect(2);
    }
    run(&["certs"]).expect(2);
    run(&["certs", "dev"]).expect(2);
    let help = run(&["certs", "dev", "--help"]).expect(0);
    assert!(help.out.contains("Example:\n  portcullis certs dev "), "{}", help.out);
    let failed = run_in(folder.path(), &["certs", "dev", "/proc/nowhere"], b"").expect(3);
    assert!(failed.err.contains("/proc/nowhere"), "{failed:?}");
}

// ------------------------------------------------------------------------------------- serve and health

#[test]
fn serve_says_what_keeps_it_from_serving() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let yaml = |main: &str, admin: &str, more: &str| {
        format!(
            "version: 1\nlisten: {{address: \"{main}\"}}\nadmin: {{address: \"{admin}\"}}\nauth: {{mode: none}}\nbackends: {{d: {{kind: demo}}}}\nmodels: {{\"*\": {{targets: [{{backend: d}}]}}}}\n{more}"
        )
    };
    for (what, content) in [
        (address.to_string(), yaml(&address.to_string(), "127.0.0.1:0", "")),
        (address.to_string(), yaml("127.0.0.1:0", &address.to_string(), "")),
        ("audit".to_owned(), yaml("127.0.0.1:0", "127.0.0.1:0", "audit: {path: /proc/nowhere/audit.jsonl}")),
    ] {
        std::fs::write(folder.path().join("p.yaml"), content).unwrap();
        let ran = run_in(folder.path(), &["serve", "--config", "p.yaml"], b"").expect(3);
        assert!(ran.err.contains(&what) && ran.err.starts_with("error: "), "{ran:?}");
        assert!(!ran.out.contains("listening on"), "{ran:?}");
    }
}

#[test]
fn health_tells_by_its_exit_code() {
    let gate = Gate::default();
    let upstream = Upstream::that(Script::new().gate(&gate));
    let gateway = Setup::of(&upstream).start();
    let ready = format!("http://{}/readyz", gateway.admin);
    assert_eq!(run(&["health", &ready]).expect(0).out, "ready\n");
    run(&["health", &format!("http://localhost:{}/readyz", gateway.admin.port())]).expect(0);
    let ran = run(&["health", &format!("http://{}/nothing", gateway.admin)]).expect(3);
    assert!(ran.err.contains("404"), "{ran:?}");
    let _waiting = gateway.begin_chat(&judged());
    eventually("a request under way", || upstream.count() == 1);
    gateway.terminate();
    eventually("draining", || gateway.probe("/readyz", &[]).status() == 503);
    let ran = run(&["health", &ready]).expect(3);
    assert!(ran.err.contains("not ready"), "{ran:?}");
    gate.open();
    let gone = nowhere();
    let ran = run(&["health", &format!("http://{gone}/readyz")]).expect(3);
    assert!(ran.err.contains(&gone.to_string()), "{ran:?}");
    run(&["health", "not a url"]).expect(2);
}

// ------------------------------------------------------------------------------------- demo, and the rest

#[test]
fn demo_shows_every_behaviour_and_ends_by_itself() {
    let asked = Instant::now();
    let shown = run(&["demo"]).expect(0);
    assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
    assert!(!shown.out.contains('\u{1b}'), "colour without a terminal");
    for word in ["accepted", "rejected", "refused", "failed", "unchecked", "schema_violation", "output_not_json"] {
        assert!(shown.out.contains(word), "{word}\n{}", shown.out);
    }
    let list = run(&["demo", "--list"]).expect(0).out;
    let behaviours: Vec<&str> = list.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert!(behaviours.len() > 10, "{list}");
    let missing: Vec<&&str> = behaviours
        .iter()
        .filter(|name| !shown.out.lines().any(|line| line.split_whitespace().any(|word| word == **name)))
        .collect();
    assert!(missing.is_empty(), "not shown: {missing:?}\n{}", shown.out);
}

#[test]
fn every_command_explains_itself_with_an_example() {
    for command in COMMANDS {
        let ran = run(&[command, "--help"]).expect(0);
        assert!(
            ran.out.contains("Example:\n  portcullis ") || ran.out.contains(&format!("portcullis {command}")),
            "{}",
            ran.out
        );
        assert!(ran.out.contains("Example:"), "{}", ran.out);
        run(&[command, "--no-such-option"]).expect(2);
    }
    let version = run(&["--version"]).expect(0).out;
    assert_eq!(version, format!("portcullis {}\n", env!("CARGO_PKG_VERSION")));
    let bare = run(&[]).expect(2);
    assert!(COMMANDS.iter().all(|command| bare.err.contains(command)), "{bare:?}");
    run(&["no-such-command"]).expect(2);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(run(&["completions", shell]).expect(0).out.contains("portcullis"), "{shell}");
    }
    run(&["completions", "no-such-shell"]).expect(2);
}

/// `portcullis schema config | head -1`
#[test]
fn a_reader_that_has_gone_is_no_fault() {
    let desk = desk();
    let mut faults = Vec::new();
    for arguments in [
        &["schema", "config"][..],
        &["demo", "--list"],
        &["completions", "bash"],
        &["check", "--schema", "person.schema.json", "good.txt"],
        &["--help"],
    ] {
        let mut command = portcullis();
        command.args(arguments).current_dir(desk.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let done = child.wait_with_output().unwrap();
        let err = text(&done.stderr);
        if err.contains("panicked") || done.status.code() == Some(101) {
            faults.push(format!("{arguments:?}: {err}"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
