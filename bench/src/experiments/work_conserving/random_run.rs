//! Simulates one scenario of random events. After each event, it makes the same calls to the
//! scheduler as the gate, and checks the waiting calls.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use tidegate::Lane;
use tidegate::policy::budget::RateBudgets;
use tidegate::policy::cooldown::{CooldownState, Failure};
use tidegate::policy::fairness::Tag;
use tidegate::policy::kv::Kv;
use tidegate::policy::schedule::{
    Grant, GrantId, Resources, Scheduler, SchedulerSettings, Settled, Ticket, WaiterId,
};
use tidegate::protocol::Usage;
use tidegate::tokens::Demand;

use super::admission_check::{Accounts, Call, RULES};
use super::random_configuration::{NAMES, Scene};
use crate::virtual_time;

const EVENTS: usize = 300;
/// The mean time between two events, in seconds. A scenario takes less than a minute.
const PAUSE: f64 = 0.12;
/// The delay, in seconds, with which a waiting call may be dispatched after it could have been,
/// because timers are not exact.
const LATE: f64 = 1e-3;
/// The time in seconds after a cool-down in which the target may still be recovering from it.
const WAY_BACK: f64 = 12.0;

/// A deliberate defect in the code that calls the scheduler. The runs with a defect show that the
/// check finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// No defect.
    No,
    /// At most one call is dispatched after each event.
    OneDispatch,
    /// Dispatching stops at the first queue whose first call does not fit.
    StopsAtMisfit,
}

/// The counts and times of a scenario. Times are in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// Time in which calls waited.
    pub(super) waiting: f64,
    /// Time in which a waiting call could have been dispatched and was not.
    pub(super) gap: f64,
    /// Time in which a call that fits was kept waiting for an aged call.
    pub(super) held: f64,
    /// Time in which calls waited while the target was closed: a cool-down, or the recovery from
    /// it, limited all calls.
    pub(super) closed: f64,
    /// For each of [`RULES`], the time in which this rule kept the oldest waiting call from being
    /// dispatched.
    pub(super) bound: [f64; RULES.len()],
    pub(super) dispatched: usize,
    /// The number of calls that were dispatched against a rule.
    pub(super) overstepped: usize,
    /// The number of times that the target was closed although the last cool-down and the recovery
    /// from it had to be over.
    pub(super) closed_for_nothing: usize,
    pub(super) overtook: usize,
    pub(super) shed: usize,
    pub(super) refused: usize,
    pub(super) expired: usize,
    pub(super) retried: usize,
    pub(super) reclaimed: usize,
    pub(super) cooled: usize,
}

/// A running call: its grant (the scheduler's record of its slot), whether it was sent upstream,
/// and the ticket with which it was queued.
struct Held {
    grant: Box<Grant>,
    sent: bool,
    ticket: Ticket,
}

pub(super) struct Play {
    seed: u64,
    scene: Scene,
    lazy: Defect,
    rng: Rng,
    scheduler: Scheduler<u64>,
    accounts: Accounts,
    began: Instant,
    now: f64,
    numbers: u64,
    queued: HashMap<u64, (WaiterId, Ticket)>,
    held: HashMap<u64, Held>,
    /// The time, in seconds since the start of the run, by which the last cool-down and the
    /// recovery from it must be over.
    troubled: f64,
    found: Found,
}

impl Play {
    pub(super) fn new(seed: u64, lazy: Defect) -> Self {
        let mut rng = Rng::with_seed(seed);
        let scene = Scene::draw(&mut rng);
        let began = virtual_time::time_origin();
        let mut settings = SchedulerSettings::from(&scene.target);
        if lazy == Defect::StopsAtMisfit {
            settings.aging = Duration::ZERO;
        }
        let resources = Resources {
            budgets: Arc::new(Mutex::new(RateBudgets::new(&scene.target.rates, began))),
            kv: scene.target.kv_tokens.map(|tokens| Kv::new(tokens, scene.target.kv_headroom)),
        };
        Self {
            accounts: Accounts::new(&scene),
            scheduler: Scheduler::with(&settings, resources, began),
            seed,
            scene,
            lazy,
            rng,
            began,
            now: 0.0,
            numbers: 0,
            queued: HashMap::new(),
            held: HashMap::new(),
            troubled: 0.0,
            found: Found::default(),
        }
    }

    pub(super) fn run(mut self) -> Found {
        for _ in 0..EVENTS {
            let pause = -self.rng.f64().max(1e-9).ln() * PAUSE;
            self.pass(self.now + pause.min(5.0 * PAUSE));
            self.event();
            self.settle();
        }
        self.found
    }

    fn at(&self) -> Instant {
        self.began + Duration::from_secs_f64(self.now)
    }

    fn event(&mut self) {
        if self.rng.u32(..10_000) < self.scene.trouble {
            return self.fail();
        }
        match self.rng.u8(..100) {
            0..=44 => (0..self.rng.usize(1..=4)).for_each(|_| self.arrive()),
            45..=88 => (0..self.rng.usize(1..=3)).for_each(|_| self.end()),
            89..=95 => self.leave(),
            _ => {
                self.accounts.limit = self.rng.usize(1..=self.scene.target.cap + 4);
                self.scheduler.set_limit(self.accounts.limit);
            }
        }
    }

