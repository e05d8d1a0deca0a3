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
    let mut sums = BTreeMap::<&str, Sum>::new();
    let mut caches_prefixes = false;
    for line in text.split(|byte| *byte == b'\n') {
        let Some(sample) = std::str::from_utf8(line).ok().and_then(Sample::read) else { continue };
        let Some(series) = series(sample.name) else { continue };
        let mut value = sample.value;
        if sample.name == "vllm:cache_config_info" {
            caches_prefixes = sample.label("enable_prefix_caching") == Some("True");
            let counted = sums.get(series).map_or(0.0, |sum| sum.total);
            let Some(tokens) = kv_tokens(&sample, counted) else { continue };
            value = tokens;
        }
        // NaN and infinity are not valid counts.
        if value.is_finite() && value >= 0.0 {
            let sum = sums.entry(series).or_default();
            sum.total += value;
            sum.count += 1.0;
        }
    }
    let total = |series: &str| sums.get(series).map(|sum| sum.total);
    // A series that vLLM renamed may be reported under both names.
    let usage = sums.get("vllm:kv_cache_usage_perc").or(sums.get("vllm:gpu_cache_usage_perc"));
    let capacity = sums.get("vllm:cache_config_info");
    Some(EngineMetrics {
        running: total("vllm:num_requests_running")?,
        waiting: total("vllm:num_requests_waiting")?,
        kv_usage: usage.map(|sum| (sum.total / sum.count).min(1.0)),
        kv_tokens: capacity.map(|sum| sum.total as u64).filter(|tokens| *tokens > 0),
        prefix_queries: total("vllm:prefix_cache_queries").or(total("vllm:gpu_prefix_cache_queries")),
        prefix_hits: total("vllm:prefix_cache_hits").or(total("vllm:gpu_prefix_cache_hits")),
        prompt_tokens: total("vllm:prompt_tokens"),
        // Each of several engines has a prefix cache of its own.
        shares_prefixes: caches_prefixes && capacity.is_some_and(|sum| sum.count == 1.0),
    })
}

/// The sum of the samples of one series, over engines and models.
#[derive(Default)]
struct Sum {
    total: f64,
    /// Number of samples.
    count: f64,
}

/// Returns the name under which the values of a metric are summed: the name that vLLM uses, without
/// the suffix `_total`. Returns `None` for metrics that are not read.
fn series(metric: &str) -> Option<&str> {
    let name = metric.strip_suffix("_total").unwrap_or(metric);
    Some(match name {
        "sglang:num_running_reqs" => "vllm:num_requests_running",
        "sglang:num_queue_reqs" => "vllm:num_requests_waiting",
        "sglang:token_usage" => "vllm:kv_cache_usage_perc",
        "sglang:max_total_num_tokens" => "vllm:cache_config_info",
        "vllm:num_requests_running" | "vllm:num_requests_waiting" | "vllm:cache_config_info" => name,
        "vllm:kv_cache_usage_perc" | "vllm:gpu_cache_usage_perc" | "vllm:prompt_tokens" => name,
        "vllm:prefix_cache_queries" | "vllm:gpu_prefix_cache_queries" => name,
        "vllm:prefix_cache_hits" | "vllm:gpu_prefix_cache_hits" => name,
        _ => return None,
    })
}

/// Returns the tokens that a line of `vllm:cache_config_info` adds to the `counted` tokens of the
/// lines before it. Returns `None` if its labels state no capacity.
///
/// `kv_cache_size_tokens` is the capacity of the engine of the line. `num_gpu_blocks` is that of
/// all engines together: with data parallelism, vLLM adds their blocks and repeats the sum in each
/// line.
fn kv_tokens(sample: &Sample<'_>, counted: f64) -> Option<f64> {
    let label = |name| sample.label(name)?.parse::<u64>().ok().filter(|number| *number > 0);
    let of_engine = label("kv_cache_size_tokens").map(|tokens| tokens as f64);
    of_engine.or_else(|| {
        let of_all = label("num_gpu_blocks")?.checked_mul(label("block_size")?)?;
        Some((of_all as f64 - counted).max(0.0))
    })
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

/// Returns the byte position of the brace that ends the labels, or `None` if there is none. Braces
/// within values are ignored.
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

/// Returns the byte position of the first quote that is not escaped, which ends a label value.
/// `None` if there is none.
fn quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    })
}
