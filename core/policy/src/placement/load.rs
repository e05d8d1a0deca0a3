//! The work before a new call at a replica, in prompt tokens.
//!
//! A first token waits for prompt tokens: the uncached part of the prompts whose first token is
//! awaited. A call that is being answered costs the batch one token per step, which is almost
//! nothing.
//!
//! The load of this client is known. For other clients, it is estimated from the last poll: running
//! and waiting calls, minus this client's calls at that moment, and the [backlog](super::backlog)
//! of their prompts. A poll older than three periods is stale and says nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::backlog::Backlog;
use super::prefix_cache::EngineCache;
use super::speed::Speed;
use tidegate_protocol::vllm::EngineMetrics;

/// The number of periods after which a poll is stale.
const STALE: u32 = 3;
/// The share of the memory that an engine keeps for unused prefixes. The rest holds running calls.
const KEPT: f64 = 0.8;

/// Calls of other clients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Others {
    pub(super) running: f64,
    pub(super) waiting: f64,
    /// Prompt tokens of running calls that still have to be computed, as far as the replica reports
    /// it.
    pub(super) under_way: f64,
}

impl Others {
    pub(super) fn calls(&self) -> f64 {
        self.running + self.waiting
    }
}

#[derive(Clone, Debug)]
pub(super) struct Load {
    /// This client's calls without a first token, and their prompt tokens to be computed.
    pub(super) awaiting: usize,
    pub(super) awaiting_tokens: u64,
    /// This client's calls that are being answered.
    pub(super) answering: usize,
    /// Expected tokens of all of this client's calls: prompts and answers.
    pub(super) tokens: u64,
    pub(super) speed: Speed,
    pub(super) cache: EngineCache,
    backlog: Backlog,
    seen: Option<Seen>,
    /// The tokens computed by the replica's count at the last poll, and since the first.
    counted: Option<f64>,
    computed: f64,
    /// This client's part of it, and the maximum difference of the two, which is other clients'
    /// part.
    sent: f64,
    displaced: f64,
}

#[derive(Clone, Debug)]
struct Seen {
    at: Instant,
    others: Others,
    kv_usage: Option<f64>,
}

