//! `tidegate sweep`: measures the highest useful concurrency cap of a server.

mod args;
mod options;
mod progress;
mod render_result;

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::SystemTime;

use tidegate::Transport;
use tidegate::config::TransportConfig;
use tidegate::transport::Http;
use tidegate_sweep::{Binding, Endpoint, Plan, Sweep, SweepEnd, SweepError, SweepOutcome, report};

pub(crate) use self::args::Args;
use self::progress::ProgressDisplay;
use crate::Failure;
use crate::output::{note, print, print_line};
use crate::signals::{count_signals, received, stop_requests};

/// Exit code if the sweep ended early or found no cap, if this client rather than the server limits
/// the cap, if the cap is below `--at-least` but no higher cap was measured, or if it reaches
/// `--at-least` but is not confirmed.
const EXIT_NO_ANSWER: u8 = 3;
/// Exit code if the cap is below `--at-least`.
const EXIT_CAP_TOO_LOW: u8 = 5;
/// Exit code if a second signal ended the process. Shells report an interrupted process like this.
const EXIT_INTERRUPTED: u8 = 130;
/// Maximum number of tokens that a sweep can use without being confirmed at a terminal, if no
/// prices are given.
const CONFIRM_ABOVE_TOKENS: f64 = 5e6;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (sweep, transport) = options::build_sweep(args)?;
    let max_cap = sweep.options().search.max_cap;
    if let Some(least) = args.at_least.filter(|least| *least > max_cap) {
        return Err(Failure::usage(format!(
            "--at-least {least} is above --max-cap, which is {max_cap}, so no sweep can reach it; raise --max-cap"
        )));
    }
    let plan = sweep.plan();
    // With --json, standard output carries only the result.
    let text = render_result::plan(&plan, &sweep.endpoint().url(), &sweep.options().model);
    if args.dry_run && args.json {
        let json =
            serde_json::to_string_pretty(&plan).map_err(|error| Failure::runtime(error.to_string()))?;
        print_line(json)?;
    } else if args.json {
        note(text.trim_end());
    } else {
        print(text)?;
    }
    if args.dry_run {
        return Ok(());
    }
    if !args.yes && !confirm(&plan, sweep.endpoint())? {
        return Err(Failure::usage("the sweep was not started; answer y, or pass --yes"));
    }
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|e| Failure::runtime(format!("cannot start the async runtime: {e}")))?;
    let outcome = runtime.block_on(measure(sweep, transport));
    runtime.shutdown_background();
    let outcome = outcome?;
    // The outcome is printed even if it cannot be saved, and saved even if it cannot be printed.
    let printed = if args.json {
        print_line(report::json(&outcome))
    } else {
        print(format_args!("\n{}", render_result::outcome(&outcome)))
    };
    if let Some(directory) = args.out.as_deref().or(args.resume.as_deref()) {
        write(directory, &outcome)?;
        if !args.json {
            print_line(format_args!("\nreport: {}", directory.join("report.html").display()))?;
        }
    }
    printed?;
    exit_status(&outcome, args.at_least)
}

