//! Does what the search says, through the production path.
//!
//! `cap + backlog` calls are kept going through a gate with one target, so that calls always wait; the cap is the gate's own. Everything is told on tokio's clock, so that
//! the whole of it plays under the paused one. What is in flight when a step ends goes on into the next; what only waits is taken back, since each step has the
//! same work from its first place on. However it ends, nothing is in flight any more when it returns.

mod desk;
mod engine;
mod exchange;
mod failure;
mod held;
mod live;
mod meter;
mod mind;
mod notes;
mod preflight;
mod record;
mod series;
mod signals;
mod spawn;

use std::sync::Arc;
use std::time::Duration;

use tidegate::observe::CallRecord;
use tidegate::{Client, Gate};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) use self::desk::Desk;
use self::desk::Event;
pub(crate) use self::engine::watch as watch_engine;
use self::live::Live;
pub(crate) use self::meter::Meter;
pub(crate) use self::mind::Mind;
use self::notes::Notes;
pub(crate) use self::preflight::preflight;
pub use self::record::CallLine;
use self::series::Series;
pub use self::signals::Cpu;
pub(crate) use self::signals::Signals;
use crate::endpoint::Endpoint;
use crate::error::SweepError;
use crate::found::Purpose;
use crate::mix::Mix;
use crate::outcome::{Ended, Moment};
use crate::progress::{Progress, State};
use crate::search::Move;
use crate::seen::Pulse;
use crate::spend::{Ceiling, Spend};

/// Pulses come at least so often.
const TICK: Duration = Duration::from_millis(100);
/// How long what is in flight may take to end once the sweep is over.
const GRACE: Duration = Duration::from_secs(5);
/// The gate's way back from a cool-down takes so long at most, and what it waits for before.
const WAY_BACK: Duration = Duration::from_secs(15);
/// So many answers in a row that say that the key is not taken are the server's last word.
const REFUSALS: usize = 5;

/// What a drive is made of.
pub(crate) struct Parts<'a> {
    pub(crate) gate: Gate,
    pub(crate) target: String,
    pub(crate) desk: Arc<Desk>,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) mix: Mix,
    pub(crate) mind: Mind,
    pub(crate) signals: Signals,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) max_seconds: Option<f64>,
    /// How long a call takes, as the first one did.
    pub(crate) latency: Option<f64>,
    pub(crate) progress: &'a mut (dyn FnMut(&Progress) + Send),
    pub(crate) log: &'a mut (dyn FnMut(&CallLine) -> Result<(), SweepError> + Send),
}

/// What came of a drive.
pub(crate) struct Driven {
    pub(crate) mind: Mind,
    pub(crate) ended: Ended,
    pub(crate) series: Vec<Moment>,
    /// What the server said when it took no more calls.
    pub(crate) last_word: Option<String>,
}

/// A sweep under way.
pub(crate) struct Drive<'a> {
    parts: Parts<'a>,
    client: Client,
    records: broadcast::Receiver<Arc<CallRecord>>,
    live: Live,
    state: State,
    steps_shown: usize,
    step: usize,
    cap: usize,
    next_work: usize,
    ticker: tokio::time::Interval,
    last: Option<Pulse>,
    series: Series,
    /// The longest that a call took.
    longest: f64,
    refusals: usize,
    /// What the server said, the last time that it did not take the key.
    last_word: Option<String>,
    /// No call is begun any more, for this.
    ceiling: Option<Ceiling>,
    /// What comes now is not told to the search: the cap is not held any more.
    deaf: bool,
    /// How things stand is not told.
    mute: bool,
}

