//! The reference graph of a schema: which subschemas meet the same instance node, and which meet its children.

use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

use jsonschema::Draft;
use jsonschema::Registry;
use jsonschema::Uri;
use jsonschema::uri;
use serde_json::Map;
use serde_json::Value;

use crate::contract::bounds::BoundsError;

/// Base of a schema that names none; the compiler uses the same.
const BASE: &str = "json-schema:///";

/// Graph nodes at most. A schema of 256 KiB holds some 60,000 subschemas; only the same text read
/// under many base URIs or drafts comes near.
const NODES_MAX: usize = 200_000;

/// Bytes of a base URI at most: it is hashed for each subschema that is read under it.
const BASE_MAX: usize = 2_048;

/// How a subschema on the same instance node counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// It always applies.
    All,
    /// It is one of several branches; equal numbers are branches of one keyword.
    Branch(u8),
}

/// What the compiler does with a subschema when it works out which children were evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    /// Nothing.
    No,
    /// It validates once more, then looks inside.
    Again,
    /// It looks inside only.
    Inside,
}

/// A subschema that meets the same instance node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) group: Group,
    pub(super) marks: Marks,
    /// Whether it is a reference, not a subschema written in place.
    pub(super) reference: bool,
}

/// Subschemas that meet the children of the instance node.
#[derive(Debug, Default)]
pub(super) struct Kids<'a> {
    pub(super) named: Vec<(&'a str, usize)>,
    pub(super) patterns: Vec<(&'a str, usize)>,
    pub(super) additional: Option<usize>,
    pub(super) unevaluated: Option<usize>,
    pub(super) names: Option<usize>,
    pub(super) prefix: Vec<usize>,
    pub(super) items: Vec<usize>,
    pub(super) contains: Option<usize>,
    pub(super) unevaluated_items: Option<usize>,
}

impl Kids<'_> {
    pub(super) fn targets(&self) -> impl Iterator<Item = usize> {
        self.named
            .iter()
            .chain(&self.patterns)
            .map(|(_, to)| to)
            .chain(&self.additional)
            .chain(&self.unevaluated)
            .chain(&self.names)
            .chain(&self.prefix)
            .chain(&self.items)
            .chain(&self.contains)
            .chain(&self.unevaluated_items)
            .copied()
    }
}

/// One subschema, read under one base URI and one draft.
#[derive(Debug)]
pub(super) struct Node<'a> {
    pub(super) path: String,
    pub(super) edges: Vec<Edge>,
    pub(super) kids: Kids<'a>,
    /// The schema that this one is written in.
    pub(super) parent: Option<usize>,
    value: &'a Value,
    base: Arc<Uri<String>>,
    draft: Draft,
}

impl Node<'_> {
    /// How often the compiler works out what was evaluated here: once for properties, once for items.
    pub(super) fn markings(&self) -> u64 {
        u64::from(self.kids.unevaluated.is_some()) + u64::from(self.kids.unevaluated_items.is_some())
    }
}

/// All subschemas of a document that a reference or a keyword reaches; the root is the first.
#[derive(Debug)]
pub(super) struct Graph<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// The texts by which each schema is referred to.
    pub(super) aliases: HashMap<usize, HashSet<String>>,
}

impl<'a> Graph<'a> {
    /// Whether the compiler looks at one branch of a union only: three or more objects, each of which
    /// requires one property and fixes it to a text of its own. It finds more of them than this does.
    pub(super) fn dispatches(&self, node: &Node<'a>, of: u8) -> bool {
        let branches = node.edges.iter().filter(|edge| edge.group == Group::Branch(of) && of < 2);
        let pins: Vec<HashMap<&str, &str>> = branches.map(|edge| self.pins(edge.to, node.draft)).collect();
        let Some(first) = pins.first().filter(|_| pins.len() >= 3) else { return false };
        first.keys().any(|key| {
            let values: HashSet<&str> = pins.iter().filter_map(|pins| pins.get(key).copied()).collect();
            values.len() == pins.len()
        })
    }

    /// Required properties of an object schema that are fixed to one text, plain references followed.
    fn pins(&self, at: usize, draft: Draft) -> HashMap<&'a str, &'a str> {
        let mut at = at;
        for _ in 0..8 {
            let Some(node) = self.nodes.get(at).filter(|node| node.draft == draft) else { break };
            match node.edges.as_slice() {
                [edge] if edge.reference && node.value.get("$ref").is_some() => at = edge.to,
                _ => return own_pins(node.value, draft),
            }
        }
        HashMap::new()
    }
}

