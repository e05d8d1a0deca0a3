//! What another target can mend. Pure.

use std::time::Instant;

use crate::call::Call;
use crate::error::{Error, Reason};

/// Why a call was refused, if that is one of them, and the call can still go elsewhere.
pub(super) fn mendable(call: &Call, error: &Error, now: Instant) -> Option<Reason> {
    let reason = error.reason().filter(|reason| reason.can_fall_back())?;
    // A retry may be refused whose first attempt was sent, and perhaps ran.
    let safe = call.last_failure().is_none() || call.facts().repeatable;
    (safe && now < call.deadline()).then_some(reason)
}
