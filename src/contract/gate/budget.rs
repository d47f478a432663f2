//! The `budget` gate: ceilings on what a call costs. What is not known is over every ceiling.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::contract::gate::At;
use crate::contract::gate::Build;
use crate::contract::gate::BuildError;
use crate::contract::gate::Findings;
use crate::contract::gate::Gate;
use crate::contract::gate::Kind;
use crate::contract::gate::written;
use crate::contract::gate::written::quoted;
use crate::contract::scene::Call;
use crate::contract::scene::Scene;
use crate::json::decimal::Decimal;

/// The kind.
pub const KIND: Kind = Kind { name: "budget", schema: |generator| Settings::json_schema(generator), build };

/// Ceilings on what the upstream calls of an exchange came to; at least one. A value at its ceiling is within it, one
/// that is not known is not: unknown is not zero.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// US dollars, a decimal in quotes: `"0.02"`.
    cost_usd: Option<String>,
    /// From the request's head to the answer's last byte, with its unit: `800ms`, `30s`, `2m`.
    latency: Option<String>,
    /// Tokens of the answer, reasoning included.
    output_tokens: Option<u64>,
    /// Tokens of the prompt.
    input_tokens: Option<u64>,
    /// Tokens of reasoning.
    reasoning_tokens: Option<u64>,
}

#[derive(Debug)]
struct BudgetGate {
    cost_usd: Option<Decimal>,
    latency: Option<Duration>,
    tokens: Vec<(&'static str, u64)>,
}

fn build(settings: &Value, _: &Build<'_>) -> Result<Box<dyn Gate>, Vec<BuildError>> {
    let file: Settings = written::settings(settings)?;
    let mut errors = Vec::new();
    let mut kept = |error: BuildError| errors.push(error);
    let cost_usd = file.cost_usd.as_deref().and_then(|text| cost(text).map_err(&mut kept).ok());
    let latency = file.latency.as_deref().and_then(|text| duration(text).map_err(&mut kept).ok());
    let tokens = [
        ("output_tokens", file.output_tokens),
        ("input_tokens", file.input_tokens),
        ("reasoning_tokens", file.reasoning_tokens),
    ];
    let tokens: Vec<_> = tokens.into_iter().filter_map(|(name, ceiling)| Some((name, ceiling?))).collect();
    if errors.is_empty() && cost_usd.is_none() && latency.is_none() && tokens.is_empty() {
        let message =
            "expected a ceiling: `cost_usd`, `latency`, `output_tokens`, `input_tokens` or `reasoning_tokens`";
        errors.push(BuildError { at: Vec::new(), message: message.to_owned() });
    }
    if errors.is_empty() { Ok(Box::new(BudgetGate { cost_usd, latency, tokens })) } else { Err(errors) }
}

fn cost(text: &str) -> Result<Decimal, BuildError> {
    let wrong = || BuildError::at("cost_usd", format!("expected a decimal such as \"0.02\", found {}", quoted(text)));
    Decimal::read(text).ok().filter(|cost| !text.starts_with('-') && *cost >= Decimal::ZERO).ok_or_else(wrong)
}

/// A whole number with its unit, as the configuration writes times.
fn duration(text: &str) -> Result<Duration, BuildError> {
    let wrong =
        || BuildError::at("latency", format!("expected a time such as `800ms`, `30s` or `2m`, found {}", quoted(text)));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(wrong)
}

impl Gate for BudgetGate {
    fn reads_usage(&self) -> bool {
        self.cost_usd.is_some() || !self.tokens.is_empty()
    }

