//! A sweep, from its options to its outcome.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate::config::{
    LaneConfig, LimitConfig, Mode, OnFull, Predict, TargetConfig, TargetMatch, TenantConfig,
};
use tidegate::{Config, Gate, Transport};
use tokio::sync::watch;

use crate::background_writer::Writer;
use crate::clock::Clock;
use crate::config_snippet::config_snippet;
use crate::driver::{
    CallLine, CpuMonitor, Driver, DriverParts, DriverResult, EventHub, MeteringTransport, Monitors,
    SearchSession, preflight, watch_engine,
};
use crate::endpoint::Endpoint;
use crate::error::SweepError;
use crate::journal::{self, Journal, JournalEntry, JournalHeader, PreflightResult, SavedJournal};
use crate::mix::Mix;
use crate::options::SweepOptions;
use crate::outcome::{FORMAT, Provenance, SweepOutcome};
use crate::plan::{Basis, Plan};
use crate::progress::{SweepProgress, SweepState};
use crate::search::{Search, SearchAction};
use crate::spend::{Ceiling, SpendTracker, SweepSpend};

/// The log of calls in the directory of a sweep.
pub const CALL_LOG_FILE: &str = "calls.jsonl";

/// A sweep that has not begun.
///
/// It reads no clock but tokio's, starts no threads, and touches files only where the mix or [`Sweep::keep`] name some: under a paused clock, over a transport in process, it
/// plays in virtual time, the same each time (but for the jitter of retries, which is `fastrand`'s: seed it).
#[derive(Debug)]
pub struct Sweep {
    options: SweepOptions,
    endpoint: Endpoint,
    mix: Mix,
    target: TargetConfig,
    monitors: Monitors,
    began: Option<String>,
    keep: Option<PathBuf>,
    told: Option<(SavedJournal, Journal)>,
}

impl Sweep {
    /// Reads and checks what is asked for; sends nothing.
    ///
    /// # Errors
    /// `SweepOptions`, naming what cannot work; `File`, where the mix's file cannot be read.
    pub fn new(options: SweepOptions) -> Result<Self, SweepError> {
        options.check()?;
        let endpoint = Endpoint::new(&options.url, options.api)?;
        let mix = Mix::load(&options.mix, options.seed, &options.model, options.exact_output)?;
        let bounded = options.ceilings.tokens.is_some() || options.ceilings.cost.is_some();
        if let Some(place) = mix.unbounded().filter(|_| bounded) {
            return Err(SweepError::options(format!(
                "request {} of the file names no maximum of output, and --max-tokens or --max-cost need one: give --output-tokens",
                place + 1
            )));
        }
        let name = options.name.clone().unwrap_or_else(|| options.model.clone());
        let target = TargetConfig::new(&name);
        Ok(Self {
            options,
            endpoint,
            mix,
            target,
            monitors: Monitors::default(),
            began: None,
            keep: None,
            told: None,
        })
    }

    /// One that goes on with what is in a directory. The options are those of its journal; `change` may raise ceilings, and whatever else it changes is an error.
    ///
    /// # Errors
    /// `Resume`, where there is no journal that can be gone on with, or a setting or the mix's file is not what it was.
    pub fn resume(directory: &Path, change: impl FnOnce(&mut SweepOptions)) -> Result<Self, SweepError> {
        let (told, journal) = journal::resume(directory)?;
        let mut options = told.head.options.clone();
        change(&mut options);
        let same = SweepOptions { ceilings: told.head.options.ceilings, ..options.clone() };
        if let Some(key) = changed(&told.head.options, &same) {
            return Err(SweepError::Resume(format!(
                "{}: {key} is not what it was: a sweep goes on only with the same settings, but for ceilings",
                directory.display()
            )));
        }
        let mut sweep = Self::new(options)?;
        if sweep.mix.digest() != told.head.digest {
            return Err(SweepError::Resume("the file of prompts is not what it was: begin anew".to_owned()));
        }
        sweep.target.retry.attempts = told.head.attempts;
        sweep.began.clone_from(&told.head.began);
        sweep.keep = Some(directory.to_owned());
        sweep.told = Some((told, journal));
        Ok(sweep)
    }

