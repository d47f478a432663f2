//! Gates as a test writes them: settings as JSON, an answer, a source.

use std::sync::Arc;

use super::*;
use crate::contract::ground::Ground;
use crate::contract::scene::Answer;
use crate::contract::scene::Call;
use crate::contract::source::Source;
use crate::json::tree;

/// Builds one gate of a kind and adds it to the contract.
pub(crate) fn add(contract: &mut PolicyContract, kind: &str, settings: &str, presence: Presence) -> Result<(), String> {
    let kind = KINDS.iter().find(|known| known.name == kind).unwrap();
    let settings = tree::parse(settings).unwrap();
    let built = (kind.build)(&settings, &Build { contract, presence, each: None });
    let told = |errors: Vec<BuildError>| {
        errors.iter().map(|error| format!("{}: {}", error.at.join("."), error.message)).collect::<Vec<_>>().join("; ")
    };
    let gate = built.map_err(told)?;
    let (name, declared, action) = (kind.name.into(), "policy.yaml:1".into(), Action::Reject);
    contract.gates.push(GateEntry {
        name,
        kind: kind.name,
        declared,
        action,
        when: None,
        say: None,
        needs: Vec::new(),
        gate,
    });
    let beside = contract.gates.iter().map(|entry| entry.gate.check_beside(contract));
    beside.collect::<Result<(), _>>().map_err(|error| told(vec![error]))
}

/// What all gates of the contract say of an answer, each `path: message`.
pub(crate) fn judged(contract: &PolicyContract, pages: &[&str], answer: &str) -> Vec<String> {
    let violations = violations(contract, pages, answer);
    violations.iter().map(|violation| format!("{}: {}", violation.path, violation.message)).collect()
}

/// What all gates of the contract find in an answer.
pub(crate) fn violations(contract: &PolicyContract, pages: &[&str], answer: &str) -> Vec<Violation> {
    let source = Source::new(pages.iter().map(|page| Arc::from(*page)).collect(), contract.needs());
    let ground = Ground { source, ..Ground::default() };
    let (answer, call) = (Answer::read(answer).unwrap(), Call::default());
    let scene = Scene { answer: &answer, contract, ground: &ground, call: &call, schemas: &[] };
    run(&scene).violations
}
