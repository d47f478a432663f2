//! HTTP/2 as a black box: many requests on one connection from callers, and to backends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use bytes::Bytes;
use serde_json::json;
use support::http2::*;
use support::secure::*;
use support::*;

const CHAT: &str = "/v1/chat/completions";

fn good_after(gate: &Gate) -> Script {
    let body = completion(GOOD);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    Script::new().gate(gate).send(head).send(body)
}

fn stream() -> String {
    request(r#""stream":true"#)
}

/// A raw client that has said its preface and settings.
fn raw(gateway: &Gateway) -> Client {
    let mut client = gateway.client();
    client.send(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
    client
}

/// A request without a body, as a frame.
fn get(stream: u32, authority: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let own = [(":method", "GET"), (":scheme", "http"), (":path", "/v1/models"), (":authority", authority)];
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(&[&own[..], more].concat()))
}

// ------------------------------------------------------------------------------------- callers

#[test]
fn many_requests_share_a_connection_and_one_that_is_cancelled_ends_alone() {
    let (gate, upstream) = (Gate::default(), Upstream::good());
    let gateway = Setup::of(&upstream).audited().start();
    upstream.always(good_after(&gate));
    let client = Http2::plain(&gateway);
    let exchanges: Vec<Exchange<'_>> = (0..20).map(|_| client.chat(&judged())).collect();
    eventually("all are upstream", || upstream.count() == 20);
    upstream.next(Script::new().stall());
    let gone = client.chat(&judged());
    eventually("one more is upstream", || upstream.count() == 21);
    gone.cancel();
    eventually("its call is ended", || upstream.call().is_closed());
    assert_eq!(upstream.calls().iter().filter(|call| call.is_closed()).count(), 1, "and no other");
    upstream.next(Script::stream().chunk("data: 1\n\n").stall());
    let mut gone = client.chat(&stream());
    assert_eq!(gone.head().unwrap().status(), 200);
    assert_eq!(gone.piece().unwrap().unwrap(), "data: 1\n\n");
    drop(gone);
    eventually("its call is ended", || upstream.call().is_closed());
    gate.open();
    for exchange in exchanges {
        let answer = exchange.answer();
        assert_eq!((answer.status(), answer.outcome(), answer.content().as_str()), (200, "accepted", GOOD), "{answer}");
    }
    let outcomes: Vec<_> = gateway.audit(22).iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == "cancelled").count(), 2, "{outcomes:?}");
    assert!(gateway.metrics().contains("portcullis_in_flight 0"), "{}", gateway.metrics());
    assert!(!client.is_closed());
}

#[test]
fn on_sigterm_streams_under_way_are_finished_and_no_new_one_is_taken() {
    let authority = Authority::new();
    let config = Trust::in_authority(&authority).protocols(&["h2"]).config();
    ended_well(Setup::new(), Http2::plain);
    ended_well(Setup::new().listen(&authority.local().listener("")), |gateway| Http2::secure(gateway, &config));
}

fn ended_well(setup: Setup, connect: impl Fn(&Gateway) -> Http2) {
    let gate = Gate::default();
    let upstream = Upstream::that(good_after(&gate));
    let mut gateway = setup.backend("up", "openai", upstream.address, "").audited().start();
    let idle = connect(&gateway);
    assert_eq!(idle.ask("GET", "localhost", "/v1/models", &[], true).unwrap().answer().status(), 200);
    let client = connect(&gateway);
    let whole = client.chat(&judged());
    eventually("a request under way", || upstream.count() == 1);
    upstream.next(Script::stream().chunk("data: 1\n\n").gate(&gate).chunk("data: 2\n\n").end());
    let mut streamed = client.chat(&stream());
    assert_eq!(streamed.head().unwrap().status(), 200);
    gateway.terminate();
    eventually("not ready", || gateway.probe("/readyz", &[]).status() == 503);
    eventually("a connection with nothing under way is closed", || idle.is_closed());
    eventually("no new request is taken", || match client.ask("GET", "localhost", "/v1/models", &[], true) {
        Ok(mut exchange) => match exchange.head() {
            Ok(head) => {
                assert_eq!(head.status(), 503, "{head:?}");
                false
            }
            Err(error) => error.is_go_away(),
        },
        Err(error) => error.is_go_away(),
    });
    assert!(gateway.is_running() && !client.is_closed());
    gate.open();
    assert_eq!(whole.answer().outcome(), "accepted");
    let answer = streamed.answer();
    assert_eq!((answer.text().as_str(), answer.complete), ("data: 1\n\ndata: 2\n\n", true));
    assert_eq!(gateway.ended().code(), Some(0));
    eventually("the connection is closed", || client.is_closed());
}

