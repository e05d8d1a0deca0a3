//! Statistics of the calls that the simulator received. An attempt is one such call; a client's
//! retry is another attempt.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;

/// A snapshot of the statistics, which `GET /sim/stats` also returns as JSON. Times are in
/// simulated seconds since the simulator was created. *The last reset* is that by
/// [`Simulator::reset_stats`](crate::Simulator::reset_stats), or the start if there was none.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Time of the snapshot, in simulated seconds.
    pub now_s: f64,
    /// Number of attempts in flight now, over all tenants.
    pub in_flight: usize,
    /// Maximum number of attempts in flight at the same time since the last reset.
    pub peak_in_flight: usize,
    /// Number of sequences that wait in the queues of the engines now.
    pub waiting: usize,
    /// Number of sequences in the batches of the engines now.
    pub running: usize,
    /// Number of preemptions since the start. An outage that resets the engines sets it to 0.
    pub preemptions: u64,
    /// Maximum share of an engine's KV cache in use since the start, from 0 to 1, over all engines.
    /// An outage that resets the engines sets it to 0.
    pub peak_kv: f64,
    /// Number of attempts that arrived since the last reset.
    pub total_attempts: u64,
    /// Statistics of each tenant since the last reset. A tenant's name is the header `x-tenant`;
    /// without it, the bearer token or `x-api-key`, with a long key shortened; without these,
    /// `anonymous`.
    pub tenants: BTreeMap<String, TenantStats>,
    /// The latest attempts since the last reset, in order of arrival. Contains at most
    /// [`SimConfig::attempt_log`](crate::SimConfig::attempt_log) attempts.
    pub attempts: VecDeque<LoggedAttempt>,
}

/// Statistics of one tenant since the last reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TenantStats {
    /// Number of attempts that arrived.
    pub attempts: u64,
    /// Number of attempts in flight now.
    pub in_flight: usize,
    /// Maximum number of attempts in flight at the same time.
    pub peak_in_flight: usize,
    /// Number of ended attempts by how they ended. A kind that did not occur is absent.
    pub outcomes: BTreeMap<AttemptEnd, u64>,
    /// Number of ended attempts by HTTP status. Attempts without a response are absent.
    pub statuses: BTreeMap<u16, u64>,
}

/// One attempt, as the simulator saw it. Times are in simulated seconds since the simulator was
/// created.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoggedAttempt {
    /// Number of the attempt in order of arrival, from 0 at the start. A reset of the statistics
    /// does not restart it.
    pub number: u64,
    /// Name of the tenant; see [`Stats::tenants`].
    pub tenant: String,
    /// Path of the request, cut to 64 characters.
    pub path: String,
    /// Arrival time, in simulated seconds.
    pub arrived_s: f64,
    /// Time at which the engine generated the first token, in simulated seconds. `None` if it
    /// generated none.
    pub first_token_s: Option<f64>,
    /// End time, in simulated seconds. For an aborted attempt, the time at which the simulator
    /// noticed. `None` while the attempt is in flight.
    pub ended_s: Option<f64>,
    /// HTTP status of the response. `None` while the attempt is in flight, or if it ended without a
    /// response.
    pub status: Option<u16>,
    /// How the attempt ended, or [`AttemptEnd::InFlight`].
    pub outcome: AttemptEnd,
    /// Number of prompt tokens; 0 if the call was rejected before its body was parsed, or if the
    /// body is invalid.
    pub prompt_tokens: u32,
    /// Number of tokens sent to the caller; 0 while the attempt is in flight.
    pub output_tokens: u32,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// The attempt is still in flight.
    InFlight,
    /// The whole answer was generated and handed to the caller.
    Completed,
    /// The answer was an error: a status of 400 or above, or an error event under status 200.
    Rejected,
    /// The connection was closed without a response.
    Refused,
    /// The caller dropped the call, or disconnected.
    Aborted,
    /// [`Faults::reset_mid_stream`](crate::faults::Faults::reset_mid_stream) or an outage broke the
    /// connection during the stream.
    Reset,
    /// [`Faults::truncate_stream`](crate::faults::Faults::truncate_stream) or a dead engine ended
    /// the stream without its last events.
    Truncated,
}

/// Maximum number of tenants with statistics of their own. Further tenants are counted together as
/// `other`.
const MAX_TENANTS: usize = 1_000;

/// A recorder of the statistics that [`Stats`] shows.
#[derive(Debug)]
pub(super) struct StatsRecorder {
    stats: Stats,
    max_attempts: usize,
    next: u64,
    /// Number of the first attempt after the last reset. When an earlier attempt ends, its end is
    /// not counted.
    since: u64,
}

impl StatsRecorder {
    pub(super) fn new(max_attempts: usize) -> Self {
        Self { stats: Stats::default(), max_attempts, next: 0, since: 0 }
    }

