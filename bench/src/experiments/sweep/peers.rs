//! The peers of `sweep`: two other methods to find a cap. They make calls without a gate, from as
//! many callers as the cap. Each caller makes its next call when its last one has ended.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate::Transport;
use tokio::time::Instant;

use super::drawn_calls;
use super::kneedle;
use super::server::{Running, Server};
use crate::client_call::call;
use crate::trace_lengths::Work;
use crate::{Fallible, virtual_time};

/// A method to find a cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Measures 16 caps from 1 to 128 at equal distances with 100 calls each, and finds the knee
    /// with Kneedle, as results of load generators are usually read.
    Linear,
    /// Measures the caps 1, 2, 4 and so on until a call fails, and takes the best of those before.
    Doubling,
}

/// The answer of a method, and what it cost: the number of calls, and virtual seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) cap: usize,
    pub(crate) calls: usize,
    pub(crate) seconds: f64,
}

/// The largest cap that a method tries.
const MOST: usize = 128;

impl Peer {
    pub(crate) const ALL: [Peer; 2] = [Peer::Linear, Peer::Doubling];

    /// Returns the name of the method in figures and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::Linear => "linear sweep with Kneedle",
            Peer::Doubling => "doubling until an error",
        }
    }

    /// Runs the method on a server, and returns its answer.
    pub(crate) fn play(self, server: &Server, works: &Arc<[Work]>, seed: u64) -> Fallible<Found> {
        virtual_time::run(seed, async {
            let Running { transport, .. } = server.start()?;
            let mut probe = Probe { transport, works: works.clone(), calls: 0, began: Instant::now() };
            let cap = match self {
                Peer::Linear => linear(&mut probe).await,
                Peer::Doubling => doubling(&mut probe).await,
            };
            Ok(Found { cap, calls: probe.calls, seconds: probe.began.elapsed().as_secs_f64() })
        })
    }
}

async fn linear(probe: &mut Probe) -> usize {
    let mut points = Vec::new();
    for step in 0..16 {
        let cap = 1 + ((MOST - 1) * step + 7) / 15;
        points.push((cap as f64, probe.inspect(cap, 100).await.rate));
    }
    let best = points.iter().enumerate().max_by(|(_, a), (_, b)| a.1.total_cmp(&b.1));
    let knee = kneedle::knee(&points, 1.0).or(best.map(|(place, _)| place));
    knee.and_then(|place| points.get(place)).map_or(1, |(cap, _)| *cap as usize)
}

async fn doubling(probe: &mut Probe) -> usize {
    let mut best = (1, 0.0);
    let mut cap = 1;
    while cap <= MOST {
        let seen = probe.inspect(cap, (4 * cap).max(50)).await;
        if seen.failed > 0 {
            break;
        }
        if seen.rate > best.1 {
            best = (cap, seen.rate);
        }
        cap *= 2;
    }
    best.0
}

struct Probe {
    transport: Transport,
    works: Arc<[Work]>,
    calls: usize,
    began: Instant,
}

struct Seen {
    /// Completed calls per second.
    rate: f64,
    failed: usize,
}

impl Probe {
    async fn inspect(&mut self, cap: usize, calls: usize) -> Seen {
        let began = Instant::now();
        let (next, good) = (Cell::new(0), Cell::new(0_u32));
        let worker = async || {
            while next.get() < calls {
                let work = self.works.get(next.get() % self.works.len().max(1));
                next.set(next.get() + 1);
                let Some(work) = work else { return };
                let seen = call(self.transport.clone(), drawn_calls::request(*work, true)).await;
                good.set(good.get() + u32::from(seen.ok));
            }
        };
        join_all((0..cap).map(|_| worker())).await;
        self.calls += calls;
        let took = began.elapsed().max(Duration::from_millis(1)).as_secs_f64();
        Seen { rate: f64::from(good.get()) / took, failed: calls - good.get() as usize }
    }
}
