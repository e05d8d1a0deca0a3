//! Runs a sweep, from its options to its outcome.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate::config::{
    EngineMetricsPolicy, LaneConfig, LimitConfig, Mode, OnFull, Predict, ShareConfig, ShareStore,
    TargetConfig, TargetMatch, TenantConfig,
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
use crate::plan::{Plan, PlanInputs};
use crate::progress::{SweepProgress, SweepState};
use crate::search::{Search, SearchAction};
use crate::spend::{Ceiling, SpendTracker, SweepSpend};
use crate::sweep_outcome::{FORMAT, Provenance, SweepOutcome};
use crate::wait_until::{sleep_until, stop_requested};

/// Name of the call log in the directory of [`Sweep::keep`]. Each line of the file is one
/// [`CallLine`] in JSON.
pub const CALL_LOG_FILE: &str = "calls.jsonl";

/// A sweep that has not started.
///
/// A sweep reads no clock other than tokio's. It starts a thread and writes files only after
/// [`Sweep::keep`], and reads a file only if the mix names one. Under a paused clock and over an
/// in-process transport it runs in virtual time, and is deterministic except for the jitter of
/// retries (seed `fastrand` for that).
#[derive(Debug)]
pub struct Sweep {
    options: SweepOptions,
    endpoint: Endpoint,
    mix: Mix,
    target: TargetConfig,
    monitors: Monitors,
    began: Option<String>,
    keep: Option<PathBuf>,
    saved: Option<(SavedJournal, Journal)>,
}

