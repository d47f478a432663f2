//! The APIs that backends speak, one file each.

pub mod openai;
pub mod openai_stream;
