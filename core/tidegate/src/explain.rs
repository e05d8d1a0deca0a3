//! Explanations of calls in progress: what the call is doing and, if it waits, which rule keeps it
//! waiting, for how long, and how many calls are ahead.
//!
//! An explanation is computed when it is requested. The gate records nothing for explanations only.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::call::Call;
use crate::context::Lane;
use crate::schedule::{Rule, WaitExplanation};
use crate::tool::ToolWait;
use tidegate_share::LeaseView;

/// The number or the label of a call.
///
/// A number or a string converts into a name:
///
/// ```
/// use tidegate::{CallName, Gate};
///
/// assert_eq!(CallName::from(7u64), CallName::Number(7));
/// let gate = Gate::builder().build()?;
/// assert!(gate.explain("nightly-report").is_none(), "no such call is in progress");
/// # Ok::<(), tidegate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallName<'a> {
    /// The number of the call, as in [`crate::Error::call`] and the log of calls.
    Number(u64),
    /// The caller's label ([`crate::Context::call`]). If several calls have this label, it denotes
    /// the oldest of those that wait or, if none waits, the oldest call.
    Label(&'a str),
}

impl From<u64> for CallName<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for CallName<'a> {
    fn from(label: &'a str) -> Self {
        Self::Label(label)
    }
}

/// The phase of a call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStatus {
    /// The call is queued for a slot, its prompt is being counted before that, or the task waits
    /// for a tool.
    Waiting,
    /// An attempt failed, and the call sleeps before it is queued again.
    BackingOff,
    /// The call holds a slot, needs no slot, or has released the slot because the whole response
    /// has arrived, although the caller has not read it to the end.
    InFlight,
}

/// The state of a call in progress, or of a wait for a tool. Durations are in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Number of the call, as in the log of calls. Waits for tools are numbered in the same
    /// sequence.
    pub call: u64,
    /// Label that the caller gave the call ([`crate::Context::call`]). `None` if there is none.
    pub label: Option<Arc<str>>,
    /// Name of the target. `None` if this is a wait for a tool.
    pub target: Option<Arc<str>>,
    /// Name of the tool. `None` if this is a call.
    pub tool: Option<Arc<str>>,
    /// Name of the tenant of the call.
    pub tenant: Arc<str>,
    /// Name of the lane: `interactive`, `standard` or `batch`.
    pub lane: &'static str,
    /// Phase of the call. Always [`CallStatus::Waiting`] for a wait for a tool.
    pub state: CallStatus,
    /// Name of the rule that keeps the call waiting, for example `tenant_cap`. `None` if no rule
    /// does.
    pub rule: Option<&'static str>,
    /// What the call is doing and why it waits, as one sentence in English.
    pub text: String,
    /// Time since the call was made, or since the tool was requested, in seconds.
    pub waited: f64,
    /// If `rule` is set: the time for which that rule has kept the call waiting, in seconds.
    /// Otherwise: the time since the current phase began, in seconds.
    pub since: f64,
    /// Expected time in seconds until the call is admitted or, if it backs off, until it is queued
    /// again. `None` if the time is unknown, and for calls in flight.
    pub expected: Option<f64>,
    /// Number of calls ahead in the queue. `None` if the call is not queued.
    pub ahead: Option<usize>,
}

impl Explanation {
    /// Creates an explanation whose status is in flight and whose text is empty, for the caller to
    /// complete. `waited` is the time since the call was made.
    fn new(call: u64, tenant: &Arc<str>, lane: Lane, waited: Duration) -> Self {
        Self {
            call,
            label: None,
            target: None,
            tool: None,
            tenant: tenant.clone(),
            lane: lane.as_str(),
            state: CallStatus::InFlight,
            rule: None,
            text: String::new(),
            waited: waited.as_secs_f64(),
            since: waited.as_secs_f64(),
            expected: None,
            ahead: None,
        }
    }

    /// Creates the explanation of a call in progress, with times measured until `now`.
    pub(crate) fn from_call(call: &Call, now: Instant) -> Self {
        let passed = |at: Instant| now.saturating_duration_since(at);
        let name = call.target().name();
        let mut explanation = Self {
            label: call.label().cloned(),
            target: Some(name.clone()),
            ..Self::new(call.id(), call.tenant(), call.lane(), passed(call.queued_at()))
        };
        let Some(attempt) = call.current_attempt() else {
            explanation.text = if call.is_inference() {
                explanation.state = CallStatus::Waiting;
                format!("waits for a slot of {name}: its prompt is being counted")
            } else {
                format!("sent to {name} without a slot, because the request runs no model")
            };
            return explanation;
        };
        if let Some(released) = attempt.released_at {
            explanation.since = passed(released).as_secs_f64();
            explanation.text = match attempt.backoff {
                Some(sleep) => {
                    explanation.state = CallStatus::BackingOff;
                    let left = sleep.saturating_sub(passed(released)).as_secs_f64();
                    explanation.expected = Some(left);
                    let failed = call.last_failure().unwrap_or("failed");
                    format!(
                        "backs off because an attempt at {name} failed ({failed}); queued again in {left:.1} s"
                    )
                }
                None => {
                    format!("holds no slot of {name}: the whole response has arrived and is not read yet")
                }
            };
        } else if let Some(admitted) = attempt.admitted_at {
            explanation.since = passed(admitted).as_secs_f64();
            let first = match (attempt.first_token_at(), attempt.sent_at()) {
                (Some(at), _) => format!("first token {:.1} s ago", passed(at).as_secs_f64()),
                (None, Some(at)) => {
                    format!("sent {:.1} s ago, no token yet", passed(at).as_secs_f64())
                }
                (None, None) => "about to be sent".to_owned(),
            };
            explanation.text =
                format!("in flight: has held a slot of {name} for {:.1} s; {first}", explanation.since);
        } else {
            explanation.state = CallStatus::Waiting;
            let (why, admission) = (call.why(), call.target().admission());
            let slots = why.filter(|why| why.rule == Rule::Slots);
            let slots = slots.and_then(|_| admission.describe_adaptive_slots());
            explanation.set_wait(&format!("a slot of {name}"), why, slots, passed(attempt.queued_at));
            explanation.add_share(admission.share_view().as_ref());
        }
        explanation
    }