fn own_pins(schema: &Value, draft: Draft) -> HashMap<&str, &str> {
    let mut pins = HashMap::new();
    let is_object = schema.get("type").is_some_and(|kind| kind == "object");
    let (Some(Value::Array(required)), Some(properties)) = (schema.get("required"), schema.get("properties")) else {
        return pins;
    };
    for name in required.iter().filter_map(Value::as_str).filter(|_| is_object && draft != Draft::Draft4) {
        let property = properties.get(name);
        let fixed = property.and_then(|property| property.get("const")).or_else(|| {
            let only = property.and_then(|property| property.get("enum")).and_then(Value::as_array);
            only.filter(|list| list.len() == 1).and_then(|list| list.first())
        });
        if let Some(Value::String(text)) = fixed {
            pins.insert(name, text.as_str());
        }
    }
    pins
}

/// The document as the compiler will index it.
pub(super) fn registry(schema: &Value) -> Result<(Registry<'_>, Uri<String>, Draft), BoundsError> {
    let draft = Draft::default().detect(schema);
    let resource = draft.create_resource_ref(schema);
    let name = resource.id().unwrap_or(BASE).trim_end_matches('#').to_owned();
    let refused = |reference: String| BoundsError::UnresolvableRef { reference, path: String::new() };
    let base = uri::from_str(&name).map_err(|_| refused(name.clone()))?;
    let builder = Registry::new().add(base.as_str(), resource).map_err(|_| refused(name.clone()))?;
    match builder.prepare() {
        Ok(registry) => Ok((registry, base, draft)),
        // The registry says which URI it misses, not where the document names it.
        Err(error) => Err(outward(schema).unwrap_or_else(|| refused(error.to_string()))),
    }
}

/// The first reference that does not start inside its own document.
fn outward(schema: &Value) -> Option<BoundsError> {
    let mut open = vec![(String::new(), schema)];
    while let Some((path, value)) = open.pop() {
        for (key, child) in members(value) {
            if let ("$ref" | "$dynamicRef" | "$schema", Value::String(text)) = (key.as_str(), child)
                && !text.starts_with('#')
                && !(key == "$schema" && Draft::from_schema_uri(text) != Draft::Unknown)
            {
                return Some(BoundsError::UnresolvableRef { reference: text.clone(), path });
            }
            open.push((step(&path, &key), child));
        }
    }
    None
}

/// Every member of an object or element of an array, with its name.
fn members(value: &Value) -> Vec<(String, &Value)> {
    match value {
        Value::Object(map) => map.iter().map(|(key, child)| (key.clone(), child)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(at, child)| (at.to_string(), child)).collect(),
        _ => Vec::new(),
    }
}

/// `path` one step further, as a JSON Pointer.
fn step(path: &str, name: &str) -> String {
    format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// What the whole document holds, told apart by address: a reference that resolves to a value
/// outside of it has left the document (to a meta-schema that the compiler carries along).
#[derive(Default)]
struct Inventory<'a> {
    addresses: HashSet<usize>,
    dynamic_anchors: HashMap<&'a str, usize>,
    recursive_anchors: usize,
}

impl<'a> Inventory<'a> {
    fn of(schema: &'a Value) -> Self {
        let mut inventory = Self::default();
        let mut open = vec![schema];
        while let Some(value) = open.pop() {
            inventory.addresses.insert(address(value));
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(name)) = map.get("$dynamicAnchor") {
                        *inventory.dynamic_anchors.entry(name).or_default() += 1;
                    }
                    inventory.recursive_anchors += usize::from(map.contains_key("$recursiveAnchor"));
                    open.extend(map.values());
                }
                Value::Array(list) => open.extend(list),
                _ => {}
            }
        }
        inventory
    }

    /// Whether where a dynamic reference leads depends on the way there. Such references are
    /// refused: the graph has one node for all ways.
    fn depends_on_the_way(&self, keyword: &str, reference: &str) -> bool {
        match keyword {
            "$recursiveRef" => self.recursive_anchors > 1,
            // A plain `$ref` to a dynamic anchor resolves dynamically in the compiler, too.
            _ => {
                let name = reference.rsplit_once('#').map_or("", |(_, fragment)| fragment);
                self.dynamic_anchors.get(name).is_some_and(|count| *count > 1)
            }
        }
    }
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value) as usize
}

