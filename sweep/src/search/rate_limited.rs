//! The search while a rate limit applies.
//!
//! Concurrency is then the wrong setting, because every cap above the rate gives the same
//! throughput. The answer is the rate, and the cap that uses it up by Little's law.
//!
//! Steps alternate: a cap well above the answer drains the saved credit, and then the current
//! answer is held on the incoming rate. Each drain ends a longer stretch between two moments
//! without credit, and so improves the estimate. The search ends when the answer has been stable
//! for two rounds.

use super::SearchSettings;
use super::policy::{Phase, Policy};
use super::rate_history::ObservedRate;
use super::step_monitor::{StepMode, StoppingRule};
use super::step_summary::{StepEnd, StepSummary};
use crate::observation::{BlockedBy, LimitHint};
use crate::result::{Binding, Purpose};

/// Ratio of a drain's cap to the answer.
const DRAIN_RATIO: f64 = 1.6;
/// The answer is rounded up above this fraction of a slot, because one slot too few wastes some of
/// the rate.
const ROUND_UP_ABOVE: f64 = 0.3;
/// Number of calls between two moments without credit after which the rate is trusted.
const TRUSTED_CALLS: f64 = 100.0;
/// Minimum number of calls for any use of the rate.
const MIN_CALLS: f64 = 15.0;
/// Relative change within which the answer is stable.
const STABLE_CHANGE: f64 = 0.04;
/// Maximum number of rounds.
const MAX_ROUNDS: usize = 12;
/// One rate is the limited one if its variance is below this share of the other's.
const STEADIER_RATIO: f64 = 0.07;

const HOLD: StoppingRule = StoppingRule { calls: 40, error: 0.02, most: 50, accept: false };

/// State of a rate-limited search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateLimited {
    /// Time of the first moment without credit.
    pub(super) since: f64,
    /// Cap at that moment.
    from: usize,
    pub(super) answer: Option<usize>,
    drained: bool,
    /// Upper bound of the answer, after it was too high.
    ceiling: Option<usize>,
    /// Rounds in which the answer was stable.
    still: usize,
    rounds: usize,
    by: Option<Binding>,
}

impl RateLimited {
    pub(super) fn new(summary: &StepSummary, since: f64) -> Self {
        let by = match (summary.held_by, summary.hint) {
            (Some(BlockedBy::Requests), _) | (_, Some(LimitHint::Requests)) => Some(Binding::RequestRate),
            (Some(BlockedBy::Tokens), _) | (_, Some(LimitHint::Tokens)) => Some(Binding::TokenRate),
            _ => None,
        };
        Self { since, from: summary.cap, answer: None, drained: true, ceiling: None, still: 0, rounds: 0, by }
    }
}

impl RateLimited {
    /// Returns `true` if the server or the gate named the limited rate.
    pub(super) fn is_known(&self) -> bool {
        self.by.is_some()
    }
}

impl Policy {
    /// Queues the next step.
    pub(super) fn queue_rate_limited_step(&mut self, settings: &SearchSettings) {
        let Phase::RateLimited(mut pace) = self.phase else { return };
        let paced = self.evidence.rate_history.paced(pace.since).filter(|paced| paced.calls >= MIN_CALLS);
        let Some(paced) = paced else {
            // The credit was just used up. Measure how fast it returns.
            pace.drained = true;
            self.phase = Phase::RateLimited(pace);
            self.push_step(
                pace.from,
                Purpose::Drain,
                HOLD,
                StepMode::Drain { calls: MIN_CALLS as usize + 5 },
            );
            return;
        };
        if !pace.drained {
            pace.drained = true;
            let above =
                pace.answer.map_or(pace.from, |answer| (DRAIN_RATIO * answer as f64).ceil() as usize + 2);
            self.phase = Phase::RateLimited(pace);
            self.push_step(above.min(settings.max_cap), Purpose::Drain, HOLD, StepMode::Drain { calls: 0 });
            return;
        }
        let fed = self.sustainable_cap(settings, &pace, paced);
        let answer = pace.ceiling.map_or(fed, |ceiling| fed.min(ceiling));
        let stands =
            pace.answer.is_some_and(|before| before.abs_diff(answer) as f64 <= STABLE_CHANGE * answer as f64);
        pace.still = if stands { pace.still + 1 } else { 0 };
        pace.answer = Some(answer);
        pace.rounds += 1;
        if (pace.still >= 2 && paced.calls >= TRUSTED_CALLS) || pace.rounds > MAX_ROUNDS {
            self.confirmed = pace.still >= 2;
            self.phase = Phase::RateLimited(pace);
            self.end();
            return;
        }
        pace.drained = false;
        self.phase = Phase::RateLimited(pace);
        self.push_step(answer, Purpose::Confirm, HOLD, StepMode::Paced);
    }

