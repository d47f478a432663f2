//! Reports for people.

pub mod text;
