//! Sends the requests of a batch through a gate.

mod failure_streak;
mod outage;
mod progress;
mod run_error;
mod send_line;
mod spend;
mod streamed_answer;
mod waiting_calls;

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use parking_lot::Mutex;
use tidegate::config::{LimitConfig, Mode, OnFull, Predict, TargetConfig};
use tidegate::{Config, Gate, Lane, Transport};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use self::failure_streak::{FailureSource, FailureStreak, StreakDecision};
use self::outage::{MAX_OUTAGE, has_no_replica};
pub use self::progress::{BatchEnd, BatchProgress, Stop};
pub use self::run_error::RunError;
use self::send_line::{CallResult, PreparedRequest, Streaming, WaitReason};
pub(crate) use self::spend::SpendTracker;
use self::spend::{CallSpend, SettledOnDrop};
pub use self::spend::{Ceilings, Prices, Spend};
use self::waiting_calls::{QueueMeter, QueuedCall};
use crate::input::{Line, Request, RequestOverrides, parse_request};
use crate::line_error::LineError;
use crate::output::{AnsweredLines, LineOutcome, ProviderResponse, Record};
use crate::read_ahead::{OpenCalls, ReadAhead};
use crate::reorder::ReorderBuffer;
use crate::request_url::request_url;

/// Maximum time that a call may wait in the queue, for quotas, and for cool-downs: 30 days, the
/// longest that a gate allows.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);
/// Minimum number of attempts per call, even if the configuration has fewer.
const MIN_ATTEMPTS: u32 = 8;
/// Minimum retry budget, even if the configuration has less: retries per call of the last 10 s, and
/// retries allowed in addition. A batch can afford many retries, because nobody waits for a single
/// call, and slots and quotas bound the retries.
const MIN_RETRY_BUDGET: (f64, u32) = (1.0, 100);
/// Maximum number of completed records that wait for the records of earlier lines if
/// [`BatchOptions::ordered`] is set. At this number, no more lines are read while calls are open.
const MAX_EARLY_RECORDS: usize = 4_096;
/// Maximum number of times a request is sent if its response breaks off or is not a JSON object, or
/// if it is an error with the status of a success.
const MAX_READ_ATTEMPTS: u32 = 3;
/// Delay before a request that was rejected because of a rate limit, or because the server is down,
/// is handed to the gate again. Doubles each time, up to [`MAX_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Maximum of the delay that starts at [`FIRST_WAIT`].
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Options of a run.
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// Base URL of the provider, to which the paths of the input lines are appended. If it has a
    /// path, the path must contain the version, as in `https://api.example/v1`; the `/v1` of the
    /// lines is then omitted.
    pub base: Uri,
    /// Headers of every request, such as the credential. Default none.
    pub headers: HeaderMap,
    /// Settings that apply to every line.
    pub overrides: RequestOverrides,
    /// Whether records are written in the order of the input. Otherwise they are written as calls
    /// end. If the run ends early, records whose earlier lines have none are written all the same,
    /// so that no answer is lost. Default `false`.
    pub ordered: bool,
    /// Prices for the cost of the run. Default 0.
    pub prices: Prices,
    /// Ceilings on the cost and tokens of the run. Default none.
    pub ceilings: Ceilings,
    /// Time without data from the provider after which a call fails. Default 10 min.
    pub read_timeout: Duration,
    /// Number of consecutive failures at which the run stops. The run also stops if the server has
    /// been down for 30 minutes. 0 stops it in neither case. Rejections because of a rate limit are
    /// no failures: their lines wait as long as necessary. Default 20.
    pub max_consecutive_failures: usize,
}

