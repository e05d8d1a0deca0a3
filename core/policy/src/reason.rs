//! Reasons for which a call is not admitted.

/// Why a call was not admitted. The text of each is also its label in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No slot is free and the target refuses rather than queues (`on_full = "refuse"`).
    NoSlot,
    /// The tenant's queue is at its bound.
    QueueFull,
    /// The wait budget ran out.
    WaitBudget,
    /// The deadline came, or a cool-down ends after it.
    Deadline,
    /// The provider asked callers to wait (Retry-After) for longer than this call can wait.
    CoolDown,
    /// The target is down, and the next look at it comes after this call's deadline.
    Outage,
    /// The gate is draining.
    Draining,
    /// Waiting for this tool would never end: it is held by calls that wait for what this one holds.
    Deadlock,
    /// A rate budget has no room and the target refuses rather than queues (`on_full = "refuse"`).
    NoBudget,
    /// The prompt is over the operator's maximum, or the call takes more than any of the target's budgets could ever hold.
    TooLarge,
    /// Its slot is predicted to come later than it can wait.
    PredictedWait,
    /// It gave up its place in a full queue to a more urgent call.
    Shed,
}

impl Reason {
    /// Every reason, so that each metric series exists from the start.
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

    /// Returns `true` if another target may admit a call that was refused for this reason. A gate that
    /// drains does so at every target, and a deadlock is the caller's own.
    pub fn can_fall_back(&self) -> bool {
        !matches!(self, Reason::Draining | Reason::Deadlock)
    }

    /// The stable name, as in metrics and in the `reason` field of errors.
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
