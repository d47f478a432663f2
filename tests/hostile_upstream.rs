//! Backends that break, stall, lie and never end, as a black box: whatever they do and whenever they do it, the caller
//! gets a clear error or sees the answer break off, nothing unjudged gets out, and nothing is left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::time::Duration;

use support::*;

/// What no caller of a judged answer may see unless it is accepted.
const MARK: &str = "MARKED";
/// For those whose time must run out, and for all others, however busy the machine is.
const SHORT: &str = ", timeouts: {connect: 2s, first_byte: 500ms, idle: 500ms, total: 1500ms}";
const LONG: &str = ", timeouts: {connect: 8s, first_byte: 8s, idle: 8s, total: 9s}";
const LIMITS: &str = "limits: {response: 256KiB}";

/// How an answer gets to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Judged,
    Held,
    Sifted,
    Relayed,
    RelayedStream,
    Open,
}

/// Where in the answer the fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stage {
    BeforeHead,
    InHead,
    AfterHead,
    MidBody,
    MidEvent,
    InCharacter,
    LastByte,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Reset,
    Stall,
    Garbage,
    Close,
    Endless,
}

const STAGES: [Stage; 7] = [
    Stage::BeforeHead,
    Stage::InHead,
    Stage::AfterHead,
    Stage::MidBody,
    Stage::MidEvent,
    Stage::InCharacter,
    Stage::LastByte,
];
const FAULTS: [Fault; 5] = [Fault::Reset, Fault::Stall, Fault::Garbage, Fault::Close, Fault::Endless];

