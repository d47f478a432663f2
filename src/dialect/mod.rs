//! Dialects: what each kind of backend makes of a structured-output request.

pub mod table;
