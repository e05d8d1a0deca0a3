//! Ageing between lanes.
//!
//! A lane takes turns once its oldest call has been raised to the highest lane, so it gets one dispatch in two (in three, where all three lanes
//! do). Inside the lane a call with `p` older ones of its tenant, among `n` tenants of equal weight, goes within `(p + 1) * n` of the lane's
//! dispatches. With one slot and service times of at most `s`, a batch call is so served within `2 * aging + 3 * (p + 1) * n * s + s`.

use proptest::prelude::*;

use super::*;
use crate::testing::epoch;

const SERVICE: Duration = Duration::from_millis(10);

/// One slot, served call after call. `floods`: lanes that always have fresh calls of five tenants waiting.
struct Counter {
    scheduler: Scheduler<(Lane, Arc<str>, Instant)>,
    now: Instant,
    floods: Vec<Lane>,
    held: Option<Grant>,
}

impl Counter {
    fn new(aging: Duration, floods: &[Lane]) -> Self {
        let now = epoch();
        let scheduler = Scheduler::new(&Settings { aging, ..settings(0) }, now);
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

    /// Who is served next, once the slot is free again. Each step brings five times more flood than can be served.
    fn serve(&mut self) -> (Lane, Arc<str>, Instant) {
        self.scheduler.set_limit(1);
        if let Some(grant) = self.held.take() {
            self.now += SERVICE;
            self.scheduler.release(self.now, grant);
        }
        self.flood();
        let (who, mut grant) = self.scheduler.next(self.now).expect("work");
        grant.sent();
        assert!(self.scheduler.next(self.now).is_none());
        self.held = Some(grant);
        who
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_flood_never_starves_batch(
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
        let bound = 2 * aging + 3 * (deep * tenants) as u32 * SERVICE + SERVICE;
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

/// However old and deep the backlog of the lanes below: a fresh call of a higher lane waits for one turn of each of them.
#[test]
fn an_aged_backlog_shuts_nobody_out() {
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

/// Inside a lane age settles nothing: a neighbour's old backlog does not go before a quiet tenant's fresh call.
#[test]
fn an_aged_backlog_does_not_undo_fairness_inside_its_lane() {
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
