//! A stream that is sifted on its way out: text as it comes, tool calls once they are judged.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;

use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::api::reply::ReplyError;
use crate::catalog::Backend;
use crate::contract::Contract;
use crate::exchange::attempt;
use crate::record::Outcome;
use crate::record::Record;
use crate::stage::admit::Share;
use crate::stage::answer::Fault;
use crate::stage::judge::Verdict;
use crate::stage::send::UpstreamBody;
use crate::stage::send::UpstreamError;
use crate::stage::sift::Ended;
use crate::stage::sift::Sift;

/// A sifted stream under way. Dropping it ends the upstream call.
pub struct Sifted {
    body: UpstreamBody,
    sift: Option<Sift>,
    contract: Contract,
    backend: Arc<Backend>,
    held: Share,
    taken: usize,
    response_max: usize,
    /// The end of the stream under judgement, where it is so large that a thread of its own takes it.
    judging: Option<JoinHandle<Finished>>,
}

/// What the end of a stream came to, and the text that was still held.
type Finished = (Result<Ended, ReplyError>, Vec<u8>);

impl Sifted {
    /// A stream at its start. `held` grows with what comes, up to `response_max` bytes.
    pub fn new(
        body: UpstreamBody,
        sift: Sift,
        contract: Contract,
        backend: Arc<Backend>,
        held: Share,
        response_max: usize,
    ) -> Self {
        Self { body, sift: Some(sift), contract, backend, held, taken: 0, response_max, judging: None }
    }

    /// The next bytes for the caller; none once the stream has ended, which `record` then tells of.
    ///
    /// It never fails: once bytes are out, what goes wrong is an `error` event and the end.
    pub fn poll_next(&mut self, context: &mut Context<'_>, record: &mut Record) -> Poll<Option<Bytes>> {
        loop {
            let mut out = Vec::new();
            let fault = if let Some(judging) = &mut self.judging {
                let judged = std::task::ready!(Pin::new(judging).poll(context));
                self.judging = None;
                match judged {
                    Ok((ended, text)) => {
                        out = text;
                        self.finished(ended, &mut out, record)
                    }
                    Err(error) => Some(attempt::internal(&error)),
                }
            } else {
                let Some(sift) = &mut self.sift else { return Poll::Ready(None) };
                let frame =
                    if sift.is_done() { None } else { std::task::ready!(self.body.as_mut().poll_frame(context)) };
                match frame {
                    None => {
                        let Some(sift) = self.sift.take() else { return Poll::Ready(None) };
                        if self.taken > attempt::INLINE_BYTES {
                            let contract = self.contract.clone();
                            self.judging = Some(tokio::task::spawn_blocking(move || {
                                let mut text = Vec::new();
                                (sift.finish(&contract, &mut text), text)
                            }));
                            continue;
                        }
                        let ended = sift.finish(&self.contract, &mut out);
                        self.finished(ended, &mut out, record)
                    }
                    Some(Err(error)) => Some(attempt::unsent(error)),
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => self.fed(&data, &mut out),
                        Err(_) => continue, // trailers
                    },
                }
            };
            if let Some(missed) = fault {
                self.sift = None;
                record.outcome = Outcome::Failed;
                record.reason = Some(missed.reason);
                record.code = Some(missed.fault.own);
                out.extend_from_slice(&missed.fault.event(&record.request_id, record.attempts));
            }
            if !out.is_empty() {
                return Poll::Ready(Some(out.into()));
            }
        }
    }

    /// Takes a piece of the stream; what may go on is appended to `out`.
    fn fed(&mut self, data: &Bytes, out: &mut Vec<u8>) -> Option<attempt::Missed> {
        if let Err(missed) = self.take(data) {
            return Some(missed);
        }
        let sift = self.sift.as_mut()?;
        sift.feed(data, out).err().map(|error| attempt::unread(&self.backend, error))
    }

    fn finished(
        &self,
        ended: Result<Ended, ReplyError>,
        out: &mut Vec<u8>,
        record: &mut Record,
    ) -> Option<attempt::Missed> {
        match ended {
            Ok(ended) => self.ended(ended, out, record),
            Err(error) => Some(attempt::unread(&self.backend, error)),
        }
    }

    fn take(&mut self, data: &Bytes) -> Result<(), attempt::Missed> {
        self.taken += data.len();
        if self.taken > self.response_max {
            let backend = self.backend.name.clone();
            return Err(attempt::unsent(UpstreamError::TooLarge { backend, max: self.response_max }));
        }
        self.held.grow(data.len()).map_err(|_| attempt::overloaded())
    }

    /// The stream ended well: its calls go out, or the error that says why not.
    fn ended(&self, ended: Ended, out: &mut Vec<u8>, record: &mut Record) -> Option<attempt::Missed> {
        record.usage = ended.reply.usage;
        match ended.verdict {
            Verdict::Accept(accepted) => {
                record.outcome = Outcome::Accepted;
                record.loose_tool_violations = accepted.loose();
                out.extend_from_slice(&ended.events);
            }
            Verdict::Refuse(who) => {
                record.outcome = Outcome::Refused;
                record.reason = Some(who.as_str());
                // The refusal's words have gone on as they came; no call goes with them.
                out.extend_from_slice(&ended.without_calls);
            }
            Verdict::Reject(rejection) => {
                record.outcome = Outcome::Rejected;
                record.code = Some(rejection.code);
                record.reason = Some(rejection.reason);
                out.extend_from_slice(&Fault::rejected(&rejection).event(&record.request_id, record.attempts));
                record.violations = Some(rejection.violations);
            }
            Verdict::Fail(failed) => return Some(attempt::failed(failed, &ended.reply)),
        }
        None
    }
}
