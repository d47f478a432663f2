//! What an answer is grounded in: the source's pages, and the facts that were found in the messages. Made once an
//! exchange and policy, while the upstream call runs; nothing of it changes afterwards.

use std::sync::Arc;

use crate::contract::fact::Facts;

/// The ground of one policy in one exchange.
#[derive(Debug, Default)]
pub struct Ground {
    /// The source, page by page.
    pub pages: Vec<Arc<str>>,
    /// The facts that the messages state.
    pub facts: Facts,
}