#[test]
fn a_caller_that_takes_nothing_is_let_go() {
    let upstream = Upstream::that(Script::stream().endless("400\r\n".to_owned() + &"x".repeat(0x400) + "\r\n"));
    let gateway = Setup::of(&upstream).listen("limits: {idle_timeout: 300ms, header_timeout: 200ms}").audited().start();
    for (index, window) in [10_000, 1, 0].into_iter().enumerate() {
        let client = Http2::narrow(&gateway, window);
        let mut exchange = client.chat(&stream());
        assert_eq!(exchange.head().unwrap().status(), 200, "{window}");
        assert!(!upstream.call().is_closed());
        eventually("the upstream call is ended", || upstream.call().is_closed());
        let line = &gateway.audit(index + 1)[index];
        assert_eq!(line["outcome"], "cancelled", "{window}: {line}");
    }
    // So is one that leaves a whole answer where it is.
    upstream.always(Script::says(GOOD));
    let client = Http2::narrow(&gateway, 0);
    let mut exchange = client.chat(&judged());
    assert_eq!(exchange.head().unwrap().status(), 200);
    eventually("the connection is closed", || client.is_closed());
    assert!(gateway.metrics().contains("portcullis_in_flight 0"), "{}", gateway.metrics());
}

#[test]
fn a_caller_that_says_nothing_or_never_ends_a_head_is_let_go() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("limits: {idle_timeout: 300ms, header_timeout: 200ms}").start();
    let quiet = raw(&gateway);
    let mut half = raw(&gateway);
    half.send(&frame(HEADERS, END_STREAM, 1, &block(&[(":method", "GET")])));
    let mut part = gateway.client();
    part.send(&PREFACE[..20]);
    for mut client in [quiet, half, part] {
        client.raw();
        assert!(client.is_closed());
    }
    // A body that does not go on is answered, and the connection goes on.
    let client = Http2::plain(&gateway);
    let headers = [("content-type", "application/json"), ("content-length", "9")];
    let stuck = client.ask("POST", "localhost", CHAT, &headers, false).unwrap();
    stuck.answer().assert_error(408, "invalid_request_error", "request_timeout");
    assert_eq!(client.chat(&judged()).answer().status(), 200);
}

#[test]
fn a_head_that_is_too_large_is_refused_and_its_connection_lives() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("limits: {headers: 8KiB}").start();
    let client = Http2::plain(&gateway);
    for (value, count) in [(100, 90), (6_000, 2), (500, 80), (10, 150)] {
        let value = "x".repeat(value);
        let names: Vec<String> = (0..count).map(|number| format!("x-{number}")).collect();
        let headers: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), value.as_str())).collect();
        let mut exchange = client.ask("GET", "localhost", "/v1/models", &headers, true).unwrap();
        if let Ok(head) = exchange.head() {
            assert_eq!(head.status(), 431, "{count} times {}: {head:?}", value.len());
        }
        assert_eq!(client.chat(&judged()).answer().status(), 200);
    }
    let answer = client.ask("GET", "localhost", "/v1/models", &[("x", &"y".repeat(9_000))], true).unwrap().answer();
    answer.assert_error(431, "invalid_request_error", "headers_too_large");
    assert!(!client.is_closed());
    // Far beyond the bound the connection may end with it.
    let mut exchange = client.ask("GET", "localhost", "/v1/models", &[("x", &"y".repeat(300_000))], true).unwrap();
    assert!(exchange.head().is_err() || exchange.head().unwrap().status() == 431);
    // A head in pieces without end.
    let mut client = raw(&gateway);
    client.send(&frame(HEADERS, END_STREAM, 1, &block(&[(":method", "GET")])));
    for _ in 0..200 {
        client.send(&frame(CONTINUATION, 0, 1, &block(&[("x", &"y".repeat(100))]).repeat(100)));
    }
    client.raw();
    assert!(client.is_closed());
    assert_eq!(gateway.chat(&judged()).status(), 200);
}

