//! What calls take, learned from what providers counted.

use std::fmt;
use std::sync::Arc;

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

/// Models, and tenants of each, of which the input is known.
const INPUTS: usize = 1_024;

/// Models, classes of `max_tokens` and thinking of each, and tenants of each of those, of which the output is known.
const OUTPUTS: usize = 2_048;

/// More answers than any provider gives to one call: such a call teaches nothing of its answers.
const MOST_ANSWERS: u64 = 1_024;

/// Nothing that is counted is believed beyond this, in tokens.
const ABSURD: u64 = 1 << 32;

/// What the calls of one target take. Pure: told what was counted, asked what to expect; it looks at no clock.
///
/// *Input* is a line over the bytes of text: a ratio, and what the server adds to each prompt. *Output* is the distribution of lengths of one answer,
/// by class (`max_tokens` in steps of four times, and how much thinking is asked for). Each is known of a model, and of its tenants apart as far as
/// they were seen: a tenant weighs as much as its model once five of its calls were. Answers in flight, and those that broke off, count as at least as
/// long as they were seen to be ([`LengthSample`]). Cold, as documented at [`Task`] and [`COLD_RATIO`](super::COLD_RATIO), which are
/// above the truth mostly; warm, and nothing of that left, after eight responses of a model. What was learned is half forgotten after 138 more.
///
/// *Robust*: once warm, a response counts for four times what was expected of its text at most, and for four times the longest answer but one in a hundred,
/// whatever it says; zeros teach nothing where zero cannot be.
/// *Bounded*: 2 MB at most, however many tenants and models there are; of those learned of the longest ago nothing is known any more.
pub struct Estimator {
    inputs: Recent<Input>,
    outputs: Recent<Observed>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Input {
    text: Line,
    /// Tokens that images, sound and files cost, for each that they were thought to cost.
    media: Average,
    /// What comes from where we cannot see it, as an earlier response that the provider keeps.
    kept: Average,
    /// All of a prompt.
    whole: Average,
    /// Cached tokens for each token of input.
    cached: Average,
}

/// What is expected of a call's input.
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
    /// With what is known of `input` in place of this belief.
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

/// What is neither text nor media.
fn framing(prompt: &Prompt) -> f64 {
    prompt.messages as f64 * MESSAGE as f64 + prompt.token_ids as f64
}

impl Estimator {
    /// Cold.
    pub fn new() -> Self {
        Self { inputs: Recent::new(INPUTS), outputs: Recent::new(OUTPUTS) }
    }

