//! The algorithms of the crate congestion-limiter 0.1.0 as contenders.
//!
//! Only the crate's own limiter can create the samples that the algorithms learn from. It needs a
//! token that it issued, and reads tokio's clock. So each sample goes through a limiter whose own
//! limit is never reached, on a runtime whose paused clock is advanced to the time of the event.
//! The limiter passes the sample to the algorithm, and the simulated client admits calls by the
//! algorithm's limit.
//!
//! The crate's third algorithm, Gradient, cannot take part, with or without a window. After ten
//! samples it panics at the first sample below its average, because it subtracts unsigned durations
//! (a test below shows the panic).
//!
//! The crate has no default initial limit. It is 10 here, as in the crate's README. The range of
//! the limit is the crate's default, 1 to 1,000.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use congestion_limiter::aggregation::{Average, Percentile};
use congestion_limiter::limiter::{DefaultLimiter, Limiter, Outcome, Token};
use congestion_limiter::limits::{Aimd, LimitAlgorithm, Sample, Vegas, Windowed};
use tidegate::policy::adaptive::Ended;
use tokio::runtime::{Builder, Runtime};

use super::super::contender::{Contender, Sent};
use super::report_once::ReportedOutcome;

const START: usize = 10;
/// A limit, in concurrent calls, that is never reached.
const ROOM: usize = 1 << 20;

/// Returns AIMD that reacts to errors only. This algorithm ignores latencies.
pub(super) fn aimd(now: Instant) -> Congestion<Aimd> {
    Congestion::new(now, None, || Aimd::new_with_initial_limit(START))
}

/// Returns AIMD. A first token later than `objective` after sending is reported to it as overload,
/// because the algorithm has no other way to learn that a call was slow.
pub(super) fn aimd_with(objective: Duration, now: Instant) -> Congestion<Aimd> {
    Congestion::new(now, Some(objective), || Aimd::new_with_initial_limit(START))
}

pub(super) fn vegas(now: Instant) -> Congestion<Vegas> {
    Congestion::new(now, None, || Vegas::new_with_initial_limit(START))
}

/// Returns Vegas in the window that the crate's documentation recommends, with the default settings
/// of the window.
pub(super) fn vegas_windowed(now: Instant) -> Congestion<Windowed<Vegas, Average>> {
    Congestion::new(now, None, || Windowed::new(Vegas::new_with_initial_limit(START), Average::default()))
}

/// Returns Vegas in a window that reports the p90 of its samples. The crate's documentation
/// recommends a percentile window for stability, with p90 as its example.
pub(super) fn vegas_percentile(now: Instant) -> Congestion<Windowed<Vegas, Percentile>> {
    Congestion::new(now, None, || Windowed::new(Vegas::new_with_initial_limit(START), Percentile::new(0.9)))
}

/// A wrapper that passes samples to an algorithm, and whose own limit is never reached.
#[derive(Debug)]
struct Roomy<A>(Arc<A>);

impl<A: LimitAlgorithm + Send + Sync> LimitAlgorithm for Roomy<A> {
    fn limit(&self) -> usize {
        ROOM
    }

    // As `async_trait` generates it.
    fn update<'s, 'f>(&'s self, sample: Sample) -> Pin<Box<dyn Future<Output = usize> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            self.0.update(sample).await;
            ROOM
        })
    }
}

/// A contender that applies the limit of one of the crate's algorithms.
pub(super) struct Congestion<A> {
    algorithm: Arc<A>,
    limiter: DefaultLimiter<Roomy<A>>,
    clock: Runtime,
    now: Instant,
    /// The upstream TTFT above which a call is reported as overload. If `None`, no latency is
    /// reported as overload.
    objective: Option<Duration>,
    /// For each attempt in flight, the crate's token, and the time at which the attempt was sent.
    /// The time is `None` once the attempt's latency has been reported.
    calls: HashMap<u64, (Token, Option<Instant>)>,
}

impl<A: LimitAlgorithm + std::fmt::Debug + Send + Sync> Congestion<A> {
    fn new(now: Instant, objective: Option<Duration>, make: impl FnOnce() -> A) -> Self {
        let clock = match Builder::new_current_thread().enable_time().start_paused(true).build() {
            Ok(clock) => clock,
            Err(error) => unreachable!("a runtime of one thread, without I/O: {error}"),
        };
        // The crate's windows read the time when they are created.
        let algorithm = clock.block_on(async { Arc::new(make()) });
        let limiter = DefaultLimiter::new(Roomy(Arc::clone(&algorithm)));
        Self { algorithm, limiter, clock, now, objective, calls: HashMap::new() }
    }

    /// Advances the paused clock that the crate reads by `passed`, the time since the previous
    /// event.
    async fn set(passed: Duration) {
        if !passed.is_zero() {
            tokio::time::advance(passed).await;
        }
    }