    fn arrive(&mut self) {
        let now = self.at();
        let size = |rng: &mut Rng, most: u64| ((most as f64).powf(rng.f64()) as u64).max(1);
        let input = size(&mut self.rng, self.scene.largest);
        let output = size(&mut self.rng, self.scene.largest / 4);
        let max_output = self.rng.bool().then(|| output * self.rng.u64(1..=4));
        let tenant = self.rng.usize(..self.scene.tenants);
        let wait = self.rng.bool().then(|| Duration::from_millis(self.rng.u64(500..=10_000)));
        let ticket = Ticket {
            lane: self.rng.choice(Lane::ALL).unwrap_or_default(),
            wait,
            demand: Demand { input, output, max_output, exact: true, ..Demand::default() },
            cost: (input + output) as f64,
            ..Ticket::new(
                NAMES.get(tenant).copied().unwrap_or_default().into(),
                now,
                now + Duration::from_millis(self.rng.u64(1_000..=30_000)),
            )
        };
        self.ask(ticket);
    }

    fn ask(&mut self, ticket: Ticket) {
        let now = self.at();
        self.numbers += 1;
        let number = self.numbers;
        let Some(call) = self.call(number, &ticket) else { return };
        match self.scheduler.try_admit(now, &ticket) {
            Ok(Some(grant)) => {
                self.found.overtook += usize::from(!self.accounts.waiting.is_empty());
                self.admitted(number, call, ticket, grant);
            }
            Ok(None) => {
                let id = self.scheduler.enqueue(now, ticket.clone(), number);
                self.accounts.waiting.insert(number, call);
                self.queued.insert(number, (id, ticket));
            }
            Err(_) => self.found.refused += 1,
        }
    }

    fn call(&self, number: u64, ticket: &Ticket) -> Option<Call> {
        let queued = (ticket.queued_at - self.began).as_secs_f64();
        let bias = self.scene.target.short_bias.unwrap_or_default().as_secs_f64();
        let place = queued + bias * ticket.demand.total() as f64 / 1_000.0;
        Some(Call {
            tenant: NAMES.iter().position(|name| *name == &*ticket.tenant)?,
            lane: ticket.lane as usize,
            demand: ticket.demand,
            queued,
            deadline: (ticket.deadline - self.began).as_secs_f64(),
            place: (place, number),
        })
    }

    fn admitted(&mut self, number: u64, call: Call, ticket: Ticket, mut grant: Box<Grant>) {
        if let Some(rule) = self.accounts.violated_rule(self.now, &call) {
            self.found.overstepped += 1;
            if self.lazy == Defect::No {
                let rule = RULES.get(rule).copied().unwrap_or_default();
                eprintln!("scenario {}: {rule} overstepped at {:.3} by {call:?}", self.seed, self.now);
            }
        }
        self.accounts.admit(self.now, number, call);
        self.found.dispatched += 1;
        // Some callers leave before anything is sent.
        let sent = self.rng.u8(..8) > 0;
        if sent {
            grant.sent = true;
        }
        self.held.insert(number, Held { grant, sent, ticket });
    }

    /// Returns the number of a random call in flight, or `None` if no call is in flight.
    fn one(&mut self) -> Option<u64> {
        let count = self.accounts.running.len();
        let nth = if count > 0 { self.rng.usize(..count) } else { return None };
        self.accounts.running.keys().nth(nth).copied()
    }

    fn end(&mut self) {
        let Some(number) = self.one() else { return };
        let Some(mut held) = self.held.remove(&number) else { return };
        let now = self.at();
        if held.sent && self.rng.u8(..5) > 0 {
            // A factor from a third to three.
            let truly =
                |rng: &mut Rng, guess: u64| ((guess as f64 * (rng.f64() * 2.2 - 1.1).exp()) as u64).max(1);
            let demand = held.ticket.demand;
            let usage = Usage {
                input: truly(&mut self.rng, demand.input),
                output: truly(&mut self.rng, demand.output).min(demand.max_output.unwrap_or(u64::MAX)),
                cached_input: 0,
            };
            self.accounts.settle(self.now, number, &usage);
            let cost = (usage.input + usage.output) as f64;
            self.scheduler.settle(now, &mut held.grant, &Settled { usage, cost });
        }
        if held.sent && self.rng.u8(..4) > 0 {
            self.scheduler.on_response_head(&mut held.grant);
            self.scheduler.on_success(now, &mut held.grant);
        } else if self.scheduler.view(now).state == CooldownState::Probing {
            // A probe that ends without a result is followed by another one.
            self.troubled = self.troubled.max(self.now + WAY_BACK);
        }
        self.accounts.end(self.now, number, held.sent);
        self.scheduler.release(now, held.grant);
    }