/// What must come of it.
#[derive(Clone, Debug)]
enum Expect {
    /// The answer as if nothing had been, with this outcome.
    Good(&'static str),
    /// An error: its status and code, and the reasons that the failed attempt may have.
    Error(u16, &'static str, &'static [&'static str]),
    /// A status of 200 and then an error event.
    Event(&'static str, &'static [&'static str]),
    /// A relay that breaks off, and what the record says of it.
    Broken(&'static str, &'static [&'static str]),
}

impl Expect {
    fn reasons(&self) -> &'static [&'static str] {
        match self {
            Self::Good(_) => &[],
            Self::Error(_, _, reasons) | Self::Event(_, reasons) | Self::Broken(_, reasons) => reasons,
        }
    }

    /// The backend's timeouts.
    fn times(&self) -> &'static str {
        let is_late = |reason: &&str| reason.ends_with("timeout") || **reason == *"deadline";
        if self.reasons().iter().any(is_late) { SHORT } else { LONG }
    }
}

impl Way {
    fn is_relay(self) -> bool {
        matches!(self, Self::Relayed | Self::RelayedStream | Self::Open)
    }

    fn is_stream(self) -> bool {
        matches!(self, Self::Held | Self::Sifted | Self::RelayedStream)
    }

    fn path(self) -> &'static str {
        if self == Self::Open { "/v1/embeddings" } else { "/v1/chat/completions" }
    }

    fn request(self, alias: &str) -> String {
        let tools = r#""stream":true,"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","required":["z"]}}}]"#;
        let body = match self {
            Self::Judged => judged(),
            Self::Held => judged_stream(),
            Self::Sifted => request(tools),
            Self::Relayed => request(""),
            Self::RelayedStream => request(r#""stream":true"#),
            Self::Open => r#"{"model":"m","input":"hi"}"#.to_owned(),
        };
        body.replacen("\"m\"", &quoted(alias), 1)
    }

    /// A good answer, in the pieces that its framing makes of it: the head, then the body's.
    fn answer(self) -> Vec<String> {
        let said = format!(r#"{{"z":"{MARK} é {MARK}","a":1}}"#);
        if !self.is_stream() {
            let body = completion(&said);
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
            return vec![head, body];
        }
        let events = if self == Self::Sifted {
            let call = |rest: &str, arguments: &str| {
                let arguments = quoted(arguments);
                let delta = format!(
                    r#"{{"tool_calls":[{{"index":0,{rest}"function":{{{}"arguments":{arguments}}}}}]}}"#,
                    if rest.is_empty() { "" } else { r#""name":"f","# }
                );
                chunk(&delta, "null")
            };
            vec![
                chunk(r#"{"role":"assistant","content":""}"#, "null"),
                chunk(r#"{"content":"Let me look."}"#, "null"),
                call(r#""id":"a","type":"function","#, "{\"z\":"),
                call("", &format!("\"{MARK} é {MARK}\"}}")),
                chunk("{}", "\"tool_calls\""),
                "data: [DONE]\n\n".to_owned(),
            ]
        } else {
            vec![
                chunk(r#"{"role":"assistant","content":""}"#, "null"),
                chunk(&format!(r#"{{"content":{}}}"#, quoted(&said[..6])), "null"),
                chunk(&format!(r#"{{"content":{}}}"#, quoted(&said[6..])), "null"),
                chunk("{}", "\"stop\""),
                "data: [DONE]\n\n".to_owned(),
            ]
        };
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let chunks = events.iter().map(|event| format!("{:x}\r\n{event}\r\n", event.len()));
        [head.to_owned()].into_iter().chain(chunks).chain(["0\r\n\r\n".to_owned()]).collect()
    }

    /// A good answer that goes wrong here, like this.
    fn script(self, stage: Stage, fault: Fault) -> Script {
        let pieces = self.answer();
        let head = pieces[0].len();
        let mut whole = pieces.concat().into_bytes();
        let find = |what: &str| memchr::memmem::find(&whole, what.as_bytes()).unwrap();
        let cut = match stage {
            Stage::BeforeHead => 0,
            Stage::InHead => head / 2,
            Stage::AfterHead => head,
            Stage::MidBody if self.is_stream() => pieces[..3].concat().len(),
            Stage::MidBody => head + 20,
            Stage::MidEvent => find(MARK) + 3,
            Stage::InCharacter => find("é") + 1,
            Stage::LastByte => whole.len() - 1,
        };
        let rest = whole.len() - cut;
        let sized = !self.is_stream() && stage >= Stage::AfterHead;
        if fault == Fault::Endless && stage == Stage::LastByte {
            return Script::new().send(whole).endless("HTTP/1.1 200 OK\r\n"); // the end came, and then more
        }
        let kept = whole.drain(..cut).collect::<Vec<u8>>();
        let begun = Script::new().send(&kept);
        match fault {
            Fault::Reset => begun.wait(Duration::from_millis(30)).reset(),
            Fault::Close => begun.close(),
            Fault::Stall => begun.stall(),
            Fault::Garbage if sized => begun.send(vec![0xFF; rest]).stall(),
            Fault::Garbage => begun.send([0x00, 0xFF].repeat(1024)).stall(),
            Fault::Endless if stage == Stage::BeforeHead => begun.endless("HTTP/1.1 100 Continue\r\n\r\n"),
            Fault::Endless if stage == Stage::InHead => begun.endless([b'x'; 1024]),
            Fault::Endless => {
                let text = String::from_utf8_lossy(&kept).into_owned();
                let length = format!("content-length: {}", pieces[1].len());
                let begun = match sized {
                    true => Script::new()
                        .send(text.replace(&length, "content-length: 99999999999").replace('\u{FFFD}', "?")),
                    // What is left of the chunk under way is filled up.
                    false => {
                        let ends = pieces.iter().scan(0, |at, piece| {
                            *at += piece.len();
                            Some(*at)
                        });
                        let end = ends.into_iter().find(|end| *end >= cut).unwrap();
                        let fill =
                            if end == cut { String::new() } else { format!("{}\r\n", "x".repeat(end - cut - 2)) };
                        begun.send(fill)
                    }
                };
                let piece = if sized { "x".repeat(1024) } else { format!("400\r\n{}\r\n", "x".repeat(1024)) };
                if self.is_relay() { begun.drip(piece, Duration::from_millis(20)) } else { begun.endless(piece) }
            }
        }
    }

    /// What http.md says of it.
    fn expected(self, stage: Stage, fault: Fault) -> Expect {
        let good = Expect::Good(if self.is_relay() { "unchecked" } else { "accepted" });
        // What follows an answer is no part of it, and after `[DONE]` nothing is waited for.
        if stage == Stage::LastByte && (fault == Fault::Endless || matches!(self, Self::Held | Self::Sifted)) {
            return good;
        }
        // Of a body in one piece that is not read here, nobody knows what it should be.
        if fault == Fault::Garbage && stage >= Stage::AfterHead && matches!(self, Self::Relayed | Self::Open) {
            return good;
        }
        let in_head = stage <= Stage::InHead;
        let (status, code, reasons): (_, _, &[&str]) = match fault {
            Fault::Reset | Fault::Close => (502, "upstream_protocol", &["broken"]),
            Fault::Garbage => (502, "upstream_protocol", &["broken", "protocol"]),
            Fault::Stall if in_head => (504, "upstream_timeout", &["first_byte_timeout"]),
            Fault::Stall => (504, "upstream_timeout", &["idle_timeout"]),
            Fault::Endless if in_head => (502, "upstream_protocol", &["broken"]),
            Fault::Endless if self.is_relay() => (504, "upstream_timeout", &["deadline"]),
            Fault::Endless => (502, "upstream_too_large", &["too_large"]),
        };
        match self {
            _ if in_head => Expect::Error(status, code, reasons),
            _ if self.is_relay() => Expect::Broken(code, reasons),
            Self::Sifted if stage >= Stage::MidBody => Expect::Event(code, reasons),
            _ => Expect::Error(status, code, reasons),
        }
    }
}

/// One backend that misbehaves, under an alias of its own, and what must come of it.
struct Row {
    name: String,
    way: Way,
    upstream: Upstream,
    expect: Expect,
    /// The answer came to its end, so the connection may be kept.
    ends: bool,
}

impl Row {
    fn new(name: String, way: Way, script: Script, expect: Expect) -> Self {
        let ends = matches!(expect, Expect::Good(_));
        Self { name, way, upstream: Upstream::that(script), expect, ends }
    }

    /// Makes the call. Gives what is wrong with the answer, and with what was left behind.
    fn call(&self, gateway: &Gateway) -> Vec<String> {
        let mut client = gateway.client();
        client.ask(gateway.address, "POST", self.way.path(), &[], self.way.request(&self.name).as_bytes());
        let answer = client.try_answer();
        let mut wrong = match &answer {
            Some(answer) => self.judged(answer),
            None if matches!(self.expect, Expect::Broken(..)) => Vec::new(), // the head was not out yet
            None => vec!["no answer".to_owned()],
        };
        let deadline = std::time::Instant::now() + PATIENCE;
        while !self.ends && !self.upstream.call().is_closed() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if !self.ends && !self.upstream.call().is_closed() {
            wrong.push("the backend was not let go".to_owned());
        }
        if self.upstream.count() != 1 {
            wrong.push(format!("{} calls", self.upstream.count()));
        }
        wrong.iter().map(|wrong| format!("{}: {wrong}", self.name)).collect()
    }

    fn judged(&self, answer: &Answer) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut expect = |holds: bool, what: &str| {
            if !holds {
                wrong.push(format!("{what} (expected {:?}), but {answer}, complete: {}", self.expect, answer.complete));
            }
        };
        let body = answer.text();
        let code = || {
            serde_json::from_str::<serde_json::Value>(&body)
                .ok()
                .and_then(|body| Some(body["error"]["code"].as_str()?.to_owned()))
        };
        match &self.expect {
            Expect::Good(_) => expect(answer.status() == 200 && answer.complete, "not good"),
            Expect::Error(status, expected, _) => {
                expect(answer.status() == *status && answer.complete, "not this status");
                expect(code().as_deref() == Some(*expected), "not this code");
                expect(answer.outcome() == "failed", "not this outcome");
            }
            Expect::Event(code, _) => {
                expect(answer.status() == 200 && answer.complete, "no event stream");
                expect(
                    body.trim_end()
                        .rsplit("\n\n")
                        .next()
                        .is_some_and(|last| last.contains(&format!(r#""code":"{code}""#))),
                    "no error at its end",
                );
            }
            Expect::Broken(..) => expect(answer.status() == 200 && !answer.complete, "not broken off"),
        }
        let unjudged = !self.way.is_relay() && !matches!(self.expect, Expect::Good(_));
        expect(!(unjudged && body.contains(MARK)), "something unjudged got out");
        wrong
    }

    /// What is wrong with the metrics and with the record.
    fn entered(&self, metrics: &str, records: &[serde_json::Value]) -> Vec<String> {
        let name = &self.name;
        let (outcome, code, reasons) = match &self.expect {
            Expect::Good(outcome) => (*outcome, "", &[][..]),
            Expect::Error(_, code, reasons) | Expect::Event(code, reasons) | Expect::Broken(code, reasons) => {
                ("failed", *code, *reasons)
            }
        };
        let mut wrong = Vec::new();
        let line = format!(r#"portcullis_requests_total{{alias="{name}",code="{code}",outcome="{outcome}"}} 1"#);
        if !metrics.contains(&line) {
            wrong.push(format!("{name}: `{line}` is not in the metrics"));
        }
        let failed = |reason: &str| {
            metrics.contains(&format!(r#"portcullis_upstream_failures_total{{backend="{name}",reason="{reason}"}} 1"#))
        };
        if reasons.is_empty() == metrics.contains(&format!(r#"failures_total{{backend="{name}""#))
            || !(reasons.is_empty() || reasons.iter().any(|reason| failed(reason)))
        {
            wrong.push(format!("{name}: the failure is not entered under {reasons:?}"));
        }
        let own: Vec<&serde_json::Value> = records.iter().filter(|record| record["alias"] == name.as_str()).collect();
        if own.len() != 1 || own[0]["outcome"] != outcome || own[0]["code"].as_str().unwrap_or_default() != code {
            wrong.push(format!("{name}: the record is {own:?}"));
        }
        let relevant: Vec<&str> = metrics
            .lines()
            .filter(|line| {
                line.contains(&format!("\"{name}\""))
                    && (line.contains("requests_total") || line.contains("failures_total"))
            })
            .collect();
        if wrong.is_empty() { wrong } else { wrong.into_iter().chain([format!("  {relevant:#?}")]).collect() }
    }
}

/// Makes every call at once, and looks at what is there afterwards.
#[track_caller]
fn carry_out(rows: &[Row]) {
    let good = Upstream::good();
    let mut setup = Setup::of(&good).listen(LIMITS).line("audit: {path: audit.jsonl, required: false}");
    for row in rows {
        setup = setup
            .backend(&row.name, "openai", row.upstream.address, row.expect.times())
            .model(&row.name, &format!("{{targets: [{{backend: {}}}]}}", row.name));
    }
    let gateway = setup.model("*", "{targets: [{backend: up}]}").start();
    let mut wrong: Vec<String> = std::thread::scope(|scope| {
        let calls: Vec<_> = rows.iter().map(|row| scope.spawn(|| row.call(&gateway))).collect();
        calls.into_iter().flat_map(|call| call.join().unwrap()).collect()
    });
    assert_at_rest(&gateway);
    let records = gateway.audit(rows.len());
    let metrics = gateway.metrics();
    wrong.extend(rows.iter().flat_map(|row| row.entered(&metrics, &records)));
    assert_eq!(gateway.chat(&judged()).content(), GOOD, "a good request is still served");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let log = gateway.log();
    assert!(!log.contains(" ERROR ") && !log.contains("panicked") && !log.contains(MARK), "{log}");
}

#[track_caller]
fn assert_at_rest(gateway: &Gateway) {
    for line in ["portcullis_in_flight 0", "portcullis_held_bytes 0"] {
        eventually(line, || gateway.metrics().contains(line));
    }
}

/// Every stage with every fault.
#[track_caller]
fn matrix(way: Way) {
    let cells = STAGES.iter().flat_map(|stage| FAULTS.iter().map(|fault| (*stage, *fault)));
    let rows: Vec<Row> = cells
        .map(|(stage, fault)| {
            let name = format!("{stage:?}-{fault:?}");
            let row = Row::new(name, way, way.script(stage, fault), way.expected(stage, fault));
            let garbled = fault == Fault::Garbage && stage >= Stage::AfterHead && !way.is_stream();
            Row { ends: row.ends || garbled, ..row }
        })
        .collect();
    carry_out(&rows);
}

#[test]
fn a_judged_answer_is_whole_or_an_error() {
    matrix(Way::Judged);
}

#[test]
fn a_judged_stream_is_whole_or_an_error() {
    matrix(Way::Held);
}

#[test]
fn a_sifted_stream_ends_well_or_with_an_error_event() {
    matrix(Way::Sifted);
}

#[test]
fn a_relayed_answer_comes_whole_or_breaks_off() {
    matrix(Way::Relayed);
}

#[test]
fn a_relayed_stream_comes_whole_or_breaks_off() {
    matrix(Way::RelayedStream);
}

#[test]
fn an_open_path_comes_whole_or_breaks_off() {
    matrix(Way::Open);
}

// ------------------------------------------------------------------------------------- heads and framings

const BROKEN: Expect = Expect::Error(502, "upstream_protocol", &["broken"]);

/// `content-length`s and other lines of a head, then a good body. What the head says decides.
fn under(lines: &str) -> Script {
    Script::new()
        .send(format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{lines}\r\n{}", completion(GOOD)))
        .close()
}

/// The same with the body in one chunk.
fn chunked_under(lines: &str) -> Script {
    let body = completion(GOOD);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{lines}\r\n");
    Script::new().send(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).close()
}

#[test]
fn a_head_that_can_be_read_in_two_ways_is_not_read() {
    let length = completion(GOOD).len();
    let sized = format!("content-length: {length}\r\n");
    let good = Script::json(200, completion(GOOD));
    let refused: Vec<(&str, Script)> = vec![
        ("both-framings", chunked_under(&format!("{sized}transfer-encoding: chunked\r\n"))),
        ("both-framings-turned", chunked_under(&format!("transfer-encoding: chunked\r\n{sized}"))),
        ("two-equal-lengths", under(&format!("{sized}{sized}"))),
        ("two-lengths", under(&format!("{sized}content-length: 5\r\n"))),
        ("two-lengths-in-one", under(&format!("content-length: {length}, {length}\r\n"))),
        ("negative-length", under("content-length: -5\r\n")),
        ("signed-length", under(&format!("content-length: +{length}\r\n"))),
        ("hexadecimal-length", under("content-length: 0x10\r\n")),
        ("long-length", under("content-length: 99999999999999999999\r\n")),
        ("no-length", under("content-length: \r\n")),
        ("coded-and-chunked", chunked_under("transfer-encoding: gzip, chunked\r\n")),
        ("chunked-twice", chunked_under("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n")),
        ("chunked-and-coded", chunked_under("transfer-encoding: chunked, gzip\r\n")),
        ("coded-identity", under("transfer-encoding: identity\r\n")),
        ("coded-unknown", chunked_under("transfer-encoding: xchunked\r\n")),
        (
            "old-chunked",
            Script::new().send("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n").close(),
        ),
        ("one-long-header", under(&format!("{sized}x: {}\r\n", "x".repeat(300 << 10)))),
        ("thousands-of-headers", under(&format!("{sized}{}", "x: y\r\n".repeat(5_000)))),
        ("folded-header", under(&format!("{sized}x: y\r\n z\r\n"))),
        ("space-before-colon", under(&format!("content-length : {length}\r\n"))),
        ("no-colon", under(&format!("{sized}x\r\n"))),
        ("nul-in-header", under(&format!("{sized}x: \0\r\n"))),
        ("cr-in-header", under(&format!("{sized}x: a\rb\r\n"))),
        ("http09", Script::new().send("<html>hello</html>\r\n\r\n").close()),
        ("http09-json", Script::new().send(completion(GOOD)).close()),
        (
            "http2",
            Script::new().send(b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80\0\x04\0\x01\0\0\0\x05\0\xff\xff\xff").close(),
        ),
        ("tls-alert", Script::new().send(b"\x15\x03\x01\0\x02\x02\x46").close()),
        ("short-status", Script::new().send("HTTP/1.1 20 OK\r\ncontent-length: 0\r\n\r\n").close()),
        ("low-status", Script::new().send("HTTP/1.1 099 OK\r\ncontent-length: 0\r\n\r\n").close()),
        ("http3", Script::new().send("HTTP/3.0 200 OK\r\ncontent-length: 0\r\n\r\n").close()),
        (
            "switched",
            Script::new().send("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n").stall(),
        ),
        ("continue-for-ever", Script::new().endless("HTTP/1.1 100 Continue\r\n\r\n")),
        (
            "hints-for-ever",
            Script::new().endless(format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "x".repeat(500))),
        ),
    ];
    let taken: Vec<(&str, Script)> = vec![
        ("sized", good.clone()),
        ("chunked", chunked_under("transfer-encoding: CHUNKED\r\n")),
        ("until-the-end", under("")),
        ("http10", Script::new().send(format!("HTTP/1.0 200 OK\r\n\r\n{}", completion(GOOD))).close()),
        ("no-reason", Script::new().send(format!("HTTP/1.1 200\r\n{sized}\r\n{}", completion(GOOD)))),
        ("continue-first", Script::new().send(format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n{sized}\r\n{}", completion(GOOD)))),
        ("head-byte-by-byte", format!("HTTP/1.1 200 OK\r\n{sized}\r\n").bytes().fold(Script::new(), |script, byte| script.send([byte]).wait(Duration::from_millis(1))).send(completion(GOOD))),
    ];
    let mut rows = Vec::new();
    for way in [Way::Judged, Way::Held, Way::Relayed, Way::Open] {
        let outcome = if way.is_relay() { "unchecked" } else { "accepted" };
        rows.extend(
            refused.iter().map(|(name, script)| Row::new(format!("{way:?}-{name}"), way, script.clone(), BROKEN)),
        );
        rows.extend(
            taken
                .iter()
                .map(|(name, script)| Row::new(format!("{way:?}-{name}"), way, script.clone(), Expect::Good(outcome))),
        );
    }
    carry_out(&rows);
}

#[test]
fn a_body_that_breaks_its_framing_is_no_answer() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let after = |bytes: &str| Script::new().send(format!("{head}2\r\n{{}}\r\n{bytes}")).stall();
    let table: Vec<(&str, Script)> = vec![
        ("overflow", after("FFFFFFFFFFFFFFFFF\r\n{}\r\n")),
        ("negative-size", after("-1\r\n{}\r\n")),
        ("prefixed-size", after("0x2\r\n{}\r\n")),
        ("no-size", after("\r\n{}\r\n")),
        ("wrong-size", after("2\r\n{}{}\r\n")),
        ("bare-lf-end", after("2\r\n{}\n0\r\n\r\n")),
        ("extensions-for-ever", Script::new().send(format!("{head}2;x=")).endless("x".repeat(1024))),
        ("trailers-for-ever", Script::new().send(format!("{head}2\r\n{{}}\r\n0\r\n")).endless("x: y\r\n".repeat(100))),
        ("broken-trailers", after("0\r\nx\r\n\r\n")),
    ];
    let mut rows = Vec::new();
    for way in [Way::Judged, Way::Held, Way::Relayed, Way::Open] {
        let expect = if way.is_relay() { Expect::Broken("upstream_protocol", &["broken"]) } else { BROKEN };
        rows.extend(
            table.iter().map(|(name, script)| Row::new(format!("{way:?}-{name}"), way, script.clone(), expect.clone())),
        );
    }
    carry_out(&rows);
}

// ------------------------------------------------------------------------------------- time and size

#[test]
fn whatever_drips_or_swells_has_an_end() {
    let zeros = flate2_of(64 << 20);
    let head = |lines: &str| format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{lines}\r\n");
    let drip = |head: String, piece: &str| Script::new().send(head).drip(piece, Duration::from_millis(100));
    let events = head("transfer-encoding: chunked\r\n").replace("application/json", "text/event-stream");
    let failing = "HTTP/1.1 500 X\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    let too_large = Expect::Error(502, "upstream_too_large", &["too_large"]);
    let late = Expect::Error(504, "upstream_timeout", &["deadline"]);
    let cut = Expect::Broken("upstream_timeout", &["deadline"]);
    let rows = [
        (
            "bomb",
            Way::Judged,
            Script::answer(200, "content-type: application/json\r\ncontent-encoding: gzip\r\n", &zeros),
            too_large.clone(),
        ),
        (
            "bomb-of-events",
            Way::Held,
            Script::answer(200, "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n", &zeros),
            too_large.clone(),
        ),
        ("drip", Way::Judged, drip(head("content-length: 9999\r\n"), "x"), late.clone()),
        ("drip-chunked", Way::Judged, drip(head("transfer-encoding: chunked\r\n"), "1\r\nx\r\n"), late.clone()),
        ("drip-of-comments", Way::Held, drip(events.clone(), "3\r\n:\n\n\r\n"), late.clone()),
        ("drip-of-comments-sifted", Way::Sifted, drip(events.clone(), "3\r\n:\n\n\r\n"), late.clone()),
        ("drip-relayed", Way::Relayed, drip(head("content-length: 9999\r\n"), "x"), cut.clone()),
        ("drip-of-a-stream", Way::RelayedStream, drip(events.clone(), "3\r\n:\n\n\r\n"), cut.clone()),
        ("drip-open", Way::Open, drip(head("content-length: 9999\r\n"), "x"), cut),
        ("drip-of-an-error", Way::Judged, drip(failing.clone(), "1\r\nx\r\n"), late.clone()),
        ("drip-of-an-error-open", Way::Open, drip(failing, "1\r\nx\r\n"), late),
        (
            "drip-of-a-head",
            Way::Judged,
            drip("HTTP/1.1 200 OK\r\nx: ".to_owned(), "x"),
            Expect::Error(504, "upstream_timeout", &["first_byte_timeout"]),
        ),
        (
            "drip-of-hints",
            Way::Judged,
            drip(String::new(), "HTTP/1.1 103 X\r\n\r\n"),
            Expect::Error(504, "upstream_timeout", &["first_byte_timeout"]),
        ),
    ];
    let rows: Vec<Row> = rows
        .into_iter()
        .map(|(name, way, script, expect)| {
            let row = Row::new(name.to_owned(), way, script, expect);
            Row { ends: name.starts_with("bomb"), ..row }
        })
        .collect();
    carry_out(&rows);
}

/// So many zeros, packed.
fn flate2_of(zeros: usize) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), zeros as u64), &mut packer).unwrap();
    packer.finish().unwrap()
}

// ------------------------------------------------------------------------------------- requests that are not read

#[test]
fn a_backend_that_does_not_read_the_request_is_let_go_or_believed() {
    let large = |model: &str, rest: &str| {
        format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"{}"}}]{rest}}}"#, "x".repeat(12 << 20))
    };
    let contract = format!(",{}", format());
    let upstream = Upstream::good();
    let gateway = Setup::new()
        .backend("up", "openai", upstream.address, LONG)
        .backend("late", "openai", upstream.address, SHORT)
        .model("late", "{targets: [{backend: late}]}")
        .model("*", "{targets: [{backend: up}]}")
        .listen(LIMITS)
        .start();
    let said = completion(GOOD);
    let early = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{said}", said.len());
    let refusal = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
    let refusal = format!("HTTP/1.1 413 X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{refusal}", refusal.len());
    for (what, rest) in [("judged", contract.as_str()), ("relayed", "")] {
        for (script, status) in [
            (Script::new().deaf().hastily(), 504),
            (Script::new().send(&early).deaf().hastily(), 200),
            (Script::new().send(&refusal).deaf().hastily(), 413),
            (Script::new().send(&refusal).close().hastily(), 413),
        ] {
            upstream.next(script);
            let answer = gateway.chat(&large(if status == 504 { "late" } else { "m" }, rest));
            assert_eq!((answer.status(), answer.complete), (status, true), "{what}: {answer}");
            eventually("the backend is let go", || upstream.call().is_closed());
        }
    }
    assert_at_rest(&gateway);
    let metrics = gateway.metrics();
    assert!(metrics.contains(r#"portcullis_upstream_failures_total{backend="late",reason="deadline"} 2"#), "{metrics}");
    assert_eq!(gateway.chat(&judged()).content(), GOOD);
}

// ------------------------------------------------------------------------------------- the next caller's answer

/// Whatever a backend says beyond its answer, the next caller gets the answer to its own request.
#[test]
fn no_caller_gets_what_was_said_to_another() {
    let stray = r#"{"z":"STRAY","a":1}"#;
    let extra = |body: String| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let extra = extra(completion(stray));
    let pause = Duration::from_millis(60);
    let sized = |status: u16| Script::json(status, completion(GOOD));
    let chunked = Script::new()
        .send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        .chunk(completion(GOOD));
    let stream = chunks(GOOD, "stop").iter().fold(Script::stream(), |script, event| script.chunk(event));
    let none = |status: u16| Script::new().send(format!("HTTP/1.1 {status} X\r\n\r\n{extra}"));
    // Joined to the answer's end, some time after it, and both.
    let mut table: Vec<(&str, Script)> = Vec::new();
    for (what, script, end) in [
        ("sized", sized(200), ""),
        ("an error", sized(404), ""),
        ("chunked", chunked, "0\r\n\r\n"),
        ("a stream", stream, "0\r\n\r\n"),
    ] {
        table.push((what, script.clone().send(format!("{end}{extra}"))));
        table.push((what, script.clone().send(end).wait(pause).send(&extra)));
        table.push((
            what,
            script
                .clone()
                .send(end)
                .wait(pause)
                .send("HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
                .close(),
        ));
        table.push((what, script.clone().send(end).wait(pause).send("\r\n")));
        table.push((what, script.send(format!("{end}x"))));
    }
    table.push(("no content", none(204)));
    table.push(("not modified", none(304)));
    table.push(("reset content", Script::new().send(format!("HTTP/1.1 205 X\r\ncontent-length: 0\r\n\r\n{extra}"))));
    table.push(("nothing", Script::new().send(format!("HTTP/1.1 200 X\r\ncontent-length: 0\r\n\r\n{extra}"))));
    let ways = [Way::Judged, Way::Held, Way::Relayed, Way::RelayedStream, Way::Open];
    // Each case has a backend of its own, so that its connection is the one that is taken up again.
    let cases = table.iter().flat_map(|case| ways.map(|way| (case, way)));
    let upstreams: Vec<_> = cases.map(|(case, way)| (case, way, Upstream::good())).collect();
    let mut setup = Setup::of(&upstreams[0].2);
    for (index, (_, _, upstream)) in upstreams.iter().enumerate() {
        let name = format!("m{index}");
        setup = setup
            .backend(&name, "openai", upstream.address, "")
            .model(&name, &format!("{{targets: [{{backend: {name}}}]}}"));
    }
    let gateway = setup.start();
    let next = |index: usize| {
        let ((what, script), way, upstream) = &upstreams[index];
        let (alias, mut wrong) = (format!("m{index}"), Vec::new());
        upstream.next(script.clone());
        gateway.call("POST", way.path(), &[], way.request(&alias).as_bytes());
        std::thread::sleep(pause * 4);
        for next in [Way::Judged, Way::Relayed] {
            let own = gateway.call("POST", next.path(), &[], next.request(&alias).as_bytes());
            if own.status() != 200 || own.content() != GOOD {
                wrong.push(format!("{what}, {way:?}, then {next:?}: {own}"));
            }
        }
        if upstream.connections() < 2 {
            wrong.push(format!("{what}, {way:?}: the connection was taken up again"));
        }
        wrong
    };
    let next = &next;
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..upstreams.len()).map(|index| scope.spawn(move || next(index))).collect();
        calls.into_iter().flat_map(|call| call.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The same for `HEAD`, whose answers have no body whatever they say.
#[test]
fn the_body_that_an_answer_to_head_must_not_have_is_nobodys_answer() {
    let upstream = Upstream::that(Script::json(200, r#"{"own":1}"#));
    let gateway = Setup::of(&upstream).start();
    let stray = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nSTRAY";
    for body in [stray.to_owned(), format!("{{}}{stray}")] {
        upstream.next(Script::new().send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())));
        assert_eq!(gateway.call("HEAD", "/v1/files/x", &[], b"").status(), 200);
        assert_eq!(gateway.call("GET", "/v1/files/x", &[], b"").text(), r#"{"own":1}"#);
    }
}
