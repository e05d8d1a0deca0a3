//! Runs a sweep, from its options to its outcome.

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
use crate::waiting::{sleep_until, stop_requested};

/// File name of the call log in the directory of a sweep.
pub const CALL_LOG_FILE: &str = "calls.jsonl";

/// A sweep that has not started.
///
/// A sweep reads no clock other than tokio's, starts no threads, and touches files only if the mix
/// or [`Sweep::keep`] names some. Under a paused clock and over an in-process transport it runs in
/// virtual time, and is deterministic except for the jitter of retries (seed `fastrand` for that).
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
    /// Reads and checks the options. Sends nothing.
    ///
    /// # Errors
    ///
    /// Returns `Options` if an option is invalid, and `File` if the file of the mix cannot be read.
    pub fn new(options: SweepOptions) -> Result<Self, SweepError> {
        options.check()?;
        let endpoint = Endpoint::new(&options.url, options.api)?;
        let mix = Mix::load(&options.mix, options.seed, &options.model, options.exact_output)?;
        let bounded = options.ceilings.tokens.is_some() || options.ceilings.cost.is_some();
        if let Some(place) = mix.unbounded().filter(|_| bounded) {
            return Err(SweepError::options(format!(
                "request {} of the file has no output limit, which --max-tokens and --max-cost need; pass --output-tokens",
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

    /// Continues the sweep in a directory, with the options of its journal. `change` may only raise
    /// ceilings.
    ///
    /// # Errors
    ///
    /// Returns `Resume` if the journal cannot be resumed, or if a setting or the file of the mix
    /// has changed.
    pub fn resume(directory: &Path, change: impl FnOnce(&mut SweepOptions)) -> Result<Self, SweepError> {
        let (told, journal) = journal::resume(directory)?;
        let mut options = told.head.options.clone();
        change(&mut options);
        let same = SweepOptions { ceilings: told.head.options.ceilings, ..options.clone() };
        if let Some(key) = changed(&told.head.options, &same) {
            return Err(SweepError::Resume(format!(
                "{}: {key} has changed; a sweep can only be resumed with the same settings, except ceilings",
                directory.display()
            )));
        }
        let mut sweep = Self::new(options)?;
        if sweep.mix.digest() != told.head.digest {
            return Err(SweepError::Resume("the prompt file has changed; start a new sweep".to_owned()));
        }
        sweep.target.retry.attempts = told.head.attempts;
        sweep.began.clone_from(&told.head.began);
        sweep.keep = Some(directory.to_owned());
        sweep.told = Some((told, journal));
        Ok(sweep)
    }

    /// Sets the API key.
    ///
    /// # Errors
    ///
    /// Returns `Options` if the key cannot be put into a header.
    pub fn key(mut self, key: &str) -> Result<Self, SweepError> {
        self.endpoint = self.endpoint.with_key(key)?;
        Ok(self)
    }

    /// Takes the retries, rates and timeouts of a configured target. Its cap, limit, queue,
    /// tenants, lanes and fallback are replaced.
    ///
    /// # Errors
    ///
    /// Returns `Options` for a pool, because a cap applies to one replica.
    pub fn target(mut self, target: TargetConfig) -> Result<Self, SweepError> {
        if target.pool.is_some() {
            return Err(SweepError::options(format!(
                "target {} is a pool; sweep one replica with --url, and use its cap for all replicas",
                target.name
            )));
        }
        self.target = target;
        Ok(self)
    }

    /// Sets the CPU monitor. Without one, only late timers show that the client does not keep up.
    pub fn cpu(mut self, cpu: CpuMonitor) -> Self {
        self.monitors.cpu = Some(cpu);
        self
    }

    /// Sets the start time for the outcome, on the wall clock in RFC 3339.
    pub fn began(mut self, at: String) -> Self {
        self.began.get_or_insert(at);
        self
    }

    /// Writes a journal to resume from, and a log of calls, into a directory. Calls `fsync` at the
    /// end of each step.
    pub fn keep(mut self, directory: &Path) -> Self {
        self.keep = Some(directory.to_owned());
        self
    }

    /// Returns the options in force.
    pub fn options(&self) -> &SweepOptions {
        &self.options
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Estimates the resources of the sweep. Sends nothing.
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

    /// Makes the preflight call, and then sweeps until the search is done, a ceiling is reached, or
    /// `stop` becomes true. Calls `progress` at least ten times per second.
    ///
    /// # Cancellation safety
    ///
    /// Dropping the future ends every exchange at once. The journal can be resumed.
    ///
    /// # Errors
    ///
    /// Returns `Preflight` if the preflight call fails, `File` if the journal or the log cannot be
    /// written, and `Options` or `Resume` if the settings do not fit. Rejected calls and ceilings
    /// are not errors: the outcome states how the sweep ended.
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
                // The directory is created only after the preflight call succeeded.
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
                "the environment variable TIDEGATE disables gates; a sweep needs an enforcing gate",
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

/// State from before this run: empty, or read from a journal.
struct Past {
    session: SearchSession,
    /// The step that was cut off, and when it was decided.
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

    /// Returns the time at which the clock continues: the last event, and not before the time that
    /// was spent.
    fn seconds(&self) -> f64 {
        self.spend.seconds.max(self.next.as_ref().map_or(0.0, |(now, _)| *now))
    }
}

/// Checks that a directory holds no sweep, before a call is paid for.
fn vacant(directory: &Path) -> Result<&Path, SweepError> {
    if directory.join(journal::NAME).exists() { Err(journal::taken(directory)) } else { Ok(directory) }
}

fn outcome(driven: DriverResult, spend: SweepSpend, provenance: Provenance, given: bool) -> SweepOutcome {
    let DriverResult { session, ended, series, last_word } = driven;
    let mut answer = session.search.answer();
    answer
        .notes
        .extend(last_word.map(|said| format!("the server rejects all further calls with this key: {said}")));
    let steps = session.search.steps().to_vec();
    let cached = spend.cached_tokens as f64 / spend.input_tokens.max(1) as f64;
    let checks = session.tally.checks(&answer, &steps, &provenance.settings, cached, given);
    let calls = session.tally.ends();
    let lines = config_snippet(&answer, &provenance);
    SweepOutcome { format: FORMAT, answer, steps, spend, checks, lines, ended, provenance, calls, series }
}

/// Returns a configuration with a single target for every request. The cap is the sweep's own;
/// everything else is as in production.
fn configured(target: TargetConfig, max_cap: usize) -> Config {
    /// The backlog waits for a long time, so the production deadline would expire.
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

/// Runs the preflight call. Returns an error if the call is interrupted or takes all the available
/// time, because no result exists yet.
async fn in_time(
    first_call: impl Future<Output = Result<PreflightResult, SweepError>>,
    clock: &Clock,
    most: Option<f64>,
    mut stop: watch::Receiver<bool>,
) -> Result<PreflightResult, SweepError> {
    tokio::select! {
        biased;
        () = stop_requested(&mut stop) => Err(SweepError::Preflight("interrupted during the preflight call".to_owned())),
        () = sleep_until(most.and_then(|most| clock.at(most))) => {
            let flag = Ceiling::Time.flag();
            Err(SweepError::Preflight(format!("the preflight call did not finish within {flag}")))
        }
        shown = first_call => shown,
    }
}

/// Returns the name of the first setting that has changed.
fn changed(was: &SweepOptions, is: &SweepOptions) -> Option<String> {
    let (Ok(was), Ok(is)) = (serde_json::to_value(was), serde_json::to_value(is)) else { return None };
    let (was, is) = (was.as_object()?, is.as_object()?);
    is.iter().find(|(key, value)| was.get(*key) != Some(*value)).map(|(key, _)| key.clone())
}

/// The log of calls, if a directory was given.
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
