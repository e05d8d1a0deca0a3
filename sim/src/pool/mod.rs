//! Several engines behind one router, like a "production stack" of vLLM workers.
//!
//! Like [`crate::engine`], the pool has no clock and no I/O. The router picks an engine when a
//! sequence is submitted, and the sequence stays there. Events of all engines are ordered by time,
//! and at the same time by engine number. Engines are numbered from 0.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{Engine, EngineConfig, EngineEvent, EventKind, SequenceId, TooLong};

/// How the router picks an engine for a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// The next engine in order of the numbers, as by default in vLLM's production stack.
    #[default]
    RoundRobin,
    /// The engine with the fewest waiting and running sequences. If several have the fewest, the
    /// one with the lowest number.
    LeastLoaded,
}

/// Several engines and their router.
#[derive(Debug, Clone)]
pub struct EnginePool {
    engines: Vec<Engine>,
    routing: Routing,
    next: usize,
    /// For each engine, `true` if the router skips it.
    unroutable: Vec<bool>,
    /// Number of the engine of each sequence. The map is only searched by key, or sorted after an
    /// iteration, so its order cannot affect a run.
    owner: HashMap<SequenceId, usize>,
}

impl EnginePool {
    /// Returns a pool of `workers` engines with the same configuration, or of one engine if
    /// `workers` is 0.
    pub fn new(workers: usize, config: &EngineConfig, routing: Routing) -> Self {
        let engines: Vec<_> = (0..workers.max(1)).map(|_| Engine::new(config.clone())).collect();
        Self { unroutable: vec![false; engines.len()], engines, routing, next: 0, owner: HashMap::new() }
    }

    /// Routes a sequence to an engine and queues it there, like [`Engine::submit`]. Returns the
    /// number of the engine.
    ///
    /// # Errors
    ///
    /// Returns [`TooLong`] in the cases in which [`Engine::submit`] does.
    pub fn submit(
        &mut self,
        now: Duration,
        id: SequenceId,
        prompt_tokens: u32,
        output_tokens: u32,
    ) -> Result<usize, TooLong> {
        self.submit_with(now, id, prompt_tokens, output_tokens, &[])
    }

    /// Routes a sequence to an engine and queues it there with hashes of its blocks, like
    /// [`Engine::submit_with`]. Returns the number of the engine.
    ///
    /// # Errors
    ///
    /// Returns [`TooLong`] in the cases in which [`Engine::submit`] does.
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

    /// Returns the number of the engine for the next sequence. Skips engines that are not routable,
    /// unless none is routable.
    fn route(&mut self) -> usize {
        let none_routable = self.unroutable.iter().all(|unroutable| *unroutable);
        let takes = |worker: usize| none_routable || self.unroutable.get(worker) == Some(&false);
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
    /// All engines are routable at first. Ignores a number without an engine.
    pub fn set_routable(&mut self, worker: usize, routable: bool) {
        if let Some(unroutable) = self.unroutable.get_mut(worker) {
            *unroutable = !routable;
        }
    }

    /// Resets an engine with [`Engine::reset`]. Returns the ids of the sequences that it lost, in
    /// ascending order; no event reports their end. Returns none for a number without an engine.
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

    /// Aborts a sequence, like [`Engine::abort`]. Returns `false` if no engine has it.
    pub fn abort(&mut self, id: SequenceId) -> bool {
        let Some(engine) = self.owner.remove(&id).and_then(|worker| self.engines.get_mut(worker)) else {
            return false;
        };
        engine.abort(id)
    }

    /// Returns the earliest time at which a step of any engine ends, or `None` if all engines are
    /// idle.
    pub fn next_event(&self) -> Option<Duration> {
        self.engines.iter().filter_map(Engine::next_event).min()
    }

    /// Advances all engines to `now`, like [`Engine::advance`]. Appends their events in order of
    /// time.
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

    /// Appends the events of all engines that have occurred but were not reported yet, like
    /// [`Engine::drain`].
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

    /// Returns the number of the engine of a sequence, or `None` if the pool has no such sequence,
    /// for example because it has finished.
    pub fn owner(&self, id: SequenceId) -> Option<usize> {
        self.owner.get(&id).copied()
    }

    /// Returns the number of preemptions over all engines, since each was created or reset.
    pub fn preemptions(&self) -> u64 {
        self.engines.iter().map(|engine| engine.totals().preemptions).sum()
    }

    /// Returns the maximum share of an engine's KV cache that was in use, from 0 to 1, since the
    /// engine was created or reset.
    pub fn peak_kv(&self) -> f64 {
        let peak = |e: &Engine| f64::from(e.totals().peak_blocks) / f64::from(e.blocks().total().max(1));
        self.engines.iter().map(peak).fold(0.0, f64::max)
    }

    /// Returns the number of waiting sequences over all engines.
    pub fn waiting(&self) -> usize {
        self.engines.iter().map(Engine::waiting).sum()
    }

    /// Returns the number of running sequences over all engines.
    pub fn running(&self) -> usize {
        self.engines.iter().map(Engine::running).sum()
    }
}
