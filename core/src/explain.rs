//! Why a call waits now: for people who look at a program in which nothing moves.
//!
//! Costs nothing but when it is asked: what a call under way is known by is kept anyway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::call::Call;
use crate::schedule::{Rule, Why};
use crate::tool::Asking;

/// How a call is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallName<'a> {
    /// Its number, as in [`crate::Error::call`] and the log of calls.
    Number(u64),
    /// The caller's own name for it ([`crate::Context::call`]). Of several calls of that name the one is meant that has waited the longest, or, where
    /// none waits, the oldest.
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

/// What a call under way is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// It stands in a queue.
    Waiting,
    /// It failed, and sleeps before it queues again.
    BackingOff,
    /// It holds a slot; or all of its answer is here and not read yet; or it needs no slot.
    InFlight,
}

/// Why a call waits, or what it does instead. Times are seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The call's number.
    pub call: u64,
    /// The caller's own name for it.
    pub label: Option<Arc<str>>,
    /// Where it goes; `None` for a wait for a tool.
    pub target: Option<Arc<str>>,
    /// The tool that it waits for.
    pub tool: Option<Arc<str>>,
    /// The fairness key.
    pub tenant: Arc<str>,
    /// The priority class.
    pub lane: &'static str,
    /// What it is at.
    pub state: CallState,
    /// The rule that stands in its way, while it waits.
    pub rule: Option<&'static str>,
    /// All of it, for people.
    pub text: String,
    /// Since it was first asked for.
    pub waited: f64,
    /// For how long the rule has stood in its way, or else for how long the state has lasted.
    pub since: f64,
    /// In how long its turn is expected, where enough was seen to say.
    pub expected: Option<f64>,
    /// How many calls go first.
    pub ahead: Option<usize>,
}

impl Explanation {
    pub(crate) fn of_call(call: &Call, now: Instant) -> Self {
        let attempt = call.present();
        let passed = |at: Instant| now.saturating_duration_since(at);
        let name = call.target().name();
        let mut told = Self {
            call: call.id(),
            label: call.label().cloned(),
            target: Some(name.clone()),
            tool: None,
            tenant: call.tenant().clone(),
            lane: call.lane().as_str(),
            state: CallState::InFlight,
            rule: None,
            text: String::new(),
            waited: passed(call.queued_at()).as_secs_f64(),
            since: passed(call.queued_at()).as_secs_f64(),
            expected: None,
            ahead: None,
        };
        let Some(attempt) = attempt else {
            told.text = format!("goes to {name} beside the queue: it runs no model");
            return told;
        };
        if let Some(released) = attempt.released_at {
            told.since = passed(released).as_secs_f64();
            told.text = match attempt.backoff {
                Some(sleep) => {
                    told.state = CallState::BackingOff;
                    let left = sleep.saturating_sub(passed(released));
                    told.expected = Some(left.as_secs_f64());
                    let failed = call.last_failure().unwrap_or("failed");
                    format!("backs off: {name} said {failed}; it queues again in {:.1} s", left.as_secs_f64())
                }
                None => {
                    format!("holds no slot of {name} any more: all of its answer is here, and not read yet")
                }
            };
        } else if let Some(admitted) = attempt.admitted_at {
            told.since = passed(admitted).as_secs_f64();
            let first = match (attempt.first_token_at(), attempt.sent_at()) {
                (Some(at), _) => format!("its first token came {:.1} s ago", passed(at).as_secs_f64()),
                (None, Some(at)) => {
                    format!("sent {:.1} s ago, no token has come yet", passed(at).as_secs_f64())
                }
                (None, None) => "about to be sent".to_owned(),
            };
            told.text = format!("in flight: holds a slot of {name} for {:.1} s; {first}", told.since);
        } else {
            told.state = CallState::Waiting;
            told.waits(&format!("a slot of {name}"), call.why(), passed(attempt.queued_at));
        }
        told
    }

    pub(crate) fn of_asking(asking: &Asking, why: Option<Why>, now: Instant) -> Self {
        let waited = now.saturating_duration_since(asking.queued_at);
        let mut told = Self {
            call: asking.id,
            label: asking.label.clone(),
            target: None,
            tool: Some(asking.tool.clone()),
            tenant: asking.tenant.clone(),
            lane: asking.lane.as_str(),
            state: CallState::Waiting,
            rule: None,
            text: String::new(),
            waited: waited.as_secs_f64(),
            since: 0.0,
            expected: None,
            ahead: None,
        };
        told.waits(&format!("the tool {}", asking.tool), why, waited);
        // A tool's rate is nobody's but its own.
        told.text = told.text.replace(Rule::Requests.sentence(), "its rate is used up");
        if let Some(held) = &asking.held {
            let targets: Vec<_> = held.targets().collect();
            told.text.push_str(&format!("; its task holds a slot of {} meanwhile", targets.join(" and ")));
        }
        told
    }

    /// `None` for `why`: about to be queued, or admitted at this moment.
    fn waits(&mut self, what: &str, why: Option<Why>, queued: Duration) {
        self.since = queued.as_secs_f64();
        self.text = format!("waits for {what}");
        let Some(why) = why else { return };
        self.rule = Some(why.rule.as_str());
        self.since = why.since.as_secs_f64();
        self.expected = why.expected.map(|expected| expected.as_secs_f64());
        self.ahead = Some(why.ahead);
        self.text.push_str(&format!(
            ": {}, for {:.1} s now; it has waited {:.1} s; {} ahead",
            why.rule.sentence(),
            self.since,
            self.waited,
            why.ahead
        ));
        if let Some(expected) = self.expected {
            self.text.push_str(&format!("; expected in {expected:.1} s"));
        }
    }
}

/// What stood in a refused call's way. Times are seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Obstacle {
    /// The rule.
    pub rule: &'static str,
    /// What it says, for people.
    pub text: &'static str,
    /// For how long it had stood in the way.
    pub since: f64,
    /// For how long the call had waited in all.
    pub waited: f64,
    /// In how long its turn was expected, where enough was seen to say.
    pub expected: Option<f64>,
    /// How many calls went first.
    pub ahead: usize,
}

impl From<&Why> for Obstacle {
    fn from(why: &Why) -> Self {
        Self {
            rule: why.rule.as_str(),
            text: why.rule.sentence(),
            since: why.since.as_secs_f64(),
            waited: why.waited.as_secs_f64(),
            expected: why.expected.map(|expected| expected.as_secs_f64()),
            ahead: why.ahead,
        }
    }
}

/// Something that can be explained.
pub(crate) enum Subject {
    Call(Call),
    Asking(Arc<Asking>),
}

impl Subject {
    /// Who waits comes first, and of them who has waited the longest.
    pub(crate) fn urgency(&self) -> (bool, Instant, u64) {
        match self {
            Subject::Call(call) => (!(call.is_inference() && call.is_waiting()), call.queued_at(), call.id()),
            Subject::Asking(asking) => (false, asking.queued_at, asking.id),
        }
    }
}
