//! Converts an ended call into an observation for the search and a line of the call log.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate::CallRecord;

use super::call_state::{CallHistory, CallState};
use crate::observation::{AttemptFailure, CallObservation, FailureCause};

/// Line of `calls.jsonl`. Times are in seconds since the sweep began.
#[derive(Clone, Debug, Serialize)]
pub struct CallLine {
    /// Number of the step in which the call was queued.
    pub step: usize,
    /// Cap of the step.
    pub cap: usize,
    /// Index of the call's request in the mix.
    pub work: usize,
    /// Time at which the call was queued at the gate, in seconds since the sweep began.
    pub queued_at: f64,
    /// Time at which the first attempt got a slot, in seconds since the sweep began. `None` if
    /// unknown.
    pub admitted_at: Option<f64>,
    /// Time of the first token of the last attempt, in seconds since the sweep began. `None` if it
    /// got no token.
    pub first_token_at: Option<f64>,
    /// Time at which the last slot of the call was released, in seconds since the sweep began.
    pub released_at: f64,
    /// Number of slots in use just after the first attempt got its slot, including that one. `None`
    /// if unknown.
    pub in_flight: Option<usize>,
    /// How the call ended: `completed`, `failed`, `refused`, `cancelled`, `truncated`, `timed_out`
    /// or `broken` as recorded by the gate, or `given_up` if the sweep cancelled the call.
    pub outcome: &'static str,
    /// HTTP status of the last attempt, or `None` without a response.
    pub status: Option<u16>,
    /// Number of attempts, including the first.
    pub attempts: usize,
    /// Number of failed attempts that were followed by a retry, by cause.
    pub retries: BTreeMap<FailureCause, usize>,
    /// Failure of the last attempt, or `None` if the call was answered completely.
    pub failure: Option<AttemptFailure>,
    /// Prompt tokens as counted by the server, or as estimated if `counted` is `false`.
    pub input_tokens: u64,
    /// Answer tokens as counted by the server. If `counted` is `false`, the number of output events
    /// of the stream, or the requested maximum if there was none.
    pub output_tokens: u64,
    /// Whether the server reported token counts.
    pub counted: bool,
}

/// Times and outcome of a call. They come from the gate's record or, if the record was missed, from
/// the metering transport.
struct CallTimes {
    admitted_at: Option<f64>,
    ended_at: f64,
    slot_seconds: f64,
    first_token_at: Option<f64>,
    in_flight: Option<usize>,
    outcome: &'static str,
}

impl CallTimes {
    fn from_record(call: &CallState, history: &CallHistory, record: Option<&CallRecord>, now: f64) -> Self {
        let Some(record) = record else {
            // The gate's record was missed. The metering transport saw the same, except for
            // microseconds.
            let held =
                |attempt: &super::call_state::AttemptLog| attempt.ended_at.unwrap_or(now) - attempt.sent_at;
            return Self {
                admitted_at: history.attempts.first().map(|attempt| attempt.sent_at),
                ended_at: history.attempts.last().and_then(|attempt| attempt.ended_at).unwrap_or(now),
                slot_seconds: history.attempts.iter().map(held).sum(),
                first_token_at: history.stream.first_at,
                in_flight: history.attempts.first().map(|attempt| attempt.position),
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

/// Returns the log line and the observation of an ended call. The observation is `None` if the
/// sweep cancelled the call. Returns `None` instead of the pair if no request of the call was sent.
pub(super) fn ended_call(
    call: &CallState,
    record: Option<&CallRecord>,
    now: f64,
) -> Option<(CallLine, Option<CallObservation>)> {
    let history = call.history();
    if history.attempts.is_empty() {
        return None;
    }
    let times = CallTimes::from_record(call, &history, record, now);
    let usage = history.stream.usage;
    // Without usage, one delta counts as one token: answers often end before their limit.
    let uncounted = if history.stream.deltas > 0 { history.stream.deltas } else { call.output };
    let (input, output) = usage.map_or((call.input, uncounted), |usage| (usage.input, usage.output));
    let last = history.attempts.last();
    let failure = match times.outcome {
        "completed" => None,
        _ => Some(
            last.and_then(|attempt| attempt.failure.clone())
                .unwrap_or(super::failure::without_details(FailureCause::Timeout)),
        ),
    };
    let mut retries = BTreeMap::new();
    for cause in
        history.attempts.iter().rev().skip(1).filter_map(|attempt| Some(attempt.failure.as_ref()?.cause))
    {
        *retries.entry(cause).or_default() += 1;
    }
    let line = CallLine {
        step: call.step,
        cap: call.cap,
        work: call.work,
        queued_at: call.queued_at,
        admitted_at: times.admitted_at,
        first_token_at: times.first_token_at,
        released_at: times.ended_at,
        in_flight: times.in_flight,
        outcome: if history.cancelled_by_sweep { "given_up" } else { times.outcome },
        status: last.and_then(|attempt| attempt.status),
        attempts: history.attempts.len(),
        retries,
        failure: failure.clone(),
        input_tokens: input,
        output_tokens: output,
        counted: usage.is_some(),
    };
    if history.cancelled_by_sweep {
        return Some((line, None));
    }
    let admitted_at = times.admitted_at.unwrap_or(call.queued_at);
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
        ended_at: times.ended_at,
        slot_seconds: times.slot_seconds,
        attempts: u32::try_from(history.attempts.len()).unwrap_or(u32::MAX),
        ttft: times.first_token_at.map(|at| at - admitted_at),
        tpot: tpot.filter(|_| failure.is_none()),
        longest_pause: history.stream.longest_pause,
        input_tokens: input,
        output_tokens: output,
        counted: usage.is_some(),
        failure,
    };
    Some((line, Some(seen)))
}

#[cfg(test)]
mod tests {
    use super::super::call_state::StreamTimes;
    use super::*;

    #[test]
    fn events_count_as_tokens_if_the_server_reports_no_usage() {
        for (deltas, output, tpot) in [(10, 10, 0.05), (0, 100, 0.45 / 99.0)] {
            let call = CallState::new(0, 0, 4, 0, 40, 100, 0.0);
            call.sent(0.0, 1);
            let stream =
                StreamTimes { first_at: Some(0.05), last_at: Some(0.5), deltas, ..StreamTimes::default() };
            call.ended(0.5, Some(200), None, stream);
            let (line, seen) = ended_call(&call, None, 0.5).unwrap();
            let seen = seen.unwrap();
            assert_eq!((line.output_tokens, seen.output_tokens, seen.counted), (output, output, false));
            assert!((seen.tpot.unwrap() - tpot).abs() < 1e-9, "{seen:?}");
        }
    }
}
