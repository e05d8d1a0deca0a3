//! The metric families of a gate: their names, help texts, labels and buckets.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc, MetricVec, MetricVecBuilder};
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::error::Error;

/// Upper bounds of the histogram buckets, in seconds, from 1 ms to 10 min. All histograms except
/// the times per output token use these buckets.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0,
    15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0,
];
/// Upper bounds of the histogram buckets for times per output token, in seconds, from 1 ms to 5 s.
const TOKEN_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0,
    2.0, 5.0,
];

/// Names of the histograms with the labels target, tenant and lane, without the prefix `tidegate_`.
const BY_LANE: [&str; 3] = ["queue_wait_seconds", "ttft_seconds", "call_seconds"];

/// The possible values of labels, by the name of the label.
pub(super) type LabelValues<'a> = HashMap<&'static str, Vec<&'a str>>;

/// Declares the metric families of a gate. Each line has the name of the field, its type, the
/// function that creates its options, the metric name without the prefix `tidegate_`, the help
/// text, and the labels.
macro_rules! families {
    ($($field:ident: $type:ident = $opts:ident($name:expr, $help:literal, $labels:expr);)*) => {
        /// All metric families of a gate, and the registry that exports them. A family is a metric
        /// name with one time series for each combination of label values.
        pub(super) struct Families {
            registry: Registry,
            tools: Mutex<Vec<String>>,
            $(pub(super) $field: $type,)*
        }

        impl Families {
            /// Returns `None` if a family is declared twice, or with an invalid name.
            fn register() -> Option<Self> {
                let registry = Registry::new();
                // A return after each family would drop those before it: 100 kB of the Python
                // wheel.
                let ($(Some($field),)*) =
                    ($(registered(&registry, $type::new, $opts, ($name, $help), &$labels),)*)
                else {
                    return None;
                };
                Some(Self { $($field,)* tools: Mutex::default(), registry })
            }

            /// Removes the series of each family with this `label`, for all combinations of
            /// `values`. Values that another thread adds to a removed series afterwards are not
            /// exported.
            ///
            /// The cost does not depend on the number of other series.
            pub(super) fn remove(&self, label: &str, values: &LabelValues<'_>) {
                $(remove(&self.$field, label, values);)*
            }
        }
    };
}

