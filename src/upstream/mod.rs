//! What can be called: backends over HTTP, and the scripted model inside the binary.

pub mod client;
mod connect;
mod gathered;
mod head;
mod kept;
mod link;
pub mod outgoing;
mod pool;
mod reply;
pub mod sample;
pub mod scripted;
mod stream;
