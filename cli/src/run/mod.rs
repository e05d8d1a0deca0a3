//! `tidegate run INPUT -o OUTPUT`: sends a file of requests through the gate.

mod file_id;
mod input;
mod progress;
mod provider;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use http::header::LOCATION;
use http::{Method, Request, Response, Uri};
use tidegate::transport::Http;
use tidegate::{ErrorKind, RequestBody, ResponseBody, Transport};
use tidegate_batch::{
    AnsweredLines, Batch, BatchEnd, BatchOptions, BatchProgress, Ceilings, ENDPOINT_PATHS, OpenOutputs,
    Outputs, Prices, RequestOverrides, RunError, Sink, Stop, read_lines, survey, write_records,
};
use tidegate_sweep::redacted_url;
use tokio::sync::{mpsc, watch};
use tower::ServiceExt;

use self::file_id::FileId;
use self::input::{Input, Reader};
use self::progress::{ProgressDisplay, done, format_spend};
use self::provider::Provider;
use crate::Failure;
use crate::flag_values::{count, duration};
use crate::output::{note, print_line};
use crate::signals::{count_signals, received, stop_requests};

/// Number of input lines that are read before the run asks for them. A line may have 32 MiB.
const LINES_READ_AHEAD: usize = 8;
/// Capacity of the channel of records, in items.
const RECORD_CAPACITY: usize = 256;
/// Time after the second signal in which the answers that were received can still be written.
const WRITE_GRACE: Duration = Duration::from_secs(5);

const AFTER_HELP: &str = "\
Input and output use OpenAI's batch format. An input line is {\"custom_id\", \"method\", \"url\", \"body\"},
or only a body ({\"model\", \"messages\", ...}).

The first Ctrl-C waits for calls in flight and sends no more, the second ends at once. The same command
without --overwrite resumes a run that was stopped or killed. A call that was in flight at a kill is sent
again, and may be billed twice.

Exit codes:
  0  every line was answered
  1  the run could not continue
  2  a flag, a file or a key is wrong
  3  the run was stopped, or reached --max-cost or --max-tokens
  4  some lines failed, in this run or in a previous run that it resumes";

/// Send each line of a JSONL file to a model, and write each answer as a line; resumable
#[derive(ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// File of requests, one per line of up to 32 MiB; `-` is standard input, .gz and .zst files
    /// are decompressed
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// File of answers, one per line; `-` is standard output, .gz and .zst files are compressed; a
    /// pipe or device cannot be resumed
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Separate file for the lines that failed [default: the output]
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,
    #[command(flatten)]
    provider: provider::ProviderArgs,
    /// Model to use instead of the model of each line
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Endpoint path for lines that are only bodies [default: inferred: chat completions or
    /// completions]
    #[arg(long, value_name = "PATH", value_parser = ENDPOINT_PATHS)]
    endpoint: Option<String>,
    /// Write answers in input order (buffers up to 4,096 early answers); a run that ends early
    /// writes the early answers, too
    #[arg(long)]
    ordered: bool,
    /// Discard existing output and start again
    #[arg(long)]
    overwrite: bool,
    /// Retry the lines in the file of --errors, and empty this file first; not with --limit
    #[arg(long, requires = "errors", conflicts_with_all = ["overwrite", "limit"])]
    retry_failed: bool,
    /// Process only the first N lines
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Maximum time without data from the server within one attempt (90s, 10m); time in the queue
    /// does not count
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = timeout)]
    timeout: Duration,
    /// Stop after this many consecutive failures that are not caused by the lines (wrong key, no
    /// credit), or when the server has been down for 30 minutes; 0 never stops. Rate limits (429)
    /// are no failures: their lines wait as long as necessary
    #[arg(long, value_name = "N", default_value_t = 20)]
    give_up_after: usize,
    /// Price per million input tokens
    #[arg(long, value_name = "MONEY", value_parser = not_negative)]
    price_in: Option<f64>,
    /// Price per million output tokens
    #[arg(long, value_name = "MONEY", value_parser = not_negative)]
    price_out: Option<f64>,
    /// Send no request, retries included, that could raise the cost of this run above this amount;
    /// needs --price-in and --price-out. Set `max_tokens` in the requests: without it, 1,024 output
    /// tokens per answer, plus its thinking limit, are assumed
    #[arg(long, value_name = "MONEY", value_parser = not_negative)]
    max_cost: Option<f64>,
    /// Send no request, retries included, that could raise the input and output tokens of this run
    /// above this number (500k, 2M); as with --max-cost, requests without `max_tokens` count as
    /// 1,024 output tokens per answer, plus its thinking limit
    #[arg(long, value_name = "N", value_parser = count)]
    max_tokens: Option<u64>,
    /// Read every line and the existing output, print the maximum tokens and cost of the lines that
    /// are not in the output, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the final summary as one line of JSON on standard output
    #[arg(long)]
    json: bool,
    /// Print no progress and no final summary
    #[arg(long)]
    quiet: bool,
}

fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text)?;
    (!timeout.is_zero()).then_some(timeout).ok_or_else(|| "must be longer than 0".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|money: &f64| money.is_finite() && *money >= 0.0)
        .ok_or_else(|| "must be a number of at least 0".to_owned())
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let overrides = RequestOverrides { model: args.model.clone(), path: args.endpoint.clone() };
    let (input, output) = (args.price_in.unwrap_or_default(), args.price_out.unwrap_or_default());
    let prices = Prices { input, output };
    let has_both = args.price_in.is_some() && args.price_out.is_some();
    if args.max_cost.is_some() && (!has_both || prices == Prices::default()) {
        return Err(Failure::usage("--max-cost needs --price-in and --price-out"));
    }
    let input = Input::new(&args.input)?;
    if args.dry_run {
        return dry_run(args, input, &overrides, prices);
    }
    check_outputs(args)?;
    let outputs = outputs(args)?;
    let provider = Provider::new(&args.provider)?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|e| Failure::runtime(format!("cannot start the async runtime: {e}")))?;
    let priced = prices != Prices::default();
    // Before the output is opened, because --overwrite discards what is in it.
    let Some(connection) = runtime.block_on(Connection::open(&provider))? else {
        return stopped_early(args, priced);
    };
    let lines = input.reopen()?;
    let prepared = runtime.block_on(prepare(args, outputs, lines, connection.signals.clone()));
    let Some(Prepared { outputs, found, total }) = prepared? else {
        // An output that is a pipe without a reader must not keep the process alive.
        runtime.shutdown_background();
        return stopped_early(args, priced);
    };
    let sink = match outputs {
        Some(outputs) => outputs.truncate().map_err(|e| Failure::usage(e.to_string()))?,
        None => Sink::stdout(),
    };
    let reported = (!args.quiet).then_some(&found).filter(|found| !found.is_empty() || found.torn > 0);
    if let Some(found) = reported {
        let torn = if found.torn > 0 {
            format!("; an incomplete last record of {} bytes was removed", found.torn)
        } else {
            String::new()
        };
        note(format_args!(
            "{}: resuming after {} answered and {} failed lines{torn}",
            args.output.display(),
            found.good,
            found.failed
        ));
    }
    let options = BatchOptions {
        base: provider.base,
        headers: provider.headers,
        overrides,
        ordered: args.ordered,
        prices,
        ceilings: Ceilings { money: args.max_cost, tokens: args.max_tokens },
        read_timeout: args.timeout,
        max_consecutive_failures: args.give_up_after,
    };
    let mut display = ProgressDisplay::new(total, prices, args.quiet);
    let failed_before = found.failed;
    let result = runtime.block_on(run_batch(args, connection, options, found, input, sink, &mut display));
    // A blocked reader of standard input or an abandoned call must not keep the process alive.
    runtime.shutdown_background();
    let progress = display.last();
    // Also of a run that has failed, because its answers were paid for.
    let shown = summary(args, progress, priced);
    result?;
    shown?;
    exit_status(args, progress, failed_before)
}

