//! The broker: divides all resources among the members. See [the crate](crate).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::division::Division;
use super::member::Presence;
use super::rates::{Draw, RateDivision};
use super::{
    LimitEvents, MAX_EVENTS, MemberId, Placements, Predecessor, REJOIN_TIME, Report, ToBroker, ToMember,
    cool_down_ms,
};

/// The maximum number of resources of one broker. Reports of further ones are ignored.
const MAX_RESOURCES: usize = 100_000;
/// The prefix of the names of resources that are not calls in flight, but calls that await their
/// first token.
pub const FIRST_TOKENS: &str = "first-tokens:";
/// The maximum length of the name of a resource, in bytes.
const MAX_NAME: usize = 1_024;
/// The longest cool-down that is forwarded. Longer ones are cut.
pub const MAX_COOL_DOWN: Duration = Duration::from_secs(3_600);

/// The state of a broker. See [the crate](crate).
///
/// Each method returns the messages to send. The driver sends the messages of one member in order.
#[derive(Debug)]
pub struct Broker {
    resources: BTreeMap<Arc<str>, Resource>,
    rates: BTreeMap<Arc<str>, RateDivision>,
    /// The members of each pool.
    pools: BTreeMap<Arc<str>, BTreeSet<MemberId>>,
    presence: Presence,
    started_at: Instant,
    predecessor: Predecessor,
}

#[derive(Debug)]
struct Resource {
    division: Division,
    /// When the cool-down ends, or `None` if there was none.
    cools_until: Option<Instant>,
}

impl Resource {
    /// Returns `true` if nothing of the resource must be remembered: it has no member, and no
    /// cool-down.
    fn is_unused(&self, now: Instant) -> bool {
        self.division.is_empty() && self.cools_until.is_none_or(|until| until <= now)
    }
}

/// Messages with their receivers.
type Messages = Vec<(MemberId, ToMember)>;

impl Broker {
    /// Creates a broker without members.
    pub fn new(now: Instant, predecessor: Predecessor) -> Self {
        Self {
            resources: BTreeMap::new(),
            rates: BTreeMap::new(),
            pools: BTreeMap::new(),
            presence: Presence::default(),
            started_at: now,
            predecessor,
        }
    }

    /// Records that a member is in the broker's own process.
    pub fn add_own(&mut self, own: MemberId) {
        self.presence.add_own(own);
    }

    /// Applies a message of a member.
    pub fn on_message(&mut self, now: Instant, from: MemberId, message: &ToBroker) -> Messages {
        self.presence.on_heard(now, from);
        match message {
            ToBroker::Report { resource, report, heartbeat } => {
                let mut messages = self.report(now, from, resource, report);
                messages.extend(heartbeat.iter().flat_map(|number| self.heartbeat(now, from, *number)));
                messages
            }
            ToBroker::Draw { resource, draw } => self.draw(now, from, resource, draw),
            ToBroker::Leave { resource } => self.leave(now, from, &resource.clone()),
            ToBroker::CoolDown { resource, for_ms } => {
                self.on_cool_down(now, from, resource, Duration::from_millis(*for_ms))
            }
            ToBroker::LimitEvents { resource, limit_events } => self.forward(from, resource, limit_events),
            ToBroker::Placements { resource, placements } => {
                self.share_placements(from, resource, placements)
            }
            ToBroker::Heartbeat { number } => self.heartbeat(now, from, *number),
        }
    }

