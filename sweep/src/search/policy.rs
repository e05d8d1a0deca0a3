//! Decides which step comes next. Knows no clock and no events; receives the summary of each
//! completed step.
//!
//! 1. **Ramp**: double the cap until too many attempts fail, the goodput stops rising, or the
//!    client does not keep the cap busy.
//! 2. **Narrow**: measure between the highest good cap and the lowest bad cap, first where the
//!    positions of the failures point, otherwise at the geometric mean; or at the knee of the
//!    curve, if the goodput bends before.
//! 3. **Confirm**: measure the answer and the cap above it, twice each. If the cap above no longer
//!    fails, the search continues upwards. If the answer no longer holds, it continues downwards.
//!
//! A rejection is followed by a rest, so that an overload does not affect the next cap. If caps
//! fail that were good, the rests become longer, with a reference step after each. If those fail
//! too, the server has changed, and a new era begins.

use std::collections::VecDeque;

use super::SearchSettings;
use super::evidence::{Evidence, RejectedCap, RejectionCause};
use super::knee::{NEAR, RESOLUTION};
use super::rate_limited::RateLimited;
use super::step_monitor::{StepMode, StoppingRule};
use super::step_summary::{StepEnd, StepSummary};
use super::stopping_rules::{ACCEPT, AGAIN, LOOK, MEASURE, RAMP, REFERENCE};
use crate::observation::LimitHint;
use crate::result::Purpose;

/// Maximum number of reference steps because of points off the curve.
const REFERENCES: usize = 4;
/// Maximum number of steps to locate the knee.
const BENDS: usize = 5;
/// Maximum distance, in steps, of two steps that used up a rate's credit.
const SPENT_IN: usize = 6;
/// Number of calls after which the evidence has to suffice: the knee is no longer refined, and
/// small contradictions no longer overturn a confirmation.
const ENOUGH: usize = 2_000;
/// Number of calls, in total and per slot of the highest good cap, after which the search ends,
/// because the server is not stable.
const MOST_CALLS: usize = 4_000;
const MOST_TURNS: usize = 20;
/// Maximum number of overturned confirmations.
pub(super) const MOST_ROUNDS: usize = 6;

/// An action to carry out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NextStep {
    Hold { cap: usize, purpose: Purpose, need: StoppingRule, way: StepMode },
    Rest { seconds: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    Ramp,
    Narrow,
    Confirm {
        at: usize,
        answer: usize,
        above: Option<usize>,
    },
    /// A rate limit applies.
    RateLimited(RateLimited),
    Done,
}

/// Why the search ended without an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NoAnswer {
    /// Calls fail even at the lowest cap.
    Fails,
    /// The requests themselves are rejected.
    Refused,
}

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) phase: Phase,
    pub(super) queue: VecDeque<NextStep>,
    pub(super) known: Evidence,
    /// Number of consecutive unexpected failures of caps.
    pub(super) lost: usize,
    /// Highest cap that the last rejection left as usable.
    pub(super) expected: Option<usize>,
    /// The first cap that failed unexpectedly, until the reason is known.
    pub(super) doubt: Option<usize>,
    /// Number of rests after which the server was still slow.
    pub(super) slow: usize,
    /// Number of rests because nothing was accepted any more.
    pub(super) waits: usize,
    /// Whether the effect of the first rejection was measured.
    pub(super) looked: bool,
    /// Number of reference steps because of a point off the curve.
    pub(super) references: usize,
    /// A cap that contradicts other evidence, until it is measured again.
    pub(super) odd: Option<usize>,
    /// Duration of an overload in seconds, if the server has such a state.
    pub(super) lasts: Option<f64>,
    pub(super) bends: usize,
    pub(super) rounds: usize,
    /// Size of the last upward step after a rejection turned out to be obsolete.
    pub(super) stride: Option<usize>,
    /// The cap held last, or 0 after a rest.
    pub(super) held: usize,
    /// Maximum rise of the load at once, if the server accepts more only as load grows.
    pub(super) leap: Option<usize>,
    /// Number of rejections that were obsolete after a slower rise.
    pub(super) refuted: usize,
    /// The lowest cap that was rejected only because the load rose too quickly.
    pub(super) hasty: Option<usize>,
    /// The cap at which the goodput fell, until it is known whether the server stays slow.
    pub(super) fallen: Option<usize>,
    /// Whether a fall of the goodput had no lasting effect.
    pub(super) plain: bool,
    pub(super) confirmed: bool,
    pub(super) dead: Option<NoAnswer>,
    pub(super) notes: Vec<String>,
    pub(super) ended: bool,
}