impl BatchOptions {
    /// Returns the default options for a base URL.
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

/// A job for the thread that writes the output; see [`write_records`](crate::write_records).
#[derive(Debug)]
pub enum WriteJob {
    /// Write this record.
    Record(Record),
    /// Call [`Sink::tick`](crate::Sink::tick), because a second has passed.
    Tick,
}

/// A gate that is configured for batches: calls wait as long as necessary, because nobody waits for
/// a single call.
#[derive(Clone, Debug)]
pub struct Batch {
    gate: Gate,
    meter: QueueMeter,
    /// Whether answers are streamed, because a target has an objective that only streams show.
    streams: bool,
}

impl Batch {
    /// Creates a gate on top of `transport`, with the limits, rates and pools of `config`. Replaces
    /// settings for interactive use: among others, calls wait up to 30 days, no call is refused
    /// because of its predicted wait, queues have at least their default length, and calls have at
    /// least 8 attempts.
    ///
    /// If a target has an adaptive limit and an objective for the time to first token (`ttft`), of
    /// its own or of the lane `batch`, chat completions and completions are requested as streams,
    /// because only a stream shows this time. The records contain the same answers as without
    /// streaming. Requests with keys whose answers could differ are not streamed, and none are
    /// after the provider has rejected a stream, or if its streams cannot be joined.
    ///
    /// # Errors
    ///
    /// Returns an error if [`Gate::over`] does, or if the mode of the gate is not
    /// [`Mode::Enforce`], because no limit would then be in force.
    pub fn over(mut config: Config, transport: Transport) -> Result<Self, tidegate::Error> {
        config.targets.iter_mut().chain([&mut config.default_target]).for_each(configure_for_batch);
        let streams =
            config.targets.iter().chain([&config.default_target]).any(|target| target.ttft.is_some());
        let meter = QueueMeter::default();
        let gate = Gate::over(config, meter.over(transport))?;
        if gate.mode() != Mode::Enforce {
            return Err(tidegate::Error::config(
                "the environment variable TIDEGATE or `mode` in the configuration disables gates, but a run needs one; unset it",
            ));
        }
        Ok(Self { gate, meter, streams })
    }

    /// Returns the gate through which all runs of this batch send.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Sends the requests in `lines` through the gate, and sends their results into `records`.
    /// Returns the final progress when the input has ended, a ceiling is reached, or a `stop` was
    /// requested, and all calls have ended. After a stop, no more requests are sent: neither those
    /// of calls in the queue, nor retries.
    ///
    /// Each line gets one record, except the lines in `answered` and the lines that have no answer
    /// because of a stop or ceiling. Calls `on_progress` after every change, once per second, and
    /// at the end, also before an error is returned.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends all calls in flight at once. Their lines get no record, and the
    /// provider may bill them. Answers that wait for those of earlier lines are lost, too.
    ///
    /// # Errors
    ///
    /// Returns [`RunError`] if the input, the output or a call prevents the run from continuing.
    /// Calls in flight end at once.
    pub async fn run(
        &self,
        options: BatchOptions,
        answered: AnsweredLines,
        lines: mpsc::Receiver<io::Result<Line>>,
        records: mpsc::Sender<WriteJob>,
        stop: watch::Receiver<Stop>,
        mut on_progress: impl FnMut(&BatchProgress),
    ) -> Result<BatchProgress, RunError> {
        let mut run = RunState::new(self, options, answered, records, stop);
        let ended = self.process_lines(&mut run, lines, &mut on_progress).await;
        run.calls.shutdown().await;
        let written = run.write_early_records().await;
        run.update_progress();
        on_progress(&run.progress);
        ended.and(written)?;
        Ok(run.progress)
    }