/// Returns an error if an output is the input, or if two outputs would be mixed in one file.
fn check_outputs(args: &Args) -> Result<(), Failure> {
    let outputs = || [Some(&args.output), args.errors.as_ref()].into_iter().flatten();
    let input = FileId::from_input(&args.input);
    if let Some(path) = outputs().find(|path| input.is_some() && FileId::from_output(path) == input) {
        return Err(Failure::usage(format!(
            "{} is the same file as the input; write to another file",
            path.display()
        )));
    }
    let stdout = FileId::from_stdout();
    let is_stdout =
        |path: &&PathBuf| is_stdio(path) || (stdout.is_some() && FileId::from_output(path) == stdout);
    if args.json
        && let Some(path) = outputs().find(is_stdout)
    {
        return Err(Failure::usage(format!(
            "--json and {} both write to standard output; write the answers to a file",
            path.display()
        )));
    }
    Ok(())
}

/// Returns the output files, or `None` for standard output.
fn outputs(args: &Args) -> Result<Option<Outputs>, Failure> {
    if is_stdio(&args.output) {
        if args.errors.is_some() || args.overwrite {
            return Err(Failure::usage(
                "--errors and --overwrite need an output file; -o - is standard output",
            ));
        }
        return Ok(None);
    }
    if args.errors.as_deref().is_some_and(is_stdio) {
        return Err(Failure::usage("--errors needs a file; without --errors, failures are in the output"));
    }
    let is_one_file = |errors: &PathBuf| {
        let id = FileId::from_output(errors);
        let new = new_file(errors);
        (new.is_some() && new == new_file(&args.output))
            || (id.is_some() && id == FileId::from_output(&args.output))
    };
    if args.errors.as_ref().is_some_and(is_one_file) {
        return Err(Failure::usage(
            "--errors is the output file; name another file, or leave --errors out to write failures to the output",
        ));
    }
    Ok(Some(Outputs { records: args.output.clone(), errors: args.errors.clone() }))
}

/// Returns the directory, without symbolic links, and the name of a file that does not exist yet.
/// Returns `None` if the file exists, or if its directory does not.
fn new_file(path: &Path) -> Option<(PathBuf, &OsStr)> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
    path.file_name().filter(|_| !path.exists()).map(|name| (directory, name))
}

/// The open outputs, and what is known before any request is sent.
struct Prepared {
    /// `None` is standard output.
    outputs: Option<OpenOutputs>,
    /// The input lines that the outputs answer.
    found: AnsweredLines,
    /// Number of lines of the input. `None` if the input can be read only once.
    total: Option<u64>,
}

/// Opens the outputs, and reads what is in them. Then reads the input once: progress gets a total,
/// and a changed or damaged input is found before a file is truncated or a call is paid for.
/// Returns `None` if a signal arrives before that.
async fn prepare(
    args: &Args,
    outputs: Option<Outputs>,
    lines: Option<Reader>,
    signals: watch::Receiver<usize>,
) -> Result<Option<Prepared>, Failure> {
    let (overwrite, retry_failed, limit) = (args.overwrite, args.retry_failed, args.limit);
    let open_and_count = move || {
        let (outputs, found) = match outputs {
            None => (None, AnsweredLines::default()),
            Some(outputs) => {
                let opened = if overwrite {
                    outputs.overwrite().map(|outputs| (outputs, AnsweredLines::default()))
                } else {
                    outputs.resume(retry_failed)
                };
                let (outputs, found) = opened.map_err(|e| Failure::usage(e.to_string()))?;
                (Some(outputs), found)
            }
        };
        let survey = lines.map(|lines| survey(lines, limit, &found, None)).transpose();
        let total = survey.map_err(|e| failed(&e))?.map(|survey| survey.lines);
        Ok(Prepared { outputs, found, total })
    };
    tokio::select! {
        prepared = tokio::task::spawn_blocking(open_and_count) => match prepared {
            Ok(prepared) => prepared.map(Some),
            Err(e) => Err(Failure::runtime(format!("cannot open the output: {e}"))),
        },
        () = received(signals, 1) => Ok(None),
    }
}

