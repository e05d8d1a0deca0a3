//! A second set of books, kept by brute force over everything that waits: whatever happens, in whatever order, the scheduler's answers must agree.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::cooldown::{Failure, State};
use crate::testing::epoch;

/// Tenants with their caps. The fourth is not configured.
const TENANTS: [(&str, usize); 4] = [("a", 1), ("b", 3), ("c", usize::MAX), ("d", usize::MAX)];
const QUEUE: usize = 4;

#[derive(Clone, Debug)]
enum Event {
    Arrive {
        tenant: usize,
        lane: usize,
        deadline: u64,
        wait: Option<u64>,
    },
    /// An attempt ends. Where it failed, its call may come again.
    End {
        which: usize,
        how: How,
        again: bool,
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
    /// The oracle's clock of open time when it was queued.
    queued_open: Duration,
}

struct Books {
    scheduler: Scheduler<u64>,
    now: Instant,
    limit: usize,
    waiting: BTreeMap<u64, Call>,
    running: Vec<(Call, Grant)>,
    numbers: u64,
    /// Time that the target was open, by the state that it showed over each stretch.
    open: Duration,
    /// No attempt goes before this moment: every Retry-After so far.
    floor: Instant,
    left: usize,
    draining: bool,
}

impl Books {
    fn new(limit: usize, aging: u64, on_full: OnFull) -> Self {
        let mut settings = Settings { queue: QUEUE, aging: ms(aging), on_full, ..settings(limit) };
        for (name, cap) in &TENANTS[..3] {
            named(&mut settings, name, 1.0, (*cap < usize::MAX).then_some(*cap));
        }
        let now = epoch();
        Self {
            scheduler: Scheduler::new(&settings, now),
            now,
            limit,
            waiting: BTreeMap::new(),
            running: Vec::new(),
            numbers: 0,
            open: Duration::ZERO,
            floor: now,
            left: 0,
            draining: false,
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Arrive { tenant, lane, deadline, wait } => {
                let mut ticket = ticket(TENANTS[tenant].0, Lane::ALL[lane], self.now);
                ticket.deadline = self.now + ms(deadline);
                ticket.wait = wait.map(ms);
                self.arrive(tenant, ticket);
            }
            Event::End { which, how, again } => self.end(which, how, again),
            Event::Leave { which } => {
                let Some(number) = self.waiting.keys().nth(which % self.waiting.len().max(1)).copied() else {
                    return;
                };
                let call = self.waiting.remove(&number).expect("just seen");
                let id = call.id.expect("queued");
                assert!(self.scheduler.withdraw(id));
                assert!(!self.scheduler.withdraw(id), "once");
                self.left += 1;
            }
            Event::Pass { ms: time } => self.pass(ms(time)),
            Event::Limit { limit } => {
                self.limit = limit;
                self.scheduler.set_limit(limit);
            }
        }
        self.settle();
        self.check();
    }

    fn arrive(&mut self, tenant: usize, ticket: Ticket) {
        self.numbers += 1;
        let mut call = Call { number: self.numbers, tenant, ticket, id: None, queued_open: self.open };
        let before = self.waiting_of(tenant);
        let admissible = self.has_room(tenant);
        match self.scheduler.try_admit(self.now, &call.ticket) {
            Ok(Some(grant)) => {
                assert!(admissible && self.now < call.ticket.deadline && !self.draining);
                assert!(
                    self.waiting.values().all(|other| !self.has_room(other.tenant)),
                    "it overtook one that could go"
                );
                self.admitted(call, grant);
            }
            Ok(None) => {
                assert!(before < QUEUE || call.ticket.charged.is_some(), "the bound holds for new calls");
                call.id = Some(self.scheduler.enqueue(self.now, call.ticket.clone(), call.number));
                self.waiting.insert(call.number, call);
            }
            Err(refusal) => {
                assert_eq!(refusal.position, before);
                match refusal.reason {
                    Reason::QueueFull => assert!(before >= QUEUE && call.ticket.charged.is_none()),
                    Reason::Deadline => assert!(call.ticket.deadline <= self.now),
                    Reason::CoolDown | Reason::Outage => assert!(
                        self.cools_past(call.ticket.deadline) || self.floor > self.now || self.closed()
                    ),
                    Reason::NoSlot => assert!(call.ticket.charged.is_none()),
                    Reason::Draining => assert!(self.draining),
                    other => panic!("{other:?} is no reason at the door"),
                }
            }
        }
    }

