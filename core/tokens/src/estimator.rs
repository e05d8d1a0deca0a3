//! Learns what calls cost from what providers counted.

use super::UNSEEN_INPUT;
use super::answer::{Answer, answer};
use super::average::Average;
use super::demand::Demand;
use super::lengths::{LengthSample, Lengths, Observed};
use super::line::{Fit, Line};
use super::output::Output;
use super::recent::Recent;
use tidegate_protocol::prompt::{MESSAGE, Prompt, Task};
use tidegate_protocol::{RequestFacts, Route, Usage};

/// Maximum number of models, and tenants of each, whose input is remembered.
const INPUTS: usize = 1_024;

/// Maximum number of models, classes of `max_tokens` and thinking, and tenants of each, whose
/// output is remembered.
const OUTPUTS: usize = 2_048;

/// Maximum number of answers of one call. Calls with more are not learned from.
const MOST_ANSWERS: u64 = 1_024;

/// Maximum count that is believed, in tokens.
const ABSURD: u64 = 1 << 32;

/// Estimates the cost of the calls of one target, per model and tenant. Pure: it has no clock.
///
/// *Input* is a line over the bytes of text: a ratio, and what the server adds to each prompt.
/// *Output* is the distribution of the lengths of one answer, by class (`max_tokens` in steps of
/// four times, and the amount of thinking). A tenant weighs as much as its model after five of its
/// calls. Answers in flight and truncated answers count as at least as long as observed
/// ([`LengthSample`]). The cold values, documented at [`Task`] and
/// [`COLD_RATIO`](super::COLD_RATIO), are mostly too high; after eight responses of a model nothing
/// of them is left. What was learned is half forgotten after 138 more.
///
/// # Guarantees
///
/// - *Robust*: once warm, a response counts for at most four times what was expected of its text,
///   and at most four times the 99th percentile of answers. Zeros are ignored where zero is
///   impossible.
/// - *Bounded*: at most 2 MB for any number of tenants and models. The least recently learned are
///   forgotten.
#[derive(Debug)]
pub struct Estimator {
    inputs: Recent<Input>,
    outputs: Recent<Observed>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Input {
    text: Line,
    /// Ratio of actual to estimated tokens of images, audio and files.
    media: Average,
    /// Tokens of content that is not visible here, such as an earlier response that the provider
    /// stores.
    kept: Average,
    /// Tokens of a whole prompt.
    whole: Average,
    /// Cached tokens per input token.
    cached: Average,
}

/// The expected input of a call.
#[derive(Clone, Copy, Debug)]
struct Reading {
    text: Fit,
    media: f64,
    kept: f64,
    whole: f64,
    cached: f64,
}

const COLD: Reading =
    Reading { text: Fit::COLD, media: 1.0, kept: 0.0, whole: UNSEEN_INPUT as f64, cached: 0.0 };

impl Reading {
    /// Returns the values learned in `input`, mixed with this belief according to the number of
    /// samples.
    fn with(self, input: &Input, topmost: bool) -> Self {
        Self {
            text: input.text.instead_of(self.text, topmost),
            media: input.media.instead_of(self.media, topmost),
            kept: input.kept.instead_of(self.kept, topmost),
            whole: input.whole.instead_of(self.whole, topmost),
            cached: input.cached.instead_of(self.cached, topmost),
        }
    }

    fn tokens(&self, prompt: Option<&Prompt>) -> f64 {
        let Some(prompt) = prompt else { return self.whole };
        let kept = if prompt.kept { self.kept } else { 0.0 };
        let empty = prompt.text_bytes == 0 && prompt.messages == 0;
        let text = if empty { 0.0 } else { self.text.at(prompt.text_bytes as f64) };
        text + framing(prompt) + self.media * prompt.media_tokens as f64 + kept
    }
}

/// Returns the tokens that are neither text nor media.
fn framing(prompt: &Prompt) -> f64 {
    prompt.messages as f64 * MESSAGE as f64 + prompt.token_ids as f64
}

impl Estimator {
    /// Creates an estimator that has learned nothing.
    pub fn new() -> Self {
        Self { inputs: Recent::new(INPUTS), outputs: Recent::new(OUTPUTS) }
    }

