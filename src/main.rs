//! The `portcullis` command: reads the arguments, runs one command, prints the error chain, chooses the exit code.

use std::process::ExitCode;

use clap::Parser as _;
use portcullis::cli::Cli;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    portcullis::cli::run(Cli::parse())
}
