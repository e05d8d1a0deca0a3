//! The mix: the sequence of requests that the steps of a sweep send.
//!
//! The request of a call depends only on the seed and on its index, so all caps receive the same
//! requests. Only the nonce differs. Generated prompts start with a nonce of run, step and index.
//! Without it, the server's prefix cache would serve all steps except the first, and all steps of a
//! second sweep. The user's own requests are sent unchanged except for `model`, `stream` and, if
//! the user asks for it, the output limit and vLLM's keys that force answers to that limit.

mod lengths;
mod prompt_text;
mod request_file;
mod trace;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use bytes::Bytes;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::lengths::Lengths;
use self::request_file::RequestLine;
use crate::endpoint::{Endpoint, OutputLimitKey};
use crate::error::SweepError;

/// Where the requests of a sweep come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case", deny_unknown_fields)]
pub enum MixOptions {
    /// Generated prompts whose lengths follow two distributions.
    Synthetic {
        /// Distribution of the prompt lengths, in tokens.
        input: Lengths,
        /// Distribution of the maximum answer lengths, in tokens.
        output: Lengths,
    },
    /// Generated prompts with lengths from a CSV file, in random order.
    Trace {
        /// CSV file with one column for input tokens and one for output tokens.
        path: PathBuf,
    },
    /// Requests of the user, in file order. The sequence starts again after the last request.
    Lines {
        /// JSONL file with one request per line.
        path: PathBuf,
        /// Output limit in tokens for requests without one. `None` leaves complete bodies without a
        /// limit, and limits lines that are only a prompt to 128.
        output: Option<u64>,
    },
}

impl Default for MixOptions {
    /// Returns prompts of 512 tokens with answers of at most 128 tokens.
    fn default() -> Self {
        Self::Synthetic {
            input: Lengths { mean: 512, spread: 0.0 },
            output: Lengths { mean: 128, spread: 0.0 },
        }
    }
}

/// Request body of one call, with its expected size.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) body: Bytes,
    /// Estimated number of prompt tokens.
    pub(crate) input: u64,
    /// Maximum output tokens, or 4,096 if the body has no limit.
    pub(crate) output: u64,
}

/// Assumed output tokens of a request without an output limit.
const UNBOUNDED_OUTPUT_TOKENS: u64 = 4_096;

/// The source of the requests of a sweep. Each request is identified by its index.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    source: Source,
    seed: u64,
    /// Identifies the run in the nonces of its prompts. Only the seed determines the identifier
    /// before [`Mix::set_run`].
    run: u32,
    model: String,
    exact: bool,
    /// Output limit key that the server accepts. Set by the preflight call.
    output_limit_key: OutputLimitKey,
    /// Ratio of the server's count of prompt tokens to the local estimate. 1 before the preflight
    /// call.
    scale: f64,
    digest: u64,
}

#[derive(Clone, Debug)]
enum Source {
    Synthetic { input: Lengths, output: Lengths },
    Trace(Vec<(u64, u64)>),
    Lines { lines: Vec<RequestLine>, output: Option<u64> },
}

