//! A target with all slots taken and 100,000 waiting calls, and the timed operations.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use tidegate::config::{LimitConfig, Predict, RateConfig, TargetConfig};
use tidegate::policy::budget::RateBudgets;
use tidegate::policy::schedule::{Grant, Resources, Scheduler, SchedulerSettings, Settled, Ticket, WaiterId};
use tidegate::protocol::Usage;
use tidegate::tokens::Demand;

use super::STORM;
use crate::{Fallible, virtual_time};

pub(super) const SLOTS: usize = 64;

/// The resource that waiting calls lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// Waiting calls lack a slot only.
    Slots,
    /// Waiting calls lack a slot, and large calls also lack tokens. The token budget admits small
    /// calls only, and nine of ten calls are large, so small calls overtake large ones.
    Overtaking,
    /// Waiting calls lack a slot and tokens. The token budget has too few tokens for any call.
    Exhausted,
}

/// Tokens of a large call.
const LARGE: u64 = 50_000;
/// Tokens of a small call.
const SMALL: u64 = 10;
/// The token budget, in tokens per minute. Its bucket holds a tenth of them.
const BUDGET: u64 = 400_000;

pub(crate) struct Load {
    scheduler: Scheduler<u32>,
    now: Instant,
    case: Case,
    names: Vec<Arc<str>>,
    held: VecDeque<Box<Grant>>,
    /// For each call, its id in the scheduler and the index of its tenant. `None` if the call is
    /// not waiting.
    waiting: Vec<Option<(WaiterId, usize)>>,
    /// For each call, whether it is small. On average, one call in ten is.
    small: Vec<bool>,
    rng: Rng,
    /// The number of calls dispatched since the target was created.
    pub(super) went: usize,
}

impl Load {
    /// Creates a target whose slots are taken, without waiting calls.
    pub(crate) fn new(case: Case, tenants: usize) -> Fallible<Self> {
        let mut load = Self::with(case, &target(), tenants);
        load.fill()?;
        Ok(load)
    }

    fn with(case: Case, target: &TargetConfig, tenants: usize) -> Self {
        let now = virtual_time::time_origin();
        let tpm = (case != Case::Slots).then_some(BUDGET);
        let budgets = RateBudgets::new(&RateConfig { tpm, ..RateConfig::default() }, now);
        let resources = Resources { budgets: Arc::new(Mutex::new(budgets)), kv: None };
        Self {
            scheduler: Scheduler::with(&SchedulerSettings::from(target), resources, now),
            now,
            case,
            names: (0..tenants).map(|number| format!("tenant-{number}").into()).collect(),
            held: VecDeque::new(),
            waiting: Vec::new(),
            small: Vec::new(),
            rng: Rng::with_seed(1),
            went: 0,
        }
    }

    /// Takes all slots, and as many tokens of the budget as the case requires.
    fn fill(&mut self) -> Fallible<()> {
        for number in 0..SLOTS {
            let mut ticket = self.ticket(number, SMALL);
            // The first call takes most of the bucket, so that only small calls fit, or puts the
            // bucket into debt.
            if number == 0 {
                ticket.demand.input = match self.case {
                    Case::Slots => 1,
                    Case::Overtaking => 30_000,
                    Case::Exhausted => 350_000,
                };
            }
            let admitted =
                self.scheduler.try_admit(self.now, &ticket).map_err(|refusal| format!("{refusal:?}"))?;
            let mut grant = match admitted {
                Some(grant) => grant,
                None => self.scheduler.force(self.now, &ticket).0,
            };
            if number == 0 {
                grant.sent = true;
            }
            self.held.push_back(grant);
        }
        Ok(())
    }

    fn ticket(&self, tenant: usize, tokens: u64) -> Ticket {
        let tenant = self.names.get(tenant % self.names.len().max(1)).cloned().unwrap_or_default();
        Ticket {
            wait: Some(Duration::from_secs(30)),
            demand: Demand { input: tokens, exact: true, ..Demand::default() },
            cost: tokens as f64,
            ..Ticket::new(tenant, self.now, self.now + Duration::from_secs(600))
        }
    }

