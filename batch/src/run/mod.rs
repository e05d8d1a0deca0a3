//! Runs lines through a gate.

mod call;
mod failure_streak;
mod progress;
mod queue_meter;
mod spend;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::Duration;

use http::{HeaderMap, Uri};
use tidegate::config::{OnFull, Predict, TargetConfig};
use tidegate::{Config, Gate, Transport};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::call::{CallResult, PreparedRequest};
use self::failure_streak::{FailureSource, FailureStreak, StreakDecision};
pub use self::progress::{BatchEnd, BatchProgress};
use self::queue_meter::QueueMeter;
pub(crate) use self::spend::SpendTracker;
pub use self::spend::{Ceilings, Prices, Spend};
use crate::input::{Line, Request, RequestOverrides, parse_request};
use crate::line_error::LineError;
use crate::output::{AnsweredLines, LineOutcome, ProviderResponse, Record};
use crate::read_ahead::{OpenCalls, ReadAhead};
use crate::reorder::ReorderBuffer;
use crate::request_url::request_url;

/// Maximum time that a call may wait: in the queue, for quotas, and for cool-downs. The longest
/// that a gate allows.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);
/// Minimum number of attempts per call.
const MIN_ATTEMPTS: u32 = 8;
/// Minimum retry ratio and reserve. Nobody waits for a single call, and slots and quotas bound
/// retries anyway.
const MIN_RETRY_BUDGET: (f64, u32) = (1.0, 100);
/// Maximum number of records that wait for an earlier one if their order matters.
const MAX_EARLY_RECORDS: usize = 4_096;

/// Options of a run.
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// Base URL of the provider, with or without a version.
    pub base: Uri,
    /// Headers of every request, such as the credential.
    pub headers: HeaderMap,
    /// Settings that apply to every line.
    pub overrides: RequestOverrides,
    /// Whether records are written in input order.
    pub ordered: bool,
    /// Prices per million tokens.
    pub prices: Prices,
    /// Ceilings on cost and tokens.
    pub ceilings: Ceilings,
    /// Maximum silence of the server. Default: 10 min.
    pub read_timeout: Duration,
    /// Number of consecutive failures after which the run stops; 0 disables. Default: 20.
    pub max_consecutive_failures: usize,
}

impl BatchOptions {
    /// Returns options with defaults for a base URL.
    pub fn new(base: Uri) -> Self {
        Self {
            base,
            headers: HeaderMap::new(),
            overrides: RequestOverrides::default(),
            ordered: false,
            prices: Prices::default(),
            ceilings: Ceilings::default(),
            read_timeout: Duration::from_secs(600),
            max_consecutive_failures: 20,
        }
    }
}

/// A job for the writer.
#[derive(Debug)]
pub enum WriteJob {
    /// Write this record.
    Record(Record),
    /// A second has passed.
    Tick,
}

/// Why a run cannot continue. Written records remain, and the next run resumes from them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The input cannot be read.
    #[error("cannot read the input: {0}")]
    Input(#[from] io::Error),
    /// The receiver of records is gone.
    #[error("cannot write the output")]
    Output,
    /// An input line differs from the line that was answered before.
    #[error(
        "line {0} of the input has changed since it was answered; write to another output, or start again with --overwrite"
    )]
    InputChanged(u64),
    /// Too many consecutive calls have failed.
    #[error(
        "{count} lines in a row failed, the last with: {last}. They are not in the output, and the next run sends them again"
    )]
    TooManyFailures {
        /// Number of failures.
        count: usize,
        /// Message of the last failure.
        last: String,
    },
    /// The base URL is invalid.
    #[error("{0} is not the base URL of an API")]
    InvalidBase(Uri),
    /// A call panicked, which is a bug.
    #[error("a call panicked: {0}")]
    Panicked(#[from] JoinError),
}

/// A gate for batches. No call is given up because of the queue, because nobody waits for a single
/// call.
#[derive(Clone, Debug)]
pub struct Batch {
    gate: Gate,
    meter: QueueMeter,
}

impl Batch {
    /// Creates a gate with the limits, rates and pools of a configuration. Waits, deadlines and
    /// predictions for interactive use are disabled, and calls are retried more often.
    ///
    /// # Errors
    ///
    /// As for [`Gate::over`].
    pub fn over(mut config: Config, transport: Transport) -> Result<Self, tidegate::Error> {
        config.targets.iter_mut().chain([&mut config.default_target]).for_each(configure_for_batch);
        let meter = QueueMeter::default();
        Ok(Self { gate: Gate::over(config, meter.over(transport))?, meter })
    }

