//! An oracle that sees the cache and the queue of each engine.

use std::time::Duration;

use tidegate_sim::engine::Engine;

use super::{Ask, Chooser};
use crate::experiments::pool::workload::Call;

/// Chooses the replica with the lowest cost: the predicted time to the call's first token, plus
/// `others` times the time to compute the call's uncached prompt.
///
/// The second part accounts for the delay of other calls that come later, and for the cached tokens
/// that the call evicts.
pub(crate) struct Oracle {
    pub(crate) others: f64,
}

impl Oracle {
    /// Returns the cost of sending the call to the engine, in seconds.
    fn cost(&self, now: Duration, engine: &Engine, call: &Call) -> f64 {
        let config = engine.config();
        let cached = engine.blocks().prefix(&call.blocks, call.input);
        let own = u64::from(call.input - cached);
        let ahead = engine.uncomputed();
        let budget = f64::from(config.max_num_batched_tokens);
        let sequences = (engine.running() + engine.waiting()) as f64;
        let step = (config.step.base_ms + config.step.per_sequence_ms * sequences) / 1e3;
        let compute = |tokens: u64| tokens as f64 * config.step.per_prompt_token_ms / 1e3;
        let under_way = engine.next_event().map_or(0.0, |at| at.saturating_sub(now).as_secs_f64());
        let steps = ((ahead + own) as f64 / budget).ceil().max(1.0);
        let slow = engine.slowdown();
        under_way + slow * (compute(ahead + own) + steps * step + self.others * compute(own))
    }
}

impl Chooser for Oracle {
    fn choose(&mut self, ask: &Ask) -> usize {
        let costs = ask
            .open()
            .into_iter()
            .filter_map(|at| Some((self.cost(ask.now, ask.replicas.engines.get(at)?, ask.call), at)));
        costs.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, at)| at)
    }
}
