//! The `tidegate` command line: one module per subcommand.

mod api_key;
mod check;
mod find_target;
mod flag_values;
mod output;
mod run;
mod signals;
mod sim;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use http::Uri;
use tidegate::LogLevel;

use self::output::note;

/// Limits concurrent calls to language models to what each model can serve.
#[derive(Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sim(sim::Args),
    Sweep(Box<sweep::Args>),
    Run(Box<run::Args>),
    Check(check::Args),
}

fn main() -> ExitCode {
    tidegate::forward_log_lines(|level, line| {
        if level != LogLevel::Info {
            note(format_args!("tidegate: {line}"));
        }
    });
    let outcome = match Cli::parse().command {
        Command::Sim(args) => sim::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
    };
    tidegate::return_shared_slots();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            note(format_args!("tidegate: {}", failure.text));
            ExitCode::from(failure.code)
        }
    }
}

/// Reads an absolute URL, from a flag or from a target of a configuration.
///
/// # Errors
///
/// Returns what to change, without the URL, which may contain a key.
fn parse_url(text: &str) -> Result<Uri, &'static str> {
    let is_absolute = |url: &Uri| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|host| !host.is_empty())
    };
    let Some(url) = text.parse().ok().filter(is_absolute) else {
        return Err("not an absolute base URL; an example is https://api.openai.com/v1");
    };
    if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("contains a user name; leave it out, and pass the key with --key-env");
    }
    Ok(url)
}

/// The failure of a subcommand: the exit code of the process, and the message for the user.
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// Returns a failure with exit code 2: a flag, a file or the environment is wrong.
    fn usage(text: impl Into<String>) -> Self {
        Self { code: 2, text: text.into() }
    }

    /// Returns a failure with exit code 1: the subcommand could not be completed.
    fn runtime(text: impl Into<String>) -> Self {
        Self { code: 1, text: text.into() }
    }
}
