//! TLS as a black box: who is let in and how, which backends are trusted, and the ways through a proxy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use rustls::ProtocolVersion;
use serde_json::json;
use support::http2::Http2;
use support::http2::Http2Upstream;
use support::http2::says;
use support::proxy::Proxy;
use support::secure::*;
use support::*;

const EVENTS: [&str; 2] = ["data: a\n\n", "data: [DONE]\n\n"];

fn stream() -> String {
    request(r#""stream":true"#)
}

/// A gateway whose listener has TLS of this authority.
fn secured(upstream: &Upstream, authority: &Authority, more: &str) -> Setup {
    Setup::of(upstream).listen(&authority.local().listener(more))
}

fn failures(gateway: &Gateway) -> u64 {
    let metrics = gateway.metrics();
    let line = metrics.lines().find(|line| line.starts_with("portcullis_tls_failures"));
    line.map_or(0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
}

// ------------------------------------------------------------------------------------- the listener

#[test]
fn every_version_and_protocol_is_served() {
    let (authority, upstream) = (Authority::new(), Upstream::good());
    let gateway = secured(&upstream, &authority, "").start();
    assert_eq!(gateway.scheme, "https");
    for (version, spoken) in VERSIONS.into_iter().zip([ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2]) {
        for protocols in [&[][..], &["http/1.1"]] {
            let config = Trust::in_authority(&authority).version(version).protocols(protocols).config();
            let mut client = Client::secure(gateway.address, &config);
            assert_eq!(client.agreed(), (spoken, protocols.first().map(|name| (*name).to_owned())));
            client.ask(gateway.address, "POST", "/v1/chat/completions", &[], judged().as_bytes());
            let answer = client.answer(false);
            assert_eq!((answer.status(), answer.content().as_str()), (200, GOOD), "{answer}");
            upstream.next(Script::streams(&EVENTS));
            client.ask(gateway.address, "POST", "/v1/chat/completions", &[], stream().as_bytes());
            let answer = client.answer(false);
            assert_eq!((answer.text(), answer.complete), (EVENTS.concat(), true), "{answer}");
        }
        let config = Trust::in_authority(&authority).version(version).protocols(&["h2", "http/1.1"]).config();
        let client = Http2::secure(&gateway, &config);
        let answer = client.chat(&judged()).answer();
        assert_eq!((answer.status(), answer.content().as_str()), (200, GOOD), "{answer}");
        upstream.next(Script::streams(&EVENTS));
        let answer = client.chat(&stream()).answer();
        assert_eq!((answer.text(), answer.complete), (EVENTS.concat(), true), "{answer}");
    }
    assert_eq!(failures(&gateway), 0);
}

#[test]
fn plain_http_and_noise_are_told_so_and_counted() {
    let (authority, upstream) = (Authority::new(), Upstream::good());
    let gateway = secured(&upstream, &authority, "").start();
    let answer = gateway.chat(&judged());
    assert_eq!((answer.status(), answer.code().as_str()), (400, "invalid_http"), "{answer}");
    assert!(answer.text().contains("https://"), "{answer}");
    assert_eq!(answer.header("connection"), Some("close"));
    eventually("plain HTTP is counted", || failures(&gateway) == 1);
    for (index, noise) in
        [&b"\x16\x03\x01\x00\x05hello"[..], b"\x16\x16\x16\x16\x16\x16\x16\x16", b"\x00\x00\x00", b"SSH-2.0-x\r\n"]
            .into_iter()
            .enumerate()
    {
        let mut client = gateway.client();
        client.send(noise);
        client.raw();
        eventually("noise is counted", || failures(&gateway) == index as u64 + 2);
    }
    assert_eq!(upstream.count(), 0);
    let mut client = Client::secure(gateway.address, &Trust::in_authority(&authority).config());
    client.ask(gateway.address, "GET", "/v1/models", &[], b"");
    assert_eq!(client.answer(false).status(), 200, "the gateway lives");
}

#[test]
fn who_says_nothing_or_stops_in_the_handshake_is_let_go() {
    let (authority, upstream) = (Authority::new(), Upstream::good());
    let gateway = secured(&upstream, &authority, "").listen("limits: {header_timeout: 200ms}").start();
    let mut silent = gateway.client();
    let mut stalled = gateway.client();
    stalled.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    let mut quiet = Client::secure(gateway.address, &Trust::in_authority(&authority).config());
    let mut http2 = Client::secure(gateway.address, &Trust::in_authority(&authority).protocols(&["h2"]).config());
    for client in [&mut silent, &mut stalled, &mut quiet, &mut http2] {
        client.raw();
        assert!(client.is_closed());
    }
    assert_eq!(failures(&gateway), 2, "the other two had shaken hands");
}

#[test]
fn who_goes_away_or_reads_nothing_ends_the_call() {
    let authority = Authority::new();
    let endless = Script::stream().endless("400\r\n".to_owned() + &"x".repeat(0x400) + "\r\n");
    let upstream = Upstream::that(endless);
    let limits = "limits: {idle_timeout: 300ms, header_timeout: 200ms}";
    let gateway = secured(&upstream, &authority, "").listen(limits).audited().start();
    let config = Trust::in_authority(&authority).config();
    for goes in [true, false] {
        let before = upstream.count();
        let mut client = Client::secure(gateway.address, &config);
        client.ask(gateway.address, "POST", "/v1/chat/completions", &[], stream().as_bytes());
        assert_eq!(client.head().status(), 200);
        assert!(!upstream.call().is_closed());
        let client = if goes { None } else { Some(client) };
        eventually("the upstream call is ended", || upstream.call().is_closed());
        assert_eq!(gateway.audit(before + 1)[before]["outcome"], "cancelled");
        drop(client);
    }
}

#[test]
fn only_who_shows_a_certificate_of_the_authority_is_let_in() {
    let (authority, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let upstream = Upstream::good();
    let gateway = secured(&upstream, &authority, &format!(", client_ca: {:?}", clients.file())).start();
    let trust = || Trust::in_authority(&authority);
    for (index, version) in VERSIONS.into_iter().enumerate() {
        let refused = [trust().version(version), trust().version(version).showing(&others.identity(&["client"]))];
        for (at, trust) in refused.into_iter().enumerate() {
            // In TLS 1.3 the client is done before the server has looked at what it shows.
            if let Ok(mut client) = Client::try_secure(gateway.address, &trust.config()) {
                client.ask(gateway.address, "POST", "/v1/chat/completions", &[], judged().as_bytes());
                assert_eq!(text(&client.raw()), "");
            }
            eventually("a refused client is counted", || failures(&gateway) == (index * 2 + at) as u64 + 1);
        }
        let config = trust().version(version).showing(&clients.identity(&["client"])).config();
        let mut client = Client::secure(gateway.address, &config);
        client.ask(gateway.address, "POST", "/v1/chat/completions", &[], judged().as_bytes());
        assert_eq!(client.answer(false).status(), 200);
    }
    assert_eq!(upstream.count(), 2);
}

#[test]
fn a_drain_does_not_wait_for_a_handshake() {
    let (authority, upstream) = (Authority::new(), Upstream::good());
    let mut gateway = secured(&upstream, &authority, "").start();
    let mut silent = gateway.client();
    let mut stalled = gateway.client();
    stalled.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    let mut idle = Client::secure(gateway.address, &Trust::in_authority(&authority).config());
    idle.ask(gateway.address, "GET", "/v1/models", &[], b"");
    assert_eq!(idle.answer(false).status(), 200, "so all three were accepted");
    gateway.terminate();
    // The drain may take 30 s and a handshake 10 s: what waited for either would be late.
    assert_eq!(gateway.ended().code(), Some(0));
    for client in [&mut silent, &mut stalled, &mut idle] {
        client.raw();
        assert!(client.is_closed());
    }
}

#[test]
fn the_certificates_that_are_made_to_try_with_are_what_serve_takes() {
    let folder = tempfile::tempdir().unwrap();
    let made = portcullis().args(["certs", "dev"]).arg(folder.path()).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let file = |name: &str| folder.path().join(name);
    let upstream = Upstream::good();
    let tls = format!(
        "tls: {{certificate: {:?}, key: {:?}, client_ca: {:?}}}",
        file("server.pem"),
        file("server.key"),
        file("ca.pem")
    );
    let gateway = Setup::of(&upstream).listen(&tls).start();
    let trust = Trust::in_file(&file("ca.pem")).showing_files(&file("client.pem"), &file("client.key"));
    let client = Http2::secure(&gateway, &trust.protocols(&["h2"]).config());
    assert_eq!(client.chat(&judged()).answer().status(), 200);
    // The same pair serves a backend, and the gateway shows the client's certificate to it.
    let back = format!(
        ", tls: {{ca: {:?}, certificate: {:?}, key: {:?}}}",
        file("ca.pem"),
        file("client.pem"),
        file("client.key")
    );
    let chained = Setup::new().backend_at("up", "openai", &https(gateway.address), &back).start();
    assert_eq!(chained.chat(&judged()).status(), 200);
    assert_eq!(upstream.count(), 2);
}

// ------------------------------------------------------------------------------------- backends

#[test]
fn a_backend_is_trusted_by_its_authority_and_its_name() {
    let (authority, other) = (Authority::new(), Authority::new());
    let upstream = Upstream::secured(&authority.local().server(&[], None), Script::says(GOOD));
    let elsewhere = Upstream::secured(&authority.identity(&["elsewhere.test"]).server(&[], None), Script::says(GOOD));
    let second = Upstream::good();
    for (what, at, more) in [
        ("an unknown authority", &upstream, trusting(&other)),
        ("no public authority", &upstream, String::new()),
        ("another name", &elsewhere, trusting(&authority)),
    ] {
        let first =
            || Setup::new().backend_at("first", "openai", &https(at.address), &format!("{more}, api_key: sk-1"));
        let gateway = first().audited().start();
        let answer = gateway.chat(&judged());
        answer.assert_error(502, "upstream_error", "upstream_unreachable");
        assert!(!answer.text().contains("sk-1"), "{what}: {answer}");
        eventually("the log says why", || gateway.log().contains("certificate"));
        let gateway = first().backend("second", "openai", second.address, "").audited().start();
        let answer = gateway.chat(&judged());
        assert_eq!((answer.status(), answer.header("x-portcullis-backend")), (200, Some("second")), "{what}: {answer}");
        assert_eq!(gateway.audit(1)[0]["failures"], json!([{"backend": "first", "reason": "connect"}]), "{what}");
    }
    assert_eq!((upstream.count(), elsewhere.count()), (0, 0));
    let gateway = Setup::new().backend_at("up", "openai", &https(upstream.address), &trusting(&authority)).start();
    for _ in 0..3 {
        assert_eq!(gateway.chat(&judged()).status(), 200);
    }
    let call = upstream.call();
    assert_eq!(call.header("host"), Some(upstream.address.to_string().as_str()));
    assert!(call.head.line.starts_with("POST /v1/chat/completions "), "{call:?}");
    upstream.next(Script::streams(&EVENTS));
    assert_eq!(gateway.chat(&stream()).text(), EVENTS.concat());
}

#[test]
fn a_backend_is_shown_who_calls_where_it_asks() {
    let (authority, clients, others) = (Authority::new(), Authority::new(), Authority::new());
    let files = |identity: &Identity| {
        format!(
            ", tls: {{ca: {:?}, certificate: {:?}, key: {:?}}}",
            authority.file(),
            identity.certificate,
            identity.key
        )
    };
    let second = Upstream::good();
    let (one, two) = (authority.local().server(&[], Some(&clients)), authority.local().server(&["h2"], Some(&clients)));
    let (http1, http2) = (Upstream::secured(&one, Script::says(GOOD)), Http2Upstream::that(&two, says(GOOD)));
    for address in [http1.address, http2.address] {
        let shown = files(&clients.identity(&["gateway"]));
        let gateway = Setup::new().backend_at("up", "openai", &https(address), &shown).start();
        assert_eq!(gateway.chat(&judged()).status(), 200);
        for more in [trusting(&authority), files(&others.identity(&["gateway"]))] {
            let first = || Setup::new().backend_at("first", "openai", &https(address), &more);
            first().start().chat(&judged()).assert_error(502, "upstream_error", "upstream_unreachable");
            let gateway = first().backend("second", "openai", second.address, "").start();
            let answer = gateway.chat(&judged());
            assert_eq!((answer.status(), answer.header("x-portcullis-backend")), (200, Some("second")), "{answer}");
        }
    }
    assert_eq!((http1.count(), http2.count()), (1, 1));
}

#[test]
fn a_backend_that_closes_between_calls_is_no_failure_with_tls_either() {
    let authority = Authority::new();
    let upstream = Upstream::secured(&authority.local().server(&[], None), Script::says(GOOD).close());
    let gateway = Setup::new().backend_at("up", "openai", &https(upstream.address), &trusting(&authority)).start();
    for _ in 0..5 {
        let answer = gateway.chat(&judged());
        assert_eq!(answer.status(), 200, "{answer}");
        eventually("the upstream has closed", || upstream.open() == 0);
    }
    assert_eq!(upstream.count(), 5);
}

#[test]
fn connections_that_backends_have_closed_do_not_pile_up() {
    let authority = Authority::new();
    let gate = Gate::default();
    let body = completion(GOOD);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    let script = Script::new().gate(&gate).send(head).send(body).close();
    let (plain, secure) =
        (Upstream::that(script.clone()), Upstream::secured(&authority.local().server(&[], None), script));
    let gateway = Setup::new()
        .backend("plain", "openai", plain.address, "")
        .backend_at("secure", "openai", &https(secure.address), &trusting(&authority))
        .model("plain", "{targets: [{backend: plain}]}")
        .model("secure", "{targets: [{backend: secure}]}")
        .start();
    gateway.metrics();
    let before = gateway.open_files();
    let ask = |model: &str| gateway.begin_chat(&judged().replace("\"m\"", &quoted(model)));
    let calls: Vec<Client> = (0..8).flat_map(|_| [ask("plain"), ask("secure")]).collect();
    eventually("sixteen calls are under way", || plain.count() == 8 && secure.count() == 8);
    assert!(gateway.open_files() >= before + 30); // the probe for the metrics may have been open still
    gate.open();
    for mut client in calls {
        assert_eq!(client.answer(false).status(), 200);
    }
    eventually("the gateway has closed its sides, too", || gateway.open_files() <= before);
}

#[test]
fn no_more_calls_are_under_way_than_a_backend_may_have() {
    let (authority, gate) = (Authority::new(), Gate::default());
    let body = completion(GOOD);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    let script = Script::new().gate(&gate).send(head).send(body);
    let http1 = Upstream::secured(&authority.local().server(&[], None), script);
    let http2 = Http2Upstream::that(&authority.local().server(&["h2"], None), http2::says_after(&gate, GOOD));
    let bounded = format!("{}, concurrency: 2", trusting(&authority));
    let gateway = Setup::new()
        .backend_at("one", "openai", &https(http1.address), &bounded)
        .backend_at("two", "openai", &https(http2.address), &bounded)
        .model("one", "{targets: [{backend: one}]}")
        .model("two", "{targets: [{backend: two}]}")
        .start();
    let ask = |model: &str| gateway.begin_chat(&judged().replace("\"m\"", &quoted(model)));
    let calls: Vec<Client> = (0..5).flat_map(|_| [ask("one"), ask("two")]).collect();
    eventually("all are under way at the gateway", || gateway.metrics().contains("portcullis_in_flight 10"));
    eventually("two are at each backend", || http1.count() == 2 && http2.count() == 2);
    gate.open();
    for mut client in calls {
        assert_eq!(client.answer(false).status(), 200);
    }
    assert_eq!((http1.count(), http2.count(), http2.most()), (5, 5, 2));
    assert!(http1.connections() <= 2, "{}", http1.connections());
}

// ------------------------------------------------------------------------------------- proxies

const PASSWORD: &str = "p4ss-w0rd";
/// `user:p4ss-w0rd` for `proxy-authorization`.
const BASIC: &str = "Basic dXNlcjpwNHNzLXcwcmQ=";

fn through(proxy: std::net::SocketAddr) -> String {
    format!(", proxy: \"http://user:{PASSWORD}@{proxy}\"")
}

fn assert_untold(gateway: &Gateway, answers: &[Answer]) {
    let mut seen = gateway.log() + &gateway.metrics() + &gateway.probe("/readyz?verbose", &[]).text();
    seen.push_str(&std::fs::read_to_string(gateway.audit_file()).unwrap_or_default());
    answers.iter().for_each(|answer| seen.push_str(&answer.to_string()));
    for secret in [PASSWORD, BASIC.strip_prefix("Basic ").unwrap()] {
        assert!(!seen.contains(secret), "{seen}");
    }
}

#[test]
fn a_proxy_sees_that_there_is_a_tunnel_and_nothing_in_it() {
    let authority = Authority::new();
    let upstream = Upstream::secured(&authority.identity(&["llm.test"]).server(&[], None), Script::says(GOOD));
    let proxy = Proxy::to(&[("llm.test:443", upstream.address)]);
    let more = format!("{}, api_key: sk-secret{}", trusting(&authority), through(proxy.address));
    let gateway = Setup::new()
        .backend_at("up", "openai", "https://llm.test", &more) // a name that only the proxy knows
        .audited()
        .line("telemetry: {log: debug}")
        .start();
    let answers: Vec<Answer> = (0..3).map(|_| gateway.chat(&judged())).collect();
    assert!(answers.iter().all(|answer| answer.status() == 200), "{}", answers[0]);
    let heads = proxy.heads();
    assert_eq!(heads.len(), 1, "the tunnel is kept: {heads:?}");
    assert_eq!(heads[0].line, "CONNECT llm.test:443 HTTP/1.1");
    assert_eq!(heads[0].header("host"), Some("llm.test:443"));
    assert_eq!(heads[0].header("proxy-authorization"), Some(BASIC));
    assert_eq!(heads[0].headers.len(), 2, "{heads:?}");
    let seen = text(&proxy.bytes());
    assert!(!seen.contains("sk-secret") && !seen.contains("chat/completions"), "{seen}");
    let call = upstream.call();
    assert_eq!((call.header("host"), call.header("authorization")), (Some("llm.test"), Some("Bearer sk-secret")));
    assert_eq!(call.header("proxy-authorization"), None);
    assert_untold(&gateway, &answers);
}

#[test]
fn http2_goes_through_a_tunnel_too() {
    let authority = Authority::new();
    let upstream = Http2Upstream::that(&authority.identity(&["llm.test"]).server(&["h2"], None), says(GOOD));
    let proxy = Proxy::to(&[("llm.test:8443", upstream.address)]);
    let more = format!("{}{}", trusting(&authority), through(proxy.address));
    let gateway = Setup::new().backend_at("up", "openai", "https://llm.test:8443", &more).start();
    for _ in 0..3 {
        assert_eq!(gateway.chat(&judged()).status(), 200);
    }
    assert_eq!((proxy.heads().len(), upstream.connections(), upstream.count()), (1, 1, 3));
}

#[test]
fn a_proxy_is_told_the_whole_address_of_a_backend_without_tls() {
    let upstream = Upstream::good();
    let proxy = Proxy::to(&[("llm.test", upstream.address)]);
    let gateway = Setup::new()
        .backend_at("up", "openai", "http://llm.test", &through(proxy.address))
        .audited()
        .line("telemetry: {log: debug}")
        .start();
    let headers = [("proxy-authorization", "Basic bWluZQ=="), ("proxy-connection", "keep-alive")];
    let answers: Vec<Answer> = (0..2).map(|_| gateway.chat_with(&headers, &judged())).collect();
    assert!(answers.iter().all(|answer| answer.status() == 200), "{}", answers[0]);
    for head in proxy.heads() {
        assert_eq!(head.line, "POST http://llm.test/v1/chat/completions HTTP/1.1");
        assert_eq!(head.header("proxy-authorization"), Some(BASIC), "the caller's own is the caller's");
        assert_eq!((head.header("host"), head.header("proxy-connection")), (Some("llm.test"), None));
    }
    assert_eq!(upstream.call().header("proxy-authorization"), None);
    assert_untold(&gateway, &answers);
}

#[test]
fn a_proxy_that_fails_is_an_unreachable_backend() {
    let authority = Authority::new();
    let second = Upstream::good();
    let proxy = Upstream::good();
    let unreachable = (502, "upstream_unreachable", Some("connect"));
    let asks = format!("proxy-authenticate: Basic realm=\"{PASSWORD}\"\r\n");
    let (who, no) = (Script::answer(407, &asks, "who?"), Script::answer(502, "", "no"));
    let noise = Script::new().send("SSH-2.0-x\r\n\r\n").close();
    let (end, silence) = (Script::new().close(), Script::new().stall());
    let https = [
        ("407", &who, unreachable),
        ("502", &no, unreachable),
        ("noise", &noise, unreachable),
        ("the end", &end, unreachable),
        ("silence", &silence, (504, "upstream_timeout", Some("connect_timeout"))),
    ];
    // All but the first of what a proxy answers in the place of a backend without TLS, the backend may have said.
    let http = [
        ("407", &who, unreachable),
        ("502", &no, (502, "upstream_error", Some("server_error"))),
        ("noise", &noise, (502, "upstream_protocol", None)),
        ("the end", &end, (502, "upstream_protocol", None)),
        ("silence", &silence, (504, "upstream_timeout", Some("first_byte_timeout"))),
    ];
    for (scheme, table) in [("https", https), ("http", http)] {
        let tls = if scheme == "https" { trusting(&authority) } else { String::new() };
        let times = if scheme == "https" { "connect: 300ms, first_byte: 5s" } else { "connect: 5s, first_byte: 300ms" };
        let more = format!("{tls}, timeouts: {{{times}}}{}, api_key: sk-1", through(proxy.address));
        let first = || Setup::new().backend_at("first", "openai", &format!("{scheme}://llm.test"), &more).audited();
        let alone = first().line("telemetry: {log: debug}").start();
        let both = first().backend("second", "openai", second.address, "").start();
        let mut answers = Vec::new();
        for (what, script, (status, code, next)) in table {
            proxy.always(script.clone());
            let answer = alone.chat(&judged());
            answer.assert_error(status, "upstream_error", code);
            assert_eq!(answer.outcome(), "failed", "{what}");
            answers.push(answer);
            let answer = both.chat(&judged());
            let served = next.map_or("first", |_| "second");
            assert_eq!(answer.header("x-portcullis-backend"), Some(served), "{what}: {answer}");
            if let Some(reason) = next {
                let failures = both.audit(answers.len()).last().unwrap()["failures"].clone();
                assert_eq!(failures, json!([{"backend": "first", "reason": reason}]), "{what}");
            }
        }
        if scheme == "https" {
            assert!(proxy.calls().iter().all(|call| !format!("{:?}", call.head).contains("sk-1")));
        }
        eventually("the log says where it failed", || alone.log().contains("proxy"));
        assert_untold(&alone, &answers);
        assert_untold(&both, &[]);
    }
    // One that is not there at all.
    let gateway = Setup::new()
        .backend_at("first", "openai", "https://llm.test", &through(nowhere()))
        .backend("second", "openai", second.address, "")
        .start();
    assert_eq!(gateway.chat(&judged()).header("x-portcullis-backend"), Some("second"));
}

#[test]
fn the_proxies_of_the_environment_are_taken_where_nothing_is_written() {
    let authority = Authority::new();
    let secure =
        Upstream::secured(&authority.identity(&["llm.test", "direct.localhost"]).server(&[], None), Script::says(GOOD));
    let (plain, local) = (Upstream::good(), Upstream::good());
    let (one, two) = (
        Proxy::to(&[("llm.test:443", secure.address)]),
        Proxy::to(&[("plain.test", plain.address), ("written.test", plain.address)]),
    );
    let tls = trusting(&authority);
    let gateway = Setup::new()
        .env("HTTPS_PROXY", &format!("http://user:{PASSWORD}@{}", one.address))
        .env("http_proxy", &format!("http://{}", two.address))
        .env("NO_PROXY", "direct.test,10.0.0.0/8")
        .backend_at("secure", "openai", "https://llm.test", &tls)
        .backend_at("plain", "openai", "http://plain.test", "")
        .backend("local", "openai", local.address, "")
        .backend_at("direct", "openai", "http://direct.test:9", "")
        .backend_at("none", "openai", "http://written.test:9", ", proxy: \"\"")
        .model("secure", "{targets: [{backend: secure}]}")
        .model("plain", "{targets: [{backend: plain}]}")
        .model("local", "{targets: [{backend: local}]}")
        .model("direct", "{targets: [{backend: direct}]}")
        .model("none", "{targets: [{backend: none}]}")
        .audited()
        .start();
    let ask = |model: &str| gateway.chat(&judged().replace("\"m\"", &quoted(model)));
    for model in ["secure", "plain", "local"] {
        assert_eq!(ask(model).status(), 200, "{model}: {}", gateway.log());
    }
    for model in ["direct", "none"] {
        let answer = ask(model); // these names lead nowhere from here
        assert!(matches!(answer.code().as_str(), "upstream_unreachable" | "upstream_timeout"), "{model}: {answer}");
    }
    assert_eq!(
        one.heads().iter().map(|head| head.line.as_str()).collect::<Vec<_>>(),
        ["CONNECT llm.test:443 HTTP/1.1"]
    );
    assert_eq!(one.heads()[0].header("proxy-authorization"), Some(BASIC));
    let lines: Vec<String> = two.heads().into_iter().map(|head| head.line).collect();
    assert_eq!(lines, ["POST http://plain.test/v1/chat/completions HTTP/1.1"]);
    assert_eq!((secure.count(), plain.count(), local.count()), (1, 1, 1));
    assert_untold(&gateway, &[]);
}

// ------------------------------------------------------------------------------------- who is calling

#[test]
fn who_calls_is_what_a_trusted_proxy_says_and_no_backend_hears_of_it() {
    let upstream = Upstream::good();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [
        ("x-forwarded-for", "192.0.2.1, 203.0.113.7"),
        ("x-forwarded-host", "public.example"),
        ("x-forwarded-proto", "https"),
        ("forwarded", "for=192.0.2.1"),
        ("x-real-ip", "192.0.2.1"),
        ("traceparent", trace),
        ("tracestate", "a=b"),
    ];
    for (listen, client) in [
        ("trusted_proxies: [\"127.0.0.0/8\"]", "203.0.113.7"),
        ("trusted_proxies: [\"127.0.0.1\", \"203.0.113.0/24\"]", "192.0.2.1"),
        ("trusted_proxies: []", "127.0.0.1"),
        ("trusted_proxies: [\"10.0.0.0/8\"]", "127.0.0.1"),
    ] {
        let gateway = Setup::of(&upstream).listen(listen).audited().start();
        assert_eq!(gateway.chat_with(&headers, &judged()).status(), 200);
        assert_eq!(Http2::plain(&gateway).post("/v1/embeddings", &headers, "{}").answer().status(), 200);
        for line in gateway.audit(2) {
            let found = (&line["client"], &line["trace_id"]);
            assert_eq!(found, (&json!(client), &json!("0af7651916cd43dd8448eb211c80319c")), "{listen}: {line}");
        }
    }
    assert_eq!(upstream.count(), 8);
    for call in upstream.calls() {
        assert_eq!((call.header("traceparent"), call.header("tracestate")), (Some(trace), Some("a=b")));
        let forwarded = |(name, value): &(String, String)| {
            name.contains("forwarded")
                || name == "x-real-ip"
                || value.contains("192.0.2.1")
                || value.contains("public.example")
        };
        assert!(!call.head.headers.iter().any(forwarded), "{call:?}");
    }
}
