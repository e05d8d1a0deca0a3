//! Prometheus' text format, as far as it is needed: the few series that tell how an engine stands.

use std::collections::BTreeMap;

/// How a replica stood when it was asked (`/metrics`), all its engines together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineMetrics {
    /// Calls in its batches (`vllm:num_requests_running`).
    pub running: f64,
    /// Calls that wait for a place (`vllm:num_requests_waiting`).
    pub waiting: f64,
    /// The share of its memory that is taken, 0 to 1 (`vllm:kv_cache_usage_perc`), where it says so.
    pub kv_usage: Option<f64>,
    /// Tokens that its memory holds (`vllm:cache_config_info`), where it says so.
    pub kv_tokens: Option<u64>,
    /// Prompt tokens looked up in its prefix cache, and found there, since it began.
    pub prefix_queries: Option<f64>,
    /// See above.
    pub prefix_hits: Option<f64>,
    /// Prompt tokens of calls whose first token came (`vllm:prompt_tokens_total`), since it began: whole prompts, what was cached of them too.
    pub prompt_tokens: Option<f64>,
    /// Whether calls that begin alike hold the blocks of their beginning once: prefix caching is on (`vllm:cache_config_info`), and there is
    /// one engine. `false` where it does not say.
    pub shares_prefixes: bool,
}

/// How the engines behind an address stand, by the text of its `/metrics`. `None` where it does not say how many calls run and wait there.
pub fn standing(text: &[u8]) -> Option<EngineMetrics> {
    let mut sums = BTreeMap::<Series, Sum>::new();
    let mut caches_prefixes = false;
    for line in text.split(|byte| *byte == b'\n') {
        let Some(sample) = std::str::from_utf8(line).ok().and_then(Sample::read) else { continue };
        let Some(series) = Series::of(sample.name) else { continue };
        let mut value = sample.value;
        if sample.name == "vllm:cache_config_info" {
            caches_prefixes = sample.label("enable_prefix_caching") == Some("True");
            let Some(tokens) = kv_tokens(&sample) else { continue };
            value = tokens;
        }
        // NaN and infinity are not valid counts.
        if value.is_finite() && value >= 0.0 {
            let sum = sums.entry(series).or_default();
            sum.total += value;
            sum.count += 1.0;
        }
    }
    let total = |series| sums.get(&series).map(|sum| sum.total);
    let usage = sums.get(&Series::Usage).or(sums.get(&Series::OldUsage));
    Some(EngineMetrics {
        running: total(Series::Running)?,
        waiting: total(Series::Waiting)?,
        kv_usage: usage.map(|sum| (sum.total / sum.count).min(1.0)),
        kv_tokens: total(Series::Tokens).map(|tokens| tokens as u64).filter(|tokens| *tokens > 0),
        prefix_queries: total(Series::Queries).or(total(Series::OldQueries)),
        prefix_hits: total(Series::Hits).or(total(Series::OldHits)),
        prompt_tokens: total(Series::Prompts),
        // Each of several engines holds a beginning of its own.
        shares_prefixes: caches_prefixes && sums.get(&Series::Tokens).is_some_and(|sum| sum.count == 1.0),
    })
}

/// Sum of a series over its labels (engines and models).
#[derive(Default)]
struct Sum {
    total: f64,
    count: f64,
}

/// A series that is read. Series that were renamed may be reported under both names. They are kept
/// apart, and the newer name counts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Series {
    Running,
    Waiting,
    Usage,
    OldUsage,
    Tokens,
    Queries,
    OldQueries,
    Hits,
    OldHits,
    Prompts,
}

impl Series {
    fn of(name: &str) -> Option<Self> {
        Some(match name.strip_suffix("_total").unwrap_or(name) {
            "vllm:num_requests_running" | "sglang:num_running_reqs" => Self::Running,
            "vllm:num_requests_waiting" | "sglang:num_queue_reqs" => Self::Waiting,
            "vllm:kv_cache_usage_perc" | "sglang:token_usage" => Self::Usage,
            "vllm:gpu_cache_usage_perc" => Self::OldUsage,
            "vllm:prefix_cache_queries" => Self::Queries,
            "vllm:gpu_prefix_cache_queries" => Self::OldQueries,
            "vllm:prefix_cache_hits" => Self::Hits,
            "vllm:gpu_prefix_cache_hits" => Self::OldHits,
            "vllm:prompt_tokens" => Self::Prompts,
            "sglang:max_total_num_tokens" | "vllm:cache_config_info" => Self::Tokens,
            _ => return None,
        })
    }
}

/// Returns the KV-cache tokens of one engine, from the labels of its configuration. Returns `None`
/// if they are unknown.
fn kv_tokens(sample: &Sample<'_>) -> Option<f64> {
    let label = |name| sample.label(name)?.parse::<u64>().ok().filter(|number| *number > 0);
    let tokens = label("kv_cache_size_tokens");
    let blocks = || label("num_gpu_blocks")?.checked_mul(label("block_size")?);
    tokens.or_else(blocks).map(|tokens| tokens as f64)
}

/// A sample line: `name{label="value",...} number`, with an optional timestamp.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    /// Parses a line. Returns `None` for comments and invalid samples.
    fn read(line: &'a str) -> Option<Self> {
        let line = line.trim();
        let end = line.find(['{', ' ', '\t', '#'])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_at_checked(closing(rest)?)?,
            None => ("", rest),
        };
        let value = rest.trim_start_matches('}').split_ascii_whitespace().next()?.parse().ok()?;
        Some(Self { name, labels, value })
    }

    /// Returns the raw value of a label. The labels read here are numbers, which need no escapes.
    fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        while let Some((label, after)) = rest.split_once("=\"") {
            let end = quote(after)?;
            if label.trim_start_matches(',').trim() == name {
                return after.get(..end);
            }
            rest = after.get(end + 1..)?;
        }
        None
    }
}

/// Returns the end of the labels, ignoring braces within values.
fn closing(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let next = at + text.get(at..)?.find(['"', '}'])?;
        if text.as_bytes().get(next) == Some(&b'}') {
            return Some(next);
        }
        at = next + 1;
        at += quote(text.get(at..)?)? + 1;
    }
}

/// Returns the end of a value: the first quote that is not escaped.
fn quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    })
}