    /// With this key.
    ///
    /// # Errors
    /// `SweepOptions`, for a key that cannot stand in a header.
    pub fn key(mut self, key: &str) -> Result<Self, SweepError> {
        self.endpoint = self.endpoint.with_key(key)?;
        Ok(self)
    }

    /// As this target is configured: its retries, rates and timeouts. Its cap, limit, queue, tenants, lanes and fallback are the sweep's own, or none.
    ///
    /// # Errors
    /// `SweepOptions` for a pool: a cap belongs to one replica.
    pub fn target(mut self, target: TargetConfig) -> Result<Self, SweepError> {
        if target.pool.is_some() {
            return Err(SweepError::options(format!(
                "target {} is a pool: sweep one of its replicas, by --url, and give its cap to all of them",
                target.name
            )));
        }
        self.target = target;
        Ok(self)
    }

    /// ExchangeEnd the share of processors in use is told. Without it only timers tell whether the client keeps up.
    pub fn cpu(mut self, cpu: CpuMonitor) -> Self {
        self.monitors.cpu = Some(cpu);
        self
    }

    /// When it begins, on the wall's clock, in RFC 3339: for the outcome.
    pub fn began(mut self, at: String) -> Self {
        self.began.get_or_insert(at);
        self
    }

    /// Keeps a journal to resume from, and a log of calls, in this directory. `fsync`s at the end of each step.
    pub fn keep(mut self, directory: &Path) -> Self {
        self.keep = Some(directory.to_owned());
        self
    }

    /// The options, as they are in force.
    pub fn options(&self) -> &SweepOptions {
        &self.options
    }

    /// Where calls go.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// What it will take. Sends nothing.
    pub fn plan(&self) -> Plan {
        let search = &self.options.search;
        let basis = Basis {
            calls: Search::new(search.clone()).remaining_calls(),
            start: search.start,
            max_cap: search.max_cap,
            means: self.mix.means(),
            latency: None,
            prices: self.options.prices,
            ceilings: self.options.ceilings,
        };
        Plan::new(self.mix.describe(), basis)
    }

