//! Hand-made outcomes that the reports must be able to show.

use std::collections::BTreeMap;

use tidegate_sweep::observation::FailureCause;
use tidegate_sweep::search::SearchSettings;
use tidegate_sweep::search_result::{
    Binding, EngineUse, Estimate, LatencyQuantiles, Purpose, StepResult, StepVerdict, SweepAnswer,
};
use tidegate_sweep::spend::{Ceiling, SweepSpend, TokenPrices};
use tidegate_sweep::sweep_outcome::{
    CallOutcomes, Check, CheckResult, FORMAT, Provenance, SeriesPoint, SweepEnd, SweepOutcome,
};

/// Returns all outcomes with the names of their pages.
pub(crate) fn all() -> Vec<(&'static str, SweepOutcome)> {
    vec![
        ("limit", limit()),
        ("saturation", saturation()),
        ("rate", rate()),
        ("nothing", nothing()),
        ("engine", engine()),
        ("hostile", hostile()),
    ]
}

/// Returns the outcome for a server that accepts 24 concurrent calls.
pub(crate) fn limit() -> SweepOutcome {
    let bad = || StepVerdict::Rejected("48 of 1,000 attempts failed".to_owned());
    let mut plan: Vec<(usize, Purpose, StepVerdict, usize)> = [
        (4, Purpose::Ramp, StepVerdict::Accepted, 40),
        (8, Purpose::Ramp, StepVerdict::Accepted, 64),
        (16, Purpose::Ramp, StepVerdict::Accepted, 112),
        (32, Purpose::Ramp, bad(), 60),
        (16, Purpose::Reference, StepVerdict::Accepted, 32),
        (23, Purpose::Narrow, StepVerdict::Accepted, 140),
        (27, Purpose::Narrow, bad(), 66),
        (25, Purpose::Narrow, bad(), 120),
        (24, Purpose::Narrow, StepVerdict::Accepted, 168),
    ]
    .to_vec();
    for _ in 0..2 {
        plan.push((24, Purpose::Confirm, StepVerdict::Accepted, 310));
        plan.push((25, Purpose::Confirm, bad(), 100));
    }
    plan.insert(
        5,
        (
            20,
            Purpose::Narrow,
            StepVerdict::Invalid(
                "this client kept only 17.1 of 20 slots busy, although nothing limited it".to_owned(),
            ),
            80,
        ),
    );
    let steps = played(&plan, |cap| {
        let held = cap.min(24) as f64;
        let rate = held / 2.1 * if cap > 24 { 0.93 } else { 1.0 };
        (rate, 2.1, 0.38 + 0.004 * held, if cap > 24 { 0.048 * cap as f64 / 25.0 } else { 0.0 })
    });
    let mut outcome = outcome(steps, 24, (24, 24), Binding::ConcurrencyLimit);
    outcome.answer.because =
        "The server accepts 24 concurrent calls; of calls sent as the 25th, 48 of 52 got a 429.".to_owned();
    outcome.answer.notes =
        vec!["One step at 20 was invalid, because this client did not keep the cap busy.".to_owned()];
    outcome
}

/// Returns the outcome for a server that saturates at about 97 concurrent calls. It has many caps,
/// an objective that the highest caps miss, and no p99 at the lowest caps.
fn saturation() -> SweepOutcome {
    let usl = |n: f64| n * 1.6 / (1.0 + 0.012 * (n - 1.0) + 0.000_104 * n * (n - 1.0));
    let caps = [4, 8, 16, 32, 64, 128, 256, 90, 181, 108, 97, 118, 102, 92, 512];
    let mut plan: Vec<_> = caps
        .iter()
        .map(|cap| (*cap, Purpose::Ramp, StepVerdict::Accepted, (cap * 6).clamp(40, 420)))
        .collect();
    for cap in [97, 108, 97, 108, 97, 108] {
        plan.push((cap, Purpose::Confirm, StepVerdict::Accepted, 320));
    }
    let steps = played(&plan, |cap| {
        let n = cap as f64;
        (usl(n), n / usl(n), 0.12 + 0.000_02 * n * n, if cap > 200 { 0.006 } else { 0.0 })
    });
    let mut outcome = outcome(steps, 97, (84, 118), Binding::Saturation);
    outcome.answer.because =
        "The throughput at 97 is within 2 % of the best, at 108; twice as many slots have a lower throughput.".to_owned();
    outcome.provenance.settings.ttft = Some(2.0);
    outcome
}

