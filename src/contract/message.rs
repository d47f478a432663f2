//! What the schema gate says: what was expected and what was found, in the field's words.

use jsonschema::ValidationError;
use jsonschema::error::TypeKind;
use jsonschema::error::ValidationErrorKind as Kind;
use serde_json::Value;

use crate::json::fault::shown;

/// Branches of `anyOf` and `oneOf` that a message goes into.
const BRANCHES_MAX: usize = 4;

/// The message for one error of the validator. Values are quoted up to 80 characters.
pub fn of(error: &ValidationError<'_>) -> String {
    let found = value(error.instance());
    match error.kind() {
        Kind::Type { kind } => format!("expected {}, found {} {found}", types(kind), type_of(error.instance())),
        Kind::Required { property } => match property {
            Value::String(name) => format!("the required member `{}` is missing", shown(name)),
            other => format!("the required member {} is missing", value(other)),
        },
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!(
                "members that the schema does not allow: {}",
                list(unexpected.iter().map(|name| format!("`{}`", shown(name))))
            )
        }
        Kind::UnevaluatedItems { unexpected } => {
            format!(
                "items that the schema does not allow: {}",
                list(unexpected.iter().map(|item| format!("`{}`", shown(item))))
            )
        }
        Kind::AdditionalItems { limit } => {
            format!("expected at most {limit} items, found {}", length(error.instance()))
        }
        Kind::Enum { options } => format!("expected one of {}, found {found}", options_of(options)),
        Kind::Constant { expected_value } => format!("expected {}, found {found}", value(expected_value)),
        Kind::Minimum { limit } => format!("expected at least {limit}, found {found}"),
        Kind::Maximum { limit } => format!("expected at most {limit}, found {found}"),
        Kind::ExclusiveMinimum { limit } => format!("expected more than {limit}, found {found}"),
        Kind::ExclusiveMaximum { limit } => format!("expected less than {limit}, found {found}"),
        Kind::MultipleOf { multiple_of } => format!("expected a multiple of {multiple_of}, found {found}"),
        Kind::MinLength { limit } => {
            format!("expected at least {limit} characters, found {}", length(error.instance()))
        }
        Kind::MaxLength { limit } => format!("expected at most {limit} characters, found {}", length(error.instance())),
        Kind::MinItems { limit } => format!("expected at least {limit} items, found {}", length(error.instance())),
        Kind::MaxItems { limit } => format!("expected at most {limit} items, found {}", length(error.instance())),
        Kind::MinProperties { limit } => {
            format!("expected at least {limit} members, found {}", length(error.instance()))
        }
        Kind::MaxProperties { limit } => {
            format!("expected at most {limit} members, found {}", length(error.instance()))
        }
        Kind::UniqueItems => "expected items that are pairwise different".to_owned(),
        Kind::Contains => "no item matches `contains`, or too few or too many do".to_owned(),
        Kind::Format { format } => format!("expected the format `{}`, found {found}", shown(format)),
        Kind::Pattern { pattern } => format!("expected a match of `{}`, found {found}", shown(pattern)),
        Kind::BacktrackLimitExceeded { .. } => format!("the pattern took more steps than are allowed on {found}"),
        Kind::RegexEngineFailure { .. } => format!("the pattern could not be checked on {found}"),
        Kind::FalseSchema => format!("the schema allows no value here, found {found}"),
        Kind::Not { schema } => format!("expected anything but what {} accepts, found {found}", value(schema)),
        Kind::AnyOf { context } => format!("matches no branch of `anyOf`: {}", branches(context)),
        Kind::OneOfNotValid { context } => format!("matches no branch of `oneOf`: {}", branches(context)),
        Kind::OneOfMultipleValid { .. } => "matches more than one branch of `oneOf`".to_owned(),
        Kind::PropertyNames { error } => format!("a member's name: {}", of(error)),
        Kind::ContentEncoding { content_encoding } => format!("expected the encoding `{}`", shown(content_encoding)),
        Kind::ContentMediaType { content_media_type } => {
            format!("expected the media type `{}`", shown(content_media_type))
        }
        Kind::FromUtf8 { .. } => "the encoded content is not UTF-8".to_owned(),
        Kind::Custom { .. } | Kind::Referencing(_) => format!("the schema refuses {found}"),
    }
}

/// A value as JSON in backticks, at most 80 characters of it.
pub fn value(value: &Value) -> String {
    // Only as much is written as is shown: a value may be megabytes.
    let text = match value {
        Value::String(text) => {
            let start: String = text.chars().take(81).collect();
            Value::String(start).to_string()
        }
        Value::Array(items) if items.len() > 40 => format!("an array of {} items", items.len()),
        Value::Object(members) if members.len() > 40 => format!("an object of {} members", members.len()),
        Value::Array(_) | Value::Object(_) if heavy(value) => type_of(value).to_owned(),
        other => other.to_string(),
    };
    format!("`{}`", shown(&text))
}

/// Whether a container holds so much that it is not written out for a message.
fn heavy(value: &Value) -> bool {
    fn weight(value: &Value, left: &mut usize) {
        let own = match value {
            Value::String(text) => text.len(),
            _ => 1,
        };
        *left = left.saturating_sub(own);
        if *left == 0 {
            return;
        }
        match value {
            Value::Array(items) => items.iter().take(64).for_each(|item| weight(item, left)),
            Value::Object(members) => members.values().take(64).for_each(|member| weight(member, left)),
            _ => {}
        }
    }
    let mut left = 4_096;
    weight(value, &mut left);
    left == 0
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.to_string(),
        TypeKind::Multiple(many) => list(many.iter().map(|one| one.to_string())),
    }
}

/// What a value is, for messages.
pub fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    }
}

fn options_of(options: &Value) -> String {
    match options {
        Value::Array(options) if options.len() > 12 => {
            format!("{} and {} more", list(options.iter().take(12).map(value)), options.len() - 12)
        }
        Value::Array(options) => list(options.iter().map(value)),
        other => value(other),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = items.take(20).collect();
    all.join(", ")
}

fn branches(context: &[Vec<ValidationError<'static>>]) -> String {
    let told = context.iter().take(BRANCHES_MAX).enumerate().map(|(index, errors)| match errors.first() {
        Some(error) => {
            let inner: String = of(error).chars().take(200).collect();
            format!("branch {}: {}{inner}", index + 1, place(error))
        }
        None => format!("branch {}", index + 1),
    });
    let mut text = told.collect::<Vec<_>>().join("; ");
    if context.len() > BRANCHES_MAX {
        text.push_str(&format!("; and {} more", context.len() - BRANCHES_MAX));
    }
    text
}

fn place(error: &ValidationError<'_>) -> String {
    match error.instance_path().as_str() {
        "" => String::new(),
        pointer => format!("at `{}` ", shown(pointer)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_shown_of_a_value_is_written() {
        let numbers = |count: usize| Value::Array((0..count).map(|_| json!(1)).collect());
        let members = |count: usize| Value::Object((0..count).map(|index| (format!("{index}"), json!(1))).collect());
        assert!(value(&numbers(40)).starts_with("`[1,1,"));
        assert_eq!(value(&numbers(41)), "`an array of 41 items`");
        assert!(value(&members(40)).starts_with("`{\"0\":1,"));
        assert_eq!(value(&members(41)), "`an object of 41 members`");
        assert_eq!(value(&json!(["x".repeat(10_000)])), "`array`");
        assert_eq!(value(&json!({"a": [1.50, null, "b"]})), r#"`{"a":[1.5,null,"b"]}`"#);
    }
}