struct Builder<'a> {
    registry: &'a Registry<'a>,
    inventory: Inventory<'a>,
    nodes: Vec<Node<'a>>,
    known: HashMap<(usize, Arc<Uri<String>>, Draft), usize>,
    aliases: HashMap<usize, HashSet<String>>,
    max: usize,
}

impl<'a> Graph<'a> {
    /// Reads every subschema once, references followed.
    pub(super) fn build(
        schema: &'a Value,
        registry: &'a Registry<'a>,
        base: Uri<String>,
        draft: Draft,
        max: usize,
    ) -> Result<Self, BoundsError> {
        let inventory = Inventory::of(schema);
        let mut builder =
            Builder { registry, inventory, nodes: Vec::new(), known: HashMap::new(), aliases: HashMap::new(), max };
        builder.node(schema, String::new(), Arc::new(base), draft, None)?;
        let mut at = 0;
        while let Some(node) = builder.nodes.get(at) {
            let place = Place { at, path: node.path.clone(), base: Arc::clone(&node.base), draft: node.draft };
            if let Value::Object(map) = node.value {
                let (edges, kids) = builder.read(map, &place)?;
                if let Some(node) = builder.nodes.get_mut(at) {
                    node.edges = edges;
                    node.kids = kids;
                }
            }
            at += 1;
        }
        Ok(Self { nodes: builder.nodes, aliases: builder.aliases })
    }
}

/// Where a schema stands, and under what it is read.
struct Place {
    at: usize,
    path: String,
    base: Arc<Uri<String>>,
    draft: Draft,
}

impl<'a> Builder<'a> {
    fn node(
        &mut self,
        value: &'a Value,
        path: String,
        base: Arc<Uri<String>>,
        draft: Draft,
        parent: Option<usize>,
    ) -> Result<usize, BoundsError> {
        if base.as_str().len() > BASE_MAX {
            return Err(BoundsError::UnresolvableRef { reference: base.to_string(), path });
        }
        let key = (address(value), Arc::clone(&base), draft);
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let at = self.nodes.len();
        if at >= NODES_MAX {
            return Err(BoundsError::Expansion { path, found: at, max: self.max });
        }
        self.known.insert(key, at);
        self.nodes.push(Node { path, edges: Vec::new(), kids: Kids::default(), parent, value, base, draft });
        Ok(at)
    }

    /// The subschema under `name`; its own `$schema` and `$id` change how it is read.
    fn under(&mut self, place: &Place, name: &str, value: &'a Value) -> Result<usize, BoundsError> {
        let draft = place.draft.detect(value);
        let path = step(&place.path, name);
        let mut base = Arc::clone(&place.base);
        if let Some(id) = value.get("$id").or_else(|| value.get("id")) {
            let resolver = self.registry.resolver((*base).clone());
            let inside = resolver.in_subresource(draft.create_resource_ref(value));
            let refused = || BoundsError::UnresolvableRef { reference: text(id), path: path.clone() };
            base = inside.map_err(|_| refused())?.base_uri();
        }
        self.node(value, path, base, draft, Some(place.at))
    }

    fn target(&mut self, place: &Place, keyword: &str, reference: &str) -> Result<usize, BoundsError> {
        let refused = || BoundsError::UnresolvableRef { reference: reference.to_owned(), path: place.path.clone() };
        // The compiler skips an empty reference without a word: what it should check would pass.
        if reference.is_empty() || self.inventory.depends_on_the_way(keyword, reference) {
            return Err(refused());
        }
        let resolver = self.registry.resolver((*place.base).clone());
        let resolved =
            if keyword == "$recursiveRef" { resolver.lookup_recursive_ref() } else { resolver.lookup(reference) };
        let (value, resolver, draft) = resolved.map_err(|_| refused())?.into_inner();
        if !self.inventory.addresses.contains(&address(value)) {
            return Err(refused());
        }
        let path = format!("{} -> {reference}", place.path);
        let path = if reference.starts_with("#/") { reference.trim_start_matches('#').to_owned() } else { path };
        let at = self.node(value, path, resolver.base_uri(), draft, None)?;
        self.aliases.entry(at).or_default().insert(reference.to_owned());
        Ok(at)
    }

