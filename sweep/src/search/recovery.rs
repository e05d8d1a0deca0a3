//! Handles caps that fail or behave differently than before.
//!
//! The cause may be the previous cap: an overload whose effects last, as failures or as slowness.
//! It may be a rate limit whose credit is used up (see `rate_limited`). Or the server has changed:
//! earlier evidence is then useless, and a new era begins. A rest followed by the same cap
//! distinguishes these cases. If no cap works at all, the search tries ever lower caps.

use super::SearchSettings;
use super::evidence::{RejectedCap, RejectionCause};
use super::policy::{MOST_ROUNDS, NextStep, NoAnswer, Phase, Policy};
use super::positions::Edge;
use super::step_monitor::{StepMode, StoppingRule};
use super::step_summary::{StepEnd, StepSummary};
use super::stopping_rules::{ACCEPT, MEASURE, REFERENCE};
use crate::result::Purpose;

/// Maximum number of rejections that are retracted after a slower rise.
const MOST_REFUTED: usize = 8;
/// Rests after good caps failed, in seconds.
const RESTS: [f64; 3] = [5.0, 15.0, 45.0];

impl Policy {
    /// Queues a lower cap, because no cap is good yet.
    pub(super) fn lower_cap(&mut self, settings: &SearchSettings) {
        let Some(bad) = self.known.bad else {
            self.phase = Phase::Ramp;
            return;
        };
        if bad.cap <= settings.min_cap {
            // The server worked before, so it may need more time.
            let worked = self.known.all_visits().iter().any(|visit| visit.ended == StepEnd::Accepted);
            if let Some(&seconds) = RESTS.get(self.waits).filter(|_| worked) {
                self.waits += 1;
                self.lost = 1;
                self.push_rest(seconds);
                self.push_plain_step(
                    settings.start.clamp(settings.min_cap, settings.max_cap),
                    Purpose::Reference,
                    REFERENCE,
                );
                return;
            }
            self.dead.get_or_insert(NoAnswer::Fails);
            self.phase = Phase::Done;
            return;
        }
        let guess = bad.guess.filter(|&guess| guess >= settings.min_cap && guess < bad.cap);
        self.push_plain_step(guess.unwrap_or(bad.cap / 2).max(settings.min_cap), Purpose::Narrow, ACCEPT);
    }

    /// Returns `true` if a contradiction at this cap is new. A contradiction counts only if it is
    /// observed twice, because live servers have momentary disturbances.
    pub(super) fn is_first_contradiction(&mut self, cap: usize) -> bool {
        self.odd.replace(cap) != Some(cap)
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
        visit: &StepSummary,
    ) -> bool {
        // Near a cliff, the service time varies.
        let by_cliff = |bad: RejectedCap| bad.wall == RejectionCause::Cliff && 4 * visit.cap >= 3 * bad.cap;
        if self.fallen.is_none() && self.known.bad.is_some_and(by_cliff) {
            return true;
        }
        let suspected = self.fallen.is_some() && self.slow < RESTS.len();
        let Some(change) = self.known.changed(visit, suspected) else {
            if self.slow > 0 {
                // The last rest was long enough to recover.
                self.lasts = RESTS.get(self.slow).or(RESTS.last()).copied();
                self.notes.push("After an overload, the server stays slow for a while.".into());
                self.slow = 0;
                if let Some(cap) = self.fallen {
                    self.known.lower(cap);
                    self.known.wall(RejectedCap::new(cap, RejectionCause::Overload, None));
                }
            } else if self.fallen.is_some() {
                self.plain = true;
            }
            self.fallen = None;
            return true;
        };
        let walled =
            |bad: RejectedCap| matches!(bad.wall, RejectionCause::Failures | RejectionCause::Overload);
        let overloaded = self.fallen.is_some() || self.known.bad.is_some_and(walled);
        if change > 0.0
            && let Some(&seconds) = RESTS.get(self.slow)
            && overloaded
        {
            self.slow += 1;
            self.queue.clear();
            self.push_rest(seconds);
            self.push_plain_step(visit.cap, Purpose::Reference, REFERENCE);
            return false;
        }
        if self.is_first_contradiction(visit.cap) {
            self.measure_again(visit.cap, REFERENCE);
            return false;
        }
        self.slow = 0;
        self.fallen = None;
        let word = if change > 0.0 { "slower" } else { "faster" };
        self.notes.push(format!("The server became {word} during the sweep. Earlier steps are not counted."));
        self.queue.clear();
        self.known.add(visit.clone());
        self.known.new_era(1);
        self.bends = 0;
        self.stride = None;
        self.rounds += 1;
        // Evidence about higher and lower caps no longer applies.
        self.push_plain_step((visit.cap / 2).max(settings.min_cap), Purpose::Reference, MEASURE);
        self.phase = if self.rounds > MOST_ROUNDS { Phase::Narrow } else { Phase::Ramp };
        false
    }