    /// Creates the explanation of a wait for a tool, with times measured until `now`. `why` is the
    /// rule that keeps the task waiting, or `None` if the task is not queued: it is about to be
    /// queued, or has just been admitted.
    pub(crate) fn from_tool_wait(tool_wait: &ToolWait, why: Option<WaitExplanation>, now: Instant) -> Self {
        let waited = now.saturating_duration_since(tool_wait.queued_at);
        let mut explanation = Self {
            label: tool_wait.label.clone(),
            tool: Some(tool_wait.tool.clone()),
            state: CallStatus::Waiting,
            ..Self::new(tool_wait.id, &tool_wait.tenant, tool_wait.lane, waited)
        };
        explanation.set_wait(&format!("the tool {}", tool_wait.tool), why, None, waited);
        if let Some(held) = &tool_wait.held {
            let targets: Vec<_> = held.targets().collect();
            let targets = targets.join(" and ");
            explanation.text += &format!("; the task holds a slot of {targets} while it waits");
        }
        explanation
    }

    /// Adds who holds the slots of a shared limit, if the call waits for one.
    fn add_share(&mut self, share: Option<&LeaseView>) {
        if let Some(share) = share.filter(|_| self.rule == Some(Rule::Share.as_str())) {
            let LeaseView { members, elsewhere, cap, .. } = share;
            if share.is_safe_mode {
                self.text += "; the store of the shared limit is lost, so this process uses its part only";
                return;
            }
            self.text += &format!(
                "; the other {} {elsewhere} of {cap} slots",
                match members - 1 {
                    1 => "process holds".to_owned(),
                    others => format!("{others} processes hold"),
                }
            );
        }
    }

    /// Adds the reason of a wait to the explanation. `what` names what the call waits for, a slot
    /// or a tool. `why` is the rule that keeps the call waiting, or `None` if the call is not
    /// queued: it is about to be queued, or has just been admitted. `text` replaces the sentence of
    /// the rule. `queued` is the time since the call was queued.
    fn set_wait(&mut self, what: &str, why: Option<WaitExplanation>, text: Option<String>, queued: Duration) {
        self.since = queued.as_secs_f64();
        self.text = format!("waits for {what}");
        let Some(why) = why else { return };
        let Obstacle { rule, text: sentence, since, expected, ahead, .. } = Obstacle::from(&why);
        (self.rule, self.since, self.expected, self.ahead) = (Some(rule), since, expected, Some(ahead));
        let (waited, text) = (self.waited, text.as_deref().unwrap_or(sentence));
        self.text += &format!(
            ": {text} (for {since:.1} s); waiting for {waited:.1} s in total; {ahead} ahead in the queue"
        );
        if let Some(expected) = expected {
            self.text += &format!("; expected to be admitted in {expected:.1} s");
        }
    }
}

/// The rule that kept a call waiting until it was rejected. Durations are in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Obstacle {
    /// Name of the rule, for example `tenant_cap`.
    pub rule: &'static str,
    /// What the rule means, as one sentence in English.
    pub text: &'static str,
    /// Time for which the rule had kept the call waiting, in seconds.
    pub since: f64,
    /// Total time for which the call had waited, in seconds.
    pub waited: f64,
    /// Predicted time in seconds that the call would still have waited. `None` if unknown.
    pub expected: Option<f64>,
    /// Number of calls that were ahead in the queue when the call was rejected.
    pub ahead: usize,
}

impl From<&WaitExplanation> for Obstacle {
    fn from(why: &WaitExplanation) -> Self {
        Self {
            rule: why.rule.as_str(),
            text: why.sentence(),
            since: why.since.as_secs_f64(),
            waited: why.waited.as_secs_f64(),
            expected: why.expected.map(|expected| expected.as_secs_f64()),
            ahead: why.ahead,
        }
    }
}

/// Something that can be explained: a call in progress, or a wait for a tool.
pub(crate) enum Subject {
    Call(Call),
    ToolWait(Arc<ToolWait>),
}

impl Subject {
    /// Returns the sort key of explanations: waiting calls and waits for tools come before other
    /// calls, and the oldest comes first within both groups.
    pub(crate) fn urgency(&self) -> (bool, Instant, u64) {
        match self {
            Subject::Call(call) => (!call.is_waiting(), call.queued_at(), call.id()),
            Subject::ToolWait(tool_wait) => (false, tool_wait.queued_at, tool_wait.id),
        }
    }
}
