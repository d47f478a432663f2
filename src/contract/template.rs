//! Templates: what is said of violations, and the objects that are answered instead of a rejected one.
//!
//! They are rendered by the `minijinja` crate: plain text, no escaping, no includes, no macros, strict about names that
//! have no value, in bounded fuel and with a bounded result. Numbers come out as they were printed. A number that is no
//! 64-bit integer can be printed and passed on, but not calculated with: that is what rules are for.
//!
//! Fuel does not pay for everything: a list that is kept in a variable and joined with itself, or put twice into another,
//! doubles for free, and turning it into text has no end. So there are no variables but those of loops, a loop goes
//! through what is there and not through a list of its own, and only plain values become text.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::LazyLock;

use minijinja::AutoEscape;
use minijinja::Environment;
use minijinja::ErrorKind;
use minijinja::Expression;
use minijinja::UndefinedBehavior;
use minijinja::value::Enumerator;
use minijinja::value::Object;
use minijinja::value::ObjectRepr;
use minijinja::value::ValueKind;
use serde_json::Map;
use serde_json::Number;
use serde_json::Value;

use crate::nearest::did_you_mean;

/// Bytes of a template.
pub const SOURCE_MAX: usize = 4 << 10;
/// Bytes of what a template renders to.
pub const TEXT_MAX: usize = 16 << 10;
/// Values in what a response object renders to.
pub const VALUES_MAX: usize = 20_000;
/// Bytes of the strings in what a response object renders to.
pub const OBJECT_BYTES_MAX: usize = 256 << 10;
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
/// The member that makes an object stand for the value of an expression.
const VALUE: &str = "$value";
const NAME: &str = "template";

/// The environment of every template.
static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

fn environment() -> Environment<'static> {
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

/// The names that a template may use.
#[derive(Clone, Debug, Default)]
pub struct Names(BTreeMap<String, Option<Vec<String>>>);

impl Names {
    /// These variables.
    pub fn new<'n>(variables: impl IntoIterator<Item = &'n str>) -> Self {
        Self(variables.into_iter().map(|name| (name.to_owned(), None)).collect())
    }

    /// The same with a variable whose members are known at load.
    #[must_use]
    pub fn with_members<S: Into<String>>(mut self, variable: &str, members: impl IntoIterator<Item = S>) -> Self {
        self.0.insert(variable.to_owned(), Some(members.into_iter().map(Into::into).collect()));
        self
    }

    /// Checks names as MiniJinja tells them: `output.total`.
    fn check(&self, found: impl IntoIterator<Item = String>) -> Result<(), TemplateError> {
        let mut found: Vec<String> = found.into_iter().collect();
        found.sort_unstable();
        let functions: Vec<&str> = ENVIRONMENT.globals().map(|(name, _)| name).collect();
        for path in found {
            let mut parts = path.split('.');
            let name = parts.next().unwrap_or_default();
            let Some(members) = self.0.get(name) else {
                if functions.contains(&name) {
                    continue;
                }
                return Err(unknown("variable", name, self.0.keys()));
            };
            if let (Some(members), Some(member)) = (members, parts.next())
                && !members.iter().any(|known| known == member)
            {
                return Err(unknown(&format!("member of `{name}`"), member, members.iter()));
            }
        }
        Ok(())
    }
}

fn unknown<'n>(what: &str, name: &str, known: impl Iterator<Item = &'n String>) -> TemplateError {
    let known: Vec<&str> = known.map(String::as_str).take(40).collect();
    let listed: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let nearest = did_you_mean(name, known.iter().copied());
    TemplateError::Unknown(format!("unknown {what} `{name}`{nearest}; known: {}", listed.join(", ")))
}

/// Why a template cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It breaks the template language.
    #[error("line {line}: {message}")]
    Syntax {
        /// The line in the template, from 1.
        line: usize,
        /// What was found.
        message: String,
    },
    /// It names what does not exist.
    #[error("{0}")]
    Unknown(String),
    /// It is too long, or nests too deep.
    #[error("{0}")]
    TooLarge(String),
    /// A part of a response object.
    #[error("at `{path}`: {source}")]
    At {
        /// The members that lead to the part.
        path: String,
        /// What is wrong there.
        source: Box<TemplateError>,
    },
}

