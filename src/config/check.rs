//! The file against its JSON Schema, with every error in our own words.

use std::ops::Range;

use jsonschema::JsonType;
use jsonschema::ValidationError;
use jsonschema::error::TypeKind;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use crate::config::policy::GATE_NAME;
use crate::config::policy::GATE_NAME_HELP;
use crate::config::problem::Problems;
use crate::config::schema::Format;
use crate::config::secret;
use crate::config::source::Shown;
use crate::config::source::Source;
use crate::config::source::hide;
use crate::config::tree::Content;
use crate::config::tree::Node;
use crate::config::unit;
use crate::nearest::did_you_mean;

/// A file that is checked.
pub(super) struct Checked<'c> {
    /// The text.
    pub(super) source: &'c Source<'c>,
    /// The tree.
    pub(super) root: &'c Node,
}

/// Reports what does not fit the schema, and marks it as broken, so that the rest can be read.
pub(super) fn check(format: &Format, source: &Source<'_>, root: &mut Node, shown: &mut Shown, problems: &mut Problems) {
    let Some(validator) = &format.validator else {
        return problems.add(&(0..0), "the gateway's own schema does not compile; please report this");
    };
    let Some(instance) = root.to_json() else { return };
    let mut faults = Vec::new();
    for error in validator.iter_errors(&instance) {
        faults.extend(faults_of(format, source.text(), root, &error));
    }
    // Before any message is written, so that none shows what another one hides.
    hide(shown, faults.iter().flat_map(|fault| fault.hidden.clone()).collect());
    for fault in faults {
        let message = match fault.found {
            Some(path) => format!("{}; found {}", fault.message, found(source, root.nearest_at(&path), shown)),
            None => fault.message,
        };
        problems.add(&fault.at, message + &fault.hint);
        if let Some(node) = fault.remove.and_then(|path| root.at_mut(&path)) {
            node.broken = true;
        }
    }
}

/// One error of the schema, on its way to a message.
#[derive(Default)]
struct Fault {
    at: Range<usize>,
    message: String,
    /// The part to show as found.
    found: Option<Vec<String>>,
    hint: String,
    /// Bytes that nobody may see any more, for nothing is known of them.
    hidden: Vec<Range<usize>>,
    /// The part to take out.
    remove: Option<Vec<String>>,
}

fn faults_of(format: &Format, text: &str, root: &Node, error: &ValidationError<'_>) -> Vec<Fault> {
    let path = steps(error.instance_path().as_str());
    let node = root.nearest_at(&path);
    let part = format.parent_of(error.schema_path().as_str());
    let one = |message: String| Fault {
        at: node.span.clone(),
        message,
        found: Some(path.clone()),
        remove: Some(path.clone()),
        ..Fault::default()
    };
    let subject = match path.split_last() {
        // A header without a value may be a value without a name.
        Some((_, parents)) if parents.ends_with(&["headers".into()]) && matches!(node.content, Content::Nothing) => {
            format!("each value of {}", name_in(format, root, parents))
        }
        _ => name_in(format, root, &path),
    };
    let unit_help = part.and_then(|part| pattern_help(part.get("pattern")?.as_str()?));
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let known = part.map(|part| format.members(part)).unwrap_or_default();
            let cut_off = secret::cut_off(text, node.entries(), &known);
            unexpected
                .iter()
                .map(|key| unknown(format, root, node, &path, key, &known, cut_off.contains(key.as_str())))
                .collect()
        }
        ValidationErrorKind::Required { property } => {
            // A member that is there, but was broken and reported before, is not missing.
            let key = property.as_str().unwrap_or_default();
            if node.entry(key).is_some() { Vec::new() } else { vec![missing(format, root, &path, key, part)] }
        }
        ValidationErrorKind::Type { kind } => vec![Fault {
            hint: if unit_help.is_some() { String::new() } else { type_hint(kind, node, &path) },
            hidden: if names_mapping(kind) && path.len() > 1 { vec![node.origin.clone()] } else { Vec::new() },
            ..one(format!("{subject} must be {}", unit_help.unwrap_or(expected(kind))))
        }],
        ValidationErrorKind::OneOfNotValid { .. }
        | ValidationErrorKind::Enum { .. }
        | ValidationErrorKind::Constant { .. } => {
            let allowed = part.map(|part| format.allowed(part)).unwrap_or_default();
            let near = node.text().map(|text| did_you_mean(text, allowed.iter().map(String::as_str)));
            vec![Fault { hint: near.unwrap_or_default(), ..one(format!("{subject} must be {}", or(&allowed))) }]
        }
        ValidationErrorKind::Pattern { pattern } => {
            vec![one(format!("{subject} must be {}", pattern_help(pattern).unwrap_or(pattern)))]
        }
        ValidationErrorKind::Minimum { limit } => vec![one(format!("{subject} must be at least {limit}"))],
        ValidationErrorKind::Maximum { limit } => vec![one(format!("{subject} must be at most {limit}"))],
        // A mapping whose members were all broken and reported before is not empty.
        ValidationErrorKind::MinProperties { .. } if !node.entries().is_empty() => Vec::new(),
        ValidationErrorKind::MinItems { .. }
        | ValidationErrorKind::MinLength { .. }
        | ValidationErrorKind::MinProperties { .. } => {
            vec![Fault { found: None, ..one(format!("{subject} must not be empty")) }]
        }
        ValidationErrorKind::MaxItems { limit } => vec![one(format!("{subject} must have at most {limit} items"))],
        ValidationErrorKind::MaxLength { limit } => {
            vec![one(format!("{subject} must have at most {limit} characters"))]
        }
        ValidationErrorKind::AnyOf { .. } if !options(format, part).is_empty() => {
            vec![one(format!("{subject} must be {}", options(format, part).join(" or ")))]
        }
        other => vec![one(format!("{subject} does not fit the schema's `{}`", other.keyword()))],
    }
}

