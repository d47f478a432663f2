//! A recorded answer, judged as on the wire: the same contract, the same extraction, the same gates, and nothing sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use bytes::Bytes;
use serde_json::json;

use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::request::RequestError;
use crate::api::reply::Choice;
use crate::api::reply::Finish;
use crate::api::reply::Reply;
use crate::api::reply::ToolCall;
use crate::contract::ContentContract;
use crate::contract::Contract;
use crate::contract::Scope;
use crate::contract::Subject;
use crate::contract::ground::LazyGround;
use crate::contract::scene::Asker;
use crate::contract::scene::Call;
use crate::contract::schema::CompiledSchema;
use crate::contract::schema::SchemaError;
use crate::dialect::table::BackendKind;
use crate::dialect::table::Capabilities;
use crate::dialect::table::ReasoningTag;
use crate::extraction::Extracted;
use crate::json::fault::shown;
use crate::policy::Asked;
use crate::policy::Policy;
use crate::settings::SchemaLimits;
use crate::stage::bind;
use crate::stage::bind::Binding;
use crate::stage::bind::Bound;
use crate::stage::bind::NotBound;
use crate::stage::extract;
use crate::stage::extract::Extraction;
use crate::stage::judge;
use crate::stage::judge::Judgement;
use crate::stage::judge::Known;
use crate::stage::judge::Verdict;
use crate::stage::plan;
use crate::stage::plan::Schemas;
use crate::stage::respond;
use crate::stage::respond::Decision;
use crate::stage::respond::Respond;

/// Compiled schemas of requests that are kept.
const COMPILED_MAX: usize = 64;

/// An answer as it was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The chat request that it was given to, where it was kept: its messages are the source, its response format and its
    /// tools are part of the contract.
    pub request: Option<ChatRequest>,
    /// The source, page by page, in the place of what the request's messages say.
    pub source: Option<Vec<Arc<str>>>,
    /// The model's raw text; the arguments of the call where a policy judges a tool that the request offers.
    pub output: String,
    /// Why the model stopped.
    pub finish: Finish,
    /// What is known of the call. Who asked, and how long the prompt was, is read from the request and the source.
    pub call: Call,
}

impl Recorded {
    /// An answer of which nothing is known but its text.
    pub fn text(output: impl Into<String>) -> Self {
        Self { request: None, source: None, output: output.into(), finish: Finish::Stop, call: Call::default() }
    }
}

