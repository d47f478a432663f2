//! Chunked bodies (RFC 9112 section 7.1), byte by byte but for the data, which is passed over.

use crate::server::edge::fault::EdgeFault;
use crate::server::edge::head::is_control;
use crate::server::edge::head::is_token;
use crate::server::edge::passed_over;

/// Bytes of chunk extensions that one body may have, white space before their `;` included.
const EXTENSION_BYTES_MAX: usize = 1024;
/// Digits of a chunk's size; the number fits in 64 bits, then.
const SIZE_DIGITS_MAX: u8 = 16;
/// Names that a trailer must not have: they frame and route the request, which its head has done.
const NOT_TRAILERS: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"host"];
/// Bytes of the longest of them.
const NAME_BYTES_MAX: usize = 17;

/// A chunked body that is coming in.
#[derive(Debug)]
pub(super) struct Chunks {
    place: Place,
    /// The chunk's size as far as it is read; within its data, what is still to come of it.
    size: u64,
    /// Bytes of extensions so far, of all chunks.
    extension_bytes: usize,
    /// Bytes of trailers so far, with their line ends and the empty line that follows them.
    trailer_bytes: usize,
    trailer_bytes_max: usize,
    /// The name of the trailer under way, as far as there is room: a longer one is none of `NOT_TRAILERS`.
    name: [u8; NAME_BYTES_MAX],
    name_bytes: usize,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug)]
enum Place {
    Size {
        digits: u8,
    },
    /// White space between a size and the `;` of an extension, which must be there then.
    Gap,
    Extension(Quote),
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailer(Trailer),
    /// None: the body has ended.
    End,
}

/// Where a chunk extension stands with quoted strings (RFC 9110 section 5.6.4).
#[derive(Clone, Copy, Debug)]
enum Quote {
    Outside,
    Inside,
    Escaped,
}

/// A place within the trailers, or in the empty line that ends a body.
#[derive(Clone, Copy, Debug)]
enum Trailer {
    Start,
    Name,
    Value,
    Lf,
    EmptyLf,
}

/// How much of the bytes belongs to the body.
pub(super) enum Read {
    /// All of them, and more is to come.
    Partial,
    /// So many, with which it ends.
    Whole(usize),
}

impl Chunks {
    /// A body of which nothing has come.
    pub(super) fn new(trailer_bytes_max: usize) -> Self {
        Self {
            place: Place::Size { digits: 0 },
            size: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
            trailer_bytes_max,
            name: [0; NAME_BYTES_MAX],
            name_bytes: 0,
        }
    }

