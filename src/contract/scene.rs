//! What gates look at: one answer, the source that it must be grounded in, and what is known of the call.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::time::Duration;

use serde_json::Value;

use crate::api::reply::Usage;
use crate::contract::PolicyContract;
use crate::contract::ground::Ground;
use crate::contract::schema::CompiledSchema;
use crate::json::JsonFault;
use crate::json::decimal::Decimal;
use crate::json::query::Query;
use crate::json::tape::Place;
use crate::json::tape::Tape;
use crate::json::tape::What;

/// Everything that a gate may look at. Nothing in it changes while gates run.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The answer under judgement.
    pub answer: &'a Answer<'a>,
    /// The policy's gates, and what they look things up in.
    pub contract: &'a PolicyContract,
    /// The source, and the facts found in it.
    pub ground: &'a Ground,
    /// What the call came to.
    pub call: &'a Call,
    /// The schemas that the answer satisfies: the policy's, the request's, or both.
    pub schemas: &'a [&'a CompiledSchema],
}

/// An answer under judgement.
pub struct Answer<'t> {
    text: &'t str,
    tape: Tape<'t>,
    tree: OnceCell<Value>,
}

impl<'t> Answer<'t> {
    /// Reads an answer, which strict extraction has accepted.
    pub fn read(text: &'t str) -> Result<Self, JsonFault> {
        Ok(Self { text, tape: Tape::of(text)?, tree: OnceCell::new() })
    }

    /// Its text.
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// Its top.
    pub fn root(&self) -> Place<'_> {
        self.tape.root()
    }

    /// It as a tree, for messages and templates; built once, where it is needed at all.
    pub fn tree(&self) -> &Value {
        self.tree.get_or_init(|| self.root().tree())
    }
}

/// What is known of the upstream calls of an exchange when its answer is judged.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Tokens as the backend reported them; none where it said nothing, which is not zero.
    pub usage: Option<Usage>,
    /// What they cost in US dollars; none where the price or the usage is not known.
    pub cost_usd: Option<Decimal>,
    /// From the request's head to the answer's last byte; none where nobody measured.
    pub latency: Option<Duration>,
    /// Bytes of text in the prompt as it was sent; none where nobody knows.
    pub prompt_bytes: Option<u64>,
    /// Tokens that the backend's context holds; none where that is not known.
    pub context: Option<u64>,
}

/// Where an object that carries its own evidence keeps value, quote and page.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The value, from the evidence object on.
    pub value: Query,
    /// The quote.
    pub quote: Query,
    /// The page, from 1.
    pub page: Query,
}

/// A node that a path reached: the value itself, or an evidence object around it.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// What the path reached.
    pub place: Place<'a>,
    /// The value: `place` itself, or what its evidence object holds.
    pub value: Place<'a>,
    /// Whether `place` is an evidence object.
    pub has_evidence: bool,
}

impl Evidence {
    /// The node at `place`: an object that has the member for the value stands for that value.
    pub fn node<'a>(&self, place: Place<'a>) -> Node<'a> {
        let value = if place.what() == What::Object { self.value.one(place) } else { None };
        Node { place, value: value.unwrap_or(place), has_evidence: value.is_some() }
    }
}

/// What a value is, for messages.
pub fn kind_of(place: Place<'_>) -> &'static str {
    match place.what() {
        What::Null => "null",
        What::True | What::False => "boolean",
        What::Number => "number",
        What::String => "string",
        What::Array => "array",
        What::Object => "object",
    }
}

/// What a string, number, boolean or null says, as it is compared with data: a string without its quotes, a number as it is printed.
pub fn said(place: Place<'_>) -> Option<Cow<'_, str>> {
    match place.what() {
        What::String => Some(place.text()),
        What::Number | What::True | What::False | What::Null => Some(Cow::Borrowed(place.raw())),
        What::Array | What::Object => None,
    }
}
