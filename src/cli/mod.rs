//! The commands, one file each. Exit codes: 0 good; 1 judged and not accepted; 2 wrong usage or invalid
//! input; 3 something outside failed.
#![allow(clippy::print_stderr)] // errors are said on standard error, here alone

/// Prints a line of what a command has to say. A reader that has gone wants no more, and is no fault.
macro_rules! say {
    () => { crate::cli::print("\n") };
    ($($text:tt)*) => { crate::cli::print(&format!("{}\n", format_args!($($text)*))) };
}

/// The same without ending the line.
macro_rules! say_on {
    ($($text:tt)*) => { crate::cli::print(&format!($($text)*)) };
}

mod certs;
mod check;
mod completions;
mod demo;
mod golden;
mod health;
mod policy;
mod progress;
mod schema;
mod serve;
mod validate;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;

use crate::config;
use crate::config::ConfigErrors;
use crate::config::Configuration;
use crate::upstream::scripted::BEHAVIOURS;

/// The configuration file that is read where none is named and it is there.
const DEFAULT_FILE: &str = "config/portcullis.yaml";

/// A fail-closed LLM gateway: answers that should be data are judged by a deterministic contract before
/// they reach the caller.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway
    #[command(
        after_help = "Example:\n  portcullis serve --config config/portcullis.yaml\n  portcullis serve            # without any file: the embedded default, with the scripted demo model"
    )]
    Serve(ConfigArgs),
    /// Run the gateway on the scripted demo model, send it a handful of requests and show what came of each
    #[command(after_help = "Example:\n  portcullis demo\n  portcullis demo --list")]
    Demo(demo::Arguments),
    /// Check a configuration and list every problem
    #[command(after_help = "Example:\n  portcullis validate --config config/portcullis.yaml")]
    Validate(ConfigArgs),
    /// Judge one recorded answer
    #[command(
        after_help = "Example:\n  echo '{\"age\": \"17\"}' | portcullis check --schema person.schema.json\n  portcullis check --request request.json --finish-reason length answer.txt\n  portcullis check --policy policies/invoices --source page1.txt --source page2.txt answer.txt"
    )]
    Check(check::Arguments),
    /// Judge a recorded set, and compare with what each record should come to
    #[command(
        after_help = "Example:\n  portcullis golden --policy policies/orders recorded.jsonl\n  portcullis golden --policy orders recorded.jsonl --min-pass-rate 0.99 --report report.html --junit junit.xml"
    )]
    Golden(golden::Arguments),
    /// Make certificates to try TLS with
    #[command(after_help = "Example:\n  portcullis certs dev certs")]
    Certs(certs::Arguments),
    /// Print the JSON Schema of a file format
    #[command(after_help = "Example:\n  portcullis schema config > portcullis.schema.json")]
    Schema(schema::Arguments),
    /// Ask a running gateway whether it is ready: for probes and container health checks
    #[command(after_help = "Example:\n  portcullis health\n  portcullis health http://127.0.0.1:8788/readyz")]
    Health(health::Arguments),
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  portcullis completions bash > /etc/bash_completion.d/portcullis")]
    Completions(completions::Arguments),
}

/// Where the configuration is.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// The configuration file; without one, `config/portcullis.yaml` where it is there, else the embedded default
    #[arg(long, env = "PORTCULLIS_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For a person
    Text,
    /// For a program
    Json,
}

/// How a command failed, with the exit code that says so.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The input is not valid: exit code 2.
    #[error("{0}")]
    Input(anyhow::Error),
    /// The configuration is not valid: exit code 2.
    #[error("{0}")]
    Config(ConfigErrors),
    /// Something outside failed: exit code 3.
    #[error("{0}")]
    Outside(anyhow::Error),
}

impl Failure {
    fn outside(error: impl Into<anyhow::Error>) -> Self {
        Self::Outside(error.into())
    }
}

/// Prints to standard output.
fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes()); // the reader may have gone
}

/// Runs one command and gives its exit code.
pub fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Validate(arguments) => validate::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Golden(arguments) => golden::run(&arguments),
        Command::Certs(arguments) => certs::run(&arguments),
        Command::Schema(arguments) => schema::run(&arguments),
        Command::Health(arguments) => health::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    };
    let _ = std::io::stdout().flush(); // a reader that has gone wants no more
    match result {
        Ok(code) => code,
        Err(Failure::Config(errors)) => {
            eprintln!("{errors}");
            ExitCode::from(2)
        }
        Err(Failure::Input(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
        Err(Failure::Outside(error)) => {
            eprintln!("error: {error:#}");
            ExitCode::from(3)
        }
    }
}

/// The environment, as the configuration reads it.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The configuration that is named, or the default file, or the embedded default.
fn configuration(arguments: &ConfigArgs) -> Result<(Configuration, String), Failure> {
    let default = PathBuf::from(DEFAULT_FILE);
    let file = arguments.config.clone().or_else(|| default.is_file().then_some(default));
    match file {
        Some(file) => {
            let loaded = config::load(&file, &environment).map_err(Failure::Config)?;
            Ok((loaded, file.display().to_string()))
        }
        None => Ok((embedded()?, "the embedded default".to_owned())),
    }
}

fn embedded() -> Result<Configuration, Failure> {
    let behaviours: Vec<&str> = BEHAVIOURS.iter().map(|(name, _)| *name).collect();
    config::embedded(&environment, &behaviours).map_err(Failure::Config)
}

/// The runtime that commands with sockets run on.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::outside)
}
