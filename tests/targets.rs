//! Targets, deadlines, credentials and cancellation as a black box: which backend is asked when, and what that costs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;
use support::*;

const FIRST_BYTE: &str = ", timeouts: {first_byte: 150ms}";

/// Two targets in this order: one that fails, one that is there.
fn two(first: SocketAddr, second: &Upstream, more: &str) -> Setup {
    Setup::new().backend("first", "openai", first, more).backend("second", "openai", second.address, "")
}

fn error(message: &str) -> String {
    format!(r#"{{"error":{{"message":{},"type":"server_error","param":null,"code":"busy"}}}}"#, quoted(message))
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

// ------------------------------------------------------------------------------------- the next target

#[test]
fn the_next_target_answers_where_another_could_do_better() {
    let (first, second) = (Upstream::good(), Upstream::good());
    let gateway = two(first.address, &second, FIRST_BYTE).audited().start();
    let busy = error("busy");
    let late = chunks("", "stop");
    let table: Vec<(&str, Script, &str)> = vec![
        ("429", Script::json(429, &busy), "rate_limited"),
        ("408", Script::json(408, &busy), "request_timeout"),
        ("500", Script::json(500, &busy), "server_error"),
        ("502", Script::answer(502, "content-type: text/html\r\n", "<html>bad gateway</html>"), "server_error"),
        ("503", Script::json(503, &busy), "server_error"),
        ("504", Script::json(504, &busy), "server_error"),
        ("529", Script::json(529, &busy), "server_error"),
        ("no first byte in time", Script::new().stall(), "first_byte_timeout"),
        ("an error in a 200", Script::json(200, &busy), "server_error"),
        ("an error in a 200, flat", Script::json(200, r#"{"code":"503","error":"busy"}"#), "server_error"),
        ("an empty answer", Script::says(""), "empty"),
        ("no choices", Script::json(200, r#"{"choices":[]}"#), "no_choices"),
        ("an empty stream", Script::streams(&late), "empty"),
        ("an error event", Script::streams(&[format!("data: {busy}\n\n")]), "server_error"),
        ("a finish reason of failure", Script::json(200, finished(GOOD, "error")), "finish_error"),
    ];
    for (index, (what, script, reason)) in table.iter().enumerate() {
        first.next(script.clone());
        let stream = what.contains("stream") || what.contains("event");
        let answer = gateway.chat(&if stream { judged_stream() } else { judged() });
        assert_eq!((answer.status(), answer.outcome()), (200, "accepted"), "{what}: {answer}");
        assert_eq!(answer.header("x-portcullis-attempts"), Some("2"), "{what}");
        assert_eq!(answer.header("x-portcullis-backend"), Some("second"), "{what}");
        assert_eq!((first.count(), second.count()), (index + 1, index + 1), "{what}");
        assert_eq!(first.call().text(), second.call().text(), "{what}: the second target got something else");
        let line = &gateway.audit(index + 1)[index];
        let failures = json!([{"backend": "first", "reason": reason}]);
        assert_eq!(
            (&line["failures"], &line["backend"], &line["attempts"]),
            (&failures, &json!("second"), &json!(2)),
            "{what}"
        );
    }
}

/// A stream of which only the calls are held moves on, too, as long as nothing of it is out.
#[test]
fn the_next_target_answers_a_stream_with_tools_of_which_nothing_is_out() {
    let tools = r#""stream":true,"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object"}}}]"#;
    let (first, second) = (Upstream::good(), Upstream::that(Script::streams(&chunks("Hello", "stop"))));
    let gateway = two(first.address, &second, "").line("audit: {path: audit.jsonl, required: false}").start();
    let event = format!("data: {}\n\n", error("busy"));
    first.next(Script::streams(&[&event]));
    let answer = gateway.chat(&request(tools));
    assert_eq!((answer.status(), first.count(), second.count()), (200, 1, 1), "{answer}");
    assert_eq!(answer.header("x-portcullis-backend"), Some("second"), "{answer}");
    assert!(answer.text().contains("Hello") && !answer.text().contains("busy"), "{answer}");
    let line = &gateway.audit(1)[0];
    assert_eq!(line["failures"], json!([{"backend": "first", "reason": "server_error"}]), "{line}");
    assert_eq!((&line["outcome"], &line["attempts"], &line["code"]), (&json!("accepted"), &json!(2), &Value::Null));

    let begun = chunks("Hello", "stop");
    first.next(Script::streams(&[&begun[..begun.len() - 2], &[event]].concat()));
    let answer = gateway.chat(&request(tools));
    assert_eq!((answer.status(), first.count(), second.count()), (200, 2, 1), "what is out stays: {answer}");
    assert!(answer.text().contains("busy"), "{answer}");
}

#[test]
fn the_next_target_answers_where_the_first_cannot_be_reached() {
    let second = Upstream::good();
    let gateway = two(nowhere(), &second, "").start();
    for body in [judged(), judged_stream(), request("")] {
        let answer = gateway.chat(&body);
        assert_eq!(answer.status(), 200, "{answer}");
        assert_eq!(answer.header("x-portcullis-attempts"), Some("2"), "{answer}");
    }
    let metrics = gateway.metrics();
    assert!(metrics.contains(r#"portcullis_upstream_failures_total{backend="first",reason="connect"} 3"#), "{metrics}");
}

#[test]
fn no_other_target_is_asked_where_that_would_change_nothing_or_cost_twice() {
    let (first, second) = (Upstream::good(), Upstream::good());
    let gateway = two(first.address, &second, "").start();
    let wrong = error("wrong");
    for (what, script, status, code) in [
        ("400", Script::json(400, &wrong), 400, "busy"),
        ("404", Script::json(404, &wrong), 404, "busy"),
        ("413", Script::json(413, &wrong), 413, "busy"),
        ("422", Script::json(422, &wrong), 422, "busy"),
        ("401", Script::json(401, &wrong), 502, "upstream_auth"),
        ("402", Script::json(402, &wrong), 502, "upstream_auth"),
        ("403", Script::json(403, &wrong), 502, "upstream_auth"),
        ("prose", Script::says("Hello"), 422, "output_not_json"),
        ("a broken schema", Script::says("{}"), 422, "schema_violation"),
        ("a cut answer", Script::json(200, finished(GOOD, "length")), 422, "output_truncated"),
        ("garbage", Script::json(200, "<html>"), 502, "upstream_protocol"),
        // proxy-026: it may have done the work, so it is not asked again, and nobody else is.
        ("the whole request read, no answer", Script::new().close(), 502, "upstream_protocol"),
        ("a reset", Script::new().reset(), 502, "upstream_protocol"),
        (
            "a cut answer body",
            Script::new().send("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{").close(),
            502,
            "upstream_protocol",
        ),
        ("no HTTP", Script::new().send("SSH-2.0-OpenSSH\r\n\r\n").close(), 502, "upstream_protocol"),
    ] {
        let before = first.count();
        first.next(script);
        let answer = gateway.chat(&judged());
        assert_eq!((answer.status(), answer.code().as_str()), (status, code), "{what}: {answer}");
        assert_eq!((first.count() - before, second.count()), (1, 0), "{what}");
        assert_eq!(answer.header("x-portcullis-attempts"), Some("1"), "{what}");
    }
}

/// proxy-026 on a connection that has served before, and proxy-028.
#[test]
fn a_lost_answer_costs_one_call() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    assert_eq!(gateway.chat(&judged()).status(), 200);
    upstream.next(Script::new().close());
    let answer = gateway.chat(&judged());
    answer.assert_error(502, "upstream_error", "upstream_protocol");
    assert_eq!((upstream.count(), answer.header("x-should-retry")), (2, Some("false")));
    upstream.next(Script::json(504, error("late")));
    let answer = gateway.chat(&judged());
    assert_eq!(
        (answer.status(), answer.header("x-should-retry"), upstream.count()),
        (504, Some("false"), 3),
        "{answer}"
    );
}

#[test]
fn a_backend_that_closes_between_requests_is_no_failure() {
    let upstream = Upstream::that(Script::says(GOOD).close());
    let gateway = Setup::of(&upstream).start();
    for _ in 0..5 {
        let answer = gateway.chat(&judged());
        assert_eq!(answer.status(), 200, "{answer}");
        eventually("the upstream has closed", || upstream.calls().iter().all(Call::is_closed));
    }
    assert_eq!(upstream.count(), 5);
}

#[test]
fn calls_are_bounded_whatever_the_targets() {
    let upstream = Upstream::that(Script::json(503, error("busy")));
    let targets = "[{backend: up, model: a}, {backend: up, model: b}, {backend: up, model: c}]";
    let gateway = Setup::of(&upstream)
        .model("m", &format!("{{targets: {targets}, upstream_calls_max: 2}}"))
        .model("all", &format!("{{targets: {targets}}}"))
        .start();
    let answer = gateway.chat(&judged());
    assert_eq!((answer.status(), upstream.count()), (503, 2), "{answer}");
    assert_eq!(answer.header("x-portcullis-attempts"), Some("2"));
    assert_eq!(answer.header("x-should-retry"), Some("false"), "the gateway has tried every target itself");
    assert_eq!(answer.json()["error"]["message"], "busy");
    let models: Vec<Value> = upstream.calls().iter().map(|call| call.json()["model"].clone()).collect();
    assert_eq!(models, ["a", "b"]);
    let answer = gateway.chat(&judged().replace("\"m\"", "\"all\""));
    assert_eq!((answer.status(), upstream.count()), (503, 5), "{answer}");
}

// ------------------------------------------------------------------------------------- what a backend reports

#[test]
fn a_backends_own_error_goes_on_in_our_shape() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let generation = r#"{"error":{"message":"bad","type":"invalid_request_error","code":"json_validate_failed","param":"x","failed_generation":"MARK"}}"#;
    for (status, kind, body, expected_status, message, expected_type, code) in [
        (400, "application/json", generation, 400, "bad", "invalid_request_error", "json_validate_failed"),
        (404, "text/plain", "no such model", 404, "no such model", "upstream_error", "upstream_error"),
        (500, "text/html", "", 500, "said nothing", "upstream_error", "upstream_error"),
        (302, "text/plain", "elsewhere", 502, "elsewhere", "upstream_error", "upstream_error"),
        (200, "application/json", r#"{"error":{"message":"full","code":429}}"#, 429, "full", "upstream_error", "429"),
        (200, "application/json", r#"{"error":{"message":"odd","code":"x"}}"#, 502, "odd", "upstream_error", "x"),
    ] {
        for request in [judged(), judged_stream()] {
            upstream.next(Script::answer(status, &format!("content-type: {kind}\r\n"), body));
            let answer = gateway.chat(&request);
            answer.assert_error(expected_status, expected_type, code);
            assert!(answer.json()["error"]["message"].as_str().unwrap().contains(message), "{answer}");
            assert_eq!(answer.outcome(), "failed", "{answer}");
            assert!(!answer.text().contains("MARK"), "{answer}");
        }
    }
    // An answer that comes before the request was read, as servers refuse large bodies.
    let closing = "content-type: application/json\r\nconnection: close\r\n";
    upstream.next(Script::answer(413, closing, error("too long")).hastily().stall());
    let answer = gateway.chat(&judged().replace("\"hi\"", &quoted(&"x".repeat(4 << 20))));
    assert_eq!((answer.status(), &answer.json()["error"]["message"]), (413, &json!("too long")), "{answer}");
    // An error body that never ends is no reason to wait for its end.
    upstream
        .next(Script::new().send("HTTP/1.1 400 X\r\ncontent-type: text/plain\r\n\r\n").endless(vec![b'x'; 1 << 16]));
    assert_eq!(gateway.chat(&judged()).status(), 400);
}

/// proxy-030, proxy-032
#[test]
fn retry_after_goes_through_as_it_came_and_is_not_waited_for() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    for wait in ["Tue, 01 Dec 2026 10:00:00 GMT", "999999", "7"] {
        for request in [judged(), request("")] {
            let headers = format!("content-type: application/json\r\nretry-after: {wait}\r\n");
            upstream.next(Script::answer(429, &headers, error("slow down")));
            let asked = Instant::now();
            let answer = gateway.chat(&request);
            assert!(asked.elapsed() < Duration::from_secs(3));
            assert_eq!((answer.status(), answer.header("retry-after")), (429, Some(wait)), "{answer}");
            assert_eq!(answer.header("x-should-retry"), None, "{answer}");
        }
    }
}

#[test]
fn the_operators_key_never_leaks() {
    let key = "sk-operator-0123456789";
    let upstream = Upstream::good();
    let gateway = Setup::new()
        .backend("up", "openai", upstream.address, &format!(", api_key: {key}, headers: {{x-extra: {key}-too}}"))
        .audited()
        .line("telemetry: {log: debug}")
        .start();
    let echo = |member: &str| {
        let mut body = json!({"error": {"message": "no", "type": "t", "param": "p", "code": "c"}});
        body["error"][member] = json!(format!("Incorrect API key provided: {key}"));
        body.to_string()
    };
    let mut leaks = std::collections::BTreeSet::new();
    for status in [401, 402, 403, 400, 404, 429, 500, 200] {
        for member in ["message", "type", "param", "code"] {
            let body = echo(member);
            assert!(body.contains(key));
            for request in [judged(), judged_stream()] {
                upstream.next(Script::json(status, &body));
                let answer = gateway.chat(&request);
                assert_eq!(upstream.call().header("authorization"), Some(format!("Bearer {key}").as_str()));
                if format!("{answer}").contains(key) {
                    leaks.insert(format!("{status} `error.{member}`"));
                }
                if (401..=403).contains(&status) {
                    answer.assert_error(502, "upstream_error", "upstream_auth");
                    assert_eq!(answer.header("x-should-retry"), Some("false"));
                }
            }
        }
    }
    upstream.next(Script::answer(400, "content-type: text/plain\r\n", format!("bad key {key}")));
    let answer = gateway.chat(&judged());
    assert!(answer.status() == 400 && !answer.text().contains(key), "{answer}");
    let seen = gateway.log() + &std::fs::read_to_string(gateway.audit_file()).unwrap() + &gateway.metrics();
    assert!(!seen.contains(key), "{seen}");
    assert!(!gateway.probe("/readyz?verbose", &[]).text().contains(key));
    assert!(leaks.is_empty(), "the key went to the caller in {leaks:?}");
}

// ------------------------------------------------------------------------------------- the caller's own key

#[test]
fn the_callers_key_goes_where_the_caller_pays_and_nowhere_else() {
    let (own, other) = (Upstream::good(), Upstream::good());
    let gateway = Setup::new()
        .auth("passthrough")
        .backend("own", "openai", own.address, ", credentials: caller")
        .backend("other", "openai", other.address, "")
        .backend("paid", "openai", other.address, ", api_key: sk-operator")
        .model("m", "{targets: [{backend: own}, {backend: other}, {backend: paid}]}")
        .audited()
        .line("telemetry: {log: debug}")
        .start();
    let headers = [("authorization", "Bearer sk-mine"), ("x-api-key", "sk-mine"), ("openai-organization", "org-mine")];
    let answer = gateway.chat_with(&headers, &judged());
    assert_eq!(answer.status(), 200, "{answer}");
    assert_eq!(own.call().header("authorization"), Some("Bearer sk-mine"));
    assert_eq!(own.call().header("openai-organization"), Some("org-mine"));

    let headers_of_account =
        "content-type: application/json\r\nx-ratelimit-remaining-requests: 9\r\nopenai-organization: org-mine\r\n";
    own.next(Script::answer(200, headers_of_account, completion(GOOD)));
    let answer = gateway.chat_with(&headers, &judged());
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), Some("9"), "{answer}");

    own.next(Script::json(503, error("busy")));
    other.next(Script::json(503, error("busy")));
    other.next(Script::answer(200, headers_of_account, completion(GOOD)));
    let answer = gateway.chat_with(&headers, &judged());
    assert_eq!((answer.status(), answer.header("x-portcullis-attempts")), (200, Some("3")), "{answer}");
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), None, "{answer}");
    let calls = other.calls();
    assert_eq!(calls[0].header("authorization"), None);
    assert_eq!(calls[1].header("authorization"), Some("Bearer sk-operator"));
    assert!(calls.iter().all(|call| !format!("{:?}", call.head).contains("mine")), "{calls:?}");

    // The caller's own key is the caller's own trouble.
    own.next(Script::json(
        401,
        r#"{"error":{"message":"no","type":"invalid_request_error","code":"invalid_api_key"}}"#,
    ));
    gateway.chat_with(&headers, &judged()).assert_error(401, "invalid_request_error", "invalid_api_key");

    let before = own.count();
    for headers in [&[][..], &[("x-api-key", "sk-mine")][..]] {
        gateway.chat_with(headers, &judged()).assert_error(401, "authentication_error", "missing_key");
    }
    assert_eq!(own.count(), before);
    let seen = gateway.log() + &std::fs::read_to_string(gateway.audit_file()).unwrap();
    assert!(!seen.contains("sk-mine"), "{seen}");
}

// ------------------------------------------------------------------------------------- time

/// proxy-016, proxy-017
#[test]
fn a_backend_that_is_late_is_waited_for_as_long_as_is_configured() {
    let upstream = Upstream::that(Script::new().stall());
    let gateway = Setup::new().backend("up", "openai", upstream.address, ", timeouts: {first_byte: 600ms}").start();
    for body in [judged(), judged_stream(), request("")] {
        let asked = Instant::now();
        let answer = gateway.chat(&body);
        answer.assert_error(504, "upstream_error", "upstream_timeout");
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        assert!((ms(550)..ms(2_500)).contains(&asked.elapsed()), "{:?}", asked.elapsed());
        eventually("the upstream call is ended", || upstream.call().is_closed());
    }
    upstream.always(Script::new().wait(ms(400)).send({
        let body = completion(GOOD);
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }));
    let long = judged().replace("\"hi\"", &quoted(&"x".repeat(3_500_000)));
    let answer = gateway.chat(&long);
    assert_eq!((answer.status(), answer.outcome()), (200, "accepted"), "{answer}");
}

/// `first_byte` runs from the request's last byte, so a backend that takes a long request in slowly is not late.
#[test]
fn the_time_to_the_first_byte_begins_when_the_request_is_sent() {
    let body = completion(GOOD);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    let upstream = Upstream::that(Script::new().hastily().wait(ms(700)).drain().send(head).send(body));
    let gateway = Setup::new().backend("up", "openai", upstream.address, ", timeouts: {first_byte: 400ms}").start();
    let answer = gateway.chat(&judged().replace("\"hi\"", &quoted(&"x".repeat(12 << 20))));
    assert_eq!(answer.status(), 200, "{answer}");
}

#[test]
fn the_total_bounds_all_attempts_together() {
    let (first, second) = (Upstream::that(Script::new().stall()), Upstream::that(Script::new().stall()));
    let times = ", timeouts: {first_byte: 300ms, idle: 400ms, total: 500ms}";
    let gateway = Setup::new()
        .backend("first", "openai", first.address, times)
        .backend("second", "openai", second.address, times)
        .audited()
        .start();
    let asked = Instant::now();
    gateway.chat(&judged()).assert_error(504, "upstream_error", "upstream_timeout");
    assert!((ms(450)..ms(590)).contains(&asked.elapsed()) || asked.elapsed() < ms(1_500), "{:?}", asked.elapsed());
    let line = &gateway.audit(1)[0];
    assert_eq!((&line["reason"], &line["attempts"]), (&json!("deadline"), &json!(2)), "{line}");
    // A body that drips for ever, one byte after the other, is no way around the total.
    let drips = (0..200)
        .fold(Script::new().send("HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n"), |s, _| s.send(" ").wait(ms(20)));
    first.always(drips);
    let asked = Instant::now();
    gateway.chat(&judged()).assert_error(504, "upstream_error", "upstream_timeout");
    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
    eventually("the upstream call is ended", || first.call().is_closed());
}

#[test]
fn the_total_bounds_a_relayed_stream_too() {
    let drips = (0..90).fold(Script::stream(), |script, _| script.chunk(": drip\n\n").wait(ms(20)));
    let upstream = Upstream::that(drips.end());
    let gateway = Setup::new()
        .backend("up", "openai", upstream.address, ", timeouts: {first_byte: 300ms, idle: 300ms, total: 500ms}")
        .audited()
        .start();
    let asked = Instant::now();
    let answer = gateway.chat(&request(r#""stream":true"#));
    let took = asked.elapsed();
    assert!(!answer.complete && took < ms(1_500), "took {took:?} though `total` is 500ms");
    assert_eq!(gateway.audit(1)[0]["outcome"], "failed");
}

#[test]
fn the_callers_own_patience_bounds_an_answer_in_one_piece() {
    let upstream = Upstream::that(Script::new().stall());
    let gateway = Setup::of(&upstream).start();
    for headers in [
        &[("x-stainless-read-timeout", "0.5")][..],
        &[("x-stainless-timeout", "0.5")],
        &[("x-stainless-timeout", "60"), ("x-stainless-read-timeout", "0.5")],
    ] {
        let asked = Instant::now();
        let answer = gateway.chat_with(headers, &judged());
        answer.assert_error(504, "upstream_error", "upstream_timeout");
        assert!((ms(350)..ms(500)).contains(&asked.elapsed()) || asked.elapsed() < ms(1_200), "{:?}", asked.elapsed());
    }
    eventually("the upstream calls are ended", || upstream.calls().iter().all(Call::is_closed));
    // A stream says itself that it is alive.
    upstream.always({
        let events = chunks(GOOD, "stop");
        let script = Script::stream().wait(ms(700));
        events.iter().fold(script, |script, event| script.chunk(event)).end()
    });
    let answer = gateway.chat_with(&[("x-stainless-read-timeout", "0.5")], &judged_stream());
    assert_eq!(answer.status(), 200, "{answer}");
}

#[test]
fn an_answer_that_pauses_for_too_long_fails() {
    let begun =
        || Script::new().send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{");
    let upstream = Upstream::that(begun().stall());
    let second = Upstream::good();
    let gateway = two(upstream.address, &second, ", timeouts: {idle: 200ms}").audited().start();
    gateway.chat(&judged()).assert_error(504, "upstream_error", "upstream_timeout");
    upstream.next(Script::stream().chunk(chunk(r#"{"content":"{"}"#, "null")).stall());
    gateway.chat(&judged_stream()).assert_error(504, "upstream_error", "upstream_timeout");
    assert_eq!(second.count(), 0, "an answer that had begun was asked for again");
    let answer = gateway.chat(&request(""));
    assert_eq!((answer.status(), answer.complete), (200, false), "{answer}");
    assert_eq!(gateway.audit(3)[2]["reason"], "idle_timeout");
    eventually("the upstream calls are ended", || upstream.calls().iter().all(Call::is_closed));
    // Pauses that are short enough do no harm, however many.
    let events = chunks(GOOD, "stop");
    upstream.always(events.iter().fold(Script::stream(), |script, event| script.chunk(event).wait(ms(90))).end());
    let answer = gateway.chat(&judged_stream());
    assert_eq!((answer.status(), answer.outcome()), (200, "accepted"), "{answer}");
}

#[test]
fn calls_beyond_a_backends_concurrency_wait_for_their_turn() {
    let gate = Gate::default();
    let upstream = Upstream::good();
    let gateway = Setup::new().backend("up", "openai", upstream.address, ", concurrency: 1").start();
    let body = completion(GOOD);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    upstream.next(Script::new().gate(&gate).send(head).send(&body));
    let mut first = gateway.begin_chat(&judged());
    eventually("the first call", || upstream.count() == 1);
    let mut second = gateway.begin_chat(&judged());
    assert!(!second.hears_within(ms(150)));
    assert_eq!(upstream.count(), 1);
    gate.open();
    assert_eq!((first.answer(false).status(), second.answer(false).status()), (200, 200));
    assert_eq!(upstream.count(), 2);
    // A caller that goes away gives its place back.
    for calls in 3..6 {
        upstream.next(Script::new().stall());
        let client = gateway.begin_chat(&judged());
        eventually("the call", || upstream.count() == calls);
        drop(client);
    }
    assert_eq!(gateway.chat(&judged()).status(), 200);
}

// ------------------------------------------------------------------------------------- size

#[test]
fn an_answer_without_end_is_too_large() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("limits: {response: 64KiB}").start();
    let spaces = vec![b' '; 1 << 16];
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    bomb.write_all(&vec![b' '; 8 << 20]).unwrap();
    let bomb = bomb.finish().unwrap();
    let event = chunk(&format!(r#"{{"content":"{}"}}"#, "x".repeat(1_000)), "null");
    let framed = format!("{:x}\r\n{event}\r\n", event.len());
    for (what, body, script) in [
        ("a body", judged(), Script::new().send("HTTP/1.1 200 OK\r\n\r\n").endless(&spaces)),
        ("a gzip bomb", judged(), Script::answer(200, "content-encoding: gzip\r\n", &bomb)),
        ("a stream", judged_stream(), Script::stream().endless(framed)),
        (
            "one line of a stream",
            judged_stream(),
            Script::stream().endless(["1000\r\n", &"x".repeat(0x1000), "\r\n"].concat()),
        ),
    ] {
        upstream.next(script);
        let answer = gateway.chat(&body);
        answer.assert_error(502, "upstream_error", "upstream_too_large");
        assert_eq!(answer.header("x-should-retry"), Some("false"), "{what}");
        if !what.contains("bomb") {
            eventually("the upstream call is ended", || upstream.call().is_closed());
        }
    }
    // What no contract concerns is not held, so it is not bounded.
    let large = vec![b'x'; 1 << 20];
    upstream.next(Script::json(200, &large));
    assert_eq!(gateway.chat(&request("")).body.len(), large.len());
}

// ------------------------------------------------------------------------------------- the caller goes away

/// proxy-012, proxy-014
#[test]
fn a_caller_that_goes_away_cancels_the_upstream_call() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("hold: {keepalive_after: 100ms}").audited().start();
    let begun =
        || Script::new().send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{");
    let event = chunk(r#"{"content":"{"}"#, "null");
    let stream = || Script::stream().chunk(&event);
    let table = [
        ("before the head", judged(), Script::new(), 0, false),
        ("before the body's end", judged(), begun(), 0, false),
        ("a held stream", judged_stream(), stream(), 0, true),
        ("a held stream after keep-alives", judged_stream(), stream(), 1, true),
        ("a relayed stream", request(r#""stream":true"#), stream(), 1, true),
        ("a relayed stream before its head", request(r#""stream":true"#), Script::new(), 0, true),
    ];
    for (index, (what, body, script, chunks, stream)) in table.into_iter().enumerate() {
        upstream.next(script.stall());
        let mut client = gateway.begin_chat(&body);
        eventually("the call upstream", || upstream.count() == index + 1);
        if chunks > 0 {
            client.head();
            client.chunk().unwrap();
        }
        assert!(!upstream.call().is_closed(), "{what}");
        let left = Instant::now();
        drop(client);
        eventually("the upstream call is ended", || upstream.call().is_closed());
        assert!(left.elapsed() < Duration::from_secs(1), "{what}: {:?}", left.elapsed());
        let line = &gateway.audit(index + 1)[index];
        let found = (&line["outcome"], &line["status"], &line["attempts"], &line["stream"]);
        assert_eq!(found, (&json!("cancelled"), &json!(499), &json!(1), &json!(stream)), "{what}: {line}");
    }
    let metrics = gateway.metrics();
    let cancelled = r#"portcullis_requests_total{alias="*",code="",outcome="cancelled"} 6"#;
    assert!(metrics.contains(cancelled), "{metrics}");
    assert!(metrics.contains("portcullis_in_flight 0") && metrics.contains("portcullis_held_bytes 0"), "{metrics}");
}

#[test]
fn a_caller_that_goes_away_while_it_sends_is_recorded_as_gone() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).audited().start();
    let mut client = gateway.client();
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{\"model\"");
    eventually("the request is under way", || gateway.metrics().contains("portcullis_in_flight 1"));
    drop(client);
    let line = &gateway.audit(1)[0];
    assert_eq!((&line["outcome"], &line["status"]), (&json!("cancelled"), &json!(499)), "{line}");
    assert_eq!(upstream.count(), 0);
}
