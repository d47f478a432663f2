//! The attempts of one exchange: target after target, until one has an answer that counts.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use bytes::BytesMut;
use http::HeaderMap;
use http::HeaderValue;
use http::Method;
use http::StatusCode;
use http::header;
use http_body_util::BodyExt as _;
use tokio::task::JoinHandle;

use crate::api::backend::openai;
use crate::api::backend::openai_stream::Collector;
use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::chat_answer;
use crate::api::ingress::chat_answer::Instead;
use crate::api::reply::Choice;
use crate::api::reply::Reply;
use crate::api::reply::ReplyError;
use crate::api::reply::Usage;
use crate::catalog::Backend;
use crate::catalog::Credentials;
use crate::catalog::Target;
use crate::contract::assign::Minter;
use crate::contract::ground::LazyGround;
use crate::contract::scene;
use crate::contract::verdict::Action;
use crate::contract::verdict::Violation;
use crate::contract::verdict::Violations;
use crate::exchange::Gateway;
use crate::exchange::Incoming;
use crate::exchange::Out;
use crate::exchange::collect;
use crate::exchange::collect::Hold;
use crate::exchange::deadline::InTime;
use crate::exchange::sifted::Sifted;
use crate::exchange::sifted::Wrong;
use crate::exchange::watch::Watch;
use crate::json::diff;
use crate::json::path::Path;
use crate::json::tree;
use crate::record::Outcome;
use crate::record::Record;
use crate::stage::admit::Share;
use crate::stage::answer;
use crate::stage::answer::Came;
use crate::stage::answer::Fault;
use crate::stage::answer::Retry;
use crate::stage::headers;
use crate::stage::headers::Reading;
use crate::stage::judge;
use crate::stage::judge::Failed;
use crate::stage::judge::Judgement;
use crate::stage::judge::Known;
use crate::stage::judge::Refused;
use crate::stage::judge::Verdict;
use crate::stage::plan;
use crate::stage::plan::Delivery;
use crate::stage::plan::Plan;
use crate::stage::plan::RetryTerms;
use crate::stage::plan::TargetPlan;
use crate::stage::prompt;
use crate::stage::respond;
use crate::stage::respond::Decision;
use crate::stage::respond::Respond;
use crate::stage::send::Call;
use crate::stage::send::CallBody;
use crate::stage::send::UploadError;
use crate::stage::send::Upstream;
use crate::stage::send::UpstreamBody;
use crate::stage::send::UpstreamError;
use crate::stage::send::UpstreamReply;
use crate::stage::shape;
use crate::stage::shape::Again;
use crate::stage::sift::Sift;
use crate::wire::fault::Code;
use crate::wire::fault::Reported;
use crate::wire::sse::EventReader;

/// Bytes of a backend's error body that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;
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

/// Why one attempt gave no answer.
pub(super) struct Missed {
    pub(super) fault: Box<Fault>,
    /// In one word, for records and metrics.
    pub(super) reason: &'static str,
    /// Whether the next target may be asked.
    transient: bool,
    /// What the log gets beyond the caller's message: the chain of causes.
    cause: Option<String>,
}

impl Missed {
    /// Whether the next target may be asked.
    pub(super) fn is_transient(&self) -> bool {
        self.transient
    }

    /// The same with no secret of the operator's in what the caller and the log get: a message may quote the backend.
    pub(super) fn without_secrets(mut self, backend: &Backend) -> Self {
        self.fault.message = backend.blotted(self.fault.message);
        self.fault.code = backend.blotted(self.fault.code);
        self.cause = self.cause.map(|cause| backend.blotted(cause));
        self
    }

