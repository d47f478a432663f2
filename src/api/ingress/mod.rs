//! The formats that clients speak.

pub mod chat;
pub mod chat_answer;
pub mod open;
pub mod request;
