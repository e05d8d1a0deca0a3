//! The state behind one lock: engines, live sequences, faults and books.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::mpsc;

use super::metrics::Metrics;
use super::stats::Record;
use crate::api::Finish;
use crate::engine::{Event, EventKind, SequenceId, TooLong};
use crate::faults::{FaultGate, OutageMode};
use crate::pool::Pool;

/// What the engine tells a waiting answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// The token at this index.
    Token(u32),
    Finished,
    /// The engine died.
    Died,
}

pub(super) struct Core {
    pub(super) pool: Pool,
    pub(super) gate: FaultGate,
    pub(super) record: Record,
    pub(super) metrics: Metrics,
    live: HashMap<SequenceId, Live>,
    next_id: u64,
    /// Latest time seen: a wake-up a rounding early must not turn it back.
    last: Duration,
    events: Vec<Event>,
}

/// A sequence in an engine.
struct Live {
    /// Bounded by the sequence's own length.
    signals: mpsc::UnboundedSender<Signal>,
    attempt: u64,
    engine: usize,
    arrived: Duration,
    last_token: Duration,
    prompt_tokens: u32,
    finish: Finish,
    /// A hang met it: its caller hears no more, and is not told of an end either.
    silent: bool,
}

/// What is submitted.
pub(super) struct Work<'a> {
    pub(super) attempt: u64,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    pub(super) finish: Finish,
    /// See [`Pool::submit_with`].
    pub(super) blocks: &'a [u64],
}

impl Core {
    pub(super) fn new(pool: Pool, gate: FaultGate, record: Record, metrics: Metrics) -> Self {
        let (live, events) = (HashMap::new(), Vec::new());
        Self { pool, gate, record, metrics, live, next_id: 0, last: Duration::ZERO, events }
    }

    /// Plays the engines up to `now` and tells the answers what happened. Returns the time reached.
    pub(super) fn advance(&mut self, now: Duration) -> Duration {
        self.last = self.last.max(now);
        // The pump comes at every step's end, so that the next one begins about now.
        self.pool.set_slowdown(self.gate.slowdown(self.last));
        self.pool.advance(self.last, &mut self.events);
        self.tell();
        match self.gate.outage(self.last) {
            Some(OutageMode::Hang) => self.live.values_mut().for_each(|live| live.silent = true),
            Some(OutageMode::Dead) => self.lose(Some(Signal::Died)),
            Some(OutageMode::Kill) => self.lose(None),
            Some(OutageMode::Refuse | OutageMode::Unavailable) | None => {}
        }
        self.last
    }

    /// The engines lose what they had; who waits for it is told `last`, and then that there is no more.
    fn lose(&mut self, last: Option<Signal>) {
        for worker in 0..self.pool.engines().len() {
            self.pool.reset(worker);
        }
        for live in std::mem::take(&mut self.live).into_values() {
            if let Some(last) = last {
                let _ = live.signals.send(last);
            }
        }
    }

    fn tell(&mut self) {
        self.pool.drain(&mut self.events);
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            self.tell_one(event);
        }
        self.events = events;
    }

    fn tell_one(&mut self, Event { at, id, kind }: Event) {
        let Some(live) = self.live.get_mut(&id) else { return };
        let since = |then: Duration| at.saturating_sub(then);
        match kind {
            EventKind::Admitted => self.metrics.admitted(live.engine, since(live.arrived)),
            EventKind::Preempted => self.metrics.preempted(live.engine),
            EventKind::Token { index } => {
                if index == 0 {
                    self.metrics.first_token(live.engine, since(live.arrived), live.prompt_tokens);
                    if let Some(attempt) = self.record.attempt(live.attempt) {
                        attempt.first_token_s = Some(at.as_secs_f64());
                    }
                } else {
                    self.metrics.token(live.engine, since(live.last_token));
                }
                live.last_token = at;
                if !live.silent {
                    // The reader may just have gone; its ticket aborts.
                    let _ = live.signals.send(Signal::Token(index));
                }
            }
            EventKind::Finished => {
                self.metrics.finished(live.engine, since(live.arrived), live.finish);
                // A silent one stays until its caller goes: the end of its signals would be an answer.
                if !live.silent {
                    let _ = live.signals.send(Signal::Finished);
                    self.live.remove(&id);
                }
            }
        }
    }

    /// Queues a sequence at `now`, to which the engines have been advanced.
    pub(super) fn submit(
        &mut self,
        now: Duration,
        work: &Work<'_>,
    ) -> Result<(SequenceId, mpsc::UnboundedReceiver<Signal>), TooLong> {
        let id = SequenceId(self.next_id);
        let engine = self.pool.submit_with(now, id, work.prompt_tokens, work.output_tokens, work.blocks)?;
        self.next_id += 1;
        let (signals, receiver) = mpsc::unbounded_channel();
        let live = Live {
            signals,
            attempt: work.attempt,
            engine,
            arrived: now,
            last_token: now,
            prompt_tokens: work.prompt_tokens,
            finish: work.finish,
            silent: false,
        };
        self.live.insert(id, live);
        self.tell();
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
