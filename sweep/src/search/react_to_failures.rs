//! Reacts to caps that fail or behave differently than before.
//!
//! There are three possible causes. The previous cap may have overloaded the server, which still
//! fails or is slow. The credit of a rate limit may be used up (see `rate_limited`). Or the server
//! has changed: then the earlier evidence is useless, and a new era begins. The search measures the
//! same cap again after a rest to distinguish the causes. If no cap is accepted at all, it tries
//! lower and lower caps.

use super::SearchSettings;
use super::evidence::{RejectedCap, RejectionCause};
use super::failure_positions::Edge;
use super::next_step::{MAX_ROUNDS, NextStep, NoAnswer, Phase, Policy};
use super::step_monitor::{StepMode, StoppingRule};
use super::step_stopping_rules::{ACCEPT, MEASURE, REFERENCE};
use super::step_summary::{StepEnd, StepSummary};
use crate::search_result::Purpose;

/// Maximum number of times that the rejection of a cap is retracted because a slower increase of
/// the load was accepted.
const MAX_RETRACTED: usize = 8;
/// Durations in seconds of the first, second and later rests while the server fails or is slow at a
/// cap that was usable before.
const REST_SECONDS: [f64; 3] = [5.0, 15.0, 45.0];

impl Policy {
    /// Queues a step at a lower cap, because no usable cap is known. If the lowest cap was rejected
    /// too, queues a rest and a step at the start cap, up to three times, if the server worked
    /// before. Otherwise ends the search without an answer.
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

    /// Records that the last step at `cap` contradicts earlier evidence. Returns `true` unless the
    /// previous contradiction was recorded for the same cap. A contradiction counts only if it is
    /// observed twice in a row, because servers have short disturbances.
    pub(super) fn record_contradiction(&mut self, cap: usize) -> bool {
        self.contradicting.replace(cap) != Some(cap)
    }

    pub(super) fn measure_again(&mut self, cap: usize, stopping_rule: StoppingRule) {
        self.queue.push_front(NextStep::Measure {
            cap,
            purpose: Purpose::Reference,
            stopping_rule,
            mode: StepMode::Plain,
        });
    }