/// Why a template rendered to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// It took more instructions than it may, or nested too deep.
    #[error("work limit: the template does too much")]
    WorkLimit,
    /// What it rendered is too long.
    #[error("the template renders to more than can be said")]
    TooLong,
    /// It ended in an error.
    #[error("{0}")]
    Error(String),
}

impl TemplateError {
    fn of(error: &minijinja::Error) -> Self {
        let message = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
        Self::Syntax { line: error.line().unwrap_or(1), message }
    }
}

impl TemplateFault {
    fn of(error: &minijinja::Error) -> Self {
        let detail = error.detail().unwrap_or_default();
        match error.kind() {
            ErrorKind::OutOfFuel => Self::WorkLimit,
            _ if detail.contains("recursion limit") => Self::WorkLimit,
            ErrorKind::WriteFailure => Self::TooLong,
            kind => {
                let said = if detail.is_empty() { kind.to_string() } else { format!("{kind}: {detail}") };
                let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
                Self::Error(format!("{line}{}", crate::json::fault::shown(&said)))
            }
        }
    }
}

/// A value that templates see. Cheap to clone.
#[derive(Clone, Debug)]
pub struct TemplateValue(minijinja::Value);

impl TemplateValue {
    /// A copy of a JSON tree, numbers as printed and members in their order. O(size).
    pub fn from_json(value: &Value) -> Self {
        Self(seen(value))
    }

    /// A text.
    pub fn from_text(text: &str) -> Self {
        Self(minijinja::Value::from(text))
    }
}

/// What the names of a template stand for.
#[derive(Clone, Debug, Default)]
pub struct TemplateContext(BTreeMap<&'static str, minijinja::Value>);

impl TemplateContext {
    /// No names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a name its value.
    pub fn set(&mut self, name: &'static str, value: TemplateValue) {
        self.0.insert(name, value.0);
    }

    /// The same with a name.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: TemplateValue) -> Self {
        self.set(name, value);
        self
    }

    fn value(&self) -> minijinja::Value {
        minijinja::Value::from_object(self.0.clone())
    }
}

/// A number that is no 64-bit integer, as it is printed.
#[derive(Debug)]
struct Printed(Number);

impl Object for Printed {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// An object, in the order of its members.
#[derive(Debug)]
struct Members {
    names: Vec<minijinja::Value>,
    values: HashMap<String, minijinja::Value, ahash::RandomState>,
}

impl Object for Members {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        self.values.get(key.as_str()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.names.clone())
    }
}

fn seen(value: &Value) -> minijinja::Value {
    match value {
        Value::Null => minijinja::Value::from(()),
        Value::Bool(value) => minijinja::Value::from(*value),
        Value::Number(number) => match number.as_str().parse::<i64>() {
            Ok(value) if number.as_str() != "-0" => minijinja::Value::from(value),
            _ => minijinja::Value::from_object(Printed(number.clone())),
        },
        Value::String(text) => minijinja::Value::from(text.as_str()),
        Value::Array(items) => items.iter().map(seen).collect(),
        Value::Object(members) => minijinja::Value::from_object(Members {
            names: members.keys().map(|name| minijinja::Value::from(name.as_str())).collect(),
            values: members.iter().map(|(name, value)| (name.clone(), seen(value))).collect(),
        }),
    }
}

/// A compiled template.
#[derive(Clone)]
pub struct Template(Arc<Environment<'static>>);

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Template")
    }
}

