//! Tracks the tokens and the cost of a run, and compares them with ceilings.
//!
//! Each request to the provider reserves the maximum that it can use before it is sent, because the
//! provider may bill it whatever becomes of its response. The gate may send several requests for
//! one call: retries, and second attempts (hedges).

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tidegate::protocol::prompt::Task;
use tidegate::protocol::{RequestFacts, Usage};
use tidegate::tokens::{COLD_OUTPUT, COLD_RATIO};
use tidegate::{Error, ErrorKind};

/// Prices per million tokens, in any currency. Default 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prices {
    /// Price of a million input tokens.
    pub input: f64,
    /// Price of a million output tokens.
    pub output: f64,
}

/// Limits on what a run may use. Default none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ceilings {
    /// Maximum cost, in the currency of the prices. `None` is no limit.
    pub money: Option<f64>,
    /// Maximum number of input and output tokens together. `None` is no limit.
    pub tokens: Option<u64>,
}

/// The tokens that the calls of a batch used, and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spend {
    /// Number of input tokens.
    pub input: u64,
    /// Number of output tokens.
    pub output: u64,
    /// Cost, in the currency of the prices. 0 if there are no prices.
    pub money: f64,
}

/// Tracks what a run has used, and the maximum that its open requests can still use.
#[derive(Debug)]
pub(crate) struct SpendTracker {
    prices: Prices,
    ceilings: Ceilings,
    pub(crate) spent: Spend,
    reserved: Spend,
}

impl Prices {
    fn spend_for(&self, input: u64, output: u64) -> Spend {
        let money = (input as f64 * self.input + output as f64 * self.output) / 1e6;
        Spend { input, output, money }
    }
}

impl Spend {
    pub(crate) fn add(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.money += other.money;
    }

    fn subtract(&mut self, other: &Self) {
        self.input = self.input.saturating_sub(other.input);
        self.output = self.output.saturating_sub(other.output);
        self.money = (self.money - other.money).max(0.0);
    }
}

impl SpendTracker {
    pub(crate) fn new(prices: Prices, ceilings: Ceilings) -> Self {
        Self { prices, ceilings, spent: Spend::default(), reserved: Spend::default() }
    }

    /// Returns the maximum that a request can use: its input tokens, estimated from its bytes, and
    /// the output tokens that it allows. If it sets no maximum, 1,024 output tokens and its
    /// thinking limit are assumed per answer, or none for embeddings, rankings and moderations.
    pub(crate) fn max_spend(&self, facts: &RequestFacts) -> Spend {
        let prompt = facts.prompt.unwrap_or_default();
        let output = match facts.task {
            Task::Embed | Task::Rank | Task::Classify => 0,
            _ => prompt.max_output().unwrap_or_else(|| {
                let answer = COLD_OUTPUT.saturating_add(prompt.thinking.unwrap_or(0));
                answer.saturating_mul(prompt.all_answers())
            }),
        };
        self.prices.spend_for(prompt.input(COLD_RATIO), output)
    }

    /// Reserves `max_spend`, the maximum that a request can use, and returns `true`. Reserves
    /// nothing and returns `false` if the request could exceed a ceiling when all open requests use
    /// their maximum.
    fn try_reserve(&mut self, max_spend: &Spend) -> bool {
        let mut all = self.spent;
        all.add(&self.reserved);
        all.add(max_spend);
        let is_allowed = self.ceilings.money.is_none_or(|money| all.money <= money)
            && self.ceilings.tokens.is_none_or(|tokens| all.input.saturating_add(all.output) <= tokens);
        if is_allowed {
            self.reserved.add(max_spend);
        }
        is_allowed
    }

