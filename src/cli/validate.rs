//! `portcullis validate`

use std::process::ExitCode;

use super::ConfigArgs;
use super::Failure;
use super::configuration;
use crate::upstream::client::Backends;

pub(super) fn run(arguments: &ConfigArgs) -> Result<ExitCode, Failure> {
    let (configuration, source) = configuration(arguments)?;
    // What only shows when connections are set up shows here too.
    Backends::new(&configuration.catalog).map_err(Failure::outside)?;
    for warning in &configuration.warnings {
        say!("warning: {warning}");
    }
    for proof in &configuration.proofs {
        let (gates, controls) = (proof.policy.contract.gates.len(), proof.controls.len());
        let name = &proof.policy.name;
        say!("policy {name}: {gates} gates; {controls} controls, all of which hold");
    }
    let aliases = configuration.catalog.aliases.len() + usize::from(configuration.catalog.fallback.is_some());
    say!("{source} is valid: {aliases} model aliases");
    Ok(ExitCode::SUCCESS)
}
