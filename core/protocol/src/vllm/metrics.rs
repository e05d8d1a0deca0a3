//! Prometheus' text format, as far as it is needed: the few series that tell how an engine stands.

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
    let mut seen = Seen::default();
    for line in text.split(|byte| *byte == b'\n') {
        if let Some(sample) = std::str::from_utf8(line).ok().and_then(Sample::read) {
            seen.take(&sample);
        }
    }
    Some(EngineMetrics {
        running: seen.running.total?,
        waiting: seen.waiting.total?,
        kv_usage: seen.usage.mean().or(seen.old_usage.mean()).map(|share| share.min(1.0)),
        kv_tokens: seen.tokens.total.map(|tokens| tokens as u64).filter(|tokens| *tokens > 0),
        prefix_queries: seen.queries.total.or(seen.old_queries.total),
        prefix_hits: seen.hits.total.or(seen.old_hits.total),
        prompt_tokens: seen.prompts.total,
        // Each of several engines holds a beginning of its own.
        shares_prefixes: seen.tokens.of == 1.0 && seen.caches_prefixes,
    })
}

/// Sum of a series over its labels (engines and models).
#[derive(Default)]
struct Sum {
    total: Option<f64>,
    of: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        // NaN and infinity are not valid counts.
        if value.is_finite() && value >= 0.0 {
            *self.total.get_or_insert(0.0) += value;
            self.of += 1.0;
        }
    }

    fn mean(&self) -> Option<f64> {
        self.total.map(|total| total / self.of)
    }
}

/// Series that were renamed may be reported under both names. They are kept apart, and the newer
/// name counts.
#[derive(Default)]
struct Seen {
    running: Sum,
    waiting: Sum,
    usage: Sum,
    old_usage: Sum,
    tokens: Sum,
    queries: Sum,
    old_queries: Sum,
    hits: Sum,
    old_hits: Sum,
    prompts: Sum,
    caches_prefixes: bool,
}

impl Seen {
    fn take(&mut self, sample: &Sample<'_>) {
        let counter = sample.name.strip_suffix("_total").unwrap_or(sample.name);
        let sum = match counter {
            "vllm:num_requests_running" | "sglang:num_running_reqs" => &mut self.running,
            "vllm:num_requests_waiting" | "sglang:num_queue_reqs" => &mut self.waiting,
            "vllm:kv_cache_usage_perc" | "sglang:token_usage" => &mut self.usage,
            "vllm:gpu_cache_usage_perc" => &mut self.old_usage,
            "vllm:prefix_cache_queries" => &mut self.queries,
            "vllm:gpu_prefix_cache_queries" => &mut self.old_queries,
            "vllm:prefix_cache_hits" => &mut self.hits,
            "vllm:gpu_prefix_cache_hits" => &mut self.old_hits,
            "vllm:prompt_tokens" => &mut self.prompts,
            "sglang:max_total_num_tokens" => &mut self.tokens,
            "vllm:cache_config_info" => {
                if let Some(tokens) = capacity(sample) {
                    self.tokens.add(tokens);
                }
                self.caches_prefixes = sample.label("enable_prefix_caching") == Some("True");
                return;
            }
            _ => return,
        };
        sum.add(sample.value);
    }
}

/// Returns the KV-cache tokens of one engine, from the labels of its configuration. Returns `None`
/// if they are unknown.
fn capacity(sample: &Sample<'_>) -> Option<f64> {
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
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return Some(at),
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}
