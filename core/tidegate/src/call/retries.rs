//! What retry and hedging share: charging the retry budget, and counting failed attempts.

use super::Call;
use crate::budget::RetryToken;
use crate::clock;
use tidegate_policy::outcome::AttemptOutcome;

/// A request extension that marks requests which a layer above can send again.
///
/// The gate cancels only such attempts to release their slots, because only they can be repeated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanReplay;

/// The charge of an additional attempt to the retry budget of its target.
///
/// Dropping it refunds the charge, unless another attempt of the call was sent meanwhile.
pub(crate) struct RetryCharge {
    call: Call,
    sent_attempts: usize,
    token: Option<RetryToken>,
}

impl RetryCharge {
    /// Charges one more attempt of the call. Returns `None` if the retry budget is used up.
    pub(crate) fn withdraw(call: &Call) -> Option<Self> {
        let token = call.target().retries().lock().withdraw(clock::now())?;
        Some(Self { call: call.clone(), sent_attempts: call.sent_attempts(), token: Some(token) })
    }

    /// Keeps the charge, because the attempt was made.
    pub(crate) fn spend(mut self) {
        self.token = None;
    }
}

impl Drop for RetryCharge {
    fn drop(&mut self) {
        if let Some(token) = self.token.take().filter(|_| self.call.sent_attempts() == self.sent_attempts) {
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
