//! Simulates the engine with an admission rule in front of it, without a client. All calls are
//! waiting from the start.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_sim::engine::{Engine, EngineConfig, EventKind, SequenceId};

use super::admission::{Admission, Rule};
use super::workload::Workload;
use super::{Outcome, RunCounts, UNTIL};
use crate::Fallible;
use crate::trace_lengths::Work;

/// Simulates one run on the engine without a client, and returns its figures.
pub(super) fn play(
    engine: &EngineConfig,
    rule: Rule,
    workload: Workload,
    calls: &[Work],
) -> Fallible<Outcome> {
    let mut queue: VecDeque<Work> = calls.iter().copied().collect();
    let mut engine = Engine::new(engine.clone());
    let block = engine.blocks().block_size();
    let mut admission = Admission::new(rule, workload, engine.blocks().capacity_tokens(), block);
    let mut counts = RunCounts::default();
    let (mut events, mut now, mut next) = (Vec::new(), Duration::ZERO, 0);
    loop {
        while let Some(work) = queue.front().copied().filter(|work| admission.fits(next, work)) {
            queue.pop_front();
            admission.admit(next, work);
            let hashes = workload.blocks(next, block);
            engine.submit_with(now, SequenceId(next), work.prompt, work.output, &hashes)?;
            next += 1;
        }
        let Some(at) = engine.next_event().filter(|at| *at <= UNTIL) else { break };
        now = at;
        engine.advance(now, &mut events);
        for event in events.drain(..) {
            match event.kind {
                EventKind::Token { .. } => admission.token(event.id.0),
                EventKind::Finished => {
                    if let Some(work) = admission.leave(event.id.0) {
                        counts.done(event.at, work);
                    }
                }
                EventKind::Preempted => counts.preempted(event.at),
                EventKind::Admitted => {}
            }
        }
    }
    if queue.is_empty() {
        return Err("the calls ran out before the time did".into());
    }
    let peak = f64::from(engine.totals().peak_blocks) / f64::from(engine.blocks().total().max(1));
    Ok(counts.outcome(peak))
}