    fn end(&mut self, which: usize, how: How, again: bool) {
        if self.running.is_empty() {
            return;
        }
        let (call, mut grant) = self.running.swap_remove(which % self.running.len());
        match how {
            How::Accepted => self.scheduler.succeeded(self.now, &mut grant),
            How::Failed(delay) => {
                self.scheduler.failed(self.now, &mut grant, call.number, Failure::Other, delay.map(ms), 0.5);
                self.floor = self.floor.max(self.now + ms(delay.unwrap_or(0)));
                // Whoever cannot outlast the cool-down is told at once.
                self.settle();
            }
            How::Unjudged => {}
        }
        let charged = Some(grant.charged());
        self.scheduler.release(self.now, grant);
        self.settle();
        if matches!(how, How::Failed(_)) && again {
            self.arrive(call.tenant, Ticket { charged, ..call.ticket });
        }
    }

    /// Time passes, in the strides that the scheduler asks for. Between them nothing may come due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut idle = 0;
        loop {
            let wake = self.scheduler.next_wake(self.now);
            assert!(wake.is_none_or(|wake| wake > self.now), "all that is due was done");
            match wake.filter(|wake| *wake <= end) {
                Some(wake) => {
                    self.advance((wake - self.now) / 2);
                    assert_eq!(self.settle(), 0, "the wake-up was too late");
                    self.advance(wake - self.now);
                    let state = self.scheduler.view(self.now).state;
                    let done = self.settle();
                    self.check();
                    idle =
                        if done > 0 || state != self.scheduler.view(self.now).state { 0 } else { idle + 1 };
                    assert!(idle <= 2, "it wakes for nothing");
                }
                None => {
                    self.advance(end - self.now);
                    if wake != Some(end) {
                        assert_eq!(self.settle(), 0, "the wake-up was too late");
                    }
                    return;
                }
            }
        }
    }

    fn advance(&mut self, time: Duration) {
        if !self.closed() {
            self.open += time;
        }
        self.now += time;
    }

    /// What every driver does after every event. How many calls left the queue.
    fn settle(&mut self) -> usize {
        let mut answered = 0;
        let expired = self.scheduler.expired(self.now);
        for (number, refusal) in &expired {
            let call = &self.waiting[number];
            let ahead = |other: &&Call| same_line(other, call) && age(other) < age(call);
            assert_eq!(refusal.position, self.waiting.values().filter(ahead).count());
        }
        for (number, refusal) in expired {
            let call = self.waiting.remove(&number).expect("each call leaves once");
            let ticket = &call.ticket;
            match refusal.reason {
                Reason::Draining => assert!(self.draining),
                Reason::Deadline => assert!(ticket.deadline <= self.now),
                Reason::CoolDown | Reason::Outage => assert!(self.cools_past(ticket.deadline)),
                Reason::WaitBudget => assert!(!self.closed() && self.spent(&call)),
                other => panic!("{other:?} is no reason to leave the queue"),
            }
            self.left += 1;
            answered += 1;
        }
        loop {
            let before = self.running.len();
            let Some((number, grant)) = self.scheduler.next(self.now) else { break };
            let call = self.waiting.remove(&number).expect("each call leaves once");
            assert!(before < self.limit, "over the limit");
            assert!(self.has_room(call.tenant), "over the tenant's cap");
            let older =
                self.waiting.values().find(|other| same_line(other, &call) && age(other) < age(&call));
            assert!(older.is_none(), "{older:?} is older than {call:?}");
            self.left += 1;
            answered += 1;
            self.admitted(call, grant);
        }
        answered
    }

    fn admitted(&mut self, call: Call, grant: Grant) {
        assert!(self.now >= self.floor, "within a Retry-After");
        self.running.push((call, grant));
    }

