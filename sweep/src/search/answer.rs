//! Computes the answer and its explanation from the state of the search.

use super::SearchSettings;
use super::evidence::{Evidence, RejectedCap, RejectionCause};
use super::interval;
use super::next_step::{NoAnswer, Phase, Policy};
use super::noise::NOTABLE;
use super::rate_limited::RateLimited;
use super::service_time::MeanEstimate;
use crate::normal_distribution;
use crate::observation::FailureCause;
use crate::search_result::{Binding, Estimate, LatencyQuantiles, StepResult, SweepAnswer};

/// Full KV memory is reported as the binding limit if a cap was rejected because of a cliff or an
/// overload, and sequences are preempted at a cap of at most this multiple of the answer.
const PREEMPTION_RANGE: f64 = 1.4;

/// Share of the calls, 0 to 1, that must meet the objectives at the cap of a rate limit. A note
/// names a smaller share.
const MIN_SHARE_MET: f64 = 0.95;

/// Returns the answer that follows from the evidence so far. `steps` are the results of all steps.
pub(super) fn build(policy: &Policy, settings: &SearchSettings, steps: &[StepResult]) -> SweepAnswer {
    let evidence = &policy.evidence;
    let Some(cap) = answer_cap(policy, settings) else { return no_answer(policy, settings, steps) };
    if let Phase::RateLimited(state) = &policy.phase {
        return rate_limited_answer(policy, settings, state, cap);
    }
    let z = normal_distribution::quantile(0.5 + 0.5 * settings.confidence);
    let work = evidence.work();
    let pooled = evidence.pooled(cap);
    let estimate = |mean: Option<MeanEstimate>| {
        mean.map(|mean| Estimate {
            value: mean.value,
            low: (mean.value - z * mean.error).max(0.0),
            high: mean.value + z * mean.error,
        })
    };
    let binding = binding(policy, settings, cap);
    let highest = evidence.points().last().map_or(cap, |point| point.cap);
    let (low, high) = knee_interval(policy, settings, cap);
    let excess = pooled.as_ref().and_then(|summary| policy.reported_excess(summary));
    let excess_note = excess.map(|(unit, accepted, limit)| {
        format!("At cap {cap}, the server accepted about {accepted:.0} {unit} per minute, but its response headers report a limit of {limit:.0}. It may reject calls later: configure this rate too.")
    });
    // A client that is too slow does not show how much the server can take.
    let rising = matches!(binding, Binding::NotReached | Binding::Client);
    SweepAnswer {
        cap: Some(cap),
        interval: Some((low, high)),
        open_above: rising
            || (evidence.bad.is_none() && high >= highest && !evidence.has_stopped_rising(settings)),
        binding: Some(binding),
        confirmed: policy.confirmed,
        because: explanation(policy, settings, cap, binding),
        throughput: estimate(pooled.as_ref().and_then(|summary| summary.throughput(work))),
        goodput: estimate(pooled.as_ref().and_then(|summary| summary.goodput(work))),
        rpm: None,
        tpm: None,
        notes: notes(policy).into_iter().chain(excess_note).collect(),
    }
}

