//! Estimates the tokens of calls, and learns from the token counts that providers report.

use super::UNSEEN_INPUT;
use super::demand::Demand;
use super::learned_lengths::{LengthCounts, LengthDistribution, LengthSample, MAX_LENGTH};
use super::lru_map::LruMap;
use super::output_distribution::Output;
use super::prior_length::{AnswerLength, answer_length};
use super::regression::{Line, Regression};
use super::weighted_average::{Average, WARM_COUNT};
use tidegate_protocol::prompt::{MESSAGE_TOKENS, Prompt, Task};
use tidegate_protocol::{Purpose, RequestFacts, Usage};

/// The maximum number of entries that [`Estimator`] keeps about input: one per model, and one per
/// model and tenant.
const MAX_INPUTS: usize = 1_024;

/// The maximum number of entries that [`Estimator`] keeps about output: for each task, one per
/// model, one per model and [`OutputClass`], and one per model, class and tenant.
const MAX_OUTPUTS: usize = 2_048;

/// The maximum number of answers of one call (`n`, for each prompt of a list). Calls with more are
/// not learned from.
const MAX_ANSWERS: u64 = 1_024;

/// The maximum input, in tokens, that is learned from one usage report. Larger reports count as
/// this many.
const MAX_BELIEVED: u64 = 1 << 32;

/// Estimates the input and output tokens of the calls of one target, per model and tenant.
///
/// The estimator is pure: it reads no clock and does no I/O.
///
/// - The input tokens of a prompt are a linear function of its bytes of text. The slope is the
///   model's ratio of tokens to bytes, and the intercept is what the server adds to each prompt.
/// - The output tokens follow the distribution of the lengths of one answer. There is one
///   distribution per class of calls: the power of four that `max_tokens` falls in, and that of the
///   thinking budget. Answers that are in flight or truncated count as at least as long as they are
///   ([`LengthSample`]).
/// - After five calls of a tenant, the values of the tenant have the same weight as those of its
///   model.
/// - Before the first response of a model, the estimates are defaults ([`Task`],
///   [`COLD_RATIO`](super::COLD_RATIO)), most of which are too high. After eight responses the
///   defaults have no weight. The weight of a response halves with each 138 later responses.
///
/// # Guarantees
///
/// - *Robust*: after eight responses of a model, the text of one response counts for at most four
///   times its expected tokens, and one answer for at most four times the 99th percentile of
///   lengths. Reports of 0 tokens are ignored if 0 is impossible.
/// - *Bounded*: the memory is at most 2 MB for any number of tenants and models. The entries that
///   were updated the longest time ago are dropped first.
///
/// ```
/// use tidegate_protocol::{RequestFacts, Usage};
/// use tidegate_tokens::{Estimator, LengthSample};
///
/// let mut estimator = Estimator::new();
/// let facts = RequestFacts::unknown();
/// assert_eq!(estimator.demand(&facts, "acme").input, tidegate_tokens::UNSEEN_INPUT);
/// let usage = Usage { input: 300, output: 40, cached_input: 0 };
/// for _ in 0..8 {
///     estimator.learn(&facts, "acme", &mut LengthSample::default(), &usage);
/// }
/// assert_eq!(estimator.demand(&facts, "acme").input, 300);
/// ```
#[derive(Debug, Default)]
pub struct Estimator {
    inputs: LruMap<InputStats, MAX_INPUTS>,
    outputs: LruMap<LengthCounts, MAX_OUTPUTS>,
}

/// What was learned about the input of one model, or of one tenant of a model.
#[derive(Clone, Copy, Debug, Default)]
struct InputStats {
    /// The tokens of a text as a function of its bytes.
    text: Regression,
    /// Reported tokens of images, audio and files, per estimated token.
    media: Average,
    /// Tokens of content that the request refers to and does not contain, such as an earlier
    /// response that the provider stores. The average is per request with such content.
    stored: Average,
    /// Tokens of a whole prompt, for calls whose prompt is not known.
    total: Average,
    /// Tokens read from the provider's cache, per input token.
    cached: Average,
}

/// The values from which estimates of input tokens are computed, one for each statistic of
/// [`InputStats`].
#[derive(Clone, Copy, Debug)]
struct InputModel {
    text: Line,
    media: f64,
    stored: f64,
    total: f64,
    cached: f64,
    /// Whether anything was learned.
    is_learned: bool,
}

