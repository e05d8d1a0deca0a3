//! The calls of `kv`: their lengths, shared prefixes, and messages.

use fastrand::Rng;
use serde_json::{Value, json};
use tidegate::policy::kv::Prefix;

use crate::trace_lengths::{Traces, Work, log_normal};

/// A workload: how prompt and output lengths are drawn, and which prompts share a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    /// Conversations of the Azure trace.
    Conv,
    /// Alternating conversations and code completions of the Azure traces, all of one tenant, so
    /// that the gate learns a mixture.
    Mixed,
    /// Short prompts, and answers with a heavy tail: log-normal, with medians of 200 and 400
    /// tokens. The mean answer is nearly twice the median.
    Tail,
    /// Conversations, each after one of [`GROUPS`] different instructions of [`COMMON`] tokens.
    Shared,
    /// Like `Tail`, but one call in thirty has a prompt and an answer of 4,000 tokens each.
    OneLong,
}

/// The number of groups of [`Workload::Shared`]. All calls of a group begin with the same
/// instructions.
const GROUPS: u64 = 4;

/// The length of a group's instructions in [`Workload::Shared`], in tokens. It is a multiple of the
/// block size.
const COMMON: u32 = 2_048;

/// The engine's maximum length of a sequence (prompt and output), in tokens.
const LONGEST: u32 = 8_192;

/// Bytes per token, as the simulator counts tokens.
const BYTES: usize = 4;

/// The number of prompt tokens per prefix hash of the gate. They are 1,024 bytes of text.
const CHUNK: u32 = 256;

impl Workload {
    pub(super) const ALL: [Self; 5] = [Self::Conv, Self::Mixed, Self::Tail, Self::Shared, Self::OneLong];

    /// Returns the name of the workload in figures and tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Conv => "conv",
            Self::Mixed => "conv and code",
            Self::Tail => "heavy tail",
            Self::Shared => "shared prefixes",
            Self::OneLong => "one long among short",
        }
    }

    /// Draws the lengths of `calls` calls.
    pub(super) fn draw(self, traces: &Traces, seed: u64, calls: usize) -> Vec<Work> {
        let mut rng = Rng::with_seed(seed);
        match self {
            Self::Conv => traces.conversations(&mut rng).take(calls).collect(),
            Self::Mixed => {
                let code: Vec<Work> = traces.code(&mut rng).take(calls).collect();
                traces.conversations(&mut rng).zip(code).flat_map(|(a, b)| [a, b]).take(calls).collect()
            }
            Self::Tail => (0..calls).map(|_| tail(&mut rng)).collect(),
            Self::Shared => {
                let own = traces.conversations(&mut rng).filter(|own| own.total() <= LONGEST - COMMON);
                let own = own.take(calls);
                own.map(|own| Work { prompt: own.prompt + COMMON, ..own }).collect()
            }
            Self::OneLong => {
                let long = Work { prompt: 4_000, output: 4_000 };
                (0..calls).map(|nth| if nth % 30 == 29 { long } else { tail(&mut rng) }).collect()
            }
        }
    }

    /// Returns the number of prompt tokens that the calls of a group share. 0 if they share none.
    pub(super) fn common(self) -> u32 {
        if self == Self::Shared { COMMON } else { 0 }
    }

    /// Returns the number of the group of calls that the call with this id belongs to. Calls of a
    /// group begin with the same instructions.
    pub(super) fn group(self, id: u64) -> u64 {
        id % GROUPS
    }

    /// Returns the hashes of the blocks, of `block` tokens each, that the call shares with its
    /// group.
    pub(super) fn blocks(self, id: u64, block: u32) -> Vec<u64> {
        (0..u64::from(self.common() / block)).map(|nth| nth * GROUPS + self.group(id)).collect()
    }

    /// Returns the prefix of a call, as a gate would compute it.
    pub(super) fn prefix(self, id: u64, work: &Work) -> Prefix {
        let ends: Vec<u32> = (1..=self.common() / CHUNK).map(|nth| nth * CHUNK * BYTES as u32).collect();
        let hashes = (0..ends.len() as u64).map(|nth| nth * GROUPS + self.group(id));
        Prefix::new(hashes.collect(), ends, u64::from(work.prompt) * BYTES as u64)
    }

    /// Returns the messages of a call: instructions, if its workload has any, and a question.
    /// Together they have as many tokens as the prompt.
    pub(super) fn messages(self, id: u64, work: &Work) -> Value {
        let text = |tokens: u32, word: &str| word.repeat(tokens as usize);
        if self.common() == 0 {
            return json!([{"role": "user", "content": text(work.prompt, "tide")}]);
        }
        let instructions = text(self.common(), &format!("{:04}", self.group(id)));
        // The question differs from all others from its first token on.
        let question = text(work.prompt - self.common(), &format!("{id:04x}"));
        json!([{"role": "system", "content": instructions}, {"role": "user", "content": question}])
    }
}

/// Draws a call with a short prompt and an answer from the heavy tail.
fn tail(rng: &mut Rng) -> Work {
    Work {
        prompt: log_normal(rng, 200.0, 0.8, (8.0, 4_000.0)),
        output: log_normal(rng, 400.0, 1.2, (8.0, 4_000.0)),
    }
}
