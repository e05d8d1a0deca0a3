//! Which replica of a pool a call goes to, which of them are in the choice at all, and what to ask them.
//!
//! Pure: told `now`, what was sent and what was seen.

mod places;
mod words;

use std::sync::Arc;
use std::time::Instant;

pub use places::{MOST, Places};
pub use words::{
    Affinity, Ask, Errand, Errands, Fault, Member, Model, Placed, ReplicaId, Sight, Standing, Wants, Work,
};

use crate::config::PoolConfig;
use crate::kv;
use crate::schedule::AdaptiveView;

/// One replica, as the pool's policy knows it.
#[derive(Clone, Debug)]
struct Replica {
    placed: Placed,
    member: Member,
    draining: bool,
    requests: usize,
}

/// The policy of one pool: see the module's documentation.
#[derive(Clone, Debug)]
pub struct Placement {
    replicas: Vec<Option<Replica>>,
    ids: u64,
}

/// A call at a replica: what was counted there for it. Goes back by [`Placement::ended`], once.
#[derive(Debug)]
#[must_use = "what is not ended counts for ever"]
pub struct Parcel {
    /// The replica's place.
    pub at: usize,
    /// Which it is.
    pub placed: Placed,
}

/// What is to be seen of a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaView {
    /// Which.
    pub id: ReplicaId,
    /// Where.
    pub url: Arc<str>,
    /// `in`, `suspect`, `down`, `trial` (half open), `starting` (slow start), `draining`.
    pub state: &'static str,
    /// Its weight, as configured.
    pub weight: f64,
    /// The share of that which counts now: below 1 while it starts slowly.
    pub share: f64,
    /// Calls of our own.
    pub requests: usize,
    /// Tokens of our own.
    pub tokens: u64,
    /// Calls of others, at the last look that is not stale.
    pub others: Option<f64>,
    /// See [`Standing::kv_usage`].
    pub kv_usage: Option<f64>,
    /// What it is known to serve; `None`: not known.
    pub models: Option<Vec<Arc<str>>>,
    /// Its slots and memory; `None` where nobody keeps books of them.
    pub slots: Option<SlotsView>,
}

/// What there is at a replica, and what is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotsView {
    /// Slots in force: of one that comes back slowly, its share of them.
    pub limit: usize,
    /// Calls that hold one.
    pub in_flight: usize,
    /// How its limit is found; `None`: it is fixed.
    pub adaptive: Option<AdaptiveView>,
    /// Cuts of its limit so far.
    pub cuts: u64,
    /// Its memory, where the size is known.
    pub kv: Option<kv::View>,
}

impl Placement {
    /// A pool without replicas. `seed`: what is drawn by chance is drawn from it.
    pub fn new(config: &PoolConfig, seed: u64, now: Instant) -> Self {
        let _ = (config, seed, now);
        Self { replicas: Vec::new(), ids: 0 }
    }

    /// From now on these are the replicas. Who is new joins, whose URL is known already stays what it is (its weight may change), and who is not among them
    /// drains: it gets no more calls, and leaves with its last one. Returns the places of those that joined.
    pub fn set_members(&mut self, now: Instant, members: &[Member]) -> Places {
        let _ = now;
        let mut joined = Places::NONE;
        for replica in self.replicas.iter_mut().flatten() {
            replica.draining = !members.iter().any(|member| member.url == replica.member.url);
        }
        for member in members {
            if self.replicas.iter().flatten().any(|known| known.member.url == member.url) {
                continue;
            }
            self.ids += 1;
            let placed = Placed { id: ReplicaId(self.ids), url: member.url.clone() };
            joined.insert(self.replicas.len());
            self.replicas.push(Some(Replica {
                placed,
                member: member.clone(),
                draining: false,
                requests: 0,
            }));
        }
        joined
    }

    /// What was seen of a replica. One that has left is not known any more.
    pub fn saw(&mut self, now: Instant, id: ReplicaId, sight: Sight) {
        let _ = (now, id, sight);
    }

