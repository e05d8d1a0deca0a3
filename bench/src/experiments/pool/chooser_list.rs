//! The list of all choosers, the replica selection policies that are compared.

use fastrand::Rng;

use super::choosers::{
    Argmin, BoundedHashing, Chooser, LongestMatch, Oracle, Ours, Polled, Random, RoundRobin, TwoChoices,
    Without,
};

/// The role of a chooser in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Ours,
    /// Tidegate's selection in processes that share the pool.
    Sharing,
    /// Tidegate's selection with a part switched off.
    Off,
    Peer,
    /// An oracle, which knows the true state of all replicas and chooses for all clients together.
    Oracle,
}

type Make = Box<dyn Fn(&[u64]) -> Vec<Box<dyn Chooser>> + Sync>;

/// A chooser (replica selection policy): its names, its role, and its constructor.
pub(crate) struct Entry {
    /// The name for `pool --who`.
    pub(crate) short: &'static str,
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// Creates the choosers of all clients from a seed for each.
    pub(crate) make: Make,
}

impl Entry {
    /// Creates an entry whose clients know nothing of each other. `make` creates the chooser of one
    /// client from a seed.
    fn new(
        short: &'static str,
        name: &'static str,
        role: Role,
        make: impl Fn(u64) -> Box<dyn Chooser> + Sync + 'static,
    ) -> Self {
        let make = Box::new(move |seeds: &[u64]| seeds.iter().map(|seed| make(*seed)).collect());
        Self { short, name, role, make }
    }
}

/// The maximum load of a replica in KubeAI's hashing, as a multiple of the mean load.
const KUBEAI: f64 = 1.25;
/// The oracles: short name, name, and the weight that the oracle gives to the delay of other calls,
/// relative to the delay of the call itself.
const OTHERS: [(&str, &str, f64); 5] = [
    ("oracle-0", "oracle, own first token", 0.0),
    ("oracle-half", "oracle, own and half of others'", 0.5),
    ("oracle-1", "oracle, own and others'", 1.0),
    ("oracle-2", "oracle, own and twice others'", 2.0),
    ("oracle-4", "oracle, own and four times others'", 4.0),
];

pub(crate) const OWN_COUNTS: &str = "power of two on own counts";

/// Returns all choosers for a run with `clients` clients.
pub(crate) fn entries(clients: usize) -> Vec<Entry> {
    let ours = |without: Without| move |seed| Box::new(Ours::new(seed, without)) as Box<dyn Chooser>;
    let all = Without::default();
    let mut entries = vec![
        Entry::new("ours", "ours", Role::Ours, ours(all)),
        Entry { short: "sharing", name: "ours, sharing", role: Role::Sharing, make: Box::new(Ours::sharing) },
        Entry::new(
            "no-affinity",
            "ours, without affinity",
            Role::Off,
            ours(Without { affinity: true, ..all }),
        ),
        Entry::new("no-polls", "ours, without polls", Role::Off, ours(Without { polls: true, ..all })),
        Entry::new("random", "random", Role::Peer, |seed| Box::new(Random(Rng::with_seed(seed)))),
        Entry::new("round-robin", "round robin", Role::Peer, |seed| Box::new(RoundRobin(seed as usize))),
        Entry::new("argmin", "fewest own calls", Role::Peer, |seed| Box::new(Argmin::new(seed, Polled::No))),
        Entry::new("polled", "fewest calls at the last poll", Role::Peer, |seed| {
            Box::new(Argmin::new(seed, Polled::Yes))
        }),
        Entry::new("p2c", OWN_COUNTS, Role::Peer, |seed| Box::new(TwoChoices::new(seed, Polled::No))),
        Entry::new("p2c-polled", "power of two on own and polled others'", Role::Peer, |seed| {
            Box::new(TwoChoices::new(seed, Polled::Yes))
        }),
        Entry::new("hashing", "hashing with bounded loads (KubeAI)", Role::Peer, |_| {
            Box::new(BoundedHashing::new(KUBEAI))
        }),
        Entry::new("unbounded", "hashing without a bound", Role::Peer, |_| {
            Box::new(BoundedHashing::new(f64::INFINITY))
        }),
        Entry::new("tree", "longest match (SGLang)", Role::Peer, move |_| {
            Box::new(LongestMatch::new(clients))
        }),
    ];
    entries.extend(OTHERS.map(|(short, name, others)| {
        Entry::new(short, name, Role::Oracle, move |_| Box::new(Oracle { others }))
    }));
    entries
}