/// Returns the confidence interval of the answer `cap`, which it contains.
pub(super) fn knee_interval(policy: &Policy, settings: &SearchSettings, cap: usize) -> (usize, usize) {
    let evidence = &policy.evidence;
    let binding = curve_binding(policy, settings, cap);
    let queue = evidence.engine_queue();
    let points = evidence.curve().map_or_else(Vec::new, |curve| curve.points().to_vec());
    let highest = match (evidence.bad, queue) {
        (_, Some(queue)) => queue.highest_knee,
        (Some(bad), None) => bad.cap.saturating_sub(1),
        (None, None) => points.last().map_or(cap, |point| point.cap),
    };
    let ceiling = highest.max(cap);
    let (low, high) =
        interval::knee_interval(&points, settings.tolerance, settings.confidence).unwrap_or((cap, cap));
    let at_cliff = binding == Binding::KvCliff && queue.is_none();
    // Between two measured caps below a cliff, throughput may rise in a straight line or bend.
    let cap_below = points.iter().map(|point| point.cap).rfind(|&cap| cap < low);
    let low = cap_below.filter(|_| at_cliff).unwrap_or(low);
    let has_hard_limit = matches!(binding, Binding::ConcurrencyLimit | Binding::Client) || at_cliff;
    // Below the queue, an objective may set the knee.
    let is_late = evidence.curve().is_some_and(|curve| curve.share_in_time().is_some());
    let is_counted = queue.is_some_and(|queue| !(queue.is_kv_full || is_late && high < queue.running));
    let high = if has_hard_limit || is_counted { ceiling } else { high.clamp(cap, ceiling) };
    // How many sequences fit into memory depends on their lengths, of which a step saw a sample.
    let z = normal_distribution::quantile(0.5 + 0.5 * settings.confidence);
    let full_queue = queue.filter(|queue| queue.is_kv_full);
    let is_memory = at_cliff || full_queue.is_some();
    let length_error = if is_memory { z * evidence.sample_error(cap) } else { 0.0 };
    // The number of calls that a full KV cache holds also varies with their progress.
    let varies = full_queue.map_or(0, |_| (cap / 8).max(1));
    let low = full_queue.map_or(low, |queue| low.min(queue.running).min(cap.saturating_sub(varies)));
    let low = (low as f64 / (1.0 + length_error)).round().max(settings.min_cap as f64) as usize;
    let high = (high.max(cap + varies) as f64 * (1.0 + length_error)).round() as usize;
    (low.min(cap), high.max(cap))
}

/// Returns the answer of a search whose server has a rate limit. `cap` is the cap that the search
/// has found so far.
fn rate_limited_answer(
    policy: &Policy,
    settings: &SearchSettings,
    state: &RateLimited,
    cap: usize,
) -> SweepAnswer {
    let evidence = &policy.evidence;
    let z = normal_distribution::quantile(0.5 + 0.5 * settings.confidence);
    let binding = policy.limited_rate(state);
    let observed = evidence.rate_history.observed_rate(state.since);
    // Errors: one call at each end of the stretch, the random lengths of the mix, and the error of
    // the service time.
    let error = observed.map_or(0.5, |observed| {
        (1.5 / observed.calls).hypot(0.35 / observed.calls.sqrt().max(1.0)).hypot(0.01)
    });
    let with_interval = |value: f64| Estimate {
        value,
        low: value * (1.0 - z * error).max(0.0),
        high: value * (1.0 + z * error),
    };
    let calls = observed.map(|observed| with_interval(policy.calls_per_second(state, &observed)));
    let sustained = calls
        .zip(evidence.service_at(cap))
        .map(|(calls, service)| (calls.low * service, calls.high * service));
    let (low, high) = sustained.map_or((cap, cap), |(low, high)| (low as usize, high.ceil() as usize));
    let sustained_calls = calls.zip(evidence.service_at(cap)).map(|(calls, service)| calls.value * service);
    let at_cap = evidence.pooled(cap).filter(|summary| summary.answered > 0);
    let share_met = at_cap.map(|summary| summary.met as f64 / summary.answered as f64);
    let late_note = share_met.filter(|&share| share < MIN_SHARE_MET).map(|share| {
        format!("Only {:.0} % of the calls met the objective at cap {cap}, which the rate limit determines, not the objective.", 100.0 * share)
    });
    let cap = sustained_calls.map_or(cap, |sustained| policy.rounded_cap(settings, state, cap, sustained));
    let scaled = |estimate: Estimate, factor: f64| Estimate {
        value: factor * estimate.value,
        low: factor * estimate.low,
        high: factor * estimate.high,
    };
    let has_objective = settings.ttft.or(settings.tpot).is_some();
    let share_met = if has_objective { share_met } else { Some(1.0) };
    let tokens = observed.map(|observed| with_interval(policy.tokens_per_second(&observed)));
    let (what, reported) = match binding {
        Binding::RequestRate => ("requests", evidence.rate_history.reported_rpm),
        _ => ("tokens", evidence.rate_history.reported_tpm),
    };
    let rate = match binding {
        Binding::RequestRate => calls,
        _ => tokens,
    };
    let reported =
        reported.map_or_else(String::new, |reported| format!(" (its response headers report {reported:.0})"));
    // A rate that is not limited would hold calls back without need.
    let may_limit = |rate: Binding| rate == binding || !state.is_known();
    let unsure =
        if state.is_known() { "" } else { " No response showed whether it counts tokens or requests." };
    let because = format!(
        "The server accepts about {:.0} {what} per minute{reported}, independent of the cap; {cap} concurrent calls use this rate up. Configure the rate; the cap follows from it.{unsure}",
        60.0 * rate.map_or(0.0, |rate| rate.value)
    );
    SweepAnswer {
        cap: Some(cap),
        interval: Some((low.clamp(settings.min_cap, cap), high.max(cap))),
        open_above: false,
        binding: Some(binding),
        confirmed: policy.confirmed,
        because,
        throughput: calls,
        goodput: calls.zip(share_met).map(|(calls, share)| scaled(calls, share)),
        rpm: calls.filter(|_| may_limit(Binding::RequestRate)).map(|calls| scaled(calls, 60.0)),
        tpm: tokens.filter(|_| may_limit(Binding::TokenRate)).map(|tokens| scaled(tokens, 60.0)),
        notes: policy.notes.iter().cloned().chain(late_note).collect(),
    }
}