impl Template {
    /// Compiles a template: its syntax and names are checked.
    ///
    /// # Errors
    /// For a template that is too long, breaks the language, or names a variable that is not known.
    pub fn compile(source: &str, names: &Names) -> Result<Self, TemplateError> {
        bounded(source)?;
        affordable(&tags(source))?;
        let mut environment = environment();
        environment.add_template_owned(NAME, source.to_owned()).map_err(|error| TemplateError::of(&error))?;
        let found =
            environment.get_template(NAME).map_err(|error| TemplateError::of(&error))?.undeclared_variables(true);
        names.check(found)?;
        Ok(Self(Arc::new(environment)))
    }

    /// The text that the template says.
    ///
    /// # Errors
    /// Where it names what has no value, does too much, or says more than [`TEXT_MAX`] bytes.
    pub fn render(&self, context: &TemplateContext) -> Result<String, TemplateFault> {
        let template = self.0.get_template(NAME).map_err(|error| TemplateFault::of(&error))?;
        let mut text = Bounded(Vec::new());
        template.render_captured_to(context.value(), &mut text).map_err(|error| TemplateFault::of(&error))?;
        String::from_utf8(text.0).map_err(|_| TemplateFault::Error("the template breaks a character".to_owned()))
    }
}

fn bounded(source: &str) -> Result<(), TemplateError> {
    if source.len() > SOURCE_MAX {
        return Err(TemplateError::TooLarge(format!("a template of {} bytes; at most {SOURCE_MAX}", source.len())));
    }
    Ok(())
}