impl Policy {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Ramp,
            queue: VecDeque::new(),
            known: Evidence::default(),
            lost: 0,
            expected: None,
            doubt: None,
            slow: 0,
            waits: 0,
            looked: false,
            references: 0,
            odd: None,
            lasts: None,
            bends: 0,
            rounds: 0,
            stride: None,
            held: 0,
            leap: None,
            refuted: 0,
            hasty: None,
            fallen: None,
            plain: false,
            confirmed: false,
            dead: None,
            notes: Vec::new(),
            ended: false,
        }
    }

    /// Returns the next action, or `None` if the search is done.
    pub(super) fn next(&mut self, settings: &SearchSettings) -> Option<NextStep> {
        if self.known.calls >= MOST_CALLS + MOST_TURNS * self.known.good.unwrap_or(0) && !self.ended {
            self.confirmed = false;
            self.notes
                .push("The server's behaviour did not become stable; the answer is not confirmed.".into());
            self.end();
            return None;
        }
        // Each phase without work moves to the next phase, so a few iterations suffice.
        for _ in 0..16 {
            if let Some(todo) = self.queue.pop_front() {
                return Some(self.limit_rise(todo));
            }
            match self.phase {
                Phase::Ramp => self.ramp(settings),
                Phase::Narrow => self.narrow(settings),
                Phase::Confirm { .. } => self.confirm(settings),
                Phase::RateLimited(_) => self.pace(settings),
                Phase::Done => return None,
            }
            if self.ended {
                return None;
            }
        }
        self.phase = Phase::Done;
        None
    }

    pub(super) fn push_plain_step(&mut self, cap: usize, purpose: Purpose, need: StoppingRule) {
        self.push_step(cap, purpose, need, StepMode::Plain);
    }

    pub(super) fn push_step(&mut self, cap: usize, purpose: Purpose, need: StoppingRule, way: StepMode) {
        self.queue.push_back(NextStep::Hold { cap, purpose, need, way });
    }

    /// Inserts an intermediate step if the load may only rise by a limited amount.
    fn limit_rise(&mut self, todo: NextStep) -> NextStep {
        let next = match (todo, self.leap.map(|leap| self.held + leap)) {
            (NextStep::Hold { cap: beyond, .. }, Some(cap)) if beyond > cap => {
                self.queue.push_front(todo);
                NextStep::Hold { cap, purpose: Purpose::Ramp, need: REFERENCE, way: StepMode::Plain }
            }
            _ => todo,
        };
        self.held = match next {
            NextStep::Hold { cap, .. } => cap,
            NextStep::Rest { .. } => 0,
        };
        next
    }

    /// Ends the search. The phase remains, because it holds the result.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    pub(super) fn push_rest(&mut self, seconds: f64) {
        self.queue.push_back(NextStep::Rest { seconds });
    }

    fn ramp(&mut self, settings: &SearchSettings) {
        let Some(good) = self.known.good else {
            match self.known.bad {
                None => self.push_plain_step(
                    settings.start.clamp(settings.min_cap, settings.max_cap),
                    Purpose::Ramp,
                    RAMP,
                ),
                Some(_) => self.phase = Phase::Narrow,
            }
            return;
        };
        let stride = self.stride.map_or(good, |stride| (2 * stride).min(good));
        let stride = stride.min(self.leap.unwrap_or(stride));
        let next = (good + stride.max(1)).min(settings.max_cap);
        if self.known.bad.is_some_and(|bad| bad.cap <= next) || good >= settings.max_cap {
            self.phase = Phase::Narrow;
            return;
        }
        if self.known.is_past_peak(settings) {
            self.phase = Phase::Narrow;
            return;
        }
        let next = if self.known.is_flattening() { next.min(good + good.div_ceil(2)) } else { next };
        if self.stride.is_some() {
            self.stride = Some(stride.max(1));
        }
        self.push_plain_step(next, Purpose::Ramp, RAMP);
    }

    fn narrow(&mut self, settings: &SearchSettings) {
        let Some(good) = self.known.good else { return self.lower_cap(settings) };
        if self.bends < BENDS
            && let Some(cap) = self.known.below_cliff()
        {
            self.bends += 1;
            self.push_plain_step(cap, Purpose::Narrow, ACCEPT);
            return;
        }
        let knee = self.known.knee(settings);
        let rises = knee.is_none_or(|knee| knee.cap as f64 >= 0.8 * good as f64);
        if let Some(bad) = self.known.bad.filter(|_| rises) {
            let gap = bad.cap.saturating_sub(good);
            // A cliff is not a sharp edge: gains and losses cancel out somewhere near it.
            let resolution = if bad.wall == RejectionCause::Cliff { NEAR } else { RESOLUTION };
            if gap > ((resolution * good as f64) as usize).max(1) {
                let middle =
                    ((good as f64 * bad.cap as f64).sqrt().round() as usize).clamp(good + 1, bad.cap - 1);
                let guess = bad.guess.filter(|guess| (good + 1..bad.cap).contains(guess));
                // A guess is tried once, and then the cap just above it.
                if let Some(bad) = &mut self.known.bad {
                    let next = guess.filter(|_| bad.next && self.lost == 0).map(|guess| guess + 1);
                    bad.guess = next.filter(|&next| next < bad.cap);
                    bad.next &= guess.is_none();
                }
                self.push_plain_step(guess.unwrap_or(middle), Purpose::Narrow, ACCEPT);
                return;
            }
        }
        if self.known.bad.is_none()
            && good < settings.max_cap
            && self.known.calls < ENOUGH
            && !self.known.is_bent(settings)
        {
            // The curve seemed to bend, but with more points it does not.
            let more = good.div_ceil(4).min(self.leap.unwrap_or(good));
            self.push_plain_step((good + more.max(1)).min(settings.max_cap), Purpose::Ramp, RAMP);
            return;
        }
        if self.bends < BENDS
            && self.known.calls < ENOUGH
            && let Some(cap) = self.known.bend(settings, good)
        {
            self.bends += 1;
            self.push_plain_step(cap, Purpose::Narrow, MEASURE);
            return;
        }
        let Some(answer) = self.known.answer(settings) else {
            self.phase = Phase::Done;
            return;
        };
        // If the answer was measured last, that step counts as its first confirmation.
        let last = self
            .known
            .visits()
            .last()
            .filter(|visit| visit.cap == answer && visit.ended == StepEnd::Accepted);
        let at = usize::from(last.is_some_and(|visit| visit.service.count() >= AGAIN.calls / 2));
        self.phase = Phase::Confirm { at, answer, above: self.known.above(settings, answer) };
    }

    fn confirm(&mut self, settings: &SearchSettings) {
        let Phase::Confirm { at, answer, above } = self.phase else { return };
        if at >= 4 {
            // Check whether the answer is still the same with the additional points.
            let again = self.known.answer(settings);
            let same =
                again.is_some_and(|cap| cap.abs_diff(answer) as f64 <= (NEAR * answer as f64).max(0.5));
            if same || self.rounds >= MOST_ROUNDS || self.known.calls >= ENOUGH {
                self.confirmed = same;
                self.phase = Phase::Done;
            } else {
                self.rounds += 1;
                self.bends = self.bends.min(BENDS - 2);
                self.phase = Phase::Ramp;
            }
            return;
        }
        self.phase = Phase::Confirm { at: at + 1, answer, above };
        match (at % 2, above) {
            (0, _) => self.push_plain_step(
                answer,
                Purpose::Confirm,
                if at == 0 { AGAIN } else { StoppingRule { accept: true, ..AGAIN } },
            ),
            (_, Some(above)) => self.push_plain_step(above, Purpose::Confirm, LOOK),
            (_, None) => {}
        }
    }

    /// Learns from a completed step.
    pub(super) fn learn(&mut self, settings: &SearchSettings, visit: StepSummary) {
        if visit.way != StepMode::Plain {
            self.learn_paced(settings, &visit, visit.way != StepMode::Paced);
            self.known.add(visit);
            return;
        }
        if let Some(since) = self.is_rate(&visit) {
            self.queue.clear();
            self.phase = Phase::RateLimited(RateLimited::new(&visit, since));
            self.known.add(visit);
            return;
        }
        let (cap, ended) = (visit.cap, visit.ended);
        let edge = visit.edge;
        let in_flight = visit.in_flight;
        let refused = visit.answered == 0 && visit.attempts == 0 && visit.failure.is_some();
        if ended == StepEnd::Accepted && !self.is_consistent_with_earlier(settings, &visit) {
            return;
        }
        let looks = ended == StepEnd::Accepted && self.references < REFERENCES;
        let contradicted = if looks { self.known.contradicted(&visit) } else { None };
        if let Some(other) = contradicted
            && self.is_first_contradiction(cap)
        {
            self.references += 1;
            self.measure_again(cap, ACCEPT);
            self.measure_again(other, REFERENCE);
            return;
        }
        self.odd = self.odd.filter(|&odd| odd != cap);
        self.known.add(visit);
        if ended == StepEnd::Accepted {
            self.check_goodput_drop(cap);
            if self.check_overload(cap) || self.check_cliff(settings, cap) {
                return;
            }
        }
        match ended {
            StepEnd::Accepted => {
                self.expected = None;
                self.on_accepted_again(cap);
                self.clear_refuted_rejection(cap);
                self.known.good = self.known.good.max(Some(cap));
                if let Some(bad) = self.known.bad.filter(|bad| bad.cap <= cap) {
                    // The limit is gone, or never existed.
                    self.known.bad = None;
                    self.stride = Some(cap.saturating_sub(bad.cap).max(1));
                    self.bends = 0;
                    self.rounds += 1;
                    self.phase = if self.rounds > MOST_ROUNDS { Phase::Narrow } else { Phase::Ramp };
                }
            }
            StepEnd::Rejected => self.on_rejected(cap, edge),
            StepEnd::Client => {
                let held = in_flight.floor() as usize;
                let guess = Some(held.clamp(1, cap.saturating_sub(1).max(1)));
                if self.known.good.is_none_or(|good| good < cap) {
                    self.known.bad = Some(RejectedCap::new(cap, RejectionCause::Client, guess));
                }
            }
            StepEnd::Rate | StepEnd::Undecided => {
                if refused {
                    self.dead = Some(NoAnswer::Refused);
                    self.phase = Phase::Done;
                } else if self.known.good.is_none_or(|good| good < cap) {
                    self.known.bad = Some(RejectedCap::new(cap, RejectionCause::Failures, None));
                }
            }
        }
    }

    /// Returns the time from which a rate limit applies, if one does: the gate held calls back for
    /// it, the server named it, or positions that were accepted earlier in the same step were
    /// rejected, twice.
    fn is_rate(&self, visit: &StepSummary) -> Option<f64> {
        let spent = |visit: &StepSummary| visit.ended == StepEnd::Rejected && visit.spent.is_some();
        match visit.ended {
            StepEnd::Rate => Some(visit.began),
            StepEnd::Rejected if matches!(visit.hint, Some(LimitHint::Requests | LimitHint::Tokens)) => {
                Some(visit.began)
            }
            StepEnd::Rejected if spent(visit) => {
                let before =
                    self.known.all_visits().iter().rev().take(SPENT_IN).find(|visit| spent(visit))?;
                before.spent
            }
            _ => None,
        }
    }
}

