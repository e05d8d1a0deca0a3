//! The lease of one resource in a member. See [the crate](crate).

use std::time::{Duration, Instant};

use super::{Appointment, BROKER_SEARCH_TIME, LeaseTimes, LeaseUpdate, Report};
use crate::limit_role::LimitRole;

/// Delay before slots are wanted again after granted slots could not be used. Doubles up to
/// [`MAX_RETRY_DELAY`].
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// Mean time for which a member keeps a contended slot that others want, but are not owed.
const CONTENDED_TIME: Duration = Duration::from_millis(250);
/// Maximum of [`RETRY_DELAY`].
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The use of a resource by a member at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotUse {
    /// The number of calls in flight.
    pub in_flight: usize,
    /// The number of waiting calls that lack nothing but a slot of the lease.
    pub waiting: usize,
    /// The weight of the calls that wait, positive and finite.
    pub weight: f64,
}

/// The slots of one resource that a member may use. See [the crate](crate).
///
/// The driver calls [`Lease::on_release`] when a call ends, [`Lease::report`] after each event, and
/// sends the reports in this order.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The configured cap of this member.
    cap: usize,
    /// Whether no call may be admitted after the lease has ended.
    strict: bool,
    /// What the adaptive limit of this member has found, or `None` if its limit is fixed.
    adaptive: Option<usize>,
    /// What this member does for the adaptive limit of all, if another lease decides that.
    role: Option<LimitRole>,
    /// What this member did at an earlier broker, until the next one has appointed anybody.
    earlier_role: Option<LimitRole>,
    times: LeaseTimes,
    state: State,
    /// The `Lost` before the last join, until the broker has answered.
    lost: Option<State>,
    /// The slots that are leased, as far as the member knows.
    slots: usize,
    /// The slots that are in force: those of the lease, or the part of the cap without a broker.
    in_force: usize,
    /// Whether what is in force is not what the broker has leased.
    is_safe_mode: bool,
    /// The latest update of the broker.
    update: LeaseUpdate,
    /// The wanted slots that the broker knows of.
    asked: usize,
    /// Whether a report has told them since the last heartbeat.
    has_asked: bool,
    /// The returned slots that were not reported yet.
    returned: usize,
    /// The calls in flight that had no slot in force when the member joined: their slots may have
    /// been granted to others, and are returned when the calls end.
    overdue: usize,
    /// The maximum number of calls in flight since the last heartbeat.
    peak: usize,
    /// The cap, or the adaptive limit that the others follow, or the role has changed since the
    /// last report.
    has_new_cap: bool,
    /// Since when the member has held more than its fair number of slots while others are short.
    /// Begins again when one of them is returned.
    contended_since: Option<Instant>,
    /// Granted slots that no call has used yet.
    unused: usize,
    retry_delay: Duration,
    /// No slots are wanted before this time. `None`: they may be wanted now.
    wants_at: Option<Instant>,
}

/// Whether the broker is known to hold the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No call was made yet, so there are no slots.
    New,
    /// The broker knows of the member, and has answered what was sent at this time.
    Joined { heard: Instant },
    /// The broker does not know of the member yet, or has been lost. The slots are in force from
    /// `begins` until `ends`, and from then on a part of the cap.
    Lost { begins: Instant, ends: Instant },
    /// There can be no broker. Each process works alone.
    Alone,
}

/// A lease, for snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseView {
    /// The number of slots that this process may use.
    pub slots: usize,
    /// The cap that all processes share.
    pub cap: usize,
    /// The number of processes that share the cap, as last heard. At least 1.
    pub members: usize,
    /// The slots that the other processes hold, as last heard.
    pub elsewhere: usize,
    /// Whether another process waits for a slot.
    pub others_short: bool,
    /// Whether the broker was lost, or cannot be reached, so that a part of the cap is in force.
    pub is_safe_mode: bool,
}

