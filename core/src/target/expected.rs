//! What calls are expected to take of one target, learned from what they took.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::{CostRule, TargetConfig};
use crate::estimate::{Demand, Estimator};
use crate::wire::request::RequestFacts;
use crate::wire::Usage;

/// How much of what was known is kept with each new answer: the last sixteen or so count.
const KEPT: f64 = 15.0 / 16.0;
/// What an engine is taken for until it has answered once: two hundred milliseconds to the first token and thirty for each further one.
const TTFT: f64 = 0.2;
const TPOT: f64 = 0.03;

/// One target's expectations.
pub(crate) struct Expected {
    rule: CostRule,
    estimator: Mutex<Estimator>,
    speed: Mutex<Speed>,
}

/// How fast the target answers, in seconds, smoothed.
struct Speed {
    ttft: f64,
    tpot: f64,
}

impl Expected {
    pub(super) fn new(config: &TargetConfig) -> Self {
        let rule = match config.cost {
            CostRule::Auto if config.kv_tokens.is_some() => CostRule::Kv,
            CostRule::Auto => CostRule::Tokens,
            rule => rule,
        };
        Self { rule, estimator: Mutex::new(Estimator::new()), speed: Mutex::new(Speed { ttft: TTFT, tpot: TPOT }) }
    }

    /// What a call will take.
    pub(crate) fn demand(&self, facts: &RequestFacts, tenant: &Arc<str>) -> Demand {
        self.estimator.lock().demand(facts, tenant)
    }

    /// What that is in fair queueing, before it has run.
    pub(crate) fn cost(&self, demand: &Demand) -> f64 {
        self.charged(demand.input, demand.output, None)
    }

    /// What it was, when it had run; `held` is how long to its first token and from there to its end, where that is known.
    pub(crate) fn charged(&self, input: u64, output: u64, held: Option<(Duration, Duration)>) -> f64 {
        match self.rule {
            CostRule::Calls => 1.0,
            CostRule::Tokens | CostRule::Auto => (input.saturating_add(output)).max(1) as f64,
            CostRule::Kv => {
                let speed = self.speed.lock();
                let (first, rest) = held.map_or((speed.ttft, speed.tpot * output as f64), |(first, rest)| (first.as_secs_f64(), rest.as_secs_f64()));
                // The prompt is held all the time, the output half of it on average from the first token on.
                (input as f64 * (first + rest) + output as f64 * rest / 2.0).max(f64::MIN_POSITIVE)
            }
        }
    }

    /// A call was answered whole: what it took, and how fast it came.
    pub(crate) fn learn(&self, facts: &RequestFacts, tenant: &Arc<str>, usage: &Usage, held: Option<(Duration, Duration)>) {
        self.estimator.lock().learn(facts, tenant, usage);
        if let Some((first, rest)) = held {
            let mut speed = self.speed.lock();
            speed.ttft = speed.ttft * KEPT + first.as_secs_f64() * (1.0 - KEPT);
            if usage.output > 1 {
                speed.tpot = speed.tpot * KEPT + rest.as_secs_f64() / (usage.output - 1) as f64 * (1.0 - KEPT);
            }
        }
    }
}
