//! Portcullis, a fail-closed gateway for language models.
//!
//! The floors, from the bottom up, with an empty line between them; a room imports only from floors below its own, that
//! is from those above it on this page. `tests/layers.rs` holds the plan.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod digest; // one short name for a schema's exact bytes
pub mod json; // JSON as text: strict checks, a cursor, edits in place
pub mod nearest; // the name that was probably meant
pub mod network; // networks of IP addresses

pub mod dialect; // what each kind of backend can do, as data
pub mod settings; // how the gateway is run, resolved
pub mod wire; // server-sent events, the `error` object

pub mod catalog; // backends, aliases and targets, resolved
pub mod extraction; // cutting JSON out of text, without repair

pub mod api; // the wire formats, to and from the one form in the middle

pub mod contract; // what an answer must satisfy; one file a gate

pub mod policy; // what a platform team's bundle demands, resolved

pub mod record; // what is known of one exchange

pub mod stage; // the way of a request, one file a stage

pub mod exchange; // the front page: one request on its way to its answer

pub mod tls; // certificates and keys, and what rustls makes of them

pub mod audit; // one JSON line a request
pub mod telemetry; // metrics and the log
pub mod upstream; // backends over HTTP, and the scripted model

pub mod config; // the configuration file, as written and as used
pub mod report; // reports for people
pub mod server; // listeners, and HTTP to and from exchanges

pub mod cli; // the commands, one file each