    /// What a call is expected to take. Takes about 1.5 µs.
    pub fn demand(&self, facts: &RequestFacts, tenant: &Arc<str>) -> Demand {
        if facts.route == Route::Bypass {
            return Demand::default();
        }
        let prompt = facts.prompt.as_ref();
        let most = most(prompt);
        let answers = answers(prompt) as f64;
        let (output, max_output) = match answer(facts.task, prompt) {
            Answer::None => (0.0, Some(0)),
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

    /// How long a call's answers will be, in all that is known of it: for memory, which holds what is still to come. Takes about 1.5 µs.
    pub fn expect(&self, facts: &RequestFacts, tenant: &Arc<str>) -> Output {
        let prompt = facts.prompt.as_ref();
        match answer(facts.task, prompt) {
            Answer::None => Output::none(),
            Answer::Stated(length) => Output::new(Lengths::all(length), Some(length), 1),
            Answer::Learned(cold) => {
                Output::new(self.lengths(facts, tenant, cold), most(prompt), answers(prompt))
            }
        }
    }

    /// How many of a call's input tokens will come out of the provider's cache; at most its expected input.
    pub fn cached(&self, facts: &RequestFacts, tenant: &Arc<str>) -> u64 {
        self.input(facts, tenant).1
    }

    /// Tokens for each byte of text of a model; [`COLD_RATIO`](super::COLD_RATIO) where nothing is known of it.
    pub fn ratio(&self, model: Option<&str>) -> f64 {
        self.reading(model, None).text.ratio
    }

    /// Learns that a call has produced so many tokens, of all its answers together, and goes on: its
    /// answers are at least so long.
    pub fn observe(
        &mut self,
        facts: &RequestFacts,
        tenant: &Arc<str>,
        sample: &mut LengthSample,
        produced: u64,
    ) {
        if sample.is_due(produced) {
            self.learn_output(facts, tenant, sample, produced, Observed::reach);
        }
    }

    /// A call was counted; takes about 1.5 µs. `usage` is of all its answers together, as the provider told it at the end; `sample` is what was observed of
    /// them on the way.
    pub fn learn(
        &mut self,
        facts: &RequestFacts,
        tenant: &Arc<str>,
        sample: &mut LengthSample,
        usage: &Usage,
    ) {
        if facts.route == Route::Bypass {
            return;
        }
        self.learn_input(facts, tenant, usage);
        self.learn_output(facts, tenant, sample, usage.output, Observed::end);
    }

    fn learn_input(&mut self, facts: &RequestFacts, tenant: &Arc<str>, usage: &Usage) {
        // No prompt is empty.
        if usage.input == 0 {
            return;
        }
        let model = facts.model.as_deref();
        let prompt = facts.prompt.as_ref();
        // As it was expected before: what is learned of a tenant is judged by what was known of it.
        let before = self.reading(model, Some(tenant));
        let most = before.tokens(prompt).mul_add(OFF, MESSAGE as f64 * OFF);
        let counted = usage.input.min(ABSURD) as f64;
        let cached = usage.cached_input.min(usage.input).min(ABSURD) as f64;
        for key in [(model, None), (model, Some(&**tenant))] {
            let known = self.inputs.entry(key);
            // Tokens, not shares: a long prompt out of the cache is worth more than a short one. As long as any may be, at most.
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
        tenant: &Arc<str>,
        sample: &mut LengthSample,
        tokens: u64,
        learn: fn(&mut Observed, &mut u8, u64, u64) -> u64,
    ) {
        let prompt = facts.prompt.as_ref();
        let answers = answers(prompt);
        let length = tokens.div_ceil(answers);
        sample.counted(length, answers);
        // Nothing that answers answers with nothing, and what runs no model says nothing of one.
        if tokens == 0 || answers > MOST_ANSWERS || facts.route == Route::Bypass {
            return;
        }
        let Answer::Learned(_) = answer(facts.task, prompt) else { return };
        for (key, next) in keys(facts, tenant).into_iter().zip(&mut sample.next) {
            learn(self.outputs.entry(key), next, length, most(prompt).unwrap_or(u64::MAX));
        }
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.inputs.len(), self.outputs.len())
    }

    /// The input, and what of it will come out of the cache.
    fn input(&self, facts: &RequestFacts, tenant: &Arc<str>) -> (u64, u64) {
        let reading = self.reading(facts.model.as_deref(), Some(tenant));
        let input = up(reading.tokens(facts.prompt.as_ref()));
        (input, (reading.cached.clamp(0.0, 1.0) * input as f64) as u64)
    }

    fn reading(&self, model: Option<&str>, tenant: Option<&Arc<str>>) -> Reading {
        let mut reading = COLD;
        if let Some(known) = self.inputs.get((model, None::<&str>)) {
            reading = reading.with(known, true);
        }
        if let Some(known) = tenant.and_then(|tenant| self.inputs.get((model, Some(&**tenant)))) {
            reading = reading.with(known, false);
        }
        reading
    }

    /// Returns the lengths of answers of such a call, from what is known most generally to what is
    /// known of its tenant; all of them are `cold` if nothing is known.
    fn lengths(&self, facts: &RequestFacts, tenant: &Arc<str>, cold: u64) -> Lengths {
        let levels = keys(facts, tenant).map(|key| self.outputs.get(key));
        levels.into_iter().enumerate().fold(Lengths::all(cold), |lengths, (level, known)| match known {
            Some(known) => known.instead_of(lengths, level == 0),
            None => lengths,
        })
    }
}

/// Media are counted so differently that their rules may be off by this.
const MEDIA_OFF: f64 = 16.0;

/// What is counted beyond so many times what was expected is not believed.
const OFF: f64 = 16.0;

/// How far sums of rounded shares are off, relative to what they add up to.
const ROUNDING: f64 = 1e-5;

/// To whole tokens, upwards but for what sums of fractions are off by. The cast saturates, and rounds beyond 2^53.
fn up(tokens: f64) -> u64 {
    (tokens - ROUNDING * tokens.max(1.0)).ceil() as u64
}

type Key<'a> = (Task, Option<&'a str>, Option<Class>, Option<&'a str>);

/// By model, by class, by tenant.
fn keys<'a>(facts: &'a RequestFacts, tenant: &'a Arc<str>) -> [Key<'a>; 3] {
    let (task, model) = (facts.task, facts.model.as_deref());
    let class = Some(Class::of(facts.prompt.as_ref()));
    [(task, model, None, None), (task, model, class, None), (task, model, class, Some(tenant))]
}

/// Calls whose answers are of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Class {
    most: u8,
    thinking: u8,
}

impl Class {
    fn of(prompt: Option<&Prompt>) -> Self {
        // One to three tokens, four to fifteen, and so on; apart, where nothing is said.
        let step = |tokens: u64| 1 + (tokens.max(1).ilog2() / 2) as u8;
        Self {
            most: most(prompt).map_or(0, step),
            thinking: prompt.and_then(|prompt| prompt.thinking).map_or(0, step),
        }
    }
}

/// The longest one answer may be.
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

impl fmt::Debug for Estimator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Estimator")
            .field("inputs", &self.inputs.len())
            .field("outputs", &self.outputs.len())
            .finish()
    }
}
