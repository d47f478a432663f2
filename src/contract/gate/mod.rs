//! The gates, one file each.

pub mod schema;