/// The values used while nothing was learned about a model.
const COLD_INPUT: InputModel = InputModel {
    text: Line::COLD,
    media: 1.0,
    stored: 0.0,
    total: UNSEEN_INPUT as f64,
    cached: 0.0,
    is_learned: false,
};

impl InputModel {
    /// Returns the average of these values and of the values learned in `input`, weighted by the
    /// number of observations ([`own_weight`](super::weighted_average::own_weight)).
    /// `prior_is_cold` is `true` if these values are the defaults.
    fn blended_with(self, input: &InputStats, prior_is_cold: bool) -> Self {
        Self {
            text: input.text.blended_with(self.text, prior_is_cold),
            media: input.media.blended_with(self.media, prior_is_cold),
            stored: input.stored.blended_with(self.stored, prior_is_cold),
            total: input.total.blended_with(self.total, prior_is_cold),
            cached: input.cached.blended_with(self.cached, prior_is_cold),
            is_learned: true,
        }
    }

    /// Returns the expected input tokens of a call. `prompt` is `None` if the prompt is not known.
    ///
    /// If nothing was counted in a prompt, the server probably has an API of its own, so that only
    /// its reports tell the input.
    fn tokens(&self, prompt: Option<&Prompt>) -> f64 {
        let is_counted = |prompt: &&Prompt| !(self.is_learned && prompt.is_empty());
        let Some(prompt) = prompt.filter(is_counted) else { return self.total };
        let kept = if prompt.has_stored_context { self.stored } else { 0.0 };
        let empty = prompt.text_bytes == 0 && prompt.messages == 0;
        let text = if empty { 0.0 } else { self.text.tokens(prompt.text_bytes as f64) };
        text + framing(prompt) + self.media_tokens(prompt) + kept
    }

    /// Returns the expected input tokens of the images, audio, videos and documents of a prompt.
    fn media_tokens(&self, prompt: &Prompt) -> f64 {
        self.media * prompt.media_tokens as f64
    }
}

/// Returns the tokens of message separators and of token ids, which do not depend on learned
/// values.
fn framing(prompt: &Prompt) -> f64 {
    prompt.messages as f64 * MESSAGE_TOKENS as f64 + prompt.token_ids as f64
}

impl Estimator {
    /// Creates an estimator that has learned nothing and returns the defaults for every model.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the expected tokens of a call before it is sent.
    ///
    /// A call that runs no model ([`Purpose::Other`]) has a demand of 0.
    pub fn demand(&self, facts: &RequestFacts, tenant: &str) -> Demand {
        if facts.purpose == Purpose::Other {
            return Demand::default();
        }
        let prompt = facts.prompt.unwrap_or_default();
        let (output, max_output) = match answer_length(facts.task, &prompt) {
            AnswerLength::Stated(length) => (length as f64, Some(length)),
            AnswerLength::Learned(cold) => {
                let mean = self.mean_length(facts, tenant, cold);
                let max = prompt.max_tokens.unwrap_or(MAX_LENGTH).min(MAX_LENGTH);
                (mean.min(max as f64) * answers(&prompt) as f64, prompt.max_output())
            }
        };
        let output = round_up(output).min(max_output.unwrap_or(u64::MAX));
        let input_model = self.input_model(facts.model.as_deref(), Some(tenant));
        let input = round_up(input_model.tokens(facts.prompt.as_ref()));
        let cached = (input_model.cached.clamp(0.0, 1.0) * input as f64) as u64;
        let media = round_up(input_model.media_tokens(&prompt)).min(input);
        let dialect = Some(facts.dialect);
        Demand { input, media, output, max_output, cached, exact: false, dialect }
    }

    /// Returns the distribution of the output tokens of a call. Takes about 1.5 µs.
    pub fn output(&self, facts: &RequestFacts, tenant: &str) -> Output {
        let prompt = facts.prompt.unwrap_or_default();
        let (lengths, max, answers) = match answer_length(facts.task, &prompt) {
            AnswerLength::Stated(length) => (LengthDistribution::single(length), Some(length), 1),
            AnswerLength::Learned(cold) => {
                (self.lengths(facts, tenant, cold), prompt.max_tokens, answers(&prompt))
            }
        };
        Output::new(lengths, max, answers)
    }

