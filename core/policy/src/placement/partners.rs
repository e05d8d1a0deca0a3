//! Partners: other processes that share the pool. They report to each other where they send calls,
//! and when these get their first token and end.
//!
//! The calls of a partner count like own ones: as load of their replica, as prefixes in its cache,
//! for its speed, and in the counts of affinity keys. So if all traffic is that of partners, each
//! of them knows as much as if it sent all calls. They do not count for the replica's health, which
//! each process observes itself.
//!
//! A call of a partner that began before the two knew each other is not counted. Until it ends, it
//! is one of the other clients' calls that load polls show.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::{PlacedCall, Placement, SPAN, Sender, Wants, Work};
use tidegate_protocol::request::Affinity;
use tidegate_share::{MAX_PLACEMENTS, MAX_PREFIXES, PlacementEvent, PlacementStep, Placements};

/// The maximum number of calls of partners that are counted.
const MAX_CALLS: usize = 65_536;
/// The maximum number of events that were not sent yet.
const MAX_PENDING: usize = 65_536;
/// Time after an own call in which partners' calls become known that were sent before it: events
/// are collected for 20 ms, except at a remote store with many partners.
const REPORTED_WITHIN: Duration = Duration::from_millis(25);
/// The number of replicas, divided by the number of partners' calls of which an own call may not
/// know.
const UNREPORTED_DIVISOR: f64 = 4.0;
/// The maximum number of own calls that are remembered for [`REPORTED_WITHIN`].
const MAX_RECENT: usize = 256;
/// The largest prompt or answer. Longer ones are cut.
const MAX_TOKENS: u64 = 1 << 32;
/// The longest time until a first token. Longer ones are cut.
const MAX_TIME: Duration = Duration::from_secs(86_400);

/// What this process reports to its partners, and their calls. See [the module](self).
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Partners {
    /// The number of partners. Without any, no events are recorded.
    count: usize,
    /// Whether own calls were sent since [`Placement::take_activity`].
    has_sent: bool,
    /// Whether the other processes must be told that this one exists, because it has begun to send
    /// calls and knows of no partner.
    shows_itself: bool,
    /// When own calls were sent, the last [`REPORTED_WITHIN`].
    recent: VecDeque<Instant>,
    /// The number of partners' calls that became known within that time after an own call, since
    /// the last own call.
    unreported: usize,
    /// Exponentially decaying mean of that number over own calls.
    mean_unreported: f64,
    /// The events that were not sent yet.
    pending: VecDeque<PlacementEvent>,
    /// Whether the next message tells the partners to forget earlier calls of this process, because
    /// some of their events were dropped or not recorded.
    restarts: bool,
    /// Whether the driver knows that there are pending events.
    is_announced: bool,
    /// The calls of partners in flight, by the number of the partner and of the call.
    calls: BTreeMap<(u64, u64), PlacedCall>,
}

impl Partners {
    /// Returns `true` if there are partners.
    pub(super) fn has_partners(&self) -> bool {
        self.count > 0
    }

    /// Returns `true` if so many partners make calls at the same moment that they would all choose
    /// the same of `replicas` replicas.
    pub(super) fn has_concurrent_calls(&self, replicas: usize) -> bool {
        self.mean_unreported * UNREPORTED_DIVISOR > replicas as f64
    }

    /// Records that an own call was sent.
    pub(super) fn on_sent(&mut self, now: Instant, call: &PlacedCall, replica: u64, work: Work) {
        self.shows_itself |= !std::mem::replace(&mut self.has_sent, true) && !self.has_partners();
        let unreported = std::mem::take(&mut self.unreported) as f64;
        self.mean_unreported += (unreported - self.mean_unreported) / SPAN;
        if !self.has_partners() {
            return;
        }
        self.forget_old(now);
        if self.recent.len() < MAX_RECENT {
            self.recent.push_back(now);
        }
        let Affinity { session, prefixes, .. } = &call.affinity;
        let prefixes = match prefixes.get(..MAX_PREFIXES) {
            Some(shortest) if prefixes.len() > MAX_PREFIXES => shortest.into(),
            _ => prefixes.clone(),
        };
        let Work { input, output } = work;
        self.push_event(
            call.number,
            PlacementStep::Sent { replica, input, output, session: *session, prefixes },
        );
    }

    /// Records that a partner's call became known.
    fn on_partner_call(&mut self, now: Instant) {
        self.forget_old(now);
        self.unreported = self.unreported.saturating_add(self.recent.len());
    }

