//! Tracks since when the server of a run is down, so that a run does not wait for it without end.
//!
//! While a target is down, the gate queues calls again, and the calls of a batch may wait for 30
//! days. This is right while a server restarts. If the server stays down for [`MAX_OUTAGE`], the
//! run ends, and the next run continues.
//!
//! An outage begins when the server does not process a request, because no connection is
//! established or because the server is overloaded (503, 529). It ends with any other response.
//! Other failures neither begin nor end it. They count as attempts of their calls, so the calls
//! fail, and [`FailureStreak`](super::failure_streak::FailureStreak) stops the run.
//!
//! A rate limit is no outage, and no run ends because of one. It is tracked so that the progress of
//! the run says why nothing is answered. It begins with a 429 and ends with any other response.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, Response};
use tidegate::protocol::{Class, Verdict, retry_after};
use tidegate::snapshot::TargetSnapshot;
use tidegate::{Error, ErrorKind, ResponseBody, Snapshot};
use tokio::time::Instant;

/// Time after which a run ends if the server is down.
pub(super) const MAX_OUTAGE: Duration = Duration::from_secs(30 * 60);
/// Time after its latest failure for which the server counts as down. The gate probes a target that
/// is down every few seconds. Without failures for longer, calls wait for something else, such as a
/// quota.
const EVIDENCE_LIFETIME: Duration = Duration::from_secs(120);
/// Time after which an open request has reached the server: more than an attempt to connect takes.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(15);
/// Maximum `Retry-After` by which the start of an outage is delayed. The gate ignores longer ones,
/// too.
pub(super) const MAX_ANNOUNCED_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Tracks whether the server is down, from the results of requests.
#[derive(Debug, Default)]
pub(super) struct OutageTracker {
    current: Option<CurrentOutage>,
    rate_limit: Option<CurrentRateLimit>,
    /// Number of outages so far, including the current one.
    outages: u64,
    /// Number of open requests.
    open: usize,
    /// When the last request was sent, or `None` before the first one.
    sent_at: Option<Instant>,
}

#[derive(Debug)]
struct CurrentOutage {
    /// When the outage began: at its first failure, or when the wait that the server asked for
    /// ends.
    since: Instant,
    /// Until when the failures so far show that the server is down.
    evidence_until: Instant,
    /// Description of the latest failure.
    failure: String,
    /// Number of open requests that were sent before the outage, and may still be answered.
    sent_before: usize,
}

#[derive(Debug)]
struct CurrentRateLimit {
    /// When the first request was rejected.
    since: Instant,
    /// Until when the rejections so far show that calls wait because of the rate limit.
    evidence_until: Instant,
    /// Description of the latest rejection.
    failure: String,
}

impl OutageTracker {
    /// Records that a request is sent. Returns the number of outages so far, which
    /// [`OutageTracker::on_ended`] needs.
    pub(super) fn on_sent(&mut self, now: Instant) -> u64 {
        self.open += 1;
        self.sent_at = Some(now);
        self.outages
    }

    /// Records that a request has ended: it failed, or its response was read or dropped. `outages`
    /// is the number that [`OutageTracker::on_sent`] returned.
    pub(super) fn on_ended(&mut self, now: Instant, outages: u64) {
        self.open -= 1;
        if let Some(current) = self.current.as_mut().filter(|_| outages < self.outages) {
            current.sent_before -= 1;
            if current.sent_before == 0 {
                // Until now, the server may have worked on that request.
                current.since = current.since.max(now);
            }
        }
    }

    /// Records what the first event of a streamed response shows: `error` is the classification of
    /// the error that it states, or `None` if it states none.
    pub(super) fn on_first_event(&mut self, now: Instant, error: Option<&Verdict>) {
        match error {
            Some(Verdict { class: Class::Overloaded, delay, status, .. }) => {
                let wait = delay.filter(|wait| *wait <= MAX_ANNOUNCED_WAIT).unwrap_or_default();
                self.on_unavailable(now, wait, format!("an error event with the status {status}"));
            }
            Some(Verdict { class: Class::RateLimited, delay, status, .. }) => {
                let wait = delay.filter(|wait| *wait <= MAX_ANNOUNCED_WAIT).unwrap_or_default();
                self.on_rate_limited(now, wait, format!("an error event with the status {status}"));
            }
            _ => self.on_processed(),
        }
    }

    /// Records the head of the response to a request, or the error that the transport returned
    /// instead of it. The request has not ended yet. If the response is a stream of events,
    /// [`OutageTracker::on_first_event`] must be called instead.
    pub(super) fn on_result(&mut self, now: Instant, result: &Result<Response<ResponseBody>, Error>) {
        match result {
            Ok(response) if matches!(response.status().as_u16(), 503 | 529) => {
                let failure = format!("status {}", response.status().as_u16());
                self.on_unavailable(now, announced_wait(response.headers()), failure);
            }
            Ok(response) if response.status() == 429 => {
                self.on_rate_limited(now, announced_wait(response.headers()), "429".to_owned());
            }
            Ok(_) => self.on_processed(),
            Err(error) if is_connect_failure(error) => {
                self.on_unavailable(now, Duration::ZERO, error.to_string());
            }
            Err(_) => {}
        }
    }

