//! Decides the steps of the search while a rate limit of the server applies.
//!
//! Every cap above a certain one then has the same throughput, so the answer is the rate, and by
//! Little's law the cap that uses it up.
//!
//! Two kinds of steps alternate: a drain step, at a cap well above the answer, uses up the saved
//! credit; the next step runs at the current answer. Each drain ends a longer stretch between two
//! moments without credit, which improves the estimate of the rate. The search ends when the answer
//! has not changed for two rounds.

use super::SearchSettings;
use super::next_step::{Phase, Policy};
use super::rate_history::ObservedRate;
use super::step_monitor::StepMode;
use super::step_stopping_rules::RATE_LIMITED;
use super::step_summary::{StepEnd, StepSummary};
use crate::observation::{BlockedBy, LimitHint};
use crate::search_result::{Binding, Purpose};

/// Ratio of the cap of a drain step to the current answer, before two slots are added.
const DRAIN_RATIO: f64 = 1.6;
/// The number of concurrent calls that use up the rate is rounded up to a cap if its fraction
/// exceeds this value, or [`ROUND_UP_SHARE`] of the whole. One slot too few leaves a part of the
/// rate unused. One slot too many does not matter, because the rate is configured as well.
const ROUND_UP_ABOVE: f64 = 0.3;
/// Largest share of the rate that a cap may leave unused because it is not rounded up.
const ROUND_UP_SHARE: f64 = 0.1;
/// Number of calls that must have been accepted between the first and the last moment without
/// credit for a final answer.
const TRUSTED_CALLS: f64 = 100.0;
/// Number of calls that must have been accepted between the first and the last moment without
/// credit for a preliminary answer.
const MIN_CALLS: f64 = 15.0;
/// Maximum change of the answer, as a share of the new answer, at which the answer counts as stable
/// in a round. A round is a drain step and a step at the answer.
const STABLE_CHANGE: f64 = 0.04;
/// Number of rounds after which the search ends even if the answer is not stable.
const MAX_ROUNDS: usize = 12;
/// A throughput counts as above a reported rate limit if it exceeds the limit by more than this
/// share.
const MIN_EXCESS: f64 = 0.05;
/// Requests count as the limited resource if the relative variance of their rate is below this
/// share of the relative variance of the token rate.
const STEADIER_RATIO: f64 = 0.07;

/// State of a search whose server has a rate limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateLimited {
    /// Time at which the rate limit first had no credit left, in seconds since the sweep began.
    pub(super) since: f64,
    /// Cap of the step in which the rate limit was recognized.
    first_cap: usize,
    pub(super) answer: Option<usize>,
    drained: bool,
    /// Upper bound of the answer, set when a step at the answer is rejected. `None` after any other
    /// step.
    ceiling: Option<usize>,
    /// Number of consecutive rounds in which the answer was stable.
    stable_rounds: usize,
    rounds: usize,
    limited_by: Option<Binding>,
}

impl RateLimited {
    pub(super) fn new(summary: &StepSummary, since: f64) -> Self {
        let limited_by = match (summary.held_by, summary.hint) {
            (Some(BlockedBy::Requests), _) | (_, Some(LimitHint::Requests)) => Some(Binding::RequestRate),
            (Some(BlockedBy::Tokens), _) | (_, Some(LimitHint::Tokens)) => Some(Binding::TokenRate),
            _ => None,
        };
        Self {
            since,
            first_cap: summary.cap,
            answer: None,
            drained: true,
            ceiling: None,
            stable_rounds: 0,
            rounds: 0,
            limited_by,
        }
    }
}

impl RateLimited {
    /// Returns `true` if the gate or the server named the limited resource (requests or tokens).
    pub(super) fn is_known(&self) -> bool {
        self.limited_by.is_some()
    }
}

impl Policy {
    /// Queues a drain step or a step at the current answer, or ends the search if the answer is
    /// stable.
    pub(super) fn queue_rate_limited_step(&mut self, settings: &SearchSettings) {
        let Phase::RateLimited(mut state) = self.phase else { return };
        let observed = self
            .evidence
            .rate_history
            .observed_rate(state.since)
            .filter(|observed| observed.calls >= MIN_CALLS);
        let Some(observed) = observed else {
            // The credit was just used up. Measure how fast it returns.
            state.drained = true;
            self.phase = Phase::RateLimited(state);
            self.push_step(
                state.first_cap,
                Purpose::Drain,
                RATE_LIMITED,
                StepMode::Drain { calls: MIN_CALLS as usize + 5 },
            );
            return;
        };
        if !state.drained {
            state.drained = true;
            let above = state
                .answer
                .map_or(state.first_cap, |answer| (DRAIN_RATIO * answer as f64).ceil() as usize + 2);
            self.phase = Phase::RateLimited(state);
            self.push_step(
                above.min(settings.max_cap),
                Purpose::Drain,
                RATE_LIMITED,
                StepMode::Drain { calls: 0 },
            );
            return;
        }
        let sustained_calls = self.sustainable_cap(settings, &state, observed);
        let answer = state.ceiling.map_or(sustained_calls, |ceiling| sustained_calls.min(ceiling));
        let is_stable = state
            .answer
            .is_some_and(|before| before.abs_diff(answer) as f64 <= STABLE_CHANGE * answer as f64);
        state.stable_rounds = if is_stable { state.stable_rounds + 1 } else { 0 };
        state.answer = Some(answer);
        state.rounds += 1;
        if (state.stable_rounds >= 2 && observed.calls >= TRUSTED_CALLS) || state.rounds > MAX_ROUNDS {
            self.confirmed = state.stable_rounds >= 2;
            self.phase = Phase::RateLimited(state);
            self.end();
            return;
        }
        state.drained = false;
        self.phase = Phase::RateLimited(state);
        self.push_step(answer, Purpose::Confirm, RATE_LIMITED, StepMode::Paced);
    }

