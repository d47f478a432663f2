//! The contract as the model reads it: the exact schema, in words that never change.
//!
//! The text depends on the contract alone, so that a provider's prompt cache holds.

use std::sync::Arc;

use crate::api::ingress::chat::ChatRequest;
use crate::contract::Asked;
use crate::contract::ContentContract;
use crate::json::string;
use crate::json::string::Spot;

const SCHEMA: &str = "Answer with exactly one JSON value that satisfies the JSON Schema below. \
                      Write the JSON alone: no other text and no code fence.\n\nJSON Schema:\n";
const ALSO: &str = "\n\nIt must satisfy this JSON Schema as well:\n";
const OBJECT: &str = "Answer with exactly one JSON object. Write the JSON alone: no other text and no code fence.";

/// What is written into the prompt for this contract, as the inside of a JSON string. `assigned` are the fields that code
/// sets, which the model is told to leave out.
pub fn escaped_onto(contract: &ContentContract, assigned: &[Arc<str>], out: &mut Vec<u8>) {
    match &contract.asked {
        Asked::JsonObject => string::escape_onto(OBJECT, out),
        Asked::Schema(schema) => {
            string::escape_onto(SCHEMA, out);
            out.extend_from_slice(schema.escaped());
        }
    }
    for schema in &contract.also {
        string::escape_onto(ALSO, out);
        out.extend_from_slice(schema.escaped());
    }
    if !assigned.is_empty() {
        let names: Vec<String> = assigned.iter().map(|name| format!("`{name}`")).collect();
        let told =
            format!("\n\nLeave out {}: code sets them, and an answer that has one is refused.", names.join(", "));
        string::escape_onto(&told, out);
    }
}

/// Whether a message of the request already shows the model this contract: every schema literally, whatever
/// white space stands in it.
pub fn is_there(request: &ChatRequest, contract: &ContentContract) -> bool {
    let object;
    let wanted = match &contract.asked {
        Asked::JsonObject => {
            object = squashed(OBJECT);
            &object
        }
        Asked::Schema(schema) => schema.squashed(),
    };
    let all: Vec<&str> = std::iter::once(wanted).chain(contract.also.iter().map(|schema| schema.squashed())).collect();
    let least = all.iter().map(|wanted| wanted.len()).max().unwrap_or_default();
    let long_enough = |spot: &Spot| spot.close - spot.open > least;
    request.texts().filter(long_enough).any(|spot| {
        let said = squashed(&string::decode(&request.body, spot).unwrap_or_default());
        all.iter().all(|wanted| memchr::memmem::find(said.as_bytes(), wanted.as_bytes()).is_some())
    })
}

/// What a model is told whose answer was not accepted: every violation, and that it is to answer anew.
pub fn feedback(violations: impl Iterator<Item = (String, String)>) -> String {
    let mut text = String::from("That answer was not accepted:\n");
    for (path, message) in violations {
        text.push_str(&format!("- {path}: {message}\n"));
    }
    text.push_str(
        "Answer again, whole, from the source alone. Change what is named above only where the source says so; where the \
         source itself is at odds, copy it as it stands.",
    );
    text
}

fn squashed(text: &str) -> String {
    text.split_ascii_whitespace().collect()
}
