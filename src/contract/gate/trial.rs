//! A gate on trial: one kind with its settings, an answer, and all that it may look at.

use std::sync::Arc;

use crate::contract::PolicyContract;
use crate::contract::data::Data;
use crate::contract::data::Table;
use crate::contract::fact::Automata;
use crate::contract::fact::FactRule;
use crate::contract::fact::Facts;
use crate::contract::gate::Build;
use crate::contract::gate::GateEntry;
use crate::contract::gate::Kind;
use crate::contract::gate::Presence;
use crate::contract::gate::run;
use crate::contract::ground::Ground;
use crate::contract::scene::Answer;
use crate::contract::scene::Call;
use crate::contract::scene::Evidence;
use crate::contract::scene::Scene;
use crate::contract::schema::CompiledSchema;
use crate::contract::verdict::Action;
use crate::contract::verdict::Violation;
use crate::json::query::Query;
use crate::json::tree;
use crate::settings::SchemaLimits;

/// What a gate under test may look at.
#[derive(Default)]
pub(super) struct Trial {
    pub(super) contract: PolicyContract,
    pub(super) ground: Ground,
    pub(super) call: Call,
    pub(super) schemas: Vec<Arc<CompiledSchema>>,
    pub(super) presence: Presence,
}

impl Trial {
    pub(super) fn of_call(call: Call) -> Self {
        Self { call, ..Self::default() }
    }

    /// One fact of this name, and what it finds in the text.
    pub(super) fn with_fact(mut self, name: &str, settings: &str, text: &str) -> Self {
        let settings = tree::parse(settings).unwrap();
        let rule = FactRule::compile(name, &settings, &Data::default(), &mut Automata::default()).unwrap();
        self.contract.facts.push(rule);
        self.ground.facts = Facts::read(&self.contract.facts, [text]);
        self
    }

    pub(super) fn with_table(mut self, name: &str, text: &str, key: Option<&str>) -> Self {
        let table = Table::read("t.json", text.as_bytes(), key).unwrap();
        self.contract.data.0.insert(name.into(), table);
        self
    }

    pub(super) fn with_schema(mut self, text: &str) -> Self {
        let schema = CompiledSchema::compile(text.to_owned().into(), SchemaLimits::default()).unwrap();
        self.schemas.push(Arc::new(schema));
        self
    }

    pub(super) fn with_evidence(mut self) -> Self {
        let [value, quote, page] = ["$.value", "$.quote", "$.page"].map(|path| Query::read(path).unwrap());
        self.contract.evidence = Some(Evidence { value, quote, page });
        self
    }

    pub(super) fn optional(mut self) -> Self {
        self.presence = Presence { optional: true, nullable: true, at_least: 0 };
        self
    }

    /// The violations of one gate.
    pub(super) fn violations(&mut self, kind: &Kind, settings: &str, answer: &str) -> Vec<Violation> {
        let settings = tree::parse(settings).unwrap();
        let build = Build { contract: &self.contract, presence: self.presence, each: None };
        let gate = (kind.build)(&settings, &build).unwrap_or_else(|errors| panic!("{settings}: {errors:?}"));
        let (name, declared) = (kind.name.into(), "policy.yaml:1".into());
        let entry = GateEntry {
            name,
            kind: kind.name,
            declared,
            action: Action::Reject,
            needs: Vec::new(),
            say: None,
            when: None,
            gate,
        };
        self.contract.gates = vec![entry];
        let answer = Answer::read(answer).unwrap();
        let schemas: Vec<&CompiledSchema> = self.schemas.iter().map(AsRef::as_ref).collect();
        let scene = Scene {
            answer: &answer,
            contract: &self.contract,
            ground: &self.ground,
            call: &self.call,
            schemas: &schemas,
        };
        run(&scene).violations
    }

    /// The violations of one gate, each `path: message`.
    pub(super) fn judged(&mut self, kind: &Kind, settings: &str, answer: &str) -> Vec<String> {
        let violations = self.violations(kind, settings, answer);
        violations.iter().map(|violation| format!("{}: {}", violation.path, violation.message)).collect()
    }

    /// What is wrong with the settings of a gate, each `member: message`.
    pub(super) fn refused(&self, kind: &Kind, settings: &str) -> Vec<String> {
        let settings = tree::parse(settings).unwrap();
        let build = Build { contract: &self.contract, presence: self.presence, each: None };
        let errors = (kind.build)(&settings, &build).err().unwrap_or_default();
        errors.iter().map(|error| format!("{}: {}", error.at.join("."), error.message)).collect()
    }
}

/// Runs a table: settings, answer, and what is expected of the only violation; empty for none.
pub(super) fn table(trial: impl Fn() -> Trial, kind: &Kind, rows: &[(&str, &str, &str)]) {
    for (settings, answer, expected) in rows {
        let told = trial().judged(kind, settings, answer);
        match expected.is_empty() {
            true => assert!(told.is_empty(), "{settings} {answer}: {told:?}"),
            false => assert!(told.len() == 1 && told[0].contains(expected), "{settings} {answer}: {told:?}"),
        }
    }
}
