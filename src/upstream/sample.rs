//! A plausible instance of a schema, for the scripted model of the demo.
//!
//! Deterministic: the same schema and seed give the same instance. Several attempts are made, the
//! first with the choices a person would make, and the first that the schema accepts is the answer.

mod number;
mod pattern;
mod shape;
#[cfg(test)]
mod tests;
mod text;

use serde_json::Map;
use serde_json::Value;

use crate::contract::bounds;
use crate::upstream::sample::shape::Choice;
use crate::upstream::sample::shape::Shapes;

/// Attempts at most.
const ATTEMPTS: u64 = 24;

/// Values of one instance at most; past it everything is as small as it may be.
const VALUES_MAX: usize = 2_000;

/// Values that are tried for a wrong one at most.
const CHANGES_MAX: usize = 300;

/// Containers inside of each other before only what is required is written.
const DEPTH: usize = 6;

/// Containers inside of each other at most, whatever is required.
const DEPTH_MAX: usize = 60;

/// Subschemas that one instance node may meet where an instance is validated.
const EXPANDED_MAX: usize = 10_000;

/// An instance of `schema`; the best attempt where none is accepted.
#[must_use]
pub fn instance(schema: &Value, seed: u64) -> Value {
    let validator = validator(schema);
    let shapes = Shapes::of(schema);
    let mut first = None;
    for attempt in 0..ATTEMPTS {
        let following = vec!["#".to_owned()];
        let mut writer = Writer { shapes: &shapes, choice: Choice { seed, attempt }, written: 0, following };
        let value = writer.value(schema, Spot { name: "", index: 0, depth: 0, short: false });
        match &validator {
            Some(validator) if !validator.is_valid(&value) => drop(first.get_or_insert(value)),
            _ => return value,
        }
    }
    first.unwrap_or(Value::Null)
}

/// `instance` with one value changed so that `schema` refuses it: a number as a string, and so on.
/// It is returned unchanged where no such change is refused.
#[must_use]
pub fn wrong_type(schema: &Value, instance: &Value) -> Value {
    let Some(validator) = validator(schema) else { return instance.clone() };
    let mut pointers = Vec::new();
    collect(instance, String::new(), &mut pointers);
    pointers.sort_by_key(|(rank, _)| *rank);
    // The likeliest mistake anywhere comes before an unlikely one in the first place.
    for round in 0..4 {
        for (_, pointer) in pointers.iter().take(CHANGES_MAX) {
            let Some(replacement) = instance.pointer(pointer).and_then(|value| wrong(value).into_iter().nth(round))
            else {
                continue;
            };
            let mut changed = instance.clone();
            if let Some(place) = changed.pointer_mut(pointer) {
                *place = replacement;
                if !validator.is_valid(&changed) {
                    return changed;
                }
            }
        }
    }
    instance.clone()
}

/// `None` where the schema is not one, or not safe to run.
fn validator(schema: &Value) -> Option<jsonschema::Validator> {
    bounds::check(schema, EXPANDED_MAX).ok()?;
    let options = jsonschema::options()
        .offline()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        .with_pattern_options(jsonschema::PatternOptions::regex());
    options.build(schema).ok()
}

/// Every value's pointer, with the order to change them in: numbers are the mistake models make.
fn collect(value: &Value, pointer: String, found: &mut Vec<(u8, String)>) {
    let rank = match value {
        Value::Number(_) => 0,
        Value::Bool(_) => 1,
        Value::String(_) => 2,
        Value::Null => 3,
        Value::Array(list) => {
            for (at, item) in list.iter().enumerate() {
                collect(item, format!("{pointer}/{at}"), found);
            }
            4
        }
        Value::Object(map) => {
            for (key, member) in map {
                collect(member, format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")), found);
            }
            5
        }
    };
    found.push((rank, pointer));
}

/// Values of another type, the likeliest mistake first.
fn wrong(value: &Value) -> Vec<Value> {
    let likely = match value {
        Value::Number(number) => Value::String(number.to_string()),
        Value::Bool(yes) => Value::String(yes.to_string()),
        Value::String(_) => Value::from(12_345),
        Value::Null => Value::String("null".to_owned()),
        Value::Array(list) => list.first().cloned().unwrap_or_else(|| Value::String(String::new())),
        Value::Object(_) => Value::String(value.to_string()),
    };
    vec![likely, Value::Array(vec![Value::Bool(true)]), Value::Null, Value::from(-1)]
}

/// Where a value is written: the name and the place that its words are picked by.
#[derive(Clone, Copy)]
struct Spot<'a> {
    name: &'a str,
    index: usize,
    depth: usize,
    /// Whether it lies below a recursion: as little as may be.
    short: bool,
}

