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
use serde_json::Value;
use serde_json::json;

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
use crate::report::text;
use crate::settings::SchemaLimits;
use crate::stage::judge;
use crate::stage::judge::Failed;
use crate::stage::judge::Known;
use crate::stage::judge::Refused;
use crate::stage::judge::Verdict;
use crate::wire::fault::Code;

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
    let verdict = judge::judge(&contract, &reply, &tags, &Known::nothing()).verdict;
    let accepted = matches!(verdict, Verdict::Accept(_));
    match arguments.format {
        Format::Json => say!("{:#}", as_json(&verdict, &text)),
        Format::Text => {
            let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            let name = if arguments.answer == Path::new("-") {
                "answer".into()
            } else {
                arguments.answer.display().to_string()
            };
            say_on!("{}", text::verdict(&verdict, &name, &text, colour));
        }
    }
    Ok(if accepted { ExitCode::SUCCESS } else { ExitCode::from(1) })
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

fn as_json(verdict: &Verdict, text: &str) -> Value {
    let (outcome, code, stage) = outcome(verdict);
    let mut out = json!({
        "outcome": outcome, "code": code.map(Code::as_str), "stage": stage, "policy": [], "extraction": null,
        "violations_total": 0, "violations": [], "not_checked": [], "questions": [],
    });
    let Some(members) = out.as_object_mut() else { return out };
    match verdict {
        Verdict::Accept(accepted) => {
            if let Some((slice, rung)) =
                accepted.choices().first().and_then(|choice| choice.slice.clone().zip(choice.rung))
            {
                let (start, end) = (slice.start, slice.end);
                members.insert("extraction".to_owned(), json!({"rung": rung.as_str(), "start": start, "end": end}));
                let answer = crate::json::tree::built(text.get(slice).unwrap_or_default()).unwrap_or_default();
                members.insert("answer".to_owned(), answer);
            }
        }
        Verdict::Reject(rejection) => {
            let listed = rejection.violations.iter().map(|violation| {
                let mut one = json!({
                    "policy": violation.policy.as_deref(), "gate": &*violation.gate, "kind": violation.kind, "path": violation.path.to_string(),
                    "message": violation.message, "action": violation.action.as_str(),
                });
                if let (Some(at), Some(one)) = (&violation.at, one.as_object_mut()) {
                    one.insert("at".to_owned(), json!({"start": at.start, "end": at.end}));
                }
                one
            });
            let listed: Vec<Value> = listed.collect();
            members.insert("violations_total".to_owned(), json!(rejection.violations.total()));
            members.insert("violations".to_owned(), Value::Array(listed));
        }
        Verdict::Clarify(_) | Verdict::Refuse(_) | Verdict::Fail(_) => {}
    }
    out
}

/// The outcome, code and stage of a verdict, as error bodies have them.
fn outcome(verdict: &Verdict) -> (&'static str, Option<Code>, &'static str) {
    match verdict {
        Verdict::Accept(_) => ("accepted", None, "judge"),
        Verdict::Clarify(_) => ("clarified", None, "judge"),
        Verdict::Reject(rejection) => ("rejected", Some(rejection.code), rejection.stage),
        Verdict::Refuse(Refused::Model | Refused::Filter) => ("refused", None, "extract"),
        Verdict::Fail(Failed::Empty) => ("failed", Some(Code::OutputEmpty), "extract"),
        Verdict::Fail(Failed::Reported) => ("failed", Some(Code::UpstreamError), "extract"),
        Verdict::Fail(Failed::Unfinished) => ("failed", Some(Code::UpstreamProtocol), "extract"),
    }
}
