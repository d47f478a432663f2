//! Decides, before the compiler sees it, whether a JSON Schema is safe to compile and to validate with.
//!
//! A schema of a few hundred bytes can ask for 2^30 steps: thirty definitions, each `allOf` of the
//! next one twice, or one recursive definition that visits the same child twice. Both compile in
//! milliseconds. So the reference graph is counted first: `graph` builds it with the very resolver
//! that the compiler uses, `weigh` walks its strongly connected components and counts.
//!
//! The caller bounds bytes and nesting; nothing here fetches anything.

mod graph;
mod slots;
#[cfg(test)]
mod tests;
mod unfold;
mod weigh;

use serde_json::Value;

use crate::contract::bounds::graph::Graph;

/// Open containers that an instance may have; the parser refuses more, so a recursive schema
/// unfolds at most this often along one path.
pub(crate) const INSTANCE_DEPTH: usize = 127;

/// Why a schema is refused before it is compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundsError {
    /// A reference leads out of the document, or nowhere; nothing is ever fetched.
    #[error("the reference `{reference}` at `#{path}` is not found inside the schema")]
    UnresolvableRef {
        /// The reference as written, or the URI that it stands for.
        reference: String,
        /// JSON Pointer of the schema that holds it.
        path: String,
    },
    /// A schema leads back to itself without going down into the instance.
    #[error("the schema at `#{path}` refers back to itself without consuming any of the instance")]
    Cycle {
        /// JSON Pointer of a schema on the cycle.
        path: String,
    },
    /// One instance node meets too many subschemas.
    #[error(
        "the schema at `#{path}` makes one instance node meet {} subschemas, references followed; the limit is {max}",
        count(*found)
    )]
    Expansion {
        /// JSON Pointer of the first schema found over the limit.
        path: String,
        /// How many; `usize::MAX` where it grows with every level of the instance.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// Schemas lie inside of each other so deep that validating could overflow the stack.
    #[error(
        "the schema at `#{path}` nests {found} schemas inside of each other, references followed; the limit is {max}"
    )]
    Depth {
        /// JSON Pointer of the first schema found over the limit.
        path: String,
        /// How many, down to the last child of the deepest instance or on one instance node.
        found: usize,
        /// The limit.
        max: usize,
    },
}

/// A saturated count is not a number anybody should read.
fn count(found: usize) -> String {
    if found == usize::MAX { "an exponential number of".to_owned() } else { found.to_string() }
}

/// What is known of a schema that passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Subschemas that one instance node can meet, references followed.
    pub expanded: usize,
    /// Whether collecting errors can take time exponential in the instance's depth although the
    /// verdict alone does not.
    ///
    /// True for recursive unions, such as expression trees. jsonschema remembers the verdict of a
    /// recursive reference in `is_valid`, but not in `validate`, `iter_errors` and `evaluate`,
    /// where each failing level reports every branch. Ask `is_valid` first, always, and explain a
    /// refusal by other means.
    pub errors_grow: bool,
}

/// Refuses a schema that leads out of itself, runs in circles, or meets one instance node with
/// more than `expanded_max` subschemas.
pub fn check(schema: &Value, expanded_max: usize) -> Result<(), BoundsError> {
    measure(schema, expanded_max).map(drop)
}

/// As [`check`], and tells what was counted.
pub fn measure(schema: &Value, expanded_max: usize) -> Result<Bounds, BoundsError> {
    let (registry, base, draft) = graph::registry(schema)?;
    let graph = Graph::build(schema, &registry, base, draft, expanded_max)?;
    weigh::weigh(&graph, expanded_max)
}
