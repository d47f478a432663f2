//! What an answer is grounded in: the source's pages, and the facts that were found in the messages. Made once an
//! exchange and policy, while the upstream call runs; nothing of it changes afterwards.

use std::sync::Arc;
use std::sync::OnceLock;

use serde_json::Value;

use crate::contract::PolicyContract;
use crate::contract::fact::Facts;
use crate::contract::rule::RuleValue;
use crate::contract::source::Source;
use crate::contract::template::TemplateValue;

/// The ground of one policy in one exchange.
#[derive(Debug, Default)]
pub struct Ground {
    /// The source, prepared for what the policy's gates ask of it (`PolicyContract::needs`).
    pub source: Source,
    /// The facts that the messages state.
    pub facts: Facts,
    /// What rules and templates see of it, made where one looks.
    pub seen: Seen,
}

/// What rules and templates see of a ground.
#[derive(Debug, Default)]
pub struct Seen {
    pages: OnceLock<RuleValue<'static>>,
    facts_of_rules: OnceLock<RuleValue<'static>>,
    facts_of_templates: OnceLock<TemplateValue>,
}

impl Ground {
    /// The pages of the source, as rules see them.
    pub fn pages_of_rules(&self) -> &RuleValue<'static> {
        self.seen.pages.get_or_init(|| {
            let pages = self.source.pages().iter().map(|page| Value::from(&**page)).collect();
            RuleValue::from_json(&Value::Array(pages))
        })
    }

    /// The facts, as rules see them: of each the list of its terms.
    pub fn facts_of_rules(&self) -> &RuleValue<'static> {
        self.seen.facts_of_rules.get_or_init(|| RuleValue::from_json(&self.facts.json()))
    }

    /// The facts, as templates see them.
    pub fn facts_of_templates(&self) -> &TemplateValue {
        self.seen.facts_of_templates.get_or_init(|| TemplateValue::from_json(&self.facts.json()))
    }
}

/// A ground that is made when it is first asked for, by whoever asks first.
#[derive(Debug)]
pub struct LazyGround {
    contract: Arc<PolicyContract>,
    pages: Vec<Arc<str>>,
    messages: Vec<Arc<str>>,
    made: OnceLock<Ground>,
}

impl LazyGround {
    /// The ground for one policy: the pages of the source, and those of the messages that facts are found in.
    pub fn new(contract: Arc<PolicyContract>, pages: Vec<Arc<str>>, messages: Vec<Arc<str>>) -> Self {
        Self { contract, pages, messages, made: OnceLock::new() }
    }

    /// The pages of the source.
    pub fn pages(&self) -> &[Arc<str>] {
        &self.pages
    }

    /// The pages of the messages.
    pub fn messages(&self) -> &[Arc<str>] {
        &self.messages
    }

    /// The ground. The first call takes time in proportion to the source.
    pub fn get(&self) -> &Ground {
        self.made.get_or_init(|| {
            let facts = Facts::read(&self.contract.facts, self.messages.iter().map(|page| &**page));
            Ground { source: Source::new(self.pages.clone(), self.contract.needs()), facts, seen: Seen::default() }
        })
    }
}
