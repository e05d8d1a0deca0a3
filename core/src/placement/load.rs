//! How much work stands before a new call at a replica.
//!
//! What a first token waits for is prompt tokens: those of calls that await theirs count whole, without what is cached. What is being answered costs the batch one
//! token a step, and counts next to nothing.
//!
//! Our own calls are known. Of others' it is known how many there were at the last poll: running and waiting, less what was ours at that moment; and of those that run
//! what of their prompts was [still to be computed](super::backlog). A poll older than three periods says nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::backlog::Backlog;
use super::prefix_cache::EngineCache;
use super::speed::Speed;
use crate::wire::vllm::EngineMetrics;

/// After how many periods a poll is stale.
const STALE: u32 = 3;
/// The share of its memory that an engine keeps of what is used no more; the rest is what runs.
const KEPT: f64 = 0.8;

/// Others' calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Others {
    pub(super) running: f64,
    pub(super) waiting: f64,
    /// Of the prompts of those that run, tokens that are to be computed, as far as the replica says.
    pub(super) under_way: f64,
}

impl Others {
    pub(super) fn calls(&self) -> f64 {
        self.running + self.waiting
    }
}

#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Our calls that have no token yet, and the prompt tokens that are to be computed for them.
    pub(super) awaiting: usize,
    pub(super) awaiting_tokens: u64,
    /// Our calls that are being answered.
    pub(super) answering: usize,
    /// Tokens of all of our calls, as expected: prompts and answers.
    pub(super) tokens: u64,
    pub(super) speed: Speed,
    pub(super) cache: EngineCache,
    backlog: Backlog,
    seen: Option<Seen>,
    /// What it had computed by its own account at the last look, and since the first.
    counted: Option<f64>,
    computed: f64,
    /// What of that we know to be ours, and the most by which the one exceeded the other: what others had it compute.
    sent: f64,
    displaced: f64,
}

#[derive(Clone, Debug)]
struct Seen {
    at: Instant,
    others: Others,
    kv_usage: Option<f64>,
}

/// A name that no other memory has.
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

    /// Our calls.
    pub(super) fn calls(&self) -> usize {
        self.awaiting + self.answering
    }

    /// Others', if that was seen not long ago. `poll`: how often it is looked at.
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
        // What strangers write may be no number.
        let number = |value: f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
        let (running, waiting) = (number(standing.running), number(standing.waiting));
        let others = (running + waiting - self.calls() as f64).max(0.0);
        // Our own that have no token yet are taken to be those that wait, as far as they go.
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

    /// Its memory holds so many tokens.
    pub(super) fn holds(&mut self, tokens: u64) {
        self.cache.holds = Some((tokens as f64 * KEPT) as u64);
    }

    /// The share of prompt tokens that it found in its cache lately.
    pub(super) fn hits(&self) -> Option<f64> {
        self.backlog.hits()
    }

    /// So much has it computed since it began: what others sent it displaces what we sent.
    ///
    /// What of ours waits there is computed later; so of all looks the one counts at which most was not ours.
    fn counted(&mut self, computed: f64) {
        match self.counted {
            Some(before) if computed >= before => self.computed += computed - before,
            // It counts from the beginning: another process.
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

    /// What was cached is gone, and how fast it was says nothing.
    pub(super) fn restarted(&mut self) {
        self.cache.name = fresh();
        self.speed = Speed::default();
        self.backlog = Backlog::default();
        (self.counted, self.computed, self.sent, self.displaced) = (None, 0.0, 0.0, 0.0);
    }

    /// A call goes there, of whose prompt so much is to be computed.
    pub(super) fn send(&mut self, uncached: u64, output: u64, tokens: u64) {
        self.awaiting += 1;
        self.awaiting_tokens = self.awaiting_tokens.saturating_add(uncached);
        self.tokens = self.tokens.saturating_add(tokens);
        self.cache.filled = self.cache.filled.saturating_add(uncached).saturating_add(output);
        self.sent += uncached as f64;
    }

    /// Its first token came.
    pub(super) fn answers(&mut self, uncached: u64) {
        self.awaiting = self.awaiting.saturating_sub(1);
        self.awaiting_tokens = self.awaiting_tokens.saturating_sub(uncached);
        self.answering += 1;
    }

    /// It is over. `awaited`: what was to be computed for it, if its first token never came.
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
        let now = crate::clock::now();
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
        let now = crate::clock::now();
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
