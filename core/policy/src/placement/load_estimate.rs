//! The load of a replica: the work that its engine does before the first token of a new call, in
//! prompt tokens.
//!
//! Most of that work is the uncached part of the prompts of all calls that await their first token.
//! A call past its first token adds one token to each step of the engine, which is almost nothing.
//!
//! The load of this client and of its [partners](super::partners) is known. For other clients, it
//! is estimated from the last poll: running and waiting calls, minus the known calls at that
//! moment, and the [backlog](super::backlog) of their prompts. A poll older than three poll
//! intervals is stale and is ignored.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{EngineMetrics, Sender, backlog::Backlog, prefix_cache::EngineCache, replica_speed::Speed};

/// Age beyond which the result of a poll is stale, as a multiple of the poll interval.
const STALE_POLLS: u32 = 3;
/// Share of the KV-cache memory that is assumed to hold prefixes of ended calls. The rest holds
/// running calls.
const CACHE_SHARE: f64 = 0.8;

/// The load that other clients cause at a replica, as of the last poll.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Others {
    /// Number of calls that the engine runs.
    pub(super) running: f64,
    /// Number of calls in the engine's queue.
    pub(super) waiting: f64,
    /// Prompt tokens of the running calls that still have to be computed, or 0 if the replica does
    /// not report the counters for it.
    pub(super) under_way: f64,
}

impl Others {
    /// Returns the number of running and waiting calls.
    pub(super) fn calls(&self) -> f64 {
        self.running + self.waiting
    }
}

/// The load of one replica: the known calls, which are those of this client and of its partners,
/// and the calls of other clients as of the last poll.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// Age after which a poll is stale.
    stale_after: Duration,
    /// Number of known calls without a first token.
    pub(super) awaiting: usize,
    /// Prompt tokens to be computed for the calls that `awaiting` counts.
    pub(super) awaiting_tokens: u64,
    /// Number of known calls after their first token.
    pub(super) answering: usize,
    /// Number of partners' calls among the known ones.
    partners: usize,
    /// Expected tokens of this client's calls: prompts and answers.
    pub(super) tokens: u64,
    pub(super) speed: Speed,
    pub(super) cache: EngineCache,
    pub(super) backlog: Backlog,
    /// The result of the last load poll, or `None` if there was none.
    seen: Option<Seen>,
    /// The replica's counter of computed prompt tokens at the last poll, or `None` before the first
    /// poll.
    counted: Option<f64>,
    /// Prompt tokens computed for all clients between the first and the last poll.
    computed: f64,
    /// Prompt tokens computed for this client since the first poll, counted when a call is sent.
    sent: f64,
    /// Prompt tokens computed for other clients: the maximum of `computed - sent` so far.
    displaced: f64,
}

/// What the last load poll reported.
#[derive(Clone, Debug)]
struct Seen {
    at: Instant,
    others: Others,
    kv_usage: Option<f64>,
}

/// Returns a cache name that was never used before in this process.
fn unused_name() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

impl Load {
    /// Creates the load of a replica without calls and with an empty cache. `poll` is the interval
    /// between load polls, or `None` if the load is not polled.
    pub(super) fn new(poll: Option<Duration>) -> Self {
        let cache = EngineCache { name: unused_name(), ..EngineCache::default() };
        Self { stale_after: poll.unwrap_or(Duration::from_secs(1)) * STALE_POLLS, cache, ..Self::default() }
    }

    /// Returns the number of known calls in flight at the replica.
    pub(super) fn calls(&self) -> usize {
        self.awaiting + self.answering
    }

    /// Returns the number of this client's calls in flight at the replica.
    pub(super) fn own_calls(&self) -> usize {
        self.calls() - self.partners
    }

    /// Returns other clients' calls, or `None` if there was no poll or the last one is stale.
    pub(super) fn others(&self, now: Instant) -> Option<Others> {
        Some(self.seen(now)?.others)
    }

    /// Returns the number of other clients' calls and of partners' calls, or `None` if neither is
    /// known.
    pub(super) fn all_others(&self, now: Instant) -> Option<f64> {
        let partners = Some(self.partners as f64).filter(|partners| *partners > 0.0);
        let polled = self.others(now).map(|others| others.calls());
        polled.map(|polled| polled + partners.unwrap_or(0.0)).or(partners)
    }

