//! The state behind one lock: engines, live sequences, faults and books.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::mpsc;

use super::metrics::Metrics;
use super::stats::StatsRecorder;
use crate::api::Finish;
use crate::engine::{EngineEvent, EventKind, SequenceId, TooLong};
use crate::faults::{FaultInjector, OutageMode};
use crate::pool::EnginePool;

/// What the engine tells a waiting answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SequenceEvent {
    /// The token at this index.
    Token(u32),
    Finished,
    /// The engine died.
    Died,
}

pub(super) struct SimState {
    pub(super) pool: EnginePool,
    pub(super) faults: FaultInjector,
    pub(super) stats: StatsRecorder,
    pub(super) metrics: Metrics,
    live: HashMap<SequenceId, LiveSequence>,
    next_id: u64,
    /// Latest time seen: a wake-up a rounding early must not turn it back.
    last: Duration,
    events: Vec<EngineEvent>,
}

/// A sequence in an engine.
struct LiveSequence {
    /// Bounded by the sequence's own length.
    signals: mpsc::UnboundedSender<SequenceEvent>,
    attempt: u64,
    engine: usize,
    arrived: Duration,
    last_token: Duration,
    prompt_tokens: u32,
    finish: Finish,
    /// A hang met it: its caller hears no more, and is not told of an end either.
    muted: bool,
}

/// What is submitted.
pub(super) struct Submission<'a> {
    pub(super) attempt: u64,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    pub(super) finish: Finish,
    /// See [`EnginePool::submit_with`].
    pub(super) blocks: &'a [u64],
}

impl SimState {
    pub(super) fn new(
        pool: EnginePool,
        faults: FaultInjector,
        stats: StatsRecorder,
        metrics: Metrics,
    ) -> Self {
        let (live, events) = (HashMap::new(), Vec::new());
        Self { pool, faults, stats, metrics, live, next_id: 0, last: Duration::ZERO, events }
    }

    /// Plays the engines up to `now` and tells the answers what happened. Returns the time reached.
    pub(super) fn advance(&mut self, now: Duration) -> Duration {
        self.last = self.last.max(now);
        // The pump comes at every step's end, so that the next one begins about now.
        self.pool.set_slowdown(self.faults.slowdown(self.last));
        self.pool.advance(self.last, &mut self.events);
        self.dispatch_events();
        match self.faults.outage(self.last) {
            Some(OutageMode::Hang) => self.live.values_mut().for_each(|live| live.muted = true),
            Some(OutageMode::Dead) => self.drop_sequences(Some(SequenceEvent::Died)),
            Some(OutageMode::Kill) => self.drop_sequences(None),
            Some(OutageMode::Refuse | OutageMode::Unavailable) | None => {}
        }
        self.last
    }

    /// The engines lose what they had; who waits for it is told `last`, and then that there is no more.
    fn drop_sequences(&mut self, last: Option<SequenceEvent>) {
        for worker in 0..self.pool.engines().len() {
            self.pool.reset(worker);
        }
        for live in std::mem::take(&mut self.live).into_values() {
            if let Some(last) = last {
                let _ = live.signals.send(last);
            }
        }
    }

    fn dispatch_events(&mut self) {
        self.pool.drain(&mut self.events);
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            self.dispatch_event(event);
        }
        self.events = events;
    }

    fn dispatch_event(&mut self, EngineEvent { at, id, kind }: EngineEvent) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let since = |then: Duration| at.saturating_sub(then);
        match kind {
            EventKind::Admitted => self.metrics.admitted(live.engine, since(live.arrived)),
            EventKind::Preempted => self.metrics.preempted(live.engine),
            EventKind::Token { index } => {
                if index == 0 {
                    self.metrics.first_token(live.engine, since(live.arrived), live.prompt_tokens);
                    if let Some(attempt) = self.stats.attempt(live.attempt) {
                        attempt.first_token_s = Some(at.as_secs_f64());
                    }
                } else {
                    self.metrics.token(live.engine, since(live.last_token));
                }
                live.last_token = at;
                if !live.muted {
                    // The reader may just have gone; its call aborts.
                    let _ = live.signals.send(SequenceEvent::Token(index));
                }
            }
            EventKind::Finished => {
                self.metrics.finished(live.engine, since(live.arrived), live.finish);
                // A silent one stays until its caller goes: the end of its signals would be an answer.
                if !live.muted {
                    let _ = live.signals.send(SequenceEvent::Finished);
                    self.live.remove(&id);
                }
            }
        }
    }

    /// Queues a sequence at `now`, to which the engines have been advanced.
    pub(super) fn submit(
        &mut self,
        now: Duration,
        submission: &Submission<'_>,
    ) -> Result<(SequenceId, mpsc::UnboundedReceiver<SequenceEvent>), TooLong> {
        let id = SequenceId(self.next_id);
        let engine = self.pool.submit_with(
            now,
            id,
            submission.prompt_tokens,
            submission.output_tokens,
            submission.blocks,
        )?;
        self.next_id += 1;
        let (signals, receiver) = mpsc::unbounded_channel();
        let live = LiveSequence {
            signals,
            attempt: submission.attempt,
            engine,
            arrived: now,
            last_token: now,
            prompt_tokens: submission.prompt_tokens,
            finish: submission.finish,
            muted: false,
        };
        self.live.insert(id, live);
        self.dispatch_events();
        Ok((id, receiver))
    }

    /// Ends a sequence, if it has not ended.
    pub(super) fn abort(&mut self, id: SequenceId) {
        let Some(live) = self.live.remove(&id) else { return };
        if self.pool.abort(id) {
            self.metrics.aborted(live.engine);
        }
    }
}
