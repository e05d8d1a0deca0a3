//! Every series that a gate exports. Each exists from the start for what is configured, so that a rate over it has a zero to start from.
//!
//! Tenants that nobody configured share the label `other`: label values never come from outside without a bound.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts,
    Registry,
};

use super::Outcome;
use crate::config::TargetConfig;
use crate::context::Lane;
use crate::cooldown::Hold;
use crate::error::{Error, Reason};
use crate::retry::Why;
use crate::schedule::View;

/// Seconds, from a millisecond to ten minutes: a wait in the queue and a long generation fit the same scale.
const SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0,
    15.0, 20.0, 30.0, 45.0, 60.0, 120.0, 300.0, 600.0,
];
/// Seconds a token.
const TOKEN_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0,
    2.0, 5.0,
];

const OTHER: &str = "other";

/// What the class of a failed attempt may be: the provider's answers, then the transport's errors.
const CLASSES: &[&str] = &[
    "rate_limited",
    "overloaded",
    "server_error",
    "timeout",
    "conflict",
    "quota_exhausted",
    "bad_request",
    "unauthorized",
    "too_large",
    "not_found",
    "other",
    "connect",
    "connect_timeout",
    "transport",
    "truncated",
    "first_token_timeout",
    "idle_timeout",
];
const WHYS: &[Why] = &[Why::Final, Why::Unsafe, Why::Attempts, Why::Budget, Why::Deadline];

/// The families, registered once per gate.
pub(crate) struct Metrics {
    registry: Registry,
    queue_wait: HistogramVec,
    ttft: HistogramVec,
    duration: HistogramVec,
    upstream_ttft: HistogramVec,
    tpot: HistogramVec,
    calls: IntCounterVec,
    admitted: IntCounterVec,
    refused: IntCounterVec,
    objective: IntCounterVec,
    attempts: IntCounterVec,
    retries: IntCounterVec,
    failures: IntCounterVec,
    gave_up: IntCounterVec,
    cool_downs: IntCounterVec,
    tokens: IntCounterVec,
    would: IntCounterVec,
    in_flight: GaugeVec,
    limit: GaugeVec,
    waiting: GaugeVec,
    cooling: GaugeVec,
    gap: CounterVec,
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, Error> {
        Self::register().map_err(|error| Error::config(format!("metrics: {error}")))
    }

