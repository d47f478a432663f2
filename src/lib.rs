//! Portcullis, a fail-closed gateway for language models.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing))]

pub mod catalog;
pub mod settings;
pub mod dialect { pub mod table; }
pub mod extraction;
pub mod json;
pub mod wire;
