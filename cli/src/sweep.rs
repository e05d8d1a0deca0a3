//! `tidegate sweep`: which cap a server bears.

mod args;
mod asked;
mod shown;
mod told;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::SystemTime;

use tidegate::Transport;
use tidegate::config::TransportConfig;
use tidegate::transport::Http;
use tidegate_sweep::{Binding, Ended, Outcome, Plan, Sweep, SweepError, report};
use tokio::sync::watch;

pub(crate) use self::args::Args;
use self::shown::Shown;
use crate::Failure;
use crate::signals::{at_least, signals};

/// There is no answer.
const NO_ANSWER: u8 = 3;
/// The answer is below what was asked for.
const TOO_LOW: u8 = 5;
/// As shells say it of what was interrupted.
const INSISTED: u8 = 130;
/// Tokens from which on somebody at a terminal is asked, where no prices are known.
const MANY_TOKENS: f64 = 5e6;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let sweep = asked::sweep(args)?;
    let plan = sweep.plan();
    // Where the result is for programs, words are beside it.
    let words = told::plan(&plan, &sweep.endpoint().url(), &sweep.options().model);
    if args.dry_run && args.json {
        println!("{}", serde_json::to_string_pretty(&plan).map_err(|error| Failure::run(error.to_string()))?);
    } else if args.json {
        eprint!("{words}");
    } else {
        print!("{words}");
    }
    if args.dry_run {
        return Ok(());
    }
    if !args.yes && !agreed(&plan)? {
        return Err(Failure::usage("not begun"));
    }
    let runtime = tokio::runtime::Runtime::new().map_err(|e| Failure::run(format!("no runtime: {e}")))?;
    let outcome = runtime.block_on(measure(sweep));
    runtime.shutdown_background();
    let outcome = outcome?;
    if let Some(directory) = args.out.as_deref().or(args.resume.as_deref()) {
        write(directory, &outcome)?;
    }
    if args.json {
        println!("{}", report::json(&outcome));
    } else {
        print!("\n{}", told::outcome(&outcome));
        if let Some(directory) = args.out.as_deref().or(args.resume.as_deref()) {
            println!("\nreport: {}", directory.join("report.html").display());
        }
    }
    judge(&outcome, args.at_least)
}

/// Asks somebody who sits there, where it will cost something.
fn agreed(plan: &Plan) -> Result<bool, Failure> {
    let costs = plan.money.as_ref().is_some_and(|money| money.most > 0.0);
    let tokens = plan.input_tokens.most + plan.output_tokens.most;
    let asks =
        (costs || tokens > MANY_TOKENS) && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !asks {
        return Ok(true);
    }
    eprint!("go on? [y/N] ");
    let failed = |error: std::io::Error| Failure::run(format!("no answer: {error}"));
    std::io::stderr().flush().map_err(failed)?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(failed)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

async fn measure(sweep: Sweep) -> Result<Outcome, Failure> {
    let signals = signals()?;
    let pool_idle = TransportConfig::default().pool_idle.max(sweep.options().search.max_cap);
    let http = Http::new(TransportConfig { pool_idle, ..TransportConfig::default() });
    let http = http.map_err(|error| Failure::run(error.to_string()))?;
    let sweep = sweep.began(now());
    #[cfg(unix)]
    let sweep = sweep.cpu(tidegate_sweep::processors());
    let (stop, stopped) = watch::channel(false);
    let mut shown = Shown::new();
    let outcome = tokio::select! {
        biased;
        () = at_least(signals.clone(), 2) => return Err(Failure { code: INSISTED, text: "interrupted".to_owned() }),
        outcome = sweep.run(Transport::new(http), |progress| shown.show(progress), stopped) => outcome,
        () = async {
            at_least(signals, 1).await;
            stop.send_replace(true);
            std::future::pending().await
        } => return Err(Failure::run("interrupted")),
    };
    shown.end();
    outcome.map_err(|error| match error {
        SweepError::Preflight(_) | SweepError::File { .. } => Failure::run(error.to_string()),
        _ => Failure::usage(error.to_string()),
    })
}

/// The moment, for the result. The only look at the wall's clock.
#[allow(clippy::disallowed_methods)]
fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

fn write(directory: &Path, outcome: &Outcome) -> Result<(), Failure> {
    for (name, text) in [
        ("result.json", report::json(outcome)),
        ("steps.csv", report::csv(outcome)),
        ("report.html", report::html(outcome)),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::run(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// The exit code.
fn judge(outcome: &Outcome, at_least: Option<usize>) -> Result<(), Failure> {
    let answer = &outcome.answer;
    let no_answer = |text: &str| Err(Failure { code: NO_ANSWER, text: text.to_owned() });
    if let Some(ended) = told::ended(outcome.ended).filter(|_| outcome.ended != Ended::Found) {
        return no_answer(ended);
    }
    let Some(cap) = answer.cap else { return no_answer(&answer.because) };
    if answer.binding == Some(Binding::Client) {
        return no_answer("this client could not hold a higher cap: the server may bear more");
    }
    match at_least {
        Some(least) if cap < least => {
            Err(Failure { code: TOO_LOW, text: format!("the cap is {cap}, below --at-least {least}") })
        }
        _ => Ok(()),
    }
}
