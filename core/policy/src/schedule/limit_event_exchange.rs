//! The events of calls that an adaptive limit exchanges with other processes. See
//! [`tidegate_share::LimitRole`].
//!
//! # Invariants
//!
//! - A call of another process is counted in the limit from its first event until its last one, or
//!   until that process, the broker or one of its messages is lost.
//! - Each event of a call in flight is taken by the driver once, or all calls are taken again.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::adaptive::{CallKind, Ended, Limit, Sample};
use tidegate_share::{Appointment, CallEvent, CallStep, LimitEvents, LimitRole, MAX_EVENTS};

/// The maximum number of calls of other processes that are counted, and of events that were not
/// told yet.
const MAX_CALLS: usize = 65_536;
/// The largest prompt. Longer ones are cut.
const MAX_TOKENS: u64 = 1 << 32;
/// The longest time since an event. Longer ones are cut.
const MAX_AGE: Duration = Duration::from_secs(86_400);

/// The exchange of one adaptive limit. See [the module](self).
#[derive(Debug, Default)]
pub(super) struct LimitEventExchange {
    /// What this process does for the limit. `None`: its own limit is in force.
    appointment: Option<Appointment>,
    /// The last role of this process, also if it has lost the broker since. `None`: it never had
    /// any.
    last_role: Option<LimitRole>,
    /// Whether another process observes the calls of this one.
    is_observed: bool,
    /// The number of calls of this process so far.
    calls: u64,
    /// The calls of this process in flight.
    open: BTreeMap<u64, OpenCall>,
    /// The events that were not told yet.
    pending: VecDeque<(Instant, u64, CallStep)>,
    /// Whether the observers must forget the calls that they know of.
    restarts: bool,
    /// Whether the driver knows that there are pending events.
    is_announced: bool,
    /// The calls of other processes in flight, by the number of the process and of the call.
    others: BTreeMap<(u64, u64), Sample>,
    /// When the first message was made. The clock of this process begins then.
    began_at: Option<Instant>,
    /// When the clocks of the other processes began, by their number: the earliest time that fits a
    /// message.
    clocks: BTreeMap<u64, Instant>,
}

/// A call of this process in flight.
#[derive(Debug)]
struct OpenCall {
    sent_at: Instant,
    kind: CallKind,
    /// Whether the observers may learn from its latency.
    is_sample: bool,
    /// Whether its first token was reported, or that it cannot be observed.
    is_answered: bool,
}

impl LimitEventExchange {
    /// Records that a call of this process was sent. Returns its number.
    pub(super) fn on_sent(&mut self, now: Instant, kind: CallKind) -> u64 {
        self.calls += 1;
        let call = OpenCall { sent_at: now, kind, is_sample: true, is_answered: false };
        self.open.insert(self.calls, call);
        self.tell(now, self.calls, CallStep::Sent(kind));
        self.calls
    }

    /// Records an event of a call of this process.
    pub(super) fn on_step(&mut self, now: Instant, call: u64, step: CallStep) {
        if let Some(open) = self.open.get_mut(&call) {
            open.is_answered = true;
            self.tell(now, call, step);
        }
    }

    /// Records that a call of this process has ended.
    pub(super) fn on_ended(&mut self, now: Instant, call: u64, how: Ended) {
        if let Some(open) = self.open.remove(&call) {
            self.tell(now, call, CallStep::Ended(if open.is_sample { how } else { Ended::Cancelled }));
        }
    }

    fn tell(&mut self, now: Instant, call: u64, step: CallStep) {
        if !self.is_observed {
            return;
        }
        self.pending.push_back((now, call, step));
        if self.pending.len() > MAX_CALLS {
            // The driver is stuck.
            self.restart();
        }
    }

    /// Returns `true` if there are pending events that were not announced to the driver, and marks
    /// them as announced.
    pub(super) fn take_announcement(&mut self) -> bool {
        let is_due = (self.restarts || !self.pending.is_empty()) && !self.is_announced;
        self.is_announced |= is_due;
        is_due
    }

