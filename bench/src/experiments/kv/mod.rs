//! Measures admission by KV memory (the memory of the engine's KV cache). The engine's cache is the
//! bottleneck, callers send a `max_tokens` far above their need, and the gate learns the lengths of
//! the answers.
//!
//! The peers are an oracle that knows the lengths, reservation of `max_tokens`, no reservation, and
//! the best fixed number of slots. Each workload runs through a target with a configured memory,
//! and through a pool whose replica reports its memory and its prefix cache. The policy alone also
//! runs with parts switched off: with the mean length taken as certain, and with shared blocks
//! counted for each call.

mod admission;
mod burst;
mod engine_only;
mod run_client;
mod workload;

use std::time::Duration;

use serde_json::json;
use tidegate_sim::engine::EngineConfig;

use self::admission::Rule;
use self::run_client::MemorySource;
use self::workload::Workload;
use crate::Fallible;
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::trace_lengths::{Traces, Work};
use crate::virtual_time;

/// The seeds of the reported figures. Constants were chosen on seeds 1 to 30, and the best number
/// of slots on seeds 1 to 10.
pub(crate) const SEEDS: Seeds = Seeds::new(31, 50);
const CHOSEN_ON: Seeds = Seeds::new(1, 10);

/// The start of the measurement, since the start of the run.
const FROM: Duration = Duration::from_secs(60);
const UNTIL: Duration = Duration::from_secs(360);

/// The `max_tokens` of each call.
const MAX_TOKENS: u32 = 4_096;

/// The number of slots of the peer "no reservation". It is the largest batch of the engine.
const SLOTS: usize = 256;

/// The number of calls that are drawn. No run needs more.
const CALLS: usize = 4_000;

/// The compared cache sizes, in blocks of 16 tokens. About 25 and 70 calls fit.
const CACHES: [u32; 2] = [2_048, 5_625];

/// Simulates all workloads, cache sizes and rules on `seeds`, and returns the report.
pub(crate) fn measure(seeds: Seeds) -> Fallible<Report> {
    let mut report = Report::new("kv", seeds);
    for blocks in CACHES {
        let engine = EngineConfig { num_blocks: blocks, ..EngineConfig::default() };
        let traces = Traces::read(engine.max_model_len)?;
        for workload in Workload::ALL {
            eprintln!("{}, {blocks} blocks", workload.name());
            let engine = EngineConfig { prefix_cache: workload.common() > 0, ..engine.clone() };
            compare(&mut report, seeds, &traces, &engine, workload)?;
        }
    }
    burst::measure(&mut report, seeds)?;
    Ok(report)
}

fn compare(
    report: &mut Report,
    seeds: Seeds,
    traces: &Traces,
    engine: &EngineConfig,
    workload: Workload,
) -> Fallible<()> {
    let key = |what: &str| format!("{}, {} blocks: {what}", workload.name(), engine.num_blocks);
    let by_itself = |rule| {
        virtual_time::each(seeds, |seed| {
            engine_only::play(engine, rule, workload, &workload.draw(traces, seed, CALLS))
        })
    };
    let through = |known| {
        virtual_time::each(seeds, |seed| {
            run_client::play(engine, known, workload, &workload.draw(traces, seed, CALLS), seed)
        })
    };
    let oracle = by_itself(Rule::Oracle)?;
    let (configured, reported) = (through(MemorySource::Configured)?, through(MemorySource::Reported)?);
    let slots = best_slots(traces, engine, workload)?;
    let peers = [
        ("oracle", oracle.clone()),
        ("the policy by itself", by_itself(Rule::Learned)?),
        ("mean length as certain", by_itself(Rule::Certain)?),
        ("shared blocks counted for each call", by_itself(Rule::Unshared)?),
        ("max_tokens reserved", by_itself(Rule::Reserve { max_tokens: MAX_TOKENS })?),
        ("no reservation", by_itself(Rule::Slots(SLOTS))?),
        ("best slots", by_itself(Rule::Slots(slots))?),
    ];
    report.peer("best slots", key("slots"), json!(slots));
    for (figure, of) in FIGURES {
        report.figure(key(figure), spread(&reported, &oracle, of));
        report.peer("memory configured", key(figure), spread(&configured, &oracle, of));
        for (peer, runs) in &peers {
            report.peer(peer, key(figure), spread(runs, &oracle, of));
        }
    }
    let preempted = |run: &Outcome, _: &Outcome| run.preempted;
    // A configured target does not know the prefix cache, and admits about half as many calls as
    // fit. This has figures, but no bars: shared prefixes need a pool that reports its memory.
    let shares = workload.common() > 0;
    let ours = [("memory configured", &configured), ("memory reported", &reported)];
    for (how, runs) in ours.into_iter().skip(usize::from(shares)) {
        let goodput = spread(runs, &oracle, share);
        let preempted = spread(runs, &oracle, preempted);
        let key = |what: &str| key(&format!("{how}: {what}"));
        report.bar(key("goodput / oracle's (median of seeds)"), goodput.median, Op::AtLeast, 0.9);
        report.bar(key("goodput / oracle's (worst seed)"), goodput.least, Op::AtLeast, 0.9);
        report.bar(key("preemptions a call (median of seeds)"), preempted.median, Op::AtMost, 0.05);
        report.bar(key("preemptions a call (worst seed)"), preempted.most, Op::AtMost, 0.05);
    }
    let [_, _, certain, unshared, reserved, none, _] = &peers;
    let off = spread(&none.1, &oracle, preempted);
    report.bar(key("no reservation: preemptions a call (median of seeds)"), off.median, Op::AtLeast, 0.05);
    let off = spread(&reserved.1, &oracle, share);
    report.bar(key("max_tokens reserved: goodput / oracle's (median of seeds)"), off.median, Op::AtMost, 0.9);
    if workload == Workload::Tail {
        let off = spread(&certain.1, &oracle, preempted);
        report.bar(
            key("mean length as certain: preemptions a call (worst seed)"),
            off.most,
            Op::AtLeast,
            0.05,
        );
    }
    if shares {
        let off = spread(&unshared.1, &oracle, share);
        let what = "shared blocks counted for each call: goodput / oracle's (median of seeds)";
        report.bar(key(what), off.median, Op::AtMost, 0.9);
    }
    Ok(())
}

