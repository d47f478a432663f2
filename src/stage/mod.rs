//! The stages of an exchange, in their order: each may name the output of an earlier one, never of a
//! later one. All but `send` are plain functions.

pub mod admit;
pub mod answer;
pub mod authenticate;
pub mod extract;
pub mod headers;
pub mod judge;
pub mod plan;
pub mod prompt;
pub mod send;
pub mod shape;