    /// Removes up to [`MAX_EVENTS`] pending events, and returns them. Returns `None` if there is
    /// nothing to tell.
    pub(super) fn take(&mut self, now: Instant) -> Option<LimitEvents> {
        self.is_announced = false;
        let micros = |from, to: Instant| {
            u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
        };
        let restarts = std::mem::take(&mut self.restarts);
        let pending = self.pending.drain(..self.pending.len().min(MAX_EVENTS));
        let events: Vec<_> =
            pending.map(|(at, call, what)| CallEvent { call, age_us: micros(at, now), what }).collect();
        let sent_us = micros(*self.began_at.get_or_insert(now), now);
        (restarts || !events.is_empty()).then_some(LimitEvents { restarts, sent_us, events })
    }

    /// Tells the observers of all calls in flight again.
    ///
    /// The time of the first token of a call is known to the old observers only, so new ones do not
    /// learn from calls that have it.
    fn restart(&mut self) {
        self.restarts = true;
        self.is_announced = false;
        self.pending.clear();
        for (call, open) in &mut self.open {
            self.pending.push_back((open.sent_at, *call, CallStep::Sent(open.kind)));
            if open.is_answered {
                open.is_sample = false;
                self.pending.push_back((open.sent_at, *call, CallStep::Unobservable { output: 0 }));
            }
        }
    }

    /// Returns what this process does for the limit. `None`: its own limit is in force.
    pub(super) fn role(&self) -> Option<LimitRole> {
        self.appointment.map(|appointment| appointment.role)
    }

    /// Returns `true` if the limit of another process is in force.
    pub(super) fn follows(&self) -> bool {
        matches!(self.role(), Some(LimitRole::Follower | LimitRole::Deputy))
    }

    /// Applies what the broker says about the limit, or that there is no broker (`None`). `members`
    /// is the number of processes that share the limit.
    pub(super) fn on_appointed(
        &mut self,
        now: Instant,
        limit: &mut Limit,
        appointment: Option<Appointment>,
        members: usize,
    ) {
        let (before, known_term) = (self.role(), self.appointment.map(|appointment| appointment.term));
        let was_observed = self.is_observed;
        self.appointment = appointment;
        self.is_observed = appointment.is_some() && members > 1;
        if !self.is_observed {
            self.restarts = false;
            self.is_announced = false;
            self.pending.clear();
        } else if !was_observed || appointment.map(|appointment| appointment.term) != known_term {
            self.restart();
        }
        let role = self.role();
        if appointment.map(|appointment| appointment.term) != known_term
            || role.is_none_or(|role| role.is_follower())
        {
            // All processes tell of their calls again.
            self.forget(now, limit, |_| true);
            self.clocks.clear();
        }
        if role == before {
            return;
        }
        let Some(role) = role else { return limit.lead(now) };
        // Whoever leads at first has been alone.
        let saw_all = self.last_role.map_or(role == LimitRole::Leader, |role| !role.is_follower());
        if !role.is_follower() && !saw_all {
            limit.forget_usual();
        }
        if role == LimitRole::Leader {
            limit.lead(now);
        }
        self.last_role = Some(role);
    }

