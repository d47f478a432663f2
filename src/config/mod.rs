//! The configuration: one YAML file, read completely or not at all.
//!
//! A file becomes a tree that knows its places (`tree`), references are expanded (`expand`), the tree is checked
//! against the JSON Schema (`check`) of the structs in `file`, read into them, and resolved into [`Settings`] and
//! [`Catalog`] (`resolve`, `tls`, `backend`, `proxy`, `model`). Every step goes on past an error, so that all of them are reported at
//! once; nothing that is written is ignored. See `config/README.md` for the format.

mod backend;
mod check;
mod expand;
mod file;
mod load;
mod model;
mod policies;
pub mod policy;
mod problem;
mod proxy;
mod resolve;
mod schema;
mod secret;
mod source;
#[cfg(test)]
mod tests;
mod tls;
mod tree;
mod unavailable;
mod unit;

pub use crate::config::load::embedded;
pub use crate::config::load::load;
pub use crate::config::load::load_text;
pub use crate::config::problem::ConfigError;
pub use crate::config::problem::ConfigErrors;
pub use crate::config::problem::Excerpt;
pub use crate::config::problem::Place;

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::Catalog;
use crate::config::policy::Control;
use crate::policy::Policies;
use crate::policy::Policy;
use crate::settings::Settings;

/// A configuration with no unresolved name left in it.
#[derive(Debug)]
pub struct Configuration {
    /// How the gateway itself is run.
    pub settings: Settings,
    /// Backends, model aliases and their targets.
    pub catalog: Catalog,
    /// The policies in force.
    pub policies: Policies,
    /// What each of them is proved by, in the order of their names.
    pub proofs: Vec<Proof>,
    /// What is allowed but probably not meant, each with its place; for the log at start. They hold no secret.
    pub warnings: Vec<String>,
}

/// A policy and its controls, each of which does what it should.
#[derive(Debug)]
pub struct Proof {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its file, for messages.
    pub policy_file: String,
    /// Its controls' file, for messages.
    pub controls_file: String,
    /// The controls, in the order of the file.
    pub controls: Vec<Control>,
}

/// A duration as configuration, policies and recorded sets write it: `1m30s`.
pub fn duration(text: &str) -> Option<Duration> {
    unit::Span::parse(text).map(|unit::Span(duration)| duration)
}

/// The JSON Schema (2020-12) of the configuration file, for editors. Members that this version does not have are not in
/// it.
pub fn schema() -> serde_json::Value {
    schema::CONFIG.schema.clone()
}
