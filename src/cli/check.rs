//! `portcullis check`: the same extraction and the same gates as on the wire, on one recorded answer.

use std::io::IsTerminal as _;
use std::io::Read as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;

use super::ConfigArgs;
use super::Failure;
use super::Format;
use super::policy;
use crate::api::ingress::chat::ChatRequest;
use crate::api::reply::Finish;
use crate::contract::scene::Call;
use crate::contract::schema::CompiledSchema;
use crate::exchange::recorded::Judge;
use crate::exchange::recorded::NotJudged;
use crate::exchange::recorded::Recorded;
use crate::report::outcome::Ended;
use crate::report::outcome::Judged;
use crate::report::text;
use crate::report::text::Given;
use crate::settings::SchemaLimits;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArgs,
    /// The policy to judge by: its name, or the path of its folder
    #[arg(long, value_name = "POLICY", conflicts_with = "schema")]
    policy: Option<String>,
    /// The JSON Schema that the answer must satisfy
    #[arg(long, value_name = "FILE", conflicts_with_all = ["request", "source"], required_unless_present_any = ["request", "policy"])]
    schema: Option<PathBuf>,
    /// The chat request that the answer was given to: its own response format is the contract, or is added to the policy's
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// A page of the source that the policy ties the answer to; once for each page
    #[arg(long, value_name = "FILE", requires = "policy")]
    source: Vec<PathBuf>,
    /// Why the model stopped, as the backend said
    #[arg(long, value_name = "REASON", default_value = "stop")]
    finish_reason: String,
    /// How to print the verdict
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// The model's text; `-` or nothing reads standard input
    #[arg(value_name = "FILE", default_value = "-")]
    answer: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let judge = judge(arguments)?;
    let recorded = recorded(arguments).map_err(Failure::Input)?;
    let heard = judge.judge(recorded).map_err(|error| Failure::Input(unjudged(error, arguments)))?;
    let judged = Judged::of(&heard, &judge);
    match arguments.format {
        Format::Json => say!("{}", serde_json::to_string_pretty(&judged).map_err(Failure::outside)?),
        Format::Text => {
            let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let name = match arguments.answer.to_str() {
                Some("-") => "answer".to_owned(),
                _ => arguments.answer.display().to_string(),
            };
            let given = Given { name: &name, text: heard.text(), pages: heard.pages() };
            say_on!("{}", text::verdict(&judged, given, colour));
        }
    }
    Ok(if judged.outcome == Ended::Accepted { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn judge(arguments: &Arguments) -> Result<Judge, Failure> {
    if let Some(named) = &arguments.policy {
        return policy::judge(named, &arguments.config);
    }
    let Some(file) = &arguments.schema else { return Ok(Judge::by_request(SchemaLimits::default())) };
    let compiled = read(file).and_then(|text| {
        let compiled = CompiledSchema::compile(text.into(), SchemaLimits::default()).map_err(anyhow::Error::from);
        compiled.with_context(|| file.display().to_string())
    });
    Ok(Judge::by_schema(Arc::new(compiled.map_err(Failure::Input)?)))
}

fn recorded(arguments: &Arguments) -> anyhow::Result<Recorded> {
    let request = arguments.request.as_ref().map(|file| {
        let request = ChatRequest::read(read(file)?.into());
        request.with_context(|| file.display().to_string())
    });
    let page = |file: &PathBuf| read_text(file, &format!("the page {}", file.display())).map(Arc::from);
    let pages = arguments.source.iter().map(page).collect::<anyhow::Result<Vec<Arc<str>>>>()?;
    Ok(Recorded {
        request: request.transpose()?,
        source: (!pages.is_empty()).then_some(pages),
        output: read_text(&arguments.answer, "the answer")?,
        finish: Finish::read(&arguments.finish_reason),
        call: Call::default(),
    })
}

/// The error with the file whose fault it is.
fn unjudged(error: NotJudged, arguments: &Arguments) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    match &arguments.request {
        Some(file) => error.context(file.display().to_string()),
        None => error,
    }
}

fn read_text(file: &Path, what: &str) -> anyhow::Result<String> {
    String::from_utf8(read(file)?).with_context(|| format!("{what} is not UTF-8"))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text).context("standard input")?;
        return Ok(text);
    }
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