    fn passed(&mut self, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.now);
        self.now = self.now.max(now);
        passed
    }

    /// Returns a token to the crate's limiter. If `outcome` is given, the limiter creates a sample
    /// for the algorithm. With `None`, it creates no sample.
    fn return_token(&mut self, now: Instant, token: Token, outcome: Option<Outcome>) {
        let passed = self.passed(now);
        let Self { clock, limiter, .. } = self;
        clock.block_on(async {
            Self::set(passed).await;
            limiter.release(token, outcome).await;
        });
    }

    fn take_token(&mut self, now: Instant, id: u64, since: Option<Instant>) {
        let passed = self.passed(now);
        let Self { clock, limiter, .. } = self;
        let token = clock.block_on(async {
            Self::set(passed).await;
            limiter.try_acquire().await
        });
        // There is room for every call.
        self.calls.extend(token.map(|token| (id, (token, since))));
    }

    fn outcome(outcome: ReportedOutcome) -> Option<Outcome> {
        match outcome {
            ReportedOutcome::Answered => Some(Outcome::Success),
            ReportedOutcome::Overloaded => Some(Outcome::Overload),
            // "Errors not considered to be caused by overload should be ignored."
            ReportedOutcome::Failed | ReportedOutcome::Cancelled => None,
        }
    }
}

impl<A: LimitAlgorithm + std::fmt::Debug + Send + Sync> Contender for Congestion<A> {
    fn limit(&self) -> usize {
        self.algorithm.limit()
    }

    fn sent(&mut self, now: Instant, sent: Sent) {
        self.take_token(now, sent.id, Some(now));
    }

    fn first_token(&mut self, now: Instant, id: u64) {
        let Some((token, Some(since))) = self.calls.remove(&id) else { return };
        let late = self.objective.is_some_and(|most| now.saturating_duration_since(since) > most);
        self.return_token(
            now,
            token,
            Self::outcome(if late { ReportedOutcome::Overloaded } else { ReportedOutcome::Answered }),
        );
        // Another token holds the slot until the stream ends. It reports nothing.
        self.take_token(now, id, None);
    }

    fn ended(&mut self, now: Instant, id: u64, how: Ended) {
        let Some((token, since)) = self.calls.remove(&id) else { return };
        // The objective is for first tokens, so it does not apply to an answer that does not
        // stream.
        let outcome = since.and_then(|_| Self::outcome(ReportedOutcome::of(how)));
        self.return_token(now, token, outcome);
    }
}

#[cfg(test)]
mod tests {
    use congestion_limiter::limits::Gradient;
    use tidegate::policy::adaptive::CallKind;

    use super::*;
    use crate::virtual_time::time_origin;

    fn at(millis: u64) -> Instant {
        time_origin() + Duration::from_millis(millis)
    }

    fn send<A>(congestion: &mut Congestion<A>, now: Instant, id: u64)
    where
        A: LimitAlgorithm + std::fmt::Debug + Send + Sync,
    {
        congestion.sent(now, Sent { id, kind: CallKind::default(), waited: Duration::ZERO, in_flight: 0 });
    }

    #[test]
    #[should_panic(expected = "overflow when subtracting durations")]
    fn gradient_panics_at_a_sample_below_the_average() {
        let mut gradient = Congestion::new(time_origin(), None, || Gradient::new_with_initial_limit(START));
        for id in 0..11 {
            send(&mut gradient, at(1_000 * id), id);
            gradient.ended(at(1_000 * id + 101 - id), id, Ended::Completed { output: 1 });
        }
    }

    /// The latency of a sample is the upstream TTFT. Its number in flight includes streams that
    /// already have their first token.
    #[test]
    fn samples_are_measured_in_virtual_time() {
        let mut vegas = vegas(time_origin());
        for id in 0..10 {
            send(&mut vegas, at(0), id);
        }
        assert_eq!(vegas.limiter.state().in_flight(), 10);
        vegas.first_token(at(100), 0);
        // The first sample is the baseline: nothing queues and the limit is used, so the limit
        // grows by one. The number in flight is unchanged.
        assert_eq!((vegas.limit(), vegas.limiter.state().in_flight()), (11, 10));
        // Nine in flight, each at four times its baseline: more than six queue, so the limit
        // shrinks.
        vegas.ended(at(200), 0, Ended::Completed { output: 1 });
        vegas.first_token(at(400), 1);
        assert_eq!((vegas.limit(), vegas.limiter.state().in_flight()), (10, 9));
        vegas.ended(at(400), 2, Ended::Cancelled);
        assert_eq!((vegas.limit(), vegas.limiter.state().in_flight()), (10, 8));
    }
}
