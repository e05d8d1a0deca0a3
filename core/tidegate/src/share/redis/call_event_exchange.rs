//! What a member and the other members of a resource publish to each other about their calls.
//!
//! At an adaptive limit, each member publishes to its observers, which the script appoints. At a
//! pool, each publishes to all. See [`Peers`] for texts that are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::resource::{CallEvents, EVENTS_DELAY, SharedResource};
use super::call_event_text::{Published, events_text, gone_text, member_number, parse_events};
use super::script_messages::Publication;
use crate::clock::now;
use crate::schedule::LeaseKind;
use tidegate_share::{LimitEvents, MessageOrder, Peers, Placements};

/// Multiplied by the numbers of publishing and of receiving members: the minimum time between two
/// texts with events that one member publishes at a pool. So the server delivers at most 50,000 of
/// these texts per second.
const EVENTS_APART: Duration = Duration::from_micros(20);

/// The exchange of one member at one resource, from its first attempt to join until the store is
/// lost.
pub(super) struct CallEventExchange {
    limit: SharedResource,
    /// The channels of the resource begin with it.
    key: Arc<str>,
    /// The name of the member.
    member: Arc<str>,
    /// The channel to which the store pushes, or other members of the pool publish.
    channel: String,
    /// The names of the leader and the deputy of an adaptive limit.
    observers: Vec<Arc<str>>,
    /// The members whose texts this one has received.
    peers: Peers,
    /// The number of texts that were published.
    published: u64,
    /// Whether another text must follow the last one, so that its loss is noticed.
    is_follow_up_due: bool,
    /// When the last text was published. `None` before the first.
    published_at: Option<Instant>,
    /// The number of members that received the last text.
    receivers: u32,
    /// When events become due. `None` if there are none.
    events_at: Option<Instant>,
    are_events_due: bool,
    /// Whether a text must be published even if there are no events.
    is_sign_of_life_due: bool,
}

impl CallEventExchange {
    /// Creates the exchange of `member` at the resource `key`. It shares `limit`.
    pub(super) fn new(limit: SharedResource, key: Arc<str>, member: Arc<str>) -> Self {
        let channel = match limit {
            SharedResource::Replicas(_) => format!("{key}:calls"),
            SharedResource::Calls(..) | SharedResource::Rates(..) => channel_of(&key, &member),
        };
        Self {
            limit,
            key,
            member,
            channel,
            observers: Vec::new(),
            peers: Peers::default(),
            published: 0,
            is_follow_up_due: false,
            published_at: None,
            receivers: 0,
            events_at: None,
            are_events_due: false,
            is_sign_of_life_due: false,
        }
    }

    /// Returns the channel to which the store pushes, or other members of the pool publish.
    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    /// Sets the names of the observers of an adaptive limit. Empty if the limit is fixed.
    pub(super) fn set_observers(&mut self, observers: &[Arc<str>]) {
        if self.observers != observers {
            self.observers = observers.to_vec();
        }
    }

