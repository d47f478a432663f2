//! What README.md says is made true here: its commands, its blocks, its table of outcomes and its links.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use portcullis::wire::fault::Code;
use portcullis::wire::fault::Kind;
use serde_json::Value;
use support::*;

fn readme() -> String {
    std::fs::read_to_string(in_repository("README.md")).unwrap()
}

/// The text inside of every fence, with the fence's language.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let inside: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language.to_owned(), inside.join("\n") + "\n"));
        }
    }
    blocks
}

/// The one block in `language` that holds `word`.
#[track_caller]
fn block(language: &str, word: &str) -> String {
    let blocks = blocks(&readme());
    let mut found = blocks.iter().filter(|(other, text)| other == language && text.contains(word));
    let (_, text) = found.next().unwrap_or_else(|| panic!("no `{language}` block holds `{word}`"));
    assert!(found.next().is_none(), "two `{language}` blocks hold `{word}`");
    text.clone()
}

/// What stands between backticks outside of the fences.
fn spans(text: &str) -> Vec<String> {
    let mut fenced = false;
    let prose: Vec<&str> = text
        .lines()
        .filter(|line| {
            let fence = line.starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        })
        .collect();
    prose.join(" ").split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The part of `text` between two others.
#[track_caller]
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no `{before}` in {text}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no `{after}` in {rest}")).0
}

#[test]
fn the_promised_commands_stand_on_lines_of_their_own() {
    for command in ["cargo run --release -- demo", "cargo test"] {
        let lines = readme().lines().filter(|line| *line == command).count();
        assert_eq!(lines, 1, "`{command}`");
    }
}

#[test]
fn the_configuration_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("portcullis.yaml");
    std::fs::write(&file, block("yaml", "version: 1")).unwrap();
    let mut command = portcullis();
    let done = command.args(["validate", "--config"]).arg(&file).env("OPENAI_API_KEY", "dummy").output().unwrap();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success() && out.contains("is valid"), "{out}{err}");
    assert!(!out.contains("warning"), "{out}");
}

/// The gateway that `serve` starts in a clone, but on free ports and in haste.
#[track_caller]
fn of_a_clone() -> Gateway {
    let clone = std::fs::read_to_string(in_repository("config/portcullis.yaml")).unwrap();
    let clone = clone.replace("../policies ", &format!("{} ", in_repository("policies").display()));
    let listen =
        "listen: {address: \"127.0.0.1:0\", hold: {keepalive_after: 20ms}}\nadmin: {address: \"127.0.0.1:0\"}\n";
    Gateway::start(&format!("{clone}\n{listen}"))
}

