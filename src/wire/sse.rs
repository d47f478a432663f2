//! Server-sent events, read as the HTML standard says: CRLF, LF or CR, comments, data over several
//! lines, no space after the colon, a byte order mark, reads that end anywhere.
//!
//! One difference: an event that the stream's end cuts off before its blank line is delivered, because
//! real servers end so. Whether the stream was complete is for the reader of the events to say.

/// Reads events out of pieces of a stream. It holds at most one unfinished event.
#[derive(Debug, Default)]
pub struct EventReader {
    /// The line that the last piece left unfinished.
    line: Vec<u8>,
    /// The data of the event under way, once it cannot be a slice of the piece at hand.
    data: Vec<u8>,
    has_data: bool,
    /// A CR ended the last piece: a LF at the start of the next belongs to it.
    after_cr: bool,
    begun: bool,
}

/// What a finished line was.
enum Line<'a> {
    Blank,
    Data(&'a [u8]),
    Other,
}

impl EventReader {
    /// A reader at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next piece of the stream and hands over the data of each event that it completes.
    ///
    /// The data is a slice of `piece` where the whole event lies in it on one line.
    pub fn feed<E>(&mut self, piece: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut rest = piece;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        // The data line of the event under way, as long as it is one and lies in this piece.
        let mut single: Option<&[u8]> = None;
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let (head, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            let carried = !self.line.is_empty();
            let unfinished;
            let whole: &[u8] = if carried {
                self.line.extend_from_slice(head);
                unfinished = std::mem::take(&mut self.line);
                &unfinished
            } else {
                head
            };
            let whole = self.without_mark(whole);
            match kind_of(whole) {
                Line::Blank => {
                    let gathered = std::mem::take(&mut self.data);
                    self.has_data = false;
                    let data = single.take().unwrap_or(&gathered);
                    if !data.is_empty() {
                        each(data)?;
                    }
                }
                Line::Data(data) if carried || self.has_data || single.is_some() => {
                    if let Some(first) = single.take() {
                        self.add(first);
                    }
                    self.add(data);
                }
                // The same data again, as a slice of the piece itself: `whole` may be shorter-lived.
                Line::Data(data) => single = head.get(head.len() - data.len()..),
                Line::Other => {}
            }
            rest = tail.get(1..).unwrap_or_default();
            if tail.first() == Some(&b'\r') {
                match rest.first() {
                    Some(b'\n') => rest = rest.get(1..).unwrap_or_default(),
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
        }
        self.line.extend_from_slice(rest);
        if let Some(data) = single {
            self.add(data);
        }
        Ok(())
    }

    /// The stream has ended: hands over the event that no blank line closed, if there is one.
    pub fn finish<E>(mut self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        if let Line::Data(data) = kind_of(self.without_mark(&line)) {
            self.add(data);
        }
        if self.data.is_empty() { Ok(()) } else { each(&self.data) }
    }

    fn add(&mut self, data: &[u8]) {
        if self.has_data {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(data);
        self.has_data = true;
    }

    /// The line without the byte order mark that may open a stream.
    fn without_mark<'a>(&mut self, line: &'a [u8]) -> &'a [u8] {
        if std::mem::replace(&mut self.begun, true) {
            return line;
        }
        line.strip_prefix(MARK).unwrap_or(line)
    }
}

const MARK: &[u8] = b"\xEF\xBB\xBF";

fn kind_of(line: &[u8]) -> Line<'_> {
    if line.is_empty() { Line::Blank } else { data_of(line).map_or(Line::Other, Line::Data) }
}

/// The value of a `data` field; none for comments and other fields.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"data")?;
    match rest.strip_prefix(b":") {
        Some(value) => Some(value.strip_prefix(b" ").unwrap_or(value)),
        None if rest.is_empty() => Some(rest),
        None => None,
    }
}

/// What keeps a stream alive: a comment, which no SDK takes for an event.
pub const KEEPALIVE: &[u8] = b": portcullis\n\n";

/// Appends one event with this data, which must hold no line end.
pub fn event_onto(data: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut seen = Vec::new();
        let mut reader = EventReader::new();
        let mut each = |data: &[u8]| {
            seen.push(String::from_utf8_lossy(data).into_owned());
            Ok::<(), ()>(())
        };
        for piece in pieces {
            reader.feed(piece, &mut each).unwrap();
        }
        reader.finish(&mut each).unwrap();
        seen
    }

    #[test]
    fn the_standard_is_followed() {
        for (stream, expected) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("data: a\r\n\r\ndata: b\r\rdata:c\n\n", vec!["a", "b", "c"]),
            (": comment\n\ndata:  two spaces\n\n", vec![" two spaces"]),
            ("event: x\nid: 1\ndata: a\nretry: 5\ndata: b\n\n", vec!["a\nb"]),
            ("data\n\ndata:\n\ndata: x\n\n", vec!["x"]),
            ("data:\ndata: x\n\n", vec!["\nx"]),
            ("\u{feff}data: a\n\n", vec!["a"]),
            ("data: a", vec!["a"]),
            ("data: a\ndata: b", vec!["a\nb"]),
            ("database: a\n\n", vec![]),
            ("data: a\u{2028}b\n\n", vec!["a\u{2028}b"]),
            ("\n\n\n", vec![]),
        ] {
            assert_eq!(read(&[stream.as_bytes()]), expected, "{stream:?}");
        }
    }

    proptest! {
        #[test]
        fn any_split_into_reads_gives_the_same_events(
            stream in "(data: ?[ab]{0,3}|: c|event: x|\u{feff}|é|\r\n|\n|\r){0,24}",
            cuts in prop::collection::vec(0usize..80, 0..6),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= bytes.len()).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let one_by_one: Vec<&[u8]> = bytes.chunks(1).collect();
            let whole = read(&[bytes]);
            prop_assert_eq!(&read(&pieces), &whole);
            prop_assert_eq!(&read(&one_by_one), &whole);
        }
    }
}