    fn register() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let of_tenant = ["target", "tenant", "lane"];
        Ok(Self {
            queue_wait: histogram(
                &registry,
                "queue_wait_seconds",
                "From queued_at to admitted_at.",
                SECONDS,
                &of_tenant,
            )?,
            ttft: histogram(
                &registry,
                "ttft_seconds",
                "User TTFT: from queued_at to the first token.",
                SECONDS,
                &of_tenant,
            )?,
            duration: histogram(
                &registry,
                "call_seconds",
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
            limit: gauge(&registry, "limit", "The limit in force.", &["target"])?,
            waiting: gauge(&registry, "queue_depth", "Calls waiting.", &["target", "tenant"])?,
            cooling: gauge(&registry, "cooling_seconds", "Until the cool-down ends.", &["target"])?,
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

    /// The series of one target.
    pub(crate) fn target(self: &Arc<Self>, config: &TargetConfig) -> TargetMetrics {
        let name: &str = &config.name;
        for class in CLASSES {
            self.failures.with_label_values(&[name, class]);
            self.retries.with_label_values(&[name, class]);
        }
        for why in WHYS {
            self.gave_up.with_label_values(&[name, why.as_str()]);
        }
        for decision in std::iter::once("wait").chain(Reason::ALL.map(Reason::as_str)) {
            self.would.with_label_values(&[name, decision]);
        }
        let other = Arc::new(TenantMetrics::new(self, name, OTHER));
        let default = crate::gate::DEFAULT_TENANT;
        let named = config.tenants.keys().map(|tenant| &**tenant).chain([default]);
        TargetMetrics {
            tenants: named
                .map(|tenant| (Arc::from(tenant), Arc::new(TenantMetrics::new(self, name, tenant))))
                .collect(),
            other,
            upstream_ttft: self.upstream_ttft.with_label_values(&[name]),
            tpot: self.tpot.with_label_values(&[name]),
            attempts: self.attempts.with_label_values(&[name]),
            cool_down: self.cool_downs.with_label_values(&[name, "retry_after"]),
            outage: self.cool_downs.with_label_values(&[name, "outage"]),
            families: self.clone(),
            name: config.name.clone(),
        }
    }

    /// The text of all series, after the gauges were set from these views.
    pub(crate) fn text<'a>(&self, views: impl Iterator<Item = (&'a TargetMetrics, View)>) -> String {
        for (target, view) in views {
            target.set(&view);
        }
        prometheus::TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

/// The series of one target, looked up once.
pub(crate) struct TargetMetrics {
    name: Arc<str>,
    families: Arc<Metrics>,
    tenants: HashMap<Arc<str>, Arc<TenantMetrics>>,
    other: Arc<TenantMetrics>,
    upstream_ttft: Histogram,
    tpot: Histogram,
    attempts: IntCounter,
    cool_down: IntCounter,
    outage: IntCounter,
}

impl TargetMetrics {
    /// The series of a tenant, or the ones that all others share.
    pub(crate) fn tenant(&self, tenant: &Arc<str>) -> Arc<TenantMetrics> {
        self.tenants.get(tenant).unwrap_or(&self.other).clone()
    }

    pub(crate) fn attempted(&self) {
        self.attempts.inc();
    }

    pub(crate) fn upstream_ttft(&self, seconds: Duration) {
        self.upstream_ttft.observe(seconds.as_secs_f64());
    }

    pub(crate) fn tpot(&self, seconds: f64) {
        self.tpot.observe(seconds);
    }

    pub(crate) fn retried(&self, cause: &str) {
        self.families.retries.with_label_values(&[&*self.name, cause]).inc();
    }

    pub(crate) fn upstream_failed(&self, class: &str) {
        self.families.failures.with_label_values(&[&*self.name, class]).inc();
    }

    pub(crate) fn gave_up(&self, why: Why) {
        self.families.gave_up.with_label_values(&[&*self.name, why.as_str()]).inc();
    }

    pub(crate) fn cooled(&self, hold: Hold) {
        match hold {
            Hold::No => {}
            Hold::CoolDown => self.cool_down.inc(),
            Hold::Outage => self.outage.inc(),
        }
    }

    pub(crate) fn would(&self, decision: &str) {
        self.families.would.with_label_values(&[&*self.name, decision]).inc();
    }

    pub(crate) fn all_tenants(&self) -> impl Iterator<Item = (&str, &TenantMetrics)> {
        self.tenants.iter().map(|(name, tenant)| (&**name, &**tenant)).chain([(OTHER, &*self.other)])
    }

    pub(crate) fn upstream_ttft_seen(&self) -> super::Quantiles {
        super::Quantiles::of(&[&self.upstream_ttft])
    }

    pub(crate) fn tpot_seen(&self) -> super::Quantiles {
        super::Quantiles::of(&[&self.tpot])
    }

    pub(crate) fn attempts_seen(&self) -> u64 {
        self.attempts.get()
    }

    /// The sums over one label of a counter of this target.
    pub(crate) fn by_label(&self, family: Family, label: &str) -> Vec<(String, u64)> {
        let family = match family {
            Family::Retries => &self.families.retries,
            Family::Failures => &self.families.failures,
            Family::GaveUp => &self.families.gave_up,
            Family::CoolDowns => &self.families.cool_downs,
            Family::Would => &self.families.would,
        };
        let mut found: Vec<_> = family
            .collect()
            .iter()
            .flat_map(|collected| collected.get_metric())
            .filter_map(|metric| {
                let value_of = |key: &str| {
                    metric.get_label().iter().find(|pair| pair.name() == key).map(|pair| pair.value())
                };
                (value_of("target") == Some(&*self.name))
                    .then(|| {
                        value_of(label)
                            .map(|value| (value.to_owned(), metric.get_counter().get_value() as u64))
                    })
                    .flatten()
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        found.sort();
        found
    }

    fn set(&self, view: &View) {
        let set =
            |family: &GaugeVec, labels: &[&str], value: f64| family.with_label_values(labels).set(value);
        set(&self.families.limit, &[&self.name], view.limit as f64);
        set(&self.families.cooling, &[&self.name], view.cool_for.unwrap_or_default().as_secs_f64());
        let gap = self.families.gap.with_label_values(&[&*self.name]);
        gap.inc_by((view.gap.as_secs_f64() - gap.get()).max(0.0));
        let mut others = (0, 0);
        for (label, tenant) in self.all_tenants() {
            if let Some(seen) = view.tenants.iter().find(|seen| &*seen.name == label) {
                tenant.in_flight.set(seen.in_flight as f64);
                tenant.waiting.set(seen.waiting as f64);
            } else if label != OTHER {
                tenant.in_flight.set(0.0);
                tenant.waiting.set(0.0);
            }
        }
        for seen in view.tenants.iter().filter(|seen| !self.tenants.contains_key(&seen.name)) {
            others.0 += seen.in_flight;
            others.1 += seen.waiting;
        }
        self.other.in_flight.set(others.0 as f64);
        self.other.waiting.set(others.1 as f64);
    }
}

/// The counters of a target that a snapshot breaks down by label.
#[derive(Clone, Copy)]
pub(crate) enum Family {
    Retries,
    Failures,
    GaveUp,
    CoolDowns,
    Would,
}

/// The series of one tenant at one target, looked up once: nothing on the way of a call searches for a label.
pub(crate) struct TenantMetrics {
    queue_wait: [Histogram; 3],
    ttft: [Histogram; 3],
    duration: [Histogram; 3],
    outcomes: [IntCounter; Outcome::ALL.len()],
    refused: [IntCounter; Reason::ALL.len()],
    admitted: IntCounter,
    objective: IntCounter,
    input_tokens: IntCounter,
    output_tokens: IntCounter,
    in_flight: Gauge,
    waiting: Gauge,
}

impl TenantMetrics {
    fn new(families: &Metrics, target: &str, tenant: &str) -> Self {
        let by_lane = |family: &HistogramVec| {
            Lane::ALL.map(|lane| family.with_label_values(&[target, tenant, lane.as_str()]))
        };
        let pair = [target, tenant];
        Self {
            queue_wait: by_lane(&families.queue_wait),
            ttft: by_lane(&families.ttft),
            duration: by_lane(&families.duration),
            outcomes: Outcome::ALL
                .map(|outcome| families.calls.with_label_values(&[target, tenant, outcome.as_str()])),
            refused: Reason::ALL
                .map(|reason| families.refused.with_label_values(&[target, tenant, reason.as_str()])),
            admitted: families.admitted.with_label_values(&pair),
            objective: families.objective.with_label_values(&pair),
            input_tokens: families.tokens.with_label_values(&[target, tenant, "input"]),
            output_tokens: families.tokens.with_label_values(&[target, tenant, "output"]),
            in_flight: families.in_flight.with_label_values(&pair),
            waiting: families.waiting.with_label_values(&pair),
        }
    }

    /// An attempt was admitted after this wait.
    pub(crate) fn admitted(&self, lane: Lane, waited: Duration) {
        self.admitted.inc();
        self.queue_wait[lane as usize].observe(waited.as_secs_f64());
    }

    pub(crate) fn refused(&self, reason: Reason) {
        if let Some(at) = Reason::ALL.iter().position(|known| *known == reason) {
            self.refused[at].inc();
        }
    }

    pub(crate) fn ended(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].inc();
    }

    pub(crate) fn ttft(&self, lane: Lane, seconds: Duration) {
        self.ttft[lane as usize].observe(seconds.as_secs_f64());
    }

    pub(crate) fn completed(&self, lane: Lane, duration: Duration, met: bool) {
        self.duration[lane as usize].observe(duration.as_secs_f64());
        if met {
            self.objective.inc();
        }
    }

    pub(crate) fn tokens(&self, input: u64, output: u64) {
        self.input_tokens.inc_by(input);
        self.output_tokens.inc_by(output);
    }

    pub(crate) fn seen(&self) -> TenantSeen {
        TenantSeen {
            admitted: self.admitted.get(),
            objective_met: self.objective.get(),
            outcomes: Outcome::ALL.map(|outcome| (outcome.as_str(), self.outcomes[outcome as usize].get())),
            refused: std::array::from_fn(|i| (Reason::ALL[i].as_str(), self.refused[i].get())),
            input_tokens: self.input_tokens.get(),
            output_tokens: self.output_tokens.get(),
            queue_wait: super::Quantiles::of(&self.queue_wait.each_ref()),
            ttft: super::Quantiles::of(&self.ttft.each_ref()),
            duration: super::Quantiles::of(&self.duration.each_ref()),
        }
    }
}

/// What a snapshot shows of a tenant.
pub(crate) struct TenantSeen {
    pub(crate) admitted: u64,
    pub(crate) objective_met: u64,
    pub(crate) outcomes: [(&'static str, u64); Outcome::ALL.len()],
    pub(crate) refused: [(&'static str, u64); Reason::ALL.len()],
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) queue_wait: super::Quantiles,
    pub(crate) ttft: super::Quantiles,
    pub(crate) duration: super::Quantiles,
}

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