/// Reports that a signal has ended a run before it has sent or changed anything.
fn stopped_early(args: &Args, priced: bool) -> Result<(), Failure> {
    let progress = BatchProgress { ended: Some(BatchEnd::Stopped), ..BatchProgress::default() };
    summary(args, &progress, priced)?;
    let text = "stopped before anything was sent; run the same command again".to_owned();
    Err(Failure { code: 3, text })
}

/// A provider that was reached, and what a run needs to send requests to it.
struct Connection {
    batch: Batch,
    signals: watch::Receiver<usize>,
}

impl Connection {
    /// Checks that the provider can be reached and accepts the key. Returns `None` if a signal ends
    /// the check.
    async fn open(provider: &Provider) -> Result<Option<Self>, Failure> {
        let signals = count_signals()?;
        let http =
            Http::new(provider.config.transport.clone()).map_err(|e| Failure::runtime(e.to_string()))?;
        let transport = Transport::new(http);
        let batch = Batch::over(provider.config.clone(), transport.clone())
            .map_err(|e| Failure::usage(e.to_string()))?;
        if !provider.is_pool {
            tokio::select! {
                reached = check_provider(transport, provider) => reached?,
                () = received(signals.clone(), 1) => return Ok(None),
            }
        }
        Ok(Some(Self { batch, signals }))
    }
}

async fn run_batch(
    args: &Args,
    connection: Connection,
    options: BatchOptions,
    found: AnsweredLines,
    input: Input,
    sink: Sink,
    display: &mut ProgressDisplay,
) -> Result<(), Failure> {
    let Connection { batch, signals } = connection;
    let (send_lines, lines) = mpsc::channel(LINES_READ_AHEAD);
    let (reader, limit) = (input.lines(), args.limit);
    std::thread::Builder::new()
        .name("tidegate-read".to_owned())
        .spawn(move || read_lines(reader, limit, &send_lines))
        .map_err(|e| Failure::runtime(format!("cannot start the reader thread: {e}")))?;
    let (records, jobs) = mpsc::channel(RECORD_CAPACITY);
    let writer = tokio::task::spawn_blocking(move || write_records(sink, jobs));
    let stop = stop_requests(signals.clone(), [Stop::Finish, Stop::Cancel]);
    let mut reported = false;
    let signals_so_far = signals.clone();
    let run = batch.run(options, found, lines, records, stop, |progress| {
        if *signals_so_far.borrow() > 0 && !reported {
            reported = true;
            display.clear();
            let in_flight = progress.in_flight;
            note(format_args!(
                "stopping: waiting for {in_flight} calls in flight; press Ctrl-C again to end at once"
            ));
        }
        display.update(progress);
    });
    // The writer writes everything that was handed to it, however the run ended. It is blocked if
    // the output is a pipe that nobody reads.
    let ended = tokio::select! {
        ended = async { (run.await, writer.await) } => Some(ended),
        () = writer_is_abandoned(signals) => None,
    };
    display.clear();
    let ended_early =
        |what: &str| Failure { code: 3, text: format!("ended before {what}; {}", how_to_resume(args)) };
    let Some((result, written)) = ended else { return Err(ended_early("all answers were written")) };
    match written {
        Ok(Ok(())) => {}
        Ok(Err(e)) => return Err(Failure::runtime(format!("cannot write the output: {e}"))),
        Err(e) => return Err(Failure::runtime(format!("the writer stopped unexpectedly: {e}"))),
    }
    match result {
        Ok(progress) if progress.ended == Some(BatchEnd::Cancelled) => {
            Err(ended_early("the calls in flight"))
        }
        result => result.map(drop).map_err(|e| failed(&e)),
    }
}

