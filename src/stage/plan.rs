//! What is to be done with a request: its contract, the targets in order, and for each of them whether
//! and how the native mode applies. A plan is a value; making one waits on nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::chat::ToolChoice;
use crate::api::ingress::chat::Wants;
use crate::catalog::Alias;
use crate::catalog::Catalog;
use crate::catalog::Target;
use crate::contract::Asked;
use crate::contract::ContentContract;
use crate::contract::Contract;
use crate::contract::OwnedSchema;
use crate::contract::Subject;
use crate::contract::ToolContract;
use crate::contract::schema::CompiledSchema;
use crate::contract::schema::same_constraints;
use crate::dialect::table::Capabilities;
use crate::dialect::table::SchemaMode;
use crate::extraction::Admits;
use crate::json::fault::shown;
use crate::policy::Choices;
use crate::policy::Inject;
use crate::policy::Limit;
use crate::policy::NativeUse;
use crate::policy::OnConflict;
use crate::record::Native;
use crate::stage::bind;
use crate::stage::bind::Binding;
use crate::stage::bind::Bound;
use crate::stage::bind::NotBound;
use crate::wire::fault::Code;

/// What is to be done with a request.
#[derive(Debug)]
pub struct Plan {
    /// The alias that the caller named.
    pub alias: Arc<Alias>,
    /// What the answer must satisfy.
    pub contract: Contract,
    /// What policies that only watch would have demanded.
    pub watch: Option<Contract>,
    /// The policies that bind the request.
    pub binding: Binding,
    /// What those policies make of the request and of a bad answer.
    pub terms: Terms,
    /// Where to send the request, first to last, and how. Never empty.
    pub targets: Vec<TargetPlan>,
}

/// What exists once an exchange: of several policies' settings the stricter ones.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// When the exact schema is written into the prompt.
    pub inject: Inject,
    /// How native modes are used.
    pub native: NativeUse,
    /// How often, and for which gates, the model is asked once more.
    pub retry: Option<RetryTerms>,
    /// Members of the request that are capped or set.
    pub limits: BTreeMap<String, Limit>,
    /// The fields that the model is told to leave out.
    pub assigned: Vec<Arc<str>>,
    /// Whether an answer that is stored could be fetched around the gate, so that it must not be.
    pub unstored: bool,
    /// Whether a gate looks at the tokens that the backend reports.
    pub usage: bool,
    /// The response format that the request gets in place of its own: the name of the schema.
    pub format: Option<String>,
}

/// When the model is asked once more.
#[derive(Clone, Debug)]
pub struct RetryTerms {
    /// How often at the most.
    pub attempts: u32,
    /// The gates, each with its policy.
    pub on: Vec<(Arc<str>, Arc<str>)>,
    /// The aliases that are asked in turn.
    pub escalate: Vec<Arc<str>>,
}

impl Terms {
    /// The terms of the policies that bind a request.
    fn of(bound: &[Bound]) -> Self {
        let mut terms = Self { inject: Inject::Never, ..Self::default() };
        for policy in bound.iter().map(|bound| &bound.policy) {
            terms.inject = terms.inject.max(policy.inject);
            terms.native = terms.native.max(policy.native);
            terms.unstored = true;
            terms.usage |= policy.contract.reads_usage();
            if let Some(retry) = &policy.retry {
                let on = retry.on.iter().map(|gate| (Arc::clone(&policy.name), Arc::clone(gate)));
                match &mut terms.retry {
                    Some(all) => {
                        all.attempts = all.attempts.min(retry.attempts);
                        all.on.extend(on);
                        if all.escalate.is_empty() {
                            all.escalate.clone_from(&retry.escalate); // two that differ are in conflict
                        }
                    }
                    None => {
                        let escalate = retry.escalate.clone();
                        terms.retry = Some(RetryTerms { attempts: retry.attempts, on: on.collect(), escalate });
                    }
                }
            }
            for (name, limit) in &policy.limits {
                match terms.limits.get_mut(name) {
                    Some(other) => other.tighten(limit),
                    None => {
                        terms.limits.insert(name.clone(), limit.clone());
                    }
                }
            }
        }
        if bound.is_empty() {
            terms.inject = Inject::Always;
        }
        terms
    }
}

/// How the answer travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// No contract concerns it: it goes on as it comes.
    Relay,
    /// It is held until the verdict.
    Hold,
    /// Its text goes on as it comes, its tool calls once they are judged.
    Sift,
}