    /// Returns the used share of the KV-cache memory, from 0 to 1, or `None` if the last poll is
    /// stale or did not report it.
    pub(super) fn kv_usage(&self, now: Instant) -> Option<f64> {
        self.seen(now)?.kv_usage
    }

    /// Returns the result of the last load poll, or `None` if there was none or it is stale.
    fn seen(&self, now: Instant) -> Option<&Seen> {
        self.seen.as_ref().filter(|seen| now.saturating_duration_since(seen.at) <= self.stale_after)
    }

    /// Applies the metrics of a load poll: updates other clients' load and what is cached.
    pub(super) fn observe(&mut self, now: Instant, metrics: &EngineMetrics) {
        // Replicas may report values that are not numbers.
        let number = |value: f64| if value.is_finite() { value.max(0.0) } else { 0.0 };
        let (running, waiting) = (number(metrics.running), number(metrics.waiting));
        let others = (running + waiting - self.calls() as f64).max(0.0);
        // This client's calls without a first token are assumed to be the waiting ones, as far as
        // there are any.
        let begun = (self.awaiting as f64 - waiting).max(0.0) / self.awaiting.max(1) as f64;
        let waiting = (waiting - self.awaiting as f64).clamp(0.0, others);
        let under_way = self.backlog.observe(metrics).unwrap_or(0.0) - self.awaiting_tokens as f64 * begun;
        let under_way = if others > waiting { under_way.max(0.0) } else { 0.0 };
        let others = Others { running: others - waiting, waiting, under_way };
        self.seen = Some(Seen { at: now, others, kv_usage: metrics.kv_usage });
        self.set_kv_tokens(metrics.kv_tokens);
        if let (Some(queries), Some(hits)) = (metrics.prefix_queries, metrics.prefix_hits) {
            self.on_computed(number(queries - hits));
        }
    }

    /// Sets the size of the KV-cache memory, in tokens. `None` changes nothing.
    pub(super) fn set_kv_tokens(&mut self, tokens: Option<u64>) {
        let capacity = tokens.map(|tokens| (tokens as f64 * CACHE_SHARE) as u64);
        self.cache.capacity = capacity.or(self.cache.capacity);
    }

    /// Adds the prompt tokens that were computed for other clients since the last poll to the
    /// cache. If the replica has restarted, forgets the cache instead. `count` is the replica's
    /// counter of the prompt tokens computed for all clients.
    ///
    /// This client's tokens are counted when a call is sent but computed later, so the difference
    /// of `computed` and `sent` is at times too low. Its maximum over all polls is used.
    fn on_computed(&mut self, count: f64) {
        match self.counted {
            Some(before) if count >= before => self.computed += count - before,
            // The counter restarted: another process.
            Some(_) => self.on_restart(),
            None => self.sent = 0.0,
        }
        self.counted = Some(count);
        let more = self.computed - self.sent - self.displaced;
        if more > 0.0 {
            self.displaced += more;
            self.cache.filled = self.cache.filled.saturating_add(more as u64);
        }
    }

    /// Forgets the cache and the speed of a process that has ended.
    pub(super) fn on_restart(&mut self) {
        self.cache.name = unused_name();
        self.speed = Speed::default();
        self.backlog = Backlog::default();
        (self.counted, self.computed, self.sent, self.displaced) = (None, 0.0, 0.0, 0.0);
    }

    /// Counts a call that is sent. `uncached` prompt tokens are to be computed for it, `output`
    /// tokens are expected, and `tokens` is the sum of the whole prompt and the expected output.
    pub(super) fn on_sent(&mut self, sender: Sender, uncached: u64, output: u64, tokens: u64) {
        self.awaiting += 1;
        self.awaiting_tokens = self.awaiting_tokens.saturating_add(uncached);
        match sender {
            Sender::Own => self.tokens = self.tokens.saturating_add(tokens),
            Sender::Partner => self.partners += 1,
        }
        self.cache.filled = self.cache.filled.saturating_add(uncached).saturating_add(output);
        self.sent += uncached as f64;
    }

    /// Counts the first token of a call for which `uncached` prompt tokens were computed.
    pub(super) fn on_first_token(&mut self, uncached: u64) {
        self.stop_awaiting(uncached);
        self.answering += 1;
    }

