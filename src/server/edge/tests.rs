use std::ops::Range;
use std::time::Duration;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::Empty;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::AsyncWriteExt as _;

use super::*;

const LIMITS: Limits = Limits { head_bytes: 4096, headers: 24 };

/// How a connection ended up.
#[derive(Debug, PartialEq, Eq)]
struct Walk {
    passed: usize,
    fault: Option<EdgeFault>,
    in_head: bool,
    in_body: bool,
    http2: bool,
}

/// Feeds all of what is there, request after request.
fn feed(edge: &mut Edge, unhanded: &[u8]) -> Fed {
    let mut passed = 0;
    loop {
        match edge.feed(&unhanded[passed..]) {
            Fed::Pass { whole } => {
                passed += whole;
                if whole == 0 || passed == unhanded.len() {
                    return Fed::Pass { whole: passed };
                }
            }
            Fed::Refuse { whole, fault } => return Fed::Refuse { whole: passed + whole, fault },
        }
    }
}

/// Feeds a stream in reads that end at `cuts`, then the rest.
fn walk(stream: &[u8], limits: Limits, cuts: &[usize]) -> Walk {
    let (mut edge, mut passed, mut fault) = (Edge::new(limits), 0, None);
    for end in cuts.iter().copied().chain([stream.len()]) {
        match feed(&mut edge, &stream[passed..end.max(passed)]) {
            Fed::Pass { whole } => passed += whole,
            Fed::Refuse { whole, fault: found } => {
                passed += whole;
                assert!(fault.is_none_or(|before| (before, 0) == (found, whole)), "refused once, refused for good");
                fault = Some(found);
            }
        }
        assert!(passed <= end);
    }
    Walk { passed, fault, in_head: edge.is_in_head(), in_body: edge.is_in_body(), http2: edge.is_http2() }
}

fn whole(stream: impl AsRef<[u8]>) -> Walk {
    let stream = stream.as_ref();
    let walked = walk(stream, LIMITS, &[]);
    let each: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(walk(stream, LIMITS, &each), walked, "{:?}", String::from_utf8_lossy(stream));
    walked
}

fn fault(stream: impl AsRef<[u8]>) -> Option<EdgeFault> {
    whole(stream).fault
}

/// The heads that pass, each with the empty lines before it. Not for HTTP/2.
fn heads(stream: &[u8]) -> Vec<Range<usize>> {
    let (mut edge, mut passed, mut heads, mut start) = (Edge::new(LIMITS), 0, Vec::new(), 0);
    for end in 1..=stream.len() {
        let in_body = edge.is_in_body();
        let Fed::Pass { whole } = feed(&mut edge, &stream[passed..end]) else { break };
        passed += whole;
        if in_body {
            start = passed;
        } else if whole > 2 {
            heads.push(start..passed);
            start = passed;
        }
    }
    heads
}

/// Where the body after a head ends, as another parser has it; none if it does not end.
fn body_end(stream: &[u8], head: &httparse::Request<'_, '_>, start: usize) -> Option<usize> {
    let named = |name: &str| head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    if let Some(length) = named("content-length") {
        let length: usize = std::str::from_utf8(length.value).unwrap().trim().parse().ok()?;
        return start.checked_add(length);
    }
    let mut at = start;
    while named("transfer-encoding").is_some() {
        let httparse::Status::Complete((line, size)) = httparse::parse_chunk_size(stream.get(at..)?).unwrap() else {
            return None;
        };
        at += line;
        if size == 0 {
            let mut trailers = [httparse::EMPTY_HEADER; 512];
            let read = httparse::parse_headers(stream.get(at..)?, &mut trailers).unwrap();
            return if let httparse::Status::Complete((bytes, _)) = read { Some(at + bytes) } else { None };
        }
        at = at.checked_add(usize::try_from(size).ok()?)?.checked_add(2)?;
    }
    Some(at)
}

