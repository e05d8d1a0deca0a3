//! The charges of a call to the retry budget of its target, and the record of its failed attempts.
//! Used by retry and by hedging.

use super::Call;
use crate::budget::RetryToken;
use crate::clock;
use crate::config::RetryConfig;
use tidegate_policy::outcome::AttemptOutcome;

/// A request extension that marks a request that the layer above admission can send again.
///
/// Only attempts whose request has this mark may be cancelled when the gate needs their slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CanReplay;

/// The charge of one additional attempt to the retry budget of its target.
///
/// Dropping the charge refunds it, unless the call has sent another attempt since the charge was
/// made.
pub(crate) struct RetryCharge {
    call: Call,
    /// Number of attempts that the call had sent when it was charged.
    sent_attempts: usize,
    /// The charge. `None` once it is refunded.
    token: Option<RetryToken>,
}

impl RetryCharge {
    /// Charges one more attempt of the call to the retry budget of its target. Returns `None` if
    /// the budget is exhausted.
    pub(crate) fn withdraw(call: &Call) -> Option<Self> {
        let token = call.target().divided_retries().withdraw(clock::now())?;
        Some(Self { call: call.clone(), sent_attempts: call.sent_attempts(), token: Some(token) })
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
    /// Returns how failed attempts of the call are repeated: the target's settings, with the
    /// maximum number of attempts that the caller has set, if any.
    pub(crate) fn retry_config(&self) -> RetryConfig {
        let configured = &self.target().config().retry;
        let attempts = self.0.identity.max_attempts.unwrap_or(configured.attempts);
        RetryConfig { attempts, ..configured.clone() }
    }

    /// Stores whether a failed or cancelled attempt may have reached the upstream, and whether the
    /// upstream may have executed it. If the upstream caused the failure, also counts the attempt
    /// in the metrics, and stores its failure class for error messages.
    pub(crate) fn on_failed_attempt(&self, outcome: &AttemptOutcome) {
        let class = outcome.failure_class();
        let mut state = self.state();
        state.was_sent |= outcome.may_have_been_sent();
        state.may_have_run |= !outcome.never_executed();
        state.last_failure = class.or(state.last_failure);
        drop(state);
        if let Some(class) = class {
            self.target().metrics().on_upstream_failure(class, self.placed().as_ref());
        }
    }
}
