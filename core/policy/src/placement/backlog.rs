//! The prompt tokens that an engine has scheduled but not computed yet, from its own counters.
//!
//! vLLM counts the whole prompt of a call twice: as looked up when the call is first scheduled, and
//! as processed when its first token is produced. The difference between the two counters is the
//! prompt tokens in progress, of all clients. Unlike the number of running calls, it shows how long
//! the prompts are.
//!
//! A call that is aborted before its first token is never counted as processed, so its prompt stays
//! in the difference. A prompt that is not looked up in the cache is counted only as processed. The
//! difference is therefore measured from its recent minimum, and from its value when nothing runs.
//! The recent share of lookups that found nothing gives the part that has to be computed.
//!
//! The backlog is unknown if a counter is missing, or if prompts are processed but none was looked
//! up, because the cache is off.

use tidegate_protocol::vllm::EngineMetrics;

/// Number of polls in a period. The recent minimum covers the current and the previous period.
const PERIOD_POLLS: u32 = 64;
/// Factor by which the weight of older lookups decays with each poll.
const DECAY: f64 = 0.8;

/// The prompt tokens that one engine has scheduled but not computed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backlog {
    /// Counters at the last poll, or `None` if they were unknown.
    last: Option<Counters>,
    /// Minimum difference of the counters in the previous period, in tokens.
    previous_min: f64,
    /// Minimum difference of the counters in the current period, in tokens.
    current_min: f64,
    /// Number of polls in the current period.
    polls: u32,
    /// Prompt tokens that were looked up in the cache, decayed.
    queried: f64,
    /// Prompt tokens that were found in the cache, decayed.
    hit: f64,
}

/// The engine's counters, in prompt tokens since its start.
#[derive(Clone, Copy, Debug)]
struct Counters {
    /// Tokens looked up in the cache.
    queries: f64,
    /// Tokens found in the cache.
    hits: f64,
    /// Tokens processed, counted when the first token of a call is produced.
    prompts: f64,
}

impl Counters {
    /// Returns the counters, or `None` if one is missing or not a number, or if the cache is off.
    fn read(metrics: &EngineMetrics) -> Option<Self> {
        let (queries, hits) = (metrics.prefix_queries?, metrics.prefix_hits?);
        let prompts = metrics.prompt_tokens?;
        let is_off = queries == 0.0 && prompts > 0.0;
        let are_numbers = [queries, hits, prompts].iter().all(|count| count.is_finite() && *count >= 0.0);
        (are_numbers && !is_off).then_some(Self { queries, hits, prompts })
    }

    /// Returns `true` if no counter has decreased since `last`, so that the process is the same.
    fn continues(&self, last: &Self) -> bool {
        self.queries >= last.queries && self.hits >= last.hits && self.prompts >= last.prompts
    }
}

impl Backlog {
    /// Updates the backlog with the metrics of a load poll. Returns the prompt tokens of scheduled
    /// calls, of all clients, that still have to be computed, or `None` if they are unknown.
    pub(super) fn observe(&mut self, metrics: &EngineMetrics) -> Option<f64> {
        let Some(now) = Counters::read(metrics) else {
            *self = Self::default();
            return None;
        };
        let gap = now.queries - now.prompts;
        if let Some(last) = self.last.filter(|last| now.continues(last)) {
            self.queried = self.queried * DECAY + now.queries - last.queries;
            self.hit = self.hit * DECAY + now.hits - last.hits;
        } else {
            // The first poll, or a restarted process.
            *self = Self { previous_min: gap, current_min: gap, ..Self::default() };
        }
        self.last = Some(now);
        self.current_min = self.current_min.min(gap);
        self.polls += 1;
        if self.polls >= PERIOD_POLLS {
            (self.previous_min, self.current_min, self.polls) = (self.current_min, gap, 0);
        }
        if metrics.running <= 0.0 {
            (self.previous_min, self.current_min) = (gap, gap);
        }
        let under_way = gap - self.previous_min.min(self.current_min);
        Some(under_way * (1.0 - self.hit_rate().unwrap_or(0.5)))
    }

    /// Returns the share of recently looked-up prompt tokens that were cached, from 0 to 1, or
    /// `None` if nothing was looked up.
    pub(super) fn hit_rate(&self) -> Option<f64> {
        (self.queried > 0.0).then(|| (self.hit / self.queried).clamp(0.0, 1.0))
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
    fn backlog_is_prompts_scheduled_without_a_first_token() {
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
    fn missing_counters_are_unknown_and_a_restart_starts_over() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.observe(&EngineMetrics::default()), None);
        assert_eq!(backlog.observe(&counters(0.0, 0.0, 500.0, 1.0)), None, "the cache is off");
        assert_eq!(backlog.observe(&counters(f64::NAN, 0.0, 500.0, 1.0)), None);
        backlog.observe(&counters(9_000.0, 0.0, 0.0, 1.0));
        assert_eq!(backlog.observe(&counters(700.0, 0.0, 0.0, 1.0)), Some(0.0));
        assert_eq!(backlog.observe(&counters(800.0, 0.0, 900.0, 1.0)), Some(0.0), "more than was looked up");
    }
}
