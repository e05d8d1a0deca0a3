//! One sequence in an engine.

use super::SequenceId;
use super::blocks::BlockTable;

#[derive(Debug, Clone)]
pub(super) struct Sequence {
    pub(super) id: SequenceId,
    prompt: u32,
    output: u32,
    generated: u32,
    /// Tokens whose keys and values are in the cache.
    computed: u32,
    /// Tokens that the step in progress computes.
    scheduled: u32,
    /// KV blocks held; none while waiting.
    pub(super) table: BlockTable,
    /// Has been admitted before (a preempted sequence is not admitted twice).
    pub(super) admitted: bool,
}

impl Sequence {
    pub(super) fn new(id: SequenceId, prompt: u32, output: u32, table: BlockTable) -> Self {
        Self { id, prompt, output, generated: 0, computed: 0, scheduled: 0, table, admitted: false }
    }

    /// Length at its end.
    pub(super) fn final_tokens(&self) -> u64 {
        u64::from(self.prompt) + u64::from(self.output)
    }

    /// Tokens known but not yet computed: the prompt at first, then one a step; all of them again after a
    /// preemption.
    pub(super) fn uncomputed(&self) -> u32 {
        self.prompt + self.generated - self.computed
    }

    /// Whether the next token to compute is the one it generated last, all before it being in the cache.
    pub(super) fn decoding(&self) -> bool {
        self.generated > 0 && self.uncomputed() == 1
    }

    /// Cache positions needed once `new` more tokens are computed.
    pub(super) fn tokens_after(&self, new: u32) -> u32 {
        self.computed + new
    }

    pub(super) fn prompt(&self) -> u32 {
        self.prompt
    }

    /// Its first tokens that may be taken from the cache: all but the last one known, of which the next is made.
    pub(super) fn reusable(&self) -> u32 {
        self.prompt + self.generated - 1
    }

    /// Begins with so many tokens already in the cache.
    pub(super) fn reuse(&mut self, tokens: u32) {
        self.computed = tokens;
    }

    pub(super) fn schedule(&mut self, new: u32) {
        self.scheduled = new;
    }

    /// Ends a step: the index of the token that it generated, if it did.
    pub(super) fn commit(&mut self) -> Option<u32> {
        let ran = std::mem::take(&mut self.scheduled);
        self.computed += ran;
        // A chunk of a prompt yields no token, and a sequence left out of the step (budget spent) none
        // either.
        if ran == 0 || self.uncomputed() > 0 {
            return None;
        }
        self.generated += 1;
        Some(self.generated - 1)
    }

    pub(super) fn finished(&self) -> bool {
        self.generated >= self.output
    }

    /// Forgets what was computed, so that it is computed anew.
    pub(super) fn reset(&mut self) {
        self.computed = 0;
        self.scheduled = 0;
    }
}
