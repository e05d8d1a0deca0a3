//! The waiting load of each lane, from which waits are predicted.

use crate::Lane;
use crate::budget::Need;

#[derive(Debug, Default)]
struct LaneLoad {
    waiting: usize,
    /// The weights of the tenants with waiting calls.
    weight: f64,
    need: [u64; 4],
}

/// The waiting load. See [the module](self).
#[derive(Debug, Default)]
pub(super) struct Load([LaneLoad; 3]);

impl Load {
    /// Records that a call was queued. `of_line` is the number of calls of its line afterwards.
    pub(super) fn on_enqueue(&mut self, lane: Lane, need: &Need, of_line: usize, weight: f64) {
        let load = &mut self.0[lane as usize];
        load.waiting += 1;
        if of_line == 1 {
            load.weight += weight;
        }
        load.need.iter_mut().zip(classes(need)).for_each(|(sum, part)| *sum += part);
    }

    /// Records that a call has left the queue. `of_line` is the number of calls of its line
    /// afterwards.
    pub(super) fn on_dequeue(&mut self, lane: Lane, need: &Need, of_line: usize, weight: f64) {
        let load = &mut self.0[lane as usize];
        load.waiting -= 1;
        if of_line == 0 {
            // Avoids accumulating rounding errors.
            load.weight = if load.waiting == 0 { 0.0 } else { load.weight - weight };
        }
        load.need.iter_mut().zip(classes(need)).for_each(|(sum, part)| *sum -= part);
    }

    pub(super) fn waiting(&self, lane: Lane) -> usize {
        self.0[lane as usize].waiting
    }

    /// Returns how many calls go before one with `own_ahead` calls of its line ahead: all calls of
    /// higher lanes, and the share of the other tenants in its own.
    pub(super) fn ahead(&self, lane: Lane, own_ahead: usize, weight: f64) -> usize {
        let higher: usize = self.0.iter().take(lane as usize).map(|load| load.waiting).sum();
        let load = &self.0[lane as usize];
        let turns = (own_ahead + 1) as f64 * load.weight.max(weight) / weight;
        higher + load.waiting.min((turns.ceil() as usize).saturating_sub(1))
    }

    /// Returns the mean need of a call of the lane and the higher ones.
    pub(super) fn mean(&self, lane: Lane) -> Need {
        let lanes = || self.0.iter().take(lane as usize + 1);
        let calls = lanes().map(|load| load.waiting as u64).sum::<u64>().max(1);
        let [tokens, input, output, kv] = std::array::from_fn(|kind| {
            let sum: u64 = lanes().filter_map(|load| load.need.get(kind)).sum();
            u32::try_from(sum / calls).unwrap_or(u32::MAX)
        });
        Need { tokens, input, output, kv }
    }
}

fn classes(need: &Need) -> [u64; 4] {
    [need.tokens, need.input, need.output, need.kv].map(u64::from)
}