    pub(super) fn on_rate_limited_step(
        &mut self,
        settings: &SearchSettings,
        summary: &StepSummary,
        is_drain: bool,
    ) {
        let Phase::RateLimited(mut state) = self.phase else { return };
        match summary.ended {
            StepEnd::Accepted if is_drain && self.reported_excess(summary).is_some() => {
                // The server still accepts more than its rate, so credit is left.
                state.drained = false;
                self.phase = Phase::RateLimited(state);
            }
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
                state.ceiling = Some((3 * summary.cap / 4).max(settings.min_cap));
                state.drained = true;
                state.stable_rounds = 0;
                self.phase = Phase::RateLimited(state);
            }
            _ => {
                state.ceiling = None;
                self.phase = Phase::RateLimited(state);
            }
        }
    }

    /// Returns the rate limit of the response headers that the throughput of the steps in `summary`
    /// exceeded: its unit, the throughput in this unit per minute, and the reported limit. Returns
    /// `None` if there is none.
    pub(super) fn reported_excess(&self, summary: &StepSummary) -> Option<(&'static str, f64, f64)> {
        let history = &self.evidence.rate_history;
        let calls = 60.0 * summary.throughput(self.evidence.work())?.value;
        let rates = [
            ("requests", calls, history.reported_rpm),
            ("tokens", calls * history.mean_tokens(), history.reported_tpm),
        ];
        let exceeds = |(_, accepted, limit): &(_, f64, f64)| *accepted > (1.0 + MIN_EXCESS) * limit;
        rates.into_iter().filter_map(|(unit, accepted, limit)| Some((unit, accepted, limit?))).find(exceeds)
    }

    /// Returns which rate is limited: the one that the gate or the server named. If none was named,
    /// returns requests if they were accepted at a clearly steadier rate than tokens, and otherwise
    /// tokens.
    pub(super) fn limited_rate(&self, state: &RateLimited) -> Binding {
        state.limited_by.unwrap_or_else(|| {
            let steadier = self
                .evidence
                .rate_history
                .variances(state.since)
                .is_some_and(|(calls, tokens)| calls < STEADIER_RATIO * tokens);
            if steadier { Binding::RequestRate } else { Binding::TokenRate }
        })
    }

    /// Returns the number of calls of the mix per second that the rate limit allows.
    pub(super) fn calls_per_second(&self, state: &RateLimited, observed: &ObservedRate) -> f64 {
        match self.limited_rate(state) {
            Binding::TokenRate => {
                self.tokens_per_second(observed) / self.evidence.rate_history.mean_tokens().max(1.0)
            }
            _ => sustained_rate(observed.per_second, self.evidence.rate_history.reported_rpm),
        }
    }

    /// Returns the number of input and output tokens together per second that the rate limit
    /// allows.
    pub(super) fn tokens_per_second(&self, observed: &ObservedRate) -> f64 {
        sustained_rate(observed.tokens, self.evidence.rate_history.reported_tpm)
    }

    /// Returns the cap to recommend. `held` is the cap that the search has found, and
    /// `sustained_calls` the number of concurrent calls that use up the rate. Returns `held`, or
    /// one more if `sustained_calls` exceeds `held` by more than [`ROUND_UP_ABOVE`] or
    /// [`ROUND_UP_SHARE`], and the last step at the answer was not rejected.
    pub(super) fn rounded_cap(
        &self,
        settings: &SearchSettings,
        state: &RateLimited,
        held: usize,
        sustained_calls: f64,
    ) -> usize {
        let ignored = ROUND_UP_ABOVE.min(ROUND_UP_SHARE * sustained_calls);
        let whole = (sustained_calls - ignored).ceil() as usize;
        if state.ceiling.is_some() { held } else { whole.clamp(held, held + 1).min(settings.max_cap) }
    }

    /// Returns the largest cap at which calls use no more than the rate limit allows.
    fn sustainable_cap(
        &self,
        settings: &SearchSettings,
        state: &RateLimited,
        observed: ObservedRate,
    ) -> usize {
        let rate = self.calls_per_second(state, &observed);
        let mut cap = state.answer.unwrap_or(state.first_cap);
        for _ in 0..4 {
            let Some(service) = self.evidence.service_at(cap) else { break };
            cap = ((rate * service) as usize).clamp(settings.min_cap, settings.max_cap);
        }
        cap
    }
}

/// Returns the rate per second that the server sustains: the lower of the `observed` rate per
/// second and the `reported` rate per minute. The observed rate may be too high, because a token
/// bucket temporarily accepts more than its rate.
fn sustained_rate(observed: f64, reported: Option<f64>) -> f64 {
    reported.map_or(observed, |reported| observed.min(reported / 60.0))
}