    fn check(&mut self) {
        let view = self.scheduler.view(self.now);
        assert_eq!((view.in_flight, view.waiting), (self.running.len(), self.waiting.len()));
        for (k, (name, _)) in TENANTS.iter().enumerate() {
            let (in_flight, waiting) =
                view.tenants.iter().find(|t| &*t.name == *name).map_or((0, 0), |t| (t.in_flight, t.waiting));
            assert_eq!((in_flight, waiting), (self.running_of(k), self.waiting_of(k)), "{name}");
        }
        assert_eq!(view.gap, Duration::ZERO);
        let stuck = self.waiting.values().find(|call| self.has_room(call.tenant));
        if let Some(call) = stuck {
            assert_ne!(view.state, State::Open, "{call:?} could go");
            assert!(
                self.scheduler.next_wake(self.now).is_some_and(|wake| wake > self.now),
                "{call:?} could go"
            );
        }
        for call in self.waiting.values() {
            assert!(call.ticket.deadline > self.now && !self.draining);
            assert!(self.closed() || !self.spent(call), "{call:?} has waited long enough");
            assert!(!self.cools_past(call.ticket.deadline), "{call:?} waits in vain");
        }
    }

    fn has_room(&self, tenant: usize) -> bool {
        self.running.len() < self.limit && self.running_of(tenant) < TENANTS[tenant].1
    }

    fn running_of(&self, tenant: usize) -> usize {
        self.running.iter().filter(|(call, _)| call.tenant == tenant).count()
    }

    fn waiting_of(&self, tenant: usize) -> usize {
        self.waiting.values().filter(|call| call.tenant == tenant).count()
    }

    fn closed(&self) -> bool {
        matches!(self.scheduler.view(self.now).state, State::Cooling | State::Probing)
    }

    fn cools_past(&self, deadline: Instant) -> bool {
        self.scheduler.view(self.now).cool_for.is_some_and(|left| self.now + left > deadline)
    }

    fn spent(&self, call: &Call) -> bool {
        call.ticket.wait.is_some_and(|wait| self.open - call.queued_open >= wait)
    }
}

fn age(call: &Call) -> (Instant, u64) {
    (call.ticket.queued_at, call.number)
}

fn same_line(one: &Call, other: &Call) -> bool {
    one.tenant == other.tenant && one.ticket.lane == other.ticket.lane
}

fn event() -> impl Strategy<Value = Event> {
    let how = prop_oneof![
        4 => Just(How::Accepted),
        3 => prop::option::of(1u64..2_000).prop_map(How::Failed),
        1 => Just(How::Unjudged),
    ];
    prop_oneof![
        8 => (0usize..4, 0usize..3, 0u64..6_000, prop::option::of(0u64..1_500))
            .prop_map(|(tenant, lane, deadline, wait)| Event::Arrive { tenant, lane, deadline, wait }),
        5 => (any::<usize>(), how, any::<bool>()).prop_map(|(which, how, again)| Event::End { which, how, again }),
        1 => any::<usize>().prop_map(|which| Event::Leave { which }),
        4 => (0u64..800).prop_map(|ms| Event::Pass { ms }),
        1 => (0usize..6).prop_map(|limit| Event::Limit { limit }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_books_agree(
        events in prop::collection::vec(event(), 1..150), limit in 1usize..6, aging in 0u64..500, refuse in prop::bool::weighted(0.15),
    ) {
        let mut books = Books::new(limit, aging, if refuse { OnFull::Refuse } else { OnFull::Wait });
        for event in events {
            books.apply(event);
        }
        // Draining refuses all that wait, and nothing comes in any more.
        books.scheduler.drain();
        books.draining = true;
        books.settle();
        books.check();
        prop_assert!(books.waiting.is_empty());
        books.apply(Event::Arrive { tenant: 0, lane: 0, deadline: 1_000, wait: None });
        while !books.running.is_empty() {
            books.apply(Event::End { which: 0, how: How::Unjudged, again: false });
        }
    }
}
