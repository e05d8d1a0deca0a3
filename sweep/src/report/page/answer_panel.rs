//! The first panel of the page: the recommended cap, its interval, the limit that determines it,
//! and the configuration.

use maud::{Markup, html};

use crate::report::format::{
    UNKNOWN, binding, count, early_end_text, money, number, or_unknown, seconds, share,
};
use crate::search_result::{Estimate, LatencyQuantiles, StepResult, StepVerdict, SweepAnswer};
use crate::sweep_outcome::SweepOutcome;

/// Returns the title of the page in two words: the recommended cap, or that there is none.
pub(super) fn headline(answer: &SweepAnswer) -> String {
    answer.cap.map_or_else(|| "No answer".to_owned(), |cap| format!("Cap {cap}"))
}

/// Renders the panel with the recommended cap, its confidence, and the key figures.
pub(super) fn panel(outcome: &SweepOutcome) -> Markup {
    let (answer, from) = (&outcome.answer, &outcome.provenance);
    html! {
        header class="panel answer" {
            p class="eyebrow" { "Tidegate sweep of " b { (from.model) } " at " (from.url) @if let Some(began) = &from.began { ", " (began) } }
            h1 {
                @match answer.cap {
                    Some(cap) if answer.confirmed => { "Hold the cap at " strong { (cap) } }
                    Some(cap) => { "Cap " strong { (cap) } " is not confirmed" }
                    None => "No cap can be recommended",
                }
            }
            p class="sure" { (confidence(outcome)) }
            p class="because" {
                @if let Some(limit) = answer.binding {
                    "Limited by: " b { (binding(limit)) } ". "
                }
                (answer.because)
            }
            @if let Some(reason) = early_end_text(outcome.ended) { p class="cut" { (reason) } }
            (key_figures(outcome))
            @if !outcome.lines.is_empty() {
                section class="paste" {
                    div class="head" {
                        h2 { "Add this to tidegate.toml" }
                        button class="copy" type="button" hidden { "Copy" }
                    }
                    pre tabindex="0" { code class="lines" { (outcome.lines) } }
                }
            }
            @if !answer.notes.is_empty() {
                section class="paste" {
                    h2 { "Notes" }
                    ul class="notes" { @for note in &answer.notes { li { (note) } } }
                }
            }
        }
    }
}

/// Renders the confidence interval of the cap, and whether the cap was confirmed.
fn confidence(outcome: &SweepOutcome) -> Markup {
    let answer = &outcome.answer;
    let confidence = share(outcome.provenance.settings.confidence);
    html! {
        @if let Some((low, high)) = answer.interval {
            (confidence) " interval: "
            @if answer.open_above {
                b { (low) " or more" } " (no cap above " (high) " was tried)"
            } @else if low == high {
                b { "exactly " (low) }
            } @else {
                b { (low) " to " (high) }
            }
            ". "
        }
        @if answer.cap.is_some() {
            @if answer.confirmed {
                span class="badge good" { "confirmed" } " Repeated steps at this cap and at a neighbouring one led to the same answer."
            } @else {
                span class="badge bad" { "not confirmed" } " Repeated steps did not lead to the same answer, so no configuration is shown."
            }
        }
    }
}

/// Renders the throughput and the latencies at the recommended cap, and what the sweep used.
fn key_figures(outcome: &SweepOutcome) -> Markup {
    let (answer, spend) = (&outcome.answer, &outcome.spend);
    let at = step_at_answer(outcome);
    let objective = outcome.provenance.settings.ttft.is_some() || outcome.provenance.settings.tpot.is_some();
    html! {
        dl class="key" {
            (rate("Throughput", answer.throughput, "calls/s"))
            @if objective { (rate("Goodput", answer.goodput, "calls/s within the objective")) }
            @if answer.rpm.is_some() { (rate("Accepted requests", answer.rpm, "per minute")) }
            @if answer.tpm.is_some() { (rate("Accepted tokens", answer.tpm, "per minute")) }
            @if let Some(step) = at {
                div { dt { "TTFT at the answer" } dd { (or_unknown(step.ttft.p50, seconds)) small { "p50" (high_quantile(&step.ttft)) } } }
                div { dt { "Latency at the answer" } dd { (or_unknown(step.latency.p50, seconds)) small { "p50" (high_quantile(&step.latency)) } } }
            }
            div { dt { "Used" } dd {
                (count(spend.calls as u64)) " calls"
                small {
                    (count(spend.input_tokens + spend.output_tokens)) " tokens, " (seconds(spend.seconds))
                    @if let Some(cost) = spend.money { ", cost " (money(cost)) }
                }
            } }
        }
    }
}

fn rate(name: &str, known: Option<Estimate>, unit: &str) -> Markup {
    html! {
        div { dt { (name) } dd {
            @match known {
                Some(known) => { (number(known.value)) small { (unit) ", " (number(known.low)) " to " (number(known.high)) } }
                None => { (UNKNOWN) small { (unit) } }
            }
        } }
    }
}

/// Returns the highest known percentile as text that follows the median, or an empty text.
fn high_quantile(of: &LatencyQuantiles) -> String {
    match (of.p99, of.p95) {
        (Some(p99), _) => format!("; p99 {}", seconds(p99)),
        (None, Some(p95)) => format!("; p95 {}", seconds(p95)),
        (None, None) => String::new(),
    }
}

/// Returns the accepted step at the recommended cap that has the most samples, or `None` without
/// one.
fn step_at_answer(outcome: &SweepOutcome) -> Option<&StepResult> {
    let cap = outcome.answer.cap?;
    let good = outcome.steps.iter().filter(|step| step.cap == cap && step.verdict == StepVerdict::Accepted);
    good.max_by_key(|step| step.ttft.n.max(step.latency.n))
}
