//! `portcullis schema`

use std::process::ExitCode;

use clap::Args;
use clap::ValueEnum;

use super::Failure;
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
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    match arguments.of {
        Of::Config => say!("{:#}", config::schema()),
    }
    Ok(ExitCode::SUCCESS)
}