    /// Makes one call, and then sweeps, until the search is done, a ceiling is reached, or `stop` is true. `progress` is told ten times a second.
    ///
    /// *Cancellation safety*: dropping the future ends every exchange at once; what a journal holds can be gone on with.
    ///
    /// # Errors
    /// `Preflight`, where the first call shows that there is nothing to sweep; `SweepOptions`; `File`, where the journal or the log cannot be written; `Resume`. A server that
    /// turns calls away is no error, nor is a ceiling: the outcome tells how it ended.
    pub async fn run(
        self,
        transport: Transport,
        mut progress: impl FnMut(&SweepProgress) + Send,
        stop: watch::Receiver<bool>,
    ) -> Result<SweepOutcome, SweepError> {
        let Self { options, endpoint, mut mix, target, mut monitors, began, keep, told } = self;
        let mut past = Past::recall(told, &options)?;
        let clock = Clock::new(past.seconds());
        let tracker = SpendTracker::new(options.ceilings, options.prices, past.spend);
        let (hub, events) = EventHub::new(clock, tracker.clone(), endpoint.api().dialect());
        progress(&starting(&past.session.search, past.spend));
        let shown = match past.shown.take() {
            Some(shown) => {
                shown.apply(&mut mix, &endpoint);
                shown
            }
            None => {
                let directory = keep.as_deref().map(vacant).transpose()?;
                let first_call = preflight(&transport, &endpoint, &mut mix, &options.model, &hub);
                let shown = in_time(first_call, &clock, options.ceilings.seconds, stop.clone()).await?;
                // A directory is made only for a sweep that has something to sweep.
                if let Some(directory) = directory {
                    let head = JournalHeader::new(
                        options.clone(),
                        mix.digest(),
                        target.retry.attempts,
                        began.clone(),
                    );
                    let mut journal = Journal::begin(directory, &head)?;
                    journal.note(&JournalEntry::Preflight(shown.clone()))?;
                    journal
                        .note(&JournalEntry::Spend(SweepSpend { seconds: clock.now(), ..tracker.spent() }))?;
                    journal.sync()?;
                    past.session.keep(journal);
                }
                shown
            }
        };
        let provenance = Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target: target.name.to_string(),
            url: endpoint.base(),
            model: options.model.clone(),
            api: endpoint.api().as_str().to_owned(),
            server: shown.server,
            mix: mix.describe(),
            seed: options.seed,
            settings: options.search.clone(),
            attempts: target.retry.attempts,
            prices: options.prices,
            began,
            resumed: past.resumed,
        };
        let given = mix.is_given();
        let endpoint = Arc::new(endpoint);
        if options.engine_metrics {
            monitors.engine = Some(watch_engine(transport.clone(), endpoint.clone()));
        }
        let gate = Gate::over(
            configured(target, options.search.max_cap),
            MeteringTransport::over(transport, hub.clone()),
        )?;
        if gate.mode() != Mode::Enforce {
            return Err(SweepError::options(
                "TIDEGATE in the environment switches gates off: a sweep needs its gate to act",
            ));
        }
        let mut log = Log::open(keep.as_deref())?;
        let parts = DriverParts {
            gate,
            target: provenance.target.clone(),
            hub,
            events,
            endpoint,
            mix,
            session: past.session,
            monitors,
            stop,
            max_seconds: options.ceilings.seconds,
            latency: shown.seconds,
            progress: &mut progress,
            log: &mut |line| log.write(line),
        };
        let driven = Driver::new(parts).run(past.next.map(|(_, next)| next)).await?;
        log.finish()?;
        let spend = SweepSpend { seconds: clock.now(), ..tracker.spent() };
        Ok(outcome(driven, spend, provenance, given))
    }
}

/// What is known from before: nothing, or what a journal holds.
struct Past {
    session: SearchSession,
    /// The move that broke off, and when it was decided.
    next: Option<(f64, SearchAction)>,
    shown: Option<PreflightResult>,
    spend: SweepSpend,
    resumed: u32,
}

impl Past {
    fn recall(told: Option<(SavedJournal, Journal)>, options: &SweepOptions) -> Result<Self, SweepError> {
        let session = SearchSession::new(Search::new(options.search.clone()));
        let mut past = Self { session, next: None, shown: None, spend: SweepSpend::default(), resumed: 0 };
        let Some((told, mut journal)) = told else { return Ok(past) };
        past.next = past.session.replay(&told.entries)?;
        past.shown = told.entries.into_iter().find_map(|entry| match entry {
            JournalEntry::Preflight(shown) => Some(shown),
            _ => None,
        });
        (past.spend, past.resumed) = (told.spend, told.resumed + 1);
        journal.note(&JournalEntry::Resumed)?;
        journal.sync()?;
        past.session.keep(journal);
        Ok(past)
    }

    /// Its time goes on where the last event stood, and not before what was spent of it.
    fn seconds(&self) -> f64 {
        self.spend.seconds.max(self.next.as_ref().map_or(0.0, |(now, _)| *now))
    }
}

/// A directory without a sweep: looked at before a call is paid for.
fn vacant(directory: &Path) -> Result<&Path, SweepError> {
    if directory.join(journal::NAME).exists() { Err(journal::taken(directory)) } else { Ok(directory) }
}

