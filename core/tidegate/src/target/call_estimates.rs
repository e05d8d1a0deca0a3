//! Estimates of the tokens, the KV-cache memory and the cost of a call to a target, learned from
//! the calls before it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::{CostRule, TargetConfig};
use crate::kv::{self, Forecast};
use tidegate_protocol::Usage;
use tidegate_protocol::request::RequestFacts;
use tidegate_tokens::{Demand, Estimator, LengthSample};

/// Weight of the previous average in a moving average, which covers about the last 16 responses.
const DECAY: f64 = 15.0 / 16.0;
/// Time to the first token, in seconds, that is assumed before the first response.
const TTFT: f64 = 0.2;
/// Time per further output token, in seconds, that is assumed before the first response.
const TPOT: f64 = 0.03;
/// Maximum estimated cost of a call. No real call costs as much. Bounds how far one call, for
/// example one that asks for a billion answers, advances the virtual time of fair queueing, whose
/// tags become less exact until the lane has been idle.
const MAX_COST: f64 = (1_u64 << 40) as f64;

/// The learned estimates of one target: the tokens, the KV-cache memory and the cost of a call.
pub(crate) struct CallEstimates {
    /// The rule by which costs are computed. Never `Auto`, which is resolved at creation.
    rule: CostRule,
    /// `true` if KV-cache memory is accounted for, even if its size is not known yet.
    tracks_memory: Arc<AtomicBool>,
    estimator: Mutex<Estimator>,
    speed: Mutex<Speed>,
}

/// Moving averages of the speed of the target's responses.
struct Speed {
    /// Mean time to the first token, in seconds.
    ttft: f64,
    /// Mean time per output token after the first, in seconds.
    tpot: f64,
}

impl CallEstimates {
    pub(super) fn new(config: &TargetConfig) -> Self {
        // The replicas of a pool report their sizes later, and the unit of costs cannot change
        // then.
        let has_memory = config.kv_tokens.is_some() || config.pool.is_some();
        let rule = match config.cost {
            CostRule::Auto if has_memory => CostRule::Kv,
            CostRule::Auto => CostRule::Tokens,
            rule => rule,
        };
        Self {
            rule,
            tracks_memory: Arc::new(AtomicBool::new(has_memory)),
            estimator: Mutex::new(Estimator::new()),
            speed: Mutex::new(Speed { ttft: TTFT, tpot: TPOT }),
        }
    }

    /// Returns a flag that is `true` if KV-cache memory is accounted for. It may become `true`
    /// later, when the engine has reported its size; the unit of costs does not change then.
    pub(super) fn tracks_memory(&self) -> Arc<AtomicBool> {
        self.tracks_memory.clone()
    }

    /// Returns the numbers of input and output tokens that a call is expected to take.
    pub(crate) fn demand(&self, facts: &RequestFacts, tenant: &Arc<str>) -> Demand {
        self.estimator.lock().demand(facts, tenant)
    }

    /// Returns a forecast of the KV-cache memory that the call will use, which is computed only
    /// when the call is admitted. `exact` is the number of input tokens if it was counted,
    /// otherwise `None`. The forecast is empty if KV-cache memory is not accounted for.
    pub(crate) fn forecast(
        self: &Arc<Self>,
        facts: &RequestFacts,
        tenant: &Arc<str>,
        exact: Option<u64>,
    ) -> Forecast {
        if !self.tracks_memory.load(Ordering::Relaxed) {
            return Forecast::default();
        }
        let (estimates, facts, tenant) = (self.clone(), facts.clone(), tenant.clone());
        Forecast::deferred(move || {
            let estimator = estimates.estimator.lock();
            let forecast = Forecast::from(&estimator.output(&facts, &tenant))
                .with_input(exact.unwrap_or_else(|| estimator.demand(&facts, &tenant).input));
            if facts.stream { forecast } else { forecast.non_streaming() }
        })
    }

    /// Returns the estimated cost of a call before it runs, which fair queueing charges to its
    /// tenant, at most [`MAX_COST`]. The unit depends on the cost rule: calls, tokens, or KV-cache
    /// memory times time.
    pub(crate) fn cost(&self, demand: &Demand) -> f64 {
        self.actual_cost(demand.input, demand.output, None).min(MAX_COST)
    }

