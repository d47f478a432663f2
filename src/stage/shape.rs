//! The request as a target gets it: the caller's bytes, edited only where they must be.

use bytes::Bytes;

use crate::api::ingress::chat::ChatRequest;
use crate::api::ingress::chat::Content;
use crate::api::ingress::chat::Message;
use crate::api::ingress::chat::Role;
use crate::api::ingress::chat::Wants;
use crate::contract::ContentContract;
use crate::contract::Contract;
use crate::json::splice::Splice;
use crate::json::splice::SpliceError;
use crate::json::string;
use crate::record::Native;
use crate::stage::plan::TargetPlan;
use crate::stage::prompt;

/// The body for one target, in pieces. With nothing to change it is the caller's own.
///
/// Edits: the model's name there, the gateway's own member taken out, the response format taken out or
/// put as JSON mode where the backend lacks the caller's, and the contract written into the prompt.
pub fn shape(request: &ChatRequest, contract: &Contract, plan: &TargetPlan) -> Result<Vec<Bytes>, SpliceError> {
    let mut splice = Splice::new();
    if let Some(model) = plan.target.model.as_ref().filter(|model| **model != request.model) {
        splice.replace(request.model_at.clone(), string::quoted(model));
    }
    let format = request.response_format.as_ref().filter(|_| contract.content.is_some());
    let dropped = format.filter(|_| plan.native == Native::Prompt).map(|format| format.member);
    let own = request.own.as_ref().map(|(index, _)| *index);
    splice.remove_members(&request.members, |index| Some(index) == dropped || Some(index) == own);
    if let (Some(format), Native::JsonObject) = (format, plan.native)
        && matches!(format.wants, Wants::Schema { object: false, .. })
        && let Some(member) = request.members.get(format.member)
    {
        splice.replace(member.clone(), r#""response_format":{"type":"json_object"}"#);
    }
    if let Some(content) = &contract.content
        && !prompt::is_there(request, content)
    {
        inject(&mut splice, request, content, plan.target.backend.capabilities.system_role);
    }
    splice.apply(&request.body)
}

/// Writes the contract at the end of the last instruction before the first user turn; where there is none,
/// in a new system message before all others; where the backend has no system role, at the end of the
/// first user turn.
fn inject(splice: &mut Splice, request: &ChatRequest, contract: &ContentContract, system_role: bool) {
    let messages = &request.messages.list;
    let first_user = messages.iter().position(|message| message.role == Role::User);
    let (host, role) = if system_role {
        let before = messages.get(..first_user.unwrap_or(messages.len())).unwrap_or_default();
        (before.iter().rev().find(|message| message.role == Role::Instruction), "system")
    } else {
        (first_user.and_then(|index| messages.get(index)), "user")
    };
    if host.is_some_and(|message| extend(splice, request, message, contract)) {
        return;
    }
    let mut message = format!(r#"{{"role":"{role}","content":""#).into_bytes();
    prompt::escaped_onto(contract, &mut message);
    message.extend_from_slice(if messages.is_empty() { b"\"}" } else { b"\"}," });
    splice.insert(request.messages.at.start + 1, message);
}

/// Adds the contract to the end of a message. Tells whether its content could take it.
fn extend(splice: &mut Splice, request: &ChatRequest, message: &Message, contract: &ContentContract) -> bool {
    match &message.content {
        Content::Text(spot) => {
            let mut added = Vec::with_capacity(1024);
            if spot.close > spot.open + 1 {
                added.extend_from_slice(b"\\n\\n");
            }
            prompt::escaped_onto(contract, &mut added);
            splice.insert(spot.close, added);
            true
        }
        Content::Parts(at) => {
            let inside = request.body.get(at.start + 1..at.end - 1).unwrap_or_default();
            let mut part = Vec::with_capacity(1024);
            part.extend_from_slice(if inside.trim_ascii().is_empty() { b"" } else { b"," });
            part.extend_from_slice(br#"{"type":"text","text":""#);
            prompt::escaped_onto(contract, &mut part);
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
        let target = Target { backend, model: model.map(str::to_owned) };
        let compile = |text| Arc::new(CompiledSchema::compile(text, SchemaLimits::default()).unwrap());
        let content = request.schema().map(compile);
        let contract = plan::contract(&request, plan::Schemas { content, tools: Vec::new() });
        let alias = Arc::new(crate::catalog::Alias { name: "a".into(), targets: vec![target], upstream_calls_max: 4 });
        let plan = plan::plan(alias, contract, &request);
        let pieces = shape(&request, &plan.contract, &plan.targets[0]).unwrap();
        let out = String::from_utf8(pieces.concat()).unwrap();
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
