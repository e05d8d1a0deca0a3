//! Renders the plan and the result of a sweep as text.

use std::fmt::Write as _;
use std::time::Duration;

use tidegate_sweep::plan::Range;
use tidegate_sweep::search_result::StepVerdict;
use tidegate_sweep::spend::Ceiling;
use tidegate_sweep::sweep_outcome::CheckResult;
use tidegate_sweep::{Binding, Plan, StepResult, SweepEnd, SweepOutcome, SweepSpend};

/// Renders the plan of a sweep: the expected calls, tokens, cost and time, and the ceilings.
pub(super) fn plan(plan: &Plan, url: &str, model: &str) -> String {
    let mut text = format!("sweep of {model} at {url}\n  {}\n", plan.mix);
    text += &row("calls", &plan.calls, amount);
    text += &row("tokens in", &plan.input_tokens, amount);
    text += &row("tokens out", &plan.output_tokens, amount);
    text += &match &plan.money {
        Some(range) => row("cost", range, money),
        None => "  cost          unknown; pass --price-in and --price-out (per million tokens)\n".to_owned(),
    };
    text += &row("time", &plan.seconds, time);
    let _ = writeln!(
        text,
        "  (least, likely, most; assuming {:.1} s per call and answers of the maximum length)",
        plan.latency
    );
    let limits = [
        plan.ceilings.cost.map(|most| format!("cost {}", money(most))),
        plan.ceilings.tokens.map(|most| format!("{} tokens", amount(most as f64))),
        plan.ceilings.seconds.map(time),
        plan.ceilings.calls.map(|most| format!("{most} requests")),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    if !limits.is_empty() {
        let _ = writeln!(text, "  ceilings: stops before it exceeds {}", limits.join(", "));
    }
    text
}

fn row(what: &str, range: &Range, unit: fn(f64) -> String) -> String {
    let Range { least, likely, most } = *range;
    format!("  {what:<12}{:>14}{:>14}{:>14}\n", unit(least), unit(likely), unit(most))
}

/// Renders the result of a sweep: the cap with its confidence interval, the limit that determines
/// it, the checks, and the configuration to paste.
pub(super) fn outcome(outcome: &SweepOutcome) -> String {
    let answer = &outcome.answer;
    let mut text = String::new();
    match (answer.cap, answer.interval) {
        (Some(cap), Some((low, high))) => {
            let more = if answer.open_above { " or more" } else { "" };
            let sure = if answer.confirmed { "confirmed" } else { "not confirmed" };
            let confidence = 100.0 * outcome.provenance.settings.confidence;
            let _ = writeln!(text, "cap {cap} ({low} to {high}{more} at {confidence:.0} %, {sure})");
        }
        (Some(cap), None) => {
            let _ = writeln!(text, "cap {cap}");
        }
        (None, _) => text.push_str("no answer\n"),
    }
    if let Some(binding) = answer.binding {
        let _ = writeln!(text, "  limited by: {}", describe_binding(binding));
    }
    let _ = writeln!(text, "  {}", answer.because);
    if let Some(throughput) = &answer.throughput {
        let _ = write!(
            text,
            "  {:.2} calls/s ({:.2} to {:.2})",
            throughput.value, throughput.low, throughput.high
        );
        match &answer.goodput {
            Some(goodput) if goodput.value < throughput.value => {
                let _ = writeln!(text, ", {:.2} of them within the objective", goodput.value);
            }
            _ => text.push('\n'),
        }
    }
    for (what, rate) in [("requests", &answer.rpm), ("tokens", &answer.tpm)] {
        if let Some(rate) = rate {
            let _ =
                writeln!(text, "  {:.0} {what} per minute ({:.0} to {:.0})", rate.value, rate.low, rate.high);
        }
    }
    for note in &answer.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    if let Some(ended) = ended(outcome.ended) {
        let _ = writeln!(text, "  {ended}");
    }
    text.push_str("checks\n");
    for check in &outcome.checks {
        let passed = match check.passed {
            CheckResult::Yes => "ok",
            CheckResult::No => "NO",
            CheckResult::Unknown => "-",
        };
        let _ = writeln!(text, "  {passed:<3}{:<16}{}", check.name, check.finding);
    }
    let _ = writeln!(text, "used {}", spend(&outcome.spend));
    if !outcome.lines.is_empty() {
        let _ = write!(text, "\n{}", outcome.lines);
    } else if answer.cap.is_some() {
        text.push_str("\nno configuration lines, because the cap is not confirmed\n");
    }
    text
}

fn describe_binding(binding: Binding) -> &'static str {
    match binding {
        Binding::ConcurrencyLimit => "a concurrency limit: the server rejects calls above the cap",
        Binding::RequestRate => "a request rate limit of the server",
        Binding::TokenRate => "a token rate limit of the server",
        Binding::Saturation => "saturation: more concurrency does not raise the server's throughput",
        Binding::KvCliff => "KV-cache memory: the engine runs out of it above the cap",
        Binding::Client => "this client, which could not keep a higher cap busy",
        Binding::NotReached => "nothing up to the highest cap tried",
    }
}

