//! What is to be done with a request: its contract, the targets in order, and for each of them whether
//! and how the native mode applies. A plan is a value; making one waits on nothing.

use std::sync::Arc;

use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::chat::ToolChoice;
use crate::api::ingress::chat::Wants;
use crate::catalog::Alias;
use crate::catalog::Catalog;
use crate::catalog::Target;
use crate::contract::ContentContract;
use crate::contract::Contract;
use crate::contract::ToolContract;
use crate::contract::schema::CompiledSchema;
use crate::dialect::table::Capabilities;
use crate::dialect::table::SchemaMode;
use crate::extraction::Admits;
use crate::json::fault::shown;
use crate::record::Native;

/// What is to be done with a request.
#[derive(Debug)]
pub struct Plan {
    /// The alias that the caller named.
    pub alias: Arc<Alias>,
    /// What the answer must satisfy.
    pub contract: Contract,
    /// Where to send the request, first to last, and how.
    pub targets: Vec<TargetPlan>,
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
#[derive(Debug, Default)]
pub struct Schemas {
    /// Of the response format.
    pub content: Option<Arc<CompiledSchema>>,
    /// Of each tool's parameters, in the request's order.
    pub tools: Vec<Option<Arc<CompiledSchema>>>,
}

/// The contract that a request brings itself: its response format, its forced tool, its strict tools.
pub fn contract(request: &ChatRequest, schemas: Schemas) -> Contract {
    let content = match request.response_format.as_ref().map(|format| &format.wants) {
        Some(Wants::JsonObject) => Some(ContentContract::JsonObject),
        Some(Wants::Schema { .. }) => schemas.content.map(ContentContract::Schema),
        Some(Wants::Anything) | None => None,
    };
    let forced = forced(request);
    let compiled = schemas.tools.into_iter().chain(std::iter::repeat(None));
    let tools = request.tools.iter().zip(compiled).enumerate().map(|(index, (tool, parameters))| ToolContract {
        name: tool.name.clone(),
        parameters,
        bound: tool.strict || forced == Some(index),
    });
    Contract { content, tools: tools.collect(), forced }
}

/// The one tool that the request forces: by its name, or by demanding a call where there is one tool.
pub fn forced(request: &ChatRequest) -> Option<usize> {
    match &request.tool_choice {
        ToolChoice::Named(name) => request.tools.iter().position(|tool| tool.name == *name),
        ToolChoice::Required if request.tools.len() == 1 => Some(0),
        ToolChoice::Required | ToolChoice::Auto => None,
    }
}

/// Lays the plan. Targets stand in the order in which they are listed.
pub fn plan(alias: Arc<Alias>, contract: Contract, request: &ChatRequest) -> Plan {
    let wants = request.response_format.as_ref().map(|format| &format.wants);
    let targets = alias.targets.iter().map(|target| TargetPlan {
        target: target.clone(),
        native: native(&contract, wants, &target.backend.capabilities),
    });
    Plan { targets: targets.collect(), alias, contract }
}

/// How a backend with these capabilities is asked.
fn native(contract: &Contract, wants: Option<&Wants>, capabilities: &Capabilities) -> Native {
    let Some(content) = &contract.content else {
        return if contract.forced.is_some() { Native::Tool } else { Native::None };
    };
    let json_mode = capabilities.json_object && content.admits() == Admits::OBJECT;
    match (wants, capabilities.json_schema) {
        (Some(Wants::Schema { object: false, .. }), SchemaMode::Strict) => Native::JsonSchema,
        (Some(Wants::Schema { object: false, .. }), SchemaMode::Relaxed) => Native::JsonSchemaRelaxed,
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
        contract(request, Schemas { content, tools: Vec::new() })
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
            let wants = request.response_format.as_ref().map(|format| &format.wants);
            let found = native(&contract_of(&request), wants, &Capabilities::of(kind));
            assert_eq!(found, expected, "{format} {kind:?}");
        }
    }

    #[test]
    fn json_mode_stands_in_for_a_schema_where_the_answer_is_an_object() {
        let capabilities = Capabilities { json_schema: SchemaMode::None, ..Capabilities::of(BackendKind::Openai) };
        let object = request(SCHEMA);
        let wants = object.response_format.as_ref().map(|format| &format.wants);
        assert_eq!(native(&contract_of(&object), wants, &capabilities), Native::JsonObject);
        let array = request(&SCHEMA.replace("object", "array"));
        let wants = array.response_format.as_ref().map(|format| &format.wants);
        assert_eq!(native(&contract_of(&array), wants, &capabilities), Native::Prompt);
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
