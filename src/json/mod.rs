//! JSON as text: strict checking with spans, a cursor that reads only what is asked for, edits in
//! place, exact numbers and paths. Nothing here knows what a request or a contract is.

pub mod check;
pub mod compare;
pub mod cursor;
pub mod decimal;
pub mod diff;
pub mod fault;
pub mod path;
pub mod query;
pub mod splice;
pub mod string;
pub mod tape;
pub mod tree;

pub use fault::{JsonFault, JsonFaultKind};

/// Containers that may be open at once, in any JSON that is read here.
pub const DEPTH_MAX: usize = 127;
