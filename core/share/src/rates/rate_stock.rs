//! The advance of a member, and what it asks for. See [the module](super).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::rates::{Advance, Amounts, Correction, Draw, MAX_AMOUNT, MAX_CORRECTIONS, RateLimit, StockTime};
use crate::{BROKER_SEARCH_TIME, LeaseTimes};

/// The number of members to assume if no broker was ever heard.
const UNKNOWN_MEMBERS: u32 = 10;
/// Corrections of charges within this time are sent as one.
const CORRECTION_STEP: Duration = Duration::from_millis(250);
/// Time after which corrections are sent although nothing is drawn.
const CORRECTS_WITHIN: Duration = Duration::from_secs(1);
/// The maximum factor by which a draw exceeds the last advance.
const MAX_GROWTH: f64 = 2.0;

/// The amounts that a member may charge. See [the module](super).
///
/// The owner tells with [`RateStock::lack`] and [`RateStock::lack_nothing`] what the first waiting
/// call lacks, and sends a [`RateStock::draw`] when one is due.
#[derive(Debug)]
pub struct RateStock {
    strict: bool,
    state: State,
    /// The number of limits.
    limits: usize,
    /// Advances that can still be used, oldest first.
    parts: VecDeque<Part>,
    time: StockTime,
    /// Time after the last answer of the broker until an advance is refused, because the process
    /// may have been stopped since it was given.
    renewal: Duration,
    /// What the next waiting call lacks. Empty if nothing is lacking.
    lacking: Amounts,
    /// The amounts of the next call that the broker knows of. Empty if it knows of none.
    asked: Amounts,
    /// The number of the last draw.
    number: u64,
    /// When the broker was first asked for what it has not given yet.
    asked_at: Option<Instant>,
    last: Option<LastAdvance>,
    /// Corrections that were not sent yet, by the number of the step in which the charge was made,
    /// and whether they add to it.
    corrections: BTreeMap<(u64, bool), Vec<i64>>,
    /// The beginning of the first step.
    origin: Instant,
    /// When corrections were last sent.
    corrected_at: Instant,
    /// The number of members, as last heard. 0 if unknown.
    members: usize,
    /// The weight of the calls that wait.
    weight: f64,
}

/// Whether there is a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No call was made yet.
    New,
    /// The broker knows of the member, and has answered what was sent at the time `heard`. Until it
    /// has answered the member that joins, `lost_until` is the time of the `Lost` before.
    Joined { heard: Instant, lost_until: Option<Instant> },
    /// No broker is known. If there is still none at `until`, a part of the limits is in force.
    Lost { until: Instant },
    /// There can be no broker. Each process works alone.
    Alone,
}

/// An advance, or what is left of it.
#[derive(Debug)]
struct Part {
    until: Instant,
    /// What can still be used.
    amounts: Amounts,
    /// What was not charged at the broker, because a call is larger than a limit.
    extra: Amounts,
}

/// The last advance, from which the next draw is estimated.
#[derive(Debug)]
struct LastAdvance {
    at: Instant,
    used: Vec<f64>,
    /// When the broker gave it.
    given_at: Instant,
    /// What all members had charged then, within the window of each limit.
    charged: Amounts,
}

/// Which amounts a member may charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateTerms {
    /// Those of its advance.
    Advance,
    /// The limits, divided by this number: there is no broker.
    Part(u32),
    /// None until this time, if it is known.
    Nothing(Option<Instant>),
}

impl RateStock {
    /// Creates the stock of a member that has not joined yet. If no broker is found within a
    /// second, a tenth of the limits is in force, or nothing if `strict`.
    pub fn new(limits: &[RateLimit], strict: bool, times: LeaseTimes, now: Instant) -> Self {
        Self {
            strict,
            state: State::New,
            limits: limits.len(),
            parts: VecDeque::new(),
            time: StockTime::of(limits, times.advance),
            renewal: times.renewal,
            lacking: Amounts::new(),
            asked: Amounts::new(),
            number: 0,
            asked_at: None,
            last: None,
            corrections: BTreeMap::new(),
            origin: now,
            corrected_at: now,
            members: 0,
            weight: 1.0,
        }
    }

    /// Returns which amounts the member may charge now.
    pub fn terms(&self, now: Instant) -> RateTerms {
        match self.state {
            State::New => RateTerms::Nothing(Some(now + BROKER_SEARCH_TIME)),
            State::Joined { lost_until: Some(until), .. } if until <= now => self.part(),
            State::Joined { .. } => RateTerms::Advance,
            State::Alone if self.strict => RateTerms::Nothing(None),
            State::Alone => RateTerms::Part(1),
            State::Lost { until } if now < until => RateTerms::Nothing(Some(until)),
            State::Lost { .. } => self.part(),
        }
    }

