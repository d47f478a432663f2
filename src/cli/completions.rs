//! `portcullis completions`

use std::process::ExitCode;

use clap::Args;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Cli;
use super::Failure;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "portcullis", &mut script);
    say_on!("{}", String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}
