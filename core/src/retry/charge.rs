//! What an attempt beside the first is charged to its target's retry budget.

use crate::budget::Credit;
use crate::call::Call;
use crate::clock;

/// A scheduled attempt's charge; given back where nothing more of the call was sent when it is dropped.
pub(crate) struct Charge {
    call: Call,
    sent: usize,
    credit: Option<Credit>,
}

impl Charge {
    /// What the budget allows of another attempt at this call; `None`: nothing.
    pub(crate) fn withdraw(call: &Call) -> Option<Self> {
        let credit = call.target().retries().lock().withdraw(clock::now())?;
        Some(Self { call: call.clone(), sent: call.sent(), credit: Some(credit) })
    }

    /// The attempt was made.
    pub(super) fn spent(mut self) {
        self.credit = None;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(credit) = self.credit.take().filter(|_| self.call.sent() == self.sent) {
            self.call.target().retries().lock().give_back(credit);
        }
    }
}
