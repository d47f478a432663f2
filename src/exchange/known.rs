//! What is known of an exchange when its answer is judged: worked out at the answer's end, and only where something asks.

use std::time::Instant;

use jiff::Timestamp;

use crate::api::ingress::chat::ChatRequest;
use crate::api::reply::Usage;
use crate::catalog::Price;
use crate::contract::assign::Minter;
use crate::contract::scene::Asker;
use crate::contract::scene::Call;
use crate::stage::judge::Known;
use crate::stage::plan::Plan;

/// What is known of an exchange before its answer has ended.
#[derive(Clone, Debug)]
pub(super) struct Knowing {
    /// None where no policy judges the answer, so that nothing asks.
    rest: Option<Box<Rest>>,
}

#[derive(Clone, Debug)]
struct Rest {
    call: Call,
    price: Option<Price>,
    arrived: Instant,
}

impl Knowing {
    /// Of an exchange under this plan. `price` is that of the target; `added` are the bytes that shaping has put into the
    /// prompt.
    pub(super) fn of(
        plan: &Plan,
        request: &ChatRequest,
        (arrived, time): (Instant, Timestamp),
        price: Option<&Price>,
        added: usize,
    ) -> Self {
        let assigns = plan.contract.content.as_ref().is_some_and(|content| content.assign.is_some());
        if plan.contract.scopes.is_empty() && plan.watch.is_none() && !assigns {
            return Self { rest: None };
        }
        let unasked = request.stream && !request.include_usage && !plan.terms.usage;
        let prompt = request.texts().map(|spot| spot.close - spot.open).sum::<usize>() + added;
        let request = Asker {
            model: Some(request.model.clone()),
            team: None, // nobody who calls has a team before there are keys
            user: request.user.clone(),
            time: Some(time.to_string()),
        };
        let prompt_bytes = u64::try_from(prompt).ok();
        let call = Call { prompt_bytes, unasked, request, ..Call::default() };
        Self { rest: Some(Box::new(Rest { call, price: price.cloned(), arrived })) }
    }

    /// What is known now that the answer has ended, and took these tokens.
    pub(super) fn now(&self, usage: Option<Usage>) -> Known {
        let Some(rest) = &self.rest else { return Known::nothing() };
        let cost_usd = rest.price.as_ref().zip(usage).and_then(|(price, usage)| {
            price.cost(usage.input_tokens?, usage.cached_tokens.unwrap_or(0), usage.output_tokens?)
        });
        let unasked = rest.call.unasked && usage.is_none();
        let call = Call { usage, unasked, cost_usd, latency: Some(rest.arrived.elapsed()), ..rest.call.clone() };
        Known { call, minter: Minter { now: Timestamp::now(), seed: uuid::Uuid::new_v4().into_bytes() } }
    }
}