    /// Returns the cost of a call with these numbers of tokens, which fair queueing charges to its
    /// tenant. `held` is the time for which the call held its slot, or `None` to use an estimate.
    pub(crate) fn actual_cost(&self, input: u64, output: u64, held: Option<SlotTime>) -> f64 {
        match self.rule {
            CostRule::Calls => 1.0,
            CostRule::Tokens | CostRule::Auto => (input.saturating_add(output)).max(1) as f64,
            CostRule::Kv => {
                let cost = match held {
                    Some(SlotTime { to_first_token, to_end }) => {
                        kv::actual_cost(input, output, to_first_token, to_end)
                    }
                    None => {
                        let speed = self.speed.lock();
                        kv::expected_cost(input, output, speed.ttft, speed.tpot)
                    }
                };
                cost.max(f64::MIN_POSITIVE)
            }
        }
    }

    /// Learns that a response that is not complete has at least `produced` output tokens. `sample`
    /// states what was already learned about this response.
    pub(crate) fn observe(
        &self,
        facts: &RequestFacts,
        tenant: &Arc<str>,
        sample: &mut LengthSample,
        produced: u64,
    ) {
        // For most tokens no sample is due, and no lock is taken.
        if sample.is_due(produced) {
            self.estimator.lock().observe(facts, tenant, sample, produced);
        }
    }

    /// Learns from a complete response: the tokens in `usage` and, if `held` contains the time to
    /// the first token, the speed of the response. `sample` states what was already learned about
    /// this response.
    pub(crate) fn learn(
        &self,
        facts: &RequestFacts,
        tenant: &Arc<str>,
        sample: &mut LengthSample,
        usage: &Usage,
        held: Option<SlotTime>,
    ) {
        self.estimator.lock().learn(facts, tenant, sample, usage);
        let Some(SlotTime { to_first_token: Some(first), to_end }) = held else { return };
        let mut speed = self.speed.lock();
        speed.ttft = moving_average(speed.ttft, first.as_secs_f64());
        if usage.output > 1 {
            let rest = to_end.saturating_sub(first).as_secs_f64();
            speed.tpot = moving_average(speed.tpot, rest / (usage.output - 1) as f64);
        }
    }
}

/// The time for which an attempt held its slot, counted from when it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotTime {
    /// Time from sending the attempt to its first token. `None` if no token arrived.
    pub(crate) to_first_token: Option<Duration>,
    /// Time from sending the attempt to its end.
    pub(crate) to_end: Duration,
}

/// Returns the moving average after the new value `value`. `previous` is the average before it.
fn moving_average(previous: f64, value: f64) -> f64 {
    previous * DECAY + value * (1.0 - DECAY)
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

    /// Returns the peak of KV-cache memory, in tokens, that is planned for one call after 200
    /// responses. One in ten of the responses has 2,000 output tokens, the others have 10.
    fn planned_peak(config: &TargetConfig) -> u64 {
        let (estimates, tenant) = (Arc::new(CallEstimates::new(config)), Arc::from("a"));
        for round in 0..200 {
            let output = if round % 10 == 0 { 2_000 } else { 10 };
            let usage = Usage { input: 20, output, ..Usage::default() };
            estimates.learn(&facts(), &tenant, &mut LengthSample::default(), &usage, None);
        }
        let demand = estimates.demand(&facts(), &tenant);
        let mut kv = Kv::new(100_000, 0.0);
        let forecast = estimates.forecast(&facts(), &tenant, None);
        let _place = kv.admit(&demand, forecast, Prefix::default(), Progress::default());
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
        let rule = |config: &TargetConfig| CallEstimates::new(config).rule;
        let single = TargetConfig::new("a");
        assert_eq!(rule(&single), CostRule::Tokens);
        assert_eq!(rule(&TargetConfig { kv_tokens: Some(1), ..single.clone() }), CostRule::Kv);
        let pool = TargetConfig { pool: Some(PoolConfig::default()), ..single };
        assert_eq!(rule(&pool), CostRule::Kv);
        assert_eq!(rule(&TargetConfig { cost: CostRule::Tokens, ..pool }), CostRule::Tokens);
    }
}
