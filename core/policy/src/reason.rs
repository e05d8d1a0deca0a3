//! Reasons for which a call is not admitted.

/// Why a call was not admitted. The text of each is also its label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No slot is free, and the target refuses instead of queueing (`on_full = "refuse"`).
    NoSlot,
    /// The queue is at its bound.
    QueueFull,
    /// The wait budget ran out.
    WaitBudget,
    /// The deadline passed, or a cool-down ends after it.
    Deadline,
    /// The provider asked callers to wait (Retry-After) for longer than this call can wait.
    CoolDown,
    /// The target is down, and the next probe comes after the call's deadline.
    Outage,
    /// The gate is draining.
    Draining,
    /// The call would wait for this tool forever, because calls that wait for what this call holds
    /// hold the tool.
    Deadlock,
    /// A rate budget has no room, and the target refuses instead of queueing (`on_full =
    /// "refuse"`).
    NoBudget,
    /// The prompt exceeds the configured maximum, or the call exceeds a whole budget of the target.
    TooLarge,
    /// The predicted wait is longer than the call can wait.
    PredictedWait,
    /// The call was removed from a full queue for a more urgent one.
    Shed,
}

impl Reason {
    /// All reasons, so that each metric series exists from the start.
    pub const ALL: [Reason; 12] = [
        Reason::NoSlot,
        Reason::QueueFull,
        Reason::WaitBudget,
        Reason::Deadline,
        Reason::CoolDown,
        Reason::Outage,
        Reason::Draining,
        Reason::Deadlock,
        Reason::NoBudget,
        Reason::TooLarge,
        Reason::PredictedWait,
        Reason::Shed,
    ];

    /// Returns `true` if another target may admit a call that was rejected for this reason.
    ///
    /// A gate that drains rejects at every target, and a deadlock is the caller's own.
    pub fn can_fall_back(&self) -> bool {
        !matches!(self, Reason::Draining | Reason::Deadlock)
    }

    /// Returns the stable name, as in metrics and in the `reason` field of errors.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::NoSlot => "no_slot",
            Reason::QueueFull => "queue_full",
            Reason::WaitBudget => "wait_budget",
            Reason::Deadline => "deadline",
            Reason::CoolDown => "cool_down",
            Reason::Outage => "outage",
            Reason::Draining => "draining",
            Reason::Deadlock => "deadlock",
            Reason::NoBudget => "no_budget",
            Reason::TooLarge => "too_large",
            Reason::PredictedWait => "predicted_wait",
            Reason::Shed => "shed",
        }
    }
}
