//! An answer that goes on as it comes while policies watch it: a copy is judged at its end, and nothing of the answer waits.

use bytes::Bytes;
use bytes::BytesMut;

use crate::api::backend::openai;
use crate::api::backend::openai_stream::Collector;
use crate::api::reply::Reply;
use crate::contract::Contract;
use crate::dialect::table::ReasoningTag;
use crate::exchange::attempt;
use crate::exchange::known::Knowing;
use crate::exchange::noted;
use crate::record::Record;
use crate::stage::admit::Share;
use crate::stage::judge;
use crate::wire::sse::EventReader;

/// Bytes of an answer in one piece up to which a copy of it is judged.
const WHOLE_MAX: usize = 1 << 20;
/// Bytes of a stream up to which what it says is judged: some forty for each byte of text.
const EVENTS_MAX: usize = 32 << 20;

/// The copy of an answer under way.
pub struct Watch {
    contract: Contract,
    tags: Vec<ReasoningTag>,
    known: Knowing,
    copy: Kept,
    taken: usize,
    share: Share,
}

/// What is kept of an answer.
enum Kept {
    /// Its bytes.
    Whole(BytesMut),
    /// What its events say.
    Events(EventReader, Box<Collector>),
    /// Nothing: it is too large or cannot be read, or the gateway holds as many bytes as it may.
    Cut,
}

impl Watch {
    /// A copy at its start. `events` tells that the answer is an event stream.
    pub(super) fn new(contract: Contract, tags: Vec<ReasoningTag>, known: Knowing, events: bool, share: Share) -> Self {
        let copy = match events {
            true => Kept::Events(EventReader::new(), Box::default()),
            false => Kept::Whole(BytesMut::new()),
        };
        Self { contract, tags, known, copy, taken: 0, share }
    }

    /// Copies a piece of the answer.
    pub fn take(&mut self, data: &Bytes) {
        self.taken += data.len();
        let fits = |max: usize| self.taken <= max;
        let kept = match &mut self.copy {
            Kept::Cut => return,
            Kept::Whole(copy) => {
                let kept = fits(WHOLE_MAX) && self.share.grow(data.len()).is_ok();
                if kept {
                    copy.extend_from_slice(data);
                }
                kept
            }
            Kept::Events(reader, collector) => {
                fits(EVENTS_MAX)
                    && self.share.grow(data.len()).is_ok()
                    && reader.feed(data, |event| collector.take(event)).is_ok()
            }
        };
        if !kept {
            self.copy = Kept::Cut;
        }
    }

    /// Whether judging it may take longer than the thread that sends the last byte should wait.
    pub fn is_long(&self) -> bool {
        self.taken > attempt::INLINE_BYTES
    }

    /// The answer has ended well: judges the copy and enters what came of it. What cannot be judged is entered too.
    pub fn finish(self, record: &mut Record) {
        let Some(reply) = reply(self.copy) else {
            record.unwatched = true;
            return;
        };
        record.usage = reply.usage;
        let known = self.known.now(reply.usage);
        record.unwatched |= known.call.unasked && self.contract.reads_usage();
        noted::watching(judge::judge(&self.contract, &reply, &self.tags, &known), record);
    }
}

fn reply(copy: Kept) -> Option<Reply> {
    match copy {
        Kept::Cut => None,
        Kept::Whole(copy) => openai::read(&copy).ok().map(|whole| whole.reply),
        Kept::Events(reader, mut collector) => {
            reader.finish(|event| collector.take(event)).ok()?;
            collector.finish().ok().map(|collected| collected.reply)
        }
    }
}
