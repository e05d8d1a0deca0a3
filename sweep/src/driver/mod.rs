//! Carries out the decisions of a search: sends calls through a real gate, and passes the
//! observations to the search.
//!
//! During a step, the driver keeps `cap + max(cap / 4, 8)` calls in a gate with one target, so that
//! some always wait. The gate enforces the cap. All times are read from tokio's clock, so a whole
//! sweep can run under the paused clock. Calls in flight at the end of a step continue into the
//! next one. Calls that only wait are cancelled, because each step sends the requests of the mix
//! from index 0 or, with an objective, from where the earlier steps at its cap ended. No exchange
//! is in flight when the driver returns, however the sweep ended.

mod active_calls;
mod blocked_by;
mod call_log;
mod call_state;
mod call_task;
mod engine_metrics;
mod event_hub;
mod exchange;
mod failure;
mod inputs_and_result;
mod metering;
mod preflight;
mod recorded_search;
mod resource_monitors;
mod time_series;

use std::sync::Arc;
use std::time::Duration;

use tidegate::CallRecord;
use tidegate::Client;
use tokio::sync::broadcast;
use tokio::time::{Instant, MissedTickBehavior};

use self::active_calls::ActiveCalls;
pub use self::call_log::CallLine;
use self::call_state::CallState;
pub(crate) use self::engine_metrics::watch as watch_engine;
use self::event_hub::DriverEvent;
pub(crate) use self::event_hub::EventHub;
pub(crate) use self::inputs_and_result::{DriverParts, DriverResult};
pub(crate) use self::metering::MeteringTransport;
pub(crate) use self::preflight::preflight;
pub(crate) use self::recorded_search::SearchSession;
pub(crate) use self::resource_monitors::Monitors;
pub use self::resource_monitors::{CpuMonitor, CpuUsage};
use self::time_series::TimeSeries;
use crate::error::SweepError;
use crate::observation::LoadSample;
use crate::progress::{SweepProgress, SweepState};
use crate::search::SearchAction;
use crate::search_result::Purpose;
use crate::spend::{Ceiling, SweepSpend};
use crate::sweep_outcome::{SeriesPoint, SweepEnd};
use crate::wait_until::{sleep_until, stop_requested};

/// Maximum interval between two load samples.
const TICK: Duration = Duration::from_millis(100);
/// Maximum time for exchanges in flight to finish when the sweep ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Maximum time that a step waits for the gate to recover from a cool-down before it starts.
const MAX_RECOVERY: Duration = Duration::from_secs(15);
/// Number of responses that reject the API key after which the sweep ends. A completely answered
/// attempt resets the count.
const MAX_REFUSALS: usize = 5;