/// The names of the gateway's own headers in an answer, less `x-portcullis-`.
fn own(head: &Head) -> Vec<&str> {
    let mut names: Vec<&str> = head.headers.iter().filter_map(|(name, _)| name.strip_prefix("x-portcullis-")).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_first_request_gets_bare_json_and_the_second_an_error() {
    let gateway = of_a_clone();
    let curl = block("sh", "demo/fenced");
    let path = between(&curl, "http://127.0.0.1:8787", " ");
    let body = between(&curl, "-d '", "'\n");
    let asked: Value = serde_json::from_str(body).unwrap();
    let post = |body: &str| gateway.call("POST", path, &[], body.as_bytes());

    let answer = post(body);
    assert_eq!((answer.status(), answer.outcome()), (200, "accepted"), "{answer}");
    let content = answer.content();
    assert!(content.starts_with('{') && content.ends_with('}'), "{content}");
    let schema = &asked["response_format"]["json_schema"]["schema"];
    let instance: Value = serde_json::from_str(&content).unwrap();
    assert!(jsonschema::validator_for(schema).unwrap().is_valid(&instance), "{content}");

    let model = asked["model"].as_str().unwrap();
    assert_eq!(model, "demo/fenced");
    let rejected = post(&body.replace(model, "demo/wrong_type"));
    assert_eq!((rejected.status(), rejected.code().as_str()), (422, "schema_violation"), "{rejected}");
    let violation = &rejected.json()["error"]["portcullis"]["violations"][0];
    assert!(violation["path"].as_str().is_some_and(|path| path.len() > 1), "{violation}");
    assert!(violation["message"].as_str().is_some_and(|message| !message.is_empty()), "{violation}");
}

#[test]
fn the_order_is_asked_back_about_as_the_readme_says() {
    let gateway = of_a_clone();
    let curl = block("sh", "demo/order_forgotten");
    let path = between(&curl, "http://127.0.0.1:8787", " ");
    let body = between(&curl, "-d '", "'\n");
    let policy = between(&curl, "x-portcullis-policy: ", "'");
    let post = |body: &str| gateway.call("POST", path, &[("x-portcullis-policy", policy)], body.as_bytes());
    let order = |answer: &Answer| serde_json::from_str::<Value>(&answer.content()).unwrap();
    let asked = post(body);
    let told = order(&asked);
    assert_eq!((asked.status(), asked.outcome()), (200, "clarified"), "{asked}");
    assert_eq!(told["status"], "needs_clarification");
    assert_eq!(told["constraints"]["allergens"], serde_json::json!(["sesame"]));
    assert!(readme().contains(told["clarification_question"].as_str().unwrap()), "{told}");
    let said = |model: &str, words: &str| {
        let body: Value = serde_json::from_str(body).unwrap();
        let old = body["messages"][0]["content"].as_str().unwrap().to_owned();
        post(&body.to_string().replace("demo/order_forgotten", model).replace(&old, words))
    };
    let rejected = said("demo/order_allergen", "I have a peanut allergy. Prawn noodles, please.");
    assert_eq!(
        (rejected.outcome(), order(&rejected)["status"].as_str()),
        ("rejected", Some("rejected_safety")),
        "{rejected}"
    );
    let accepted = said("demo/order_right", "A large iced latte with vanilla, please.");
    assert_eq!(accepted.outcome(), "accepted", "{accepted}");
}

#[test]
fn headers_tell_what_is_known_when_they_go_out() {
    let gateway = of_a_clone();
    let request = |model: &str, rest: &str| {
        format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"hi"}}]{rest}}}"#)
    };
    let judged = format!(",{}", format());
    let tools = r#","tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object"}}}],"stream":true"#;
    let all = ["attempts", "backend", "native", "outcome", "overhead-us", "request-id"];
    let bound = ["attempts", "backend", "native", "outcome", "overhead-us", "policy", "request-id"];
    let unasked = ["attempts", "outcome", "overhead-us", "request-id"];
    let without_outcome = ["attempts", "backend", "native", "overhead-us", "request-id"];
    for (what, body, names) in [
        ("accepted", request("demo", &judged), &all[..]),
        ("rejected", request("demo/wrong_type", &judged), &all),
        ("relayed", request("demo", ""), &all),
        ("bound", request("demo", r#","portcullis":{"policy":["orders"]}"#), &bound),
        ("denied", request("demo", r#","response_format":{"type":"json_schema"}"#), &unasked),
        ("sifted", request("demo", tools), &without_outcome),
        ("kept alive", request("demo/slow", &format!(r#"{judged},"stream":true"#)), &["request-id"]),
    ] {
        let head = gateway.begin_chat(&body).head();
        assert_eq!(own(&head), names, "{what}: {head:?}");
    }
    let told = spans(&readme()).into_iter().filter_map(|span| Some(span.strip_prefix("x-portcullis-")?.to_owned()));
    let mut every: Vec<&str> = bound.into_iter().chain(["dropped"]).collect();
    every.sort_unstable();
    assert_eq!(told.collect::<BTreeSet<_>>().iter().collect::<Vec<_>>(), every);
}

#[test]
fn the_python_compiles() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("sdk.py"), block("python", "OpenAI(")).unwrap();
    let mut python = Command::new("python3");
    let done = python.args(["-m", "py_compile", "sdk.py"]).current_dir(folder.path()).output();
    let done = done.expect("python3 is needed to check what README.md says in Python");
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn every_command_is_there_and_none_is_left_out() {
    let readme = readme();
    let mut told = BTreeSet::new();
    let lines = blocks(&readme).into_iter().flat_map(|(_, text)| text.lines().map(str::to_owned).collect::<Vec<_>>());
    let commands = lines.chain(spans(&readme)).filter_map(|line| {
        let rest = line.strip_prefix("portcullis ").or_else(|| line.strip_prefix("cargo run --release -- "))?;
        Some(rest.to_owned())
    });
    for command in commands {
        let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
        let names: Vec<&str> = command.split(' ').take_while(is_name).collect();
        let done = portcullis().args(&names).arg("--help").output().unwrap();
        let help = text(&done.stdout);
        assert!(done.status.success(), "`{command}`: {}", text(&done.stderr));
        for option in command.split(' ').filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "`{command}`: {help}");
        }
        told.insert(names[0].to_owned());
    }
    let help = text(&portcullis().arg("--help").output().unwrap().stdout);
    let names = between(&help, "Commands:\n", "\n\n").lines().filter_map(|line| line.split_whitespace().next());
    let listed: BTreeSet<String> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    assert_eq!(told, listed);
}

/// The codes in the table of outcomes, each under the status that stands before it.
#[test]
fn every_code_comes_with_its_status() {
    let readme = readme();
    let table = between(&readme, "| outcome |", "\n\n");
    let kinds: BTreeSet<&str> = Code::ALL.iter().map(|code| code.kind().as_str()).collect();
    let mut told = BTreeSet::new();
    for row in table.lines() {
        let mut status = None;
        for word in row.split(|c: char| c.is_whitespace() || ";:,".contains(c)) {
            status = word.parse::<u16>().ok().or(status);
            let Some(name) = word.strip_prefix('`').and_then(|word| word.strip_suffix('`')) else { continue };
            if let Some(code) = Code::ALL.iter().find(|code| code.as_str() == name) {
                assert_eq!(status, Some(code.status().as_u16()), "`{name}`");
                told.insert(*code);
            } else {
                let other = [
                    "content",
                    "arguments",
                    "message.refusal",
                    "content_filter",
                    "message.portcullis",
                    "questions",
                    "violations",
                ]
                .contains(&name);
                assert!(other || kinds.contains(name), "`{name}` is no code");
            }
        }
    }
    let all = Code::ALL.iter().filter(|code| matches!(code.kind(), Kind::Contract | Kind::Upstream));
    let missing: Vec<&str> = all.filter(|code| !told.contains(*code)).map(|code| code.as_str()).collect();
    assert!(missing.is_empty(), "not told: {missing:?}");
}

#[test]
fn every_file_that_is_named_is_there() {
    let readme = readme();
    let linked = readme.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link.to_owned());
    let is_file = |span: &String| {
        let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
        plain && [".md", ".yaml", ".toml", ".sh", ".py", ".rs"].iter().any(|end| span.ends_with(end))
    };
    let files: BTreeSet<String> = linked.chain(spans(&readme).into_iter().filter(is_file)).collect();
    for name in ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/performance.md"] {
        assert!(files.contains(name), "{name} is not named");
    }
    for file in files {
        assert!(in_repository(&file).is_file(), "{file} is not there");
    }
}

#[test]
fn every_kind_of_backend_is_named() {
    let readme = readme();
    let told: BTreeSet<String> = spans(between(&readme, "Backend kinds so far:", "\n\n")).into_iter().collect();
    let schema = portcullis().args(["schema", "config"]).output().unwrap();
    let schema: Value = serde_json::from_slice(&schema.stdout).unwrap();
    let kinds = schema["$defs"]["Backend"]["properties"]["kind"]["oneOf"].as_array().unwrap();
    let served: BTreeSet<String> = kinds.iter().map(|kind| kind["const"].as_str().unwrap().to_owned()).collect();
    assert_eq!(told, served);
}
