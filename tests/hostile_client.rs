//! Clients that break, stall, drip, lie and never end, as a black box: whatever they do and whenever they do it, they
//! are told clearly or let go, no backend is asked for what was not asked, and nothing is left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

mod support;

use std::time::Duration;
use std::time::Instant;

use portcullis::server::edge::EdgeFault;
use serde_json::Value;
use support::*;

const LIMITS: &str = "limits: {body: 256KiB, headers: 8KiB, header_timeout: 700ms, idle_timeout: 700ms}";

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[track_caller]
fn assert_at_rest(gateway: &Gateway) {
    for line in ["portcullis_in_flight 0", "portcullis_held_bytes 0"] {
        eventually(line, || gateway.metrics().contains(line));
    }
    let log = gateway.log();
    assert!(!log.contains(" ERROR ") && !log.contains("panicked"), "{log}");
}

// ------------------------------------------------------------------------------------- every place, every fault

/// What a request is for: an answer that is judged, its body read first, or a path that is open, its body sent on as it
/// comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Judged,
    Upload,
}

/// Where in a request the fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Stage {
    BeforeHead,
    InRequestLine,
    InHeader,
    AfterHead,
    MidBody,
    MidChunkSize,
    MidChunk,
    InTrailers,
    /// The request is whole, and the backend thinks.
    Waiting,
    /// The same with another request behind it.
    Pipelined,
    /// The answer streams.
    Streaming,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Reset,
    Close,
    HalfClose,
    Stall,
    Garbage,
    Endless,
    /// One byte at a time, without a pause.
    Quick,
    /// One byte at a time, with pauses.
    Drip,
}

const STAGES: [Stage; 11] = [
    Stage::BeforeHead,
    Stage::InRequestLine,
    Stage::InHeader,
    Stage::AfterHead,
    Stage::MidBody,
    Stage::MidChunkSize,
    Stage::MidChunk,
    Stage::InTrailers,
    Stage::Waiting,
    Stage::Pipelined,
    Stage::Streaming,
];
const FAULTS: [Fault; 8] = [
    Fault::Reset,
    Fault::Close,
    Fault::HalfClose,
    Fault::Stall,
    Fault::Garbage,
    Fault::Endless,
    Fault::Quick,
    Fault::Drip,
];

/// What must come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Expect {
    /// It is served, and the connection may go on.
    Served,
    /// It is served; what follows it is refused, and the connection ends.
    ServedThenRefused,
    /// It is refused, and the connection ends.
    Refused(u16, &'static str),
    /// The connection ends without an answer: nothing was asked yet.
    LetGo,
    /// The caller went away while it was served.
    Gone,
    /// The same, and it still listened.
    GoneAndTold,
    /// It is let go in the middle of its answer, and so is the backend.
    Cut,
}

impl Stage {
    fn is_chunked(self) -> bool {
        matches!(self, Self::MidChunkSize | Self::MidChunk | Self::InTrailers)
    }

    fn is_served(self) -> bool {
        self >= Self::Waiting
    }
}

fn expected(kind: Kind, stage: Stage, fault: Fault) -> Option<Expect> {
    let is_gone = matches!(fault, Fault::Reset | Fault::Close | Fault::HalfClose);
    Some(match (stage, fault) {
        (Stage::BeforeHead | Stage::InRequestLine | Stage::InHeader, _) => match fault {
            Fault::Garbage => Expect::Refused(400, "invalid_http"),
            Fault::Endless => Expect::Refused(431, "headers_too_large"),
            Fault::Quick => Expect::Served,
            _ => Expect::LetGo,
        },
        _ if fault == Fault::HalfClose && !stage.is_served() => Expect::GoneAndTold,
        _ if is_gone => Expect::Gone,
        (Stage::AfterHead | Stage::MidBody, Fault::Garbage) if kind == Kind::Judged => {
            Expect::Refused(400, "invalid_json")
        }
        (Stage::AfterHead | Stage::MidBody, Fault::Garbage) => Expect::Served,
        // What is beyond a body of declared length is the next request.
        (Stage::AfterHead | Stage::MidBody, Fault::Endless) => Expect::ServedThenRefused,
        (Stage::MidChunk, Fault::Endless) => Expect::Refused(413, "body_too_large"),
        (_, Fault::Garbage | Fault::Endless) if stage.is_chunked() => Expect::Refused(400, "invalid_http"),
        (_, Fault::Quick) if !stage.is_served() => Expect::Served,
        (_, Fault::Stall | Fault::Drip) if !stage.is_served() => Expect::Refused(408, "request_timeout"),
        (Stage::Waiting, Fault::Stall) => Expect::Served,
        (Stage::Waiting | Stage::Pipelined, Fault::Garbage | Fault::Endless) => Expect::ServedThenRefused,
        // It reads nothing of its answer.
        (Stage::Streaming, Fault::Stall) => Expect::Cut,
        _ => return None,
    })
}

