//! The expected dispatch order, computed independently of the scheduler: from sums over all earlier
//! events, and from all waiting calls.

use std::collections::BTreeMap;

use super::super::*;
use super::{Call, model};

/// The tolerance for rounding errors when tags and costs are compared.
const CLOSE: f64 = 1e-6;
/// A lane that was raised by age may use an eighth of the capacity, and a line in debt (one whose
/// calls cost more than was estimated) gets one dispatch in eight rounds.
const PARTS: usize = 8;

/// The tenant and the lane of a line, that is, of the waiting calls of one tenant in one lane.
pub(super) type Line = (usize, Lane);

#[derive(Default)]
struct Account {
    finish: f64,
    /// The cost of the line's last dispatched call, divided by the weight of its tenant.
    charge: f64,
    /// The virtual time when the line started to wait. `None`: no call of the line waits, or its
    /// tenant is at its cap.
    since: Option<f64>,
    went: Option<Instant>,
    /// The number of calls that the lane has dispatched since the line last dispatched a call or
    /// started to wait.
    passed: usize,
}

/// The virtual time of one lane.
#[derive(Default)]
struct Time {
    started: f64,
    now: f64,
    latest: f64,
}

/// A call that was dispatched although a call of a higher lane waited.
struct Early {
    call: u64,
    lane: Lane,
    cost: f64,
    at: Instant,
    /// Whether a call of a higher lane was admissible, so that this dispatch certainly was early.
    is_sure: bool,
    took_last_slot: bool,
    rests_until: Option<Instant>,
    /// The cost of the calls that higher lanes have dispatched since this dispatch.
    higher: f64,
}

/// What an attempt in flight was charged.
struct Charge {
    tag: f64,
    cost: f64,
    moves: bool,
}

/// The state of the target just before a call is dispatched.
pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) slots: usize,
    /// The number of calls in flight in each lane.
    pub(super) in_flight: [usize; 3],
    /// The first waiting call of each tenant in each lane, without tenants at their cap.
    pub(super) heads: BTreeMap<Line, Call>,
    /// The waiting calls that may be dispatched now. Calls that have to wait for a call that has
    /// reached the ageing time are excluded.
    pub(super) free: Vec<Call>,
}

impl Moment {
    fn takes_last_slot(&self) -> bool {
        self.in_flight.iter().sum::<usize>() + 1 >= self.slots
    }

    fn in_lane(&self, lane: Lane) -> impl Iterator<Item = &Call> {
        self.heads.values().filter(move |head| head.ticket.lane == lane)
    }
}

/// The expected dispatch order. See [the module](self).
pub(super) struct Order {
    aging: Duration,
    accounts: BTreeMap<Line, Account>,
    times: [Time; 3],
    early: Vec<Early>,
    charges: BTreeMap<u64, Charge>,
}

fn line(call: &Call) -> Line {
    (call.tenant, call.ticket.lane)
}

fn share(call: &Call) -> f64 {
    call.ticket.cost / model::weight(call.tenant)
}

impl Order {
    pub(super) fn new(aging: Duration) -> Self {
        let (accounts, charges) = (BTreeMap::new(), BTreeMap::new());
        Self { aging, accounts, times: Default::default(), early: Vec::new(), charges }
    }

    /// Records when each [`Line`] started to wait. `heads` is the first call of each line that
    /// waits now.
    pub(super) fn stand(&mut self, heads: &BTreeMap<Line, Call>) {
        for (line, account) in &mut self.accounts {
            account.since = account.since.filter(|_| heads.contains_key(line));
        }
        for (line, head) in heads {
            let entry = self.entry(head, heads);
            let account = self.accounts.entry(*line).or_default();
            if account.since.is_none() {
                (account.since, account.passed) = (Some(entry), 0);
            }
        }
    }

    /// Returns the virtual time at which the [`Line`] of a call would start to wait now.
    fn entry(&self, call: &Call, heads: &BTreeMap<Line, Call>) -> f64 {
        let time = &self.times[call.ticket.lane as usize];
        let tags = heads.values().filter(|head| head.ticket.lane == call.ticket.lane);
        let least = tags.filter_map(|head| self.tag(head)).fold(f64::INFINITY, f64::min);
        time.now.min(time.started.max(least) + share(call))
    }

