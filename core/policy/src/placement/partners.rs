//! Partners: other processes that share the pool. They tell each other where they send calls, and how
//! far these are.
//!
//! The calls of a partner count like own ones: as load of their replica, as prefixes in its cache, for
//! its speed, and in the counts of affinity keys. So if all traffic is that of partners, each of them
//! knows as much as if it sent all calls. They do not count for the replica's health, which each process
//! observes itself.
//!
//! A call of a partner that began before the two knew each other is not counted. Until it ends, it is
//! one of the other clients' calls that load polls show.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::{PlacedCall, Placement, SPAN, Sender, Wants, Work};
use tidegate_protocol::request::Affinity;
use tidegate_share::{MAX_PLACEMENTS, MAX_PREFIXES, PlacementEvent, PlacementStep, Placements};

/// The maximum number of calls of partners that are counted, and of events that were not told yet.
const MAX_CALLS: usize = 65_536;
/// Time after an own call in which partners' calls become known that it did not know of: events are
/// collected for 20 ms.
const UNSEEN_FOR: Duration = Duration::from_millis(25);
/// Partners meet if more calls than the number of replicas, divided by this, were not known to an own call.
const MAX_UNSEEN_DIVISOR: f64 = 4.0;
/// The largest prompt or answer. Longer ones are cut.
const MAX_TOKENS: u64 = 1 << 32;
/// The longest time until a first token. Longer ones are cut.
const MAX_TIME: Duration = Duration::from_secs(86_400);

/// What this process tells its partners, and their calls. See [the module](self).
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Partners {
    /// Whether a partner was heard. Before that, there is nobody to tell.
    is_observed: bool,
    /// When the last own call was sent, or `None` before the first.
    last_sent: Option<Instant>,
    /// The number of calls of partners that were heard of within [`UNSEEN_FOR`] after the last own call.
    unseen_by_last: u32,
    /// Exponentially decaying mean of that number over own calls.
    unseen: f64,
    /// The events that were not told yet.
    pending: VecDeque<PlacementEvent>,
    /// Whether the partners must forget the calls that they know of, because events were dropped.
    restarts: bool,
    /// Whether the driver knows that there are pending events.
    is_announced: bool,
    /// The calls of partners in flight, by the number of the partner and of the call.
    calls: BTreeMap<(u64, u64), PlacedCall>,
}

impl Partners {
    /// Returns `true` if there are partners.
    pub(super) fn is_observed(&self) -> bool {
        self.is_observed
    }

    /// Returns `true` if so many partners call at the same moment that they would all choose the same of
    /// `replicas` replicas.
    pub(super) fn meet(&self, replicas: usize) -> bool {
        self.unseen * MAX_UNSEEN_DIVISOR > replicas as f64
    }

    /// Records that an own call was sent.
    pub(super) fn on_sent(&mut self, now: Instant, call: &PlacedCall, replica: u64, work: Work) {
        let unseen = std::mem::take(&mut self.unseen_by_last);
        if self.last_sent.replace(now).is_some() {
            self.unseen += (f64::from(unseen) - self.unseen) / SPAN;
        }
        let Affinity { session, prefixes, .. } = &call.affinity;
        let prefixes = match prefixes.get(..MAX_PREFIXES) {
            Some(shortest) if prefixes.len() > MAX_PREFIXES => shortest.into(),
            _ => prefixes.clone(),
        };
        let Work { input, output } = work;
        self.tell(call.number, PlacementStep::Sent { replica, input, output, session: *session, prefixes });
    }

    /// Records that a partner's call was heard of.
    fn on_heard(&mut self, now: Instant) {
        let age = self.last_sent.map(|at| now.saturating_duration_since(at));
        self.unseen_by_last += u32::from(age.is_some_and(|age| age <= UNSEEN_FOR));
    }

    /// Records the first token of an own call, `took` after it was sent.
    pub(super) fn on_first_token(&mut self, call: &PlacedCall, took: Duration) {
        let after_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.tell(call.number, PlacementStep::FirstToken { after_us });
    }

