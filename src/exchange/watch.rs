//! An answer that goes on as it comes while policies watch it: a copy is judged at its end, and nothing of the answer waits.

use bytes::Bytes;
use bytes::BytesMut;

use crate::api::backend::openai;
use crate::api::backend::openai_stream::Collector;
use crate::api::reply::Reply;
use crate::contract::Contract;
use crate::dialect::table::ReasoningTag;
use crate::exchange::known::Knowing;
use crate::exchange::noted;
use crate::record::Record;
use crate::stage::admit::Share;
use crate::stage::judge;
use crate::wire::sse::EventReader;

/// Bytes of an answer up to which a copy is judged: it is judged where the last byte goes out.
const COPY_MAX: usize = 1 << 20;

/// The copy of an answer under way.
pub struct Watch {
    contract: Contract,
    tags: Vec<ReasoningTag>,
    known: Knowing,
    events: bool,
    copy: BytesMut,
    share: Share,
    /// The copy is not whole: the answer is too large, or the gateway holds as many bytes as it may.
    cut: bool,
}

impl Watch {
    /// A copy at its start. `events` tells that the answer is an event stream.
    pub(super) fn new(contract: Contract, tags: Vec<ReasoningTag>, known: Knowing, events: bool, share: Share) -> Self {
        Self { contract, tags, known, events, copy: BytesMut::new(), share, cut: false }
    }

    /// Copies a piece of the answer.
    pub fn take(&mut self, data: &Bytes) {
        self.cut |= self.copy.len() + data.len() > COPY_MAX || self.share.grow(data.len()).is_err();
        if !self.cut {
            self.copy.extend_from_slice(data);
        }
    }

    /// The answer has ended well: judges the copy and enters what came of it. What cannot be judged is entered too.
    pub fn finish(mut self, record: &mut Record) {
        let copy = std::mem::take(&mut self.copy).freeze();
        let reply = if self.cut { None } else { self.read(&copy) };
        match reply {
            Some(reply) => {
                record.usage = reply.usage;
                noted::watching(judge::judge(&self.contract, &reply, &self.tags, &self.known.now(reply.usage)), record);
            }
            None => record.unwatched = true,
        }
    }

    fn read(&self, copy: &Bytes) -> Option<Reply> {
        if !self.events {
            return openai::read(copy).ok().map(|whole| whole.reply);
        }
        let (mut reader, mut collector) = (EventReader::new(), Collector::default());
        reader.feed(copy, |data| collector.take(data)).ok()?;
        reader.finish(|data| collector.take(data)).ok()?;
        collector.finish().ok().map(|collected| collected.reply)
    }
}
