//! The bytes of a client, looked at before the HTTP library reads them: what parsers of HTTP/1 read in different ways
//! is refused, so that no two of them on the way of a request see two different requests (request smuggling).
//!
//! The library forgives bare LFs, a `content-length` beside a `transfer-encoding`, and a length that is there twice.
//! Here none of it passes. Heads are held back until they are whole and checked line by line as they come; bodies go on
//! as they come, and are followed only to find where the next head begins. No socket and no clock is in it.

mod chunks;
mod fault;
mod head;
#[cfg(test)]
mod tests;

use crate::server::edge::chunks::Chunks;
use crate::server::edge::head::Framing;
use crate::server::edge::head::Head;

pub use crate::server::edge::fault::EdgeFault;

/// What a client says first that speaks HTTP/2 without having asked (RFC 9113 section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How large a head may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the request line, the header lines and the empty line, all with their line ends. The trailers of a body
    /// may have as many.
    pub head_bytes: usize,
    /// Header lines.
    pub headers: usize,
}

/// Follows what one client sends on one connection. It holds no bytes, only where it stands.
#[derive(Debug)]
pub struct Edge {
    limits: Limits,
    state: State,
    /// Bytes that the last call left behind.
    held: usize,
}

#[derive(Debug)]
enum State {
    /// The first bytes of the connection, which may be HTTP/2's.
    First,
    Head(Head),
    /// A body that has so many bytes to come.
    Length(u64),
    Chunked(Chunks),
    Http2,
    Refused {
        fault: EdgeFault,
        in_body: bool,
    },
}

/// What may become of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// The first `whole` bytes may go on: heads that are whole, and bodies. What follows them is a head that has begun
    /// and is not whole yet.
    Pass {
        /// How many bytes go on.
        whole: usize,
    },
    /// The same, but what follows the first `whole` bytes must be refused.
    Refuse {
        /// How many bytes go on.
        whole: usize,
        /// What is wrong with the next.
        fault: EdgeFault,
    },
}

impl Edge {
    /// The start of a connection.
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::First, held: 0 }
    }

    /// Looks at bytes of the client: all those that were not passed on yet, that is what the call before left behind
    /// `whole`, and then what has come since. Nothing behind the end of a request is looked at: it is for the next call.
    /// O(new bytes), however many calls they take. Once it has refused, it refuses everything, for the same fault.
    pub fn feed(&mut self, unhanded: &[u8]) -> Fed {
        let mut whole = 0;
        while let Some(rest) = unhanded.get(whole..).filter(|rest| !rest.is_empty()) {
            match self.step(rest) {
                Ok(0) => break,
                Ok(passed) => {
                    whole += passed;
                    if self.is_between() {
                        self.held = 0;
                        return Fed::Pass { whole };
                    }
                }
                Err((passed, fault)) => {
                    self.state = State::Refused { fault, in_body: self.is_in_body() || self.has_broken_body() };
                    self.held = 0;
                    return Fed::Refuse { whole: whole + passed, fault };
                }
            }
        }
        self.held = unhanded.len() - whole;
        if let State::Refused { fault, .. } = self.state { Fed::Refuse { whole, fault } } else { Fed::Pass { whole } }
    }

    /// Whether all that passed is whole requests: nothing of another has been looked at.
    pub fn is_between(&self) -> bool {
        matches!(&self.state, State::Head(head) if head.is_new())
    }

    /// Whether what is refused is within a body, whose head has passed.
    pub fn has_broken_body(&self) -> bool {
        matches!(self.state, State::Refused { in_body: true, .. })
    }

    /// Whether a head has begun that is not whole: some bytes of it are held back.
    pub fn is_in_head(&self) -> bool {
        self.held > 0
    }

    /// Whether bytes of a body are still to come.
    pub fn is_in_body(&self) -> bool {
        matches!(self.state, State::Length(_) | State::Chunked(_))
    }

    /// Whether the client speaks HTTP/2 by prior knowledge. Everything passes, then: its frames have lengths, and the
    /// library's reading of them is the only one.
    pub fn is_http2(&self) -> bool {
        matches!(self.state, State::Http2)
    }

    /// How many of the bytes go on before something changes; none if more must come first.
    fn step(&mut self, rest: &[u8]) -> Result<usize, (usize, EdgeFault)> {
        match &mut self.state {
            State::First if rest.starts_with(PREFACE) => self.state = State::Http2,
            State::First if PREFACE.starts_with(rest) => return Ok(0),
            State::First => {
                self.state = State::Head(Head::default());
                return self.step(rest);
            }
            State::Head(head) => match head.read(rest, self.limits).map_err(|fault| (0, fault))? {
                head::Read::Partial => return Ok(0),
                head::Read::Empty(bytes) => return Ok(bytes),
                head::Read::Whole(bytes, framing) => {
                    self.state = match framing {
                        Framing::Length(0) => State::Head(Head::default()),
                        Framing::Length(bytes) => State::Length(bytes),
                        Framing::Chunked => State::Chunked(Chunks::new(self.limits.head_bytes)),
                    };
                    return Ok(bytes);
                }
            },
            State::Length(left) => {
                let passed = passed_over(left, rest.len());
                if *left == 0 {
                    self.state = State::Head(Head::default());
                }
                return Ok(passed);
            }
            State::Chunked(chunks) => {
                if let chunks::Read::Whole(bytes) = chunks.read(rest)? {
                    self.state = State::Head(Head::default());
                    return Ok(bytes);
                }
            }
            State::Http2 => {}
            State::Refused { fault, .. } => return Err((0, *fault)),
        }
        Ok(rest.len())
    }
}

/// Takes from `left`, the bytes of a body that are still to come, those that are there, and says how many.
fn passed_over(left: &mut u64, there: usize) -> usize {
    let passed = usize::try_from(*left).unwrap_or(there).min(there);
    *left = left.saturating_sub(passed as u64);
    passed
}