impl Sweep {
    /// Checks the options, and reads the file that the mix names, if any. Sends nothing.
    ///
    /// # Errors
    ///
    /// Returns [`SweepError::Options`] if an option is invalid, and [`SweepError::File`] if the
    /// file of the mix cannot be read.
    pub fn new(options: SweepOptions) -> Result<Self, SweepError> {
        options.check()?;
        let endpoint = Endpoint::new(&options.url, options.api)?;
        let mix = Mix::load(&options.mix, options.seed, &options.model, options.exact_output)?;
        let has_token_ceiling = options.ceilings.tokens.is_some() || options.ceilings.cost.is_some();
        let needs_limits = match (has_token_ceiling, options.exact_output) {
            (true, _) => Some("--max-tokens and --max-cost need"),
            (false, true) => Some("--exact-output needs"),
            (false, false) => None,
        };
        if let Some((index, needs)) = mix.first_unbounded().zip(needs_limits) {
            return Err(SweepError::options(format!(
                "request {} of the file has no output limit, which {needs}; pass --output-tokens",
                index + 1
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
            saved: None,
        })
    }

    /// Returns a sweep that continues the one whose journal is in `directory`, with the options of
    /// the journal. `change` receives these options and may modify only [`SweepOptions::ceilings`].
    /// If the URL of the sweep has a query, `change` must also set [`SweepOptions::url`] again,
    /// because the query can contain a key and is not in the journal.
    ///
    /// # Errors
    ///
    /// Returns [`SweepError::Resume`] if the journal is not from this version, if another process
    /// uses it, if another option or the file of the mix has changed, or if the query of the URL is
    /// missing. Returns [`SweepError::File`] if the journal cannot be read.
    pub fn resume(directory: &Path, change: impl FnOnce(&mut SweepOptions)) -> Result<Self, SweepError> {
        let (saved, journal) = journal::resume(directory)?;
        let mut options = saved.header.options.clone();
        change(&mut options);
        saved.header.check_options(directory, &options)?;
        let mut sweep = Self::new(options)?;
        if sweep.mix.digest() != saved.header.digest {
            return Err(SweepError::Resume("the prompt file has changed; start a new sweep".to_owned()));
        }
        sweep.target.retry.attempts = saved.header.attempts;
        sweep.began.clone_from(&saved.header.began);
        sweep.keep = Some(directory.to_owned());
        sweep.saved = Some((saved, journal));
        Ok(sweep)
    }

    /// Sets the API key, which every request carries. Default: requests carry no key.
    ///
    /// # Errors
    ///
    /// Returns [`SweepError::Options`] if the key contains characters that are invalid in a header.
    pub fn key(mut self, key: &str) -> Result<Self, SweepError> {
        self.endpoint = self.endpoint.with_key(key)?;
        Ok(self)
    }

    /// Sets a configured target whose retries, rates and timeouts apply to the calls. The sweep
    /// overrides the target's cap, limit, queue, tenants, lanes and fallback. A resumed sweep needs
    /// the target that it began with, because the journal does not contain the target's settings.
    ///
    /// # Errors
    ///
    /// Returns [`SweepError::Options`] for a pool, because a cap applies to one replica.
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

    /// Sets the monitor of this process's CPU usage. Without a monitor, only late timers show that
    /// this client is too slow for the cap.
    pub fn cpu(mut self, cpu: CpuMonitor) -> Self {
        self.monitors.cpu = Some(cpu);
        self
    }

    /// Sets the start time that the outcome reports, in RFC 3339. A resumed sweep keeps the start
    /// time of its journal.
    ///
    /// Sweeps with different start times send different prompts, so the prefix cache of a server
    /// does not contain those of an earlier sweep. Without a start time, sweeps with the same
    /// options send the same prompts.
    pub fn began(mut self, at: String) -> Self {
        self.began.get_or_insert(at);
        self
    }

    /// Makes the sweep write its call log, and the journal from which it can be resumed, into
    /// `directory`. [`Sweep::run`] creates the directory after the preflight call, and syncs the
    /// files to disk at the end of each step. During a step, it writes what the sweep has spent to
    /// the journal about once per second.
    pub fn keep(mut self, directory: &Path) -> Self {
        self.keep = Some(directory.to_owned());
        self
    }

    /// Returns the options of the sweep.
    pub fn options(&self) -> &SweepOptions {
        &self.options
    }

    /// Returns the endpoint that the calls are sent to.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns an estimate of the calls, tokens, cost and time of the whole sweep. Sends nothing.
    pub fn plan(&self) -> Plan {
        let search = &self.options.search;
        let inputs = PlanInputs {
            calls: Search::new(search.clone()).remaining_calls(),
            start: search.start,
            max_cap: search.max_cap,
            means: self.mix.means(),
            latency: None,
            prices: self.options.prices,
            ceilings: self.options.ceilings,
        };
        Plan::new(self.mix.describe(), inputs)
    }

    /// Makes the preflight call, and then sweeps until the search is done, a ceiling is reached,
    /// the server rejects the API key, or `stop` becomes `true`. Calls `progress` after each step
    /// and at least ten times per second.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends every open exchange at once, and blocks until what the sweep has
    /// spent is in its journal. The sweep can be resumed from the journal.
    ///
    /// # Errors
    ///
    /// Returns [`SweepError::Preflight`] if the preflight call fails, [`SweepError::Stopped`] if
    /// `stop` becomes `true` or the time ceiling is reached during that call, [`SweepError::File`]
    /// if the journal or the call log cannot be opened, [`SweepError::Resume`] if the directory
    /// already contains a sweep, the journal does not match or the resumed sweep began with another
    /// target, [`SweepError::Options`] if a ceiling does not allow one call or the environment
    /// switches gates off, and [`SweepError::Gate`] if the target's configuration is invalid.
    /// Rejected calls and reached ceilings are not errors: [`SweepOutcome::ended`] states how the
    /// sweep ended. Nor is a later failure to write a file, which the notes of the result state.
    pub async fn run(
        self,
        transport: Transport,
        mut progress: impl FnMut(&SweepProgress) + Send,
        stop: watch::Receiver<bool>,
    ) -> Result<SweepOutcome, SweepError> {
        let Self { options, endpoint, mut mix, target, mut monitors, began, keep, saved } = self;
        let target = swept_target(target, options.search.max_cap);
        if let Some((saved, _)) = &saved {
            saved.header.check_target(&target)?;
        }
        let mut prior = PriorState::restore(saved, &options)?;
        if began.is_some() || prior.resumed > 0 {
            mix.set_run(began.as_deref(), prior.resumed);
        }
        let clock = Clock::new(prior.resume_seconds());
        let tracker = SpendTracker::new(options.ceilings, options.prices, prior.spend);
        let (hub, events) = EventHub::new(clock, tracker.clone(), endpoint.api().dialect());
        let share = ShareConfig { store: ShareStore::Off, ..ShareConfig::default() };
        // Before the preflight call, which costs money.
        let gate = Gate::over(
            Config { targets: vec![target.clone()], share, ..Config::default() },
            MeteringTransport::over(transport.clone(), hub.clone()),
        )?;
        if gate.mode() != Mode::Enforce {
            return Err(SweepError::options(
                "the environment variable TIDEGATE disables gates, but a sweep needs one; unset it",
            ));
        }
        if let Some(journal) = prior.journal.take() {
            prior.session.set_journal(journal, hub.clone());
        }
        progress(&starting_progress(&prior.session.search, prior.spend));
        let preflight_result = match prior.preflight_result.take() {
            Some(preflight_result) => {
                preflight_result.apply(&mut mix, &endpoint);
                preflight_result
            }
            None => {
                let directory = keep.as_deref().map(check_unused).transpose()?;
                let first_call = preflight(&transport, &endpoint, &mut mix, &options.model, &hub);
                let preflight_result =
                    within_max_time(first_call, &clock, options.ceilings.seconds, stop.clone()).await?;
                // The directory is created only after the preflight call succeeded.
                if let Some(directory) = directory {
                    let header = JournalHeader::new(options.clone(), mix.digest(), &target, began.clone());
                    let mut journal = Journal::create(directory, &header)?;
                    journal.append(&JournalEntry::Preflight(preflight_result.clone()));
                    journal
                        .append(&JournalEntry::Spend(SweepSpend { seconds: clock.now(), ..tracker.spent() }));
                    journal.sync();
                    prior.session.set_journal(journal, hub.clone());
                }
                preflight_result
            }
        };
        let provenance = Provenance {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            target: target.name.to_string(),
            url: endpoint.base(),
            model: options.model.clone(),
            api: endpoint.api().as_str().to_owned(),
            server: preflight_result.server,
            mix: mix.describe(),
            seed: options.seed,
            settings: options.search.clone(),
            attempts: target.retry.attempts,
            prices: options.prices,
            began,
            resumed: prior.resumed,
        };
        let user_prompts = mix.has_user_prompts();
        let endpoint = Arc::new(endpoint);
        if options.engine_metrics {
            monitors.engine = Some(watch_engine(transport, endpoint.clone()));
        }
        let log = CallLog::open(keep.as_deref())?;
        let parts = DriverParts {
            gate,
            target: provenance.target.clone(),
            hub,
            events,
            endpoint,
            mix,
            session: prior.session,
            monitors,
            stop,
            max_seconds: options.ceilings.seconds,
            progress: &mut progress,
            log: &mut |line| log.write(line),
        };
        let mut driver_result = Driver::new(parts).run(prior.next.map(|(_, next)| next)).await?;
        let spend = SweepSpend { seconds: clock.now(), ..tracker.spent() };
        let unwritten = [driver_result.session.finish(), log.finish()].into_iter().filter_map(Result::err);
        let mut outcome = outcome(driver_result, spend, provenance, user_prompts);
        outcome.answer.notes.extend(unwritten.map(|error| error.to_string()));
        Ok(outcome)
    }
}

/// State at the start of [`Sweep::run`]: empty for a new sweep, or restored from a journal.
struct PriorState {
    session: SearchSession,
    /// Journal of the earlier runs, to which this one is appended.
    journal: Option<Journal>,
    /// Last decision in the journal and its time in seconds since the sweep began. It is carried
    /// out again, because its step was interrupted. `None` if there is no earlier decision.
    next: Option<(f64, SearchAction)>,
    preflight_result: Option<PreflightResult>,
    spend: SweepSpend,
    resumed: u32,
}

impl PriorState {
    fn restore(saved: Option<(SavedJournal, Journal)>, options: &SweepOptions) -> Result<Self, SweepError> {
        let session = SearchSession::new(Search::new(options.search.clone()));
        let mut prior = Self {
            session,
            journal: None,
            next: None,
            preflight_result: None,
            spend: SweepSpend::default(),
            resumed: 0,
        };
        let Some((saved, mut journal)) = saved else { return Ok(prior) };
        prior.next = prior.session.replay(&saved.entries)?;
        prior.preflight_result = saved.entries.into_iter().find_map(|entry| match entry {
            JournalEntry::Preflight(preflight_result) => Some(preflight_result),
            _ => None,
        });
        (prior.spend, prior.resumed) = (saved.spend, saved.resumed + 1);
        journal.append(&JournalEntry::Resumed);
        journal.sync();
        prior.journal = Some(journal);
        Ok(prior)
    }

    /// Returns the time at which the sweep's clock continues, in seconds since the sweep began: the
    /// time of the last decision or the time already spent, whichever is later.
    fn resume_seconds(&self) -> f64 {
        self.spend.seconds.max(self.next.as_ref().map_or(0.0, |(now, _)| *now))
    }
}

/// Returns `directory`, or an error if a sweep's journal exists in it. Called before the first paid
/// call.
fn check_unused(directory: &Path) -> Result<&Path, SweepError> {
    if directory.join(journal::JOURNAL_FILE).exists() {
        Err(journal::already_in_use(directory))
    } else {
        Ok(directory)
    }
}

fn outcome(
    driver_result: DriverResult,
    spend: SweepSpend,
    provenance: Provenance,
    user_prompts: bool,
) -> SweepOutcome {
    let DriverResult { session, ended, series, rejection } = driver_result;
    let mut answer = session.search.answer();
    answer.notes.extend(
        rejection.map(|message| format!("the server rejects all further calls with this key: {message}")),
    );
    answer.notes.extend(session.tally.saturation_note());
    let steps = session.search.steps().to_vec();
    let cached = spend.cached_tokens as f64 / spend.input_tokens.max(1) as f64;
    let checks = session.tally.checks(&answer, &steps, &provenance.settings, cached, user_prompts);
    let calls = session.tally.call_outcomes();
    let lines = config_snippet(&answer, &provenance);
    SweepOutcome { format: FORMAT, answer, steps, spend, checks, lines, ended, provenance, calls, series }
}

/// Returns the target of the sweep's gate, which takes every request: `target` with its retries,
/// rates and timeouts, but with the settings of a sweep: among others a fixed limit of `max_cap`, a
/// queue of up to a million calls and no fallback.
fn swept_target(target: TargetConfig, max_cap: usize) -> TargetConfig {
    /// Minimum deadline of a call. Each call waits behind the calls queued before it, so a shorter
    /// deadline of the target would expire in the queue.
    const MIN_DEADLINE: std::time::Duration = std::time::Duration::from_secs(3_600);
    TargetConfig {
        matches: TargetMatch::default(),
        cap: max_cap,
        limit: LimitConfig::Fixed,
        queue: 1_000_000,
        backlog: 1_000_000,
        wait: None,
        on_full: OnFull::Wait,
        deadline: target.deadline.max(MIN_DEADLINE),
        ttft: None,
        tpot: None,
        lanes: <[LaneConfig; 3]>::default(),
        predict: Predict::Off,
        max_prompt: None,
        ask_usage: true,
        // What the engine can hold is measured, so the gate must not keep calls from it.
        kv_tokens: None,
        metrics: EngineMetricsPolicy::Off,
        fallback: None,
        default_tenant: TenantConfig::default(),
        tenants: Default::default(),
        ..target
    }
}

fn starting_progress(search: &Search, spend: SweepSpend) -> SweepProgress {
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

/// Returns the result of `first_call`, or [`SweepError::Stopped`] if `stop` becomes `true` or the
/// sweep has lasted `max_seconds` before that. `None` sets no limit.
async fn within_max_time(
    first_call: impl Future<Output = Result<PreflightResult, SweepError>>,
    clock: &Clock,
    max_seconds: Option<f64>,
    mut stop: watch::Receiver<bool>,
) -> Result<PreflightResult, SweepError> {
    tokio::select! {
        biased;
        () = stop_requested(&mut stop) => {
            Err(SweepError::Stopped("interrupted during the preflight call".to_owned()))
        }
        () = sleep_until(max_seconds.and_then(|max_seconds| clock.instant_at(max_seconds))) => {
            let flag = Ceiling::Time.flag();
            Err(SweepError::Stopped(format!("the preflight call did not finish within {flag}; raise it")))
        }
        preflight_result = first_call => preflight_result,
    }
}

/// Writer of the call log, or `None` if the sweep keeps no files.
struct CallLog(Option<Writer>);

impl CallLog {
    fn open(directory: Option<&Path>) -> Result<Self, SweepError> {
        let Some(directory) = directory else { return Ok(Self(None)) };
        let path = directory.join(CALL_LOG_FILE);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| SweepError::file(&path, error))?;
        Ok(Self(Some(Writer::new(&path, file)?)))
    }

    fn write(&self, line: &CallLine) {
        if let Some(file) = &self.0 {
            let mut bytes = Vec::new();
            file.add_line(&mut bytes, line);
            file.write(bytes);
        }
    }

    fn finish(self) -> Result<(), SweepError> {
        self.0.map_or(Ok(()), Writer::finish)
    }
}
