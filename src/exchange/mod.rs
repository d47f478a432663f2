//! One request on its way to its answer. This is the front page: everything that happens to a request
//! happens here, in this order.

mod again;
pub mod attempt;
mod collect;
pub mod deadline;
mod known;
pub mod missed;
mod noted;
pub mod open;
pub mod recorded; // the same without an exchange, for answers on file
pub mod schemas;
pub mod sifted;
pub mod watch;

use std::borrow::Cow;
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderName;
use http::StatusCode;

use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::request::Own;
use crate::api::ingress::request::RequestError;
use crate::catalog::Catalog;
use crate::contract::Asked;
use crate::contract::Contract;
use crate::contract::Subject;
use crate::contract::bounds::BoundsError;
use crate::contract::schema::SchemaError;
use crate::exchange::attempt::Attempts;
use crate::exchange::schemas::SchemaCache;
use crate::exchange::sifted::Sifted;
use crate::exchange::watch::Watch;
use crate::json::JsonFaultKind;
use crate::json::fault::shown;
use crate::policy::Policies;
use crate::record::Outcome;
use crate::record::Record;
use crate::record::Stage;
use crate::settings::Settings;
use crate::stage::admit::Gauge;
use crate::stage::admit::Share;
use crate::stage::answer::Answer;
use crate::stage::answer::Fault;
use crate::stage::authenticate::Caller;
use crate::stage::bind;
use crate::stage::bind::Binding;
use crate::stage::bind::Bound;
use crate::stage::bind::NotBound;
use crate::stage::plan;
use crate::stage::plan::Delivery;
use crate::stage::plan::ModelNotFound;
use crate::stage::plan::NoneCapable;
use crate::stage::plan::Plan;
use crate::stage::plan::Schemas;
use crate::stage::send::Upstream;
use crate::stage::send::UpstreamBody;
use crate::wire::fault::Code;

const POLICY: HeaderName = HeaderName::from_static("x-portcullis-policy");
/// How long a stock SDK waits: in Python, and in Node.
const READ_TIMEOUT: HeaderName = HeaderName::from_static("x-stainless-read-timeout");
const TIMEOUT: HeaderName = HeaderName::from_static("x-stainless-timeout");

/// Everything that exchanges share. It changes only as a whole.
pub struct Gateway<U> {
    /// How the gateway is run.
    pub settings: Settings,
    /// Backends, aliases and targets.
    pub catalog: Catalog,
    /// The policies in force.
    pub policies: Policies,
    /// What can be called.
    pub upstream: U,
    /// Compiled schemas.
    pub schemas: SchemaCache,
    /// Requests under way.
    pub in_flight: Arc<Gauge>,
    /// Bytes of bodies held.
    pub held: Arc<Gauge>,
}

impl<U: Upstream> Gateway<U> {
    /// A gateway at rest.
    pub fn new(settings: Settings, catalog: Catalog, policies: Policies, upstream: U) -> Self {
        let limits = settings.listen.limits;
        Self {
            schemas: SchemaCache::new(limits.schema),
            in_flight: Gauge::new(limits.in_flight),
            held: Gauge::new(limits.held),
            settings,
            catalog,
            policies,
            upstream,
        }
    }
}

/// A request as it came in, its body complete.
#[derive(Debug)]
pub struct Incoming {
    /// Who is calling.
    pub caller: Caller,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The body's share of the bytes that are held.
    pub held: Share,
    /// When the head had arrived.
    pub arrived: Instant,
    /// The same by the calendar.
    pub time: jiff::Timestamp,
}

/// How an exchange came out.
pub enum Out {
    /// An answer that was held back until now, or an error.
    Held(Answer),
    /// An error, kept apart from its bytes: a stream whose status has gone out ends with it as an event.
    Fault(Box<Fault>),
    /// A backend's answer that no contract concerns, as it comes.
    Relay {
        /// Its status.
        status: StatusCode,
        /// Its headers.
        headers: HeaderMap,
        /// Its body.
        body: UpstreamBody,
        /// The copy that policies watch, where any do.
        watch: Option<Box<Watch>>,
    },
    /// A stream whose text goes on as it comes, and whose tool calls are held until they are judged.
    Sift {
        /// Its headers.
        headers: HeaderMap,
        /// The stream.
        stream: Box<Sifted>,
    },
}

/// A chat request on its way: what it asks, and what is to be done with it.
///
/// Made by [`prepare`], which waits on no network; carried by [`carry`].
pub struct Prepared {
    /// The request.
    pub request: ChatRequest,
    /// The plan.
    pub plan: Plan,
    incoming: Incoming,
    deadline: Instant,
    delivery: Delivery,
}

