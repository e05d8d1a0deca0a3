//! Reads the load and the KV-cache statistics of vLLM and SGLang engines from their `/metrics`,
//! which are in the Prometheus text format.

use std::collections::BTreeMap;

/// Load and KV-cache statistics of one address, summed over the engines behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EngineMetrics {
    /// Calls that are being executed (`vllm:num_requests_running`).
    pub running: f64,
    /// Calls in the engine's queue (`vllm:num_requests_waiting`).
    pub waiting: f64,
    /// Share of the KV cache in use, 0 to 1, averaged over the engines
    /// (`vllm:kv_cache_usage_perc`). `None` if not reported.
    pub kv_usage: Option<f64>,
    /// Capacity of the KV cache in tokens (`vllm:cache_config_info`). `None` if not reported.
    pub kv_tokens: Option<u64>,
    /// Prompt tokens looked up in the prefix cache since the engine started. `None` if not
    /// reported.
    pub prefix_queries: Option<f64>,
    /// Prompt tokens found in the prefix cache since the engine started. `None` if not reported.
    pub prefix_hits: Option<f64>,
    /// Prompt tokens, cached ones included, of all calls that have produced a token since the
    /// engine started (`vllm:prompt_tokens_total`). `None` if not reported.
    pub prompt_tokens: Option<f64>,
    /// Whether calls with a common prefix share its KV-cache blocks: prefix caching is enabled
    /// (`vllm:cache_config_info`), and one engine serves the address. `false` if not reported.
    pub shares_prefixes: bool,
}

/// Parses the text of `/metrics`. Returns `None` if it does not report the running and waiting
/// calls.
pub fn parse_metrics(text: &[u8]) -> Option<EngineMetrics> {
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

/// The sum of the samples of one series, over engines and models.
#[derive(Default)]
struct Sum {
    total: f64,
    /// Number of samples.
    count: f64,
}

/// A series that is read. A renamed series may be reported under both names, so the old name has a
/// sum of its own, which is used only without the new one.
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
    /// Returns the series that a metric name belongs to, with or without the suffix `_total`.
    /// Returns `None` for other metrics.
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

/// Returns the KV-cache capacity of one engine in tokens, from the labels of
/// `vllm:cache_config_info`. Returns `None` if they do not state it.
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

    /// Returns the value of a label, or `None` if the sample has no such label. Escapes are not
    /// resolved, because the labels that are read need none.
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

/// Returns the position of the brace that ends the labels. Braces within values are ignored.
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

/// Returns the position of the first quote that is not escaped, which ends a label value.
fn quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    })
}