    /// Applies a report, and tells the members what has changed.
    fn report(&mut self, now: Instant, from: MemberId, resource: &Arc<str>, report: &Report) -> Messages {
        if !self.resources.contains_key(resource) {
            // The last members of some may have left during a cool-down.
            self.resources.retain(|_, resource| !resource.is_unused(now));
            if self.resources.len() >= MAX_RESOURCES || resource.len() > MAX_NAME {
                return Vec::new();
            }
            let expires = resource.starts_with(FIRST_TOKENS);
            let division = Division::new(self.started_at, self.predecessor, expires);
            self.resources.insert(resource.clone(), Resource { division, cools_until: None });
        }
        let Some(Resource { division, cools_until }) = self.resources.get_mut(resource) else {
            return Vec::new();
        };
        let is_new = division.members().all(|id| id != from);
        let ends_adapting = division.adapts(from) && report.adaptive.is_none();
        division.report(now, from, report);
        let mut messages = addressed(resource, division.settle(now, &self.presence));
        if ends_adapting {
            messages.extend(forget(resource, division, from));
        }
        let cools = cools_until.filter(|until| is_new && *until > now);
        messages.extend(cools.map(|until| (from, cool_down(resource, until - now))));
        messages
    }

    /// Answers a heartbeat, and tells the member the totals that have changed.
    fn heartbeat(&mut self, now: Instant, from: MemberId, number: u64) -> Messages {
        let mut messages = self.replace_unheard(now);
        let presence = &self.presence;
        let refreshed = self.resources.iter_mut().filter_map(|(name, resource)| {
            let update = resource.division.refresh(now, from, presence)?;
            Some((from, ToMember::Lease { resource: name.clone(), update }))
        });
        messages.extend(refreshed.chain([(from, ToMember::Alive { number })]));
        messages
    }

    /// Removes a member whose connection has ended. Its slots are free at once.
    pub fn on_disconnect(&mut self, now: Instant, member: MemberId) -> Messages {
        let names: Vec<_> = self.resources.keys().cloned().collect();
        self.presence.remove(member);
        let drawn_from: Vec<_> = self
            .rates
            .iter()
            .filter(|(_, rates)| rates.is_member(member))
            .map(|(name, _)| name.clone())
            .collect();
        let pools: Vec<_> = self.pools.keys().cloned().collect();
        let names = names.iter().chain(&drawn_from).chain(&pools);
        names.flat_map(|name| self.leave(now, member, name)).collect()
    }

    /// Grants the slots that were withheld for the process of a stopped predecessor, because it has
    /// ended, or continues and has told what it holds.
    pub fn release_withheld(&mut self, now: Instant) -> Messages {
        if self.predecessor == Predecessor::Stopped {
            self.predecessor = Predecessor::Died;
        }
        self.resources.values_mut().for_each(|resource| resource.division.release_withheld());
        self.settle(now, |_, _| true)
    }

    /// Applies what time alone changes. See [`Broker::next_wake`].
    pub fn on_tick(&mut self, now: Instant) -> Messages {
        let gives_from = self.gives_from();
        let mut messages = self.settle(now, |_, _| true);
        let gives = now >= gives_from;
        let rates = self.rates.iter_mut().filter(|_| gives);
        messages.extend(rates.flat_map(|(name, rates)| advances(name, now, rates)));
        messages
    }

    /// Returns when the driver must call [`Broker::on_tick`], or `None` if time alone changes
    /// nothing.
    pub fn next_wake(&mut self, now: Instant) -> Option<Instant> {
        let leases = self.resources.values().filter_map(|resource| resource.division.next_wake());
        let gives_from = self.gives_from();
        let wake = |rates: &mut RateDivision| Some(rates.next_wake(now)?.max(gives_from));
        leases.chain(self.rates.values_mut().filter_map(wake)).min()
    }

    /// Returns when advances are given: at once, or when the members of the predecessor had time to
    /// tell what they have used.
    fn gives_from(&self) -> Instant {
        let is_first = self.predecessor == Predecessor::None;
        if is_first { self.started_at } else { self.started_at + REJOIN_TIME }
    }

