//! The scripted model inside the binary: the backend `demo`. It answers as real models do, well and
//! badly, chosen by the model's name; the same request always gets the same answer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::HeaderValue;
use http::StatusCode;
use http::header;
use http_body::Body;
use http_body::Frame;
use serde_json::Value;
use serde_json::json;
use tokio::time::Sleep;

use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::chat::Wants;
use crate::json::tree;
use crate::stage::plan;
use crate::stage::send::Call;
use crate::stage::send::CallBody;
use crate::stage::send::Upstream;
use crate::stage::send::UpstreamError;
use crate::stage::send::UpstreamReply;
use crate::upstream::sample;

/// What the scripted model can do: the part of its name after `demo/`, and what it does.
pub const BEHAVIOURS: &[(&str, &str)] = &[
    ("clean", "bare JSON that satisfies the schema (also plain `demo`)"),
    ("fenced", "the same inside a Markdown code fence"),
    ("preamble", "the same after a sentence of prose"),
    ("think", "the same after a <think> block that tries another answer"),
    ("array", "a bare array where the schema wants an object"),
    ("wrong_type", "valid JSON with one value of the wrong type"),
    ("broken", "JSON with a trailing comma"),
    ("duplicate_key", "JSON with one key twice"),
    ("two", "two objects that differ"),
    ("truncated", "JSON cut off by the token limit"),
    ("prose", "a friendly answer without any JSON"),
    ("echo", "the schema itself instead of an instance"),
    ("refusal", "a refusal"),
    ("filtered", "an answer cut by the provider's filter"),
    ("empty", "nothing at all"),
    ("overloaded", "an error inside a 200"),
    ("slow", "the clean answer as a slow stream"),
    ("order_right", "an order of one large iced latte with vanilla, whatever was said"),
    ("order_allergen", "an order of prawn noodles, peanuts and all, for somebody who must not have peanuts"),
    ("order_invented", "an order of a margherita with pineapple, which no menu has"),
    ("order_forgotten", "an order of a tomato soup that forgets every allergy"),
];

/// What the model says to the guests of the restaurant whose menu is in `policies/orders`, right and wrong.
const ORDERS: [(&str, &str); 4] = [
    (
        "order_right",
        r#"{"status":"accepted","items":[{"sku":"ICED_LATTE","quantity":1,"size":"large","additions":["vanilla"],"removals":[],"special_instructions":null}],"constraints":{"allergens":[],"dietary":[]},"clarification_question":null,"reasons":[]}"#,
    ),
    (
        "order_allergen",
        r#"{"status":"accepted","items":[{"sku":"PRAWN_NOODLES","quantity":1,"size":"regular","additions":[],"removals":[],"special_instructions":null}],"constraints":{"allergens":["peanut"],"dietary":[]},"clarification_question":null,"reasons":[]}"#,
    ),
    (
        "order_invented",
        r#"{"status":"accepted","items":[{"sku":"MARGHERITA","quantity":1,"size":"medium","additions":["pineapple"],"removals":[],"special_instructions":null}],"constraints":{"allergens":[],"dietary":[]},"clarification_question":null,"reasons":[]}"#,
    ),
    (
        "order_forgotten",
        r#"{"status":"accepted","items":[{"sku":"TOMATO_SOUP","quantity":1,"size":"bowl","additions":[],"removals":[],"special_instructions":null}],"constraints":{"allergens":[],"dietary":[]},"clarification_question":null,"reasons":[]}"#,
    ),
];

/// The pause between two chunks of the slow stream.
const SLOW: Duration = Duration::from_millis(60);
/// Characters of a stream's chunk.
const CHUNK: usize = 16;

/// The scripted model.
#[derive(Debug, Default)]
pub struct Scripted {}

/// What the model says to one request.
struct Saying {
    content: Option<String>,
    refusal: Option<&'static str>,
    tool: Option<(String, String)>,
    finish: &'static str,
}

impl Upstream for Scripted {
    async fn send(&self, call: Call) -> Result<UpstreamReply, UpstreamError> {
        let body: Bytes = match call.body {
            CallBody::Pieces(pieces) => pieces.concat().into(),
            CallBody::Upload(_) => Bytes::new(), // nothing that it serves is sent so
        };
        let request = match ChatRequest::read(body) {
            Ok(request) if call.path == "/chat/completions" => request,
            Ok(_) => return Ok(refused(StatusCode::NOT_FOUND, "the demo backend serves chat completions alone")),
            Err(error) => return Ok(refused(StatusCode::BAD_REQUEST, &error.message)),
        };
        let behaviour = request.model.rsplit('/').next().unwrap_or_default();
        if behaviour == "overloaded" {
            let body = json!({"error": {"message": "the model is overloaded", "type": "server_error", "code": "503"}});
            return Ok(whole(StatusCode::OK, &body));
        }
        let saying = say(&request, behaviour);
        let pause = (behaviour == "slow").then_some(SLOW);
        Ok(if request.stream {
            stream(&request, saying, pause)
        } else {
            whole(StatusCode::OK, &completion(&request, saying))
        })
    }
}

