//! The gates of a policy, from their settings; and what a retry may name of them.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::config::policy::file::GateFile;
use crate::config::policy::file::RetryFile;
use crate::config::policy::file::members;
use crate::config::resolve::Notes;
use crate::contract::PolicyContract;
use crate::contract::gate::Build;
use crate::contract::gate::GateEntry;
use crate::contract::gate::KINDS;
use crate::contract::gate::Kind;
use crate::contract::gate::Presence;
use crate::contract::gate::rule;
use crate::contract::rule::Rule;
use crate::contract::template::Names;
use crate::contract::template::Template;
use crate::contract::verdict::Action;
use crate::json::query::Query;
use crate::nearest::did_you_mean;
use crate::policy::Retry;

/// What a retry may name that is no gate of the policy: both concern the container, not what the model says in it.
const OF_THE_CONTAINER: [&str; 2] = ["extraction", "schema"];
/// Gates that a policy may have.
const GATES_MAX: usize = 200;

/// Builds every gate. One that cannot be built is reported, and its place stays empty.
pub(super) fn resolve(
    files: Vec<GateFile>,
    contract: &PolicyContract,
    notes: &mut Notes<'_>,
) -> Vec<Option<GateEntry>> {
    if files.len() > GATES_MAX {
        notes.error_at_name(&["gates"], format!("a policy has at most {GATES_MAX} gates; found {}", files.len()));
    }
    let mut above = Above::default();
    let mut gates = Vec::with_capacity(files.len());
    for (index, file) in files.into_iter().enumerate() {
        gates.push(gate(index, file, contract, &mut above, notes));
    }
    gates
}

/// Asks every gate what can only be said of it beside the others.
pub(super) fn check_beside(contract: &PolicyContract, notes: &mut Notes<'_>) {
    for (index, entry) in contract.gates.iter().enumerate() {
        let Err(error) = entry.gate.check_beside(contract) else { continue };
        let index = index.to_string();
        let own = KINDS.iter().filter(|kind| kind.name == entry.kind && !kind.stands_beside()).map(|kind| kind.name);
        let steps = error.at.iter().map(String::as_str);
        let path: Vec<&str> = ["gates", &index].into_iter().chain(own).chain(steps).collect();
        notes.error(&path, format!("gate `{}`: {}", entry.name, error.message));
    }
}

/// The gates above the one at hand.
#[derive(Default)]
struct Above {
    names: Vec<String>,
    by_name: HashMap<String, (usize, Action)>,
}

