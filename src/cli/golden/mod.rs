//! `portcullis golden`: a recorded set, judged on the same core as on the wire, against what each record should come to.

mod record;
mod run;

use std::fs::File;
use std::io::BufReader;
use std::io::IsTerminal as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::ConfigArgs;
use super::Failure;
use super::Format;
use super::golden::run::Part;
use super::golden::run::Run;
use super::policy;
use crate::report::golden::Golden;
use crate::report::html;

/// Bytes that are read at once.
const READ: usize = 1 << 18;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgs,
    /// The policy to judge by: its name, or the path of its folder
    #[arg(long, value_name = "POLICY")]
    policy: String,
    /// The share of records that must come to what they should, from 0 to 1
    #[arg(long, value_name = "RATE", default_value = "1.0", value_parser = rate)]
    min_pass_rate: f64,
    /// Write a report in one HTML file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write JUnit XML, one test case a record
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Threads that judge; as many as there are processors where nothing is said
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// How to print what came of it
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// The set, in JSON Lines; `-` reads standard input
    #[arg(value_name = "FILE")]
    set: PathBuf,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "expected a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&rate) { Ok(rate) } else { Err("expected a number from 0 to 1".to_owned()) }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let judge = policy::judge(&arguments.policy, &arguments.config)?;
    let file = arguments.set.display().to_string();
    let threads = arguments.threads.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let run = Run {
        judge: &judge,
        file: &file,
        threads,
        keeps_texts: arguments.report.is_some(),
        writes_junit: arguments.junit.is_some(),
        lists_all: arguments.format == Format::Json,
    };
    let part = judged(&run, &arguments.set).map_err(Failure::Input)?;
    let Part { tally, unexpected, suite } = part;
    let policy = judge.policy().map(|policy| policy.name.to_string()).unwrap_or_default();
    let golden = Golden { policy, tally, unexpected };
    if let Some(path) = &arguments.report {
        write(path, html::golden(&golden).map_err(Failure::outside)?)?;
    }
    if let Some(path) = &arguments.junit {
        write(path, suite.xml(&golden.policy))?;
    }
    match arguments.format {
        Format::Json => say!("{}", serde_json::to_string_pretty(&golden).map_err(Failure::outside)?),
        Format::Text => {
            let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            say_on!("{}", golden.text(colour));
        }
    }
    Ok(if golden.tally.rate() >= arguments.min_pass_rate { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn judged(run: &Run<'_>, set: &Path) -> anyhow::Result<Part> {
    let part = if set == Path::new("-") {
        run.all(&mut BufReader::with_capacity(READ, std::io::stdin().lock()), None)?
    } else {
        let file = File::open(set).with_context(|| format!("cannot read {}", set.display()))?;
        let whole = file.metadata().ok().map(|about| about.len());
        run.all(&mut BufReader::with_capacity(READ, file), whole)?
    };
    // A set of nothing would pass at any rate.
    anyhow::ensure!(part.tally.records > 0, "{} holds no record", set.display());
    Ok(part)
}

fn write(path: &Path, text: String) -> Result<(), Failure> {
    let written = std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()));
    written.map_err(Failure::Outside)
}
