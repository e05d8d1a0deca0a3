//! What calls are expected to take of one target, learned from what they took.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::{CostRule, TargetConfig};
use crate::kv::{self, Forecast};
use tidegate_protocol::Usage;
use tidegate_protocol::request::RequestFacts;
use tidegate_tokens::{Demand, Estimator, LengthSample};

/// How much of what was known is kept with each new answer: the last sixteen or so count.
const KEPT: f64 = 15.0 / 16.0;
/// What an engine is taken for until it has answered once: two hundred milliseconds to the first token and thirty for each further one.
const TTFT: f64 = 0.2;
const TPOT: f64 = 0.03;

/// One target's expectations.
pub(crate) struct Expected {
    rule: CostRule,
    /// Whether the target's memory is accounted for, or may be once its size is known.
    has_memory: bool,
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
        // The replicas of a pool report their sizes later, and the unit of costs cannot change then.
        let has_memory = config.kv_tokens.is_some() || config.pool.is_some();
        let rule = match config.cost {
            CostRule::Auto if has_memory => CostRule::Kv,
            CostRule::Auto => CostRule::Tokens,
            rule => rule,
        };
        Self {
            rule,
            has_memory,
            estimator: Mutex::new(Estimator::new()),
            speed: Mutex::new(Speed { ttft: TTFT, tpot: TPOT }),
        }
    }

    /// What a call will take.
    pub(crate) fn demand(&self, facts: &RequestFacts, tenant: &Arc<str>) -> Demand {
        self.estimator.lock().demand(facts, tenant)
    }

    /// How long its answer may become, where memory is accounted for, which holds what is still to come: by what is known when it is admitted.
    pub(crate) fn forecast(
        self: &Arc<Self>,
        facts: &RequestFacts,
        tenant: &Arc<str>,
        exact: Option<u64>,
    ) -> Forecast {
        if !self.has_memory {
            return Forecast::default();
        }
        let (expected, facts, tenant) = (self.clone(), facts.clone(), tenant.clone());
        Forecast::later(move || {
            let estimator = expected.estimator.lock();
            let forecast = Forecast::from(&estimator.expect(&facts, &tenant))
                .of_input(exact.unwrap_or_else(|| estimator.demand(&facts, &tenant).input));
            if facts.stream { forecast } else { forecast.in_one_piece() }
        })
    }

    /// What that is in fair queueing, before it has run.
    pub(crate) fn cost(&self, demand: &Demand) -> f64 {
        self.charged(demand.input, demand.output, None)
    }

    /// What it was, when it had run; `held`: for how long, where that is known.
    pub(crate) fn charged(&self, input: u64, output: u64, held: Option<Stay>) -> f64 {
        match self.rule {
            CostRule::Calls => 1.0,
            CostRule::Tokens | CostRule::Auto => (input.saturating_add(output)).max(1) as f64,
            CostRule::Kv => {
                let cost = match held {
                    Some(Stay { to_first_token, to_end }) => kv::held(input, output, to_first_token, to_end),
                    None => {
                        let speed = self.speed.lock();
                        kv::cost(input, output, speed.ttft, speed.tpot)
                    }
                };
                cost.max(f64::MIN_POSITIVE)
            }
        }
    }

    /// Learns that a call has produced so many tokens, and goes on or was broken off.
    pub(crate) fn observe(
        &self,
        facts: &RequestFacts,
        tenant: &Arc<str>,
        sample: &mut LengthSample,
        produced: u64,
    ) {
        // Nothing is locked for most tokens.
        if sample.is_due(produced) {
            self.estimator.lock().observe(facts, tenant, sample, produced);
        }
    }

    /// A call was answered whole: what it took, and how fast it came.
    pub(crate) fn learn(
        &self,
        facts: &RequestFacts,
        tenant: &Arc<str>,
        sample: &mut LengthSample,
        usage: &Usage,
        held: Option<Stay>,
    ) {
        self.estimator.lock().learn(facts, tenant, sample, usage);
        let Some(Stay { to_first_token: Some(first), to_end }) = held else { return };
        let mut speed = self.speed.lock();
        speed.ttft = smooth(speed.ttft, first.as_secs_f64());
        if usage.output > 1 {
            let rest = to_end.saturating_sub(first).as_secs_f64();
            speed.tpot = smooth(speed.tpot, rest / (usage.output - 1) as f64);
        }
    }
}

/// For how long an attempt held its place, from when it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    pub(crate) to_first_token: Option<Duration>,
    pub(crate) to_end: Duration,
}

fn smooth(known: f64, seen: f64) -> f64 {
    known * KEPT + seen * (1.0 - KEPT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PoolConfig;
    use crate::kv::{Kv, Prefix, Progress};
    use tidegate_protocol::prompt::{Prompt, Task};

    fn facts() -> RequestFacts {
        let prompt = Prompt { text_bytes: 40, messages: 1, max_tokens: Some(4_000), ..Prompt::default() };
        RequestFacts { prompt: Some(prompt), task: Task::Text, stream: true, ..RequestFacts::unknown() }
    }

    /// Returns what one call comes to hold at most, after answers of 10 tokens and one in ten of 2,000.
    fn planned_peak(config: &TargetConfig) -> u64 {
        let (expected, tenant) = (Arc::new(Expected::new(config)), Arc::from("a"));
        for round in 0..200 {
            let output = if round % 10 == 0 { 2_000 } else { 10 };
            let usage = Usage { input: 20, output, ..Usage::default() };
            expected.learn(&facts(), &tenant, &mut LengthSample::default(), &usage, None);
        }
        let demand = expected.demand(&facts(), &tenant);
        let mut kv = Kv::new(100_000, 0.0);
        let forecast = expected.forecast(&facts(), &tenant, None);
        let _place = kv.admit_expecting(&demand, forecast, Prefix::default(), Progress::default());
        kv.view().peak
    }

    #[test]
    fn pool_that_learns_its_memory_size_plans_with_forecast_lengths() {
        let configured = TargetConfig { kv_tokens: Some(100_000), ..TargetConfig::new("a") };
        let learned = TargetConfig { pool: Some(PoolConfig::default()), ..TargetConfig::new("a") };
        let expected = planned_peak(&configured);
        assert!(expected > 300, "{expected}: the long tail is planned for");
        assert_eq!(planned_peak(&learned), expected);
    }

    #[test]
    fn targets_with_memory_are_charged_memory_times_time_and_others_tokens() {
        let rule = |config: &TargetConfig| Expected::new(config).rule;
        let single = TargetConfig::new("a");
        assert_eq!(rule(&single), CostRule::Tokens);
        assert_eq!(rule(&TargetConfig { kv_tokens: Some(1), ..single.clone() }), CostRule::Kv);
        let pool = TargetConfig { pool: Some(PoolConfig::default()), ..single };
        assert_eq!(rule(&pool), CostRule::Kv);
        assert_eq!(rule(&TargetConfig { cost: CostRule::Tokens, ..pool }), CostRule::Tokens);
    }
}