fn gate(
    index: usize,
    file: GateFile,
    contract: &PolicyContract,
    above: &mut Above,
    notes: &mut Notes<'_>,
) -> Option<GateEntry> {
    let index = index.to_string();
    let at = ["gates", index.as_str()];
    let common = file.common;
    let action = common.on_violation.unwrap_or_default();
    let needs = needs(&at, common.needs.unwrap_or_default(), action, above, notes);
    let name = common.name.unwrap_or_default();
    if let Some((other, _)) = above.by_name.get(&name).filter(|_| !name.is_empty()) {
        let other = notes.declared(&["gates", &other.to_string()]);
        let message = format!("two gates are called `{name}`; the other one is at {other}");
        notes.error(&join(&at, &["name"]), message);
    } else if OF_THE_CONTAINER.contains(&name.as_str()) {
        notes.error(
            &join(&at, &["name"]),
            format!("`{name}` is the name of what is checked before any gate; choose another"),
        );
    }
    // A name that is not there, or was reported, is nobody's.
    above.by_name.entry(name.clone()).or_insert((above.names.len(), action));
    above.names.push(name.clone());
    let (kind, settings) = kind(&at, &name, file.settings, notes)?;
    let presence = Presence {
        optional: common.optional.unwrap_or(false),
        nullable: common.nullable.unwrap_or(false),
        at_least: usize::try_from(common.at_least.unwrap_or(0)).unwrap_or(usize::MAX),
    };
    let each = common.each.as_ref().and_then(|text| query(&join(&at, &["each"]), text, notes));
    if common.each.is_some() && kind.name != "rule" {
        let message = format!("`each` goes with the kind `rule`; a `{}` names its paths itself", kind.name);
        notes.error_at_name(&join(&at, &["each"]), message);
        return None;
    }
    if notes.has_broken(&at) {
        return None; // what is missing may be what was reported
    }
    let built = (kind.build)(&settings, &Build { contract, presence, each });
    let gate = match built {
        Ok(gate) => gate,
        Err(errors) => {
            let own: &[&str] = if kind.stands_beside() { &[] } else { &[kind.name] };
            for error in errors {
                let steps: Vec<&str> = error.at.iter().map(String::as_str).collect();
                // A kind speaks of its own member by its name, or of its settings as a whole.
                let steps = if own.is_empty() && steps.is_empty() { vec![kind.name] } else { steps };
                let path = join(&join(&at, own), &steps);
                notes.error(&path, format!("gate `{name}`: {}", error.message));
            }
            return None;
        }
    };
    let looks_at_values = !gate.paths().is_empty() || common.each.is_some();
    for (member, written) in
        [("optional", presence.optional), ("nullable", presence.nullable), ("at_least", presence.at_least > 0)]
    {
        if written && !looks_at_values {
            let message = format!("`{member}` says nothing here: gate `{name}` looks at no path of the answer");
            notes.error_at_name(&join(&at, &[member]), message);
        }
    }
    let declared = notes.declared(&at).into();
    let when = common.when.as_ref().and_then(|text| {
        Rule::compile(text, &rule::known(contract))
            .map_err(|error| notes.error(&join(&at, &["when"]), error.to_string()))
            .ok()
    });
    let say = common.say.as_ref().and_then(|text| {
        let names =
            Names::new(["value", "path", "message", "this", "output"].into_iter().chain(gate.adds().iter().copied()))
                .with_members("facts", contract.facts.iter().map(|fact| fact.name().to_string()))
                .with_members("data", contract.data.0.keys().map(ToString::to_string));
        Template::compile(text, &names).map_err(|error| notes.error(&join(&at, &["say"]), error.to_string())).ok()
    });
    if (when.is_none() && common.when.is_some()) || (say.is_none() && common.say.is_some()) {
        return None;
    }
    Some(GateEntry { name: name.into(), kind: kind.name, declared, action, when, say, needs, gate })
}

/// The one kind of a gate, and its settings.
fn kind(
    at: &[&str; 2],
    name: &str,
    mut settings: serde_json::Map<String, Value>,
    notes: &mut Notes<'_>,
) -> Option<(&'static Kind, Value)> {
    let mut found = KINDS.iter().filter(|kind| settings.contains_key(kind.name));
    let Some(kind) = found.next() else {
        if !notes.has_broken(at) {
            let names = KINDS.iter().map(|kind| format!("`{}`", kind.name)).collect::<Vec<_>>().join(", ");
            notes.error(at, format!("gate `{name}` has no kind; it takes exactly one of {names}"));
        }
        return None;
    };
    // Several kinds are one fault, however many members they have.
    if let Some(other) = found.next() {
        let message =
            format!("gate `{name}` has two kinds, `{}` and `{}`; make two gates of it", kind.name, other.name);
        notes.error_at_name(&join(at, &[other.name]), message);
        return None;
    }
    let own = members(kind);
    let mut strange = false;
    for member in settings.keys().filter(|member| !own.contains(member)) {
        strange = true;
        let of = KINDS.iter().filter(|kind| members(kind).contains(member));
        let of = of.map(|kind| format!("`{}`", kind.name)).collect::<Vec<_>>().join(" or ");
        let message = format!("`{member}` goes with the kind {of}; gate `{name}` is a `{}`", kind.name);
        notes.error_at_name(&join(at, &[member]), message);
    }
    if strange {
        return None;
    }
    let settings = if kind.stands_beside() { Value::Object(settings) } else { settings.shift_remove(kind.name)? };
    Some((kind, settings))
}

