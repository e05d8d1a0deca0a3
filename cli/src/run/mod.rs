//! `tidegate run INPUT -o OUTPUT`: a file of requests through the gate.

mod input;
mod progress;
mod provider;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use http::{Method, Request};
use tidegate::transport::Http;
use tidegate::{ErrorKind, RequestBody, Transport};
use tidegate_batch::{
    Batch, Ceilings, Ended, Found, Options, Outputs, PATHS, Prices, Progress, RunError, Sink, Wishes, feed,
    survey, write,
};
use tokio::sync::{mpsc, watch};
use tower::ServiceExt;

use self::input::Input;
use self::progress::{ProgressDisplay, done, format_spend};
use self::provider::Provider;
use crate::Failure;
use crate::signals::{count_signals, received};

/// Lines, and records, between two threads.
const CHANNEL_CAPACITY: usize = 256;

/// Sends each line of a file to a model, through a gate, and writes each answer as a line: OpenAI's batch format in and out.
///
/// A line is {"custom_id", "method", "url", "body"}, or just a body ({"model", "messages", ...}). Started again, it goes on where it ended, however that was; a call in
/// flight at a kill is made again, and may be billed twice. Ctrl-C lets what is in flight end; a second one does not.
///
/// Exit codes: 0 every line is answered, 1 it could not go on, 2 wrong use, 3 stopped before the end, 4 some lines have failed.
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The requests, a line each; `-` is standard input, .gz and .zst are read as such
    #[arg(value_name = "INPUT")]
    input: PathBuf,
    /// The answers; `-` is standard output (from which nothing can be resumed), .gz and .zst are written as such
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write what failed to this file, and not to the output
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,
    #[command(flatten)]
    provider: provider::ProviderArgs,
    /// Ask for this model, whatever a line says
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// The path of lines that are just bodies [default: by what is in them: chat completions, completions]
    #[arg(long, value_name = "PATH", value_parser = PATHS)]
    endpoint: Option<String>,
    /// Write answers in the order of their lines (holds up to 4,096 that are early)
    #[arg(long)]
    ordered: bool,
    /// Begin anew: what is in the output is gone
    #[arg(long)]
    overwrite: bool,
    /// Ask again for what failed before; the file of --errors begins anew
    #[arg(long, requires = "errors", conflicts_with = "overwrite")]
    retry_failed: bool,
    /// Only the first N lines
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// The longest silence of the upstream in one attempt; waiting in the queue does not count
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// End after so many failures in a row that are not the lines' own (a wrong key, no credit, a dead server); 0: never
    #[arg(long, value_name = "N", default_value_t = 20)]
    give_up_after: usize,
    /// Money for a million tokens of input
    #[arg(long, value_name = "MONEY", default_value_t = 0.0, value_parser = not_negative)]
    price_in: f64,
    /// Money for a million tokens of output
    #[arg(long, value_name = "MONEY", default_value_t = 0.0, value_parser = not_negative)]
    price_out: f64,
    /// Begin no call that could make this run dearer than this, by those prices
    #[arg(long, value_name = "MONEY", value_parser = not_negative)]
    max_cost: Option<f64>,
    /// Begin no call that could make this run take more tokens than this
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
    /// Read every line, say what it would take, and ask nobody
    #[arg(long)]
    dry_run: bool,
    /// Say what it came to as one line of JSON, on standard output
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

fn not_negative(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|money: &f64| money.is_finite() && *money >= 0.0)
        .ok_or_else(|| "a number from 0 on".to_owned())
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let wishes = Wishes { model: args.model.clone(), path: args.endpoint.clone() };
    let prices = Prices { input: args.price_in, output: args.price_out };
    if args.max_cost.is_some() && prices == Prices::default() {
        return Err(Failure::usage("--max-cost means nothing without --price-in and --price-out"));
    }
    let input = Input::new(&args.input)?;
    let output = args.output.as_path();
    if args.dry_run {
        return dry_run(args, &input, &wishes, prices);
    }
    if args.json && is_stdio(output) {
        return Err(Failure::usage("--json and -o - both want standard output"));
    }
    let provider = Provider::new(&args.provider)?;
    let (sink, found) = open_output(args, &input)?;
    let told = (!args.quiet).then_some(&found).filter(|found| !found.is_empty() || found.torn > 0);
    if let Some(found) = told {
        let torn = if found.torn > 0 {
            format!("; {} bytes of a torn end are cut off", found.torn)
        } else {
            String::new()
        };
        eprintln!(
            "{}: {} lines are answered, {} have failed{torn}; going on",
            output.display(),
            found.good,
            found.failed
        );
    }
    // Counted before anything is paid for: the end is known, and an input that has changed is found.
    let total = match input.reopen()? {
        Some(lines) => {
            let survey = survey(lines, args.limit, &found, None).map_err(|e| failed(&e))?;
            Some(survey.lines)
        }
        None => None,
    };
    let runtime = tokio::runtime::Runtime::new().map_err(|e| Failure::runtime(format!("no runtime: {e}")))?;
    let options = Options {
        base: provider.base.clone(),
        headers: provider.headers.clone(),
        wishes,
        ordered: args.ordered,
        prices,
        ceilings: Ceilings { money: args.max_cost, tokens: args.max_tokens },
        patience: args.timeout,
        streak: args.give_up_after,
    };
    let display = ProgressDisplay::new(total, prices, args.quiet);
    let ran = runtime.block_on(run_batch(provider, options, found, input, sink, args.limit, display));
    // A reader of standard input, or calls that were left, must not keep the process.
    runtime.shutdown_background();
    let progress = ran?;
    summary(args, &progress, prices != Prices::default());
    exit_status(args, &progress)
}