#[test]
fn a_body_that_is_too_large_is_refused_while_others_go_on() {
    let (gate, upstream) = (Gate::default(), Upstream::good());
    let gateway = Setup::of(&upstream).listen("limits: {body: 64KiB}").start();
    let client = Http2::plain(&gateway);
    upstream.always(good_after(&gate));
    let waiting = client.chat(&judged());
    eventually("one is under way", || upstream.count() == 1);
    let mut grows = client.ask("POST", "localhost", CHAT, &[("content-type", "application/json")], false).unwrap();
    grows.up.reserve_capacity(1 << 20);
    grows.up.send_data(Bytes::from(vec![b' '; 1 << 20]), false).unwrap();
    assert_eq!(grows.head().unwrap().status(), 413);
    let declares = [("content-type", "application/json"), ("content-length", "99999")];
    let declared = client.ask("POST", "localhost", CHAT, &declares, false).unwrap();
    declared.answer().assert_error(413, "invalid_request_error", "body_too_large");
    // A body that is not what it says.
    let mut lies = client.ask("POST", "localhost", CHAT, &[("content-length", "5")], false).unwrap();
    lies.up.send_data(Bytes::from(judged()), true).unwrap();
    assert!(lies.head().is_err() || lies.head().unwrap().status() == 400);
    gate.open();
    assert_eq!(waiting.answer().status(), 200);
    assert_eq!((client.chat(&judged()).answer().status(), upstream.count()), (200, 2));
}

#[test]
fn only_loopback_names_are_served_without_keys_over_http2_too() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let client = Http2::plain(&gateway);
    for authority in ["evil.example", "evil.example:80", "10.0.0.5", "localhost.evil.example"] {
        let answer = client.ask("GET", authority, "/v1/models", &[], true).unwrap().answer();
        answer.assert_error(403, "permission_error", "origin_not_allowed");
    }
    for (authority, host) in [("localhost", "evil.example"), ("evil.example", "localhost")] {
        let answer = client.ask("GET", authority, "/v1/models", &[("host", host)], true).unwrap().answer();
        answer.assert_error(403, "permission_error", "origin_not_allowed");
    }
    for authority in ["localhost", "LOCALHOST:1", "[::1]:8787", "127.0.0.1", "app.localhost"] {
        let answer = client.ask("GET", authority, "/v1/models", &[], true).unwrap().answer();
        assert_eq!(answer.status(), 200, "{authority}: {answer}");
    }
    // No name at all.
    let mut client = raw(&gateway);
    let own = [(":method", "GET"), (":scheme", "http"), (":path", "/v1/models")];
    client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&own)));
    let refused = loop {
        let frame = client.frame().expect("an answer");
        if frame.stream == 1 && matches!(frame.kind, DATA | RST_STREAM) {
            break frame;
        }
    };
    assert!(refused.kind == RST_STREAM || text(&refused.payload).contains("origin_not_allowed"), "{refused:?}");
}

#[test]
fn headers_that_concern_a_connection_are_refused_in_http2() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let mut client = raw(&gateway);
    let bad = [
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
    ];
    for (index, header) in bad.into_iter().enumerate() {
        let stream = index as u32 * 2 + 1;
        client.send(&get(stream, "localhost", &[header]));
        let reset = client.frame_of(RST_STREAM);
        assert_eq!((reset.stream, reset.payload.as_slice()), (stream, &[0, 0, 0, 1][..]), "{header:?}");
    }
    client.send(&get(101, "localhost", &[("te", "trailers")]));
    let head = client.frame_of(HEADERS);
    assert_eq!((head.stream, head.payload[0]), (101, 0x88), "the connection lives");
    // What no HTTP/1 server behind could be sent ends the stream or the connection.
    for header in
        [("X-Large", "letters"), (":path", "/twice"), (":odd", "x"), ("x-line", "a\r\nb: c"), ("x-nul", "a\0b")]
    {
        let mut client = raw(&gateway);
        client.send(&get(1, "localhost", &[header]));
        while let Some(frame) = client.frame() {
            assert_ne!(frame.kind, HEADERS, "{header:?}");
            if matches!(frame.kind, RST_STREAM | GOAWAY) {
                break;
            }
        }
    }
    assert_eq!(upstream.count(), 0);
}

