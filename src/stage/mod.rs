//! The stages of an exchange, in their order: each may name the output of an earlier one, never of a
//! later one. All but `send` are plain functions.

pub mod authenticate;
pub mod admit;
pub mod plan;
pub mod prompt;
pub mod shape;
pub mod send;
pub mod extract;
pub mod judge;
pub mod answer;