    /// Returns when events become due, or `None` if there are none.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.events_at
    }

    /// Schedules the publication of pending events. At a pool, keeps the minimum time since the
    /// last text.
    pub(super) fn on_events(&mut self) {
        if self.events_at.is_some() {
            return;
        }
        let soon = now() + EVENTS_DELAY;
        let publishers = u32::try_from(self.peers.count()).unwrap_or(u32::MAX).saturating_add(1);
        let apart = match self.limit {
            SharedResource::Replicas(_) => {
                EVENTS_APART.saturating_mul(publishers.saturating_mul(self.receivers))
            }
            SharedResource::Calls(..) | SharedResource::Rates(..) => Duration::ZERO,
        };
        self.events_at = Some(self.published_at.map_or(soon, |before| soon.max(before + apart)));
    }

    /// Lets events be due if their time has come.
    pub(super) fn on_time(&mut self, time: Instant) {
        self.are_events_due |= self.events_at.take_if(|at| *at <= time).is_some();
    }

    /// Lets a text be due even without events, if other members count calls of this one, or if its
    /// last text may have been lost. A member without calls is silent, because the others need to
    /// know nothing of it. Forgets the calls of members that were not heard for long.
    pub(super) fn on_heartbeat(&mut self) {
        let has_calls = self.has_receivers() && self.limit.take_activity();
        self.is_sign_of_life_due |= std::mem::take(&mut self.is_follow_up_due) || has_calls;
        self.peers.remove_silent(now()).into_iter().for_each(|member| self.forget(member));
    }

    /// Lets a text be due even without events.
    pub(super) fn request_sign_of_life(&mut self) {
        self.is_sign_of_life_due = true;
    }

    /// Returns the text that is due, with the events that the limit has to tell.
    pub(super) fn next_publication(&mut self) -> Option<Publication> {
        let is_sign_of_life_due = std::mem::take(&mut self.is_sign_of_life_due);
        if !std::mem::take(&mut self.are_events_due) && !is_sign_of_life_due {
            return None;
        }
        let (events, may_have_more) = self.limit.take_events();
        self.are_events_due = may_have_more;
        let is_due = self.has_receivers() && (is_sign_of_life_due || !events.is_empty());
        is_due.then(|| self.publication(&events))
    }

    /// Returns what tells the members of a pool that this one joins, in place of the members
    /// `replaces`.
    pub(super) fn first_publication(&mut self, first: Placements, replaces: &[Arc<str>]) -> Publication {
        let mut publication = self.publication(&[CallEvents::Placements(first)]);
        publication.texts.splice(0..0, replaces.iter().map(|member| gone_text(member)));
        publication
    }

    /// Returns what tells the members of a pool that this one ends.
    pub(super) fn last_publication(&self) -> Publication {
        Publication { channels: self.receiving_channels(), texts: vec![gone_text(&self.member)] }
    }

    fn publication(&mut self, events: &[CallEvents]) -> Publication {
        self.published += 1;
        self.published_at = Some(now());
        self.is_follow_up_due |= !events.is_empty();
        let texts = vec![events_text(&self.member, self.published, events)];
        Publication { channels: self.receiving_channels(), texts }
    }

    /// Returns the channels of the members to which this one publishes.
    fn receiving_channels(&self) -> Vec<String> {
        match self.limit {
            SharedResource::Calls(..) => {
                let others = self.observers.iter().filter(|observer| **observer != self.member);
                others.map(|observer| channel_of(&self.key, observer)).collect()
            }
            SharedResource::Rates(..) => Vec::new(),
            SharedResource::Replicas(_) => vec![self.channel.clone()],
        }
    }

    /// Returns `true` if other members may receive what this one publishes.
    fn has_receivers(&self) -> bool {
        !self.receiving_channels().is_empty()
    }

    /// Records how many members received a text.
    pub(super) fn on_published(&mut self, receivers: u32) {
        self.receivers = receivers;
    }

    /// Applies what another member, or the script, has published.
    pub(super) fn on_text(&mut self, published: &Published<'_>) {
        match published {
            Published::Events { member, .. } if Some(*member) == member_number(&self.member) => {}
            Published::Events { member, number, lines } => {
                match self.peers.on_message(now(), *member, *number) {
                    MessageOrder::Ignored => return,
                    MessageOrder::AfterLoss => self.forget(*member),
                    MessageOrder::InOrder => {}
                }
                // Also without events, because the member may be new.
                self.apply(*member, &CallEvents::Placements(Placements::default()));
                let events = lines.clone().filter_map(|line| parse_events(&self.limit, line));
                events.for_each(|events| self.apply(*member, &events));
            }
            Published::Gone { member } => {
                self.peers.remove(*member);
                self.forget(*member);
            }
        }
    }

    /// Forgets the calls of another member.
    fn forget(&self, member: u64) {
        self.apply(
            member,
            &CallEvents::LimitEvents(LimitEvents { restarts: true, ..LimitEvents::default() }),
        );
        self.apply(member, &CallEvents::Placements(Placements::restart()));
    }

    /// Applies events of calls of another member, unless they are of another kind than those of
    /// this resource.
    fn apply(&self, member: u64, events: &CallEvents) {
        match (events, &self.limit) {
            (CallEvents::LimitEvents(limit_events), SharedResource::Calls(LeaseKind::Slots, _)) => {
                self.limit.on_limit_events(member, limit_events);
            }
            (CallEvents::Placements(placements), SharedResource::Replicas(_)) => {
                self.limit.on_placements(Some(member), self.peers.count(), placements);
            }
            _ => {}
        }
    }
}

/// Returns the channel to which the store and other members publish for a member of the resource
/// `key`.
pub(super) fn channel_of(key: &str, member: &str) -> String {
    format!("{key}:{member}")
}