    /// Returns the gate.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Sends lines until there are no more, or `stop` becomes true. After a stop, calls in flight
    /// finish before the run ends.
    ///
    /// Each line gets one record, except lines in `found`, which a previous run has answered, and
    /// lines that a stop has left. `tell` is called on every change and once per second.
    ///
    /// # Cancellation safety
    ///
    /// Dropping the future ends all calls in flight at once. Their lines have no record, and may be
    /// billed.
    ///
    /// # Errors
    ///
    /// See [`RunError`].
    pub async fn run(
        &self,
        options: BatchOptions,
        found: AnsweredLines,
        mut lines: mpsc::Receiver<io::Result<Line>>,
        records: mpsc::Sender<WriteJob>,
        mut stop: watch::Receiver<bool>,
        mut tell: impl FnMut(&BatchProgress),
    ) -> Result<BatchProgress, RunError> {
        let mut run = RunState::new(self, options, found, records);
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        loop {
            run.begin_held();
            let pull = run.pulls();
            if !pull && run.calls.is_empty() && run.is_over() {
                break;
            }
            tokio::select! {
                line = lines.recv(), if pull => run.read(line.transpose()?).await?,
                Some(ended) = run.calls.join_next() => run.ended(ended?).await?,
                () = self.meter.changed() => run.window.sent(self.meter.waiting()),
                _ = tick.tick() => {
                    run.window.tick();
                    run.send(WriteJob::Tick).await?;
                }
                () = stop_requested(&mut stop), if run.progress.ended.is_none() => run.progress.ended = Some(BatchEnd::Stopped),
            }
            run.update_progress();
            tell(&run.progress);
        }
        let rest = run.streak.take_held();
        run.write(rest).await?;
        run.update_progress();
        tell(&run.progress);
        Ok(run.progress)
    }
}

/// Waits until a stop is requested. Waits forever if no stop can be requested any more.
async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}

fn configure_for_batch(target: &mut TargetConfig) {
    target.deadline = QUEUE_TIMEOUT;
    target.wait = None;
    target.on_full = OnFull::Wait;
    target.predict = Predict::Off;
    let room = TargetConfig::new("");
    target.queue = target.queue.max(room.queue);
    target.backlog = target.backlog.max(room.backlog);
    for tenant in target.tenants.values_mut().chain([&mut target.default_tenant]) {
        tenant.queue = None;
    }
    for lane in &mut target.lanes {
        (lane.wait, lane.queue) = (None, None);
    }
    target.retry.attempts = target.retry.attempts.max(MIN_ATTEMPTS);
    target.retry.ratio = target.retry.ratio.max(MIN_RETRY_BUDGET.0);
    target.retry.reserve = target.retry.reserve.max(MIN_RETRY_BUDGET.1);
}

/// A request that may have to wait for a ceiling.
struct HeldRequest {
    number: u64,
    line: (u64, crate::input::Checksum),
    custom_id: String,
    ready: PreparedRequest,
    most: Spend,
}

/// A call that has ended.
struct EndedCall {
    number: u64,
    record: Record,
    came: (Option<tidegate::protocol::Usage>, bool),
    most: Spend,
    bytes: usize,
}

/// State of a run.
struct RunState<'a> {
    batch: &'a Batch,
    options: BatchOptions,
    found: AnsweredLines,
    records: mpsc::Sender<WriteJob>,
    window: ReadAhead,
    calls: JoinSet<EndedCall>,
    bytes: usize,
    tracker: SpendTracker,
    streak: FailureStreak<(u64, Record)>,
    order: ReorderBuffer<Record>,
    /// Number of lines that have become records or calls so far.
    begun: u64,
    held: Option<HeldRequest>,
    ids: HashSet<u64>,
    hasher: RandomState,
    progress: BatchProgress,
    started: Instant,
}

impl<'a> RunState<'a> {
    fn new(
        batch: &'a Batch,
        options: BatchOptions,
        found: AnsweredLines,
        records: mpsc::Sender<WriteJob>,
    ) -> Self {
        Self {
            batch,
            records,
            window: ReadAhead::default(),
            calls: JoinSet::new(),
            bytes: 0,
            tracker: SpendTracker::new(options.prices, options.ceilings),
            streak: FailureStreak::new(options.max_consecutive_failures),
            order: ReorderBuffer::default(),
            begun: 0,
            held: None,
            ids: HashSet::new(),
            hasher: RandomState::new(),
            progress: BatchProgress::default(),
            started: Instant::now(),
            options,
            found,
        }
    }

    fn open(&self) -> OpenCalls {
        OpenCalls { calls: self.calls.len(), waiting: self.batch.meter.waiting(), bytes: self.bytes }
    }

    fn pulls(&self) -> bool {
        self.progress.ended.is_none()
            && self.held.is_none()
            && self.window.wants(&self.open())
            && (!self.options.ordered || self.order.early() < MAX_EARLY_RECORDS || self.calls.is_empty())
    }

    fn is_over(&self) -> bool {
        self.progress.ended.is_some()
    }