impl Prepared {
    /// Whether a contract concerns the answer.
    pub fn is_judged(&self) -> bool {
        self.delivery != Delivery::Relay
    }

    /// Whether the whole answer is held for judgement.
    pub fn is_held(&self) -> bool {
        self.delivery == Delivery::Hold
    }
}

/// Reads a chat request, finds the policies that bind it, compiles what is demanded and lays the plan. Everything that is
/// the caller's to mend is found here, before any upstream call is paid for.
pub async fn prepare<U: Upstream>(
    gateway: &Gateway<U>,
    incoming: Incoming,
    record: &mut Record,
) -> Result<Box<Prepared>, Box<Fault>> {
    let request = ChatRequest::read(incoming.body.clone()).map_err(denied)?;
    record.stream = request.stream;
    if let Some((_, own)) = &request.own {
        record.tags.clone_from(&own.tags);
    }
    let alias = plan::alias(&gateway.catalog, &request.model).map_err(|error| unknown_model(&error))?;
    record.alias = Some(alias.name.clone());
    let binding = bind::bind(&gateway.policies, &request, &named(&incoming.headers)).map_err(unbound)?;
    record.policies = binding.refs();
    let (contract, watch) = contracts(gateway, &request, &binding).await?;
    let watching = watch.as_ref().map_or(0, |watch| watch.scopes.len());
    record.unwatched = watching < binding.watched.len();
    if let Some(Asked::Schema(schema)) = contract.content.as_ref().map(|content| &content.asked) {
        record.schema = Some(schema.digest());
    }
    let plan = plan::plan(alias, contract, watch, binding, &request).map_err(|error| incapable(&error))?;
    let deadline = incoming.arrived + patience(&plan, &request, &incoming.headers);
    let recorded_first = gateway.settings.audit.as_ref().is_some_and(|audit| audit.required);
    let delivery = plan.delivery(request.stream, recorded_first);
    Ok(Box::new(Prepared { request, plan, incoming, deadline, delivery }))
}

/// Sends a prepared request to its targets until one has an answer, judges it where there is a contract,
/// and gives what the caller gets.
pub async fn carry<U: Upstream>(gateway: &Gateway<U>, prepared: &Prepared, record: &mut Record) -> Out {
    let Prepared { request, plan, incoming, deadline, delivery } = prepared;
    let attempts = Attempts { gateway, request, plan, incoming, deadline: *deadline, delivery: *delivery };
    attempts.run(record).await
}

fn denied(error: RequestError) -> Box<Fault> {
    Box::new(Fault::new(error.code, Outcome::Denied, Stage::Plan, error.message).about(error.param))
}

/// The policies that the caller asks for in a header.
fn named(headers: &HeaderMap) -> Vec<String> {
    let all = headers.get_all(POLICY).iter().map(|names| String::from_utf8_lossy(names.as_bytes()).into_owned());
    let names = all.flat_map(|names| names.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>());
    names.filter(|name| !name.is_empty()).collect()
}

/// What a caller asks of the gateway itself on a path that no contract guards: tags alone. A policy that it names would not be
/// kept there, so naming one is refused.
fn unguarded<U>(
    gateway: &Gateway<U>,
    own: Option<&Own>,
    headers: &HeaderMap,
    record: &mut Record,
) -> Result<(), Box<Fault>> {
    let in_body = own.map(|own| own.policies.clone()).unwrap_or_default();
    for (names, param) in [(named(headers), "x-portcullis-policy"), (in_body, "portcullis.policy")] {
        if let Some(name) = names.first() {
            let message = match gateway.policies.get(name) {
                Some(_) => format!("the policy `{}` judges chat completions, and this path is not judged", shown(name)),
                None => format!("no policy is called `{}`", shown(name)),
            };
            return Err(unbound(NotBound { code: Code::PolicyNotFound, param, message }));
        }
    }
    let Some(own) = own else { return Ok(()) };
    if own.source.is_some() {
        let message = "`portcullis.source` is allowed only where a policy says so, and none applies here".to_owned();
        return Err(unbound(NotBound { code: Code::SourceNotAllowed, param: "portcullis.source", message }));
    }
    record.tags.clone_from(&own.tags);
    Ok(())
}

fn unbound(error: NotBound) -> Box<Fault> {
    Box::new(Fault::new(error.code, Outcome::Denied, Stage::Plan, error.message).about(Some(error.param)))
}

fn incapable(error: &NoneCapable) -> Box<Fault> {
    Box::new(Fault::new(Code::NoCapableBackend, Outcome::Denied, Stage::Plan, error.to_string()))
}

