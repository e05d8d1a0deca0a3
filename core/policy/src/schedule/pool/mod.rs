//! A pool of replicas as the upstream. Each replica has slots and memory of its own.
//!
//! [`Placement`] decides which replicas are eligible, and which replica with room takes a call. The
//! pool decides how much room each replica has. Both happen under the scheduler's lock.
//!
//! # Invariants
//!
//! - A call is assigned to a replica that may take it and has a slot and memory for it, unless the
//!   call was forced.
//! - What a call takes at its replica is released once, when the call ends, even if the replica is
//!   draining.
//! - Each event of a call is reported to [`Placement`] once.

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

/// A pool of replicas. See [the module](self).
#[derive(Debug)]
pub(super) struct Pool {
    placement: Placement,
    /// The replicas by index.
    replicas: Vec<Option<ReplicaSlots>>,
    /// The replicas that calls may go to.
    eligible: ReplicaSet,
    classes: CallClasses,
    /// The maximum number of calls in flight at all replicas together.
    cap: usize,
    each: ReplicaSettings,
    /// The calls without an answer, and the index of their replicas.
    unanswered: BTreeMap<GrantId, usize>,
    /// Calls without an answer whose replicas went down, until the driver takes them.
    stranded: Vec<GrantId>,
    /// For how long no replica was eligible, up to the last change, and since when if none is now.
    closed: Duration,
    closed_since: Option<Instant>,
    /// When the pool was seen to have no eligible replica.
    seen_closed: Span,
    /// The cool-down of attempts that were forced while there was no replica.
    cooldown: Cooldown,
}

/// The settings of each replica.
#[derive(Debug)]
struct ReplicaSettings {
    slots: usize,
    adaptive: Option<adaptive::LimitSettings>,
    kv_tokens: Option<u64>,
    kv_headroom: f64,
}

impl Pool {
    /// Creates a pool without replicas, or returns `None` if the settings have no pool.
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

    /// Updates which replicas are eligible.
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

    /// Returns `true` if no replica is eligible.
    fn is_empty(&self) -> bool {
        self.eligible.is_empty()
    }

    /// Returns the replicas that may take a call, including those where it was tried.
    fn serving(&self, wants: Option<&Wants>, least_input: u64) -> ReplicaSet {
        match wants.filter(|wants| !wants.avoid.is_empty()) {
            Some(Wants { model, .. }) => {
                let wants = Wants { model: model.clone(), ..Wants::default() };
                self.placement.serving(Some(&wants), least_input)
            }
            None => self.placement.serving(wants, least_input),
        }
    }

    /// Returns the replicas where a call was tried.
    fn tried(&self, wants: Option<&Wants>) -> ReplicaSet {
        let avoid = wants.map(|wants| wants.avoid.as_slice()).unwrap_or_default();
        avoid.iter().filter_map(|id| self.placement.index_of(*id)).collect()
    }