    /// Removes the times of own calls that are not recent.
    fn forget_old(&mut self, now: Instant) {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) > REPORTED_WITHIN;
        while self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
    }

    /// Records the first token of an own call, `took` after it was sent.
    pub(super) fn on_first_token(&mut self, call: &PlacedCall, took: Duration) {
        let after_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.push_event(call.number, PlacementStep::FirstToken { after_us });
    }

    /// Sets the number of partners. The events of calls in flight are not recorded without
    /// partners, so those who become partners again must forget these calls.
    fn set_count(&mut self, count: usize) {
        if count == 0 && self.has_partners() {
            self.pending.clear();
            self.restarts = true;
        }
        self.count = count;
    }

    /// Records a step of an own call.
    pub(super) fn push_event(&mut self, call: u64, what: PlacementStep) {
        if !self.has_partners() {
            return;
        }
        self.pending.push_back(PlacementEvent { call, what });
        // The driver is stuck.
        if self.pending.len() > MAX_PENDING {
            self.pending.clear();
            self.restarts = true;
        }
    }
}

impl Placement {
    /// Returns the number of processes that share the pool, as last heard. At least 1.
    pub fn processes(&self) -> usize {
        1 + self.partners.as_ref().map_or(0, |partners| partners.count)
    }

    /// Joins the partners: from now on, own calls are reported to them. Forgets their earlier
    /// calls. Returns the first message for them.
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

    /// Returns `true` if own calls were sent since the last time.
    pub fn take_activity(&mut self) -> bool {
        self.partners.as_mut().is_some_and(|partners| std::mem::take(&mut partners.has_sent))
    }

    /// Removes calls of partners whose end will not be reported. Their prompts are probably
    /// computed.
    fn forget(&mut self, lost: impl Iterator<Item = PlacedCall>) {
        for call in lost {
            // A partner's call never lets a replica leave.
            let _ = self.on_ended(PlacedCall { accepted: true, ..call });
        }
    }

    /// Returns `true` if there are pending events that were not announced to the driver, and marks
    /// them as announced.
    pub fn take_placements_announcement(&mut self) -> bool {
        let Some(partners) = &mut self.partners else { return false };
        let restarts = partners.restarts && partners.has_partners();
        let is_due = restarts || partners.shows_itself || !partners.pending.is_empty();
        is_due && !std::mem::replace(&mut partners.is_announced, true)
    }

    /// Removes up to [`MAX_PLACEMENTS`] pending events, and returns them. Returns `None` if there
    /// are none. Events that remain are not announced again.
    pub fn take_placements(&mut self) -> Option<Placements> {
        let partners = self.partners.as_mut()?;
        let (restarts, shows_itself) =
            (std::mem::take(&mut partners.restarts), std::mem::take(&mut partners.shows_itself));
        let events: Vec<_> = partners.pending.drain(..partners.pending.len().min(MAX_PLACEMENTS)).collect();
        partners.is_announced = !partners.pending.is_empty();
        (restarts || shows_itself || !events.is_empty()).then_some(Placements { restarts, events })
    }

    /// Applies events of the calls of a partner, which has the number `partner`. `None` removes the
    /// calls of all partners. `others` is the number of partners.
    pub fn on_placements(
        &mut self,
        now: Instant,
        partner: Option<u64>,
        others: usize,
        placements: &Placements,
    ) {
        // Taken out, so that these calls are not reported to the partners.
        let Some(mut partners) = self.partners.take() else { return };
        partners.set_count(others);
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
                    partners.on_partner_call(now);
                    let affinity =
                        Affinity { session: *session, prefixes: prefixes.clone(), ..Affinity::default() };
                    let wants = Wants { affinity, ..Wants::default() };
                    let work = Work { input: (*input).min(MAX_TOKENS), output: (*output).min(MAX_TOKENS) };
                    let at = self.known().find(|(_, known)| known.name == *replica).map(|(at, _)| at);
                    let call = at.and_then(|at| self.count(now, at, Some(&wants), work, Sender::Partner));
                    partners.calls.extend(call.map(|call| (key, call)));
                }
                PlacementStep::FirstToken { after_us } => {
                    if let Some(call) = partners.calls.get_mut(&key) {
                        let took = Duration::from_micros(*after_us).min(MAX_TIME);
                        self.count_first_token(now, call, took);
                    }
                }
                PlacementStep::Ended { accepted } => {
                    if let Some(call) = partners.calls.remove(&key) {
                        let accepted = call.accepted || *accepted;
                        let _ = self.on_ended(PlacedCall { accepted, ..call });
                    }
                }
            }
        }
        self.partners = Some(partners);
    }
}
