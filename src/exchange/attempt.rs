//! The attempts of one exchange: target after target, until one has an answer that counts.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::header;
use tokio::task::JoinHandle;

use crate::api::backend::openai;
use crate::api::backend::openai_stream::Collector;
use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::chat_answer;
use crate::api::ingress::chat_answer::Instead;
use crate::api::reply::Choice;
use crate::api::reply::Reply;
use crate::api::reply::Usage;
use crate::catalog::Backend;
use crate::contract::ground::LazyGround;
use crate::exchange::Gateway;
use crate::exchange::Incoming;
use crate::exchange::Out;
use crate::exchange::again;
use crate::exchange::again::Round;
use crate::exchange::again::Stopped;
use crate::exchange::collect;
use crate::exchange::collect::Hold;
use crate::exchange::deadline::InTime;
use crate::exchange::known::Knowing;
use crate::exchange::missed;
use crate::exchange::missed::Missed;
use crate::exchange::noted;
use crate::exchange::sifted::Sifted;
use crate::exchange::sifted::Wrong;
use crate::exchange::watch::Watch;
use crate::record::Outcome;
use crate::record::Record;
use crate::record::Stage;
use crate::settings::AuditContent;
use crate::stage::admit::Share;
use crate::stage::answer;
use crate::stage::answer::Came;
use crate::stage::answer::Fault;
use crate::stage::headers;
use crate::stage::headers::Reading;
use crate::stage::judge;
use crate::stage::judge::Refused;
use crate::stage::judge::Verdict;
use crate::stage::plan::Delivery;
use crate::stage::plan::Plan;
use crate::stage::plan::TargetPlan;
use crate::stage::respond;
use crate::stage::respond::Decision;
use crate::stage::respond::Respond;
use crate::stage::send::Call;
use crate::stage::send::CallBody;
use crate::stage::send::Upstream;
use crate::stage::send::UpstreamBody;
use crate::stage::send::UpstreamReply;
use crate::stage::shape;
use crate::stage::shape::Again;
use crate::stage::sift::Judges;
use crate::stage::sift::Sift;
use crate::wire::sse::EventReader;

/// Bodies above this size are read on a thread that may take its time.
const READ_INLINE_BYTES: usize = 1 << 20;
/// Answers above this size are judged on a thread that may take its time.
pub(super) const INLINE_BYTES: usize = 32 << 10;

/// One exchange with all that its attempts need.
pub(super) struct Attempts<'a, U> {
    pub(super) gateway: &'a Gateway<U>,
    pub(super) request: &'a ChatRequest,
    pub(super) plan: &'a Plan,
    pub(super) incoming: &'a Incoming,
    pub(super) deadline: Instant,
    pub(super) delivery: Delivery,
}

/// What one attempt that had an answer came to.
pub(super) enum Ended {
    /// It is what the caller gets.
    Out(Out),
    /// The answer is not accepted. The model may be asked once more.
    Stopped(Box<Stopped>),
}