#[test]
fn malformed_frames_end_the_connection_and_nothing_else() {
    let (gate, upstream) = (Gate::default(), Upstream::good());
    upstream.always(good_after(&gate));
    let gateway = Setup::of(&upstream).start();
    let other = Http2::plain(&gateway);
    let waiting = other.chat(&judged());
    let long = frame(DATA, 0, 1, &[0; 20_000]);
    for (what, bytes) in [
        ("DATA on no stream", frame(DATA, 0, 0, b"x")),
        ("DATA on a stream that is not open", frame(DATA, 0, 1, b"x")),
        ("HEADERS on an even stream", frame(HEADERS, END_HEADERS | END_STREAM, 2, &block(&[(":method", "GET")]))),
        ("a stream that goes back", [get(5, "localhost", &[]), get(3, "localhost", &[])].concat()),
        ("SETTINGS of an odd length", frame(SETTINGS, 0, 0, b"abc")),
        ("SETTINGS out of range", frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff])),
        ("a window of nothing", frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("a window beyond all", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
        ("a short PING", frame(PING, 0, 0, b"short")),
        ("CONTINUATION of nothing", frame(CONTINUATION, END_HEADERS, 1, b"")),
        ("an answer of a client", frame(5, END_HEADERS, 1, &[0; 8])),
        ("headers that cannot be read", frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff; 40])),
        ("padding beyond the frame", frame(HEADERS, END_HEADERS | 8, 1, &[200, 1, 2])),
        ("a frame beyond the size", long),
        ("no frames", b"GET / HTTP/1.1\r\n\r\n".repeat(40)),
    ] {
        let mut client = raw(&gateway);
        client.frame_of(SETTINGS);
        client.send(&bytes);
        client.raw();
        assert!(client.is_closed(), "{what}");
    }
    // The beginning of a preface is no preface.
    let mut client = gateway.client();
    client.send(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
    client.answer(false).assert_error(400, "invalid_request_error", "invalid_http");
    gate.open();
    assert_eq!(waiting.answer().status(), 200);
    assert!(gateway.metrics().contains("portcullis_in_flight 0"), "{}", gateway.metrics());
    assert!(!gateway.log().contains("panicked"));
}

#[test]
fn odd_requests_are_refused_in_peace() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let own = |method, path, more: &[(&'static str, &'static str)]| {
        [&[(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")][..], more].concat()
    };
    for headers in [
        vec![(":method", "CONNECT"), (":authority", "localhost:443")],
        own("OPTIONS", "*", &[]),
        own("GET", "", &[]),
        own("GET", "no-slash", &[]),
        own("GET", "http://localhost/v1/models", &[]),
        own("G T", "/v1/models", &[]),
        own("REFUSED", "/", &[]),
        own("POST", CHAT, &[("content-length", "-1")]),
        own("POST", CHAT, &[("content-length", "7"), ("content-length", "8")]),
        vec![(":method", "GET"), (":path", "/v1/models"), (":authority", "localhost")],
        vec![(":scheme", "http"), (":path", "/v1/models"), (":authority", "localhost")],
        own("GET", "/v1/models", &[("host", "localhost"), ("host", "evil.example")]),
        vec![(":method", "GET"), ("x", "y"), (":scheme", "http"), (":path", "/v1/models"), (":authority", "localhost")],
        vec![
            (":protocol", "websocket"),
            (":method", "CONNECT"),
            (":authority", "localhost"),
            (":path", "/"),
            (":scheme", "http"),
        ],
    ] {
        let mut client = raw(&gateway);
        client.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&headers)));
        loop {
            let frame = client.frame().unwrap_or_else(|| panic!("no answer: {headers:?}"));
            assert!(frame.kind != HEADERS || frame.payload[0] != 0x88, "status 200: {headers:?}");
            if frame.kind == GOAWAY || frame.stream == 1 {
                break;
            }
        }
    }
    let metrics = gateway.metrics();
    assert!(metrics.contains("portcullis_in_flight 0") && !metrics.contains("portcullis_panics_total 1"), "{metrics}");
    assert_eq!(upstream.count(), 0);
}

