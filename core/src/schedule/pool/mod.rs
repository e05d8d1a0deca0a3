//! A target that is a pool: slots and memory are its replicas', each with a limit and books of its own, and each call that goes is placed at one of them, under the same lock.
//!
//! Which replicas are in the eligible, and which of those with room a call goes to, is [`Placement`]'s; how much room each of them has is decided here.
//!
//! Invariants: a call is placed at a replica that may take it, which has a slot and memory for it, unless it was forced; what it takes there is given back once, when it is
//! over, also where the replica drains meanwhile; what happens to it is told to [`Placement`] once.

mod assignment;
mod call_classes;
mod failures;
mod members;
mod replica_slots;
#[cfg(test)]
mod tests;
mod upstream;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

pub(super) use assignment::Assignment;
use call_classes::CallClasses;
use replica_slots::ReplicaSlots;

use super::available::{LongestPrompt, ReplicaAvailability};
use super::requirements::{CallClass, Requirements};
use super::settings::Settings;
use super::span::Span;
use super::upstream::Upstream;
use super::{GrantId, Scheduler, Ticket};
use crate::adaptive;
use crate::cooldown::Cooldown;
use crate::kv::Forecast;
use crate::placement::{Placement, ReplicaSet, Wants};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Pool {
    placement: Placement,
    /// By place.
    replicas: Vec<Option<ReplicaSlots>>,
    /// Those that calls may go to.
    eligible: ReplicaSet,
    classes: CallClasses,
    /// The most calls in flight, at all of them together.
    cap: usize,
    each: ReplicaSettings,
    /// The calls without an answer, and where they are.
    unanswered: BTreeMap<GrantId, usize>,
    /// Those of them whose replicas went down, until they are told.
    stranded: Vec<GrantId>,
    /// How long there was nobody in the eligible, up to the last change, and since when if now.
    closed: Duration,
    closed_since: Option<Instant>,
    /// When it was seen that nobody is.
    seen_closed: Span,
    /// Of attempts that were forced while there was no replica.
    cooldown: Cooldown,
}

/// What each replica gets.
#[derive(Debug)]
struct ReplicaSettings {
    slots: usize,
    adaptive: Option<adaptive::Settings>,
    kv_tokens: Option<u64>,
    kv_headroom: f64,
}

impl Pool {
    /// `None`: these settings are no pool's.
    pub(super) fn new(settings: &Settings, now: Instant) -> Option<Self> {
        let config = settings.pool.as_ref()?;
        Some(Self {
            placement: Placement::new(config, fastrand::u64(..)),
            replicas: Vec::new(),
            eligible: ReplicaSet::NONE,
            classes: CallClasses::default(),
            cap: settings.limit,
            each: ReplicaSettings {
                slots: config.cap,
                adaptive: settings.adaptive.clone(),
                kv_tokens: settings.kv_tokens,
                kv_headroom: settings.kv_headroom,
            },
            unanswered: BTreeMap::new(),
            stranded: Vec::new(),
            closed: Duration::ZERO,
            closed_since: Some(now),
            seen_closed: Span::default(),
            cooldown: Cooldown::default(),
        })
    }

    /// Sees who is in the eligible now.
    fn refresh(&mut self, now: Instant) {
        let eligible = self.placement.eligible(now);
        self.eligible = ReplicaSet::NONE;
        for at in eligible.iter() {
            if let Some(replica) = self.replicas.get_mut(at).and_then(Option::as_mut) {
                replica.share = self.placement.share(now, at);
                self.eligible.insert(at);
            }
        }
        self.seen_closed.set(now, self.is_empty());
        if self.is_empty() {
            self.closed_since.get_or_insert(now);
        } else if let Some(since) = self.closed_since.take() {
            self.closed += now.saturating_duration_since(since);
        }
    }

    /// Whether nobody is in the eligible.
    fn is_empty(&self) -> bool {
        self.eligible.is_empty()
    }

    /// Which replicas may take a call: also those that it was tried at, where others have no room.
    fn eligible(&self, wants: Option<&Wants>, least_input: u64) -> ReplicaSet {
        match wants.filter(|wants| !wants.avoid.is_empty()) {
            Some(Wants { model, .. }) => {
                let wants = Wants { model: model.clone(), ..Wants::default() };
                self.placement.serving(Some(&wants), least_input)
            }
            None => self.placement.serving(wants, least_input),
        }
    }

    /// Those that it was tried at.
    fn tried(&self, wants: Option<&Wants>) -> ReplicaSet {
        let avoid = wants.map(|wants| wants.avoid.as_slice()).unwrap_or_default();
        avoid.iter().filter_map(|id| self.placement.index_of(*id)).collect()
    }

