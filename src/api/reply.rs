//! The one form in which every backend's answer is judged.

use std::ops::Range;

use crate::extraction::Rung;
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

/// The part of one choice that passed its contract.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// The slice of the content that is the answer; none where the content goes on as it is.
    pub slice: Option<Range<usize>>,
    /// What code puts around the slice, as the policy declares.
    pub around: Option<Around>,
    /// How it was found.
    pub rung: Option<Rung>,
    /// It did not pass, and is left out: others did.
    pub dropped: bool,
}

/// What code puts around an accepted slice: an envelope before and after it, and fields before its last bracket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Around {
    /// Before the slice.
    pub before: String,
    /// Members, joined by commas, before the bracket that closes the whole.
    pub fields: String,
    /// After the slice: nothing, or the bracket that closes the envelope.
    pub after: String,
}

impl Around {
    /// The delivered text of an accepted slice.
    pub fn around(&self, slice: &str) -> String {
        if self.fields.is_empty() {
            return format!("{}{slice}{}", self.before, self.after);
        }
        let fields = self.fields_after(slice);
        match self.after.as_str() {
            "" => {
                let inside = slice.strip_suffix('}').unwrap_or(slice);
                format!("{}{inside}{fields}}}", self.before)
            }
            after => format!("{}{slice}{fields}{after}", self.before),
        }
    }

    /// The fields with the comma that parts them from what stands before them; `slice` is the model's part.
    pub fn fields_after(&self, slice: &str) -> String {
        let inside = slice.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let is_first = self.before.is_empty() && inside.is_some_and(|inside| inside.trim().is_empty());
        match self.fields.is_empty() || is_first {
            true => self.fields.clone(),
            false => format!(",{}", self.fields),
        }
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

impl Usage {
    /// This and more of it. What is not known of one part is not known of the whole.
    pub fn plus(self, more: Self) -> Self {
        let sum = |one: Option<u64>, two: Option<u64>| Some(one?.saturating_add(two?));
        Self {
            input_tokens: sum(self.input_tokens, more.input_tokens),
            output_tokens: sum(self.output_tokens, more.output_tokens),
            reasoning_tokens: sum(self.reasoning_tokens, more.reasoning_tokens),
            cached_tokens: sum(self.cached_tokens, more.cached_tokens),
        }
    }

    /// It as a JSON object.
    pub fn json(self) -> String {
        let number = |tokens: Option<u64>| tokens.map_or("null".to_owned(), |tokens| tokens.to_string());
        format!(
            r#"{{"input_tokens":{},"output_tokens":{},"reasoning_tokens":{},"cached_tokens":{}}}"#,
            number(self.input_tokens),
            number(self.output_tokens),
            number(self.reasoning_tokens),
            number(self.cached_tokens)
        )
    }
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