/// What passes is read in the same way by another parser, head by head and body by body.
fn agrees(stream: &[u8]) {
    let walked = walk(stream, LIMITS, &[]);
    if walked.http2 {
        return;
    }
    let passed = &stream[..walked.passed];
    let mut next = Some(0);
    for at in heads(stream) {
        assert_eq!(Some(at.start), next, "a head begins where the body before it ends");
        let head = &stream[at.clone()];
        for (index, byte) in head.iter().enumerate() {
            match byte {
                b'\n' => assert_eq!(head[index - 1], b'\r'),
                b'\r' => assert_eq!(head[index + 1], b'\n'),
                byte => assert!(*byte >= b' ' && *byte != 0x7F || *byte == b'\t'),
            }
        }
        let mut headers = [httparse::EMPTY_HEADER; 24];
        let mut request = httparse::Request::new(&mut headers);
        assert_eq!(request.parse(head), Ok(httparse::Status::Complete(head.len())));
        let count = |name: &str| request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).count();
        assert!(count("content-length") + count("transfer-encoding") <= 1 && count("host") <= 1);
        next = body_end(passed, &request, at.end);
    }
    let ends_whole = next.is_some_and(|next| passed.get(next..).is_some_and(|rest| b"\r\n\r\n".starts_with(rest)));
    assert!(walked.fault.is_some() || walked.in_body || ends_whole, "{walked:?}, {next:?} of {}", passed.len());
    assert!(!walked.in_body || next.is_none_or(|next| next > passed.len()));
}

#[test]
fn good_heads_pass() {
    for head in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nhost:\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHOST:a:443\r\n\r\n",
        "get http://a/?q={}|^ HTTP/1.1\r\nHost:\ta \r\nX-Empty:\r\nX-Text: \u{e9}\t\u{fc}\r\n\r\n",
        "!#$%&'*+-.^_`|~09AZaz / HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~09AZaz: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.0\r\nCONTENT-LENGTH:\t 000 \t\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\nContent-Length2: x\r\n\r\n",
        "PRI * HTTP/1.1\r\nHost: a\r\n\r\n",
        "PRI / HTTP/1.1\r\nHost: a\r\nTransfer-Encodin: x\r\n\r\n",
    ] {
        let passed = Walk { passed: head.len(), fault: None, in_head: false, in_body: false, http2: false };
        assert_eq!(whole(head), passed, "{head:?}");
        agrees(head.as_bytes());
    }
}

