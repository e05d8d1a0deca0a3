//! A burst at a gate that has not learned any output lengths: all calls arrive at the same time,
//! answers have a heavy tail, and short answers complete first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::config::{Config, Predict, Target};
use tidegate::{Gate, Lane, Transport};
use tidegate_sim::engine::{Engine, EngineConfig, EventKind, SequenceId};
use tidegate_sim::{SimConfig, Simulator};
use tidegate_test_servers::simulator_transport;
use tokio::time::Instant;

use super::admission::{Admission, Rule};
use super::workload::Workload;
use super::{CACHES, MAX_TOKENS};
use crate::Fallible;
use crate::client_call::{URL, call};
use crate::report::{Op, Report, Spread};
use crate::seeds::Seeds;
use crate::trace_lengths::{Traces, Work};
use crate::virtual_time;

/// The number of calls in the burst.
const CALLS: usize = 1_500;

/// The figures of one run of the burst.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Output tokens of completed calls, divided by the seconds until the last completion.
    tokens_per_s: f64,
    /// Preemptions per completed call.
    preempted: f64,
}

impl Outcome {
    fn new(done: &[(Duration, Work)], preemptions: u64) -> Self {
        let last = done.iter().map(|(at, _)| *at).max().unwrap_or_default();
        let tokens: u64 = done.iter().map(|(_, work)| u64::from(work.output)).sum();
        Self {
            tokens_per_s: tokens as f64 / last.as_secs_f64(),
            preempted: preemptions as f64 / done.len() as f64,
        }
    }
}

/// Simulates the burst on `seeds` with both cache sizes, and records figures and pass criteria in
/// `report`.
pub(super) fn measure(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    for blocks in CACHES {
        let engine = EngineConfig { num_blocks: blocks, ..EngineConfig::default() };
        let traces = Traces::read(engine.max_model_len)?;
        eprintln!("burst, {blocks} blocks");
        let draw = |seed| Workload::Tail.draw(&traces, seed, CALLS);
        let key = |what: &str| format!("burst, {blocks} blocks: {what}");
        let oracle = virtual_time::each(seeds, |seed| by_itself(&engine, Rule::Oracle, draw(seed)))?;
        let ours = virtual_time::each(seeds, |seed| through_gate(&engine, draw(seed), seed))?;
        let completed = virtual_time::each(seeds, |seed| by_itself(&engine, Rule::Learned, draw(seed)))?;
        let preempted = |runs: &[Outcome]| Spread::of(runs.iter().map(|run| run.preempted));
        let share = |runs: &[Outcome]| {
            let runs = runs.iter().zip(&oracle);
            Spread::of(runs.map(|(run, oracle)| run.tokens_per_s / oracle.tokens_per_s))
        };
        report.figure(key("goodput / oracle's"), share(&ours));
        report.figure(key("preemptions a call"), preempted(&ours));
        report.peer("completed answers only", key("goodput / oracle's"), share(&completed));
        report.peer("completed answers only", key("preemptions a call"), preempted(&completed));
        report.bar(key("goodput / oracle's (median of seeds)"), share(&ours).median, Op::AtLeast, 0.9);
        report.bar(key("preemptions a call (worst seed)"), preempted(&ours).most, Op::AtMost, 0.05);
    }
    Ok(())
}

/// Simulates the calls on the engine with an admission rule in front of it, without a gate. Returns
/// the figures of the run.
fn by_itself(engine: &EngineConfig, rule: Rule, calls: Vec<Work>) -> Fallible<Outcome> {
    let mut queue = VecDeque::from(calls);
    let mut engine = Engine::new(engine.clone());
    let blocks = engine.blocks();
    let mut admission = Admission::new(rule, Workload::Tail, blocks.capacity_tokens(), blocks.block_size());
    let (mut done, mut events, mut now, mut next, mut preemptions) =
        (Vec::new(), Vec::new(), Duration::ZERO, 0, 0);
    loop {
        while let Some(work) = queue.front().copied().filter(|work| admission.fits(next, work)) {
            queue.pop_front();
            admission.admit(next, work);
            engine.submit(now, SequenceId(next), work.prompt, work.output)?;
            next += 1;
        }
        let Some(at) = engine.next_event() else { break };
        now = at;
        engine.advance(now, &mut events);
        for event in events.drain(..) {
            match event.kind {
                EventKind::Token { .. } => admission.token(event.id.0),
                EventKind::Finished => done.extend(admission.leave(event.id.0).map(|work| (event.at, work))),
                EventKind::Preempted => preemptions += 1,
                EventKind::Admitted => {}
            }
        }
    }
    Ok(Outcome::new(&done, preemptions))
}

/// Simulates the calls through a gate, with the simulated engine as upstream. Returns the figures
/// of the run, or an error if a call fails.
fn through_gate(engine: &EngineConfig, calls: Vec<Work>, seed: u64) -> Fallible<Outcome> {
    let config = SimConfig { workers: 1, engine: engine.clone(), attempt_log: 0, ..SimConfig::calibrated() };
    let capacity = u64::from(engine.num_blocks) * u64::from(engine.block_size);
    virtual_time::run(seed, async {
        let simulator = Simulator::new(config)?;
        // Memory must bind, and not slots or waits.
        let target = Target::new("sim")
            .url(URL)
            .cap(CALLS)
            .kv_tokens(capacity)
            .predict(Predict::Off)
            .wait(PATIENCE)
            .deadline(PATIENCE);
        let gate = Gate::over(
            Config::builder().target(target).build()?,
            simulator_transport(&simulator, Duration::ZERO),
        )?;
        let (start, done) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let mut callers = tokio::task::JoinSet::new();
        for work in calls {
            let (client, done) = (Transport::new(gate.client()), done.clone());
            callers.spawn(async move {
                let seen = call(client, work.request("a", Lane::Standard, MAX_TOKENS)).await;
                if seen.ok {
                    done.lock().push((start.elapsed(), work));
                }
            });
        }
        while callers.join_next().await.is_some() {}
        let done = done.lock();
        if done.len() < CALLS {
            return Err("a call of the burst failed".into());
        }
        Ok(Outcome::new(&done, simulator.stats().preemptions))
    })
}

/// A wait and a deadline that no call reaches.
const PATIENCE: Duration = Duration::from_secs(3_600);
