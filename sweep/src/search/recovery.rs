//! Handles caps that fail or behave differently than before.
//!
//! The cause may be the previous cap: an overload whose effects last, as failures or as slowness.
//! It may be a rate limit whose credit is used up (see `rate_limited`). Or the server has changed:
//! earlier evidence is then useless, and a new era begins. A rest followed by the same cap
//! distinguishes these cases. If no cap works at all, the search tries ever lower caps.

use super::SearchSettings;
use super::evidence::{RejectedCap, RejectionCause};
use super::policy::{MAX_ROUNDS, NextStep, NoAnswer, Phase, Policy};
use super::positions::Edge;
use super::step_monitor::{StepMode, StoppingRule};
use super::step_summary::{StepEnd, StepSummary};
use super::stopping_rules::{ACCEPT, MEASURE, REFERENCE};
use crate::result::Purpose;

/// Maximum number of rejections that are retracted after a slower rise.
const MAX_RETRACTED: usize = 8;
/// Rests after good caps failed, in seconds.
const REST_SECONDS: [f64; 3] = [5.0, 15.0, 45.0];

impl Policy {
    /// Queues a lower cap, because no cap is good yet.
    pub(super) fn lower_cap(&mut self, settings: &SearchSettings) {
        let Some(bad) = self.evidence.bad else {
            self.phase = Phase::Ramp;
            return;
        };
        if bad.cap <= settings.min_cap {
            // The server worked before, so it may need more time.
            let worked =
                self.evidence.all_summaries().iter().any(|summary| summary.ended == StepEnd::Accepted);
            if let Some(&seconds) = REST_SECONDS.get(self.idle_rests).filter(|_| worked) {
                self.idle_rests += 1;
                self.unexpected_failures = 1;
                self.push_rest(seconds);
                self.push_plain_step(
                    settings.start.clamp(settings.min_cap, settings.max_cap),
                    Purpose::Reference,
                    REFERENCE,
                );
                return;
            }
            self.no_answer.get_or_insert(NoAnswer::Fails);
            self.phase = Phase::Done;
            return;
        }
        let guess = bad.guess.filter(|&guess| guess >= settings.min_cap && guess < bad.cap);
        self.push_plain_step(guess.unwrap_or(bad.cap / 2).max(settings.min_cap), Purpose::Narrow, ACCEPT);
    }

    /// Returns `true` if a contradiction at this cap is new. A contradiction counts only if it is
    /// observed twice, because live servers have momentary disturbances.
    pub(super) fn is_first_contradiction(&mut self, cap: usize) -> bool {
        self.contradicting.replace(cap) != Some(cap)
    }

    pub(super) fn measure_again(&mut self, cap: usize, need: StoppingRule) {
        self.queue.push_front(NextStep::Hold {
            cap,
            purpose: Purpose::Reference,
            need,
            way: StepMode::Plain,
        });
    }

