//! Facts: what plain patterns find in the messages, once a request.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The facts of one exchange, by the name that the policy gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(pub BTreeMap<Arc<str>, Vec<Fact>>);

/// One thing that the messages state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The term, or the match of a pattern.
    pub term: Arc<str>,
    /// The page that it was first found on, from 1.
    pub page: usize,
    /// Where, in bytes of the page.
    pub range: Range<usize>,
}