impl<U: Upstream> Attempts<'_, U> {
    /// Asks target after target, and once more where a policy says so. Ends with the first answer that is accepted, with
    /// one that is not and is not worth another attempt, or with the failure of the last target.
    pub(super) async fn run(&self, record: &mut Record) -> Out {
        let mut calls = self.plan.alias.upstream_calls_max;
        let mut round = Round { targets: self.plan.targets.clone(), again: None, number: 0 };
        let mut before: Option<Box<Stopped>> = None;
        loop {
            match self.round(&round, &mut calls, record).await {
                Ok(Ended::Out(out)) => {
                    if let Some(before) = &before {
                        again::changed_paths(before, &self.delivered(record), record);
                    }
                    return out;
                }
                Ok(Ended::Stopped(stopped)) => {
                    if let Some(before) = &before {
                        again::changed_paths(before, &stopped.answer, record);
                    }
                    match self.once_more(&stopped, &round, calls) {
                        Some(next) => round = next,
                        None => return self.stopped(*stopped, record),
                    }
                    before = Some(stopped);
                }
                Err(missed) => {
                    record.reason = Some(missed.reason);
                    // An answer was there and was judged: that the next attempt failed does not change what is wrong with it.
                    return match before {
                        Some(before) => self.stopped(*before, record),
                        None => Out::Fault(missed.fault),
                    };
                }
            }
        }
    }

    /// What the caller gets of an answer that is not accepted, with what the record tells of it.
    fn stopped(&self, stopped: Stopped, record: &mut Record) -> Out {
        record.outcome = stopped.outcome;
        record.reason = Some(stopped.reason);
        record.violations = Some(stopped.violations);
        stopped.out
    }

    /// The text that was accepted of the first choice.
    fn delivered(&self, record: &Record) -> String {
        record.accepted.clone().unwrap_or_default()
    }

    /// Asks target after target. Ends with the first answer, the first failure that no other target could
    /// mend, or the failure of the last one.
    async fn round(&self, round: &Round, calls: &mut u32, record: &mut Record) -> Result<Ended, Missed> {
        let mut last = None;
        for target in &round.targets {
            let Some(left) = calls.checked_sub(1) else { break };
            *calls = left;
            record.attempts += 1;
            record.backend = Some(target.target.backend.name.clone());
            record.upstream_model = target.target.model.clone();
            record.native = target.native;
            record.waits_since = Some(Instant::now());
            let left = tokio::time::Instant::from_std(self.deadline);
            let tried = tokio::time::timeout_at(left, self.attempt(target, round.again.as_ref(), record)).await;
            record.answered();
            match tried {
                Ok(Ok(ended)) => return Ok(ended),
                Ok(Err(missed)) => {
                    let missed = missed.without_secrets(&target.target.backend);
                    missed.log(record);
                    record.failures.push((target.target.backend.name.clone(), missed.reason));
                    let transient = missed.is_transient();
                    last = Some(missed);
                    if !transient {
                        break;
                    }
                }
                Err(_) => {
                    record.failures.push((target.target.backend.name.clone(), "deadline"));
                    last = Some(missed::out_of_time());
                    break;
                }
            }
        }
        Err(last.unwrap_or_else(missed::out_of_time))
    }

    /// One attempt. The time spent upstream is entered in the record as soon as the rest is the gateway's own.
    async fn attempt(&self, target: &TargetPlan, again: Option<&Again>, record: &mut Record) -> Result<Ended, Missed> {
        let relayed = self.delivery == Delivery::Relay;
        // What is watched must be read, so it is asked for as it is.
        let asking = if relayed && self.plan.watch.is_none() { Reading::Relayed } else { Reading::Held };
        let reading = if relayed { Reading::Relayed } else { Reading::Held };
        let backend = &target.target.backend;
        let Plan { contract, terms, .. } = self.plan;
        let shaped =
            shape::shape(self.request, contract, terms, target, again).map_err(|error| missed::internal(&error))?;
        record.dropped = shaped.dropped;
        let added = shaped.body.iter().map(Bytes::len).sum::<usize>().saturating_sub(self.request.body.len());
        let grounding = self.ground();
        let call = Call {
            target: target.target.clone(),
            method: Method::POST,
            path: "/chat/completions".to_owned(),
            headers: headers::outbound(&self.incoming.headers, &self.incoming.caller, backend, asking),
            body: CallBody::Pieces(shaped.body),
        };
        let reply = self.gateway.upstream.send(call).await.map_err(missed::unsent)?;
        record.upstream_request_id =
            headers::request_id(&reply.headers).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if !reply.status.is_success() {
            return Err(missed::reported(backend, reply).await);
        }
        if self.delivery == Delivery::Relay {
            record.outcome = Outcome::Unchecked;
            record.answered();
            let watch = self.watched(target, &reply.headers);
            record.unwatched |= self.plan.watch.is_some() && watch.is_none();
            let headers = headers::inbound(&reply.headers, backend, reading);
            let body = self.in_time(backend, reply.body);
            return Ok(Ended::Out(Out::Relay { status: reply.status, headers, body, watch }));
        }
        let inbound = headers::inbound(&reply.headers, backend, reading);
        if self.delivery == Delivery::Sift && is_plain_events(&reply.headers) {
            let mut stream = self.sift(target, reply.body)?;
            let begun = stream.begin(record).await;
            record.answered();
            let mut headers = inbound;
            headers.extend(answer::event_headers());
            return match begun {
                Ok(()) => Ok(Ended::Out(Out::Sift { headers, stream })),
                Err(Wrong::Verdict(fault)) => Ok(Ended::Out(Out::Fault(fault))),
                Err(Wrong::Missed(missed)) => Err(missed),
            };
        }
        let (came, share) = self.collect(backend, reply).await?;
        record.answered();
        if let Some(grounding) = grounding {
            grounding.await.map_err(|error| missed::internal(&error))?;
        }
        let mut ended = self.judged(target, came, added, record).await?;
        let out = match &mut ended {
            Ended::Out(out) => out,
            Ended::Stopped(stopped) => &mut stopped.out,
        };
        if let Out::Held(answer) = out {
            answer.held = Some(share);
            let mut headers = inbound;
            headers.extend(std::mem::take(&mut answer.headers));
            answer.headers = headers;
        }
        Ok(ended)
    }

    /// A copy of an answer that goes on as it comes, where policies watch it.
    fn watched(&self, target: &TargetPlan, headers: &HeaderMap) -> Option<Box<Watch>> {
        let contract = self.plan.watch.clone()?;
        let share = self.gateway.held.take(0).ok()?;
        let tags = target.target.backend.capabilities.reasoning_tags.clone();
        let events = headers::is_event_stream(headers);
        Some(Box::new(Watch::new(contract, tags, self.knowing(target, 0), events, share)))
    }

    /// A body that goes out as it comes, and must end by the exchange's deadline.
    fn in_time(&self, backend: &Backend, body: UpstreamBody) -> UpstreamBody {
        Box::pin(InTime::new(body, backend.name.clone(), self.deadline))
    }

    /// A stream of which only the tool calls are held. No other target is asked once it has begun.
    fn sift(&self, target: &TargetPlan, body: UpstreamBody) -> Result<Box<Sifted>, Missed> {
        let held = self.gateway.held.take(0).map_err(|_| missed::overloaded())?;
        let sift = Sift::new(self.request.include_usage);
        let backend = Arc::clone(&target.target.backend);
        let Plan { contract, watch, binding, .. } = self.plan;
        let tags = backend.capabilities.reasoning_tags.clone();
        let judges = Judges { contract: contract.clone(), watch: watch.clone(), tags };
        let judging = (judges, binding.clone(), self.knowing(target, 0));
        let listen = &self.gateway.settings.listen;
        let body = self.in_time(&backend, body);
        Ok(Box::new(Sifted::new(body, sift, judging, backend, held, listen.limits.response, listen.keepalive_after)))
    }

    /// Takes the whole answer in, within the bounds for one and for all.
    async fn collect(&self, backend: &Backend, reply: UpstreamReply) -> Result<(Came, Share), Missed> {
        let max = self.gateway.settings.listen.limits.response;
        let share = self.gateway.held.take(0).map_err(|_| missed::overloaded())?;
        let mut hold = Hold::new(share, max, backend);
        let events = headers::is_event_stream(&reply.headers);
        let mut codings = reply.headers.get_all(header::CONTENT_ENCODING).iter();
        let coding = codings.next().map_or(Ok("identity"), HeaderValue::to_str).unwrap_or("?").to_owned();
        // Several are undone in their order, and that is not done here.
        let coding = if codings.next().is_some() { format!("{coding}, ...") } else { coding };
        if events && coding.eq_ignore_ascii_case("identity") {
            if !self.request.stream {
                return Err(missed::protocol(
                    "the backend streamed an answer that was asked for in one piece",
                    "unasked_stream",
                ));
            }
            let collected = collect::collect_events(reply.body, &mut hold).await?;
            return Ok((Came::Stream(collected), hold.share));
        }
        let body = collect::collect_whole(reply.body, &mut hold).await?;
        let (body, share) = collect::decoded(body, &coding, hold.share, max, backend).await?;
        if events {
            let (mut reader, mut collector) = (EventReader::new(), Collector::default());
            let read = reader
                .feed(&body, |data| collector.take(data))
                .and_then(|()| reader.finish(|data| collector.take(data)));
            let collected = read.and_then(|()| collector.finish()).map_err(|error| missed::unread(backend, error))?;
            return Ok((Came::Stream(collected), share));
        }
        let whole = if body.len() > READ_INLINE_BYTES {
            let own = body.clone();
            let reading = tokio::task::spawn_blocking(move || openai::read(&own));
            reading.await.map_err(|error| missed::internal(&error))?
        } else {
            openai::read(&body)
        };
        let whole = whole.map_err(|error| missed::unread(backend, error))?;
        let came = match self.request.stream {
            true => Came::Stream(chat_answer::as_collected(&body, whole)),
            false => Came::Whole(body, whole),
        };
        Ok((came, share))
    }

    /// Prepares sources and facts while the upstream call runs, on a thread that may take its time.
    fn ground(&self) -> Option<JoinHandle<()>> {
        let scopes = self.plan.contract.scopes.iter().chain(self.plan.watch.iter().flat_map(|watch| &watch.scopes));
        let grounds: Vec<Arc<LazyGround>> = scopes.map(|scope| Arc::clone(&scope.ground)).collect();
        if grounds.is_empty() {
            return None;
        }
        Some(tokio::task::spawn_blocking(move || {
            for ground in grounds {
                ground.get();
            }
        }))
    }

    /// What is known of the exchange before its answer has ended. `added` are the bytes that shaping has put into the prompt.
    fn knowing(&self, target: &TargetPlan, added: usize) -> Knowing {
        let Incoming { arrived, time, .. } = self.incoming;
        Knowing::of(self.plan, self.request, (*arrived, *time), target.target.price.as_ref(), added)
    }

    async fn judged(
        &self,
        target: &TargetPlan,
        came: Came,
        added: usize,
        record: &mut Record,
    ) -> Result<Ended, Missed> {
        let reply = came.reply();
        record.usage = reply.usage;
        record.usage_total = match (record.usage_total, reply.usage) {
            (None, usage) if record.rounds == 0 => usage,
            (Some(total), Some(usage)) => Some(total.plus(usage)),
            _ => Some(Usage::default()),
        };
        record.rounds += 1;
        if self.gateway.settings.audit.as_ref().is_some_and(|audit| audit.content != AuditContent::None) {
            record.text = reply.choices.first().and_then(|choice| choice.content.clone());
        }
        let tags = &target.target.backend.capabilities.reasoning_tags;
        let size: usize = reply.choices.iter().map(Choice::bytes).sum();
        let known = self.knowing(target, added).now(reply.usage);
        let (judgement, watched, came) = if size > INLINE_BYTES {
            let (contract, watch, tags) = (self.plan.contract.clone(), self.plan.watch.clone(), tags.clone());
            let judging = tokio::task::spawn_blocking(move || {
                let judgement = judge::judge(&contract, came.reply(), &tags, &known);
                let watched = watch.map(|watch| judge::judge(&watch, came.reply(), &tags, &known));
                (judgement, watched, came)
            });
            judging.await.map_err(|error| missed::internal(&error))?
        } else {
            let judgement = judge::judge(&self.plan.contract, reply, tags, &known);
            let watched = self.plan.watch.as_ref().map(|watch| judge::judge(watch, reply, tags, &known));
            (judgement, watched, came)
        };
        noted::seen(&judgement, record);
        if let Some(watched) = watched {
            noted::watching(watched, record);
        }
        self.answered(judgement.verdict, &came, record)
    }

    fn answered(&self, verdict: Verdict, came: &Came, record: &mut Record) -> Result<Ended, Missed> {
        let usage = self.request.include_usage;
        let total = record.usage_total.filter(|_| record.rounds > 1).map(Usage::json);
        let total = total.as_deref();
        match verdict {
            Verdict::Accept(accepted) => {
                record.outcome = Outcome::Accepted;
                record.rung = accepted.choices().first().and_then(|choice| choice.rung);
                record.loose_tool_violations = accepted.loose();
                if record.rounds > 1 {
                    record.accepted = first_accepted(came.reply(), &accepted);
                }
                let answer =
                    answer::accepted(came, &accepted, usage, total).map_err(|error| missed::internal(&error))?;
                Ok(Ended::Out(Out::Held(answer)))
            }
            Verdict::Refuse(who) => {
                record.outcome = Outcome::Refused;
                record.reason = Some(who.as_str());
                let filtered = who == Refused::Filter;
                let answer = answer::refused(came, filtered, usage, total).map_err(|error| missed::internal(&error))?;
                Ok(Ended::Out(Out::Held(answer)))
            }
            Verdict::Clarify(asked) => {
                record.rung = asked.rung;
                record.questions.clone_from(&asked.questions);
                let decision = Decision::asked(&asked);
                let out = self.respond(&decision, Fault::clarification(&asked), came, total)?;
                let (said, answer) = (said(came.reply()), asked.answer);
                let (outcome, violations) = (Outcome::Clarified, asked.violations);
                let (stage, reason) = (Stage::Judge, "clarify");
                Ok(Ended::Stopped(Box::new(Stopped { out, outcome, stage, reason, violations, said, answer })))
            }
            Verdict::Reject(rejection) => {
                record.rung = rejection.rung;
                record.questions.clear();
                let decision = Decision::rejected(&rejection);
                let out = self.respond(&decision, Fault::rejected(&rejection), came, total)?;
                let (said, answer) = (said(came.reply()), rejection.answer);
                let (outcome, violations) = (Outcome::Rejected, rejection.violations);
                let (stage, reason) = (rejection.stage, rejection.reason);
                Ok(Ended::Stopped(Box::new(Stopped { out, outcome, stage, reason, violations, said, answer })))
            }
            Verdict::Fail(how) => Err(missed::failed(how, came.reply())),
        }
    }

    /// What the caller gets in the place of an answer that is not accepted, as the policy whose gate decided says.
    fn respond(&self, decision: &Decision<'_>, fault: Fault, came: &Came, total: Option<&str>) -> Result<Out, Missed> {
        let usage = self.request.include_usage;
        let told = answer::told(decision.outcome, decision.questions, decision.violations);
        let answer = match respond::respond(decision, &self.plan.binding, &self.plan.contract) {
            Respond::Error => return Ok(Out::Fault(Box::new(fault))),
            Respond::Refusal(words) => answer::instead(came, Instead::Asked(&words, &told), usage, total),
            Respond::Object(object) => answer::instead(came, Instead::Object(&object, &told), usage, total),
        };
        answer.map(Out::Held).map_err(|error| missed::internal(&error))
    }
}

/// Whether these are the headers of an event stream that can be read as it comes.
fn is_plain_events(headers: &HeaderMap) -> bool {
    let coding = headers.get(header::CONTENT_ENCODING).map_or(&b"identity"[..], HeaderValue::as_bytes);
    headers::is_event_stream(headers) && coding.eq_ignore_ascii_case(b"identity")
}

/// What the model said, as it said it: in the first choice that says something.
fn said(reply: &Reply) -> String {
    reply.choices.iter().find_map(|choice| choice.content.clone()).unwrap_or_default()
}

fn first_accepted(reply: &Reply, accepted: &judge::Accepted) -> Option<String> {
    let all = reply.choices.iter().zip(accepted.choices());
    let (choice, passed) = all.into_iter().find(|(_, passed)| !passed.dropped)?;
    Some(choice.content.as_ref()?.get(passed.slice.clone()?)?.to_owned())
}