    /// Returns the amounts that the member may charge without a broker.
    fn part(&self) -> RateTerms {
        match self.members {
            _ if self.strict => RateTerms::Nothing(None),
            0 => RateTerms::Part(UNKNOWN_MEMBERS),
            members => RateTerms::Part(u32::try_from(members).unwrap_or(u32::MAX)),
        }
    }

    /// Returns the number of members, as last heard. At least 1.
    pub fn members(&self) -> usize {
        self.members.max(1)
    }

    /// Returns what all members had charged to a limit within its window at the last advance, and
    /// the time since then. `None` if this broker has given none.
    pub fn charged_by_all(&self, now: Instant, limit: usize) -> Option<(u64, Duration)> {
        let last = self.last.as_ref()?;
        Some((*last.charged.get(limit)?, now.saturating_duration_since(last.given_at)))
    }

    /// Returns the time since the last draw that the broker has not answered. Zero if it has
    /// answered all draws.
    pub fn waited(&self, now: Instant) -> Duration {
        self.asked_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    /// Returns the amount of a limit that may be charged now.
    pub fn available(&self, now: Instant, limit: usize) -> u64 {
        let usable = self.parts.iter().filter(|part| now < part.until);
        usable.filter_map(|part| part.amounts.get(limit)).sum()
    }

    /// Records that the first call is made, so that the driver looks for a broker from now on.
    pub fn begin(&mut self, now: Instant) {
        if self.state == State::New {
            self.state = State::Lost { until: now + BROKER_SEARCH_TIME };
        }
    }

    /// Records that not all of these amounts are available, which the first waiting call needs.
    pub fn lack(&mut self, amounts: &[u64]) {
        // Not only what is missing, because what is available may expire before the call is
        // admitted. The estimates for the calls behind it may be a little larger.
        let padded = amounts.iter().take(self.limits).map(|amount| amount.saturating_add(amount / 32));
        self.lacking = padded.collect();
    }

    /// Records that no call waits.
    pub fn lack_nothing(&mut self) {
        self.lacking.clear();
    }

    /// Charges an admitted call. What is not available becomes a correction.
    pub fn charge(&mut self, now: Instant, amounts: &[u64]) {
        self.expire(now);
        let mut missing: Vec<i64> = amounts.iter().map(|amount| *amount as i64).collect();
        for part in &mut self.parts {
            for (left, missing) in part.amounts.iter_mut().zip(&mut missing) {
                let taken = (*left).min(*missing as u64);
                *left -= taken;
                *missing -= taken as i64;
            }
        }
        self.parts.retain(|part| part.amounts.iter().any(|amount| *amount > 0));
        if let Some(last) = &mut self.last {
            last.used.iter_mut().zip(amounts).for_each(|(used, amount)| *used += *amount as f64);
        }
        self.correct(now, &missing);
    }

    /// Changes a charge that was made at `then`. Positive numbers add to it.
    pub fn correct(&mut self, then: Instant, changes: &[i64]) {
        let is_told_later = match self.state {
            State::Joined { .. } => false,
            State::Lost { until } => then > until,
            State::New | State::Alone => true,
        };
        if is_told_later {
            // When the member joins, it tells what was charged while there was no broker.
            return;
        }
        for adds in [true, false] {
            let amounts = changes.iter().map(|change| if (*change > 0) == adds { *change } else { 0 });
            if amounts.clone().all(|amount| amount == 0) {
                continue;
            }
            // An amount was charged at the broker when it was advanced.
            let then = if adds { Some(then) } else { then.checked_sub(self.time.0) };
            let passed = then.map_or(Duration::ZERO, |then| then.saturating_duration_since(self.origin));
            let step = (passed.as_millis() / CORRECTION_STEP.as_millis()) as u64;
            let pending = self.corrections.entry((step, adds)).or_insert_with(|| vec![0; self.limits]);
            for (pending, amount) in pending.iter_mut().zip(amounts) {
                *pending = pending.saturating_add(amount);
            }
        }
    }

    /// Sets the weight of the calls that wait, positive and finite.
    pub fn set_weight(&mut self, weight: f64) {
        self.weight = weight;
    }

    /// Returns `true` if a waiting call lacks an amount that the broker does not know of.
    pub fn is_draw_due(&self) -> bool {
        // Estimates change a little with each call.
        let differs =
            |(lacking, asked): (&u64, &u64)| *lacking > asked + asked / 4 || *lacking < asked.div_ceil(2);
        let is_known =
            self.lacking.len() == self.asked.len() && !self.lacking.iter().zip(&self.asked).any(differs);
        self.is_joined() && !is_known
    }

    fn is_joined(&self) -> bool {
        matches!(self.state, State::Joined { .. })
    }

    /// Gives back what was not used in time. Returns `true` if a draw must tell the broker of
    /// corrections. Call this method periodically.
    pub fn give_back_expired(&mut self, now: Instant) -> bool {
        self.expire(now);
        let is_late = now >= self.corrected_at + CORRECTS_WITHIN;
        self.is_joined() && !self.corrections.is_empty() && is_late
    }

    /// Returns the draw that joins a broker. `past` is what the member has charged within the
    /// windows.
    pub fn join(&mut self, now: Instant, limits: Vec<RateLimit>, past: Vec<Correction>) -> Draw {
        let lost_until = if let State::Lost { until } = self.state { Some(until) } else { None };
        let unknown = lost_until.map_or(Duration::MAX, |until| {
            now.saturating_duration_since(until).saturating_add(BROKER_SEARCH_TIME)
        });
        // What is left was given before the broker was lost.
        self.expire(now);
        self.parts.clear();
        self.state = State::Joined { heard: now, lost_until };
        let pending = self.take_corrections(now);
        self.corrections.clear();
        self.asked.clear();
        self.asked_at = None;
        if let Some(last) = &mut self.last {
            last.charged.clear();
        }
        let unknown_ms = u32::try_from(unknown.as_millis()).unwrap_or(u32::MAX).into();
        Draw { corrections: past, pending, unknown_ms, ..self.draw(now, limits) }
    }

    /// Adds an advance that the broker has given before the time `age`, which ends the draw.
    pub fn on_advance(&mut self, now: Instant, advance: &Advance, age: Duration) {
        self.expire(now);
        self.members = advance.members;
        let is_stale = matches!(self.state, State::Joined { heard, .. } if heard + self.renewal <= now);
        if let State::Joined { lost_until, .. } = &mut self.state {
            *lost_until = None;
        }
        let answers_last = advance.number == self.number;
        let asked = if answers_last { std::mem::take(&mut self.asked) } else { Amounts::new() };
        self.lacking.clear();
        self.asked_at = None;
        if is_stale {
            // It may be older than it seems, and remains charged.
            return;
        }
        self.last = Some(LastAdvance {
            at: now,
            used: vec![0.0; self.limits],
            given_at: now.checked_sub(age).unwrap_or(now),
            charged: advance.charged.clone(),
        });
        // A call that is larger than a limit gets all of it.
        let asked = asked.into_iter().chain(std::iter::repeat(0));
        let advanced: Amounts = advance.amounts.iter().map(|amount| (*amount).min(MAX_AMOUNT)).collect();
        let extra: Amounts =
            advanced.iter().zip(asked).map(|(amount, asked)| asked.saturating_sub(*amount)).collect();
        let amounts = advanced.iter().zip(&extra).map(|(amount, extra)| amount + extra).collect();
        self.parts.push_back(Part { until: now + self.time.0.saturating_sub(age), amounts, extra });
    }

    /// Records that the broker has answered what was sent at `sent_at`.
    pub fn on_alive(&mut self, sent_at: Instant) {
        if let State::Joined { heard, lost_until } = &mut self.state {
            *heard = sent_at.max(*heard);
            *lost_until = None;
        }
    }

    /// Sets the number of members, as last heard.
    pub fn set_members(&mut self, members: usize) {
        self.members = members;
    }

    /// Records that the connection to the broker has ended. A broker that has answered nothing does
    /// not change when a part of the limits is in force.
    pub fn on_lost(&mut self, now: Instant) {
        if let State::Joined { lost_until, .. } = self.state {
            self.state = State::Lost { until: lost_until.unwrap_or(now + BROKER_SEARCH_TIME) };
        }
    }

    /// Records that there can be no broker. If there never was one, each process works alone: the
    /// whole limits are in force, or nothing if `strict`. Otherwise the parts of a lost broker stay
    /// in force.
    pub fn on_alone(&mut self) {
        if self.members == 0 {
            self.state = State::Alone;
        }
    }

    /// Returns what was not used in time.
    fn expire(&mut self, now: Instant) {
        while self.parts.front().is_some_and(|part| part.until <= now)
            && let Some(part) = self.parts.pop_front()
        {
            let unused = part.amounts.iter().zip(&part.extra);
            let unused: Vec<i64> =
                unused.map(|(amount, extra)| -(amount.saturating_sub(*extra) as i64)).collect();
            // It was charged at the broker earlier than that. `correct` allows for it.
            self.correct(part.until, &unused);
        }
    }

    /// Returns a draw of what is lacking, with the corrections so far.
    pub fn draw(&mut self, now: Instant, limits: Vec<RateLimit>) -> Draw {
        self.expire(now);
        self.corrected_at = now;
        self.number += 1;
        self.asked.clone_from(&self.lacking);
        self.asked_at = if self.asked.is_empty() { None } else { self.asked_at.or(Some(now)) };
        // What is lacking for a call, or what was used since the last advance, as far as this
        // lasts.
        let growth = self.last.as_ref().map_or(0.0, |last| {
            let passed = now.saturating_duration_since(last.at).as_secs_f64();
            (self.time.0.as_secs_f64() / passed).min(MAX_GROWTH)
        });
        let used = self.last.iter().flat_map(|last| &last.used).chain(std::iter::repeat(&0.0));
        let want = self.asked.iter().zip(used);
        let want = want.map(|(least, used)| (*least).max((used * growth) as u64)).collect();
        Draw {
            number: self.number,
            limits,
            weight: self.weight,
            want,
            least: self.asked.clone(),
            corrections: self.take_corrections(now),
            pending: Vec::new(),
            unknown_ms: 0,
        }
    }

    fn take_corrections(&mut self, now: Instant) -> Vec<Correction> {
        let mut corrections = Vec::new();
        while corrections.len() < MAX_CORRECTIONS
            && let Some(((step, adds), amounts)) = self.corrections.pop_first()
        {
            // The end of the step if this adds, otherwise its begin, so that nothing ends too
            // early.
            let then =
                self.origin + CORRECTION_STEP * u32::try_from(step + u64::from(adds)).unwrap_or(u32::MAX);
            let age = now.saturating_duration_since(then);
            corrections.push(Correction { age_ms: age.as_millis() as u64, amounts });
        }
        corrections
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::epoch;

    #[test]
    fn corrections_of_lost_broker_are_pending_when_member_joins_again() {
        let now = epoch();
        let at = |secs| now + Duration::from_secs(secs);
        let limit = RateLimit { window_ms: 60_000, per_window: 60_000, per_second: 1_000.0, burst_ms: 6_000 };
        let mut stock = RateStock::new(&[limit], false, LeaseTimes::REMOTE, now);
        stock.begin(now);
        stock.join(now, vec![limit], Vec::new());
        let advance = Advance { number: 1, amounts: vec![500], members: 1, charged: vec![500] };
        stock.on_advance(now, &advance, Duration::ZERO);
        stock.charge(now, &[200]);
        stock.correct(now, &[1_000]);
        stock.on_lost(at(10));
        // A call of before ends, and a call is made without the broker.
        stock.correct(now, &[2_000]);
        stock.charge(at(15), &[4_000]);
        let past = vec![Correction { age_ms: 0, amounts: vec![7_200] }];
        let draw = stock.join(at(20), vec![limit], past.clone());
        assert_eq!((draw.corrections, draw.unknown_ms), (past, 10_000));
        let pending: Vec<_> = draw.pending.iter().map(|it| (it.age_ms, it.amounts[0])).collect();
        assert_eq!(pending, [(20_000, -300), (19_750, 3_000)]);
        assert!(stock.draw(at(21), vec![limit]).corrections.is_empty());
    }

    #[test]
    fn part_stays_in_force_while_broker_answers_no_join() {
        let now = epoch();
        let at = |millis| now + Duration::from_millis(millis);
        let limit = RateLimit { window_ms: 60_000, per_window: 60_000, per_second: 1_000.0, burst_ms: 6_000 };
        let mut stock = RateStock::new(&[limit], false, LeaseTimes::REMOTE, now);
        stock.begin(now);
        for attempt in 0..10 {
            stock.join(at(500 * attempt), vec![limit], Vec::new());
            stock.on_lost(at(500 * attempt + 1));
        }
        assert_eq!(stock.terms(at(4_600)), RateTerms::Part(UNKNOWN_MEMBERS));
        // The new store knows nothing of what was charged since the first attempt.
        assert_eq!(stock.join(at(5_000), vec![limit], Vec::new()).unknown_ms, 5_000);
        assert_eq!(stock.terms(at(5_000)), RateTerms::Part(UNKNOWN_MEMBERS));
        stock.on_alive(at(5_000));
        assert_eq!(stock.terms(at(5_000)), RateTerms::Advance);
    }
}
