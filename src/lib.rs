//! Portcullis, a fail-closed gateway for language models.
//!
//! The floors, from the bottom up; a room imports only from floors below its own.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod api; // 1 the wire formats, to and from the one form in the middle
pub mod audit; // 5 one JSON line a request
pub mod catalog; // 2 backends, aliases and targets, resolved
pub mod cli;
pub mod config; // 6 the configuration file, as written and as used
pub mod contract; // 1 what an answer must satisfy; one file a gate
pub mod dialect; // 1 what each kind of backend can do, as data
pub mod digest; // 0 one short name for a schema's exact bytes
pub mod exchange; // 4 the front page: one request on its way to its answer
pub mod extraction; // 1 cutting JSON out of text, without repair
pub mod json; // 0 JSON as text: strict checks, a cursor, edits in place
pub mod record; // 2 what is known of one exchange
pub mod report; // 6 reports for people
pub mod server; // 5 listeners, and HTTP to and from exchanges
pub mod settings; // 0 how the gateway is run, resolved
pub mod stage; // 3 the way of a request, one file a stage
pub mod telemetry; // 5 metrics and the log
pub mod upstream; // 5 backends over HTTP, and the scripted model
pub mod wire; // 0 server-sent events, the `error` object // 7 the commands, one file each
