//! The engine by itself, with a door before it: no client, no sockets, nothing but steps.

use std::collections::VecDeque;
use std::time::Duration;

use tidegate_sim::engine::{Engine, EngineConfig, EventKind, SequenceId};

use super::door::{Door, Rule};
use super::workload::Work;
use crate::Fallible;

/// What a run gave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// Output tokens of the calls that completed while it was measured, a second.
    pub(super) tokens_per_s: f64,
    /// Calls that completed while it was measured, a second.
    pub(super) calls_per_s: f64,
    /// Preemptions over calls completed, from the very start.
    pub(super) preempted: f64,
    /// The most of the cache that was ever held, 0 to 1.
    pub(super) peak: f64,
}

/// From when to when a run is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) from: Duration,
    pub(super) until: Duration,
}

/// Plays calls that all wait from the start.
pub(super) fn play(engine: &EngineConfig, rule: Rule, calls: &[Work], window: Window) -> Fallible<Outcome> {
    let mut queue: VecDeque<Work> = calls.iter().copied().collect();
    let mut engine = Engine::new(engine.clone());
    let mut door = Door::new(rule, engine.blocks().capacity_tokens(), engine.blocks().block_size());
    let (mut events, mut now, mut next) = (Vec::new(), Duration::ZERO, 0);
    let (mut done, mut done_in, mut tokens) = (0u32, 0u32, 0u64);
    loop {
        while let Some(work) = queue.front().copied().filter(|work| door.fits(work)) {
            queue.pop_front();
            door.admit(next, work);
            engine.submit(now, SequenceId(next), work.prompt, work.output)?;
            next += 1;
        }
        let Some(at) = engine.next_event().filter(|at| *at <= window.until) else { break };
        now = at;
        engine.advance(now, &mut events);
        for event in events.drain(..) {
            match event.kind {
                EventKind::Token { .. } => door.token(event.id.0),
                EventKind::Finished => {
                    let Some(work) = door.leave(event.id.0) else { continue };
                    done += 1;
                    if event.at >= window.from {
                        done_in += 1;
                        tokens += u64::from(work.output);
                    }
                }
                EventKind::Admitted | EventKind::Preempted => {}
            }
        }
    }
    if queue.is_empty() {
        return Err("the calls ran out before the time did".into());
    }
    let seconds = (window.until - window.from).as_secs_f64();
    let totals = engine.totals();
    Ok(Outcome {
        tokens_per_s: tokens as f64 / seconds,
        calls_per_s: f64::from(done_in) / seconds,
        preempted: totals.preemptions as f64 / f64::from(done.max(1)),
        peak: f64::from(totals.peak_blocks) / f64::from(engine.blocks().total().max(1)),
    })
}