    /// Queues a reference step at the first fall of the goodput, to see whether the cap, a lasting
    /// overload or a change of the server is the cause.
    pub(super) fn check_goodput_drop(&mut self, cap: usize) {
        let known = self.known.bad.is_some_and(|bad| bad.wall == RejectionCause::Overload);
        if self.plain || known || self.fallen.is_some() || !self.known.fell(cap) {
            return;
        }
        if let Some(best) = self.known.best() {
            self.fallen = Some(cap);
            self.push_plain_step(best.cap, Purpose::Reference, REFERENCE);
        }
    }

    /// Returns `true` if a cap below the known overload cap overloads the server too.
    pub(super) fn check_overload(&mut self, cap: usize) -> bool {
        let Some(bad) = self.known.bad.filter(|bad| bad.wall == RejectionCause::Overload && cap < bad.cap)
        else {
            return false;
        };
        if !self.known.fell(cap) {
            return false;
        }
        self.known.lower(cap);
        self.known.wall(RejectedCap { cap, ..bad });
        self.push_rest(self.lasts.unwrap_or(RESTS[2]));
        true
    }

    /// Returns `true` if the evidence shows a cliff at this cap or below.
    pub(super) fn check_cliff(&mut self, settings: &SearchSettings, cap: usize) -> bool {
        let good = self.known.good;
        self.known.good = good.max(Some(cap));
        let Some(wall) = self.known.cliff(settings) else {
            self.known.good = good;
            return false;
        };
        self.known.lower(wall);
        self.known.wall(RejectedCap::new(wall, RejectionCause::Cliff, None));
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
        let good = self.known.good.filter(|&good| left < good);
        if let Some(good) = good.filter(|&good| good < cap && !fine) {
            // This is the first cap that was too high, and its effects reject further calls.
            self.expected = Some(good);
            self.known.wall(RejectedCap::new(cap, RejectionCause::Failures, None));
            match self.lasts {
                Some(seconds) => self.push_rest(seconds),
                None => self.push_plain_step(good, Purpose::Reference, REFERENCE),
            }
            return;
        }
        if !fine && good.is_none() {
            self.expected = Some(left);
            let edge = self.known.good.filter(|&good| edge.is_some() && left > good).map(|good| (good, left));
            self.known
                .wall(RejectedCap { edge, ..RejectedCap::new(cap, RejectionCause::Failures, Some(left)) });
            if let Some(seconds) = self.lasts {
                self.push_rest(seconds);
            } else if let Some(good) = self.known.good.filter(|_| !self.looked) {
                // Measure once whether an overload slows the server down.
                self.looked = true;
                self.push_plain_step(good, Purpose::Reference, REFERENCE);
            }
            return;
        }
        self.phase = Phase::Narrow;
        if let Some(seconds) = self.lasts.filter(|&seconds| seconds < RESTS[2]) {
            // The server needs time to recover, and more than assumed.
            self.lasts = RESTS.iter().copied().find(|&longer| longer > seconds);
            self.push_rest(self.lasts.unwrap_or(seconds));
            self.push_plain_step(cap, Purpose::Reference, ACCEPT);
            return;
        }
        if self.doubt.is_none() {
            self.doubt = Some(cap);
        } else if self.lost == 0 {
            // The cap failed again after a rest, so the earlier evidence no longer applies.
            self.doubt = None;
            self.notes.push(format!(
                "The server changed during the sweep: {cap} concurrent calls were accepted before, and no longer are."
            ));
            self.known.new_era(1);
            self.known.wall(RejectedCap::new(cap, RejectionCause::Failures, Some(left)));
            self.expected = Some(left);
            return;
        }
        self.lost += 1;
        self.expected = Some(left / 2);
        self.known.lower(left / 2);
        self.known.wall(RejectedCap::new(cap, RejectionCause::Failures, Some(left / 2)));
        if left <= 1 {
            self.push_rest(RESTS.get(self.lost).or(RESTS.last()).copied().unwrap_or_default());
        }
    }

    /// Retracts a rejection if a cap above its edge is accepted: the load had risen too quickly.
    /// From here on, the load rises by no more than was accepted at once.
    pub(super) fn clear_refuted_rejection(&mut self, cap: usize) {
        let Some(bad) = self.known.bad.filter(|bad| cap < bad.cap && self.doubt.is_none()) else { return };
        let Some((from, edge)) = bad.edge.filter(|&(_, edge)| cap > edge) else { return };
        if self.refuted < MOST_REFUTED {
            self.refuted += 1;
            self.hasty = Some(self.hasty.map_or(bad.cap, |known| known.min(bad.cap)));
            let leap = edge - from;
            self.leap = Some(self.leap.map_or(leap, |known| known.min(leap)));
            self.stride = self.leap;
            self.known.bad = None;
            self.phase = Phase::Ramp;
        }
    }

    /// Handles the first accepted cap after unexpected failures.
    pub(super) fn on_accepted_again(&mut self, cap: usize) {
        let Some(doubt) = self.doubt else { return };
        if cap >= doubt {
            self.doubt = None;
            self.lasts = Some(RESTS[1]);
            self.notes.push("After an overload, the server takes a while to recover.".into());
        } else if self.lost > 0 {
            self.push_rest(RESTS[1]);
            self.push_plain_step(doubt, Purpose::Reference, ACCEPT);
        }
        self.lost = 0;
    }
}
