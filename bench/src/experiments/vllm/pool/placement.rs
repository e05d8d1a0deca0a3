//! The compared placements: the pool's own, and two that know nothing of the replicas.

use fastrand::Rng;
use tidegate::config::{Config, Pool, Replica, Target};
use tidegate::{Gate, Transport};

use crate::Fallible;
use crate::chosen_replica::to_chosen;

/// The base URL of the calls. The placement replaces its host.
pub(super) const BASE: &str = "http://vllm";

/// How a replica is chosen for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// The pool's own selection.
    Pool,
    /// The replicas in turn. Each of them is a target with a limit of its own, as in the pool.
    RoundRobin,
    /// A random replica, and targets as for `RoundRobin`.
    Random,
}

impl Placement {
    pub(super) const ALL: [Self; 3] = [Self::Pool, Self::RoundRobin, Self::Random];

    /// Returns the name in figures and tables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Placement::Pool => "pool",
            Placement::RoundRobin => "round robin",
            Placement::Random => "random",
        }
    }

    /// Returns a client for calls to [`BASE`], and its gate. Calls are sent through `wire`, or,
    /// without one, through the built-in HTTP client.
    pub(super) fn client(
        self,
        replicas: &[String],
        wire: Option<Transport>,
        seed: u64,
    ) -> Fallible<(Transport, Gate)> {
        let config = if self == Placement::Pool {
            let pool = Pool::new(replicas.iter().map(Replica::new));
            Config::builder().target(Target::new("vllm").pool(pool))
        } else {
            let single = |(nth, url): (usize, &String)| Target::new(format!("vllm-{nth}")).url(url);
            replicas
                .iter()
                .enumerate()
                .map(single)
                .fold(Config::builder(), |config, target| config.target(target))
        };
        let config = config.build()?;
        let gate = wire.map_or_else(|| Gate::new(config.clone()), |wire| Gate::over(config.clone(), wire))?;
        let client = Transport::new(gate.client());
        let mut rng = Rng::with_seed(seed);
        let mut turn = 0;
        let count = replicas.len().max(1);
        let choose = move || {
            turn += 1;
            if self == Placement::Random { rng.usize(..count) } else { turn % count }
        };
        let client = if self == Placement::Pool { client } else { to_chosen(client, replicas, choose) };
        Ok((client, gate))
    }
}