    /// Applies a draw, and gives the advances that fit now.
    fn draw(&mut self, now: Instant, from: MemberId, name: &Arc<str>, draw: &Draw) -> Messages {
        if !self.rates.contains_key(name) {
            self.rates.retain(|_, rates| !rates.is_unused(now));
            if self.rates.len() >= MAX_RESOURCES || name.len() > MAX_NAME {
                return Vec::new();
            }
            let Some(rates) = RateDivision::new(now, draw) else { return Vec::new() };
            self.rates.insert(name.clone(), rates);
        }
        let gives_from = self.gives_from();
        let Some(rates) = self.rates.get_mut(name) else { return Vec::new() };
        rates.draw(now, from, draw);
        if now >= gives_from { advances(name, now, rates) } else { Vec::new() }
    }

    /// Removes a member from what has this name: limits, rates and a pool.
    fn leave(&mut self, now: Instant, member: MemberId, name: &Arc<str>) -> Messages {
        if let Some(rates) = self.rates.get_mut(name) {
            rates.leave(now, member);
        }
        let mut messages = self.leave_pool(member, name);
        let Some(resource) = self.resources.get_mut(name) else { return messages };
        let division = &mut resource.division;
        if division.members().all(|id| id != member) {
            return messages;
        }
        let adapts = division.adapts(member);
        division.leave(now, member);
        messages.extend(addressed(name, division.settle(now, &self.presence)));
        if adapts {
            messages.extend(forget(name, division, member));
        }
        if resource.is_unused(now) {
            self.resources.remove(name);
        }
        messages
    }

    /// Forwards the events of a member's calls to the observers.
    fn forward(&self, from: MemberId, name: &Arc<str>, limit_events: &LimitEvents) -> Messages {
        let Some(Resource { division, .. }) = self.resources.get(name) else { return Vec::new() };
        if limit_events.events.len() > MAX_EVENTS {
            return Vec::new();
        }
        tell(name, from, limit_events, division.observers_of(from))
    }

    /// Forwards where a member has sent calls of a pool to its other members. With the first
    /// message, the sender becomes a member, and gets a message about each of the others.
    fn share_placements(&mut self, from: MemberId, name: &Arc<str>, placements: &Placements) -> Messages {
        let is_full = !self.pools.contains_key(name) && self.pools.len() >= MAX_RESOURCES;
        if is_full || name.len() > MAX_NAME || !placements.is_valid() {
            return Vec::new();
        }
        let members = self.pools.entry(name.clone()).or_default();
        let is_new = members.insert(from);
        let others = members.len() - 1;
        let message = |to: MemberId, of: MemberId, placements| {
            (to, ToMember::Placements { resource: name.clone(), member: Some(of.0), others, placements })
        };
        let receivers = || members.iter().copied().filter(|id| *id != from);
        let forwarded = receivers().map(|to| message(to, from, placements.clone()));
        let joined = receivers().filter(|_| is_new).map(|of| message(from, of, Placements::restart()));
        forwarded.chain(joined).collect()
    }

    /// Removes a member from a pool. The others forget its calls.
    fn leave_pool(&mut self, member: MemberId, name: &Arc<str>) -> Messages {
        let Some(members) = self.pools.get_mut(name) else { return Vec::new() };
        if !members.remove(&member) {
            return Vec::new();
        }
        let others = members.len().saturating_sub(1);
        let message = |to: &MemberId| {
            let (resource, placements) = (name.clone(), Placements::restart());
            (*to, ToMember::Placements { resource, member: Some(member.0), others, placements })
        };
        let messages = members.iter().map(message).collect();
        if members.is_empty() {
            self.pools.remove(name);
        }
        messages
    }

    /// Records that a member does not read its messages, so that some were dropped. It does not
    /// lead an adaptive limit any more.
    pub fn on_unread(&mut self, now: Instant, member: MemberId) -> Messages {
        self.presence.on_unread(member);
        self.replace_unheard(now)
    }

    /// Appoints other members to lead adaptive limits, where a leader or deputy is not heard any
    /// more, and grants the slots that have expired, or that a member does not want, because it is
    /// not heard.
    fn replace_unheard(&mut self, now: Instant) -> Messages {
        self.settle(now, |division, presence| {
            division.needs_observers(now, presence)
                || division.has_expired_slots(now, presence)
                || division.has_other_claimants(now, presence)
        })
    }

