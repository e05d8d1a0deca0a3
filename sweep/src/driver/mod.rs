//! Carries out the decisions of a search through the production path.
//!
//! The driver keeps `cap + backlog` calls going through a gate with one target, so that calls
//! always wait. The cap is the gate's own. All events are timed on tokio's clock, so a whole sweep
//! can run under the paused clock. Calls in flight at the end of a step continue into the next one.
//! Calls that only wait are cancelled, because each step sends the same work from its first index.
//! Nothing is in flight when the driver returns, however the sweep ended.

mod active_calls;
mod blocked_by;
mod call_log;
mod call_state;
mod call_task;
mod engine_metrics;
mod event_hub;
mod exchange;
mod failure;
mod metering;
mod monitors;
mod parts;
mod preflight;
mod session;
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
pub(crate) use self::metering::MeteringTransport;
pub use self::monitors::CpuMonitor;
pub(crate) use self::monitors::Monitors;
pub(crate) use self::parts::{DriverParts, DriverResult};
pub(crate) use self::preflight::preflight;
pub(crate) use self::session::SearchSession;
use self::time_series::Series;
use crate::error::SweepError;
use crate::observation::LoadSample;
use crate::outcome::{SeriesPoint, SweepEnd};
use crate::progress::{SweepProgress, SweepState};
use crate::result::Purpose;
use crate::search::SearchAction;
use crate::spend::{Ceiling, SweepSpend};
use crate::waiting::{sleep_until, stop_requested};

/// Maximum interval between load samples.
const TICK: Duration = Duration::from_millis(100);
/// Time that calls in flight have to finish at the end of the sweep.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
/// Maximum time that the driver waits for the gate's recovery from a cool-down.
const MAX_RECOVERY: Duration = Duration::from_secs(15);
/// Number of consecutive responses that reject the key, after which the sweep ends.
const MAX_REFUSALS: usize = 5;