fn answer_cap(policy: &Policy, settings: &SearchSettings) -> Option<usize> {
    match policy.phase {
        Phase::Confirm { answer, .. } => Some(answer),
        Phase::RateLimited(state) => state.answer,
        _ => policy.evidence.answer(settings),
    }
}

fn no_answer(policy: &Policy, settings: &SearchSettings, steps: &[StepResult]) -> SweepAnswer {
    let example = policy.evidence.all_summaries().iter().rev().find_map(|summary| summary.failure.clone());
    let last_failure = example.map_or_else(String::new, |failure| match failure.status {
        Some(status) => format!(" The last response was a {status}."),
        None => format!(" The last failure: {}.", failure_phrase(failure.cause)),
    });
    let because = match &policy.no_answer {
        Some(NoAnswer::Fails) => {
            format!("Calls fail at the lowest cap too, so no cap can be recommended.{last_failure}")
        }
        Some(NoAnswer::Refused) => {
            format!("The requests themselves are rejected at every cap.{last_failure}")
        }
        None if policy.evidence.is_always_late() => lateness(settings, steps),
        None => "Too few calls were observed for an answer.".to_owned(),
    };
    SweepAnswer {
        cap: None,
        interval: None,
        open_above: true,
        binding: None,
        confirmed: false,
        because,
        throughput: None,
        goodput: None,
        rpm: None,
        tpm: None,
        notes: policy.notes.clone(),
    }
}

/// Returns the explanation if no call met the latency objectives: what was measured at the lowest
/// cap, and the objectives.
fn lateness(settings: &SearchSettings, steps: &[StepResult]) -> String {
    let Some(step) = steps.iter().filter(|step| step.calls > 0).min_by_key(|step| step.cap) else {
        return "No call met the objective.".to_owned();
    };
    let of = |name: &str, objective: Option<f64>, measured: &LatencyQuantiles| {
        let objective = objective?;
        Some(match measured.p50 {
            Some(median) => format!("the median {name} was {median:.3} s (objective: {objective:.3} s)"),
            None => format!("the {name} is unknown, because no response was a stream"),
        })
    };
    let measured = [of("TTFT", settings.ttft, &step.ttft), of("TPOT", settings.tpot, &step.tpot)];
    format!(
        "No call met the objective, not even at cap {}, the lowest cap measured: {}.",
        step.cap,
        measured.into_iter().flatten().collect::<Vec<_>>().join(", and ")
    )
}