    /// Handles the next line, or the end of the input.
    async fn read(&mut self, line: Option<Line>) -> Result<(), RunError> {
        let Some(line) = line else {
            self.progress.ended = Some(BatchEnd::Whole);
            return Ok(());
        };
        self.progress.read += 1;
        self.progress.line = line.number;
        let asked = match &line.text {
            Some(text) => parse_request(line.number, text, &self.options.overrides),
            None => {
                let text = format!("line {} is too long", line.number);
                Err((format!("line-{}", line.number), LineError::new("line_too_long", text)))
            }
        };
        let id = match &asked {
            Ok(Request { custom_id, .. }) | Err((custom_id, _)) => custom_id,
        };
        let is_new = self.ids.insert(self.hasher.hash_one(id));
        match self.found.matches(&line) {
            Some(true) => {
                self.progress.skipped += 1;
                return Ok(());
            }
            Some(false) => return Err(RunError::InputChanged(line.number)),
            None => {}
        }
        let number = self.begun;
        self.begun += 1;
        let (custom_id, fault) = match asked {
            Ok(Request { custom_id, path, body }) if is_new => {
                let base = &self.options.base;
                let uri = request_url(base, &path).ok_or_else(|| RunError::InvalidBase(base.clone()))?;
                let ready = PreparedRequest::new(uri, &self.options.headers, body, self.options.read_timeout);
                let most = self.tracker.maximum(&ready.facts);
                self.held =
                    Some(HeldRequest { number, line: (line.number, line.sum), custom_id, ready, most });
                return Ok(());
            }
            Ok(Request { custom_id, .. }) => {
                let text = format!("line {}: its \"custom_id\" repeats that of an earlier line", line.number);
                (custom_id, LineError::new("duplicate_custom_id", text))
            }
            Err(wrong) => wrong,
        };
        let record =
            Record { line: line.number, sum: line.sum, custom_id, outcome: LineOutcome::Failed(fault) };
        self.progress.malformed += 1;
        self.write(vec![(number, record)]).await
    }

    /// Starts the held call, if ceilings allow it.
    fn begin_held(&mut self) {
        let Some(HeldRequest { number, line, custom_id, ready, most }) = self.held.take() else { return };
        if self.progress.ended == Some(BatchEnd::Stopped) {
            return;
        }
        if !self.tracker.allows(&most) {
            if self.calls.is_empty() {
                self.progress.ended = Some(BatchEnd::Ceiling);
            } else {
                // The calls in flight may use less than they could.
                self.held = Some(HeldRequest { number, line, custom_id, ready, most });
            }
            return;
        }
        self.tracker.begin(&most);
        let bytes = ready.body.len();
        self.bytes += bytes;
        let (client, unsent) = (self.batch.gate.client(), self.batch.meter.call());
        self.calls.spawn(async move {
            let CallResult { outcome, usage, broke_off } = ready.ask(client, unsent).await;
            let record = Record { line: line.0, sum: line.1, custom_id, outcome };
            EndedCall { number, record, came: (usage, broke_off), most, bytes }
        });
    }

    /// Handles an ended call.
    async fn ended(&mut self, over: EndedCall) -> Result<(), RunError> {
        let EndedCall { number, record, came: (usage, broke_off), most, bytes } = over;
        self.bytes -= bytes;
        self.tracker.end(&most, usage, broke_off);
        let (blame, last) = (FailureSource::of(&record), failure_message(&record));
        match self.streak.put((number, record), blame) {
            StreakDecision::Write(records) => self.write(records).await,
            StreakDecision::Hold => Ok(()),
            StreakDecision::Stop => {
                Err(RunError::TooManyFailures { count: self.options.max_consecutive_failures, last })
            }
        }
    }

    /// Sends records to the writer, in input order if requested.
    async fn write(&mut self, records: Vec<(u64, Record)>) -> Result<(), RunError> {
        let mut due = Vec::with_capacity(records.len());
        for (number, record) in records {
            if record.outcome.is_good() {
                self.progress.good += 1;
            } else {
                self.progress.failed += 1;
            }
            if self.options.ordered {
                self.order.put(number, record, |record| due.push(record));
            } else {
                due.push(record);
            }
        }
        for record in due {
            self.send(WriteJob::Record(record)).await?;
        }
        Ok(())
    }

    async fn send(&self, job: WriteJob) -> Result<(), RunError> {
        self.records.send(job).await.map_err(|_| RunError::Output)
    }

    fn update_progress(&mut self) {
        let open = self.open();
        let progress = &mut self.progress;
        (progress.open, progress.waiting) = (open.calls as u64, open.waiting as u64);
        progress.spend = self.tracker.spent;
        progress.seconds = self.started.elapsed().as_secs_f64();
    }
}

/// Returns the message of a failure.
fn failure_message(record: &Record) -> String {
    match &record.outcome {
        LineOutcome::Answered(ProviderResponse { status, body, .. }) => {
            let text: String = body.get().chars().take(300).collect();
            format!("{status} {text}")
        }
        LineOutcome::Failed(fault) => fault.message.clone(),
    }
}