    /// Returns the expected cost of a call. Takes about 1.5 µs.
    pub fn demand(&self, facts: &RequestFacts, tenant: &str) -> Demand {
        if facts.route == Route::Bypass {
            return Demand::default();
        }
        let prompt = facts.prompt.as_ref();
        let most = most(prompt);
        let answers = answers(prompt) as f64;
        let (output, max_output) = match answer(facts.task, prompt) {
            Answer::Stated(length) => (length as f64, Some(length)),
            Answer::Learned(cold) => {
                let mean = self.lengths(facts, tenant, cold).mean;
                let most = most.map_or(f64::INFINITY, |most| most as f64);
                (mean.min(most) * answers, prompt.and_then(Prompt::max_output))
            }
        };
        let output = up(output).min(max_output.unwrap_or(u64::MAX));
        let (input, cached) = self.input(facts, tenant);
        Demand { input, output, max_output, cached, exact: false, dialect: Some(facts.dialect) }
    }

    /// Returns the distribution of a call's output, for memory admission. Takes about 1.5 µs.
    pub fn expect(&self, facts: &RequestFacts, tenant: &str) -> Output {
        let prompt = facts.prompt.as_ref();
        match answer(facts.task, prompt) {
            Answer::Stated(length) => Output::new(Lengths::all(length), Some(length), 1),
            Answer::Learned(cold) => {
                Output::new(self.lengths(facts, tenant, cold), most(prompt), answers(prompt))
            }
        }
    }

    /// Returns the tokens per byte of text of a model, or [`COLD_RATIO`](super::COLD_RATIO) if
    /// nothing is known of it.
    #[cfg(test)]
    pub(super) fn ratio(&self, model: Option<&str>) -> f64 {
        self.reading(model, None).text.ratio
    }

    /// Records that a call has produced `tokens` tokens so far, over all its answers, and
    /// continues: its answers are at least that long.
    pub fn observe(&mut self, facts: &RequestFacts, tenant: &str, sample: &mut LengthSample, produced: u64) {
        if sample.is_due(produced) {
            self.learn_output(facts, tenant, sample, produced, false);
        }
    }

    /// Learns from a call that the provider has counted. Takes about 1.5 µs.
    ///
    /// `usage` covers all its answers, as reported at the end. `sample` is what was observed of
    /// them before.
    pub fn learn(&mut self, facts: &RequestFacts, tenant: &str, sample: &mut LengthSample, usage: &Usage) {
        if facts.route == Route::Bypass {
            return;
        }
        self.learn_input(facts, tenant, usage);
        self.learn_output(facts, tenant, sample, usage.output, true);
    }

    fn learn_input(&mut self, facts: &RequestFacts, tenant: &str, usage: &Usage) {
        // No prompt is empty.
        if usage.input == 0 {
            return;
        }
        let model = facts.model.as_deref();
        let prompt = facts.prompt.as_ref();
        // The expectation from before this call: what is learned of a tenant is judged by what was
        // known of it.
        let before = self.reading(model, Some(tenant));
        let most = before.tokens(prompt).mul_add(OFF, MESSAGE as f64 * OFF);
        let counted = usage.input.min(ABSURD) as f64;
        let cached = usage.cached_input.min(usage.input).min(ABSURD) as f64;
        for key in [(model, None), (model, Some(tenant))] {
            let known = self.inputs.entry(key);
            // Weighted by tokens, because a long prompt from the cache matters more than a short
            // one.
            let weight = counted.min(1e6);
            known.cached.learn(cached / counted * weight, weight);
            let warm = known.whole.seen() >= super::average::WARM;
            known.whole.learn(if warm { counted.min(before.whole * OFF) } else { counted.min(1e6) }, 1.0);
            let Some(prompt) = prompt else { continue };
            let media = before.media * prompt.media_tokens as f64;
            let text = before.text.at(prompt.text_bytes as f64);
            let rest = (counted - framing(prompt)).max(0.0);
            if prompt.kept {
                known.kept.learn((rest - media - text).clamp(0.0, most.max(1e6)), 1.0);
            } else if prompt.media_tokens == 0 {
                if prompt.text_bytes > 0 {
                    known.text.learn(prompt.text_bytes as f64, rest, text);
                }
            } else if media > text {
                let thought = prompt.media_tokens as f64;
                known.media.learn((rest - text).clamp(thought / MEDIA_OFF, thought * MEDIA_OFF), thought);
            }
        }
    }

