//! The `tidegate` command line: one module per subcommand.

mod check;
mod run;
mod signals;
mod sim;
mod sweep;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Lets through as many calls to each language model as it can take right now.
#[derive(Parser)]
#[command(name = "tidegate", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a model of a vLLM deployment over HTTP: real sockets, simulated engines
    Sim(sim::Args),
    /// Find the cap at which a server serves the most, and what binds there
    Sweep(Box<sweep::Args>),
    /// Send each line of a file to a model, and write each answer as a line; resumes by itself
    Run(Box<run::Args>),
    /// Check a configuration file, and say what it means
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

/// Why a subcommand ended badly.
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// What the user gave cannot work (2, as for a wrong flag).
    fn usage(text: impl Into<String>) -> Self {
        Self { code: 2, text: text.into() }
    }

    /// The machine would not (1).
    fn runtime(text: impl Into<String>) -> Self {
        Self { code: 1, text: text.into() }
    }
}
