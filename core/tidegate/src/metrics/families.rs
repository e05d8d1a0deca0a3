//! The metric families, registered once per gate.

use parking_lot::Mutex;
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::error::Error;

/// Histogram buckets in seconds, from 1 ms to 10 min: queue waits and long generations share them.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0,
    15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0,
];
/// Histogram buckets in seconds per token.
const TOKEN_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0,
    2.0, 5.0,
];

/// Names of the histograms by tenant and lane.
const BY_LANE: [&str; 3] = ["queue_wait_seconds", "ttft_seconds", "call_seconds"];

const OF_REPLICA: [&str; 2] = ["target", "replica"];

/// All metric families of a gate.
pub(super) struct Families {
    registry: Registry,
    pub(super) queue_wait: HistogramVec,
    pub(super) ttft: HistogramVec,
    pub(super) duration: HistogramVec,
    pub(super) upstream_ttft: HistogramVec,
    pub(super) tpot: HistogramVec,
    pub(super) calls: IntCounterVec,
    pub(super) admitted: IntCounterVec,
    pub(super) refused: IntCounterVec,
    pub(super) objective: IntCounterVec,
    pub(super) attempts: IntCounterVec,
    pub(super) retries: IntCounterVec,
    pub(super) failures: IntCounterVec,
    pub(super) gave_up: IntCounterVec,
    pub(super) cool_downs: IntCounterVec,
    pub(super) fallbacks: IntCounterVec,
    pub(super) hedges: IntCounterVec,
    pub(super) tokens: IntCounterVec,
    pub(super) would: IntCounterVec,
    pub(super) in_flight: GaugeVec,
    pub(super) limit: GaugeVec,
    pub(super) limit_moves: IntCounterVec,
    pub(super) limit_saturated: GaugeVec,
    pub(super) awaiting: GaugeVec,
    pub(super) awaiting_limit: GaugeVec,
    pub(super) waiting: GaugeVec,
    pub(super) cooling: GaugeVec,
    pub(super) gap: CounterVec,
    pub(super) budget_limit: GaugeVec,
    pub(super) budget_level: GaugeVec,
    pub(super) kv: GaugeVec,
    pub(super) replica_calls: IntCounterVec,
    pub(super) replica_failures: IntCounterVec,
    pub(super) replica_hops: IntCounterVec,
    pub(super) replica_ejections: IntCounterVec,
    pub(super) replica_in_flight: GaugeVec,
    pub(super) replica_limit: GaugeVec,
    pub(super) replica_in_choice: GaugeVec,
    pub(super) replica_others: GaugeVec,
    pub(super) held: IntCounterVec,
    tools: Mutex<Vec<String>>,
    pub(super) tool_wait: HistogramVec,
    pub(super) tool_refused: IntCounterVec,
    pub(super) tool_would: IntCounterVec,
    pub(super) tool_in_flight: GaugeVec,
    pub(super) tool_limit: GaugeVec,
    pub(super) tool_limit_moves: IntCounterVec,
    pub(super) tool_limit_saturated: GaugeVec,
    pub(super) tool_waiting: GaugeVec,
}

impl Families {
    pub(super) fn new() -> Result<Self, Error> {
        Self::register().map_err(|error| Error::config(format!("metrics: {error}")))
    }