fn notes(policy: &Policy) -> Vec<String> {
    // The positions of a few failures alone may be misleading, so the cap that failed at first must
    // have been accepted later.
    let was_hasty = policy.too_fast_rejection.is_some_and(|cap| policy.evidence.good >= Some(cap));
    let max_rise = policy.max_rise.filter(|_| was_hasty).map(|max_rise| {
        format!("The server accepts more only as the load grows, by about {max_rise} concurrent calls at a time: raise the load slowly, or the first calls are rejected.")
    });
    policy.notes.iter().cloned().chain(max_rise).chain(noise_note(policy)).collect()
}

/// Returns a remark that names the noise of the measurement, or `None` if it was quiet.
fn noise_note(policy: &Policy) -> Option<String> {
    let noise = policy.evidence.noise();
    let repeated = match policy.outliers {
        0 => String::new(),
        1 => " One step disagreed with the others and is not counted.".to_owned(),
        n => format!(" {n} steps disagreed with the others and are not counted."),
    };
    if noise < NOTABLE && policy.outliers < 2 {
        return None;
    }
    let differ = if noise < NOTABLE {
        String::new()
    } else {
        format!(" Steps at the same cap differ by about {:.0} %, which widens the interval.", 100.0 * noise)
    };
    Some(format!(
        "The measurement is noisy: something else slowed the server or this client at times.{differ}{repeated}"
    ))
}

/// Returns what limits the answer `cap`.
pub(super) fn binding(policy: &Policy, settings: &SearchSettings, cap: usize) -> Binding {
    match curve_binding(policy, settings, cap) {
        // More calls gain nothing because those that the KV cache cannot hold wait.
        Binding::Saturation if policy.evidence.is_kv_full_from(cap) == Some(true) => Binding::KvCliff,
        binding => binding,
    }
}

/// Returns what limits the answer `cap` as far as the rejected caps and the goodput curve show. A
/// full KV cache counts only if the goodput falls above `cap`.
fn curve_binding(policy: &Policy, settings: &SearchSettings, cap: usize) -> Binding {
    let evidence = &policy.evidence;
    // Several more slots gained hardly anything before any call was rejected.
    let well_above = (cap as f64 * (1.0 + 2.0 * settings.tolerance)).max(cap as f64 + 2.0);
    let stalled = evidence.good.is_some_and(|good| good as f64 >= well_above);
    let binding_of = |bad: RejectedCap| match bad.cause {
        RejectionCause::Client => Binding::Client,
        RejectionCause::Cliff if evidence.is_kv_full_from(cap) != Some(false) => Binding::KvCliff,
        RejectionCause::Cliff | RejectionCause::Overload => Binding::Saturation,
        RejectionCause::Failures if stalled => Binding::Saturation,
        RejectionCause::Failures => Binding::ConcurrencyLimit,
    };
    let is_near = |bad: &RejectedCap| bad.cap.saturating_sub(cap) as f64 <= (0.1 * cap as f64).max(1.0);
    // Memory fills up gradually: preemptions occur now and then before they cost more than is
    // gained.
    let fills_kv_cache = |bad: &RejectedCap| {
        matches!(bad.cause, RejectionCause::Cliff | RejectionCause::Overload)
            && evidence
                .lowest_preempting_cap()
                .is_some_and(|from| from as f64 <= PREEMPTION_RANGE * cap as f64)
            && evidence.is_kv_full_from(cap) != Some(false)
    };
    match evidence.bad {
        Some(bad) if fills_kv_cache(&bad) => Binding::KvCliff,
        Some(bad) if is_near(&bad) && bad.cause == RejectionCause::Failures => binding_of(bad),
        _ if evidence.engine_queue().is_some() => Binding::Saturation,
        Some(bad) if is_near(&bad) => binding_of(bad),
        _ if evidence.has_stopped_rising(settings) => Binding::Saturation,
        Some(bad) => binding_of(bad),
        None => Binding::NotReached,
    }
}