/// State of a running sweep.
pub(crate) struct Driver<'a> {
    parts: DriverParts<'a>,
    client: Client,
    records: broadcast::Receiver<Arc<CallRecord>>,
    calls: ActiveCalls,
    state: SweepState,
    steps_shown: usize,
    step: usize,
    cap: usize,
    next_work: usize,
    ticker: tokio::time::Interval,
    last: Option<LoadSample>,
    series: TimeSeries,
    /// Duration of the longest call so far, in seconds. Excludes the preflight call, which may have
    /// waited for a cold server.
    max_call_seconds: f64,
    refusals: usize,
    /// Status and error code of the last response that rejected the API key, or `None` if none did.
    rejection: Option<String>,
    /// Ceiling that one more call could exceed, so that no more calls are started. `None` while
    /// calls may be started.
    ceiling: Option<Ceiling>,
    /// Whether the sweep is shutting down, so that events are no longer passed to the search.
    search_over: bool,
    /// Whether load samples are paused, because the gate recovers from a cool-down.
    samples_paused: bool,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(parts: DriverParts<'a>) -> Self {
        let mut ticker = tokio::time::interval(TICK);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            client: parts.gate.client(),
            records: parts.gate.calls().follow(),
            calls: ActiveCalls::default(),
            state: SweepState::Preflight,
            steps_shown: parts.session.search.steps().len(),
            step: 0,
            cap: 0,
            next_work: 0,
            ticker,
            last: None,
            series: TimeSeries::default(),
            max_call_seconds: 0.0,
            refusals: 0,
            rejection: None,
            ceiling: None,
            search_over: false,
            samples_paused: false,
            parts,
        }
    }

    /// Carries out the search's decisions until the search is done or something else ends the
    /// sweep. `first` is the decision that an interrupted earlier run did not complete, or `None`
    /// to start with a new decision.
    pub(crate) async fn run(mut self, first: Option<SearchAction>) -> Result<DriverResult, SweepError> {
        let mut next = first;
        let ended = loop {
            let this = match next.take() {
                Some(this) => this,
                None => {
                    let this = self.parts.session.next(self.now());
                    self.parts.session.sync();
                    self.report_step();
                    this
                }
            };
            let over = match this {
                SearchAction::Measure { step, cap, purpose } => {
                    self.state = SweepState::Holding { step, cap, purpose };
                    self.hold_cap(step, cap, purpose).await?
                }
                SearchAction::Rest { seconds } => {
                    self.state = SweepState::Resting { seconds };
                    self.rest(seconds).await
                }
                SearchAction::Done => Some(SweepEnd::Found),
            };
            if let Some(ended) = over {
                break ended;
            }
        };
        self.shut_down().await;
        self.parts.session.discard_step();
        let rejection = self.rejection.filter(|_| ended == SweepEnd::Refused);
        Ok(DriverResult { session: self.parts.session, ended, series: self.series.into_points(), rejection })
    }

    async fn hold_cap(
        &mut self,
        step: usize,
        cap: usize,
        purpose: Purpose,
    ) -> Result<Option<SweepEnd>, SweepError> {
        self.calls.cancel(|call| !call.was_sent());
        self.cap = cap;
        self.parts.gate.set_cap(&self.parts.target, cap)?;
        if purpose != Purpose::Drain
            && let Some(ended) = self.wait_for_recovery().await
        {
            return Ok(Some(ended));
        }
        self.calls.cancel(|call| !call.was_sent());
        (self.step, self.next_work) = (step, self.first_work(cap));
        self.start_calls();
        self.take_load_sample(0.0, false);
        while !self.parts.session.search.is_settled() {
            if let Some(ended) = self.next_event(None).await {
                return Ok(Some(ended));
            }
            self.start_calls();
            if let Some(ceiling) = self.parts.hub.tracker.ceiling_hit().or(self.ceiling)
                && !self.calls.has_unsent()
            {
                return Ok(Some(SweepEnd::Ceiling(ceiling)));
            }
        }
        Ok(None)
    }

    /// Returns the index in the mix of the first call of a step at `cap`: 0 or, if the search has a
    /// latency objective, the number of calls of all earlier steps at that cap. With the same
    /// requests, repeated steps would repeat the same coincidences of long prompts, and would not
    /// show how often calls are late.
    fn first_work(&self, cap: usize) -> usize {
        let search = &self.parts.session.search;
        if !search.has_objective() {
            return 0;
        }
        let earlier = search.steps().iter().filter(|step| step.cap == cap);
        earlier.map(|step| step.warm_up + step.calls).sum()
    }

    /// Sends calls until the gate has recovered from a cool-down. Stops earlier if an attempt
    /// fails, a ceiling prevents further calls, or [`MAX_RECOVERY`] has passed. These calls are not
    /// evaluated, because the gate limits them more than the cap does. Returns why the sweep ends,
    /// or `None` to continue.
    async fn wait_for_recovery(&mut self) -> Option<SweepEnd> {
        let failed = self.parts.session.tally.totals().1;
        let until = Instant::now() + MAX_RECOVERY;
        self.samples_paused = true;
        let mut ended = None;
        while ended.is_none()
            && Instant::now() < until
            && self.parts.session.tally.totals().1 == failed
            && self.ceiling.is_none()
            && blocked_by::is_recovering(&self.parts.gate, &self.parts.target)
        {
            self.start_calls();
            ended = self.next_event(Some(until)).await;
        }
        self.samples_paused = false;
        ended
    }

    async fn rest(&mut self, seconds: f64) -> Option<SweepEnd> {
        while !self.calls.is_empty() {
            // Calls in backoff would otherwise be sent during the rest, also those that fail now.
            self.calls.cancel(|call| !call.is_open());
            if let Some(ended) = self.next_event(None).await {
                return Some(ended);
            }
        }
        let until = self.parts.hub.clock.instant_at(self.now() + seconds);
        while until.is_some_and(|until| Instant::now() < until) {
            if let Some(ended) = self.next_event(until).await {
                return Some(ended);
            }
        }
        None
    }

    /// Starts calls until `cap + max(cap / 4, 8)` calls are active, or until one more call could
    /// exceed a ceiling or the planned number of calls.
    fn start_calls(&mut self) {
        let wanted = self.cap + (self.cap / 4).max(8);
        if self.calls.len() >= wanted {
            return;
        }
        let mut unsent = self.calls.unsent();
        let planned = self.parts.session.search.max_calls();
        while self.ceiling.is_none()
            && self.calls.len() < wanted
            && self.parts.hub.tracker.spent().calls + unsent < planned
        {
            let work = self.parts.mix.work(&self.parts.endpoint, self.step, self.next_work);
            self.ceiling = self
                .parts
                .hub
                .tracker
                .ceiling_of_next(work.input, work.output, unsent)
                .or_else(|| self.would_exceed_max_time().then_some(Ceiling::Time));
            if self.ceiling.is_some() {
                return;
            }
            let id = self.calls.next_id();
            let call =
                CallState::new(id, self.step, self.cap, self.next_work, work.input, work.output, self.now());
            self.next_work += 1;
            unsent += 1;
            let future = call_task::run_call(
                self.client.clone(),
                self.parts.endpoint.clone(),
                work.body,
                call.clone(),
                self.parts.hub.clone(),
            );
            self.calls.start(call, future);
        }
    }

    /// Returns `true` if a call that starts now and takes as long as the longest call so far would
    /// end after the time ceiling.
    fn would_exceed_max_time(&self) -> bool {
        self.parts.max_seconds.is_some_and(|max| self.now() + self.max_call_seconds > max)
    }

    /// Waits for the next event, the next timer tick or the instant `until`, and processes it.
    /// `None` for `until` sets no limit. Returns why the sweep ends, or `None` to continue.
    async fn next_event(&mut self, until: Option<Instant>) -> Option<SweepEnd> {
        const AT_ONCE: usize = 256;
        let over = self.parts.max_seconds.and_then(|max| self.parts.hub.clock.instant_at(max));
        let mut events = Vec::new();
        tokio::select! {
            biased;
            () = stop_requested(&mut self.parts.stop) => return Some(SweepEnd::Interrupted),
            () = sleep_until(over) => return Some(SweepEnd::Ceiling(Ceiling::Time)),
            // Before the events, however many there are, so that the delay of the client's own
            // timers is measured.
            planned = self.ticker.tick() => {
                self.take_load_sample(Instant::now().saturating_duration_since(planned).as_secs_f64(), true);
                self.report_progress(None);
                self.parts.session.write_due_spend();
            }
            _ = self.parts.events.recv_many(&mut events, AT_ONCE) => {
                for event in events {
                    self.on_event(event);
                }
                if self.refusals >= MAX_REFUSALS {
                    return Some(SweepEnd::Refused);
                }
                self.take_load_sample(0.0, false);
            }
            () = sleep_until(until) => {}
        }
        None
    }

    fn on_event(&mut self, event: DriverEvent) {
        match event {
            DriverEvent::Attempt(seen) => {
                if seen.failure.is_none() {
                    self.refusals = 0;
                }
                if !self.search_over {
                    self.parts.session.on_attempt(&seen);
                }
            }
            DriverEvent::Refused(message) => {
                self.refusals += 1;
                self.rejection = Some(message);
            }
            DriverEvent::Done(id) => {
                self.calls.read_records(&mut self.records);
                let now = self.now();
                if let Some((call, record)) = self.calls.remove(id)
                    && let Some((line, seen)) = call_log::ended_call(&call, record.as_deref(), now)
                {
                    (self.parts.log)(&line);
                    if let Some(seen) = seen
                        && !self.search_over
                    {
                        self.max_call_seconds = self.max_call_seconds.max(seen.ended_at - seen.admitted_at);
                        self.parts.session.on_call(&seen);
                    }
                }
            }
            DriverEvent::Sent | DriverEvent::Cancelled => {}
        }
    }

    /// Takes a load sample if the load has changed, or in any case if `tick` is `true`. `lag` is
    /// the time in seconds by which the timer fired late.
    fn take_load_sample(&mut self, lag: f64, tick: bool) {
        let in_flight = self.parts.hub.in_flight();
        let waiting = self.parts.gate.waiting();
        let held_by = (waiting > 0 && in_flight < self.cap)
            .then(|| blocked_by::blocked_by(&self.parts.gate, &self.parts.target));
        let changed = self.last.is_none_or(|last| {
            (last.cap, last.in_flight, last.waiting, last.held_by) != (self.cap, in_flight, waiting, held_by)
        });
        if self.search_over || self.samples_paused || !(tick || changed) {
            return;
        }
        let cpu = if tick { self.parts.monitors.cpu.as_mut().and_then(|cpu| cpu()) } else { None };
        let sample = LoadSample {
            at: self.now(),
            cap: self.cap,
            in_flight,
            waiting,
            held_by,
            client_cpu: cpu.map(|cpu| cpu.process),
            machine_cpu: cpu.and_then(|cpu| cpu.machine),
            client_lag: lag,
            engine: if tick {
                self.parts.monitors.engine.as_ref().and_then(|engine| *engine.borrow())
            } else {
                None
            },
            sent: self.parts.hub.tracker.spent().calls,
        };
        self.last = Some(sample);
        self.parts.session.on_load_sample(&sample);
        let (completed, failed) = self.parts.session.tally.totals();
        self.series.push(SeriesPoint { at: sample.at, cap: self.cap, in_flight, waiting, completed, failed });
    }

    /// Cancels waiting calls at once, and exchanges in flight after [`SHUTDOWN_GRACE`] or at the
    /// time ceiling. Returns when all have ended.
    async fn shut_down(&mut self) {
        (self.state, self.search_over) = (SweepState::Ending, true);
        self.report_progress(None);
        self.parts.session.write_spend();
        self.calls.cancel(|call| !call.is_open());
        let clock = self.parts.hub.clock;
        let grace = Instant::now() + SHUTDOWN_GRACE;
        let until =
            self.parts.max_seconds.and_then(|max| clock.instant_at(max)).map_or(grace, |max| max.min(grace));
        while !self.calls.is_empty() {
            let event = tokio::select! {
                biased;
                event = self.parts.events.recv() => event,
                () = tokio::time::sleep_until(until), if !self.calls.are_all_cancelled() => {
                    self.calls.cancel(|_| true);
                    continue;
                }
            };
            match event {
                Some(event) => self.on_event(event),
                None => break,
            }
            // A call that has failed meanwhile would be retried.
            self.calls.cancel(|call| !call.is_open());
        }
        self.calls.join().await;
    }

    fn now(&self) -> f64 {
        self.parts.hub.clock.now()
    }

    fn spend(&self) -> SweepSpend {
        SweepSpend { seconds: self.now(), ..self.parts.hub.tracker.spent() }
    }

    fn report_step(&mut self) {
        let steps = self.parts.session.search.steps();
        let ended = steps.last().filter(|_| steps.len() > self.steps_shown).cloned();
        self.steps_shown = steps.len();
        self.report_progress(ended);
    }

    fn report_progress(&mut self, step_ended: Option<crate::search_result::StepResult>) {
        let search = &self.parts.session.search;
        let (good, bad) = search.bracket();
        let calls_to_come = search.remaining_calls();
        let (spend, (completed, _)) = (self.spend(), self.parts.session.tally.totals());
        let eta = (completed > 0 && !self.search_over)
            .then(|| calls_to_come.1 as f64 * spend.seconds / completed as f64);
        let progress = SweepProgress {
            state: self.state,
            good,
            bad,
            spend,
            calls_to_come,
            eta,
            in_flight: self.parts.hub.in_flight(),
            waiting: self.parts.gate.waiting(),
            step_ended,
        };
        (self.parts.progress)(&progress);
    }
}
