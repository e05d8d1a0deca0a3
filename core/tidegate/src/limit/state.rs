//! The state that all services of one layer share: the limit, its queue, and the judge.

use std::sync::Arc;
use std::time::Duration;

use super::AdaptiveLimitSnapshot;
use crate::adaptive::CallKind;
use crate::admission::{Admission, BudgetSet, Hints, Permit};
use crate::budget::RateBudgets;
use crate::clock;
use crate::config::TargetConfig;
use crate::duration;
use crate::error::Error;
use crate::schedule::{SchedulerSettings, Ticket};
use tidegate_tokens::Demand;

/// Advice to users if a limit has too few slots. Appended to the error messages of rejected calls
/// for which a free slot was missing.
const HINT: &str = "the adaptive limit is what the upstream serves in time; raise `wait` or `queue`, or `cap` if the limit has reached it";
/// Advice about calls that waited too long for a slot if the objective bounds the wait.
const OBJECTIVE_HINT: &str = "the call could not meet the objective any more: add capacity, send fewer calls, or set `wait` to let calls wait longer than the objective";

/// The limit and queue of one layer, and its judge.
pub(super) struct LimitState<J> {
    admission: Arc<Admission>,
    /// Name of the only tenant, which all calls of the limit have.
    tenant: Arc<str>,
    /// The wait budget, from [`AdaptiveLimitBuilder::wait`](super::AdaptiveLimitBuilder::wait).
    /// `None` if only the objective and `longest` limit the wait.
    wait: Option<Duration>,
    /// The maximum time that a call waits, whatever the wait budget is.
    longest: Duration,
    pub(super) judge: J,
}

impl<J> LimitState<J> {
    /// Creates the state of a limit. `latency` is the latency objective of calls that do not
    /// stream: `None` uses the objective of the first token, `Some(None)` sets no objective.
    pub(super) fn new(config: &TargetConfig, latency: Option<Option<Duration>>, judge: J) -> Arc<Self> {
        let mut settings = SchedulerSettings::from(config);
        if let Some(adaptive) = &mut settings.adaptive {
            adaptive.latency = latency.unwrap_or(adaptive.objective);
        }
        let has_wait_objective = settings.wait_objectives.iter().any(Option::is_some);
        let too_long = if has_wait_objective { OBJECTIVE_HINT } else { HINT };
        let hints = Hints::Texts { too_long, other: HINT };
        // A limit has no rate budgets. Only a gate does.
        let budgets = BudgetSet::from_budgets(RateBudgets::default());
        Arc::new(Self {
            admission: Admission::new(config.name.clone(), &settings, budgets, None, hints),
            tenant: "".into(),
            wait: config.wait,
            longest: config.deadline,
            judge,
        })
    }

    /// Waits for a slot for a call of this kind.
    ///
    /// # Errors
    /// `Refused` if the queue is full or the wait is too long.
    ///
    /// # Cancel safety
    /// Dropping the future removes the call from the queue.
    pub(super) async fn acquire(&self, kind: CallKind) -> Result<Permit, Error> {
        let now = clock::now();
        let ticket = Ticket {
            wait: self.wait,
            demand: Demand { input: kind.input, output: kind.output, ..Demand::default() },
            streams: kind.streams,
            ..Ticket::new(self.tenant.clone(), now, duration::after(now, self.longest))
        };
        let mut permit = self.admission.acquire(ticket).await?;
        permit.on_sent();
        Ok(permit)
    }

    /// Returns the current state of the limit and its queue.
    pub(super) fn snapshot(&self) -> AdaptiveLimitSnapshot {
        AdaptiveLimitSnapshot::from_view(&self.admission.view(), clock::now())
    }
}

impl<J> std::fmt::Debug for LimitState<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimitState").field("name", self.admission.name()).finish_non_exhaustive()
    }
}
