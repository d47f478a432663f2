//! What somebody could send, or write into a policy, to keep a gateway busy: it ends in time, and as a refusal.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;
use support::*;

/// What a build without optimizations may take on a busy machine. What is meant by an end in time is a second or two.
const IN_TIME: Duration = Duration::from_secs(60);
const LARGE: usize = 1 << 20;

/// As many copies of a text as make a megabyte.
fn large(text: &str) -> String {
    text.repeat(LARGE / text.len())
}

/// A gateway with one of the example policies.
fn example(upstream: &Upstream, name: &str) -> Gateway {
    let mut setup = Setup::of(upstream).line("policies: policies");
    for entry in std::fs::read_dir(in_repository(&format!("policies/{name}"))).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_str().unwrap();
        if file != "controls.jsonl" {
            setup = setup.policy_file(name, file, &std::fs::read_to_string(&path).unwrap());
        }
    }
    setup.start()
}

/// Asks with a large message, and holds that the answer comes in time.
#[track_caller]
fn asked(gateway: &Gateway, policy: &str, message: &str) -> Answer {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": message}]}).to_string();
    let start = Instant::now();
    let answer = gateway.chat_with(&[("x-portcullis-policy", policy)], &body);
    let (taken, begins) = (start.elapsed(), message.chars().take(40).collect::<String>());
    assert!(taken < IN_TIME, "{begins:?} took {taken:?}");
    answer
}

// -------------------------------------------------------------------------------------------- what callers can send

#[test]
fn a_ticket_of_a_megabyte_is_judged_in_time() {
    let ticket = json!({"ticket_id": "HD-1234", "category": "unknown", "urgency": "unknown", "requested_action": "Please do it."});
    let upstream = Upstream::that(Script::says(&ticket.to_string()));
    let gateway = example(&upstream, "tickets");
    let half = |text: &str| text.repeat(LARGE / 2 / text.len());
    let (asks, quotes) = (half("Please do it.\n"), half("> never mind\n"));
    for (rest, outcome) in [
        (large("Please do it. "), "accepted"),
        (format!("{asks}{quotes}"), "accepted"),
        // Each of very many occurrences is before words that take it back, behind very many that do not.
        (format!("{asks}{quotes}\nNever mind."), "rejected"),
        (format!("{quotes}Never mind.\n{asks}"), "accepted"),
        (large("and Please do it. "), "rejected"),
        (large("\"Please do it.\" "), "rejected"),
        (large("\""), "rejected"),
        (large("(\u{201c}"), "rejected"),
        (large("category is about the "), "rejected"),
        (large("not at all that very urgent "), "rejected"),
        (large("Please do it"), "rejected"),
        (large("\n"), "rejected"),
    ] {
        let answer = asked(&gateway, "tickets", &format!("Ticket: HD-1234\n{rest}"));
        assert_eq!(answer.outcome(), outcome, "{:?}: {answer}", rest.chars().take(40).collect::<String>());
    }
    let other = asked(&gateway, "tickets", &(large("Ticket: HD-1234\n") + "Please do it."));
    assert_eq!(other.outcome(), "accepted", "{other}");
}

#[test]
fn an_order_of_a_megabyte_is_judged_in_time() {
    let order = json!({
        "status": "accepted",
        "items": [{"sku": "MARGHERITA", "quantity": 1, "size": "medium", "additions": [], "removals": [], "special_instructions": "well done"}],
        "constraints": {"allergens": [], "dietary": []}, "clarification_question": null, "reasons": [],
    });
    let upstream = Upstream::that(Script::says(&order.to_string()));
    let gateway = example(&upstream, "orders");
    for (words, outcome) in [
        ("I am allergic to peanuts and eggs and ", "clarified"),
        ("A small margherita, a large one, ", "clarified"),
        ("not allergic to ", "clarified"),
        ("\u{e9}\u{201c}\u{2014}\u{fb01} ", "clarified"),
    ] {
        let answer = asked(&gateway, "orders", &large(words));
        assert_eq!(answer.outcome(), outcome, "{words}: {answer}");
        let made: Value = serde_json::from_str(&answer.content()).unwrap();
        assert_eq!((&made["status"], &made["items"]), (&json!("needs_clarification"), &json!([])), "{answer}");
    }
}

// --------------------------------------------------------------------------------------- what a policy can be made of

/// What is said of a policy that must not load.
fn refused(members: &str) -> String {
    let start = Instant::now();
    let said = Setup::of(&Upstream::good()).policy("p", &format!("match: by_name\n{members}")).refused();
    assert!(start.elapsed() < IN_TIME, "{members}");
    said
}

