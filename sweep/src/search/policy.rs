//! Which step comes next. Knows no clock and no event: told of each step that is over.
//!
//! 1. **Ramp**: twice the cap, until more fails than may, the goodput no longer rises, or the client does not hold it.
//! 2. **Narrow**: between the highest cap that is good and the lowest that is not, first where the positions of the failures point, else in the middle (of the logarithms);
//!    or, where the goodput bends before that, at the knee of the curve.
//! 3. **Confirm**: the answer, what is above it, and both again. What is above and fails no longer, lets the search go on upwards; an answer that no longer holds, downwards.
//!
//! After a rejection comes a rest: what an overload leaves behind is not the next cap's fault. Where caps fail that were good, rests grow, with a reference step after each; if those fail
//! too, the server is another than before, and a new era begins.

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

/// Reference steps because of points off the curve.
const REFERENCES: usize = 4;
/// Visits to bend the curve at its knee.
const BENDS: usize = 5;
/// Two steps that used up a rate's credit are no more than so many steps apart.
const SPENT_IN: usize = 6;
/// After so many calls what is known has to do: nothing more is bent, and no confirmation is overthrown by a little.
const ENOUGH: usize = 2_000;
/// After so many, and so many times the highest good cap, it ends with what it has: a server that never comes to rest would keep it for ever.
const MOST_CALLS: usize = 4_000;
const MOST_TURNS: usize = 20;
/// Confirmations that were overthrown before it is left at that.
pub(super) const MOST_ROUNDS: usize = 6;

/// What to do.
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
    /// A rate binds.
    RateLimited(RateLimited),
    Done,
}

/// Why it ended without an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NoAnswer {
    /// Everything fails at the lowest cap too.
    Fails,
    /// The requests themselves are refused.
    Refused,
}

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) phase: Phase,
    pub(super) queue: VecDeque<NextStep>,
    pub(super) known: Evidence,
    /// Caps in a row that failed and should not have.
    pub(super) lost: usize,
    /// What the last rejection left.
    pub(super) expected: Option<usize>,
    /// The first cap that failed and should not have, until it is known why.
    pub(super) doubt: Option<usize>,
    /// Rests that did not make it as fast as it was.
    pub(super) slow: usize,
    /// Rests because nothing was taken any more.
    pub(super) waits: usize,
    /// Whether the first rejection's consequences were looked at.
    pub(super) looked: bool,
    /// Reference steps because of a point off the curve.
    pub(super) references: usize,
    /// A cap whose goodput does not go together with what else is known, until it is seen again.
    pub(super) odd: Option<usize>,
    /// How long an overload lasts, seconds, where it does.
    pub(super) lasts: Option<f64>,
    pub(super) bends: usize,
    pub(super) rounds: usize,
    /// By how much the last step upwards went after a wall was found gone.
    pub(super) stride: Option<usize>,
    /// What is held last; nothing after a rest.
    pub(super) held: usize,
    /// So many more than were held are taken at once, where a server takes load only as it grows.
    pub(super) leap: Option<usize>,
    /// Walls that were gone when they were come up to slowly, and the lowest of them.
    pub(super) refuted: usize,
    pub(super) hasty: Option<usize>,
    /// The cap at which the goodput fell, until it is known whether that left something behind.
    pub(super) fallen: Option<usize>,
    /// A fall left nothing behind.
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

    /// The next thing to do; `None`: the answer is there.
    pub(super) fn next(&mut self, settings: &SearchSettings) -> Option<NextStep> {
        if self.known.calls >= MOST_CALLS + MOST_TURNS * self.known.good.unwrap_or(0) && !self.ended {
            self.confirmed = false;
            self.notes.push("The server did not come to rest: what was found is not confirmed.".into());
            self.end();
            return None;
        }
        // Each phase that has nothing to do hands on to the next: a few turns at most.
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

    /// Where load may rise only so quickly, what lies between comes first.
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

    /// The phase stays, and says what was found.
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
            // A cliff is no edge: what is gained and what is lost by it meet somewhere.
            let resolution = if bad.wall == RejectionCause::Cliff { NEAR } else { RESOLUTION };
            if gap > ((resolution * good as f64) as usize).max(1) {
                let middle =
                    ((good as f64 * bad.cap as f64).sqrt().round() as usize).clamp(good + 1, bad.cap - 1);
                let guess = bad.guess.filter(|guess| (good + 1..bad.cap).contains(guess));
                // A guess is for one try, and what is just above it for another.
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
            // It seemed to bend, and with more points it does not.
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
        // Where the answer is what was measured last, that is its first look.
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
            // The curve has more points now: is it still the same answer?
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

    /// A step is over.
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
                    // The wall is gone, or was none.
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

    /// Since when nothing was left of a rate, if one binds: the gate held calls back for it, the server named it, or positions that had been taken in the same step were refused, twice.
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
    /// Calls that it may still take: least, likely, most.
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
                // A step upwards fills its new slots at once, and is judged by what comes after.
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