    /// Writes to the log what went wrong, under the request's id. A fault of the operator's to mend is an error.
    pub(super) fn log(&self, record: &Record) {
        let (request_id, backend, reason) = (&record.request_id, record.backend.as_deref(), self.reason);
        let cause = self.cause.as_deref().unwrap_or_default();
        match self.fault.own {
            Code::InternalError | Code::UpstreamAuth => {
                tracing::error!(request_id, backend, reason, cause, "{}", self.fault.message);
            }
            // These messages may quote the backend's own words, which no log gets.
            Code::UpstreamError | Code::UpstreamProtocol | Code::OutputEmpty => {
                tracing::warn!(request_id, backend, reason, cause, "an upstream call gave no answer");
            }
            _ => tracing::warn!(request_id, backend, reason, cause, "{}", self.fault.message),
        }
    }
}

/// What one attempt that had an answer came to.
pub(super) enum Ended {
    /// It is what the caller gets.
    Out(Out),
    /// The answer is not accepted. The model may be asked once more.
    Stopped(Box<Stopped>),
}

/// An answer that is not accepted, and what the caller gets where it stays at that.
pub(super) struct Stopped {
    out: Out,
    outcome: Outcome,
    stage: &'static str,
    reason: &'static str,
    violations: Violations,
    /// What the model said in the choice that decided.
    said: String,
    /// The answer as it was judged; empty where none was cut out.
    answer: String,
}

