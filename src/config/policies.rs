//! The policies of a configuration: loaded, told apart, and proved by their controls.

use std::path::Path;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::config::Proof;
use crate::config::policy;
use crate::config::policy::Loaded;
use crate::config::policy::bundle::Files;
use crate::config::problem::ConfigError;
use crate::config::problem::ConfigErrors;
use crate::config::problem::Place;
use crate::config::resolve::Notes;
use crate::nearest::did_you_mean;
use crate::settings::SchemaLimits;

/// The bundles that are in the binary, and what was found wrong in any bundle.
pub(super) struct Bundles<'b> {
    /// Policies that are there where the configuration names no folder of them.
    pub(super) embedded: &'b [Files],
    /// What is wrong in other files than the configuration.
    pub(super) errors: Vec<ConfigErrors>,
}

impl Bundles<'_> {
    fn error(&mut self, file: &str, line: Option<usize>, message: String) {
        let place = line.map(|line| Place { line, column: 1, excerpt: None });
        self.errors.push(ConfigErrors::one(ConfigError { name: file.to_owned(), message, place }));
    }
}

/// Loads every policy and runs its controls. What is wrong with one is reported beside the errors of the configuration.
pub(super) fn resolve(
    written: Option<String>,
    folder: &Path,
    limits: SchemaLimits,
    controls_required: bool,
    notes: &mut Notes<'_>,
    bundles: &mut Bundles<'_>,
) -> Vec<Proof> {
    let path = ["policies"];
    let loaded = match written.map(|written| folder.join(written)) {
        None => policy::together(bundles.embedded, limits),
        Some(policies) => match std::fs::metadata(&policies) {
            Ok(found) if found.is_dir() => policy::in_folder(&policies, limits),
            Ok(_) => {
                notes.error(&path, format!("{} of `policies` is not a folder", notes.quoted(&path)));
                return Vec::new();
            }
            Err(error) => {
                let message = format!("the folder {} of `policies` cannot be opened: {error}", notes.quoted(&path));
                notes.error(&path, message);
                return Vec::new();
            }
        },
    };
    let mut loaded = loaded.unwrap_or_else(|errors| {
        bundles.errors.push(errors);
        Vec::new()
    });
    loaded.sort_by(|one, other| one.policy.name.cmp(&other.policy.name));
    loaded.into_iter().map(|loaded| proved(loaded, limits, controls_required, notes, bundles)).collect()
}

/// Runs a policy's controls. One that does not hold is an error: the policy does not do what its author says.
fn proved(
    loaded: Loaded,
    limits: SchemaLimits,
    controls_required: bool,
    notes: &mut Notes<'_>,
    bundles: &mut Bundles<'_>,
) -> Proof {
    let Loaded { policy, file, controls, controls_file, warnings } = loaded;
    notes.warnings.extend(warnings);
    let policy = Arc::new(policy);
    for outcome in policy::run_controls(&policy, &controls, limits) {
        if let Some(fault) = outcome.fault {
            let message = format!("the control `{}` does not hold: {fault}", outcome.name);
            bundles.error(&controls_file, Some(outcome.line), message);
        }
    }
    for missing in policy::untested(&policy, &controls) {
        let message = format!("policy `{}` is not proved: {missing}", policy.name);
        if controls_required {
            bundles.error(&controls_file, None, message);
        } else {
            notes.warnings.push(format!("{controls_file}: {message}"));
        }
    }
    Proof { policy, policy_file: file, controls_file, controls }
}

/// Whether the aliases that policies name are there.
pub(super) fn check_aliases(proofs: &[Proof], catalog: &Catalog, notes: &mut Notes<'_>, bundles: &mut Bundles<'_>) {
    for Proof { policy, policy_file: file, .. } in proofs {
        for alias in policy.retry.iter().flat_map(|retry| &retry.escalate) {
            if catalog.alias(alias).is_none() {
                let near = did_you_mean(alias, catalog.aliases.keys().map(String::as_str));
                let message = format!("`retry.escalate` names `{alias}`, which is no model of the configuration{near}");
                bundles.error(file, None, message);
            }
        }
        let globs = policy.matches.iter().flat_map(|entry| &entry.models);
        let idle = globs.filter(|glob| !catalog.aliases.keys().any(|alias| glob.matches(alias)));
        for glob in idle.filter(|_| catalog.fallback.is_none()) {
            notes.warnings.push(format!("{file}: `match` names the model `{}`, which no alias matches", glob.as_str()));
        }
    }
}