/// Waits for a second signal, and then for a third one, at most [`WRITE_GRACE`].
async fn writer_is_abandoned(signals: watch::Receiver<usize>) {
    received(signals.clone(), 2).await;
    let _ = tokio::time::timeout(WRITE_GRACE, received(signals, 3)).await;
}

/// Requests the provider's model list, which is free, to check that the provider can be reached and
/// accepts the key. Bypasses the gate, because the gate would wait for a server that is down.
///
/// # Errors
///
/// Returns a runtime error if the provider cannot be reached, answers with 401, or redirects to the
/// model list of another URL, because the transport follows no redirects. Any other answer is
/// accepted, because some providers have no model list.
async fn check_provider(transport: Transport, provider: &Provider) -> Result<(), Failure> {
    let Provider { base, headers, variable, .. } = provider;
    let shown = redacted_url(&base.to_string());
    let models = models_url(base).map_err(|e| Failure::usage(format!("--url {shown}: {e}")))?;
    let url = redacted_url(&models.to_string());
    let mut request = Request::new(RequestBody::default());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = models;
    *request.headers_mut() = headers.clone();
    let response = tokio::time::timeout(Duration::from_secs(20), transport.oneshot(request)).await;
    match response {
        Ok(Ok(response)) if response.status() == 401 => {
            let host = base.host().unwrap_or_default();
            let what = match variable {
                Some(variable) => format!("rejected the key in {variable} (401); correct the key"),
                None => {
                    "needs a key (401); pass --key-env with the name of the variable that holds it".to_owned()
                }
            };
            Err(Failure::runtime(format!("{host} {what}")))
        }
        Ok(Ok(response)) => match moved_to(&response) {
            Some(location) => Err(Failure::runtime(format!(
                "{url} redirects to {location} ({}), and redirects are not followed; pass the base URL of the API itself",
                response.status().as_u16()
            ))),
            None => Ok(()),
        },
        Ok(Err(error))
            if matches!(
                error.kind(),
                ErrorKind::Connect | ErrorKind::ConnectTimeout | ErrorKind::Request
            ) =>
        {
            Err(Failure::runtime(format!(
                "{shown} cannot be reached ({error}); check that the URL is correct and that the server is running"
            )))
        }
        _ => Ok(()),
    }
}

