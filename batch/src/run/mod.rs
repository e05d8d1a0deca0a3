//! Takes lines through a gate.

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
use crate::output::{AnsweredLines, LineError, LineOutcome, ProviderResponse, Record};
use crate::read_ahead::{OpenCalls, ReadAhead};
use crate::reorder::ReorderBuffer;
use crate::request_url::request_url;

/// A call may wait for so long: in the queue, for quotas, out of cool-downs. The longest that a gate knows.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);
/// Attempts of one call, where fewer are configured: a line that fails is work for somebody.
const MIN_ATTEMPTS: u32 = 8;
/// Retries earned by a call, and what need not be earned, where less is configured: nobody waits, and slots and quotas bound them anyway.
const MIN_RETRY_BUDGET: (f64, u32) = (1.0, 100);
/// Records that may wait for an earlier one, where their order counts.
const MAX_EARLY_RECORDS: usize = 4_096;

/// How a run is to go.
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// The provider's base URL, with its version or without.
    pub base: Uri,
    /// Headers of every request: the credential.
    pub headers: HeaderMap,
    /// What is wanted of every line.
    pub overrides: RequestOverrides,
    /// Whether records are to stand in the order of their lines.
    pub ordered: bool,
    /// For a million tokens.
    pub prices: Prices,
    /// What must not be gone beyond.
    pub ceilings: Ceilings,
    /// The longest silence of the upstream. Default: 10 min.
    pub read_timeout: Duration,
    /// Failures in a row after which nothing is believed to work any more; 0: go on for ever. Default: 20.
    pub max_consecutive_failures: usize,
}

impl BatchOptions {
    /// Requests to that base URL.
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

/// What a run tells whoever writes.
#[derive(Debug)]
pub enum WriteJob {
    /// Write this.
    Record(Record),
    /// A second has passed.
    Tick,
}

/// Why a run cannot go on. What was written stays, and a next run goes on from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The input cannot be read.
    #[error("the input cannot be read: {0}")]
    Input(#[from] io::Error),
    /// Nobody writes any more.
    #[error("the output cannot be written")]
    Output,
    /// A line that was answered before has another text now.
    #[error(
        "line {0} of the input is not the one that was answered before: write to another output, or begin anew (--overwrite)"
    )]
    InputChanged(u64),
    /// Nothing works.
    #[error(
        "{count} lines in a row have failed, the last with: {last}. They are not in the output, and are asked for again by the next run"
    )]
    TooManyFailures {
        /// How many.
        count: usize,
        /// What the last one said.
        last: String,
    },
    /// No URL can be made of the base URL.
    #[error("{0} is no base URL of an API")]
    InvalidBase(Uri),
    /// A bug.
    #[error("a call panicked: {0}")]
    Panicked(#[from] JoinError),
}

/// A gate for batches: nobody waits for a single call, and none is given up because of the queue.
#[derive(Clone, Debug)]
pub struct Batch {
    gate: Gate,
    meter: QueueMeter,
}

impl Batch {
    /// The configuration's limits, rates and pools; but waits, deadlines and predictions that are for people are none for a batch, and calls are repeated more
    /// often.
    ///
    /// # Errors
    /// As [`Gate::over`].
    pub fn over(mut config: Config, transport: Transport) -> Result<Self, tidegate::Error> {
        config.targets.iter_mut().chain([&mut config.default_target]).for_each(configure_for_batch);
        let meter = QueueMeter::default();
        Ok(Self { gate: Gate::over(config, meter.over(transport))?, meter })
    }

    /// The gate.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Answers lines until there are no more, or `stop` becomes true: then what is in flight ends, and the run with it.
    ///
    /// Each line becomes one record, but for those in `found`, which a run before has answered, and those that a stop has left. `tell` is called when something has
    /// changed, and once a second.
    ///
    /// *Cancellation safety*: dropping the future ends what is in flight at once; those lines have no record, and may be billed.
    ///
    /// # Errors
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
        let rest = run.streak.rest();
        run.write(rest).await?;
        run.update_progress();
        tell(&run.progress);
        Ok(run.progress)
    }
}

/// Resolves when a stop is asked for: never, where nobody is left who could ask.
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

/// A line that may have to wait for a ceiling.
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
    came: (Option<tidegate::wire::Usage>, bool),
    most: Spend,
    bytes: usize,
}

/// A run under way.
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
    /// Lines that become records, so far.
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

    /// Takes what was read: a line, or the end.
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
                let text = format!("line {}: its \"custom_id\" is that of a line before", line.number);
                (custom_id, LineError::new("duplicate_custom_id", text))
            }
            Err(wrong) => wrong,
        };
        let record =
            Record { line: line.number, sum: line.sum, custom_id, outcome: LineOutcome::Failed(fault) };
        self.progress.malformed += 1;
        self.write(vec![(number, record)]).await
    }

    /// Begins the call that was read last, where ceilings allow.
    fn begin_held(&mut self) {
        let Some(HeldRequest { number, line, custom_id, ready, most }) = self.held.take() else { return };
        if self.progress.ended == Some(BatchEnd::Stopped) {
            return;
        }
        if !self.tracker.allows(&most) {
            if self.calls.is_empty() {
                self.progress.ended = Some(BatchEnd::Ceiling);
            } else {
                // What is under way may take less than it could.
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

    /// A call has ended.
    async fn ended(&mut self, over: EndedCall) -> Result<(), RunError> {
        let EndedCall { number, record, came: (usage, broke_off), most, bytes } = over;
        self.bytes -= bytes;
        self.tracker.end(&most, usage, broke_off);
        let (blame, last) = (FailureSource::of(&record), told(&record));
        match self.streak.put((number, record), blame) {
            StreakDecision::Write(records) => self.write(records).await,
            StreakDecision::Hold => Ok(()),
            StreakDecision::Stop => {
                Err(RunError::TooManyFailures { count: self.options.max_consecutive_failures, last })
            }
        }
    }

    /// Hands records on, in their order where that is wanted.
    async fn write(&mut self, records: Vec<(u64, Record)>) -> Result<(), RunError> {
        let mut due = Vec::with_capacity(records.len());
        for (number, record) in records {
            *(if record.outcome.is_good() { &mut self.progress.good } else { &mut self.progress.failed }) +=
                1;
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

/// What a person is told of a failure.
fn told(record: &Record) -> String {
    match &record.outcome {
        LineOutcome::Answered(ProviderResponse { status, body, .. }) => {
            let text: String = body.get().chars().take(300).collect();
            format!("{status} {text}")
        }
        LineOutcome::Failed(fault) => fault.message.clone(),
    }
}
