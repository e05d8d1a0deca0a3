//! The tables of the page: the checks and the steps.

use maud::{Markup, html};

use crate::report::format::{UNKNOWN, cause, count, number, or_unknown, purpose, seconds, share, verdict};
use crate::search_result::{Estimate, LatencyQuantiles, StepResult, StepVerdict};
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

/// Renders the steps in order of time, or nothing without steps.
pub(super) fn steps(outcome: &SweepOutcome) -> Markup {
    html! {
        @if !outcome.steps.is_empty() { section class="panel long" id="steps" {
            h2 { "Steps" }
            div class="scroll" tabindex="0" role="region" aria-label="Steps" {
                table {
                    caption { "In order of time. Intervals are below their values. A quantile is shown only with enough samples: 59 for p95, 299 for p99." }
                    thead {
                        tr {
                            th scope="col" class="n" { "Step" } th scope="col" class="n" { "Cap" } th scope="col" { "Purpose" } th scope="col" { "Verdict" }
                            th scope="col" class="n" { "Calls" } th scope="col" class="n" { "Attempts" } th scope="col" { "Failed" }
                            th scope="col" class="n" { "Throughput, /s" } th scope="col" class="n" { "Goodput, /s" }
                            th scope="col" class="n" { "TTFT p50, p99" } th scope="col" class="n" { "TPOT p50, p99" } th scope="col" class="n" { "Latency p50, p99" }
                            th scope="col" class="n" { "In flight" } th scope="col" class="n" { "Gap" } th scope="col" class="n" { "Rate limited" } th scope="col" class="n" { "Duration" }
                        }
                    }
                    tbody { @for step in &outcome.steps { (row(step, outcome.answer.cap == Some(step.cap))) } }
                }
            }
        } }
    }
}

fn row(step: &StepResult, chosen: bool) -> Markup {
    html! {
        tr class=[chosen.then_some("chosen")] {
            th scope="row" class="n" { (step.step) }
            td class="n" { (step.cap) }
            td class="whole" { (purpose(step.purpose)) }
            td class="text" { (verdict_badge(&step.verdict)) }
            td class="n" { (count(step.calls as u64)) @if step.warm_up > 0 { small { "+" (step.warm_up) " warm-up" } } }
            td class="n" { (count(step.attempts as u64)) }
            td {
                @if step.failures.values().all(|n| *n == 0) { (UNKNOWN) }
                @for (why, n) in step.failures.iter().filter(|(_, n)| **n > 0) { div class="whole" { (count(*n as u64)) " × " (cause(*why)) } }
            }
            (rate(step.throughput)) (rate(step.goodput))
            (quantiles(&step.ttft)) (quantiles(&step.tpot)) (quantiles(&step.latency))
            td class="n" { (number(step.in_flight)) small { (share(step.in_flight / step.cap.max(1) as f64)) } }
            td class="n" { (share(step.gap_fraction)) }
            td class="n" { (share(step.forbidden)) }
            td class="n" { (seconds(step.ended - step.began)) }
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
                Some(known) => { (number(known.value)) small { (number(known.low)) " to " (number(known.high)) } }
                None => (UNKNOWN),
            }
        }
    }
}

fn quantiles(of: &LatencyQuantiles) -> Markup {
    html! {
        td class="n" {
            (or_unknown(of.p50, seconds))
            small { @match of.p99 { Some(p99) => (seconds(p99)), None => { "n " (of.n) " of 299" } } }
        }
    }
}
