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

/// What is written into the prompt for this contract.
pub fn text(contract: &ContentContract) -> String {
    match contract {
        ContentContract::JsonObject => OBJECT.to_owned(),
        ContentContract::Schema(schema) => {
            let mut text = String::with_capacity(SCHEMA.len() + schema.text().len());
            text.push_str(SCHEMA);
            text.push_str(&String::from_utf8_lossy(schema.text()));
            text
        }
    }
}

/// Whether a message of the request already shows the model this contract: the literal schema, whatever
/// white space stands in it.
pub fn is_there(request: &ChatRequest, contract: &ContentContract) -> bool {
    let wanted = match contract {
        ContentContract::JsonObject => squashed(OBJECT),
        ContentContract::Schema(schema) => squashed(&String::from_utf8_lossy(schema.text())),
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