/// One client that misbehaves.
struct Row {
    kind: Kind,
    stage: Stage,
    fault: Fault,
    expect: Expect,
    number: usize,
}

impl Row {
    fn name(&self) -> String {
        format!("{:?}-{:?}-{:?}", self.kind, self.stage, self.fault)
    }

    fn trace(&self) -> String {
        format!("{:032x}", self.number + 1)
    }

    /// The head of its request, without the line that frames the body.
    fn head(&self, gateway: &Gateway) -> String {
        let path = if self.kind == Kind::Judged { "/v1/chat/completions" } else { "/v1/files" };
        let media = if self.kind == Kind::Judged { "application/json" } else { "multipart/form-data; boundary=x" };
        format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nx-row: {}\r\ntraceparent: 00-{}-0000000000000001-01\r\ncontent-type: {media}\r\n",
            gateway.address,
            self.name(),
            self.trace()
        )
    }

    fn body(&self) -> String {
        match (self.kind, self.stage) {
            (_, Stage::Streaming) => request(r#""stream":true"#).replacen("\"m\"", "\"endless\"", 1),
            (_, Stage::Waiting | Stage::Pipelined) => judged().replacen("\"m\"", "\"slow\"", 1),
            (Kind::Judged, _) => judged(),
            (Kind::Upload, _) => "x".repeat(300),
        }
    }

    /// Its request, and where the fault is.
    fn request(&self, gateway: &Gateway) -> (Vec<u8>, usize) {
        let (head, body) = (self.head(gateway), self.body());
        if self.stage.is_chunked() {
            let (first, second) = body.split_at(100);
            let begun = format!("{head}transfer-encoding: chunked\r\n\r\n64\r\n{first}\r\n");
            let size = format!("{:x}", second.len());
            let whole = format!("{begun}{size}\r\n{second}\r\n0\r\nx-sum: {}\r\n\r\n", "4".repeat(60));
            let cut = match self.stage {
                Stage::MidChunkSize => begun.len() + 1,
                Stage::MidChunk => begun.len() + size.len() + 20,
                _ => whole.len() - 50, // within the trailer's value
            };
            return (whole.into_bytes(), cut);
        }
        let head = format!("{head}content-length: {}\r\n\r\n", body.len());
        let whole = format!("{head}{body}");
        let cut = match self.stage {
            Stage::BeforeHead => 0,
            Stage::InRequestLine => 8,
            Stage::InHeader => head.find("x-row: ").unwrap() + 10,
            Stage::AfterHead => head.len(),
            Stage::MidBody => head.len() + 50,
            _ => whole.len(),
        };
        let behind = if self.stage == Stage::Pipelined { whole.clone() } else { String::new() };
        let cut = cut + behind.len();
        ((whole + &behind).into_bytes(), cut)
    }

    /// Does it. Gives the answers that came, and whether the connection was ended.
    fn perform(&self, gateway: &Gateway, backend: &Backends) -> (Vec<Answer>, bool) {
        let (whole, cut) = self.request(gateway);
        let mut client = gateway.client();
        client.send(&whole[..cut]);
        if self.stage == Stage::Streaming {
            eventually("the answer streams", || backend.call_of(&self.name()).is_some());
        }
        if self.stage.is_served() {
            eventually("the backend is asked", || backend.call_of(&self.name()).is_some());
        }
        let rest = &whole[cut..];
        let in_sized_body = matches!(self.stage, Stage::AfterHead | Stage::MidBody);
        match self.fault {
            Fault::Reset => {
                std::thread::sleep(ms(20));
                client.reset();
                return (Vec::new(), true);
            }
            Fault::Close => return (Vec::new(), true),
            Fault::HalfClose => client.finish(),
            Fault::Stall if self.stage == Stage::Streaming => {
                // Nothing is read until the backend has been let go.
                eventually("the backend is let go", || {
                    backend.call_of(&self.name()).is_some_and(|call| call.is_closed())
                });
                return (Vec::new(), client.is_let_go());
            }
            Fault::Stall => {}
            Fault::Garbage if in_sized_body => client.send(&vec![0xFF; rest.len()]),
            Fault::Garbage => client.send(&[b"\0\x01\x02\xFF".repeat(200).as_slice(), b"\r\n\r\n"].concat()),
            Fault::Endless if self.stage == Stage::MidChunk => {
                let end = memchr::memmem::rfind(rest, b"0\r\nx-sum").unwrap();
                client.send(&rest[..end]);
                let piece = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
                (0..64).for_each(|_| client.send(piece.as_bytes()));
            }
            Fault::Endless if self.stage == Stage::MidChunkSize => client.send(&b"0".repeat(1 << 20)),
            Fault::Endless => {
                if in_sized_body {
                    client.send(rest);
                }
                client.send(&b"x".repeat(1 << 20));
            }
            Fault::Quick => rest.iter().for_each(|byte| client.send(&[*byte])),
            Fault::Drip => {
                for byte in rest {
                    client.send(&[*byte]);
                    if client.hears_within(ms(40)) {
                        break;
                    }
                }
            }
        }
        let mut answers = Vec::new();
        let wanted = match self.expect {
            Expect::Served => 1,
            _ => 3,
        };
        while answers.len() < wanted
            && let Some(answer) = client.try_answer()
        {
            answers.push(answer);
        }
        let ended = self.expect == Expect::Served || client.is_let_go();
        (answers, ended)
    }

    /// Does it, and tells what is wrong with what came of it.
    fn tried(&self, gateway: &Gateway, backends: &Backends) -> Vec<String> {
        let (mut answers, ended) = self.perform(gateway, backends);
        // Of an answer that streams, the head may be out before it is cut.
        answers.retain(|answer| answer.complete || self.stage != Stage::Streaming);
        let mut wrong = Vec::new();
        let got: Vec<(u16, String)> = answers.iter().map(|answer| (answer.status(), code_of(answer))).collect();
        let served = (200, String::new());
        let refused = match self.fault {
            Fault::Endless => (431, "headers_too_large".to_owned()), // a line that does not end
            _ => (400, "invalid_http".to_owned()),
        };
        let expected = match &self.expect {
            Expect::Served => vec![served],
            Expect::ServedThenRefused if self.stage == Stage::Pipelined => vec![served.clone(), served, refused],
            Expect::ServedThenRefused => vec![served, refused],
            Expect::Refused(status, code) => vec![(*status, (*code).to_owned())],
            Expect::GoneAndTold => vec![refused],
            Expect::LetGo | Expect::Gone | Expect::Cut => Vec::new(),
        };
        if got != expected {
            wrong.push(format!("expected {expected:?}, got {got:?}"));
        }
        if !ended {
            wrong.push("the connection goes on".to_owned());
        }
        let says_so = |answer: &Answer| answer.header("connection") == Some("close");
        if self.expect != Expect::Served
            && answers.last().is_some_and(|answer| !says_so(answer) && code_of(answer) != "invalid_json")
        {
            wrong.push("the last answer does not say that the connection ends".to_owned());
        }
        wrong.into_iter().map(|wrong| format!("{}: {wrong}", self.name())).collect()
    }

    /// What is wrong with its record, and with what became of the backend's call.
    fn entered(&self, records: &[Value], backends: &Backends) -> Vec<String> {
        let (name, trace) = (self.name(), self.trace());
        let own: Vec<(&Value, &Value)> = records
            .iter()
            .filter(|record| record["trace_id"] == trace.as_str())
            .map(|record| (&record["outcome"], &record["code"]))
            .collect();
        let in_head = self.stage < Stage::AfterHead;
        let served = if self.kind == Kind::Judged { "accepted" } else { "unchecked" };
        let expected: Vec<(Value, Value)> = match &self.expect {
            Expect::Served | Expect::ServedThenRefused => {
                let count = if self.stage == Stage::Pipelined { 2 } else { 1 };
                vec![(served.into(), Value::Null); count]
            }
            Expect::Refused(..) if in_head => Vec::new(), // the head was not read, so nobody knows whose it was
            Expect::Refused(_, code) => vec![("denied".into(), (*code).into())],
            Expect::LetGo => Vec::new(),
            Expect::Gone | Expect::GoneAndTold | Expect::Cut => vec![("cancelled".into(), Value::Null)],
        };
        let mut wrong = Vec::new();
        if own != expected.iter().map(|(outcome, code)| (outcome, code)).collect::<Vec<_>>() {
            wrong.push(format!("{name}: expected the records {expected:?}, got {own:?}"));
        }
        let calls = backends.calls_of(&name);
        let most = match (&self.expect, self.kind) {
            _ if self.stage == Stage::Pipelined && self.expect == Expect::ServedThenRefused => 2,
            (Expect::Served | Expect::ServedThenRefused, _) => 1,
            _ if self.stage.is_served() => 1,
            (_, Kind::Upload) if !in_head => 1,
            _ => 0,
        };
        let least = if self.kind == Kind::Upload && !self.stage.is_served() { 0 } else { most };
        if !(least..=most).contains(&calls.len()) {
            wrong.push(format!("{name}: {} calls", calls.len()));
        }
        if !matches!(self.expect, Expect::Served | Expect::ServedThenRefused) {
            let deadline = Instant::now() + PATIENCE;
            while calls.iter().any(|call| !call.is_closed()) && Instant::now() < deadline {
                std::thread::sleep(ms(5));
            }
            if calls.iter().any(|call| !call.is_closed()) {
                wrong.push(format!("{name}: the backend was not let go"));
            }
        }
        wrong
    }
}

