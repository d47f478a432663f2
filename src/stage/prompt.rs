//! The contract as the model reads it: the exact schema, in words that never change.
//!
//! The text depends on the schema's bytes alone, so that a provider's prompt cache holds.

use crate::api::ingress::chat::ChatRequest;
use crate::contract::ContentContract;
use crate::json::string;
use crate::json::string::Spot;

const SCHEMA: &str = "Answer with exactly one JSON value that satisfies the JSON Schema below. \
                      Write the JSON alone: no other text and no code fence.\n\nJSON Schema:\n";
const OBJECT: &str = "Answer with exactly one JSON object. Write the JSON alone: no other text and no code fence.";

/// What is written into the prompt for this contract, as the inside of a JSON string.
pub fn escaped_onto(contract: &ContentContract, out: &mut Vec<u8>) {
    match contract {
        ContentContract::JsonObject => string::escape_onto(OBJECT, out),
        ContentContract::Schema(schema) => {
            string::escape_onto(SCHEMA, out);
            out.extend_from_slice(schema.escaped());
        }
    }
}

/// Whether a message of the request already shows the model this contract: the literal schema, whatever
/// white space stands in it.
pub fn is_there(request: &ChatRequest, contract: &ContentContract) -> bool {
    let object;
    let wanted = match contract {
        ContentContract::JsonObject => {
            object = squashed(OBJECT);
            &object
        }
        ContentContract::Schema(schema) => schema.squashed(),
    };
    let long_enough = |spot: &Spot| spot.close - spot.open > wanted.len();
    request.texts().filter(long_enough).any(|spot| {
        let said = string::decode(&request.body, spot).unwrap_or_default();
        memchr::memmem::find(squashed(&said).as_bytes(), wanted.as_bytes()).is_some()
    })
}

fn squashed(text: &str) -> String {
    text.split_ascii_whitespace().collect()
}
