//! What an answer is grounded in: the source's pages, and the facts that were found in the messages. Made once an
//! exchange and policy, while the upstream call runs; nothing of it changes afterwards.

use crate::contract::fact::Facts;
use crate::contract::source::Source;

/// The ground of one policy in one exchange.
#[derive(Debug, Default)]
pub struct Ground {
    /// The source, prepared for what the policy's gates ask of it (`PolicyContract::needs`).
    pub source: Source,
    /// The facts that the messages state.
    pub facts: Facts,
}
