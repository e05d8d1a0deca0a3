//! The prompt tokens that an engine has scheduled but not computed yet, from its own counters.
//!
//! vLLM counts a prompt as looked up when it is first scheduled, and as processed when its first
//! token is produced; both times the whole prompt. The difference between the counters is in
//! progress, for all clients. It shows long prompts, which are one call among many in the number of
//! running calls.
//!
//! Prompts of calls aborted before their first token are never processed, so the difference keeps
//! them. Prompts that are not looked up in the cache are processed only. The difference is
//! therefore measured from its recent minimum, and from its value when nothing runs. The recent
//! miss rate of lookups gives the part that has to be computed.
//!
//! The backlog is unknown if a counter is missing, or if prompts are processed but none is looked
//! up because the cache is off.

use tidegate_protocol::vllm::EngineMetrics;

/// The number of polls after which an older minimum is forgotten: once or twice as many, some
/// minutes.
const LOOKS: u32 = 64;
/// The weight that older lookups keep with each poll.
const KEPT: f64 = 0.8;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    last: Option<Counters>,
    /// The minimum difference of the previous and of the current period.
    before: f64,
    least: f64,
    looks: u32,
    /// Prompt tokens looked up and found, decayed.
    asked: f64,
    found: f64,
}

#[derive(Clone, Copy, Debug)]
struct Counters {
    queries: f64,
    hits: f64,
    prompts: f64,
}

impl Counters {
    fn read(metrics: &EngineMetrics) -> Option<Self> {
        let (queries, hits) = (metrics.prefix_queries?, metrics.prefix_hits?);
        let prompts = metrics.prompt_tokens?;
        let is_off = queries == 0.0 && prompts > 0.0;
        let are_numbers = [queries, hits, prompts].iter().all(|count| count.is_finite() && *count >= 0.0);
        (are_numbers && !is_off).then_some(Self { queries, hits, prompts })
    }
}

impl Backlog {
    /// Returns the prompt tokens of scheduled calls that still have to be computed, or `None` if
    /// they are unknown.
    pub(super) fn observe(&mut self, metrics: &EngineMetrics) -> Option<f64> {
        let Some(now) = Counters::read(metrics) else {
            *self = Self::default();
            return None;
        };
        let gap = now.queries - now.prompts;
        match self.last {
            Some(last)
                if now.queries >= last.queries && now.hits >= last.hits && now.prompts >= last.prompts =>
            {
                self.asked = self.asked * KEPT + now.queries - last.queries;
                self.found = self.found * KEPT + now.hits - last.hits;
            }
            // The first poll, or a restarted process.
            _ => *self = Self { before: gap, least: gap, ..Self::default() },
        }
        self.last = Some(now);
        self.least = self.least.min(gap);
        self.looks += 1;
        if self.looks >= LOOKS {
            (self.before, self.least, self.looks) = (self.least, gap, 0);
        }
        if metrics.running <= 0.0 {
            (self.before, self.least) = (gap, gap);
        }
        let under_way = gap - self.before.min(self.least);
        Some(under_way * (1.0 - self.hit_rate().unwrap_or(0.5)))
    }

    /// Returns the recent hit rate in prompt tokens, or `None` if nothing was looked up.
    pub(super) fn hit_rate(&self) -> Option<f64> {
        (self.asked > 0.0).then(|| (self.found / self.asked).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(queries: f64, hits: f64, prompts: f64, running: f64) -> EngineMetrics {
        EngineMetrics {
            running,
            prefix_queries: Some(queries),
            prefix_hits: Some(hits),
            prompt_tokens: Some(prompts),
            ..EngineMetrics::default()
        }
    }

    #[test]
    fn what_is_scheduled_and_has_no_first_token_is_under_way() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.observe(&counters(1_000.0, 0.0, 1_000.0, 3.0)), Some(0.0), "before our time");
        assert_eq!(backlog.observe(&counters(51_000.0, 25_000.0, 1_000.0, 3.0)), Some(25_000.0));
        assert_eq!(backlog.hit_rate(), Some(0.5));
        assert_eq!(backlog.observe(&counters(51_000.0, 25_000.0, 51_000.0, 3.0)), Some(0.0));
    }

    #[test]
    fn aborted_calls_are_forgotten() {
        let mut backlog = Backlog::default();
        backlog.observe(&counters(10.0, 0.0, 10.0, 0.0));
        let seen: Vec<f64> =
            (0..200).filter_map(|_| backlog.observe(&counters(50_000.0, 0.0, 10.0, 1.0))).collect();
        assert!(seen[0] > 49_000.0 && seen[199] == 0.0);
        let more = counters(90_000.0, 0.0, 10.0, 1.0);
        assert!(backlog.observe(&more).unwrap() > 39_000.0);
        assert_eq!(backlog.observe(&EngineMetrics { running: 0.0, ..more }), Some(0.0), "nothing runs");
        assert!(backlog.observe(&counters(100_000.0, 0.0, 10.0, 1.0)).unwrap() > 9_900.0);
    }

    #[test]
    fn what_says_nothing_is_unknown_and_a_restart_begins_anew() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.observe(&EngineMetrics::default()), None);
        assert_eq!(backlog.observe(&counters(0.0, 0.0, 500.0, 1.0)), None, "the cache is off");
        assert_eq!(backlog.observe(&counters(f64::NAN, 0.0, 500.0, 1.0)), None);
        backlog.observe(&counters(9_000.0, 0.0, 0.0, 1.0));
        assert_eq!(backlog.observe(&counters(700.0, 0.0, 0.0, 1.0)), Some(0.0));
        assert_eq!(backlog.observe(&counters(800.0, 0.0, 900.0, 1.0)), Some(0.0), "more than was looked up");
    }
}