#[test]
fn requests_that_are_reset_at_once_do_no_harm() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let other = Http2::plain(&gateway);
    for _ in 0..3 {
        let mut client = raw(&gateway);
        let resets: Vec<u8> = (0..2_000)
            .flat_map(|index| {
                let stream = index * 2 + 1;
                [get(stream, "localhost", &[]), frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())].concat()
            })
            .collect();
        client.send(&resets);
        client.send(&frame(PING, 0, 0, b"are you?"));
        // Either the connection is ended for it, or it was taken well.
        while let Some(frame) = client.frame() {
            if matches!(frame.kind, GOAWAY) || (frame.kind == PING && frame.flags & ACK != 0) {
                break;
            }
        }
        assert_eq!(other.chat(&judged()).answer().status(), 200);
    }
    eventually("nothing is left", || gateway.metrics().contains("portcullis_in_flight 0"));
}

// ------------------------------------------------------------------------------------- backends

/// A gateway with this backend over HTTP/2, and another behind it.
fn with(upstream: &Http2Upstream, authority: &Authority, second: &Upstream) -> Setup {
    Setup::new().backend_at("first", "openai", &https(upstream.address), &trusting(authority)).backend(
        "second",
        "openai",
        second.address,
        "",
    )
}

#[test]
fn many_calls_share_one_connection_from_the_first_on() {
    let (authority, gate, second) = (Authority::new(), Gate::default(), Upstream::good());
    let upstream = Http2Upstream::that(&authority.local().server(&["h2"], None), says_after(&gate, GOOD));
    let gateway = with(&upstream, &authority, &second).start();
    let mut calls: Vec<Client> = (0..30).map(|_| gateway.begin_chat(&judged())).collect();
    eventually("all calls are under way", || upstream.most() == 30);
    gate.open();
    for client in &mut calls {
        assert_eq!(client.answer(false).status(), 200);
    }
    assert_eq!((upstream.count(), upstream.connections(), second.count()), (30, 1, 0));
}

/// A backend that takes connections and shakes no hands: all calls are late together, not one after the other.
#[test]
fn calls_that_wait_for_one_connection_do_not_wait_for_each_other() {
    let (authority, second) = (Authority::new(), Upstream::good());
    let mute = Upstream::that(Script::new().stall());
    let gateway = Setup::new()
        .backend_at(
            "first",
            "openai",
            &https(mute.address),
            &format!("{}, timeouts: {{connect: 1s}}", trusting(&authority)),
        )
        .backend("second", "openai", second.address, "")
        .model("m", "{targets: [{backend: first}]}")
        .model("*", "{targets: [{backend: first}, {backend: second}]}")
        .start();
    let mut calls: Vec<Client> = (0..20).map(|_| gateway.begin_chat(&judged())).collect();
    for client in &mut calls {
        client.answer(false).assert_error(504, "upstream_error", "upstream_timeout");
    }
    assert!(mute.connections() < 20, "{}", mute.connections());
    let answer = gateway.chat(&judged().replace("\"m\"", "\"other\""));
    assert_eq!((answer.status(), answer.header("x-portcullis-backend")), (200, Some("second")), "{answer}");
}

#[test]
fn a_backend_over_http2_gets_what_one_over_http1_would() {
    let authority = Authority::new();
    let upstream = PlainUpstream::new(&authority.local().server(&["h2"], None));
    let more = format!("{}, api_key: sk-1, headers: {{x-team: platform}}", trusting(&authority));
    let gateway = Setup::new().backend_at("up", "openai", &https(upstream.address), &more).start();
    let mine = [
        ("connection", "keep-alive, x-hop"),
        ("x-hop", "1"),
        ("te", "trailers"),
        ("x-forwarded-for", "192.0.2.1"),
        ("authorization", "Bearer mine"),
        ("x-own", "kept"),
    ];
    let answer = gateway.call("POST", "/v1/embeddings?a=b", &mine, b"{}");
    assert_eq!((answer.status(), answer.header("x-back"), answer.text().as_str()), (200, Some("1"), "{}"), "{answer}");
    let head = upstream.head();
    let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!((head.method.as_str(), head.uri.path_and_query().unwrap().as_str()), ("POST", "/v1/embeddings?a=b"));
    assert_eq!(head.uri.authority().unwrap().as_str(), upstream.address.to_string());
    assert_eq!(head.uri.scheme_str(), Some("https"));
    assert_eq!(
        (header("authorization"), header("x-team"), header("x-own")),
        (Some("Bearer sk-1"), Some("platform"), Some("kept"))
    );
    assert_eq!(header("content-length"), Some("2"));
    for name in ["host", "connection", "te", "x-hop", "x-forwarded-for", "transfer-encoding", "proxy-authorization"] {
        assert_eq!(header(name), None, "{name}: {head:?}");
    }
}

