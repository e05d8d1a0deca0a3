//! The burst of a published guide: three times the normal traffic for ten minutes, on one replica
//! whose memory long prompts fill.
//!
//! With lanes, caps per tenant, admission by the KV-cache memory that calls are expected to use,
//! and a maximum prompt length, the interactive lane keeps its objective. The experiment compares
//! this configuration with the same one without memory admission, with slots alone, and with no
//! gate.

mod arrivals;
mod run_client;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tidegate::Lane;
use tidegate_sim::scenario::quantile;

use self::arrivals::BURST;
use self::run_client::{End, GateVariant, PATIENCE, Row, RunResult, play};
use crate::Fallible;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::trace_lengths::Traces;
use crate::virtual_time;

/// The seeds of the reported figures. The settings were chosen on seeds 1 to 20.
pub(crate) const SEEDS: Seeds = Seeds::new(31, 34);

/// The maximum p99 TTFT of interactive calls, in seconds, for the experiment to pass. It is the
/// published objective for paying tenants.
const P99: f64 = 2.0;
/// The maximum p95 TTFT of interactive calls, in seconds, for the experiment to pass. It is the
/// published result.
const P95: f64 = 1.1;

/// Simulates the burst with each configuration, and returns the report.
pub(crate) fn measure(seeds: Seeds) -> Fallible<Report> {
    let mut report = Report::new("burst", seeds);
    // Prompts of conversations are short. Prompts above the operator's maximum are in the retrieval
    // lane.
    let traces = Traces::read(8_192)?;
    for (variant, name) in [
        (GateVariant::Whole, None),
        (GateVariant::NoMemory, Some("without memory")),
        (GateVariant::Fifo, Some("slots alone, FIFO")),
        (GateVariant::Off, Some("gate off")),
    ] {
        eprintln!("{variant:?}");
        let runs = virtual_time::each(seeds, |seed| play(variant, &arrivals::draw(&traces, seed), seed))?;
        let mut tell = |key: String, value: serde_json::Value| match name {
            None => report.figure(key, value),
            Some(name) => report.peer(name, key, value),
        };
        for (key, of) in FIGURES {
            tell((*key).to_owned(), Spread::of(runs.iter().map(of)).into());
        }
        for lane in Lane::ALL {
            for (key, of) in LANES {
                let value = Spread::of(runs.iter().map(|run| of(run, lane)));
                tell(format!("{}: {key}", lane.as_str()), value.into());
            }
            tell(format!("{}: refusals by reason", lane.as_str()), json!(reasons(&runs, lane)));
        }
        bars(&mut report, variant, &runs);
    }
    Ok(report)
}

fn bars(report: &mut Report, variant: GateVariant, runs: &[RunResult]) {
    let of = |of: fn(&RunResult) -> f64| Spread::of(runs.iter().map(of));
    let (p95, p99) =
        (of(|run| ttft(run, Lane::Interactive, 0.95)), of(|run| ttft(run, Lane::Interactive, 0.99)));
    let preemptions = of(|run| run.preemptions as f64);
    match variant {
        GateVariant::Whole => {
            report.bar("interactive: p95 TTFT in the burst, s (worst seed)", p95.most, Op::AtMost, P95);
            report.bar("interactive: p99 TTFT in the burst, s (worst seed)", p99.most, Op::AtMost, P99);
            let order = of(|run| refused(run, Lane::Interactive) / refused(run, Lane::Standard));
            report.bar(
                "share refused in the burst: interactive / standard (worst seed)",
                order.most,
                Op::AtMost,
                0.5,
            );
            report.bar("preemptions (worst seed)", preemptions.most, Op::AtMost, 0.0);
            let pushed = of(|run| run.pushed_back as f64);
            report.bar("429 and 503 from upstream (worst seed)", pushed.most, Op::AtMost, 0.0);
            let repeated = of(attempts_per_call);
            report.bar("attempts a call that was not refused (worst seed)", repeated.most, Op::AtMost, 1.0);
        }
        GateVariant::NoMemory => {
            report.bar("without memory: preemptions (median of seeds)", preemptions.median, Op::AtLeast, 1.0);
        }
        GateVariant::Fifo => {
            report.bar(
                "slots alone: interactive p95 TTFT, s (median of seeds)",
                p95.median,
                Op::AtLeast,
                P95,
            );
        }
        GateVariant::Off => {
            report.bar("gate off: interactive p95 TTFT, s (median of seeds)", p95.median, Op::AtLeast, P95);
            report.bar("gate off: preemptions (median of seeds)", preemptions.median, Op::AtLeast, 1.0);
        }
    }
}

