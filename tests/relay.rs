//! Paths that no contract guards, as a black box: what goes through unchanged, where it goes, and how large, slow and
//! broken bodies end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use serde_json::Value;
use support::http2::Http2;
use support::*;

const MULTIPART: (&str, &str) = ("content-type", "multipart/form-data; boundary=x");

// ------------------------------------------------------------------------------------- unchanged

#[test]
fn every_other_path_goes_through_with_its_method_query_and_bytes() {
    let upstream = Upstream::that(Script::answer(201, "content-type: text/odd\r\nx-custom: a\r\n", "\u{0}\u{1}raw"));
    let gateway = Setup::of(&upstream).start();
    for (method, path, below) in [
        ("POST", "/v1/embeddings", "/v1/embeddings"),
        ("POST", "/embeddings?x=1&y=%20", "/v1/embeddings?x=1&y=%20"),
        ("GET", "/v1/files?limit=2", "/v1/files?limit=2"),
        ("GET", "/v1/files/file-1/content", "/v1/files/file-1/content"),
        ("DELETE", "/v1/files/a%2Fb", "/v1/files/a%2Fb"),
        ("GET", "/v1/chat/completions/cmpl-1", "/v1/chat/completions/cmpl-1"),
        ("PUT", "/v1/future/thing", "/v1/future/thing"),
        ("OPTIONS", "/v1/files", "/v1/files"),
    ] {
        let body: &[u8] =
            if method == "POST" || method == "PUT" { b"{\"input\" : [1e400, \"\\u00e9\"] }" } else { b"" };
        let answer = gateway.call(method, path, &[("x-own", "kept"), ("accept-encoding", "br, zstd")], body);
        assert_eq!((answer.status(), answer.text().as_str()), (201, "\u{0}\u{1}raw"), "{method} {path}: {answer}");
        assert_eq!(answer.header("content-type"), Some("text/odd"));
        assert_eq!((answer.header("x-custom"), answer.outcome()), (Some("a"), "unchecked"), "{answer}");
        let call = upstream.call();
        assert_eq!(call.head.line, format!("{method} {below} HTTP/1.1"));
        assert_eq!((call.body.as_slice(), call.header("x-own")), (body, Some("kept")));
        assert_eq!(call.header("accept-encoding"), Some("br, zstd"));
        assert_eq!(call.header("host"), Some(upstream.address.to_string().as_str()));
    }
    gateway.call("GET", "/v1/files", &[], b"");
    eventually("the relays are counted", || {
        gateway.metrics().contains(r#"portcullis_requests_total{alias="*",code="",outcome="unchecked"} 9"#)
    });
}

#[test]
fn a_coded_answer_keeps_its_coding_and_its_bytes() {
    let packed = [0x1f, 0x8b, 8, 0, 1, 2, 3, 255, 254];
    let upstream = Upstream::that(Script::answer(200, "content-encoding: br\r\netag: \"e\"\r\n", packed));
    let gateway = Setup::of(&upstream).start();
    for (method, path) in [("GET", "/v1/files/f/content"), ("POST", "/v1/embeddings")] {
        let answer = gateway.call(method, path, &[], if method == "POST" { b"{\"model\":\"m\"}" } else { b"" });
        assert_eq!((answer.body.as_slice(), answer.header("content-encoding")), (&packed[..], Some("br")));
        assert_eq!(answer.header("etag"), Some("\"e\""));
    }
}

#[test]
fn head_options_and_redirects_behave() {
    let upstream = Upstream::that(Script::new().send("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\nx-a: b\r\n\r\n"));
    let gateway = Setup::of(&upstream).start();
    let mut client = gateway.client();
    client.ask(gateway.address, "HEAD", "/v1/files/f/content", &[], b"");
    let answer = client.answer(true);
    assert_eq!((answer.status(), answer.header("content-length")), (200, Some("1234")));
    client.ask(gateway.address, "HEAD", "/v1/models", &[], b"");
    assert_eq!(client.answer(true).status(), 200);
    upstream.next(
        Script::new().send("HTTP/1.1 302 Found\r\nlocation: https://signed.example/x\r\ncontent-length: 0\r\n\r\n"),
    );
    let moved = gateway.call("GET", "/v1/files/f/content", &[], b"");
    assert_eq!((moved.status(), moved.header("location")), (302, Some("https://signed.example/x")));
    let asked = gateway.call("OPTIONS", "/v1/chat/completions", &[], b"");
    assert_eq!((asked.status(), asked.header("allow")), (204, Some("POST")));
    upstream.next(Script::new().send("HTTP/1.1 304 Not Modified\r\netag: \"e\"\r\n\r\n"));
    assert_eq!(gateway.call("GET", "/v1/files/f", &[("if-none-match", "\"e\"")], b"").status(), 304);
}

#[test]
fn trailers_go_through_both_ways() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
    let upstream = Upstream::that(Script::new().send(head).chunk("abc").send("0\r\nx-sum: 42\r\n\r\n"));
    let gateway = Setup::of(&upstream).start();
    let mut client = gateway.client();
    let headers =
        [MULTIPART, ("transfer-encoding", "chunked"), ("te", "trailers"), ("trailer", "x-up"), ("connection", "close")];
    client.ask(gateway.address, "POST", "/v1/files", &headers, b"");
    client.send(b"3\r\nxyz\r\n0\r\nx-up: 7\r\n\r\n");
    let raw = text(&client.raw());
    assert!(raw.ends_with("3\r\nabc\r\n0\r\nx-sum: 42\r\n\r\n"), "{raw}");
    let call = &upstream.calls()[0];
    assert_eq!((call.text().as_str(), call.header("trailer"), call.header("te")), ("xyz", Some("x-up"), None));
}

