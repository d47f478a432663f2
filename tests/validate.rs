//! Policies as `validate` and `schema` tell of them, as a black box.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::path::Path;

use assert_cmd::Command;

const CONFIG: &str = "version: 1\nauth: {mode: none}\nbackends: {demo: {kind: demo}}\nmodels: {\"*\": {targets: [{backend: demo}]}}\npolicies: policies\n";

/// A folder with a configuration and the policy of invoices that the design shows.
fn desk() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("policies/invoices");
    std::fs::create_dir_all(&own).unwrap();
    for file in std::fs::read_dir("tests/policies/invoices").unwrap() {
        let path = file.unwrap().path();
        std::fs::copy(&path, own.join(path.file_name().unwrap())).unwrap();
    }
    std::fs::write(folder.path().join("portcullis.yaml"), CONFIG).unwrap();
    folder
}

fn validate(folder: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    let out = command.args(["validate", "--config", "portcullis.yaml"]).current_dir(folder).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

fn edit(folder: &Path, file: &str, from: &str, to: &str) {
    let path = folder.join("policies/invoices").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn validate_lists_policies_and_what_their_controls_came_to() {
    let desk = desk();
    let (code, out, err) = validate(desk.path());
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.contains("policy invoices: 6 gates; 7 controls, all of which hold"), "{out}");
}

#[test]
fn a_control_that_does_not_hold_ends_with_two() {
    let desk = desk();
    edit(desk.path(), "policy.yaml", "output_tokens: 2000", "output_tokens: 3000");
    let (code, _, err) = validate(desk.path());
    assert_eq!(code, Some(2), "{err}");
    let told = "policies/invoices/controls.jsonl:7:1: the control `too long` does not hold: expected `rejected`, found `accepted`";
    assert!(err.contains(told), "{err}");
}

#[test]
fn a_gate_without_a_control_is_a_warning_and_an_error_where_controls_are_required() {
    let desk = desk();
    edit(desk.path(), "controls.jsonl", "\"gate\": \"affordable\"", "\"code\": \"contract_rejected\"");
    let missing = "policy `invoices` is not proved: no control must fail at gate `affordable`";
    let (code, out, err) = validate(desk.path());
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("warning: ") && out.contains(missing), "{out}");
    std::fs::write(desk.path().join("portcullis.yaml"), format!("{CONFIG}controls: required\n")).unwrap();
    let (code, _, err) = validate(desk.path());
    assert_eq!(code, Some(2));
    assert!(err.contains(missing), "{err}");
}

#[test]
fn every_problem_of_every_policy_is_told_at_once() {
    let desk = desk();
    let second = desk.path().join("policies/second");
    std::fs::create_dir_all(&second).unwrap();
    std::fs::write(second.join("policy.yaml"), "version: 1\nmatch: byname\nmodus: x\n").unwrap();
    std::fs::write(second.join("controls.jsonl"), "{}\n").unwrap();
    std::fs::create_dir_all(desk.path().join("policies/third")).unwrap();
    edit(desk.path(), "policy.yaml", "within: bill", "within: bil");
    let (code, _, err) = validate(desk.path());
    assert_eq!(code, Some(2));
    for told in [
        "policies/invoices/policy.yaml:14:13: gate `grounded`: region `bil` is not declared; declared are `bill`",
        "policies/second/policy.yaml:2:8: `match` must be `by_name`",
        "policies/second/policy.yaml:3:1: the policy has no member `modus`",
        "policies/second/controls.jsonl:1:1: the control lacks the member `name`",
        "policies/third: holds no `policy.yaml`",
    ] {
        assert!(err.contains(told), "{told}\n{err}");
    }
    assert!(!err.contains("`retry.on`"), "no error follows from another\n{err}");
}

#[test]
fn schema_prints_the_formats_for_editors() {
    for (of, member) in [("policy", "gates"), ("controls", "expect"), ("audit", "request_id")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
        let out = command.args(["schema", of]).output().unwrap();
        let schema: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(schema["properties"].get(member).is_some(), "{of}");
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    }
}
