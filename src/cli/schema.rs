//! `portcullis schema`

use std::process::ExitCode;

use clap::Args;
use clap::ValueEnum;

use super::Failure;
use crate::audit;
use crate::config;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Which file format
    #[arg(value_enum)]
    of: Of,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Of {
    /// The configuration file
    Config,
    /// A policy's `policy.yaml`
    Policy,
    /// One line of a policy's `controls.jsonl`
    Controls,
    /// One line of the audit file
    Audit,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match arguments.of {
        Of::Config => say!("{:#}", config::schema()),
        Of::Policy => say!("{:#}", config::policy::schema()),
        Of::Controls => say!("{:#}", config::policy::controls_schema()),
        Of::Audit => say!("{:#}", audit::schema()),
    }
    Ok(ExitCode::SUCCESS)
}