impl<'a> Drive<'a> {
    pub(crate) fn new(parts: Parts<'a>) -> Self {
        let mut ticker = tokio::time::interval(TICK);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            client: parts.gate.client(),
            records: parts.gate.calls().follow(),
            live: Live::default(),
            state: State::Preflight,
            steps_shown: parts.mind.search.steps().len(),
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
            deaf: false,
            mute: false,
            parts,
        }
    }

    /// Moves until the search is done, or something ends it. `first`: a move that was decided before, to be carried out anew.
    pub(crate) async fn run(mut self, first: Option<Move>) -> Result<Driven, SweepError> {
        let mut next = first;
        let ended = loop {
            let this = match next.take() {
                Some(this) => this,
                None => {
                    let this = self.parts.mind.next(self.now())?;
                    self.parts.mind.sync(self.spend())?;
                    self.show_step();
                    this
                }
            };
            let over = match this {
                Move::Hold { step, cap, purpose } => {
                    self.state = State::Holding { step, cap, purpose };
                    self.hold(step, cap, purpose).await?
                }
                Move::Rest { seconds } => {
                    self.state = State::Resting { seconds };
                    self.rest(seconds).await?
                }
                Move::Done => Some(Ended::Found),
            };
            if let Some(ended) = over {
                break ended;
            }
        };
        self.end().await?;
        if ended != Ended::Found {
            self.parts.mind.break_off(self.spend())?;
        }
        self.parts.mind.finish()?;
        let last_word = self.last_word.filter(|_| ended == Ended::Refused);
        Ok(Driven { mind: self.parts.mind, ended, series: self.series.into_moments(), last_word })
    }

    async fn hold(&mut self, step: usize, cap: usize, purpose: Purpose) -> Result<Option<Ended>, SweepError> {
        self.live.take_back(|notes| !notes.was_sent());
        self.cap = cap;
        self.parts.gate.set_cap(&self.parts.target, cap)?;
        if purpose != Purpose::Drain
            && let Some(ended) = self.open_again().await?
        {
            return Ok(Some(ended));
        }
        self.live.take_back(|notes| !notes.was_sent());
        (self.step, self.next_work) = (step, 0);
        self.fill();
        self.pulse(0.0, false)?;
        while !self.parts.mind.search.is_settled() {
            if let Some(ended) = self.turn(None).await? {
                return Ok(Some(ended));
            }
            self.fill();
            if let Some(ceiling) = self.parts.desk.purse.hit().or(self.ceiling)
                && !self.live.has_unsent()
            {
                return Ok(Some(Ended::Ceiling(ceiling)));
            }
        }
        Ok(None)
    }

    /// The way back from a cool-down is the gate's, and says nothing of the cap: until it is over, or fails, what is sent is no step's, and how things stand is not told.
    async fn open_again(&mut self) -> Result<Option<Ended>, SweepError> {
        let failed = self.parts.mind.tally.so_far().1;
        let until = Instant::now() + WAY_BACK;
        self.mute = true;
        let mut ended = None;
        while ended.is_none()
            && Instant::now() < until
            && self.parts.mind.tally.so_far().1 == failed
            && self.ceiling.is_none()
            && held::is_on_the_way_back(&self.parts.gate, &self.parts.target)
        {
            self.fill();
            ended = self.turn(Some(until)).await?;
        }
        self.mute = false;
        Ok(ended)
    }

    async fn rest(&mut self, seconds: f64) -> Result<Option<Ended>, SweepError> {
        // What backs off would be sent in the middle of the rest.
        self.live.take_back(|notes| !notes.is_open());
        while !self.live.is_empty() {
            if let Some(ended) = self.turn(None).await? {
                return Ok(Some(ended));
            }
        }
        let until = self.parts.desk.clock.at(self.now() + seconds);
        while until.is_some_and(|until| Instant::now() < until) {
            if let Some(ended) = self.turn(until).await? {
                return Ok(Some(ended));
            }
        }
        Ok(None)
    }

    /// Begins calls until `cap + backlog` are under way, or one more could break a ceiling.
    fn fill(&mut self) {
        let wanted = self.cap + (self.cap / 4).max(8);
        if self.live.len() >= wanted {
            return;
        }
        let mut unsent = self.live.unsent();
        while self.ceiling.is_none() && self.live.len() < wanted {
            let work = self.parts.mix.work(&self.parts.endpoint, self.step, self.next_work);
            self.ceiling = self
                .parts
                .desk
                .purse
                .would_break(work.input, work.output, unsent)
                .or_else(|| self.is_late().then_some(Ceiling::Time));
            if self.ceiling.is_some() {
                return;
            }
            let id = self.live.next_id();
            let notes =
                Notes::new(id, self.step, self.cap, self.next_work, work.input, work.output, self.now());
            self.next_work += 1;
            unsent += 1;
            let call = spawn::call(
                self.client.clone(),
                self.parts.endpoint.clone(),
                work.body,
                notes.clone(),
                self.parts.desk.clone(),
            );
            self.live.begin(notes, call);
        }
    }

    /// Whether a call begun now could still be under way when the time is over.
    fn is_late(&self) -> bool {
        self.parts.max_seconds.is_some_and(|most| self.now() + self.longest > most)
    }

    /// Waits for something to happen, and takes it in: everything that is there by then, and then how things stand.
    async fn turn(&mut self, until: Option<Instant>) -> Result<Option<Ended>, SweepError> {
        const AT_ONCE: usize = 256;
        let over = self.parts.max_seconds.and_then(|most| self.parts.desk.clock.at(most));
        let mut events = Vec::new();
        tokio::select! {
            biased;
            () = stopped(&mut self.parts.stop) => return Ok(Some(Ended::Interrupted)),
            () = at(over) => return Ok(Some(Ended::Ceiling(Ceiling::Time))),
            // Before the events, however many there are: this is how late the client's own timers run.
            planned = self.ticker.tick() => {
                self.pulse(Instant::now().saturating_duration_since(planned).as_secs_f64(), true)?;
                self.show(None);
            }
            _ = self.parts.events.recv_many(&mut events, AT_ONCE) => {
                for event in events {
                    self.take(event)?;
                }
                if self.refusals >= REFUSALS {
                    return Ok(Some(Ended::Refused));
                }
                self.pulse(0.0, false)?;
            }
            () = at(until) => {}
        }
        Ok(None)
    }

    fn take(&mut self, event: Event) -> Result<(), SweepError> {
        match event {
            Event::Attempt(seen) => {
                if seen.failure.is_none() {
                    self.refusals = 0;
                }
                if !self.deaf {
                    self.parts.mind.attempt(&seen)?;
                }
            }
            Event::Refused(said) => {
                self.refusals += 1;
                self.last_word = Some(said);
            }
            Event::Done(id) => {
                self.live.learn(&mut self.records);
                let now = self.now();
                if let Some((notes, record)) = self.live.over(id)
                    && let Some((line, seen)) = record::ended(&notes, record.as_deref(), now)
                {
                    (self.parts.log)(&line)?;
                    if let Some(seen) = seen
                        && !self.deaf
                    {
                        self.longest = self.longest.max(seen.ended_at - seen.admitted_at);
                        self.parts.mind.call(&seen)?;
                    }
                }
            }
            Event::Sent | Event::GivenUp => {}
        }
        Ok(())
    }

    /// Tells how things stand, if that is news.
    fn pulse(&mut self, lag: f64, tick: bool) -> Result<(), SweepError> {
        let in_flight = self.parts.desk.in_flight();
        let waiting = self.parts.gate.waiting();
        let held_by =
            (waiting > 0 && in_flight < self.cap).then(|| held::by(&self.parts.gate, &self.parts.target));
        let news = self.last.is_none_or(|last| {
            (last.cap, last.in_flight, last.waiting, last.held_by) != (self.cap, in_flight, waiting, held_by)
        });
        if self.deaf || self.mute || !(tick || news) {
            return Ok(());
        }
        let pulse = Pulse {
            at: self.now(),
            cap: self.cap,
            in_flight,
            waiting,
            held_by,
            client_cpu: if tick { self.parts.signals.cpu.as_mut().and_then(|cpu| cpu()) } else { None },
            client_lag: lag,
            engine: if tick {
                self.parts.signals.engine.as_ref().and_then(|engine| *engine.borrow())
            } else {
                None
            },
        };
        self.last = Some(pulse);
        self.parts.mind.pulse(&pulse)?;
        let (completed, failed) = self.parts.mind.tally.so_far();
        self.series.push(Moment { at: pulse.at, cap: self.cap, in_flight, waiting, completed, failed });
        Ok(())
    }

    /// Ends what is under way: what waits at once, what is in flight after a grace.
    async fn end(&mut self) -> Result<(), SweepError> {
        (self.state, self.deaf) = (State::Ending, true);
        self.show(None);
        self.live.take_back(|notes| !notes.is_open());
        let clock = self.parts.desk.clock;
        let grace = Instant::now() + GRACE;
        let until =
            self.parts.max_seconds.and_then(|most| clock.at(most)).map_or(grace, |most| most.min(grace));
        while !self.live.is_empty() {
            let event = tokio::select! {
                biased;
                event = self.parts.events.recv() => event,
                () = tokio::time::sleep_until(until), if !self.live.is_ending() => {
                    self.live.take_back(|_| true);
                    continue;
                }
            };
            match event {
                Some(event) => self.take(event)?,
                None => break,
            }
            // Whoever failed meanwhile would try again.
            self.live.take_back(|notes| !notes.is_open());
        }
        self.live.join().await;
        Ok(())
    }

    fn now(&self) -> f64 {
        self.parts.desk.clock.now()
    }

    fn spend(&self) -> Spend {
        Spend { seconds: self.now(), ..self.parts.desk.purse.spent() }
    }

    fn show_step(&mut self) {
        let steps = self.parts.mind.search.steps();
        let ended = steps.last().filter(|_| steps.len() > self.steps_shown).cloned();
        self.steps_shown = steps.len();
        self.show(ended);
    }

    fn show(&mut self, step_ended: Option<crate::found::StepResult>) {
        let search = &self.parts.mind.search;
        let (good, bad) = search.bracket();
        let calls_to_come = search.calls_to_come();
        let (spend, (completed, _)) = (self.spend(), self.parts.mind.tally.so_far());
        let eta =
            (completed > 0 && !self.deaf).then(|| calls_to_come.1 as f64 * spend.seconds / completed as f64);
        let progress = Progress {
            state: self.state,
            good,
            bad,
            spend,
            calls_to_come,
            eta,
            in_flight: self.parts.desk.in_flight(),
            waiting: self.parts.gate.waiting(),
            step_ended,
        };
        (self.parts.progress)(&progress);
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Somebody who can say so does; where nobody can any more, never.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}
