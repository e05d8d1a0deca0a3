//! What retry and hedging share: the retry budget's charge, and the count of failed attempts.

use super::Call;
use crate::budget::RetryToken;
use crate::clock;
use tidegate_policy::outcome::AttemptOutcome;

/// A request extension: whoever sends the request can send it again.
///
/// Only such an attempt can be cancelled to release its slot, because it is made again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanReplay;

/// The charge of an additional attempt to the retry budget of its target.
///
/// Dropping it gives the charge back if no further attempt of the call was sent.
pub(crate) struct RetryCharge {
    call: Call,
    sent: usize,
    token: Option<RetryToken>,
}

impl RetryCharge {
    /// Charges one more attempt of the call. `None` if the budget is used up.
    pub(crate) fn withdraw(call: &Call) -> Option<Self> {
        let token = call.target().retries().lock().withdraw(clock::now())?;
        Some(Self { call: call.clone(), sent: call.sent(), token: Some(token) })
    }

    /// Keeps the charge, because the attempt was made.
    pub(crate) fn spend(mut self) {
        self.token = None;
    }
}

impl Drop for RetryCharge {
    fn drop(&mut self) {
        if let Some(token) = self.token.take().filter(|_| self.call.sent() == self.sent) {
            self.call.target().retries().lock().refund(token);
        }
    }
}

impl Call {
    /// Counts a failed attempt, and remembers its class for messages. Does nothing if the upstream
    /// had no part in the failure.
    pub(crate) fn on_failed_attempt(&self, outcome: &AttemptOutcome) {
        if let Some(class) = outcome.failure_class() {
            self.state().last_failure = Some(class);
            self.target().metrics().upstream_failed(class, self.placed().as_ref());
        }
    }
}
