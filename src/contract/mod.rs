//! Contracts: what an answer must satisfy, and what is said of one that does not.

pub mod bounds;
pub mod currency;
pub mod data;
pub mod date;
mod declared;
pub mod fact;
pub mod fold;
pub mod gate;
pub mod ground;
pub mod instance;
pub mod locale;
pub mod message;
pub mod number;
pub mod pattern;
pub mod rule;
pub mod scene;
pub mod schema;
pub mod source;
pub mod token;
pub mod verdict;

use std::sync::Arc;

use crate::contract::data::Data;
use crate::contract::fact::FactRule;
use crate::contract::gate::GateEntry;
use crate::contract::scene::Evidence;
use crate::contract::schema::CompiledSchema;
use crate::extraction::Admits;

/// The ordered gates of one policy, and what they look things up in. Built once, when the policy is loaded.
#[derive(Debug, Default)]
pub struct PolicyContract {
    /// The policy's name.
    pub policy: Arc<str>,
    /// The gates, in their order.
    pub gates: Vec<GateEntry>,
    /// Where objects that carry their own evidence keep it.
    pub evidence: Option<Evidence>,
    /// What is looked for in the messages.
    pub facts: Vec<FactRule>,
    /// Tables to look things up in.
    pub data: Data,
}

/// What one exchange's answer must satisfy.
#[derive(Clone, Debug, Default)]
pub struct Contract {
    /// What the message's content must be; none where any text will do.
    pub content: Option<ContentContract>,
    /// The tools that the request offers.
    pub tools: Vec<ToolContract>,
    /// The one tool that the request forces, by its place in `tools`.
    pub forced: Option<usize>,
}

impl Contract {
    /// Whether nothing is demanded of the answer.
    pub fn is_empty(&self) -> bool {
        self.content.is_none() && self.forced.is_none() && !self.tools.iter().any(|tool| tool.bound)
    }

    /// The offered tool of this name.
    pub fn tool(&self, name: &str) -> Option<&ToolContract> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// What a message's content must be.
#[derive(Clone, Debug)]
pub enum ContentContract {
    /// A value that this schema accepts.
    Schema(Arc<CompiledSchema>),
    /// Exactly one JSON object, whatever it holds.
    JsonObject,
}

impl ContentContract {
    /// Which containers may stand at the top.
    pub fn admits(&self) -> Admits {
        match self {
            Self::Schema(schema) => schema.admits(),
            Self::JsonObject => Admits::OBJECT,
        }
    }
}

/// What a tool call's arguments must be.
#[derive(Clone, Debug)]
pub struct ToolContract {
    /// The function's name.
    pub name: String,
    /// The function's parameters; none where it declares none, so that any object will do.
    pub parameters: Option<Arc<CompiledSchema>>,
    /// Calls to it must satisfy the parameters; calls to other tools are checked, counted and passed on.
    pub bound: bool,
}