/// Opens what is written to.
fn open_output(args: &Args, input: &Input) -> Result<(Sink, Found), Failure> {
    if is_stdio(&args.output) {
        if args.errors.is_some() || args.overwrite {
            return Err(Failure::usage("-o - has no --errors and nothing to --overwrite: name a file"));
        }
        return Ok((Sink::stdout(), Found::default()));
    }
    let outputs = Outputs { records: args.output.clone(), errors: args.errors.clone() };
    for path in [Some(&outputs.records), outputs.errors.as_ref()].into_iter().flatten() {
        if input.is_same_file(path) {
            return Err(Failure::usage(format!("{} is the input: write to another file", path.display())));
        }
    }
    if outputs.errors.as_ref() == Some(&outputs.records) {
        return Err(Failure::usage("--errors is the output: without it, what fails is written there"));
    }
    let opened = if args.overwrite {
        outputs.overwrite().map(|sink| (sink, Found::default()))
    } else {
        outputs.resume(args.retry_failed)
    };
    opened.map_err(|e| Failure::usage(format!("{e} (--overwrite begins anew)")))
}

async fn run_batch(
    provider: Provider,
    options: Options,
    found: Found,
    input: Input,
    sink: Sink,
    limit: Option<u64>,
    mut display: ProgressDisplay,
) -> Result<Progress, Failure> {
    let signals = count_signals()?;
    let http = Http::new(provider.config.transport.clone()).map_err(|e| Failure::runtime(e.to_string()))?;
    let transport = Transport::new(http);
    let batch =
        Batch::over(provider.config.clone(), transport.clone()).map_err(|e| Failure::usage(e.to_string()))?;
    tokio::select! {
        reached = async { if provider.is_pool { Ok(()) } else { check_provider(transport, &provider).await } } => reached?,
        () = received(signals.clone(), 1) => return Ok(Progress { ended: Some(Ended::Stopped), ..Progress::default() }),
    }
    let (send_lines, lines) = mpsc::channel(CHANNEL_CAPACITY);
    let reader = input.lines()?;
    std::thread::Builder::new()
        .name("tidegate-read".to_owned())
        .spawn(move || feed(reader, limit, &send_lines))
        .map_err(|e| Failure::runtime(format!("no thread: {e}")))?;
    let (records, jobs) = mpsc::channel(CHANNEL_CAPACITY);
    let writer = tokio::task::spawn_blocking(move || write(sink, jobs));
    let (stop, stopped) = watch::channel(false);
    let first = signals.clone();
    tokio::spawn(async move {
        received(first, 1).await;
        let _ = stop.send(true);
        // Kept, so that a run never takes the end of this task for the end of all who could ask.
        std::future::pending::<()>().await
    });
    let mut told = false;
    let ran = tokio::select! {
        ran = batch.run(options, found, lines, records, stopped, |progress| {
            if progress.ended == Some(Ended::Stopped) && !told {
                told = true;
                display.clear();
                eprintln!("stopping: {} calls in flight may end; once more ends at once", progress.open);
            }
            display.update(progress);
        }) => Some(ran),
        () = received(signals, 2) => None,
    };
    display.clear();
    // All that was handed over is written, however the run has ended.
    match writer.await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => return Err(Failure::runtime(format!("the output cannot be written: {e}"))),
        Err(e) => return Err(Failure::runtime(format!("the writer broke off: {e}"))),
    }
    match ran {
        Some(ran) => ran.map_err(|e| failed(&e)),
        None => {
            Err(Failure { code: 3, text: "ended at once; the same command goes on from here".to_owned() })
        }
    }
}

