//! `portcullis check`: the same extraction and the same gates as on the wire, on one recorded answer.

use std::io::IsTerminal as _;
use std::io::Read as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;

use super::Failure;
use super::Format;
use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::chat::Wants;
use crate::api::reply::Choice;
use crate::api::reply::Finish;
use crate::api::reply::Reply;
use crate::contract::ContentContract;
use crate::contract::Contract;
use crate::contract::schema::CompiledSchema;
use crate::dialect::table::BackendKind;
use crate::dialect::table::Capabilities;
use crate::report::outcome::Ended;
use crate::report::outcome::Judged;
use crate::report::text;
use crate::report::text::Given;
use crate::settings::SchemaLimits;
use crate::stage::judge;
use crate::stage::judge::Known;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The JSON Schema that the answer must satisfy
    #[arg(long, value_name = "FILE", conflicts_with = "request", required_unless_present = "request")]
    schema: Option<PathBuf>,
    /// The chat request that the answer was given to: its own response format is the contract
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
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
    let contract = contract(arguments).map_err(Failure::Input)?;
    let text = read(&arguments.answer).map_err(Failure::Input)?;
    let text = String::from_utf8(text).context("the answer is not UTF-8").map_err(Failure::Input)?;
    let content = ContentContract::clone(&contract);
    let contract = Contract { content: Some(content), ..Contract::default() };
    let choice = Choice {
        content: Some(text.clone()),
        finish: Some(Finish::read(&arguments.finish_reason)),
        ..Choice::default()
    };
    let reply = Reply { choices: vec![choice], ..Reply::default() };
    let tags = Capabilities::of(BackendKind::OpenaiCompatible).reasoning_tags;
    let judged = Judged::of(&judge::judge(&contract, &reply, &tags, &Known::nothing()), &text, None);
    match arguments.format {
        Format::Json => say!("{}", serde_json::to_string_pretty(&judged).map_err(Failure::outside)?),
        Format::Text => {
            let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let name = if arguments.answer == Path::new("-") {
                "answer".into()
            } else {
                arguments.answer.display().to_string()
            };
            say_on!("{}", text::verdict(&judged, Given { name: &name, text: &text, pages: &[] }, colour));
        }
    }
    Ok(if judged.outcome == Ended::Accepted { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn contract(arguments: &Arguments) -> anyhow::Result<ContentContract> {
    let compile = |text: Bytes, whose: &str| {
        let schema = CompiledSchema::compile(text, SchemaLimits::default()).map_err(anyhow::Error::from);
        schema.map(|schema| ContentContract::schema(Arc::new(schema))).with_context(|| whose.to_owned())
    };
    if let Some(file) = &arguments.schema {
        return compile(read(file)?.into(), &file.display().to_string());
    }
    let file = arguments.request.as_ref().context("name a schema with --schema or a request with --request")?;
    let request = ChatRequest::read(read(file)?.into()).with_context(|| file.display().to_string())?;
    match request.response_format.as_ref().map(|format| &format.wants) {
        Some(Wants::JsonObject) => Ok(ContentContract::object()),
        Some(Wants::Schema { .. }) => {
            compile(request.schema().unwrap_or_default(), &format!("the schema in {}", file.display()))
        }
        Some(Wants::Anything) | None => {
            anyhow::bail!("{}: the request has no response format that is a contract", file.display())
        }
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text).context("standard input")?;
        return Ok(text);
    }
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