#[test]
fn callers_that_read_nothing_leave_the_shared_connection_to_the_others() {
    let authority = Authority::new();
    let upstream = PlainUpstream::new(&authority.local().server(&["h2"], None));
    let gateway = Setup::new().backend_at("up", "openai", &https(upstream.address), &trusting(&authority)).start();
    let ask = || {
        let mut client = gateway.client();
        client.ask(gateway.address, "GET", "/v1/files/f/content", &[("x-endless", "1")], b"");
        client
    };
    let stuck: Vec<Client> = (0..3).map(|_| ask()).collect();
    // Once nothing more is taken of any of them.
    let mut before = 0;
    eventually("the answers are stuck", || {
        std::thread::sleep(std::time::Duration::from_millis(250));
        std::mem::replace(&mut before, upstream.sent()) == upstream.sent() && before > 0
    });
    for _ in 0..3 {
        let answer = gateway.call("GET", "/v1/files/g", &[], b"");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "{}"), "{answer}");
    }
    assert_eq!(upstream.connections(), 1);
    drop(stuck);
}

#[test]
fn more_calls_than_a_backend_has_streams_for_wait_for_their_turn() {
    let (authority, gate, second) = (Authority::new(), Gate::default(), Upstream::good());
    let upstream = Http2Upstream::within(&authority.local().server(&["h2"], None), 2, says_after(&gate, GOOD));
    let gateway = with(&upstream, &authority, &second).start();
    let mut calls: Vec<Client> = (0..6).map(|_| gateway.begin_chat(&judged())).collect();
    eventually("two are under way", || upstream.count() >= 2);
    gate.open();
    for client in &mut calls {
        assert_eq!(client.answer(false).header("x-portcullis-backend"), Some("first"));
    }
    assert_eq!((upstream.count(), upstream.most(), upstream.connections()), (6, 2, 1));
}

#[test]
fn a_connection_that_says_goodbye_finishes_what_it_carries() {
    let (authority, gate, second) = (Authority::new(), Gate::default(), Upstream::good());
    let upstream = Http2Upstream::that(&authority.local().server(&["h2"], None), says(GOOD));
    let gateway = with(&upstream, &authority, &second).start();
    upstream.next(says_after(&gate, GOOD));
    let mut slow = gateway.begin_chat(&judged());
    eventually("a call is under way", || upstream.count() == 1);
    upstream.next([says(GOOD), vec![Act::GoAway(3, NO_ERROR)]].concat());
    assert_eq!(gateway.chat(&judged()).status(), 200);
    for _ in 0..2 {
        assert_eq!(gateway.chat(&judged()).header("x-portcullis-backend"), Some("first"));
    }
    let connections: Vec<usize> = upstream.calls().iter().map(|call| call.connection).collect();
    assert_eq!(connections, [0, 0, 1, 1], "the next call opens a new one");
    gate.open();
    assert_eq!(slow.answer(false).header("x-portcullis-backend"), Some("first"));
    assert_eq!(second.count(), 0);
}