    fn join(&mut self, number: usize, tenant: usize) {
        self.now += Duration::from_nanos(10);
        let small = self.small.get(number).copied().unwrap_or_default();
        let tokens = if small { SMALL } else { LARGE + self.rng.u64(..1_000) };
        let ticket = self.ticket(tenant, tokens);
        if let Ok(None) = self.scheduler.try_admit(self.now, &ticket) {
            let id = self.scheduler.enqueue(self.now, ticket, number as u32);
            if let Some(place) = self.waiting.get_mut(number) {
                *place = Some((id, tenant));
            }
        }
    }

    /// Queues `calls` calls of the tenants in turn.
    pub(crate) fn queue(&mut self, calls: usize) -> Fallible<()> {
        for tenant in 0..calls {
            let number = self.waiting.len();
            self.waiting.push(None);
            self.small.push(self.rng.u8(..10) == 0);
            self.join(number, tenant % self.names.len().max(1));
        }
        let waits = self.waiting.iter().flatten().count();
        if waits == calls { Ok(()) } else { Err(format!("{waits} of {calls} calls wait").into()) }
    }

    /// Releases a slot, dispatches the next call, and queues another call of its tenant.
    ///
    /// The released call was never sent, so its tokens are returned to the budget. If no call fits,
    /// the slot is taken again.
    pub(crate) fn hand_on(&mut self) {
        self.now += Duration::from_nanos(10);
        if let Some(grant) = self.held.pop_front() {
            self.scheduler.release(self.now, grant);
        }
        match self.scheduler.next(self.now) {
            Some((number, grant)) => {
                self.held.push_back(grant);
                self.went += 1;
                let number = number as usize;
                let tenant = self.waiting.get_mut(number).and_then(Option::take).map(|(_, tenant)| tenant);
                self.join(number, tenant.unwrap_or_default());
            }
            None => {
                let ticket = self.ticket(0, 0);
                self.held.push_back(self.scheduler.force(self.now, &ticket).0);
            }
        }
    }

    /// Withdraws a random waiting call, and queues another call of its tenant.
    pub(crate) fn leave(&mut self) {
        let number = self.rng.usize(..self.waiting.len());
        self.withdraw(number).into_iter().for_each(|tenant| self.join(number, tenant));
    }

    /// Withdraws many random waiting calls one after the other, and queues as many again.
    pub(crate) fn storm(&mut self) {
        let numbers: Vec<usize> = (0..STORM).map(|_| self.rng.usize(..self.waiting.len())).collect();
        let gone: Vec<_> = numbers.into_iter().map(|number| (number, self.withdraw(number))).collect();
        for (number, tenant) in gone {
            tenant.into_iter().for_each(|tenant| self.join(number, tenant));
        }
    }

    fn withdraw(&mut self, number: usize) -> Option<usize> {
        let (id, tenant) = self.waiting.get_mut(number)?.take()?;
        self.scheduler.withdraw(id).then_some(tenant)
    }

    /// Creates a target whose slots are free, for [`Load::pass`]. If `budget` is `true`, each
    /// tenant has a budget of 6,000 tokens per minute.
    pub(crate) fn passing(budget: bool) -> Self {
        let mut target = target();
        target.default_tenant.tpm = budget.then_some(6_000);
        Self::with(Case::Slots, &target, 1)
    }

    /// Admits a call of a new tenant with this number, charges it ten times its estimate, and
    /// releases it.
    pub(crate) fn pass(&mut self, number: usize) {
        self.now += Duration::from_micros(10);
        let tokens = LARGE / 50;
        let ticket = Ticket { tenant: format!("passing-{number}").into(), ..self.ticket(0, tokens) };
        if let Ok(Some(mut grant)) = self.scheduler.try_admit(self.now, &ticket) {
            grant.sent = true;
            let usage = Usage { input: 10 * tokens, output: 0, cached_input: 0 };
            let cost = 10.0 * tokens as f64;
            self.scheduler.settle(self.now, &mut grant, &Settled { usage, cost });
            self.scheduler.release(self.now, grant);
            self.went += 1;
        }
    }
}

fn target() -> TargetConfig {
    TargetConfig {
        cap: SLOTS,
        limit: LimitConfig::Fixed,
        queue: 1_000_000,
        backlog: 1_000_000,
        predict: Predict::Off,
        // No ageing, so that overtaking never ends.
        aging: Duration::from_secs(24 * 3600),
        ..TargetConfig::new("bench")
    }
}