impl Lease {
    /// Creates the lease of a member that has not joined yet. It has no slots. If no broker is
    /// found within a second of the first call of [`Lease::report`], one slot is in force.
    ///
    /// `cap` is the cap of the resource, at least 1. If `strict`, no calls are admitted after the
    /// lease has ended.
    pub fn new(cap: usize, strict: bool, times: LeaseTimes) -> Self {
        Self {
            cap,
            strict,
            adaptive: None,
            role: None,
            earlier_role: None,
            times,
            state: State::New,
            lost: None,
            slots: 0,
            in_force: 0,
            is_safe_mode: false,
            update: LeaseUpdate { cap, ..LeaseUpdate::default() },
            asked: 0,
            has_asked: false,
            returned: 0,
            overdue: 0,
            peak: 0,
            has_new_cap: false,
            contended_since: None,
            unused: 0,
            retry_delay: RETRY_DELAY,
            wants_at: None,
        }
    }

    /// Returns the number of slots that calls of this process may use now.
    pub fn in_force(&self) -> usize {
        self.in_force
    }

    /// Returns the idle slots that a process may keep for calls that are about to be sent while
    /// `in_flight` calls are in flight: its fair number of slots, and at least one more.
    pub fn idle(&self, in_flight: usize) -> usize {
        let fair = self.update.fair.max(in_flight + 1);
        let most = if self.update.others_short { fair } else { usize::MAX };
        self.in_force.min(most).saturating_sub(in_flight)
    }

