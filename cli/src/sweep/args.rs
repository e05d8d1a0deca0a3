//! The flags.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use tidegate::duration::{MAX, from_secs};
use tidegate_sweep::Api;

/// Holds the mix of requests constant under a backlog, raises the cap, and says: this cap, this sure, because of this limit, paste these lines.
///
/// Calls go the way of production: through a gate with one target, with its retries and its Retry-After. Before anything is sent it says what it will take. Ctrl-C ends
/// it with what is known by then; --resume goes on with it.
///
/// Exit codes: 0 a cap was found; 1 it could not be measured; 2 a flag, a file or a key is wrong; 3 there is no answer (a ceiling was reached, it was interrupted, or this client
/// could not hold the cap); 5 the cap is below --at-least.
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// Base URL of the server (http://localhost:8000/v1), or of the endpoint itself
    #[arg(long, required_unless_present_any = ["target", "resume"])]
    pub(super) url: Option<String>,
    /// The model that calls name
    #[arg(long, value_name = "NAME", required_unless_present_any = ["target", "resume"])]
    pub(super) model: Option<String>,
    /// Take URL, model, key, retries, rates and objective from this target of --config; flags go over them
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(super) target: Option<String>,
    /// The configuration file of --target
    #[arg(long, value_name = "FILE", requires = "target")]
    pub(super) config: Option<PathBuf>,
    /// The kind of endpoint [default: what the URL says, else chat]
    #[arg(long, value_enum)]
    pub(super) api: Option<Kind>,
    /// The environment variable that holds the key [default: the provider's usual one, where the host is a well-known provider's]
    #[arg(long, value_name = "VAR")]
    pub(super) key_env: Option<String>,

    /// Tokens of a prompt, in the mean [default: 512]
    #[arg(long, value_name = "N", help_heading = "What is asked", conflicts_with_all = ["trace", "prompts"])]
    pub(super) input_tokens: Option<u64>,
    /// The most tokens of an answer, in the mean; with --prompts, of those that name no maximum [default: 128]
    #[arg(long, value_name = "N", help_heading = "What is asked", conflicts_with = "trace")]
    pub(super) output_tokens: Option<u64>,
    /// How far lengths spread about their means: deviation over mean of a log-normal distribution, 0 (all the same) to 3 [default: 0]
    #[arg(long, value_name = "X", help_heading = "What is asked", conflicts_with_all = ["trace", "prompts"])]
    pub(super) spread: Option<f64>,
    /// CSV file with lengths: columns input,output, or Azure's TIMESTAMP,ContextTokens,GeneratedTokens
    #[arg(long, value_name = "FILE", help_heading = "What is asked", conflicts_with = "prompts")]
    pub(super) trace: Option<PathBuf>,
    /// JSONL file with your own requests: bodies, OpenAI batch lines, or {"prompt": "..."}; in turn, the same at each cap
    #[arg(long, value_name = "FILE", help_heading = "What is asked")]
    pub(super) prompts: Option<PathBuf>,
    /// Have answers be as long as they may be, by vLLM's ignore_eos; providers refuse that
    #[arg(long, help_heading = "What is asked")]
    pub(super) exact_output: bool,
    /// Seed of prompts, lengths and their order [default: 1]
    #[arg(long, value_name = "N", help_heading = "What is asked")]
    pub(super) seed: Option<u64>,

    /// The first cap [default: 4]
    #[arg(long, value_name = "CAP", help_heading = "The search")]
    pub(super) start: Option<usize>,
    /// The lowest cap that is looked at [default: 1]
    #[arg(long, value_name = "CAP", help_heading = "The search")]
    pub(super) min_cap: Option<usize>,
    /// The highest [default: 512]
    #[arg(long, value_name = "CAP", help_heading = "The search")]
    pub(super) max_cap: Option<usize>,
    /// From slot to first token: calls that take longer are answered, and not good [default: none]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "The search")]
    pub(super) ttft: Option<Duration>,
    /// Between tokens, in the mean of a call, likewise [default: none]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "The search")]
    pub(super) tpot: Option<Duration>,
    /// How far below the best the answer's goodput may be [default: 0.02]
    #[arg(long, value_name = "SHARE", help_heading = "The search")]
    pub(super) tolerance: Option<f64>,
    /// The share of failed attempts that is too many [default: 0.03]
    #[arg(long, value_name = "SHARE", help_heading = "The search")]
    pub(super) too_many: Option<f64>,
    /// How often intervals shall hold the truth [default: 0.95]
    #[arg(long, value_name = "SHARE", help_heading = "The search")]
    pub(super) confidence: Option<f64>,

    /// Price of a million tokens of prompts
    #[arg(long, value_name = "MONEY", help_heading = "What it may take", requires = "price_out")]
    pub(super) price_in: Option<f64>,
    /// Price of a million tokens of answers
    #[arg(long, value_name = "MONEY", help_heading = "What it may take", requires = "price_in")]
    pub(super) price_out: Option<f64>,
    /// Send nothing that could bring the cost above this
    #[arg(long, value_name = "MONEY", help_heading = "What it may take")]
    pub(super) max_cost: Option<f64>,
    /// Send nothing that could bring the tokens, in and out, above this (as 2M, 500k)
    #[arg(long, value_name = "N", value_parser = count, help_heading = "What it may take")]
    pub(super) max_tokens: Option<u64>,
    /// Send nothing that would take longer than this, and cut off what does (as 10m)
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "What it may take")]
    pub(super) max_time: Option<Duration>,
    /// Send no more requests than this, retries among them
    #[arg(long, value_name = "N", help_heading = "What it may take")]
    pub(super) max_calls: Option<usize>,
    /// Say what it would take, and send nothing
    #[arg(long, help_heading = "What it may take")]
    pub(super) dry_run: bool,
    /// Do not ask before money is spent
    #[arg(long, short, help_heading = "What it may take")]
    pub(super) yes: bool,

    /// Write report.html, result.json, steps.csv, calls.jsonl, and a journal to resume from, into this directory
    #[arg(long, value_name = "DIR", help_heading = "What comes of it")]
    pub(super) out: Option<PathBuf>,
    /// Go on with the sweep in this directory: the same settings, but for ceilings
    #[arg(long, value_name = "DIR", help_heading = "What comes of it", conflicts_with = "out")]
    pub(super) resume: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long, help_heading = "What comes of it")]
    pub(super) json: bool,
    /// End with 5 if the cap is below this one
    #[arg(long, value_name = "CAP", help_heading = "What comes of it")]
    pub(super) at_least: Option<usize>,
    /// The target's name in the lines to paste [default: the model's]
    #[arg(long, value_name = "NAME", help_heading = "What comes of it")]
    pub(super) name: Option<String>,
}

/// The kinds of endpoint.
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

/// `90s`, `10m`, or a number of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) => from_secs(seconds).ok_or_else(|| {
            format!("{seconds} is no number of seconds; give one from 0 up, or as in 90s, 10m")
        }),
        Err(_) => humantime::parse_duration(text)
            .map(|parsed| parsed.min(MAX))
            .map_err(|error| format!("{error}; as in 90s, 10m, or a number of seconds")),
    }
}

/// `500k`, `2M`, or a whole number.
fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'k' | 'K')) => (text.get(..at), 1e3),
        Some((at, 'm' | 'M')) => (text.get(..at), 1e6),
        _ => (Some(text), 1.0),
    };
    match digits.and_then(|digits| digits.parse::<f64>().ok()) {
        Some(number) if number.is_finite() && number >= 0.0 => Ok((number * unit) as u64),
        _ => Err("a whole number is expected, as in 500000, 500k or 2M".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_durations_and_counts() {
        assert_eq!([count("12"), count("1.5k"), count("2M")], [Ok(12), Ok(1_500), Ok(2_000_000)]);
        assert!(count("many").is_err() && count("").is_err() && count("-1").is_err());
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert!(duration("soon").is_err() && duration("-1").is_err());
    }
}