// ------------------------------------------------------------------------------------- where to

#[test]
fn a_json_request_goes_to_the_targets_of_its_model_under_their_name() {
    let (first, second, other) = (Upstream::good(), Upstream::good(), Upstream::good());
    let answer = Script::json(200, r#"{"object":"list"}"#);
    [&first, &second, &other].iter().for_each(|upstream| upstream.always(answer.clone()));
    let gateway = Setup::of(&first)
        .backend("two", "openai", second.address, ", api_key: k2")
        .backend("three", "openai", other.address, "")
        .model("embedder", "{targets: [{backend: up, model: text-3}, {backend: two, model: text-4}]}")
        .model("*", "{targets: [{backend: three}]}")
        .start();
    let body = br#"{"input":"a","model":"embedder","portcullis":{"tags":{"job":"n"}}}"#;
    assert_eq!(gateway.call("POST", "/v1/embeddings", &[], body).status(), 200);
    assert_eq!(first.call().text(), r#"{"input":"a","model":"text-3"}"#);
    first.next(Script::json(503, r#"{"error":{"message":"busy"}}"#));
    let answer = gateway.call("POST", "/v1/embeddings", &[("authorization", "Bearer mine")], body);
    assert_eq!((answer.status(), answer.header("x-portcullis-attempts")), (200, Some("2")));
    assert_eq!(second.call().header("authorization"), Some("Bearer k2"));
    assert_eq!(second.call().text(), r#"{"input":"a","model":"text-4"}"#);
    gateway.call("POST", "/v1/moderations", &[], br#"{"model":"omni","input":"a"}"#);
    gateway.call("POST", "/v1/batches", &[], br#"{"input_file_id":"f"}"#);
    gateway.call("GET", "/v1/files", &[], b"");
    assert_eq!(other.count(), 3);
    assert_eq!(other.calls()[0].text(), r#"{"model":"omni","input":"a"}"#);
}

#[test]
fn what_lives_in_one_place_is_not_sought_in_another() {
    let (first, second) = (Upstream::that(Script::json(503, "{}")), Upstream::good());
    let gateway = Setup::of(&first).backend("two", "openai", second.address, "").start();
    gateway.call("GET", "/v1/files/f", &[], b"").assert_error(503, "upstream_error", "upstream_error");
    assert_eq!((first.count(), second.count()), (1, 0));
}

#[test]
fn where_nothing_can_serve_a_path_the_answer_says_so() {
    let upstream = Upstream::good();
    let named = Setup::of(&upstream).model("m", "{targets: [{backend: up}]}").start();
    for (method, path) in [("GET", "/v1/files"), ("POST", "/v1/batches")] {
        let answer = named.call(method, path, &[], if method == "POST" { b"{}" } else { b"" });
        answer.assert_error(404, "invalid_request_error", "unknown_path");
        assert!(answer.text().contains("`*`"), "{answer}");
    }
    named.call("POST", "/v1/embeddings", &[], br#"{"model":"x"}"#).assert_error(
        404,
        "invalid_request_error",
        "model_not_found",
    );
    let demo = Gateway::start(
        "version: 1\nlisten: {address: \"127.0.0.1:0\"}\nadmin: {address: \"127.0.0.1:0\"}\nauth: {mode: none}\n\
         backends: {demo: {kind: demo}}\nmodels: {\"*\": {targets: [{backend: demo}]}}\n",
    );
    demo.call("POST", "/v1/embeddings", &[], br#"{"model":"x"}"#).assert_error(
        404,
        "invalid_request_error",
        "unknown_path",
    );
    for path in ["/v1/responses", "/v1/messages"] {
        let answer = named.call("POST", path, &[], b"{}");
        answer.assert_error(501, "invalid_request_error", "not_supported");
        assert_eq!(answer.header("x-should-retry"), Some("false"));
    }
    for path in ["/v1/chat/completions/", "/v1/Chat/completions", "/v1/chat%2Fcompletions", "/v1/../v1/files"] {
        named.call("POST", path, &[], b"{}").assert_error(404, "invalid_request_error", "unknown_path");
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn what_the_gateway_reads_of_an_open_request_it_reads_strictly() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    for (body, code) in [
        (r#"{"model":"a","model":"b"}"#, "duplicate_key"),
        (r#"{"model":"a""#, "invalid_json"),
        (r#"{"portcullis":{"polcy":[]}}"#, "unknown_field"),
        (r#"{"portcullis":{"policy":["orders"]}}"#, "policy_not_found"),
    ] {
        let answer = gateway.call("POST", "/v1/embeddings", &[], body.as_bytes());
        assert_eq!(answer.code(), code, "{body}: {answer}");
    }
    let named = gateway.call("GET", "/v1/files", &[("x-portcullis-policy", "orders")], b"");
    assert_eq!(named.code(), "policy_not_found");
    assert_eq!(upstream.count(), 0);
}

#[test]
fn an_error_of_the_backend_comes_in_our_shape_and_without_the_operators_key() {
    let upstream = Upstream::that(Script::json(404, r#"{"error":{"message":"no sk-operator-1 here","code":"gone"}}"#));
    let gateway = Setup::new().backend("up", "openai", upstream.address, ", api_key: sk-operator-1").start();
    let answer = gateway.call("GET", "/v1/files/f", &[], b"");
    assert_eq!((answer.status(), answer.code().as_str()), (404, "gone"));
    assert!(!answer.text().contains("sk-operator-1"), "{answer}");
    upstream.next(Script::json(401, r#"{"error":{"message":"bad key sk-operator-1"}}"#));
    gateway.call("GET", "/v1/files/f", &[], b"").assert_error(502, "upstream_error", "upstream_auth");
}

/// Whatever a backend echoes the operator's key in, no caller, log or record gets it.
#[test]
fn the_operators_key_comes_back_in_nothing() {
    const KEY: &str = "sk-operator-0123456789";
    let upstream = Upstream::good();
    let more = format!(", api_key: {KEY}, headers: {{x-second: second-secret-0123456789}}");
    let gateway = Setup::new().backend("up", "openai", upstream.address, &more).audited().start();
    let head = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}content-length: 2\r\n\r\n{{}}");
    let cut = format!("{}{KEY}", " ".repeat((64 << 10) - 10));
    let scripts = [
        Script::new().send(head(&format!("x-request-id: Bearer {KEY}\r\n"))),
        Script::new().send(head(&format!("request-id: {KEY}\r\nx-echo: second-secret-0123456789\r\n"))),
        Script::new().send(format!("HTTP/1.1 429 Slow\r\nretry-after: {KEY}\r\ncontent-length: 0\r\n\r\n")),
        Script::new().send(head(&format!("content-encoding: {KEY}\r\n"))),
        Script::json(200, finished(GOOD, KEY)),
        Script::streams(&[chunk(&format!("{{\"content\":{}}}", quoted(GOOD)), &quoted(KEY)), "data: [DONE]\n\n".into()]),
        Script::answer(400, "content-type: text/plain\r\n", cut),
        Script::json(400, format!(r#"{{"error":{{"message":"{KEY}","code":"second-secret-0123456789"}}}}"#)),
        Script::new()
            .send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-echo, x-request-id, x-portcullis-outcome\r\n\r\n")
            .chunk("{}")
            .send(format!("0\r\nx-echo: {KEY}\r\nx-request-id: {KEY}\r\nx-portcullis-outcome: accepted\r\nx-ok: 1\r\n\r\n")),
    ];
    let mut seen = String::new();
    let mut count = 0;
    for script in scripts {
        for (method, path, body) in [
            ("POST", "/v1/chat/completions", judged()),
            ("POST", "/v1/chat/completions", judged_stream()),
            ("POST", "/v1/chat/completions", request("")),
            ("GET", "/v1/files/f", String::new()),
        ] {
            upstream.always(script.clone());
            let mut client = gateway.client();
            let headers = [("te", "trailers"), ("connection", "close")];
            client.ask(gateway.address, method, path, &headers, body.as_bytes());
            let raw = text(&client.raw());
            assert!(!raw.contains("x-portcullis-outcome: accepted\r\nx-ok"), "{raw}");
            // The body of an answer that is only relayed is the backend's own, whatever it says.
            let relayed = raw.starts_with("HTTP/1.1 200") && raw.contains("x-portcullis-outcome: unchecked");
            let told = |raw: &str| {
                let (head, body) = raw.split_once("\r\n\r\n").unwrap();
                let trailers = body.rsplit_once("\r\n0\r\n").map_or("", |(_, trailers)| trailers);
                format!("{head}{trailers}")
            };
            seen.push_str(&if relayed { told(&raw) } else { raw });
            count += 1;
        }
    }
    let records = gateway.audit(count).iter().map(Value::to_string).collect::<String>();
    for (what, text) in
        [("an answer", seen), ("the log", gateway.log()), ("a record", records), ("a metric", gateway.metrics())]
    {
        for secret in ["operator-0123", "sk-operato", "second-secret"] {
            let at = text.find(secret);
            assert!(at.is_none(), "{what}: {:?}", at.and_then(|at| text.get(at.saturating_sub(300)..at + 40)));
        }
    }
}

#[test]
fn trailers_of_a_caller_hold_no_more_than_its_headers_may() {
    let upstream = Upstream::that(Script::json(200, "{}"));
    let gateway = Setup::new().backend("up", "openai", upstream.address, ", headers: {x-team: ours}").start();
    let mut client = gateway.client();
    let names = "x-api-key, cookie, x-team, x-portcullis-policy, x-forwarded-for, x-sum";
    let headers = [MULTIPART, ("transfer-encoding", "chunked"), ("trailer", names)];
    client.ask(gateway.address, "POST", "/v1/files", &headers, b"");
    let lines = names.split(", ").map(|name| format!("{name}: mine\r\n")).collect::<String>();
    client.send(format!("3\r\nabc\r\n0\r\n{lines}\r\n").as_bytes());
    assert_eq!(client.answer(false).status(), 200);
    let trailers = upstream.calls()[0].trailers.clone();
    assert_eq!(trailers, [("x-sum".to_owned(), "mine".to_owned())]);
}

#[test]
fn a_body_of_nothing_says_so() {
    let upstream = Upstream::that(Script::json(200, "{}"));
    let gateway = Setup::of(&upstream).start();
    for (method, length) in [("POST", Some("0")), ("PUT", Some("0")), ("DELETE", None), ("GET", None)] {
        gateway.call(method, "/v1/batches/b/cancel", &[], b"");
        assert_eq!(upstream.call().header("content-length"), length, "{method}");
    }
}

/// An answer that always has more never pauses, and ends all the same.
#[test]
fn an_endless_answer_ends_with_the_time_for_it() {
    let endless =
        Script::new().send("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n").endless("x".repeat(64 << 10));
    let upstream = Upstream::that(endless);
    let more = ", timeouts: {total: 1s, first_byte: 1s, idle: 1s, connect: 1s}";
    let gateway = Setup::new().backend("up", "openai", upstream.address, more).start();
    let mut client = gateway.client();
    client.ask(gateway.address, "GET", "/v1/files/f/content", &[("connection", "close")], b"");
    client.raw();
    eventually("the backend is let go", || upstream.call().is_closed());
    let reason = r#"portcullis_upstream_failures_total{backend="up",reason="deadline"} 1"#;
    eventually("it is counted", || gateway.metrics().contains(reason));
}

#[test]
fn a_target_that_nobody_could_serve_is_answered_like_anything_else() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    for target in ["/v1/files?a=<b>", "/v1/files/`x`", "v1/files", "http://[::1/v1/files"] {
        let mut client = gateway.client();
        client.send(format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes());
        client.answer(false).assert_error(400, "invalid_request_error", "invalid_http");
    }
    let mut client = gateway.client();
    let length = u64::MAX;
    client.send(format!("POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n").as_bytes());
    client.answer(false).assert_error(400, "invalid_request_error", "invalid_http");
    assert_eq!(upstream.count(), 0);
}

// ------------------------------------------------------------------------------------- large bodies

#[test]
fn an_upload_streams_and_is_not_held() {
    let upstream =
        Upstream::that(Script::new().drain().send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").hastily());
    let gateway = Setup::of(&upstream).start();
    let mut client = gateway.client();
    let size = 24 << 20;
    let length = size.to_string();
    client.ask(gateway.address, "POST", "/v1/files", &[MULTIPART, ("content-length", &length)], b"");
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..8 {
        client.send(&piece);
    }
    eventually("the upload has reached the backend while it still comes", || upstream.count() == 1);
    assert_eq!(upstream.call().header("content-length"), Some(length.as_str()));
    assert!(gateway.metrics().contains("portcullis_held_bytes 0"), "{}", gateway.metrics());
    for _ in 8..24 {
        client.send(&piece);
    }
    assert_eq!(client.answer(false).status(), 200);
}

#[test]
fn a_waiting_upload_is_told_to_go_on_and_a_refused_one_is_not() {
    let upstream = Upstream::that(Script::json(200, "{}"));
    let gateway = Setup::of(&upstream).listen("limits: {body: 1MiB}").start();
    let mut client = gateway.client();
    let waits = [MULTIPART, ("content-length", "3"), ("expect", "100-continue")];
    client.ask(gateway.address, "POST", "/v1/files", &waits, b"");
    assert_eq!(client.head().status(), 100);
    client.send(b"abc");
    assert_eq!(client.answer(false).status(), 200);
    assert_eq!((upstream.call().text().as_str(), upstream.call().header("expect")), ("abc", None));
    let mut refused = gateway.client();
    let large = [MULTIPART, ("content-length", "9999999"), ("expect", "100-continue")];
    refused.ask(gateway.address, "POST", "/v1/files", &large, b"");
    let head = refused.head();
    assert_eq!(head.status(), 413, "{head:?}");
}

#[test]
fn an_upload_that_grows_too_large_or_too_slow_is_cut_on_both_sides() {
    let stall = Script::new().drain().stall().hastily();
    let upstream = Upstream::that(stall);
    let gateway = Setup::of(&upstream).listen("limits: {body: 1MiB, idle_timeout: 1s}").start();
    let mut client = gateway.client();
    let chunked = [MULTIPART, ("transfer-encoding", "chunked")];
    client.ask(gateway.address, "POST", "/v1/files", &chunked, b"");
    let piece = format!("{:x}\r\n{}\r\n", 256 << 10, "x".repeat(256 << 10));
    for _ in 0..5 {
        client.send(piece.as_bytes());
    }
    client.answer(false).assert_error(413, "invalid_request_error", "body_too_large");
    eventually("the backend is let go", || upstream.calls().last().is_some_and(Call::is_closed));
    let mut slow = gateway.client();
    slow.ask(gateway.address, "POST", "/v1/files", &chunked, b"");
    slow.send(b"1\r\nx\r\n");
    slow.answer(false).assert_error(408, "invalid_request_error", "request_timeout");
    eventually("the backend is let go", || upstream.call().is_closed());
    let metrics = gateway.metrics();
    for reason in ["upload_too_large", "upload_too_slow"] {
        assert!(metrics.contains(&format!(r#"portcullis_reasons_total{{reason="{reason}"}} 1"#)), "{metrics}");
    }
}

#[test]
fn a_caller_that_leaves_during_an_upload_ends_the_call() {
    let upstream = Upstream::that(Script::new().drain().stall().hastily());
    let gateway = Setup::of(&upstream).start();
    let mut client = gateway.client();
    client.ask(gateway.address, "POST", "/v1/files", &[MULTIPART, ("content-length", "99")], b"");
    client.send(b"x");
    eventually("the call is made", || upstream.count() == 1);
    drop(client);
    eventually("the call has ended", || upstream.call().is_closed());
    eventually("it is counted as the caller's doing", || {
        gateway.metrics().contains(r#"portcullis_requests_total{alias="*",code="",outcome="cancelled"} 1"#)
    });
}

#[test]
fn an_answer_that_comes_before_the_upload_is_whole_goes_on_at_once() {
    let early = Script::new().send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nearly").stall().hastily();
    let upstream = Upstream::that(early);
    let gateway = Setup::of(&upstream).start();
    let mut client = gateway.client();
    client.ask(gateway.address, "POST", "/v1/files", &[MULTIPART, ("content-length", "99")], b"");
    let answer = client.answer(false);
    assert_eq!((answer.status(), answer.text().as_str()), (200, "early"));
}

// ------------------------------------------------------------------------------------- streams

#[test]
fn a_burst_of_events_goes_on_in_one_go() {
    let burst: String = (0..60).map(|number| format!("data: {{\"n\":{number}}}\n\n")).collect();
    let chunks: String =
        burst.split_inclusive("\n\n").map(|event| format!("{:x}\r\n{event}\r\n", event.len())).collect();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let upstream = Upstream::that(Script::new().send(format!("{head}{chunks}0\r\n\r\n")));
    let gateway = Setup::of(&upstream).start();
    let mut client = gateway.begin_chat(&request(r#""stream":true"#));
    assert_eq!(client.head().status(), 200);
    let (mut all, mut pieces) = (Vec::new(), 0);
    while let Some(chunk) = client.chunk().filter(|chunk| !chunk.is_empty()) {
        all.extend_from_slice(&chunk);
        pieces += 1;
    }
    assert_eq!(text(&all), burst);
    assert!(pieces <= 4, "{pieces} pieces for 60 events");
}

#[test]
fn a_connection_serves_one_answer_after_another() {
    let upstream = Upstream::that(Script::streams(&["data: a\n\n", "data: [DONE]\n\n"]));
    let gateway = Setup::of(&upstream).start();
    for round in 0..3 {
        let answer = gateway.chat(&request(r#""stream":true"#));
        assert_eq!((answer.status(), answer.complete), (200, true), "{round}: {answer}");
        upstream.next(Script::json(200, completion("Hi")));
        let whole: Value = gateway.chat(&request("")).json();
        assert_eq!(whole["choices"][0]["message"]["content"], "Hi");
    }
    assert_eq!(upstream.connections(), 1, "the connection is kept");
}

/// A caller that saw nothing of an answer would ask for it once more, and pay for it once more.
#[test]
fn what_came_before_a_stream_broke_is_seen() {
    let begun = Script::new().send(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n",
    );
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let http2 = Http2::plain(&gateway);
    for _ in 0..5 {
        for script in [begun.clone().close(), begun.clone().send("nonsense\r\n").close()] {
            upstream.next(script.clone());
            let answer = gateway.chat(&request(r#""stream":true"#));
            assert_eq!((answer.status(), answer.complete), (200, false), "{answer}");
            assert_eq!(answer.text(), "data: 1\n\n", "{answer}");
            upstream.next(script);
            let answer = http2.chat(&request(r#""stream":true"#)).answer();
            assert_eq!((answer.status(), answer.complete), (200, false), "{answer}");
            assert_eq!(answer.text(), "data: 1\n\n", "{answer}");
        }
    }
}
