//! Tests of ageing between lanes: a lane goes *early*, that is, before higher lanes, once its
//! oldest call has waited long enough to raise it to the highest lane with waiting calls.
//!
//! With one slot and service times of `s`, a raised lane goes early once in `8 * s`, or up to two
//! service times later: another call may have the slot, and the other lower lane may go early
//! first. Inside the lane, a call with `p` older calls of its tenant, among `n` tenants of equal
//! weight, is dispatched within `(p + 1) * n` of the lane's dispatches. A batch call is therefore
//! served within `2 * aging + 10 * (p + 1) * n * s + s`.

use proptest::prelude::*;

use super::*;
use crate::testing::epoch;

const SERVICE: Duration = Duration::from_millis(10);

/// A scheduler with one slot that serves one call after the other. New calls of five tenants always
/// wait in the lanes `floods`.
struct Counter {
    scheduler: Scheduler<(Lane, Arc<str>, Instant)>,
    now: Instant,
    floods: Vec<Lane>,
    held: Option<Box<Grant>>,
}

impl Counter {
    fn new(aging: Duration, floods: &[Lane]) -> Self {
        let now = epoch();
        let scheduler = Scheduler::new(&SchedulerSettings { aging, ..settings(0) }, now);
        let mut counter = Self { scheduler, now, floods: floods.to_vec(), held: None };
        counter.flood();
        counter
    }

    fn queue(&mut self, tenant: &str, lane: Lane, queued_at: Instant) {
        let ticket = Ticket { queued_at, ..ticket(tenant, lane, self.now) };
        self.scheduler.enqueue(self.now, ticket.clone(), (lane, ticket.tenant, queued_at));
    }

    fn flood(&mut self) {
        for lane in self.floods.clone() {
            for tenant in ["v", "w", "x", "y", "z"] {
                self.queue(tenant, lane, self.now);
            }
        }
    }

