//! A stream that is sifted on its way out: text as it comes, tool calls once they are judged.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use crate::api::ingress::chat_answer::Instead;
use crate::api::reply::ReplyError;
use crate::catalog::Backend;
use crate::exchange::attempt;
use crate::exchange::known::Knowing;
use crate::exchange::missed;
use crate::exchange::missed::Missed;
use crate::exchange::noted;
use crate::record::Outcome;
use crate::record::Record;
use crate::stage::admit::Share;
use crate::stage::answer;
use crate::stage::answer::Fault;
use crate::stage::answer::Told;
use crate::stage::bind::Binding;
use crate::stage::judge::Verdict;
use crate::stage::respond;
use crate::stage::respond::Decision;
use crate::stage::respond::Respond;
use crate::stage::send::UpstreamBody;
use crate::stage::send::UpstreamError;
use crate::stage::sift::Ended;
use crate::stage::sift::Judges;
use crate::stage::sift::Sieved;
use crate::stage::sift::Sift;
use crate::wire::sse;

/// A sifted stream under way. Dropping it ends the upstream call.
pub struct Sifted {
    body: UpstreamBody,
    sift: Option<Sift>,
    judges: Judges,
    binding: Binding,
    known: Knowing,
    backend: Arc<Backend>,
    held: Share,
    taken: usize,
    response_max: usize,
    /// The end of the stream under judgement, where it is so large that a thread of its own takes it.
    judging: Option<JoinHandle<Finished>>,
    /// What came before the head went out.
    begun: Option<Bytes>,
    /// How long the caller hears nothing before a comment keeps the stream alive, and the clock of it.
    every: Duration,
    clock: Option<Pin<Box<Sleep>>>,
}

/// A step of the stream.
enum Step {
    /// Bytes for the caller.
    Bytes(Bytes),
    /// What went wrong, and the bytes before it. The stream has ended.
    Wrong(Vec<u8>, Wrong),
}

/// Why a stream ends without its calls.
pub(super) enum Wrong {
    /// The verdict on them, which the record tells of.
    Verdict(Box<Fault>),
    /// A failure of the backend's.
    Missed(Missed),
}

/// What the end of a stream came to, and the text that was still held.
type Finished = (Result<Ended, ReplyError>, Vec<u8>);

impl Sifted {
    /// A stream at its start. `held` grows with what comes, up to `response_max` bytes.
    pub(super) fn new(
        body: UpstreamBody,
        sift: Sift,
        (judges, binding, known): (Judges, Binding, Knowing),
        backend: Arc<Backend>,
        held: Share,
        response_max: usize,
        every: Duration,
    ) -> Self {
        Self {
            body,
            sift: Some(sift),
            judges,
            binding,
            known,
            backend,
            held,
            taken: 0,
            response_max,
            judging: None,
            begun: None,
            every,
            clock: None,
        }
    }

    /// Waits for the first bytes for the caller, but no longer than a stream may be silent: a verdict that
    /// comes before anything is out can still choose the status.
    ///
    /// # Errors
    /// What went wrong before anything was out: another target may still be asked.
    pub(super) async fn begin(&mut self, record: &mut Record) -> Result<(), Wrong> {
        let every = self.every;
        let first = std::future::poll_fn(|context| self.poll_step(context, record));
        match tokio::time::timeout(every, first).await {
            Ok(Some(Step::Bytes(bytes))) => self.begun = Some(bytes),
            Ok(Some(Step::Wrong(before, wrong))) if before.is_empty() => return Err(wrong),
            Ok(Some(Step::Wrong(before, wrong))) => self.begun = Some(last(before, wrong, &self.backend, record)),
            Ok(None) | Err(_) => {}
        }
        Ok(())
    }

