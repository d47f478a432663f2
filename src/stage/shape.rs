//! The request as a target gets it: the caller's bytes, edited only where they must be.

use bytes::Bytes;
use serde_json::Value;

use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::chat::Content;
use crate::api::ingress::chat::Message;
use crate::api::ingress::chat::Role;
use crate::api::ingress::chat::Wants;
use crate::contract::Asked;
use crate::contract::ContentContract;
use crate::contract::Contract;
use crate::json::splice::Splice;
use crate::json::splice::SpliceError;
use crate::json::string;
use crate::policy;
use crate::policy::Inject;
use crate::policy::Limit;
use crate::record::Native;
use crate::stage::plan::TargetPlan;
use crate::stage::plan::Terms;
use crate::stage::prompt;

/// What is added to the conversation where the model is asked once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// What the model said, as it said it.
    pub said: String,
    /// What is wrong with it.
    pub feedback: String,
}

/// The body for one target, in pieces. With nothing to change it is the caller's own.
///
/// Edits: the model's name there, the gateway's own member taken out, the response format taken out or
/// put as the native mode of the backend and the policies want it, the contract written into the prompt, members that
/// policies bound, and what a second attempt tells the model.
pub fn shape(
    request: &ChatRequest,
    contract: &Contract,
    terms: &Terms,
    plan: &TargetPlan,
    again: Option<&Again>,
) -> Result<Shaped, SpliceError> {
    let mut edits = Edits { request, splice: Splice::new(), gone: Vec::new(), added: Vec::new(), dropped: Vec::new() };
    if let Some(model) = plan.target.model.as_ref().filter(|model| **model != request.model) {
        edits.splice.replace(request.model_at.clone(), string::quoted(model));
    }
    edits.gone.extend(request.own.as_ref().map(|(index, _)| *index));
    if let Some(content) = &contract.content {
        edits.format(content, terms, plan.native);
    }
    if terms.unstored && plan.target.backend.capabilities.store && request.store.is_none() {
        edits.set("store", b"false");
    }
    if terms.usage && request.stream && !request.include_usage {
        edits.ask_for_usage();
    }
    for (name, limit) in &terms.limits {
        edits.limit(name, limit, &plan.target.backend.capabilities.without);
    }
    if let Some(content) = &contract.content
        && is_injected(terms.inject, plan.native, content)
        && !prompt::is_there(request, content)
    {
        inject(&mut edits.splice, request, content, terms, plan.target.backend.capabilities.system_role);
    }
    if let Some(again) = again {
        edits.splice.insert(request.messages.at.end - 1, messages(request, again));
    }
    edits.finish()
}

/// A body for one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shaped {
    /// The body, in pieces.
    pub body: Vec<Bytes>,
    /// Limits of policies that this request cannot carry.
    pub dropped: Vec<String>,
}

fn is_injected(inject: Inject, native: Native, content: &ContentContract) -> bool {
    match inject {
        Inject::Always => true,
        // A native mode carries one schema.
        Inject::UnlessNative => !matches!(native, Native::JsonSchema) || !content.also.is_empty(),
        Inject::Never => false,
    }
}

/// The edits of one body.
struct Edits<'r> {
    request: &'r ChatRequest,
    splice: Splice,
    /// Members that are taken out.
    gone: Vec<usize>,
    /// Members that are put in.
    added: Vec<u8>,
    dropped: Vec<String>,
}

