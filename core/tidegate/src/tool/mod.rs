//! Tools: named resources other than models, each with its own limit and queue, so that waiting for
//! a slow tool needs no model slot.
//!
//! A tool may call another tool through the same gate. Two tasks that each hold one tool and wait
//! for the tool of the other would wait forever. Such a cycle is detected before the wait begins,
//! or after the limit of a tool has fallen. The request is rejected with the names of the tools.
//!
//! Requests for a tool by a task that holds a model slot are counted. If the task also has to wait,
//! the caller can log a warning ([`HeldSlots`]). Alternatively, the model slot can be released
//! during the wait ([`crate::Gate::acquire_tool_yielding`]).

mod deadlock;
mod pending_permit;
mod slot_held_warning;
mod tool_wait;

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use deadlock::Holdings;
use parking_lot::Mutex;
pub use pending_permit::PendingToolPermit;
use pending_permit::{QueuedRequest, State};
pub use slot_held_warning::HeldSlots;
use slot_held_warning::{HeldModelSlots, WarnedSites};
pub(crate) use tool_wait::ToolWait;
use tool_wait::ToolWaits;

use crate::adaptive::Ended;
use crate::admission::{Admission, BudgetSet, Permit, ReadAheadGuard, TaskSlots};
use crate::budget::RateBudgets;
use crate::clock;
use crate::config::{Mode, ToolConfig};
use crate::context::{Chain, Context};
use crate::duration;
use crate::error::{Error, ErrorKind, Reason};
use crate::identify::task_of;
use crate::metrics::{Metrics, ToolMetrics};
use crate::schedule::{SchedulerSettings, Ticket, WaitExplanation};
use crate::share::Share;
use crate::snapshot::ToolSnapshot;
use crate::target::Target;
use crate::unknown_name::unknown_name;

/// Maximum wait of a request for a tool whose context has no deadline: 24 h.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Time between two checks that a wait can still end, if the task holds tool slots: 1 s.
const DEADLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The tools of a gate, the requests that wait for them, and the slots that tasks hold.
#[derive(Default)]
pub(crate) struct Tools {
    tools: BTreeMap<String, Tool>,
    holdings: Arc<Mutex<Holdings>>,
    /// The model slots that each task holds.
    task_slots: Arc<TaskSlots>,
    tool_waits: Arc<ToolWaits>,
    warned: WarnedSites,
}

/// One tool: its limit and queue, its metrics, its configured number of slots, and the maximum wait
/// for it. If `wait` is `None`, only the deadline of the request limits the wait.
struct Tool {
    admission: Arc<Admission>,
    metrics: ToolMetrics,
    cap: usize,
    wait: Option<Duration>,
}

impl Tool {
    /// Counts a rejection of a request for the tool in the metrics, by reason. Does nothing if
    /// `error` is not a rejection.
    fn refused(&self, error: &Error) {
        error.reason().into_iter().for_each(|reason| self.metrics.on_refused(reason));
    }
}

impl Tools {
    /// Creates the tools. Other processes share their caps if there is a `share`.
    pub(crate) fn new(
        config: &BTreeMap<String, ToolConfig>,
        metrics: &Metrics,
        share: Option<&Arc<Share>>,
    ) -> Self {
        let tools = config.iter().map(|(name, config)| {
            let hint = "raise the tool's `cap` or rate if it can serve more, or raise its `wait`";
            let budgets =
                BudgetSet::from_budgets(RateBudgets::for_tool(config.rps, config.rpm, clock::now()));
            let admission =
                Admission::new(name.as_str().into(), &SchedulerSettings::from(config), budgets, None, hint);
            share.iter().for_each(|share| share.add_rates(&format!("tool:{name}"), &admission.budgets));
            share.iter().for_each(|share| share.add(format!("tool:{name}"), config.cap, &admission));
            let metrics = metrics.tool(name, config);
            (name.clone(), Tool { admission, metrics, cap: config.cap, wait: config.wait })
        });
        Self { tools: tools.collect(), ..Self::default() }
    }

    /// Returns the registry of the model slots that tasks hold. `None` if no tools are configured,
    /// because only tools need it.
    pub(crate) fn task_slots(&self) -> Option<&Arc<TaskSlots>> {
        (!self.tools.is_empty()).then_some(&self.task_slots)
    }