    /// Records the text of the response that was last recorded as a 429.
    pub(super) fn describe_rate_limit(&mut self, text: &str) {
        if let Some(rate_limit) = &mut self.rate_limit {
            rate_limit.failure = format!("429 {text}");
        }
    }

    /// Records a response that shows neither an outage nor a rate limit.
    fn on_processed(&mut self) {
        self.current = None;
        self.rate_limit = None;
    }

    /// Records a rejection at `now` because of a rate limit, by a server that asks callers to wait
    /// for `wait`.
    fn on_rate_limited(&mut self, now: Instant, wait: Duration, failure: String) {
        self.current = None;
        let evidence_until = now + wait + EVIDENCE_LIFETIME;
        let current = self.rate_limit.take().filter(|current| now <= current.evidence_until);
        self.rate_limit = Some(CurrentRateLimit {
            since: current.as_ref().map_or(now, |current| current.since),
            evidence_until: current
                .map_or(evidence_until, |current| current.evidence_until.max(evidence_until)),
            failure,
        });
    }

    /// Records that calls wait because no replica of their pool accepts calls.
    pub(super) fn on_no_replica(&mut self, now: Instant) {
        self.on_unavailable(now, Duration::ZERO, "no replica of the pool accepts calls".to_owned());
    }

    /// Records a failure at `now` of a server that asks callers to wait for `wait`.
    fn on_unavailable(&mut self, now: Instant, wait: Duration, failure: String) {
        self.rate_limit = None;
        let evidence_until = now + wait + EVIDENCE_LIFETIME;
        match self.current.as_mut().filter(|current| now <= current.evidence_until) {
            Some(current) => {
                current.evidence_until = current.evidence_until.max(evidence_until);
                current.failure = failure;
            }
            None => {
                let (since, sent_before) = (now + wait, self.open);
                self.outages += 1;
                self.current = Some(CurrentOutage { since, evidence_until, failure, sent_before });
            }
        }
    }

    /// Returns `true` if a request has been open at `now` for so long that the server seems to have
    /// accepted it.
    pub(super) fn may_be_answered(&self, now: Instant) -> bool {
        self.open > 0 && self.sent_at.is_some_and(|at| now.saturating_duration_since(at) >= MAX_CONNECT_TIME)
    }

    /// Returns for how long the server has been down at `now`, counted from `start` at the
    /// earliest, and the description of the latest failure. Returns `None` if the server is not
    /// down, or if a request that was sent before the outage is still open.
    pub(super) fn current(&self, now: Instant, start: Instant) -> Option<(Duration, &str)> {
        let current = self.current.as_ref()?;
        let is_down = current.sent_before == 0 && now <= current.evidence_until;
        is_down.then(|| (now.saturating_duration_since(current.since.max(start)), &*current.failure))
    }

    /// Returns for how long the server has answered only 429 at `now`, counted from `start` at the
    /// earliest, and the description of the latest of these responses. Returns `None` if the last
    /// response was another one.
    pub(super) fn rate_limit(&self, now: Instant, start: Instant) -> Option<(Duration, &str)> {
        let current = self.rate_limit.as_ref().filter(|current| now <= current.evidence_until)?;
        Some((now.saturating_duration_since(current.since.max(start)), &current.failure))
    }
}

/// Returns `true` if no connection to the server was established, for a reason that is not on this
/// machine.
pub(super) fn is_connect_failure(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Connect | ErrorKind::ConnectTimeout) && !error.is_local()
}

/// Returns how long a response asks callers to wait. Zero if it does not ask, or for more than
/// [`MAX_ANNOUNCED_WAIT`].
fn announced_wait(headers: &HeaderMap) -> Duration {
    // Dates are read only together with the server's own clock, the header `Date`: without it, the
    // time to any date is longer than the maximum.
    let wait = retry_after::stated(headers, SystemTime::UNIX_EPOCH);
    wait.filter(|wait| *wait <= MAX_ANNOUNCED_WAIT).unwrap_or_default()
}

