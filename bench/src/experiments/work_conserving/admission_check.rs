//! Checks the scheduler's decisions: records which calls run and wait, and computes from these
//! records how much of each limit is left. Nothing here reads the scheduler's state.
//!
//! The rules are those of the documentation: a call is dispatched if there is a slot, its tenant is
//! below its cap and has tokens of its own, and the call fits in each budget and in the memory. A
//! budget smooths its rate: it refills at 98.5 % of the rate, saves at most `burst` seconds of it,
//! and grants at most 99 % of a minute's tokens in any minute.

use std::collections::BTreeMap;

use tidegate::config::{Counting, TargetConfig};
use tidegate::protocol::Usage;
use tidegate::tokens::Demand;

use super::random_configuration::{NAMES, Scene};
use super::token_bucket::TokenBucket;

/// The memory, in tokens, that a call holds besides its tokens: on average, half of its last block.
const PARTIAL_BLOCK: f64 = 8.0;
const PACE: f64 = 0.985;
const MINUTE: f64 = 0.99;
const SHORTEST_BURST: f64 = 0.25;

/// The number of kinds of budgets: requests, tokens, input tokens and output tokens.
const KINDS: usize = 4;

/// Names of the rules that may keep a call waiting, in the order of their indices.
pub(super) const RULES: [&str; 8] = [
    "slots",
    "tenant's cap",
    "tenant's tokens",
    "memory",
    "requests",
    "tokens",
    "input tokens",
    "output tokens",
];

/// A call, waiting or running.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) tenant: usize,
    pub(super) lane: usize,
    pub(super) demand: Demand,
    /// The time at which the call was queued for the first time, in seconds since the start of the
    /// run.
    pub(super) queued: f64,
    /// The time by which the call must be dispatched, in seconds since the start of the run.
    pub(super) deadline: f64,
    /// The call's position in its queue. The first part is the time of queueing in seconds, plus a
    /// delay that grows with the call's length if short calls are preferred. The second part is the
    /// call's number.
    pub(super) place: (f64, u64),
}

/// The tokens or requests that an admitted call has been charged: for each kind of budget, and for
/// the tokens of its tenant (`own`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Charge {
    kinds: [f64; KINDS],
    own: f64,
}

#[derive(Debug)]
struct Tenant {
    cap: usize,
    own: Option<TokenBucket>,
    running: usize,
}

#[derive(Debug)]
pub(super) struct Accounts {
    pub(super) limit: usize,
    aging: f64,
    counting: Counting,
    budgets: [Option<TokenBucket>; KINDS],
    tenants: Vec<Tenant>,
    /// `None` if the engine's memory is not limited.
    memory: Option<Memory>,
    pub(super) waiting: BTreeMap<u64, Call>,
    pub(super) running: BTreeMap<u64, (Call, Charge)>,
}

/// The engine's memory, in tokens.
#[derive(Clone, Copy, Debug)]
struct Memory {
    capacity: f64,
    /// What calls may use: the capacity without the headroom.
    usable: f64,
}

/// For each resource of the target except slots, whether a call needs more than is available.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    kinds: [bool; KINDS],
    memory: bool,
}

impl Accounts {
    pub(super) fn new(scene: &Scene) -> Self {
        let TargetConfig { rates, .. } = &scene.target;
        let burst = rates.burst.as_secs_f64();
        let tokens = |limit: Option<u64>| {
            let limit = limit? as f64;
            let rate = PACE * limit / 60.0;
            Some(TokenBucket::new(
                rate,
                (rate * burst.max(SHORTEST_BURST)).max(1.0),
                (MINUTE * limit).floor(),
            ))
        };
        let requests = rates.rpm.map(|limit| {
            let rate = PACE * limit as f64 / 60.0;
            TokenBucket::new(rate, (rate * burst.max(SHORTEST_BURST)).floor().max(1.0), limit as f64)
        });
        let tenants = NAMES.iter().take(scene.tenants).map(|name| {
            let config = scene.target.tenants.get(*name).unwrap_or(&scene.target.default_tenant);
            let own = config.tpm.map(|tpm| tpm as f64 / 60.0);
            Tenant {
                cap: config.cap.unwrap_or(usize::MAX),
                own: own.map(|rate| TokenBucket::new(rate, (rate * burst).max(1.0), f64::INFINITY)),
                running: 0,
            }
        });
        Self {
            limit: scene.target.cap,
            aging: scene.target.aging.as_secs_f64(),
            counting: rates.counting,
            budgets: [requests, tokens(rates.tpm), tokens(rates.itpm), tokens(rates.otpm)],
            tenants: tenants.collect(),
            memory: scene.target.kv_tokens.map(|tokens| {
                let capacity = tokens as f64;
                Memory { capacity, usable: (capacity * (1.0 - scene.target.kv_headroom)).floor() }
            }),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
        }
    }