impl Plan {
    /// How the answer travels. Where `recorded_first`, nothing may go out before its record is written, so
    /// nothing is sifted.
    pub fn delivery(&self, stream: bool, recorded_first: bool) -> Delivery {
        let text_is_free = self.contract.content.is_none() && self.contract.forced.is_none();
        match self.contract.is_empty() {
            true => Delivery::Relay,
            false if stream && text_is_free && !recorded_first => Delivery::Sift,
            false => Delivery::Hold,
        }
    }
}

/// How one target is to be asked.
#[derive(Clone, Debug)]
pub struct TargetPlan {
    /// The target.
    pub target: Target,
    /// How its native mode is used.
    pub native: Native,
}

/// The alias is not offered here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model `{0}` is not served here; `GET /v1/models` lists what is")]
pub struct ModelNotFound(String);

/// Finds the alias that the request names.
pub fn alias(catalog: &Catalog, model: &str) -> Result<Arc<Alias>, ModelNotFound> {
    catalog.alias(model).cloned().ok_or_else(|| ModelNotFound(shown(model)))
}

/// The schemas of a request, compiled.
#[derive(Clone, Debug, Default)]
pub struct Schemas {
    /// Of the response format.
    pub content: Option<Arc<CompiledSchema>>,
    /// Of each tool's parameters, in the request's order.
    pub tools: Vec<Option<Arc<CompiledSchema>>>,
}

/// The contract of a request: its response format, its forced tool, its strict tools, and what the policies that bind it
/// demand, each in its own scope.
///
/// # Errors
/// Where a policy takes no other schema than its own, and the request has one; where the source cannot be read.
pub fn contract(request: &ChatRequest, schemas: Schemas, bound: &[Bound]) -> Result<Contract, NotBound> {
    let own = match request.response_format.as_ref().map(|format| &format.wants) {
        Some(Wants::JsonObject) => Some(ContentContract::object()),
        Some(Wants::Schema { .. }) => schemas.content.map(ContentContract::schema),
        Some(Wants::Anything) | None => None,
    };
    let content = with_policies(own, bound)?;
    let forced = forced(request);
    let compiled = schemas.tools.into_iter().chain(std::iter::repeat(None));
    let tools = request.tools.iter().zip(compiled).enumerate().map(|(index, (tool, parameters))| {
        let judges = |bound: &&Bound| matches!(&bound.subject, Subject::Tool(name) if **name == *tool.name);
        let also = bound.iter().filter(judges).filter_map(|bound| {
            let schema = Arc::clone(&bound.policy.schema.as_ref()?.complete);
            Some(OwnedSchema { policy: Some(Arc::clone(&bound.policy.name)), schema })
        });
        ToolContract {
            name: tool.name.clone(),
            parameters,
            also: also.collect(),
            bound: tool.strict || forced == Some(index) || bound.iter().any(|bound| judges(&bound)),
        }
    });
    let tools = tools.collect();
    let scopes = bound.iter().map(|bound| bind::scope(bound, request)).collect::<Result<_, _>>()?;
    let extraction = bound.iter().map(|bound| bound.policy.extraction).max().unwrap_or_default();
    let passing = !bound.is_empty() && bound.iter().all(|bound| bound.policy.choices == Choices::Passing);
    Ok(Contract { content, tools, forced, extraction, passing, scopes })
}

/// The contract of the content: the request's own, and what the policies that judge the content add to it.
fn with_policies(own: Option<ContentContract>, bound: &[Bound]) -> Result<Option<ContentContract>, NotBound> {
    let policies = || bound.iter().filter(|bound| bound.subject == Subject::Content).map(|bound| &bound.policy);
    if policies().next().is_none() {
        return Ok(own);
    }
    let mut content = own.unwrap_or_else(ContentContract::object);
    let requested = content.schemas.first().map(|own| Arc::clone(&own.schema));
    let mut kept = requested.is_some();
    for policy in policies() {
        content.wrap_array = content.wrap_array.or_else(|| policy.envelope.clone());
        content.assign = content.assign.or_else(|| policy.assign.clone());
        let Some(own) = &policy.schema else { continue };
        if let Some(requested) = &requested {
            let same = same_constraints(requested, &own.complete) || same_constraints(requested, &own.shown);
            if !same && own.on_conflict == OnConflict::Reject {
                let message = format!(
                    "the policy `{}` takes no schema but its own, and that of `response_format` differs from it",
                    policy.name
                );
                return Err(NotBound { code: Code::SchemaConflict, param: "response_format", message });
            }
            kept &= !same;
        }
        let owned = |schema: &Arc<CompiledSchema>| OwnedSchema {
            policy: Some(Arc::clone(&policy.name)),
            schema: Arc::clone(schema),
        };
        if content.schemas.iter().all(|other| other.policy.is_none()) {
            content.asked = Asked::Schema(Arc::clone(&own.shown));
        }
        content.schemas.push(owned(&own.shown));
        if policy.assign.is_some() {
            content.complete.push(owned(&own.complete));
        }
    }
    if requested.is_some() && (!kept || content.assign.is_some()) {
        let own = content.schemas.remove(0);
        if kept {
            content.complete.push(own); // it is the whole that the caller describes
        }
    }
    content.also = also(&content);
    Ok(Some(content))
}