/// Returns `true` if calls wait, and if all targets for which calls wait are pools none of whose
/// replicas is in use.
pub(super) fn has_no_replica(snapshot: &Snapshot) -> bool {
    let is_down = |target: &TargetSnapshot| match target.replicas.as_slice() {
        [] => target.replicas_problem.is_some(),
        replicas => replicas.iter().all(|replica| matches!(replica.state, "suspect" | "down")),
    };
    let mut waiting = snapshot.targets.values().filter(|target| target.queue_depth > 0).peekable();
    waiting.peek().is_some() && waiting.all(is_down)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Result<Response<ResponseBody>, Error> {
        Err(Error::new(ErrorKind::Connect, "refused"))
    }

    fn answered(status: u16, retry_after: Option<&str>) -> Result<Response<ResponseBody>, Error> {
        let mut response = Response::builder().status(status);
        if let Some(retry_after) = retry_after {
            response = response.header("retry-after", retry_after);
        }
        Ok(response.body(ResponseBody::full("")).unwrap())
    }

    /// A tracker with times in seconds since its start.
    struct Timeline {
        tracker: OutageTracker,
        start: Instant,
    }

    impl Timeline {
        fn new() -> Self {
            Self { tracker: OutageTracker::default(), start: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn request(&mut self, seconds: u64, result: &Result<Response<ResponseBody>, Error>) {
            let now = self.at(seconds);
            let outages = self.tracker.on_sent(now);
            self.tracker.on_result(now, result);
            self.tracker.on_ended(now, outages);
        }

        fn down_for(&self, seconds: u64) -> Option<u64> {
            let current = self.tracker.current(self.at(seconds), self.start);
            current.map(|(down_for, _)| down_for.as_secs())
        }
    }

    #[test]
    fn outage_lasts_from_the_first_failure_to_the_next_response() {
        let mut timeline = Timeline::new();
        assert_eq!(timeline.down_for(0), None);
        for (seconds, status) in [(10, 503), (70, 529), (130, 503)] {
            timeline.request(seconds, &answered(status, None));
        }
        assert_eq!(timeline.down_for(140), Some(130));
        timeline.request(141, &refused());
        let (later, start) = (timeline.at(150), timeline.at(145));
        assert_eq!(timeline.tracker.current(later, start), Some((Duration::from_secs(5), "refused")));
        for status in [200, 429, 500] {
            timeline.request(160, &answered(status, None));
            assert_eq!(timeline.down_for(161), None, "{status}");
            timeline.request(162, &refused());
            assert_eq!(timeline.down_for(163), Some(1), "{status}");
        }
        timeline.request(164, &Err(Error::new(ErrorKind::Transport, "reset")));
        assert_eq!(timeline.down_for(164), Some(2), "the server may be up or down");
    }

    #[test]
    fn rate_limit_lasts_from_the_first_429_to_another_response() {
        let mut timeline = Timeline::new();
        let limited_for = |timeline: &Timeline, seconds| {
            let limit = timeline.tracker.rate_limit(timeline.at(seconds), timeline.start);
            limit.map(|(time, failure)| (time.as_secs(), failure.to_owned()))
        };
        timeline.request(10, &answered(429, None));
        timeline.request(70, &answered(429, Some("600")));
        timeline.tracker.describe_rate_limit("slow down");
        assert_eq!(limited_for(&timeline, 700), Some((690, "429 slow down".to_owned())));
        assert_eq!(limited_for(&timeline, 800), None, "the server does not ask for more");
        for status in [200, 400, 503] {
            timeline.request(900, &answered(429, None));
            assert_eq!(limited_for(&timeline, 905), Some((5, "429".to_owned())), "{status}");
            assert_eq!(timeline.down_for(905), None);
            timeline.request(910, &answered(status, None));
            assert_eq!(limited_for(&timeline, 910), None, "{status}");
        }
    }

    #[test]
    fn request_sent_before_the_outage_may_still_be_answered() {
        let mut timeline = Timeline::new();
        let earlier = timeline.tracker.on_sent(timeline.start);
        timeline.request(10, &refused());
        let later = timeline.tracker.on_sent(timeline.at(15));
        assert_eq!(timeline.down_for(20), None);
        timeline.tracker.on_ended(timeline.at(30), earlier);
        assert_eq!(timeline.down_for(30), Some(0), "the server may have worked on it until now");
        assert!(!timeline.tracker.may_be_answered(timeline.at(29)));
        assert!(timeline.tracker.may_be_answered(timeline.at(30)));
        timeline.tracker.on_ended(timeline.at(40), later);
        assert!(!timeline.tracker.may_be_answered(timeline.at(60)));
        assert_eq!(timeline.down_for(50), Some(20));
    }

    #[test]
    fn server_without_recent_failures_is_not_down() {
        let mut timeline = Timeline::new();
        timeline.request(0, &refused());
        assert_eq!(timeline.down_for(120), Some(120));
        assert_eq!(timeline.down_for(121), None);
        timeline.request(300, &refused());
        assert_eq!(timeline.down_for(310), Some(10), "another outage");
    }

    #[test]
    fn outage_begins_after_the_wait_that_the_server_asks_for() {
        let mut timeline = Timeline::new();
        timeline.request(0, &answered(503, Some("3600")));
        assert_eq!(timeline.down_for(3_600), Some(0));
        timeline.request(3_610, &answered(503, Some("3600")));
        assert_eq!(timeline.down_for(5_400), Some(1_800), "repeating the header does not help");
        let mut timeline = Timeline::new();
        timeline.request(0, &answered(503, Some("999999999")));
        assert_eq!(timeline.down_for(60), Some(60));
    }
}
