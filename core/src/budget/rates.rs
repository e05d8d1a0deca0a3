//! The rates that a provider allows: requests and tokens, a minute and a day.

use std::time::{Duration, Instant};

use super::{Need, Room};
use crate::estimate::Demand;
use crate::wire::observe::Usage;
use crate::wire::rate::RateHeaders;

/// What a budget counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Kind {
    Requests,
    Tokens,
    InputTokens,
    OutputTokens,
    RequestsPerDay,
    TokensPerDay,
}

/// What an attempt was charged: settled once, by [`RateBudgets::settle`], or it stands.
#[derive(Debug)]
pub struct Charge {
    pub(crate) need: Need,
}

/// All rate budgets of a target, or of several that share them.
#[derive(Debug, Default)]
pub struct RateBudgets {}

impl RateBudgets {
    /// What a call will be charged, by the provider's own way of counting.
    pub fn need(&self, demand: &Demand) -> Need {
        let _ = demand;
        Need::ZERO
    }

    /// The most that one call may take now.
    pub fn room(&mut self, now: Instant) -> Room {
        let _ = now;
        Room::UNBOUNDED
    }

    /// Which budget a call could never fit, and its size.
    pub fn oversize(&self, need: &Need) -> Option<(Kind, u64)> {
        let _ = need;
        None
    }

    /// Which budget keeps a call of that size waiting longest, and until when, if nothing else goes. `None`: it fits now.
    pub fn ready_at(&mut self, now: Instant, need: &Need) -> Option<(Kind, Instant)> {
        let _ = (now, need);
        None
    }

    /// How long so many calls of that size in all take to fit, from an empty budget: what waits are predicted from. Zero where nothing bounds them.
    pub fn time_for(&self, calls: usize, need: &Need) -> Duration {
        let _ = (calls, need);
        Duration::ZERO
    }

    /// Takes what a call that is admitted now is expected to cost: into debt, if the driver insists.
    pub fn charge(&mut self, now: Instant, demand: &Demand) -> Charge {
        let _ = (now, demand);
        Charge { need: Need::ZERO }
    }

    /// It was never sent: all of it goes back.
    pub fn refund(&mut self, now: Instant, charge: Charge) {
        let _ = (now, charge.need);
    }

    /// The provider has counted: what was too much goes back, what was too little becomes debt.
    pub fn settle(&mut self, now: Instant, charge: &mut Charge, usage: &Usage) {
        let _ = (now, charge, usage);
    }

    /// What the answer to an attempt, sent at `sent_at`, said of the provider's own books.
    pub fn heard(
        &mut self,
        now: Instant,
        charge: &Charge,
        sent_at: Instant,
        headers: &RateHeaders,
        limited: bool,
    ) {
        let _ = (now, charge, sent_at, headers, limited);
    }
}
