//! The simulator's state behind one lock: engines, sequences, faults and statistics.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;

use super::metrics::Metrics;
use super::stats::StatsRecorder;
use crate::api::Finish;
use crate::engine::{EngineEvent, EventKind, SequenceId, TooLong};
use crate::faults::{FaultInjector, OutageMode};
use crate::pool::EnginePool;

/// An event of a sequence. It is sent to the response that waits for the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SequenceEvent {
    /// The token at this index, counted from 0, was generated.
    Token(u32),
    Finished,
    /// The engine died, and the sequence with it.
    Died,
}

pub(super) struct SimState {
    pub(super) pool: EnginePool,
    pub(super) faults: FaultInjector,
    pub(super) stats: StatsRecorder,
    pub(super) metrics: Metrics,
    /// The sequences whose responses wait, in order of arrival, so that an outage ends them in that
    /// order.
    live: BTreeMap<SequenceId, LiveSequence>,
    next_id: u64,
    /// Latest simulated time that [`SimState::advance`] has reached. Time never goes back, even if
    /// a timer fires early by a rounding error.
    last: Duration,
    events: Vec<EngineEvent>,
}

/// A sequence in an engine, and the response that waits for it.
struct LiveSequence {
    /// Channel to the response. Contains at most one event per token, and one for the end.
    signals: mpsc::UnboundedSender<SequenceEvent>,
    attempt: u64,
    engine: usize,
    arrived: Duration,
    last_token: Duration,
    prompt_tokens: u32,
    finish: Finish,
    /// Whether the sequence was in an engine during an outage with [`OutageMode::Hang`]. Its
    /// response then gets no further event.
    muted: bool,
}

/// A sequence to submit to an engine, for [`SimState::submit`].
pub(super) struct Submission<'a> {
    pub(super) attempt: u64,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    pub(super) finish: Finish,
    /// Hashes of the prompt's blocks, as for [`EnginePool::submit_with`].
    pub(super) blocks: &'a [u64],
}

impl SimState {
    pub(super) fn new(
        pool: EnginePool,
        faults: FaultInjector,
        stats: StatsRecorder,
        metrics: Metrics,
    ) -> Self {
        let (live, events) = (BTreeMap::new(), Vec::new());
        Self { pool, faults, stats, metrics, live, next_id: 0, last: Duration::ZERO, events }
    }

    /// Advances the engines to `now`, sends their events to the waiting responses, and applies an
    /// outage that is in force. Returns `now`, or the latest time so far if that is later.
    pub(super) fn advance(&mut self, now: Duration) -> Duration {
        self.last = self.last.max(now);
        // The engine task runs at the end of each step, so the next step begins at about this time.
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

    /// Drops all sequences of all engines, restarts the metrics, and closes the channels of the
    /// waiting responses. If `last` is `Some`, first sends that event to each response; with
    /// `None`, sends nothing.
    fn drop_sequences(&mut self, last: Option<SequenceEvent>) {
        for worker in 0..self.pool.engines().len() {
            self.pool.reset(worker);
        }
        self.metrics.reset(&self.pool);
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
                    // The reader may have just been dropped; its guard aborts the sequence.
                    let _ = live.signals.send(SequenceEvent::Token(index));
                }
            }
            EventKind::Finished => {
                self.metrics.finished(live.engine, since(live.arrived), live.finish);
                // A muted sequence stays until its caller leaves, because a closed channel would
                // end the response.
                if !live.muted {
                    let _ = live.signals.send(SequenceEvent::Finished);
                    self.live.remove(&id);
                }
            }
        }
    }

    /// Routes a sequence to an engine and queues it at `now`, the time that [`SimState::advance`]
    /// returned. Returns its id and the channel of its events.
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

    /// Aborts a sequence. Does nothing if it has ended.
    pub(super) fn abort(&mut self, id: SequenceId) {
        let Some(live) = self.live.remove(&id) else { return };
        if self.pool.abort(id) {
            self.metrics.aborted(live.engine);
        }
    }
}