#[test]
fn bad_heads_are_refused_for_what_is_wrong() {
    use EdgeFault as F;
    let first_lines: &[(&str, F)] = &[
        ("GET / HTTP/1.1\n", F::BareLf),
        ("\n", F::BareLf),
        ("GET / HTTP/1.1\r\r\n", F::BareCr),
        ("\rGET / HTTP/1.1\r\n", F::BareCr),
        ("\r\n\r\n\r\nGET / HTTP/1.1\r\n", F::EmptyLines),
        (" GET / HTTP/1.1\r\n", F::RequestLine),
        ("GET  / HTTP/1.1\r\n", F::RequestLine),
        ("GET /  HTTP/1.1\r\n", F::RequestLine),
        ("GET / HTTP/1.1 \r\n", F::RequestLine),
        ("GET\t/ HTTP/1.1\r\n", F::RequestLine),
        ("GET /\tHTTP/1.1\r\n", F::RequestLine),
        ("GET /a b HTTP/1.1\r\n", F::RequestLine),
        ("GET / HTTP/1.1 HTTP/1.1\r\n", F::RequestLine),
        ("GET HTTP/1.1\r\n", F::RequestLine),
        ("GET  HTTP/1.1\r\n", F::RequestLine),
        (" / HTTP/1.1\r\n", F::RequestLine),
        (" HTTP/1.1\r\n", F::RequestLine),
        ("GET /\r\n", F::RequestLine),
        ("GET / HTTP/2.0\r\n", F::RequestLine),
        ("GET / HTTP/1.2\r\n", F::RequestLine),
        ("GET / HTTP/1.10\r\n", F::RequestLine),
        ("GET / http/1.1\r\n", F::RequestLine),
        ("G@T / HTTP/1.1\r\n", F::RequestLine),
        ("G\u{e9}T / HTTP/1.1\r\n", F::RequestLine),
        ("GET /\u{e9} HTTP/1.1\r\n", F::RequestLine),
        ("GET /\0 HTTP/1.1\r\n", F::RequestLine),
        ("GET /\x7F HTTP/1.1\r\n", F::RequestLine),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\rX", F::RequestLine),
    ];
    for (line, expected) in first_lines {
        let head = format!("{line}Host: a\r\n\r\n");
        assert_eq!(fault(&head), Some(*expected), "{head:?}");
    }
    let header_lines: &[(&str, F)] = &[
        ("X: 1\n", F::BareLf),
        ("\n", F::BareLf),
        ("X: 1\r2\r\n", F::BareCr),
        ("X: 1\r\r\n", F::BareCr),
        ("X: 1\r\n\rX", F::BareCr),
        (" X: 1\r\n", F::ObsFold),
        ("\tX: 1\r\n", F::ObsFold),
        ("X: 1\r\n  2\r\n", F::ObsFold),
        (" \r\n", F::ObsFold),
        ("X\r\n", F::NoColon),
        ("X y\r\n", F::NoColon),
        ("X : 1\r\n", F::HeaderName),
        ("X\t: 1\r\n", F::HeaderName),
        ("Content-Length : 1\r\n", F::HeaderName),
        (": 1\r\n", F::HeaderName),
        ("X\0: 1\r\n", F::HeaderName),
        ("X\u{e9}: 1\r\n", F::HeaderName),
        ("X(y): 1\r\n", F::HeaderName),
        ("X: \0\r\n", F::ControlCharacter),
        ("X: a\x0Bb\r\n", F::ControlCharacter),
        ("X: \x1F\r\n", F::ControlCharacter),
        ("X: \x7F\r\n", F::ControlCharacter),
        ("Transfer-Encoding: \x0Bchunked\r\n", F::ControlCharacter),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", F::TwoFramings),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", F::TwoFramings),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", F::ManyContentLengths),
        ("Content-Length: 5\r\ncontent-length: 6\r\n", F::ManyContentLengths),
        ("Content-Length: 5, 5\r\n", F::ManyContentLengths),
        ("Content-Length: 5,\r\n", F::ManyContentLengths),
        ("Content-Length:\r\n", F::ContentLength),
        ("Content-Length: +5\r\n", F::ContentLength),
        ("Content-Length: -0\r\n", F::ContentLength),
        ("Content-Length: 0x5\r\n", F::ContentLength),
        ("Content-Length: 5 5\r\n", F::ContentLength),
        ("Content-Length: 5;\r\n", F::ContentLength),
        ("Content-Length: \u{a0}5\r\n", F::ContentLength),
        ("Content-Length: 18446744073709551616\r\n", F::ContentLength),
        ("Transfer-Encoding:\r\n", F::TransferEncoding),
        ("Transfer-Encoding: identity\r\n", F::TransferEncoding),
        ("Transfer-Encoding: gzip, chunked\r\n", F::TransferEncoding),
        ("Transfer-Encoding: chunked, chunked\r\n", F::TransferEncoding),
        ("Transfer-Encoding: chunked,\r\n", F::TransferEncoding),
        ("Transfer-Encoding: chunked;q=1\r\n", F::TransferEncoding),
        ("Transfer-Encoding: xchunked\r\n", F::TransferEncoding),
        ("Transfer-Encoding: \"chunked\"\r\n", F::TransferEncoding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", F::TransferEncoding),
        ("Transfer-Encoding: chunked\r\ntransfer-encoding: identity\r\n", F::TransferEncoding),
        ("host: a\r\n", F::ManyHosts),
        ("HOST: b\r\n", F::ManyHosts),
    ];
    for (lines, expected) in header_lines {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        assert_eq!(whole(&head), Walk { passed: 0, fault: Some(*expected), ..whole("") }, "{head:?}");
    }
    assert_eq!(fault("GET / HTTP/1.1\r\n X: 1\r\nHost: a\r\n\r\n"), Some(F::ObsFold));
    assert_eq!(fault("GET / HTTP/1.1\r\n\r\n"), Some(F::NoHost));
    assert_eq!(fault("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Some(F::OldTransferEncoding));
}

#[test]
fn a_head_may_be_as_large_as_the_limits_say() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n";
    let fault = |head_bytes, headers| walk(head, Limits { head_bytes, headers }, &[]).fault;
    assert_eq!(fault(head.len(), 2), None);
    assert_eq!(fault(head.len() - 1, 2), Some(EdgeFault::HeadTooLarge));
    assert_eq!(fault(head.len(), 1), Some(EdgeFault::TooManyHeaders));
    assert!(EdgeFault::HeadTooLarge.is_size() && EdgeFault::TooManyHeaders.is_size() && !EdgeFault::BareLf.is_size());
    // As soon as so many bytes have come.
    let limits = Limits { head_bytes: 100, headers: 9 };
    let endless = format!("GET /{}", "a".repeat(100));
    assert_eq!(walk(&endless.as_bytes()[..99], limits, &[]).fault, None);
    assert_eq!(walk(&endless.as_bytes()[..100], limits, &[]).fault, Some(EdgeFault::HeadTooLarge));
    // The limit is of one head, not of all.
    assert_eq!(walk(&b"GET / HTTP/1.0\r\n\r\n".repeat(20), limits, &[]).fault, None);
}

#[test]
fn what_comes_before_a_bad_head_goes_on() {
    for first in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n\n\n\n\n\n".to_owned(),
        chunked("5;a=\"\\\"\" ; b\r\n12345\r\n00\r\nX-Sum: 1\r\n\r\n"),
        "\r\n\r\nGET / HTTP/1.0\r\n\r\n\r\n\r\n".to_owned(),
    ] {
        let second = "GET /smuggled HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n";
        let walked = whole(format!("{first}{second}"));
        assert_eq!((walked.passed, walked.fault), (first.len(), Some(EdgeFault::BareLf)), "{first:?}");
        let walked = whole(format!("{first}{}", &second[..20]));
        assert_eq!((walked.passed, walked.fault, walked.in_head), (first.len(), None, true), "{first:?}");
    }
}

