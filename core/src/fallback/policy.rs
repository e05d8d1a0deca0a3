//! What another target can mend. Pure.

use std::time::Instant;

use crate::call::Call;
use crate::error::{Error, Reason};

/// The refusals that another target may answer. Not among them: the gate drains, which is so at every target; a deadlock, which is the caller's own.
pub(crate) const REASONS: [Reason; 10] = [
    Reason::NoSlot,
    Reason::QueueFull,
    Reason::WaitBudget,
    Reason::Deadline,
    Reason::CoolDown,
    Reason::Outage,
    Reason::NoBudget,
    Reason::TooLarge,
    Reason::PredictedWait,
    Reason::Shed,
];

/// Why a call was refused, if that is one of them, and the call can still go elsewhere.
pub(super) fn mendable(call: &Call, error: &Error, now: Instant) -> Option<Reason> {
    let reason = error.reason().filter(|reason| REASONS.contains(reason))?;
    // A retry may be refused whose first attempt was sent, and perhaps ran.
    let safe = call.last_failure().is_none() || call.facts().repeatable;
    (safe && now < call.deadline()).then_some(reason)
}