fn unknown(
    format: &Format,
    root: &Node,
    node: &Node,
    path: &[String],
    key: &str,
    known: &[&str],
    cut_off: bool,
) -> Fault {
    let entry = node.entry(key);
    let place = name_in(format, root, path);
    let near = did_you_mean(key, known.iter().copied());
    let cut_off = cut_off && near.is_empty();
    let shown = if cut_off { "***".into() } else { secret::name(key) };
    let key_span = entry.filter(|_| cut_off).map(|entry| entry.key_span.clone());
    Fault {
        at: entry.map_or_else(|| node.span.clone(), |entry| entry.key_span.clone()),
        message: format!("{place} has no member `{shown}`{near}"),
        hint: format!("{} allowed: {}", if near.is_empty() { ";" } else { "" }, listed(known)),
        hidden: entry.map(|entry| entry.node.origin.clone()).into_iter().chain(key_span).collect(),
        found: None,
        remove: Some(path.iter().cloned().chain([key.to_owned()]).collect()),
    }
}

fn missing(format: &Format, root: &Node, path: &[String], key: &str, part: Option<&Value>) -> Fault {
    let member = part.and_then(|part| part.get("properties")?.get(key));
    let allowed = member.map(|member| format.allowed(member)).unwrap_or_default();
    let place = name_in(format, root, path);
    let allowed = if allowed.is_empty() { String::new() } else { format!("; allowed: {}", listed(&allowed)) };
    let at = path.split_last().and_then(|(last, parents)| Some(root.at(parents)?.entry(last)?.key_span.clone()));
    Fault {
        at: at.unwrap_or_else(|| root.nearest_at(path).span.clone()),
        message: format!("{place} lacks the member `{key}`, which has no default{allowed}"),
        ..Fault::default()
    }
}

/// What stands at a path, for a message: its kind, and its text as written where that may be shown.
fn found(source: &Source<'_>, node: &Node, shown: &Shown) -> String {
    let what = match &node.content {
        Content::Nothing => return "nothing".into(),
        Content::List(_) => return "a list".into(),
        Content::Map(_) => return "a mapping".into(),
        Content::Bool(_) => "",
        Content::Number(_) => "the number ",
        Content::Text { value, expanded: false } if value.is_empty() => return "an empty text".into(),
        Content::Text { expanded: true, .. } => "what stands for ",
        Content::Text { .. } => "the text ",
    };
    format!("{what}{}", source.quoted(&node.span, shown))
}

fn expected(kind: &TypeKind) -> &'static str {
    let TypeKind::Single(kind) = kind else { return "of another type" };
    match kind {
        JsonType::Array => "a list",
        JsonType::Boolean => "`true` or `false`",
        JsonType::Integer => "a whole number",
        JsonType::Null => "nothing",
        JsonType::Number => "a number",
        JsonType::Object => "a mapping of names to values",
        JsonType::String => "a text",
    }
}