    /// The next bytes for the caller; none once the stream has ended, which `record` then tells of.
    ///
    /// It never fails: once bytes are out, what goes wrong is an `error` event and the end.
    pub fn poll_next(&mut self, context: &mut Context<'_>, record: &mut Record) -> Poll<Option<Bytes>> {
        if let Some(begun) = self.begun.take() {
            return Poll::Ready(Some(begun));
        }
        match self.poll_step(context, record) {
            Poll::Ready(step) => {
                self.clock = None;
                Poll::Ready(step.map(|step| match step {
                    Step::Bytes(bytes) => bytes,
                    Step::Wrong(before, wrong) => last(before, wrong, &self.backend, record),
                }))
            }
            Poll::Pending => {
                let clock = self.clock.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.every)));
                std::task::ready!(clock.as_mut().poll(context));
                self.clock = None;
                context.waker().wake_by_ref(); // so that the clock starts anew
                Poll::Ready(Some(Bytes::from_static(sse::KEEPALIVE)))
            }
        }
    }

    fn poll_step(&mut self, context: &mut Context<'_>, record: &mut Record) -> Poll<Option<Step>> {
        loop {
            let mut out = Vec::new();
            let wrong = if let Some(judging) = &mut self.judging {
                let judged = std::task::ready!(Pin::new(judging).poll(context));
                self.judging = None;
                match judged {
                    Ok((ended, text)) => {
                        out = text;
                        self.finished(ended, &mut out, record)
                    }
                    Err(error) => Some(Wrong::Missed(missed::internal(&error))),
                }
            } else {
                let Some(sift) = &mut self.sift else { return Poll::Ready(None) };
                let frame =
                    if sift.is_done() { None } else { std::task::ready!(self.body.as_mut().poll_frame(context)) };
                match frame {
                    None => match self.end(&mut out, record) {
                        Some(wrong) => wrong,
                        None => continue, // it is judged elsewhere
                    },
                    Some(Err(error)) => Some(Wrong::Missed(missed::unsent(error))),
                    Some(Ok(frame)) => match frame.into_data() {
                        Ok(data) => self.fed(&data, &mut out).map(Wrong::Missed),
                        Err(_) => continue, // trailers
                    },
                }
            };
            if let Some(wrong) = wrong {
                self.sift = None;
                return Poll::Ready(Some(Step::Wrong(out, wrong)));
            }
            if !out.is_empty() {
                return Poll::Ready(Some(Step::Bytes(out.into())));
            }
        }
    }

    /// The backend's stream has ended: judges it here, or where it is large on a thread of its own.
    fn end(&mut self, out: &mut Vec<u8>, record: &mut Record) -> Option<Option<Wrong>> {
        let sift = self.sift.take()?;
        if self.taken > attempt::INLINE_BYTES {
            let (judges, known) = (self.judges.clone(), self.known.clone());
            self.judging = Some(tokio::task::spawn_blocking(move || {
                let mut text = Vec::new();
                (sift.finish(&judges, |usage| known.now(usage), &mut text), text)
            }));
            return None;
        }
        let ended = sift.finish(&self.judges, |usage| self.known.now(usage), out);
        Some(self.finished(ended, out, record))
    }

    /// Takes a piece of the stream; what may go on is appended to `out`.
    fn fed(&mut self, data: &Bytes, out: &mut Vec<u8>) -> Option<Missed> {
        if let Err(missed) = self.take(data) {
            return Some(missed);
        }
        let sift = self.sift.as_mut()?;
        sift.feed(data, out).err().map(|error| missed::unread(&self.backend, error))
    }

    fn finished(&self, ended: Result<Ended, ReplyError>, out: &mut Vec<u8>, record: &mut Record) -> Option<Wrong> {
        match ended {
            Ok(ended) => self.ended(ended, out, record),
            Err(error) => Some(Wrong::Missed(missed::unread(&self.backend, error))),
        }
    }

    fn take(&mut self, data: &Bytes) -> Result<(), Missed> {
        self.taken += data.len();
        if self.taken > self.response_max {
            let backend = self.backend.name.clone();
            return Err(missed::unsent(UpstreamError::TooLarge { backend, max: self.response_max }));
        }
        self.held.grow(data.len()).map_err(|_| missed::overloaded())
    }

    /// The stream ended well: its calls go out, or the error that says why not.
    fn ended(&self, ended: Ended, out: &mut Vec<u8>, record: &mut Record) -> Option<Wrong> {
        record.usage = ended.collected.reply().usage;
        noted::seen(&ended.judgement, record);
        if let Some(watched) = ended.watched {
            noted::watching(watched, record);
        }
        match ended.judgement.verdict {
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
            Verdict::Clarify(asked) => {
                record.reason = Some("clarify");
                record.questions.clone_from(&asked.questions);
                let fault = Fault::clarification(&asked);
                let stopped = self.stopped(&Decision::asked(&asked), fault, &ended.collected, out, record);
                record.violations = Some(asked.violations);
                return stopped;
            }
            Verdict::Reject(rejection) => {
                record.reason = Some(rejection.reason);
                let fault = Fault::rejected(&rejection);
                let stopped = self.stopped(&Decision::rejected(&rejection), fault, &ended.collected, out, record);
                record.violations = Some(rejection.violations);
                return stopped;
            }
            Verdict::Fail(how) => return Some(Wrong::Missed(missed::failed(how, ended.collected.reply()))),
        }
        None
    }
}

impl Sifted {
    /// Calls that do not go on: what the caller gets in their place, as the policy whose gate decided says.
    fn stopped(
        &self,
        decision: &Decision<'_>,
        fault: Fault,
        collected: &Sieved,
        out: &mut Vec<u8>,
        record: &mut Record,
    ) -> Option<Wrong> {
        record.outcome = decision.outcome;
        match respond::respond(decision, &self.binding, &self.judges.contract) {
            Respond::Refusal(words) => {
                let told = answer::told(decision.outcome, decision.questions, decision.violations);
                out.extend_from_slice(&collected.instead(Instead::Asked(&words, &told)));
                None
            }
            // An object would stand in the place of a text that has gone on.
            Respond::Error | Respond::Object(_) => {
                record.code = Some(fault.own);
                Some(Wrong::Verdict(Box::new(fault)))
            }
        }
    }
}

/// The last bytes of a stream that has begun and ends badly: what came before, and the error. A failure of
/// the backend's is entered in the record.
fn last(mut before: Vec<u8>, wrong: Wrong, backend: &Backend, record: &mut Record) -> Bytes {
    let fault = match wrong {
        Wrong::Verdict(fault) => fault,
        Wrong::Missed(missed) => {
            let missed = missed.without_secrets(backend);
            missed::ended_badly(&missed, record);
            missed.fault
        }
    };
    before.extend_from_slice(&fault.event(&Told::from(&*record)));
    before.into()
}
