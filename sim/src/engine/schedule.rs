//! The scheduler: selects what a step computes, and applies the results at its end.

use std::time::Duration;

use super::{Engine, EngineEvent, EventKind};

/// The amount of work in a step, from which the time of the step is computed.
#[derive(Debug, Default)]
struct StepPlan {
    sequences: u32,
    prefill_tokens: u32,
}

impl Engine {
    /// Begins a step at `now`. If no sequence can run, the engine becomes idle instead.
    pub(super) fn begin_step(&mut self, now: Duration) {
        let mut plan = StepPlan::default();
        let mut budget = self.config.max_num_batched_tokens;
        let preempted = self.schedule_running(now, &mut plan, &mut budget);
        // As in vLLM: a sequence that was just preempted must not take back the blocks that it
        // freed.
        if !preempted {
            self.schedule_waiting(now, &mut plan, &mut budget);
        }
        if plan.sequences == 0 {
            self.step_ends = None;
            return;
        }
        self.totals.steps += 1;
        self.totals.prefill_tokens += u64::from(plan.prefill_tokens);
        self.totals.peak_blocks = self.totals.peak_blocks.max(self.blocks.used());
        let took = self.config.step.time(plan.sequences, plan.prefill_tokens);
        self.step_ends = Some(now.saturating_add(took.mul_f64(self.slowdown.min(1e6))));
    }

    /// Selects tokens of the running sequences to compute, until `budget` tokens are selected.
    /// Subtracts the selected tokens from `budget`. Preempts sequences if the KV cache is full, and
    /// returns `true` if any sequence was preempted.
    fn schedule_running(&mut self, now: Duration, plan: &mut StepPlan, budget: &mut u32) -> bool {
        let mut preempted = false;
        let mut at = 0;
        while *budget > 0 {
            let Some(sequence) = self.running.get_mut(at) else { break };
            let new = sequence.uncomputed().min(*budget);
            let tokens = sequence.tokens_after(new);
            if self.blocks.grow(&mut sequence.table, tokens) {
                plan.add(sequence.decoding(), new);
                sequence.schedule(new);
                *budget -= new;
                at += 1;
            } else {
                // The last admitted sequence is preempted. If it is this sequence, the loop finds
                // no sequence at this index and ends.
                preempted = true;
                self.preempt_last(now);
            }
        }
        preempted
    }

    fn schedule_waiting(&mut self, now: Duration, plan: &mut StepPlan, budget: &mut u32) {
        while *budget > 0 && self.running.len() < self.config.max_num_seqs as usize {
            let Some(first) = self.waiting.front_mut() else { break };
            let found = self.blocks.cached_tokens(&first.table, first.reusable());
            let uncomputed = first.uncomputed();
            let new = (uncomputed - found).min(*budget);
            // No overtaking: a first sequence that does not fit blocks the queue. It fits only if
            // its whole prompt does, as with vLLM's `scheduler_reserve_full_isl`, which is the
            // default.
            if !self.blocks.allocate(&mut first.table, found, found + new, uncomputed) {
                break;
            }
            let Some(mut sequence) = self.waiting.pop_front() else { break };
            sequence.reuse(found);
            plan.add(sequence.decoding(), new);
            sequence.schedule(new);
            *budget -= new;
            if !std::mem::replace(&mut sequence.admitted, true) {
                if self.config.prefix_cache {
                    self.totals.prefix_queries += u64::from(sequence.prompt());
                }
                self.totals.prefix_hits += u64::from(found);
                self.pending.push(EngineEvent { at: now, id: sequence.id, kind: EventKind::Admitted });
            }
            self.running.push(sequence);
        }
    }

    fn preempt_last(&mut self, now: Duration) {
        let Some(mut victim) = self.running.pop() else { return };
        self.blocks.release(&mut victim.table);
        victim.reset();
        self.totals.preemptions += 1;
        self.pending.push(EngineEvent { at: now, id: victim.id, kind: EventKind::Preempted });
        self.waiting.push_front(victim);
    }

    pub(super) fn end_step(&mut self, at: Duration, events: &mut Vec<EngineEvent>) {
        let Self { running, blocks, totals, .. } = self;
        running.retain_mut(|sequence| {
            let Some(index) = sequence.commit() else { return true };
            totals.generated_tokens += 1;
            events.push(EngineEvent { at, id: sequence.id, kind: EventKind::Token { index } });
            if !sequence.finished() {
                return true;
            }
            blocks.release(&mut sequence.table);
            events.push(EngineEvent { at, id: sequence.id, kind: EventKind::Finished });
            false
        });
    }
}

impl StepPlan {
    fn add(&mut self, decoding: bool, tokens: u32) {
        self.sequences += 1;
        if !decoding {
            self.prefill_tokens += tokens;
        }
    }
}