    /// What to ask of whom, now. Each errand is told once; its answer is [`Placement::saw`].
    pub fn errands(&mut self, now: Instant) -> Errands {
        let _ = now;
        Errands::default()
    }

    /// Those that calls may go to now: they are well, as far as is known, and do not drain.
    pub fn in_choice(&mut self, now: Instant) -> Places {
        let _ = now;
        self.present(|replica| !replica.draining)
    }

    /// Those that could take such a call, well or not: they do not drain, serve its model and take its length, as far as is known, and are none that it avoids. Where that
    /// leaves nobody, those that it avoids; where nobody is known to serve its model, all: the replica is the source of truth.
    pub fn eligible(&self, wants: Option<&Wants>, least_input: u64) -> Places {
        let _ = (wants, least_input);
        self.present(|replica| !replica.draining)
    }

    /// Of `open`, all of which could take the call now, the one that it goes to; `None`: there is none.
    pub fn choose(&mut self, now: Instant, wants: Option<&Wants>, work: Work, open: Places) -> Option<usize> {
        let _ = (now, wants, work);
        open.iter().next()
    }

    /// A call goes there.
    pub fn sent(&mut self, now: Instant, at: usize, wants: Option<&Wants>, work: Work) -> Option<Parcel> {
        let _ = (now, wants, work);
        let replica = self.replicas.get_mut(at)?.as_mut()?;
        replica.requests += 1;
        Some(Parcel { at, placed: replica.placed.clone() })
    }

    /// Its first token came.
    pub fn first_token(&mut self, now: Instant, parcel: &mut Parcel) {
        let _ = (now, parcel);
    }

    /// It is over. A replica that drains leaves with its last call: then this is its place, which is free.
    pub fn ended(&mut self, now: Instant, parcel: Parcel) -> Option<usize> {
        let _ = now;
        let slot = self.replicas.get_mut(parcel.at)?;
        let replica = slot.as_mut().filter(|replica| replica.placed.id == parcel.placed.id)?;
        replica.requests = replica.requests.saturating_sub(1);
        let leaves = replica.draining && replica.requests == 0;
        if leaves {
            *slot = None;
        }
        leaves.then_some(parcel.at)
    }

    /// An attempt there was accepted.
    pub fn succeeded(&mut self, now: Instant, at: usize) {
        let _ = (now, at);
    }

    /// An attempt there failed.
    pub fn failed(&mut self, now: Instant, at: usize, fault: Fault) {
        let _ = (now, at, fault);
    }

    /// Those that went down since this was last asked: what they have not begun to answer is to be called back.
    pub fn take_fallen(&mut self) -> Places {
        Places::NONE
    }

    /// The share of its slots that a replica has in force: below 1 while it comes back slowly.
    pub fn share(&mut self, now: Instant, at: usize) -> f64 {
        let _ = (now, at);
        1.0
    }

    /// When time alone may bring a replica into the choice, or raise its share.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        let _ = now;
        None
    }

    /// Where a replica stands in the table.
    pub fn place_of(&self, id: ReplicaId) -> Option<usize> {
        self.replicas.iter().position(|known| known.as_ref().is_some_and(|known| known.placed.id == id))
    }

    /// What a person would want to know.
    pub fn view(&self, now: Instant) -> Vec<ReplicaView> {
        let _ = now;
        let view = |replica: &Replica| ReplicaView {
            id: replica.placed.id,
            url: replica.placed.url.clone(),
            state: if replica.draining { "draining" } else { "in" },
            weight: replica.member.weight,
            share: 1.0,
            requests: replica.requests,
            tokens: 0,
            others: None,
            kv_usage: None,
            models: None,
            slots: None,
        };
        self.replicas.iter().flatten().map(view).collect()
    }

    fn present(&self, wanted: impl Fn(&Replica) -> bool) -> Places {
        let known = self.replicas.iter().enumerate();
        known.filter_map(|(at, known)| known.as_ref().filter(|known| wanted(known)).map(|_| at)).collect()
    }
}