    pub(super) fn begin(&mut self, now: Duration, tenant: String, path: &str) -> (u64, String) {
        let known = self.stats.tenants.contains_key(&tenant);
        let tenant =
            if known || self.stats.tenants.len() < MAX_TENANTS { tenant } else { "other".to_owned() };
        let number = self.next;
        self.next += 1;
        self.stats.total_attempts += 1;
        self.stats.in_flight += 1;
        self.stats.peak_in_flight = self.stats.peak_in_flight.max(self.stats.in_flight);
        let sums = self.stats.tenants.entry(tenant.clone()).or_default();
        sums.attempts += 1;
        sums.in_flight += 1;
        sums.peak_in_flight = sums.peak_in_flight.max(sums.in_flight);
        self.stats.attempts.push_back(LoggedAttempt {
            number,
            tenant: tenant.clone(),
            path: path.chars().take(64).collect(),
            arrived_s: now.as_secs_f64(),
            first_token_s: None,
            ended_s: None,
            status: None,
            outcome: AttemptEnd::InFlight,
            prompt_tokens: 0,
            output_tokens: 0,
        });
        while self.stats.attempts.len() > self.max_attempts {
            self.stats.attempts.pop_front();
        }
        (number, tenant)
    }

    /// Returns an attempt by its number, or `None` if the list no longer contains it.
    pub(super) fn attempt(&mut self, number: u64) -> Option<&mut LoggedAttempt> {
        let first = self.stats.attempts.front()?.number;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.stats.attempts.get_mut(at)
    }

    pub(super) fn end(
        &mut self,
        now: Duration,
        number: u64,
        tenant: &str,
        status: Option<u16>,
        outcome: AttemptEnd,
    ) {
        self.stats.in_flight = self.stats.in_flight.saturating_sub(1);
        let sums = self.stats.tenants.entry(tenant.to_owned()).or_default();
        sums.in_flight = sums.in_flight.saturating_sub(1);
        // An attempt from before the reset is not counted, but must not remain in flight.
        if number >= self.since {
            *sums.outcomes.entry(outcome).or_default() += 1;
            if let Some(status) = status {
                *sums.statuses.entry(status).or_default() += 1;
            }
        }
        if let Some(attempt) = self.attempt(number) {
            attempt.ended_s = Some(now.as_secs_f64());
            attempt.status = status;
            attempt.outcome = outcome;
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.stats.in_flight
    }

    pub(super) fn snapshot(&self) -> Stats {
        self.stats.clone()
    }

    /// Clears everything except the numbers of attempts in flight.
    pub(super) fn reset(&mut self) {
        self.since = self.next;
        let in_flight = self.stats.in_flight;
        let busy = std::mem::take(&mut self.stats.tenants).into_iter().filter(|(_, t)| t.in_flight > 0);
        let in_flight_only = |t: TenantStats| TenantStats {
            in_flight: t.in_flight,
            peak_in_flight: t.in_flight,
            ..TenantStats::default()
        };
        let tenants = busy.map(|(name, sums)| (name, in_flight_only(sums))).collect();
        self.stats = Stats { in_flight, peak_in_flight: in_flight, tenants, ..Stats::default() };
    }
}

/// Returns the name of the tenant that sent a request; see [`Stats::tenants`].
pub(super) fn tenant(headers: &HeaderMap) -> String {
    let text =
        |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::trim).filter(|t| !t.is_empty());
    if let Some(name) = text("x-tenant") {
        return name.chars().take(64).collect();
    }
    let bearer = text("authorization").map(|t| t.strip_prefix("Bearer ").unwrap_or(t).trim());
    bearer.or_else(|| text("x-api-key")).map_or_else(|| "anonymous".to_owned(), shortened)
}

/// Returns a key of more than 24 characters as its first and last four, so that a real key is not
/// readable in the statistics. Returns a shorter key unchanged.
fn shortened(key: &str) -> String {
    let chars: Vec<char> = key.chars().collect();
    match (chars.get(..4), chars.len().checked_sub(4).and_then(|at| chars.get(at..))) {
        (Some(head), Some(tail)) if chars.len() > 24 => {
            head.iter().chain(&['.', '.', '.']).chain(tail).collect()
        }
        _ => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, http::HeaderValue::from_str(value).unwrap());
        }
        tenant(&headers)
    }

    #[test]
    fn tenants_are_read_from_headers_without_readable_keys() {
        assert_eq!(of(&[("authorization", "Bearer a"), ("x-tenant", "b")]), "b");
        assert_eq!(of(&[("authorization", "Bearer a")]), "a");
        assert_eq!(of(&[("x-api-key", "c")]), "c");
        assert_eq!(of(&[]), "anonymous");
        assert_eq!(of(&[("authorization", "Bearer sk-proj-0123456789abcdefghijklmnop")]), "sk-p...mnop");
    }

    #[test]
    fn attempt_log_is_bounded_but_sums_are_not() {
        let mut record = StatsRecorder::new(3);
        for i in 0..10 {
            let (number, tenant) = record.begin(Duration::from_secs(i), "t".to_owned(), "/");
            if i < 8 {
                record.end(Duration::from_secs(i), number, &tenant, Some(200), AttemptEnd::Completed);
            }
        }
        let stats = record.snapshot();
        assert_eq!(stats.attempts.iter().map(|a| a.number).collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!((stats.total_attempts, stats.in_flight, stats.tenants["t"].statuses[&200]), (10, 2, 8));
    }

    #[test]
    fn number_of_tenants_is_bounded() {
        let mut record = StatsRecorder::new(10);
        for i in 0..2_000 {
            record.begin(Duration::ZERO, format!("t{i}"), "/");
        }
        let stats = record.snapshot();
        assert_eq!((stats.tenants.len(), stats.tenants["other"].attempts), (MAX_TENANTS + 1, 1_000));
    }
}
