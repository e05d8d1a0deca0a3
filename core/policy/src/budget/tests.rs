//! Tests of the rate budgets with simulated providers and response headers, in virtual time.

mod announced_limits;
mod closed_loop;
mod cluster;
mod gateways_with_backends;
mod provider;
mod recovery;
mod response_headers;
mod several_processes;
mod windows;

use std::time::Instant;

use super::{BudgetKind, Lack, Need, RateBudgets};

impl RateBudgets {
    /// Returns the limit that delays a call with this need for longest, and the time at which the
    /// call fits if nothing else is charged. `None` if the call fits now, or if it waits for the
    /// other processes that share a limit.
    fn ready_at(&mut self, now: Instant, need: &Need) -> Option<(BudgetKind, Instant)> {
        match self.lacking(now, need)? {
            Lack::Limit(kind, at) => Some((kind, at)),
            Lack::Share(_) => None,
        }
    }
}