    /// Returns `true` if a cap behaves as it did before.
    ///
    /// If not, slowness may be the effect of an overload, which a rest cures. Otherwise the server
    /// has changed.
    pub(super) fn is_consistent_with_earlier(
        &mut self,
        settings: &SearchSettings,
        summary: &StepSummary,
    ) -> bool {
        // Near a cliff, the service time varies.
        let by_cliff = |bad: RejectedCap| bad.wall == RejectionCause::Cliff && 4 * summary.cap >= 3 * bad.cap;
        if self.dropped_cap.is_none() && self.evidence.bad.is_some_and(by_cliff) {
            return true;
        }
        let suspected = self.dropped_cap.is_some() && self.slow_rests < REST_SECONDS.len();
        let Some(change) = self.evidence.service_time_change(summary, suspected) else {
            if self.slow_rests > 0 {
                // The last rest was long enough to recover.
                self.overload_seconds = REST_SECONDS.get(self.slow_rests).or(REST_SECONDS.last()).copied();
                self.notes.push("After an overload, the server stays slow for a while.".into());
                self.slow_rests = 0;
                if let Some(cap) = self.dropped_cap {
                    self.evidence.keep_accepted_below(cap);
                    self.evidence.record_rejected_cap(RejectedCap::new(cap, RejectionCause::Overload, None));
                }
            } else if self.dropped_cap.is_some() {
                self.drop_was_harmless = true;
            }
            self.dropped_cap = None;
            return true;
        };
        let walled =
            |bad: RejectedCap| matches!(bad.wall, RejectionCause::Failures | RejectionCause::Overload);
        let overloaded = self.dropped_cap.is_some() || self.evidence.bad.is_some_and(walled);
        if change > 0.0
            && let Some(&seconds) = REST_SECONDS.get(self.slow_rests)
            && overloaded
        {
            self.slow_rests += 1;
            self.queue.clear();
            self.push_rest(seconds);
            self.push_plain_step(summary.cap, Purpose::Reference, REFERENCE);
            return false;
        }
        if self.is_first_contradiction(summary.cap) {
            self.measure_again(summary.cap, REFERENCE);
            return false;
        }
        self.slow_rests = 0;
        self.dropped_cap = None;
        let word = if change > 0.0 { "slower" } else { "faster" };
        self.notes.push(format!("The server became {word} during the sweep. Earlier steps are not counted."));
        self.queue.clear();
        self.evidence.add(summary.clone());
        self.evidence.new_era(1);
        self.knee_steps = 0;
        self.stride = None;
        self.rounds += 1;
        // Evidence about higher and lower caps no longer applies.
        self.push_plain_step((summary.cap / 2).max(settings.min_cap), Purpose::Reference, MEASURE);
        self.phase = if self.rounds > MAX_ROUNDS { Phase::Narrow } else { Phase::Ramp };
        false
    }

    /// Queues a reference step at the first fall of the goodput, to see whether the cap, a lasting
    /// overload or a change of the server is the cause.
    pub(super) fn check_goodput_drop(&mut self, cap: usize) {
        let known = self.evidence.bad.is_some_and(|bad| bad.wall == RejectionCause::Overload);
        if self.drop_was_harmless
            || known
            || self.dropped_cap.is_some()
            || !self.evidence.is_goodput_drop(cap)
        {
            return;
        }
        if let Some(best) = self.evidence.best() {
            self.dropped_cap = Some(cap);
            self.push_plain_step(best.cap, Purpose::Reference, REFERENCE);
        }
    }

    /// Returns `true` if a cap below the known overload cap overloads the server too.
    pub(super) fn check_overload(&mut self, cap: usize) -> bool {
        let Some(bad) = self.evidence.bad.filter(|bad| bad.wall == RejectionCause::Overload && cap < bad.cap)
        else {
            return false;
        };
        if !self.evidence.is_goodput_drop(cap) {
            return false;
        }
        self.evidence.keep_accepted_below(cap);
        self.evidence.record_rejected_cap(RejectedCap { cap, ..bad });
        self.push_rest(self.overload_seconds.unwrap_or(REST_SECONDS[2]));
        true
    }

    /// Returns `true` if the evidence shows a cliff at this cap or below.
    pub(super) fn check_cliff(&mut self, settings: &SearchSettings, cap: usize) -> bool {
        let good = self.evidence.good;
        self.evidence.good = good.max(Some(cap));
        let Some(wall) = self.evidence.cliff(settings) else {
            self.evidence.good = good;
            return false;
        };
        self.evidence.keep_accepted_below(wall);
        self.evidence.record_rejected_cap(RejectedCap::new(wall, RejectionCause::Cliff, None));
        self.expected = None;
        if self.phase == Phase::Ramp {
            self.phase = Phase::Narrow;
        }
        cap >= wall
    }

