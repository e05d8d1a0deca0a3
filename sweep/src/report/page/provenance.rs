//! The panel of the page with the server, the requests, the settings and the cost of the sweep.

use maud::{Markup, html};

use crate::report::format::{count, money, seconds, share};
use crate::sweep_outcome::SweepOutcome;

/// Renders the panel with the server, model, requests and settings of the sweep.
pub(super) fn panel(outcome: &SweepOutcome) -> Markup {
    html! {
        section class="panel" id="provenance" {
            h2 { "Measurement" }
            dl class="facts" {
                @for (name, value) in measurement_facts(outcome).into_iter().chain(resource_facts(outcome)).chain(setting_facts(outcome)) {
                    dt { (name) } dd { (value) }
                }
            }
        }
    }
}

type Fact = (&'static str, String);

fn measurement_facts(outcome: &SweepOutcome) -> Vec<Fact> {
    let from = &outcome.provenance;
    let mut facts = vec![
        ("Target", format!("{} at {}", from.target, from.url)),
        ("Model", from.model.clone()),
        ("API", from.api.clone()),
        ("Mix of requests", format!("{}; seed {}", from.mix, from.seed)),
        ("Tidegate", from.version.clone()),
    ];
    facts.extend(from.server.clone().map(|server| ("Server", server)));
    facts.extend(from.began.clone().map(|began| ("Started", began)));
    if from.resumed > 0 {
        facts.push(("Resumed", format!("{} times", from.resumed)));
    }
    facts
}

fn resource_facts(outcome: &SweepOutcome) -> Vec<Fact> {
    let spend = &outcome.spend;
    let cached = if spend.cached_tokens > 0 {
        let of = spend.cached_tokens as f64 / spend.input_tokens.max(1) as f64;
        format!(" ({} of them from the server's cache)", share(of))
    } else {
        String::new()
    };
    let mut facts = vec![
        ("Calls", format!("{} calls, {} attempts", count(spend.calls as u64), count(spend.attempts as u64))),
        (
            "Tokens",
            format!("{} input{cached}, {} output", count(spend.input_tokens), count(spend.output_tokens)),
        ),
        ("Time", seconds(spend.seconds)),
    ];
    if let (Some(cost), Some(prices)) = (spend.money, outcome.provenance.prices) {
        let text = format!(
            "{}, at {} per million input tokens and {} per million output tokens",
            money(cost),
            money(prices.input),
            money(prices.output)
        );
        facts.push(("Cost", text));
    }
    facts
}

fn setting_facts(outcome: &SweepOutcome) -> Vec<Fact> {
    let settings = &outcome.provenance.settings;
    let objective = match (settings.ttft, settings.tpot) {
        (None, None) => "none: every completed call counts".to_owned(),
        (ttft, tpot) => {
            [ttft.map(|s| format!("TTFT {}", seconds(s))), tpot.map(|s| format!("TPOT {}", seconds(s)))]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", ")
        }
    };
    vec![
        ("Objective", objective),
        ("Caps", format!("{} to {}, from {}", settings.min_cap, settings.max_cap, settings.start)),
        (
            "Failure test",
            format!(
                "a share of {} failed attempts is accepted, {} is rejected; error probability at most {} per step",
                share(settings.fine),
                share(settings.too_many),
                share(settings.error_rate)
            ),
        ),
        ("Tolerance", format!("{} below the best goodput", share(settings.tolerance))),
        ("Attempts per call", outcome.provenance.attempts.to_string()),
    ]
}