/// What the model is shown besides the schema that it is asked for, each demand once.
fn also(content: &ContentContract) -> Vec<Arc<CompiledSchema>> {
    let Asked::Schema(asked) = &content.asked else { return Vec::new() };
    let mut also: Vec<Arc<CompiledSchema>> = Vec::new();
    for own in &content.schemas {
        if std::iter::once(asked).chain(&also).all(|other| !same_constraints(other, &own.schema)) {
            also.push(Arc::clone(&own.schema));
        }
    }
    also
}

/// The one tool that the request forces: by its name, or by demanding a call where there is one tool.
pub fn forced(request: &ChatRequest) -> Option<usize> {
    match &request.tool_choice {
        ToolChoice::Named(name) => request.tools.iter().position(|tool| tool.name == *name),
        ToolChoice::Required if request.tools.len() == 1 => Some(0),
        ToolChoice::Required | ToolChoice::Auto => None,
    }
}

/// No target has what a policy demands; why, for each of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no target of `{alias}` has a native structured-output mode for this request, and a policy requires one: {reasons}"
)]
pub struct NoneCapable {
    alias: String,
    reasons: String,
}

/// Lays the plan. Targets stand in the order in which they are listed.
pub fn plan(
    alias: Arc<Alias>,
    contract: Contract,
    watch: Option<Contract>,
    binding: Binding,
    request: &ChatRequest,
) -> Result<Plan, NoneCapable> {
    let mut terms = Terms::of(&binding.enforced);
    // A relayed request goes out as without the policies that only watch.
    terms.usage |= !contract.is_empty() && watch.as_ref().is_some_and(Contract::reads_usage);
    let of_policy = |content: &ContentContract| content.schemas.iter().any(|own| own.policy.is_some());
    if let Some(content) = contract.content.as_ref().filter(|content| of_policy(content)) {
        terms.assigned = content.assign.iter().flat_map(|assign| &assign.fields).map(|f| Arc::clone(&f.name)).collect();
        terms.format = Some(format_name(request, content));
    }
    let targets = targets(&alias, &contract, &terms, request)?;
    Ok(Plan { targets, alias, contract, watch, binding, terms })
}

/// The targets of an alias for this contract, each with how its native mode is used.
pub fn targets(
    alias: &Alias,
    contract: &Contract,
    terms: &Terms,
    request: &ChatRequest,
) -> Result<Vec<TargetPlan>, NoneCapable> {
    let planned = |target: &Target| TargetPlan {
        target: target.clone(),
        native: native(contract, terms, request, &target.backend.capabilities),
    };
    let targets: Vec<TargetPlan> = alias.targets.iter().map(planned).collect();
    if terms.native != NativeUse::Require || contract.content.is_none() {
        return Ok(targets);
    }
    let enforces = |plan: &TargetPlan| matches!(plan.native, Native::JsonSchema | Native::JsonSchemaRelaxed);
    let (capable, others): (Vec<TargetPlan>, Vec<TargetPlan>) = targets.into_iter().partition(enforces);
    if capable.is_empty() {
        let reasons = others.iter().map(|plan| format!("`{}`: {}", plan.target.backend.name, plan.native.as_str()));
        return Err(NoneCapable { alias: shown(&alias.name), reasons: reasons.collect::<Vec<_>>().join(", ") });
    }
    Ok(capable)
}

/// The name under which the schema of a policy goes into the response format: letters, digits, `_` and `-`.
fn format_name(request: &ChatRequest, content: &ContentContract) -> String {
    let policy = content.schemas.iter().find_map(|own| own.policy.as_deref()).unwrap_or("answer");
    let name = request.schema_name.as_deref().unwrap_or(policy);
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(64).collect()
}