    /// Returns the tokens per byte of text of a model, or [`COLD_RATIO`](super::COLD_RATIO) if none
    /// of its responses was learned.
    #[cfg(test)]
    pub(super) fn ratio(&self, model: Option<&str>) -> f64 {
        self.input_model(model, None).text.ratio
    }

    /// Records that a call has produced `produced` output tokens so far, over all its answers, and
    /// has not ended.
    ///
    /// Does nothing unless [`LengthSample::is_due`] is `true`. Each attempt of a call has a
    /// `sample` of its own.
    pub fn observe(&mut self, facts: &RequestFacts, tenant: &str, sample: &mut LengthSample, produced: u64) {
        if sample.is_due(produced) {
            self.learn_output(facts, tenant, sample, produced, false);
        }
    }

    /// Learns from the usage that the provider reported for a complete response.
    ///
    /// `usage` covers all answers of the call. `sample` is the one that was passed to
    /// [`Estimator::observe`] for the same attempt, or a new one. A call that runs no model
    /// ([`Purpose::Other`]) changes nothing.
    pub fn learn(&mut self, facts: &RequestFacts, tenant: &str, sample: &mut LengthSample, usage: &Usage) {
        if facts.purpose == Purpose::Other {
            return;
        }
        self.learn_input(facts, tenant, usage);
        self.learn_output(facts, tenant, sample, usage.output, true);
    }

    /// Updates the input statistics of the call's model, both those over all tenants and those of
    /// this tenant, by the reported usage.
    fn learn_input(&mut self, facts: &RequestFacts, tenant: &str, usage: &Usage) {
        // A usage report without input is wrong, because no prompt is empty.
        if usage.input == 0 {
            return;
        }
        let model = facts.model.as_deref();
        let prompt = facts.prompt.as_ref();
        // The values of the model and of the tenant are both compared with the expectation from
        // before this call.
        let before = self.input_model(model, Some(tenant));
        let max = before.tokens(prompt).mul_add(MAX_DEVIATION, MESSAGE_TOKENS as f64 * MAX_DEVIATION);
        let counted = usage.input.min(MAX_BELIEVED) as f64;
        let cached = usage.cached_input.min(usage.input).min(MAX_BELIEVED) as f64;
        for key in [(model, None), (model, Some(tenant))] {
            let known = self.inputs.entry(key);
            // Weighted by tokens, because a cached long prompt saves more than a cached short one.
            let weight = counted.min(1e6);
            known.cached.learn(cached / counted * weight, weight);
            let is_warm = known.total.count >= WARM_COUNT;
            let total = if is_warm { counted.min(before.total * MAX_DEVIATION) } else { weight };
            known.total.learn(total, 1.0);
            let Some(prompt) = prompt else { continue };
            let media = before.media_tokens(prompt);
            let text = before.text.tokens(prompt.text_bytes as f64);
            let rest = (counted - framing(prompt)).max(0.0);
            if prompt.has_stored_context {
                known.stored.learn((rest - media - text).clamp(0.0, max.max(1e6)), 1.0);
            } else if prompt.media_tokens == 0 {
                if prompt.text_bytes > 0 {
                    known.text.learn(prompt.text_bytes as f64, rest, text);
                }
            } else if media > text {
                let estimated = prompt.media_tokens as f64;
                let (min, max) = (estimated / MAX_MEDIA_DEVIATION, estimated * MAX_MEDIA_DEVIATION);
                known.media.learn((rest - text).clamp(min, max), estimated);
            }
        }
    }

