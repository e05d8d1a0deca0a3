//! Translates the life of a streaming call to the single report that limiters for requests and
//! responses expect.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tidegate::policy::adaptive::Ended;

use super::super::contender::{Contender, Sent};

/// The outcome of a call, as far as these limiters distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// An answer.
    Answered,
    /// A 429, 503 or 529, or a timeout.
    Overloaded,
    /// Another error.
    Failed,
    /// The caller left.
    Cancelled,
}

impl Told {
    /// Returns the outcome of a call that ended before its first token, or that does not stream.
    pub(super) fn of(how: Ended) -> Self {
        match how {
            Ended::Completed { .. } => Self::Answered,
            Ended::Limited { .. } | Ended::Overloaded | Ended::TimedOut => Self::Overloaded,
            Ended::Failed => Self::Failed,
            Ended::Cancelled => Self::Cancelled,
        }
    }
}

/// An algorithm that is told latencies.
pub(super) trait Law {
    fn limit(&self) -> usize;

    /// Reports a call. `in_flight` includes it.
    fn told(&mut self, told: Told, latency: Duration, in_flight: usize);
}

/// A law as a contender.
pub(super) struct Follows<L> {
    law: L,
    /// Whether calls that do not stream are reported with a latency of zero, because a law with the
    /// objective would apply it to whole answers.
    streams_only: bool,
    /// Attempts in flight: the time when each was sent and whether it streams. `None` once its
    /// latency was reported.
    calls: HashMap<u64, Option<(Instant, bool)>>,
}

impl<L: Law> Follows<L> {
    pub(super) fn new(law: L) -> Self {
        Self { law, streams_only: false, calls: HashMap::new() }
    }

    /// Creates a contender of a law that was given the objective for first tokens.
    pub(super) fn first_tokens(law: L) -> Self {
        Self { streams_only: true, ..Self::new(law) }
    }

    fn tell(&mut self, now: Instant, id: u64, told: Told) {
        let in_flight = self.calls.len();
        if let Some((sent, streams)) = self.calls.get_mut(&id).and_then(Option::take) {
            let judged = streams || !self.streams_only;
            let latency = if judged { now.saturating_duration_since(sent) } else { Duration::ZERO };
            self.law.told(told, latency, in_flight);
        }
    }
}

impl<L: Law> Contender for Follows<L> {
    fn limit(&self) -> usize {
        self.law.limit()
    }

    fn sent(&mut self, now: Instant, sent: Sent) {
        self.calls.insert(sent.id, Some((now, sent.kind.streams)));
    }

    fn first_token(&mut self, now: Instant, id: u64) {
        self.tell(now, id, Told::Answered);
    }

    fn ended(&mut self, now: Instant, id: u64, how: Ended) {
        self.tell(now, id, Told::of(how));
        self.calls.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use tidegate::policy::adaptive::CallKind;

    use super::*;
    use crate::virtual_time::beginning;

    #[derive(Default)]
    struct Heard(Vec<(Told, u64, usize)>);

    impl Law for Heard {
        fn limit(&self) -> usize {
            1
        }

        fn told(&mut self, told: Told, latency: Duration, in_flight: usize) {
            self.0.push((told, latency.as_secs(), in_flight));
        }
    }

    #[test]
    fn each_call_is_told_once() {
        let mut follows = Follows::new(Heard::default());
        let at = |seconds| beginning() + Duration::from_secs(seconds);
        for id in 0..4 {
            follows.sent(
                at(id),
                Sent { id, kind: CallKind::default(), waited: Duration::ZERO, in_flight: id as usize + 1 },
            );
        }
        // A stream is judged by its first token, and still in flight then.
        follows.first_token(at(5), 0);
        follows.ended(at(6), 1, Ended::Limited { by_rate: false });
        follows.ended(at(9), 0, Ended::Completed { output: 9 });
        follows.ended(at(10), 2, Ended::Cancelled);
        // A call that does not stream is judged by its end.
        follows.ended(at(11), 3, Ended::Completed { output: 9 });
        let heard = [
            (Told::Answered, 5, 4),
            (Told::Overloaded, 5, 4),
            (Told::Cancelled, 8, 2),
            (Told::Answered, 8, 1),
        ];
        assert_eq!(follows.law.0, heard);
        // A law with the objective is not told the duration of an answer that does not stream.
        let mut follows = Follows::first_tokens(Heard::default());
        for (id, streams) in [(0, true), (1, false)] {
            let kind = CallKind { streams, ..CallKind::default() };
            follows.sent(at(0), Sent { id, kind, waited: Duration::ZERO, in_flight: 1 });
            follows.ended(at(5), id, Ended::Completed { output: 9 });
        }
        assert_eq!(follows.law.0, [(Told::Answered, 5, 1), (Told::Answered, 0, 1)]);
    }
}