    /// Acquires a free slot of the tool `name` or, if there is none, queues for one. In modes
    /// `observe` and `off`, a slot is granted even if none is free.
    ///
    /// If `yield_slot` is `true`, model slots that streaming responses of the task hold may be
    /// released while the task waits for the tool and holds it.
    ///
    /// # Errors
    ///
    /// `Unknown` if there is no such tool. `Refused` if the request is rejected instead of queued;
    /// for example, with the reason `Deadlock` if the wait could never end.
    pub(crate) fn ask(
        self: &Arc<Self>,
        name: &str,
        tenant: Arc<str>,
        context: &Context,
        mode: Mode,
        yield_slot: bool,
    ) -> Result<PendingToolPermit, Error> {
        let tool = self.tools.get(name).ok_or_else(|| self.unknown(name))?;
        let now = clock::now();
        let ticket = Ticket {
            lane: context.lane,
            wait: tool.wait,
            ..Ticket::new(
                tenant,
                now,
                context
                    .deadline
                    .map_or(now + MAX_WAIT, |at| at.into_std().min(duration::after(now, duration::MAX))),
            )
        };
        let while_held = HeldModelSlots::new(&self.task_slots, task_of(context), yield_slot);
        let holds = context.holds.clone();
        let permit = match mode {
            Mode::Enforce => tool.admission.try_acquire(&ticket).inspect_err(|error| tool.refused(error))?,
            Mode::Observe | Mode::Off => {
                let (permit, would) = tool.admission.force(&ticket);
                if let Some(decision) = would {
                    tool.metrics.on_observed_decision(decision);
                }
                Some(permit)
            }
        };
        if let Some(permit) = permit {
            while_held.count(&tool.metrics, false);
            let permit = self.issue(tool, permit, holds, while_held.release_yielded());
            return Ok(PendingToolPermit(State::Acquired(Box::new(permit))));
        }
        let wait = self.record_wait(name, holds.as_ref()).inspect_err(|error| tool.refused(error))?;
        while_held.count(&tool.metrics, true);
        let name = tool.admission.name();
        let entry = self.tool_waits.enter(ToolWait::new(name, &ticket, context, while_held.idle(name)));
        let request = QueuedRequest { ticket, holds, yielded: while_held.release_yielded(), entry, wait };
        Ok(PendingToolPermit(State::Queued(self.clone(), Box::new(request))))
    }

    /// Logs the warning `held`: the code at `site` waits for a tool while it holds a model slot.
    /// Only the first warning for each location is logged.
    pub(crate) fn warn_once(&self, site: &'static Location<'static>, held: &HeldSlots) {
        self.warned.warn_once(site, held);
    }

    /// Waits for the slot of a queued request.
    ///
    /// # Errors
    ///
    /// `Refused` if admission rejects the request while it waits, or with the reason `Deadlock` if
    /// the wait can never end any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the request from the queue.
    async fn wait_for_slot(&self, request: QueuedRequest) -> Result<ToolPermit, Error> {
        let QueuedRequest { ticket, holds, yielded, entry, wait } = request;
        let tool_wait = &entry.tool_wait;
        let tool = self.tools.get(&*tool_wait.tool).ok_or_else(|| self.unknown(&tool_wait.tool))?;
        let permit = tokio::select! {
            biased;
            permit = tool.admission.acquire_from(ticket, |waiter| tool_wait.set_waiter(waiter)) => permit,
            error = self.deadlock(&tool_wait.tool, holds.as_ref().zip(wait.as_ref())) => Err(error),
        };
        drop(wait);
        let permit =
            permit.map_err(|error| error.with_call(tool_wait.id)).inspect_err(|error| tool.refused(error))?;
        Ok(self.issue(tool, permit, holds, yielded).into_used())
    }

    /// Creates the permit for an acquired slot of `tool`, and records the slot for deadlock
    /// detection. `holds` are the tool slots that the task held before, or `None` if it held none.
    /// `yielded` are the guards that the permit keeps until it is dropped.
    fn issue(
        &self,
        tool: &Tool,
        permit: Permit,
        holds: Option<Chain>,
        yielded: Vec<ReadAheadGuard>,
    ) -> ToolPermit {
        tool.metrics.on_admitted(permit.waited());
        let chain = Chain::link(holds, tool.admission.name().clone());
        self.holdings.lock().on_acquired(tool.admission.name(), chain.id());
        ToolPermit { chain, holdings: self.holdings.clone(), permit, _yielded: yielded }
    }

    /// Returns the requests that currently wait for a tool, in no particular order.
    pub(crate) fn tool_waits(&self) -> Vec<Arc<ToolWait>> {
        self.tool_waits.all()
    }

    /// Returns the rule that keeps a request for a tool waiting. `None` if the request is not
    /// queued: it is about to be queued, or has just been admitted.
    pub(crate) fn why(&self, tool_wait: &ToolWait) -> Option<WaitExplanation> {
        self.tools.get(&*tool_wait.tool)?.admission.explain(tool_wait.waiter()?)
    }

    /// Records for deadlock detection that a task with the tool slots `holds` waits for the tool
    /// `name`, until the returned guard is dropped. Returns `None`, and records nothing, if `holds`
    /// is `None`.
    ///
    /// # Errors
    ///
    /// `Refused` with the reason `Deadlock` if the wait could never end.
    fn record_wait(&self, name: &str, holds: Option<&Chain>) -> Result<Option<DeadlockGuard>, Error> {
        let Some(holds) = holds else { return Ok(None) };
        let begun = self.holdings.lock().begin_wait(name, holds.ids(), |tool| self.slots_in_force(tool));
        let id = begun.map_err(|cycle| deadlock_error(name, holds, &cycle))?;
        Ok(Some(DeadlockGuard { id, holdings: self.holdings.clone() }))
    }