    fn learn_output(
        &mut self,
        facts: &RequestFacts,
        tenant: &str,
        sample: &mut LengthSample,
        tokens: u64,
        complete: bool,
    ) {
        let prompt = facts.prompt.as_ref();
        let answers = answers(prompt);
        let length = tokens.div_ceil(answers);
        sample.counted(length, answers);
        // An empty answer is not possible, and calls that run no model say nothing about one.
        if tokens == 0 || answers > MOST_ANSWERS || facts.route == Route::Bypass {
            return;
        }
        let Answer::Learned(_) = answer(facts.task, prompt) else { return };
        for (key, next) in keys(facts, tenant).into_iter().zip(&mut sample.next) {
            self.outputs.entry(key).learn(next, length, most(prompt).unwrap_or(u64::MAX), complete);
        }
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.inputs.len(), self.outputs.len())
    }

    /// Returns the expected input tokens, and how many of them come from the cache.
    fn input(&self, facts: &RequestFacts, tenant: &str) -> (u64, u64) {
        let reading = self.reading(facts.model.as_deref(), Some(tenant));
        let input = up(reading.tokens(facts.prompt.as_ref()));
        (input, (reading.cached.clamp(0.0, 1.0) * input as f64) as u64)
    }

    fn reading(&self, model: Option<&str>, tenant: Option<&str>) -> Reading {
        let mut reading = COLD;
        if let Some(known) = self.inputs.get((model, None::<&str>)) {
            reading = reading.with(known, true);
        }
        if let Some(known) = tenant.and_then(|tenant| self.inputs.get((model, Some(tenant)))) {
            reading = reading.with(known, false);
        }
        reading
    }

    /// Returns the lengths of the answers of such a call, from the most general level to its
    /// tenant. All lengths are `cold` if nothing is known.
    fn lengths(&self, facts: &RequestFacts, tenant: &str, cold: u64) -> Lengths {
        let mut lengths = Lengths::all(cold);
        for (level, key) in keys(facts, tenant).into_iter().enumerate() {
            if let Some(known) = self.outputs.get(key) {
                lengths = known.instead_of(lengths, level == 0);
            }
        }
        lengths
    }
}

/// Factor by which the media rules may be wrong.
const MEDIA_OFF: f64 = 16.0;

/// Counts beyond this multiple of the expectation are not believed.
const OFF: f64 = 16.0;

/// Relative error of sums of rounded shares.
const ROUNDING: f64 = 1e-5;

/// Rounds up to whole tokens, ignoring the rounding error of sums. The cast saturates.
fn up(tokens: f64) -> u64 {
    (tokens - ROUNDING * tokens.max(1.0)).ceil() as u64
}

type Key<'a> = (Task, Option<&'a str>, Option<Class>, Option<&'a str>);

/// Returns the keys by model, by class and by tenant.
fn keys<'a>(facts: &'a RequestFacts, tenant: &'a str) -> [Key<'a>; 3] {
    let (task, model) = (facts.task, facts.model.as_deref());
    let class = Some(Class::of(facts.prompt.as_ref()));
    [(task, model, None, None), (task, model, class, None), (task, model, class, Some(tenant))]
}

/// Calls with answers of a similar kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Class {
    most: u8,
    thinking: u8,
}

impl Class {
    fn of(prompt: Option<&Prompt>) -> Self {
        // One to three tokens, four to fifteen, and so on. Calls without a limit are a class of
        // their own.
        let step = |tokens: u64| 1 + (tokens.max(1).ilog2() / 2) as u8;
        Self {
            most: most(prompt).map_or(0, step),
            thinking: prompt.and_then(|prompt| prompt.thinking).map_or(0, step),
        }
    }
}

/// Returns the maximum length of one answer.
fn most(prompt: Option<&Prompt>) -> Option<u64> {
    prompt.and_then(|prompt| prompt.max_tokens)
}

fn answers(prompt: Option<&Prompt>) -> u64 {
    prompt.and_then(|prompt| prompt.answers).unwrap_or(1).max(1)
}

impl Default for Estimator {
    fn default() -> Self {
        Self::new()
    }
}