    /// Returns the cost of a call for each kind of budget, in requests or tokens.
    fn need(&self, demand: &Demand) -> [f64; KINDS] {
        let (input, output) = (demand.input as f64, demand.output as f64);
        let most = demand.max_output.unwrap_or(demand.output) as f64;
        let tokens = match self.counting {
            Counting::Sum | Counting::Auto => input + most,
            Counting::Larger => input.max(most),
            Counting::Actual => input + output,
            Counting::Input => input,
        };
        [1.0, tokens, input, output]
    }

    pub(super) fn admit(&mut self, at: f64, number: u64, call: Call) {
        self.waiting.remove(&number);
        let charge = Charge { kinds: self.need(&call.demand), own: call.demand.total() as f64 };
        for (budget, cost) in self.budgets.iter_mut().zip(charge.kinds) {
            budget.iter_mut().for_each(|budget| budget.take(at, cost));
        }
        if let Some(tenant) = self.tenants.get_mut(call.tenant) {
            tenant.running += 1;
            tenant.own.iter_mut().for_each(|own| own.take(at, charge.own));
        }
        self.running.insert(number, (call, charge));
    }

    /// Replaces the charges of a call by those of the token counts that the provider reports. `at`
    /// is the time in seconds since the start of the run.
    pub(super) fn settle(&mut self, at: f64, number: u64, usage: &Usage) {
        let Some((call, charge)) = self.running.get(&number).copied() else { return };
        let demand = Demand {
            input: usage.input,
            output: usage.output,
            max_output: call.demand.max_output.or(Some(call.demand.output)),
            ..call.demand
        };
        let kinds = self.need(&demand);
        for ((budget, was), is) in self.budgets.iter_mut().zip(charge.kinds).zip(kinds).skip(1) {
            budget.iter_mut().for_each(|budget| budget.take(at, is - was));
        }
        let own = (usage.input + usage.output) as f64;
        if let Some(tenant) = self.tenants.get_mut(call.tenant) {
            tenant.own.iter_mut().for_each(|token_bucket| token_bucket.take(at, own - charge.own));
        }
        self.running.insert(number, (call, Charge { kinds, own }));
    }

    /// Ends a call. If it was never sent, its charges are refunded.
    pub(super) fn end(&mut self, at: f64, number: u64, sent: bool) {
        let Some((call, charge)) = self.running.remove(&number) else { return };
        let Some(tenant) = self.tenants.get_mut(call.tenant) else { return };
        tenant.running -= 1;
        if !sent {
            tenant.own.iter_mut().for_each(|own| own.take(at, -charge.own));
            for (budget, cost) in self.budgets.iter_mut().zip(charge.kinds) {
                budget.iter_mut().for_each(|budget| budget.take(at, -cost));
            }
        }
    }

    /// Returns the highest memory use, in tokens, that the calls in flight reach together with one
    /// more. Each gains a token per step until its answer is complete.
    ///
    /// If `caution` is `true`, answers are as much longer as the scheduler may round them.
    fn peak(&self, more: &Call, caution: bool) -> f64 {
        let calls = self.running.values().map(|(call, _)| call).chain([more]);
        let calls: Vec<(f64, f64)> = calls
            .map(|Call { demand, .. }| {
                let output = demand.output.min(demand.max_output.unwrap_or(u64::MAX)) as f64;
                let rounded = if caution { output * (1.0 + 1.0 / 16.0) + 1.0 } else { output };
                (demand.input as f64 + PARTIAL_BLOCK, rounded)
            })
            .collect();
        let at = |then: f64| -> f64 {
            calls.iter().filter(|(_, ends)| *ends >= then).map(|(held, _)| held + then).sum()
        };
        calls.iter().map(|(_, ends)| at(*ends)).fold(0.0, f64::max)
    }

    fn in_memory(&self, call: &Call, caution: bool) -> bool {
        let Some(Memory { capacity, usable }) = self.memory else { return true };
        if self.running.is_empty() {
            return call.demand.input as f64 <= capacity;
        }
        self.peak(call, caution) <= usable + if caution { -1.0 } else { 1.0 }
    }

    fn tenant_has_room(&self, call: &Call) -> bool {
        self.tenants.get(call.tenant).is_some_and(|tenant| tenant.running < tenant.cap)
    }

