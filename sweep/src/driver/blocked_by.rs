//! Asks the gate what holds calls back while slots are free.

use tidegate::Gate;
use tidegate::explain::CallStatus;

use crate::observation::BlockedBy;

/// Number of calls examined, because calls that back off are among them.
const MAX_EXAMINED: usize = 64;

pub(super) fn blocked_by(gate: &Gate, target: &str) -> BlockedBy {
    let waits = gate.explain_all(MAX_EXAMINED).into_iter().find(|told| told.state == CallStatus::Waiting);
    match waits.and_then(|told| told.rule) {
        Some("requests" | "requests_per_day") => BlockedBy::Requests,
        Some("tokens" | "input_tokens" | "output_tokens" | "tokens_per_day" | "tenant_tokens") => {
            BlockedBy::Tokens
        }
        Some("cool_down" | "outage") => BlockedBy::CoolDown,
        Some("kv") => BlockedBy::Kv,
        // During the recovery from a cool-down, fewer slots are in force than the cap.
        Some("slots") if is_recovering(gate, target) => BlockedBy::CoolDown,
        _ => BlockedBy::Nothing,
    }
}

/// Returns `true` during a cool-down and during the recovery from it.
pub(super) fn is_recovering(gate: &Gate, target: &str) -> bool {
    gate.snapshot().targets.get(target).is_some_and(|target| target.state != "open")
}