fn code_of(answer: &Answer) -> String {
    let body = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    body["error"]["code"].as_str().unwrap_or_default().to_owned()
}

/// What is behind the gateway: a backend that answers at once, one that thinks until its gate is opened, and one whose
/// answer never ends.
struct Backends {
    quick: Upstream,
    slow: Upstream,
    endless: Upstream,
    gate: Gate,
}

impl Backends {
    fn new() -> Self {
        let gate = Gate::default();
        let said = completion(GOOD);
        let said = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{said}",
            said.len()
        );
        let piece = format!("{:x}\r\n{}\r\n", 1 << 16, "x".repeat(1 << 16));
        Self {
            quick: Upstream::that(Script::new().drain().send(&said).hastily()),
            slow: Upstream::that(Script::new().gate(&gate).send(&said)),
            endless: Upstream::that(Script::stream().endless(piece)),
            gate,
        }
    }

    fn gateway(&self) -> Gateway {
        Setup::of(&self.quick)
            .backend("slow", "openai", self.slow.address, "")
            .backend("endless", "openai", self.endless.address, "")
            .model("slow", "{targets: [{backend: slow}]}")
            .model("endless", "{targets: [{backend: endless}]}")
            .model("*", "{targets: [{backend: up}]}")
            .listen(LIMITS)
            .audited()
            .start()
    }

    fn calls_of(&self, name: &str) -> Vec<Call> {
        let all = [&self.quick, &self.slow, &self.endless].into_iter().flat_map(Upstream::calls);
        all.filter(|call| call.header("x-row") == Some(name)).collect()
    }

    fn call_of(&self, name: &str) -> Option<Call> {
        self.calls_of(name).pop()
    }
}