/// Returns a name that no other cache has.
fn fresh() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Load {
    pub(super) fn new() -> Self {
        Self {
            awaiting: 0,
            awaiting_tokens: 0,
            answering: 0,
            tokens: 0,
            speed: Speed::default(),
            cache: EngineCache { name: fresh(), filled: 0, holds: None },
            backlog: Backlog::default(),
            seen: None,
            counted: None,
            computed: 0.0,
            sent: 0.0,
            displaced: 0.0,
        }
    }

    /// Returns the number of this client's calls.
    pub(super) fn calls(&self) -> usize {
        self.awaiting + self.answering
    }

    /// Returns other clients' calls, unless the last poll is stale. `poll` is the interval between
    /// polls.
    pub(super) fn others(&self, now: Instant, poll: Duration) -> Option<Others> {
        Some(self.seen(now, poll)?.others)
    }

    pub(super) fn kv_usage(&self, now: Instant, poll: Duration) -> Option<f64> {
        self.seen(now, poll)?.kv_usage
    }

    fn seen(&self, now: Instant, poll: Duration) -> Option<&Seen> {
        let seen = self.seen.as_ref()?;
        (now.saturating_duration_since(seen.at) <= poll * STALE).then_some(seen)
    }

    pub(super) fn observe(&mut self, now: Instant, standing: &EngineMetrics) {
        // Replicas may report values that are not numbers.
        let number = |value: f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
        let (running, waiting) = (number(standing.running), number(standing.waiting));
        let others = (running + waiting - self.calls() as f64).max(0.0);
        // This client's calls without a first token are assumed to be the waiting ones, as far as
        // there are any.
        let begun = (self.awaiting as f64 - waiting).max(0.0) / self.awaiting.max(1) as f64;
        let waiting = (waiting - self.awaiting as f64).clamp(0.0, others);
        let under_way = self.backlog.look(standing).unwrap_or_default() - self.awaiting_tokens as f64 * begun;
        let under_way = if others > waiting { under_way.max(0.0) } else { 0.0 };
        let others = Others { running: others - waiting, waiting, under_way };
        self.seen = Some(Seen { at: now, others, kv_usage: standing.kv_usage });
        if let Some(tokens) = standing.kv_tokens {
            self.holds(tokens);
        }
        if let (Some(queries), Some(hits)) = (standing.prefix_queries, standing.prefix_hits) {
            self.counted(number(queries - hits));
        }
    }

    /// Sets the size of the memory, in tokens.
    pub(super) fn holds(&mut self, tokens: u64) {
        self.cache.holds = Some((tokens as f64 * KEPT) as u64);
    }

    /// Returns the recent hit rate of the replica's cache, in prompt tokens.
    pub(super) fn hits(&self) -> Option<f64> {
        self.backlog.hits()
    }

    /// Applies the replica's count of computed tokens: prompts of other clients displace this
    /// client's prefixes.
    ///
    /// Waiting calls of this client are computed later, so the poll with the largest difference
    /// counts.
    fn counted(&mut self, computed: f64) {
        match self.counted {
            Some(before) if computed >= before => self.computed += computed - before,
            // The counter restarted: another process.
            Some(_) => self.restarted(),
            None => self.sent = 0.0,
        }
        self.counted = Some(computed);
        let more = self.computed - self.sent - self.displaced;
        if more > 0.0 {
            self.displaced += more;
            self.cache.filled = self.cache.filled.saturating_add(more as u64);
        }
    }

    /// Forgets the cache and the speed of a process that ended.
    pub(super) fn restarted(&mut self) {
        self.cache.name = fresh();
        self.speed = Speed::default();
        self.backlog = Backlog::default();
        (self.counted, self.computed, self.sent, self.displaced) = (None, 0.0, 0.0, 0.0);
    }

    /// Records a call that is sent, with `uncached` prompt tokens to be computed.
    pub(super) fn send(&mut self, uncached: u64, output: u64, tokens: u64) {
        self.awaiting += 1;
        self.awaiting_tokens = self.awaiting_tokens.saturating_add(uncached);
        self.tokens = self.tokens.saturating_add(tokens);
        self.cache.filled = self.cache.filled.saturating_add(uncached).saturating_add(output);
        self.sent += uncached as f64;
    }

    /// Records the first token of a call.
    pub(super) fn answers(&mut self, uncached: u64) {
        self.awaiting = self.awaiting.saturating_sub(1);
        self.awaiting_tokens = self.awaiting_tokens.saturating_sub(uncached);
        self.answering += 1;
    }

    /// Records the end of a call. `awaited`: prompt tokens to be computed for it, if its first
    /// token never came.
    pub(super) fn end(&mut self, awaited: Option<u64>, tokens: u64) {
        match awaited {
            Some(uncached) => {
                self.awaiting = self.awaiting.saturating_sub(1);
                self.awaiting_tokens = self.awaiting_tokens.saturating_sub(uncached);
                self.sent = (self.sent - uncached as f64).max(0.0);
            }
            None => self.answering = self.answering.saturating_sub(1),
        }
        self.tokens = self.tokens.saturating_sub(tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_secs(1);

    fn standing(running: f64, waiting: f64) -> EngineMetrics {
        EngineMetrics { running, waiting, ..EngineMetrics::default() }
    }

    #[test]
    fn others_are_what_is_not_ours() {
        let now = crate::testing::epoch();
        let mut load = Load::new();
        assert_eq!(load.others(now, POLL), None);
        load.send(500, 10, 600);
        load.send(700, 10, 800);
        load.answers(500);
        load.observe(now, &standing(4.0, 3.0));
        assert_eq!(load.others(now, POLL), Some(Others { running: 3.0, waiting: 2.0, under_way: 0.0 }));
        load.observe(now, &standing(0.0, 1.0));
        assert_eq!(load.others(now, POLL), Some(Others::default()), "never below none");
        load.observe(now, &standing(f64::NAN, f64::INFINITY));
        assert_eq!(load.others(now, POLL), Some(Others::default()));
        assert_eq!(load.others(now + POLL * 3, POLL), Some(Others::default()));
        assert_eq!(load.others(now + POLL * 4, POLL), None, "stale is unknown");
    }

    #[test]
    fn every_way_out_gives_back_what_was_counted() {
        let mut load = Load::new();
        load.send(500, 10, 600);
        load.send(700, 10, 800);
        assert_eq!((load.calls(), load.awaiting_tokens, load.tokens), (2, 1_200, 1_400));
        load.answers(500);
        load.end(None, 600);
        load.end(Some(700), 800);
        assert_eq!((load.calls(), load.awaiting_tokens, load.tokens), (0, 0, 0));
    }

    #[test]
    fn what_others_computed_there_displaces_ours_and_a_restart_all_of_it() {
        let now = crate::testing::epoch();
        let mut load = Load::new();
        let counters = |queries: f64, hits: f64| EngineMetrics {
            prefix_queries: Some(queries),
            prefix_hits: Some(hits),
            kv_tokens: Some(1_000),
            ..EngineMetrics::default()
        };
        load.observe(now, &counters(5_000.0, 1_000.0));
        assert_eq!((load.cache.filled, load.cache.holds), (0, Some(800)), "before our time");
        load.send(300, 50, 350);
        load.observe(now, &counters(6_000.0, 1_200.0));
        assert_eq!(load.cache.filled, 850, "800 computed, 300 of them ours, and our answer");
        let before = load.cache.name;
        load.observe(now, &counters(10.0, 0.0));
        assert_ne!(load.cache.name, before);
    }
}
