//! Reports the result of an attempt: its outcome to the target or replica, and its tokens to the
//! rate budgets and to the cost estimates.

use crate::admission::Permit;
use crate::call::{Call, ExchangeRecord, Seen};
use crate::clock;
use crate::cooldown::Failure;
use crate::placement::Fault;
use crate::schedule::Settled;
use crate::target::SlotTime;
use tidegate_policy::outcome::AttemptOutcome;
use tidegate_policy::retry::RetryPath;
use tidegate_protocol::Usage;
use tidegate_tokens::LengthSample;

/// Reports the outcome of an attempt to its replica or, if the target is not a pool, to the target.
/// Returns how the call continues if it is retried. Reports nothing, and returns
/// [`RetryPath::Backoff`], if the outcome shows nothing about the upstream. Marks the charges of an
/// attempt that the upstream did not execute to be refunded.
///
/// If several credentials or models use the target, a `Retry-After` concerns those of the call
/// alone: see [`KeyedCooldowns`](crate::target::KeyedCooldowns).
///
/// An error that a retry would not change, such as 400, shows that a single server is up, so it
/// counts as accepted. A replica may itself be the cause: see [`Fault::Rejected`]. A replica may
/// also cause a timeout of the caller's client: see [`Fault::Unanswered`].
pub(crate) fn apply(call: &Call, permit: &mut Permit, outcome: &AttemptOutcome) -> RetryPath {
    if outcome.never_executed() {
        permit.mark_unsent();
    }
    if outcome.is_inconclusive() {
        if Fault::from_outcome(outcome, false) == Some(Fault::Unanswered) {
            permit.on_unanswered();
        }
        return RetryPath::Backoff;
    }
    if outcome.may_be_fault_of_call() {
        call.update_queue(|queue| queue.has_failed = true);
    }
    let keyed = call.keyed_cooldown();
    let failure = Failure::from_outcome(outcome, call.has_own_deadline());
    let path = if permit.placed().is_some() {
        Fault::from_outcome(outcome, false).map(|fault| permit.on_replica_fault(fault))
    } else if let Some((cooldowns, key)) = keyed.filter(|(cooldowns, _)| cooldowns.concerns_key(outcome)) {
        failure.map(|_| cooldowns.on_failure(key, call.sent_at(), outcome.retry_after()))
    } else {
        let delay = outcome.retry_after();
        if delay.is_some() {
            call.note_keyless_wait();
        }
        failure.map(|failure| permit.on_failure(call.id(), failure, delay, || outcome.problem()))
    };
    let Some(path) = path else {
        permit.on_success();
        if let Some((cooldowns, key)) = keyed {
            cooldowns.on_success(key, call.sent_at());
        }
        return RetryPath::Backoff;
    };
    if matches!(path, RetryPath::AfterCoolDown | RetryPath::AfterOutage) {
        call.target().metrics().on_cool_down(path);
        tracing::debug!(target = %call.target().name(), retry_path = ?path, "held back");
    }
    path
}

/// Corrects the charges of an attempt that has ended to the tokens that it used, and updates the
/// estimates of response lengths.
///
/// - If the response is complete and reports its usage, the charges are corrected to that usage,
///   and the estimator learns it.
/// - If the response is complete without usage, its estimated charges stay. The estimator learns
///   the number of its deltas as its length in tokens.
/// - If the response failed or was dropped after its first token, the charges are corrected to the
///   tokens that had arrived, because most providers bill those. The estimator learns that such
///   responses are at least as long.
/// - If the response failed or was dropped before its first token, the estimated charges stay, and
///   the estimator learns nothing.
///
/// `sample` is what the estimator has already learned about the length of this response.
pub(super) fn settle(call: &Call, permit: &mut Permit, exchange: &ExchangeRecord, sample: &mut LengthSample) {
    let (sent_at, now) = (exchange.sent_at(), clock::now());
    let estimates = call.target().estimates();
    let held = Some(SlotTime {
        to_first_token: exchange.first_token_at().map(|first| first.saturating_duration_since(sent_at)),
        to_end: now.saturating_duration_since(sent_at),
    });
    let (produced, Seen { usage, is_complete, .. }) = (exchange.deltas(), exchange.seen());
    // Some servers report zeros instead of what they did not count.
    let with_input = |usage: Usage| {
        let input = if usage.input > 0 { usage.input } else { call.expected_demand().input };
        Usage { input, ..usage }
    };
    match usage.filter(|usage| usage.input > 0 || usage.output > 0) {
        Some(usage) if is_complete => {
            estimates.learn(call.facts(), call.tenant(), sample, &usage, held);
            let usage = with_input(usage);
            permit.settle(&Settled { usage, cost: estimates.actual_cost(usage.input, usage.output, held) });
        }
        None if is_complete => {
            let usage = Usage { output: produced, ..Usage::default() };
            estimates.learn(call.facts(), call.tenant(), sample, &usage, held);
        }
        _ if produced > 0 => {
            let seen = with_input(usage.unwrap_or_default());
            let usage = Usage { output: seen.output.max(produced), ..seen };
            estimates.observe(call.facts(), call.tenant(), sample, usage.output);
            permit.settle(&Settled { usage, cost: estimates.actual_cost(usage.input, usage.output, held) });
        }
        _ => {}
    }
}