fn say(request: &ChatRequest, behaviour: &str) -> Saying {
    if let Some((_, order)) = ORDERS.iter().find(|(name, _)| *name == behaviour) {
        return said(*order);
    }
    let schema = request.schema().and_then(|text| tree::parse(std::str::from_utf8(&text).unwrap_or_default()).ok());
    let wants_object = matches!(request.response_format.as_ref().map(|format| &format.wants), Some(Wants::JsonObject));
    let seed = request
        .body
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    if let Some(tool) = plan::forced(request).and_then(|index| request.tools.get(index)) {
        let parameters = tool.parameters.clone().and_then(|at| request.body.get(at));
        let parameters = parameters.and_then(|text| tree::parse(std::str::from_utf8(text).unwrap_or_default()).ok());
        let schema = parameters.unwrap_or_else(|| json!({"type": "object"}));
        let saying = of_schema(&schema, behaviour, seed);
        return match saying.content {
            Some(arguments) => {
                Saying { content: None, tool: Some((tool.name.clone(), arguments)), finish: "tool_calls", ..saying }
            }
            None => saying,
        };
    }
    match schema {
        Some(schema) => of_schema(&schema, behaviour, seed),
        None if wants_object => of_schema(
            &json!({"type": "object", "required": ["answer"], "properties": {"answer": {"type": "string"}}}),
            behaviour,
            seed,
        ),
        None => plain(behaviour),
    }
}

/// What the model says where nothing is asked of its form.
fn plain(behaviour: &str) -> Saying {
    match behaviour {
        "refusal" | "filtered" | "empty" => of_schema(&json!({}), behaviour, 0),
        _ => said("Hello! I am the scripted model inside Portcullis. Ask me for JSON with a schema."),
    }
}

fn said(text: impl Into<String>) -> Saying {
    Saying { content: Some(text.into()), refusal: None, tool: None, finish: "stop" }
}

fn of_schema(schema: &Value, behaviour: &str, seed: u64) -> Saying {
    let instance = sample::instance(schema, seed);
    let good = instance.to_string();
    match behaviour {
        "fenced" => said(format!(
            "Here is the JSON you asked for:\n```json\n{good}\n```\nLet me know if you need anything else."
        )),
        "preamble" => said(format!("Sure! Based on what you told me, the answer is: {good}")),
        "think" => {
            said(format!("<think>Maybe {{\"draft\": true}}? No, the schema wants something else.</think>\n{good}"))
        }
        "array" => said(json!([instance]).to_string()),
        "wrong_type" => said(sample::wrong_type(schema, &instance).to_string()),
        "broken" => said(broken(&good)),
        "duplicate_key" => said(twice(&instance, &good)),
        "two" => said(format!("{good}\n\nOr perhaps:\n\n{}", sample::wrong_type(schema, &instance))),
        "truncated" => Saying { finish: "length", ..said(cut(&good)) },
        "prose" => said("I looked into it. Everything seems to be in order, so there is nothing more to add."),
        "echo" => said(schema.to_string()),
        "refusal" => {
            Saying { content: None, refusal: Some("I'm sorry, I can't help with that."), tool: None, finish: "stop" }
        }
        "filtered" => Saying { finish: "content_filter", ..said(cut(&good)) },
        "empty" => said(""),
        _ => said(good),
    }
}

/// The text with a comma before its last closer, where models like to leave one.
fn broken(good: &str) -> String {
    let mut text = good.to_owned();
    let closer = text.pop();
    text.push(',');
    text.extend(closer);
    text
}

/// The text with its first key once more at the end.
fn twice(instance: &Value, good: &str) -> String {
    let again = match instance.as_object().and_then(|members| members.iter().next()) {
        Some((key, value)) => format!(",{}:{value}}}", Value::String(key.clone())),
        None => return r#"{"a":1,"a":1}"#.to_owned(),
    };
    format!("{}{again}", good.strip_suffix('}').unwrap_or(good))
}

/// The first two thirds of the text.
fn cut(text: &str) -> String {
    text.chars().take(text.chars().count() * 2 / 3).collect()
}