    /// Settles the resources for which `is_due` is `true`.
    fn settle(&mut self, now: Instant, is_due: impl Fn(&Division, &Presence) -> bool) -> Messages {
        let Self { resources, presence, .. } = self;
        let due = resources.iter_mut().filter(|(_, resource)| is_due(&resource.division, presence));
        due.flat_map(|(name, resource)| addressed(name, resource.division.settle(now, presence))).collect()
    }

    /// Forwards a cool-down to the other members, if it ends later than the known one.
    fn on_cool_down(&mut self, now: Instant, from: MemberId, name: &Arc<str>, time: Duration) -> Messages {
        let Some(Resource { division, cools_until }) = self.resources.get_mut(name) else {
            return Vec::new();
        };
        let until = now + time.min(MAX_COOL_DOWN);
        if division.members().all(|id| id != from) || cools_until.is_some_and(|known| known >= until) {
            return Vec::new();
        }
        *cools_until = Some(until);
        let others = division.members().filter(|id| *id != from);
        others.map(|id| (id, cool_down(name, until - now))).collect()
    }
}

fn addressed(name: &Arc<str>, updates: Vec<(MemberId, super::LeaseUpdate)>) -> Messages {
    let message = |(id, update)| (id, ToMember::Lease { resource: name.clone(), update });
    updates.into_iter().map(message).collect()
}

/// Gives the advances that fit now.
fn advances(name: &Arc<str>, now: Instant, rates: &mut RateDivision) -> Messages {
    let message = |(id, advance)| (id, ToMember::Advance { resource: name.clone(), advance });
    rates.settle(now).into_iter().map(message).collect()
}

/// Tells all members with an adaptive limit to forget the calls of `member`. Also those that do not
/// observe them: one that was stopped may not know yet that it was replaced.
fn forget(name: &Arc<str>, division: &Division, member: MemberId) -> Messages {
    let others = division.members().filter(|id| *id != member && division.adapts(*id));
    tell(name, member, &LimitEvents { restarts: true, ..LimitEvents::default() }, others)
}

/// Tells members what happened to the calls of another one.
fn tell(
    name: &Arc<str>,
    of: MemberId,
    limit_events: &LimitEvents,
    to: impl Iterator<Item = MemberId>,
) -> Messages {
    let message = |id| {
        let (resource, limit_events) = (name.clone(), limit_events.clone());
        (id, ToMember::LimitEvents { resource, member: of.0, limit_events })
    };
    to.map(message).collect()
}

fn cool_down(name: &Arc<str>, time: Duration) -> ToMember {
    ToMember::CoolDown { resource: name.clone(), for_ms: cool_down_ms(time) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::epoch;

    #[test]
    fn resource_is_forgotten_when_its_last_member_has_left_during_a_cool_down() {
        let now = epoch();
        let mut broker = Broker::new(now, Predecessor::None);
        let join = |broker: &mut Broker, now, name: &str| {
            let report = Report {
                cap: 4,
                weight: 1.0,
                want: 0,
                returned: 0,
                claim: 0,
                known_survivors: 0,
                known_total: 0,
                adaptive: None,
                role: None,
            };
            let message = ToBroker::Report { resource: name.into(), report, heartbeat: None };
            broker.on_message(now, MemberId(1), &message);
            broker.resources.keys().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(join(&mut broker, now, "first"), ["first"]);
        let cool_down = ToBroker::CoolDown { resource: "first".into(), for_ms: 10_000 };
        broker.on_message(now, MemberId(1), &cool_down);
        broker.on_message(now, MemberId(1), &ToBroker::Leave { resource: "first".into() });
        // Members that join meanwhile must be told of the cool-down.
        let at = now + Duration::from_secs(9);
        assert_eq!(join(&mut broker, at, "second"), ["first", "second"]);
        let at = now + Duration::from_secs(10);
        assert_eq!(join(&mut broker, at, "third"), ["second", "third"]);
    }
}
