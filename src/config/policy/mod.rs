//! Policies: a folder each, read completely or not at all, with the machinery of the configuration.
//!
//! The bundle's files (`bundle`) are read; the policy as written (`file`) is checked against its schema and resolved
//! (`resolve`, `schema`, `gates`); its controls (`controls`) are read, to be run by whoever puts it in force (`prove`).

pub mod bundle;
mod controls;
mod file;
mod gates;
mod load;
#[cfg(test)]
mod properties;
mod prove;
mod resolve;
mod schema;
mod tables;
#[cfg(test)]
mod tests;

pub use crate::config::policy::controls::Control;
pub use crate::config::policy::controls::untested;
pub use crate::config::policy::load::Loaded;
pub use crate::config::policy::load::load;
pub use crate::config::policy::prove::run_controls;

pub(super) use crate::config::policy::file::GATE_NAME;
pub(super) use crate::config::policy::file::GATE_NAME_HELP;
pub(super) use crate::config::policy::load::in_folder;
pub(super) use crate::config::policy::load::together;

/// The JSON Schema (2020-12) of `policy.yaml`, for editors.
pub fn schema() -> serde_json::Value {
    load::POLICY_FORMAT.schema.clone()
}

/// The JSON Schema (2020-12) of one line of `controls.jsonl`, for editors.
pub fn controls_schema() -> serde_json::Value {
    controls::CONTROL_FORMAT.schema.clone()
}