/// Refuses what fuel does not pay for; see the top of this file.
fn affordable(code: &[String]) -> Result<(), TemplateError> {
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
fn tags(source: &str) -> Vec<String> {
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
fn code(source: &str, end: &str) -> (String, usize) {
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

/// A text that refuses to grow beyond its bound.
struct Bounded(Vec<u8>);

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len().saturating_add(bytes.len()) > TEXT_MAX {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A JSON value whose strings are templates, and whose objects `{"$value": EXPR}` stand for the value of an expression.
#[derive(Debug)]
pub struct ResponseObject(Part);

enum Part {
    /// As it is written.
    Literal(Value),
    Text(Template),
    Value(Expression<'static, 'static>),
    Array(Vec<Part>),
    Object(Vec<(String, Part)>),
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(value) => value.fmt(f),
            Self::Text(_) => f.write_str("Text"),
            Self::Value(_) => f.write_str("Value"),
            Self::Array(parts) => f.debug_list().entries(parts).finish(),
            Self::Object(parts) => f.debug_list().entries(parts).finish(),
        }
    }
}

impl ResponseObject {
    /// Compiles every template and expression in `value`.
    ///
    /// # Errors
    /// Where one of them cannot be compiled, or an object has `$value` and other members too.
    pub fn compile(value: &Value, names: &Names) -> Result<Self, TemplateError> {
        part(value, names, &mut Vec::new()).map(Self)
    }

    /// The value that is answered; members in the order in which they are written, numbers as they were printed.
    ///
    /// # Errors
    /// Where a template or expression ends in an error, or the whole becomes too large.
    pub fn render(&self, context: &TemplateContext) -> Result<Value, TemplateFault> {
        let mut room = Room { values: VALUES_MAX, bytes: OBJECT_BYTES_MAX };
        rendered(&self.0, context, &mut room)
    }
}

fn part(value: &Value, names: &Names, path: &mut Vec<String>) -> Result<Part, TemplateError> {
    if path.len() > crate::json::DEPTH_MAX {
        return Err(TemplateError::TooLarge("it nests too deep".to_owned()));
    }
    let here = |path: &[String], source| TemplateError::At { path: path.join("."), source: Box::new(source) };
    Ok(match value {
        Value::String(text) if text.contains(['{']) => {
            Part::Text(Template::compile(text, names).map_err(|error| here(path, error))?)
        }
        Value::Object(members) if members.contains_key(VALUE) => {
            let (Some(Value::String(source)), 1) = (members.get(VALUE), members.len()) else {
                let message = format!("`{VALUE}` holds an expression and stands alone in its object");
                return Err(here(path, TemplateError::Unknown(message)));
            };
            Part::Value(expression(source, names).map_err(|error| here(path, error))?)
        }
        Value::Object(members) => {
            let mut parts = Vec::with_capacity(members.len());
            for (name, member) in members {
                path.push(name.clone());
                parts.push((name.clone(), part(member, names, path)?));
                path.pop();
            }
            Part::Object(parts)
        }
        Value::Array(items) => {
            let mut parts = Vec::with_capacity(items.len());
            for (at, item) in items.iter().enumerate() {
                path.push(at.to_string());
                parts.push(part(item, names, path)?);
                path.pop();
            }
            Part::Array(parts)
        }
        plain => Part::Literal(plain.clone()),
    })
}

fn expression(source: &str, names: &Names) -> Result<Expression<'static, 'static>, TemplateError> {
    bounded(source)?;
    affordable(&[code(source, "\0").0])?;
    let compiled =
        ENVIRONMENT.compile_expression_owned(source.to_owned()).map_err(|error| TemplateError::of(&error))?;
    names.check(compiled.undeclared_variables(true))?;
    Ok(compiled)
}

/// What may still be rendered.
struct Room {
    values: usize,
    bytes: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), TemplateFault> {
        let left = self.values.checked_sub(1).zip(self.bytes.checked_sub(bytes));
        let (values, bytes) = left.ok_or(TemplateFault::TooLong)?;
        *self = Self { values, bytes };
        Ok(())
    }
}

fn rendered(part: &Part, context: &TemplateContext, room: &mut Room) -> Result<Value, TemplateFault> {
    match part {
        Part::Literal(value) => {
            room.take(0)?;
            Ok(value.clone())
        }
        Part::Text(template) => {
            let text = template.render(context)?;
            room.take(text.len())?;
            Ok(Value::String(text))
        }
        Part::Value(expression) => {
            let value = expression.eval(context.value()).map_err(|error| TemplateFault::of(&error))?;
            json(&value, room, 0)
        }
        Part::Array(parts) => {
            room.take(0)?;
            parts.iter().map(|part| rendered(part, context, room)).collect::<Result<_, _>>().map(Value::Array)
        }
        Part::Object(parts) => {
            room.take(0)?;
            let mut members = Map::with_capacity(parts.len());
            for (name, part) in parts {
                members.insert(name.clone(), rendered(part, context, room)?);
            }
            Ok(Value::Object(members))
        }
    }
}

/// A value of an expression as JSON.
fn json(value: &minijinja::Value, room: &mut Room, depth: usize) -> Result<Value, TemplateFault> {
    if depth > crate::json::DEPTH_MAX {
        return Err(TemplateFault::TooLong);
    }
    room.take(value.as_str().map_or(0, str::len))?;
    let wrong = |what: &str| TemplateFault::Error(format!("`{VALUE}` came to {what}, which JSON does not have"));
    let items = || value.try_iter().map_err(|error| TemplateFault::of(&error));
    Ok(match value.kind() {
        ValueKind::None => Value::Null,
        ValueKind::Bool => Value::Bool(value.is_true()),
        ValueKind::String => Value::String(value.as_str().unwrap_or_default().to_owned()),
        ValueKind::Number => match value.to_string().parse::<Number>() {
            Ok(number) => Value::Number(number),
            Err(_) => return Err(wrong("no finite number")),
        },
        ValueKind::Seq | ValueKind::Iterable => {
            let mut array = Vec::new();
            for item in items()? {
                array.push(json(&item, room, depth + 1)?);
            }
            Value::Array(array)
        }
        ValueKind::Map => {
            let mut members = Map::new();
            for name in items()? {
                let member = value.get_item(&name).map_err(|error| TemplateFault::of(&error))?;
                let name = name.as_str().ok_or_else(|| wrong("a member that is not named by a string"))?;
                room.take(name.len())?;
                members.insert(name.to_owned(), json(&member, room, depth + 1)?);
            }
            Value::Object(members)
        }
        ValueKind::Plain => match value.downcast_object_ref::<Printed>() {
            Some(printed) => Value::Number(printed.0.clone()),
            None => return Err(wrong("something else")),
        },
        ValueKind::Undefined => return Err(TemplateFault::Error(format!("`{VALUE}` came to nothing"))),
        _ => return Err(wrong("something else")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::tree;

    fn names() -> Names {
        let names = Names::new(["value", "path", "this", "output", "questions", "gates"]);
        names.with_members("facts", ["allergens"]).with_members("data", ["menu"])
    }

    fn context() -> TemplateContext {
        let read = |text: &str| TemplateValue::from_json(&tree::parse(text).unwrap());
        TemplateContext::new()
            .with("value", read("12.50"))
            .with("path", TemplateValue::from_text("$.items[0]"))
            .with("this", read(r#"{"size":"M","sku":"<PIZ>","n":3}"#))
            .with(
                "output",
                read(r#"{"z":{"b":1,"a":[1.10,1e+400,12345678901234567890123]},"list":[1,2.0,null,true,"x"]}"#),
            )
            .with("facts", read(r#"{"allergens":["nuts","dairy"]}"#))
            .with("data", read(r#"{"menu":{"PIZ":{"name":"Pizza"}}}"#))
            .with("questions", read(r#"["A?","B?"]"#))
            .with("gates", read(r#"["on-menu"]"#))
    }

    fn rendered(source: &str) -> Result<String, TemplateFault> {
        Template::compile(source, &names()).unwrap().render(&context())
    }

    fn answered(object: &str) -> Result<String, TemplateFault> {
        let object = ResponseObject::compile(&tree::parse(object).unwrap(), &names()).unwrap();
        object.render(&context()).map(|value| value.to_string())
    }

    #[test]
    fn templates_say_what_they_should() {
        for (source, text) in [
            ("We have no {{ this.size }} {{ this.sku }}.", "We have no M <PIZ>."),
            ("{{ facts.allergens | join(', ') }}?", "nuts, dairy?"),
            (
                "{{ value }} {{ output.z.a[0] }} {{ output.z.a[2] }} {{ path }}",
                "12.50 1.10 12345678901234567890123 $.items[0]",
            ),
            ("{% for a in facts.allergens %}[{{ loop.index }} {{ a }}]{% endfor %}", "[1 nuts][2 dairy]"),
            ("{% for a in data.menu['PIZ'].name | list %}{{ a }}{% endfor %}", "Pizza"),
            ("{% if this.n > 2 %}many{% else %}few{% endif %} {{ this.n * 2 }}", "many 6"),
            ("{{ data.menu['PIZ'].name }} {{ output.nothing is defined }}", "Pizza False"),
            ("{% for i in range(3) %}{{ i }}{% endfor %}{{ [1, 2.0, true, 'x', value] | join }}", "01212.0Truex12.50"),
            ("{{ output.z | length }} {{ 'b' in output.z }} {{ this | items | length }}", "2 True 3"),
            ("{{ this.size | lower }} {{ 'ÄÖ' }}", "m ÄÖ"),
        ] {
            assert_eq!(rendered(source), Ok(text.to_owned()), "{source}");
        }
    }

    #[test]
    fn errors_are_found_at_load_where_they_can_be() {
        for (source, told) in [
            (
                "{{ outputs.x }}",
                "unknown variable `outputs`; did you mean `output`?; known: `data`, `facts`, `gates`, `output`, `path`, `questions`, `this`, `value`",
            ),
            (
                "{{ facts.alergens }}",
                "unknown member of `facts` `alergens`; did you mean `allergens`?; known: `allergens`",
            ),
            ("a\n{{ value", "line 2: unexpected end of input, expected end of variable block"),
            ("{% for x in %}", "line 1: "),
            ("{% include 'x' %}", "`include` is no statement of templates; known: `for`"),
            ("{% macro x() %}{% endmacro %}", "`macro x()` is no statement of templates"),
            ("{%- set x = 1 %}", "`- set x = 1` is no statement of templates"),
            ("{% for a in value recursive %}{% endfor %}", "`for a in value recursive` is no statement of templates"),
            ("{% for a in [value, value] %}{% endfor %}", "a loop goes through a list that is there"),
            ("{{ '~ ok' }}{{ value ~ value }}", "`~`, which templates do not have"),
            ("{{ '\\'' ~ value }}", "`~`, which templates do not have"),
        ] {
            let found = Template::compile(source, &names()).unwrap_err().to_string();
            assert!(found.starts_with(told), "{source}: {found}");
        }
        assert!(Template::compile(&"x".repeat(SOURCE_MAX + 1), &names()).is_err());
        for (object, told) in [
            (r#"{"a":[{"b":"{{ x }}"}]}"#, "at `a.0.b`: unknown variable `x`"),
            (r#"{"a":{"$value":"x.y"}}"#, "at `a`: unknown variable `x`"),
            (r#"{"a":{"$value":"facts.x"}}"#, "at `a`: unknown member of `facts` `x`"),
            (r#"{"a":{"$value":"1 +"}}"#, "at `a`: line 1: "),
            (r#"{"a":{"$value":1}}"#, "at `a`: `$value` holds an expression and stands alone in its object"),
            (r#"{"a":{"$value":"1","b":2}}"#, "at `a`: `$value` holds an expression and stands alone in its object"),
        ] {
            let found = ResponseObject::compile(&tree::parse(object).unwrap(), &names()).unwrap_err().to_string();
            assert!(found.starts_with(told), "{object}: {found}");
        }
    }

    #[test]
    fn what_has_no_value_is_a_fault() {
        for source in [
            "{{ output.nothing }}",
            "{{ output.nothing.more }}",
            "{{ facts.allergens[7] }}",
            "{{ value | nofilter }}",
            "{{ value * 2 }}",
            "{{ value + 1 }}",
            "{{ output }}",
            "{{ facts.allergens }}",
            "{{ [[1]] | join }}",
            "{{ value | tojson }}",
            "{% for x in value %}{% endfor %}",
            "{{ nofunction() if this.n > 5 else output.no }}",
        ] {
            let found = Template::compile(source, &names()).map_err(|error| TemplateFault::Error(error.to_string()));
            let found = found.and_then(|template| template.render(&context()));
            assert!(matches!(found, Err(TemplateFault::Error(_))), "{source}: {found:?}");
        }
    }

    #[test]
    fn response_objects_keep_numbers_and_order() {
        let object = r#"{"status":"no {{ this.size }}","z":[],"a":{"$value":"output.z"},"l":{"$value":"output.list"},"q":null,
            "n":1.50,"g":[{"$value":"gates"},true],"t":{"$value":"output.z.a[0]"},"c":{"$value":"facts.allergens | length + 1"}}"#;
        let answer = concat!(
            r#"{"status":"no M","z":[],"a":{"b":1,"a":[1.10,1e+400,12345678901234567890123]},"l":[1,2.0,null,true,"x"],"q":null,"#,
            r#""n":1.50,"g":[["on-menu"],true],"t":1.10,"c":3}"#,
        );
        assert_eq!(answered(object).unwrap(), answer);
        assert!(answered(r#"{"$value":"output.nothing"}"#).is_err());
        assert!(answered(r#"{"$value":"1 / 0"}"#).is_err());
    }

    #[test]
    fn no_template_works_without_end() {
        let nest =
            |count: usize| format!("{}{}", "{% for a in range(100) %}".repeat(count), "{% endfor %}".repeat(count));
        let wide = format!("[{}x]", "x,".repeat(400));
        let within = |then: &str, last: &str, times: usize| {
            let (open, close) = (format!("{{% for x in {then} %}}"), "{% endfor %}".repeat(times));
            format!("{{% for x in output.list %}}{}{last}{close}", open.repeat(times - 1))
        };
        for source in [
            nest(4),
            nest(300),
            "{% for a in range(10**9) %}x{% endfor %}".to_owned(),
            "{{ range(10**9) | list | length }}".to_owned(),
            "{{ range(99999) | join('xxxxxxxxxxxxxxx') }}".to_owned(),
            "{{ 'x' * 10**9 }}".to_owned(),
            "{{ ('x' * 99999999) | length }}".to_owned(),
            "{{ ['x'] * 99999999 }}".to_owned(),
            "{{ 'x' * 20000 }}".to_owned(),
            within("x + x", "{{ x | length }}", 24),
            within("x + x + x + x + x + x", "{{ x | list | length }}", 4),
            within("x + x + x + x + x + x", "{{ x | join | length }}", 4),
            within("x + x + x + x + x + x", "{{ x | sort | first }}", 4),
            within("x + x + x + x + x + x", "{{ x | unique | list | length }}", 4),
            within("x + x + x + x + x + x", "{% for y in x %}{% endfor %}", 3),
            within("x + x + x + x + x + x", "{{ 2 in x }}", 4),
            within(&wide, "{{ x }}", 4),
            within(&wide, "{{ x == x }}", 4),
            within(&wide, "{{ x | first == x | last }}", 4),
            within(&wide, "{{ [x, x] | unique | list | length }}", 4),
            within(&wide, "{{ [x, x] | sort | length }}", 4),
            within("(x, x)", "{{ x in 'abc' }}", 4),
            within("{'a': x} | items", "{{ x in 'abc' }}", 4),
            within("dict(a=dict(a=x, b=x)) | items", "{{ x in 'abc' }}", 4),
            within("range(100)", "{{ output.z in 'abc' }}", 4),
            format!("{{{{ {} in 'abc' }}}}", wide.replace('x', "data")),
            within(&wide, "{{ [x, x] | join | length }}", 4),
            within(&wide, "{{ x | replace('1', '2') }}", 4),
            within(&wide, "{{ x | upper }}", 4),
            within(&wide, "{{ x in [x, [x]] }}", 4),
            within(&wide, "{{ x in 'abc' }}", 4),
            within(&wide, "{{ 'abc' | replace(x, 'a') }}", 4),
            within(&wide, "{{ {'a': x}[x] }}", 4),
            within(&wide, "{{ x | map('upper') | list | length }}", 4),
            within(&wide, "{{ x | default('a') | length }}", 4),
            within(&wide, "{{ (x | attr(x)) is defined }}", 4),
            within(&wide, "{{ 'abc' | join(x) }}", 4),
            within(&wide, "{{ x < [x] }}", 4),
            within(&wide, "{{ range(x) }}", 4),
            within(&wide, "{{ {x: 1} | length }}", 4),
            within(&wide, "{{ [x, x] | max | length }}", 4),
            within(&wide, "{{ [{'a': x}] | map(attribute='a') | first | length }}", 4),
            "{% for a in [[[[1]]]] recursive %}{{ loop([a, a]) }}{% endfor %}".to_owned(),
            format!("{{{{ {}1{} }}}}", "(".repeat(3000), ")".repeat(3000)),
            format!("{{{{ {}1 }}}}", "1+".repeat(5000)),
            format!("{{{{ {}1 }}}}", "not ".repeat(4000)),
            format!("{{{{ 'x'{} }}}}", "|replace('x','xxxxxxxxxx')".repeat(40)),
        ] {
            let shown: String = source.chars().take(100).collect();
            let found = Template::compile(&source, &names()).map(|template| template.render(&context()));
            let ended = match &found {
                Ok(Ok(text)) => text.len() <= 16,
                Ok(Err(_)) | Err(_) => true,
            };
            assert!(ended, "{shown}: {found:?}");
        }
        for expression in ["range(10**9)", "'x' * 300000", "['x' * 10000] * 1000", "range(99999)"] {
            let object = tree::parse(&format!(r#"{{"a":{{"$value":"{expression}"}}}}"#)).unwrap();
            let found = ResponseObject::compile(&object, &names()).unwrap().render(&context());
            assert!(found.is_err(), "{expression}: {found:?}");
        }
    }
}