    /// Removes a call that has ended. `uncached` is the number of prompt tokens to be computed for
    /// it if its first token was not reported, and `None` otherwise. `ran` is `true` if the replica
    /// has computed them all the same, for an answer that is not streamed. `tokens` is as in
    /// [`Load::on_sent`].
    pub(super) fn on_ended(&mut self, sender: Sender, uncached: Option<u64>, ran: bool, tokens: u64) {
        if let Some(uncached) = uncached {
            self.stop_awaiting(uncached);
            if !ran {
                self.sent = (self.sent - uncached as f64).max(0.0);
            }
        } else {
            self.answering = self.answering.saturating_sub(1);
        }
        match sender {
            Sender::Own => self.tokens = self.tokens.saturating_sub(tokens),
            Sender::Partner => self.partners -= 1,
        }
    }

    /// Removes a call with `uncached` prompt tokens to be computed from the calls without a first
    /// token.
    fn stop_awaiting(&mut self, uncached: u64) {
        self.awaiting = self.awaiting.saturating_sub(1);
        self.awaiting_tokens = self.awaiting_tokens.saturating_sub(uncached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Duration = Duration::from_secs(1);

    fn metrics(running: f64, waiting: f64) -> EngineMetrics {
        EngineMetrics { running, waiting, ..EngineMetrics::default() }
    }

    #[test]
    fn calls_of_others_exclude_own_calls() {
        let now = crate::testing::epoch();
        let mut load = Load::new(Some(POLL));
        assert_eq!(load.others(now), None);
        load.on_sent(Sender::Own, 500, 10, 600);
        load.on_sent(Sender::Own, 700, 10, 800);
        load.on_first_token(500);
        load.observe(now, &metrics(4.0, 3.0));
        assert_eq!(load.others(now), Some(Others { running: 3.0, waiting: 2.0, under_way: 0.0 }));
        load.observe(now, &metrics(0.0, 1.0));
        assert_eq!(load.others(now), Some(Others::default()), "never below none");
        load.observe(now, &metrics(f64::NAN, f64::INFINITY));
        assert_eq!(load.others(now), Some(Others::default()));
        assert_eq!(load.others(now + POLL * 3), Some(Others::default()));
        assert_eq!(load.others(now + POLL * 4), None, "stale is unknown");
    }

    #[test]
    fn ended_calls_leave_no_counts() {
        let mut load = Load::new(Some(POLL));
        load.on_sent(Sender::Own, 500, 10, 600);
        load.on_sent(Sender::Own, 700, 10, 800);
        assert_eq!((load.calls(), load.awaiting_tokens, load.tokens), (2, 1_200, 1_400));
        load.on_first_token(500);
        load.on_ended(Sender::Own, None, true, 600);
        load.on_ended(Sender::Own, Some(700), false, 800);
        assert_eq!((load.calls(), load.awaiting_tokens, load.tokens), (0, 0, 0));
    }

    #[test]
    fn prompt_of_an_answer_that_is_not_streamed_is_own_work() {
        let mut load = Load::new(Some(POLL));
        load.on_sent(Sender::Own, 500, 10, 600);
        load.on_sent(Sender::Own, 700, 10, 800);
        load.on_ended(Sender::Own, Some(500), true, 600);
        load.on_ended(Sender::Own, Some(700), false, 800);
        assert!((load.sent - 500.0).abs() < 1e-9, "the second one never ran: {}", load.sent);
    }

    #[test]
    fn computed_tokens_of_others_fill_the_cache_and_a_restart_replaces_it() {
        let now = crate::testing::epoch();
        let mut load = Load::new(Some(POLL));
        let counters = |queries: f64, hits: f64| EngineMetrics {
            prefix_queries: Some(queries),
            prefix_hits: Some(hits),
            kv_tokens: Some(1_000),
            ..EngineMetrics::default()
        };
        load.observe(now, &counters(5_000.0, 1_000.0));
        assert_eq!((load.cache.filled, load.cache.capacity), (0, Some(800)), "before our time");
        load.on_sent(Sender::Own, 300, 50, 350);
        load.observe(now, &counters(6_000.0, 1_200.0));
        assert_eq!(load.cache.filled, 850, "800 computed, 300 of them ours, and our answer");
        let before = load.cache.name;
        load.observe(now, &counters(10.0, 0.0));
        assert_ne!(load.cache.name, before);
    }
}