/// Returns the outcome for a server with a token rate limit. The sweep reached a ceiling, so the
/// answer is not confirmed.
fn rate() -> SweepOutcome {
    let slow = || StepVerdict::Invalid("a rate limit held calls back, so the cap was not reached".to_owned());
    let plan = [
        (4, Purpose::Ramp, StepVerdict::Accepted, 40),
        (8, Purpose::Ramp, StepVerdict::Accepted, 60),
        (16, Purpose::Drain, slow(), 200),
        (16, Purpose::Ramp, slow(), 90),
        (12, Purpose::Narrow, StepVerdict::Undecided("31 calls are too few for a decision".to_owned()), 31),
    ];
    let mut steps =
        played(&plan, |cap| (cap.min(12) as f64 / 3.0, 3.0, 0.4, if cap > 12 { 0.2 } else { 0.0 }));
    for step in steps.iter_mut().skip(2) {
        step.forbidden = 0.62;
        step.in_flight = 11.2;
    }
    let mut outcome = outcome(steps, 12, (11, 13), Binding::TokenRate);
    outcome.answer.confirmed = false;
    outcome.answer.open_above = true;
    outcome.answer.rpm = Some(Estimate { value: 240.0, low: 236.0, high: 243.0 });
    outcome.answer.tpm = Some(Estimate { value: 240_000.0, low: 236_100.0, high: 243_000.0 });
    outcome.answer.because =
        "The server accepts about 240,000 tokens per minute, independent of the cap.".to_owned();
    outcome.ended = SweepEnd::Ceiling(Ceiling::Cost);
    outcome.lines = String::new();
    outcome
}

/// Returns the outcome for an engine that runs 16 calls at once, measured on a noisy machine. The
/// interval is wide, and the answer is not confirmed.
pub(crate) fn engine() -> SweepOutcome {
    let plan: Vec<_> = [4, 8, 16, 32, 13, 16, 13, 16, 13, 16, 13, 17, 16, 18, 13]
        .iter()
        .map(|cap| (*cap, Purpose::Confirm, StepVerdict::Accepted, 41))
        .collect();
    let mut steps = played(&plan, |cap| {
        let running = cap.min(16) as f64;
        let rate = running / (1.2 + 0.016 * running);
        (rate, cap as f64 / rate, 0.05 + 0.09 * (cap as f64 - running), 0.0)
    });
    for step in &mut steps {
        let running = step.cap.min(16) as f64;
        step.engine = Some(EngineUse {
            waiting: step.cap as f64 - running,
            running,
            kv_usage: Some(0.37),
            preemptions: Some(0),
        });
    }
    let mut outcome = outcome(steps, 16, (4, 32), Binding::Saturation);
    outcome.answer.confirmed = false;
    outcome.answer.because =
        "The engine runs at most 16 calls at once: with 32 concurrent calls, 16 wait in its queue."
            .to_owned();
    outcome.answer.notes = vec![
        "The measurement is noisy: something else slowed the server or this client at times. Steps at the same cap differ by about 18 %, which widens the interval.".to_owned(),
    ];
    outcome.lines = String::new();
    outcome
}

/// Returns the outcome of a sweep that was stopped before the first observation.
fn nothing() -> SweepOutcome {
    let mut outcome = outcome(Vec::new(), 1, (1, 1), Binding::Client);
    outcome.answer = SweepAnswer {
        cap: None,
        interval: None,
        open_above: true,
        binding: None,
        confirmed: false,
        because: "Too few calls were observed for an answer.".to_owned(),
        throughput: None,
        goodput: None,
        rpm: None,
        tpm: None,
        notes: Vec::new(),
    };
    (outcome.series, outcome.lines, outcome.checks) = (Vec::new(), String::new(), Vec::new());
    (outcome.ended, outcome.spend) = (SweepEnd::Interrupted, SweepSpend::default());
    outcome
}

