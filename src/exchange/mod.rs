//! One request on its way to its answer. This is the front page: everything that happens to a request
//! happens here, in this order.

pub mod attempt;
mod collect;
pub mod deadline;
pub mod open;
pub mod schemas;
pub mod sifted;

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
use crate::contract::Contract;
use crate::contract::bounds::BoundsError;
use crate::contract::schema::SchemaError;
use crate::exchange::attempt::Attempts;
use crate::exchange::schemas::SchemaCache;
use crate::exchange::sifted::Sifted;
use crate::json::JsonFaultKind;
use crate::json::fault::shown;
use crate::record::Outcome;
use crate::record::Record;
use crate::settings::Settings;
use crate::stage::admit::Gauge;
use crate::stage::admit::Share;
use crate::stage::answer::Answer;
use crate::stage::answer::Fault;
use crate::stage::authenticate::Caller;
use crate::stage::plan;
use crate::stage::plan::Delivery;
use crate::stage::plan::ModelNotFound;
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
    pub fn new(settings: Settings, catalog: Catalog, upstream: U) -> Self {
        let limits = settings.listen.limits;
        Self {
            schemas: SchemaCache::new(limits.schema),
            in_flight: Gauge::new(limits.in_flight),
            held: Gauge::new(limits.held),
            settings,
            catalog,
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

/// Reads a chat request, compiles what it demands and lays the plan. Everything that is the caller's to
/// mend is found here, before any upstream call is paid for.
pub async fn prepare<U: Upstream>(
    gateway: &Gateway<U>,
    incoming: Incoming,
    record: &mut Record,
) -> Result<Box<Prepared>, Box<Fault>> {
    let request = ChatRequest::read(incoming.body.clone()).map_err(denied)?;
    record.stream = request.stream;
    own(request.own.as_ref().map(|(_, own)| own), &incoming.headers, record)?;
    let alias = plan::alias(&gateway.catalog, &request.model).map_err(|error| unknown_model(&error))?;
    record.alias = Some(alias.name.clone());
    let contract = contract(gateway, &request).await?;
    if let Some(crate::contract::ContentContract::Schema(schema)) = &contract.content {
        record.schema = Some(schema.digest());
    }
    let plan = plan::plan(alias, contract, &request);
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
    Box::new(Fault::new(error.code, Outcome::Denied, "plan", error.message).about(error.param))
}

/// What the caller asked of the gateway itself. This version has no policies, so none can be named.
fn own(own: Option<&Own>, headers: &HeaderMap, record: &mut Record) -> Result<(), Box<Fault>> {
    let deny = |code: Code, param: &str, message: String| {
        Err(Box::new(Fault::new(code, Outcome::Denied, "plan", message).about(Some(param))))
    };
    for names in headers.get_all(POLICY) {
        let names = String::from_utf8_lossy(names.as_bytes());
        if let Some(name) = names.split(',').map(str::trim).find(|name| !name.is_empty()) {
            return deny(Code::PolicyNotFound, "x-portcullis-policy", format!("no policy is called `{}`", shown(name)));
        }
    }
    let Some(own) = own else { return Ok(()) };
    if let Some(name) = own.policies.first() {
        return deny(Code::PolicyNotFound, "portcullis.policy", format!("no policy is called `{}`", shown(name)));
    }
    if own.has_source {
        let message = "`portcullis.source` is allowed only where a policy says so, and none applies".to_owned();
        return deny(Code::SourceNotAllowed, "portcullis.source", message);
    }
    record.tags.clone_from(&own.tags);
    Ok(())
}

fn unknown_model(error: &ModelNotFound) -> Box<Fault> {
    Box::new(Fault::new(Code::ModelNotFound, Outcome::Denied, "plan", error.to_string()).about(Some("model")))
}

/// The contract that the request brings, its schemas compiled.
async fn contract<U: Upstream>(gateway: &Gateway<U>, request: &ChatRequest) -> Result<Contract, Box<Fault>> {
    let mut schemas = Schemas::default();
    if let Some(text) = request.schema() {
        let compiled = Box::pin(gateway.schemas.compiled(text)).await;
        schemas.content =
            Some(compiled.map_err(|error| schema_fault(&error, "response_format", "the schema of `response_format`"))?);
    }
    let forced = plan::forced(request);
    let judged = schemas.content.is_some()
        || request.response_format.is_some()
        || forced.is_some()
        || request.tools.iter().any(|tool| tool.strict);
    for (index, tool) in request.tools.iter().enumerate().filter(|_| judged) {
        let Some(at) = &tool.parameters else {
            schemas.tools.push(None);
            continue;
        };
        match Box::pin(gateway.schemas.compiled(request.body.slice(at.clone()))).await {
            Ok(schema) => schemas.tools.push(Some(schema)),
            // A tool that nothing binds is only counted, so its parameters are the backend's business.
            Err(_) if !tool.strict && forced != Some(index) => schemas.tools.push(None),
            Err(error) => {
                let whose = format!("the parameters of the tool `{}`", shown(&tool.name));
                return Err(schema_fault(&error, "tools", &whose));
            }
        }
    }
    Ok(plan::contract(request, schemas))
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
    Box::new(Fault::new(code, Outcome::Denied, "plan", format!("{whose}: {error}")).about(Some(param)))
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