    pub(super) fn learn_rate_limited(
        &mut self,
        settings: &SearchSettings,
        summary: &StepSummary,
        is_drain: bool,
    ) {
        let Phase::RateLimited(mut pace) = self.phase else { return };
        match summary.ended {
            // Nothing held back twice the cap, so the rate limit is gone.
            StepEnd::Accepted if is_drain => {
                self.notes.push("A rate limit applied for a while and then disappeared.".into());
                self.evidence.good = self.evidence.good.max(Some(summary.cap));
                self.evidence.bad = None;
                self.phase = Phase::Ramp;
            }
            StepEnd::Rejected if !is_drain => {
                // No credit is left, so no drain is needed. Either the rate was overestimated, or
                // earlier calls are still open.
                pace.ceiling = Some((3 * summary.cap / 4).max(settings.min_cap));
                pace.drained = true;
                pace.still = 0;
                self.phase = Phase::RateLimited(pace);
            }
            _ => {
                pace.ceiling = None;
                self.phase = Phase::RateLimited(pace);
            }
        }
    }

    /// Returns the limited rate. If nothing named it, assumes tokens, unless requests were accepted
    /// at an evidently steadier rate.
    pub(super) fn limited_rate(&self, pace: &RateLimited) -> Binding {
        pace.by.unwrap_or_else(|| {
            let steadier = self
                .evidence
                .rate_history
                .spreads(pace.since)
                .is_some_and(|(calls, tokens)| calls < STEADIER_RATIO * tokens);
            if steadier { Binding::RequestRate } else { Binding::TokenRate }
        })
    }

    /// Returns the calls of the mix per second that the rate allows.
    pub(super) fn rate(&self, pace: &RateLimited, paced: &ObservedRate) -> f64 {
        match self.limited_rate(pace) {
            Binding::TokenRate => self.tokens(paced) / self.evidence.rate_history.mean_tokens().max(1.0),
            _ => sustained_rate(paced.per_second, self.evidence.rate_history.requests_told),
        }
    }

    /// Returns the tokens per second that the rate allows.
    pub(super) fn tokens(&self, paced: &ObservedRate) -> f64 {
        sustained_rate(paced.tokens, self.evidence.rate_history.tokens_told)
    }

    /// Returns the final cap. The held cap is rounded down to the rate, so one more slot may be
    /// needed.
    pub(super) fn rounded(
        &self,
        settings: &SearchSettings,
        pace: &RateLimited,
        held: usize,
        fed: f64,
    ) -> usize {
        let whole = (fed - ROUND_UP_ABOVE).ceil() as usize;
        if pace.ceiling.is_some() { held } else { whole.clamp(held, held + 1).min(settings.max_cap) }
    }

    /// Returns the largest cap that the rate can sustain.
    fn sustainable_cap(&self, settings: &SearchSettings, pace: &RateLimited, paced: ObservedRate) -> usize {
        let rate = self.rate(pace, &paced);
        let mut cap = pace.answer.unwrap_or(pace.from);
        for _ in 0..4 {
            let Some(service) = self.evidence.service_at(cap) else { break };
            cap = ((rate * service) as usize).clamp(settings.min_cap, settings.max_cap);
        }
        cap
    }
}

/// Returns the observed rate per second, or the reported limit if it is lower, because a bucket
/// temporarily allows more.
fn sustained_rate(seen: f64, told: Option<f64>) -> f64 {
    told.map_or(seen, |told| seen.min(told / 60.0))
}