impl Edits<'_> {
    /// The response format as the target gets it.
    fn format(&mut self, content: &ContentContract, terms: &Terms, native: Native) {
        let own = self.request.response_format.as_ref();
        match (native, &content.asked) {
            (Native::JsonSchema | Native::JsonSchemaRelaxed, Asked::Schema(schema)) => {
                if let Some(name) = &terms.format {
                    let mut value = br#"{"type":"json_schema","json_schema":{"name":"#.to_vec();
                    value.extend_from_slice(&string::quoted(name));
                    value.extend_from_slice(b",\"schema\":");
                    value.extend_from_slice(schema.text());
                    value.extend_from_slice(b"}}");
                    self.set("response_format", &value);
                }
            }
            (Native::JsonObject, _) => {
                if !own.is_some_and(|format| is_json_mode(&format.wants)) {
                    self.set("response_format", br#"{"type":"json_object"}"#);
                }
            }
            (Native::Prompt | Native::None | Native::Tool | Native::JsonSchema | Native::JsonSchemaRelaxed, _) => {
                self.gone.extend(own.map(|format| format.member));
            }
        }
    }

    /// Asks a stream for its usage, which a gate looks at. The caller does not get it unless it asked for it too.
    fn ask_for_usage(&mut self) {
        let own = self.request.member("stream_options").and_then(|(_, at)| self.request.body.get(at));
        let own = own.and_then(|text| serde_json::from_slice::<serde_json::Map<String, Value>>(text).ok());
        let mut options = own.unwrap_or_default();
        options.insert("include_usage".to_owned(), Value::Bool(true));
        self.set("stream_options", Value::Object(options).to_string().as_bytes());
    }

    /// Puts a member in the place of the one of its name, or beside the others.
    fn set(&mut self, name: &str, value: &[u8]) {
        let mut member = string::quoted(name);
        member.push(b':');
        member.extend_from_slice(value);
        match self.request.member(name).and_then(|(index, _)| self.request.members.get(index)) {
            Some(whole) => self.splice.replace(whole.clone(), member),
            None => {
                self.added.push(b',');
                self.added.extend_from_slice(&member);
            }
        }
    }

    /// Caps or sets one member, where the backend takes it; otherwise it is left out, and said so.
    fn limit(&mut self, name: &str, limit: &Limit, without: &[String]) {
        let takes = |name: &&str| !without.iter().any(|other| other == name);
        // Chat completions know the tokens of an answer under two names: one that counts reasoning too, and an older one.
        let names: &[&str] =
            if name == "max_output_tokens" { &["max_completion_tokens", "max_tokens"] } else { &[name] };
        let there: Vec<&str> = names.iter().copied().filter(|name| self.request.member(name).is_some()).collect();
        let first = names.iter().copied().find(takes);
        match (there.is_empty(), first) {
            (false, _) if names.len() > 1 => there.into_iter().for_each(|name| self.bound(name, limit)),
            (_, Some(first)) => self.bound(first, limit),
            (_, None) => {
                self.gone.extend(there.iter().filter_map(|name| Some(self.request.member(name)?.0)));
                self.dropped.push(name.to_owned());
            }
        }
    }

    fn bound(&mut self, name: &str, limit: &Limit) {
        let found = self.request.member(name).and_then(|(_, at)| self.request.body.get(at));
        match limit {
            Limit::AtMost(max) => {
                let text = std::str::from_utf8(found.unwrap_or_default()).unwrap_or_default();
                let own = serde_json::from_str::<serde_json::Number>(text).ok();
                if own.is_none_or(|own| policy::below(max, &own)) {
                    self.set(name, max.as_str().as_bytes());
                }
            }
            Limit::Set(value) => {
                let value = value.to_string();
                if found != Some(value.as_bytes()) {
                    self.set(name, value.as_bytes());
                }
            }
        }
    }

    fn finish(mut self) -> Result<Shaped, SpliceError> {
        let gone = self.gone;
        self.splice.remove_members(&self.request.members, |index| gone.contains(&index));
        if let Some(last) = self.request.members.last().filter(|_| !self.added.is_empty()) {
            self.splice.insert(last.end, self.added);
        }
        Ok(Shaped { body: self.splice.apply(&self.request.body)?, dropped: self.dropped })
    }
}

/// Whether a response format is JSON mode to the letter.
fn is_json_mode(wants: &Wants) -> bool {
    matches!(wants, Wants::JsonObject | Wants::Schema { object: true, .. })
}

