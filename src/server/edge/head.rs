//! Heads of requests, checked line by line as the lines end.

use crate::server::edge::Limits;
use crate::server::edge::fault::EdgeFault;

/// Empty lines that may stand before a request line; old clients send one after a body (RFC 9112 section 2.2).
const EMPTY_LINES_MAX: u8 = 2;

/// A head that is coming in, or the place where the next one may begin.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Bytes of the head that need not be looked at again.
    scanned: usize,
    /// Where the line begins that is not whole yet.
    line: usize,
    empty_lines: u8,
    /// Known once the request line is whole.
    version: Option<Version>,
    headers: usize,
    has_host: bool,
    content_length: Option<u64>,
    is_chunked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

/// What the bytes held so far come to.
pub(super) enum Read {
    /// More must come.
    Partial,
    /// An empty line of so many bytes, and no head yet.
    Empty(usize),
    /// A head of so many bytes, and what follows it.
    Whole(usize, Framing),
}

/// How a body ends (RFC 9112 section 6.3).
pub(super) enum Framing {
    Length(u64),
    Chunked,
}

impl Head {
    /// Goes on reading. `held` is all that there is of the head, and begins at its first byte.
    pub(super) fn read(&mut self, held: &[u8], limits: Limits) -> Result<Read, EdgeFault> {
        // Nothing beyond the limit is looked at, so that the limit says the same however the bytes come.
        let window = held.get(..limits.head_bytes).unwrap_or(held);
        loop {
            let rest = window.get(self.scanned..).unwrap_or_default();
            let Some(found) = memchr::memchr2(b'\r', b'\n', rest) else {
                self.scanned = window.len();
                break;
            };
            let end = self.scanned + found;
            match (rest.get(found), rest.get(found + 1)) {
                (Some(b'\n'), _) => return Err(EdgeFault::BareLf),
                (_, Some(b'\n')) => {}
                (_, Some(_)) => return Err(EdgeFault::BareCr),
                (_, None) => {
                    self.scanned = end; // the CR again, once there is more
                    break;
                }
            }
            let Some(line) = window.get(self.line..end) else { break };
            let after = end + 2;
            (self.scanned, self.line) = (after, after);
            match (line.is_empty(), self.version) {
                (true, None) => return self.empty_line(after),
                (true, Some(version)) => return Ok(Read::Whole(after, self.framing(version)?)),
                (false, None) => self.version = Some(version_of(line)?),
                (false, Some(_)) => self.header(line, limits.headers)?,
            }
        }
        if window.len() < limits.head_bytes { Ok(Read::Partial) } else { Err(EdgeFault::HeadTooLarge) }
    }

    /// Whether nothing of it has come.
    pub(super) fn is_new(&self) -> bool {
        self.version.is_none() && self.scanned == 0 && self.empty_lines == 0
    }

    fn empty_line(&mut self, bytes: usize) -> Result<Read, EdgeFault> {
        if self.empty_lines == EMPTY_LINES_MAX {
            return Err(EdgeFault::EmptyLines);
        }
        // What is held next begins after the empty line, which is passed on.
        *self = Self { empty_lines: self.empty_lines + 1, ..Self::default() };
        Ok(Read::Empty(bytes))
    }

