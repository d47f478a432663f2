//! Any bytes of a client, cut into reads anywhere: the same bytes pass, and another parser reads them the same way.
#![no_main]

use httparse::{EMPTY_HEADER, Request, Status};
use libfuzzer_sys::fuzz_target;
use portcullis::server::edge::{Edge, EdgeFault, Fed, Limits};

const LIMITS: Limits = Limits { head_bytes: 512, headers: 16 };

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

/// What passes of a stream that comes in reads of so many bytes, and why no more does.
fn walk(
    stream: &[u8],
    mut next: impl FnMut() -> usize,
    mut each: impl FnMut(&Edge, usize),
) -> (usize, Option<EdgeFault>) {
    let (mut edge, mut passed, mut end) = (Edge::new(LIMITS), 0, 0);
    loop {
        end = stream.len().min(end + next());
        match feed(&mut edge, &stream[passed..end]) {
            Fed::Pass { whole } => passed += whole,
            Fed::Refuse { whole, fault } => {
                let again = feed(&mut edge, &stream[passed + whole..end]);
                assert_eq!(again, Fed::Refuse { whole: 0, fault }, "refused for good");
                return (passed + whole, Some(fault));
            }
        }
        assert_eq!(edge.is_in_head(), passed < end);
        each(&edge, passed);
        if end == stream.len() {
            return (passed, None);
        }
    }
}

/// Where the body after a head ends, as another parser has it; none if it does not end.
fn body_end(passed: &[u8], head: &Request<'_, '_>, start: usize) -> Option<usize> {
    let named = |name: &str| head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    if let Some(length) = named("content-length") {
        let length: u64 = std::str::from_utf8(length.value).expect("digits").trim().parse().expect("a number");
        return start.checked_add(usize::try_from(length).ok()?);
    }
    let mut at = start;
    while named("transfer-encoding").is_some() {
        let size = httparse::parse_chunk_size(passed.get(at..)?).expect("a chunk's size that passed");
        let Status::Complete((line, size)) = size else { return None };
        at += line;
        if size == 0 {
            let mut trailers = [EMPTY_HEADER; 256];
            let read = httparse::parse_headers(passed.get(at..)?, &mut trailers).expect("trailers that passed");
            return if let Status::Complete((bytes, _)) = read { Some(at + bytes) } else { None };
        }
        at = at.checked_add(usize::try_from(size).ok()?)?.checked_add(2)?;
    }
    Some(at)
}

fuzz_target!(|stream: &[u8]| {
    let mut http2 = false;
    let (passed, fault) = walk(stream, || stream.len(), |edge, _| http2 = edge.is_http2());
    let mut pace = stream.len();
    let paced = walk(
        stream,
        || {
            pace = (pace * 5 + 3) % 17;
            pace
        },
        |_, _| (),
    );
    assert_eq!(paced, (passed, fault));

    // One by one, so that each head and each body is seen to end.
    let (mut heads, mut start, mut before, mut in_body) = (Vec::new(), 0, 0, false);
    let each = |edge: &Edge, passed: usize| {
        if in_body {
            start = passed;
        } else if passed > before + 2 {
            heads.push(start..passed);
            start = passed;
        }
        (before, in_body) = (passed, edge.is_in_body());
    };
    assert_eq!(walk(stream, || 1, each), (passed, fault));
    if http2 {
        return;
    }
    let mut next = Some(0);
    for at in heads {
        assert_eq!(Some(at.start), next, "a head begins where the body before it ends");
        let head = &stream[at.clone()];
        let (crlf, cr) = (head.windows(2).filter(|pair| pair == b"\r\n").count(), |byte: &&u8| **byte == b'\r');
        let lf = head.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!((head.iter().filter(cr).count(), lf), (crlf, crlf), "lines end with CRLF");
        let mut headers = [EMPTY_HEADER; 16];
        let mut request = Request::new(&mut headers);
        assert_eq!(request.parse(head), Ok(Status::Complete(head.len())));
        let count = |name: &str| request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name)).count();
        assert!(count("content-length") + count("transfer-encoding") <= 1 && count("host") <= 1);
        next = body_end(&stream[..passed], &request, at.end);
    }
    assert!(next.is_none_or(|next| next <= passed || fault.is_none()), "a body of so many bytes has no fault");
});