    /// What sets the replicas apart that take a prompt: the longest that each model takes, in order.
    fn lengths(&self) -> Vec<u64> {
        let models = self.replicas.iter().flatten().filter_map(|replica| replica.models.as_ref()).flatten();
        let mut lengths: Vec<_> = models.filter_map(|model| model.longest).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    fn replicas_of(&self, class: CallClass) -> ReplicaSet {
        class.number().and_then(|number| self.classes.get(number)).unwrap_or_default()
    }

    /// Those in the eligible that a call of that kind may go to.
    fn choice_of(&self, class: CallClass) -> ReplicaSet {
        self.replicas_of(class).and(self.eligible)
    }

    /// Whether one of those has a slot, beside so many in flight.
    fn has_slot_for(&self, class: CallClass, in_flight: usize) -> bool {
        !self.choice_of(class).and(self.open(in_flight)).is_empty()
    }

    /// Returns those in the eligible where a call of that claim would go if a slot came free, beside
    /// so many in flight. That is not so where more calls are in flight than there are slots, nor
    /// where calls are turned away.
    fn would_fit_at(&self, requirements: &Requirements, in_flight: usize) -> ReplicaSet {
        let fits = |replica: &ReplicaSlots| {
            replica.in_flight <= replica.slots()
                && !replica.is_full
                && requirements.need.kv <= replica.longest
        };
        let among = self.choice_of(requirements.class).iter().filter(|_| in_flight <= self.cap);
        among.filter(|at| self.replica(*at).is_some_and(fits)).collect()
    }

    /// Looks at what memory there is: it comes free as calls end, and as they turn out.
    fn measure(&mut self) {
        self.replicas.iter_mut().flatten().for_each(ReplicaSlots::measure);
    }

    /// What there is for calls of each kind, beside so many in flight; at `held`, memory for none but one.
    fn by_class(&self, in_flight: usize, held: Option<usize>) -> ReplicaAvailability {
        let open = self.open(in_flight);
        self.longest_of_each(open, held)
    }

    /// The same, if each replica in the eligible had a slot.
    fn by_class_with_free_slots(&self, held: Option<usize>) -> ReplicaAvailability {
        self.longest_of_each(self.eligible, held)
    }

    fn longest_of_each(&self, open: ReplicaSet, held: Option<usize>) -> ReplicaAvailability {
        let open = open.and(self.eligible);
        let longest = |at| Some((at, if held == Some(at) { 0 } else { self.replica(at)?.longest }));
        let most = |places: ReplicaSet| LongestPrompt::of(places.and(open).iter().filter_map(longest));
        ReplicaAvailability::new(open, held, self.classes.iter().map(|places| most(places?)))
    }

    /// Returns the forecast of a call as of now, once for all replicas; empty where no memory's size is known.
    fn forecast(&self, ticket: &Ticket) -> Forecast {
        let sized = self.replicas.iter().flatten().any(|replica| replica.most().is_some());
        if sized { ticket.forecast.clone().now() } else { Forecast::default() }
    }

    /// The replica whose memory is kept for a call that lacks some: the one that has come nearest to having it. `None`: one has it, and lacks but a slot; or none
    /// will ever have it.
    fn reserve(&self, requirements: &Requirements, ticket: &Ticket) -> Option<usize> {
        let forecast = self.forecast(ticket);
        let could = |replica: &ReplicaSlots| {
            replica.most().is_none_or(|most| u64::from(requirements.need.kv) <= most)
        };
        let among = self.choice_of(requirements.class).iter();
        let replicas = among.filter_map(|at| {
            Some((at, self.replica(at).filter(|replica| could(replica))?.slack(ticket, &forecast)))
        });
        let nearest = replicas
            .max_by(|(at, slack), (other, of_other)| slack.total_cmp(of_other).then(other.cmp(at)))?;
        Some(nearest).filter(|(_, slack)| *slack < 0.0).map(|(at, _)| at)
    }

    /// Those in the eligible with a slot.
    fn open(&self, in_flight: usize) -> ReplicaSet {
        if in_flight >= self.cap {
            return ReplicaSet::NONE;
        }
        self.eligible_replicas()
            .filter(|(_, replica)| replica.shortage().is_none())
            .map(|(at, _)| at)
            .collect()
    }

    fn eligible_replicas(&self) -> impl Iterator<Item = (usize, &ReplicaSlots)> {
        self.eligible.iter().filter_map(|at| Some((at, self.replica(at)?)))
    }

    fn replica(&self, at: usize) -> Option<&ReplicaSlots> {
        self.replicas.get(at)?.as_ref()
    }

    fn replica_mut(&mut self, at: usize) -> Option<&mut ReplicaSlots> {
        self.replicas.get_mut(at)?.as_mut()
    }

    fn replica_of(&mut self, assignment: &Assignment) -> Option<&mut ReplicaSlots> {
        let replica = self.replica_mut(assignment.placed_call.at)?;
        (replica.placed.id == assignment.placed_call.placed.id).then_some(replica)
    }
}

impl<W> Scheduler<W> {
    /// Computes anew which replicas may take each call that waits.
    pub(super) fn reclassify(&mut self, now: Instant) {
        let Self { queue, capacity, .. } = self;
        capacity.with_pool(|pool| {
            let lengths = pool.lengths();
            // Few models and lengths, however many wait. A number that is remembered here stays: whoever it was found for waits of it.
            let mut known = HashMap::new();
            queue.update_claims(|ticket, requirements| {
                let model = ticket.wants.as_ref().and_then(|wants| wants.model.clone());
                let input = ticket.demand.least_input();
                let length = lengths.partition_point(|longest| *longest <= input);
                let class = *known.entry((model, length)).or_insert_with(|| pool.class(ticket));
                if class == requirements.class {
                    return false;
                }
                // The new one first: a number that nobody waits of may be given to another.
                pool.on_enqueue(class);
                pool.on_dequeue(std::mem::replace(&mut requirements.class, class));
                true
            });
        });
        self.capacity.update(now);
        self.watch(now);
    }
}