    /// Lets a random call in flight fail with a 429 and a Retry-After, which starts a cool-down.
    /// Then retries the call, which the scheduler may reject.
    fn fail(&mut self) {
        let Some(number) = self.one() else { return };
        let Some(mut held) = self.held.remove(&number) else { return };
        let now = self.at();
        let delay = 0.05 + self.rng.f64();
        let failure = Some(Duration::from_secs_f64(delay));
        self.scheduler.on_failure(now, &mut held.grant, number, Failure::Other, failure, self.rng.f64());
        self.troubled = self.troubled.max(self.now + 2.0 * delay + WAY_BACK);
        self.found.cooled += 1;
        let queue_tag = held.grant.queue_tag();
        self.accounts.end(self.now, number, held.sent);
        self.scheduler.release(now, held.grant);
        self.again(held.ticket, queue_tag);
    }

    fn again(&mut self, ticket: Ticket, queue_tag: Tag) {
        self.settle();
        self.found.retried += 1;
        self.ask(Ticket { queue_tag: Some(queue_tag), ..ticket });
    }

    fn leave(&mut self) {
        let count = self.accounts.waiting.len();
        let nth = if count > 0 { self.rng.usize(..count) } else { return };
        let Some(number) = self.accounts.waiting.keys().nth(nth).copied() else { return };
        self.accounts.waiting.remove(&number);
        if let Some((id, _)) = self.queued.remove(&number) {
            self.scheduler.withdraw(id);
        }
    }

    /// Makes the calls to the scheduler that the gate makes after an event: expires and dispatches
    /// waiting calls.
    fn settle(&mut self) {
        let now = self.at();
        for (number, refusal) in self.scheduler.expired(now) {
            match refusal.reason {
                tidegate::Reason::Shed => self.found.shed += 1,
                _ => self.found.expired += 1,
            }
            self.accounts.waiting.remove(&number);
            self.queued.remove(&number);
        }
        while let Some((number, grant)) = self.scheduler.next(now) {
            let Some(call) = self.accounts.waiting.get(&number).copied() else { continue };
            let Some((_, ticket)) = self.queued.remove(&number) else { continue };
            let overtaken = self.accounts.waiting.values().any(|other| {
                (other.tenant, other.lane) == (call.tenant, call.lane) && other.place < call.place
            });
            self.found.overtook += usize::from(overtaken);
            self.admitted(number, call, ticket, grant);
            if self.lazy == Defect::OneDispatch {
                return;
            }
        }
        if let Some(lent) = self.scheduler.preempt(now) {
            self.preempt(lent);
            self.settle();
        }
    }

    /// Cancels the call with the grant `lent`, which borrowed a reserved slot, and queues it again.
    fn preempt(&mut self, lent: GrantId) {
        let Some(number) = self.held.iter().find(|(_, held)| held.grant.id == lent).map(|(n, _)| *n) else {
            return;
        };
        let Some(held) = self.held.remove(&number) else { return };
        self.found.reclaimed += 1;
        let queue_tag = held.grant.queue_tag();
        self.accounts.end(self.now, number, held.sent);
        self.scheduler.release(self.at(), held.grant);
        self.again(held.ticket, queue_tag);
    }

    /// Advances the time to `until`, in the steps that the scheduler's timers require.
    fn pass(&mut self, until: f64) {
        loop {
            let now = self.at();
            let wake = self.scheduler.next_wake(now).filter(|wake| *wake > now);
            let wake = wake.map(|wake| (wake - self.began).as_secs_f64()).filter(|wake| *wake < until);
            self.check_waiting(wake.unwrap_or(until));
            self.now = wake.unwrap_or(until);
            if wake.is_none() {
                return;
            }
            self.settle();
        }
    }

    /// Adds the time until `until`, a period without events, to the times in `found`, by checking
    /// for each waiting call whether it could have been dispatched.
    fn check_waiting(&mut self, until: f64) {
        if self.accounts.waiting.is_empty() {
            return;
        }
        let passes = until - self.now;
        self.found.waiting += passes;
        let oldest = self.accounts.waiting.values().next();
        let rule = oldest.and_then(|call| self.accounts.violated_rule(self.now, call));
        if let Some(bound) = rule.and_then(|rule| self.found.bound.get_mut(rule)) {
            *bound += passes;
        }
        if self.scheduler.view(self.at()).state != CooldownState::Open {
            self.found.closed += passes;
            self.found.closed_for_nothing += usize::from(self.now > self.troubled);
            return;
        }
        let (mut gap, mut held) = (0.0f64, 0.0f64);
        for (number, call) in &self.accounts.waiting {
            let Some(ready) = self.accounts.ready(self.now, call) else { continue };
            let from = ready.max(self.now) + LATE;
            if from >= until {
                continue;
            }
            if self.accounts.is_held(from, *number, call) {
                held = held.max(until - from);
            } else {
                if self.lazy == Defect::No && gap == 0.0 {
                    eprintln!("scenario {}: from {from:.4} to {until:.4} it could go: {call:?}", self.seed);
                }
                gap = gap.max(until - from);
            }
        }
        self.found.gap += gap;
        self.found.held += held;
    }
}