fn completion(request: &ChatRequest, saying: Saying) -> Value {
    let mut message = json!({"role": "assistant", "content": saying.content, "refusal": saying.refusal});
    if let (Some((name, arguments)), Some(members)) = (saying.tool, message.as_object_mut()) {
        let call = json!([{"id": "call_demo", "type": "function", "function": {"name": name, "arguments": arguments}}]);
        members.insert("tool_calls".to_owned(), call);
    }
    json!({
        "id": "chatcmpl-demo", "object": "chat.completion", "created": 1_767_225_600, "model": request.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": saying.finish}],
        "usage": usage(), "system_fingerprint": "fp_demo",
    })
}

fn usage() -> Value {
    json!({"prompt_tokens": 64, "completion_tokens": 32, "total_tokens": 96})
}

fn whole(status: StatusCode, body: &Value) -> UpstreamReply {
    let body = Scroll { rest: VecDeque::from([Bytes::from(body.to_string())]), pause: None, clock: None };
    reply(status, "application/json", body)
}

fn refused(status: StatusCode, message: &str) -> UpstreamReply {
    whole(status, &json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": null}}))
}

fn reply(status: StatusCode, kind: &'static str, body: Scroll) -> UpstreamReply {
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
    UpstreamReply { status, headers, body: Box::pin(body) }
}

fn stream(request: &ChatRequest, saying: Saying, pause: Option<Duration>) -> UpstreamReply {
    let chunk = |delta: Value, finish: Option<&str>| {
        let chunk = json!({
            "id": "chatcmpl-demo", "object": "chat.completion.chunk", "created": 1_767_225_600, "model": request.model,
            "system_fingerprint": "fp_demo", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        });
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let mut rest = VecDeque::from([chunk(json!({"role": "assistant", "content": ""}), None)]);
    if let Some(refusal) = saying.refusal {
        rest.push_back(chunk(json!({"refusal": refusal}), None));
    }
    for piece in pieces(saying.content.as_deref().unwrap_or_default()) {
        rest.push_back(chunk(json!({"content": piece}), None));
    }
    if let Some((name, arguments)) = saying.tool {
        let call =
            json!([{"index": 0, "id": "call_demo", "type": "function", "function": {"name": name, "arguments": ""}}]);
        rest.push_back(chunk(json!({"tool_calls": call}), None));
        for piece in pieces(&arguments) {
            rest.push_back(chunk(json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}), None));
        }
    }
    rest.push_back(chunk(json!({}), Some(saying.finish)));
    if request.include_usage {
        let last = json!({"id": "chatcmpl-demo", "object": "chat.completion.chunk", "choices": [], "usage": usage()});
        rest.push_back(Bytes::from(format!("data: {last}\n\n")));
    }
    rest.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
    reply(StatusCode::OK, "text/event-stream", Scroll { rest, pause, clock: None })
}

fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(CHUNK).map(|piece| piece.iter().collect()).collect()
}

/// A body read off piece by piece, with a pause before each where there is one.
struct Scroll {
    rest: VecDeque<Bytes>,
    pause: Option<Duration>,
    clock: Option<Pin<Box<Sleep>>>,
}

impl Body for Scroll {
    type Data = Bytes;
    type Error = UpstreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        if let Some(pause) = self.pause {
            let clock = self.clock.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
            if clock.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.clock = None;
        }
        Poll::Ready(self.rest.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extraction;
    use crate::extraction::Admits;
    use crate::extraction::Mode;
    use crate::extraction::Wanted;

    #[test]
    fn every_behaviour_says_what_its_name_promises() {
        let schema = json!({"type": "object", "required": ["name", "age"], "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}});
        let tags = crate::dialect::table::Capabilities::of(crate::dialect::table::BackendKind::Demo).reasoning_tags;
        for (behaviour, _) in BEHAVIOURS {
            let saying = of_schema(&schema, behaviour, 1);
            let Some(text) = saying.content else {
                assert_eq!(*behaviour, "refusal");
                continue;
            };
            let found =
                extraction::extract(&text, Wanted { admits: Admits::OBJECT, mode: Mode::Ladder, reasoning: &tags });
            let word = found.map_or_else(|not| not.reason.as_str(), |found| found.rung.as_str());
            let expected = match *behaviour {
                "fenced" => "fence",
                "preamble" => "scan",
                "broken" => "invalid",
                "duplicate_key" => "duplicate_key",
                "two" => "ambiguous",
                "truncated" | "filtered" => "truncated",
                "prose" => "no_json",
                "empty" => "empty",
                _ => "whole",
            };
            assert_eq!(word, expected, "{behaviour}: {text}");
        }
    }
}