fn chunked(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \tChunked \r\n\r\n{body}")
}

#[test]
fn chunked_bodies_pass_up_to_the_byte_that_is_wrong() {
    use EdgeFault as F;
    let full = format!("1;{}\r\na\r\n", "e".repeat(511)); // 512 bytes of extensions
    let bodies: &[(&str, &str, Option<F>)] = &[
        ("0\r\n\r\n", "", None),
        ("1\r\na\r\n1A\r\n0123456789abcdefghijklmnop\r\n0\r\n\r\n", "", None),
        ("1 \t;a\r\n\n\r\n0;\r\n\r\n", "", None),
        ("0\r\nX: 1\r\nY:\r\nContent-Length-X: 1\r\n\r\n", "", None),
        ("FFFFFFFFFFFFFFFF\r\nabc", "", None),
        (&format!("{full}{full}"), "", None),
        (&format!("{full}{full}1"), ";", Some(F::ChunkExtensions)),
        ("", "\r\n", Some(F::ChunkSize)),
        ("", "\n", Some(F::BareLf)),
        ("1", "\n", Some(F::BareLf)),
        ("1\r", "a", Some(F::BareCr)),
        ("", ";a\r\n", Some(F::ChunkSize)),
        ("", " 1\r\n", Some(F::ChunkSize)),
        ("", "-1\r\n", Some(F::ChunkSize)),
        ("0", "x1\r\n", Some(F::ChunkSize)),
        ("1", "g\r\n", Some(F::ChunkSize)),
        ("1", "\u{e9}", Some(F::ChunkSize)),
        ("0000000000000001", "0", Some(F::ChunkSize)),
        ("1 ", "\r\n", Some(F::ChunkExtension)),
        ("1 ", "1\r\n", Some(F::ChunkExtension)),
        ("1 ", "\n", Some(F::BareLf)),
        ("1;a", "\n", Some(F::BareLf)),
        ("1;a\r", "\r", Some(F::BareCr)),
        ("1;a", "\0", Some(F::ChunkExtension)),
        ("1;a=\"", "\r\n", Some(F::ChunkExtension)),
        ("1;a=\"\\", "\r\n", Some(F::ChunkExtension)),
        ("1;a=\"", "\n", Some(F::BareLf)),
        ("1\r\na", "b", Some(F::ChunkEnd)),
        ("1\r\na", "\n", Some(F::BareLf)),
        ("1\r\na\r", "0", Some(F::ChunkEnd)),
        ("0\r\n", "\n", Some(F::BareLf)),
        ("0\r\n\r", "X", Some(F::BareCr)),
        ("0\r\n", " X: 1\r\n", Some(F::ObsFold)),
        ("0\r\nX: 1\r\n", "\t2\r\n", Some(F::ObsFold)),
        ("0\r\nX", "\r\n", Some(F::NoColon)),
        ("0\r\nX", "\n", Some(F::BareLf)),
        ("0\r\nX", " : 1\r\n", Some(F::HeaderName)),
        ("0\r\n", ": 1\r\n", Some(F::HeaderName)),
        ("0\r\nX: 1", "\n", Some(F::BareLf)),
        ("0\r\nX: 1\r", "2", Some(F::BareCr)),
        ("0\r\nX: 1", "\0", Some(F::ControlCharacter)),
        ("0\r\nX: 1\r\nHost", ": a\r\n", Some(F::TrailerName)),
        ("0\r\ncontent-length", ": 1\r\n", Some(F::TrailerName)),
        ("0\r\nTRANSFER-ENCODING", ": chunked\r\n", Some(F::TrailerName)),
    ];
    for (good, bad, expected) in bodies {
        let passed = chunked(good).len();
        let walked = whole(chunked(&format!("{good}{bad}")));
        assert_eq!((walked.passed, walked.fault), (passed, *expected), "{good:?} {bad:?}");
        let walked = whole(chunked(good));
        assert_eq!((walked.passed, walked.fault, walked.in_head), (passed, None, false), "{good:?}");
    }
    let (trailer, end) = (format!("X: {}\r\n", "v".repeat(LIMITS.head_bytes - 7)), "\r\n");
    assert_eq!(fault(chunked(&format!("0\r\n{trailer}{end}"))), None);
    assert_eq!(fault(chunked(&format!("0\r\nX{trailer}{end}"))), Some(F::TrailersTooLarge));
}