    /// Returns the index in [`RULES`] of a rule that forbids the admission of the call by more than
    /// rounding errors. Returns `None` if the call may be admitted.
    pub(super) fn violated_rule(&self, at: f64, call: &Call) -> Option<usize> {
        let own = self.tenants.get(call.tenant).and_then(|tenant| tenant.own.as_ref());
        // Requests are counted in whole units: one may be available and another almost.
        let slack = [2.0, 1e-3, 1e-3, 1e-3];
        let budgets = self.budgets.iter().zip(self.need(&call.demand)).zip(slack);
        let over = budgets.map(|((budget, cost), slack)| {
            budget.as_ref().is_some_and(|budget| !budget.fits(at, cost, slack))
        });
        let others = [
            self.running.len() >= self.limit,
            !self.tenant_has_room(call),
            own.is_some_and(|own| !own.fits(at, call.demand.total() as f64, 1e-3)),
            !self.in_memory(call, false),
        ];
        others.into_iter().chain(over).position(|objects| objects)
    }

    /// Returns the earliest time, not before `at`, at which the call may be admitted if nothing
    /// else happens. Returns `None` if waiting is not enough.
    pub(super) fn ready(&self, at: f64, call: &Call) -> Option<f64> {
        let tenant = self.tenants.get(call.tenant)?;
        if self.running.len() >= self.limit || tenant.running >= tenant.cap || !self.in_memory(call, true) {
            return None;
        }
        let budgets = self.budgets.iter().zip(self.need(&call.demand));
        let budgets = budgets.filter_map(|(token_bucket, cost)| Some((token_bucket.as_ref()?, cost)));
        let own = tenant.own.as_ref().map(|own| (own, call.demand.total() as f64));
        budgets
            .chain(own)
            .try_fold(at, |soonest, (token_bucket, cost)| Some(token_bucket.ready(at, cost)?.max(soonest)))
    }

    /// Returns which resources of the target a call would lack at the given time.
    fn missing(&self, at: f64, call: &Call) -> Missing {
        let mut missing = Missing { memory: !self.in_memory(call, true), ..Missing::default() };
        for ((missing, budget), cost) in
            missing.kinds.iter_mut().zip(&self.budgets).zip(self.need(&call.demand))
        {
            *missing = budget.as_ref().is_some_and(|budget| !budget.fits(at, cost, -1e-3));
        }
        missing
    }

    fn is_aged(&self, at: f64, call: &Call) -> bool {
        at - call.queued >= self.aging - 1e-6
    }

    /// Returns the head (first waiting call) of each queue, with its number. The key is the tenant
    /// and the lane of the queue.
    fn heads(&self) -> BTreeMap<(usize, usize), (u64, Call)> {
        let mut heads: BTreeMap<_, (u64, Call)> = BTreeMap::new();
        for (number, call) in &self.waiting {
            let head = heads.entry((call.tenant, call.lane)).or_insert((*number, *call));
            if call.place < head.1.place {
                *head = (*number, *call);
            }
        }
        heads
    }

    /// Returns `true` if the scheduler may keep a call waiting, although it fits, in favour of an
    /// aged call (one that has waited for the ageing time).
    ///
    /// The aged call is the head (first call) of the same queue. Or it is the head of a higher lane
    /// of the same tenant, and lacks tokens of the tenant's own. Or it is the head of another queue
    /// whose tenant is within its own limits, and it lacks a resource of the target that the given
    /// call would take.
    pub(super) fn is_held(&self, at: f64, number: u64, call: &Call) -> bool {
        let need = self.need(&call.demand);
        self.heads().into_iter().any(|(line, (head, ahead))| {
            if head == number || !self.is_aged(at, &ahead) {
                return false;
            }
            if line == (call.tenant, call.lane) {
                return true;
            }
            let Some(tenant) = self.tenants.get(ahead.tenant) else { return false };
            let needs = ahead.demand.total() as f64;
            if ahead.tenant == call.tenant && ahead.lane < call.lane {
                let will_have =
                    |own: &TokenBucket| own.ready(at, needs).is_some_and(|at| at <= ahead.deadline);
                if tenant.own.as_ref().is_some_and(|own| !own.fits(at, needs, -1e-3) && will_have(own)) {
                    return true;
                }
            }
            let own = tenant.own.as_ref().is_none_or(|own| own.fits(at, needs, 1e-3));
            let missing = self.missing(at, &ahead);
            let takes = missing.memory
                || missing.kinds.iter().zip(need).any(|(missing, need)| *missing && need > 0.0);
            tenant.running < tenant.cap && own && takes
        })
    }
}
