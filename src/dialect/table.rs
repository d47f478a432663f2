//! The capability table: what each kind of backend can do, as data.
//!
//! The cells come from `config/capabilities.yaml`, which is embedded in the binary; a backend's own
//! `capabilities:` in the configuration overrides them. No decision is made from a model's name.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a backend's wire format and manners are known to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackendKind {
    /// OpenAI's own API.
    Openai,
    /// Any server that speaks OpenAI's wire format; nothing beyond it is assumed.
    OpenaiCompatible,
    /// vLLM's OpenAI-compatible server.
    Vllm,
    /// llama.cpp's server.
    Llamacpp,
    /// LM Studio's local server.
    Lmstudio,
    /// The scripted model inside the binary: no network, no key.
    Demo,
}

impl BackendKind {
    /// The name as it is written in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::OpenaiCompatible => "openai_compatible",
            Self::Vllm => "vllm",
            Self::Llamacpp => "llamacpp",
            Self::Lmstudio => "lmstudio",
            Self::Demo => "demo",
        }
    }
}

/// What a backend makes of `response_format: {type: json_schema}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchemaMode {
    /// It takes the schema; what it enforces is judged all the same.
    Strict,
    /// It takes the schema and is known to enforce only a part of it.
    Relaxed,
    /// It has no such mode, or none is assumed: the member is not sent.
    None,
}

/// The cells of one backend kind, with a backend's own overrides applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// `response_format: {type: json_schema}`.
    pub json_schema: SchemaMode,
    /// `response_format: {type: json_object}`.
    pub json_object: bool,
    /// Messages with the role `system` reach the model.
    pub system_role: bool,
    /// The provider keeps answers unless `store: false` is sent.
    #[serde(default)]
    pub store: bool,
    /// Members of a request that it does not take.
    #[serde(default)]
    pub without: Vec<String>,
    /// Tags that open and close a block of reasoning at the start of the text.
    #[serde(default = "Capabilities::default_reasoning_tags")]
    pub reasoning_tags: Vec<ReasoningTag>,
}

/// A pair of tags around a model's reasoning, set aside before the answer is cut out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReasoningTag {
    /// The opening tag, for example `<think>`.
    pub open: String,
    /// The closing tag, for example `</think>`.
    pub close: String,
    /// The server's prompt template already holds the opening tag, so only the closing one is in the text.
    #[serde(default)]
    pub opening_implied: bool,
}

impl Capabilities {
    fn default_reasoning_tags() -> Vec<ReasoningTag> {
        vec![ReasoningTag { open: "<think>".into(), close: "</think>".into(), opening_implied: false }]
    }

    /// The built-in cells of a backend kind.
    pub fn of(kind: BackendKind) -> Self {
        TABLE.get(&kind).cloned().unwrap_or_else(Self::nothing_assumed)
    }

    /// These cells with an operator's overrides laid over them.
    pub fn overridden(mut self, by: &CapabilityOverrides) -> Self {
        if let Some(mode) = by.json_schema {
            self.json_schema = mode;
        }
        if let Some(flag) = by.json_object {
            self.json_object = flag;
        }
        if let Some(flag) = by.system_role {
            self.system_role = flag;
        }
        if let Some(flag) = by.store {
            self.store = flag;
        }
        if let Some(members) = &by.without {
            self.without = members.clone();
        }
        if let Some(tags) = &by.reasoning_tags {
            self.reasoning_tags = tags.clone();
        }
        self
    }

    fn nothing_assumed() -> Self {
        Self {
            json_schema: SchemaMode::None,
            json_object: false,
            system_role: true,
            store: false,
            without: Vec::new(),
            reasoning_tags: Self::default_reasoning_tags(),
        }
    }
}

/// `capabilities:` of a backend: each cell that is written replaces the built-in one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CapabilityOverrides {
    /// How `response_format: {type: json_schema}` is taken.
    pub json_schema: Option<SchemaMode>,
    /// Whether `response_format: {type: json_object}` is known.
    pub json_object: Option<bool>,
    /// Whether messages with the role `system` reach the model.
    pub system_role: Option<bool>,
    /// Whether the provider keeps answers unless `store: false` is sent.
    pub store: Option<bool>,
    /// Members of a request that it does not take; limits of policies leave them out.
    pub without: Option<Vec<String>>,
    /// Tags around a block of reasoning at the start of the text.
    pub reasoning_tags: Option<Vec<ReasoningTag>>,
}

/// The embedded table. A unit test parses it and finds every kind, so the fallback is never met in practice.
static TABLE: LazyLock<BTreeMap<BackendKind, Capabilities>> =
    LazyLock::new(|| parse(include_str!("../../config/capabilities.yaml")).unwrap_or_default());

fn parse(yaml: &str) -> Result<BTreeMap<BackendKind, Capabilities>, serde_saphyr::Error> {
    serde_saphyr::from_str(yaml)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_table_has_every_kind() {
        let table = parse(include_str!("../../config/capabilities.yaml")).unwrap();
        for kind in [
            BackendKind::Openai,
            BackendKind::OpenaiCompatible,
            BackendKind::Vllm,
            BackendKind::Llamacpp,
            BackendKind::Lmstudio,
            BackendKind::Demo,
        ] {
            assert!(table.contains_key(&kind), "{}", kind.as_str());
        }
    }

    #[test]
    fn an_override_replaces_one_cell_and_leaves_the_rest() {
        let base = Capabilities::of(BackendKind::OpenaiCompatible);
        let by = CapabilityOverrides { json_schema: Some(SchemaMode::Strict), ..Default::default() };
        let over = base.clone().overridden(&by);
        assert_eq!(over.json_schema, SchemaMode::Strict);
        assert_eq!(over.json_object, base.json_object);
    }
}
