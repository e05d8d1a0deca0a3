//! Simulated vLLM engines behind a round-robin router.

use std::time::Duration;

use tidegate_sim::engine::{self, EngineConfig, EventKind, SequenceId};
use tidegate_sim::pool::{EnginePool, Routing};

use super::others::{Others, THEIRS};
use super::{Change, Event, Rejection, Upstream, What};
use crate::lengths::Work;

/// See the module.
#[derive(Debug)]
pub(crate) struct Engines {
    pool: EnginePool,
    others: Others,
    /// The engine that is gone, and until when the router has not noticed.
    lost: Option<(usize, Duration)>,
    broken: Vec<Event>,
    told: Vec<engine::EngineEvent>,
}

/// How long a router sends calls to an engine that is gone; they get 503.
const NOTICED: Duration = Duration::from_secs(5);

impl Engines {
    pub(crate) fn new(engines: usize, config: &EngineConfig, others: Others) -> Self {
        let pool = EnginePool::new(engines, config, Routing::RoundRobin);
        Self { pool, others, lost: None, broken: Vec::new(), told: Vec::new() }
    }

    /// The router notices when it next has something to do.
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
        // A call too long for the engine: the workloads have none, and an engine says 400.
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
            self.pool.advance(at, &mut self.told);
            if self.others.next() <= at {
                let (id, work) = self.others.ask();
                // What is turned away is theirs to mind.
                let _ = self.submit(at, id, work);
            }
        }
        events.extend(self.told.drain(..).filter(|event| event.id.0 < THEIRS).filter_map(|event| {
            let what = match event.kind {
                EventKind::Token { index: 0 } => What::FirstToken,
                EventKind::Finished => What::Finished,
                _ => return None,
            };
            Some(Event { at: event.at, id: event.id.0, what })
        }));
    }

    fn change(&mut self, now: Duration, change: Change) {
        match change {
            Change::No => {}
            Change::AtOnce(sequences) => self.pool.set_max_num_seqs(sequences),
            Change::Lost(engine) => {
                let ours = self.pool.reset(engine).into_iter().filter(|id| id.0 < THEIRS);
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