type OfRun = fn(&RunResult) -> f64;

const FIGURES: &[(&str, OfRun)] = &[
    ("preemptions", |run| run.preemptions as f64),
    ("peak of the cache", |run| run.peak_kv),
    ("peak in flight upstream", |run| run.peak_in_flight as f64),
    ("429 and 503 from upstream", |run| run.pushed_back as f64),
    ("attempts a call that was not refused", attempts_per_call),
];

/// Returns the number of attempts per call that the gate did not refuse. Refused calls have none,
/// and would hide repeated ones. Infinite if all calls were refused.
fn attempts_per_call(run: &RunResult) -> f64 {
    let refused = run.rows.iter().filter(|row| matches!(row.end, End::Refused { .. })).count();
    let sent = run.rows.len() - refused;
    if sent == 0 { f64::INFINITY } else { run.attempts as f64 / sent as f64 }
}

/// A function that computes a figure from the calls of one lane that arrived during the burst.
type OfLane = fn(&RunResult, Lane) -> f64;

const LANES: &[(&str, OfLane)] = &[
    ("p50 TTFT, s", |run, lane| ttft(run, lane, 0.5)),
    ("p95 TTFT, s", |run, lane| ttft(run, lane, 0.95)),
    ("p99 TTFT, s", |run, lane| ttft(run, lane, 0.99)),
    ("answered within 2 s, of all calls", |run, lane| {
        share(run, lane, |end| matches!(end, End::Answered { ttft } if ttft.as_secs_f64() <= P99))
    }),
    ("answered, of all calls", |run, lane| share(run, lane, |end| matches!(end, End::Answered { .. }))),
    ("refused, of all calls", refused),
    ("callers who left, of all calls", |run, lane| share(run, lane, |end| matches!(end, End::Left))),
    ("failed, of all calls", |run, lane| share(run, lane, |end| matches!(end, End::Failed))),
];

fn in_burst(run: &RunResult, lane: Lane) -> impl Iterator<Item = &Row> {
    let burst = BURST.0..BURST.1;
    run.rows.iter().filter(move |row| row.lane == lane && burst.contains(&row.at))
}

/// Returns the quantile `q` of the TTFT in seconds, over the calls of a lane that arrived during
/// the burst and were answered or left.
///
/// A call whose caller left counts with the caller's patience as its TTFT.
fn ttft(run: &RunResult, lane: Lane, q: f64) -> f64 {
    let mut seconds: Vec<f64> = in_burst(run, lane)
        .filter_map(|row| match row.end {
            End::Answered { ttft } => Some(ttft),
            End::Left => Some(if lane == Lane::Interactive { PATIENCE } else { PATIENCE * 10 }),
            End::Refused { .. } | End::Failed => None,
        })
        .map(|ttft: Duration| ttft.as_secs_f64())
        .collect();
    quantile(&mut seconds, q)
}

fn refused(run: &RunResult, lane: Lane) -> f64 {
    share(run, lane, |end| matches!(end, End::Refused { .. }))
}

fn share(run: &RunResult, lane: Lane, is: fn(&End) -> bool) -> f64 {
    let (all, those) = in_burst(run, lane)
        .fold((0u32, 0u32), |(all, those), row| (all + 1, those + u32::from(is(&row.end))));
    f64::from(those) / f64::from(all.max(1))
}

/// Returns how many calls of a lane were rejected during the burst, by reason, as means over the
/// runs.
fn reasons(runs: &[RunResult], lane: Lane) -> BTreeMap<&'static str, f64> {
    let mut reasons = BTreeMap::new();
    for row in runs.iter().flat_map(|run| in_burst(run, lane)) {
        if let End::Refused { reason } = row.end {
            *reasons.entry(reason).or_default() += 1.0 / runs.len() as f64;
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_calls_do_not_hide_repeated_attempts() {
        let row = |end| Row { at: BURST.0, lane: Lane::Interactive, end };
        let refused = || row(End::Refused { reason: "wait_budget" });
        let rows = vec![row(End::Answered { ttft: Duration::ZERO }), refused(), refused()];
        let run =
            RunResult { rows, preemptions: 0, peak_kv: 0.0, peak_in_flight: 1, attempts: 2, pushed_back: 0 };
        assert_eq!(attempts_per_call(&run), 2.0);
    }
}
