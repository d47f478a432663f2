//! What gates look at: one answer, the source that it must be grounded in, and what is known of the call.

use std::borrow::Cow;
use std::cell::Cell;
use std::cell::OnceCell;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;

use crate::api::reply::Usage;
use crate::contract::PolicyContract;
use crate::contract::ground::Ground;
use crate::contract::number::Printed;
use crate::contract::rule::Bindings;
use crate::contract::rule::RuleValue;
use crate::contract::rule::STEPS_MAX;
use crate::contract::rule::Variable;
use crate::contract::schema::CompiledSchema;
use crate::contract::source::Searches;
use crate::contract::template::TemplateContext;
use crate::contract::template::TemplateValue;
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

impl<'a> Scene<'a> {
    /// What rules see, but for `this`. Cheap: nothing is converted before a rule looks at it. What a rule spends of its steps
    /// is told by [`Scene::spent`].
    pub fn bindings(&self) -> Bindings<'a> {
        let usage = self.call.usage.unwrap_or_default();
        let tokens = |count: Option<u64>| RuleValue::from_json(&count.map_or(Value::Null, Value::from));
        let said = |text: &'a Option<String>| match text {
            Some(text) => RuleValue::from_text(text),
            None => RuleValue::from_json(&Value::Null),
        };
        let request = &self.call.request;
        let request = [
            ("model", said(&request.model)),
            ("team", said(&request.team)),
            ("user", said(&request.user)),
            ("time", said(&request.time)),
        ];
        let usage = [
            ("input_tokens", tokens(usage.input_tokens)),
            ("output_tokens", tokens(usage.output_tokens)),
            ("reasoning_tokens", tokens(usage.reasoning_tokens)),
        ];
        let object = |members: Vec<(&'static str, RuleValue<'a>)>| {
            RuleValue::from_members(members.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)))
        };
        Bindings::new()
            .with_steps(self.answer.steps.get())
            .with(Variable::Output, RuleValue::from_place(self.answer.root()))
            .with(Variable::Source, self.ground.pages_of_rules().clone())
            .with(Variable::Facts, self.ground.facts_of_rules().clone())
            .with(Variable::Data, self.contract.data_of_rules().clone())
            .with(Variable::Request, object(request.into()))
            .with(Variable::Usage, object(usage.into()))
    }

    /// Enters the steps that rules have taken with these bindings.
    pub fn spent(&self, bindings: &Bindings<'_>) {
        self.answer.steps.set(bindings.steps());
    }

    /// What templates see of the scene: `output`, `facts` and `data`.
    pub fn context(&self) -> TemplateContext {
        TemplateContext::new()
            .with("output", TemplateValue::from_json(self.answer.tree()))
            .with("facts", self.ground.facts_of_templates().clone())
            .with("data", self.contract.data_of_templates().clone())
    }
}

/// An answer under judgement.
pub struct Answer<'t> {
    text: &'t str,
    tape: Tape<'t>,
    tree: OnceCell<Value>,
    /// Steps that rules may still take on it, all gates together.
    steps: Cell<u64>,
    searches: Searches,
    printed: RefCell<HashMap<Asked, Printed, ahash::RandomState>>,
}

/// The gate and the ground that a number was read by, and where its evidence begins in the answer.
type Asked = (usize, usize, usize);

impl<'t> Answer<'t> {
    /// Reads an answer, which strict extraction has accepted.
    pub fn read(text: &'t str) -> Result<Self, JsonFault> {
        Ok(Self {
            text,
            tape: Tape::of(text)?,
            tree: OnceCell::new(),
            steps: Cell::new(STEPS_MAX),
            searches: Searches::default(),
            printed: RefCell::default(),
        })
    }

    /// What searches for its quotes may still do.
    pub fn searches(&self) -> &Searches {
        &self.searches
    }

    /// Its text.
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// It as a tape.
    pub fn tape(&self) -> &Tape<'t> {
        &self.tape
    }

    /// Its top.
    pub fn root(&self) -> Place<'_> {
        self.tape.root()
    }

    /// The number that `gate` found printed for the value at `place`, where it was kept. Provenance finds it, and sums ask
    /// for its places, so that no quote is looked for twice.
    pub fn printed<G>(&self, gate: &G, ground: &Ground, place: Place<'_>) -> Option<Printed> {
        self.printed.try_borrow().ok()?.get(&asked(gate, ground, place)).cloned()
    }

    /// Keeps the number that `gate` found printed for the value at `place`.
    pub fn keep_printed<G>(&self, gate: &G, ground: &Ground, place: Place<'_>, printed: Printed) {
        if let Ok(mut kept) = self.printed.try_borrow_mut() {
            kept.insert(asked(gate, ground, place), printed);
        }
    }

    /// It as a tree, for messages and templates; built once, where it is needed at all.
    pub fn tree(&self) -> &Value {
        self.tree.get_or_init(|| self.root().tree())
    }
}

fn asked<G>(gate: &G, ground: &Ground, place: Place<'_>) -> Asked {
    (std::ptr::from_ref(gate).addr(), std::ptr::from_ref(ground).addr(), place.range().start)
}

/// What is known of the upstream calls of an exchange when its answer is judged.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Tokens as the backend reported them; none where it said nothing, which is not zero.
    pub usage: Option<Usage>,
    /// Whether nobody asked for them, so that a gate that only watches cannot say anything of them.
    pub unasked: bool,
    /// What they cost in US dollars; none where the price or the usage is not known.
    pub cost_usd: Option<Decimal>,
    /// From the request's head to the answer's last byte; none where nobody measured.
    pub latency: Option<Duration>,
    /// Bytes of text in the prompt as it was sent; none where nobody knows.
    pub prompt_bytes: Option<u64>,
    /// Tokens that the backend's context holds; none where that is not known.
    pub context: Option<u64>,
    /// Who asked, and when.
    pub request: Asker,
}

/// What rules see of the request.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// The model as the caller named it.
    pub model: Option<String>,
    /// The caller's team; none before there are keys, for then nobody who calls has one.
    pub team: Option<String>,
    /// The end user, as the caller names them.
    pub user: Option<String>,
    /// When the request arrived, as RFC 3339 has it.
    pub time: Option<String>,
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
