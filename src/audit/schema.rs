//! The JSON Schema of one line of the audit file, for whoever reads it. A unit test holds every line to it.

use serde_json::Value;
use serde_json::json;

/// The JSON Schema (2020-12) of one record.
pub fn schema() -> Value {
    let text = || json!({"type": ["string", "null"]});
    let count = || json!({"type": "integer", "minimum": 0});
    let counted = || json!({"type": ["integer", "null"], "minimum": 0});
    let told = |what: Value, description: &str| {
        let mut what = what;
        if let Some(members) = what.as_object_mut() {
            members.insert("description".to_owned(), description.into());
        }
        what
    };
    let usage = |description: &str| {
        json!({"type": ["object", "null"], "description": description,
            "properties": {"input_tokens": counted(), "output_tokens": counted()}, "additionalProperties": counted()})
    };
    let outcomes =
        json!(["accepted", "clarified", "rejected", "refused", "failed", "cancelled", "denied", "unchecked"]);
    let violation = json!({
        "type": "object",
        "required": ["policy", "gate", "kind", "path", "message", "action"],
        "properties": {
            "policy": told(text(), "The policy whose gate it is; null where the request's own contract is broken."),
            "gate": {"type": "string"},
            "kind": {"type": "string"},
            "path": {"type": "string", "description": "Where in the answer: a normalized path (RFC 9535)."},
            "message": {"type": "string", "description": "Empty where the audit file holds no content: it may quote the answer."},
            "action": {"enum": ["reject", "clarify", "monitor"]},
        },
    });
    let policy = json!({
        "type": "object",
        "required": ["name", "digest", "mode"],
        "properties": {"name": {"type": "string"}, "digest": {"type": "string"}, "mode": {"enum": ["enforce", "monitor"]}},
    });
    let failure = json!({
        "type": "object",
        "required": ["backend", "reason"],
        "properties": {"backend": {"type": "string"}, "reason": {"type": "string"}},
    });
    let list = |items: Value, description: &str| json!({"type": "array", "items": items, "description": description});
    let string = || json!({"type": "string"});
    let mut properties = json!({
        "time": {"type": "string", "format": "date-time", "description": "When the request's head had arrived."},
        "request_id": told(string(), "The gateway's own id of the request."),
        "client": told(text(), "Where the request came from, as far as the proxies before the gateway can be trusted."),
        "trace_id": told(text(), "The trace that the caller says it belongs to."),
        "path": told(string(), "The path that was asked for, without its query."),
        "outcome": {"enum": outcomes},
        "status": {"type": "integer", "minimum": 100, "maximum": 599, "description": "What the caller got; 499 where it had gone."},
        "code": told(text(), "The code of the error, where there was one."),
        "reason": told(text(), "What went wrong, in one word."),
        "alias": told(text(), "The model alias as configured."),
        "backend": told(text(), "The backend whose answer counts, or the last one tried."),
        "upstream_model": told(text(), "The model's name there."),
        "upstream_request_id": told(text(), "The backend's own id of the request."),
        "policies": list(policy, "The policies that bound the request, with the digests of what decided."),
        "native": told(string(), "How the native structured-output mode was used."),
        "schema": told(text(), "The digest of the content's schema."),
        "rung": told(text(), "How the answer was found in the text."),
        "stream": {"type": "boolean"},
        "attempts": told(count(), "Upstream calls made."),
        "failures": list(failure, "Every attempt that failed."),
        "violations_total": told(count(), "How many violations there are, listed or not."),
        "violations": list(violation, "At most a hundred."),
    });
    let more = json!({
        "questions": list(string(), "What the caller was asked; empty where the audit file holds no content."),
        "watched": told(text(), "What policies that only watch would have come to."),
        "unwatched": {"type": "boolean", "description": "Policies watched, and some of what they demand could not be judged: the answer could not be read, was too large to be copied, or nobody had asked for its tokens."},
        "retry_changed_paths": list(string(), "Paths that a retry changed although no violation named them."),
        "wrapped_arrays": told(count(), "Bare arrays that an envelope was put around."),
        "dropped": list(string(), "Limits that a model does not take, and that were left out."),
        "usage_total": usage("Tokens of all attempts, as far as the backends said."),
        "usage": usage("Tokens of the answer that counts."),
        "tags": {"type": "object", "additionalProperties": string(), "description": "The caller's own."},
        "text": told(text(), "The model's text; null where the audit file holds no content."),
        "total_us": told(count(), "Microseconds from the request's head to the answer's end."),
        "upstream_us": told(count(), "Of these, spent waiting on backends."),
    });
    if let (Some(all), Value::Object(more)) = (properties.as_object_mut(), more) {
        all.extend(more);
    }
    let required: Vec<String> = properties.as_object().into_iter().flat_map(|all| all.keys().cloned()).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Portcullis audit record",
        "description": "One line of the audit file: one request. It holds no key and no header.",
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}
