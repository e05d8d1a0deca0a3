//! The `tidegate` command line: one module per subcommand.

mod check;
mod run;
mod signals;
mod sim;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Limits concurrent calls to language models to what each model can serve.
#[derive(Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Simulate a vLLM deployment over HTTP
    Sim(sim::Args),
    /// Measure the concurrency cap of a server, and print the configuration to paste
    Sweep(Box<sweep::Args>),
    /// Send each line of a JSONL file to a model, and write each answer as a line; resumable
    Run(Box<run::Args>),
    /// Check a configuration file, and print what each setting does
    Check(check::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Sim(args) => sim::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("tidegate: {}", failure.text);
            ExitCode::from(failure.code)
        }
    }
}

/// A failed subcommand: its exit code and the message for the user.
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// Returns a usage error (exit code 2), as for an invalid flag.
    fn usage(text: impl Into<String>) -> Self {
        Self { code: 2, text: text.into() }
    }

    /// Returns a runtime error (exit code 1).
    fn runtime(text: impl Into<String>) -> Self {
        Self { code: 1, text: text.into() }
    }
}