/// Why a recorded answer cannot be judged. All of these are faults of the record.
#[derive(Debug, thiserror::Error)]
pub enum NotJudged {
    /// The policy does not take such a request.
    #[error("such a request would be refused")]
    Refused(#[from] NotBound),
    /// The request's schema, or that of a tool, cannot be used.
    #[error("the schema of the request cannot be used")]
    Schema(#[from] SchemaError),
    /// Neither policy nor request nor schema says what the answer must be.
    #[error("the request has no response format, forced tool or strict tool that is a contract")]
    NoContract,
    /// The request offers several tools that a contract binds, and the record does not say which was called.
    #[error("the request binds the tool `{0}`, and an answer that is recorded as text cannot tell which tool it calls")]
    Tools(String),
    /// The gateway's own request could not be read.
    #[error(transparent)]
    Own(#[from] RequestError),
}

/// What judges recorded answers. It is prepared once; judging takes it by reference, on as many threads as there are.
#[derive(Debug)]
pub struct Judge {
    policy: Option<Arc<Policy>>,
    /// The contract of answers that were recorded without their request; none where only a request brings one.
    prepared: Option<Contract>,
    /// The tool whose arguments such answers are; none where they are content.
    tool: Option<String>,
    /// The binding of the policy to such answers.
    binding: Binding,
    limits: SchemaLimits,
    reasoning: Vec<ReasoningTag>,
    compiled: Mutex<HashMap<Bytes, Arc<CompiledSchema>>>,
}

impl Judge {
    fn new(policy: Option<Arc<Policy>>, prepared: Option<Contract>, limits: SchemaLimits) -> Self {
        let reasoning = Capabilities::of(BackendKind::OpenaiCompatible).reasoning_tags;
        let tool = policy.as_ref().and_then(|policy| only_tool(policy)).map(str::to_owned);
        let binding = bound(policy.as_ref(), vec![subject(tool.as_deref())]);
        Self { tool, policy, prepared, binding, limits, reasoning, compiled: Mutex::default() }
    }

    /// Judges by one policy, whatever it matches and whether it enforces or only watches.
    ///
    /// # Errors
    /// None that a policy which was loaded can cause.
    pub fn by_policy(policy: Arc<Policy>, limits: SchemaLimits) -> Result<Self, NotJudged> {
        let tool = only_tool(&policy);
        let request = ChatRequest::read(silent(tool))?;
        let binding = bound(Some(&policy), vec![subject(tool)]);
        let prepared = plan::contract(&request, Schemas::default(), &binding.enforced)?;
        Ok(Self::new(Some(policy), Some(prepared), limits))
    }

    /// Judges by one schema.
    pub fn by_schema(schema: Arc<CompiledSchema>) -> Self {
        let content = Some(ContentContract::schema(schema));
        Self::new(None, Some(Contract { content, ..Contract::default() }), SchemaLimits::default())
    }

    /// Judges by what each request itself asks for.
    pub fn by_request(limits: SchemaLimits) -> Self {
        Self::new(None, None, limits)
    }

    /// The policy that it judges by.
    pub fn policy(&self) -> Option<&Arc<Policy>> {
        self.policy.as_ref()
    }

    /// Judges one answer.
    ///
    /// # Errors
    /// Where the record is not one that can be judged.
    pub fn judge(&self, recorded: Recorded) -> Result<Heard, NotJudged> {
        let Recorded { request, source, output, finish, mut call } = recorded;
        call.prompt_bytes = call.prompt_bytes.or_else(|| prompt_bytes(request.as_ref(), source.as_deref()));
        let (contract, binding, tool) = match &request {
            Some(request) => {
                call.request =
                    Asker { model: Some(request.model.clone()), user: request.user.clone(), ..Asker::default() };
                self.asked(request, source)?
            }
            None => (self.unasked(source)?, None, self.tool.clone()),
        };
        let mut choice = Choice { finish: Some(finish), ..Choice::default() };
        match tool {
            Some(name) => choice.tool_calls = vec![ToolCall { id: String::new(), name, arguments: output }],
            None => choice.content = Some(output),
        }
        let reply = Reply { choices: vec![choice], usage: call.usage };
        let known = Known { call, ..Known::nothing() };
        let judgement = judge::judge(&contract, &reply, &self.reasoning, &known);
        Ok(Heard { contract, binding, reply, judgement })
    }

    /// The contract of an answer that was recorded without its request.
    fn unasked(&self, source: Option<Vec<Arc<str>>>) -> Result<Contract, NotJudged> {
        let mut contract = self.prepared.clone().ok_or(NotJudged::NoContract)?;
        for scope in &mut contract.scopes {
            *scope = grounded(scope, source.clone().unwrap_or_default(), None);
        }
        Ok(contract)
    }

    /// The contract of an answer to this request, how the policy is bound to it, and the tool that the answer calls.
    fn asked(
        &self,
        request: &ChatRequest,
        source: Option<Vec<Arc<str>>>,
    ) -> Result<(Contract, Option<Binding>, Option<String>), NotJudged> {
        let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
        let asked = Asked { model: &request.model, schema_name: request.schema_name.as_deref(), tools: &tools };
        let subjects = self.policy.as_ref().map_or_else(|| vec![Subject::Content], |policy| policy.named(asked));
        let binding = bind::permitted(bound(self.policy.as_ref(), subjects), request)?;
        let schemas = self.schemas(request, &binding)?;
        let mut contract = plan::contract(request, schemas, &binding.enforced)?;
        if contract.is_empty() && contract.scopes.is_empty() {
            return Err(NotJudged::NoContract);
        }
        if let Some(source) = source {
            for scope in &mut contract.scopes {
                let messages = scope.ground.messages().to_vec();
                *scope = grounded(scope, source.clone(), Some(messages));
            }
        }
        let tool = called(&contract)?;
        Ok((contract, Some(binding), tool))
    }
}

impl Judge {
    /// The schemas of a request, as on the wire: that of a tool which nothing binds need not be one.
    fn schemas(&self, request: &ChatRequest, binding: &Binding) -> Result<Schemas, SchemaError> {
        let forced = plan::forced(request);
        let content = request.schema().map(|text| self.compiled(text)).transpose()?;
        let mut tools = Vec::with_capacity(request.tools.len());
        for (index, tool) in request.tools.iter().enumerate() {
            let compiled = tool.parameters.clone().map(|at| self.compiled(request.body.slice(at))).transpose();
            let judges = |bound: &Bound| bound.subject == Subject::Tool(tool.name.as_str().into());
            let is_bound = tool.strict || forced == Some(index) || binding.enforced.iter().any(judges);
            tools.push(if is_bound { compiled? } else { compiled.unwrap_or_default() });
        }
        Ok(Schemas { content, tools })
    }

    /// A schema, compiled once however many records bring it.
    fn compiled(&self, text: Bytes) -> Result<Arc<CompiledSchema>, SchemaError> {
        let mut kept = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = kept.get(&text) {
            return Ok(Arc::clone(schema));
        }
        let own = Bytes::copy_from_slice(&text); // the text is a part of a whole request
        let schema = Arc::new(CompiledSchema::compile(own.clone(), self.limits)?);
        if kept.len() >= COMPILED_MAX {
            kept.clear();
        }
        kept.insert(own, Arc::clone(&schema));
        Ok(schema)
    }
}

/// The tool that a policy judges, where it judges no content.
fn only_tool(policy: &Policy) -> Option<&str> {
    let judges_content = policy.matches.is_empty() || policy.matches.iter().any(|entry| entry.tools.is_empty());
    let first = policy.matches.iter().find_map(|entry| entry.tools.first());
    first.filter(|_| !judges_content).map(String::as_str)
}

fn subject(tool: Option<&str>) -> Subject {
    tool.map_or(Subject::Content, |name| Subject::Tool(name.into()))
}

/// The request of answers that were recorded without theirs: it says nothing, but offers the tool that they call.
fn silent(tool: Option<&str>) -> Bytes {
    let mut request = json!({"model": "recorded", "messages": []});
    if let (Some(name), Some(members)) = (tool, request.as_object_mut()) {
        members.insert("tools".to_owned(), json!([{"type": "function", "function": {"name": name}}]));
    }
    request.to_string().into()
}

/// Bytes of text that the model was given, as far as the record tells.
fn prompt_bytes(request: Option<&ChatRequest>, source: Option<&[Arc<str>]>) -> Option<u64> {
    let bytes = match (request, source) {
        (Some(request), _) => request.messages.list.iter().map(|message| request.said(message).0.len()).sum(),
        (None, Some(pages)) => pages.iter().map(|page| page.len()).sum::<usize>(),
        (None, None) => return None,
    };
    u64::try_from(bytes).ok()
}

/// The binding of one policy, as one that enforces.
fn bound(policy: Option<&Arc<Policy>>, subjects: Vec<Subject>) -> Binding {
    let bind = |policy: &Arc<Policy>| {
        subjects.into_iter().map(|subject| Bound { policy: Arc::clone(policy), subject }).collect()
    };
    Binding { enforced: policy.map(bind).unwrap_or_default(), watched: Vec::new() }
}

/// The scope with these pages as its source. Facts are found in the messages, or in the pages where there are none.
fn grounded(scope: &Scope, pages: Vec<Arc<str>>, messages: Option<Vec<Arc<str>>>) -> Scope {
    let messages = messages.unwrap_or_else(|| pages.clone());
    let ground = Arc::new(LazyGround::new(Arc::clone(&scope.contract), pages, messages));
    Scope { ground, ..scope.clone() }
}

/// The tool whose arguments the recorded text is: the one that is forced or bound, where the content is bound by nothing.
fn called(contract: &Contract) -> Result<Option<String>, NotJudged> {
    if contract.content.is_some() {
        return Ok(None);
    }
    let mut bound = contract.tools.iter().filter(|tool| tool.bound);
    let forced = contract.forced.and_then(|index| contract.tools.get(index));
    match (forced, bound.next(), bound.next()) {
        (Some(tool), _, _) | (None, Some(tool), None) => Ok(Some(tool.name.clone())),
        (None, Some(tool), Some(_)) => Err(NotJudged::Tools(shown(&tool.name))),
        (None, None, _) => Ok(None),
    }
}

/// A recorded answer once it is judged.
#[derive(Debug)]
pub struct Heard {
    contract: Contract,
    binding: Option<Binding>,
    reply: Reply,
    /// The verdict, and what was seen on the way to it.
    pub judgement: Judgement,
}

impl Heard {
    /// The text that was judged.
    pub fn text(&self) -> &str {
        let Some(choice) = self.reply.choices.first() else { return "" };
        let call = choice.tool_calls.first().map(|call| call.arguments.as_str());
        call.or(choice.content.as_deref()).unwrap_or_default()
    }

    /// The pages of the source.
    pub fn pages(&self) -> &[Arc<str>] {
        self.contract.scopes.first().map(|scope| scope.ground.pages()).unwrap_or_default()
    }

    /// The policies that judged it.
    pub fn policies(&self) -> Vec<Arc<str>> {
        self.contract.scopes.iter().map(|scope| Arc::clone(&scope.contract.policy)).collect()
    }

    /// What was cut out of the text.
    pub fn found(&self, judge: &Judge) -> Option<Extracted> {
        match extract::extract(self.reply.choices.first()?, &self.contract, &judge.reasoning) {
            Extraction::Json(found) => Some(found),
            _ => None,
        }
    }

    /// What the caller gets in the place of an answer that is not accepted; none where gates have not decided.
    pub fn respond(&self, judge: &Judge) -> Option<Respond> {
        let decision = match &self.judgement.verdict {
            Verdict::Clarify(asked) => Decision::asked(asked),
            Verdict::Reject(rejection) => Decision::rejected(rejection),
            Verdict::Accept(_) | Verdict::Refuse(_) | Verdict::Fail(_) => return None,
        };
        Some(respond::respond(&decision, self.binding.as_ref().unwrap_or(&judge.binding), &self.contract))
    }
}