fn carry_out(kind: Kind) {
    let cells = STAGES.iter().flat_map(|stage| FAULTS.iter().map(|fault| (*stage, *fault)));
    let cells = cells.filter(|(stage, _)| kind == Kind::Judged || !stage.is_served());
    let rows: Vec<Row> = cells
        .filter_map(|(stage, fault)| Some((stage, fault, expected(kind, stage, fault)?)))
        .enumerate()
        .map(|(number, (stage, fault, expect))| Row { kind, stage, fault, expect, number })
        .collect();
    let backends = Backends::new();
    let gateway = backends.gateway();
    let mut wrong: Vec<String> = std::thread::scope(|scope| {
        let tried: Vec<_> = rows.iter().map(|row| scope.spawn(|| row.tried(&gateway, &backends))).collect();
        // Those that go away while the backend thinks are gone before it answers.
        let gone = |row: &Row| {
            !row.stage.is_served()
                || row.expect != Expect::Gone
                || backends.call_of(&row.name()).is_some_and(|call| call.is_closed())
        };
        let deadline = Instant::now() + PATIENCE;
        while !rows.iter().all(gone) && Instant::now() < deadline {
            std::thread::sleep(ms(10));
        }
        std::thread::sleep(ms(200)); // the others have said by now what they say meanwhile
        backends.gate.open();
        tried.into_iter().flat_map(|row| row.join().unwrap()).collect()
    });
    assert_at_rest(&gateway);
    let refused = |row: &&Row| {
        row.stage < Stage::AfterHead && matches!(row.expect, Expect::Refused(..))
            || row.expect == Expect::ServedThenRefused
    };
    let recorded = |row: &Row| match row.expect {
        Expect::LetGo => 0,
        Expect::Refused(..) if row.stage < Stage::AfterHead => 0,
        Expect::ServedThenRefused if row.stage == Stage::Pipelined => 2,
        _ => 1,
    };
    let count = rows.iter().map(recorded).sum::<usize>() + rows.iter().filter(refused).count();
    let records = std::fs::read_to_string(gateway.audit_file()).unwrap();
    let records: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    if records.len() != count {
        wrong.push(format!("{} records instead of {count}", records.len()));
    }
    wrong.extend(rows.iter().flat_map(|row| row.entered(&records, &backends)));
    assert_eq!(gateway.chat(&judged()).content(), GOOD, "a good request is still served");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_client_of_a_judged_path_is_served_told_or_let_go() {
    carry_out(Kind::Judged);
}

#[test]
fn a_client_of_an_open_path_is_served_told_or_let_go() {
    carry_out(Kind::Upload);
}

// ------------------------------------------------------------------------------------- smuggling

/// Every shape of a request that parsers read in different ways, with the reason that is counted.
fn shapes() -> Vec<(&'static str, String)> {
    let get = |line: &str| format!("GET /v1/models HTTP/1.1\r\nhost: a\r\n{line}\r\n");
    let post = |lines: &str, body: &str| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{lines}\r\n{body}"
        )
    };
    let chunked = |body: &str| post("transfer-encoding: chunked\r\n", body);
    vec![
        ("head_too_large", get(&format!("x: {}\r\n", "x".repeat(9 << 10)))),
        ("too_many_headers", get(&"x: y\r\n".repeat(101))),
        ("bare_lf", "GET /v1/models HTTP/1.1\nhost: a\n\n".to_owned()),
        ("bare_lf", get("x: y\n")),
        ("bare_lf", get("transfer-encoding: chunked\ncontent-length: 5\r\n")),
        ("bare_cr", get("x: y\rz: 1\r\n")),
        ("bare_cr", "GET /v1/models HTTP/1.1\r\rhost: a\r\n\r\n".to_owned()),
        ("empty_lines", format!("\r\n\r\n\r\n{}", get(""))),
        ("request_line", "GET /v1/models\r\n\r\n".to_owned()),
        ("request_line", "GET  /v1/models HTTP/1.1\r\nhost: a\r\n\r\n".to_owned()),
        ("request_line", "GET /v1/models HTTP/2.0\r\nhost: a\r\n\r\n".to_owned()),
        ("request_line", "GET /v1/models HTTP/1.1 HTTP/1.1\r\nhost: a\r\n\r\n".to_owned()),
        ("request_line", "\x16\x03\x01\x02\0\x01\0\r\n\r\n".to_owned()),
        ("obs_fold", get("x: y\r\n content-length: 5\r\n")),
        ("obs_fold", "GET /v1/models HTTP/1.1\r\n host: a\r\n\r\n".to_owned()),
        ("no_colon", get("transfer-encoding\r\n")),
        ("header_name", post("content-length : 5\r\n", "")),
        ("header_name", post("transfer-encoding\t: chunked\r\n", "")),
        ("header_name", get(": y\r\n")),
        ("header_name", get("x\u{b}: y\r\n")),
        ("control_character", get("x: a\0b\r\n")),
        ("control_character", post("transfer-encoding: \u{b}chunked\r\n", "")),
        ("two_framings", post("content-length: 5\r\ntransfer-encoding: chunked\r\n", "0\r\n\r\n")),
        ("two_framings", post("transfer-encoding: chunked\r\ncontent-length: 5\r\n", "0\r\n\r\n")),
        ("many_content_lengths", post("content-length: 5\r\ncontent-length: 5\r\n", "")),
        ("many_content_lengths", post("content-length: 5, 5\r\n", "")),
        ("content_length", post("content-length: +5\r\n", "")),
        ("content_length", post("content-length: -5\r\n", "")),
        ("content_length", post("content-length: 0x5\r\n", "")),
        ("content_length", post("content-length: 5 5\r\n", "")),
        ("content_length", post("content-length: 18446744073709551616\r\n", "")),
        ("content_length", post("content-length:\r\n", "")),
        ("transfer_encoding", post("transfer-encoding: gzip, chunked\r\n", "")),
        ("transfer_encoding", post("transfer-encoding: chunked, identity\r\n", "")),
        ("transfer_encoding", post("transfer-encoding: xchunked\r\n", "")),
        ("transfer_encoding", post("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", "")),
        ("transfer_encoding", post("transfer-encoding: chunked;q=1\r\n", "")),
        ("old_transfer_encoding", "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n".to_owned()),
        ("many_hosts", get("host: b\r\n")),
        ("no_host", "GET /v1/models HTTP/1.1\r\nx: y\r\n\r\n".to_owned()),
        ("chunk_size", chunked("x\r\n")),
        ("chunk_size", chunked("-1\r\n")),
        ("chunk_size", chunked("0x2\r\n{}\r\n0\r\n\r\n")),
        ("chunk_size", chunked("00000000000000002\r\n{}\r\n0\r\n\r\n")),
        ("bare_lf", chunked("2\n{}\r\n0\r\n\r\n")),
        ("bare_lf", chunked("2;x\n{}\r\n0\r\n\r\n")),
        ("bare_cr", chunked("2\r{}\r\n0\r\n\r\n")),
        ("chunk_extension", chunked("2 x\r\n{}\r\n0\r\n\r\n")),
        ("chunk_extension", chunked("2;x=\0\r\n{}\r\n0\r\n\r\n")),
        ("chunk_extension", chunked("f;x=\0\r\n")),
        ("chunk_extensions", chunked(&format!("2;x={}\r\n{{}}\r\n0\r\n\r\n", "y".repeat(1100)))),
        ("chunk_end", chunked("2\r\n{}{}\r\n0\r\n\r\n")),
        ("chunk_end", chunked("2\r\n{}\rx0\r\n\r\n")),
        ("trailers_too_large", chunked(&format!("2\r\n{{}}\r\n0\r\nx: {}\r\n\r\n", "y".repeat(9 << 10)))),
        ("trailer_name", chunked("2\r\n{}\r\n0\r\ncontent-length: 5\r\n\r\n")),
        ("trailer_name", chunked("2\r\n{}\r\n0\r\nHost: b\r\n\r\n")),
        ("bare_lf", chunked("2\r\n{}\r\n0\r\nx: y\n\r\n")),
        ("bare_cr", chunked("2\r\n{}\r\n0\r\nx: y\rz: 1\r\n\r\n")),
        ("control_character", chunked("2\r\n{}\r\n0\r\nx: y\0\r\n\r\n")),
        ("obs_fold", chunked("2\r\n{}\r\n0\r\nx: y\r\n z\r\n\r\n")),
        ("no_colon", chunked("2\r\n{}\r\n0\r\nx\r\n\r\n")),
        ("header_name", chunked("2\r\n{}\r\n0\r\nx : y\r\n\r\n")),
        ("bare_cr", chunked("2\r\n{}\r\n0\r\n\rx")),
    ]
}