    /// Replaces the reservation `max_spend` of a request by the tokens that it used: `counted` if
    /// the provider reported them, otherwise `max_spend` if `may_be_billed` is `true`, and
    /// otherwise none.
    fn settle(&mut self, max_spend: &Spend, counted: Option<Usage>, may_be_billed: bool) {
        self.reserved.subtract(max_spend);
        let actual = match counted {
            Some(usage) => self.prices.spend_for(usage.input, usage.output),
            None if may_be_billed => *max_spend,
            None => Spend::default(),
        };
        self.spent.add(&actual);
    }
}

/// The requests of one call that the provider may bill, and the reservations for them.
#[derive(Debug)]
pub(super) struct CallSpend {
    tracker: Arc<Mutex<SpendTracker>>,
    /// Maximum that one request of the call can use.
    max_spend: Spend,
    requests: Mutex<RequestCounts>,
}

#[derive(Debug)]
struct RequestCounts {
    /// Number of requests that the provider may bill: those that are open, and those that have
    /// ended after the provider may have executed them.
    billable: u32,
    /// Number of requests for which `max_spend` is reserved. At least `billable`, and 0 after the
    /// call was settled.
    reserved: u32,
}

impl CallSpend {
    /// Reserves `max_spend` for the first request of a call. Returns `None` if the request could
    /// exceed a ceiling.
    pub(super) fn reserve(tracker: &Arc<Mutex<SpendTracker>>, max_spend: Spend) -> Option<Arc<Self>> {
        let requests = Mutex::new(RequestCounts { billable: 0, reserved: 1 });
        let is_allowed = tracker.lock().try_reserve(&max_spend);
        is_allowed.then(|| Arc::new(Self { tracker: tracker.clone(), max_spend, requests }))
    }

    /// Counts a request that is about to be sent. Reserves `max_spend` for it, unless it can use
    /// the reservation of an earlier request, which the provider does not bill.
    ///
    /// # Errors
    ///
    /// Returns an error that the gate does not retry if the request could exceed a ceiling. The
    /// request must then not be sent.
    pub(super) fn on_request(&self) -> Result<(), Error> {
        let mut requests = self.requests.lock();
        if requests.billable == requests.reserved {
            if !self.tracker.lock().try_reserve(&self.max_spend) {
                let text = "not sent again, because another request could exceed a ceiling of the run";
                return Err(Error::new(ErrorKind::Request, text).with_source(CeilingReached));
            }
            requests.reserved += 1;
        }
        requests.billable += 1;
        Ok(())
    }

    /// Records that the provider does not bill a request, because it was not executed.
    pub(super) fn on_unbilled_request(&self) {
        let mut requests = self.requests.lock();
        requests.billable = requests.billable.saturating_sub(1);
    }

    /// Settles the call, which has ended: replaces its reservations by the tokens that its requests
    /// used. The response to the last request reported `usage`. With `None`, and for earlier
    /// requests, the maximum is charged if the provider may bill them. Does nothing if the call was
    /// settled before.
    pub(super) fn settle(&self, usage: Option<Usage>) {
        let mut requests = self.requests.lock();
        let mut tracker = self.tracker.lock();
        for number in 0..requests.reserved {
            let counted = usage.filter(|_| number == 0);
            tracker.settle(&self.max_spend, counted, number < requests.billable);
        }
        *requests = RequestCounts { billable: 0, reserved: 0 };
    }
}

/// Settles a call when it is dropped, so that the requests of a cancelled call are charged.
#[derive(Debug)]
pub(super) struct SettledOnDrop(pub(super) Arc<CallSpend>);

impl Drop for SettledOnDrop {
    fn drop(&mut self) {
        self.0.settle(None);
    }
}

/// The source of the error of a request that was not sent because it could exceed a ceiling.
#[derive(Debug, thiserror::Error)]
#[error("another request could exceed a ceiling")]
pub(super) struct CeilingReached;

