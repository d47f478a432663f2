//! What a schema asks of one value: references followed, `allOf` merged, one branch of each union taken.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Map;
use serde_json::Value;

/// Steps of one merge at most; past it the rest of the schema is ignored.
const STEPS_MAX: usize = 400;

/// What an attempt does where there is a choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) seed: u64,
    pub(super) attempt: u64,
}

impl Choice {
    /// The number that words are picked by.
    pub(super) fn words(self, index: usize) -> u64 {
        self.seed.wrapping_add(index as u64).wrapping_add(self.attempt / 8)
    }

    /// One of several values, another one for each index.
    pub(super) fn nth<T>(self, list: &[T], index: usize) -> Option<&T> {
        let count = list.len() as u64;
        let at = self.words(index).wrapping_add(self.attempt).checked_rem(count)?;
        list.get(usize::try_from(at).ok()?)
    }

    /// The first branch at first, then the others in turn.
    pub(super) fn branch<T>(self, list: &[T]) -> Option<&T> {
        let at = self.attempt.checked_rem(list.len() as u64)?;
        list.get(usize::try_from(at).ok()?)
    }
}

/// One merge under way.
struct Merge<'m> {
    choice: Choice,
    short: bool,
    following: &'m mut Vec<String>,
    /// How many references led to the value; those after them are its own.
    before: usize,
    steps: usize,
    into: Map<String, Value>,
}

impl Merge<'_> {
    fn recurs(&self, reference: &str) -> bool {
        self.following.iter().take(self.before).any(|known| known == reference)
    }
}

/// The document that references are looked up in.
pub(super) struct Shapes<'a> {
    root: &'a Value,
    named: HashMap<&'a str, &'a Value>,
}

impl<'a> Shapes<'a> {
    pub(super) fn of(root: &'a Value) -> Self {
        let mut named = HashMap::new();
        let mut open = vec![root];
        while let Some(value) = open.pop() {
            match value {
                Value::Object(map) => {
                    for name in ["$anchor", "$dynamicAnchor", "$id", "id"] {
                        if let Some(Value::String(text)) = map.get(name) {
                            named.entry(text.trim_start_matches('#')).or_insert(value);
                        }
                    }
                    open.extend(map.values());
                }
                Value::Array(list) => open.extend(list),
                _ => {}
            }
        }
        Self { root, named }
    }

    fn target(&self, reference: &str) -> Option<&'a Value> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = if document.is_empty() {
            self.root
        } else {
            let tail = |name: &str| name == document || name.ends_with(&format!("/{document}"));
            self.named.iter().find(|(name, _)| tail(name)).map(|(_, value)| *value)?
        };
        let fragment = decoded(fragment);
        if fragment.is_empty() || fragment.starts_with('/') {
            return base.pointer(&fragment);
        }
        self.named.get(fragment.as_ref()).copied()
    }

    /// What applies to one value, as one schema without references and unions, and whether as little
    /// as may be is to be written. `following` are the references that led here; one that is met
    /// again is recursion.
    pub(super) fn merged(
        &self,
        schema: &Value,
        choice: Choice,
        short: bool,
        following: &mut Vec<String>,
    ) -> (Map<String, Value>, bool) {
        let before = following.len();
        let mut merge = Merge { choice, short, before, following, steps: 0, into: Map::new() };
        self.add(schema, &mut merge);
        (merge.into, merge.short)
    }

    fn add(&self, schema: &Value, merge: &mut Merge<'_>) {
        merge.steps += 1;
        let Value::Object(map) = schema else { return };
        if merge.steps > STEPS_MAX {
            return;
        }
        for (key, value) in map {
            match (key.as_str(), value) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    merge.short |= merge.recurs(reference);
                    merge.following.push(reference.clone());
                    if let Some(target) = self.target(reference) {
                        self.add(target, merge);
                    }
                }
                ("allOf", Value::Array(list)) => list.iter().for_each(|part| self.add(part, merge)),
                ("anyOf" | "oneOf", Value::Array(list)) => {
                    if let Some(branch) = self.branch(list, merge) {
                        self.add(branch, merge);
                    }
                }
                // Whether the condition holds is not known before the value is written: try both.
                ("then", _) if merge.choice.attempt % 3 == 1 => {
                    self.add(value, merge);
                    if let Some(condition) = map.get("if") {
                        self.add(condition, merge);
                    }
                }
                ("else", _) if merge.choice.attempt % 3 == 2 => self.add(value, merge),
                ("then" | "else" | "if" | "not" | "$defs" | "definitions", _) => {}
                _ => combine(&mut merge.into, key, value),
            }
        }
    }

    fn branch<'v>(&self, list: &'v [Value], merge: &Merge<'_>) -> Option<&'v Value> {
        if !merge.short {
            // Null says least: it comes last, as the first branch that says something is preferred.
            let (null, telling): (Vec<&Value>, Vec<&Value>) = list.iter().partition(|branch| is_null(branch));
            let ordered: Vec<&Value> = telling.into_iter().chain(null).collect();
            let chosen = merge.choice.branch(&ordered).copied()?;
            if !reference(chosen).is_some_and(|reference| merge.recurs(reference)) {
                return Some(chosen);
            }
        }
        list.iter().min_by_key(|branch| self.cost(branch, &mut 200))
    }

    /// How deep the smallest instance is, roughly; a thousand where it does not seem to end.
    fn cost(&self, schema: &Value, fuel: &mut usize) -> usize {
        const ENDLESS: usize = 1_000;
        let Some(left) = fuel.checked_sub(1) else { return ENDLESS };
        *fuel = left;
        let Value::Object(map) = schema else { return 0 };
        if map.contains_key("const") || map.contains_key("enum") {
            return 0;
        }
        let mut cost = 0;
        if let Some(reference) = reference(schema) {
            cost = self.target(reference).map_or(ENDLESS, |target| self.cost(target, fuel).saturating_add(1));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(list)) = map.get(key) {
                cost = cost.max(list.iter().map(|branch| self.cost(branch, fuel)).min().unwrap_or(0));
            }
        }
        if let Some(Value::Array(list)) = map.get("allOf") {
            cost = list.iter().map(|part| self.cost(part, fuel)).fold(cost, usize::max);
        }
        for name in map.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            if let Some(property) = map.get("properties").and_then(|properties| properties.get(name)) {
                cost = cost.max(self.cost(property, fuel).saturating_add(1));
            }
        }
        if map.get("minItems").and_then(Value::as_u64).is_some_and(|least| least > 0)
            && let Some(items) = map.get("items")
        {
            cost = cost.max(self.cost(items, fuel).saturating_add(1));
        }
        cost.min(ENDLESS)
    }

    /// The schema of a member that no property names.
    pub(super) fn member(&self, shape: &Map<String, Value>, name: &str) -> Value {
        for (pattern, schema) in shape.get("patternProperties").and_then(Value::as_object).into_iter().flatten() {
            if regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(name)) {
                return schema.clone();
            }
        }
        shape.get("additionalProperties").cloned().unwrap_or(Value::Bool(true))
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null") || schema.get("const").is_some_and(Value::is_null)
}

