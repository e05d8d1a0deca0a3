//! Tests of [`play`], the simulated client, with several contenders.

use super::*;
use crate::experiments::adaptive::contender::{Fixed, Terms};
use crate::experiments::adaptive::upstream::{FirstToken, Hosted, Rate};
use crate::trace_lengths::Work;

const TERMS: Terms = Terms { objective: Duration::from_secs(2), wait: Duration::from_secs(1), ceiling: 256 };

fn inputs(calls: u64, leaves: Option<Duration>) -> RunInputs {
    let work = Work { prompt: 100, output: 100 };
    let at = |k| Duration::from_millis(10 * k);
    let arrivals = (0..calls).map(|k| Arrival { at: at(k), work, streams: k % 2 == 0, leaves }).collect();
    let until = Duration::from_secs(20);
    RunInputs {
        seed: 1,
        terms: TERMS,
        arrivals,
        changes: Vec::new(),
        budget: None,
        expected_output: 100,
        until,
    }
}

/// A contender that panics if its methods are called in a wrong order, or if its limit is exceeded.
#[derive(Default)]
struct Strict {
    limit: usize,
    there: HashMap<u64, (bool, bool)>,
    ended: usize,
}

impl Contender for Strict {
    fn limit(&self) -> usize {
        self.limit
    }

    fn sent(&mut self, _now: Instant, sent: Sent) {
        assert_eq!(self.there.insert(sent.id, (sent.kind.streams, false)), None);
        assert_eq!(self.there.len(), sent.in_flight);
        assert!(sent.in_flight <= self.limit);
    }

    fn first_token(&mut self, _now: Instant, id: u64) {
        let (streams, on_remaining) = self.there.get_mut(&id).unwrap();
        assert!(*streams && !std::mem::replace(on_remaining, true));
    }

    fn ended(&mut self, _now: Instant, id: u64, _how: Ended) {
        self.there.remove(&id).unwrap();
        self.ended += 1;
    }
}

#[test]
fn each_call_ends_once_and_the_limit_holds() {
    for leaves in [None, Some(Duration::from_millis(200))] {
        let inputs = inputs(300, leaves);
        let mut strict = Strict { limit: 12, ..Strict::default() };
        let played = play(&inputs, &mut Hosted::new(8, None, FirstToken::QUICK, 1), &mut strict, false);
        assert!(strict.there.is_empty());
        assert_eq!(strict.ended as u64, played.attempts);
        assert!(played.results.iter().all(|result| result.how != CallOutcome::Open));
        assert!(played.rejected > 0);
        assert_eq!(played.results.iter().any(|result| result.how == CallOutcome::Left), leaves.is_some());
    }
}

#[test]
fn call_beyond_the_wait_budget_is_rejected_unless_it_was_sent() {
    let inputs = inputs(300, None);
    let played = play(&inputs, &mut Hosted::new(256, None, FirstToken::QUICK, 1), &mut Fixed(4), false);
    let refused = played.results.iter().filter(|result| result.how == CallOutcome::Refused).count();
    let served = played.results.iter().filter(|result| result.how == CallOutcome::Served).count();
    assert!(refused > 0 && served > 0 && refused + served == 300);
    for (arrival, result) in inputs.arrivals.iter().zip(&played.results) {
        assert!(result.sent.is_none_or(|sent| sent - arrival.at <= TERMS.wait));
    }
}

#[test]
fn budget_from_headers_avoids_most_rejections() {
    let rate = Some(Rate { per_minute: 60_000.0, others: 0.2 });
    let budgeted = RunInputs { budget: Some(60_000.0), ..inputs(2_000, None) };
    let with = play(&budgeted, &mut Hosted::new(256, rate, FirstToken::QUICK, 1), &mut Fixed(64), false);
    let without =
        play(&inputs(2_000, None), &mut Hosted::new(256, rate, FirstToken::QUICK, 1), &mut Fixed(64), false);
    assert!(with.rejected * 4 < without.rejected, "{} of {}", with.rejected, without.rejected);
}