    /// Updates the length statistics of the call's model, class and tenant. `tokens` are those of
    /// all answers. If not `complete`, the answers are at least that long.
    fn learn_output(
        &mut self,
        facts: &RequestFacts,
        tenant: &str,
        sample: &mut LengthSample,
        tokens: u64,
        complete: bool,
    ) {
        let prompt = facts.prompt.unwrap_or_default();
        let answers = answers(&prompt);
        let length = tokens.div_ceil(answers);
        sample.mark_counted(length, answers);
        // An answer is never empty, and a call that runs no model has none.
        if tokens == 0 || prompt.all_answers() > MAX_ANSWERS || facts.purpose == Purpose::Other {
            return;
        }
        let AnswerLength::Learned(_) = answer_length(facts.task, &prompt) else { return };
        let max = prompt.max_tokens.unwrap_or(u64::MAX);
        for (key, next) in output_keys(facts, tenant).into_iter().zip(&mut sample.next) {
            self.outputs.entry(key).learn(next, length, max, complete);
        }
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.inputs.len(), self.outputs.len())
    }

    /// Returns the values from which the input tokens of a call are estimated: the defaults,
    /// blended with the values learned for the model and, unless `tenant` is `None`, with those
    /// learned for the tenant of the model.
    fn input_model(&self, model: Option<&str>, tenant: Option<&str>) -> InputModel {
        let mut blend = COLD_INPUT;
        if let Some(known) = self.inputs.get((model, None::<&str>)) {
            blend = blend.blended_with(known, true);
        }
        if let Some(known) = tenant.and_then(|tenant| self.inputs.get((model, Some(tenant)))) {
            blend = blend.blended_with(known, false);
        }
        blend
    }

    /// Returns the mean of [`Estimator::lengths`], without the distribution if it is not needed.
    fn mean_length(&self, facts: &RequestFacts, tenant: &str, cold: u64) -> f64 {
        let known = output_keys(facts, tenant).into_iter().map(|key| self.outputs.get(key)).enumerate();
        let mean = known
            .filter_map(|(level, known)| Some((level, known?)))
            .try_fold(cold as f64, |mean, (level, known)| known.blended_mean(mean, level == 0));
        mean.unwrap_or_else(|| self.lengths(facts, tenant, cold).mean)
    }

    /// Returns the distribution of the lengths of one answer, in tokens. Starts with `cold` as the
    /// only length, and blends in the model, the class and the tenant, each if it was observed.
    fn lengths(&self, facts: &RequestFacts, tenant: &str, cold: u64) -> LengthDistribution {
        let mut lengths = LengthDistribution::single(cold);
        for (level, key) in output_keys(facts, tenant).into_iter().enumerate() {
            if let Some(known) = self.outputs.get(key) {
                lengths = known.blended_with(lengths, level == 0);
            }
        }
        lengths
    }
}

/// The maximum factor between the reported and the estimated tokens of media. Larger deviations
/// are learned as this factor.
const MAX_MEDIA_DEVIATION: f64 = 16.0;

/// The maximum factor between the reported and the expected input tokens of a whole prompt. Larger
/// reports are learned as this factor.
const MAX_DEVIATION: f64 = 16.0;

/// The relative rounding error that is assumed for sums of probabilities.
const ROUNDING: f64 = 1e-5;

/// Returns `tokens` rounded up to a whole number, after subtracting the relative rounding error
/// [`ROUNDING`]. Saturates.
fn round_up(tokens: f64) -> u64 {
    (tokens - ROUNDING * tokens.max(1.0)).ceil() as u64
}

/// The key of an entry of the output statistics: task, model, class and tenant. A class or tenant
/// of `None` stands for all of them. A model of `None` stands for calls whose model is not known.
type OutputKey<'a> = (Task, Option<&'a str>, Option<OutputClass>, Option<&'a str>);

/// Returns the keys of the three entries that a call belongs to: those of its model, its class and
/// its tenant.
fn output_keys<'a>(facts: &'a RequestFacts, tenant: &'a str) -> [OutputKey<'a>; 3] {
    let (task, model) = (facts.task, facts.model.as_deref());
    let prompt = facts.prompt.unwrap_or_default();
    // A step is a power of four: step 1 is 1 to 3 tokens, step 2 is 4 to 15, and so on.
    let step = |tokens: Option<u64>| tokens.map_or(0, |tokens| 1 + (tokens.max(1).ilog2() / 2) as u8);
    let class = Some(OutputClass { max_tokens: step(prompt.max_tokens), thinking: step(prompt.thinking) });
    [(task, model, None, None), (task, model, class, None), (task, model, class, Some(tenant))]
}

/// A class of calls with similar limits of output and thinking tokens, because their answers have
/// similar lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OutputClass {
    /// The power of four that the `max_tokens` of the call falls in: 1 for 1 to 3 tokens, 2 for 4
    /// to 15, and so on. 0: no limit.
    max_tokens: u8,
    /// The power of four that the thinking budget falls in, in the same form. 0: the call states
    /// none.
    thinking: u8,
}

/// Returns the number of answers that the call requests, from 1 to [`MAX_ANSWERS`].
fn answers(prompt: &Prompt) -> u64 {
    prompt.all_answers().min(MAX_ANSWERS)
}
