//! Several engines behind one router, as a "production stack" of vLLM workers.
//!
//! Pure, like [`crate::engine`]: the router picks an engine when a sequence is submitted, and the sequence
//! stays there. Events of all engines come in order of time, ties by the engine's number.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{Engine, EngineConfig, EngineEvent, EventKind, SequenceId, TooLong};

/// How the router picks an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// One after the other: the default of vLLM's production stack.
    #[default]
    RoundRobin,
    /// The one with the fewest sequences, waiting or running; ties by number.
    LeastLoaded,
}

/// Engines and their router.
#[derive(Debug, Clone)]
pub struct EnginePool {
    engines: Vec<Engine>,
    routing: Routing,
    next: usize,
    /// Engines that the router leaves out.
    out: Vec<bool>,
    /// Only asked, or iterated and sorted, so that its order cannot matter.
    owner: HashMap<SequenceId, usize>,
}

impl EnginePool {
    /// `workers` idle engines of one kind (at least one).
    pub fn new(workers: usize, config: &EngineConfig, routing: Routing) -> Self {
        let engines: Vec<_> = (0..workers.max(1)).map(|_| Engine::new(config.clone())).collect();
        Self { out: vec![false; engines.len()], engines, routing, next: 0, owner: HashMap::new() }
    }

    /// Routes and queues a sequence; returns the engine's number.
    ///
    /// # Errors
    ///
    /// As [`Engine::submit`].
    pub fn submit(
        &mut self,
        now: Duration,
        id: SequenceId,
        prompt_tokens: u32,
        output_tokens: u32,
    ) -> Result<usize, TooLong> {
        self.submit_with(now, id, prompt_tokens, output_tokens, &[])
    }

    /// As [`EnginePool::submit`], and [`Engine::submit_with`].
    ///
    /// # Errors
    ///
    /// As [`Engine::submit`].
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

    /// Among those that are not left out; among all where all are.
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

    /// Whether the router sends sequences to that engine, as a router does that checks its engines' health. At first, to all.
    pub fn set_routable(&mut self, worker: usize, routable: bool) {
        if let Some(out) = self.out.get_mut(worker) {
            *out = !routable;
        }
    }

    /// That engine loses all it had ([`Engine::reset`]): those sequences, in order of their ids. They end without an event.
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

    /// As [`Engine::set_max_num_seqs`], of every engine.
    pub fn set_max_num_seqs(&mut self, sequences: u32) {
        for engine in &mut self.engines {
            engine.set_max_num_seqs(sequences);
        }
    }

    /// As [`Engine::abort`].
    pub fn abort(&mut self, id: SequenceId) -> bool {
        let Some(engine) = self.owner.remove(&id).and_then(|worker| self.engines.get_mut(worker)) else {
            return false;
        };
        engine.abort(id)
    }

    /// When the next step of any engine ends; `None` while all are idle.
    pub fn next_event(&self) -> Option<Duration> {
        self.engines.iter().filter_map(Engine::next_event).min()
    }

    /// As [`Engine::advance`], over all engines, events in order of time.
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

    /// As [`Engine::drain`], over all engines.
    pub fn drain(&mut self, events: &mut Vec<EngineEvent>) {
        for engine in &mut self.engines {
            engine.drain(events);
        }
    }

    /// Slows every engine's coming steps: [`Engine::set_slowdown`].
    pub fn set_slowdown(&mut self, factor: f64) {
        for engine in &mut self.engines {
            engine.set_slowdown(factor);
        }
    }

    /// The engines, in order of their number.
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// The engine that has a sequence which has not ended.
    pub fn owner(&self, id: SequenceId) -> Option<usize> {
        self.owner.get(&id).copied()
    }

    /// Preemptions since the start, over all engines.
    pub fn preemptions(&self) -> u64 {
        self.engines.iter().map(|engine| engine.totals().preemptions).sum()
    }

    /// Largest share of any engine's KV cache ever held, 0 to 1.
    pub fn peak_kv(&self) -> f64 {
        let peak = |e: &Engine| f64::from(e.totals().peak_blocks) / f64::from(e.blocks().total().max(1));
        self.engines.iter().map(peak).fold(0.0, f64::max)
    }

    /// Sequences that wait, over all engines.
    pub fn waiting(&self) -> usize {
        self.engines.iter().map(Engine::waiting).sum()
    }

    /// Sequences that run, over all engines.
    pub fn running(&self) -> usize {
        self.engines.iter().map(Engine::running).sum()
    }
}