    /// Compares the service time at the cap of `summary` with that of earlier steps. Returns `true`
    /// if it is the same, or if it cannot be compared because a cliff is near.
    ///
    /// Otherwise returns `false`, and either queues a step to find the cause, or starts a new era
    /// if the server has changed.
    pub(super) fn check_consistency(&mut self, settings: &SearchSettings, summary: &StepSummary) -> bool {
        // Near a cliff, the service time varies.
        let by_cliff =
            |bad: RejectedCap| bad.cause == RejectionCause::Cliff && 4 * summary.cap >= 3 * bad.cap;
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
            self.outliers += usize::from(self.contradiction.take().is_some_and(|odd| odd.cap == summary.cap));
            return true;
        };
        let is_failure_or_overload =
            |bad: RejectedCap| matches!(bad.cause, RejectionCause::Failures | RejectionCause::Overload);
        let overloaded = self.dropped_cap.is_some() || self.evidence.bad.is_some_and(is_failure_or_overload);
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
        if self.record_contradiction(summary.cap) {
            self.contradiction = Some(summary.clone());
            self.measure_again(summary.cap, REFERENCE);
            return false;
        }
        let contradiction = self.contradiction.take().filter(|odd| odd.cap == summary.cap);
        let has_queue = self.evidence.engine_queue().is_some();
        if let Some(odd) = contradiction.filter(|odd| has_queue || !self.evidence.agree(odd, summary)) {
            // This is noise, not a change of the server: the steps agree neither with earlier ones
            // nor with each other, or the engine's queue is known, which no change of speed
            // affects.
            self.evidence.push_summary(odd);
            (self.slow_rests, self.dropped_cap) = (0, None);
            return true;
        }
        self.slow_rests = 0;
        self.dropped_cap = None;
        let word = if change > 0.0 { "slower" } else { "faster" };
        self.notes.push(format!("The server became {word} during the sweep. Earlier steps are not counted."));
        self.queue.clear();
        self.evidence.push_summary(summary.clone());
        self.evidence.new_era(1);
        self.knee_steps = 0;
        self.stride = None;
        self.rounds += 1;
        // Evidence about higher and lower caps no longer applies.
        self.push_plain_step((summary.cap / 2).max(settings.min_cap), Purpose::Reference, MEASURE);
        self.phase = if self.rounds > MAX_ROUNDS { Phase::Narrow } else { Phase::Ramp };
        false
    }

    /// Queues a reference step at the cap with the best goodput if the goodput at `cap` is clearly
    /// below that of a lower cap for the first time. The reference step shows whether the cap, a
    /// lasting overload or a change of the server is the cause.
    pub(super) fn check_goodput_drop(&mut self, cap: usize) {
        let known = self.evidence.bad.is_some_and(|bad| bad.cause == RejectionCause::Overload);
        if self.drop_was_harmless
            || known
            || self.dropped_cap.is_some()
            || self.evidence.engine_queue().is_some()
            || !self.evidence.is_goodput_drop(cap)
        {
            return;
        }
        if let Some(best) = self.evidence.best() {
            self.dropped_cap = Some(cap);
            self.push_plain_step(best.cap, Purpose::Reference, REFERENCE);
        }
    }

    /// Returns `true` if `cap` overloads the server, although only a higher cap was known to do so.
    /// In this case, records `cap` as unusable, and queues a rest.
    pub(super) fn check_overload(&mut self, cap: usize) -> bool {
        let Some(bad) =
            self.evidence.bad.filter(|bad| bad.cause == RejectionCause::Overload && cap < bad.cap)
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

    /// Returns `true` if `cap` is at or above a cliff, which is a cap with preemptions and a
    /// falling goodput. Records the lowest such cap as unusable.
    pub(super) fn check_cliff(&mut self, settings: &SearchSettings, cap: usize) -> bool {
        let good = self.evidence.good;
        self.evidence.good = good.max(Some(cap));
        let Some(cliff) = self.evidence.cliff(settings) else {
            self.evidence.good = good;
            return false;
        };
        self.evidence.keep_accepted_below(cliff);
        self.evidence.record_rejected_cap(RejectedCap::new(cliff, RejectionCause::Cliff, None));
        self.expected = None;
        if self.phase == Phase::Ramp {
            self.phase = Phase::Narrow;
        }
        cap >= cliff
    }

    /// Updates the evidence after a step at `cap` was rejected. `edge` is the position that
    /// separates accepted from failed attempts, or `None` if unknown.
    ///
    /// If the rejection was expected, `edge` determines the cap to measure next, after a rest or a
    /// reference step if the rejected step may have overloaded the server. If a usable cap was
    /// rejected unexpectedly, lower caps are measured until one is accepted, and then `cap` is
    /// measured again after a rest.
    pub(super) fn on_rejected(&mut self, cap: usize, edge: Option<Edge>) {
        self.confirmed = false;
        let usable = edge.map_or(cap / 2, |edge| edge.at.min(cap.saturating_sub(1)));
        let should_be_usable = self.expected.is_some_and(|expected| cap <= expected);
        let good = self.evidence.good.filter(|&good| usable < good);
        if let Some(good) = good.filter(|&good| good < cap && !should_be_usable) {
            // This is the first cap that was too high, and its effects reject further calls.
            self.expected = Some(good);
            self.evidence.record_rejected_cap(RejectedCap::new(cap, RejectionCause::Failures, None));
            match self.overload_seconds {
                Some(seconds) => self.push_rest(seconds),
                None => self.push_plain_step(good, Purpose::Reference, REFERENCE),
            }
            return;
        }
        if !should_be_usable && good.is_none() {
            self.expected = Some(usable);
            let edge =
                self.evidence.good.filter(|&good| edge.is_some() && usable > good).map(|good| (good, usable));
            self.evidence.record_rejected_cap(RejectedCap {
                edge,
                ..RejectedCap::new(cap, RejectionCause::Failures, Some(usable))
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
            self.evidence.record_rejected_cap(RejectedCap::new(cap, RejectionCause::Failures, Some(usable)));
            self.expected = Some(usable);
            return;
        }
        self.unexpected_failures += 1;
        self.expected = Some(usable / 2);
        self.evidence.keep_accepted_below(usable / 2);
        self.evidence.record_rejected_cap(RejectedCap::new(cap, RejectionCause::Failures, Some(usable / 2)));
        if usable <= 1 {
            self.push_rest(
                REST_SECONDS
                    .get(self.unexpected_failures)
                    .or(REST_SECONDS.last())
                    .copied()
                    .unwrap_or_default(),
            );
        }
    }

    /// Called when `cap` was accepted. Retracts the rejection of the lowest rejected cap if `cap`
    /// is above the highest position that the rejected step accepted, because that step then failed
    /// only because the load rose too quickly. Later increases of the cap are limited to the
    /// increase of the load that the rejected step accepted.
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

    /// Called when `cap` was accepted. Has no effect unless a usable cap has failed. If `cap` is at
    /// least the failed cap, records that the server needs time to recover from an overload.
    /// Otherwise queues a rest and then a step at the failed cap.
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
