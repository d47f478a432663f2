//! What templates see: values of JSON, with numbers as they are printed and members in their order.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use minijinja::value::Enumerator;
use minijinja::value::Object;
use minijinja::value::ObjectRepr;
use serde_json::Number;
use serde_json::Value;

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

    pub(super) fn value(&self) -> minijinja::Value {
        minijinja::Value::from_object(self.0.clone())
    }
}

/// A number that is no 64-bit integer, as it is printed.
#[derive(Debug)]
pub(super) struct Printed(pub(super) Number);

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