    /// Processes the lines until the run is over and all its calls have ended.
    async fn process_lines(
        &self,
        run: &mut RunState<'_>,
        mut lines: mpsc::Receiver<io::Result<Line>>,
        on_progress: &mut impl FnMut(&BatchProgress),
    ) -> Result<(), RunError> {
        let (mut finish, mut cancel) = (run.stop.clone(), run.stop.clone());
        let mut tick = interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.reset();
        let mut is_stopping = false;
        loop {
            run.start_held_calls();
            let pull = run.wants_line();
            if !pull && run.calls.is_empty() && run.is_over() {
                break;
            }
            tokio::select! {
                line = lines.recv(), if pull => run.on_line(line.transpose()?).await?,
                Some(ended) = run.calls.join_next() => run.on_call_ended(ended?).await?,
                () = self.meter.changed() => run.read_ahead.on_sent(self.meter.waiting()),
                _ = tick.tick() => {
                    run.read_ahead.on_tick();
                    run.check_outage()?;
                    run.send(WriteJob::Tick).await?;
                }
                () = stop_requested(&mut finish, Stop::Finish), if !is_stopping => {
                    is_stopping = true;
                    run.progress.ended.get_or_insert(BatchEnd::Stopped);
                }
                () = stop_requested(&mut cancel, Stop::Cancel) => {
                    run.cancel_calls().await?;
                    break;
                }
            }
            run.update_progress();
            on_progress(&run.progress);
        }
        if run.progress.ended == Some(BatchEnd::Complete) {
            let held_records = run.streak.take_held();
            return run.write(held_records).await;
        }
        // The next run sends the lines of failures that the provider may have caused again.
        Ok(())
    }
}

/// Waits until `stop` is at least `least`. Never completes if the sender of `stop` was dropped
/// before.
async fn stop_requested(stop: &mut watch::Receiver<Stop>, least: Stop) {
    if stop.wait_for(|stop| *stop >= least).await.is_err() {
        std::future::pending().await
    }
}

fn configure_for_batch(target: &mut TargetConfig) {
    target.deadline = QUEUE_TIMEOUT;
    target.wait = None;
    target.on_full = OnFull::Wait;
    target.predict = Predict::Off;
    let defaults = TargetConfig::new("");
    target.queue = target.queue.max(defaults.queue);
    target.backlog = target.backlog.max(defaults.backlog);
    for tenant in target.tenants.values_mut().chain([&mut target.default_tenant]) {
        tenant.queue = None;
    }
    // The limit keeps to the objective of the lane, but the objective must not bound the wait of
    // the lane's calls.
    let is_adaptive = matches!(target.limit, LimitConfig::Adaptive(_));
    target.ttft = target.lanes[Lane::Batch as usize].ttft.or(target.ttft).filter(|_| is_adaptive);
    for lane in &mut target.lanes {
        (lane.wait, lane.queue, lane.ttft) = (None, None, None);
    }
    target.retry.attempts = target.retry.attempts.max(MIN_ATTEMPTS);
    target.retry.ratio = target.retry.ratio.max(MIN_RETRY_BUDGET.0);
    target.retry.reserve = target.retry.reserve.max(MIN_RETRY_BUDGET.1);
}

/// Waits until a `stop` is requested and `call` has no request at the provider.
async fn stopped_without_request(mut stop: watch::Receiver<Stop>, call: &QueuedCall) {
    stop_requested(&mut stop, Stop::Finish).await;
    call.until_no_open_request().await;
}

/// The valid request of a line.
struct LineRequest {
    number: u64,
    line: (u64, crate::input::Checksum),
    custom_id: String,
    ready: PreparedRequest,
    /// Size of the bodies in memory.
    bytes: usize,
    /// Maximum that one request can cost.
    max_spend: Spend,
    /// Number of responses that broke off, were not JSON objects, or were errors with the status of
    /// a success.
    broken: u32,
    /// Delay of the next call, because the last one ended with a [`WaitReason`]. Zero before.
    delay: Duration,
    /// Since when the calls of the request have ended because the server was down, without another
    /// result in between. `None` if the last one did not.
    down_since: Option<Instant>,
}

/// A call that has ended.
struct EndedCall {
    request: LineRequest,
    spend: SettledOnDrop,
    /// `None` if the call ended because of a stop, without a request at the provider.
    result: Option<CallResult>,
}

/// State of [`Batch::run`].
struct RunState<'a> {
    batch: &'a Batch,
    options: BatchOptions,
    answered: AnsweredLines,
    records: mpsc::Sender<WriteJob>,
    read_ahead: ReadAhead,
    calls: JoinSet<EndedCall>,
    bytes: usize,
    tracker: Arc<Mutex<SpendTracker>>,
    streak: FailureStreak<(u64, Record)>,
    order: ReorderBuffer<Record>,
    /// Number of lines read so far that no previous run has answered. It is the position of the
    /// next such line in the order of the output; see [`RunState::order`].
    started_lines: u64,
    /// The requests whose calls are to be started, which may exceed a ceiling: the last line read,
    /// requests whose responses broke off, and requests whose retries could have exceeded a
    /// ceiling.
    held: VecDeque<LineRequest>,
    stop: watch::Receiver<Stop>,
    ids: HashSet<u64>,
    hasher: RandomState,
    streaming: Arc<Streaming>,
    progress: BatchProgress,
    started: Instant,
}