    /// Resolves with a rejection if the wait of a task for the tool `name` can never end any more,
    /// within [`DEADLOCK_CHECK_INTERVAL`]. `recorded` are the tool slots that the task holds, and
    /// the record of the wait. Never resolves if it is `None`.
    async fn deadlock(&self, name: &str, recorded: Option<(&Chain, &DeadlockGuard)>) -> Error {
        let Some((holds, wait)) = recorded else { return std::future::pending().await };
        loop {
            tokio::time::sleep(DEADLOCK_CHECK_INTERVAL).await;
            // Otherwise the check when the last of the waits began still holds.
            if !self.has_reduced_limit() {
                continue;
            }
            let checked = self.holdings.lock().check_wait(wait.id, |tool| self.slots_in_force(tool));
            if let Err(cycle) = checked {
                return deadlock_error(name, holds, &cycle);
            }
        }
    }

    /// Returns `true` if fewer slots of a tool are in force than its `cap`, so that its limit may
    /// have fallen.
    fn has_reduced_limit(&self) -> bool {
        self.tools.values().any(|tool| tool.admission.slots_in_force() < tool.cap)
    }

    /// Returns the number of slots of a tool that are in force. 0 if there is no such tool.
    fn slots_in_force(&self, name: &str) -> usize {
        self.tools.get(name).map_or(0, |tool| tool.admission.slots_in_force())
    }

    /// Returns the error for a tool that does not exist. Its message suggests a similar name if
    /// there is one.
    fn unknown(&self, name: &str) -> Error {
        let names: Vec<_> = self.tools.keys().map(String::as_str).collect();
        unknown_name("tool", name, &names, "name it with its cap: tools = { NAME = 8 }")
    }

    /// Returns the state of each tool at `now`, by name. `targets` are the targets whose slots may
    /// be held by tasks that request a tool.
    pub(crate) fn snapshot(&self, targets: &[Arc<Target>], now: Instant) -> BTreeMap<String, ToolSnapshot> {
        let names = || targets.iter().map(|target| target.name());
        let snapshot =
            |tool: &Tool| ToolSnapshot::from_view(&tool.admission.view(), &tool.metrics, names(), now);
        self.tools.iter().map(|(name, tool)| (name.clone(), snapshot(tool))).collect()
    }

    /// Sets the gauges of all tools to their current values. Called before the metrics are
    /// exported.
    pub(crate) fn update_gauges(&self) {
        self.tools.values().for_each(|tool| tool.metrics.set(&tool.admission.view()));
    }

    /// Rejects all waiting and all later requests for tools.
    pub(crate) fn drain(&self) {
        self.tools.values().for_each(|tool| tool.admission.drain());
    }
}

/// Returns the rejection of a task that holds the tool slots `holds` and would wait for the tool
/// `name` for ever. `cycle` are the names of the tools in the deadlock.
fn deadlock_error(name: &str, holds: &Chain, cycle: &[String]) -> Error {
    let held = holds.names().join(", ");
    let text = format!(
        "deadlock: this task holds {held} and wants {name}, and every holder of {name} waits in turn for {}. \
         Take tools in one order everywhere, raise a cap, or release {held} before waiting for {name}",
        cycle.join(", ")
    );
    Error::new(ErrorKind::Refused(Reason::Deadlock), text).at(&name.into())
}

/// A slot of a tool, from [`Gate::acquire_tool`](crate::Gate::acquire_tool). Dropping it releases
/// the slot.
#[must_use = "dropping the permit releases the slot"]
pub struct ToolPermit {
    chain: Chain,
    holdings: Arc<Mutex<Holdings>>,
    permit: Permit,
    /// Guards that keep the task's streaming responses read ahead while it holds the tool, so that
    /// their model slots can be released.
    _yielded: Vec<ReadAheadGuard>,
}

impl ToolPermit {
    /// Returns the tool slots that the task holds, this one included. Set it as [`Context::holds`]
    /// of each call and each request for a tool that the task makes while it holds this slot, so
    /// that deadlocks are detected.
    pub fn chain(&self) -> Chain {
        self.chain.clone()
    }

    /// Marks the slot as used, which charges the rate limit of the tool. A slot that is dropped
    /// without this is not charged. When the slot is released, the adaptive limit counts the work
    /// as completed.
    fn into_used(mut self) -> Self {
        self.permit.on_sent();
        self.permit.set_ended(Ended::Completed { output: 0 });
        self
    }
}

impl std::fmt::Debug for ToolPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolPermit").field("tool", self.chain.tool()).finish_non_exhaustive()
    }
}

impl Drop for ToolPermit {
    fn drop(&mut self) {
        self.holdings.lock().on_released(self.chain.tool(), self.chain.id());
    }
}

/// The record of one wait for deadlock detection. Dropping the guard removes the record.
struct DeadlockGuard {
    id: u64,
    holdings: Arc<Mutex<Holdings>>,
}

impl Drop for DeadlockGuard {
    fn drop(&mut self) {
        self.holdings.lock().end_wait(self.id);
    }
}

#[cfg(test)]
mod tests;
