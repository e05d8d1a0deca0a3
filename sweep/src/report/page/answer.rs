//! The answer in words: this cap, this sure, because of this limit, paste these lines.

use maud::{Markup, html};

use crate::outcome::SweepOutcome;
use crate::report::format::{
    NOTHING, binding, binding_means, count, cut_short, money, number, perhaps, seconds, share,
};
use crate::result::{Estimate, StepResult, StepVerdict, SweepAnswer};

/// The answer in a few words.
pub(super) fn headline(answer: &SweepAnswer) -> String {
    answer.cap.map_or_else(|| "No answer".to_owned(), |cap| format!("Cap {cap}"))
}

/// What the report opens with.
pub(super) fn panel(outcome: &SweepOutcome) -> Markup {
    let (answer, from) = (&outcome.answer, &outcome.provenance);
    html! {
        header class="panel answer" {
            p class="eyebrow" { "Tidegate sweep of " b { (from.model) } " at " (from.url) @if let Some(began) = &from.began { ", " (began) } }
            h1 {
                @if let Some(cap) = answer.cap { "Hold the cap at " strong { (cap) } } @else { "No cap can be recommended" }
            }
            p class="sure" { (sure(outcome)) }
            p class="because" {
                @if let Some(limit) = answer.binding {
                    "What binds: " b { (binding(limit)) } ". " span class="why" { (binding_means(limit)) } " "
                }
                (answer.because)
            }
            @if let Some(cut) = cut_short(outcome.ended) { p class="cut" { (cut) } }
            (key(outcome))
            @if !outcome.lines.is_empty() {
                section class="paste" {
                    div class="head" {
                        h2 { "Paste these lines into tidegate.toml" }
                        button class="copy" type="button" hidden { "Copy" }
                    }
                    pre tabindex="0" { code class="lines" { (outcome.lines) } }
                }
            }
            @if !answer.notes.is_empty() {
                section class="paste" {
                    h2 { "What to know" }
                    ul class="notes" { @for note in &answer.notes { li { (note) } } }
                }
            }
        }
    }
}

/// How sure it is.
fn sure(outcome: &SweepOutcome) -> Markup {
    let answer = &outcome.answer;
    let confidence = share(outcome.provenance.settings.confidence);
    html! {
        @if let Some((low, high)) = answer.interval {
            (confidence) " interval: "
            @if answer.open_above {
                b { (low) " or more" } " (nothing above " (high) " was looked at)"
            } @else if low == high {
                b { "exactly " (low) }
            } @else {
                b { (low) " to " (high) }
            }
            ". "
        }
        @if answer.cap.is_some() {
            @if answer.confirmed {
                span class="badge good" { "confirmed" } " It held again, in turns with what is above it."
            } @else {
                span class="badge bad" { "not confirmed" } " It was not yet held again in turns with what is above it."
            }
        }
    }
}

/// The figures at the answer.
fn key(outcome: &SweepOutcome) -> Markup {
    let (answer, spend) = (&outcome.answer, &outcome.spend);
    let at = chosen(outcome);
    let objective = outcome.provenance.settings.ttft.is_some() || outcome.provenance.settings.tpot.is_some();
    html! {
        dl class="key" {
            (rate("Throughput", answer.throughput, "calls/s"))
            @if objective { (rate("Goodput", answer.goodput, "calls/s that met the objective")) }
            @if answer.rpm.is_some() { (rate("Requests taken", answer.rpm, "a minute")) }
            @if answer.tpm.is_some() { (rate("Tokens taken", answer.tpm, "a minute")) }
            @if let Some(step) = at {
                div { dt { "TTFT at the answer" } dd { (perhaps(step.ttft.p50, seconds)) small { "p50; " (tail(step.ttft.p99, step.ttft.n)) } } }
                div { dt { "Latency at the answer" } dd { (perhaps(step.latency.p50, seconds)) small { "p50; " (tail(step.latency.p99, step.latency.n)) } } }
            }
            div { dt { "Spent" } dd {
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
                None => { (NOTHING) small { (unit) } }
            }
        } }
    }
}

fn tail(p99: Option<f64>, n: usize) -> String {
    p99.map_or_else(|| format!("n too small for p99 ({n} of 299)"), |p99| format!("p99 {}", seconds(p99)))
}

/// The step at the answer that says the most.
fn chosen(outcome: &SweepOutcome) -> Option<&StepResult> {
    let cap = outcome.answer.cap?;
    let good = outcome.steps.iter().filter(|step| step.cap == cap && step.verdict == StepVerdict::Accepted);
    good.max_by_key(|step| step.ttft.n.max(step.latency.n))
}