    /// Returns when time alone changes the slots or lets a report be due, or `None` if it does not.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        let changes = match self.state {
            State::Joined { heard } => [Some(heard + self.times.renewal), None],
            State::Lost { begins, ends } => [Some(begins), Some(ends)],
            State::New | State::Alone => [None, None],
        };
        changes.into_iter().flatten().chain(self.wants_at).filter(|at| *at > now).min()
    }

    /// Updates the slots in force.
    ///
    /// A member that has not heard the broker for [`LeaseTimes::renewal`] may have been stopped, so
    /// its slots may be used by others, and it admits nothing until it knows whether the broker
    /// exists.
    pub fn tick(&mut self, now: Instant) {
        if self.wants_at.is_some_and(|at| at <= now) {
            self.wants_at = None;
        }
        let (is_suspended, has_ended) = match self.state {
            State::Joined { heard } => (heard + self.times.renewal <= now, false),
            State::Lost { begins, ends } => (now < begins, ends <= now),
            State::New | State::Alone => (false, false),
        };
        self.is_safe_mode = is_suspended || has_ended || self.state == State::Alone;
        self.in_force = match self.state {
            State::Alone if self.strict => 0,
            State::Alone => self.cap,
            _ if has_ended && self.strict => 0,
            _ if has_ended => self.part_of_cap(),
            _ if is_suspended => 0,
            _ => self.slots,
        };
    }

    /// Returns the part of the cap that each process may use without a broker. At least one slot,
    /// and not more if the number of processes is not known.
    fn part_of_cap(&self) -> usize {
        let cap = self.update.cap.min(self.cap);
        cap.checked_div(self.update.members).unwrap_or(1).max(1)
    }

    /// Changes the cap to a fixed one.
    pub fn set_cap(&mut self, cap: usize) {
        self.has_new_cap |= self.adaptive.take().is_some();
        self.has_new_cap |= cap != self.cap;
        self.cap = cap;
    }

    /// Sets what the adaptive limit of this member has found. The other members follow it if this
    /// one is the leader.
    pub fn set_adaptive(&mut self, slots: usize) {
        let leads = self.appointment().is_some_and(|appointment| appointment.role == LimitRole::Leader);
        self.has_new_cap |= leads && self.adaptive != Some(slots);
        self.adaptive = Some(slots);
    }

    /// Sets what this member does for the adaptive limit of all, which another lease decides.
    pub fn set_role(&mut self, role: LimitRole) {
        self.has_new_cap |= self.role != Some(role);
        self.role = Some(role);
    }

    /// Returns what this member does for the adaptive limit of all. `None` if the limit is fixed,
    /// or if this member has no broker, so that its own adaptive limit applies.
    pub fn appointment(&self) -> Option<Appointment> {
        self.update.appointment.filter(|_| self.is_joined())
    }

    /// Gives back a slot whose call has ended, if the slot must not be used for another call here.
    /// `in_flight` is the number of calls that remain. Call this method before another call is
    /// admitted.
    pub fn on_release(&mut self, now: Instant, in_flight: usize) {
        if self.overdue > 0 {
            self.overdue -= 1;
            self.return_slots(1);
        } else if self.has_contended() && self.slots > in_flight && self.is_joined() {
            let contended = u32::try_from(self.slots - self.update.fair).unwrap_or(u32::MAX);
            let kept_for = CONTENDED_TIME / contended;
            let is_over = self.contended_since.is_none_or(|since| since + kept_for <= now);
            if self.update.others_owed || is_over {
                self.return_slots(1);
                self.contended_since = self.has_contended().then_some(now);
            }
        }
    }

    /// Returns `true` if the member holds slots that others want, and are entitled to in turn.
    fn has_contended(&self) -> bool {
        self.update.others_short && self.slots > self.update.fair
    }

    /// Returns the report that is due, or `None` if the broker knows enough.
    pub fn report(&mut self, now: Instant, usage: &SlotUse) -> Option<Report> {
        let SlotUse { in_flight, waiting, .. } = *usage;
        if self.state == State::New {
            // The driver looks for a broker from now on.
            self.state = State::Lost { begins: now, ends: now + BROKER_SEARCH_TIME };
        }
        self.peak = self.peak.max(in_flight);
        if in_flight >= self.slots && std::mem::take(&mut self.unused) > 0 {
            self.retry_delay = RETRY_DELAY;
        }
        if !self.is_joined() {
            return None;
        }
        let idle = self.slots.saturating_sub(in_flight);
        if idle > 0 && self.update.others_short {
            self.return_slots(idle);
            if self.unused > 0 {
                // What was granted could not be used, so more would come back as well.
                self.wants_at = Some(now + self.retry_delay);
                self.retry_delay = (self.retry_delay * 2).min(MAX_RETRY_DELAY);
                self.unused = 0;
            }
        }
        let want = self.want(waiting);
        // A larger number matters only if it grows much: the broker grants by fair numbers.
        let has_new_want = (want == 0) != (self.asked == 0) || want > 2 * self.asked;
        let is_due = self.returned > 0 || has_new_want || self.has_new_cap;
        is_due.then(|| self.make_report(usage, want))
    }

    /// Returns the periodic report, which also returns the slots that were not used since the last
    /// one. Returns `None` before the member has joined.
    pub fn heartbeat(&mut self, now: Instant, usage: &SlotUse) -> Option<Report> {
        self.tick(now);
        if !self.is_joined() {
            return None;
        }
        let peak = std::mem::replace(&mut self.peak, usage.in_flight);
        if usage.waiting == 0 {
            self.return_slots(self.slots.saturating_sub(peak.max(usage.in_flight)));
        }
        let want = self.want(usage.waiting);
        // A recent number need not be exact.
        let has_asked = std::mem::take(&mut self.has_asked);
        let has_news = self.returned > 0 || (want != self.asked && !has_asked) || self.has_new_cap;
        has_news.then(|| self.make_report(usage, want))
    }

    /// Returns the number of further slots that `waiting` calls could use, or 0 while none are
    /// wanted.
    fn want(&self, waiting: usize) -> usize {
        let room = self.cap.saturating_sub(self.slots);
        if self.wants_at.is_some() { 0 } else { waiting.min(room) }
    }

    /// Returns the report that joins a broker. Its claim is what the member holds already.
    pub fn join(&mut self, now: Instant, usage: &SlotUse) -> Report {
        self.tick(now);
        let claim = self.in_force.max(usage.in_flight).min(self.cap);
        self.overdue = usage.in_flight.saturating_sub(self.in_force).max(self.overdue).min(claim);
        // A broker that does not answer must not prolong the lease.
        let heard = match self.state {
            State::Lost { ends, .. } if self.slots > 0 && now < ends => {
                ends.checked_sub(self.times.lease).unwrap_or(now)
            }
            _ => now,
        };
        self.lost = Some(self.state).filter(|state| matches!(state, State::Lost { .. }));
        self.slots = claim;
        self.returned = 0;
        self.update.others_short = false;
        // The new broker has not appointed anybody.
        self.earlier_role = self.update.appointment.take().map(|earlier| earlier.role).or(self.earlier_role);
        self.state = State::Joined { heard };
        self.tick(now);
        let want = usage.waiting.min(self.cap - claim);
        let report = self.make_report(usage, want);
        let role = self.earlier_role.or(self.role);
        // The first report tells the earlier role, and the next one that which another lease
        // decides.
        self.has_new_cap = self.role.is_some();
        let LeaseUpdate { survivors, total, .. } = self.update;
        Report { claim, known_survivors: survivors, known_total: total, role, ..report }
    }

    /// Applies a message of the broker about this lease.
    pub fn on_update(&mut self, now: Instant, update: LeaseUpdate) {
        self.lost = None;
        let since = self.contended_since.filter(|_| self.has_contended());
        self.slots += update.granted;
        self.unused += update.granted;
        self.asked = self.asked.saturating_sub(update.granted);
        let leads = |update: &LeaseUpdate| update.appointment.is_some_and(|it| it.role == LimitRole::Leader);
        // The broker may divide what an earlier leader has found.
        self.has_new_cap |= leads(&update) && !leads(&self.update);
        self.update = LeaseUpdate { granted: 0, ..update };
        self.contended_since = since.or(Some(now)).filter(|_| self.has_contended());
        self.earlier_role = None;
        self.tick(now);
    }

    /// Renews the lease, because the broker has answered a heartbeat that was sent at `sent_at`.
    ///
    /// The time of the answer would not do: a process that was stopped finds old answers when it
    /// continues.
    pub fn on_alive(&mut self, now: Instant, sent_at: Instant) {
        if let State::Joined { heard } = &mut self.state {
            *heard = sent_at.max(*heard);
            self.lost = None;
            self.tick(now);
        }
    }

    /// Records that the connection to the broker has ended. The slots remain in force until the end
    /// of the lease, unless the broker had not been heard for [`LeaseTimes::renewal`]. A broker
    /// that has answered nothing does not change when the lease ends.
    pub fn on_lost(&mut self, now: Instant) {
        let State::Joined { heard } = self.state else { return };
        let is_suspended = heard + self.times.renewal <= now;
        self.state = match self.lost.take() {
            Some(lost) => lost,
            None if is_suspended => {
                State::Lost { begins: now + BROKER_SEARCH_TIME, ends: now + BROKER_SEARCH_TIME }
            }
            None => State::Lost { begins: now, ends: heard + self.times.lease },
        };
        self.update.others_short = false;
        self.asked = 0;
        self.tick(now);
    }

    /// Records that there can be no broker. If there never was one, each process works alone: the
    /// whole cap is in force, or nothing if `strict`. Otherwise others may still work, and the
    /// lease goes on as after [`on_lost`](Self::on_lost).
    pub fn on_alone(&mut self, now: Instant) {
        if self.update.members == 0 {
            self.state = State::Alone;
        }
        self.tick(now);
    }

    /// Returns the state of the lease.
    pub fn view(&self) -> LeaseView {
        LeaseView {
            slots: self.in_force,
            cap: self.update.cap.min(self.cap),
            members: self.update.members.max(1),
            elsewhere: self.update.total.saturating_sub(self.slots),
            others_short: self.update.others_short,
            is_safe_mode: self.is_safe_mode,
        }
    }

    fn is_joined(&self) -> bool {
        matches!(self.state, State::Joined { .. })
    }

    /// Takes slots out of the lease, which the next report returns.
    fn return_slots(&mut self, slots: usize) {
        let slots = slots.min(self.slots);
        self.slots -= slots;
        self.in_force = self.in_force.min(self.slots);
        self.returned += slots;
    }

    fn make_report(&mut self, usage: &SlotUse, want: usize) -> Report {
        self.asked = want;
        self.has_asked = true;
        self.has_new_cap = false;
        Report {
            cap: self.cap,
            weight: usage.weight,
            want,
            returned: std::mem::take(&mut self.returned),
            claim: 0,
            known_survivors: 0,
            known_total: 0,
            adaptive: self.adaptive,
            role: self.role,
        }
    }
}