impl Policy {
    /// Returns the number of remaining calls: lower bound, likely value and upper bound.
    pub(super) fn remaining_calls(&self, settings: &SearchSettings) -> (usize, usize, usize) {
        let confirm = 2 * (AGAIN.calls + LOOK.calls);
        match self.phase {
            Phase::Done => (0, 0, 0),
            Phase::RateLimited(_) => (60, 300, 800),
            Phase::Confirm { at, .. } => {
                let left = confirm * (4 - at.min(4)) / 4;
                (left.min(AGAIN.calls), left, left + 600)
            }
            Phase::Narrow => (confirm, confirm + 2 * ACCEPT.calls, confirm + 1_000),
            Phase::Ramp => {
                let from = self.known.good.unwrap_or(settings.start).max(1);
                let doublings = |to: usize| (to.max(from) as f64 / from as f64).log2().ceil() as usize + 1;
                // A step upwards fills its new slots at once, and is evaluated by the calls after
                // that.
                let ramp = |to: usize| doublings(to) * RAMP.calls + to.saturating_sub(from);
                let highest = settings.max_cap;
                let likely = highest.min((4 * from).max(128));
                (
                    RAMP.calls + confirm,
                    ramp(likely) + 2 * ACCEPT.most + confirm,
                    ramp(highest) + 6 * ACCEPT.most + 3 * confirm,
                )
            }
        }
    }
}