    fn register() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let of_tenant = ["target", "tenant", "lane"];
        Ok(Self {
            queue_wait: histogram(
                &registry,
                BY_LANE[0],
                "From queued_at to admitted_at.",
                SECONDS,
                &of_tenant,
            )?,
            ttft: histogram(
                &registry,
                BY_LANE[1],
                "User TTFT: from queued_at to the first token.",
                SECONDS,
                &of_tenant,
            )?,
            duration: histogram(
                &registry,
                BY_LANE[2],
                "End to end, of completed calls.",
                SECONDS,
                &of_tenant,
            )?,
            upstream_ttft: histogram(
                &registry,
                "upstream_ttft_seconds",
                "From sent_at to the first token.",
                SECONDS,
                &["target"],
            )?,
            tpot: histogram(
                &registry,
                "tpot_seconds",
                "Seconds per output token after the first.",
                TOKEN_SECONDS,
                &["target"],
            )?,
            calls: counter(
                &registry,
                "calls_total",
                "Calls ended, by outcome.",
                &["target", "tenant", "outcome"],
            )?,
            admitted: counter(&registry, "admitted_total", "Attempts admitted.", &["target", "tenant"])?,
            refused: counter(
                &registry,
                "refused_total",
                "Calls refused, by reason.",
                &["target", "tenant", "reason"],
            )?,
            objective: counter(
                &registry,
                "objective_met_total",
                "Completed calls that met the TTFT objective: goodput.",
                &["target", "tenant"],
            )?,
            attempts: counter(&registry, "attempts_total", "Attempts sent upstream.", &["target"])?,
            retries: counter(
                &registry,
                "retries_total",
                "Retries scheduled, by cause.",
                &["target", "cause"],
            )?,
            failures: counter(
                &registry,
                "failed_attempts_total",
                "Attempts that failed, by class.",
                &["target", "class"],
            )?,
            gave_up: counter(
                &registry,
                "gave_up_total",
                "Failures handed up, by why no retry followed.",
                &["target", "why"],
            )?,
            cool_downs: counter(
                &registry,
                "cool_downs_total",
                "Failures that met or began a cool-down, by kind.",
                &["target", "kind"],
            )?,
            fallbacks: counter(
                &registry,
                "fallbacks_total",
                "Calls refused that went to the fallback target, by reason.",
                &["target", "reason"],
            )?,
            hedges: counter(
                &registry,
                "hedges_total",
                "Second tries of calls whose first token was late, at other replicas, by what became of them.",
                &["target", "outcome"],
            )?,
            tokens: counter(
                &registry,
                "tokens_total",
                "Tokens as the provider counted them.",
                &["target", "tenant", "direction"],
            )?,
            would: counter(
                &registry,
                "observed_total",
                "What observe mode would have done, by decision.",
                &["target", "decision"],
            )?,
            in_flight: gauge(&registry, "in_flight", "Slots held.", &["target", "tenant"])?,
            limit: gauge(&registry, "limit", "Slots in force.", &["target"])?,
            limit_moves: counter(
                &registry,
                "limit_moves_total",
                "Moves of an adaptive limit, by cause.",
                &["target", "cause"],
            )?,
            limit_saturated: gauge(
                &registry,
                "limit_saturated",
                "1 while calls press on a limit that was found too high in the last minute: the upstream needs more replicas.",
                &["target"],
            )?,
            awaiting: gauge(
                &registry,
                "awaiting_first_token",
                "Calls in flight that await their first token, where that is bounded.",
                &["target"],
            )?,
            awaiting_limit: gauge(
                &registry,
                "awaiting_first_token_limit",
                "The most calls that may await their first token.",
                &["target"],
            )?,
            waiting: gauge(&registry, "queue_depth", "Calls waiting.", &["target", "tenant"])?,
            cooling: gauge(&registry, "cooling_seconds", "Until the cool-down ends.", &["target"])?,
            replica_calls: counter(
                &registry,
                "replica_calls_total",
                "Attempts sent to a replica of a pool.",
                &OF_REPLICA,
            )?,
            replica_failures: counter(
                &registry,
                "replica_failures_total",
                "Attempts that failed at a replica, by cause: it was full (503), limited the rate (429), was gone (no connection), was late, or broke.",
                &["target", "replica", "cause"],
            )?,
            replica_hops: counter(
                &registry,
                "replica_hops_total",
                "Attempts that a replica did not begin, and that another got at once.",
                &OF_REPLICA,
            )?,
            replica_in_flight: gauge(
                &registry,
                "replica_in_flight",
                "Calls of ours at a replica.",
                &OF_REPLICA,
            )?,
            replica_ejections: counter(
                &registry,
                "replica_ejections_total",
                "How often a replica has left the choice.",
                &OF_REPLICA,
            )?,
            replica_limit: gauge(&registry, "replica_limit", "Slots in force at a replica.", &OF_REPLICA)?,
            replica_in_choice: gauge(
                &registry,
                "replica_in_choice",
                "1 while calls may go to a replica.",
                &OF_REPLICA,
            )?,
            replica_others: gauge(
                &registry,
                "replica_others",
                "Calls of other clients at a replica, by its own figures; no sample where they are not known.",
                &OF_REPLICA,
            )?,
            held: counter(
                &registry,
                "slot_held_for_tool_total",
                "Model slots that a task held when it asked for a tool: it got the tool at once, waited for it, or handed the slot back meanwhile.",
                &["target", "tool", "how"],
            )?,
            tools: Mutex::default(),
            budget_limit: gauge(
                &registry,
                "budget_limit",
                "A provider's rate in force: requests or tokens a minute, or a day where the budget says so.",
                &["target", "budget"],
            )?,
            budget_level: gauge(
                &registry,
                "budget_level",
                "What may go at once of a provider's rate; below zero what is owed.",
                &["target", "budget"],
            )?,
            kv: gauge(
                &registry,
                "kv_tokens",
                "The engine's memory: usable, held by calls in flight, and the peak that they will come to.",
                &["target", "what"],
            )?,
            tool_wait: histogram(
                &registry,
                "tool_wait_seconds",
                "From asking for a tool to its slot.",
                SECONDS,
                &["tool"],
            )?,
            tool_refused: counter(
                &registry,
                "tool_refused_total",
                "Tool slots refused, by reason.",
                &["tool", "reason"],
            )?,
            tool_would: counter(
                &registry,
                "tool_observed_total",
                "What observe mode would have done, by decision.",
                &["tool", "decision"],
            )?,
            tool_in_flight: gauge(&registry, "tool_in_flight", "Tool slots held.", &["tool"])?,
            tool_limit: gauge(&registry, "tool_limit", "Slots of the tool in force.", &["tool"])?,
            tool_limit_moves: counter(
                &registry,
                "tool_limit_moves_total",
                "Moves of a tool's adaptive limit, by cause.",
                &["tool", "cause"],
            )?,
            tool_limit_saturated: gauge(
                &registry,
                "tool_limit_saturated",
                "1 while calls press on a tool's limit that was found too high in the last minute.",
                &["tool"],
            )?,
            tool_waiting: gauge(&registry, "tool_queue_depth", "Waiting for a tool.", &["tool"])?,
            gap: {
                let family = CounterVec::new(
                    opts("gap_seconds_total", "Time in which calls waited while slots were free."),
                    &["target"],
                )?;
                registry.register(Box::new(family.clone()))?;
                family
            },
            registry,
        })
    }

    /// Adds a tool. Each target that is created later has series with it.
    pub(super) fn of_tool(&self, tool: &str) {
        self.tools.lock().push(tool.to_owned());
    }

    /// Returns the names of the tools added so far.
    pub(super) fn tools(&self) -> Vec<String> {
        self.tools.lock().clone()
    }

    /// Returns the text of all series. No lock is held while it is written.
    ///
    /// A histogram of a tenant and lane is left out until its first value: it has 29 lines, and
    /// most lanes are never used. It appears whole, because a quantile is wrong if some buckets are
    /// missing.
    pub(super) fn text(&self) -> String {
        let mut families = self.registry.gather();
        families.retain_mut(|family| {
            if BY_LANE.iter().any(|name| family.name().strip_prefix("tidegate_") == Some(name)) {
                family.mut_metric().retain(|metric| metric.get_histogram().get_sample_count() > 0);
            }
            !family.get_metric().is_empty()
        });
        prometheus::TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }
}

/// Ignores the result of removing a series: it fails if the series never existed.
pub(super) fn gone(_: prometheus::Result<()>) {}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("tidegate")
}

fn counter(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> prometheus::Result<IntCounterVec> {
    let family = IntCounterVec::new(opts(name, help), labels)?;
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}

fn gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> prometheus::Result<GaugeVec> {
    let family = GaugeVec::new(opts(name, help), labels)?;
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}

fn histogram(
    registry: &Registry,
    name: &str,
    help: &str,
    buckets: &[f64],
    labels: &[&str],
) -> prometheus::Result<HistogramVec> {
    let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
    let family = HistogramVec::new(opts, labels)?;
    registry.register(Box::new(family.clone()))?;
    Ok(family)
}
