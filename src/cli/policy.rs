//! The policy that an offline command judges by: by its name in the configuration, or by the path of its folder.

use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;

use super::ConfigArgs;
use super::Failure;
use super::configuration;
use crate::config::policy;
use crate::config::policy::bundle::Files;
use crate::exchange::recorded::Judge;
use crate::nearest::did_you_mean;
use crate::policy::Policy;
use crate::settings::SchemaLimits;

/// The judge for the policy of this name, or in this folder. What can only be a path is not looked up in the
/// configuration, which then need not be there.
pub(super) fn judge(named: &str, config: &ConfigArgs) -> Result<Judge, Failure> {
    let path = Path::new(named);
    if named.contains(std::path::MAIN_SEPARATOR) || named.starts_with('.') {
        return in_folder(path);
    }
    let (configuration, source) = configuration(config)?;
    if let Some(policy) = configuration.policies.get(named) {
        return of(Arc::clone(policy), configuration.settings.listen.limits.schema);
    }
    if path.is_dir() {
        return in_folder(path);
    }
    let names = || configuration.policies.iter().map(|policy| &*policy.name);
    let known: Vec<String> = names().map(|name| format!("`{name}`")).collect();
    let known = if known.is_empty() { "no policy".to_owned() } else { known.join(", ") };
    let meant = did_you_mean(named, names());
    let message = format!("no policy is called `{named}`, and there is no such folder; {source} has {known}{meant}");
    Err(Failure::Input(anyhow!(message)))
}

fn in_folder(path: &Path) -> Result<Judge, Failure> {
    let files = Files::folder(path).map_err(|error| Failure::Input(anyhow!("{} {error}", path.display())))?;
    let limits = SchemaLimits::default();
    let loaded = policy::load(&files, limits).map_err(Failure::Config)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {warning}");
    }
    of(Arc::new(loaded.policy), limits)
}

fn of(policy: Arc<Policy>, limits: SchemaLimits) -> Result<Judge, Failure> {
    Judge::by_policy(policy, limits).map_err(|error| Failure::Input(error.into()))
}