/// Returns an outcome with malicious texts, and with numbers that are not finite or far too large.
pub(crate) fn hostile() -> SweepOutcome {
    let evil = "</style></script><script>document.title='owned'</script><img src=https://example.com/x onerror=alert(1)>\"'&]]>".to_owned();
    let mut outcome = limit();
    for (i, step) in outcome.steps.iter_mut().enumerate() {
        step.verdict = StepVerdict::Rejected(evil.clone());
        step.failures = [
            FailureCause::Limited,
            FailureCause::Overloaded,
            FailureCause::Server,
            FailureCause::Timeout,
            FailureCause::Connection,
            FailureCause::Truncated,
            FailureCause::Request,
        ]
        .map(|cause| (cause, i + 1))
        .into();
    }
    outcome.steps[0].throughput =
        Some(Estimate { value: f64::NAN, low: f64::NEG_INFINITY, high: f64::INFINITY });
    outcome.steps[1].throughput = Some(Estimate { value: 1e12, low: 0.0, high: 1e300 });
    outcome.steps[2].ttft.p50 = Some(f64::INFINITY);
    outcome.steps[3].cap = 1_000_000;
    outcome.steps[4].gap_fraction = f64::NAN;
    let from = &mut outcome.provenance;
    (from.model, from.url, from.mix, from.target) = (evil.clone(), evil.clone(), evil.clone(), evil.clone());
    from.server = Some(evil.clone());
    outcome.answer.because = evil.clone();
    outcome.answer.notes = vec![evil.clone(), "a".repeat(400)];
    outcome.lines = format!("{evil}\n{}\n", "x".repeat(300));
    outcome.checks.push(Check { name: evil.clone(), passed: CheckResult::No, finding: evil });
    outcome
}

type Server = (f64, f64, f64, f64);

/// Returns the result of each planned step. A planned step is its cap, purpose, verdict and number
/// of calls. `server` returns four values for a cap: calls per second, latency in seconds, time to
/// first token in seconds, and failed attempts per call.
fn played(
    plan: &[(usize, Purpose, StepVerdict, usize)],
    server: impl Fn(usize) -> Server,
) -> Vec<StepResult> {
    let mut now = 1.5;
    let mut steps = Vec::new();
    for (step, (cap, purpose, verdict, calls)) in plan.iter().enumerate() {
        let (rate, latency, ttft, failing) = server(*cap);
        // Repeated steps differ slightly.
        let rate = rate * (1.0 + 0.011 * ((step * 7 % 5) as f64 - 2.0) / 2.0);
        let (n, took) = (*calls, *calls as f64 / rate + latency);
        let spread = 1.96 * rate / (n as f64).sqrt() * 0.35;
        let failed = (n as f64 * failing).round() as usize;
        let known = Estimate { value: rate, low: rate - spread, high: rate + spread };
        let late = if ttft > 1.0 { 0.45 } else { 0.985 };
        let held = if matches!(verdict, StepVerdict::Invalid(_)) {
            *cap as f64 * 0.855
        } else {
            *cap as f64 * 0.992
        };
        steps.push(StepResult {
            step,
            cap: *cap,
            purpose: *purpose,
            began: now,
            ended: now + took,
            warm_up: *cap,
            calls: n,
            attempts: n + failed,
            failures: if failed > 0 {
                BTreeMap::from([
                    (FailureCause::Limited, failed - failed / 4),
                    (FailureCause::Timeout, failed / 4),
                ])
            } else {
                BTreeMap::new()
            },
            verdict: verdict.clone(),
            throughput: Some(known),
            goodput: Some(Estimate { value: rate * late, low: known.low * late, high: known.high * late }),
            latency: quantiles(n, latency),
            ttft: quantiles(n, ttft),
            tpot: quantiles(n, 0.009 + latency / 900.0),
            in_flight: held,
            measured_seconds: took,
            engine: None,
            gap_fraction: 0.002 + 0.0004 * (step % 4) as f64,
            forbidden: 0.0,
        });
        now += took + if matches!(verdict, StepVerdict::Rejected(_)) { 4.0 } else { 0.0 };
    }
    steps
}

fn quantiles(n: usize, median: f64) -> LatencyQuantiles {
    let quantile = |least: usize, value: f64| (n >= least).then_some(value);
    LatencyQuantiles {
        n,
        p50: quantile(1, median),
        p95: quantile(59, median * 1.7),
        p99: quantile(299, median * 2.4),
    }
}