/// Returns a sentence on why a sweep ended early, or `None` if it completed.
pub(super) fn ended(ended: SweepEnd) -> Option<&'static str> {
    Some(match ended {
        SweepEnd::Found => return None,
        SweepEnd::Interrupted => "the sweep was interrupted; the result is partial",
        SweepEnd::Refused => "the server rejects all further calls with this key; the result is partial",
        SweepEnd::Ceiling(Ceiling::Cost) => "the sweep reached --max-cost; the result is partial",
        SweepEnd::Ceiling(Ceiling::Tokens) => "the sweep reached --max-tokens; the result is partial",
        SweepEnd::Ceiling(Ceiling::Time) => "the sweep reached --max-time; the result is partial",
        SweepEnd::Ceiling(Ceiling::Calls) => "the sweep reached --max-calls; the result is partial",
    })
}

/// Returns a line of text that describes a step that has ended.
pub(super) fn step(step: &StepResult) -> String {
    let what = match &step.verdict {
        StepVerdict::Accepted => "ok".to_owned(),
        StepVerdict::Rejected(why) => format!("rejected: {why}"),
        StepVerdict::Invalid(why) => format!("invalid: {why}"),
        StepVerdict::Undecided(why) => format!("undecided: {why}"),
    };
    let rate =
        step.throughput.as_ref().map_or_else(String::new, |rate| format!(", {:.2} calls/s", rate.value));
    let engine = step.engine.as_ref().map_or_else(String::new, |engine| {
        let kv = engine.kv_usage.map_or_else(String::new, |kv| format!(", KV {:.0} %", 100.0 * kv));
        let preempted = engine.preemptions.map_or_else(String::new, |n| format!(", {n} preempted"));
        format!(", engine: {:.0} running, {:.0} waiting{kv}{preempted}", engine.running, engine.waiting)
    });
    format!(
        "cap {:>4}  {:>4} calls in {:.1} s{rate}{engine}  {what}",
        step.cap, step.calls, step.measured_seconds
    )
}

pub(super) fn spend(spend: &SweepSpend) -> String {
    let mut text = format!(
        "{} calls ({} requests), {} tokens in, {} out, {}",
        spend.calls,
        spend.attempts,
        amount(spend.input_tokens as f64),
        amount(spend.output_tokens as f64),
        time(spend.seconds)
    );
    if let Some(cost) = spend.money {
        let _ = write!(text, ", cost {}", money(cost));
    }
    text
}

pub(super) fn amount(number: f64) -> String {
    match number {
        n if n < 10_000.0 => format!("{n:.0}"),
        n if n < 1_000_000.0 => format!("{:.0}k", n / 1e3),
        n => format!("{:.1}M", n / 1e6),
    }
}

fn money(number: f64) -> String {
    if number < 1.0 { format!("{number:.4}") } else { format!("{number:.2}") }
}

pub(super) fn time(seconds: f64) -> String {
    let whole = Duration::try_from_secs_f64(seconds.max(0.0).ceil()).unwrap_or(Duration::MAX);
    humantime::format_duration(whole).to_string()
}