/// Whether the provider is there and takes the key: by the list of models, which costs nothing. Asked beside the gate, which would wait for a server that is away as
/// long as a batch does; whoever has no such list says so, and that is enough.
async fn check_provider(transport: Transport, provider: &Provider) -> Result<(), Failure> {
    let Provider { base, headers, variable, .. } = provider;
    let path = base.path().trim_end_matches('/');
    let url = format!(
        "{}://{}{}/models",
        base.scheme_str().unwrap_or_default(),
        base.authority().map(|authority| authority.as_str()).unwrap_or_default(),
        if path.is_empty() { "/v1" } else { path }
    );
    let mut request = Request::new(RequestBody::default());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = url.parse().map_err(|e| Failure::usage(format!("--url {base}: {e}")))?;
    *request.headers_mut() = headers.clone();
    let asked = tokio::time::timeout(Duration::from_secs(20), transport.oneshot(request)).await;
    match asked {
        Ok(Ok(response)) if response.status() == 401 => {
            let host = base.host().unwrap_or_default();
            let what = match variable {
                Some(variable) => format!("does not take the key in {variable} (401)"),
                None => "wants a key (401): name its variable by --key-env".to_owned(),
            };
            Err(Failure::runtime(format!("{host} {what}")))
        }
        Ok(Err(error))
            if matches!(
                error.kind(),
                ErrorKind::Connect | ErrorKind::ConnectTimeout | ErrorKind::Request
            ) =>
        {
            Err(Failure::runtime(format!("{base}: {error}")))
        }
        _ => Ok(()),
    }
}

/// Reads everything and says what it would take.
fn dry_run(args: &Args, input: &Input, wishes: &Wishes, prices: Prices) -> Result<(), Failure> {
    let lines = match input.reopen()? {
        Some(lines) => lines,
        None => input.clone().lines()?,
    };
    let found = Found::default();
    let survey = survey(lines, args.limit, &found, Some((wishes, prices))).map_err(|e| failed(&e))?;
    if args.json {
        println!("{}", serde_json::to_string(&survey).unwrap_or_default());
    } else {
        let malformed: u64 = survey.malformed.values().map(|(count, _)| count).sum();
        println!("{} lines, {} of them no requests", survey.lines, malformed);
        for (code, (count, first)) in &survey.malformed {
            println!("  {code}: {count} (the first: {first})");
        }
        for (model, count) in &survey.models {
            println!("  {model}: {count} requests");
        }
        println!("at most {}", format_spend(&survey.most, prices != Prices::default()));
        println!(
            "  (input by its bytes; output as far as each request allows, or 1,024 tokens where it does not say)"
        );
    }
    if survey.malformed.is_empty() {
        Ok(())
    } else {
        Err(Failure { code: 4, text: "some lines are no requests".to_owned() })
    }
}

fn summary(args: &Args, progress: &Progress, priced: bool) {
    if args.json {
        println!("{}", serde_json::to_string(progress).unwrap_or_default());
    }
    if !args.quiet {
        let earlier =
            if progress.skipped > 0 { format!(", {} before", progress.skipped) } else { String::new() };
        let rate = (progress.good + progress.failed) as f64 / progress.seconds.max(1e-9);
        eprintln!(
            "{} answered, {} failed{earlier}; {} in {:.1} s, {rate:.1} lines/s",
            progress.good,
            progress.failed,
            format_spend(&progress.spend, priced),
            progress.seconds,
        );
    }
}

fn exit_status(args: &Args, progress: &Progress) -> Result<(), Failure> {
    let early = |why: &str| Failure {
        code: 3,
        text: format!("{why} after {} lines; the same command goes on from here", done(progress)),
    };
    match progress.ended {
        Some(Ended::Stopped) => Err(early("stopped")),
        Some(Ended::Ceiling) => Err(early("another call could go beyond --max-cost or --max-tokens: ended")),
        _ if progress.failed > 0 => {
            let place = args.errors.as_deref().unwrap_or(&args.output);
            Err(Failure {
                code: 4,
                text: format!("{} lines have failed: see {}", progress.failed, place.display()),
            })
        }
        _ => Ok(()),
    }
}

fn failed(error: &RunError) -> Failure {
    Failure::runtime(error.to_string())
}

fn is_stdio(path: &Path) -> bool {
    path.as_os_str() == "-"
}
