//! Where a rate binds: concurrency is the wrong knob, and any cap above what the rate feeds is as good as the next. The answer is the rate, and by Little's law the cap that uses it up.
//!
//! By turns: a cap well above drains the credit until nothing is left, then the answer as it looks now is held on what comes in. Each drain ends a longer stretch between two moments at which
//! nothing was left, and so tells the rate better; it ends when the answer has stood still for two rounds.

use super::SearchSettings;
use super::policy::{Phase, Policy};
use super::rate_history::ObservedRate;
use super::step_monitor::{StepMode, StoppingRule};
use super::step_summary::{StepEnd, StepSummary};
use crate::observation::{BlockedBy, LimitHint};
use crate::result::{Binding, Purpose};

/// A drain's cap over the answer.
const ABOVE: f64 = 1.6;
/// The answer is rounded up beyond this part of a slot: with the rate set a slot more costs nothing, and one less leaves some of the rate unused.
const OVER: f64 = 0.3;
/// Calls between two moments at which nothing was left, before the rate is believed.
const ENOUGH: f64 = 100.0;
/// And before it is used at all.
const SOME: f64 = 15.0;
/// An answer stands still within this share.
const STILL: f64 = 0.04;
/// Rounds before it is left at that.
const MOST_ROUNDS: usize = 12;
/// The spread of one rate is so small a part of the other's that it is the one that is limited.
const STEADIER: f64 = 0.07;

const HOLD: StoppingRule = StoppingRule { calls: 40, error: 0.02, most: 50, accept: false };

/// What is known in this state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateLimited {
    /// Since when nothing had been left for the first time.
    pub(super) since: f64,
    /// The cap at which that was seen.
    from: usize,
    pub(super) answer: Option<usize>,
    drained: bool,
    /// What was held last was too much: less than this.
    ceiling: Option<usize>,
    /// Rounds in which the answer stood still.
    still: usize,
    rounds: usize,
    by: Option<Binding>,
}

impl RateLimited {
    pub(super) fn new(visit: &StepSummary, since: f64) -> Self {
        let by = match (visit.held_by, visit.hint) {
            (Some(BlockedBy::Requests), _) | (_, Some(LimitHint::Requests)) => Some(Binding::RequestRate),
            (Some(BlockedBy::Tokens), _) | (_, Some(LimitHint::Tokens)) => Some(Binding::TokenRate),
            _ => None,
        };
        Self { since, from: visit.cap, answer: None, drained: true, ceiling: None, still: 0, rounds: 0, by }
    }
}

impl RateLimited {
    /// Whether the server, or the gate, said which rate it is.
    pub(super) fn is_known(&self) -> bool {
        self.by.is_some()
    }
}

impl Policy {
    /// The next step while a rate binds.
    pub(super) fn pace(&mut self, settings: &SearchSettings) {
        let Phase::RateLimited(mut pace) = self.phase else { return };
        let paced = self.known.tape.paced(pace.since).filter(|paced| paced.calls >= SOME);
        let Some(paced) = paced else {
            // The credit of the first drain is just gone: how fast does it come back?
            pace.drained = true;
            self.phase = Phase::RateLimited(pace);
            self.push_step(pace.from, Purpose::Drain, HOLD, StepMode::Drain { calls: SOME as usize + 5 });
            return;
        };
        if !pace.drained {
            pace.drained = true;
            let above = pace.answer.map_or(pace.from, |answer| (ABOVE * answer as f64).ceil() as usize + 2);
            self.phase = Phase::RateLimited(pace);
            self.push_step(above.min(settings.max_cap), Purpose::Drain, HOLD, StepMode::Drain { calls: 0 });
            return;
        }
        let fed = self.fed(settings, &pace, paced);
        let answer = pace.ceiling.map_or(fed, |ceiling| fed.min(ceiling));
        let stands =
            pace.answer.is_some_and(|before| before.abs_diff(answer) as f64 <= STILL * answer as f64);
        pace.still = if stands { pace.still + 1 } else { 0 };
        pace.answer = Some(answer);
        pace.rounds += 1;
        if (pace.still >= 2 && paced.calls >= ENOUGH) || pace.rounds > MOST_ROUNDS {
            self.confirmed = pace.still >= 2;
            self.phase = Phase::RateLimited(pace);
            self.end();
            return;
        }
        pace.drained = false;
        self.phase = Phase::RateLimited(pace);
        self.push_step(answer, Purpose::Confirm, HOLD, StepMode::Paced);
    }

    pub(super) fn learn_paced(&mut self, settings: &SearchSettings, visit: &StepSummary, is_drain: bool) {
        let Phase::RateLimited(mut pace) = self.phase else { return };
        match visit.ended {
            // Twice the cap, and nothing held it back: whatever it was is gone.
            StepEnd::Accepted if is_drain => {
                self.notes.push("A rate limit held calls back for a while, and then no longer.".into());
                self.known.good = self.known.good.max(Some(visit.cap));
                self.known.bad = None;
                self.phase = Phase::Ramp;
            }
            StepEnd::Rejected if !is_drain => {
                // Nothing is left, so that no drain is needed; and the rate was overestimated, or what was open then is still.
                pace.ceiling = Some((3 * visit.cap / 4).max(settings.min_cap));
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

    /// What binds, as far as is told. Where nothing tells, tokens, unless requests were let through at an evidently steadier rate.
    pub(super) fn paced_by(&self, pace: &RateLimited) -> Binding {
        pace.by.unwrap_or_else(|| {
            let steadier =
                self.known.tape.spreads(pace.since).is_some_and(|(calls, tokens)| calls < STEADIER * tokens);
            if steadier { Binding::RequestRate } else { Binding::TokenRate }
        })
    }

    /// Calls of the mix a second that the rate feeds.
    pub(super) fn rate(&self, pace: &RateLimited, paced: &ObservedRate) -> f64 {
        match self.paced_by(pace) {
            Binding::TokenRate => self.tokens(paced) / self.known.tape.mean_tokens().max(1.0),
            _ => lasting(paced.per_second, self.known.tape.requests_told),
        }
    }

    /// Tokens a second that the rate lasts for.
    pub(super) fn tokens(&self, paced: &ObservedRate) -> f64 {
        lasting(paced.tokens, self.known.tape.tokens_told)
    }

    /// The answer, once the rate is set beside it: what was held is the largest cap that the rate feeds, and what is left over may need one more.
    pub(super) fn rounded(
        &self,
        settings: &SearchSettings,
        pace: &RateLimited,
        held: usize,
        fed: f64,
    ) -> usize {
        let whole = (fed - OVER).ceil() as usize;
        if pace.ceiling.is_some() { held } else { whole.clamp(held, held + 1).min(settings.max_cap) }
    }

    /// The largest cap that the rate feeds.
    fn fed(&self, settings: &SearchSettings, pace: &RateLimited, paced: ObservedRate) -> usize {
        let rate = self.rate(pace, &paced);
        let mut cap = pace.answer.unwrap_or(pace.from);
        for _ in 0..4 {
            let Some(service) = self.known.service_at(cap) else { break };
            cap = ((rate * service) as usize).clamp(settings.min_cap, settings.max_cap);
        }
        cap
    }
}

/// What was let through a second, or the limit a minute that the server tells where that is less: a bucket lets more through while it has saved up.
fn lasting(seen: f64, told: Option<f64>) -> f64 {
    told.map_or(seen, |told| seen.min(told / 60.0))
}
