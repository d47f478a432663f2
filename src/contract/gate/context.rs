//! The `context` gate: the prompt arrived whole at the model.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::contract::gate;
use crate::contract::gate::At;
use crate::contract::gate::Build;
use crate::contract::gate::BuildError;
use crate::contract::gate::Finding;
use crate::contract::gate::Findings;
use crate::contract::gate::Gate;
use crate::contract::gate::Kind;
use crate::contract::gate::written;
use crate::contract::scene::Scene;

/// The kind.
pub const KIND: Kind = Kind { name: "context", schema: |generator| Settings::json_schema(generator), build };
/// Bytes of text that one token stands for at the most, where a policy says nothing.
const BYTES_PER_TOKEN: u64 = 12;

/// The prompt tokens that the backend reports are plausible for the text that was sent, and fewer than its context
/// holds. Unknown usage is a violation.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Bytes of text that one token stands for at the most. Default: 12.
    bytes_per_token: Option<u64>,
}

#[derive(Debug)]
struct ContextGate {
    bytes_per_token: u64,
}

fn build(settings: &Value, _: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let Settings { bytes_per_token } = written::settings(settings)?;
    match bytes_per_token.unwrap_or(BYTES_PER_TOKEN) {
        0 => Err(vec![BuildError::at("bytes_per_token", "expected at least 1, found 0")]),
        bytes_per_token => Ok(Box::new(ContextGate { bytes_per_token })),
    }
}

impl Gate for ContextGate {
    fn reads_usage(&self) -> bool {
        true
    }

    fn check(&self, scene: &Scene<'_>, found: &mut Findings<'_>) {
        let call = scene.call;
        let Some(tokens) = call.usage.and_then(|usage| usage.input_tokens) else {
            return found
                .say(At::Answer, || "expected the number of prompt tokens, found that it is not known".to_owned());
        };
        let Some(bytes) = call.prompt_bytes else {
            return found.say(At::Answer, || "expected the size of the prompt, found that it is not known".to_owned());
        };
        let least = bytes.div_ceil(self.bytes_per_token);
        if tokens < least {
            truncated(found, || {
                format!("expected at least {least} prompt tokens for {bytes} bytes of text, found {tokens}")
            });
        }
        if let Some(size) = call.context
            && tokens >= size
        {
            truncated(found, || format!("expected fewer prompt tokens than the {size} of the context, found {tokens}"));
        }
    }
}

fn truncated(found: &mut Findings<'_>, message: impl FnOnce() -> String) {
    found.report(At::Answer, |at| Finding { kind: Some(gate::CONTEXT_TRUNCATED), ..Finding::new(at, message()) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::reply::Usage;
    use crate::contract::gate::trial::Trial;
    use crate::contract::scene::Call;

    #[test]
    fn the_prompt_arrived_whole() {
        let call = |tokens: Option<u64>, bytes: Option<u64>, context: Option<u64>| Call {
            usage: Some(Usage { input_tokens: tokens, ..Usage::default() }),
            prompt_bytes: bytes,
            context,
            ..Call::default()
        };
        for (call, settings, expected) in [
            (call(Some(100), Some(1_200), Some(4_096)), "{}", ""),
            (
                call(Some(99), Some(1_200), Some(4_096)),
                "{}",
                "at least 100 prompt tokens for 1200 bytes of text, found 99",
            ),
            (call(Some(100), Some(1_201), None), "{}", "at least 101"),
            (call(Some(60), Some(1_200), None), r#"{"bytes_per_token": 20}"#, ""),
            (call(Some(59), Some(1_200), None), r#"{"bytes_per_token": 20}"#, "at least 60"),
            (call(Some(4_096), Some(1), Some(4_096)), "{}", "expected fewer prompt tokens than the 4096"),
            (call(Some(0), Some(0), Some(1)), "{}", ""),
            (call(Some(0), Some(1), None), "{}", "at least 1"),
            (call(None, Some(1), None), "{}", "prompt tokens, found that it is not known"),
            (call(Some(1), None, None), "{}", "size of the prompt"),
            (Call::default(), "{}", "prompt tokens, found that it is not known"),
            (call(Some(u64::MAX), Some(u64::MAX), None), "{}", ""),
        ] {
            let told = Trial::of_call(call).judged(&KIND, settings, "{}").join("; ");
            assert!(if expected.is_empty() { told.is_empty() } else { told.contains(expected) }, "{expected}: {told}");
        }
        assert!(Trial::default().refused(&KIND, r#"{"bytes_per_token": 0}"#)[0].starts_with("bytes_per_token: "));
        assert!(!Trial::default().refused(&KIND, r#"{"bytes_per_token": -1}"#).is_empty());
    }
}