fn outcome(driven: DriverResult, spend: SweepSpend, provenance: Provenance, given: bool) -> SweepOutcome {
    let DriverResult { session, ended, series, last_word } = driven;
    let mut answer = session.search.answer();
    answer.notes.extend(last_word.map(|said| format!("the server takes no more calls of this key: {said}")));
    let steps = session.search.steps().to_vec();
    let cached = spend.cached_tokens as f64 / spend.input_tokens.max(1) as f64;
    let checks = session.tally.checks(&answer, &steps, &provenance.settings, cached, given);
    let calls = session.tally.ends();
    let lines = config_snippet(&answer, &provenance);
    SweepOutcome { format: FORMAT, answer, steps, spend, checks, lines, ended, provenance, calls, series }
}

/// One target of a cap of its own, for every request; of the rest what production has.
fn configured(target: TargetConfig, max_cap: usize) -> Config {
    /// A backlog waits, however long that takes: the deadline of production would run meanwhile.
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3_600);
    let target = TargetConfig {
        matches: TargetMatch::default(),
        cap: max_cap,
        limit: LimitConfig::Fixed,
        queue: 1_000_000,
        backlog: 1_000_000,
        wait: None,
        on_full: OnFull::Wait,
        deadline: target.deadline.max(PATIENCE),
        ttft: None,
        tpot: None,
        lanes: <[LaneConfig; 3]>::default(),
        predict: Predict::Off,
        max_prompt: None,
        ask_usage: true,
        fallback: None,
        default_tenant: TenantConfig::default(),
        tenants: Default::default(),
        ..target
    };
    Config { targets: vec![target], ..Config::default() }
}

fn starting(search: &Search, spend: SweepSpend) -> SweepProgress {
    let (good, bad) = search.bracket();
    SweepProgress {
        state: SweepState::Preflight,
        good,
        bad,
        spend,
        calls_to_come: search.remaining_calls(),
        eta: None,
        in_flight: 0,
        waiting: 0,
        step_ended: None,
    }
}

/// Nothing is known yet that could be told: a first call that is interrupted, or takes all the time there is, is an error.
async fn in_time(
    first_call: impl Future<Output = Result<PreflightResult, SweepError>>,
    clock: &Clock,
    most: Option<f64>,
    mut stop: watch::Receiver<bool>,
) -> Result<PreflightResult, SweepError> {
    let over = async {
        match most.and_then(|most| clock.at(most)) {
            Some(over) => tokio::time::sleep_until(over).await,
            None => std::future::pending().await,
        }
    };
    let stopped = async {
        if stop.wait_for(|stop| *stop).await.is_err() {
            std::future::pending().await
        }
    };
    tokio::select! {
        biased;
        () = stopped => Err(SweepError::Preflight("interrupted before anything was known".to_owned())),
        () = over => {
            let flag = Ceiling::Time.flag();
            Err(SweepError::Preflight(format!("the first call took all the time that there was ({flag})")))
        }
        shown = first_call => shown,
    }
}

/// The first setting that is not what it was.
fn changed(was: &SweepOptions, is: &SweepOptions) -> Option<String> {
    let (Ok(was), Ok(is)) = (serde_json::to_value(was), serde_json::to_value(is)) else { return None };
    let (was, is) = (was.as_object()?, is.as_object()?);
    is.iter().find(|(key, value)| was.get(*key) != Some(*value)).map(|(key, _)| key.clone())
}

/// The log of calls, where it is kept.
struct Log(Option<Writer>);

impl Log {
    fn open(directory: Option<&Path>) -> Result<Self, SweepError> {
        let Some(directory) = directory else { return Ok(Self(None)) };
        let path = directory.join(CALL_LOG_FILE);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| SweepError::file(&path, error))?;
        Ok(Self(Some(Writer::new(&path, file)?)))
    }

    fn write(&mut self, line: &CallLine) -> Result<(), SweepError> {
        let Some(file) = &self.0 else { return Ok(()) };
        let mut line = serde_json::to_vec(line)
            .map_err(|error| SweepError::file(Path::new(CALL_LOG_FILE), error.into()))?;
        line.push(b'\n');
        file.write(line)
    }

    fn finish(self) -> Result<(), SweepError> {
        self.0.map_or(Ok(()), Writer::finish)
    }
}