#[test]
fn what_a_backend_has_not_begun_with_is_sent_again_once() {
    let (authority, second) = (Authority::new(), Upstream::good());
    let upstream = Http2Upstream::that(&authority.local().server(&["h2"], None), says(GOOD));
    let gateway = with(&upstream, &authority, &second).audited().start();
    for (what, act) in [("refused", Act::Reset(REFUSED_STREAM)), ("beyond the last", Act::GoAway(0, NO_ERROR))] {
        let before = upstream.count();
        upstream.next(vec![act.clone()]);
        let answer = gateway.chat(&judged());
        assert_eq!((answer.status(), answer.header("x-portcullis-backend")), (200, Some("first")), "{what}: {answer}");
        assert_eq!(upstream.count(), before + 2, "{what}");
        let bodies: Vec<Vec<u8>> = upstream.calls().into_iter().skip(before).map(|call| call.body).collect();
        assert_eq!(bodies[0], bodies[1], "{what}");
        // Refused again, it goes to the next target: nobody has begun with it.
        upstream.next(vec![act.clone()]);
        upstream.next(vec![act.clone()]);
        let answer = gateway.chat(&judged());
        assert_eq!((answer.status(), answer.header("x-portcullis-backend")), (200, Some("second")), "{what}: {answer}");
        assert_eq!(upstream.count(), before + 4, "{what}");
        // A body that is gone cannot be sent again.
        let before = upstream.count();
        upstream.next(vec![act]);
        let upload = [("content-type", "multipart/form-data; boundary=x")];
        let answer = gateway.call("POST", "/v1/files", &upload, b"abc");
        assert_eq!((answer.status(), upstream.count()), (502, before + 1), "{what}: {answer}");
    }
    let line = &gateway.audit(6)[1];
    assert_eq!(line["failures"], json!([{"backend": "first", "reason": "connect"}]), "{line}");
}

#[test]
fn a_call_that_waits_for_its_stream_when_the_connection_ends_is_not_lost() {
    let (authority, gate, second) = (Authority::new(), Gate::default(), Upstream::good());
    let upstream = Http2Upstream::within(&authority.local().server(&["h2"], None), 1, says(GOOD));
    let gateway = with(&upstream, &authority, &second).start();
    upstream.next([vec![Act::Gate(gate.clone()), Act::GoAway(1, NO_ERROR)], says(GOOD)].concat());
    let mut calls = vec![gateway.begin_chat(&judged())];
    eventually("the first is under way", || upstream.count() == 1);
    calls.extend((0..3).map(|_| gateway.begin_chat(&judged())));
    eventually("the others wait", || gateway.metrics().contains("portcullis_in_flight 4"));
    gate.open();
    for client in &mut calls {
        let answer = client.answer(false);
        assert_eq!((answer.status(), answer.header("x-portcullis-backend")), (200, Some("first")), "{answer}");
    }
    assert_eq!((upstream.count(), second.count()), (4, 0));
}