    fn check(&self, scene: &Scene<'_>, found: &mut Findings<'_>) {
        let Call { usage, cost_usd, latency, .. } = scene.call;
        if let Some(ceiling) = &self.cost_usd {
            let told = cost_usd.as_ref().map(|cost| (cost <= ceiling, format!("{cost} USD")));
            say(found, "cost_usd", format!("{ceiling} USD"), told);
        }
        if let Some(ceiling) = self.latency {
            let told = latency.map(|latency| (latency <= ceiling, format!("{latency:?}")));
            say(found, "latency", format!("{ceiling:?}"), told);
        }
        for (name, ceiling) in &self.tokens {
            let used = usage.and_then(|usage| match *name {
                "output_tokens" => usage.output_tokens,
                "input_tokens" => usage.input_tokens,
                _ => usage.reasoning_tokens,
            });
            say(found, name, ceiling.to_string(), used.map(|used| (used <= *ceiling, used.to_string())));
        }
    }
}

fn say(found: &mut Findings<'_>, name: &str, ceiling: String, used: Option<(bool, String)>) {
    match used {
        Some((true, _)) => {}
        Some((false, used)) => found.say(At::Answer, || format!("`{name}`: expected at most {ceiling}, found {used}")),
        None => found.say(At::Answer, || format!("`{name}`: expected at most {ceiling}, found that it is not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::reply::Usage;
    use crate::contract::gate::trial::Trial;

    fn call() -> Call {
        Call {
            usage: Some(Usage {
                input_tokens: Some(10),
                output_tokens: Some(20),
                reasoning_tokens: None,
                ..Usage::default()
            }),
            cost_usd: Some(Decimal::read("0.0200").unwrap()),
            latency: Some(Duration::from_millis(1_500)),
            ..Call::default()
        }
    }

    #[test]
    fn ceilings_hold_and_unknown_is_not_zero() {
        for (settings, expected) in [
            (r#"{"cost_usd": "0.02"}"#, ""),
            (
                r#"{"cost_usd": "0.0199999999999999999999"}"#,
                "`cost_usd`: expected at most 0.0199999999999999999999 USD, found 0.0200 USD",
            ),
            (r#"{"latency": "1500ms"}"#, ""),
            (r#"{"latency": "2s"}"#, ""),
            (r#"{"latency": "1s"}"#, "`latency`: expected at most 1s, found 1.5s"),
            (r#"{"output_tokens": 20, "input_tokens": 10}"#, ""),
            (r#"{"output_tokens": 19}"#, "`output_tokens`: expected at most 19, found 20"),
            (r#"{"input_tokens": 0}"#, "`input_tokens`: expected at most 0, found 10"),
            (r#"{"reasoning_tokens": 1000}"#, "`reasoning_tokens`: expected at most 1000, found that it is not known"),
        ] {
            let told = Trial::of_call(call()).judged(&KIND, settings, "{}").join("; ");
            assert!(if expected.is_empty() { told.is_empty() } else { told.contains(expected) }, "{settings}: {told}");
        }
        let all = r#"{"cost_usd": "1", "latency": "1h", "output_tokens": 1, "input_tokens": 1, "reasoning_tokens": 1}"#;
        let told = Trial::default().judged(&KIND, all, "[]");
        assert!(told.len() == 5 && told.iter().all(|one| one.ends_with("found that it is not known")), "{told:?}");
    }

    #[test]
    fn settings_are_checked() {
        for (settings, expected) in [
            ("{}", "expected a ceiling"),
            (r#"{"cost_usd": "-1"}"#, "cost_usd: expected a decimal"),
            (r#"{"cost_usd": "1,5"}"#, "cost_usd: "),
            (r#"{"cost_usd": 0.02}"#, "invalid type"),
            (r#"{"latency": "30"}"#, "latency: expected a time"),
            (r#"{"latency": "s"}"#, "latency: "),
            (r#"{"latency": "99999999999999999999s"}"#, "latency: "),
            (r#"{"latency": "ü"}"#, "latency: "),
            (r#"{"output_tokens": -1}"#, "invalid number"),
            (r#"{"tokens": 1}"#, "unknown field"),
        ] {
            let told = Trial::default().refused(&KIND, settings);
            assert!(told.iter().any(|one| one.contains(expected)), "{settings}: {told:?}");
        }
    }
}
