//! What to do where caps fail, or give something else, that did not before.
//!
//! It may be the cap that was held last: an overload that takes its time to pass, in failures or in speed. It may be a rate whose credit is used up (`pace` knows). Or the server is another
//! than it was: then what is known of it is of no use, and a new era begins. A rest, and the same cap again, tell them apart; where nothing holds at all, ever lower caps do.

use super::SearchSettings;
use super::evidence::{RejectedCap, RejectionCause};
use super::policy::{MOST_ROUNDS, NextStep, NoAnswer, Phase, Policy};
use super::positions::Edge;
use super::step_monitor::{StepMode, StoppingRule};
use super::step_summary::{StepEnd, StepSummary};
use super::stopping_rules::{ACCEPT, MEASURE, REFERENCE};
use crate::result::Purpose;

/// Walls that were gone when they were come up to slowly, before it is left at that.
const MOST_REFUTED: usize = 8;
/// Rests after caps failed that were good, in seconds.
const RESTS: [f64; 3] = [5.0, 15.0, 45.0];

impl Policy {
    /// Nothing is good yet.
    pub(super) fn lower_cap(&mut self, settings: &SearchSettings) {
        let Some(bad) = self.known.bad else {
            self.phase = Phase::Ramp;
            return;
        };
        if bad.cap <= settings.min_cap {
            // It did work before: perhaps it only takes its time.
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

    /// A live server stumbles now and then: what does not go together with the rest is not believed before it is seen twice.
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

    /// Whether a cap gives what it gave before. If not: slower may be what an overload left, for which a rest helps; else the server is another.
    pub(super) fn is_consistent_with_earlier(
        &mut self,
        settings: &SearchSettings,
        visit: &StepSummary,
    ) -> bool {
        // Near a cliff it goes up and down by itself.
        let by_cliff = |bad: RejectedCap| bad.wall == RejectionCause::Cliff && 4 * visit.cap >= 3 * bad.cap;
        if self.fallen.is_none() && self.known.bad.is_some_and(by_cliff) {
            return true;
        }
        let suspected = self.fallen.is_some() && self.slow < RESTS.len();
        let Some(change) = self.known.changed(visit, suspected) else {
            if self.slow > 0 {
                // It took so long to recover.
                self.lasts = RESTS.get(self.slow).or(RESTS.last()).copied();
                self.notes.push("After an overload the server is slow for a while.".into());
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
        self.notes
            .push(format!("The server became {word} in mid-sweep. What was seen before does not count."));
        self.queue.clear();
        self.known.add(visit.clone());
        self.known.new_era(1);
        self.bends = 0;
        self.stride = None;
        self.rounds += 1;
        // What is above was another server's, and so was what is below.
        self.push_plain_step((visit.cap / 2).max(settings.min_cap), Purpose::Reference, MEASURE);
        self.phase = if self.rounds > MOST_ROUNDS { Phase::Narrow } else { Phase::Ramp };
        false
    }

    /// A goodput that falls, for the first time: is it the cap, or has it overloaded the server, or is that another than before?
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

    /// Whether a cap below the one that is known for it check_overload the server too.
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

    /// Whether what was measured shows a cliff, and it lies at this cap or below.
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

    /// A cap failed. If it was to be expected, the positions of the failures say where to look next. If not, go down by halves until something holds, and then see, after
    /// a rest, whether what failed unexpectedly still does.
    pub(super) fn on_rejected(&mut self, cap: usize, edge: Option<Edge>) {
        self.confirmed = false;
        let left = edge.map_or(cap / 2, |edge| edge.at.min(cap.saturating_sub(1)));
        let fine = self.expected.is_some_and(|expected| cap <= expected);
        let good = self.known.good.filter(|&good| left < good);
        if let Some(good) = good.filter(|&good| good < cap && !fine) {
            // It is the first that was too much, and what it left behind refuses more.
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
                // Whether being overloaded slows it down, is looked at once.
                self.looked = true;
                self.push_plain_step(good, Purpose::Reference, REFERENCE);
            }
            return;
        }
        self.phase = Phase::Narrow;
        if let Some(seconds) = self.lasts.filter(|&seconds| seconds < RESTS[2]) {
            // It is known for taking time to recover; it takes longer than was thought.
            self.lasts = RESTS.iter().copied().find(|&longer| longer > seconds);
            self.push_rest(self.lasts.unwrap_or(seconds));
            self.push_plain_step(cap, Purpose::Reference, ACCEPT);
            return;
        }
        if self.doubt.is_none() {
            self.doubt = Some(cap);
        } else if self.lost == 0 {
            // It has failed again after a rest: so it is, and what was known before is not.
            self.doubt = None;
            self.notes.push(format!(
                "The server changed in mid-sweep: {cap} at once were fine, and are no longer."
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

    /// A cap is taken where the step above it was refused calls: that one came too quickly. From here upwards by no more than was taken at once.
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

    /// Something holds again after caps failed that should not have.
    pub(super) fn on_accepted_again(&mut self, cap: usize) {
        let Some(doubt) = self.doubt else { return };
        if cap >= doubt {
            self.doubt = None;
            self.lasts = Some(RESTS[1]);
            self.notes.push("After an overload the server takes a while to recover.".into());
        } else if self.lost > 0 {
            self.push_rest(RESTS[1]);
            self.push_plain_step(doubt, Purpose::Reference, ACCEPT);
        }
        self.lost = 0;
    }
}
