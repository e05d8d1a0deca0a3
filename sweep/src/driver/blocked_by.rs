//! Determines why calls wait although slots are free.

use tidegate::Gate;
use tidegate::explain::CallStatus;

use crate::observation::BlockedBy;

/// Maximum number of active calls of the gate that are searched for the first waiting one. Calls
/// that wait before a retry may precede it.
const MAX_EXAMINED: usize = 64;

pub(super) fn blocked_by(gate: &Gate, target: &str) -> BlockedBy {
    let waiting_call =
        gate.explain_all(MAX_EXAMINED).into_iter().find(|call| call.state == CallStatus::Waiting);
    match waiting_call.and_then(|call| call.rule) {
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

/// Returns `true` while the gate limits attempts to the target because of a cool-down: during the
/// cool-down, while single attempts probe the server afterwards, and while the rate is raised
/// again.
pub(super) fn is_recovering(gate: &Gate, target: &str) -> bool {
    gate.snapshot().targets.get(target).is_some_and(|target| target.state != "open")
}
