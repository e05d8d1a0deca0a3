//! The simulator's Prometheus metrics, under the names that vLLM uses.

use std::time::Duration;

use prometheus::{
    Encoder as _, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder,
};

use crate::api::Finish;
use crate::pool::EnginePool;

const LABELS: [&str; 2] = ["engine", "model_name"];
const TTFT_BUCKETS: [f64; 17] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0];
const INTER_TOKEN_BUCKETS: [f64; 13] =
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];
const E2E_BUCKETS: [f64; 15] =
    [0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0];

/// The Prometheus metrics of all engines. Every time series exists from the start.
pub(super) struct Metrics {
    registry: Registry,
    model: String,
    running: GaugeVec,
    waiting: GaugeVec,
    waiting_by_reason: GaugeVec,
    kv_usage: GaugeVec,
    cache_config: GaugeVec,
    preemptions: IntCounterVec,
    prompt_tokens: IntCounterVec,
    generation_tokens: IntCounterVec,
    successes: IntCounterVec,
    rejections: IntCounterVec,
    prefix_queries: IntCounterVec,
    prefix_hits: IntCounterVec,
    ttft: HistogramVec,
    inter_token: HistogramVec,
    queue_time: HistogramVec,
    e2e_latency: HistogramVec,
}

impl Metrics {
    pub(super) fn new(model: &str, pool: &EnginePool) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            let metric = GaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let metric = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let metric = HistogramVec::new(options, &LABELS)?;
            registry.register(Box::new(metric.clone()))?;
            Ok::<_, prometheus::Error>(metric)
        };
        let with_label = |extra| [LABELS[0], LABELS[1], extra];
        let cache =
            ["engine", "block_size", "num_gpu_blocks", "kv_cache_size_tokens", "enable_prefix_caching"];
        let metrics = Self {
            running: gauge("vllm:num_requests_running", "Requests in the batch.", &LABELS)?,
            waiting: gauge("vllm:num_requests_waiting", "Requests waiting.", &LABELS)?,
            waiting_by_reason: gauge(
                "vllm:num_requests_waiting_by_reason",
                "Requests waiting, by reason.",
                &with_label("reason"),
            )?,
            kv_usage: gauge("vllm:kv_cache_usage_perc", "KV cache usage, 1 = full.", &LABELS)?,
            cache_config: gauge("vllm:cache_config_info", "Configuration of the KV cache.", &cache)?,
            preemptions: counter("vllm:num_preemptions_total", "Preemptions.", &LABELS)?,
            prompt_tokens: counter("vllm:prompt_tokens_total", "Prompt tokens processed.", &LABELS)?,
            generation_tokens: counter("vllm:generation_tokens_total", "Tokens generated.", &LABELS)?,
            successes: counter(
                "vllm:request_success_total",
                "Requests ended.",
                &with_label("finished_reason"),
            )?,
            rejections: counter(
                "vllm:admission_rejections_total",
                "Requests refused.",
                &with_label("reason"),
            )?,
            prefix_queries: counter(
                "vllm:prefix_cache_queries_total",
                "Prefix cache queries, in tokens.",
                &LABELS,
            )?,
            prefix_hits: counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in tokens.", &LABELS)?,
            ttft: histogram("vllm:time_to_first_token_seconds", "Time to first token.", &TTFT_BUCKETS)?,
            inter_token: histogram(
                "vllm:inter_token_latency_seconds",
                "Time between tokens.",
                &INTER_TOKEN_BUCKETS,
            )?,
            queue_time: histogram("vllm:request_queue_time_seconds", "Time in the queue.", &E2E_BUCKETS)?,
            e2e_latency: histogram("vllm:e2e_request_latency_seconds", "Whole time.", &E2E_BUCKETS)?,
            model: model.to_owned(),
            registry,
        };
        metrics.create_series(pool);
        Ok(metrics)
    }

    fn create_series(&self, pool: &EnginePool) {
        for (number, engine) in pool.engines().iter().enumerate() {
            let name = number.to_string();
            let labels = [name.as_str(), self.model.as_str()];
            for counter in [
                &self.preemptions,
                &self.prompt_tokens,
                &self.generation_tokens,
                &self.prefix_queries,
                &self.prefix_hits,
            ] {
                counter.with_label_values(&labels);
            }
            for histogram in [&self.ttft, &self.inter_token, &self.queue_time, &self.e2e_latency] {
                histogram.with_label_values(&labels);
            }
            for reason in ["stop", "length", "abort", "error"] {
                self.successes.with_label_values(&[labels[0], labels[1], reason]);
            }
            self.rejections.with_label_values(&[labels[0], labels[1], "max_num_queued_reqs"]);
            let blocks = engine.blocks();
            let cache = [
                blocks.block_size().to_string(),
                blocks.total().to_string(),
                blocks.capacity_tokens().to_string(),
                if engine.config().prefix_cache { "True" } else { "False" }.to_owned(),
            ];
            let cache = cache.each_ref().map(String::as_str);
            let [block_size, blocks, tokens, prefix_cache] = cache;
            let labels = [labels[0], block_size, blocks, tokens, prefix_cache];
            self.cache_config.with_label_values(&labels).set(1.0);
        }
    }

    pub(super) fn admitted(&self, engine: usize, queued: Duration) {
        self.queue_time.with_label_values(&self.labels(&engine.to_string())).observe(queued.as_secs_f64());
    }

    pub(super) fn first_token(&self, engine: usize, after: Duration, prompt_tokens: u32) {
        let engine = engine.to_string();
        let labels = self.labels(&engine);
        self.ttft.with_label_values(&labels).observe(after.as_secs_f64());
        self.prompt_tokens.with_label_values(&labels).inc_by(u64::from(prompt_tokens));
        self.generation_tokens.with_label_values(&labels).inc();
    }

    pub(super) fn token(&self, engine: usize, gap: Duration) {
        let engine = engine.to_string();
        let labels = self.labels(&engine);
        self.inter_token.with_label_values(&labels).observe(gap.as_secs_f64());
        self.generation_tokens.with_label_values(&labels).inc();
    }

    pub(super) fn preempted(&self, engine: usize) {
        self.preemptions.with_label_values(&self.labels(&engine.to_string())).inc();
    }

    pub(super) fn finished(&self, engine: usize, after: Duration, finish: Finish) {
        let engine = engine.to_string();
        self.e2e_latency.with_label_values(&self.labels(&engine)).observe(after.as_secs_f64());
        self.successes.with_label_values(&[engine.as_str(), &self.model, finish.as_str()]).inc();
    }

    pub(super) fn aborted(&self, engine: usize) {
        self.successes.with_label_values(&[engine.to_string().as_str(), &self.model, "abort"]).inc();
    }

    /// Counts a call that was rejected because too many sequences wait. The count belongs to engine
    /// 0, because the call was not routed.
    pub(super) fn queue_full(&self) {
        self.rejections.with_label_values(&["0", &self.model, "max_num_queued_reqs"]).inc();
    }

    /// Restarts all counters and histograms, as a new process of the server does.
    pub(super) fn reset(&self, pool: &EnginePool) {
        for counter in [
            &self.preemptions,
            &self.prompt_tokens,
            &self.generation_tokens,
            &self.successes,
            &self.rejections,
            &self.prefix_queries,
            &self.prefix_hits,
        ] {
            counter.reset();
        }
        for histogram in [&self.ttft, &self.inter_token, &self.queue_time, &self.e2e_latency] {
            histogram.reset();
        }
        self.create_series(pool);
    }

    fn labels<'a>(&'a self, engine: &'a str) -> [&'a str; 2] {
        [engine, &self.model]
    }

    /// Returns all metrics in Prometheus text format.
    pub(super) fn render(&self, pool: &EnginePool) -> String {
        for (number, engine) in pool.engines().iter().enumerate() {
            let name = number.to_string();
            let labels = self.labels(&name);
            self.running.with_label_values(&labels).set(engine.running() as f64);
            self.waiting.with_label_values(&labels).set(engine.waiting() as f64);
            // The model has one reason to wait: the batch or the KV cache is full.
            let by_reason = [labels[0], labels[1], "capacity"];
            self.waiting_by_reason.with_label_values(&by_reason).set(engine.waiting() as f64);
            self.waiting_by_reason.with_label_values(&[labels[0], labels[1], "deferred"]).set(0.0);
            self.kv_usage.with_label_values(&labels).set(engine.blocks().usage());
            let totals = engine.totals();
            for (counter, tokens) in
                [(&self.prefix_queries, totals.prefix_queries), (&self.prefix_hits, totals.prefix_hits)]
            {
                // The engine keeps the totals, and resets them when it restarts.
                let counter = counter.with_label_values(&labels);
                counter.reset();
                counter.inc_by(tokens);
            }
        }
        let mut out = Vec::new();
        // Writing to memory cannot fail, and a registry with unique names can always be encoded.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}