families! {
    queue_wait: HistogramVec = seconds(BY_LANE[0],
        "Time that an admitted attempt waited in the queue.", ["target", "tenant", "lane"]);
    ttft: HistogramVec = seconds(BY_LANE[1],
        "Time from a call to its first token, including the time in the queue.", ["target", "tenant", "lane"]);
    duration: HistogramVec = seconds(BY_LANE[2],
        "Duration of completed calls, including the time in the queue.", ["target", "tenant", "lane"]);
    upstream_ttft: HistogramVec = seconds("upstream_ttft_seconds",
        "Time from sending an attempt to its first token.", ["target"]);
    tpot: HistogramVec = token_seconds("tpot_seconds", "Time per output token after the first.", ["target"]);
    calls: IntCounterVec = opts("calls_total",
        "Calls that have ended, by outcome.", ["target", "tenant", "outcome"]);
    admitted: IntCounterVec = opts("admitted_total", "Attempts that got a slot.", ["target", "tenant"]);
    refused: IntCounterVec = opts("refused_total",
        "Calls that the gate rejected, by reason.", ["target", "tenant", "reason"]);
    objective: IntCounterVec = opts("objective_met_total",
        "Completed calls that met the TTFT objective of their lane or target (goodput). Calls that do not stream count by their duration. Divide by tidegate_call_seconds_count: tidegate_calls_total also counts requests that run no model.", ["target", "tenant"]);
    attempts: IntCounterVec = opts("attempts_total", "Attempts sent to the upstream.", ["target"]);
    retries: IntCounterVec = opts("retries_total",
        "Retries, by the class of the failure or the cause.", ["target", "cause"]);
    failures: IntCounterVec = opts("failed_attempts_total",
        "Attempts that failed, by failure class.", ["target", "class"]);
    gave_up: IntCounterVec = opts("gave_up_total",
        "Calls that failed at the target, by the reason why no retry was made. The caller does not see the failure if a fallback answers.", ["target", "why"]);
    cool_downs: IntCounterVec = opts("cool_downs_total",
        "Failures that began a cool-down or fell into one, by kind.", ["target", "kind"]);
    fallbacks: IntCounterVec = opts("fallbacks_total",
        "Calls that were sent to the fallback target, by the reason of their rejection, or outage if no connection could be made.", ["target", "reason"]);
    hedges: IntCounterVec = opts("hedges_total",
        "Calls whose first token was late, by what became of the second attempt at another replica.", ["target", "outcome"]);
    tokens: IntCounterVec = opts("tokens_total",
        "Tokens that the provider reported, by direction.", ["target", "tenant", "direction"]);
    would: IntCounterVec = opts("observed_total",
        "Calls that observe mode would have delayed or rejected, by decision.", ["target", "decision"]);
    in_flight: GaugeVec = opts("in_flight", "Slots in use.", ["target", "tenant"]);
    limit: GaugeVec = opts("limit",
        "Slots in force: the configured cap, or the adaptive limit.", ["target"]);
    share_slots: GaugeVec = opts("share_slots",
        "Slots of a shared cap that this process may use. Only for caps that several processes share.", ["target"]);
    share_processes: GaugeVec = opts("share_processes",
        "Processes that share the cap. Only for caps that several processes share.", ["target"]);
    share_safe_mode: GaugeVec = opts("share_safe_mode",
        "1 if the broker of the shared cap is lost or cannot be reached, otherwise 0. Only for caps that several processes share.", ["target"]);
    limit_moves: IntCounterVec = opts("limit_moves_total",
        "Changes of the adaptive limit, by cause.", ["target", "cause"]);
    limit_saturated: GaugeVec = opts("limit_saturated",
        "1 if demand exceeds an adaptive limit that was found too high within the last minute (add replicas), otherwise 0. For pools: of all replicas that accept calls.", ["target"]);
    awaiting: GaugeVec = opts("awaiting_first_token",
        "Calls in flight that await their first token. Only for adaptive limits.", ["target"]);
    awaiting_limit: GaugeVec = opts("awaiting_first_token_limit",
        "Maximum number of calls that may await their first token. Only for adaptive limits.", ["target"]);
    awaiting_work: GaugeVec = opts("awaiting_first_token_tokens",
        "Prompt tokens of the calls in flight that await their first token, plus 256 for each. Only for adaptive limits.", ["target"]);
    first_token_capacity: GaugeVec = opts("first_token_capacity_tokens",
        "Value of tidegate_awaiting_first_token_tokens that keeps the upstream busy without a queue. No sample until it is known.", ["target"]);
    tenants_held: GaugeVec = opts("tenants_held",
        "1 if no call of the tenant is sent because it uses its share of the target, otherwise 0. For the tenant `other`: the number of such tenants.", ["target", "tenant"]);
    waiting: GaugeVec = opts("queue_depth", "Calls that wait for a slot.", ["target", "tenant"]);
    cooling: GaugeVec = opts("cooling_seconds",
        "Seconds until the cool-down ends. 0 if there is none or its end is not known. If several models or keys use the target: the longest of their cool-downs.", ["target"]);
    target_state: GaugeVec = opts("target_state",
        "1 for the current state of the target, 0 for its other states. `open`: calls are sent. `cooling`: none are sent, or no replica accepts calls. `probing`: single calls test the upstream. `ramping`: calls are sent at a growing rate.", ["target", "state"]);
    gap: CounterVec = opts("gap_seconds_total",
        "Time in which a waiting call met every rule and was not sent. Near 0 unless the scheduler has a defect.", ["target"]);
    budget_limit: GaugeVec = opts("budget_limit",
        "Rate limit in force, in requests or tokens per window of the budget.", ["target", "budget"]);
    budget_level: GaugeVec = opts("budget_level",
        "Requests or tokens that may be sent now. Negative if there is debt.", ["target", "budget"]);
    kv: GaugeVec = opts("kv_tokens",
        "KV memory of the engine in tokens: usable, held by calls in flight, and the peak that they are expected to reach.",
        ["target", "what"]);
    replica_calls: IntCounterVec = opts("replica_calls_total",
        "Attempts sent to a replica.", ["target", "replica"]);
    replica_failures: IntCounterVec = opts("replica_failures_total",
        "Attempts that failed at a replica, by cause: full (503), limited (429), gone (no connection), late (timeout) or broke (any other failure).",
        ["target", "replica", "cause"]);
    replica_hops: IntCounterVec = opts("replica_hops_total",
        "Attempts that a replica rejected before starting them and that another replica got at once.", ["target", "replica"]);
    replica_ejections: IntCounterVec = opts("replica_ejections_total",
        "How often a replica was taken out of the selection because it failed.", ["target", "replica"]);
    replica_in_flight: GaugeVec = opts("replica_in_flight",
        "Requests of this gate at a replica.", ["target", "replica"]);
    replica_limit: GaugeVec = opts("replica_limit", "Slots in force at a replica.", ["target", "replica"]);
    replica_in_choice: GaugeVec = opts("replica_in_choice",
        "1 if calls may be sent to the replica, otherwise 0.", ["target", "replica"]);
    replica_others: GaugeVec = opts("replica_others",
        "Requests of other clients at a replica, by its own metrics. No sample if they are unknown.", ["target", "replica"]);
    held: IntCounterVec = opts("slot_held_for_tool_total",
        "Model slots that a task held when it asked for a tool: it got the tool at once, waited for it, or yielded the slot.",
        ["target", "tool", "how"]);
    tool_wait: HistogramVec = seconds("tool_wait_seconds",
        "Time that an admitted task waited for the tool.", ["tool"]);
    tool_refused: IntCounterVec = opts("tool_refused_total",
        "Waits for a tool that the gate rejected, by reason.", ["tool", "reason"]);
    tool_would: IntCounterVec = opts("tool_observed_total",
        "Waits for a tool that observe mode would have delayed or rejected, by decision.", ["tool", "decision"]);
    tool_in_flight: GaugeVec = opts("tool_in_flight", "Slots of the tool in use.", ["tool"]);
    tool_limit: GaugeVec = opts("tool_limit", "Slots of the tool in force.", ["tool"]);
    tool_limit_moves: IntCounterVec = opts("tool_limit_moves_total",
        "Changes of the adaptive limit of a tool, by cause.", ["tool", "cause"]);
    tool_limit_saturated: GaugeVec = opts("tool_limit_saturated",
        "1 if demand exceeds the adaptive limit of a tool that was found too high within the last minute, otherwise 0.", ["tool"]);
    tool_waiting: GaugeVec = opts("tool_queue_depth", "Tasks that wait for the tool.", ["tool"]);
}