#[test]
fn a_stream_that_breaks_is_a_failure_of_that_call_alone() {
    let (authority, gate, second) = (Authority::new(), Gate::default(), Upstream::good());
    let upstream = Http2Upstream::that(&authority.local().server(&["h2"], None), says(GOOD));
    let gateway = with(&upstream, &authority, &second).audited().start();
    let event = || Act::Data(b"data: 1\n\n".to_vec());
    upstream.next(vec![Act::Head("text/event-stream"), event(), Act::Gate(gate.clone()), event(), Act::End]);
    let mut other = gateway.begin_chat(&stream());
    let head = other.head();
    upstream.next(vec![Act::Head("text/event-stream"), event(), Act::Reset(INTERNAL_ERROR)]);
    let broken = gateway.chat(&stream());
    assert_eq!((broken.status(), broken.complete), (200, false), "{broken}");
    upstream.next(vec![Act::Head("application/json"), Act::Data(b"{".to_vec()), Act::Reset(INTERNAL_ERROR)]);
    gateway.chat(&judged()).assert_error(502, "upstream_error", "upstream_protocol");
    upstream.next(vec![Act::Reset(INTERNAL_ERROR)]);
    gateway.chat(&judged()).assert_error(502, "upstream_error", "upstream_protocol");
    assert_eq!(gateway.chat(&judged()).status(), 200);
    gate.open();
    let answer = other.rest(head, false);
    assert_eq!((answer.text().as_str(), answer.complete), ("data: 1\n\ndata: 1\n\n", true));
    assert_eq!((upstream.connections(), second.count()), (1, 0), "it may have done the work");
    // The whole connection ends in the middle of an answer, and the next call has a new one.
    upstream.next(vec![Act::Head("application/json"), Act::Data(b"{".to_vec()), Act::Close]);
    gateway.chat(&judged()).assert_error(502, "upstream_error", "upstream_protocol");
    assert_eq!(gateway.chat(&judged()).header("x-portcullis-backend"), Some("first"));
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_backend_that_closes_idle_connections_is_no_failure() {
    let (authority, second) = (Authority::new(), Upstream::good());
    let acts = [says(GOOD), vec![Act::Close]].concat();
    let upstream = Http2Upstream::that(&authority.local().server(&["h2"], None), acts);
    let gateway = with(&upstream, &authority, &second).start();
    let before = gateway.open_files();
    for calls in 1..6 {
        let answer = gateway.chat(&judged());
        assert_eq!((answer.status(), answer.header("x-portcullis-backend")), (200, Some("first")), "{answer}");
        assert_eq!((upstream.count(), upstream.connections()), (calls, calls));
        eventually("the gateway has closed its side, too", || gateway.open_files() <= before);
    }
    assert_eq!(second.count(), 0);
}

#[test]
fn a_caller_that_goes_away_resets_its_stream_and_no_other() {
    let (authority, gate, second) = (Authority::new(), Gate::default(), Upstream::good());
    let upstream = Http2Upstream::that(&authority.local().server(&["h2"], None), says_after(&gate, GOOD));
    let gateway = with(&upstream, &authority, &second).start();
    let mut stays = gateway.begin_chat(&judged());
    eventually("one is under way", || upstream.count() == 1);
    let goes = gateway.begin_chat(&judged());
    eventually("two are under way", || upstream.count() == 2);
    drop(goes);
    eventually("its stream is reset", || upstream.calls()[1].reset == Some(CANCEL));
    let event = Act::Data(b"data: 1\n\n".to_vec());
    upstream.next(vec![Act::Head("text/event-stream"), event]);
    let mut goes = gateway.begin_chat(&stream());
    goes.head();
    goes.chunk();
    drop(goes);
    eventually("its stream is reset", || upstream.calls()[2].reset == Some(CANCEL));
    let mut goes = gateway.client();
    let upload = [("content-type", "multipart/form-data; boundary=x"), ("content-length", "99")];
    goes.ask(gateway.address, "POST", "/v1/files", &upload, b"");
    goes.send(b"x");
    eventually("an upload is under way", || upstream.count() == 4 && !upstream.calls()[3].body.is_empty());
    drop(goes);
    eventually("its stream is reset", || upstream.calls()[3].reset.is_some());
    gate.open();
    assert_eq!(stays.answer(false).status(), 200);
    assert_eq!((upstream.connections(), upstream.calls()[0].reset), (1, None));
}

#[test]
fn an_upload_that_fails_is_the_callers_fault_over_http2_too() {
    let (authority, second) = (Authority::new(), Upstream::good());
    let upstream = Http2Upstream::that(&authority.local().server(&["h2"], None), says(GOOD));
    let gateway =
        with(&upstream, &authority, &second).listen("limits: {body: 64KiB, idle_timeout: 500ms}").audited().start();
    let chunked = [("content-type", "multipart/form-data; boundary=x"), ("transfer-encoding", "chunked")];
    let mut client = gateway.client();
    client.ask(gateway.address, "POST", "/v1/files", &chunked, b"");
    client.send(format!("{:x}\r\n{}\r\n", 256 << 10, "x".repeat(256 << 10)).as_bytes());
    client.answer(false).assert_error(413, "invalid_request_error", "body_too_large");
    let mut client = gateway.client();
    client.ask(gateway.address, "POST", "/v1/files", &chunked, b"");
    client.send(b"1\r\nx\r\n");
    client.answer(false).assert_error(408, "invalid_request_error", "request_timeout");
    let mut client = gateway.client();
    client.ask(gateway.address, "POST", "/v1/files", &chunked, b"");
    client.send(b"1\r\nx\r\nnonsense\r\n");
    client.answer(false).assert_error(400, "invalid_request_error", "invalid_http");
    assert!(upstream.calls().iter().all(|call| !call.whole), "no half of a body passes for a whole one");
    eventually("the streams are reset", || upstream.calls().iter().all(|call| call.reset.is_some()));
    let reasons: Vec<_> = gateway.audit(3).iter().map(|line| line["reason"].clone()).collect();
    assert_eq!(reasons, ["upload_too_large", "upload_too_slow", "chunk_size"]);
}
