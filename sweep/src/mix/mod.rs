//! The mix of requests: the same work at each cap.
//!
//! An index determines a call completely: the same index is the same work at every cap and in every
//! run with the same seed. Generated prompts start with a nonce of seed, step and index, because a
//! prefix cache of the server would otherwise make every cap except the first look faster. The
//! user's own requests are sent unchanged, except for the model, `stream` and, if requested, the
//! output limit.

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

/// Source of the work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case", deny_unknown_fields)]
pub enum MixOptions {
    /// Generated prompts with these lengths in tokens.
    Synthetic {
        /// Prompt lengths.
        input: Lengths,
        /// Output limits.
        output: Lengths,
    },
    /// Generated prompts with the lengths of a table, in an order drawn from the seed.
    Trace {
        /// Path of a CSV file.
        path: PathBuf,
    },
    /// The user's own requests, in file order.
    Lines {
        /// Path of a JSONL file.
        path: PathBuf,
        /// Output limit for lines without one. `None`: such lines have no limit.
        output: Option<u64>,
    },
}

impl Default for MixOptions {
    /// Returns 512 input tokens and 128 output tokens, all equal.
    fn default() -> Self {
        Self::Synthetic {
            input: Lengths { mean: 512, spread: 0.0 },
            output: Lengths { mean: 128, spread: 0.0 },
        }
    }
}

/// The work of one call.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// Request body.
    pub(crate) body: Bytes,
    /// Estimated prompt tokens.
    pub(crate) input: u64,
    /// Maximum output tokens.
    pub(crate) output: u64,
}

/// Expected output tokens of an answer without a limit.
const UNBOUNDED: u64 = 4_096;