    fn read(&mut self, map: &'a Map<String, Value>, place: &Place) -> Result<(Vec<Edge>, Kids<'a>), BoundsError> {
        let mut edges = Vec::new();
        let mut kids = Kids::default();
        // Up to draft 7 a reference hides its siblings.
        let alone = matches!(place.draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7) && map.contains_key("$ref");
        for (key, value) in map {
            match key.as_str() {
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    if let Value::String(reference) = value {
                        let to = self.target(place, key, reference)?;
                        edges.push(Edge { to, group: Group::All, marks: Marks::Inside, reference: true });
                    }
                }
                // Definitions apply to nothing, but what they refer to must exist.
                "$defs" | "definitions" => {
                    if let Value::Object(definitions) = value {
                        let place = place.inside(key);
                        for (name, schema) in definitions {
                            self.under(&place, name, schema)?;
                        }
                    }
                }
                _ if alone => {}
                _ => {
                    self.read_same(key, value, place, &mut edges)?;
                    self.read_children(key, value, place, &mut kids)?;
                }
            }
        }
        Ok((edges, kids))
    }

    /// Keywords whose subschemas meet the same instance node.
    fn read_same(
        &mut self,
        key: &str,
        value: &'a Value,
        place: &Place,
        edges: &mut Vec<Edge>,
    ) -> Result<(), BoundsError> {
        let (group, marks) = match key {
            "allOf" => (Group::All, Marks::Again),
            "anyOf" => (Group::Branch(0), Marks::Again),
            "oneOf" => (Group::Branch(1), Marks::Again),
            "not" => (Group::All, Marks::No),
            "if" => (Group::All, Marks::Again),
            "then" | "else" => (Group::Branch(2), Marks::Inside),
            "dependentSchemas" | "dependencies" => (Group::All, Marks::Inside),
            _ => return Ok(()),
        };
        match (key, value) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => {
                let place = place.inside(key);
                for (at, schema) in list.iter().enumerate() {
                    let to = self.under(&place, &at.to_string(), schema)?;
                    edges.push(Edge { to, group, marks, reference: false });
                }
            }
            ("dependentSchemas" | "dependencies", Value::Object(map)) => {
                let place = place.inside(key);
                for (name, schema) in map.iter().filter(|(_, schema)| schema.is_object()) {
                    let to = self.under(&place, name, schema)?;
                    edges.push(Edge { to, group, marks, reference: false });
                }
            }
            ("not" | "if" | "then" | "else", Value::Object(_)) => {
                let to = self.under(place, key, value)?;
                edges.push(Edge { to, group, marks, reference: false });
            }
            _ => {}
        }
        Ok(())
    }

    /// Keywords whose subschemas meet the children of the instance node.
    fn read_children(
        &mut self,
        key: &str,
        value: &'a Value,
        place: &Place,
        kids: &mut Kids<'a>,
    ) -> Result<(), BoundsError> {
        match (key, value) {
            ("properties" | "patternProperties", Value::Object(map)) => {
                let place = place.inside(key);
                for (name, schema) in map {
                    let to = self.under(&place, name, schema)?;
                    let list = if key == "properties" { &mut kids.named } else { &mut kids.patterns };
                    list.push((name, to));
                }
            }
            ("prefixItems" | "items", Value::Array(list)) => {
                let place = place.inside(key);
                for (at, schema) in list.iter().enumerate() {
                    kids.prefix.push(self.under(&place, &at.to_string(), schema)?);
                }
            }
            ("items" | "additionalItems", _) => kids.items.push(self.under(place, key, value)?),
            ("additionalProperties", _) => kids.additional = Some(self.under(place, key, value)?),
            ("unevaluatedProperties", _) => kids.unevaluated = Some(self.under(place, key, value)?),
            ("propertyNames", _) => kids.names = Some(self.under(place, key, value)?),
            ("contains", _) => kids.contains = Some(self.under(place, key, value)?),
            ("unevaluatedItems", _) => kids.unevaluated_items = Some(self.under(place, key, value)?),
            _ => {}
        }
        Ok(())
    }
}

impl Place {
    fn inside(&self, name: &str) -> Self {
        Self { at: self.at, path: step(&self.path, name), base: Arc::clone(&self.base), draft: self.draft }
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