#[test]
fn a_pattern_that_is_too_large_never_loads() {
    for bomb in [r"(?:a{1000}){1000}", r"(?:(?:\\w{0,90}x){0,90}y){1,90}", r"\\pL{60000}"] {
        for (members, at) in [
            (format!(r#"facts: {{f: {{pattern: "{bomb}"}}}}"#), "`f`"),
            (format!(r#"facts: {{f: {{terms: {{a: "{bomb}"}}}}}}"#), "`f`"),
            (format!(r#"facts: {{f: {{terms: {{a: b}}, cues: ["{bomb}"]}}}}"#), "`f`"),
            (format!(r#"facts: {{f: {{terms: {{a: b}}, ignore: ["{bomb}"]}}}}"#), "`f`"),
            (format!(r#"facts: {{f: {{terms: {{a: b}}, phrases: ["{bomb} {{terms}}"]}}}}"#), "`f`"),
            (format!(r#"regions: {{r: {{from: "{bomb}", through: end}}}}"#), "`r`"),
            (format!(r#"source: {{page_break: "{bomb}"}}"#), "page_break"),
            (format!(r#"gates: [{{name: g, quote: "$.a", only: "{bomb}"}}]"#), "`g`"),
            (format!(r#"gates: [{{name: g, quote: "$.a", outside: ["{bomb}"]}}]"#), "`g`"),
            (format!(r#"gates: [{{name: g, quote: "$.a", not_before: ["{bomb}"]}}]"#), "`g`"),
            (format!(r#"gates: [{{name: g, text: {{path: "$.a", forbid: "{bomb}"}}}}]"#), "`g`"),
            (format!(r#"gates: [{{name: g, text: {{path: "$.a", require: "{bomb}"}}}}]"#), "`g`"),
            (format!(r#"gates: [{{name: g, rule: 'output.a.matches("{bomb}")'}}]"#), "`g`"),
        ] {
            let said = refused(&members);
            assert!(said.contains("policy.yaml:3:") && said.contains(at), "{members}\n{said}");
            assert!(
                said.contains("the pattern takes more than") || said.contains("the pattern is too large"),
                "{said}"
            );
            assert!(said.len() < 2_000, "{said}");
        }
    }
    // What is no pattern of linear time is none at all.
    for pattern in [r"(?=a)b", r"(a)\\1", "(a"] {
        let said = refused(&format!(r#"gates: [{{name: g, quote: "$.a", only: "{pattern}"}}]"#));
        assert!(said.contains("not a regular expression") && said.trim_end().lines().count() < 6, "{said}");
    }
}

#[test]
fn a_rule_that_does_too_much_never_loads_or_ends_as_a_violation() {
    let deep = format!("{}true{}", "(true && ".repeat(60), ")".repeat(60));
    let long = format!("size(output.a) > 0 {}", "&& size(output.a) > 0 ".repeat(400));
    for rule in [&*deep, &*long] {
        let said = refused(&format!("gates: [{{name: g, rule: \"{rule}\"}}]"));
        assert!(said.contains("`g`") && said.len() < 16_000, "{said}");
    }
    let answer = json!({"a": vec!["aa"; 400]}).to_string();
    let upstream = Upstream::that(Script::says(&answer));
    for rule in [
        "output.a.all(a, output.a.all(b, output.a.all(c, output.a.all(d, a + b + c + d != ''))))",
        "output.a.all(a, output.a.all(b, source[0].contains(a + b) || true))",
        "size(source[0].split('a')) > 0 && size(source[0].words()) > 0 && source[0].replace('a', 'bb') != ''",
    ] {
        let policy = format!("match: by_name\nsource: {{roles: [user]}}\ngates: [{{name: g, rule: \"{rule}\"}}]");
        let gateway = Setup::of(&upstream).policy("p", &policy).start();
        let body = json!({
            "model": "m", "messages": [{"role": "user", "content": large("a b ")}],
            "response_format": {"type": "json_object"},
        });
        let start = Instant::now();
        let answer = gateway.chat_with(&[("x-portcullis-policy", "p")], &body.to_string());
        assert!(start.elapsed() < IN_TIME, "{rule}");
        answer.assert_error(422, "contract_violation", "contract_rejected");
        let violations = answer.json()["error"]["portcullis"]["violations"].clone();
        assert!(violations[0]["message"].as_str().unwrap().contains("work limit"), "{rule}: {violations}");
    }
}

#[test]
fn a_template_that_does_too_much_never_loads_or_says_nothing() {
    let upstream = Upstream::that(Script::says(&json!({"a": vec!["word"; 5_000]}).to_string()));
    let loops = "{% for a in output.a %}{% for b in output.a %}{% for c in output.a %}{{ a }}{{ b }}{{ c }}{% endfor %}{% endfor %}{% endfor %}";
    let policy =
        format!("match: by_name\ngates: [{{name: g, rule: \"false\", on_violation: clarify, say: \"{loops}\"}}]");
    let gateway = Setup::of(&upstream).policy("p", &policy).start();
    let body = request(r#""response_format":{"type":"json_object"}"#);
    let start = Instant::now();
    let answer = gateway.chat_with(&[("x-portcullis-policy", "p")], &body);
    assert!(start.elapsed() < IN_TIME);
    // The verdict stands; only the words are others.
    assert_eq!((answer.status(), answer.outcome()), (200, "clarified"), "{answer}");
    let said = answer.json()["choices"][0]["message"].clone();
    assert_eq!(said["content"], Value::Null);
    assert!(said["refusal"].as_str().unwrap().len() < 32 << 10, "{said}");
    for say in ["{% set a = 1 %}", "{% macro a() %}{% endmacro %}", "{% include 'a' %}", "{{ 'a' * 100000 }}{% for"] {
        let said = refused(&format!("gates: [{{name: g, rule: \"false\", say: \"{say}\"}}]"));
        assert!(said.contains("`g`") || said.contains("say"), "{say}: {said}");
    }
}