/// What the options of an `anyOf` want, in words; nothing where one of them cannot be put in a word.
fn options(format: &Format, part: Option<&Value>) -> Vec<String> {
    let options = part.and_then(|part| part.get("anyOf")?.as_array()).map(Vec::as_slice).unwrap_or_default();
    let word = |option: &Value| wanted(format, option);
    options.iter().map(word).collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn wanted(format: &Format, option: &Value) -> Option<String> {
    let option = format.resolved(option);
    let allowed = format.allowed(option);
    if !allowed.is_empty() {
        return Some(or(&allowed));
    }
    Some(match option.get("type")?.as_str()? {
        "array" => match option.get("items").and_then(|items| format.resolved(items).get("type")?.as_str()) {
            Some("string") => "a list of texts".to_owned(),
            _ => "a list".to_owned(),
        },
        "boolean" => "`true` or `false`".to_owned(),
        "integer" => "a whole number".to_owned(),
        "number" => "a number".to_owned(),
        "object" => "a mapping of names to values".to_owned(),
        "string" => "a text".to_owned(),
        _ => return None,
    })
}

fn names_mapping(kind: &TypeKind) -> bool {
    matches!(kind, TypeKind::Single(JsonType::Object))
}

fn type_hint(kind: &TypeKind, node: &Node, path: &[String]) -> String {
    let TypeKind::Single(kind) = kind else { return String::new() };
    let hint = match (kind, &node.content) {
        (JsonType::Boolean, Content::Text { .. }) => "; write true or false, without quotes and not from a reference",
        (JsonType::Integer | JsonType::Number, Content::Text { .. }) => {
            "; write digits alone, without quotes and not from a reference"
        }
        (JsonType::String, Content::Number(_) | Content::Bool(_)) => "; put it in quotes",
        (_, Content::Nothing) if !path.is_empty() => "; leave the member out to have its default",
        _ => "",
    };
    hint.into()
}

fn pattern_help(pattern: &str) -> Option<&'static str> {
    match pattern {
        unit::SIZE => Some(unit::SIZE_HELP),
        unit::DURATION => Some(unit::DURATION_HELP),
        unit::PRICE => Some(unit::PRICE_HELP),
        GATE_NAME => Some(GATE_NAME_HELP),
        _ => None,
    }
}

fn listed<S: AsRef<str>>(names: &[S]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

fn or(names: &[String]) -> String {
    match names {
        [one] => format!("`{one}`"),
        many => format!("one of {}", listed(many)),
    }
}

/// Members that hold lists, for names that are made without the file at hand.
const LISTS: [&str; 4] = [".targets", ".cors", ".trusted_proxies", ".reasoning_tags"];

/// A part's name for a message: `` `models.a.targets[0].model` ``.
pub(super) fn name<S: AsRef<str>>(path: &[S], member: Option<&str>) -> String {
    let steps = path.iter().map(AsRef::as_ref).chain(member);
    spelt(steps, |text, _| text == "match" || LISTS.iter().any(|list| text.ends_with(list)))
}

/// The name of the part of this file at `path`.
pub(super) fn name_in<S: AsRef<str>>(format: &Format, root: &Node, path: &[S]) -> String {
    let is_list = |depth: usize| {
        path.get(..depth)
            .and_then(|parents| root.at(parents))
            .is_some_and(|node| matches!(node.content, Content::List(_)))
    };
    if path.is_empty() {
        return format.whole.to_owned();
    }
    spelt(path.iter().map(AsRef::as_ref), |_, depth| is_list(depth))
}

fn spelt<'s>(steps: impl Iterator<Item = &'s str>, in_list: impl Fn(&str, usize) -> bool) -> String {
    let mut text = String::new();
    for (depth, step) in steps.enumerate() {
        let plain = !step.is_empty() && step.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if step.bytes().all(|b| b.is_ascii_digit()) && in_list(&text, depth) {
            text.push_str(&format!("[{step}]"));
            continue;
        }
        if !text.is_empty() {
            text.push('.');
        }
        let shown = if text.ends_with(".headers.") && !secret::is_header_name(step) {
            "***".into()
        } else {
            secret::name(step)
        };
        text.push_str(&if plain { shown } else { format!("\"{shown}\"") });
    }
    if text.is_empty() { "the file".into() } else { format!("`{text}`") }
}

fn steps(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect()
}
