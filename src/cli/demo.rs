//! `portcullis demo`: every user's first minute. A gateway on free ports, the scripted model behind it,
//! real sockets in between; for each request what the model said beside what the caller got.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Mutex;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use http::Request;
use http_body_util::BodyExt as _;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Failure;
use super::runtime;
use crate::api::backend::openai_stream::Collector;
use crate::config;
use crate::exchange::Gateway;
use crate::report::text::Paint;
use crate::server::Server;
use crate::server::listen::Listeners;
use crate::stage::send::Call;
use crate::stage::send::Upstream;
use crate::stage::send::UpstreamError;
use crate::stage::send::UpstreamReply;
use crate::telemetry::Metrics;
use crate::upstream::scripted::BEHAVIOURS;
use crate::upstream::scripted::Scripted;
use crate::wire::sse::EventReader;

/// Columns of each side.
const SIDE: usize = 56;
/// Lines of each side.
const LINES: usize = 9;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// List what the scripted model can do, and end
    #[arg(long)]
    list: bool,
}

/// One request of the show.
struct Scene {
    behaviour: &'static str,
    how: How,
    /// What to look at.
    point: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// A guest says this, and the policy `orders` judges the order.
    Order(&'static str),
    /// The same, streamed.
    OrderStream(&'static str),
    Plain,
    Whole,
    Stream,
    Tool,
}

const SCENES: &[Scene] = &[
    Scene {
        behaviour: "order_right",
        how: How::Order("A large iced latte with vanilla, please."),
        point: "what was asked for, and on the menu",
    },
    Scene {
        behaviour: "order_allergen",
        how: How::Order("I'm allergic to peanuts. Prawn noodles, please."),
        point: "valid JSON that the kitchen must not cook",
    },
    Scene {
        behaviour: "order_invented",
        how: How::Order("A margherita with pineapple, please."),
        point: "a topping that no menu has",
    },
    Scene {
        behaviour: "order_forgotten",
        how: How::OrderStream("I'm not allergic to eggs, but to sesame. A tomato soup, please."),
        point: "an allergy that the model forgot, streamed",
    },
    Scene { behaviour: "clean", how: How::Whole, point: "bare JSON goes through, byte for byte" },
    Scene { behaviour: "fenced", how: How::Whole, point: "a fence is taken off, nothing inside is touched" },
    Scene { behaviour: "preamble", how: How::Whole, point: "prose around the JSON is left behind" },
    Scene { behaviour: "think", how: How::Whole, point: "reasoning is another channel: its draft is not the answer" },
    Scene { behaviour: "slow", how: How::Stream, point: "a stream is held until its verdict, then sent" },
    Scene { behaviour: "wrong_type", how: How::Whole, point: "valid JSON of the wrong shape never leaves" },
    Scene { behaviour: "array", how: How::Whole, point: "an array is not the object that was asked for" },
    Scene { behaviour: "echo", how: How::Whole, point: "the schema itself is no instance of it" },
    Scene { behaviour: "broken", how: How::Whole, point: "a trailing comma is not repaired: a guess can be wrong" },
    Scene { behaviour: "duplicate_key", how: How::Whole, point: "two values under one key: nobody may choose" },
    Scene { behaviour: "two", how: How::Whole, point: "two different answers: the text may not choose which counts" },
    Scene { behaviour: "truncated", how: How::Whole, point: "a cut answer is told apart from a wrong one" },
    Scene { behaviour: "prose", how: How::Stream, point: "a stream without data is an error before its first byte" },
    Scene { behaviour: "refusal", how: How::Whole, point: "a refusal stays a refusal: SDKs show `message.refusal`" },
    Scene { behaviour: "filtered", how: How::Whole, point: "what the provider's filter cut is not data" },
    Scene { behaviour: "empty", how: How::Whole, point: "nothing at all is the backend's failure, not a parse error" },
    Scene { behaviour: "overloaded", how: How::Whole, point: "an error inside a 200 becomes a real status" },
    Scene { behaviour: "wrong_type", how: How::Tool, point: "a forced tool call is judged like any answer" },
    Scene { behaviour: "clean", how: How::Plain, point: "no contract asked for: relayed as it comes" },
];

impl How {
    fn streams(self) -> bool {
        matches!(self, Self::Stream | Self::OrderStream(_))
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.list {
        for (name, what) in BEHAVIOURS {
            say!("demo/{name:<14} {what}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = runtime()?;
    runtime.block_on(show()).map_err(Failure::Outside)?;
    Ok(ExitCode::SUCCESS)
}

async fn show() -> anyhow::Result<()> {
    let paint = Paint { colour: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() };
    let said = Arc::new(Mutex::new(Bytes::new()));
    let listeners = Listeners::bind(([127, 0, 0, 1], 0).into(), ([127, 0, 0, 1], 0).into()).await?;
    let address = listeners.main_address()?;
    let server = server(Arc::clone(&said))?;
    let drain = server.gateway.settings.drain;
    let (ending, at_once) = (CancellationToken::new(), CancellationToken::new());
    let serving = listeners.serve(Arc::clone(&server), ending.clone(), at_once, drain);
    let asking = async {
        let shown = scenes(&address.to_string(), &said, &paint).await;
        ending.cancel();
        shown
    };
    let ((), shown) = tokio::join!(serving, asking);
    shown
}

fn server(said: Arc<Mutex<Bytes>>) -> anyhow::Result<Arc<Server<Tap>>> {
    let behaviours: Vec<&str> = BEHAVIOURS.iter().map(|(name, _)| *name).collect();
    let nothing = |_: &str| None;
    let configuration = config::embedded(&nothing, &behaviours)?;
    let gateway = Gateway::new(
        configuration.settings,
        configuration.catalog,
        configuration.policies,
        Tap { model: Scripted::default(), said },
    );
    let metrics = Metrics::new(Arc::clone(&gateway.in_flight), Arc::clone(&gateway.held))?;
    Ok(Arc::new(Server::new(gateway, metrics, None)))
}

/// The scripted model, with a tap on what it says.
struct Tap {
    model: Scripted,
    said: Arc<Mutex<Bytes>>,
}

impl Upstream for Tap {
    async fn send(&self, call: Call) -> Result<UpstreamReply, UpstreamError> {
        let reply = self.model.send(call).await?;
        let body = reply.body.collect().await?.to_bytes();
        if let Ok(mut said) = self.said.lock() {
            *said = body.clone();
        }
        let body = Full::new(body).map_err(|never| match never {});
        Ok(UpstreamReply { status: reply.status, headers: reply.headers, body: Box::pin(body) })
    }
}

async fn scenes(address: &str, said: &Mutex<Bytes>, paint: &Paint) -> anyhow::Result<()> {
    let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    say!("{}", paint.bold("Portcullis: what the model said, and what the caller got"));
    say!("A gateway on http://{address}, a scripted model behind it, real sockets in between.");
    say!(
        "The first of them are orders in a restaurant, judged by the policy `orders`: schema, menu, and what guests say.\n"
    );
    let mut counts: Vec<(String, usize)> = Vec::new();
    for (index, scene) in SCENES.iter().enumerate() {
        if scene.behaviour == "clean" && scene.how == How::Whole {
            say!("The rest asks for this schema, unless it says otherwise:\n");
            say!("  {}\n", paint.dim(&schema().to_string()));
        }
        let got =
            ask(&client, address, scene).await.with_context(|| format!("the request to demo/{}", scene.behaviour))?;
        let model = said.lock().map(|said| said.clone()).unwrap_or_default();
        let how = match scene.how {
            How::Order(said) | How::OrderStream(said) => said,
            How::Plain => "no response format",
            How::Whole => "response_format: json_schema",
            How::Stream => "response_format: json_schema, stream: true",
            How::Tool => "a forced tool with that schema",
        };
        let title = format!("{:>2}  demo/{}", index + 1, scene.behaviour);
        say!("{}  {}", paint.bold(&title), paint.dim(&format!("{how} · {}", scene.point)));
        let outcome = got.outcome.clone();
        say_on!("{}", beside(&model_text(&model, scene.how.streams()), &got, paint));
        say!();
        match counts.iter_mut().find(|(name, _)| *name == outcome) {
            Some((_, count)) => *count += 1,
            None => counts.push((outcome, 1)),
        }
    }
    let counts: Vec<String> = counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    say!(
        "{} requests: {}. No answer that breaks its schema or its policy reached the caller.\n",
        SCENES.len(),
        counts.join(", ")
    );
    say!("{}", paint.bold("Now with your own client:"));
    say!("  portcullis serve                                     # the same scripted model, on http://127.0.0.1:8787");
    say!("  OPENAI_API_KEY=... portcullis serve                  # and OpenAI behind it");
    say!("  client = OpenAI(base_url=\"http://127.0.0.1:8787/v1\", api_key=\"any\")");
    Ok(())
}

fn schema() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["customer", "item", "quantity"],
        "properties": {"customer": {"type": "string"}, "item": {"type": "string"}, "quantity": {"type": "integer", "minimum": 1, "maximum": 20}},
    })
}

/// What the caller got.
struct Got {
    status: u16,
    outcome: String,
    rung: String,
    text: String,
}

async fn ask(client: &Client<HttpConnector, Full<Bytes>>, address: &str, scene: &Scene) -> anyhow::Result<Got> {
    let mut body = json!({
        "model": format!("demo/{}", scene.behaviour),
        "messages": [{"role": "user", "content": match scene.how {
            How::Order(said) | How::OrderStream(said) => said,
            _ => "Ada Lovelace would like two large coffees.",
        }}],
    });
    let members = body.as_object_mut().context("the request is no object")?;
    match scene.how {
        How::Plain => {}
        How::Order(_) | How::OrderStream(_) => {
            members.insert("stream".to_owned(), json!(scene.how.streams()));
            members.insert("portcullis".to_owned(), json!({"policy": ["orders"]}));
        }
        How::Whole | How::Stream => {
            let format =
                json!({"type": "json_schema", "json_schema": {"name": "coffee", "strict": true, "schema": schema()}});
            members.insert("response_format".to_owned(), format);
            members.insert("stream".to_owned(), json!(scene.how == How::Stream));
        }
        How::Tool => {
            let tool = json!({"type": "function", "function": {"name": "take_coffee", "parameters": schema()}});
            members.insert("tools".to_owned(), json!([tool]));
            members.insert("tool_choice".to_owned(), json!({"type": "function", "function": {"name": "take_coffee"}}));
        }
    }
    let request = Request::post(format!("http://{address}/v1/chat/completions"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))?;
    let answer = client.request(request).await?;
    let status = answer.status().as_u16();
    let header =
        |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let outcome = header("x-portcullis-outcome");
    let stream = header("content-type").starts_with("text/event-stream");
    let body = answer.into_body().collect().await?.to_bytes();
    let (rung, text) = if status == 200 { (String::new(), model_text(&body, stream)) } else { told(&body) };
    Ok(Got { status, outcome, rung, text })
}

/// The code and the message of an error body.
fn told(body: &[u8]) -> (String, String) {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let member = |name: &str| body.pointer(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    (member("/error/code"), member("/error/message"))
}

/// What an answer says, as a person would read it.
fn model_text(body: &[u8], stream: bool) -> String {
    if stream {
        let (mut reader, mut collector) = (EventReader::new(), Collector::default());
        let read =
            reader.feed(body, |data| collector.take(data)).and_then(|()| reader.finish(|data| collector.take(data)));
        let collected = read.and_then(|()| collector.finish());
        return collected.map(|collected| of_choice(&collected.reply.choices)).unwrap_or_default();
    }
    match crate::api::backend::openai::read(body) {
        Ok(whole) => of_choice(&whole.reply.choices),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    }
}

fn of_choice(choices: &[crate::api::reply::Choice]) -> String {
    let Some(choice) = choices.first() else { return String::new() };
    let mut text = choice.content.clone().unwrap_or_default();
    if let Some(refusal) = &choice.refusal {
        text.push_str(&format!("refusal: {refusal}"));
    }
    for call in &choice.tool_calls {
        text.push_str(&format!("{}({})", call.name, call.arguments));
    }
    match choice.finish.as_ref().map(|finish| finish.as_str()) {
        Some("length") => text.push_str(" [finish_reason: length]"),
        _ if text.is_empty() => text.push_str("[nothing]"),
        _ => {}
    }
    text
}

/// Two columns: what the model said, and what the caller got.
fn beside(model: &str, got: &Got, paint: &Paint) -> String {
    let verdict = match got.outcome.as_str() {
        "accepted" | "unchecked" => paint.good(&format!("{} {}", got.status, got.outcome)),
        "refused" | "clarified" => paint.warn(&format!("{} {}", got.status, got.outcome)),
        _ if got.rung.is_empty() => paint.bad(&format!("{} {}", got.status, got.outcome)),
        _ => paint.bad(&format!("{} {}: {}", got.status, got.outcome, got.rung)),
    };
    let left = wrapped(model);
    let right = wrapped(&got.text);
    let mut out = String::new();
    let rows = left.len().max(right.len() + 1);
    for row in 0..rows {
        let model = left.get(row).map_or("", String::as_str);
        let pad = " ".repeat(SIDE.saturating_sub(model.chars().count()));
        let got = match row {
            0 => verdict.clone(),
            _ => right.get(row - 1).cloned().unwrap_or_default(),
        };
        out.push_str(format!("    {model}{pad} {} {got}", paint.dim("│")).trim_end());
        out.push('\n');
    }
    out
}

/// The text in lines of at most [`SIDE`] characters, at most [`LINES`] of them.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut row = String::new();
        let mut width = 0;
        for word in line.split_inclusive([' ', ',']) {
            let length = word.chars().count();
            if width + length > SIDE && width > 0 {
                lines.push(std::mem::take(&mut row));
                width = 0;
            }
            for c in word.chars() {
                if width == SIDE {
                    lines.push(std::mem::take(&mut row));
                    width = 0;
                }
                row.push(c);
                width += 1;
            }
        }
        lines.push(row);
    }
    if lines.len() > LINES {
        lines.truncate(LINES - 1);
        lines.push("…".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scene_names_a_behaviour_that_exists() {
        for scene in SCENES {
            assert!(BEHAVIOURS.iter().any(|(name, _)| *name == scene.behaviour), "{}", scene.behaviour);
        }
    }

    #[test]
    fn lines_are_as_wide_as_their_side_and_no_wider() {
        for line in wrapped(&format!("{} and {}", "x".repeat(200), "word ".repeat(40))) {
            assert!(line.chars().count() <= SIDE);
        }
    }
}