impl<'a> RunState<'a> {
    fn new(
        batch: &'a Batch,
        options: BatchOptions,
        answered: AnsweredLines,
        records: mpsc::Sender<WriteJob>,
        stop: watch::Receiver<Stop>,
    ) -> Self {
        Self {
            batch,
            records,
            stop,
            read_ahead: ReadAhead::default(),
            calls: JoinSet::new(),
            bytes: 0,
            tracker: Arc::new(Mutex::new(SpendTracker::new(options.prices, options.ceilings))),
            streak: FailureStreak::new(options.max_consecutive_failures, answered.good > 0),
            order: ReorderBuffer::default(),
            started_lines: 0,
            held: VecDeque::new(),
            ids: HashSet::new(),
            hasher: RandomState::new(),
            streaming: Arc::new(Streaming::new(batch.streams)),
            progress: BatchProgress::default(),
            started: Instant::now(),
            options,
            answered,
        }
    }

    fn open(&self) -> OpenCalls {
        OpenCalls { calls: self.calls.len(), waiting: self.batch.meter.waiting(), bytes: self.bytes }
    }

    fn wants_line(&self) -> bool {
        self.progress.ended.is_none()
            && self.held.is_empty()
            && self.read_ahead.wants_line(&self.open())
            && (!self.options.ordered || self.order.buffered() < MAX_EARLY_RECORDS || self.calls.is_empty())
    }

    fn is_over(&self) -> bool {
        self.progress.ended.is_some()
    }

    /// Processes the next line. `None` is the end of the input, after which no more lines are read.
    async fn on_line(&mut self, line: Option<Line>) -> Result<(), RunError> {
        let Some(line) = line else {
            self.progress.ended = Some(BatchEnd::Complete);
            return Ok(());
        };
        self.progress.read += 1;
        self.progress.line = line.number;
        let parsed = match &line.text {
            Some(text) => parse_request(line.number, text, &self.options.overrides),
            None => Err((format!("line-{}", line.number), LineError::line_too_long(line.number))),
        };
        let is_new = match &parsed {
            // The name of a line without a `custom_id` repeats none; see `unused_id`.
            Ok(Request { is_named: false, .. }) => true,
            Ok(Request { custom_id, .. }) | Err((custom_id, _)) => {
                self.ids.insert(self.hasher.hash_one(custom_id))
            }
        };
        match self.answered.matches(&line) {
            Some(true) => {
                self.progress.skipped += 1;
                return Ok(());
            }
            Some(false) => return Err(RunError::changed_line(line.number, &self.answered)),
            None => {}
        }
        let number = self.started_lines;
        self.started_lines += 1;
        let (custom_id, error) = match parsed {
            Ok(Request { custom_id, is_named, path, body }) if is_new => {
                let custom_id = if is_named { custom_id } else { self.unused_id(custom_id) };
                let base = &self.options.base;
                let uri = request_url(base, &path).ok_or_else(|| RunError::InvalidBase(base.clone()))?;
                let timeout = self.options.read_timeout;
                let ready =
                    PreparedRequest::new(uri, &self.options.headers, body, timeout, self.streaming.clone());
                let max_spend = self.tracker.lock().max_spend(&ready.facts);
                let (line, bytes) = ((line.number, line.sum), ready.bytes());
                self.held.push_back(LineRequest {
                    number,
                    line,
                    custom_id,
                    ready,
                    bytes,
                    max_spend,
                    broken: 0,
                    delay: Duration::ZERO,
                    down_since: None,
                });
                return Ok(());
            }
            Ok(Request { custom_id, .. }) => {
                let text = format!("line {}: its \"custom_id\" repeats that of an earlier line", line.number);
                (custom_id, LineError::new("duplicate_custom_id", text))
            }
            Err(invalid) => invalid,
        };
        let record =
            Record { line: line.number, sum: line.sum, custom_id, outcome: LineOutcome::Failed(error) };
        self.progress.malformed += 1;
        self.write(vec![(number, record)]).await
    }

