//! One ended call: as the search sees it, and as a line of the log.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate::observe::CallRecord;

use super::call_state::{CallHistory, CallState};
use crate::observation::{AttemptFailure, CallObservation, FailureCause};

/// A line of `calls.jsonl`: what the note on bounded concurrency asks to be logged of each call. Times are seconds since the sweep began.
#[derive(Clone, Debug, Serialize)]
pub struct CallLine {
    /// The step that it was begun in.
    pub step: usize,
    /// The cap of that step.
    pub cap: usize,
    /// Its place in the mix.
    pub work: usize,
    /// When it came to the gate.
    pub queued_at: f64,
    /// When it first had a slot.
    pub admitted_at: Option<f64>,
    /// When its first token came.
    pub first_token_at: Option<f64>,
    /// When its last slot went back.
    pub released_at: f64,
    /// Slots held just after it was first admitted, its own included.
    pub in_flight: Option<usize>,
    /// As the gate has it: `completed`, `failed`, `timed_out`, ...; `given_up`: the sweep itself ended it.
    pub outcome: &'static str,
    /// The last status.
    pub status: Option<u16>,
    /// Exchanges with the server.
    pub attempts: usize,
    /// Of these, those that failed and were tried again, by cause.
    pub retries: BTreeMap<FailureCause, usize>,
    /// Why it failed at last.
    pub failure: Option<AttemptFailure>,
    /// Tokens of its prompt.
    pub input_tokens: u64,
    /// Tokens of its answer.
    pub output_tokens: u64,
    /// Whether the server counted them.
    pub counted: bool,
}

/// A call's stamps, from the gate's record of it where there is one.
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
            // The gate's log was not kept up with: the meter saw the same but for microseconds.
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
        let held = |attempt: &tidegate::observe::AttemptRecord| {
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

/// What became of a call: `None` for one of which nothing was ever sent. The search is told of none that the sweep itself ended.
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