/// A running sweep.
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
    series: Series,
    /// Duration of the longest call so far, in seconds.
    longest: f64,
    refusals: usize,
    /// The server's message when it last rejected the key.
    last_word: Option<String>,
    /// The ceiling because of which no further call is started.
    ceiling: Option<Ceiling>,
    /// Whether the search has ended, so that events are no longer passed to it.
    search_over: bool,
    /// Whether load samples are paused.
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
            series: Series::default(),
            longest: parts.latency.unwrap_or_default(),
            refusals: 0,
            last_word: None,
            ceiling: None,
            search_over: false,
            samples_paused: false,
            parts,
        }
    }

    /// Carries out steps until the search is done or something ends it. `first` is a decision from
    /// before that is carried out again.
    pub(crate) async fn run(mut self, first: Option<SearchAction>) -> Result<DriverResult, SweepError> {
        let mut next = first;
        let ended = loop {
            let this = match next.take() {
                Some(this) => this,
                None => {
                    let this = self.parts.session.next(self.now())?;
                    self.parts.session.sync(self.spend())?;
                    self.show_step();
                    this
                }
            };
            let over = match this {
                SearchAction::Hold { step, cap, purpose } => {
                    self.state = SweepState::Holding { step, cap, purpose };
                    self.hold(step, cap, purpose).await?
                }
                SearchAction::Rest { seconds } => {
                    self.state = SweepState::Resting { seconds };
                    self.rest(seconds).await?
                }
                SearchAction::Done => Some(SweepEnd::Found),
            };
            if let Some(ended) = over {
                break ended;
            }
        };
        self.end().await?;
        if ended != SweepEnd::Found {
            self.parts.session.break_off(self.spend())?;
        }
        self.parts.session.finish()?;
        let last_word = self.last_word.filter(|_| ended == SweepEnd::Refused);
        Ok(DriverResult { session: self.parts.session, ended, series: self.series.into_moments(), last_word })
    }

    async fn hold(
        &mut self,
        step: usize,
        cap: usize,
        purpose: Purpose,
    ) -> Result<Option<SweepEnd>, SweepError> {
        self.calls.cancel(|call| !call.was_sent());
        self.cap = cap;
        self.parts.gate.set_cap(&self.parts.target, cap)?;
        if purpose != Purpose::Drain
            && let Some(ended) = self.wait_for_recovery().await?
        {
            return Ok(Some(ended));
        }
        self.calls.cancel(|call| !call.was_sent());
        (self.step, self.next_work) = (step, 0);
        self.start_calls();
        self.pulse(0.0, false)?;
        while !self.parts.session.search.is_settled() {
            if let Some(ended) = self.next_event(None).await? {
                return Ok(Some(ended));
            }
            self.start_calls();
            if let Some(ceiling) = self.parts.hub.tracker.hit().or(self.ceiling)
                && !self.calls.has_unsent()
            {
                return Ok(Some(SweepEnd::Ceiling(ceiling)));
            }
        }
        Ok(None)
    }

    /// Waits until the gate has recovered from a cool-down, because the recovery shows nothing
    /// about the cap. Calls sent meanwhile belong to no step, and no load samples are taken.
    async fn wait_for_recovery(&mut self) -> Result<Option<SweepEnd>, SweepError> {
        let failed = self.parts.session.tally.so_far().1;
        let until = Instant::now() + MAX_RECOVERY;
        self.samples_paused = true;
        let mut ended = None;
        while ended.is_none()
            && Instant::now() < until
            && self.parts.session.tally.so_far().1 == failed
            && self.ceiling.is_none()
            && blocked_by::is_recovering(&self.parts.gate, &self.parts.target)
        {
            self.start_calls();
            ended = self.next_event(Some(until)).await?;
        }
        self.samples_paused = false;
        Ok(ended)
    }

    async fn rest(&mut self, seconds: f64) -> Result<Option<SweepEnd>, SweepError> {
        // Calls in backoff would otherwise be sent during the rest.
        self.calls.cancel(|call| !call.is_open());
        while !self.calls.is_empty() {
            if let Some(ended) = self.next_event(None).await? {
                return Ok(Some(ended));
            }
        }
        let until = self.parts.hub.clock.at(self.now() + seconds);
        while until.is_some_and(|until| Instant::now() < until) {
            if let Some(ended) = self.next_event(until).await? {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    /// Starts calls until `cap + backlog` exist, or another one could exceed a ceiling.
    fn start_calls(&mut self) {
        let wanted = self.cap + (self.cap / 4).max(8);
        if self.calls.len() >= wanted {
            return;
        }
        let mut unsent = self.calls.unsent();
        while self.ceiling.is_none() && self.calls.len() < wanted {
            let work = self.parts.mix.work(&self.parts.endpoint, self.step, self.next_work);
            self.ceiling = self
                .parts
                .hub
                .tracker
                .would_break(work.input, work.output, unsent)
                .or_else(|| self.is_late().then_some(Ceiling::Time));
            if self.ceiling.is_some() {
                return;
            }
            let id = self.calls.next_id();
            let call =
                CallState::new(id, self.step, self.cap, self.next_work, work.input, work.output, self.now());
            self.next_work += 1;
            unsent += 1;
            let future = call_task::call(
                self.client.clone(),
                self.parts.endpoint.clone(),
                work.body,
                call.clone(),
                self.parts.hub.clone(),
            );
            self.calls.begin(call, future);
        }
    }

    /// Returns `true` if a call that starts now could exceed the maximum time.
    fn is_late(&self) -> bool {
        self.parts.max_seconds.is_some_and(|most| self.now() + self.longest > most)
    }

    /// Waits for the next events, handles all that are available, and takes a load sample.
    async fn next_event(&mut self, until: Option<Instant>) -> Result<Option<SweepEnd>, SweepError> {
        const AT_ONCE: usize = 256;
        let over = self.parts.max_seconds.and_then(|most| self.parts.hub.clock.at(most));
        let mut events = Vec::new();
        tokio::select! {
            biased;
            () = stop_requested(&mut self.parts.stop) => return Ok(Some(SweepEnd::Interrupted)),
            () = sleep_until(over) => return Ok(Some(SweepEnd::Ceiling(Ceiling::Time))),
            // Before the events, however many there are, so that the delay of the client's own
            // timers is measured.
            planned = self.ticker.tick() => {
                self.pulse(Instant::now().saturating_duration_since(planned).as_secs_f64(), true)?;
                self.show(None);
            }
            _ = self.parts.events.recv_many(&mut events, AT_ONCE) => {
                for event in events {
                    self.handle(event)?;
                }
                if self.refusals >= MAX_REFUSALS {
                    return Ok(Some(SweepEnd::Refused));
                }
                self.pulse(0.0, false)?;
            }
            () = sleep_until(until) => {}
        }
        Ok(None)
    }

    fn handle(&mut self, event: DriverEvent) -> Result<(), SweepError> {
        match event {
            DriverEvent::Attempt(seen) => {
                if seen.failure.is_none() {
                    self.refusals = 0;
                }
                if !self.search_over {
                    self.parts.session.attempt(&seen)?;
                }
            }
            DriverEvent::Refused(said) => {
                self.refusals += 1;
                self.last_word = Some(said);
            }
            DriverEvent::Done(id) => {
                self.calls.learn(&mut self.records);
                let now = self.now();
                if let Some((call, record)) = self.calls.over(id)
                    && let Some((line, seen)) = call_log::ended(&call, record.as_deref(), now)
                {
                    (self.parts.log)(&line)?;
                    if let Some(seen) = seen
                        && !self.search_over
                    {
                        self.longest = self.longest.max(seen.ended_at - seen.admitted_at);
                        self.parts.session.call(&seen)?;
                    }
                }
            }
            DriverEvent::Sent | DriverEvent::GivenUp => {}
        }
        Ok(())
    }

    /// Takes a load sample if something changed or on a tick.
    fn pulse(&mut self, lag: f64, tick: bool) -> Result<(), SweepError> {
        let in_flight = self.parts.hub.in_flight();
        let waiting = self.parts.gate.waiting();
        let held_by = (waiting > 0 && in_flight < self.cap)
            .then(|| blocked_by::blocked_by(&self.parts.gate, &self.parts.target));
        let news = self.last.is_none_or(|last| {
            (last.cap, last.in_flight, last.waiting, last.held_by) != (self.cap, in_flight, waiting, held_by)
        });
        if self.search_over || self.samples_paused || !(tick || news) {
            return Ok(());
        }
        let pulse = LoadSample {
            at: self.now(),
            cap: self.cap,
            in_flight,
            waiting,
            held_by,
            client_cpu: if tick { self.parts.monitors.cpu.as_mut().and_then(|cpu| cpu()) } else { None },
            client_lag: lag,
            engine: if tick {
                self.parts.monitors.engine.as_ref().and_then(|engine| *engine.borrow())
            } else {
                None
            },
        };
        self.last = Some(pulse);
        self.parts.session.pulse(&pulse)?;
        let (completed, failed) = self.parts.session.tally.so_far();
        self.series.push(SeriesPoint { at: pulse.at, cap: self.cap, in_flight, waiting, completed, failed });
        Ok(())
    }

    /// Ends all calls: waiting calls at once, calls in flight after a grace period.
    async fn end(&mut self) -> Result<(), SweepError> {
        (self.state, self.search_over) = (SweepState::Ending, true);
        self.show(None);
        self.calls.cancel(|call| !call.is_open());
        let clock = self.parts.hub.clock;
        let grace = Instant::now() + SHUTDOWN_GRACE;
        let until =
            self.parts.max_seconds.and_then(|most| clock.at(most)).map_or(grace, |most| most.min(grace));
        while !self.calls.is_empty() {
            let event = tokio::select! {
                biased;
                event = self.parts.events.recv() => event,
                () = tokio::time::sleep_until(until), if !self.calls.is_ending() => {
                    self.calls.cancel(|_| true);
                    continue;
                }
            };
            match event {
                Some(event) => self.handle(event)?,
                None => break,
            }
            // A call that has failed meanwhile would be retried.
            self.calls.cancel(|call| !call.is_open());
        }
        self.calls.join().await;
        Ok(())
    }

    fn now(&self) -> f64 {
        self.parts.hub.clock.now()
    }

    fn spend(&self) -> SweepSpend {
        SweepSpend { seconds: self.now(), ..self.parts.hub.tracker.spent() }
    }

    fn show_step(&mut self) {
        let steps = self.parts.session.search.steps();
        let ended = steps.last().filter(|_| steps.len() > self.steps_shown).cloned();
        self.steps_shown = steps.len();
        self.show(ended);
    }

    fn show(&mut self, step_ended: Option<crate::result::StepResult>) {
        let search = &self.parts.session.search;
        let (good, bad) = search.bracket();
        let calls_to_come = search.remaining_calls();
        let (spend, (completed, _)) = (self.spend(), self.parts.session.tally.so_far());
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
