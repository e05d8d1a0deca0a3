//! Reasons for which a call is not admitted.

use crate::labels::labelled;

labelled! {
    /// The reason for which a call was not admitted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Reason {
        /// No slot is free, and the target rejects calls instead of queueing them (`on_full =
        /// "refuse"`).
        NoSlot = "no_slot",
        /// The queue contains as many calls as are allowed for the tenant or in total.
        QueueFull = "queue_full",
        /// The call was queued for as long as its wait budget allows.
        WaitBudget = "wait_budget",
        /// The caller's own client stopped waiting while the call was queued.
        ClientTimeout = "client_timeout",
        /// The deadline of the call passed while it was queued, or a cool-down of the target ends
        /// after the deadline.
        Deadline = "deadline",
        /// The provider asked callers to wait (`Retry-After`) for longer than the call can wait.
        CoolDown = "cool_down",
        /// The target is down, and the next probe is due after the deadline of the call or, at a
        /// target with a fallback, after its wait budget has ended.
        Outage = "outage",
        /// The gate is shutting down and admits no new calls.
        Draining = "draining",
        /// Waiting for this tool would never end: the calls that hold the tool wait for tools that
        /// this call holds.
        Deadlock = "deadlock",
        /// A rate budget is used up, and the target rejects calls instead of queueing them
        /// (`on_full = "refuse"`).
        NoBudget = "no_budget",
        /// The prompt exceeds the configured maximum, or the call exceeds the whole budget or
        /// memory of the target.
        TooLarge = "too_large",
        /// The predicted wait is longer than the call can wait.
        PredictedWait = "predicted_wait",
        /// The queue was full, and the call was removed in favour of a more urgent one.
        Shed = "shed",
    }
}

impl Reason {
    /// Returns `true` if another target may admit a call that was rejected for this reason.
    ///
    /// Returns `false` for [`Reason::Draining`], because the gate then rejects calls to every
    /// target, and for [`Reason::Deadlock`], because the caller itself holds the tools that cause
    /// it.
    pub fn can_fall_back(&self) -> bool {
        !matches!(self, Reason::Draining | Reason::Deadlock)
    }
}