/// The mix of requests of a sweep.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    source: Source,
    seed: u64,
    model: String,
    exact: bool,
    /// The output limit key that this server accepts.
    maximum: OutputLimitKey,
    /// Server-counted tokens per token of the local estimate.
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
    /// Loads and checks a mix. With `exact`, answers are forced to their output limit with vLLM's
    /// `ignore_eos`.
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
        let wrong =
            |path: &PathBuf, problem: String| SweepError::options(format!("{}: {problem}", path.display()));
        let source = match options {
            MixOptions::Synthetic { input, output } => {
                input.check("input").and_then(|()| output.check("output")).map_err(SweepError::options)?;
                Source::Synthetic { input: *input, output: *output }
            }
            MixOptions::Trace { path } => {
                let mut lengths = trace::read(&file(path)?).map_err(|problem| wrong(path, problem))?;
                // Adjacent lines of a trace are similar, and a step only sends the first lines.
                Rng::with_seed(seed).shuffle(&mut lengths);
                Source::Trace(lengths)
            }
            MixOptions::Lines { path, output } => {
                let lines = request_file::read(&file(path)?).map_err(|problem| wrong(path, problem))?;
                Source::Lines { lines, output: *output }
            }
        };
        Ok(Self {
            source,
            seed,
            model: model.to_owned(),
            exact,
            maximum: OutputLimitKey::default(),
            scale: 1.0,
            digest: digest.finish(),
        })
    }

    /// Returns the work of an index in a step.
    pub(crate) fn work(&self, endpoint: &Endpoint, step: usize, place: usize) -> Work {
        // Seeded by the index alone, so that each step draws the same.
        let mut rng =
            Rng::with_seed(self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(place as u64));
        match &self.source {
            Source::Synthetic { input, output } => {
                let (input, output) = (input.draw(&mut rng), output.draw(&mut rng));
                self.made(endpoint, step, place, (input, output), &mut rng)
            }
            Source::Trace(lengths) => {
                let at = lengths.get(place % lengths.len().max(1)).copied().unwrap_or((1, 1));
                self.made(endpoint, step, place, at, &mut rng)
            }
            Source::Lines { lines, output } => match lines.get(place % lines.len().max(1)) {
                Some(line) => self.given(endpoint, line, *output),
                None => self.made(endpoint, step, place, (1, 1), &mut rng),
            },
        }
    }

    fn made(
        &self,
        endpoint: &Endpoint,
        step: usize,
        place: usize,
        (input, output): (u64, u64),
        rng: &mut Rng,
    ) -> Work {
        let nonce = format!("[{:x}-{step:x}-{place:x}]", self.seed & 0xffff);
        let asked = (input as f64 / self.scale).round() as u64;
        let prompt = prompt_text::prompt(&nonce, asked, output, rng);
        let body = endpoint.body(&self.model, &prompt, output, self.maximum, self.exact);
        Work { body: Value::Object(body).to_string().into(), input, output }
    }

    fn given(&self, endpoint: &Endpoint, line: &RequestLine, most: Option<u64>) -> Work {
        let mut body = match line {
            RequestLine::Body(body) => body.clone(),
            RequestLine::Prompt { text, output } => {
                let output = output.or(most).unwrap_or(128);
                endpoint.body(&self.model, text, output, self.maximum, self.exact)
            }
        };
        body.insert("model".into(), json!(self.model));
        body.insert("stream".into(), json!(true));
        if let (None, Some(most)) = (Endpoint::most_output(&body), most) {
            body.insert(endpoint.maximum(self.maximum).into(), json!(most));
        }
        let output = Endpoint::most_output(&body).unwrap_or(UNBOUNDED);
        let body = Value::Object(body).to_string();
        // Four bytes per token, including the JSON syntax, overestimates most bodies.
        Work { input: ((body.len() as f64 / 4.0) * self.scale).ceil() as u64, output, body: body.into() }
    }

    /// Returns the index of the first request without an output limit, whose cost is unbounded.
    pub(crate) fn unbounded(&self) -> Option<usize> {
        let Source::Lines { lines, output: None } = &self.source else { return None };
        lines
            .iter()
            .position(|line| matches!(line, RequestLine::Body(body) if Endpoint::most_output(body).is_none()))
    }

    /// Scales the prompt lengths by the server's token count of one call, within a factor of four.
    pub(crate) fn calibrate(&mut self, work: &Work, counted: u64) {
        if work.input > 0 && counted > 0 {
            self.scale = (self.scale * counted as f64 / work.input as f64).clamp(0.25, 4.0);
        }
    }

    /// Switches to the other output limit key.
    pub(crate) fn use_maximum(&mut self, maximum: OutputLimitKey) {
        self.maximum = maximum;
    }

    /// Returns the mean input and output tokens per call, over the first thousand.
    pub(crate) fn means(&self) -> (f64, f64) {
        const LOOKED_AT: usize = 1_000;
        let mean = |lengths: &mut dyn Iterator<Item = (u64, u64)>| {
            let (mut input, mut output, mut n) = (0.0, 0.0, 0.0);
            for (i, o) in lengths.take(LOOKED_AT) {
                (input, output, n) = (input + i as f64, output + o as f64, n + 1.0);
            }
            (input / f64::max(n, 1.0), output / f64::max(n, 1.0))
        };
        match &self.source {
            Source::Synthetic { input, output } => (input.mean as f64, output.mean as f64),
            Source::Trace(lengths) => mean(&mut lengths.iter().copied()),
            Source::Lines { lines, output } => mean(&mut lines.iter().map(|line| match line {
                RequestLine::Prompt { text, output: own } => {
                    (text.len() as u64 / 4, own.or(*output).unwrap_or(128))
                }
                RequestLine::Body(body) => {
                    let bytes = Value::Object(body.clone()).to_string().len() as u64;
                    (bytes / 4, Endpoint::most_output(body).or(*output).unwrap_or(UNBOUNDED))
                }
            })),
        }
    }

    /// Returns `true` if the prompts are the user's own, which have no nonce.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self.source, Source::Lines { .. })
    }

    /// Returns a digest of the files' content.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Describes the mix.
    pub(crate) fn describe(&self) -> String {
        let of = |lengths: &Lengths| match lengths.spread {
            0.0 => lengths.mean.to_string(),
            spread => format!("{} (spread {spread})", lengths.mean),
        };
        match &self.source {
            Source::Synthetic { input, output } => {
                format!("synthetic prompts of {} tokens, answers of at most {} tokens", of(input), of(output))
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
        for place in 0..50 {
            let (one, two) = (mix.work(&endpoint(), 1, place), mix.work(&endpoint(), 2, place));
            assert_eq!((one.input, one.output), (two.input, two.output));
            let (one, two) = (prompt(&one), prompt(&two));
            assert_ne!(one[..12], two[..12]);
            assert_eq!(one.split_once(']').unwrap().1, two.split_once(']').unwrap().1);
        }
        let other = Mix::load(&options, 8, "m", false).unwrap();
        assert_ne!(prompt(&mix.work(&endpoint(), 1, 0)), prompt(&other.work(&endpoint(), 1, 0)));
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

    #[test]
    fn user_requests_keep_their_fields() {
        let path = std::env::temp_dir().join(format!("tidegate-mix-{}.jsonl", std::process::id()));
        std::fs::write(&path, "{\"messages\": [], \"temperature\": 0.5}\n{\"prompt\": \"hi\"}\n").unwrap();
        let options = |output| MixOptions::Lines { path: path.clone(), output };
        let mix = Mix::load(&options(None), 1, "m", false).unwrap();
        let body: Value = serde_json::from_slice(&mix.work(&endpoint(), 3, 2).body).unwrap();
        assert_eq!(body, json!({"messages": [], "temperature": 0.5, "model": "m", "stream": true}));
        assert_eq!((mix.unbounded(), mix.is_given()), (Some(0), true));
        let mix = Mix::load(&options(Some(9)), 1, "m", false).unwrap();
        assert_eq!((mix.work(&endpoint(), 0, 0).output, mix.unbounded()), (9, None));
        std::fs::remove_file(path).unwrap();
    }
}