impl Families {
    pub(super) fn new() -> Result<Self, Error> {
        let invalid = || Error::config("metrics: a family is declared twice, or with an invalid name");
        Self::register().ok_or_else(invalid)
    }

    /// Adds `tool` to the names that [`Families::tools`] returns.
    pub(super) fn add_tool(&self, tool: &str) {
        self.tools.lock().push(tool.to_owned());
    }

    /// Returns the names of the tools added so far. For each of them, each target counts how often
    /// a task held one of its slots while requesting the tool.
    pub(super) fn tools(&self) -> Vec<String> {
        self.tools.lock().clone()
    }

    /// Returns all series in the Prometheus text format. No lock is held while the text is written.
    ///
    /// A histogram by tenant and lane is omitted until its first value, because it has 29 lines and
    /// most lanes are never used. After that, all its buckets are included, because a quantile is
    /// wrong if some buckets are missing.
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

/// Returns the values above 0 of a counter with two labels, by the value of the second label. The
/// first label is `owner`, the name of a target or tool. Only the second labels in `labels` are
/// looked up.
pub(super) fn nonzero(
    family: &IntCounterVec,
    owner: &str,
    labels: impl IntoIterator<Item = &'static str>,
) -> BTreeMap<&'static str, u64> {
    let count = |label| (label, family.with_label_values(&[owner, label]).get());
    labels.into_iter().map(count).filter(|(_, count)| *count > 0).collect()
}

/// Sets a series of a family, or removes it if there is no value.
pub(super) fn set_or_remove(family: &GaugeVec, labels: &[&str], value: Option<f64>) {
    match value {
        Some(value) => family.with_label_values(labels).set(value),
        None => {
            // Fails if the series does not exist.
            let _ = family.remove_label_values(labels);
        }
    }
}

/// Removes the series of a family for all combinations of `values`, if it has this `label`.
fn remove<B: MetricVecBuilder>(family: &MetricVec<B>, label: &str, values: &LabelValues<'_>) {
    let has_label = |desc: &&Desc| desc.variable_labels.iter().any(|name| name == label);
    for desc in family.desc().into_iter().filter(has_label) {
        let mut series = vec![Vec::new()];
        for name in &desc.variable_labels {
            debug_assert!(values.contains_key(name.as_str()), "the values of {name} are not known");
            let of_label = values.get(name.as_str()).map_or(&[][..], Vec::as_slice);
            let with_each =
                |labels: Vec<_>| of_label.iter().map(move |value| [&labels, &[*value][..]].concat());
            series = series.into_iter().flat_map(with_each).collect();
        }
        for labels in series {
            // Fails for the many combinations that do not exist.
            let _ = family.remove_label_values(&labels);
        }
    }
}

/// Returns the options of a family with this name, to which the prefix `tidegate_` is added.
fn opts(name: &str, help: &str) -> Opts {
    Opts::new(name, help).namespace("tidegate")
}

/// Creates a family with this name, help text and labels, registers it, and returns it. `options`
/// returns its options. Returns `None` if the name is invalid or registered already.
#[inline(never)] // One copy for each family would take 100 kB of the Python wheel.
fn registered<O, C: Collector + Clone + 'static>(
    registry: &Registry,
    create: fn(O, &[&str]) -> prometheus::Result<C>,
    options: fn(&str, &str) -> O,
    (name, help): (&str, &str),
    labels: &[&str],
) -> Option<C> {
    let family = create(options(name, help), labels).ok()?;
    registry.register(Box::new(family.clone())).ok()?;
    Some(family)
}

/// Returns the options of a histogram with the buckets [`SECONDS`], from 1 ms to 10 min.
fn seconds(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::from(opts(name, help)).buckets(SECONDS.to_vec())
}

/// Returns the options of a histogram with the buckets [`TOKEN_SECONDS`], from 1 ms to 5 s.
fn token_seconds(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::from(opts(name, help)).buckets(TOKEN_SECONDS.to_vec())
}