fn needs(at: &[&str; 2], written: Vec<String>, action: Action, above: &Above, notes: &mut Notes<'_>) -> Vec<usize> {
    let mut needs = Vec::new();
    for (index, need) in written.iter().enumerate() {
        let index = index.to_string();
        let path = [at.as_slice(), &["needs", &index]].concat();
        match above.by_name.get(need) {
            None => {
                let near = did_you_mean(need, above.names.iter().map(String::as_str));
                notes.error(&path, format!("`needs` names `{need}`, which is no gate above this one{near}"));
            }
            Some((_, Action::Monitor)) if action != Action::Monitor => {
                let message = format!(
                    "`needs` names `{need}`, which only monitors: where it finds something, this gate would not be checked \
                     and the answer would go on"
                );
                notes.error(&path, message);
            }
            Some((place, _)) => needs.push(*place),
        }
    }
    needs
}

/// Reads a path, or reports what is wrong with it.
pub(super) fn query(path: &[&str], text: &str, notes: &mut Notes<'_>) -> Option<Query> {
    Query::read(text).map_err(|error| notes.error(path, error.to_string())).ok()
}

fn join<'s>(path: &[&'s str], more: &[&'s str]) -> Vec<&'s str> {
    [path, more].concat()
}

/// Resolves `retry`. Asking again may only be for what a model cannot please by changing its answer until it passes.
pub(super) fn retry(file: RetryFile, gates: &[Option<GateEntry>], names: &[String], notes: &mut Notes<'_>) -> Retry {
    let mut on: Vec<Arc<str>> = Vec::new();
    for (index, name) in file.on.unwrap_or_default().iter().enumerate() {
        let index = index.to_string();
        let path = ["retry", "on", index.as_str()];
        if on.iter().any(|other| **other == **name) {
            notes.error(&path, format!("`retry.on` names `{name}` twice"));
            continue;
        }
        on.push(name.as_str().into());
        if OF_THE_CONTAINER.contains(&name.as_str()) {
            continue;
        }
        if !names.contains(name) {
            let known = names.iter().map(String::as_str).chain(OF_THE_CONTAINER);
            let near = did_you_mean(name, known);
            let message = format!("`retry.on` names `{name}`, which is no gate of this policy{near}");
            notes.error(&path, message);
            continue;
        }
        // A gate that could not be built may be the one that ties the others.
        let is_whole = gates.iter().all(Option::is_some);
        let named = gates.iter().flatten().find(|gate| is_whole && *gate.name == **name);
        if let Some(message) = named.and_then(|gate| untied(gate, gates)) {
            notes.error(&path, message);
        }
    }
    let escalate = file.escalate.unwrap_or_default().iter().map(|alias| alias.as_str().into()).collect();
    Retry { attempts: file.attempts.unwrap_or(1), on, escalate }
}

/// Why asking again for a gate is a trap; none where its paths are all held by gates that are tied to the source.
fn untied(gate: &GateEntry, gates: &[Option<GateEntry>]) -> Option<String> {
    let name = &gate.name;
    let why = "asked again, a model could make up values until it passes";
    let paths = gate.gate.paths();
    if paths.is_empty() {
        return Some(format!(
            "`retry.on` names `{name}`, whose paths are not known, so that none is tied to the source; {why}"
        ));
    }
    // One that only monitors, or runs only at times, stops nothing when it is needed.
    let tied = |path: &Query| {
        let enforcing = gates.iter().flatten().filter(|other| other.gate.is_tied_to_source());
        let mut enforcing = enforcing.filter(|other| other.action != Action::Monitor && other.when.is_none());
        enforcing.any(|other| other.gate.paths().iter().any(|own| own.covers(path)))
    };
    let loose = paths.into_iter().find(|path| !tied(path))?;
    Some(format!(
        "`retry.on` names `{name}`, whose path `{loose}` no gate ties to the source (`provenance`, `quote`, `fact`); {why}"
    ))
}
