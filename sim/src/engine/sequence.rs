//! One sequence in an engine.

use super::SequenceId;
use super::blocks::BlockTable;

#[derive(Debug, Clone)]
pub(super) struct Sequence {
    pub(super) id: SequenceId,
    prompt: u32,
    output: u32,
    generated: u32,
    /// Number of tokens whose keys and values are in the KV cache.
    computed: u32,
    /// Number of tokens that the current step computes; 0 outside of a step.
    scheduled: u32,
    /// The KV blocks that the sequence holds. Empty while the sequence waits in the queue.
    pub(super) table: BlockTable,
    /// Whether [`EventKind::Admitted`](super::EventKind::Admitted) was reported. It is not reported
    /// again after a preemption.
    pub(super) admitted: bool,
}

impl Sequence {
    pub(super) fn new(id: SequenceId, prompt: u32, output: u32, table: BlockTable) -> Self {
        Self { id, prompt, output, generated: 0, computed: 0, scheduled: 0, table, admitted: false }
    }

    /// Returns the number of tokens that the sequence will have at its end, prompt and output
    /// together.
    pub(super) fn final_tokens(&self) -> u64 {
        u64::from(self.prompt) + u64::from(self.output)
    }

    /// Returns the number of known tokens that are not computed: at first the whole prompt, later
    /// the last generated token, and after a preemption all tokens so far.
    pub(super) fn uncomputed(&self) -> u32 {
        self.prompt + self.generated - self.computed
    }

    /// Returns `true` if only the last generated token remains to be computed, so that the next
    /// step generates a token.
    pub(super) fn decoding(&self) -> bool {
        self.generated > 0 && self.uncomputed() == 1
    }

    /// Returns the number of this sequence's tokens in the KV cache after `new` more tokens are
    /// computed.
    pub(super) fn tokens_after(&self, new: u32) -> u32 {
        self.computed + new
    }

    pub(super) fn prompt(&self) -> u32 {
        self.prompt
    }

    /// Returns how many tokens, from the first on, may be taken from the prefix cache: all known
    /// tokens except the last, which must be computed to generate the next token.
    pub(super) fn reusable(&self) -> u32 {
        self.prompt + self.generated - 1
    }

    /// Records that the first `tokens` tokens were found in the prefix cache, and need not be
    /// computed.
    pub(super) fn reuse(&mut self, tokens: u32) {
        self.computed = tokens;
    }

    pub(super) fn schedule(&mut self, new: u32) {
        self.scheduled = new;
    }

    /// Applies a step that has ended. Returns the index of the token that the sequence generated,
    /// from 0, or `None` if it generated none, because a part of its prompt is still uncomputed or
    /// it was not part of the step.
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

    /// Forgets which tokens are computed, so that the sequence is recomputed after a preemption.
    pub(super) fn reset(&mut self) {
        self.computed = 0;
        self.scheduled = 0;
    }
}