    /// Returns the start tag of `head`, the first call of a [`Line`], or `None` if the line is not
    /// waiting.
    fn tag(&self, head: &Call) -> Option<f64> {
        let account = self.accounts.get(&line(head))?;
        account.since.map(|since| head.tag.unwrap_or(account.finish.max(since)))
    }

    /// Ends the busy periods of these lanes, which have neither waiting calls nor calls in flight.
    /// This forgives the debts of their tenants in fair queueing.
    pub(super) fn end_busy_periods(&mut self, lanes: impl Iterator<Item = Lane>) {
        for lane in lanes {
            let time = &mut self.times[lane as usize];
            time.now = time.now.max(time.latest);
            time.started = time.now;
        }
    }

    /// Checks that the dispatch of a waiting call was in order: it was the turn of its lane, and
    /// the turn of its line in the lane. Panics otherwise.
    pub(super) fn check(&self, call: &Call, moment: &Moment) {
        self.check_lane(call, moment);
        let lane = call.ticket.lane;
        let mine = self.tag(&moment.heads[&line(call)]);
        for other in moment.free.iter().filter(|other| other.ticket.lane == lane) {
            let theirs = self.tag(&moment.heads[&line(other)]);
            let in_turn = mine.zip(theirs).is_some_and(|(mine, theirs)| mine <= theirs + CLOSE);
            assert!(
                in_turn || self.owes(call, moment),
                "{call:?} by {mine:?} before {other:?} by {theirs:?}"
            );
        }
    }

    /// Returns `true` if the call may go before calls of other lines, because its line is in debt
    /// (its calls cost more than they were estimated), has waited for the ageing time, and was
    /// passed over for eight rounds.
    fn owes(&self, call: &Call, moment: &Moment) -> bool {
        let (account, now) = (&self.accounts[&line(call)], self.times[call.ticket.lane as usize].now);
        let since = account.went.max(Some(moment.heads[&line(call)].ticket.queued_at));
        account.finish - now > account.charge - CLOSE
            && account.passed >= PARTS * moment.in_lane(call.ticket.lane).count()
            && !self.aging.is_zero()
            && since.is_some_and(|since| moment.now - since >= self.aging)
    }

    fn check_lane(&self, call: &Call, moment: &Moment) {
        let (Some(top), lane) = (moment.heads.keys().map(|(_, lane)| *lane).min(), call.ticket.lane) else {
            return;
        };
        // A lower lane goes early only if it is raised and has not used up its share.
        if moment.free.iter().any(|other| other.ticket.lane < lane) {
            assert!(self.is_raised(lane, top, moment), "{call:?} is not old enough");
            assert!(self.has_share(lane, moment, true), "{call:?}: its lane has had its share");
        }
        // If a lower lane may go early, it does.
        for other in moment.free.iter().filter(|other| other.ticket.lane > lane) {
            let of = other.ticket.lane;
            let has_right = self.is_raised(of, top, moment) && self.has_share(of, moment, false);
            let early = lane > top && self.is_raised(lane, top, moment);
            assert!(!has_right || early, "{other:?} goes before {call:?}");
        }
    }

    fn is_raised(&self, lane: Lane, top: Lane, moment: &Moment) -> bool {
        let needed = self.aging * (lane as u32 - top as u32);
        let ages = moment.in_lane(lane).map(|head| moment.now - head.ticket.queued_at);
        !self.aging.is_zero() && ages.max().is_some_and(|age| age >= needed)
    }

    /// Returns `true` if the lane may go early, that is, before higher lanes, because it has not
    /// used up its eighth of the capacity. If `is_sure` is `true`, only the earlier dispatches that
    /// certainly were early are counted, otherwise all that may have been.
    fn has_share(&self, lane: Lane, moment: &Moment, is_sure: bool) -> bool {
        let early = self.early.iter().filter(|early| early.lane == lane && (early.is_sure || !is_sure));
        let has_rested = |early: &Early| early.rests_until.is_none_or(|until| until <= moment.now);
        let is_paid = |early: &Early| {
            let owed = early.cost * (PARTS - 1) as f64 - early.higher;
            moment.takes_last_slot() || early.took_last_slot || owed <= CLOSE
        };
        moment.in_flight[lane as usize] < (moment.slots / PARTS).max(1)
            && early.into_iter().all(|early| has_rested(early) && is_paid(early))
    }