    /// Handles a rejected cap.
    ///
    /// If the rejection was to be expected, the positions of the failures show where to continue.
    /// Otherwise the cap is halved until something works, and the unexpected failure is checked
    /// again after a rest.
    pub(super) fn on_rejected(&mut self, cap: usize, edge: Option<Edge>) {
        self.confirmed = false;
        let left = edge.map_or(cap / 2, |edge| edge.at.min(cap.saturating_sub(1)));
        let fine = self.expected.is_some_and(|expected| cap <= expected);
        let good = self.evidence.good.filter(|&good| left < good);
        if let Some(good) = good.filter(|&good| good < cap && !fine) {
            // This is the first cap that was too high, and its effects reject further calls.
            self.expected = Some(good);
            self.evidence.record_rejected_cap(RejectedCap::new(cap, RejectionCause::Failures, None));
            match self.overload_seconds {
                Some(seconds) => self.push_rest(seconds),
                None => self.push_plain_step(good, Purpose::Reference, REFERENCE),
            }
            return;
        }
        if !fine && good.is_none() {
            self.expected = Some(left);
            let edge =
                self.evidence.good.filter(|&good| edge.is_some() && left > good).map(|good| (good, left));
            self.evidence.record_rejected_cap(RejectedCap {
                edge,
                ..RejectedCap::new(cap, RejectionCause::Failures, Some(left))
            });
            if let Some(seconds) = self.overload_seconds {
                self.push_rest(seconds);
            } else if let Some(good) = self.evidence.good.filter(|_| !self.overload_effect_measured) {
                // Measure once whether an overload slows the server down.
                self.overload_effect_measured = true;
                self.push_plain_step(good, Purpose::Reference, REFERENCE);
            }
            return;
        }
        self.phase = Phase::Narrow;
        if let Some(seconds) = self.overload_seconds.filter(|&seconds| seconds < REST_SECONDS[2]) {
            // The server needs time to recover, and more than assumed.
            self.overload_seconds = REST_SECONDS.iter().copied().find(|&longer| longer > seconds);
            self.push_rest(self.overload_seconds.unwrap_or(seconds));
            self.push_plain_step(cap, Purpose::Reference, ACCEPT);
            return;
        }
        if self.unexpected_failure.is_none() {
            self.unexpected_failure = Some(cap);
        } else if self.unexpected_failures == 0 {
            // The cap failed again after a rest, so the earlier evidence no longer applies.
            self.unexpected_failure = None;
            self.notes.push(format!(
                "The server changed during the sweep: {cap} concurrent calls were accepted before, and no longer are."
            ));
            self.evidence.new_era(1);
            self.evidence.record_rejected_cap(RejectedCap::new(cap, RejectionCause::Failures, Some(left)));
            self.expected = Some(left);
            return;
        }
        self.unexpected_failures += 1;
        self.expected = Some(left / 2);
        self.evidence.keep_accepted_below(left / 2);
        self.evidence.record_rejected_cap(RejectedCap::new(cap, RejectionCause::Failures, Some(left / 2)));
        if left <= 1 {
            self.push_rest(
                REST_SECONDS
                    .get(self.unexpected_failures)
                    .or(REST_SECONDS.last())
                    .copied()
                    .unwrap_or_default(),
            );
        }
    }

    /// Retracts a rejection if a cap above its edge is accepted: the load had risen too quickly.
    /// From here on, the load rises by no more than was accepted at once.
    pub(super) fn clear_refuted_rejection(&mut self, cap: usize) {
        let Some(bad) = self.evidence.bad.filter(|bad| cap < bad.cap && self.unexpected_failure.is_none())
        else {
            return;
        };
        let Some((from, edge)) = bad.edge.filter(|&(_, edge)| cap > edge) else { return };
        if self.retracted_rejections < MAX_RETRACTED {
            self.retracted_rejections += 1;
            self.too_fast_rejection =
                Some(self.too_fast_rejection.map_or(bad.cap, |known| known.min(bad.cap)));
            let max_rise = edge - from;
            self.max_rise = Some(self.max_rise.map_or(max_rise, |known| known.min(max_rise)));
            self.stride = self.max_rise;
            self.evidence.bad = None;
            self.phase = Phase::Ramp;
        }
    }

    /// Handles the first accepted cap after unexpected failures.
    pub(super) fn on_accepted_again(&mut self, cap: usize) {
        let Some(unexpected_failure) = self.unexpected_failure else { return };
        if cap >= unexpected_failure {
            self.unexpected_failure = None;
            self.overload_seconds = Some(REST_SECONDS[1]);
            self.notes.push("After an overload, the server takes a while to recover.".into());
        } else if self.unexpected_failures > 0 {
            self.push_rest(REST_SECONDS[1]);
            self.push_plain_step(unexpected_failure, Purpose::Reference, ACCEPT);
        }
        self.unexpected_failures = 0;
    }
}
