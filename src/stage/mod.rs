//! The stages of an exchange, in their order, with an empty line between them: each may name the output of an earlier
//! one, never of a later one. All but `send` are plain functions.

pub mod authenticate;

pub mod admit;

pub mod bind; // which policies, and what they judge

pub mod plan;

pub mod prompt; // the contract in words, for `shape`

pub mod shape;

pub mod headers; // those of the call, and of what came back

pub mod send;

pub mod extract;

pub mod judge;

pub mod respond; // what a policy says in the place of an answer

pub mod answer;
pub mod sift;