/// Returns the URL of the model list below the base URL of a provider.
fn models_url(base: &Uri) -> Result<Uri, http::Error> {
    let path = match base.path().trim_end_matches('/') {
        "" => "/v1",
        path => path,
    };
    let query = base.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(format!("{path}/models{query}").parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// Returns the URL, without a user and a query, at which the requested model list is, if the
/// response redirects to it. Returns `None` for a redirect to something else, such as a page to log
/// in.
fn moved_to(response: &Response<ResponseBody>) -> Option<String> {
    let location = response.headers().get(LOCATION).filter(|_| response.status().is_redirection())?;
    let shown = redacted_url(location.to_str().ok()?);
    shown.trim_end_matches('/').ends_with("/models").then_some(shown)
}

/// Reads every line and the existing outputs, and prints how many lines are invalid, and the
/// maximum tokens and cost of those that the outputs do not answer. Sends nothing, and changes no
/// file.
fn dry_run(args: &Args, input: Input, overrides: &RequestOverrides, prices: Prices) -> Result<(), Failure> {
    let outputs = outputs(args)?.filter(|_| !args.overwrite);
    let found = outputs.map(|outputs| outputs.answered(args.retry_failed)).transpose();
    let found = found.map_err(|e| Failure::usage(e.to_string()))?.unwrap_or_default();
    let survey =
        survey(input.lines(), args.limit, &found, Some((overrides, prices))).map_err(|e| failed(&e))?;
    if args.json {
        print_line(serde_json::to_string(&survey).unwrap_or_default())?;
    } else {
        let malformed: u64 = survey.malformed.values().map(|(count, _)| count).sum();
        print_line(format_args!("{} lines, {} of them invalid", survey.lines, malformed))?;
        if survey.done > 0 {
            print_line(format_args!(
                "{} of them are in the output already, and not sent again",
                survey.done
            ))?;
        }
        for (code, (count, first)) in &survey.malformed {
            print_line(format_args!("  {code}: {count} (first: {first})"))?;
        }
        for (model, count) in &survey.models {
            print_line(format_args!("  {model}: {count} requests"))?;
        }
        print_line(format_args!("at most {}", format_spend(&survey.max_spend, prices != Prices::default())))?;
        print_line(
            "  (input estimated from its bytes; output at the maximum of each request, or 1,024 tokens per answer plus its thinking limit if it has none)",
        )?;
    }
    if survey.malformed.is_empty() {
        Ok(())
    } else {
        Err(Failure {
            code: 4,
            text: "some lines are not valid requests; correct them, or they fail in the run".to_owned(),
        })
    }
}

fn summary(args: &Args, progress: &BatchProgress, priced: bool) -> Result<(), Failure> {
    if !args.quiet {
        let earlier = if progress.skipped > 0 {
            format!(", {} skipped as already in the output", progress.skipped)
        } else {
            String::new()
        };
        let rate = (progress.good + progress.failed) as f64 / progress.seconds.max(1e-9);
        note(format_args!(
            "{} answered, {} failed{earlier}; {} in {:.1} s, {rate:.1} lines/s",
            progress.good,
            progress.failed,
            format_spend(&progress.spend, priced),
            progress.seconds,
        ));
    }
    if args.json { print_line(serde_json::to_string(progress).unwrap_or_default()) } else { Ok(()) }
}

/// Returns an error with the exit code and the message if the run ended early, or if a line failed
/// in this run or, as counted by `failed_before`, in the previous runs.
fn exit_status(args: &Args, progress: &BatchProgress, failed_before: u64) -> Result<(), Failure> {
    let early = |why: &str| Failure {
        code: 3,
        text: format!("{why} after {} lines; {}", done(progress), how_to_resume(args)),
    };
    match progress.ended {
        Some(BatchEnd::Stopped | BatchEnd::Cancelled) => Err(early("stopped")),
        Some(BatchEnd::Ceiling) => {
            Err(early("stopped because another request could exceed --max-cost or --max-tokens,"))
        }
        _ if progress.failed + failed_before > 0 => {
            let before = if failed_before > 0 {
                format!(", {failed_before} of them in previous runs")
            } else {
                String::new()
            };
            let place = match &args.errors {
                // Previous runs may have had no --errors.
                Some(errors) if failed_before > 0 => {
                    format!("{} and {}", errors.display(), args.output.display())
                }
                errors => errors.as_ref().unwrap_or(&args.output).display().to_string(),
            };
            let advice = if args.errors.is_none() && is_resumable(args) {
                "; failed lines in the output are not sent again: use --overwrite, or --errors FILE from the first run on"
            } else {
                ""
            };
            let reason = progress.last_failure.as_ref().map(|why| format!("; last failure: {why}"));
            Err(Failure {
                code: 4,
                text: format!(
                    "{} lines failed{before}; see {place}{advice}{}",
                    progress.failed + failed_before,
                    reason.unwrap_or_default()
                ),
            })
        }
        _ => Ok(()),
    }
}

fn failed(error: &RunError) -> Failure {
    Failure::runtime(error.to_string())
}

/// Returns how to continue a run that has ended early.
fn how_to_resume(args: &Args) -> &'static str {
    match (is_resumable(args), args.overwrite) {
        (true, false) => "run the same command again to resume",
        (true, true) => "run the same command without --overwrite to resume",
        (false, _) => "without an output file, it cannot be resumed",
    }
}

/// Returns `true` if the output is a regular file, from which another run can resume.
fn is_resumable(args: &Args) -> bool {
    !is_stdio(&args.output) && std::fs::metadata(&args.output).is_ok_and(|file| file.is_file())
}

fn is_stdio(path: &Path) -> bool {
    path.as_os_str() == "-"
}