    /// Records a step of an own call.
    pub(super) fn tell(&mut self, call: u64, what: PlacementStep) {
        if !self.is_observed {
            return;
        }
        self.pending.push_back(PlacementEvent { call, what });
        // The driver is stuck.
        if self.pending.len() > MAX_CALLS {
            self.pending.clear();
            self.restarts = true;
        }
    }
}

impl Placement {
    /// Joins the partners: from now on, they are told of own calls. Forgets their earlier calls. Returns the
    /// first message for them.
    pub fn join_partners(&mut self) -> Placements {
        self.leave_partners();
        self.partners = Some(Box::default());
        Placements::restart()
    }

    /// Forgets the partners, because the connection to them was lost.
    pub fn leave_partners(&mut self) {
        let lost = self.partners.take().map(|partners| partners.calls).unwrap_or_default();
        self.forget(lost.into_values());
    }

    /// Removes calls of partners of whose end nobody will tell. Their prompts are probably computed.
    fn forget(&mut self, lost: impl Iterator<Item = PlacedCall>) {
        for call in lost {
            // A partner's call never lets a replica leave.
            let _ = self.on_ended(PlacedCall { accepted: true, ..call });
        }
    }

    /// Returns `true` if there are pending events that the driver was not told of.
    pub fn announces_placements(&mut self) -> bool {
        let Some(partners) = &mut self.partners else { return false };
        let is_due = (partners.restarts || !partners.pending.is_empty()) && !partners.is_announced;
        partners.is_announced |= is_due;
        is_due
    }

    /// Removes up to [`MAX_PLACEMENTS`] pending events, and returns them. Returns `None` if there are none.
    /// Events that remain are not announced again.
    pub fn take_placements(&mut self) -> Option<Placements> {
        let partners = self.partners.as_mut()?;
        let restarts = std::mem::take(&mut partners.restarts);
        let events: Vec<_> = partners.pending.drain(..partners.pending.len().min(MAX_PLACEMENTS)).collect();
        partners.is_announced = !partners.pending.is_empty();
        (restarts || !events.is_empty()).then_some(Placements { restarts, events })
    }

    /// Applies what a partner tells, which has the number `partner`, or what is lost of all partners (`None`).
    pub fn on_placements(&mut self, now: Instant, partner: Option<u64>, placements: &Placements) {
        // Taken out, so that these calls are not told to the partners.
        let Some(mut partners) = self.partners.take() else { return };
        partners.is_observed |= partner.is_some();
        if placements.restarts {
            let is_lost = |of: u64| partner.is_none_or(|partner| partner == of);
            let lost: Vec<_> = partners.calls.keys().filter(|(of, _)| is_lost(*of)).copied().collect();
            self.forget(lost.iter().filter_map(|key| partners.calls.remove(key)));
        }
        for PlacementEvent { call, what } in &placements.events {
            let key = (partner.unwrap_or_default(), *call);
            match what {
                PlacementStep::Sent { replica, input, output, session, prefixes } => {
                    if partners.calls.len() >= MAX_CALLS || partners.calls.contains_key(&key) {
                        continue;
                    }
                    partners.on_heard(now);
                    let affinity =
                        Affinity { session: *session, prefixes: prefixes.clone(), ..Affinity::default() };
                    let has_affinity = session.is_some() || !prefixes.is_empty();
                    let wants = has_affinity.then(|| Wants { affinity, ..Wants::default() });
                    let work = Work { input: (*input).min(MAX_TOKENS), output: (*output).min(MAX_TOKENS) };
                    let at = self.known().find(|(_, known)| known.name == *replica).map(|(at, _)| at);
                    let call = at.and_then(|at| self.count(now, at, wants.as_ref(), work, Sender::Partner));
                    partners.calls.extend(call.map(|call| (key, call)));
                }
                PlacementStep::FirstToken { after_us } => {
                    if let Some(call) = partners.calls.get_mut(&key) {
                        let took = Duration::from_micros(*after_us).min(MAX_TIME);
                        self.count_first_token(now, call, took);
                    }
                }
                PlacementStep::Ended { ran } => {
                    if let Some(call) = partners.calls.remove(&key) {
                        let accepted = call.accepted || *ran;
                        let _ = self.on_ended(PlacedCall { accepted, ..call });
                    }
                }
            }
        }
        self.partners = Some(partners);
    }
}
