//! Formats of the wire that are not one provider's: server-sent events, and the `error` object.

pub mod fault;
pub mod sse;