    /// Returns the context lengths of all models in order. Prompts between two of them may go to
    /// the same replicas.
    fn lengths(&self) -> Vec<u64> {
        let models = self.replicas.iter().flatten().filter_map(|replica| replica.models.as_ref()).flatten();
        let mut lengths: Vec<_> = models.filter_map(|model| model.max_tokens).collect();
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    fn replicas_of(&self, class: CallClass) -> ReplicaSet {
        class.number().and_then(|number| self.classes.get(number)).unwrap_or_default()
    }

    /// Returns the eligible replicas of a class.
    fn eligible_of(&self, class: CallClass) -> ReplicaSet {
        self.replicas_of(class).and(self.eligible)
    }

    /// Returns `true` if an eligible replica of the class has a slot.
    fn has_slot_for(&self, class: CallClass, in_flight: usize) -> bool {
        !self.eligible_of(class).and(self.open(in_flight)).is_empty()
    }

    /// Returns the eligible replicas where the call would go if a slot was released. Excludes full
    /// replicas and those with more calls in flight than slots.
    fn would_fit_at(&self, needs: &Requirements, in_flight: usize) -> ReplicaSet {
        let fits = |replica: &ReplicaSlots| {
            replica.in_flight <= replica.slots() && !replica.is_full && needs.need.kv <= replica.longest
        };
        let among = self.eligible_of(needs.class).iter().filter(|_| in_flight <= self.cap);
        among.filter(|at| self.replica(*at).is_some_and(fits)).collect()
    }

    /// Measures the memory, which is released as calls end and as their lengths become known.
    fn measure(&mut self) {
        self.replicas.iter_mut().flatten().for_each(ReplicaSlots::measure);
    }

    /// Returns what is available to each class, without the memory of the replica `held`.
    fn by_class(&self, in_flight: usize, held: Option<usize>) -> ReplicaAvailability {
        let open = self.open(in_flight);
        self.longest_of_each(open, held)
    }

    /// Returns the same as if each eligible replica had a free slot.
    fn by_class_with_free_slots(&self, held: Option<usize>) -> ReplicaAvailability {
        self.longest_of_each(self.eligible, held)
    }

    fn longest_of_each(&self, open: ReplicaSet, held: Option<usize>) -> ReplicaAvailability {
        let open = open.and(self.eligible);
        let longest = |at| Some((at, if held == Some(at) { 0 } else { self.replica(at)?.longest }));
        let most = |places: ReplicaSet| LongestPrompt::of(places.and(open).iter().filter_map(longest));
        ReplicaAvailability::new(open, held, self.classes.iter().map(|places| most(places?)))
    }

    /// Returns the current forecast of a call; empty if the size of no memory is known.
    fn forecast(&self, ticket: &Ticket) -> Forecast {
        let sized = self.replicas.iter().flatten().any(|replica| replica.most().is_some());
        if sized { ticket.forecast.clone().resolve() } else { Forecast::default() }
    }

    /// Returns the replica whose memory is kept for a call that lacks memory: the one that is
    /// closest to having enough.
    ///
    /// Returns `None` if a replica has enough, or none ever will.
    fn reserve(&self, needs: &Requirements, ticket: &Ticket) -> Option<usize> {
        let forecast = self.forecast(ticket);
        let could =
            |replica: &ReplicaSlots| replica.most().is_none_or(|most| u64::from(needs.need.kv) <= most);
        let among = self.eligible_of(needs.class).iter();
        let replicas = among.filter_map(|at| {
            Some((at, self.replica(at).filter(|replica| could(replica))?.slack(ticket, &forecast)))
        });
        let nearest = replicas
            .max_by(|(at, slack), (other, of_other)| slack.total_cmp(of_other).then(other.cmp(at)))?;
        Some(nearest).filter(|(_, slack)| *slack < 0.0).map(|(at, _)| at)
    }

    /// Returns the eligible replicas with a free slot.
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
    /// Recomputes which replicas may take each waiting call.
    pub(super) fn reclassify(&mut self, now: Instant) {
        let Self { queue, capacity, .. } = self;
        capacity.with_pool(|pool| {
            let lengths = pool.lengths();
            // There are few models and lengths, however many calls wait. A class found here keeps
            // its number, because the call for which it was found waits.
            let mut known = HashMap::new();
            queue.update_requirements(|ticket, needs| {
                let model = ticket.wants.as_ref().and_then(|wants| wants.model.clone());
                let input = ticket.demand.min_input();
                let length = lengths.partition_point(|longest| *longest <= input);
                let class = *known.entry((model, length)).or_insert_with(|| pool.class(ticket));
                if class == needs.class {
                    return false;
                }
                // The new class first: the number of a class without waiting calls may be
                // reassigned.
                pool.on_enqueue(class);
                pool.on_dequeue(std::mem::replace(&mut needs.class, class));
                true
            });
        });
        self.capacity.update(now);
        self.watch(now);
    }
}