/// Returns the fixed number of slots with the most output tokens per second on the seeds
/// [`CHOSEN_ON`], regardless of preemptions.
fn best_slots(traces: &Traces, engine: &EngineConfig, workload: Workload) -> Fallible<usize> {
    let mut best = (0.0, 0);
    for slots in [8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128] {
        let runs = virtual_time::each(CHOSEN_ON, |seed| {
            engine_only::play(engine, Rule::Slots(slots), workload, &workload.draw(traces, seed, CALLS))
        })?;
        let median = Spread::of(runs.iter().map(|run| run.tokens_per_s)).median;
        if median > best.0 {
            best = (median, slots);
        }
    }
    Ok(best.1)
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Output tokens of completed calls, divided by the seconds of the measurement.
    tokens_per_s: f64,
    /// Preemptions during the measurement, divided by the completed calls.
    preempted: f64,
    /// The number of preemptions before the measurement starts.
    cold: f64,
    /// The highest used share of the cache, from 0 to 1.
    peak: f64,
}

/// Computes a figure from a run and from the oracle's run on the same seed.
type Figure = fn(&Outcome, &Outcome) -> f64;

const FIGURES: [(&str, Figure); 5] = [
    ("goodput / oracle's", share),
    ("output tokens of completed calls a second", |run, _| run.tokens_per_s),
    ("preemptions a call", |run, _| run.preempted),
    ("preemptions in the first minute", |run, _| run.cold),
    ("peak of the cache", |run, _| run.peak),
];

fn share(run: &Outcome, oracle: &Outcome) -> f64 {
    run.tokens_per_s / oracle.tokens_per_s
}

fn spread(runs: &[Outcome], oracle: &[Outcome], of: Figure) -> Spread {
    Spread::of(runs.iter().zip(oracle).map(|(run, oracle)| of(run, oracle)))
}

/// The counts of completed calls, of their output tokens, and of preemptions during the
/// measurement. `cold` is the number of preemptions before the measurement.
#[derive(Debug, Default)]
struct RunCounts {
    calls: u64,
    tokens: u64,
    preemptions: u64,
    cold: u64,
}

impl RunCounts {
    fn done(&mut self, at: Duration, work: Work) {
        if at >= FROM {
            self.calls += 1;
            self.tokens += u64::from(work.output);
        }
    }

    fn preempted(&mut self, at: Duration) {
        if at >= FROM { self.preemptions += 1 } else { self.cold += 1 }
    }

    fn outcome(&self, peak: f64) -> Outcome {
        Outcome {
            tokens_per_s: self.tokens as f64 / (UNTIL - FROM).as_secs_f64(),
            preempted: self.preemptions as f64 / self.calls.max(1) as f64,
            cold: self.cold as f64,
            peak,
        }
    }
}