fn unknown_model(error: &ModelNotFound) -> Box<Fault> {
    Box::new(Fault::new(Code::ModelNotFound, Outcome::Denied, Stage::Plan, error.to_string()).about(Some("model")))
}

/// What the answer must satisfy, its schemas compiled; and what policies that only watch would have demanded.
async fn contracts<U: Upstream>(
    gateway: &Gateway<U>,
    request: &ChatRequest,
    binding: &Binding,
) -> Result<(Contract, Option<Contract>), Box<Fault>> {
    let mut schemas = Schemas::default();
    if let Some(text) = request.schema() {
        let compiled = Box::pin(gateway.schemas.compiled(text)).await;
        schemas.content =
            Some(compiled.map_err(|error| schema_fault(&error, "response_format", "the schema of `response_format`"))?);
    }
    let forced = plan::forced(request);
    let bound = |name: &str| {
        let all = binding.enforced.iter().chain(&binding.watched);
        all.into_iter().any(|bound| matches!(&bound.subject, Subject::Tool(own) if **own == *name))
    };
    let judged = schemas.content.is_some()
        || request.response_format.is_some()
        || forced.is_some()
        || !binding.enforced.is_empty()
        || !binding.watched.is_empty()
        || request.tools.iter().any(|tool| tool.strict);
    for (index, tool) in request.tools.iter().enumerate().filter(|_| judged) {
        let Some(at) = &tool.parameters else {
            schemas.tools.push(None);
            continue;
        };
        match Box::pin(gateway.schemas.compiled(request.body.slice(at.clone()))).await {
            Ok(schema) => schemas.tools.push(Some(schema)),
            // A tool that nothing binds is only counted, so its parameters are the backend's business.
            Err(_) if !tool.strict && forced != Some(index) && !bound(&tool.name) => schemas.tools.push(None),
            Err(error) => {
                let whose = format!("the parameters of the tool `{}`", shown(&tool.name));
                return Err(schema_fault(&error, "tools", &whose));
            }
        }
    }
    // What only watches refuses nothing: a policy that cannot judge such a request is left out, and that is recorded.
    let mut watched = Cow::Borrowed(binding.watched.as_slice());
    let mut watch = plan::contract(request, schemas.clone(), &watched);
    if watch.is_err() {
        let judges = |bound: &Bound| plan::contract(request, schemas.clone(), slice::from_ref(bound)).is_ok();
        watched.to_mut().retain(judges);
        watch = plan::contract(request, schemas.clone(), &watched);
    }
    let watch = watch.ok().filter(|_| !watched.is_empty());
    let contract = plan::contract(request, schemas, &binding.enforced).map_err(unbound)?;
    Ok((contract, watch))
}

fn schema_fault(error: &SchemaError, param: &str, whose: &str) -> Box<Fault> {
    let code = match error {
        SchemaError::Bytes { .. }
        | SchemaError::Depth { .. }
        | SchemaError::Bounds(BoundsError::Expansion { .. } | BoundsError::Depth { .. }) => Code::SchemaTooLarge,
        SchemaError::Bounds(BoundsError::UnresolvableRef { .. }) => Code::SchemaUnresolvableRef,
        SchemaError::Json(fault) if matches!(fault.kind, JsonFaultKind::DuplicateKey(_)) => Code::DuplicateKey,
        SchemaError::Json(_) | SchemaError::Bounds(_) | SchemaError::Invalid { .. } => Code::SchemaInvalid,
        SchemaError::Unfinished => Code::InternalError,
    };
    Box::new(Fault::new(code, Outcome::Denied, Stage::Plan, format!("{whose}: {error}")).about(Some(param)))
}

/// How long all attempts together may take: the first target's total, and for an answer in one piece no
/// longer than the caller itself will wait, less a margin to say so in.
fn patience(plan: &Plan, request: &ChatRequest, headers: &HeaderMap) -> Duration {
    let total = plan.targets.first().map_or(Duration::from_secs(600), |target| target.target.backend.timeouts.total);
    if request.stream {
        return total;
    }
    let seconds = |name: &HeaderName| {
        headers.get(name)?.to_str().ok()?.parse::<f64>().ok().filter(|seconds| (0.1..1e6).contains(seconds))
    };
    let callers = [READ_TIMEOUT, TIMEOUT].iter().filter_map(seconds).reduce(f64::min);
    match callers {
        Some(seconds) => total.min(Duration::from_secs_f64(seconds - (seconds * 0.1).min(1.0))),
        None => total,
    }
}

/// The record of a request that has just arrived.
pub fn record(request_id: String, path: &str) -> Record {
    Record::new(request_id, SystemTime::now(), path.to_owned())
}
