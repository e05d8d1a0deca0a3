//! Property tests that compare the scheduler with an oracle. The oracle tracks all calls by brute
//! force, and the two must agree after each of a random sequence of events.

mod faulty_schedulers;
mod model;
mod order;
mod tenant_shares;

use std::collections::{BTreeMap, BTreeSet};

use model::{Model, QUEUE, TENANTS, TargetConfig};
use order::{Line, Moment, Order};
use proptest::prelude::*;

use super::*;
use crate::adaptive::Ended;
use crate::cooldown::{CooldownState, Failure};
use crate::schedule::tenant_shares::RECHECK_AFTER;
use crate::testing::epoch;
use tidegate_protocol::Usage;

#[derive(Clone, Debug)]
enum Event {
    Arrive {
        tenant: usize,
        lane: usize,
        deadline: u64,
        wait: Option<u64>,
        tokens: u64,
        streams: bool,
    },
    /// The first token of an answer arrives.
    Token {
        which: usize,
    },
    /// An attempt ends. If it failed, its call may be retried.
    End {
        which: usize,
        how: How,
        again: bool,
        sent: bool,
        /// The actual usage in tokens, or `None` if the provider does not report it.
        used: Option<u64>,
    },
    /// A response head arrives.
    Answer {
        which: usize,
    },
    /// The slot of a preempted call is released, and the call is queued again.
    Back {
        which: usize,
    },
    Leave {
        which: usize,
    },
    Pass {
        ms: u64,
    },
    Limit {
        limit: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum How {
    Accepted,
    Failed(Option<u64>),
    Unjudged,
}

#[derive(Clone, Debug)]
struct Call {
    number: u64,
    tenant: usize,
    ticket: Ticket,
    id: Option<WaiterId>,
    /// The total time, up to when the call was queued, in which the target was not closed (cooling
    /// down or being probed).
    queued_open: Duration,
    /// For a retry, the start tag of its first attempt; otherwise `None`.
    tag: Option<f64>,
}

struct Oracle {
    scheduler: Scheduler<u64>,
    model: Model,
    /// The expected dispatch order. `None` if floors (reserved slots) or the tenants' own tokens
    /// also affect the order.
    order: Option<Order>,
    now: Instant,
    waiting: BTreeMap<u64, Call>,
    running: Vec<(Call, Box<Grant>)>,
    /// The numbers of the calls in flight that have a response head.
    answered: BTreeSet<u64>,
    /// The numbers of the calls that were preempted and have not been queued again.
    preempted: BTreeSet<u64>,
    /// For each call in flight, when its last attempt was admitted, and the value of `changes`
    /// then.
    admitted: BTreeMap<u64, (Instant, u64)>,
    /// The number of cool-downs that began and of probes that were accepted.
    changes: u64,
    numbers: u64,
    /// The total time in which the target was not closed (cooling down or being probed), computed
    /// from its reported state.
    open: Duration,
    /// The end of the latest Retry-After. No attempt may be dispatched before it. The delay is
    /// counted from when it was reported, or, for an attempt from before the last change of state,
    /// from when the attempt was sent.
    floor: Instant,
    draining: bool,
    /// The number of calls that may leave the queue in one [`Oracle::settle`] before the driver
    /// stops calling `next`. `usize::MAX` for a driver without faults. See `faulty_schedulers`.
    patience: usize,
}

impl Oracle {
    fn new(target: TargetConfig) -> Self {
        let now = epoch();
        let order = target.is_plain().then(|| Order::new(target.aging()));
        let (scheduler, model) = target.build(now);
        Self {
            scheduler,
            model,
            order,
            now,
            waiting: BTreeMap::new(),
            running: Vec::new(),
            answered: BTreeSet::new(),
            preempted: BTreeSet::new(),
            admitted: BTreeMap::new(),
            changes: 0,
            numbers: 0,
            open: Duration::ZERO,
            floor: now,
            draining: false,
            patience: usize::MAX,
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Arrive { tenant, lane, deadline, wait, tokens, streams } => {
                let mut ticket = ticket(TENANTS[tenant].0, Lane::ALL[lane], self.now);
                ticket.deadline = self.now + ms(deadline);
                ticket.wait = wait.map(ms);
                ticket.demand.input = tokens;
                ticket.cost = 1.0 + tokens as f64 / 100.0;
                ticket.streams = streams;
                self.arrive(tenant, ticket, None);
            }
            Event::End { which, how, again, sent, used } => self.end(which, how, again, sent, used),
            Event::Token { which } => {
                let running = self.running.len().max(1);
                if let Some((call, grant)) = self.running.get_mut(which % running) {
                    self.model.first_token(self.now, call.number);
                    self.scheduler.on_first_token(self.now, grant);
                }
            }
            Event::Answer { which } => {
                let running = self.running.len().max(1);
                if let Some((call, grant)) = self.running.get_mut(which % running) {
                    self.preempted.remove(&call.number);
                    self.answered.insert(call.number);
                    self.scheduler.on_response_head(grant);
                }
            }
            Event::Back { which } => {
                let preempted: Vec<_> = self.preempted.iter().copied().collect();
                let number = preempted.get(which % preempted.len().max(1));
                let at = self.running.iter().position(|(call, _)| Some(&call.number) == number);
                at.into_iter().for_each(|at| self.end(at, How::Unjudged, true, false, None));
            }
            Event::Leave { which } => {
                let Some(number) = self.waiting.keys().nth(which % self.waiting.len().max(1)).copied() else {
                    return;
                };
                let call = self.waiting.remove(&number).expect("just seen");
                let id = call.id.expect("queued");
                assert!(self.scheduler.withdraw(id));
                assert!(!self.scheduler.withdraw(id), "once");
                assert_eq!(self.scheduler.explain(self.now, id), None);
                self.stand();
            }
            Event::Pass { ms: time } => self.pass(ms(time)),
            Event::Limit { limit } => {
                self.model.fix(limit);
                self.scheduler.set_limit(limit);
            }
        }
        self.settle();
        self.call_back();
        self.check();
    }

    fn arrive(&mut self, tenant: usize, ticket: Ticket, tag: Option<f64>) {
        self.numbers += 1;
        let mut call = Call { number: self.numbers, tenant, ticket, id: None, queued_open: self.open, tag };
        let before = self.waiting.values().filter(|other| other.tenant == tenant).count();
        let admissible = self.model.admits(self.now, &call);
        let leaves_out = |other: &Call| self.is_left_out_for(other, &call);
        let left_out: Vec<_> = self.waiting.values().filter(|other| leaves_out(other)).cloned().collect();
        // Calls that are excluded for a probe count as not waiting.
        self.waiting.retain(|number, _| left_out.iter().all(|other| other.number != *number));
        let stuck = self.stuck();
        let is_behind = self.waiting.values().any(|other| same_line(other, &call));
        self.waiting.extend(left_out.into_iter().map(|other| (other.number, other)));
        // Its arrival affects which tenants are held only after the decision about it.
        let moment = self.moment();
        self.model.on_active(self.now, tenant);
        match self.scheduler.try_admit(self.now, &call.ticket) {
            Ok(Some(grant)) => {
                assert!(admissible && self.now < call.ticket.deadline && !self.draining, "{call:?}");
                assert_eq!(stuck, None, "it overtook one that could go");
                assert!(!is_behind, "it overtook in its line");
                self.admitted(call, grant, &moment, false);
            }
            Ok(None) => {
                let sheds = self.waiting.values().any(|other| {
                    other.tenant == tenant && other.ticket.lane > call.ticket.lane && may_be_shed(other)
                });
                assert!(
                    before < QUEUE || call.ticket.queue_tag.is_some() || sheds,
                    "the bound holds for new calls"
                );
                call.id = Some(self.scheduler.enqueue(self.now, call.ticket.clone(), call.number));
                // A call that was shed for this one leaves in the next `settle`.
                self.waiting.insert(call.number, call);
            }
            Err(refusal) => {
                assert_eq!(refusal.position, before);
                let new = call.ticket.queue_tag.is_none();
                match refusal.reason {
                    Reason::QueueFull => assert!(before >= QUEUE && new),
                    Reason::Deadline => assert!(call.ticket.deadline <= self.now),
                    Reason::CoolDown | Reason::Outage => assert!(
                        self.cools_past(call.ticket.deadline) || self.floor > self.now || self.closed()
                    ),
                    Reason::NoSlot => assert!(new),
                    Reason::NoBudget => {
                        assert!(new && (!admissible || self.held() || self.may_lack_kept_tokens(&call)));
                    }
                    Reason::Draining => assert!(self.draining),
                    Reason::TooLarge => assert!(self.model.is_oversize(&call)),
                    other => panic!("{other:?} is no reason at the door"),
                }
            }
        }
    }

    fn end(&mut self, which: usize, how: How, again: bool, sent: bool, used: Option<u64>) {
        if self.running.is_empty() {
            return;
        }
        let (call, mut grant) = self.running.swap_remove(which % self.running.len());
        let was_called_back = self.preempted.remove(&call.number);
        self.answered.remove(&call.number);
        let retries = was_called_back || matches!(how, How::Failed(_));
        if sent {
            grant.sent = true;
        }
        if let Some(tokens) = used.filter(|_| sent) {
            let usage = Usage { input: tokens, ..Usage::default() };
            let cost = 1.0 + tokens as f64 / 50.0;
            self.scheduler.settle(self.now, &mut grant, &Settled { usage, cost });
            self.model.settle(self.now, call.number, &usage);
            if let Some(order) = &mut self.order {
                order.settle(&call, cost);
            }
            self.settle();
        }
        match how {
            How::Accepted => {
                let before = self.state();
                self.scheduler.on_success(self.now, &mut grant);
                self.changes += u64::from(before == CooldownState::Probing && self.state() != before);
            }
            How::Failed(delay) => {
                let (before, (sent, changes)) = (self.state(), self.admitted[&call.number]);
                self.scheduler.on_failure(
                    self.now,
                    &mut grant,
                    call.number,
                    Failure::Other,
                    delay.map(ms),
                    0.5,
                );
                let is_late = changes != self.changes && before != CooldownState::Cooling;
                let from = if is_late { sent } else { self.now };
                self.floor = self.floor.max(from + ms(delay.unwrap_or(0)));
                self.changes +=
                    u64::from(before != CooldownState::Cooling && self.state() == CooldownState::Cooling);
                // A call whose deadline is before the end of the cool-down is refused at once.
                self.settle();
            }
            How::Unjudged => {}
        }
        let outcome = how.outcome();
        if outcome != Ended::Cancelled {
            grant.outcome = outcome;
        }
        let queue_tag = Some(grant.queue_tag());
        self.scheduler.release(self.now, grant);
        self.model.release(self.now, &call, sent, outcome);
        let turned_away = matches!(outcome, Ended::Overloaded | Ended::Limited { .. });
        let slots = self.model.slots();
        let tag =
            self.order.as_mut().map(|order| order.release(self.now, &call, sent && !turned_away, slots));
        self.stand();
        self.settle();
        if retries && again {
            let has_failed = call.ticket.has_failed || matches!(how, How::Failed(None));
            self.arrive(call.tenant, Ticket { queue_tag, has_failed, ..call.ticket }, tag);
        }
    }

    /// Returns the first waiting call of each line (the waiting calls of one tenant in one lane).
    /// Omits the tenants that are at their cap or held.
    fn heads(&self) -> BTreeMap<Line, Call> {
        let mut heads: BTreeMap<Line, Call> = BTreeMap::new();
        for call in self.waiting.values().filter(|call| !self.model.is_barred(call.tenant)) {
            let line = (call.tenant, call.ticket.lane);
            if heads.get(&line).is_none_or(|head| self.key(call) < self.key(head)) {
                heads.insert(line, call.clone());
            }
        }
        heads
    }

    fn moment(&self) -> Moment {
        let free = |call: &&Call| {
            self.model.admits(self.now, call) && self.model.is_back(self.now, call) && !self.excuse(call)
        };
        Moment {
            now: self.now,
            slots: self.model.slots(),
            in_flight: Lane::ALL.map(|lane| self.model.in_lane(lane)),
            heads: self.heads(),
            free: self.waiting.values().filter(free).cloned().collect(),
        }
    }

    /// Updates which tenants are held.
    fn update_held(&mut self) {
        let waiting = |tenant| self.waiting.values().filter(|call| call.tenant == tenant).count();
        self.model.update_held(self.now, std::array::from_fn(waiting));
    }

    /// Updates which tenants are held and the expected order after calls were queued or removed.
    fn stand(&mut self) {
        self.update_held();
        let heads = self.heads();
        if let Some(order) = &mut self.order {
            order.stand(&heads);
            let idle = |lane: &Lane| {
                self.model.in_lane(*lane) == 0 && self.waiting.values().all(|call| call.ticket.lane != *lane)
            };
            order.end_busy_periods(Lane::ALL.into_iter().filter(idle));
        }
    }

    /// Lets time pass in the steps that the scheduler asks for, and checks that nothing becomes due
    /// between them.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut idle = 0;
        loop {
            let wake = self.scheduler.next_wake(self.now);
            assert!(wake.is_none_or(|wake| wake > self.now), "all that is due was done");
            // Who is held is computed again after this time.
            let recheck = self.now + RECHECK_AFTER;
            let may_release = self.model.decreases() && wake.is_some_and(|wake| wake <= recheck);
            match wake.filter(|wake| *wake <= end) {
                Some(wake) => {
                    self.advance((wake - self.now).saturating_sub(model::LATE));
                    assert!(self.settle_early(may_release), "the wake-up was too late");
                    let moved = self.advance(wake - self.now);
                    let state = self.scheduler.view(self.now).state;
                    let done = self.settle();
                    self.check();
                    let is_recheck = may_release && wake == recheck;
                    let useful =
                        moved || is_recheck || done > 0 || state != self.scheduler.view(self.now).state;
                    idle = if useful { 0 } else { idle + 1 };
                    assert!(idle <= 2 + self.model.spare_wakes, "it wakes for nothing");
                }
                None => {
                    self.advance(end - self.now);
                    let due = wake.is_some_and(|wake| wake <= end + model::LATE);
                    assert!(self.settle_early(may_release) || due, "the wake-up was too late");
                    return;
                }
            }
        }
    }

    /// Calls [`Oracle::settle`] although the scheduler asked for nothing now. Returns `true` if no
    /// call left the queue, except because a tenant is no longer held, if `may_release` is `true`:
    /// its use decreases with time.
    fn settle_early(&mut self, may_release: bool) -> bool {
        let held = self.model.held.clone();
        self.update_held();
        let is_released = held.iter().any(|tenant| !self.model.is_held(*tenant));
        self.settle() == 0 || may_release && is_released
    }

    /// Advances the clock by `time` without calling the scheduler. Returns `true` if the adaptive
    /// limit may have changed.
    fn advance(&mut self, time: Duration) -> bool {
        if !self.closed() {
            self.open += time;
        }
        self.now += time;
        self.model.tick(self.now)
    }

    /// Calls the methods that a driver calls after each event, and checks each call that leaves the
    /// queue. Returns how many calls left the queue.
    fn settle(&mut self) -> usize {
        // A latency observed at this moment may make other calls count as late at once, so the
        // limit is updated first.
        self.model.tick(self.now);
        let mut answered = 0;
        let expired = self.scheduler.expired(self.now);
        for (number, refusal) in &expired {
            let call = &self.waiting[number];
            let ahead = |other: &&Call| same_line(other, call) && self.key(other) < self.key(call);
            let position = self.waiting.values().filter(ahead).count();
            // A call is shed by an arrival, before the calls that expire now.
            assert!(refusal.position == position || refusal.reason == Reason::Shed);
            let why = refusal.why.expect("always said");
            assert!(why.since <= why.waited, "{why:?}");
        }
        for (number, refusal) in expired {
            let call = self.waiting.remove(&number).expect("each call leaves once");
            let ticket = &call.ticket;
            match refusal.reason {
                Reason::Draining => assert!(self.draining),
                Reason::Deadline => assert!(ticket.deadline <= self.now),
                Reason::CoolDown | Reason::Outage => assert!(self.cools_past(ticket.deadline)),
                Reason::WaitBudget => assert!(!self.closed() && self.spent(&call)),
                Reason::Shed => assert!(may_be_shed(&call)),
                other => panic!("{other:?} is no reason to leave the queue"),
            }
            answered += 1;
        }
        self.stand();
        while self.running.len() < usize::MAX && answered < self.patience {
            // The state before the next call is charged.
            let under_floor = self.under_floor();
            let admits = |call: &&Call| self.model.admits(self.now, call);
            let could: Vec<_> = self.waiting.values().filter(admits).map(|call| call.number).collect();
            let held_back = self.waiting.values().filter(|call| self.is_held_back(call));
            let held: Vec<_> = held_back.map(|call| call.number).collect();
            let is_probe = self.state() == CooldownState::Probing;
            let keeps_tokens = |head: &&Call| !(is_probe && head.ticket.has_failed);
            let waits_for_tokens = |call: &&Call| {
                let mut heads = self.aged_heads(call).filter(keeps_tokens);
                heads.any(|head| self.model.must_keep_tokens(self.now, head, call))
            };
            let kept_from = self.waiting.values().filter(waits_for_tokens).map(|call| call.number);
            let kept_from: Vec<_> = kept_from.collect();
            let goes = |call: &&Call| {
                let fits = self.model.admits(self.now, call) && self.model.is_back(self.now, call);
                !call.ticket.has_failed && fits && !self.excuse(call)
            };
            let unfailed = self.waiting.values().find(goes).cloned();
            let mut moment = self.moment();
            if is_probe && unfailed.is_some() {
                moment.free.retain(|call| !call.ticket.has_failed);
            }
            let next = self.scheduler.next(self.now);
            self.model.check_held(&self.scheduler);
            let Some((number, grant)) = next else { break };
            let call = self.waiting.remove(&number).expect("each call leaves once");
            assert!(could.contains(&number), "{call:?} had no room");
            assert!(!kept_from.contains(&number), "{call:?} took tokens that are kept");
            let is_last_resort = is_probe && call.ticket.has_failed;
            assert!(!is_last_resort || unfailed.is_none(), "{unfailed:?} has not failed, as {call:?} has");
            assert!(
                is_probe || under_floor.is_none_or(|who| who.is(&call) || who.yields_to(&call)),
                "{under_floor:?} holds less than its floor, and {call:?} went"
            );
            let passed: Vec<_> = self
                .waiting
                .values()
                .filter(|other| same_line(other, &call) && self.key(other) < self.key(&call))
                .filter(|other| !(is_probe && other.ticket.has_failed && !call.ticket.has_failed))
                .collect();
            for other in &passed {
                let may_go = could.contains(&other.number) && !held.contains(&other.number);
                assert!(!may_go, "{other:?} goes before {call:?}");
            }
            let head = passed.iter().min_by_key(|other| self.key(other));
            assert!(head.is_none_or(|head| !self.model.is_aged(self.now, head)), "{head:?} is not overtaken");
            answered += 1;
            if let Some(order) = &self.order {
                order.check(&call, &moment);
            }
            self.admitted(call, grant, &moment, true);
        }
        answered
    }

    /// Preempts calls until none may be preempted any more. Checks for each of them that its slot
    /// is borrowed from slots that are reserved for others, that it is the most recently admitted
    /// one that qualifies, and that a call with reserved slots would use the slot.
    fn call_back(&mut self) {
        let goes = |call: &&Call| self.model.fits(self.now, call);
        let waiting = self.waiting.values().filter(goes).map(|call| (call.tenant, call.ticket.lane));
        let (least, most) = self.model.by_floors(waiting.collect());
        while let Some(id) = self.scheduler.preempt(self.now) {
            let borrowed = self.youngest_lent().expect("nothing was borrowed");
            assert_eq!(borrowed.1, id);
            assert!(self.running.len() == self.model.slots(), "nobody gets that slot");
            self.preempted.insert(borrowed.0);
            assert!(self.preempted.len() <= most, "{:?}, of {most} that could go", self.preempted);
        }
        let waits = self.model.reclaims(self.running.len()) && self.scheduler.is_open() && !self.draining;
        let enough = self.preempted.len() >= least || self.youngest_lent().is_none();
        assert!(!waits || enough, "{:?}, of {least} that would go", self.preempted);
    }

    fn youngest_lent(&self) -> Option<(u64, GrantId)> {
        let unanswered = self.running.iter().filter(|(call, _)| {
            !self.answered.contains(&call.number) && !self.preempted.contains(&call.number)
        });
        let borrowed = unanswered.filter(|(call, _)| self.model.is_lent(call, &self.preempted));
        borrowed.map(|(call, grant)| (call.number, grant.id)).max_by_key(|(_, id)| *id)
    }

    fn admitted(&mut self, call: Call, grant: Box<Grant>, moment: &Moment, has_waited: bool) {
        assert!(self.now >= self.floor, "within a Retry-After");
        self.admitted.insert(call.number, (self.now, self.changes));
        self.model.admit(self.now, &call);
        self.model.tick(self.now);
        if let Some(order) = &mut self.order {
            order.dispatch(&call, moment, has_waited);
        }
        self.running.push((call, grant));
        self.stand();
    }

    fn check(&mut self) {
        let view = self.scheduler.view(self.now);
        assert_eq!((view.in_flight, view.waiting), (self.running.len(), self.waiting.len()));
        for (k, (name, ..)) in TENANTS.iter().enumerate() {
            let waiting = self.waiting.values().filter(|call| call.tenant == k).count();
            let seen = view.tenants.iter().find(|t| &*t.name == *name);
            let (in_flight, of_queue) = seen.map_or((0, 0), |t| (t.in_flight, t.waiting));
            assert_eq!((in_flight, of_queue), (self.model.in_flight(k), waiting), "{name}");
            let debt = seen.map_or(0, |t| t.debt);
            assert!(debt.abs_diff(self.model.debt(self.now, k)) <= 1, "{name} owes {debt}");
        }
        for lane in Lane::ALL {
            let waiting = self.waiting.values().filter(|call| call.ticket.lane == lane).count();
            assert_eq!(view.lanes[lane as usize].waiting, waiting);
            let queue = &self.scheduler.queue;
            let ready = queue.tenants.iter().filter_map(|(_, tenant)| tenant.lines[lane as usize].position);
            let calls: usize = ready.map(|position| position.head.calls).sum();
            assert_eq!(queue.lanes.lane(lane).calls, calls, "calls of ready lines");
        }
        let queue = &self.scheduler.queue;
        for (until, lane, tenant) in &queue.lanes.parked {
            let line = queue.line(*tenant, *lane).expect("the tenant of a parked line");
            assert!(line.parked == Some(*until) && !line.calls.is_empty(), "a parked line has calls");
        }
        assert_eq!(view.limit, self.model.slots());
        self.model.check_limit(self.now, view.adaptive.as_ref());
        self.model.check_levels(self.now);
        assert_eq!(view.gap, Duration::ZERO);
        if let Some(call) = self.stuck() {
            assert_ne!(view.state, CooldownState::Open, "{call} could go");
            assert!(
                self.scheduler.next_wake(self.now).is_some_and(|wake| wake > self.now),
                "{call} could go"
            );
        }
        let numbers: Vec<_> = self.waiting.keys().copied().collect();
        for number in numbers {
            let call = self.waiting[&number].clone();
            assert!(call.ticket.deadline > self.now && !self.draining);
            assert!(self.closed() || !self.spent(&call), "{call:?} has waited long enough");
            assert!(!self.cools_past(call.ticket.deadline), "{call:?} waits in vain");
            let why = self.scheduler.explain(self.now, call.id.expect("queued")).expect("it waits");
            assert!(why.since <= why.waited, "{why:?}");
            self.check_ahead(&call, why.ahead);
            let excused = self.excuse(&call) || !self.model.is_back(self.now, &call);
            let closed = view.state != CooldownState::Open;
            let are_kept = self.may_lack_kept_tokens(&call);
            let is_so = self.model.is_so(self.now, &call, why.rule, closed, excused)
                || (why.rule == Rule::TenantTokens && are_kept);
            assert!(is_so, "{why:?} of {call:?}");
        }
    }

    /// Checks the number of calls that are expected to be dispatched before a waiting call: at
    /// least those of its line that are ahead of it, and at most all of its line and those of its
    /// lane and higher lanes whose tenant is neither at its cap nor held.
    fn check_ahead(&self, call: &Call, ahead: usize) {
        let others = || self.waiting.values().filter(|other| other.number != call.number);
        let in_line = others().filter(|other| same_line(other, call) && self.key(other) < self.key(call));
        let may_go = |other: &&Call| {
            let precedes = other.ticket.lane <= call.ticket.lane;
            same_line(other, call) || (precedes && !self.model.is_barred(other.tenant))
        };
        let (least, most) = (in_line.count(), others().filter(may_go).count());
        assert!((least..=most).contains(&ahead), "{ahead} calls are ahead of {call:?}");
    }

    /// Returns a description of an admissible call that waits although [`Oracle::excuse`] returns
    /// `false` for it. Returns `None` if there is no such call.
    fn stuck(&mut self) -> Option<String> {
        let waiting: Vec<_> = self.waiting.values().cloned().collect();
        let free = |call: &&Call| {
            let fits = self.model.admits(self.now, call) && self.model.is_back(self.now, call);
            fits && !self.excuse(call)
        };
        let stuck = waiting.iter().find(free)?;
        let why = self.scheduler.explain(self.now, stuck.id?);
        Some(format!("{stuck:?}, {why:?}"))
    }

    /// Returns `true` if the call may have to wait although it is admissible, because of a call
    /// that has waited for the ageing time: that call lacks resources that this call would take,
    /// its tenant's own tokens are kept for it, or it is ahead of this call in its line and cannot
    /// be dispatched.
    fn excuse(&self, call: &Call) -> bool {
        self.is_held_back(call)
            || self.may_lack_kept_tokens(call)
            || self.aged_heads(call).any(|head| {
                same_line(head, call) && (!self.model.admits(self.now, head) || self.is_held_back(head))
            })
    }

    fn is_held_back(&self, call: &Call) -> bool {
        self.aged_heads(call).any(|head| {
            self.model.lacks_only_what_is_shared(self.now, head)
                && self.model.is_lacked_and_used(self.now, head, call)
        })
    }

    /// Returns the calls that have waited for the ageing time and are the first of their tenant and
    /// lane, except `call` itself. Later calls of the same tenant and lane may not overtake them.
    fn aged_heads(&self, call: &Call) -> impl Iterator<Item = &Call> {
        let leads = |head: &Call| {
            let before = |other: &Call| same_line(other, head) && self.key(other) < self.key(head);
            !self.waiting.values().any(before)
        };
        let number = call.number;
        self.waiting
            .values()
            .filter(move |head| head.number != number && self.model.is_aged(self.now, head) && leads(head))
    }

    /// Returns the first tenant or lane that has fewer slots than its floor, and a waiting call
    /// that could be dispatched now. Returns `None` if there is none.
    fn under_floor(&self) -> Option<model::Holder> {
        let holders = self.model.below_their_floors();
        holders.into_iter().find(|holder| {
            let goes =
                |call: &&Call| holder.is(call) && self.model.admits(self.now, call) && !self.excuse(call);
            self.waiting.values().any(|call| goes(&call))
        })
    }

    /// Returns `true` if the tenant's own tokens may be kept for an aged call instead of this one.
    fn may_lack_kept_tokens(&self, call: &Call) -> bool {
        self.aged_heads(call).any(|head| self.model.has_tokens_kept(self.now, head, call))
    }

    fn held(&self) -> bool {
        self.scheduler.view(self.now).held_for.is_some()
    }

    fn key(&self, call: &Call) -> (Instant, u64) {
        (self.model.order(call), call.number)
    }

    fn state(&self) -> CooldownState {
        self.scheduler.view(self.now).state
    }

    /// Returns `true` if the target is being probed and `other` must be the probe instead of
    /// `waiting`, because only `waiting` has failed at the target.
    fn is_left_out_for(&self, waiting: &Call, other: &Call) -> bool {
        self.state() == CooldownState::Probing && waiting.ticket.has_failed && !other.ticket.has_failed
    }

    /// Returns `true` if the target is closed: it cools down or is probed, and the next probe does
    /// not only lack a slot.
    fn closed(&self) -> bool {
        let (is_closed, state) = (self.scheduler.capacity.upstream.is_closed(), self.state());
        let lacks_slot = state == CooldownState::Probing && !self.scheduler.capacity.has_slot();
        match state {
            CooldownState::Cooling => assert!(is_closed),
            CooldownState::Probing => assert!(is_closed || lacks_slot),
            CooldownState::Ramping | CooldownState::Open => assert!(!is_closed),
        }
        is_closed
    }

    fn cools_past(&self, deadline: Instant) -> bool {
        self.scheduler.view(self.now).cool_for.is_some_and(|left| self.now + left > deadline)
    }

    fn spent(&self, call: &Call) -> bool {
        call.ticket.wait.is_some_and(|wait| self.open - call.queued_open >= wait)
    }
}

impl How {
    /// Returns the outcome of the attempt that is reported to the adaptive limit.
    fn outcome(self) -> Ended {
        match self {
            How::Accepted => Ended::Completed { output: 10 },
            How::Failed(None) => Ended::Overloaded,
            How::Failed(Some(1_000..)) => Ended::Failed,
            How::Failed(Some(delay)) => Ended::Limited { by_rate: delay >= 500 },
            How::Unjudged => Ended::Cancelled,
        }
    }
}

fn same_line(one: &Call, other: &Call) -> bool {
    one.tenant == other.tenant && one.ticket.lane == other.ticket.lane
}

fn may_be_shed(call: &Call) -> bool {
    call.ticket.queue_tag.is_none() && call.ticket.lane > Lane::Interactive
}

fn event() -> impl Strategy<Value = Event> {
    let how = prop_oneof![
        6 => Just(How::Accepted),
        3 => prop::option::of(1u64..2_000).prop_map(How::Failed),
        1 => Just(How::Unjudged),
    ];
    let used = prop::option::of(1u64..900);
    prop_oneof![
        8 => (0usize..4, 0usize..3, 0u64..9_000, prop::option::weighted(0.3, 0u64..1_500), 0u64..700, prop::bool::weighted(0.8))
            .prop_map(|(tenant, lane, deadline, wait, tokens, streams)| {
                Event::Arrive { tenant, lane, deadline, wait, tokens, streams }
            }),
        4 => any::<usize>().prop_map(|which| Event::Token { which }),
        5 => (any::<usize>(), how, any::<bool>(), prop::bool::weighted(0.8), used)
            .prop_map(|(which, how, again, sent, used)| Event::End { which, how, again, sent, used }),
        1 => any::<usize>().prop_map(|which| Event::Answer { which }),
        2 => any::<usize>().prop_map(|which| Event::Back { which }),
        1 => any::<usize>().prop_map(|which| Event::Leave { which }),
        4 => (0u64..800).prop_map(|ms| Event::Pass { ms }),
        1 => (0usize..6).prop_map(|limit| Event::Limit { limit }),
    ]
}

/// Returns `calls` calls, one after the other, from which a server with an adaptive limit learns
/// its first-token capacity. Their first tokens take `quiet` milliseconds.
fn warm_up(calls: usize, quiet: u64, tokens: u64) -> impl Iterator<Item = Event> {
    let call = move |k| {
        let (tenant, lane) = (2 + k % 2, 1);
        [
            Event::Arrive { tenant, lane, deadline: 60_000, wait: None, tokens, streams: true },
            Event::Pass { ms: quiet },
            Event::Token { which: 0 },
            Event::End { which: 0, how: How::Accepted, again: false, sent: true, used: None },
        ]
    };
    (0..calls).flat_map(call)
}

/// Generates one or more events at a server that tenants share: with bursts, and with long pauses.
fn shared_event() -> impl Strategy<Value = Vec<Event>> {
    let burst = (0usize..4, 0usize..3, 2usize..9, 0u64..700, prop::bool::weighted(0.8)).prop_map(
        |(tenant, lane, calls, tokens, streams)| {
            let wait = None;
            vec![Event::Arrive { tenant, lane, deadline: 60_000, wait, tokens, streams }; calls]
        },
    );
    prop_oneof![
        12 => event().prop_map(|event| vec![event]),
        6 => any::<usize>().prop_map(|which| vec![Event::Token { which }]),
        3 => burst,
        1 => (5_000u64..70_000).prop_map(|ms| vec![Event::Pass { ms }]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn scheduler_agrees_with_the_oracle(events in prop::collection::vec(event(), 1..150), target in model::target()) {
        let mut oracle = Oracle::new(target);
        for event in events {
            oracle.apply(event);
        }
        // Draining refuses all waiting calls, and no call is added.
        oracle.scheduler.drain();
        oracle.draining = true;
        oracle.settle();
        oracle.check();
        prop_assert!(oracle.waiting.is_empty());
        oracle.apply(Event::Arrive { tenant: 0, lane: 0, deadline: 1_000, wait: None, tokens: 1, streams: true });
        while !oracle.running.is_empty() {
            oracle.apply(Event::End { which: 0, how: How::Unjudged, again: false, sent: false, used: None });
        }
    }
    #[test]
    fn as_many_calls_are_preempted_as_floors_can_use(
        events in prop::collection::vec(event(), 1..150),
        target in model::target(),
    ) {
        let mut oracle = Oracle::new(target.lending());
        for event in events {
            oracle.apply(event);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn tenants_are_held_as_the_oracle_expects(
        events in prop::collection::vec(shared_event(), 1..100),
        target in model::target(),
        quiet in 10u64..6_000,
        tokens in 1u64..700,
    ) {
        let mut oracle = Oracle::new(target.shared());
        for event in warm_up(16, quiet, tokens).chain(events.into_iter().flatten()) {
            oracle.apply(event);
        }
    }

    #[test]
    fn single_tenant_is_never_held(
        events in prop::collection::vec(shared_event(), 1..60),
        target in model::target(),
        quiet in 10u64..6_000,
    ) {
        let mut oracle = Oracle::new(target.shared());
        for mut event in warm_up(8, quiet, 100).chain(events.into_iter().flatten()) {
            if let Event::Arrive { tenant, .. } = &mut event {
                *tenant = 2;
            }
            oracle.apply(event);
            let mut tenants = oracle.scheduler.queue.tenants.iter();
            prop_assert!(tenants.all(|(_, tenant)| !tenant.is_held()));
        }
    }
}