    /// Takes the next bytes. A fault comes with the place of the byte that shows it.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Read, (usize, EdgeFault)> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            let next = match self.place {
                Place::Data => {
                    at += passed_over(&mut self.size, bytes.len() - at);
                    if self.size == 0 {
                        self.place = Place::DataCr;
                    }
                    continue;
                }
                Place::Size { digits } => self.after_size(digits, byte),
                Place::Gap => self.after_gap(byte),
                Place::Extension(quote) => self.after_extension(quote, byte),
                Place::SizeLf if self.size == 0 => lf(byte, Place::Trailer(Trailer::Start)),
                Place::SizeLf => lf(byte, Place::Data),
                Place::DataCr => match byte {
                    b'\r' => Ok(Place::DataLf),
                    b'\n' => Err(EdgeFault::BareLf),
                    _ => Err(EdgeFault::ChunkEnd),
                },
                Place::DataLf => lf(byte, Place::Size { digits: 0 }).map_err(|_| EdgeFault::ChunkEnd),
                Place::Trailer(trailer) => self.after_trailer(trailer, byte),
                Place::End => break,
            };
            self.place = next.map_err(|fault| (at, fault))?;
            at += 1;
        }
        Ok(if matches!(self.place, Place::End) { Read::Whole(at) } else { Read::Partial })
    }

    fn after_size(&mut self, digits: u8, byte: u8) -> Result<Place, EdgeFault> {
        match (char::from(byte).to_digit(16), byte) {
            (Some(digit), _) if digits < SIZE_DIGITS_MAX => {
                self.size = self.size << 4 | u64::from(digit);
                Ok(Place::Size { digits: digits + 1 })
            }
            (_, b'\n') => Err(EdgeFault::BareLf),
            (Some(_), _) => Err(EdgeFault::ChunkSize),
            (None, _) if digits == 0 => Err(EdgeFault::ChunkSize),
            (None, b'\r') => Ok(Place::SizeLf),
            (None, b';') => self.counted(Place::Extension(Quote::Outside)),
            (None, b' ' | b'\t') => self.counted(Place::Gap),
            (None, _) => Err(EdgeFault::ChunkSize),
        }
    }

    fn after_gap(&mut self, byte: u8) -> Result<Place, EdgeFault> {
        match byte {
            b' ' | b'\t' => self.counted(Place::Gap),
            b';' => self.counted(Place::Extension(Quote::Outside)),
            b'\n' => Err(EdgeFault::BareLf),
            _ => Err(EdgeFault::ChunkExtension),
        }
    }

    /// Whether a reader heeds quotes or not, the line ends at the same place: no CR and no LF is within them.
    fn after_extension(&mut self, quote: Quote, byte: u8) -> Result<Place, EdgeFault> {
        let next = match (quote, byte) {
            (Quote::Outside, b'\r') => return Ok(Place::SizeLf),
            (_, b'\n') => return Err(EdgeFault::BareLf),
            (_, byte) if is_control(byte) => return Err(EdgeFault::ChunkExtension),
            (Quote::Outside, b'"') | (Quote::Escaped, _) => Quote::Inside,
            (Quote::Inside, b'"') => Quote::Outside,
            (Quote::Inside, b'\\') => Quote::Escaped,
            (Quote::Outside | Quote::Inside, _) => quote,
        };
        self.counted(Place::Extension(next))
    }

    /// `next`, after one more byte of an extension.
    fn counted(&mut self, next: Place) -> Result<Place, EdgeFault> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX { Err(EdgeFault::ChunkExtensions) } else { Ok(next) }
    }

    fn after_trailer(&mut self, trailer: Trailer, byte: u8) -> Result<Place, EdgeFault> {
        if self.trailer_bytes == self.trailer_bytes_max {
            return Err(EdgeFault::TrailersTooLarge);
        }
        self.trailer_bytes += 1;
        let next = match (trailer, byte) {
            (Trailer::Lf, _) => return lf(byte, Place::Trailer(Trailer::Start)),
            (Trailer::EmptyLf, _) => return lf(byte, Place::End),
            (_, b'\n') => return Err(EdgeFault::BareLf),
            (Trailer::Start, b'\r') => Trailer::EmptyLf,
            (Trailer::Start, b' ' | b'\t') => return Err(EdgeFault::ObsFold),
            (Trailer::Start, _) if is_token(byte) => {
                self.name_bytes = 0;
                self.push(byte);
                Trailer::Name
            }
            (Trailer::Name, _) if is_token(byte) => {
                self.push(byte);
                Trailer::Name
            }
            (Trailer::Name, b':') if self.is_forbidden() => return Err(EdgeFault::TrailerName),
            (Trailer::Name, b':') => Trailer::Value,
            (Trailer::Name, b'\r') => return Err(EdgeFault::NoColon),
            (Trailer::Start | Trailer::Name, _) => return Err(EdgeFault::HeaderName),
            (Trailer::Value, b'\r') => Trailer::Lf,
            (Trailer::Value, _) if is_control(byte) => return Err(EdgeFault::ControlCharacter),
            (Trailer::Value, _) => Trailer::Value,
        };
        Ok(Place::Trailer(next))
    }

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.name.get_mut(self.name_bytes) {
            *place = byte;
        }
        self.name_bytes += 1;
    }

    fn is_forbidden(&self) -> bool {
        let name = self.name.get(..self.name_bytes);
        name.is_some_and(|name| NOT_TRAILERS.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden)))
    }
}

/// `next`, if the byte is the LF that must follow a CR.
fn lf(byte: u8, next: Place) -> Result<Place, EdgeFault> {
    if byte == b'\n' { Ok(next) } else { Err(EdgeFault::BareCr) }
}
