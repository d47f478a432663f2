//! Objects that are answered in the place of an answer: JSON whose strings are templates.

use std::fmt;

use minijinja::Expression;
use minijinja::value::ValueKind;
use serde_json::Map;
use serde_json::Number;
use serde_json::Value;

use crate::contract::template::Names;
use crate::contract::template::OBJECT_BYTES_MAX;
use crate::contract::template::Template;
use crate::contract::template::TemplateContext;
use crate::contract::template::TemplateError;
use crate::contract::template::TemplateFault;
use crate::contract::template::VALUES_MAX;
use crate::contract::template::bounded;
use crate::contract::template::language::ENVIRONMENT;
use crate::contract::template::language::affordable;
use crate::contract::template::language::code;
use crate::contract::template::value::Printed;

/// The member that makes an object stand for the value of an expression.
const VALUE: &str = "$value";

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