/// Alone, behind a good request, and in two pieces: each is refused, and what is behind it is never read.
#[test]
fn what_can_be_read_in_two_ways_is_refused_over_the_wire() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("limits: {headers: 8KiB}").audited().start();
    let shapes = shapes();
    for fault in EdgeFault::ALL {
        assert!(shapes.iter().any(|(reason, _)| *reason == fault.reason()), "no shape for `{}`", fault.reason());
    }
    let good = format!("GET /v1/models HTTP/1.1\r\nhost: {}\r\n\r\n", gateway.address);
    let body = judged();
    let hidden = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let try_out = |reason: &str, shape: &str| {
        let mut wrong = Vec::new();
        for (way, before, pieces) in [("alone", 0, 1), ("behind", 2, 1), ("in pieces", 0, 2)] {
            let mut client = gateway.client();
            let bytes = format!("{}{shape}{hidden}", good.repeat(before));
            for piece in bytes.as_bytes().chunks(bytes.len().div_ceil(pieces)) {
                client.send(piece);
                std::thread::sleep(ms(5));
            }
            let mut answers = Vec::new();
            while let Some(answer) = client.try_answer() {
                answers.push(answer);
            }
            let statuses: Vec<u16> = answers.iter().map(Answer::status).collect();
            let is_size = matches!(reason, "head_too_large" | "too_many_headers");
            let (status, code) = if is_size { (431, "headers_too_large") } else { (400, "invalid_http") };
            let expected: Vec<u16> = std::iter::repeat_n(200, before).chain([status]).collect();
            let last = answers.last();
            let says_so = last.and_then(|last| last.header("connection")) == Some("close");
            if statuses != expected || last.map(code_of).as_deref() != Some(code) || !says_so {
                wrong.push(format!("{reason}, {way}: {statuses:?} {shape:?}"));
            }
            if !client.is_let_go() {
                wrong.push(format!("{reason}, {way}: not let go"));
            }
        }
        wrong
    };
    let try_out = &try_out;
    let mut wrong: Vec<String> = std::thread::scope(|scope| {
        let tried: Vec<_> = shapes.iter().map(|(reason, shape)| scope.spawn(move || try_out(reason, shape))).collect();
        tried.into_iter().flat_map(|tried| tried.join().unwrap()).collect()
    });
    let metrics = gateway.metrics();
    for fault in EdgeFault::ALL {
        let count = 3 * shapes.iter().filter(|(reason, _)| *reason == fault.reason()).count();
        let line = format!(r#"portcullis_reasons_total{{reason="{}"}} {count}"#, fault.reason());
        if !metrics.lines().any(|other| other == line) {
            wrong.push(format!("`{line}` is not in the metrics"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(upstream.count(), 0, "{:?}", upstream.calls());
    gateway.audit(shapes.len() * (3 + 2));
    assert_at_rest(&gateway);
}

// ------------------------------------------------------------------------------------- pipelining

#[test]
fn fifty_requests_at_once_are_answered_in_their_order() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let body = judged();
    let of = |number: usize| match number % 3 {
        0 => format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ),
        1 => format!("GET /v1/models/none-{number} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        _ => format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ),
    };
    let all: String = (0..50).map(of).collect();
    for piece in [all.len(), 1000, 37] {
        let mut client = gateway.client();
        all.as_bytes().chunks(piece).for_each(|piece| client.send(piece));
        for number in 0..50 {
            let answer = client.answer(false);
            match number % 3 {
                1 => assert!(
                    answer.status() == 404 && answer.text().contains(&format!("`none-{number}`")),
                    "{number}: {answer}"
                ),
                _ => assert_eq!(answer.content(), GOOD, "{number}"),
            }
        }
    }
}

/// A caller that has sent its next request already and goes away is no reason to go on either.
#[test]
fn requests_that_wait_behind_another_do_not_hide_that_their_caller_has_gone() {
    let upstream = Upstream::that(Script::new().stall());
    let gateway = Setup::of(&upstream).audited().start();
    for behind in [1, 40] {
        let mut client = gateway.begin_chat(&judged());
        for _ in 0..behind {
            client.ask(gateway.address, "POST", "/v1/chat/completions", &[], judged().as_bytes());
        }
        let before = upstream.count();
        eventually("the call is made", || upstream.count() > before || before > 0 && !upstream.call().is_closed());
        drop(client);
        eventually("the backend is let go", || upstream.call().is_closed());
    }
    assert_at_rest(&gateway);
    assert_eq!(upstream.count(), 2, "only the first request of each was passed on");
    assert!(gateway.audit(2).iter().all(|record| record["outcome"] == "cancelled"));
}

// ------------------------------------------------------------------------------------- slowness

#[test]
fn two_hundred_that_drip_keep_nobody_from_being_served() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).listen("limits: {header_timeout: 1s, idle_timeout: 1s}").start();
    let heads = ["", "P", "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx: "];
    let body = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let mut slow: Vec<Client> = (0..200)
        .map(|number| {
            let mut client = gateway.client();
            client.send(heads.get(number % 4).unwrap_or(&body).as_bytes());
            client
        })
        .collect();
    let deadline = Instant::now() + PATIENCE;
    let mut open = slow.len();
    while open > 0 && Instant::now() < deadline {
        assert_eq!(gateway.chat(&judged()).content(), GOOD);
        open = 0;
        for (number, client) in slow.iter_mut().enumerate() {
            if number % 4 > 0 {
                client.send(b"x");
            }
            open += usize::from(!client.is_closed() && !client.hears_within(ms(1)));
        }
        std::thread::sleep(ms(50));
    }
    assert_eq!(open, 0, "connections that drip are still open");
    assert!(slow.iter_mut().all(Client::is_let_go));
    assert_at_rest(&gateway);
}

#[test]
fn a_client_that_does_not_read_its_answer_is_let_go_and_so_is_what_it_held() {
    let long = format!(r#"{{"z":"{}","a":1}}"#, "x".repeat(12 << 20));
    let whole = Script::says(&long);
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream)
        .listen("limits: {idle_timeout: 500ms}")
        .line("audit: {path: audit.jsonl, content: none}")
        .start();
    let piece = format!("{:x}\r\n{}\r\n", 1 << 16, "x".repeat(1 << 16));
    let table = [
        ("a judged answer", judged(), whole.clone(), "accepted"),
        ("a relayed answer", request(""), whole, "cancelled"),
        ("a relayed stream", request(r#""stream":true"#), Script::stream().endless(piece), "cancelled"),
    ];
    for (index, (what, asked, script, outcome)) in table.into_iter().enumerate() {
        upstream.next(script);
        let mut client = gateway.begin_chat(&asked);
        assert_at_rest_after(&gateway, index + 1);
        eventually("the connection ends", || client.is_let_go());
        let record = gateway.audit(index + 1).pop().unwrap();
        assert_eq!(record["outcome"], outcome, "{what}: {record}");
        if outcome == "cancelled" {
            eventually("the backend is let go", || upstream.call().is_closed());
        }
    }
}

/// Nothing is under way once so many requests were recorded, and nothing is held.
fn assert_at_rest_after(gateway: &Gateway, records: usize) {
    gateway.audit(records);
    assert_at_rest(gateway);
}

// ------------------------------------------------------------------------------------- ends and codings

/// A caller that closes its side after the request looks like one that has gone, so what it asked is given up. What is
/// refused before anything is asked of a backend is still told.
#[test]
fn a_client_that_closes_its_side_has_gone_unless_it_was_refused() {
    let upstream = Upstream::that(Script::new().stall());
    let gateway = Setup::of(&upstream).audited().start();
    let client = gateway.begin_chat(&judged());
    eventually("the call is made", || upstream.count() == 1);
    client.finish();
    eventually("the backend is let go", || upstream.call().is_closed());
    let mut refused = gateway.client();
    refused.send(b"GET / HTTP/1.1\nhost: a\n\n");
    refused.finish();
    refused.answer(false).assert_error(400, "invalid_request_error", "invalid_http");
    let outcomes: Vec<Value> = gateway.audit(2).iter().map(|record| record["outcome"].clone()).collect();
    assert_eq!(outcomes, ["cancelled", "denied"]);
    assert_at_rest(&gateway);
}

#[test]
fn a_coded_body_is_refused_where_it_must_be_read_and_passed_on_elsewhere() {
    let upstream = Upstream::good();
    let gateway = Setup::of(&upstream).start();
    let packed = b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\xae\x05\0\x43\xbf\xa6\xa3\x02\0\0\0";
    for coding in ["gzip", "GZIP", "br", "gzip, gzip", "x"] {
        let headers = [("content-encoding", coding), ("content-type", "application/json")];
        let answer = gateway.call("POST", "/v1/chat/completions", &headers, packed);
        answer.assert_error(400, "invalid_request_error", "invalid_json");
        assert_eq!(upstream.count(), 0);
    }
    let plain = [("content-encoding", "identity")];
    assert_eq!(gateway.call("POST", "/v1/chat/completions", &plain, judged().as_bytes()).content(), GOOD);
    for path in ["/v1/embeddings", "/v1/files"] {
        let headers = [("content-encoding", "gzip"), ("content-type", "application/json")];
        assert_eq!(gateway.call("POST", path, &headers, packed).status(), 200);
        let call = upstream.call();
        assert_eq!((call.body.as_slice(), call.header("content-encoding")), (&packed[..], Some("gzip")));
    }
}
