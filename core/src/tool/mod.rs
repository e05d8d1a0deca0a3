//! Tools: named non-model resources, each with a cap of its own, so that a slow one never costs a model slot.
//!
//! A tool may call another through the same gate. Tasks that hold one and wait for the other, in both orders, would wait for ever: that cycle
//! is found before the wait begins, and refused by name.

mod cycle;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cycle::Holdings;
use parking_lot::Mutex;

use crate::admission::{Admission, Permit};
use crate::clock;
use crate::config::{Mode, ToolConfig};
use crate::context::{Chain, Context};
use crate::error::{Error, ErrorKind, Reason};
use crate::estimate::Demand;
use crate::observe::{Metrics, ToolMetrics, ToolSnapshot};
use crate::schedule::{Settings, Ticket};
use crate::unknown::unknown;

/// A tool's wait is bounded by the caller's deadline, or else by a day: a queue that nobody leaves should end some time.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The tools of a gate.
pub(crate) struct Tools {
    tools: BTreeMap<String, Tool>,
    holdings: Arc<Mutex<Holdings>>,
}

struct Tool {
    admission: Arc<Admission>,
    metrics: ToolMetrics,
    wait: Option<Duration>,
}

impl Tools {
    pub(crate) fn new(config: &BTreeMap<String, ToolConfig>, metrics: &Metrics) -> Self {
        let tools = config.iter().map(|(name, config)| {
            let hint = "raise the tool's `cap` if it can take more, or its `wait`";
            let admission = Admission::new(name.as_str().into(), &Settings::from(config), hint);
            (name.clone(), Tool { admission, metrics: metrics.tool(name), wait: config.wait })
        });
        Self { tools: tools.collect(), holdings: Arc::default() }
    }

    pub(crate) async fn acquire(
        &self,
        name: &str,
        tenant: Arc<str>,
        context: &Context,
        mode: Mode,
    ) -> Result<ToolPermit, Error> {
        let tool = self.tools.get(name).ok_or_else(|| self.unknown(name))?;
        let now = clock::now();
        let ticket = Ticket {
            tenant,
            lane: context.lane,
            queued_at: now,
            deadline: context.deadline.map_or(now + LONGEST, tokio::time::Instant::into_std),
            wait: tool.wait,
            demand: Demand::default(),
            cost: 1.0,
            charged: None,
        };
        let permit = if mode == Mode::Enforce {
            let permit = self.admit(name, tool, ticket, context).await;
            permit.inspect_err(|error| {
                error.reason().into_iter().for_each(|reason| tool.metrics.refused(reason))
            })?
        } else {
            let (permit, would) = tool.admission.force(&ticket);
            if let Some(decision) = would {
                tool.metrics.would(decision);
            }
            permit
        };
        tool.metrics.admitted(permit.waited());
        let chain = Chain::link(context.holds.clone(), tool.admission.name().clone());
        self.holdings.lock().took(tool.admission.name(), chain.id());
        Ok(ToolPermit { chain, holdings: self.holdings.clone(), _permit: permit })
    }

    async fn admit(
        &self,
        name: &str,
        tool: &Tool,
        ticket: Ticket,
        context: &Context,
    ) -> Result<Permit, Error> {
        if let Some(permit) = tool.admission.try_acquire(&ticket)? {
            return Ok(permit);
        }
        let _waiting = self.wait(name, context.holds.as_ref())?;
        tool.admission.acquire(ticket).await
    }

    /// Enters a wait in the books, unless it would never end.
    fn wait(&self, name: &str, holds: Option<&Chain>) -> Result<Option<Wait>, Error> {
        let Some(holds) = holds else { return Ok(None) };
        let mut holdings = self.holdings.lock();
        match holdings.wait(name, holds.ids()) {
            Ok(id) => Ok(Some(Wait { id, holdings: self.holdings.clone() })),
            Err(cycle) => {
                let held = holds.names().join(", ");
                Err(Error::new(
                    ErrorKind::Refused(Reason::Deadlock),
                    format!(
                        "deadlock: this task holds {held} and wants {name}, and every holder of {name} waits in turn for {}. \
                         Take tools in one order everywhere, raise a cap, or give {held} back before asking for {name}",
                        cycle.join(", ")
                    ),
                )
                .at(&name.into()))
            }
        }
    }

    fn unknown(&self, name: &str) -> Error {
        let names: Vec<_> = self.tools.keys().map(String::as_str).collect();
        unknown("tool", name, &names, "name it with its cap: tools = { NAME = 8 }")
    }

    pub(crate) fn snapshot(&self) -> BTreeMap<String, ToolSnapshot> {
        let shown = |tool: &Tool| ToolSnapshot::of(&tool.admission.view(), &tool.metrics);
        self.tools.iter().map(|(name, tool)| (name.clone(), shown(tool))).collect()
    }

    /// Sets the gauges, before they are read.
    pub(crate) fn gauge(&self) {
        self.tools.values().for_each(|tool| tool.metrics.set(&tool.admission.view()));
    }

    pub(crate) fn drain(&self) {
        self.tools.values().for_each(|tool| tool.admission.drain());
    }
}

/// A tool's slot, held.
#[must_use = "dropping the permit gives the slot back"]
#[derive(Debug)]
pub struct ToolPermit {
    chain: Chain,
    holdings: Arc<Mutex<Holdings>>,
    _permit: Permit,
}

impl ToolPermit {
    /// What the task holds with it: put it into the [`Context`] of whatever the task asks for next.
    pub fn chain(&self) -> Chain {
        self.chain.clone()
    }
}

impl Drop for ToolPermit {
    fn drop(&mut self) {
        self.holdings.lock().gave_back(self.chain.tool(), self.chain.id());
    }
}

/// An entry in the books of who waits, for as long as it waits.
struct Wait {
    id: u64,
    holdings: Arc<Mutex<Holdings>>,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.holdings.lock().done(self.id);
    }
}

#[cfg(test)]
mod tests;
