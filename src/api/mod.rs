//! The provider APIs. N ways in and M backends meet in one form: pure functions to and from it, one
//! file a wire format. Where both sides speak the same format, bytes are edited in place instead.

pub mod backend;
pub mod ingress;
pub mod reply;
