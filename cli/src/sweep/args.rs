//! Command-line flags of `tidegate sweep`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use tidegate_sweep::Api;

use crate::flag_values::{count, duration};

const AFTER_HELP: &str = "\
The sweep sends equal work through a gate, with its retries and its handling of Retry-After, and raises the cap
of the gate step by step. It reports the cap above which the server does not get faster, with its confidence
interval and the limit that it reached. The expected cost is printed before anything is sent.

The first Ctrl-C ends the sweep with a partial result, the second ends it at once. A sweep with --out can be
continued with --resume.

Exit codes:
  0  a cap was found
  1  the server could not be measured, or the result could not be written
  2  a flag, a file or a key is wrong
  3  no cap was found: the sweep was stopped, reached a ceiling, or this client could not keep the cap busy;
     or the cap is below --at-least but no higher cap was measured, or reaches it but is not confirmed
  5  the cap is below --at-least
  130  ended by a second Ctrl-C, without a result";

/// Measure the concurrency cap of a server, and print the configuration to paste
#[derive(ClapArgs)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Base URL of the server (http://localhost:8000/v1), or URL of the endpoint itself
    #[arg(long)]
    pub(super) url: Option<String>,
    /// Model to call
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// Target of --config that gives the URL, model, key, retries, rates and objective; flags
    /// override it
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(super) target: Option<String>,
    /// Configuration file (TOML) with the target
    #[arg(long, value_name = "FILE", requires = "target")]
    pub(super) config: Option<PathBuf>,
    /// Kind of endpoint [default: inferred from the URL, otherwise chat]
    #[arg(long, value_enum)]
    pub(super) api: Option<Kind>,
    /// Environment variable that holds the API key [default: the `key_env` of the target, otherwise
    /// the usual variable of a well-known provider]
    #[arg(long, value_name = "VAR")]
    pub(super) key_env: Option<String>,

    /// Mean prompt length in tokens [default: 512]
    #[arg(long, value_name = "N", help_heading = "Workload", conflicts_with_all = ["trace", "prompts"])]
    pub(super) input_tokens: Option<u64>,
    /// Mean maximum answer length in tokens; with --prompts, the maximum for requests without one
    /// [default: 128]
    #[arg(long, value_name = "N", help_heading = "Workload", conflicts_with = "trace")]
    pub(super) output_tokens: Option<u64>,
    /// Coefficient of variation of the lengths, which are log-normal: 0 (all equal) to 3 [default:
    /// 0]
    #[arg(long, value_name = "X", help_heading = "Workload", conflicts_with_all = ["trace", "prompts"])]
    pub(super) spread: Option<f64>,
    /// CSV file of lengths: columns input,output, or Azure's
    /// TIMESTAMP,ContextTokens,GeneratedTokens
    #[arg(long, value_name = "FILE", help_heading = "Workload", conflicts_with = "prompts")]
    pub(super) trace: Option<PathBuf>,
    /// JSONL file of your own requests: bodies, OpenAI batch lines, or {"prompt": "..."}; sent in
    /// file order at each cap
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    pub(super) prompts: Option<PathBuf>,
    /// Force answers to their maximum length with vLLM's ignore_eos, which hosted providers reject;
    /// with --prompts, each request needs a maximum
    #[arg(long, help_heading = "Workload")]
    pub(super) exact_output: bool,
    /// Seed of the prompts, the lengths and their order [default: 1]
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub(super) seed: Option<u64>,

    /// First cap to measure [default: 4]
    #[arg(long, value_name = "CAP", help_heading = "Search")]
    pub(super) start: Option<usize>,
    /// Lowest cap to measure [default: 1]
    #[arg(long, value_name = "CAP", help_heading = "Search")]
    pub(super) min_cap: Option<usize>,
    /// Highest cap to measure [default: 512]
    #[arg(long, value_name = "CAP", help_heading = "Search")]
    pub(super) max_cap: Option<usize>,
    /// Objective for the time from admission to first token (500ms, 2s); slower calls do not count
    /// as goodput [default: none]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Search")]
    pub(super) ttft: Option<Duration>,
    /// Objective for the mean time between tokens (50ms); slower calls do not count as goodput
    /// [default: none]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Search")]
    pub(super) tpot: Option<Duration>,
    /// Share by which the goodput at the reported cap may be below the best one [default: 0.02]
    #[arg(long, value_name = "SHARE", help_heading = "Search")]
    pub(super) tolerance: Option<f64>,
    /// Share of failed attempts above which the sweep rejects a cap [default: 0.03]
    #[arg(long, value_name = "SHARE", help_heading = "Search")]
    pub(super) too_many: Option<f64>,
    /// Confidence level of the intervals, between 0 and 1 [default: 0.95]
    #[arg(long, value_name = "SHARE", help_heading = "Search")]
    pub(super) confidence: Option<f64>,

    /// Price per million prompt tokens
    #[arg(long, value_name = "MONEY", help_heading = "Cost and ceilings", requires = "price_out")]
    pub(super) price_in: Option<f64>,
    /// Price per million answer tokens
    #[arg(long, value_name = "MONEY", help_heading = "Cost and ceilings", requires = "price_in")]
    pub(super) price_out: Option<f64>,
    /// Send no request that could raise the cost above this amount; needs --price-in and
    /// --price-out
    #[arg(long, value_name = "MONEY", help_heading = "Cost and ceilings")]
    pub(super) max_cost: Option<f64>,
    /// Send no request that could raise the tokens, prompts and answers together, above this number
    /// (500k, 2M)
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Cost and ceilings")]
    pub(super) max_tokens: Option<u64>,
    /// Stop after this time, and start no call that could end later (90s, 10m)
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Cost and ceilings")]
    pub(super) max_time: Option<Duration>,
    /// Maximum number of requests to send, including retries
    #[arg(long, value_name = "N", help_heading = "Cost and ceilings")]
    pub(super) max_calls: Option<usize>,
    /// Print the expected calls, tokens, cost and time, and send nothing
    #[arg(long, help_heading = "Cost and ceilings")]
    pub(super) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short, help_heading = "Cost and ceilings")]
    pub(super) yes: bool,

    /// Directory for report.html, result.json, steps.csv, calls.jsonl and the journal to resume
    /// from
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(super) out: Option<PathBuf>,
    /// Continue the sweep in this directory, with the same settings, of which only ceilings may
    /// change; --config, --target, --key-env and a --url with a query must be given again
    #[arg(long, value_name = "DIR", help_heading = "Output", conflicts_with = "out")]
    pub(super) resume: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,
    /// Exit with code 5 if the cap is below this one, and with code 3 if the sweep does not show
    /// whether it is; at most --max-cap
    #[arg(long, value_name = "CAP", help_heading = "Output")]
    pub(super) at_least: Option<usize>,
    /// Name of the target in the printed configuration [default: the model]
    #[arg(long, value_name = "NAME", help_heading = "Output")]
    pub(super) name: Option<String>,
}

/// The kinds of endpoint that a sweep can call.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Kind {
    Chat,
    Completions,
    Responses,
    Messages,
}

impl From<Kind> for Api {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Chat => Api::Chat,
            Kind::Completions => Api::Completions,
            Kind::Responses => Api::Responses,
            Kind::Messages => Api::Messages,
        }
    }
}