    /// Records that a call was dispatched. `has_waited` is `true` if it was waiting, and `false` if
    /// it was admitted on arrival.
    pub(super) fn dispatch(&mut self, call: &Call, moment: &Moment, has_waited: bool) {
        let (lane, entry) = (call.ticket.lane, self.entry(call, &moment.heads));
        if has_waited {
            let higher = |other: &Call| other.ticket.lane < lane;
            for early in self.early.iter_mut().filter(|early| lane < early.lane) {
                early.higher += call.ticket.cost;
            }
            if moment.heads.values().any(higher) {
                self.early.push(Early {
                    call: call.number,
                    lane,
                    cost: call.ticket.cost,
                    at: moment.now,
                    is_sure: moment.free.iter().any(higher),
                    took_last_slot: moment.takes_last_slot(),
                    rests_until: None,
                    higher: 0.0,
                });
            }
        }
        for ((_, of), account) in &mut self.accounts {
            account.passed += usize::from(*of == lane);
        }
        let others = moment.heads.iter().filter(|(of, _)| of.1 == lane && **of != line(call));
        let least = others.filter_map(|(_, head)| self.tag(head)).fold(f64::INFINITY, f64::min);
        let time = &mut self.times[lane as usize];
        let account = self.accounts.entry(line(call)).or_default();
        // The debt of a tenant must not delay a new tenant.
        let bound = if account.finish - time.now > account.charge + CLOSE { least } else { f64::INFINITY };
        let since = account.since.unwrap_or(entry);
        let start = account.finish.max(since);
        let tag = call.tag.unwrap_or(start);
        let moves = tag < start || account.finish <= since;
        (account.charge, account.finish) = (share(call), start + share(call));
        (account.went, account.passed) = (Some(moment.now), 0);
        time.started = time.started.max(tag.min(bound));
        time.now = time.now.max(time.started);
        time.latest = time.latest.max(account.finish);
        self.charges.insert(call.number, Charge { tag, cost: call.ticket.cost, moves });
    }

    /// Replaces the estimated cost of a call in flight by `cost`.
    pub(super) fn settle(&mut self, call: &Call, cost: f64) {
        let charge = self.charges.get_mut(&call.number).expect("in flight");
        let more = (cost - std::mem::replace(&mut charge.cost, cost)) / model::weight(call.tenant);
        let account = self.accounts.get_mut(&line(call)).expect("charged");
        account.finish += more;
        let time = &mut self.times[call.ticket.lane as usize];
        time.latest = time.latest.max(account.finish);
    }

    /// Records that the slot of a call was released, and returns the start tag that a retry of the
    /// call keeps. If `may_have_run` is `false`, the charge is refunded. `slots` is the current
    /// number of slots.
    pub(super) fn release(&mut self, now: Instant, call: &Call, may_have_run: bool, slots: usize) -> f64 {
        if !may_have_run {
            self.settle(call, 0.0);
        }
        let charge = self.charges.remove(&call.number).expect("in flight");
        if charge.moves {
            let stands = |(line, account): (&Line, &Account)| {
                (line.1 == call.ticket.lane && account.since.is_some()).then(|| model::weight(line.0))
            };
            let waiting: f64 = self.accounts.iter().filter_map(stands).sum();
            let time = &mut self.times[call.ticket.lane as usize];
            time.now += charge.cost / (waiting + model::weight(call.tenant));
        }
        let slots = slots.clamp(1, PARTS) as u32;
        for early in self.early.iter_mut().filter(|early| early.call == call.number) {
            early.rests_until = Some(now + (now - early.at) * (PARTS as u32 - slots) / slots);
        }
        charge.tag
    }
}
