//! Portcullis, a fail-closed gateway for language models.
//!
//! The floors, from the bottom up; a room imports only from floors below its own.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod json; // 0 JSON as text: strict checks, a cursor, edits in place
pub mod wire; // 0 server-sent events, the `error` object
pub mod digest; // 0 one short name for a schema's exact bytes
pub mod settings; // 0 how the gateway is run, resolved
pub mod dialect; // 1 what each kind of backend can do, as data
pub mod extraction; // 1 cutting JSON out of text, without repair
pub mod contract; // 1 what an answer must satisfy; one file a gate
pub mod api; // 1 the wire formats, to and from the one form in the middle
pub mod catalog; // 2 backends, aliases and targets, resolved
pub mod record; // 2 what is known of one exchange
pub mod stage; // 3 the way of a request, one file a stage
