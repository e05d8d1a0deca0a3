//! Renders the steps as a CSV table, for spreadsheets and data frames.

use super::format::{CAUSES, cause_key, purpose, verdict};
use crate::search_result::{Estimate, LatencyQuantiles, StepResult};
use crate::sweep_outcome::SweepOutcome;

/// Returns the steps as CSV (RFC 4180) with a header line, one step per line in order of time.
///
/// Durations are in seconds, rates per second, shares from 0 to 1. Unknown and infinite values are
/// empty cells.
pub fn csv(outcome: &SweepOutcome) -> String {
    let mut writer = ::csv::WriterBuilder::new().terminator(::csv::Terminator::CRLF).from_writer(Vec::new());
    let header: Vec<String> = columns(None).into_iter().map(|(name, _)| name).collect();
    let mut written = writer.write_record(header);
    for step in &outcome.steps {
        written =
            written.and_then(|()| writer.write_record(columns(Some(step)).into_iter().map(|(_, cell)| cell)));
    }
    // Writing to memory, with the same number of cells per line, cannot fail.
    debug_assert!(written.is_ok());
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Returns the name and the cell of each column, in order. Without a step, all cells are empty.
fn columns(step: Option<&StepResult>) -> Vec<(String, String)> {
    let mut columns = Vec::new();
    let mut put =
        |name: &str, cell: Option<String>| columns.push((name.to_owned(), cell.unwrap_or_default()));
    let whole = |get: fn(&StepResult) -> usize| step.map(|s| get(s).to_string());
    let real = |get: fn(&StepResult) -> f64| step.map(|s| plain(get(s)));
    let (judged, why) = step.map(|s| verdict(&s.verdict)).unzip();
    put("step", whole(|s| s.step));
    put("cap", whole(|s| s.cap));
    put("purpose", step.map(|s| purpose(s.purpose).to_owned()));
    put("verdict", judged.map(str::to_owned));
    put("why", why.map(str::to_owned));
    put("began_s", real(|s| s.began));
    put("ended_s", real(|s| s.ended));
    put("warm_up_calls", whole(|s| s.warm_up));
    put("calls", whole(|s| s.calls));
    put("attempts", whole(|s| s.attempts));
    for cause in CAUSES {
        let failed = step.map(|s| s.failures.get(&cause).copied().unwrap_or(0).to_string());
        put(&format!("failed_{}", cause_key(cause)), failed);
    }
    for (name, get) in ESTIMATES {
        let known = step.and_then(get);
        put(&format!("{name}_per_s"), known.map(|e| plain(e.value)));
        put(&format!("{name}_low_per_s"), known.map(|e| plain(e.low)));
        put(&format!("{name}_high_per_s"), known.map(|e| plain(e.high)));
    }
    for (name, get) in QUANTILES {
        let known = step.map(get);
        put(&format!("{name}_n"), known.map(|q| q.n.to_string()));
        put(&format!("{name}_p50_s"), known.and_then(|q| q.p50).map(plain));
        put(&format!("{name}_p95_s"), known.and_then(|q| q.p95).map(plain));
        put(&format!("{name}_p99_s"), known.and_then(|q| q.p99).map(plain));
    }
    let engine = step.and_then(|s| s.engine);
    put("measured_s", real(|s| s.measured_seconds));
    put("engine_running", engine.map(|e| plain(e.running)));
    put("engine_waiting_mean", engine.map(|e| plain(e.waiting)));
    put("engine_kv_usage_mean", engine.and_then(|e| e.kv_usage).map(plain));
    put("engine_preemptions", engine.and_then(|e| e.preemptions).map(|n| n.to_string()));
    put("in_flight_mean", real(|s| s.in_flight));
    put("gap_fraction", real(|s| s.gap_fraction));
    put("forbidden", real(|s| s.forbidden));
    columns
}

type EstimateOf = fn(&StepResult) -> Option<Estimate>;
type QuantilesOf = fn(&StepResult) -> LatencyQuantiles;

const ESTIMATES: [(&str, EstimateOf); 2] = [("throughput", |s| s.throughput), ("goodput", |s| s.goodput)];
const QUANTILES: [(&str, QuantilesOf); 3] =
    [("latency", |s| s.latency), ("ttft", |s| s.ttft), ("tpot", |s| s.tpot)];

/// Formats a number in full precision, or as an empty string if it is not finite.
fn plain(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
}
