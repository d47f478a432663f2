//! What a schema declares of a value: the subschemas that it meets there, references followed.
//!
//! Every branch of `anyOf`, `oneOf` and `if` counts, whether or not it is the one that holds: this tells what is
//! declared at all, the validator tells what is valid.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::HashSet;

use regex::Regex;
use serde_json::Value;

use crate::json::path::Path;
use crate::json::path::Segment;

/// Subschemas that one judgement may visit.
const VISITS_MAX: usize = 200_000;

/// The subschemas that a value meets.
pub(super) type Met<'s> = Vec<At<'s>>;

/// One subschema that a value meets.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'s> {
    /// The subschema.
    pub(super) schema: &'s Value,
    /// The schema that it is a part of: what its references are looked up in.
    pub(super) root: &'s Value,
    /// Whether it is one of several that the value may satisfy.
    pub(super) is_branch: bool,
}

/// Why it cannot be told what is declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unknown {
    /// A reference that is not followed here.
    #[error("the schema's reference `{0}` is none that can be followed")]
    Reference(String),
    /// Too much work.
    #[error("the schema declares more than can be followed in bounded time")]
    Work,
}

/// Goes down schemas as an answer goes down.
#[derive(Default)]
pub(super) struct Declared<'s> {
    visits: usize,
    patterns: HashMap<&'s str, Option<Regex>>,
    /// References that were followed, by the schema that they stand in.
    references: HashMap<(usize, &'s str), &'s Value>,
}

impl<'s> Declared<'s> {
    /// What the top of an answer meets.
    pub(super) fn top(&mut self, schemas: impl IntoIterator<Item = &'s Value>) -> Result<Met<'s>, Unknown> {
        let start = schemas.into_iter().map(|schema| At { schema, root: schema, is_branch: false }).collect();
        self.spread(start)
    }

    /// What the value at a path meets.
    pub(super) fn at(&mut self, top: &Met<'s>, path: &Path) -> Result<Met<'s>, Unknown> {
        let mut met = top.clone();
        for segment in path.segments() {
            met = match segment {
                Segment::Key(key) => self.member(&met, key)?,
                Segment::Index(index) => self.element(&met, *index)?,
            };
        }
        Ok(met)
    }

    /// What a member of an object meets; nothing where no subschema names it.
    pub(super) fn member(&mut self, met: &Met<'s>, key: &str) -> Result<Met<'s>, Unknown> {
        let mut below = Vec::new();
        for at in met {
            let mut named = false;
            if let Some(schema) = at.schema.get("properties").and_then(|properties| properties.get(key)) {
                named = true;
                below.push(At { schema, ..*at });
            }
            let patterns = at.schema.get("patternProperties").and_then(Value::as_object);
            for (pattern, schema) in patterns.into_iter().flatten() {
                self.visit()?;
                let built = self.patterns.entry(pattern).or_insert_with(|| Regex::new(pattern).ok());
                // A pattern that only a backtracking engine takes is not looked through: it declares whatever it may match.
                if built.as_ref().is_none_or(|built| built.is_match(key)) {
                    named = true;
                    below.push(At { schema, ..*at });
                }
            }
            if !named {
                // A schema for all other members declares them; `true` only lets them pass.
                let rest =
                    ["additionalProperties", "unevaluatedProperties"].iter().filter_map(|name| at.schema.get(name));
                below.extend(rest.filter(|schema| schema.is_object()).map(|schema| At { schema, ..*at }));
            }
        }
        self.spread(below)
    }

    /// What an element of an array meets.
    pub(super) fn element(&mut self, met: &Met<'s>, index: usize) -> Result<Met<'s>, Unknown> {
        let mut below = Vec::new();
        for at in met {
            let prefix = at.schema.get("prefixItems").or_else(|| at.schema.get("items")).and_then(Value::as_array);
            let rest = match (at.schema.get("items"), at.schema.get("additionalItems")) {
                (Some(Value::Array(_)), rest) => rest,
                (items, _) => items,
            };
            let rest = rest.or_else(|| at.schema.get("unevaluatedItems"));
            below.extend(prefix.and_then(|prefix| prefix.get(index)).or(rest).map(|schema| At { schema, ..*at }));
        }
        self.spread(below)
    }

    fn visit(&mut self) -> Result<(), Unknown> {
        self.visits += 1;
        if self.visits > VISITS_MAX { Err(Unknown::Work) } else { Ok(()) }
    }

    /// The subschemas themselves, and all that stand in the same place by reference or as a part of them.
    fn spread(&mut self, mut open: Met<'s>) -> Result<Met<'s>, Unknown> {
        let mut seen: HashSet<(usize, bool)> = HashSet::new();
        let mut met = Vec::new();
        while let Some(at) = open.pop() {
            self.visit()?;
            if !seen.insert((std::ptr::from_ref(at.schema) as usize, at.is_branch)) {
                continue;
            }
            met.push(at);
            let Some(members) = at.schema.as_object() else { continue };
            for (keyword, value) in members {
                match (keyword.as_str(), value) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                        let schema = self.follow(at.root, reference)?;
                        open.push(At { schema, ..at });
                    }
                    ("allOf", Value::Array(parts)) => open.extend(parts.iter().map(|schema| At { schema, ..at })),
                    ("anyOf" | "oneOf", Value::Array(parts)) => {
                        open.extend(parts.iter().map(|schema| At { schema, is_branch: true, ..at }));
                    }
                    ("if" | "then" | "else", schema) => open.push(At { schema, is_branch: true, ..at }),
                    ("dependentSchemas" | "dependencies", Value::Object(parts)) => {
                        open.extend(parts.values().map(|schema| At { schema, is_branch: true, ..at }));
                    }
                    _ => {}
                }
            }
        }
        Ok(met)
    }

    /// What a reference inside of one document leads to.
    fn follow(&mut self, root: &'s Value, reference: &'s str) -> Result<&'s Value, Unknown> {
        let key = (std::ptr::from_ref(root) as usize, reference);
        if let Some(found) = self.references.get(&key) {
            return Ok(found);
        }
        let unknown = || Unknown::Reference(crate::json::fault::shown(reference));
        let own = root.get("$id").or_else(|| root.get("id")).and_then(Value::as_str).unwrap_or_default();
        let local = reference.strip_prefix(own.trim_end_matches('#')).unwrap_or(reference);
        let fragment = match local.strip_prefix('#') {
            Some(fragment) => fragment,
            None if local.is_empty() => "",
            None => return Err(unknown()),
        };
        let fragment: Cow<'_, str> =
            percent_encoding::percent_decode_str(fragment).decode_utf8().map_err(|_| unknown())?;
        let found = if fragment.is_empty() || fragment.starts_with('/') {
            root.pointer(&fragment)
        } else {
            self.anchor(root, &fragment)?
        };
        let found = found.ok_or_else(unknown)?;
        self.references.insert(key, found);
        Ok(found)
    }

    fn anchor(&mut self, root: &'s Value, name: &str) -> Result<Option<&'s Value>, Unknown> {
        let mut open = vec![root];
        while let Some(value) = open.pop() {
            self.visit()?;
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(members) => {
                    let says = |keyword: &str, text: &str| members.get(keyword).and_then(Value::as_str) == Some(text);
                    if says("$anchor", name) || says("$dynamicAnchor", name) || says("$id", &format!("#{name}")) {
                        return Ok(Some(value));
                    }
                    open.extend(members.values());
                }
                _ => {}
            }
        }
        Ok(None)
    }
}