/// How a backend with these capabilities is asked.
fn native(contract: &Contract, terms: &Terms, request: &ChatRequest, capabilities: &Capabilities) -> Native {
    let Some(content) = &contract.content else {
        return if contract.forced.is_some() { Native::Tool } else { Native::None };
    };
    if terms.native == NativeUse::Never {
        return Native::Prompt;
    }
    let json_mode = capabilities.json_object && content.admits() == Admits::OBJECT;
    let wants = request.response_format.as_ref().map(|format| &format.wants);
    let sent = match &content.asked {
        Asked::JsonObject => false,
        // llama.cpp's way of saying it is not every backend's.
        Asked::Schema(_) => terms.format.is_some() || matches!(wants, Some(Wants::Schema { object: false, .. })),
    };
    match (sent, capabilities.json_schema) {
        (true, SchemaMode::Strict) => Native::JsonSchema,
        (true, SchemaMode::Relaxed) => Native::JsonSchemaRelaxed,
        _ if json_mode => Native::JsonObject,
        _ => Native::Prompt,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::dialect::table::BackendKind;
    use crate::settings::SchemaLimits;

    fn request(rest: &str) -> ChatRequest {
        let body = format!(r#"{{"model":"m","messages":[],{rest}}}"#);
        ChatRequest::read(Bytes::from(body)).unwrap()
    }

    fn contract_of(request: &ChatRequest) -> Contract {
        let compile = |text: Bytes| Arc::new(CompiledSchema::compile(text, SchemaLimits::default()).unwrap());
        let content = request.schema().map(compile);
        contract(request, Schemas { content, tools: Vec::new() }, &[]).unwrap()
    }

    const SCHEMA: &str = r#""response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object"}}}"#;

    #[test]
    fn each_kind_of_backend_gets_the_mode_it_has() {
        for (format, kind, expected) in [
            (SCHEMA, BackendKind::Openai, Native::JsonSchema),
            (SCHEMA, BackendKind::Vllm, Native::JsonSchemaRelaxed),
            (SCHEMA, BackendKind::Llamacpp, Native::JsonSchemaRelaxed),
            (SCHEMA, BackendKind::OpenaiCompatible, Native::Prompt),
            (r#""response_format":{"type":"json_object"}"#, BackendKind::Openai, Native::JsonObject),
            (r#""response_format":{"type":"json_object"}"#, BackendKind::Lmstudio, Native::Prompt),
            (r#""response_format":{"type":"text"}"#, BackendKind::Openai, Native::None),
            (r#""n":1"#, BackendKind::Openai, Native::None),
        ] {
            let request = request(format);
            let found = native(&contract_of(&request), &Terms::of(&[]), &request, &Capabilities::of(kind));
            assert_eq!(found, expected, "{format} {kind:?}");
        }
    }

    #[test]
    fn json_mode_stands_in_for_a_schema_where_the_answer_is_an_object() {
        let capabilities = Capabilities { json_schema: SchemaMode::None, ..Capabilities::of(BackendKind::Openai) };
        let object = request(SCHEMA);
        let terms = Terms::of(&[]);
        assert_eq!(native(&contract_of(&object), &terms, &object, &capabilities), Native::JsonObject);
        let array = request(&SCHEMA.replace("object", "array"));
        assert_eq!(native(&contract_of(&array), &terms, &array, &capabilities), Native::Prompt);
    }

    #[test]
    fn forced_and_strict_tools_are_contracts() {
        let tools = r#""tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","strict":true}}]"#;
        let one = r#""tools":[{"type":"function","function":{"name":"f"}}]"#;
        for (rest, forced, bound, empty) in [
            (tools.to_owned(), None, vec![false, true], false),
            (
                format!(r#"{tools},"tool_choice":{{"type":"function","function":{{"name":"f"}}}}"#),
                Some(0),
                vec![true, true],
                false,
            ),
            (format!(r#"{tools},"tool_choice":"required""#), None, vec![false, true], false),
            (format!(r#"{one},"tool_choice":"required""#), Some(0), vec![true], false),
            (format!(r#"{one},"tool_choice":"any""#), Some(0), vec![true], false),
            (format!(r#"{one},"tool_choice":"auto""#), None, vec![false], true),
        ] {
            let contract = contract_of(&request(&rest));
            assert_eq!(contract.forced, forced, "{rest}");
            assert_eq!(contract.tools.iter().map(|tool| tool.bound).collect::<Vec<_>>(), bound, "{rest}");
            assert_eq!(contract.is_empty(), empty, "{rest}");
        }
    }
}