/// Returns `true` if the sweep may start. Asks the user first if the sweep can cost money, or can
/// use more than [`CONFIRM_ABOVE_TOKENS`], and if standard input and standard error are terminals.
/// Then returns `false` unless the user answers `y` or `yes`. Without prices, a well-known provider
/// is assumed to cost money.
fn confirm(plan: &Plan, endpoint: &Endpoint) -> Result<bool, Failure> {
    let is_paid = endpoint.usual_key_env().is_some();
    let costs = plan.money.as_ref().map_or(is_paid, |money| money.most > 0.0);
    let tokens = plan.input_tokens.most + plan.output_tokens.most;
    let needs_confirmation = (costs || tokens > CONFIRM_ABOVE_TOKENS)
        && std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal();
    if !needs_confirmation {
        return Ok(true);
    }
    let failed = |error: std::io::Error| Failure::runtime(format!("cannot read the confirmation: {error}"));
    write!(std::io::stderr(), "Start the sweep? [y/N] ").map_err(failed)?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(failed)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

async fn measure(sweep: Sweep, transport: TransportConfig) -> Result<SweepOutcome, Failure> {
    let signals = count_signals()?;
    let pool_idle = transport.pool_idle.max(sweep.options().search.max_cap);
    let http = Http::new(TransportConfig { pool_idle, ..transport });
    let http = http.map_err(|error| Failure::runtime(error.to_string()))?;
    let sweep = sweep.began(now());
    #[cfg(unix)]
    let sweep = sweep.cpu(tidegate_sweep::cpu_monitor());
    let mut display = ProgressDisplay::new();
    let outcome = tokio::select! {
        biased;
        () = received(signals.clone(), 2) => {
            let text = "ended without a result; a sweep with --out can be continued with --resume";
            return Err(Failure { code: EXIT_INTERRUPTED, text: text.to_owned() });
        }
        outcome = sweep.run(
            Transport::new(http),
            |progress| display.show(progress),
            stop_requests(signals, [true]),
        ) => outcome,
    };
    display.end();
    outcome.map_err(|error| match error {
        SweepError::Preflight(_) | SweepError::File { .. } => Failure::runtime(error.to_string()),
        SweepError::Stopped(text) => Failure { code: EXIT_NO_ANSWER, text },
        _ => Failure::usage(error.to_string()),
    })
}

/// Returns the current date and time in RFC 3339 format, for the report.
#[allow(clippy::disallowed_methods)]
fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

fn write(directory: &Path, outcome: &SweepOutcome) -> Result<(), Failure> {
    for (name, text) in [
        ("result.json", report::json(outcome)),
        ("steps.csv", report::csv(outcome)),
        ("report.html", report::html(outcome)),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .map_err(|error| Failure::runtime(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// Returns an error with the exit code and the message if the sweep ended early, found no cap,
/// found one that this client limits, or found one that is below `at_least`, or that does not show
/// whether it is.
fn exit_status(outcome: &SweepOutcome, at_least: Option<usize>) -> Result<(), Failure> {
    let answer = &outcome.answer;
    let no_answer = |text: &str| Err(Failure { code: EXIT_NO_ANSWER, text: text.to_owned() });
    if let Some(ended) = render_result::ended(outcome.ended).filter(|_| outcome.ended != SweepEnd::Found) {
        return no_answer(ended);
    }
    let Some(cap) = answer.cap else { return no_answer(&answer.because) };
    if answer.binding == Some(Binding::Client) {
        return no_answer(
            "this client could not keep a higher cap busy, so the server's cap may be higher; run the sweep on a machine with more free CPU",
        );
    }
    match at_least {
        Some(least) if cap < least && answer.open_above => no_answer(&format!(
            "the cap is at least {cap}, but no higher one was measured, so it does not show whether the cap is at least {least}; sweep again with a higher --max-cap"
        )),
        Some(least) if cap < least => Err(Failure {
            code: EXIT_CAP_TOO_LOW,
            text: format!("the cap is {cap}, below --at-least {least}"),
        }),
        Some(least) if !answer.confirmed => no_answer(&format!(
            "the cap {cap} is not confirmed, so it does not show that the cap is at least {least}; sweep again"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cap_passes_at_least_only_if_it_is_high_enough_and_confirmed() {
        let outcome = |open_above: bool, confirmed: bool| -> SweepOutcome {
            let answer = json!({
                "cap": 8, "interval": [8, 8], "open_above": open_above, "binding": "not_reached",
                "confirmed": confirmed, "because": "", "throughput": null, "goodput": null, "rpm": null,
                "tpm": null, "notes": [],
            });
            let outcome = json!({
                "format": 1, "answer": answer, "steps": [], "spend": {}, "checks": [], "lines": "",
                "ended": {"how": "found"}, "provenance": {}, "series": [],
            });
            serde_json::from_value(outcome).unwrap()
        };
        for (open_above, confirmed, at_least, expected) in [
            (true, true, Some(8), None),
            (true, false, None, None),
            (true, false, Some(8), Some(EXIT_NO_ANSWER)),
            (true, false, Some(9), Some(EXIT_NO_ANSWER)),
            (true, true, Some(9), Some(EXIT_NO_ANSWER)),
            (false, true, Some(8), None),
            (false, false, Some(8), Some(EXIT_NO_ANSWER)),
            (false, false, Some(9), Some(EXIT_CAP_TOO_LOW)),
            (false, true, Some(9), Some(EXIT_CAP_TOO_LOW)),
        ] {
            let code =
                exit_status(&outcome(open_above, confirmed), at_least).err().map(|failure| failure.code);
            assert_eq!(code, expected, "{open_above}, {confirmed}, {at_least:?}");
        }
    }
}