    /// Returns the name of a line without a `custom_id`: `name`, or with a number after it if an
    /// earlier line has this `custom_id`.
    fn unused_id(&self, name: String) -> String {
        let is_unused = |id: &String| !self.ids.contains(&self.hasher.hash_one(id));
        if is_unused(&name) {
            return name;
        }
        (2..).map(|number: u64| format!("{name}-{number}")).find(is_unused).unwrap_or(name)
    }

    /// Starts the calls of the requests in `held`. If a call could exceed a ceiling, keeps its
    /// request while other calls are open, and ends the run if none is open. If a stop was
    /// requested, drops the requests.
    fn start_held_calls(&mut self) {
        if self.progress.ended == Some(BatchEnd::Stopped) {
            self.held.clear();
        }
        while let Some(request) = self.held.pop_front() {
            if let Some(spend) = CallSpend::reserve(&self.tracker, request.max_spend) {
                self.start_call(request, spend);
            } else if self.calls.is_empty() {
                self.held.clear();
                self.progress.ended = Some(BatchEnd::Ceiling);
            } else {
                // The calls in flight may use less than they could.
                self.held.push_front(request);
                return;
            }
        }
    }

    /// Starts the call of a request, after the delay of the request.
    fn start_call(&mut self, mut request: LineRequest, spend: Arc<CallSpend>) {
        self.bytes += request.bytes;
        let (client, meter) = (self.batch.gate.client(), self.batch.meter.clone());
        let mut stop = self.stop.clone();
        let (spend, dialect) = (SettledOnDrop(spend), request.ready.facts.dialect);
        let register = move |spend: &SettledOnDrop| meter.register_call(spend.0.clone(), dialect);
        // During its delay, a call does not count as waiting in the gate, because the gate cannot
        // send it.
        let queued = request.delay.is_zero().then(|| register(&spend));
        self.calls.spawn(async move {
            let queued = match queued {
                Some(queued) => queued,
                None => {
                    tokio::select! {
                        () = stop_requested(&mut stop, Stop::Finish) => {}
                        () = sleep(request.delay) => {}
                    }
                    register(&spend)
                }
            };
            let result = tokio::select! {
                // The order ensures that a stopped run sends nothing.
                biased;
                () = stopped_without_request(stop, &queued) => None,
                result = request.ready.send(&client, &queued) => Some(result),
            };
            EndedCall { request, spend, result }
        });
    }

    /// Cancels the calls that have not ended, and ends the run.
    async fn cancel_calls(&mut self) -> Result<(), RunError> {
        self.calls.abort_all();
        while let Some(ended) = self.calls.join_next().await {
            match ended {
                Err(error) if error.is_cancelled() => self.progress.ended = Some(BatchEnd::Cancelled),
                ended => self.on_call_ended(ended?).await?,
            }
        }
        self.progress.ended.get_or_insert(BatchEnd::Stopped);
        Ok(())
    }

    /// Settles the cost of an ended call. Writes its record, holds the record back, or returns the
    /// error that stops the run, as [`FailureStreak`] decides. Holds the request to send it again
    /// if the response broke off or was an error that may pass, if the provider has rejected it
    /// because of a rate limit or is down, or if a ceiling did not allow a retry.
    async fn on_call_ended(&mut self, call: EndedCall) -> Result<(), RunError> {
        let EndedCall { mut request, spend, result } = call;
        self.bytes -= request.bytes;
        let Some(CallResult { outcome, usage, is_above_ceiling, is_retryable, waits_for }) = result else {
            self.progress.ended = Some(BatchEnd::Stopped);
            return Ok(());
        };
        spend.0.settle(usage);
        if self.must_wait(&mut request, waits_for) {
            self.held.push_back(request);
            return Ok(());
        }
        request.broken += u32::from(is_retryable);
        if is_above_ceiling || is_retryable && request.broken < MAX_READ_ATTEMPTS {
            self.held.push_back(request);
            return Ok(());
        }
        let LineRequest { number, line: (line, sum), custom_id, .. } = request;
        let record = Record { line, sum, custom_id, outcome };
        let (source, last) = (FailureSource::from_record(&record), failure_message(&record));
        match self.streak.push((number, record), source) {
            StreakDecision::Write(records) => self.write(records).await,
            StreakDecision::Hold => Ok(()),
            StreakDecision::Stop => {
                Err(RunError::TooManyFailures { count: self.options.max_consecutive_failures, last })
            }
        }
    }