    fn header(&mut self, line: &[u8], headers_max: usize) -> Result<(), EdgeFault> {
        if self.headers == headers_max {
            return Err(EdgeFault::TooManyHeaders);
        }
        self.headers += 1;
        let (name, value) = name_and_value(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            if std::mem::replace(&mut self.has_host, true) {
                return Err(EdgeFault::ManyHosts);
            }
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = content_length_of(value)?;
            if self.content_length.replace(length).is_some() {
                return Err(EdgeFault::ManyContentLengths);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let chunked = trimmed(value).eq_ignore_ascii_case(b"chunked");
            if !chunked || std::mem::replace(&mut self.is_chunked, true) {
                return Err(EdgeFault::TransferEncoding);
            }
        }
        Ok(())
    }

    fn framing(&self, version: Version) -> Result<Framing, EdgeFault> {
        match (version, self.content_length, self.is_chunked) {
            (_, Some(_), true) => Err(EdgeFault::TwoFramings),
            (Version::Http10, _, true) => Err(EdgeFault::OldTransferEncoding),
            (Version::Http11, _, _) if !self.has_host => Err(EdgeFault::NoHost),
            (_, None, true) => Ok(Framing::Chunked),
            (_, length, false) => Ok(Framing::Length(length.unwrap_or(0))),
        }
    }
}

/// The version of a request line, all of which is checked.
fn version_of(line: &[u8]) -> Result<Version, EdgeFault> {
    let (rest, version) = match (line.strip_suffix(b" HTTP/1.1"), line.strip_suffix(b" HTTP/1.0")) {
        (Some(rest), _) => (rest, Version::Http11),
        (_, Some(rest)) => (rest, Version::Http10),
        (None, None) => return Err(EdgeFault::RequestLine),
    };
    let method_end = rest.iter().position(|byte| !is_token(*byte));
    let Some((method, target)) = method_end.and_then(|end| rest.split_at_checked(end)) else {
        return Err(EdgeFault::RequestLine);
    };
    let target = target.strip_prefix(b" ").unwrap_or_default();
    let is_sound = !method.is_empty() && is_target(target);
    if is_sound { Ok(version) } else { Err(EdgeFault::RequestLine) }
}

fn name_and_value(line: &[u8]) -> Result<(&[u8], &[u8]), EdgeFault> {
    if matches!(line, [b' ' | b'\t', ..]) {
        return Err(EdgeFault::ObsFold);
    }
    let name_end = line.iter().position(|byte| !is_token(*byte)).ok_or(EdgeFault::NoColon)?;
    let (name, rest) = line.split_at_checked(name_end).unwrap_or_default();
    match rest.strip_prefix(b":") {
        Some(_) if name.is_empty() => Err(EdgeFault::HeaderName),
        // No early end: without one, the loop works on many bytes at once.
        Some(value) if value.iter().fold(false, |any, byte| any | is_control(*byte)) => {
            Err(EdgeFault::ControlCharacter)
        }
        Some(value) => Ok((name, value)),
        None if memchr::memchr(b':', rest).is_some() => Err(EdgeFault::HeaderName),
        None => Err(EdgeFault::NoColon),
    }
}

/// Whether the library takes this for a request's target: it answers one that it does not take without a word.
fn is_target(target: &[u8]) -> bool {
    let usual = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._~-%?&=:@!$'()*+,;".contains(byte);
    let path = target.first() == Some(&b'/') && target.iter().all(usual);
    path || (target.iter().all(u8::is_ascii_graphic) && http::Uri::try_from(target).is_ok())
}

fn content_length_of(value: &[u8]) -> Result<u64, EdgeFault> {
    if value.contains(&b',') {
        return Err(EdgeFault::ManyContentLengths);
    }
    let digits = trimmed(value);
    // `parse` would take a sign, too.
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    // The library keeps the two largest numbers for itself.
    let length = digits.and_then(|digits| digits.parse().ok()).filter(|length| *length < u64::MAX - 1);
    length.ok_or(EdgeFault::ContentLength)
}

/// Without the optional white space around it (RFC 9110 section 5.6.3), which is SP and HTAB alone.
fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Whether a name may have this byte (RFC 9110 section 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    TOKEN.get(usize::from(byte)).is_some_and(|is_token| *is_token)
}

/// Whether a value must not have this byte: C0 but HTAB, and DEL. What is beyond ASCII is none of it.
pub(super) fn is_control(byte: u8) -> bool {
    (byte < b' ') & (byte != b'\t') | (byte == 0x7F)
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut rest: &[u8] = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    while let [byte, others @ ..] = rest {
        // A constant is computed by the compiler, which would tell of an index out of bounds.
        #[allow(clippy::indexing_slicing)]
        {
            table[*byte as usize] = true;
        }
        rest = others;
    }
    table
};
