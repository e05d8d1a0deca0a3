//! Tidegate's replica selection ([`Placement`]), called in the same way as by the gate.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tidegate::config::ReplicaConfig;

use tidegate::config::PoolConfig;
use tidegate::policy::placement::{
    Affinity, Fault, Observation, PlacedCall, Placement, Placements, PollKind, Wants, Work,
};

use super::{Ask, Chooser};
use crate::experiments::pool::replicas::{REPLICAS, Replicas};
use crate::virtual_time::time_origin;

/// Which parts of the selection are switched off.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Without {
    /// Ignore the prefixes of prompts.
    pub(crate) affinity: bool,
    /// Ignore the metrics of replicas.
    pub(crate) polls: bool,
}

/// The output that the selection expects of each call, in tokens.
const OUTPUT: u64 = 200;

/// The time from an event until the other processes of a share know of it: events are collected for
/// 20 ms.
const TOLD_AFTER: Duration = Duration::from_millis(21);

/// What the processes of a share have told each other, in order: when it arrives, and from whom.
type Messages = Rc<RefCell<Vec<(Duration, u64, Placements)>>>;

/// The share of a client.
struct Share {
    told: Messages,
    /// The number of the client.
    client: u64,
    /// The number of other clients.
    others: usize,
    /// How much the client has heard.
    heard: usize,
}

/// A client with Tidegate's replica selection.
pub(crate) struct Ours {
    placement: Placement,
    without: Without,
    placed_calls: HashMap<u64, PlacedCall>,
    next: Option<Duration>,
    /// `None` if the client knows nothing of the others.
    share: Option<Share>,
}

fn instant(at: Duration) -> Instant {
    time_origin() + at
}

impl Ours {
    pub(crate) fn new(seed: u64, without: Without) -> Self {
        let config = PoolConfig {
            affinity: !without.affinity,
            poll: PoolConfig::default().poll.filter(|_| !without.polls),
            ..PoolConfig::default()
        };
        let mut placement = Placement::new(&config, seed);
        let members: Vec<ReplicaConfig> =
            (0..REPLICAS).map(|at| ReplicaConfig::new(&format!("http://replica-{at}"))).collect();
        placement.set_members(time_origin(), &members);
        Self { placement, without, placed_calls: HashMap::new(), next: Some(Duration::ZERO), share: None }
    }

    /// Creates clients that share the pool, from a seed for each.
    pub(crate) fn sharing(seeds: &[u64]) -> Vec<Box<dyn Chooser>> {
        let all_told = Messages::default();
        let client = |(client, seed): (u64, &u64)| {
            let mut ours = Self::new(*seed, Without::default());
            let told = ours.placement.join_partners();
            // All have joined before the first call.
            let others = (0..seeds.len() as u64).filter(|other| *other != client);
            let count = seeds.len() - 1;
            others.for_each(|other| ours.placement.on_placements(time_origin(), Some(other), count, &told));
            ours.share = Some(Share { told: all_told.clone(), client, others: count, heard: 0 });
            Box::new(ours) as Box<dyn Chooser>
        };
        (0..).zip(seeds).map(client).collect()
    }

    /// Applies what other clients have told until `now`.
    fn hear(&mut self, now: Duration) {
        let Some(Share { told, client, others, heard }) = &mut self.share else { return };
        let told = told.borrow();
        while let Some((at, from, placements)) = told.get(*heard).filter(|(at, ..)| *at <= now) {
            if from != client {
                self.placement.on_placements(instant(*at), Some(*from), *others, placements);
            }
            *heard += 1;
        }
    }

    /// Tells the other clients what has happened to calls.
    fn tell(&mut self, now: Duration) {
        let Some(Share { told, client, .. }) = &self.share else { return };
        while let Some(placements) = self.placement.take_placements() {
            told.borrow_mut().push((now + TOLD_AFTER, *client, placements));
        }
    }

    fn wants(&self, ask: &Ask) -> Wants {
        let prefixes = if self.without.affinity { [].into() } else { ask.call.prefixes.clone() };
        let view = if ask.tried.is_empty() { Vec::new() } else { self.placement.view(instant(ask.now)) };
        let avoid = view
            .iter()
            .filter(|seen| self.placement.index_of(seen.id).is_some_and(|at| ask.tried.contains(at)));
        Wants {
            model: None,
            affinity: Affinity { prefixes, ..Affinity::default() },
            avoid: avoid.map(|seen| seen.id).collect(),
        }
    }
}

impl Chooser for Ours {
    fn choose(&mut self, ask: &Ask) -> usize {
        self.hear(ask.now);
        let (now, wants) = (instant(ask.now), self.wants(ask));
        // The length of the answer is unknown. The expected length is the same for all calls.
        let work = Work { input: u64::from(ask.call.input), output: OUTPUT };
        let eligible = self.placement.serving(Some(&wants), work.input);
        let open = self.placement.eligible(now).and(eligible);
        // With no eligible replica the gate would queue the call. Here the call is sent anyway.
        let open = [open, eligible.less(ask.tried), eligible]
            .into_iter()
            .find(|open| !open.is_empty())
            .unwrap_or_default();
        let at = self.placement.choose(now, Some(&wants), work, open).unwrap_or_default();
        if let Some(placed_call) = self.placement.on_sent(now, at, Some(&wants), work) {
            self.placed_calls.insert(ask.id, placed_call);
        }
        self.tell(ask.now);
        // A call wakes the health checker.
        self.next = Some(self.next.map_or(ask.now, |next| next.min(ask.now)));
        at
    }

    fn first_token(&mut self, now: Duration, id: u64, _: usize) {
        if let Some(placed_call) = self.placed_calls.get_mut(&id) {
            self.placement.on_accepted(instant(now), placed_call);
            self.placement.on_first_token(instant(now), placed_call);
        }
        self.tell(now);
    }

    fn ended(&mut self, now: Duration, id: u64, _: usize) {
        if let Some(placed_call) = self.placed_calls.remove(&id) {
            self.placement.on_ended(placed_call);
        }
        self.tell(now);
    }

    fn failed(&mut self, now: Duration, id: u64, _: usize) {
        if let Some(placed_call) = self.placed_calls.get(&id) {
            self.placement.on_failed(instant(now), placed_call, Fault::ConnectRefused);
        }
        self.next = Some(self.next.map_or(now, |next| next.min(now)));
    }

    fn next_poll(&self) -> Option<Duration> {
        self.next
    }

    /// Polls the replicas that the gate's health checker would poll now. The answers arrive
    /// immediately.
    fn poll(&mut self, now: Duration, replicas: &Replicas) {
        self.hear(now);
        let poll_requests = self.placement.poll_requests(instant(now));
        for poll_request in poll_requests.due {
            let Some(at) = self.placement.index_of(poll_request.to) else { continue };
            let sight = match poll_request.kind {
                _ if !replicas.up().contains(at) => Observation::ConnectRefused,
                PollKind::Health => Observation::ProbeOk,
                PollKind::Load => {
                    replicas.standing(at).map_or(Observation::MetricsUnreadable, Observation::Metrics)
                }
                PollKind::Models => continue,
            };
            self.placement.observe(instant(now), poll_request.to, sight);
        }
        let next = poll_requests.next.map(|at| at.saturating_duration_since(time_origin()));
        // The next poll is at least 1 ms later, because a poll that is due again immediately would
        // loop forever.
        self.next = next.map(|next| next.max(now + Duration::from_millis(1)));
    }
}