/// Returns the call outcomes of a step in which about three quarters of the failed attempts were
/// retried with success.
fn call_outcomes(step: &StepResult) -> CallOutcomes {
    let failures: usize = step.failures.values().sum();
    let failed: BTreeMap<_, _> = step.failures.iter().map(|(cause, n)| (*cause, n.div_ceil(4))).collect();
    let lost: usize = failed.values().sum();
    let retried = failures.saturating_sub(lost);
    CallOutcomes { step: step.step, first_try: step.calls.saturating_sub(retried + lost), retried, failed }
}

fn series(steps: &[StepResult]) -> Vec<SeriesPoint> {
    let mut points = Vec::new();
    let (mut completed, mut failed) = (0, 0);
    for step in steps {
        for i in 0..24_u32 {
            let part = f64::from(i) / 24.0;
            // Sometimes two calls fewer are in flight, and none at first.
            let held = (step.in_flight * (part * 12.0).min(1.0)).round() as usize;
            points.push(SeriesPoint {
                at: step.began + part * (step.ended - step.began),
                cap: step.cap,
                in_flight: held.saturating_sub((i % 7 == 3).into()),
                waiting: (step.cap / 4).max(8) - (i % 3) as usize,
                completed: completed + (part * step.calls as f64) as usize,
                failed,
            });
        }
        completed += step.calls;
        failed += step.failures.values().sum::<usize>();
    }
    points
}

fn outcome(steps: Vec<StepResult>, cap: usize, interval: (usize, usize), binding: Binding) -> SweepOutcome {
    let at = steps.iter().rev().find(|step| step.cap == cap);
    let (throughput, goodput) = (at.and_then(|s| s.throughput), at.and_then(|s| s.goodput));
    let check = |name: &str, passed, finding: &str| Check {
        name: name.to_owned(),
        passed,
        finding: finding.to_owned(),
    };
    SweepOutcome {
        format: FORMAT,
        answer: SweepAnswer {
            cap: Some(cap),
            interval: Some(interval),
            open_above: false,
            binding: Some(binding),
            confirmed: true,
            because: String::new(),
            throughput,
            goodput,
            rpm: None,
            tpm: None,
            notes: Vec::new(),
        },
        spend: SweepSpend {
            calls: steps.iter().map(|s| s.calls + s.warm_up).sum::<usize>() + 1,
            attempts: steps.iter().map(|s| s.attempts + s.warm_up).sum::<usize>() + 1,
            input_tokens: 412_301,
            cached_tokens: 20_112,
            output_tokens: 98_112,
            money: Some(1.2048),
            seconds: steps.last().map_or(0.0, |s| s.ended),
        },
        checks: vec![
            check(
                "work_conserving",
                CheckResult::Yes,
                "Calls waited while slots were free and nothing forbade them for 0.3 % of the time; 5 % are too much.",
            ),
            check(
                "stability",
                CheckResult::Yes,
                "Failures rise with the cap above the answer: 0 % at 24, 4.8 % at 25.",
            ),
            check(
                "success",
                CheckResult::Yes,
                "Of the calls at the answer 100 % were answered, as at caps below it.",
            ),
            check(
                "client",
                CheckResult::No,
                "Timers ran up to 212 ms late in one step of 14: it counts as invalid.",
            ),
            check("mix", CheckResult::Unknown, "The server tells no tokens from its cache."),
        ],
        lines: format!(
            "[targets.llama]\nurl = \"http://10.0.0.4:8000/v1\"\nmodel = \"meta-llama/Llama-3.1-8B-Instruct\"\ncap = {cap}    # found by tidegate sweep, {} to {}\n",
            interval.0, interval.1
        ),
        ended: SweepEnd::Found,
        provenance: Provenance {
            version: "0.1.0".to_owned(),
            target: "llama".to_owned(),
            url: "http://10.0.0.4:8000/v1".to_owned(),
            model: "meta-llama/Llama-3.1-8B-Instruct".to_owned(),
            api: "chat".to_owned(),
            server: Some("uvicorn".to_owned()),
            mix: "synthetic prompts of 512 tokens, answers of at most 128 tokens".to_owned(),
            seed: 7,
            settings: SearchSettings::default(),
            attempts: 4,
            prices: Some(TokenPrices { input: 0.15, output: 0.6 }),
            began: Some("2026-11-22T01:30:00Z".to_owned()),
            resumed: 0,
        },
        calls: steps.iter().map(call_outcomes).collect(),
        series: series(&steps),
        steps,
    }
}