/// The messages of a second attempt: what the model said, and what is wrong with it.
fn messages(request: &ChatRequest, again: &Again) -> Vec<u8> {
    let mut text = if request.messages.list.is_empty() { Vec::new() } else { b",".to_vec() };
    text.extend_from_slice(br#"{"role":"assistant","content":"#);
    text.extend_from_slice(&string::quoted(&again.said));
    text.extend_from_slice(br#"},{"role":"user","content":"#);
    text.extend_from_slice(&string::quoted(&again.feedback));
    text.push(b'}');
    text
}

/// Writes the contract at the end of the last instruction before the first user turn; where there is none,
/// in a new system message before all others; where the backend has no system role, at the end of the
/// first user turn.
fn inject(splice: &mut Splice, request: &ChatRequest, contract: &ContentContract, terms: &Terms, system_role: bool) {
    let messages = &request.messages.list;
    let first_user = messages.iter().position(|message| message.role == Role::User);
    let (host, role) = if system_role {
        let before = messages.get(..first_user.unwrap_or(messages.len())).unwrap_or_default();
        (before.iter().rev().find(|message| message.role.instructs()), "system")
    } else {
        (first_user.and_then(|index| messages.get(index)), "user")
    };
    if host.is_some_and(|message| extend(splice, request, message, contract, terms)) {
        return;
    }
    let mut message = format!(r#"{{"role":"{role}","content":""#).into_bytes();
    prompt::escaped_onto(contract, &terms.assigned, &mut message);
    message.extend_from_slice(if messages.is_empty() { b"\"}" } else { b"\"}," });
    splice.insert(request.messages.at.start + 1, message);
}

/// Adds the contract to the end of a message. Tells whether its content could take it.
fn extend(
    splice: &mut Splice,
    request: &ChatRequest,
    message: &Message,
    contract: &ContentContract,
    terms: &Terms,
) -> bool {
    match &message.content {
        Content::Text(spot) => {
            let mut added = Vec::with_capacity(1024);
            if spot.close > spot.open + 1 {
                added.extend_from_slice(b"\\n\\n");
            }
            prompt::escaped_onto(contract, &terms.assigned, &mut added);
            splice.insert(spot.close, added);
            true
        }
        Content::Parts(at) => {
            let inside = request.body.get(at.start + 1..at.end - 1).unwrap_or_default();
            let mut part = Vec::with_capacity(1024);
            part.extend_from_slice(if inside.trim_ascii().is_empty() { b"" } else { b"," });
            part.extend_from_slice(br#"{"type":"text","text":""#);
            prompt::escaped_onto(contract, &terms.assigned, &mut part);
            part.extend_from_slice(b"\"}");
            splice.insert(at.end - 1, part);
            true
        }
        Content::None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::catalog::Backend;
    use crate::catalog::Credentials;
    use crate::catalog::Target;
    use crate::catalog::Timeouts;
    use crate::contract::schema::CompiledSchema;
    use crate::dialect::table::BackendKind;
    use crate::dialect::table::Capabilities;
    use crate::settings::SchemaLimits;
    use crate::stage::plan;

    const FORMAT: &str = r#""response_format":{"type":"json_schema","json_schema":{"name":"r","schema":{"type" : "object", "title":"é\n"}}}"#;

    fn shaped_for(body: &str, kind: BackendKind, model: Option<&str>, system_role: bool) -> String {
        let request = ChatRequest::read(Bytes::copy_from_slice(body.as_bytes())).unwrap();
        let backend = Arc::new(Backend {
            name: "b".into(),
            kind,
            base: None,
            tls: None,
            proxy: None,
            credentials: Credentials::None,
            headers: Vec::new(),
            timeouts: Timeouts::default(),
            concurrency: 1,
            capabilities: Capabilities { system_role, ..Capabilities::of(kind) },
        });
        let target = Target { backend, model: model.map(str::to_owned), price: None };
        let compile = |text| Arc::new(CompiledSchema::compile(text, SchemaLimits::default()).unwrap());
        let content = request.schema().map(compile);
        let contract = plan::contract(&request, plan::Schemas { content, tools: Vec::new() }, &[]).unwrap();
        let alias = Arc::new(crate::catalog::Alias { name: "a".into(), targets: vec![target], upstream_calls_max: 4 });
        let plan = plan::plan(alias, contract, None, Default::default(), &request).unwrap();
        let shaped = shape(&request, &plan.contract, &plan.terms, &plan.targets[0], None).unwrap();
        let out = String::from_utf8(shaped.body.concat()).unwrap();
        serde_json::from_str::<serde_json::Value>(&out).unwrap();
        out
    }

    fn shaped(body: &str) -> String {
        shaped_for(body, BackendKind::Openai, None, true)
    }

    fn request(messages: &str) -> String {
        format!(r#"{{ "model":"m", "x" : 1.0, "n":12345678901234567890 , "messages":{messages}, {FORMAT} }}"#)
    }

    /// What the model reads, as the inside of a JSON string of the request.
    fn injected() -> String {
        let schema = r#"{\"type\" : \"object\", \"title\":\"é\\n\"}"#;
        format!(
            "{}{schema}",
            "Answer with exactly one JSON value that satisfies the JSON Schema below. Write the JSON alone: no other text and no code fence.\\n\\nJSON Schema:\\n"
        )
    }

    #[test]
    fn the_schema_goes_to_the_end_of_the_last_instruction_before_the_first_user_turn() {
        let body = request(
            r#"[{"role":"system","content":"a"},{"role":"developer","content":"b\u0041"},{"role":"user","content":"u"},{"role":"system","content":"late"}]"#,
        );
        let expected = body.replace(r#""b\u0041""#, &format!(r#""b\u0041\n\n{}""#, injected()));
        assert_eq!(shaped(&body), expected);
    }

    #[test]
    fn without_an_instruction_there_is_a_new_system_message_first() {
        let body = request(r#"[ {"role":"user","content":"u"}]"#);
        let expected = body.replace(
            r#"[ {"role":"user""#,
            &format!(r#"[{{"role":"system","content":"{}"}}, {{"role":"user""#, injected()),
        );
        assert_eq!(shaped(&body), expected);
        let empty = request("[]");
        assert_eq!(
            shaped(&empty),
            empty.replace("[]", &format!(r#"[{{"role":"system","content":"{}"}}]"#, injected()))
        );
    }

    #[test]
    fn parts_get_a_part_more() {
        let body =
            request(r#"[{"role":"system","content":[{"type":"text","text":"a"} ]},{"role":"user","content":"u"}]"#);
        let expected = body.replace(" ]}", &format!(r#" ,{{"type":"text","text":"{}"}}]}}"#, injected()));
        assert_eq!(shaped(&body), expected);
    }

    #[test]
    fn a_backend_without_a_system_role_gets_it_in_the_first_user_turn() {
        let body =
            request(r#"[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"user","content":"v"}]"#);
        let expected = body.replace(r#""u""#, &format!(r#""u\n\n{}""#, injected()));
        assert_eq!(shaped_for(&body, BackendKind::Openai, None, false), expected);
    }

    #[test]
    fn a_schema_that_is_there_already_is_not_written_twice() {
        let there = r#"{\n  \"type\":\"object\",\"title\": \"é\\n\"\n}"#;
        let body = request(&format!(
            r#"[{{"role":"user","content":[{{"type":"text","text":"As {there} please, and do take your time"}}]}}]"#
        ));
        assert_eq!(shaped(&body), body);
    }

    #[test]
    fn a_backend_with_no_native_mode_does_not_see_the_format() {
        let body = request(r#"[{"role":"system","content":"s"}]"#);
        let out = shaped_for(&body, BackendKind::OpenaiCompatible, Some("k2"), true);
        assert!(!out.contains("response_format") && out.contains(r#""model":"k2""#), "{out}");
        assert!(out.ends_with("}] }"), "{out}");
    }

    #[test]
    fn json_mode_without_a_native_one_and_the_own_member() {
        let body = r#"{"portcullis":{"tags":{}},"model":"m","messages":[{"role":"user","content":"u"}],"response_format":{"type":"json_object"}}"#;
        let out = shaped_for(body, BackendKind::Lmstudio, None, true);
        assert!(
            out.starts_with(r#"{"model":"m""#)
                && out.contains("exactly one JSON object")
                && !out.contains("response_format")
        );
    }

    #[test]
    fn without_a_contract_not_a_byte_changes() {
        for body in [
            r#"{ "model" : "m","messages":[{"role":"user","content":"<rules>a & b</rules>"}], "z":1E5 }"#,
            r#"{"system_fingerprint":"x","tools":[],"model":"m","messages":[]}"#,
            r#"{"model":"m","messages":[],"response_format":{"type":"text"}}"#,
        ] {
            assert_eq!(shaped(body), body);
        }
    }

    #[test]
    fn the_same_request_gives_the_same_bytes_and_the_same_schema_the_same_block() {
        let one = request(r#"[{"role":"user","content":"one"}]"#);
        let two = request(r#"[{"role":"user","content":"two"}]"#);
        assert!((0..20).all(|_| shaped(&one) == shaped(&one)));
        assert_eq!(shaped(&one).replace("one", "two"), shaped(&two).replace("one", "two"));
    }
}
