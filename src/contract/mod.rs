//! Contracts: what an answer must satisfy, and what is said of one that does not.

pub mod assign;
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
pub mod linear;
pub mod locale;
pub mod message;
pub mod number;
pub mod pattern;
pub mod rule;
pub mod scene;
pub mod schema;
pub mod source;
pub mod template;
pub mod token;
mod unit;
pub mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::OnceLock;

use crate::contract::assign::Assign;
use crate::contract::data::Data;
use crate::contract::fact::FactRule;
use crate::contract::fold::Folds;
use crate::contract::gate::GateEntry;
use crate::contract::ground::LazyGround;
use crate::contract::rule::RuleValue;
use crate::contract::scene::Evidence;
use crate::contract::schema::CompiledSchema;
use crate::contract::source::Needs;
use crate::contract::source::Region;
use crate::contract::template::TemplateValue;
use crate::extraction::Admits;
use crate::extraction::Mode;

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
    /// The folds of gates that name none of their own.
    pub folds: Folds,
    /// Parts of the source, by name.
    pub regions: BTreeMap<Arc<str>, Region>,
    /// What is worked out of the above when it is first asked for.
    pub derived: Derived,
}

impl PolicyContract {
    /// Whether a gate is tied to the source, so that an answer cannot be judged without one.
    pub fn is_tied_to_source(&self) -> bool {
        self.gates.iter().any(|entry| entry.gate.is_tied_to_source())
    }

    /// Whether a gate is tied to the facts that the messages state.
    pub fn is_tied_to_facts(&self) -> bool {
        self.gates.iter().any(|entry| entry.gate.reads_facts())
    }

    /// Whether a gate looks at the tokens that the backend reports.
    pub fn reads_usage(&self) -> bool {
        self.gates.iter().any(GateEntry::reads_usage)
    }

    /// Whether anything in it may look at the source or at the messages.
    pub fn reads_source(&self) -> bool {
        !self.gates.is_empty()
    }

    /// The tables as rules see them.
    pub fn data_of_rules(&self) -> &RuleValue<'static> {
        self.derived.data_of_rules.get_or_init(|| RuleValue::from_json(&self.data.json()))
    }

    /// The tables as templates see them.
    pub fn data_of_templates(&self) -> &TemplateValue {
        self.derived.data_of_templates.get_or_init(|| TemplateValue::from_json(&self.data.json()))
    }

    /// What the gates ask of a source: nothing else has to be prepared. Worked out once.
    pub fn needs(&self) -> &Needs {
        self.derived.needs.get_or_init(|| {
            let mut needs = Needs::default();
            self.gates.iter().for_each(|entry| entry.gate.prepare(&mut needs));
            needs
        })
    }
}

/// What is worked out once of a policy's contract.
#[derive(Debug, Default)]
pub struct Derived {
    needs: OnceLock<Needs>,
    data_of_rules: OnceLock<RuleValue<'static>>,
    data_of_templates: OnceLock<TemplateValue>,
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
    /// How the answer is cut out of the text.
    pub extraction: Mode,
    /// With several choices: whether those that pass go on without the others.
    pub passing: bool,
    /// The policies whose gates judge the answer, each in its own scope.
    pub scopes: Vec<Scope>,
}

impl Contract {
    /// Whether nothing is demanded of the answer.
    pub fn is_empty(&self) -> bool {
        self.content.is_none() && self.forced.is_none() && !self.tools.iter().any(|tool| tool.bound)
    }

    /// Whether a gate looks at the tokens that the backend reports.
    pub fn reads_usage(&self) -> bool {
        self.scopes.iter().any(|scope| scope.contract.reads_usage())
    }

    /// The schemas that this part of the answer satisfies before gates look at it.
    pub fn schemas(&self, subject: &Subject) -> Vec<&CompiledSchema> {
        let (own, more) = match subject {
            Subject::Content => (None, self.content.as_ref().map(|content| &content.schemas)),
            Subject::Tool(name) => {
                let tool = self.tool(name);
                (tool.and_then(|tool| tool.parameters.as_deref()), tool.map(|tool| &tool.also))
            }
        };
        own.into_iter().chain(more.into_iter().flatten().map(|owned| &*owned.schema)).collect()
    }

    /// The offered tool of this name.
    pub fn tool(&self, name: &str) -> Option<&ToolContract> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// One policy at work on one exchange.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Its gates.
    pub contract: Arc<PolicyContract>,
    /// What of the answer it judges.
    pub subject: Subject,
    /// What its gates are tied to.
    pub ground: Arc<LazyGround>,
}

/// What of the answer a policy judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The message's content.
    Content,
    /// The arguments of calls to this tool.
    Tool(Arc<str>),
}

/// What a message's content must be.
#[derive(Clone, Debug)]
pub struct ContentContract {
    /// What the model is asked for.
    pub asked: Asked,
    /// Schemas that the model is shown besides: those of other policies, or the request's own.
    pub also: Vec<Arc<CompiledSchema>>,
    /// The schemas that it must satisfy, all of them; none where any object will do.
    pub schemas: Vec<OwnedSchema>,
    /// The member that a bare array is wrapped in where an object is wanted.
    pub wrap_array: Option<Arc<str>>,
    /// The fields that code sets.
    pub assign: Option<Arc<Assign>>,
    /// The schemas that the whole satisfies once those fields are there.
    pub complete: Vec<OwnedSchema>,
}

/// What the model is asked for.
#[derive(Clone, Debug)]
pub enum Asked {
    /// A value that this schema accepts.
    Schema(Arc<CompiledSchema>),
    /// Exactly one JSON object, whatever it holds.
    JsonObject,
}

/// A schema, and whose it is.
#[derive(Clone, Debug)]
pub struct OwnedSchema {
    /// The policy that brings it; none where the request does.
    pub policy: Option<Arc<str>>,
    /// The schema.
    pub schema: Arc<CompiledSchema>,
}

impl ContentContract {
    /// A value that the request's own schema accepts.
    pub fn schema(schema: Arc<CompiledSchema>) -> Self {
        let own = OwnedSchema { policy: None, schema: Arc::clone(&schema) };
        Self { asked: Asked::Schema(schema), schemas: vec![own], ..Self::object() }
    }

    /// Any object.
    pub fn object() -> Self {
        Self {
            asked: Asked::JsonObject,
            also: Vec::new(),
            schemas: Vec::new(),
            wrap_array: None,
            assign: None,
            complete: Vec::new(),
        }
    }

    /// Which containers may stand at the top.
    pub fn admits(&self) -> Admits {
        match &self.asked {
            Asked::Schema(schema) => schema.admits(),
            Asked::JsonObject => Admits::OBJECT,
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
    /// What policies demand of the arguments besides.
    pub also: Vec<OwnedSchema>,
    /// Calls to it must satisfy the parameters; calls to other tools are checked, counted and passed on.
    pub bound: bool,
}
