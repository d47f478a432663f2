//! The language of templates: what of MiniJinja they have, and what they cannot afford; see [`super`].

use std::sync::LazyLock;

use minijinja::AutoEscape;
use minijinja::Environment;
use minijinja::ErrorKind;
use minijinja::UndefinedBehavior;
use minijinja::value::ValueKind;

use crate::contract::template::OBJECT_BYTES_MAX;
use crate::contract::template::TEXT_MAX;
use crate::contract::template::TemplateError;

/// Instructions that one template may run, and so the memory that it may take.
const FUEL: u64 = 50_000;
/// How deep blocks of a template may nest.
const RECURSION_MAX: usize = 60;
/// `+` in one template: lists are joined without fuel.
const JOINS_MAX: usize = 24;
/// Loops in one template.
const LOOPS_MAX: usize = 4;
/// The statements of the template language that templates may have.
const STATEMENTS: [&str; 8] = ["for", "endfor", "if", "elif", "else", "endif", "raw", "endraw"];
/// Filters that join lists, turn them into text, calculate with floats, or escape what is plain text.
const REFUSED_FILTERS: [&str; 20] = [
    "chain", "sum", "float", "round", "safe", "escape", "e", "zip", "string", "tojson", "pprint", "format", "batch",
    "slice", "title", "lines", "indent", "split", "int", "bool",
];
/// Tests that turn what they look at into text.
const REFUSED_TESTS: [&str; 4] = ["startingwith", "endingwith", "containing", "in"];

/// The environment of every template.
pub(super) static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_fuel(Some(FUEL));
    for filter in REFUSED_FILTERS {
        environment.remove_filter(filter);
    }
    for test in REFUSED_TESTS {
        environment.remove_test(test);
    }
    for global in ["namespace", "debug", "dict"] {
        environment.remove_global(global);
    }
    environment.add_filter("join", join);
    environment.add_filter("lower", |text: &minijinja::Value| said(text).map(str::to_lowercase));
    environment.add_filter("upper", |text: &minijinja::Value| said(text).map(str::to_uppercase));
    environment.add_filter("trim", |text: &minijinja::Value| said(text).map(|text| text.trim().to_owned()));
    environment.add_filter("capitalize", |text: &minijinja::Value| {
        let mut characters = said(text)?.chars();
        let first = characters.next().into_iter().flat_map(char::to_uppercase).collect::<String>();
        Ok::<_, minijinja::Error>(first + characters.as_str())
    });
    environment.add_filter("replace", replace);
    environment.set_formatter(|out, state, value| {
        plain(value)?;
        minijinja::escape_formatter(out, state, value)
    });
    environment
}

/// Refuses what is not plain where text is made.
fn plain(value: &minijinja::Value) -> Result<(), minijinja::Error> {
    let found = match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => "an array",
        ValueKind::Map => "an object",
        _ => return Ok(()),
    };
    let message = format!("expected a plain value to say, found {found}; `join` makes a text of an array");
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
}

/// The string that a value is.
fn said(value: &minijinja::Value) -> Result<&str, minijinja::Error> {
    value.as_str().ok_or_else(|| {
        let message = format!("expected a string, found {}", value.kind());
        minijinja::Error::new(ErrorKind::InvalidOperation, message)
    })
}

/// The text with another in place of every occurrence of one.
fn replace(
    text: &minijinja::Value,
    sought: &minijinja::Value,
    by: &minijinja::Value,
) -> Result<String, minijinja::Error> {
    let (text, sought, by) = (said(text)?, said(sought)?, said(by)?);
    let most = (text.len() + 1).saturating_mul(by.len().max(1));
    if most > OBJECT_BYTES_MAX && text.matches(sought).count().saturating_mul(by.len()) > OBJECT_BYTES_MAX {
        return Err(minijinja::Error::new(ErrorKind::WriteFailure, "too long"));
    }
    Ok(text.replace(sought, by))
}

/// The plain values of an array with `separator` between them.
fn join(
    state: &minijinja::State<'_, '_>,
    values: &minijinja::Value,
    separator: Option<&str>,
) -> Result<String, minijinja::Error> {
    let mut text = String::new();
    for (at, value) in values.try_iter()?.enumerate() {
        state.consume_fuel(1)?;
        plain(&value)?;
        if at > 0 {
            text.push_str(separator.unwrap_or_default());
        }
        match value.as_str() {
            Some(part) => text.push_str(part),
            None => text.push_str(&value.to_string()),
        }
        if text.len() > TEXT_MAX {
            return Err(minijinja::Error::new(ErrorKind::WriteFailure, "too long"));
        }
    }
    Ok(text)
}

/// Refuses what fuel does not pay for; see [`super`].
pub(super) fn affordable(code: &[String]) -> Result<(), TemplateError> {
    let refused = |message: String| Err(TemplateError::TooLarge(message));
    let (mut loops, mut joins) = (0, 0);
    for code in code {
        if let Some(statement) = code.strip_prefix('%') {
            let mut words = statement.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
            let first = words.next().unwrap_or_default();
            if !STATEMENTS.contains(&first) || words.any(|word| word == "recursive") {
                let known: Vec<String> = STATEMENTS.iter().map(|name| format!("`{name}`")).collect();
                return refused(format!(
                    "`{}` is no statement of templates; known: {}",
                    statement.trim(),
                    known.join(", ")
                ));
            }
            if first == "for" {
                loops += 1;
                if has_literal(statement) {
                    return refused("a loop goes through a list that is there, not through one of its own".to_owned());
                }
            }
        }
        if code.contains('~') {
            return refused("`~`, which templates do not have: write `{{ a }}{{ b }}`, or `join` a list".to_owned());
        }
        joins += code.matches('+').count();
    }
    if loops > LOOPS_MAX {
        return refused(format!("{loops} loops; at most {LOOPS_MAX} in one template"));
    }
    if joins > JOINS_MAX {
        return refused(format!("{joins} times `+`; at most {JOINS_MAX} in one template"));
    }
    Ok(())
}

/// Whether a list, object or tuple is made in this code: a bracket that neither calls nor looks something up.
fn has_literal(code: &str) -> bool {
    let mut before = ' ';
    for c in code.chars() {
        let follows = before.is_alphanumeric() || matches!(before, '_' | ']' | ')');
        if matches!(c, '[' | '{' | '(') && !follows {
            return true;
        }
        before = c;
    }
    false
}

/// The code in a template, tag by tag, without the texts in it; a statement begins with `%`.
pub(super) fn tags(source: &str) -> Vec<String> {
    let mut tags = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find("{{").into_iter().chain(rest.find("{%")).min() {
        let (tag, after) = rest.get(at..).unwrap_or_default().split_at_checked(2).unwrap_or_default();
        let end = if tag == "{%" { "%}" } else { "}}" };
        let (code, length) = code(after, end);
        tags.push(if tag == "{%" { format!("%{code}") } else { code });
        rest = after.get(length..).unwrap_or_default();
    }
    tags
}

/// The code up to `end` without the texts in it, and how long it is.
pub(super) fn code(source: &str, end: &str) -> (String, usize) {
    let (mut code, mut quote, mut escaped) = (String::new(), None, false);
    for (at, c) in source.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if source.get(at..).is_some_and(|rest| rest.starts_with(end)) => return (code, at + end.len()),
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                code.push(' ');
            }
            None => code.push(c),
        }
    }
    (code, source.len())
}
