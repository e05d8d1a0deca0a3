//! The tables of the page: the checks and the steps.

use maud::{Markup, html};

use crate::report::format::{
    UNKNOWN, cause, count, number, or_unknown, purpose, seconds, share, short, verdict,
};
use crate::search_result::{EngineUse, Estimate, LatencyQuantiles, StepResult, StepVerdict};
use crate::sweep_outcome::{CheckResult, SweepOutcome};

/// Renders the checks with their results and figures, or nothing without checks.
pub(super) fn checks(outcome: &SweepOutcome) -> Markup {
    html! {
        @if !outcome.checks.is_empty() {
            section class="panel checks" id="checks" {
                h2 { "Checks" }
                div class="scroll" {
                    table {
                        caption { "Conditions for the measurement to be valid." }
                        thead { tr { th scope="col" { "Check" } th scope="col" { "Result" } th scope="col" { "Figures" } } }
                        tbody {
                            @for check in &outcome.checks {
                                tr {
                                    th scope="row" { (check.name.replace('_', " ")) }
                                    td {
                                        @match check.passed {
                                            CheckResult::Yes => span class="badge good" { "passed" },
                                            CheckResult::No => span class="badge bad" { "failed" },
                                            CheckResult::Unknown => span class="badge dim" { "too little data" },
                                        }
                                    }
                                    td class="text" { (check.finding) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the steps in order of time, or nothing without steps. Omits the columns of the goodput
/// and of the engine if no step has them.
pub(super) fn steps(outcome: &SweepOutcome) -> Markup {
    let columns = Columns {
        goodput: outcome.steps.iter().any(|step| step.goodput != step.throughput),
        engine: outcome.steps.iter().any(|step| step.engine.is_some()),
    };
    html! {
        @if !outcome.steps.is_empty() { section class="panel long" id="steps" {
            h2 { "Steps" }
            div class="scroll" tabindex="0" role="region" aria-label="Steps" {
                table {
                    caption { "In order of time. Intervals and high percentiles are below their values. The duration excludes the time in which calls of an earlier, higher cap ended." }
                    thead {
                        tr {
                            th scope="col" class="n" { "Step" } th scope="col" class="n" { "Cap" } th scope="col" { "Verdict" }
                            th scope="col" class="n" { "Calls" } th scope="col" { "Failed attempts" }
                            th scope="col" class="n" { "Through\u{ad}put, /s" } @if columns.goodput { th scope="col" class="n" { "Goodput, /s" } }
                            th scope="col" class="n" { "TTFT p50" } th scope="col" class="n" { "TPOT p50" } th scope="col" class="n" { "Latency p50" }
                            th scope="col" class="n" { "In flight" }
                            @if columns.engine { th scope="col" class="n" { "Engine queue" } th scope="col" class="n" { "KV cache" } th scope="col" class="n" { "Pre\u{ad}empted" } }
                            th scope="col" class="n" { "Duration" }
                        }
                    }
                    tbody { @for step in &outcome.steps { (row(step, outcome.answer.cap == Some(step.cap), columns)) } }
                }
            }
        } }
    }
}

/// The optional columns of the table of steps.
#[derive(Clone, Copy)]
struct Columns {
    goodput: bool,
    engine: bool,
}

fn row(step: &StepResult, chosen: bool, columns: Columns) -> Markup {
    html! {
        tr class=[chosen.then_some("chosen")] {
            th scope="row" class="n" { (step.step) }
            td class="n" { (step.cap) small { (purpose(step.purpose)) } }
            td class="text" { (verdict_badge(&step.verdict)) }
            td class="n" { (count(step.calls as u64)) @if step.warm_up > 0 { small { "+" (step.warm_up) " warm-up" } } }
            td {
                @if step.failures.values().all(|n| *n == 0) { (UNKNOWN) }
                @for (why, n) in step.failures.iter().filter(|(_, n)| **n > 0) { div { (count(*n as u64)) " × " (cause(*why)) } }
            }
            (rate(step.throughput)) @if columns.goodput { (rate(step.goodput)) }
            (quantiles(&step.ttft)) (quantiles(&step.tpot)) (quantiles(&step.latency))
            td class="n" { (number(step.in_flight)) small { (share(step.in_flight / step.cap.max(1) as f64)) } }
            @if columns.engine { (engine(step.engine)) }
            td class="n" { (seconds(step.measured_seconds)) }
        }
    }
}

fn engine(of: Option<EngineUse>) -> Markup {
    html! {
        @match of {
            Some(engine) => {
                td class="n" { (number(engine.waiting)) small { (number(engine.running)) " running" } }
                td class="n" { (or_unknown(engine.kv_usage, share)) }
                td class="n" { (engine.preemptions.map_or_else(|| UNKNOWN.to_owned(), count)) }
            }
            None => { td class="n" { (UNKNOWN) } td class="n" { (UNKNOWN) } td class="n" { (UNKNOWN) } }
        }
    }
}

fn verdict_badge(of: &StepVerdict) -> Markup {
    let (name, why) = verdict(of);
    let class = match of {
        StepVerdict::Accepted => "badge good",
        StepVerdict::Rejected(_) => "badge bad",
        StepVerdict::Invalid(_) | StepVerdict::Undecided(_) => "badge dim",
    };
    html! { span class=(class) { (name) } @if !why.is_empty() { small { (why) } } }
}

fn rate(known: Option<Estimate>) -> Markup {
    html! {
        td class="n" {
            @match known {
                Some(known) => { (short(known.value)) small { (short(known.low)) " to " (short(known.high)) } }
                None => (UNKNOWN),
            }
        }
    }
}

fn quantiles(of: &LatencyQuantiles) -> Markup {
    html! {
        td class="n" {
            (or_unknown(of.p50, seconds))
            @match (of.p99, of.p95) {
                (Some(p99), _) => small { "p99 " (seconds(p99)) },
                (None, Some(p95)) => small { "p95 " (seconds(p95)) },
                (None, None) => {}
            }
        }
    }
}
