//! Converts an ended call into an observation for the search and a line of the log.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate::CallRecord;

use super::call_state::{CallHistory, CallState};
use crate::observation::{AttemptFailure, CallObservation, FailureCause};

/// A line of `calls.jsonl`. Times are in seconds since the sweep began.
#[derive(Clone, Debug, Serialize)]
pub struct CallLine {
    /// Step in which the call began.
    pub step: usize,
    /// Cap of that step.
    pub cap: usize,
    /// Index in the mix.
    pub work: usize,
    /// Time at which the call was queued at the gate.
    pub queued_at: f64,
    /// Time at which the call first got a slot.
    pub admitted_at: Option<f64>,
    /// Time of the first token.
    pub first_token_at: Option<f64>,
    /// Time at which the last slot was released.
    pub released_at: f64,
    /// Slots held just after the first admission, including the call's own.
    pub in_flight: Option<usize>,
    /// Outcome as reported by the gate (`completed`, `failed`, `timed_out`, ...), or `given_up` if
    /// the sweep cancelled the call.
    pub outcome: &'static str,
    /// Last HTTP status.
    pub status: Option<u16>,
    /// Number of exchanges with the server.
    pub attempts: usize,
    /// Number of failed exchanges that were retried, by cause.
    pub retries: BTreeMap<FailureCause, usize>,
    /// Why the call failed in the end.
    pub failure: Option<AttemptFailure>,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Answer tokens.
    pub output_tokens: u64,
    /// Whether the server counted the tokens.
    pub counted: bool,
}

/// Timestamps of a call, from the gate's record if available.
struct Stamps {
    admitted_at: Option<f64>,
    ended_at: f64,
    slot_seconds: f64,
    first_token_at: Option<f64>,
    in_flight: Option<usize>,
    outcome: &'static str,
}

impl Stamps {
    fn of(call: &CallState, history: &CallHistory, record: Option<&CallRecord>, now: f64) -> Self {
        let Some(record) = record else {
            // The gate's record was missed. The metering transport saw the same, except for
            // microseconds.
            let held = |tried: &super::call_state::AttemptLog| tried.ended_at.unwrap_or(now) - tried.sent_at;
            return Self {
                admitted_at: history.attempts.first().map(|tried| tried.sent_at),
                ended_at: history.attempts.last().and_then(|tried| tried.ended_at).unwrap_or(now),
                slot_seconds: history.attempts.iter().map(held).sum(),
                first_token_at: history.stream.first_at,
                in_flight: history.attempts.first().map(|tried| tried.position),
                outcome: if history.attempts.last().is_some_and(|t| t.failure.is_none()) {
                    "completed"
                } else {
                    "failed"
                },
            };
        };
        let at = |stamp: f64| call.queued_at + stamp;
        let admitted = record.attempts.iter().find(|attempt| attempt.admitted_at.is_some());
        let held = |attempt: &tidegate::AttemptRecord| {
            let until = attempt.released_at.unwrap_or(record.duration);
            attempt.admitted_at.map_or(0.0, |from| until - from)
        };
        Self {
            admitted_at: admitted.and_then(|attempt| attempt.admitted_at).map(at),
            ended_at: at(record.duration),
            slot_seconds: record.attempts.iter().map(held).sum(),
            first_token_at: record.attempts.last().and_then(|attempt| attempt.first_token_at).map(at),
            in_flight: admitted.and_then(|attempt| attempt.in_flight),
            outcome: record.outcome,
        }
    }
}

/// Returns the log line of an ended call and its observation, or `None` if no request was sent. A
/// call that the sweep cancelled has no observation.
pub(super) fn ended(
    call: &CallState,
    record: Option<&CallRecord>,
    now: f64,
) -> Option<(CallLine, Option<CallObservation>)> {
    let history = call.history();
    if history.attempts.is_empty() {
        return None;
    }
    let stamps = Stamps::of(call, &history, record, now);
    let usage = history.stream.usage;
    let (input, output) = usage.map_or((call.input, call.output), |usage| (usage.input, usage.output));
    let last = history.attempts.last();
    let failure = match stamps.outcome {
        "completed" => None,
        _ => Some(
            last.and_then(|tried| tried.failure.clone())
                .unwrap_or(super::failure::plain(FailureCause::Timeout)),
        ),
    };
    let mut retries = BTreeMap::new();
    for cause in history.attempts.iter().rev().skip(1).filter_map(|tried| Some(tried.failure.as_ref()?.cause))
    {
        *retries.entry(cause).or_default() += 1;
    }
    let line = CallLine {
        step: call.step,
        cap: call.cap,
        work: call.work,
        queued_at: call.queued_at,
        admitted_at: stamps.admitted_at,
        first_token_at: stamps.first_token_at,
        released_at: stamps.ended_at,
        in_flight: stamps.in_flight,
        outcome: if history.given_up { "given_up" } else { stamps.outcome },
        status: last.and_then(|tried| tried.status),
        attempts: history.attempts.len(),
        retries,
        failure: failure.clone(),
        input_tokens: input,
        output_tokens: output,
        counted: usage.is_some(),
    };
    if history.given_up {
        return Some((line, None));
    }
    let admitted_at = stamps.admitted_at.unwrap_or(call.queued_at);
    let gaps = output.saturating_sub(1);
    let tpot = match (history.stream.first_at, history.stream.last_at) {
        (Some(first), Some(last)) if gaps > 0 => Some((last - first) / gaps as f64),
        _ => None,
    };
    let seen = CallObservation {
        work: call.work,
        step: call.step,
        queued_at: call.queued_at,
        admitted_at,
        ended_at: stamps.ended_at,
        slot_seconds: stamps.slot_seconds,
        attempts: u32::try_from(history.attempts.len()).unwrap_or(u32::MAX),
        ttft: stamps.first_token_at.map(|at| at - admitted_at),
        tpot: tpot.filter(|_| failure.is_none()),
        longest_pause: history.stream.longest_pause,
        input_tokens: input,
        output_tokens: output,
        counted: usage.is_some(),
        failure,
    };
    Some((line, Some(seen)))
}
