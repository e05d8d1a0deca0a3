//! Several engines behind one router, like a "production stack" of vLLM workers.
//!
//! Pure, like [`crate::engine`]. The router picks an engine when a sequence is submitted, and the
//! sequence stays there. Events of all engines are ordered by time, and then by engine number.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{Engine, EngineConfig, EngineEvent, EventKind, SequenceId, TooLong};

/// How the router picks an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// The next engine in turn, the default of vLLM's production stack.
    #[default]
    RoundRobin,
    /// The engine with the fewest waiting and running sequences; ties go to the lowest number.
    LeastLoaded,
}

/// Engines and their router.
#[derive(Debug, Clone)]
pub struct EnginePool {
    engines: Vec<Engine>,
    routing: Routing,
    next: usize,
    /// Whether the router skips an engine.
    out: Vec<bool>,
    /// Looked up by key, or sorted after iteration, so iteration order cannot matter.
    owner: HashMap<SequenceId, usize>,
}

impl EnginePool {
    /// Returns a pool of `workers` idle engines, at least one, with the same configuration.
    pub fn new(workers: usize, config: &EngineConfig, routing: Routing) -> Self {
        let engines: Vec<_> = (0..workers.max(1)).map(|_| Engine::new(config.clone())).collect();
        Self { out: vec![false; engines.len()], engines, routing, next: 0, owner: HashMap::new() }
    }

    /// Routes and queues a sequence, and returns the number of the engine.
    ///
    /// # Errors
    ///
    /// As for [`Engine::submit`].
    pub fn submit(
        &mut self,
        now: Duration,
        id: SequenceId,
        prompt_tokens: u32,
        output_tokens: u32,
    ) -> Result<usize, TooLong> {
        self.submit_with(now, id, prompt_tokens, output_tokens, &[])
    }

    /// Routes and queues a sequence with block hashes, like [`Engine::submit_with`].
    ///
    /// # Errors
    ///
    /// As for [`Engine::submit`].
    pub fn submit_with(
        &mut self,
        now: Duration,
        id: SequenceId,
        prompt_tokens: u32,
        output_tokens: u32,
        hashes: &[u64],
    ) -> Result<usize, TooLong> {
        let worker = self.route();
        if let Some(engine) = self.engines.get_mut(worker) {
            engine.submit_with(now, id, prompt_tokens, output_tokens, hashes)?;
            self.owner.insert(id, worker);
        }
        Ok(worker)
    }

    /// Picks a routable engine, or any engine if none is routable.
    fn route(&mut self) -> usize {
        let all_out = self.out.iter().all(|out| *out);
        let takes = |worker: usize| all_out || self.out.get(worker) == Some(&false);
        let count = self.engines.len();
        match self.routing {
            Routing::RoundRobin => {
                let turn = (0..count).map(|k| (self.next + k) % count);
                let worker = turn.into_iter().find(|worker| takes(*worker)).unwrap_or(0);
                self.next = (worker + 1) % count;
                worker
            }
            Routing::LeastLoaded => {
                let loads = self.engines.iter().enumerate().map(|(i, e)| (e.waiting() + e.running(), i));
                loads.filter(|(_, worker)| takes(*worker)).min().map_or(0, |(_, worker)| worker)
            }
        }
    }

    /// Sets whether the router sends sequences to an engine, as a router with health checks does.
    /// All engines are routable at first.
    pub fn set_routable(&mut self, worker: usize, routable: bool) {
        if let Some(out) = self.out.get_mut(worker) {
            *out = !routable;
        }
    }

    /// Resets an engine ([`Engine::reset`]), and returns the ids of its lost sequences in ascending
    /// order. No event reports their end.
    pub fn reset(&mut self, worker: usize) -> Vec<SequenceId> {
        let Some(engine) = self.engines.get_mut(worker) else { return Vec::new() };
        engine.reset();
        let mut lost: Vec<_> =
            self.owner.iter().filter(|(_, at)| **at == worker).map(|(id, _)| *id).collect();
        lost.sort_unstable();
        for id in &lost {
            self.owner.remove(id);
        }
        lost
    }

    /// Calls [`Engine::set_max_num_seqs`] on every engine.
    pub fn set_max_num_seqs(&mut self, sequences: u32) {
        for engine in &mut self.engines {
            engine.set_max_num_seqs(sequences);
        }
    }

    /// Aborts a sequence, like [`Engine::abort`].
    pub fn abort(&mut self, id: SequenceId) -> bool {
        let Some(engine) = self.owner.remove(&id).and_then(|worker| self.engines.get_mut(worker)) else {
            return false;
        };
        engine.abort(id)
    }

    /// Returns the time at which the next step of any engine ends, or `None` if all are idle.
    pub fn next_event(&self) -> Option<Duration> {
        self.engines.iter().filter_map(Engine::next_event).min()
    }

    /// Advances all engines, like [`Engine::advance`], and appends their events in order of time.
    pub fn advance(&mut self, now: Duration, events: &mut Vec<EngineEvent>) {
        let from = events.len();
        while let Some(at) = self.next_event().filter(|&at| at <= now) {
            for engine in self.engines.iter_mut().filter(|e| e.next_event() == Some(at)) {
                engine.advance(at, events);
            }
        }
        self.drain(events);
        for event in events.get(from..).unwrap_or_default() {
            if event.kind == EventKind::Finished {
                self.owner.remove(&event.id);
            }
        }
    }

    /// Appends the pending events of all engines, like [`Engine::drain`].
    pub fn drain(&mut self, events: &mut Vec<EngineEvent>) {
        for engine in &mut self.engines {
            engine.drain(events);
        }
    }

    /// Calls [`Engine::set_slowdown`] on every engine.
    pub fn set_slowdown(&mut self, factor: f64) {
        for engine in &mut self.engines {
            engine.set_slowdown(factor);
        }
    }

    /// Returns the engines in order of their numbers.
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// Returns the number of the engine that holds a sequence, if the sequence has not ended.
    pub fn owner(&self, id: SequenceId) -> Option<usize> {
        self.owner.get(&id).copied()
    }

    /// Returns the preemptions since the start, over all engines.
    pub fn preemptions(&self) -> u64 {
        self.engines.iter().map(|engine| engine.totals().preemptions).sum()
    }

    /// Returns the largest share of any engine's KV cache that was ever in use, 0 to 1.
    pub fn peak_kv(&self) -> f64 {
        let peak = |e: &Engine| f64::from(e.totals().peak_blocks) / f64::from(e.blocks().total().max(1));
        self.engines.iter().map(peak).fold(0.0, f64::max)
    }

    /// Returns the number of waiting sequences, over all engines.
    pub fn waiting(&self) -> usize {
        self.engines.iter().map(Engine::waiting).sum()
    }

    /// Returns the number of running sequences, over all engines.
    pub fn running(&self) -> usize {
        self.engines.iter().map(Engine::running).sum()
    }
}
