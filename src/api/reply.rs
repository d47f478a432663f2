//! The one form in which every backend's answer is judged.

use crate::json::JsonFault;
use crate::wire::fault::Reported;

/// Choices that one answer may hold: a bound on what a backend can make the gateway allocate.
pub const CHOICES_MAX: usize = 128;
/// Tool calls that one choice may hold.
pub const CALLS_MAX: usize = 256;

/// A backend's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// One or, with `n > 1`, several.
    pub choices: Vec<Choice>,
    /// What it cost; none where the backend did not say, which is not zero.
    pub usage: Option<Usage>,
}

/// One of the answers that were asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Its index.
    pub index: u64,
    /// The message's text; none where the backend sent null or nothing.
    pub content: Option<String>,
    /// The model's own refusal.
    pub refusal: Option<String>,
    /// Calls to tools, in their order.
    pub tool_calls: Vec<ToolCall>,
    /// Why it stopped.
    pub finish: Option<Finish>,
    /// Something came in a channel for reasoning. It is another channel: no answer is ever taken from it.
    pub reasoned: bool,
}

impl Choice {
    /// Bytes of what is to be judged.
    pub fn bytes(&self) -> usize {
        let calls: usize = self.tool_calls.iter().map(|call| call.arguments.len()).sum();
        calls + self.content.as_ref().map_or(0, String::len)
    }
}

/// A call to a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Its id, which the tool's result will name.
    pub id: String,
    /// The function's name.
    pub name: String,
    /// The arguments, as the model wrote them.
    pub arguments: String,
}

/// Why a choice stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its answer.
    Stop,
    /// A limit cut it off.
    Length,
    /// The model wants tools to be called.
    ToolCalls,
    /// The provider's filter cut it off.
    ContentFilter,
    /// The backend failed while answering.
    Error,
    /// A word that this gateway does not know, so that nothing can be said of the answer's completeness.
    Unknown(String),
}

impl Finish {
    /// Reads a finish reason, in the words of the servers that speak OpenAI's format.
    pub fn read(word: &str) -> Self {
        match word {
            "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "STOP" => Self::Stop,
            "length" | "max_tokens" | "max_length" | "model_length" | "MAX_TOKENS" => Self::Length,
            "tool_calls" | "function_call" | "tool_use" => Self::ToolCalls,
            "content_filter" | "safety" | "SAFETY" | "guardrail_intervened" => Self::ContentFilter,
            "error" | "abort" | "network_error" | "failed" | "insufficient_system_resource" => Self::Error,
            other => Self::Unknown(other.to_owned()),
        }
    }

    /// The word in OpenAI's format.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
            Self::Error => "error",
            Self::Unknown(word) => word,
        }
    }
}

/// Tokens, as far as the backend reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt, cached ones included.
    pub input_tokens: Option<u64>,
    /// Of the answer, reasoning included.
    pub output_tokens: Option<u64>,
    /// Of reasoning.
    pub reasoning_tokens: Option<u64>,
    /// Of the prompt, as far as they came from the backend's cache.
    pub cached_tokens: Option<u64>,
}

/// Why a backend's answer cannot be read. All of these are the backend's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// It is not the JSON that its format demands.
    #[error("the backend's answer is not what its format demands: {0}")]
    Json(#[from] JsonFault),
    /// It carries an error, whatever its status says.
    #[error("the backend's answer carries an error")]
    Reported(Reported),
    /// It has more choices, or more tool calls in one, than are read.
    #[error("the backend's answer has more than {CHOICES_MAX} choices, or more than {CALLS_MAX} tool calls in one")]
    TooMany,
    /// It has no choices.
    #[error("the backend's answer has no choices")]
    NoChoices,
    /// Fragments of two tool calls under one index.
    #[error("two tool calls share the index {0}")]
    ToolIndexConflict(u64),
    /// One choice stopped for two different reasons.
    #[error("the backend gave two different finish reasons for one choice")]
    TwoFinishes,
    /// The stream ended before every choice had a finish reason.
    #[error("the backend's stream ended without a finish reason")]
    Unfinished,
}