struct Writer<'s> {
    shapes: &'s Shapes<'s>,
    choice: Choice,
    written: usize,
    /// References being followed. One that is met again is recursion: from there on, as little as may be.
    following: Vec<String>,
}

impl Writer<'_> {
    fn value(&mut self, schema: &Value, spot: Spot<'_>) -> Value {
        let followed = self.following.len();
        let short = spot.short || spot.depth > DEPTH || self.written > VALUES_MAX;
        let (shape, short) = self.shapes.merged(schema, self.choice, short, &mut self.following);
        self.written += 1;
        let value = self.shaped(&shape, spot, short);
        self.following.truncate(followed);
        value
    }

    fn shaped(&mut self, shape: &Map<String, Value>, spot: Spot<'_>, short: bool) -> Value {
        if let Some(value) = shape.get("const") {
            return value.clone();
        }
        let kind = self.kind(shape, short);
        if let Some(Value::Array(list)) = shape.get("enum") {
            let fitting: Vec<&Value> =
                list.iter().filter(|value| !shape.contains_key("type") || is(value, kind)).collect();
            if let Some(value) = self.choice.nth(&fitting, spot.index) {
                return (*value).clone();
            }
        }
        if let Some(value) = self.given(shape, kind) {
            return value;
        }
        match kind {
            "object" => self.object(shape, spot, short),
            "array" => self.array(shape, spot, short),
            "integer" | "number" => number::number(shape, kind == "integer", spot.name, self.choice.words(spot.index)),
            "boolean" => Value::Bool(self.choice.words(spot.index).is_multiple_of(2)),
            "null" => Value::Null,
            _ => Value::String(text::string(shape, spot.name, self.choice.words(spot.index))),
        }
    }

    /// An example or a default of the right type, unless it says nothing.
    fn given(&self, shape: &Map<String, Value>, kind: &str) -> Option<Value> {
        if self.choice.attempt > 2 {
            return None;
        }
        let examples = shape.get("examples").and_then(Value::as_array).into_iter().flatten();
        let telling = |value: &&Value| match value {
            Value::Null => kind == "null",
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        };
        let mut given = examples.chain(shape.get("example")).chain(shape.get("default"));
        given.find(|value| is(value, kind) && telling(value)).cloned()
    }

    /// The type to write, from `type` or else from the keywords that only one type has.
    fn kind<'m>(&self, shape: &'m Map<String, Value>, short: bool) -> &'m str {
        match shape.get("type") {
            Some(Value::String(kind)) => return kind,
            Some(Value::Array(kinds)) => {
                let mut kinds: Vec<&str> = kinds.iter().filter_map(Value::as_str).collect();
                // Null says least: last, unless little is to be said.
                kinds.sort_by_key(|kind| (*kind == "null") != short);
                return self.choice.branch(&kinds).copied().unwrap_or("null");
            }
            _ => {}
        }
        let has = |names: &[&str]| names.iter().any(|name| shape.contains_key(*name));
        if has(&[
            "properties",
            "required",
            "additionalProperties",
            "patternProperties",
            "minProperties",
            "propertyNames",
        ]) {
            "object"
        } else if has(&["items", "prefixItems", "minItems", "contains", "uniqueItems"]) {
            "array"
        } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
            "number"
        } else {
            "string"
        }
    }

    fn object(&mut self, shape: &Map<String, Value>, spot: Spot<'_>, short: bool) -> Value {
        let mut object = Map::new();
        let required: Vec<&str> =
            shape.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        let properties = shape.get("properties").and_then(Value::as_object);
        let depth = spot.depth + 1;
        // Later attempts try without what is optional: it may exclude each other.
        let sparse = short || self.choice.attempt % 4 == 3;
        for (name, schema) in properties.into_iter().flatten() {
            let needed = required.contains(&name.as_str());
            if depth < DEPTH_MAX && (needed || !sparse) && *schema != Value::Bool(false) {
                let value = self.value(schema, Spot { name: named(name, spot), index: spot.index, depth, short });
                object.insert(name.clone(), value);
            }
        }
        for name in required {
            if !object.contains_key(name) && depth < DEPTH_MAX {
                let schema = self.shapes.member(shape, name);
                let value = self.value(&schema, Spot { name: named(name, spot), index: spot.index, depth, short });
                object.insert(name.to_owned(), value);
            }
        }
        self.extra(shape, &mut object, depth, sparse);
        Value::Object(object)
    }

    /// Members that no property names: as many as must be, and one or two where there is nothing else.
    fn extra(&mut self, shape: &Map<String, Value>, object: &mut Map<String, Value>, depth: usize, sparse: bool) {
        let least = shape.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
        let open = ["additionalProperties", "patternProperties"]
            .iter()
            .any(|name| shape.get(*name).is_some_and(Value::is_object));
        let wanted = if object.is_empty() && open && !sparse { 2 } else { 0 };
        let most = shape.get("maxProperties").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let count = usize::try_from(least.max(wanted).min(most)).unwrap_or(VALUES_MAX).min(VALUES_MAX);
        for index in 0..count.saturating_mul(2) {
            if object.len() >= count || depth >= DEPTH_MAX {
                break;
            }
            let name = self.member_name(shape, index);
            if !object.contains_key(&name) {
                let schema = self.shapes.member(shape, &name);
                let value = self.value(&schema, Spot { name: &name, index, depth, short: sparse });
                object.insert(name, value);
            }
        }
    }

    fn member_name(&mut self, shape: &Map<String, Value>, index: usize) -> String {
        if let Some(names @ Value::Object(_)) = shape.get("propertyNames") {
            let (mut names, _) = self.shapes.merged(names, self.choice, false, &mut Vec::new());
            names.insert("type".to_owned(), Value::String("string".to_owned()));
            if let Value::String(name) =
                self.shaped(&names, Spot { name: "key", index, depth: DEPTH_MAX, short: true }, true)
            {
                return name;
            }
        }
        let pattern = shape.get("patternProperties").and_then(Value::as_object).and_then(|map| map.keys().next());
        match pattern {
            Some(pattern) => {
                pattern::matching(pattern, self.choice.words(index)).unwrap_or_else(|| format!("key{index}"))
            }
            None => text::key(self.choice.words(index)),
        }
    }

    fn array(&mut self, shape: &Map<String, Value>, spot: Spot<'_>, short: bool) -> Value {
        let size = |name: &str| shape.get(name).and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
        let (least, most) = (size("minItems").unwrap_or(0), size("maxItems").unwrap_or(usize::MAX));
        let tuple = ["prefixItems", "items"].iter().find_map(|name| shape.get(*name).and_then(Value::as_array));
        let tuple: &[Value] = tuple.map_or(&[], Vec::as_slice);
        let rest = match (shape.get("items"), shape.get("additionalItems")) {
            (Some(Value::Array(_)), rest) => rest,
            (rest, _) => rest,
        };
        let contains = shape.get("contains").filter(|_| size("minContains") != Some(0));
        let closed = rest == Some(&Value::Bool(false)) || (rest.is_none() && !tuple.is_empty());
        let wanted = match (short, closed) {
            (true, _) => {
                if contains.is_some() {
                    1
                } else {
                    0
                }
            }
            (false, true) => tuple.len(),
            (false, false) => tuple.len() + if rest.is_none() && contains.is_none() && least == 0 { 1 } else { 2 },
        };
        let count = wanted.max(least).min(most).min(VALUES_MAX);
        let mut list = Vec::new();
        let fallback = Value::Bool(true);
        while list.len() < count && spot.depth + 1 < DEPTH_MAX && self.written <= VALUES_MAX * 4 {
            let at = list.len();
            let schema = match (tuple.get(at), contains) {
                (Some(schema), _) => schema,
                (None, Some(contains)) if at == tuple.len() => contains,
                _ => rest.unwrap_or(&fallback),
            };
            let index = if at == 0 { spot.index } else { spot.index + at };
            list.push(
                self.value(schema, Spot { name: text::singular(spot.name), index, depth: spot.depth + 1, short }),
            );
        }
        if shape.get("uniqueItems") == Some(&Value::Bool(true)) {
            let mut seen = std::collections::HashSet::new();
            list.retain(|item| seen.insert(item.to_string()));
        }
        Value::Array(list)
    }
}

/// A member called `value` is about what its parent is called.
fn named<'n>(name: &'n str, parent: Spot<'n>) -> &'n str {
    if name == "value" && !parent.name.is_empty() { parent.name } else { name }
}

/// Whether a value is of a JSON Schema type.
fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.as_number().is_some_and(|number| !number.to_string().contains(['.', 'e', 'E'])),
        _ => false,
    }
}
