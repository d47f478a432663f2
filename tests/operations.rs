//! What callers are refused for, and what operators see, as a black box: request errors, hosts and origins, probes,
//! metrics, audit, logs, drain, bounds, and HTTP itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::fs::OpenOptions;
use std::io::BufRead as _;
use std::io::BufReader;
use std::io::Read as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use serde_json::Value;
use serde_json::json;
use support::*;

const CHAT: &str = "/v1/chat/completions";

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A script that begins its answer only when the gate opens.
fn good_after(gate: &Gate) -> Script {
    let body = completion(GOOD);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    Script::new().gate(gate).send(head).send(body)
}

/// A chunked answer, for a request that no contract concerns.
fn relayed() -> Script {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    Script::new().send(head).chunk(completion("Hello")).end()
}

// ------------------------------------------------------------------------------------- request errors

#[test]
fn a_request_that_cannot_be_read_costs_no_upstream_call() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).model("m", "{targets: [{backend: up}]}").audited().start();
    let two = r#"{"type":"function","function":{"name":"f"}}"#;
    let strict = r#"{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"objekt"}}}"#;
    let table: Vec<(String, u16, &str, Option<&str>)> = vec![
        (String::new(), 400, "invalid_json", None),
        ("{".into(), 400, "invalid_json", None),
        ("[]".into(), 400, "invalid_json", None),
        ("null".into(), 400, "invalid_json", None),
        (format!("{} x", request("")), 400, "invalid_json", None),
        (request(r#""x":1,"#), 400, "invalid_json", None),
        (request(r#""x":'1'"#), 400, "invalid_json", None),
        (request(r#""stream":"yes""#), 400, "invalid_json", None),
        (r#"{"messages":[]}"#.into(), 400, "invalid_json", Some("model")),
        (r#"{"model":5,"messages":[]}"#.into(), 400, "invalid_json", Some("model")),
        (r#"{"model":"m"}"#.into(), 400, "invalid_json", Some("messages")),
        (r#"{"model":"m","messages":"hi"}"#.into(), 400, "invalid_json", Some("messages")),
        (r#"{"model":"m","model":"n","messages":[]}"#.into(), 400, "duplicate_key", None),
        (r#"{"model":"m","mod\u0065l":"n","messages":[]}"#.into(), 400, "duplicate_key", None),
        (
            r#"{"model":"m","messages":[{"role":"user","role":"system","content":"x"}]}"#.into(),
            400,
            "duplicate_key",
            None,
        ),
        (request(r#""response_format":{"type":"text","type":"json_object"}"#), 400, "duplicate_key", None),
        (request(&format_of(r#"{"type":"object","type":"array"}"#)), 400, "duplicate_key", Some("response_format")),
        (request(r#""tools":[{"type":"function","function":{"name":"f","name":"g"}}]"#), 400, "duplicate_key", None),
        (request(r#""stream_options":{"include_usage":true,"include_usage":false}"#), 400, "duplicate_key", None),
        (request(r#""portcullis":{"tags":{"a":"1","a":"2"}}"#), 400, "duplicate_key", None),
        (request(r#""portcullis":{"polizy":[]}"#), 400, "unknown_field", Some("portcullis")),
        (request(r#""portcullis":[]"#), 400, "unknown_field", Some("portcullis")),
        (request(r#""portcullis":{"tags":5}"#), 400, "unknown_field", Some("portcullis")),
        (request(r#""portcullis":{"policy":"p"}"#), 400, "unknown_field", Some("portcullis")),
        (request(r#""portcullis":{"policy":["p"]}"#), 404, "policy_not_found", Some("portcullis.policy")),
        (request(r#""portcullis":{"source":["page"]}"#), 400, "source_not_allowed", Some("portcullis.source")),
        (request(r#""response_format":{"type":"json_schema"}"#), 400, "schema_invalid", Some("response_format")),
        (
            request(r#""response_format":{"type":"json_schema","json_schema":{}}"#),
            400,
            "schema_invalid",
            Some("response_format"),
        ),
        (request(&format!(r#""tools":[{two},{two}]"#)), 400, "schema_conflict", Some("tools")),
        (request(&format!(r#""tools":[{strict}]"#)), 400, "schema_invalid", Some("tools")),
        (request("").replace("\"m\"", "\"nobody\""), 404, "model_not_found", Some("model")),
    ];
    for (body, status, code, param) in &table {
        let answer = gateway.chat(body);
        assert_eq!((answer.status(), answer.code().as_str()), (*status, *code), "{body}\n{answer}");
        answer.assert_error(*status, "invalid_request_error", code);
        assert_eq!(answer.json()["error"]["param"], json!(param), "{body}\n{answer}");
        assert_eq!((answer.outcome(), answer.header("x-should-retry")), ("denied", None), "{body}\n{answer}");
        assert_eq!(answer.header("x-portcullis-attempts"), Some("0"));
    }
    let not_utf8 = [b"{\"model\":\"m\",\"messages\":[],\"x\":\"".as_slice(), b"\xff\"}"].concat();
    gateway.call("POST", CHAT, &[], &not_utf8).assert_error(400, "invalid_request_error", "invalid_json");
    let coded = gateway.chat_with(&[("content-encoding", "gzip")], &judged());
    assert_eq!((coded.status(), coded.outcome()), (400, "denied"), "{coded}");
    let answer = gateway.chat_with(&[("x-portcullis-policy", "orders")], &judged());
    answer.assert_error(404, "invalid_request_error", "policy_not_found");
    assert_eq!(upstream.count(), 0);
    let lines = gateway.audit(table.len() + 3);
    assert!(lines.iter().all(|line| line["outcome"] == "denied" && line["attempts"] == 0));
    assert_eq!(gateway.chat(&judged()).status(), 200);
}

/// A policy that a caller asks for is in force or the request is refused: it is never passed over.
#[test]
fn a_policy_that_is_asked_for_is_never_passed_over() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let name = "x-portcullis-policy";
    let mut passed = Vec::new();
    for headers in [
        &[(name, "orders")][..],
        &[(name, " , orders")],
        &[("X-Portcullis-Policy", "orders")],
        &[(name, ""), (name, "orders")],
        &[(name, "bestellungen-\u{e9}")],
    ] {
        let answer = gateway.chat_with(headers, &judged());
        if !matches!(answer.status(), 400 | 404) || answer.outcome() != "denied" {
            passed.push(format!("{headers:?}: {}", answer.head.line));
        }
    }
    assert!(passed.is_empty(), "passed over: {passed:#?}");
    assert_eq!(upstream.count(), 0);
    assert_eq!(gateway.chat_with(&[(name, " ")], &judged()).status(), 200);
}

#[test]
fn paths_and_methods_that_are_not_served_are_told_so() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).model("m", "{targets: [{backend: up}]}").start();
    for (method, path, status, code) in [
        ("GET", "/", 404, "unknown_path"),
        ("GET", "/v1", 404, "unknown_path"),
        ("POST", "/v1/embeddings", 404, "unknown_path"),
        ("POST", "/v1/responses", 501, "not_supported"),
        ("POST", "/v1/messages", 501, "not_supported"),
        ("POST", "/v2/chat/completions", 404, "unknown_path"),
        ("POST", "/v1/chat/completions/", 404, "unknown_path"),
        ("GET", "/metrics", 404, "unknown_path"),
        ("GET", "/livez", 404, "unknown_path"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", CHAT, 405, "method_not_allowed"),
        ("TRACE", "/v1/files", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("DELETE", "/v1/models/m", 405, "method_not_allowed"),
        ("GET", "/v1/models/nobody", 404, "model_not_found"),
        ("GET", "/v1/realtime", 501, "not_supported"),
        ("GET", "/realtime?model=m", 501, "not_supported"),
    ] {
        let answer = gateway.call(method, path, &[], b"");
        assert_eq!((answer.status(), answer.code().as_str()), (status, code), "{method} {path}\n{answer}");
        answer.assert_error(status, "invalid_request_error", code);
        assert_eq!(answer.header("x-should-retry"), (status == 501).then_some("false"), "{method} {path}");
        assert_eq!(answer.outcome(), "denied");
    }
    assert_eq!(upstream.count(), 0);
}

/// RFC 9110 section 15.5.6
#[test]
fn a_method_that_is_not_served_is_told_which_ones_are() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    for (path, allowed) in [(CHAT, "POST"), ("/v1/models", "GET")] {
        let answer = gateway.call("DELETE", path, &[], b"");
        assert_eq!(answer.status(), 405);
        assert!(answer.header("allow").is_some_and(|allow| allow.contains(allowed)), "{answer}");
    }
}

/// http.md: "`GET /v1/realtime`, `Upgrade: websocket`: a clear 501; other offers to upgrade are ignored"
#[test]
fn a_web_socket_is_told_that_there_is_none_and_other_upgrades_are_ignored() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    for (upgrade, status) in [("h2c", 200), ("TLS/1.2", 200)] {
        let answer = gateway.chat_with(&[("upgrade", upgrade), ("connection", "upgrade")], &judged());
        assert_eq!(answer.status(), status, "{upgrade}: {answer}");
    }
    let socket = [
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "eHg="),
    ];
    for path in ["/v1/realtime", "/v1/responses", CHAT] {
        let answer = gateway.call("GET", path, &socket, b"");
        assert_eq!(answer.status(), 501, "{path}: {answer}");
        answer.assert_error(501, "invalid_request_error", "not_supported");
    }
}

#[test]
fn a_body_beyond_its_bounds_is_refused_before_it_is_read() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream)
        .listen("limits: {body: 4KiB, idle_timeout: 200ms, header_timeout: 300ms, headers: 16KiB}")
        .start();
    let long = "x".repeat(5_000);
    let answer = gateway.chat(&request(&format!(r#""x":"{long}""#)));
    answer.assert_error(413, "invalid_request_error", "body_too_large");
    let chunked = format!("1400\r\n{}\r\n0\r\n\r\n", "x".repeat(0x1400));
    let answer = gateway.call("POST", CHAT, &[("transfer-encoding", "chunked")], chunked.as_bytes());
    answer.assert_error(413, "invalid_request_error", "body_too_large");

    let mut client = gateway.client();
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{");
    let asked = Instant::now();
    client.answer(false).assert_error(408, "invalid_request_error", "request_timeout");
    assert!(asked.elapsed() < Duration::from_secs(2));

    let mut client = gateway.client();
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: local");
    eventually("a head that never ends is not waited for", || {
        client.hears_within(ms(20));
        client.is_closed()
    });
    let head = gateway.chat_with(&[("x-long", &"x".repeat(40_000))], &judged());
    assert_eq!(head.status(), 431, "{head}");
    let head = gateway.chat_with(&[("x-long", &"x".repeat(17_000))], &judged());
    head.assert_error(431, "invalid_request_error", "headers_too_large");
    assert_eq!(upstream.count(), 0);
    assert_eq!(gateway.chat(&judged()).status(), 200);
}

/// A schema in which every level refers to the next one twice: 2^30 subschemas meet one value.
fn exponential() -> String {
    let levels: Vec<String> = (0..30)
        .map(|level| {
            format!(
                r##""a{level}":{{"allOf":[{{"$ref":"#/$defs/a{next}"}},{{"$ref":"#/$defs/a{next}"}}]}}"##,
                next = level + 1
            )
        })
        .collect();
    format!(r##"{{"$ref":"#/$defs/a0","$defs":{{{},"a30":{{"type":"object"}}}}}}"##, levels.join(","))
}

#[test]
fn a_schema_that_cannot_be_a_contract_is_refused_at_once() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let nested = |depth: usize| format!("{}{{}}{}", r#"{"not":"#.repeat(depth), "}".repeat(depth));
    // translate-025
    let large = format!(r#"{{"description":"{}"}}"#, "x".repeat(400_000));
    let remote = upstream.address;
    let table: Vec<(&str, String, &str)> = vec![
        ("an unknown type", r#"{"type":"objekt"}"#.into(), "schema_invalid"),
        ("a type that is a number", r#"{"type":5}"#.into(), "schema_invalid"),
        ("required that is a text", r#"{"required":"x"}"#.into(), "schema_invalid"),
        ("a broken pattern", r#"{"type":"string","pattern":"("}"#.into(), "schema_invalid"),
        ("no schema at all", "5".into(), "schema_invalid"),
        ("a text", "\"object\"".into(), "schema_invalid"),
        ("an unknown dialect", r#"{"$schema":"https://example.com/mine"}"#.into(), "schema_"),
        ("a remote $ref", format!(r#"{{"$ref":"http://{remote}/x"}}"#), "schema_unresolvable_ref"),
        (
            "a remote $ref deep inside",
            format!(r#"{{"properties":{{"a":{{"items":{{"$ref":"http://{remote}/x#/y"}}}}}}}}"#),
            "schema_unresolvable_ref",
        ),
        ("a file", r#"{"$ref":"file:///etc/passwd"}"#.into(), "schema_unresolvable_ref"),
        ("a $ref to nowhere", r##"{"$ref":"#/$defs/none"}"##.into(), "schema_unresolvable_ref"),
        ("a $ref to itself", r##"{"$ref":"#"}"##.into(), "schema_"),
        (
            "two that refer to each other",
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##.into(),
            "schema_",
        ),
        ("400 kB", large, "schema_too_large"),
        ("65 levels", nested(70), "schema_too_large"),
        ("twenty thousand levels", nested(20_000), ""),
        ("2^30 subschemas", exponential(), "schema_too_large"),
    ];
    for (what, schema, code) in &table {
        for body in [request(&format_of(schema)), request(&format!(r#"{},"stream":true"#, format_of(schema)))] {
            let asked = Instant::now();
            let answer = gateway.chat(&body);
            assert_eq!(answer.status(), 400, "{what}: {answer}");
            assert!(answer.code().starts_with(code), "{what}: {answer}");
            assert_eq!(
                (answer.outcome(), &answer.json()["error"]["type"]),
                ("denied", &json!("invalid_request_error")),
                "{what}"
            );
            assert!(asked.elapsed() < Duration::from_secs(2), "{what} took {:?}", asked.elapsed());
            if *code == "schema_too_large" && *what == "400 kB" {
                assert!(
                    answer.text().contains("262144") || answer.text().contains("256"),
                    "the limit is not named: {answer}"
                );
            }
        }
    }
    assert_eq!(upstream.count(), 0);
    let tree = r##"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#"}}}}"##;
    let answer = gateway.chat(&request(&format_of(tree)));
    assert_eq!((answer.status(), answer.outcome()), (200, "accepted"), "{answer}");
}

/// What a caller can write into a schema must not stall the gateway when an answer is held against it.
#[test]
fn a_hostile_schema_is_no_stall_when_it_judges() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let nested = format!("{}{{}}{}", r#"{"a":"#.repeat(60), "}".repeat(60));
    let long = quoted(&format!("{}!", "a".repeat(5_000)));
    let again = r##"{"properties":{"a":{"$ref":"#"}}}"##;
    let more = r##"{"properties":{"a":{"$ref":"#"}},"minProperties":0}"##;
    let numbers: Vec<String> = (0..3_000).map(|number| format!(r#"{{"n":{number}}}"#)).collect();
    for (what, schema, said) in [
        ("oneOf over itself", format!(r#"{{"oneOf":[{again},{more}]}}"#), nested.as_str()),
        ("anyOf over itself", format!(r#"{{"type":"object","anyOf":[{again},{more}],"required":["b"]}}"#), &nested),
        ("allOf over itself", format!(r#"{{"allOf":[{again},{more}]}}"#), &nested),
        ("if over itself", format!(r#"{{"if":{again},"then":{more},"else":{more}}}"#), &nested),
        ("nested quantifiers", r#"{"type":"string","pattern":"^(a+)+$"}"#.into(), &long),
        ("nested quantifiers under a lookahead", r#"{"type":"string","pattern":"^(?=(a+)+$)(a|aa)+$"}"#.into(), &long),
        ("a backreference", r#"{"type":"string","pattern":"^(a*)(a*)(a*)(a*)\\1\\2\\3\\4$"}"#.into(), &long),
        (
            "a counted repetition of repetitions",
            r#"{"type":"string","pattern":"^((a{1,1000}){1,1000}){1,1000}$"}"#.into(),
            &long,
        ),
        (
            "unique objects",
            r#"{"type":"array","uniqueItems":true,"minItems":5000}"#.into(),
            &format!("[{}]", numbers.join(",")),
        ),
    ] {
        upstream.next(Script::says(said));
        let asked = Instant::now();
        let answer = gateway.chat(&request(&format_of(&schema)));
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(4), "{what} took {took:?}: {answer}");
        assert!(matches!(answer.status(), 200 | 400 | 422), "{what}: {answer}");
        upstream.always(Script::says(GOOD));
        upstream.forget();
        assert_eq!(gateway.chat(&judged()).status(), 200, "after {what}");
    }
}

/// An answer of 8 kB in which everything is wrong: each violation must not read it all again.
#[test]
fn an_answer_with_thousands_of_violations_is_judged_in_linear_time() {
    let upstream = Upstream::that(Script::says(&format!("[{}0]", "0,".repeat(4_000))));
    let gateway = Setup::of(&upstream).start();
    let asked = Instant::now();
    let answer = gateway.chat(&request(&format_of(r#"{"type":"array","items":{"type":"string"}}"#)));
    let took = asked.elapsed();
    answer.assert_error(422, "contract_violation", "schema_violation");
    assert_eq!(answer.json()["error"]["portcullis"]["violations_total"], 4_001);
    assert!(took < Duration::from_secs(2), "took {took:?}");
}

#[test]
fn the_bounds_of_a_schema_are_the_operators() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("limits: {schema: {bytes: 100B, depth: 3, expanded: 5}}").start();
    for (schema, status) in [
        (r#"{"type":"object","properties":{"z":{"type":"string"}}}"#, 200),
        (r#"{"properties":{"z":{"items":{}}}}"#, 400),
        (
            r#"{"title":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#,
            400,
        ),
        (r#"{"allOf":[{},{},{},{},{},{},{},{}]}"#, 400),
    ] {
        let answer = gateway.chat(&request(&format_of(schema)));
        assert_eq!(answer.status(), status, "{schema}: {answer}");
        assert!(status == 200 || answer.code() == "schema_too_large", "{schema}: {answer}");
    }
}

// ------------------------------------------------------------------------------------- hosts and origins

#[test]
fn only_loopback_names_are_served_without_keys() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let port = gateway.address.port();
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        "10.0.0.5".into(),
        "localhost.evil.example".into(),
        String::new(),
    ] {
        let answer = gateway.chat_with(&[("host", &host)], &judged());
        answer.assert_error(403, "permission_error", "origin_not_allowed");
    }
    let mut client = gateway.client();
    client.send(b"GET /v1/models HTTP/1.1\r\n\r\n");
    client.answer(false).assert_error(400, "invalid_request_error", "invalid_http");
    // Several hosts may be read several ways, so they are refused, whichever of them would be served.
    for at in 0..3 {
        let mut hosts = ["localhost"; 3];
        hosts[at] = "evil.example";
        let lines: String = hosts.iter().map(|host| format!("host: {host}\r\n")).collect();
        let mut client = gateway.client();
        client.send(format!("GET /v1/models HTTP/1.1\r\n{lines}\r\n").as_bytes());
        client.answer(false).assert_error(400, "invalid_request_error", "invalid_http");
    }
    assert_eq!(upstream.count(), 0);
    for host in [
        "localhost".to_owned(),
        format!("LOCALHOST:{port}"),
        format!("[::1]:{port}"),
        "127.0.0.1".into(),
        "app.localhost".into(),
    ] {
        assert_eq!(gateway.chat_with(&[("host", &host)], &judged()).status(), 200, "{host}");
    }
}

#[test]
fn a_browsers_page_may_call_only_from_an_origin_that_is_listed() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("cors: [\"https://app.example\"]").start();
    for origin in ["https://evil.example", "null", "https://app.example.evil.example", "http://app.example"] {
        for (method, more) in [("POST", None), ("OPTIONS", Some(("access-control-request-method", "POST")))] {
            let headers: Vec<(&str, &str)> = [Some(("origin", origin)), more].into_iter().flatten().collect();
            let answer = gateway.call(method, CHAT, &headers, judged().as_bytes());
            answer.assert_error(403, "permission_error", "origin_not_allowed");
            assert_eq!(answer.header("access-control-allow-origin"), None, "{answer}");
        }
    }
    assert_eq!(upstream.count(), 0);
    let listed = ("origin", "https://app.example");
    let ask = [
        listed,
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    let answer = gateway.call("OPTIONS", CHAT, &ask, b"");
    assert!(matches!(answer.status(), 200 | 204), "{answer}");
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"), "{answer}");
    assert!(answer.header("access-control-allow-methods").unwrap().contains("POST"), "{answer}");
    let allowed = answer.header("access-control-allow-headers").unwrap();
    assert!(allowed.contains("authorization") && allowed.contains("content-type"), "{answer}");
    assert_eq!(upstream.count(), 0);
    upstream.next(Script::says(GOOD));
    upstream.next(Script::says("Hello"));
    upstream.next(Script::streams(&chunks(GOOD, "stop")));
    for (body, status) in [(judged(), 200), (judged(), 422), (request(r#""stream":true"#), 200), ("{".to_owned(), 400)]
    {
        let answer = gateway.chat_with(&[listed], &body);
        assert_eq!(answer.status(), status, "{answer}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example"), "{answer}");
        assert!(answer.header("vary").is_some_and(|vary| vary.to_lowercase().contains("origin")), "{answer}");
    }
}

#[test]
fn a_preflight_carries_no_key_and_needs_none() {
    let upstream = Upstream::good();
    let gateway = Setup::new()
        .auth("passthrough")
        .backend("up", "openai", upstream.address, ", credentials: caller")
        .listen("cors: [\"https://app.example\"]")
        .start();
    let ask = [("origin", "https://app.example"), ("access-control-request-method", "POST")];
    assert!(matches!(gateway.call("OPTIONS", CHAT, &ask, b"").status(), 200 | 204));
    let answer = gateway.call("GET", "/v1/models", &[], b"");
    answer.assert_error(401, "authentication_error", "missing_key");
}

// ------------------------------------------------------------------------------------- probes and metrics

#[test]
fn probes_answer_and_details_ask_for_the_token() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).token("t0ken").audited().start();
    for (path, status, body) in
        [("/livez", 200, "alive\n"), ("/readyz", 200, "ready\n"), ("/nothing", 404, ""), ("/readyz?verbose", 401, "")]
    {
        let answer = gateway.probe(path, &[]);
        assert_eq!(answer.status(), status, "{answer}");
        assert!(body.is_empty() || answer.text() == body, "{answer}");
    }
    for wrong in ["Bearer wrong", "t0ken", "Bearer ", "Basic t0ken", "Bearer t0ken2"] {
        assert_eq!(gateway.probe("/readyz?verbose", &[("authorization", wrong)]).status(), 401, "{wrong}");
    }
    let answer = gateway.probe("/readyz?verbose", &[("authorization", "Bearer t0ken")]);
    let body = answer.json();
    assert_eq!((answer.status(), &body["ready"], &body["draining"]), (200, &json!(true), &json!(false)), "{answer}");
    assert_eq!((&body["backends"], &body["audit"]), (&json!(["up"]), &json!("sound")), "{answer}");
    let mut client = Client::connect(gateway.admin);
    client.ask(gateway.admin, "POST", "/readyz", &[], b"");
    assert_eq!(client.answer(false).status(), 405);
    client.ask(gateway.admin, "HEAD", "/readyz", &[], b"");
    assert_eq!(client.answer(true).status(), 200);
    let open = Setup::of(&upstream).start();
    assert_eq!(open.probe("/readyz?verbose", &[]).json()["audit"], "off");
}

#[test]
fn metrics_tell_what_happened_and_no_label_is_a_callers_invention() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream)
        .model("order-desk", "{targets: [{backend: up, model: k2}]}")
        .model("*", "{targets: [{backend: up}]}")
        .start();
    let desk = judged().replace("\"m\"", "\"order-desk\"");
    gateway.chat(&desk);
    upstream.next(Script::says(&format!("```json\n{GOOD}\n```")));
    gateway.chat(&desk);
    upstream.next(Script::says("{}"));
    gateway.chat(&desk);
    upstream.next(Script::json(200, completion_of(&[choice(0, r#""content":null,"refusal":"invented""#, "stop")])));
    gateway.chat(&desk);
    upstream.next(relayed());
    gateway.chat(&request("").replace("\"m\"", "\"invented-model\""));
    upstream.next(Script::json(500, r#"{"error":{"message":"invented","type":"invented","code":"invented"}}"#));
    gateway.chat(&desk);
    gateway.call("GET", "/invented", &[], b"");
    gateway.chat_with(&[("x-portcullis-policy", "invented")], &desk);
    gateway.chat(&request(r#""portcullis":{"tags":{"invented":"invented"},"invented":1}"#));
    upstream.next(Script::json(200, finished(GOOD, "invented")));
    gateway.chat(&desk);
    let metrics = gateway.metrics();
    for line in [
        r#"portcullis_requests_total{alias="order-desk",code="",outcome="accepted"} 2"#,
        r#"portcullis_requests_total{alias="order-desk",code="schema_violation",outcome="rejected"} 1"#,
        r#"portcullis_requests_total{alias="order-desk",code="",outcome="refused"} 1"#,
        r#"portcullis_requests_total{alias="order-desk",code="upstream_error",outcome="failed"} 1"#,
        r#"portcullis_requests_total{alias="*",code="",outcome="unchecked"} 1"#,
        r#"portcullis_requests_total{alias="",code="unknown_path",outcome="denied"} 1"#,
        r#"portcullis_reasons_total{reason="schema"} 1"#,
        r#"portcullis_reasons_total{reason="refusal"} 1"#,
        r#"portcullis_extractions_total{rung="whole"} 1"#,
        r#"portcullis_extractions_total{rung="fence"} 1"#,
        r#"portcullis_upstream_calls_total{backend="up"} 7"#,
        r#"portcullis_upstream_failures_total{backend="up",reason="server_error"} 1"#,
        "portcullis_in_flight 0",
        "portcullis_held_bytes 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    for name in [
        "portcullis_native_modes_total",
        "portcullis_violations_total",
        "portcullis_tokens_total",
        "portcullis_request_duration_seconds_bucket",
        "portcullis_upstream_duration_seconds_bucket",
        "portcullis_own_duration_seconds_bucket",
    ] {
        assert!(metrics.contains(name), "{name}\n{metrics}");
    }
    assert!(!metrics.contains("invented") && !metrics.contains("k2"), "{metrics}");
    assert!(gateway.probe("/metrics", &[]).header("content-type").unwrap().starts_with("text/plain"));
}

// ------------------------------------------------------------------------------------- audit and logs

#[test]
fn every_request_is_one_audit_line() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).model("alias", "{targets: [{backend: up, model: k2}]}").audited().start();
    let tagged =
        format!(r#"{{"model":"alias","portcullis":{{"tags":{{"job":"nightly"}}}},"messages":[],{}}}"#, format());
    upstream.next(Script::answer(
        200,
        "content-type: application/json\r\nx-request-id: up-1\r\n",
        completion(&format!("So: {GOOD}")),
    ));
    let accepted = gateway.chat(&tagged);
    upstream.next(Script::says(r#"{"z":7}"#));
    gateway.chat(&tagged);
    gateway.chat("{");
    upstream.next(relayed());
    gateway.chat(r#"{"model":"alias","messages":[]}"#);
    gateway.call("GET", "/v1/models", &[], b"");
    gateway.call("GET", "/v1/none", &[], b"");
    let lines = gateway.audit(6);
    let line = &lines[0];
    let expected = json!({
        "path": CHAT, "outcome": "accepted", "status": 200, "code": null, "reason": null, "alias": "alias", "backend": "up",
        "upstream_model": "k2", "upstream_request_id": "up-1", "policies": [], "native": "json_schema", "rung": "scan",
        "stream": false, "attempts": 1, "failures": [], "violations_total": 0, "violations": [], "tags": {"job": "nightly"},
        "usage": {"input_tokens": 3, "output_tokens": 4}, "text": format!("So: {GOOD}"),
        "request_id": accepted.header("x-request-id"),
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&line[key], value, "{key}: {line}");
    }
    assert!(
        line["total_us"].as_u64() >= line["upstream_us"].as_u64() && line["upstream_us"].as_u64() > Some(0),
        "{line}"
    );
    assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    assert!(line["schema"].as_str().is_some(), "{line}");
    assert_eq!(line["schema"], lines[1]["schema"]);
    let outcomes: Vec<(&Value, &Value, &Value)> =
        lines.iter().map(|line| (&line["outcome"], &line["status"], &line["code"])).collect();
    assert_eq!(
        json!(outcomes),
        json!([
            ["accepted", 200, null],
            ["rejected", 422, "schema_violation"],
            ["denied", 400, "invalid_json"],
            ["unchecked", 200, null],
            ["unchecked", 200, null],
            ["denied", 404, "unknown_path"]
        ])
    );
    assert_eq!(
        (lines[1]["violations_total"].as_u64(), &lines[1]["text"]),
        (Some(2), &json!(r#"{"z":7}"#)),
        "{}",
        lines[1]
    );
    assert!(lines[3]["text"].is_null());
}

/// An answer that was relayed to its last byte is no cancelled one, however its length was told.
#[test]
fn a_relayed_answer_is_recorded_as_what_it_was() {
    let body = completion("Hello");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).audited().start();
    let mut wrong = Vec::new();
    for (index, (framing, script)) in [
        ("content-length", Script::json(200, &body)),
        ("content-length, in two pieces", {
            let sized = format!("{head}content-length: {}\r\n\r\n", body.len());
            Script::new().send(sized + &body[..10]).wait(ms(30)).send(&body[10..])
        }),
        ("chunked", Script::new().send(format!("{head}transfer-encoding: chunked\r\n\r\n")).chunk(&body).end()),
        ("until the end", Script::new().send(format!("{head}\r\n{body}")).close()),
        ("nothing", Script::json(200, "")),
    ]
    .into_iter()
    .enumerate()
    {
        upstream.next(script);
        let mut client = gateway.begin_chat(&request(""));
        let answer = client.answer(false);
        assert!(answer.complete && answer.status() == 200, "{framing}: {answer}");
        let line = &gateway.audit(index + 1)[index];
        if (&line["outcome"], &line["status"]) != (&json!("unchecked"), &json!(200)) {
            wrong.push(format!("{framing}: {} {}", line["outcome"], line["status"]));
        }
    }
    assert!(wrong.is_empty(), "recorded wrongly: {wrong:#?}");
}

#[test]
fn without_content_the_audit_record_quotes_nobody() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).line("audit: {path: audit.jsonl, content: none}").start();
    for said in [r#"{"z":"MARK","a":1}"#, r#"{"z":1,"a":"MARK"}"#, "MARK", r#"{"z":"MARK""#] {
        upstream.next(Script::says(said));
        gateway.chat(&judged());
    }
    gateway.audit(4);
    let file = std::fs::read_to_string(gateway.audit_file()).unwrap();
    assert!(!file.contains("MARK"), "{file}");
}

#[test]
fn no_answer_leaves_without_the_audit_record_that_is_required() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).line("audit: {path: /dev/full, required: true}").start();
    for body in [judged(), judged(), judged_stream()] {
        let answer = gateway.chat(&body);
        answer.assert_error(503, "overloaded_error", "audit_unavailable");
        assert!(answer.header("retry-after").is_some(), "{answer}");
        assert!(!answer.text().contains(&quoted(GOOD)), "{answer}");
    }
    assert_eq!(gateway.chat(&request("")).status(), 200, "traffic that no contract concerns goes on");
    assert!(upstream.count() <= 2, "judged traffic went on: {} calls", upstream.count());
    assert_eq!(gateway.probe("/readyz?verbose", &[]).json()["audit"], "failing");
    let metrics = gateway.metrics();
    assert!(metrics.contains("portcullis_audit_failures_total"), "{metrics}");
    assert!(metrics.contains(r#"code="audit_unavailable""#), "{metrics}");
    let lenient = Setup::of(&upstream).line("audit: {path: /dev/full, required: false}").start();
    for _ in 0..2 {
        assert_eq!(lenient.chat(&judged()).status(), 200);
    }
}

#[test]
fn a_caller_that_goes_while_its_record_is_written_is_counted_once() {
    let upstream = Upstream::good();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    pipe.write_all(&[b'\n'; 64 << 10]).unwrap(); // full: whoever writes more must wait
    let gateway = Setup::of(&upstream).line(&format!("audit: {{path: {}}}", path.display())).start();
    let mut caller = gateway.begin_chat(&judged());
    assert!(!caller.hears_within(ms(200)), "the answer waits for its record");
    assert!(gateway.metrics().contains("portcullis_in_flight 1"));
    drop(caller);
    eventually("the exchange is over", || gateway.metrics().contains("portcullis_in_flight 0"));
    let metrics = gateway.metrics();
    assert!(metrics.contains(r#"code="",outcome="accepted"} 1"#), "{metrics}");
    pipe.read_exact(&mut vec![0; 64 << 10]).unwrap();
    let mut record = String::new();
    BufReader::new(pipe).read_line(&mut record).unwrap();
    assert!(record.contains(r#""outcome":"accepted""#), "{record}");
}

#[test]
fn no_log_holds_a_body_or_a_key() {
    let upstream = Upstream::good();
    let gateway = Setup::new()
        .backend("up", "openai", upstream.address, ", api_key: MARK-operator")
        .token("MARK-admin")
        .line("telemetry: {log: debug, log_format: json}")
        .start();
    let headers =
        [("authorization", "Bearer MARK-caller"), ("cookie", "MARK"), ("x-api-key", "MARK"), ("x-other", "MARK")];
    let body = request(&format!(
        r#"{},"x":"MARK","user":"MARK""#,
        format_of(&SCHEMA.replace("{\"type\":\"string\"}", r#"{"type":"string","title":"MARK"}"#))
    ));
    let call = r#""content":null,"tool_calls":[{"id":"MARK","type":"function","function":{"name":"MARK","arguments":"MARK"}}]"#;
    for script in [
        Script::says(r#"{"z":"MARK","a":1}"#),
        Script::says(r#"{"z":"MARK","a":"MARK"}"#),
        Script::says("MARK"),
        Script::json(200, finished("MARK", "MARK")),
        Script::json(200, completion_of(&[choice(0, call, "tool_calls")])),
        Script::json(500, "MARK"),
        Script::json(401, r#"{"error":{"message":"MARK","code":"MARK"}}"#),
        Script::json(200, "MARK"),
        Script::new().send("MARK\r\n\r\n").close(),
    ] {
        upstream.next(script);
        gateway.chat_with(&headers, &body);
    }
    for body in [r#"{"model":"MARK","MARK":1,"MARK":2}"#, "MARK", r#"{"model":"m","messages":["MARK"]}"#] {
        gateway.chat_with(&headers, body);
    }
    gateway.call("GET", "/v1/models?key=MARK", &headers, b"");
    gateway.chat_with(&[("x-portcullis-policy", "MARK")], &judged());
    gateway.probe("/readyz?verbose", &[("authorization", "Bearer MARK-admin")]);
    eventually("every exchange is logged", || gateway.log().matches("\"exchange\"").count() >= 14);
    let log = gateway.log();
    assert!(!log.contains("MARK"), "{log}");
    for line in log.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|line| line["level"].is_string()), "{line}");
    }
}

// ------------------------------------------------------------------------------------- the end

#[test]
fn on_sigterm_what_is_under_way_is_finished_and_nothing_new_is_taken() {
    let gate = Gate::default();
    let upstream = Upstream::that(good_after(&gate));
    let mut gateway = Setup::of(&upstream).audited().start();
    let mut idle = gateway.client();
    idle.ask(gateway.address, "GET", "/v1/models", &[], b"");
    assert_eq!(idle.answer(false).status(), 200);
    let mut whole = gateway.begin_chat(&judged());
    eventually("a request under way", || upstream.count() == 1);
    upstream.next(Script::stream().chunk("data: 1\n\n").gate(&gate).chunk("data: 2\n\n").end());
    let mut stream = gateway.begin_chat(&request(r#""stream":true"#));
    let head = stream.head();
    assert_eq!(gateway.probe("/readyz", &[]).status(), 200);
    gateway.terminate();
    eventually("not ready", || gateway.probe("/readyz", &[]).status() == 503);
    assert_eq!(gateway.probe("/livez", &[]).status(), 200);
    eventually("no new connection is taken", || TcpStream::connect(gateway.address).is_err());
    eventually("an idle connection is closed", || idle.is_closed());
    assert!(gateway.is_running());
    gate.open();
    let answer = whole.answer(false);
    assert_eq!((answer.status(), answer.outcome()), (200, "accepted"), "{answer}");
    let rest = stream.rest(head, false);
    assert_eq!((rest.text().as_str(), rest.complete), ("data: 1\n\ndata: 2\n\n", true));
    assert_eq!(gateway.ended().code(), Some(0));
    assert_eq!(gateway.audit(3).len(), 3);
}

#[test]
fn the_drain_has_an_end_and_a_second_sigterm_is_one_too() {
    for (drain, signals) in [("drain: 200ms", 1), ("drain: 30s", 2)] {
        let upstream = Upstream::that(Script::new().stall());
        let mut gateway = Setup::of(&upstream).line(drain).audited().start();
        let _waiting = gateway.begin_chat(&judged());
        eventually("a request under way", || upstream.count() == 1);
        let asked = Instant::now();
        gateway.terminate();
        if signals == 2 {
            eventually("draining", || gateway.probe("/readyz", &[]).status() == 503);
            assert!(gateway.is_running());
            gateway.terminate();
        }
        assert_eq!(gateway.ended().code(), Some(0), "{drain}");
        assert!(asked.elapsed() < Duration::from_secs(2), "{drain}: {:?}", asked.elapsed());
        eventually("the upstream call is ended", || upstream.call().is_closed());
        assert_eq!(gateway.audit(1)[0]["outcome"], "cancelled", "{drain}");
    }
}

// ------------------------------------------------------------------------------------- bounds

#[test]
fn requests_beyond_the_bound_are_turned_away() {
    let gate = Gate::default();
    let upstream = Upstream::good();
    upstream.next(good_after(&gate));
    let gateway = Setup::of(&upstream).listen("limits: {in_flight: 1}").start();
    let mut first = gateway.begin_chat(&judged());
    eventually("a request under way", || upstream.count() == 1);
    assert!(gateway.metrics().contains("portcullis_in_flight 1"));
    let answer = gateway.chat(&judged());
    answer.assert_error(503, "overloaded_error", "overloaded");
    assert!(answer.header("retry-after").is_some(), "{answer}");
    assert_eq!(answer.header("x-should-retry"), None, "{answer}");
    gate.open();
    assert_eq!(first.answer(false).status(), 200);
    eventually("room again", || gateway.chat(&judged()).status() == 200);
}

/// A request is under way until its last byte is out: the answer owns the permit (style.md, section 1).
#[test]
fn a_relayed_stream_is_under_way_until_its_end() {
    let gate = Gate::default();
    let upstream = Upstream::good();
    upstream.next(Script::stream().chunk("data: 1\n\n").gate(&gate).end());
    let gateway = Setup::of(&upstream).listen("limits: {in_flight: 1}").start();
    let mut first = gateway.begin_chat(&request(r#""stream":true"#));
    let head = first.head();
    first.chunk().unwrap();
    let metrics = gateway.metrics();
    assert!(metrics.contains("portcullis_in_flight 1"), "{metrics}");
    gateway.chat(&judged()).assert_error(503, "overloaded_error", "overloaded");
    gate.open();
    assert!(first.rest(head, false).complete);
    eventually("room again", || gateway.chat(&judged()).status() == 200);
}

#[test]
fn a_held_stream_is_under_way_until_its_end() {
    let gate = Gate::default();
    let upstream = Upstream::good();
    upstream.next(good_after(&gate));
    let gateway = Setup::of(&upstream).listen("limits: {in_flight: 1}, hold: {keepalive_after: 50ms}").start();
    let mut first = gateway.begin_chat(&judged_stream());
    let head = first.head();
    first.chunk().unwrap();
    let metrics = gateway.metrics();
    assert!(metrics.contains("portcullis_in_flight 1"), "{metrics}");
    gateway.chat(&judged()).assert_error(503, "overloaded_error", "overloaded");
    gate.open();
    assert!(first.rest(head, false).complete);
    eventually("room again", || gateway.chat(&judged()).status() == 200);
}

#[test]
fn bytes_beyond_the_bound_of_all_are_turned_away() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("limits: {held: 4KiB}").start();
    let long = quoted(&"x".repeat(5_000));
    gateway.chat(&judged().replace("\"hi\"", &long)).assert_error(503, "overloaded_error", "overloaded");
    assert_eq!(upstream.count(), 0);
    for (script, body) in [
        (Script::says(&"x".repeat(5_000)), judged()),
        (Script::streams(&chunks(&"x".repeat(500), "stop")), judged_stream()),
    ] {
        upstream.next(script);
        let answer = gateway.chat(&body);
        answer.assert_error(503, "overloaded_error", "overloaded");
        assert!(answer.header("retry-after").is_some(), "{answer}");
    }
    assert!(gateway.metrics().contains("portcullis_held_bytes 0"));
    assert_eq!(gateway.chat(&judged()).status(), 200);
}

/// `limits.held` bounds what the process holds, and an answer is held until it is sent.
#[test]
fn an_answer_that_its_caller_does_not_read_is_still_held() {
    let upstream = Upstream::that(Script::says(&quoted(&"x".repeat(16 << 20))));
    let gateway = Setup::of(&upstream).start();
    let mut client = gateway.begin_chat(&request(&format_of(r#"{"type":"string"}"#)));
    let head = client.head();
    assert_eq!(head.status(), 200, "{head:?}");
    let metrics = gateway.metrics();
    let held = metrics.lines().find_map(|line| line.strip_prefix("portcullis_held_bytes ")).unwrap();
    assert!(
        held.parse::<usize>().unwrap() > 1 << 20,
        "{held} bytes are held, though the caller has read none of 16 MiB"
    );
    drop(client);
    eventually("nothing is held", || gateway.metrics().contains("portcullis_held_bytes 0"));
}

// ------------------------------------------------------------------------------------- headers and HTTP itself

#[test]
fn the_gateways_own_headers_can_be_switched_off() {
    let gate = Gate::default();
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("headers: false, hold: {keepalive_after: 50ms}").start();
    let named = |body: &str| Script::answer(200, "content-type: application/json\r\nx-request-id: up-1\r\n", body);
    let mut found = Vec::new();
    let mut none = |head: &Head| {
        let own = head.headers.iter().filter(|(name, _)| name.starts_with("x-portcullis-"));
        found.extend(own.map(|header| format!("{}: {header:?}", head.line)));
        assert!(head.header("x-request-id").is_some(), "{head:?}");
    };
    none(&gateway.chat("{").head);
    none(&gateway.call("GET", "/v1/models", &[], b"").head);
    none(&gateway.chat(&judged()).head);
    upstream.next(Script::says("Hello"));
    none(&gateway.chat(&judged()).head);
    none(&gateway.chat(&request("")).head);
    upstream.next(named(&completion(GOOD)));
    none(&gateway.chat(&judged()).head);
    upstream.next(named(&completion(GOOD)));
    none(&gateway.chat(&request("")).head);
    upstream.next(good_after(&gate));
    let mut client = gateway.begin_chat(&judged_stream());
    none(&client.head());
    gate.open();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn one_connection_serves_request_after_request() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let mut client = gateway.client();
    let body = judged();
    for bytes in [body.as_str(), "{", body.as_str()] {
        client.ask(gateway.address, "POST", CHAT, &[], bytes.as_bytes());
        assert_eq!(client.answer(false).status(), if bytes == "{" { 400 } else { 200 });
    }
    upstream.next(Script::streams(&chunks(GOOD, "stop")));
    client.ask(gateway.address, "POST", CHAT, &[], judged_stream().as_bytes());
    assert_eq!(client.answer(false).events().last().unwrap(), "[DONE]");
    client.ask(gateway.address, "HEAD", "/v1/models", &[], b"");
    let head = client.answer(true);
    client.ask(gateway.address, "GET", "/v1/models", &[], b"");
    let get = client.answer(false);
    assert_eq!((head.status(), head.header("content-length")), (200, get.header("content-length")), "{head}");
    client.ask(gateway.address, "HEAD", CHAT, &[], b"");
    assert_eq!(client.answer(true).status(), 405);
    // Two at once: answers come in the order of the questions.
    let ask = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\nGET /none HTTP/1.1\r\nhost: localhost\r\n\r\n";
    client.send(ask.as_bytes());
    assert_eq!((client.answer(false).status(), client.answer(false).status()), (200, 404));
    client.ask(gateway.address, "GET", "/v1/models", &[("connection", "close")], b"");
    assert_eq!(client.answer(false).status(), 200);
    eventually("closed, as was asked", || client.is_closed());
    let mut old = gateway.client();
    old.send(b"GET /v1/models HTTP/1.0\r\nhost: localhost\r\n\r\n");
    assert_eq!(old.answer(false).status(), 200);
    eventually("closed, as HTTP/1.0 has it", || old.is_closed());
}

/// Asks for the models on a connection that stays open.
fn ask_on(gateway: &Gateway, client: &mut Client) -> u16 {
    client.ask(gateway.address, "GET", "/v1/models", &[], b"");
    client.answer(false).status()
}

/// `header_timeout` is for heads that have begun, `idle_timeout` for connections that lie idle.
#[test]
fn an_idle_connection_is_kept_for_longer_than_a_head_may_take() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("limits: {header_timeout: 200ms, idle_timeout: 5s}").start();
    let mut client = gateway.client();
    assert_eq!(ask_on(&gateway, &mut client), 200);
    assert!(!client.hears_within(ms(600)), "closed after `header_timeout`, though no head had begun");
    assert_eq!(ask_on(&gateway, &mut client), 200);
}

#[test]
fn an_idle_connection_is_closed_in_the_end() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("limits: {header_timeout: 60s, idle_timeout: 200ms}").start();
    let mut client = gateway.client();
    assert_eq!(ask_on(&gateway, &mut client), 200);
    assert!(client.hears_within(Duration::from_secs(2)), "still open long after `idle_timeout`");
}

#[test]
fn bodies_come_in_every_framing() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("limits: {body: 64KiB}").start();
    let body = judged();
    gateway.chat(&body);
    let expected = upstream.call().text();

    let (one, two) = body.split_at(7);
    let chunked = format!("7;x=y\r\n{one}\r\n{:X}\r\n{two}\r\n0\r\nx-trailer: 1\r\n\r\n", two.len());
    let answer = gateway.call("POST", CHAT, &[("transfer-encoding", "chunked")], chunked.as_bytes());
    assert_eq!(answer.status(), 200, "{answer}");
    assert_eq!(upstream.call().text(), expected);
    assert_eq!(upstream.call().header("content-length"), Some(expected.len().to_string().as_str()));

    let mut client = gateway.client();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send(head.as_bytes());
    assert_eq!(client.head().status(), 100);
    client.send(body.as_bytes());
    assert_eq!(client.answer(false).status(), 200);
    assert_eq!(upstream.call().header("expect"), None);
    client.send(
        format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 99999\r\n\r\n")
            .as_bytes(),
    );
    let head = client.head();
    assert_eq!(head.status(), 413, "a body that will be refused was asked for: {head:?}");

    let answer = gateway.call("POST", "/chat/completions", &[], body.as_bytes());
    assert_eq!((answer.status(), answer.outcome()), (200, "accepted"), "{answer}");
    assert_eq!(upstream.call().head.line, "POST /v1/chat/completions HTTP/1.1");
    let answer = gateway.call("POST", "/v1/chat/completions?api-version=1", &[], body.as_bytes());
    assert_eq!(answer.status(), 200, "{answer}");
}

#[test]
fn models_are_listed_in_openais_shape() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream)
        .model("order-desk", "{targets: [{backend: up, model: k2}]}")
        .model("team/big", "{targets: [{backend: up}]}")
        .model("*", "{targets: [{backend: up}]}")
        .start();
    for path in ["/v1/models", "/models"] {
        let list = gateway.call("GET", path, &[], b"").json();
        assert_eq!(list["object"], "list");
        let ids: Vec<&str> =
            list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["order-desk", "team/big"]);
        assert!(
            list["data"]
                .as_array()
                .unwrap()
                .iter()
                .all(|model| model["object"] == "model" && model["owned_by"].is_string())
        );
    }
    for (path, id) in [
        ("/v1/models/order-desk", "order-desk"),
        ("/v1/models/team/big", "team/big"),
        ("/models/order-desk", "order-desk"),
    ] {
        let answer = gateway.call("GET", path, &[], b"");
        assert_eq!((answer.status(), &answer.json()["id"]), (200, &json!(id)), "{answer}");
    }
    assert_eq!(upstream.count(), 0);
}

/// SDKs write an id into the path as a URL has it.
#[test]
fn a_models_id_may_be_percent_encoded() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).model("team/big", "{targets: [{backend: up}]}").start();
    let answer = gateway.call("GET", "/v1/models/team%2Fbig", &[], b"");
    assert_eq!(answer.status(), 200, "{answer}");
    assert_eq!(answer.json()["id"], "team/big");
}