fn explanation(policy: &Policy, settings: &SearchSettings, cap: usize, binding: Binding) -> String {
    let evidence = &policy.evidence;
    match binding {
        Binding::ConcurrencyLimit => {
            let bad = evidence.bad.map_or(cap + 1, |bad| bad.cap);
            let (failed, accepted, failure) = evidence
                .summaries()
                .iter()
                .filter(|summary| summary.cap == bad)
                .fold((0, 0, None), |(failed, accepted, failure), summary| {
                    (
                        failed + summary.above_floor.0,
                        accepted + summary.above_floor.1,
                        summary.failure.clone().or(failure),
                    )
                });
            let what = failure.map_or("an error".to_owned(), |failure| match failure.status {
                Some(status) => format!("a {status}"),
                None => failure_phrase(failure.cause).to_owned(),
            });
            let next = if bad == cap + 1 { ordinal(bad) } else { format!("{} or later", ordinal(cap + 1)) };
            format!(
                "The server accepts {cap} concurrent calls; of calls sent as the {next}, {failed} of {} got {what}.",
                failed + accepted
            )
        }
        Binding::Client => format!(
            "This client kept at most about {cap} calls in flight although nothing limited it; the server may accept more."
        ),
        Binding::KvCliff => match evidence.engine_queue() {
            Some(queue) => format!(
                "The engine's KV cache holds about {} calls at once: with {} concurrent calls, {:.0} wait in its queue{}.",
                queue.running,
                queue.cap,
                queue.waiting,
                memory_use(evidence, cap)
            ),
            None if curve_binding(policy, settings, cap) == Binding::Saturation => format!(
                "The engine's KV cache is full: with {cap} concurrent calls and more, throughput no longer rises{}.",
                memory_use(evidence, cap)
            ),
            None => format!(
                "Above {cap} concurrent calls, sequences are preempted and recomputed, streams stall, and throughput falls."
            ),
        },
        Binding::Saturation => {
            let best = evidence.knee(settings).map_or(0.0, |knee| knee.best);
            let highest = evidence.points().last().map_or(cap, |point| point.cap);
            let good = if settings.ttft.or(settings.tpot).is_some() { " within the objective" } else { "" };
            let enough = 100.0 * (1.0 - settings.tolerance);
            match evidence.engine_queue() {
                Some(queue) => format!(
                    "The engine runs at most {} calls at once: with {} concurrent calls, {:.0} wait in its queue. It completes at most {best:.2} calls per second{good}, and {cap} concurrent calls are enough for {enough:.0} % of that.",
                    queue.running, queue.cap, queue.waiting
                ),
                None => format!(
                    "The server's throughput stops to rise: with up to {highest} concurrent calls it completes at most {best:.2} calls per second{good}, and {cap} are enough for {enough:.0} % of that."
                ),
            }
        }
        Binding::NotReached => {
            format!("No limit was reached up to {cap} concurrent calls, the highest cap measured.")
        }
        Binding::RequestRate | Binding::TokenRate => String::new(),
    }
}

/// Returns the use of the engine's memory in the steps at or above `cap`, as the continuation of a
/// sentence. Empty if the engine reports none.
fn memory_use(evidence: &Evidence, cap: usize) -> String {
    let kv = evidence.engine_from(cap, |engine| engine.kv_usage);
    let preemptions = evidence.engine_from(cap, |engine| engine.preemptions.map(|n| n as f64));
    let kv = kv.map(|kv| format!(", {:.0} % of its KV cache is in use", 100.0 * kv));
    let preemptions = preemptions.map(|n| format!(", and it preempted up to {n:.0} sequences in a step"));
    format!("{}{}", kv.unwrap_or_default(), preemptions.unwrap_or_default())
}

fn ordinal(n: usize) -> String {
    let suffix = match (n % 100, n % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}

fn failure_phrase(cause: FailureCause) -> &'static str {
    match cause {
        FailureCause::Limited => "a 429",
        FailureCause::Overloaded => "an overload error",
        FailureCause::Server => "a server error",
        FailureCause::Timeout => "a timeout",
        FailureCause::Connection => "a connection failure",
        FailureCause::Truncated => "a truncated response",
        FailureCause::Request => "a rejected request",
    }
}