    /// Applies events of the calls of another process. Does nothing if this process does not
    /// observe them.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        limit: &mut Limit,
        process: u64,
        limit_events: &LimitEvents,
    ) {
        if self.role().is_none_or(|role| role.is_follower()) {
            return;
        }
        if limit_events.restarts {
            self.forget(now, limit, |of| of == process);
        }
        if limit_events.events.is_empty() {
            self.clocks.remove(&process);
            return;
        }
        let delay = self.delay(now, process, limit_events.sent_us);
        for event in &limit_events.events {
            let late_by = delay.saturating_add(Duration::from_micros(event.age_us)).min(MAX_AGE);
            let key = (process, event.call);
            if let CallStep::Sent(kind) = event.what {
                if self.others.len() < MAX_CALLS && !self.others.contains_key(&key) {
                    let kind = CallKind { input: kind.input.min(MAX_TOKENS), ..kind };
                    let sent_at = now.checked_sub(late_by).unwrap_or(now);
                    self.others.insert(key, limit.on_sent_at(now, sent_at, kind));
                }
                continue;
            }
            let Some(mut sample) = self.others.remove(&key) else { continue };
            sample.shift_later(now, late_by);
            match event.what {
                CallStep::FirstToken => limit.on_first_token(now, &mut sample),
                CallStep::Unobservable { output } => limit.mark_unobservable(now, &mut sample, output),
                CallStep::Ended(how) => {
                    limit.on_ended(now, sample, how);
                    continue;
                }
                CallStep::Sent(_) => {}
            }
            sample.shift_earlier(late_by);
            self.others.insert(key, sample);
        }
    }

    /// Returns for how long a message was on its way that was sent at `sent_us` on the clock of
    /// another process, compared with the fastest one.
    fn delay(&mut self, now: Instant, process: u64, sent_us: u64) -> Duration {
        let Some(began_at) = now.checked_sub(Duration::from_micros(sent_us)) else { return Duration::ZERO };
        let earliest = self.clocks.entry(process).or_insert(began_at);
        *earliest = began_at.min(*earliest);
        began_at.saturating_duration_since(*earliest)
    }

    /// Removes the calls of the processes for which `is_lost` is `true` from the limit.
    fn forget(&mut self, now: Instant, limit: &mut Limit, is_lost: impl Fn(u64) -> bool) {
        let lost: Vec<_> = self.others.keys().filter(|(process, _)| is_lost(*process)).copied().collect();
        for sample in lost.iter().filter_map(|key| self.others.remove(key)) {
            limit.on_ended(now, sample, Ended::Cancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::adaptive::LimitSettings;
    use crate::testing::epoch;
    use tidegate_config::AdaptiveConfig;

    /// What happens to the calls of a process.
    #[derive(Clone, Copy, Debug)]
    enum Action {
        Send {
            streams: bool,
        },
        FirstToken {
            nth: usize,
        },
        End {
            nth: usize,
        },
        /// The pending events reach the observer.
        Tell,
        /// Another observer is appointed.
        Appoint,
    }

    fn any_action() -> impl Strategy<Value = Action> {
        prop_oneof![
            4 => any::<bool>().prop_map(|streams| Action::Send { streams }),
            3 => any::<usize>().prop_map(|nth| Action::FirstToken { nth }),
            3 => any::<usize>().prop_map(|nth| Action::End { nth }),
            2 => Just(Action::Tell),
            1 => Just(Action::Appoint),
        ]
    }

    proptest! {
        /// The observer counts the calls in flight of another process, and those of them that await
        /// their first token, however events and appointments follow each other.
        #[test]
        fn observer_counts_the_calls_of_others(actions in prop::collection::vec(any_action(), 0..60)) {
            let adaptive = AdaptiveConfig::default();
            let settings = LimitSettings { max: 64, objective: None, latency: None, tpot: None, adaptive };
            let mut now = epoch();
            let [mut own, mut seen] = [(); 2].map(|()| Limit::new(&settings, now));
            let [mut process, mut observer] = [(); 2].map(|()| LimitEventExchange::default());
            let appointed = |role, term| Some(Appointment { role, term });
            observer.on_appointed(now, &mut seen, appointed(LimitRole::Leader, 1), 2);
            process.on_appointed(now, &mut own, appointed(LimitRole::Follower, 1), 2);
            let (mut term, mut open) = (1, Vec::new());
            for action in actions.into_iter().chain([Action::Tell]) {
                now += Duration::from_millis(5);
                match action {
                    Action::Send { streams } => {
                        let kind = CallKind { input: 100, output: 10, streams };
                        open.push((process.on_sent(now, kind), streams));
                    }
                    Action::FirstToken { nth } if !open.is_empty() => {
                        let nth = nth % open.len();
                        let (call, awaits) = &mut open[nth];
                        if std::mem::take(awaits) {
                            process.on_step(now, *call, CallStep::FirstToken);
                        }
                    }
                    Action::End { nth } if !open.is_empty() => {
                        let (call, _) = open.remove(nth % open.len());
                        process.on_ended(now, call, Ended::Completed { output: 10 });
                    }
                    Action::FirstToken { .. } | Action::End { .. } => {}
                    Action::Tell => {
                        prop_assert_eq!(process.take_announcement(), process.restarts || !process.pending.is_empty());
                        while let Some(limit_events) = process.take(now) {
                            observer.observe(now, &mut seen, 7, &limit_events);
                        }
                        let awaiting = open.iter().filter(|(_, awaits)| *awaits).count();
                        prop_assert_eq!(observer.others.len(), open.len());
                        prop_assert_eq!(seen.view(now).awaiting, awaiting);
                    }
                    Action::Appoint => {
                        term += 1;
                        process.on_appointed(now, &mut own, appointed(LimitRole::Follower, term), 2);
                    }
                }
            }
            observer.on_appointed(now, &mut seen, None, 1);
            prop_assert_eq!((observer.others.len(), seen.view(now).awaiting), (0, 0));
        }
    }
}
