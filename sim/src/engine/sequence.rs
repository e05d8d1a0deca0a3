//! One sequence in an engine.

use super::SequenceId;
use super::blocks::BlockTable;

#[derive(Debug, Clone)]
pub(super) struct Sequence {
    pub(super) id: SequenceId,
    prompt: u32,
    output: u32,
    generated: u32,
    /// Number of tokens whose keys and values are in the cache.
    computed: u32,
    /// Number of tokens that the current step computes.
    scheduled: u32,
    /// KV blocks held. Empty while waiting.
    pub(super) table: BlockTable,
    /// Whether the sequence was admitted before. A preempted sequence is not reported as admitted
    /// again.
    pub(super) admitted: bool,
}

impl Sequence {
    pub(super) fn new(id: SequenceId, prompt: u32, output: u32, table: BlockTable) -> Self {
        Self { id, prompt, output, generated: 0, computed: 0, scheduled: 0, table, admitted: false }
    }

    /// Returns the length at the end, in tokens.
    pub(super) fn final_tokens(&self) -> u64 {
        u64::from(self.prompt) + u64::from(self.output)
    }

    /// Returns the number of known tokens that are not computed: first the prompt, then one per
    /// step, and all tokens after a preemption.
    pub(super) fn uncomputed(&self) -> u32 {
        self.prompt + self.generated - self.computed
    }

    /// Returns `true` if only the last generated token remains to be computed.
    pub(super) fn decoding(&self) -> bool {
        self.generated > 0 && self.uncomputed() == 1
    }

    /// Returns the number of cache positions needed after `new` more tokens are computed.
    pub(super) fn tokens_after(&self, new: u32) -> u32 {
        self.computed + new
    }

    pub(super) fn prompt(&self) -> u32 {
        self.prompt
    }

    /// Returns how many of the first tokens may come from the cache: all except the last known
    /// token, which the next token depends on.
    pub(super) fn reusable(&self) -> u32 {
        self.prompt + self.generated - 1
    }

    /// Marks the first `tokens` tokens as already computed.
    pub(super) fn reuse(&mut self, tokens: u32) {
        self.computed = tokens;
    }

    pub(super) fn schedule(&mut self, new: u32) {
        self.scheduled = new;
    }

    /// Ends a step, and returns the index of the token that the sequence generated, if any.
    pub(super) fn commit(&mut self) -> Option<u32> {
        let ran = std::mem::take(&mut self.scheduled);
        self.computed += ran;
        // A prompt chunk yields no token, and neither does a sequence that the budget excluded from
        // the step.
        if ran == 0 || self.uncomputed() > 0 {
            return None;
        }
        self.generated += 1;
        Some(self.generated - 1)
    }

    pub(super) fn finished(&self) -> bool {
        self.generated >= self.output
    }

    /// Discards what was computed, so that the sequence is recomputed.
    pub(super) fn reset(&mut self) {
        self.computed = 0;
        self.scheduled = 0;
    }
}