/// Where, and with what words, the next round asks.
struct Round {
    targets: Vec<TargetPlan>,
    again: Option<Again>,
    /// Rounds before this one.
    number: u32,
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
                        changed_paths(before, &self.delivered(record), record);
                    }
                    return out;
                }
                Ok(Ended::Stopped(stopped)) => {
                    if let Some(before) = &before {
                        changed_paths(before, &stopped.answer, record);
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

    /// The next round, where every violation is one that a policy finds worth another attempt.
    fn once_more(&self, stopped: &Stopped, round: &Round, calls: u32) -> Option<Round> {
        let terms = self.plan.terms.retry.as_ref()?;
        if round.number >= terms.attempts || calls == 0 || self.delivery != Delivery::Hold {
            return None;
        }
        let is_named = |policy: Option<&str>, gate: &str| {
            terms.on.iter().any(|(own, named)| **named == *gate && policy.is_none_or(|policy| **own == *policy))
        };
        let worth = |violation: &Violation| match stopped.stage {
            "extract" => is_named(None, "extraction"),
            _ if stopped.reason == "schema" => is_named(None, "schema"),
            "judge" => violation.action == Action::Monitor || is_named(violation.policy.as_deref(), &violation.gate),
            _ => false,
        };
        // Beyond those that are listed nobody has looked.
        let all_listed = stopped.violations.total() == stopped.violations.iter().count();
        if !all_listed || !stopped.violations.iter().all(worth) {
            return None;
        }
        let targets = self.escalated(terms, round.number)?;
        let told = stopped.violations.iter().map(|violation| (violation.path.to_string(), violation.message.clone()));
        let again = Again { said: stopped.said.clone(), feedback: prompt::feedback(told) };
        Some(Round { targets, again: Some(again), number: round.number + 1 })
    }

    /// The targets of the round after round `number`: of the alias that stands next in `escalate`, else the request's own.
    fn escalated(&self, terms: &RetryTerms, number: u32) -> Option<Vec<TargetPlan>> {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(name) = terms.escalate.get(index) else { return Some(self.plan.targets.clone()) };
        let alias = self.gateway.catalog.alias(name)?;
        plan::targets(alias, &self.plan.contract, &self.plan.terms, self.request).ok()
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
                    let transient = missed.transient;
                    last = Some(missed);
                    if !transient {
                        break;
                    }
                }
                Err(_) => {
                    record.failures.push((target.target.backend.name.clone(), "deadline"));
                    last = Some(out_of_time());
                    break;
                }
            }
        }
        Err(last.unwrap_or_else(out_of_time))
    }

    /// One attempt. The time spent upstream is entered in the record as soon as the rest is the gateway's own.
    async fn attempt(&self, target: &TargetPlan, again: Option<&Again>, record: &mut Record) -> Result<Ended, Missed> {
        let relayed = self.delivery == Delivery::Relay;
        // What is watched must be read, so it is asked for as it is.
        let asking = if relayed && self.plan.watch.is_none() { Reading::Relayed } else { Reading::Held };
        let reading = if relayed { Reading::Relayed } else { Reading::Held };
        let backend = &target.target.backend;
        let Plan { contract, terms, .. } = self.plan;
        let shaped = shape::shape(self.request, contract, terms, target, again).map_err(|error| internal(&error))?;
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
        let reply = self.gateway.upstream.send(call).await.map_err(unsent)?;
        record.upstream_request_id =
            headers::request_id(&reply.headers).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if !reply.status.is_success() {
            return Err(reported(backend, reply).await);
        }
        if self.delivery == Delivery::Relay {
            record.outcome = Outcome::Unchecked;
            record.answered();
            let watch = self.watched(target, &reply.headers);
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
            grounding.await.map_err(|error| internal(&error))?;
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
        Some(Box::new(Watch::new(contract, tags, self.known(&target.target, None, 0), events, share)))
    }

    /// A body that goes out as it comes, and must end by the exchange's deadline.
    fn in_time(&self, backend: &Backend, body: UpstreamBody) -> UpstreamBody {
        Box::pin(InTime::new(body, backend.name.clone(), self.deadline))
    }

    /// A stream of which only the tool calls are held. No other target is asked once it has begun.
    fn sift(&self, target: &TargetPlan, body: UpstreamBody) -> Result<Box<Sifted>, Missed> {
        let held = self.gateway.held.take(0).map_err(|_| overloaded())?;
        let sift = Sift::new(self.request.include_usage);
        let backend = Arc::clone(&target.target.backend);
        let judging = (self.plan.contract.clone(), self.known(&target.target, None, 0));
        let listen = &self.gateway.settings.listen;
        let body = self.in_time(&backend, body);
        Ok(Box::new(Sifted::new(body, sift, judging, backend, held, listen.limits.response, listen.keepalive_after)))
    }

    /// Takes the whole answer in, within the bounds for one and for all.
    async fn collect(&self, backend: &Backend, reply: UpstreamReply) -> Result<(Came, Share), Missed> {
        let max = self.gateway.settings.listen.limits.response;
        let share = self.gateway.held.take(0).map_err(|_| overloaded())?;
        let mut hold = Hold::new(share, max, backend);
        let events = headers::is_event_stream(&reply.headers);
        let mut codings = reply.headers.get_all(header::CONTENT_ENCODING).iter();
        let coding = codings.next().map_or(Ok("identity"), HeaderValue::to_str).unwrap_or("?").to_owned();
        // Several are undone in their order, and that is not done here.
        let coding = if codings.next().is_some() { format!("{coding}, ...") } else { coding };
        if events && coding.eq_ignore_ascii_case("identity") {
            if !self.request.stream {
                return Err(protocol(
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
            let collected = read.and_then(|()| collector.finish()).map_err(|error| unread(backend, error))?;
            return Ok((Came::Stream(collected), share));
        }
        let whole = if body.len() > READ_INLINE_BYTES {
            let own = body.clone();
            let reading = tokio::task::spawn_blocking(move || openai::read(&own));
            reading.await.map_err(|error| internal(&error))?
        } else {
            openai::read(&body)
        };
        let whole = whole.map_err(|error| unread(backend, error))?;
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

    /// What is known of the exchange when the answer is judged. `added` are the bytes that shaping has put into the prompt.
    fn known(&self, target: &Target, usage: Option<Usage>, added: usize) -> Known {
        let prompt = self.request.texts().map(|spot| spot.close - spot.open).sum::<usize>() + added;
        let price = target.price.as_ref().zip(usage);
        let call = scene::Call {
            usage,
            cost_usd: price.and_then(|(price, usage)| {
                price.cost(usage.input_tokens?, usage.cached_tokens.unwrap_or(0), usage.output_tokens?)
            }),
            latency: Some(self.incoming.arrived.elapsed()),
            prompt_bytes: u64::try_from(prompt).ok(),
            context: None,
            request: scene::Asker {
                model: Some(self.request.model.clone()),
                team: None, // who calls has no team before there are keys
                user: self.request.user.clone(),
                time: Some(self.incoming.time.to_string()),
            },
        };
        Known { call, minter: Minter { now: jiff::Timestamp::now(), seed: uuid::Uuid::new_v4().into_bytes() } }
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
        if self.gateway.settings.audit.is_some() {
            record.text = reply.choices.first().and_then(|choice| choice.content.clone());
        }
        let tags = &target.target.backend.capabilities.reasoning_tags;
        let size: usize = reply.choices.iter().map(Choice::bytes).sum();
        let known = self.known(&target.target, reply.usage, added);
        let (judgement, watched, came) = if size > INLINE_BYTES {
            let (contract, watch, tags) = (self.plan.contract.clone(), self.plan.watch.clone(), tags.clone());
            let judging = tokio::task::spawn_blocking(move || {
                let judgement = judge::judge(&contract, came.reply(), &tags, &known);
                let watched = watch.map(|watch| judge::judge(&watch, came.reply(), &tags, &known));
                (judgement, watched, came)
            });
            judging.await.map_err(|error| internal(&error))?
        } else {
            let judgement = judge::judge(&self.plan.contract, reply, tags, &known);
            let watched = self.plan.watch.as_ref().map(|watch| judge::judge(watch, reply, tags, &known));
            (judgement, watched, came)
        };
        seen(&judgement, record);
        if let Some(watched) = watched {
            watching(watched, record);
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
                let answer = answer::accepted(came, &accepted, usage, total).map_err(|error| internal(&error))?;
                Ok(Ended::Out(Out::Held(answer)))
            }
            Verdict::Refuse(who) => {
                record.outcome = Outcome::Refused;
                record.reason = Some(who.as_str());
                let filtered = who == Refused::Filter;
                let answer = answer::refused(came, filtered, usage, total).map_err(|error| internal(&error))?;
                Ok(Ended::Out(Out::Held(answer)))
            }
            Verdict::Clarify(asked) => {
                record.rung = asked.rung;
                record.questions.clone_from(&asked.questions);
                let decision = Decision::asked(&asked);
                let out = self.respond(&decision, Fault::clarification(&asked), came, total)?;
                let (said, answer) = (said(came.reply()), asked.answer);
                let (outcome, violations) = (Outcome::Clarified, asked.violations);
                let (stage, reason) = ("judge", "clarify");
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
            Verdict::Fail(how) => Err(failed(how, came.reply())),
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
        answer.map(Out::Held).map_err(|error| internal(&error))
    }
}

/// Enters what was seen on the way to a verdict.
pub(super) fn seen(judgement: &Judgement, record: &mut Record) {
    record.gates.extend(judgement.gates.iter().cloned());
    record.wrapped += judgement.wrapped;
    match (&mut record.observed, &judgement.observed) {
        (Some(all), Some(more)) => all.extend(more.clone()),
        (None, more) => record.observed.clone_from(more),
        (Some(_), None) => {}
    }
}

/// Enters what policies that only watch would have made of the answer.
pub(super) fn watching(judgement: Judgement, record: &mut Record) {
    seen(&judgement, record);
    let (outcome, violations) = match judgement.verdict {
        Verdict::Accept(_) => (Outcome::Accepted, None),
        Verdict::Clarify(asked) => (Outcome::Clarified, Some(asked.violations)),
        Verdict::Reject(rejection) => (Outcome::Rejected, Some(rejection.violations)),
        Verdict::Refuse(_) => (Outcome::Refused, None),
        Verdict::Fail(_) => (Outcome::Failed, None),
    };
    record.watched = Some(outcome);
    let violations = violations.map(|violations| violations.with_action(Action::Monitor));
    match (&mut record.observed, violations) {
        (Some(all), Some(more)) => all.extend(more),
        (None, more) => record.observed = more,
        (Some(_), None) => {}
    }
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

/// Enters the paths that a further attempt changed although no violation named them.
fn changed_paths(before: &Stopped, after: &str, record: &mut Record) {
    let (Ok(old), Ok(new)) = (tree::parse(&before.answer), tree::parse(after)) else { return };
    let named = |path: &Path| before.violations.iter().any(|violation| violation.path.holds(path));
    let changed = diff::changed(&old, &new).into_iter().filter(|path| !named(path));
    record.retry_changed_paths.extend(changed);
    record.retry_changed_paths.truncate(100);
}

/// A status that is no success: the caller gets it in our shape, with what the backend said.
pub(super) async fn reported(backend: &Backend, reply: UpstreamReply) -> Missed {
    let status = reply.status;
    let retry_after = reply.headers.get(header::RETRY_AFTER).cloned();
    let encoded = reply.headers.contains_key(header::CONTENT_ENCODING);
    let mut body = reply.body;
    let mut text = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            text.extend_from_slice(data.get(..data.len().min(ERROR_BYTES_MAX - text.len())).unwrap_or_default());
        }
        if text.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    if text.len() >= ERROR_BYTES_MAX {
        // What was cut may end in a part of a secret, which nobody would find.
        let longest = backend.secrets().map(str::len).max().unwrap_or(0);
        text.truncate(text.len() - longest.min(text.len()));
    }
    let said = if encoded { Reported::default() } else { Reported::read(&text) };
    refused_by(backend, status, said, retry_after)
}

/// Whether these are the headers of an event stream that can be read as it comes.
fn is_plain_events(headers: &HeaderMap) -> bool {
    let coding = headers.get(header::CONTENT_ENCODING).map_or(&b"identity"[..], HeaderValue::as_bytes);
    headers::is_event_stream(headers) && coding.eq_ignore_ascii_case(b"identity")
}

/// What a backend failed to do, as the verdict found it.
pub(super) fn failed(how: Failed, reply: &Reply) -> Missed {
    match how {
        Failed::Empty => missed(Code::OutputEmpty, "extract", "empty", true, "the backend returned nothing".to_owned()),
        Failed::Reported => missed(
            Code::UpstreamError,
            "extract",
            "finish_error",
            true,
            "the backend failed while it answered".to_owned(),
        ),
        Failed::Unfinished => {
            let finish = reply.choices.iter().find_map(|choice| choice.finish.as_ref());
            let message = match finish {
                Some(word) => {
                    format!("the backend's finish reason `{}` is not known", crate::json::fault::shown(word.as_str()))
                }
                None => "the backend gave no finish reason, so nothing tells that the answer is whole".to_owned(),
            };
            protocol(&message, "unfinished")
        }
    }
}

fn missed(code: Code, stage: &'static str, reason: &'static str, transient: bool, message: String) -> Missed {
    Missed { fault: Box::new(Fault::new(code, Outcome::Failed, stage, message)), reason, transient, cause: None }
}

pub(super) fn protocol(message: &str, reason: &'static str) -> Missed {
    missed(Code::UpstreamProtocol, "send", reason, false, message.to_owned())
}

pub(super) fn overloaded() -> Missed {
    missed(
        Code::Overloaded,
        "admit",
        "held",
        false,
        "the gateway holds as many bytes as it may; try again later".to_owned(),
    )
}

pub(super) fn out_of_time() -> Missed {
    missed(Code::UpstreamTimeout, "send", "deadline", false, "no backend answered within the deadline".to_owned())
}

pub(super) fn internal(error: &dyn std::error::Error) -> Missed {
    let message = "the gateway failed; the request id finds it in the log".to_owned();
    let failed = missed(Code::InternalError, "answer", "internal", false, message);
    Missed { cause: Some(error.to_string()), ..failed }
}

pub(super) fn unsent(error: UpstreamError) -> Missed {
    missed_by(&error)
}

/// Enters in the record that an answer broke off which had begun to go out.
pub fn broke_off(error: &UpstreamError, record: &mut Record) {
    ended_badly(&missed_by(error), record);
}

/// Enters in the record, and in the log, a failure that no other target can make good: bytes are out.
pub(super) fn ended_badly(missed: &Missed, record: &mut Record) {
    missed.log(record);
    record.outcome = missed.fault.outcome;
    record.reason = Some(missed.reason);
    record.code = Some(missed.fault.own);
    record.failures.extend(record.backend.clone().map(|backend| (backend, missed.reason)));
}

fn missed_by(error: &UpstreamError) -> Missed {
    let code = match error {
        UpstreamError::Connect { .. } => Code::UpstreamUnreachable,
        UpstreamError::Stall { .. } => Code::UpstreamTimeout,
        UpstreamError::Broken { .. } | UpstreamError::Coding { .. } => Code::UpstreamProtocol,
        UpstreamError::TooLarge { .. } => Code::UpstreamTooLarge,
        UpstreamError::Upload(UploadError::TooLarge(_)) => Code::BodyTooLarge,
        UpstreamError::Upload(UploadError::TooSlow(_)) => Code::RequestTimeout,
        UpstreamError::Upload(UploadError::Broken | UploadError::Gone) => Code::InvalidHttp,
    };
    let (reason, transient) = (error.reason(), error.is_transient());
    let mut causes = Vec::new();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        causes.push(inner.to_string());
        source = inner.source();
    }
    let mut failed = missed(code, "send", reason, transient, error.to_string());
    if let UpstreamError::Upload(upload) = error {
        failed.fault.outcome = if *upload == UploadError::Gone { Outcome::Cancelled } else { Outcome::Denied };
        failed.fault.stage = "listen";
    }
    Missed { cause: Some(causes.join(": ")), ..failed }
}

/// An answer in a 200 that cannot be read, or that carries an error.
pub(super) fn unread(backend: &Backend, error: ReplyError) -> Missed {
    match error {
        ReplyError::Reported(reported) => {
            let status = reported.status().unwrap_or(StatusCode::BAD_GATEWAY);
            let mut missed = refused_by(backend, status, reported, None);
            missed.transient = true;
            missed
        }
        ReplyError::NoChoices => missed(Code::OutputEmpty, "extract", "no_choices", true, error.to_string()),
        ReplyError::Json(_)
        | ReplyError::TooMany
        | ReplyError::TwoFinishes
        | ReplyError::ToolIndexConflict(_)
        | ReplyError::Unfinished => protocol(&error.to_string(), "protocol"),
    }
}

/// An error that a backend reported under this status.
fn refused_by(backend: &Backend, status: StatusCode, said: Reported, retry_after: Option<HeaderValue>) -> Missed {
    let operators = !matches!(backend.credentials, Credentials::Caller);
    let credentials = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::PAYMENT_REQUIRED | StatusCode::FORBIDDEN);
    if operators && credentials {
        let message =
            format!("the backend `{}` refused the operator's credentials ({})", backend.name, status.as_u16());
        return missed(Code::UpstreamAuth, "send", "auth", false, message);
    }
    let transient =
        status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::REQUEST_TIMEOUT || status.is_server_error();
    let retry = match (status, retry_after) {
        (StatusCode::TOO_MANY_REQUESTS, Some(wait)) => Retry::After(wait),
        (StatusCode::TOO_MANY_REQUESTS, None) => Retry::ByStatus,
        _ if transient => Retry::Never,
        _ => Retry::ByStatus,
    };
    let said = said.passed_on(|text| backend.blotted(text));
    let reason = match status.as_u16() {
        429 => "rate_limited",
        408 => "request_timeout",
        500.. => "server_error",
        _ => "client_error",
    };
    // A redirect or an informational status is no answer that a caller could use.
    let status = if status.is_client_error() || status.is_server_error() { status } else { StatusCode::BAD_GATEWAY };
    Missed { fault: Box::new(Fault::reported(status, said, retry)), reason, transient, cause: None }
}