fn reference(schema: &Value) -> Option<&str> {
    ["$ref", "$dynamicRef", "$recursiveRef"].iter().find_map(|name| schema.get(*name).and_then(Value::as_str))
}

/// Percent escapes of a fragment; what is none is left alone.
fn decoded(fragment: &str) -> Cow<'_, str> {
    if !fragment.contains('%') {
        return Cow::Borrowed(fragment);
    }
    let mut bytes = Vec::new();
    let mut rest = fragment.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let escaped = tail
            .get(..2)
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, escaped) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// Adds one keyword to what others already ask for.
fn combine(into: &mut Map<String, Value>, key: &str, value: &Value) {
    let Some(present) = into.get_mut(key) else {
        into.insert(key.to_owned(), value.clone());
        return;
    };
    let (bound, other) = (present.as_f64(), value.as_f64());
    match (key, &mut *present, value) {
        ("properties" | "patternProperties", Value::Object(present), Value::Object(more)) => {
            for (name, schema) in more {
                match present.get_mut(name) {
                    Some(both) => *both = all_of(both.take(), schema.clone()),
                    None => {
                        present.insert(name.clone(), schema.clone());
                    }
                }
            }
        }
        ("required", Value::Array(present), Value::Array(more)) => {
            present.extend(more.iter().cloned());
        }
        ("enum", Value::Array(present), Value::Array(more)) => present.retain(|value| more.contains(value)),
        ("type", _, _) => *present = common_types(present, value),
        ("items" | "contains" | "propertyNames", _, _) => *present = all_of(present.take(), value.clone()),
        ("additionalProperties", Value::Bool(true), _) => *present = value.clone(),
        ("additionalProperties", Value::Object(_), Value::Bool(false)) => *present = value.clone(),
        ("minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties", _, _) if other > bound => {
            *present = value.clone();
        }
        ("maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties", _, _) if other < bound => {
            *present = value.clone();
        }
        // The outermost says it best: it came first.
        _ => {}
    }
}

fn all_of(left: Value, right: Value) -> Value {
    if left == right || right == Value::Bool(true) {
        return left;
    }
    let mut both = Map::new();
    both.insert("allOf".to_owned(), Value::Array(vec![left, right]));
    Value::Object(both)
}

fn common_types(left: &Value, right: &Value) -> Value {
    let list = |value: &Value| match value {
        Value::Array(list) => list.clone(),
        one => vec![one.clone()],
    };
    let (left, right) = (list(left), list(right));
    let within = |kind: &Value, others: &[Value]| {
        others.contains(kind) || (kind == "integer" && others.iter().any(|other| other == "number"))
    };
    let mut common: Vec<Value> = left.iter().filter(|kind| within(kind, &right)).cloned().collect();
    for kind in right.iter().filter(|kind| within(kind, &left)) {
        if !common.contains(kind) {
            common.push(kind.clone());
        }
    }
    Value::Array(if common.is_empty() { left } else { common })
}