    /// Ends the call in flight after [`SERVICE`], queues five new calls in each lane of `floods`,
    /// and dispatches the next call. Returns its lane, its tenant, and when it was queued.
    fn serve(&mut self) -> (Lane, Arc<str>, Instant) {
        self.scheduler.set_limit(1);
        if let Some(grant) = self.held.take() {
            self.now += SERVICE;
            self.scheduler.release(self.now, grant);
        }
        self.flood();
        let (who, mut grant) = self.scheduler.next(self.now).expect("work");
        grant.sent = true;
        assert!(self.scheduler.next(self.now).is_none());
        self.held = Some(grant);
        who
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn flood_of_urgent_calls_never_starves_batch_calls(
        aging in 20u64..200, both in any::<bool>(), tenants in 1usize..4, deep in 1usize..6,
    ) {
        let aging = ms(aging);
        let floods = if both { &[Lane::Interactive, Lane::Standard][..] } else { &[Lane::Interactive] };
        let mut counter = Counter::new(aging, floods);
        let begin = counter.now;
        for _ in 0..deep {
            for tenant in ["a", "b", "c"].iter().take(tenants) {
                counter.queue(tenant, Lane::Batch, begin);
            }
        }
        let mut served = 0;
        let bound = 2 * aging + 10 * (deep * tenants) as u32 * SERVICE + SERVICE;
        while counter.now <= begin + bound {
            served += usize::from(counter.serve().0 == Lane::Batch);
        }
        prop_assert_eq!(served, deep * tenants, "within {:?}", bound);
    }
}

#[test]
fn without_ageing_lanes_are_strict() {
    let mut counter = Counter::new(Duration::ZERO, &[Lane::Interactive]);
    counter.queue("a", Lane::Batch, counter.now);
    counter.queue("a", Lane::Standard, counter.now);
    assert!((0..500).all(|_| counter.serve().0 == Lane::Interactive));
}

/// A new call of a higher lane waits for at most one call of each lower lane, however old and long
/// the queues of the lower lanes are.
#[test]
fn aged_backlog_does_not_block_higher_lanes() {
    for (fresh, old) in [
        (Lane::Interactive, &[Lane::Batch][..]),
        (Lane::Standard, &[Lane::Batch]),
        (Lane::Interactive, &[Lane::Standard, Lane::Batch]),
    ] {
        let mut counter = Counter::new(ms(1000), &[]);
        let long_ago = counter.now;
        counter.now += Duration::from_secs(100);
        for lane in old {
            (0..500).for_each(|_| counter.queue("old", *lane, long_ago));
        }
        (0..20).for_each(|_| drop(counter.serve()));
        for _ in 0..20 {
            counter.queue("new", fresh, counter.now);
            let place = (0..).position(|_| &*counter.serve().1 == "new").expect("endless");
            assert!(place <= old.len(), "{fresh:?} went after {place} of {old:?}");
        }
    }
}

/// At most one of the old waiting calls of a tenant is dispatched before a new call of another
/// tenant in the same lane.
#[test]
fn aged_backlog_does_not_affect_fairness_inside_its_lane() {
    let mut counter = Counter::new(ms(100), &[]);
    let long_ago = counter.now;
    counter.now += Duration::from_secs(100);
    (0..500).for_each(|_| counter.queue("noisy", Lane::Standard, long_ago));
    (0..20).for_each(|_| drop(counter.serve()));
    for _ in 0..20 {
        counter.queue("quiet", Lane::Standard, counter.now);
        let place = (0..).position(|_| &*counter.serve().1 == "quiet").expect("endless");
        assert!(place <= 1, "after {place} of the noisy one's");
    }
}

/// The waits of the interactive calls in one simulation.
struct Urgent {
    /// The waits in milliseconds, in ascending order.
    waits: Vec<u64>,
    /// The number of interactive calls that still wait at the end.
    left: usize,
}

impl Urgent {
    fn percentile(&self, percent: usize) -> u64 {
        self.waits[self.waits.len() * percent / 100]
    }
}

/// Simulates ten minutes of two interactive calls per second, of 200 tokens and two seconds each.
/// After 30 s, 1,000 batch calls of `batch_tokens` tokens and `batch_service` milliseconds each
/// arrive. Returns the waits of the interactive calls.
fn play_urgent_beside_old_batch(
    mut scheduler: Scheduler<(Lane, u64)>,
    batch_tokens: u64,
    batch_service: u64,
) -> Urgent {
    let began = epoch();
    let (mut held, mut waits, mut came) = (Vec::<(u64, Box<Grant>)>::new(), Vec::new(), 0);
    for t in (0..600_000).step_by(100) {
        let now = began + ms(t);
        while let Some(over) = held.iter().position(|(ends, _)| *ends <= t) {
            let (_, mut grant) = held.swap_remove(over);
            grant.sent = true;
            scheduler.release(now, grant);
        }
        let mut arrivals = vec![];
        if t % 500 == 0 {
            arrivals.push(Lane::Interactive);
            came += 1;
        }
        if t == 30_000 {
            arrivals.resize(1001, Lane::Batch);
        }
        for lane in arrivals {
            let (tenant, tokens) = if lane == Lane::Batch { ("b", batch_tokens) } else { ("u", 200) };
            let mut asked = Ticket { cost: tokens as f64, ..ticket(tenant, lane, now) };
            asked.demand.input = tokens;
            asked.demand.exact = true;
            scheduler.enqueue(now, asked, (lane, t));
        }
        while let Some(((lane, at), grant)) = scheduler.next(now) {
            waits.extend((lane == Lane::Interactive).then_some(t - at));
            held.push((t + if lane == Lane::Batch { batch_service } else { 2_000 }, grant));
        }
    }
    waits.sort_unstable();
    Urgent { left: came - waits.len(), waits }
}

/// Batch calls take a minute. Interactive calls take two seconds and need 4 of the 16 slots, which
/// old batch calls must not occupy.
#[test]
fn old_batch_calls_leave_slots_for_urgent_calls() {
    let scheduler =
        Scheduler::new(&SchedulerSettings { aging: Duration::from_secs(30), ..settings(16) }, epoch());
    let urgent = play_urgent_beside_old_batch(scheduler, 6_000, 60_000);
    assert_eq!(urgent.left, 0);
    assert!(urgent.percentile(99) <= 1_000, "p99 {} ms", urgent.percentile(99));
}

/// Slots are free, but there are only 1,000 tokens per second, of which interactive calls need 400.
/// Some interactive calls have to wait until there are enough tokens for a batch call.
#[test]
fn old_batch_calls_leave_tokens_for_urgent_calls() {
    let rates = tidegate_config::RateConfig { tpm: Some(60_000), ..Default::default() };
    let budgets = Arc::new(parking_lot::Mutex::new(crate::budget::RateBudgets::new(&rates, epoch())));
    let settings = SchedulerSettings { aging: Duration::from_secs(30), ..settings(256) };
    let scheduler = Scheduler::with(&settings, Resources { budgets, kv: None }, epoch());
    let urgent = play_urgent_beside_old_batch(scheduler, 500, 2_000);
    assert_eq!(urgent.left, 0);
    assert!(urgent.percentile(99) <= 5_000, "p99 {} ms", urgent.percentile(99));
}

/// Calls always wait in both lanes: batch calls that take ten seconds, and interactive calls that
/// take one second. On average, batch calls use about an eighth of the slots.
#[test]
fn raised_lane_holds_an_eighth_of_the_slots() {
    for slots in [1, 2, 3, 5, 8, 15, 16, 32] {
        let began = epoch();
        let settings = SchedulerSettings { aging: Duration::from_secs(1), ..settings(slots) };
        let mut scheduler = Scheduler::new(&settings, began);
        let queue = |scheduler: &mut Scheduler<Lane>, lane, now| {
            scheduler.enqueue(now, ticket("a", lane, now), lane);
        };
        for lane in [Lane::Interactive, Lane::Batch] {
            (0..2 * slots).for_each(|_| queue(&mut scheduler, lane, began));
        }
        let (mut running, mut held) = (Vec::<(u64, Lane, Box<Grant>)>::new(), 0);
        let (from, to) = (100, 900);
        for t in 0..to {
            let now = began + Duration::from_secs(t);
            while let Some(over) = running.iter().position(|(ends, ..)| *ends <= t) {
                let (.., mut grant) = running.swap_remove(over);
                grant.sent = true;
                scheduler.release(now, grant);
            }
            while let Some((lane, grant)) = scheduler.next(now) {
                running.push((t + if lane == Lane::Batch { 10 } else { 1 }, lane, grant));
                queue(&mut scheduler, lane, now);
            }
            if t >= from {
                held += running.iter().filter(|(_, lane, _)| *lane == Lane::Batch).count();
            }
        }
        let share = held as f64 / (slots as u64 * (to - from)) as f64;
        // With 9 to 15 slots, an eighth is between one and two slots.
        let least = (slots / 8).max(1) as f64 / slots as f64;
        assert!((0.9 * least.min(0.125)..=1.05 * 0.125).contains(&share), "{share} of {slots} slots");
    }
}

/// The batch lane is raised by age, so batch calls are an eighth of the calls that the rate budget
/// admits (one per second). Half of the admitted calls are interactive calls that are dispatched
/// for the floor (the reserved slots) of their tenant. They count as calls of a higher lane.
/// Otherwise, batch calls would be an eighth of the other half only, that is, a sixteenth of all.
#[test]
fn urgent_calls_dispatched_by_a_floor_count_for_the_share_of_a_raised_lane() {
    use tidegate_config::{Counting, RateConfig};
    let began = epoch();
    let mut settings = SchedulerSettings { aging: Duration::from_secs(1), ..settings(100) };
    let vip = tidegate_config::TenantConfig { floor: 0.01, ..Default::default() };
    settings.tenants.insert("vip".into(), vip);
    let rates = RateConfig { tpm: Some(6_000), counting: Counting::Actual, ..RateConfig::default() };
    let budgets = Arc::new(parking_lot::Mutex::new(crate::budget::RateBudgets::new(&rates, began)));
    let mut scheduler = Scheduler::with(&settings, Resources { budgets, kv: None }, began);
    let come = |scheduler: &mut Scheduler<Lane>, tenant, lane, now| {
        let mut ticket = ticket(tenant, lane, now);
        (ticket.demand.input, ticket.demand.exact, ticket.cost) = (100, true, 100.0);
        scheduler.enqueue(now, ticket, lane);
    };
    for _ in 0..400 {
        come(&mut scheduler, "b", Lane::Batch, began);
    }
    let mut served = [0; 3];
    for step in 0..800 {
        let now = began + Duration::from_secs(step);
        come(&mut scheduler, "u", Lane::Interactive, now);
        if step % 2 == 0 {
            come(&mut scheduler, "vip", Lane::Interactive, now);
        }
        while let Some((lane, mut grant)) = scheduler.next(now) {
            served[lane as usize] += 1;
            grant.sent = true;
            scheduler.release(now, grant);
        }
    }
    assert!((90..=110).contains(&served[Lane::Batch as usize]), "{served:?}");
}
