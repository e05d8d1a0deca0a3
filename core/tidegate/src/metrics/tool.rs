//! The metrics of one tool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::{GaugeVec, Histogram};

use super::families::{Families, nonzero};
use super::limit::LimitMetrics;
use super::target::decisions;
use crate::config::{LimitConfig, ToolConfig};
use crate::error::Reason;
use crate::metrics::Quantiles;
use crate::schedule::SchedulerView;

/// What happened to a model slot that a task held when it requested a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeldSlotUse {
    /// The tool had a free slot, so the task did not wait.
    Got,
    /// The task waited for the tool, and kept the model slot meanwhile.
    Waited,
    /// The response is read into memory while the task waits for the tool and holds it, so that the
    /// model slot can be released early.
    Yielded,
}

impl HeldSlotUse {
    pub(super) const ALL: [HeldSlotUse; 3] = [HeldSlotUse::Got, HeldSlotUse::Waited, HeldSlotUse::Yielded];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            HeldSlotUse::Got => "got",
            HeldSlotUse::Waited => "waited",
            HeldSlotUse::Yielded => "yielded",
        }
    }
}

/// The Prometheus series of one tool. They exist before the first request for the tool.
pub(crate) struct ToolMetrics {
    name: Arc<str>,
    families: Arc<Families>,
    wait: Histogram,
    adaptive: Option<LimitMetrics>,
}

impl ToolMetrics {
    pub(super) fn new(families: &Arc<Families>, tool: &str, config: &ToolConfig) -> Self {
        for reason in Reason::ALL {
            families.tool_refused.with_label_values(&[tool, reason.as_str()]);
        }
        for decision in decisions() {
            families.tool_would.with_label_values(&[tool, decision]);
        }
        for gauge in [&families.tool_in_flight, &families.tool_limit, &families.tool_waiting] {
            gauge.with_label_values(&[tool]);
        }
        families.add_tool(tool);
        Self {
            name: tool.into(),
            families: families.clone(),
            wait: families.tool_wait.with_label_values(&[tool]),
            adaptive: (config.limit != LimitConfig::Fixed).then(|| LimitMetrics::for_tool(families, tool)),
        }
    }

    /// Records the time that a task waited for the tool until its request was admitted.
    pub(crate) fn on_admitted(&self, waited: Duration) {
        self.wait.observe(waited.as_secs_f64());
    }

    /// Counts a rejected request for the tool, by reason.
    pub(crate) fn on_refused(&self, reason: Reason) {
        self.families.tool_refused.with_label_values(&[&*self.name, reason.as_str()]).inc();
    }

    /// Counts the decision that mode `enforce` would have made about a request for the tool in mode
    /// `observe` or `off`. `decision` is `wait`, or the name of the [`Reason`] of a rejection.
    pub(crate) fn on_observed_decision(&self, decision: &str) {
        self.families.tool_would.with_label_values(&[&*self.name, decision]).inc();
    }

    /// Counts a request for the tool by a task that held a slot of the target named `target`. `how`
    /// states what happened to the slot.
    pub(crate) fn on_request_while_held(&self, target: &str, how: HeldSlotUse) {
        self.families.held.with_label_values(&[target, &self.name, how.as_str()]).inc();
    }

    /// Returns how often tasks requested the tool while they held a slot of one of `targets`. The
    /// keys are the name of the target, and then the label of a [`HeldSlotUse`]. Omits zeros.
    pub(crate) fn held_slots<'a>(
        &self,
        targets: impl Iterator<Item = &'a Arc<str>>,
    ) -> BTreeMap<Arc<str>, BTreeMap<&'static str, u64>> {
        let at = |target: &Arc<str>| -> BTreeMap<_, _> {
            let count = |how: &'static str| {
                (how, self.families.held.with_label_values(&[target, &self.name, how]).get())
            };
            HeldSlotUse::ALL.map(|how| count(how.as_str())).into_iter().filter(|(_, n)| *n > 0).collect()
        };
        let counts = targets.map(|target| (target.clone(), at(target)));
        counts.filter(|(_, counts)| !counts.is_empty()).collect()
    }

    /// Returns the distribution of the times that admitted tasks waited for the tool, in seconds.
    pub(crate) fn waits(&self) -> Quantiles {
        Quantiles::from_histograms([&self.wait])
    }

    /// Returns the number of rejected requests for the tool, by reason. Reasons without rejections
    /// are omitted.
    pub(crate) fn rejections(&self) -> BTreeMap<&'static str, u64> {
        nonzero(&self.families.tool_refused, &self.name, Reason::ALL.map(Reason::as_str))
    }

    /// Returns how often [`ToolMetrics::would`] was called, by decision. Omits zeros.
    pub(crate) fn observed_decisions(&self) -> BTreeMap<&'static str, u64> {
        nonzero(&self.families.tool_would, &self.name, decisions())
    }

    /// Sets the gauges to the values in `view`. Called before the metrics are exported.
    pub(crate) fn set(&self, view: &SchedulerView) {
        let set = |family: &GaugeVec, value| family.with_label_values(&[&*self.name]).set(value as f64);
        set(&self.families.tool_in_flight, view.in_flight);
        set(&self.families.tool_limit, view.limit);
        set(&self.families.tool_waiting, view.waiting);
        if let Some(limit) = &self.adaptive {
            limit.set(view.adaptive.as_ref());
        }
    }
}
