//! The events of calls that an adaptive limit exchanges with other processes. See
//! [`tidegate_share::Role`].
//!
//! # Invariants
//!
//! - A call of another process is counted in the limit from its first event until its last one, or until
//!   that process or the broker is lost.
//! - Each event of a call in flight is told once, or the observers are told of all calls again.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::adaptive::{CallKind, Ended, Limit, Sample};
use tidegate_share::{Appointment, CallEvent, CallStep, MAX_EVENTS, Role};

/// The maximum number of calls of other processes that are counted, and of events that were not told yet.
const MAX_CALLS: usize = 65_536;
/// The longest time since an event. Longer ones are cut.
const MAX_AGE: Duration = Duration::from_secs(86_400);

/// The exchange of one adaptive limit. See [the module](self).
#[derive(Debug, Default)]
pub(super) struct EvidenceExchange {
    /// What this process does for the limit. `None`: its own limit is in force.
    appointment: Option<Appointment>,
    /// The last role of this process, also if it has lost the broker since.
    last_role: Role,
    /// Whether another process observes the calls of this one.
    is_observed: bool,
    /// The number of calls of this process so far.
    calls: u64,
    /// The calls of this process in flight.
    open: BTreeMap<u64, OpenCall>,
    /// The events that were not told yet.
    untold: VecDeque<(Instant, u64, CallStep)>,
    /// Whether the observers must forget the calls that they know of.
    restarts: bool,
    /// Whether the driver knows that there are untold events.
    is_announced: bool,
    /// The calls of other processes in flight, by the number of the process and of the call.
    others: BTreeMap<(u64, u64), Sample>,
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

impl EvidenceExchange {
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
        self.untold.push_back((now, call, step));
        if self.untold.len() > MAX_CALLS {
            // The driver is stuck.
            self.restart();
        }
    }

    /// Returns `true` if there are untold events that the driver was not told of.
    pub(super) fn announce(&mut self) -> bool {
        let is_due = (self.restarts || !self.untold.is_empty()) && !self.is_announced;
        self.is_announced |= is_due;
        is_due
    }

    /// Removes up to [`MAX_EVENTS`] untold events. Returns them, and whether the observers must forget
    /// earlier calls first. Returns `None` if there is nothing to tell.
    pub(super) fn take(&mut self, now: Instant) -> Option<(bool, Vec<CallEvent>)> {
        self.is_announced = false;
        let restarts = std::mem::take(&mut self.restarts);
        let untold = self.untold.drain(..self.untold.len().min(MAX_EVENTS));
        let events: Vec<_> = untold
            .map(|(at, call, what)| {
                let age = now.saturating_duration_since(at).as_micros();
                CallEvent { call, age_us: u64::try_from(age).unwrap_or(u64::MAX), what }
            })
            .collect();
        (restarts || !events.is_empty()).then_some((restarts, events))
    }

    /// Tells the observers of all calls in flight again.
    ///
    /// The time of the first token of a call is known to the old observers only, so new ones do not learn
    /// from calls that have it.
    fn restart(&mut self) {
        self.restarts = true;
        self.is_announced = false;
        self.untold.clear();
        for (call, open) in &mut self.open {
            self.untold.push_back((open.sent_at, *call, CallStep::Sent(open.kind)));
            if open.is_answered {
                open.is_sample = false;
                self.untold.push_back((open.sent_at, *call, CallStep::Unobservable { output: 0 }));
            }
        }
    }

    /// Returns what this process does for the limit. `None`: its own limit is in force.
    fn role(&self) -> Option<Role> {
        self.appointment.map(|appointment| appointment.role)
    }

    /// Returns `true` if the limit of another process is in force.
    pub(super) fn follows(&self) -> bool {
        matches!(self.role(), Some(Role::Follower | Role::Deputy))
    }

    /// Applies what the broker says about the limit, or that there is no broker (`None`). `members` is the
    /// number of processes that share the limit.
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
            self.untold.clear();
        } else if !was_observed || appointment.map(|appointment| appointment.term) != known_term {
            self.restart();
        }
        let role = self.role();
        if role == before {
            return;
        }
        if role.is_none_or(|role| role.is_follower()) {
            self.forget(now, limit, |_| true);
        }
        let Some(role) = role else { return limit.decide(now) };
        let saw_all = !self.last_role.is_follower() || role == Role::Leader && before.is_none();
        if !role.is_follower() && !saw_all {
            limit.forget_usual();
        }
        if role == Role::Leader {
            limit.decide(now);
        }
        self.last_role = role;
    }

    /// Applies events of the calls of another process. Does nothing if this process does not observe them.
    pub(super) fn observe(
        &mut self,
        now: Instant,
        limit: &mut Limit,
        process: u64,
        restarts: bool,
        events: &[CallEvent],
    ) {
        if self.role().is_none_or(|role| role.is_follower()) {
            return;
        }
        if restarts {
            self.forget(now, limit, |of| of == process);
        }
        for event in events {
            let late_by = Duration::from_micros(event.age_us).min(MAX_AGE);
            let key = (process, event.call);
            match event.what {
                CallStep::Sent(kind) if self.others.len() < MAX_CALLS && !self.others.contains_key(&key) => {
                    let sent_at = now.checked_sub(late_by).unwrap_or(now);
                    self.others.insert(key, limit.on_sent_at(now, sent_at, kind));
                }
                CallStep::Sent(_) => {}
                CallStep::FirstToken => {
                    if let Some(sample) = self.others.get_mut(&key) {
                        sample.shift(now, late_by);
                        limit.on_first_token(now, sample);
                    }
                }
                CallStep::Unobservable { output } => {
                    if let Some(sample) = self.others.get_mut(&key) {
                        limit.mark_unobservable(now, sample, output);
                    }
                }
                CallStep::Ended(how) => {
                    if let Some(mut sample) = self.others.remove(&key) {
                        sample.shift(now, late_by);
                        limit.on_ended(now, sample, how);
                    }
                }
            }
        }
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
        /// The untold events reach the observer.
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
        /// The observer counts the calls in flight of another process, and those of them that await their
        /// first token, however events and appointments follow each other.
        #[test]
        fn observer_counts_the_calls_of_others(actions in prop::collection::vec(any_action(), 0..60)) {
            let adaptive = AdaptiveConfig::default();
            let settings = LimitSettings { max: 64, objective: None, latency: None, tpot: None, adaptive };
            let mut now = epoch();
            let [mut own, mut seen] = [(); 2].map(|()| Limit::new(&settings, now));
            let [mut process, mut observer] = [(); 2].map(|()| EvidenceExchange::default());
            let appointed = |role, term| Some(Appointment { role, term });
            observer.on_appointed(now, &mut seen, appointed(Role::Leader, 1), 2);
            process.on_appointed(now, &mut own, appointed(Role::Follower, 1), 2);
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
                        prop_assert_eq!(process.announce(), process.restarts || !process.untold.is_empty());
                        while let Some((restarts, events)) = process.take(now) {
                            observer.observe(now, &mut seen, 7, restarts, &events);
                        }
                        let awaiting = open.iter().filter(|(_, awaits)| *awaits).count();
                        prop_assert_eq!(observer.others.len(), open.len());
                        prop_assert_eq!(seen.view().awaiting, awaiting);
                    }
                    Action::Appoint => {
                        term += 1;
                        process.on_appointed(now, &mut own, appointed(Role::Follower, term), 2);
                    }
                }
            }
            observer.on_appointed(now, &mut seen, None, 1);
            prop_assert_eq!((observer.others.len(), seen.view().awaiting), (0, 0));
        }
    }
}
