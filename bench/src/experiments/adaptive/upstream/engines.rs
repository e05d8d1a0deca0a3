//! Simulated vLLM engines behind a round-robin router.

use std::time::Duration;

use tidegate_sim::engine::{self, EngineConfig, EventKind, SequenceId};
use tidegate_sim::pool::{EnginePool, Routing};

use super::other_users::{FIRST_ID, Others};
use super::{Change, Event, Rejection, Upstream, What};
use crate::trace_lengths::Work;

/// An upstream of simulated engines. One of them can be lost at a time.
#[derive(Debug)]
pub(crate) struct Engines {
    pool: EnginePool,
    others: Others,
    /// The index of the lost engine, and the time at which the router notices the loss. `None` if
    /// no engine is lost.
    lost: Option<(usize, Duration)>,
    broken: Vec<Event>,
    engine_events: Vec<engine::EngineEvent>,
}

/// The time until the router notices that an engine is lost. Until then, calls that it sends there
/// get a 503.
const NOTICED: Duration = Duration::from_secs(5);

impl Engines {
    pub(crate) fn new(engines: usize, config: &EngineConfig, others: Others) -> Self {
        let pool = EnginePool::new(engines, config, Routing::RoundRobin);
        Self { pool, others, lost: None, broken: Vec::new(), engine_events: Vec::new() }
    }

    /// Removes a lost engine from the router if the router has noticed the loss by `now`.
    fn notice(&mut self, now: Duration) {
        if let Some((engine, until)) = self.lost.filter(|(_, until)| *until <= now) {
            self.pool.set_routable(engine, false);
            self.lost = Some((engine, until));
        }
    }
}

impl Upstream for Engines {
    fn submit(&mut self, now: Duration, id: u64, work: Work) -> Result<(), Rejection> {
        self.notice(now);
        let sequence = SequenceId(id);
        // A call too long for the engine would get a 400. The workloads have no such calls.
        let Ok(engine) = self.pool.submit(now, sequence, work.prompt, work.output) else {
            return Err(Rejection::Overloaded);
        };
        if self.lost.is_some_and(|(lost, _)| lost == engine) {
            self.pool.abort(sequence);
            return Err(Rejection::Overloaded);
        }
        Ok(())
    }

    fn abort(&mut self, _now: Duration, id: u64) {
        self.pool.abort(SequenceId(id));
    }

    fn next_event(&self) -> Option<Duration> {
        let broken = self.broken.first().map(|event| event.at);
        let others = Some(self.others.next()).filter(|next| *next < Duration::MAX);
        [self.pool.next_event(), others, broken].into_iter().flatten().min()
    }

    fn advance(&mut self, now: Duration, events: &mut Vec<Event>) {
        events.append(&mut self.broken);
        while let Some(at) = [self.pool.next_event(), Some(self.others.next())].into_iter().flatten().min() {
            if at > now {
                break;
            }
            self.pool.advance(at, &mut self.engine_events);
            if self.others.next() <= at {
                let (id, work) = self.others.ask();
                // Rejected calls of others are ignored.
                let _ = self.submit(at, id, work);
            }
        }
        events.extend(self.engine_events.drain(..).filter(|event| event.id.0 < FIRST_ID).filter_map(
            |event| {
                let what = match event.kind {
                    EventKind::Token { index: 0 } => What::FirstToken,
                    EventKind::Finished => What::Finished,
                    _ => return None,
                };
                Some(Event { at: event.at, id: event.id.0, what })
            },
        ));
    }

    fn change(&mut self, now: Duration, change: Change) {
        match change {
            Change::No => {}
            Change::AtOnce(sequences) => self.pool.set_max_num_seqs(sequences),
            Change::Lost(engine) => {
                let ours = self.pool.reset(engine).into_iter().filter(|id| id.0 < FIRST_ID);
                self.broken.extend(ours.map(|id| Event { at: now, id: id.0, what: What::Broken }));
                self.lost = Some((engine, now + NOTICED));
            }
            Change::Back(engine) => {
                self.lost = None;
                self.pool.set_routable(engine, true);
            }
            Change::Pace(factor) => self.pool.set_slowdown(factor),
            Change::Others(per_second) => self.others.rate(now, per_second),
        }
    }
}
