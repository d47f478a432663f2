//! The APIs that clients speak, one file each.

pub mod chat;
pub mod chat_answer;
