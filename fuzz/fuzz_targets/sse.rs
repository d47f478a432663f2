//! Any bytes, cut into reads anywhere: the same events, and the same answer collected from them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis::api::backend::openai_stream::Collector;
use portcullis::wire::sse::EventReader;

/// Lengths of reads that any change of the stream changes, too, so that seeds can be plain streams.
struct Lengths(u64);

impl Lengths {
    fn of(stream: &[u8], round: u64) -> Self {
        Self(
            stream.iter().fold(0xcbf2_9ce4_8422_2325 ^ round, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            }) | 1,
        )
    }

    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % 23) as usize
    }
}

/// Cut into reads; some are empty.
fn cut(mut rest: &[u8], mut next: impl FnMut() -> usize) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(next().min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn events(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    let mut reader = EventReader::new();
    let mut each = |data: &[u8]| {
        seen.push(data.to_vec());
        Ok::<(), ()>(())
    };
    for piece in pieces {
        let _ = reader.feed(piece, &mut each);
    }
    let _ = reader.finish(&mut each);
    seen
}

/// The answer, in words: what cannot be compared can at least be printed.
fn collected(pieces: &[&[u8]]) -> String {
    let (mut reader, mut collector) = (EventReader::new(), Collector::default());
    let read = pieces.iter().try_for_each(|piece| reader.feed(piece, |data| collector.take(data)));
    let read = read.and_then(|()| reader.finish(|data| collector.take(data)));
    format!("{:?}", read.and_then(|()| collector.finish()))
}

fuzz_target!(|stream: &[u8]| {
    let (whole_events, whole_answer) = (events(&[stream]), collected(&[stream]));
    let mut splits = vec![cut(stream, || 1)];
    for round in 0..3 {
        let mut lengths = Lengths::of(stream, round);
        splits.push(cut(stream, || lengths.next()));
    }
    for pieces in splits {
        assert_eq!(events(&pieces), whole_events);
        assert_eq!(collected(&pieces), whole_answer);
    }
});
