//! What can be called: backends over HTTP, and the scripted model inside the binary.

pub mod client;
pub mod sample;
pub mod scripted;