#[test]
fn http2_is_known_by_its_first_bytes_alone() {
    let (preface, frames) = (std::str::from_utf8(PREFACE).unwrap(), "\0\0\0\x04\0\0\0\0\0\n");
    let walked = whole(format!("{preface}{frames}"));
    assert!(walked.http2 && walked.fault.is_none() && walked.passed == preface.len() + frames.len());
    let walked = whole(&preface[..20]);
    assert!(!walked.http2 && walked.in_head && walked.passed == 0);
    assert_eq!(fault(format!("\r\n{preface}")), Some(EdgeFault::RequestLine));
    assert_eq!(fault(format!("GET / HTTP/1.0\r\n\r\n{preface}")), Some(EdgeFault::RequestLine));
}

#[test]
fn where_a_connection_stands_is_known() {
    let mut edge = Edge::new(LIMITS);
    let mut stands = |bytes: &str| (feed(&mut edge, bytes.as_bytes()), edge.is_in_head(), edge.is_in_body());
    assert_eq!(stands(""), (Fed::Pass { whole: 0 }, false, false));
    assert_eq!(stands("POST"), (Fed::Pass { whole: 0 }, true, false));
    let head = "POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(stands(head), (Fed::Pass { whole: head.len() }, false, true));
    assert_eq!(stands("a"), (Fed::Pass { whole: 1 }, false, true));
    assert_eq!(stands("b\r\n\r"), (Fed::Pass { whole: 3 }, true, false));
    assert_eq!(stands("\rX"), (Fed::Refuse { whole: 0, fault: EdgeFault::BareCr }, false, false));
    assert_eq!(stands(""), (Fed::Refuse { whole: 0, fault: EdgeFault::BareCr }, false, false));
}