impl Mix {
    /// Returns the mix that `options` describes. Reads and checks the file that it names, if any.
    /// If `exact` is `true`, requests with an output limit contain vLLM's keys that force answers
    /// to that length.
    pub(crate) fn load(
        options: &MixOptions,
        seed: u64,
        model: &str,
        exact: bool,
    ) -> Result<Self, SweepError> {
        let mut digest = DefaultHasher::new();
        let mut file = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).map_err(|error| SweepError::file(path, error))?;
            text.hash(&mut digest);
            Ok::<_, SweepError>(text)
        };
        let invalid =
            |path: &PathBuf, problem: String| SweepError::options(format!("{}: {problem}", path.display()));
        let source = match options {
            MixOptions::Synthetic { input, output } => {
                input.check("input").and_then(|()| output.check("output")).map_err(SweepError::options)?;
                Source::Synthetic { input: *input, output: *output }
            }
            MixOptions::Trace { path } => {
                let mut lengths = trace::read(&file(path)?).map_err(|problem| invalid(path, problem))?;
                // Adjacent lines of a trace are similar, and a step only sends the first lines.
                Rng::with_seed(seed).shuffle(&mut lengths);
                Source::Trace(lengths)
            }
            MixOptions::Lines { path, output } => {
                let lines = request_file::read(&file(path)?).map_err(|problem| invalid(path, problem))?;
                Source::Lines { lines, output: *output }
            }
        };
        Ok(Self {
            source,
            seed,
            run: (seed & 0xffff) as u32,
            model: model.to_owned(),
            exact,
            output_limit_key: OutputLimitKey::default(),
            scale: 1.0,
            digest: digest.finish(),
        })
    }

    /// Makes the nonces of later prompts differ from those of other runs, whose prompts the
    /// server's prefix cache may still contain. Changes neither lengths nor words. `began` is the
    /// start time of the sweep, if known, and `resumed` the number of times that it was resumed.
    pub(crate) fn set_run(&mut self, began: Option<&str>, resumed: u32) {
        let mut hasher = DefaultHasher::new();
        (self.seed, began, resumed).hash(&mut hasher);
        self.run = hasher.finish() as u32;
    }

    /// Returns the request with this index in the mix. `step` changes only the nonce of generated
    /// prompts.
    pub(crate) fn work(&self, endpoint: &Endpoint, step: usize, index: usize) -> Work {
        // Seeded by the index alone, so that each step draws the same.
        let mut rng =
            Rng::with_seed(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(index as u64));
        match &self.source {
            Source::Synthetic { input, output } => {
                let (input, output) = (input.draw(&mut rng), output.draw(&mut rng));
                self.synthetic_work(endpoint, step, index, (input, output), &mut rng)
            }
            Source::Trace(lengths) => {
                let at = lengths.get(index % lengths.len().max(1)).copied().unwrap_or((1, 1));
                self.synthetic_work(endpoint, step, index, at, &mut rng)
            }
            Source::Lines { lines, output } => match lines.get(index % lines.len().max(1)) {
                Some(line) => self.user_work(endpoint, line, *output),
                None => self.synthetic_work(endpoint, step, index, (1, 1), &mut rng),
            },
        }
    }

    /// Returns the request of the preflight call: one of mean length or, if the user has given
    /// requests, the first one.
    pub(crate) fn preflight_work(&self, endpoint: &Endpoint) -> Work {
        if self.has_user_prompts() {
            return self.work(endpoint, 0, 0);
        }
        let (input, output) = self.means();
        let lengths = (input.round() as u64, output.round() as u64);
        self.synthetic_work(endpoint, 0, 0, lengths, &mut Rng::with_seed(self.seed))
    }

    fn synthetic_work(
        &self,
        endpoint: &Endpoint,
        step: usize,
        index: usize,
        (input, output): (u64, u64),
        rng: &mut Rng,
    ) -> Work {
        let nonce = format!("[{:x}-{step:x}-{index:x}]", self.run);
        let prompt_tokens = (input as f64 / self.scale).round() as u64;
        let prompt = prompt_text::prompt(&nonce, prompt_tokens, output, rng);
        let body = endpoint.request_body(&self.model, &prompt, output, self.output_limit_key, self.exact);
        Work { body: Value::Object(body).to_string().into(), input, output }
    }

    fn user_work(&self, endpoint: &Endpoint, line: &RequestLine, default_output: Option<u64>) -> Work {
        let mut body = match line {
            RequestLine::Body(body) => body.clone(),
            RequestLine::Prompt { text, output } => {
                let output = output.or(default_output).unwrap_or(128);
                endpoint.request_body(&self.model, text, output, self.output_limit_key, self.exact)
            }
        };
        body.insert("model".into(), json!(self.model));
        body.insert("stream".into(), json!(true));
        if let (None, Some(default_output)) = (Endpoint::max_output_tokens(&body), default_output) {
            body.insert(endpoint.output_limit_key(self.output_limit_key).into(), json!(default_output));
        }
        if let Some(limit) = Endpoint::max_answer_tokens(&body).filter(|_| self.exact) {
            Endpoint::force_answer_length(&mut body, limit);
        }
        let output = Endpoint::max_output_tokens(&body).unwrap_or(UNBOUNDED_OUTPUT_TOKENS);
        let body = Value::Object(body).to_string();
        // Four bytes per token, including the JSON syntax, overestimates most bodies.
        Work { input: ((body.len() as f64 / 4.0) * self.scale).ceil() as u64, output, body: body.into() }
    }

    /// Returns the index of the first request without an output limit, or `None` if all have one.
    pub(crate) fn first_unbounded(&self) -> Option<usize> {
        let Source::Lines { lines, output: None } = &self.source else { return None };
        lines.iter().position(
            |line| matches!(line, RequestLine::Body(body) if Endpoint::max_output_tokens(body).is_none()),
        )
    }

    /// Adjusts the lengths of later prompts to the server's tokenizer. `counted` is the number of
    /// prompt tokens that the server counted for `work`, which should be of mean length: the tokens
    /// of a chat template count more in a shorter prompt. The total adjustment is limited to a
    /// factor of four in either direction.
    pub(crate) fn calibrate(&mut self, work: &Work, counted: u64) {
        if work.input > 0 && counted > 0 {
            self.scale = (self.scale * counted as f64 / work.input as f64).clamp(0.25, 4.0);
        }
    }

    /// Sets the JSON key that limits output tokens in later requests.
    pub(crate) fn set_output_limit_key(&mut self, output_limit_key: OutputLimitKey) {
        self.output_limit_key = output_limit_key;
    }

    /// Returns the mean numbers of input tokens and of output tokens per request, estimated without
    /// the server. For a trace or the user's requests, these are the means of the first 1,000.
    pub(crate) fn means(&self) -> (f64, f64) {
        const MAX_SAMPLED: usize = 1_000;
        let mean = |lengths: &mut dyn Iterator<Item = (u64, u64)>| {
            let (mut input, mut output, mut n) = (0.0, 0.0, 0.0);
            for (i, o) in lengths.take(MAX_SAMPLED) {
                (input, output, n) = (input + i as f64, output + o as f64, n + 1.0);
            }
            (input / f64::max(n, 1.0), output / f64::max(n, 1.0))
        };
        match &self.source {
            Source::Synthetic { input, output } => (input.mean as f64, output.mean as f64),
            Source::Trace(lengths) => mean(&mut lengths.iter().copied()),
            Source::Lines { lines, output } => mean(&mut lines.iter().map(|line| match line {
                RequestLine::Prompt { text, output: line_output } => {
                    (text.len() as u64 / 4, line_output.or(*output).unwrap_or(128))
                }
                RequestLine::Body(body) => {
                    let bytes = Value::Object(body.clone()).to_string().len() as u64;
                    (
                        bytes / 4,
                        Endpoint::max_output_tokens(body).or(*output).unwrap_or(UNBOUNDED_OUTPUT_TOKENS),
                    )
                }
            })),
        }
    }

    /// Returns `true` if the prompts come from a file of the user. Such prompts have no nonce, so
    /// the server may cache them.
    pub(crate) fn has_user_prompts(&self) -> bool {
        matches!(self.source, Source::Lines { .. })
    }

    /// Returns a hash of the file that the mix was read from, or a constant if it was read from no
    /// file.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns a sentence fragment that describes the requests, for plans and reports.
    pub(crate) fn describe(&self) -> String {
        let lengths_text = |lengths: &Lengths| match lengths.spread {
            0.0 => lengths.mean.to_string(),
            spread => format!("{} (spread {spread})", lengths.mean),
        };
        match &self.source {
            Source::Synthetic { input, output } => {
                format!(
                    "synthetic prompts of {} tokens, answers of at most {} tokens",
                    lengths_text(input),
                    lengths_text(output)
                )
            }
            Source::Trace(lengths) => {
                let (input, output) = self.means();
                format!(
                    "synthetic prompts with the lengths of {} traced calls: on average {input:.0} tokens in, {output:.0} out",
                    lengths.len()
                )
            }
            Source::Lines { lines, .. } => {
                format!("{} user requests, which repeat, so the server may cache them", lines.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint::new("http://h", None).unwrap()
    }

    fn prompt(work: &Work) -> String {
        let body: Value = serde_json::from_slice(&work.body).unwrap();
        body["messages"][0]["content"].as_str().unwrap().to_owned()
    }

    #[test]
    fn steps_share_work_but_not_the_prompt_prefix() {
        let options = MixOptions::Synthetic {
            input: Lengths { mean: 300, spread: 0.6 },
            output: Lengths { mean: 80, spread: 0.6 },
        };
        let mix = Mix::load(&options, 7, "m", false).unwrap();
        for index in 0..50 {
            let (one, two) = (mix.work(&endpoint(), 1, index), mix.work(&endpoint(), 2, index));
            assert_eq!((one.input, one.output), (two.input, two.output));
            let (one, two) = (prompt(&one), prompt(&two));
            assert_ne!(one[..12], two[..12]);
            assert_eq!(one.split_once(']').unwrap().1, two.split_once(']').unwrap().1);
        }
        let other = Mix::load(&options, 8, "m", false).unwrap();
        assert_ne!(prompt(&mix.work(&endpoint(), 1, 0)), prompt(&other.work(&endpoint(), 1, 0)));
    }

    #[test]
    fn runs_share_work_but_not_the_prompt_prefix() {
        let mix = |run: Option<(&str, u32)>| {
            let mut mix = Mix::load(&MixOptions::default(), 1, "m", false).unwrap();
            if let Some((began, resumed)) = run {
                mix.set_run(Some(began), resumed);
            }
            prompt(&mix.work(&endpoint(), 3, 5))
        };
        let runs = [None, Some(("2026-01-01T00:00:00Z", 0)), Some(("2026-01-01T00:00:00Z", 1))];
        let prompts = runs.into_iter().chain([Some(("2026-01-01T00:00:01Z", 0))]).map(mix);
        let prompts: Vec<(String, String)> = prompts
            .map(|prompt| prompt.split_once("-3-5]").map(|(run, rest)| (run.into(), rest.into())).unwrap())
            .collect();
        let nonces: std::collections::HashSet<_> = prompts.iter().map(|(run, _)| run).collect();
        assert!(nonces.len() == 4 && nonces.contains(&"[1".to_owned()), "{nonces:?}");
        assert!(prompts.iter().all(|(_, rest)| *rest == prompts[0].1));
    }

    #[test]
    fn calibration_scales_prompts_to_the_servers_token_count() {
        let mut mix = Mix::load(&MixOptions::default(), 1, "m", false).unwrap();
        let first = mix.work(&endpoint(), 0, 0);
        // A server that counts one token per four bytes.
        let counted = |work: &Work| prompt(work).len() as u64 / 4;
        mix.calibrate(&first, counted(&first));
        let then = mix.work(&endpoint(), 0, 1);
        assert!((counted(&then) as f64 / 512.0 - 1.0).abs() < 0.06, "{}", counted(&then));
    }

    /// The server counts 12 tokens more than the words of each prompt, as with a chat template.
    #[test]
    fn calibration_of_a_trace_does_not_depend_on_its_first_line() {
        let path = std::env::temp_dir().join(format!("tidegate-trace-{}.csv", std::process::id()));
        std::fs::write(&path, "input,output\n24,32\n200,128\n112,64\n112,64\n").unwrap();
        let counted = |work: &Work| prompt(work).split_whitespace().count() as u64 + 12;
        for seed in 0..10 {
            let options = MixOptions::Trace { path: path.clone() };
            let mut mix = Mix::load(&options, seed, "m", false).unwrap();
            let preflight = mix.preflight_work(&endpoint());
            mix.calibrate(&preflight, counted(&preflight));
            let prompts = (0..4).map(|index| counted(&mix.work(&endpoint(), 1, index)));
            let mean = prompts.sum::<u64>() as f64 / 4.0;
            assert!((mean / 112.0 - 1.0).abs() < 0.05, "seed {seed}: {mean}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn user_requests_keep_their_fields() {
        let path = std::env::temp_dir().join(format!("tidegate-mix-{}.jsonl", std::process::id()));
        std::fs::write(&path, "{\"messages\": [], \"temperature\": 0.5}\n{\"prompt\": \"hi\"}\n").unwrap();
        let options = |output| MixOptions::Lines { path: path.clone(), output };
        let mix = Mix::load(&options(None), 1, "m", false).unwrap();
        let body: Value = serde_json::from_slice(&mix.work(&endpoint(), 3, 2).body).unwrap();
        assert_eq!(body, json!({"messages": [], "temperature": 0.5, "model": "m", "stream": true}));
        assert_eq!((mix.first_unbounded(), mix.has_user_prompts()), (Some(0), true));
        let mix = Mix::load(&options(Some(9)), 1, "m", false).unwrap();
        assert_eq!((mix.work(&endpoint(), 0, 0).output, mix.first_unbounded()), (9, None));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn exact_output_applies_to_user_bodies() {
        let path = std::env::temp_dir().join(format!("tidegate-exact-{}.jsonl", std::process::id()));
        let lines = [r#"{"messages": [], "max_tokens": 7, "n": 3}"#, r#"{"messages": []}"#, r#""hi""#];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let options = MixOptions::Lines { path: path.clone(), output: Some(9) };
        for exact in [true, false] {
            let mix = Mix::load(&options, 1, "m", exact).unwrap();
            for (index, limit) in [(0, 7), (1, 9), (2, 9)] {
                let body: Value = serde_json::from_slice(&mix.work(&endpoint(), 0, index).body).unwrap();
                assert_eq!(body.get("ignore_eos"), exact.then_some(&json!(true)), "{body}");
                assert_eq!(body.get("min_tokens"), exact.then_some(&json!(limit)), "{body}");
            }
        }
        std::fs::remove_file(path).unwrap();
    }
}