impl CeilingReached {
    /// Returns `true` if `error` occurred because a request could exceed a ceiling.
    pub(super) fn is_source_of(error: &Error) -> bool {
        std::error::Error::source(error).is_some_and(|source| source.is::<Self>())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method, Uri};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    proptest! {
        /// If no request uses more than it reserved, the run never exceeds a ceiling.
        #[test]
        fn ceilings_are_never_exceeded(calls in prop::collection::vec((0u64..1_000, 0u64..1_000, 0.0f64..1.0, any::<bool>()), 0..100), tokens in 0u64..20_000, money in 0.0f64..0.1) {
            let ceilings = Ceilings { money: Some(money), tokens: Some(tokens) };
            let mut tracker = SpendTracker::new(Prices { input: 1.0, output: 4.0 }, ceilings);
            let mut open = Vec::new();
            for (input, output, share, ends) in calls {
                let max_spend = tracker.prices.spend_for(input, output);
                if tracker.try_reserve(&max_spend) {
                    open.push((max_spend, share));
                }
                if ends && let Some((max_spend, share)) = open.pop() {
                    let part = |of: u64| (of as f64 * share) as u64;
                    let usage = Usage { input: part(max_spend.input), output: part(max_spend.output), cached_input: 0 };
                    tracker.settle(&max_spend, Some(usage), false);
                }
                prop_assert!(tracker.spent.input + tracker.spent.output <= tokens && tracker.spent.money <= money + 1e-9);
            }
            for (max_spend, _) in open { tracker.settle(&max_spend, None, true); }
            prop_assert!(tracker.spent.input + tracker.spent.output <= tokens && tracker.spent.money <= money + 1e-9);
            prop_assert_eq!(tracker.reserved.input, 0);
        }
    }

    #[test]
    fn request_without_a_maximum_reserves_output_for_each_answer() {
        let tracker = SpendTracker::new(Prices::default(), Ceilings::default());
        let output = |path: &'static str, body: &Value| {
            let (uri, body) = (Uri::from_static(path), body.to_string());
            let facts = RequestFacts::read(&Method::POST, &uri, &HeaderMap::new(), Some(body.as_bytes()));
            tracker.max_spend(&facts).output
        };
        let messages = json!([{"role": "user", "content": "hi"}]);
        let chat = |key: &str, value: Value| {
            output("/v1/chat/completions", &json!({"messages": messages, key: value}))
        };
        assert_eq!(chat("temperature", json!(1)), 1_024);
        assert_eq!(chat("n", json!(8)), 8 * 1_024);
        assert_eq!(chat("max_tokens", json!(100)), 100);
        assert_eq!(chat("reasoning_effort", json!("medium")), 1_024 + 8_192);
        let prompts = vec!["one"; 100];
        assert_eq!(output("/v1/completions", &json!({"prompt": prompts, "n": 2})), 200 * 1_024);
        assert_eq!(output("/v1/embeddings", &json!({"input": prompts})), 0);
    }

    #[test]
    fn requests_of_a_call_are_charged_unless_they_were_not_executed() {
        let ceilings = Ceilings { money: None, tokens: Some(25) };
        let tracker = Arc::new(Mutex::new(SpendTracker::new(Prices::default(), ceilings)));
        let max_spend = Spend { input: 6, output: 4, money: 0.0 };
        let call = CallSpend::reserve(&tracker, max_spend).unwrap();
        for _ in 0..9 {
            call.on_request().unwrap();
            call.on_unbilled_request();
        }
        call.on_request().unwrap();
        call.on_request().unwrap();
        let error = call.on_request().unwrap_err();
        assert!(CeilingReached::is_source_of(&error) && !error.retryable(), "{error}");
        assert!(CallSpend::reserve(&tracker, max_spend).is_none());
        call.settle(Some(Usage { input: 5, output: 1, cached_input: 0 }));
        drop(SettledOnDrop(call));
        let expected = Spend { input: 11, output: 5, money: 0.0 };
        let tracker = tracker.lock();
        assert_eq!((tracker.spent, tracker.reserved), (expected, Spend::default()));
    }
}