    /// Returns `true` if a request whose call has ended because of `reason` is sent again later,
    /// and sets the delay of its next call. Rate limits are waited for without end. If the server
    /// is down, the time is limited to [`MAX_OUTAGE`], unless the run never gives up.
    fn must_wait(&self, request: &mut LineRequest, reason: Option<WaitReason>) -> bool {
        let Some(reason) = reason else {
            (request.delay, request.down_since) = (Duration::ZERO, None);
            return false;
        };
        request.delay = (2 * request.delay).clamp(FIRST_WAIT, MAX_WAIT);
        if reason == WaitReason::RateLimit {
            request.down_since = None;
            return true;
        }
        let down_since = *request.down_since.get_or_insert_with(Instant::now);
        self.options.max_consecutive_failures == 0 || down_since.elapsed() <= MAX_OUTAGE
    }

    /// Returns an error if the server has been down for [`MAX_OUTAGE`], unless the run never gives
    /// up.
    fn check_outage(&self) -> Result<(), RunError> {
        let (meter, now) = (&self.batch.meter, Instant::now());
        if !self.calls.is_empty() && meter.in_flight() == 0 && has_no_replica(&self.batch.gate.snapshot()) {
            meter.outage().on_no_replica(now);
        }
        let outage = meter.outage();
        match outage.current(now, self.started) {
            Some((down_for, last))
                if down_for >= MAX_OUTAGE
                    && !outage.may_be_answered(now)
                    && self.options.max_consecutive_failures > 0 =>
            {
                Err(RunError::ServerDown { down_for, last: last.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Counts records as good or failed, and sends them to the writer. If [`BatchOptions::ordered`]
    /// is set, sends each record only after those of all earlier lines.
    async fn write(&mut self, records: Vec<(u64, Record)>) -> Result<(), RunError> {
        let mut due = Vec::with_capacity(records.len());
        for (number, record) in records {
            if record.outcome.is_good() {
                self.progress.good += 1;
            } else {
                self.progress.failed += 1;
                self.progress.last_failure = Some(failure_message(&record));
            }
            if self.options.ordered {
                self.order.push(number, record, |record| due.push(record));
            } else {
                due.push(record);
            }
        }
        for record in due {
            self.send(WriteJob::Record(record)).await?;
        }
        Ok(())
    }

    /// Sends the records that wait for those of earlier lines to the writer, in order. They wait
    /// only if the run ends early.
    async fn write_early_records(&mut self) -> Result<(), RunError> {
        for record in self.order.take_buffered() {
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
        progress.in_flight = self.batch.meter.in_flight() as u64;
        let (now, outage) = (Instant::now(), self.batch.meter.outage());
        let down_for = outage.current(now, self.started).map(|(time, _)| time);
        progress.down_seconds = down_for.map(|time| time.as_secs_f64());
        let rate_limit = outage.rate_limit(now, self.started);
        progress.rate_limited_seconds = rate_limit.map(|(time, _)| time.as_secs_f64());
        progress.rate_limit = rate_limit.map(|(_, failure)| failure.to_owned());
        drop(outage);
        progress.spend = self.tracker.lock().spent;
        progress.seconds = self.started.elapsed().as_secs_f64();
    }
}

/// Returns a text that describes the failure of a record: the error message, or the status and the
/// first 300 characters of the body.
fn failure_message(record: &Record) -> String {
    match &record.outcome {
        LineOutcome::Answered(ProviderResponse { status, body, .. }) => {
            let text: String = body.get().chars().take(300).collect();
            format!("{status} {text}")
        }
        LineOutcome::Failed(error) => error.message.clone(),
    }
}