#[test]
fn every_fault_has_a_reason_of_its_own_and_a_text_in_the_house_tone() {
    let mut reasons: Vec<&str> = EdgeFault::ALL.iter().map(|fault| fault.reason()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons.len(), EdgeFault::ALL.len());
    for fault in EdgeFault::ALL {
        assert!(fault.reason().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        let text = fault.to_string();
        assert!(!text.ends_with('.') && text.starts_with(|first: char| first.is_ascii_lowercase() || first == '`'));
    }
}

#[test]
fn bytes_that_come_one_by_one_are_looked_at_once() {
    let limits = Limits { head_bytes: 1 << 20, headers: usize::MAX };
    let start = Instant::now();
    for line in [format!("X: {}", "a".repeat((1 << 20) - 30)), "X: 1\r\n".repeat(170_000)] {
        let head = format!("GET / HTTP/1.0\r\n{line}");
        let each: Vec<usize> = (0..head.len()).collect();
        let walked = walk(head.as_bytes(), limits, &each);
        assert!(walked.in_head && walked.fault.is_none());
    }
    // Looked at from the start each time, it would be 2^40 bytes.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// A sound request, and the body that a server gets of it.
#[derive(Clone, Debug)]
struct Request {
    bytes: Vec<u8>,
    body: Vec<u8>,
}

/// Header lines, or trailers. No name of them means anything.
fn lines() -> impl Strategy<Value = String> {
    "(x[A-Za-z0-9!#$%&'*+.^_`|~-]{0,6}:[ -~\t\u{80}-\u{ff}]{0,8}\r\n){0,3}"
}

/// The header line that frames a body, the body as it is sent, and what it says.
fn framed() -> impl Strategy<Value = (String, Vec<u8>, Vec<u8>)> {
    let data = || prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n')], 1..24);
    let extensions = "([ \t]{0,2};[a-z]{0,3}(=[a-z]{1,3}|=\"([ !#-\\[\\]-~\u{e9}]|\\\\[ -~]){0,4}\")?){0,2}";
    let chunks = prop::collection::vec((data(), extensions, 1usize..17), 0..4);
    let chunked = ("[ \t]{0,2}[Cc]hunked[ \t]{0,2}", chunks, "0{1,16}", extensions, lines());
    prop_oneof![
        Just((String::new(), Vec::new(), Vec::new())),
        ("0{0,3}", data())
            .prop_map(|(zeros, data)| { (format!("Content-length:{zeros}{} \r\n", data.len()), data.clone(), data) }),
        chunked.prop_map(|(coding, chunks, last, extensions, trailers)| {
            let (mut sent, mut said) = (Vec::new(), Vec::new());
            for (data, extensions, digits) in chunks {
                sent.extend(format!("{:0digits$x}{extensions}\r\n", data.len()).into_bytes());
                sent.extend([data.as_slice(), b"\r\n"].concat());
                said.extend(data);
            }
            sent.extend(format!("{last}{extensions}\r\n{trailers}\r\n").into_bytes());
            (format!("TRANSFER-encoding:{coding}\r\n"), sent, said)
        }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let start = "(\r\n){0,2}(GET|POST|PUT|M-SEARCH|x!) /[a-z0-9/?=&%._~-]{0,12} HTTP/1\\.1\r\n";
    (start, lines(), "(Host|host|HOST):[ \t]?a\r\n", framed(), lines()).prop_map(
        |(start, before, host, (framing, sent, body), after)| {
            let head = format!("{start}{before}{host}{framing}{after}\r\n");
            Request { bytes: [head.as_bytes(), &sent].concat(), body }
        },
    )
}

/// Requests on one connection, some of them touched where parsers differ.
fn touched() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "\n",
        "\r",
        "\r\n",
        "\r\n\r\n",
        " ",
        "\t",
        "\0",
        ":",
        ";",
        "\"",
        "0",
        "a",
        "\u{e9}",
        " HTTP/1.0\r\n",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Host: b\r\n",
        "0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: c\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]);
    let touches = prop::collection::vec((any::<prop::sample::Index>(), 0usize..4, piece), 0..4);
    (prop::collection::vec(request(), 1..4), touches).prop_map(|(requests, touches)| {
        let mut stream: Vec<u8> = requests.into_iter().flat_map(|request| request.bytes).collect();
        for (at, removed, piece) in touches {
            let at = at.index(stream.len() + 1);
            stream.splice(at..(at + removed).min(stream.len()), piece.bytes());
        }
        stream
    })
}

/// The bodies of the requests that the HTTP library reads, as far as they come whole.
fn heard(stream: &[u8]) -> Vec<Vec<u8>> {
    let bodies = std::cell::RefCell::new(Vec::new());
    let service = service_fn(async |request: hyper::Request<hyper::body::Incoming>| {
        let body = request.into_body().collect().await?.to_bytes();
        bodies.borrow_mut().push(body.to_vec());
        Ok::<_, hyper::Error>(hyper::Response::new(Empty::<Bytes>::new()))
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        client.write_all(stream).await.unwrap();
        client.shutdown().await.unwrap();
        let _ = http1::Builder::new().half_close(true).serve_connection(TokioIo::new(server), service).await;
    });
    bodies.into_inner()
}

proptest! {
    #[test]
    fn sound_requests_pass_and_are_read_as_they_were_meant(
        requests in prop::collection::vec(request(), 0..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let stream: Vec<u8> = requests.iter().flat_map(|request| request.bytes.clone()).collect();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let passed = Walk { passed: stream.len(), fault: None, in_head: false, in_body: false, http2: false };
        prop_assert_eq!(&walk(&stream, LIMITS, &cuts), &passed);
        prop_assert_eq!(&whole(&stream), &passed);
        prop_assert_eq!(heads(&stream).len(), requests.len());
        agrees(&stream);
        let meant: Vec<Vec<u8>> = requests.into_iter().map(|request| request.body).collect();
        prop_assert_eq!(heard(&stream), meant);
    }

    #[test]
    fn whatever_passes_is_read_in_one_way_however_it_comes(
        stream in touched(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        limits in (0usize..200, 0usize..6).prop_map(|(head_bytes, headers)| Limits { head_bytes, headers }),
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let each: Vec<usize> = (0..stream.len()).collect();
        for limits in [LIMITS, limits] {
            let walked = walk(&stream, limits, &[]);
            prop_assert_eq!(&walk(&stream, limits, &cuts), &walked);
            prop_assert_eq!(&walk(&stream, limits, &each), &walked);
        }
        agrees(&stream);
        let walked = walk(&stream, LIMITS, &[]);
        if !walked.http2 {
            prop_assert!(heard(&stream[..walked.passed]).len() <= heads(&stream).len());
        }
    }

    #[test]
    fn no_bytes_whatever_are_too_odd(stream in prop::collection::vec(any::<u8>(), 0..64), head_bytes in 0usize..64) {
        let walked = walk(&stream, Limits { head_bytes, headers: 2 }, &[]);
        let each: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(walk(&stream, Limits { head_bytes, headers: 2 }, &each), walked);
    }
}
