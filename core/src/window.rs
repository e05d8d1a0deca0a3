//! How many things of a batch are under way at once: enough that the gate always has a call to let through, and hardly more.
//!
//! Each thing (an item of `Gate.map`, a line of a file) makes a call or several, and does work of its own before and after. So how many must be under way does not follow from
//! any cap, and caps move. What can be seen is how many of the batch's own calls wait in the gate ([`Waits`]). *Enough* wait where they are a quarter of what does not wait, and 8 at
//! least: as many as may end before whoever feeds the batch has its next turn.
//!
//! - Fewer: it grows by what was admitted meanwhile, and never by more than is missing. So where slots are free it doubles within the time in which a call comes to the door, and
//!   not in that of a whole call; work before the call slows the growth down as much as it delays the news.
//! - More than twice enough: it shrinks, by one for four that end. Not faster, since calls come to the door in waves where the work before them takes long: a window that follows
//!   each wave starves the gate behind it.
//! - More than twice what does not wait, too: a cap fell, or the gate stands still. Nothing begins until that is over.
//! - Things that never come to the gate do not let it grow: there is nothing that would hold them back. Nor does a gate in which nobody waits, in mode `observe` or `off`.
//!
//! Pure: it is told, and answers.

use crate::context::Waits;

/// What always may be under way, and what waits at least in the end.
const LEAST: usize = 8;
/// What does not wait, over what should.
const SHARE: usize = 4;
/// So many end for each by which it shrinks.
const ENDS: usize = 4;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    size: usize,
    most: usize,
    running: usize,
    /// How many ended while too many waited, and count for nothing yet.
    ended: usize,
    /// Of what was admitted, what it has grown by or could have.
    seen: u64,
    again: Again,
}

/// When another answer may come of asking again, though nothing has ended.
#[derive(Clone, Copy, Debug)]
enum Again {
    /// More were admitted than these.
    Admitted(u64),
    /// Fewer wait than these.
    Waiting(usize),
    /// Never: it is as wide as it may be.
    Never,
}

impl Window {
    /// One that never lets more than `most` (at least 1) be under way.
    pub fn new(most: usize) -> Self {
        let most = most.max(1);
        Self { size: LEAST.min(most), most, running: 0, ended: 0, seen: 0, again: Again::Admitted(0) }
    }

    /// Begins one more, if one may. `waits` are the batch's own.
    pub fn begin(&mut self, waits: Waits) -> bool {
        let others = self.running.saturating_sub(waits.waiting);
        let enough = enough(others);
        let room = self.most.min(match waits.waiting {
            waiting if waiting > 2 * (others + enough) => self.running,
            waiting if waiting > 2 * enough => self.size.saturating_sub(self.ended / ENDS),
            waiting if waiting < enough && self.running >= self.size => {
                let news = usize::try_from(waits.admitted.saturating_sub(self.seen)).unwrap_or(usize::MAX);
                self.seen = waits.admitted;
                self.size.saturating_add(news.min(enough - waiting))
            }
            _ => self.size,
        });
        self.ended = if waits.waiting > 2 * enough { self.ended % ENDS } else { 0 };
        self.size = room.max(LEAST.min(self.most));
        self.again = match waits.waiting {
            _ if self.size >= self.most => Again::Never,
            waiting if waiting < enough => Again::Admitted(self.seen),
            _ => Again::Waiting(enough / 2),
        };
        let begins = self.running < self.size;
        self.running += usize::from(begins);
        begins
    }

    /// One that had begun has ended.
    pub fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
        self.ended += 1;
    }

    /// Whether it is worth asking again, after a no, though nothing has ended.
    pub fn is_news(&self, waits: Waits) -> bool {
        match self.again {
            Again::Admitted(seen) => waits.admitted > seen,
            Again::Waiting(few) => waits.waiting < few,
            Again::Never => false,
        }
    }
}

/// How many should wait, beside so many that do not.
fn enough(others: usize) -> usize {
    (others / SHARE).max(LEAST)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A batch that has no end, at a gate with a cap: `before` turns until a thing's call is at the door, `call` turns in its slot.
    struct Batch {
        window: Window,
        cap: usize,
        before: usize,
        call: usize,
        coming: VecDeque<usize>,
        waiting: usize,
        slots: VecDeque<usize>,
        admitted: u64,
        now: usize,
    }

    impl Batch {
        fn new(cap: usize, before: usize, call: usize, most: usize) -> Self {
            let window = Window::new(most);
            let (coming, slots) = (VecDeque::new(), VecDeque::new());
            Self { window, cap, before, call, coming, waiting: 0, slots, admitted: 0, now: 0 }
        }

        fn running(&self) -> usize {
            self.coming.len() + self.waiting + self.slots.len()
        }

        /// What is due happens; then as many begin as may. Returns the slots that are free although the batch has no end.
        fn turn(&mut self) -> usize {
            self.now += 1;
            while self.slots.front().is_some_and(|end| *end <= self.now) {
                self.slots.pop_front();
                self.window.end();
            }
            while self.coming.front().is_some_and(|at| *at <= self.now) {
                self.coming.pop_front();
                self.waiting += 1;
            }
            while self.slots.len() < self.cap && self.waiting > 0 {
                self.waiting -= 1;
                self.admitted += 1;
                self.slots.push_back(self.now + self.call);
            }
            let free = self.cap.saturating_sub(self.slots.len());
            let waits = Waits { waiting: self.waiting, admitted: self.admitted };
            while self.window.begin(waits) {
                self.coming.push_back(self.now + self.before);
            }
            free
        }

        /// The mean of free slots, and the most that waited, in so many turns.
        fn turns(&mut self, count: usize) -> (f64, usize) {
            let (mut free, mut most) = (0, 0);
            for _ in 0..count {
                free += self.turn();
                most = most.max(self.waiting);
            }
            (free as f64 / count as f64, most)
        }
    }

    #[test]
    fn slots_are_full_within_the_first_call() {
        let mut batch = Batch::new(256, 1, 1_000, 4_096);
        batch.turns(50);
        assert_eq!(batch.slots.len(), 256, "in the time of one call in twenty");
        batch.turns(3_000);
        assert!((64..=128).contains(&batch.waiting), "{} wait", batch.waiting);
    }

    #[test]
    fn what_never_comes_to_the_gate_does_not_widen_it() {
        let mut window = Window::new(1_000);
        assert_eq!((0..1_000).filter(|_| window.begin(Waits::default())).count(), 8);
        assert!(!window.is_news(Waits::default()));
        window.end();
        assert!(window.begin(Waits::default()) && !window.begin(Waits::default()));
    }

    #[test]
    fn a_stopped_gate_is_not_fed_and_is_when_it_opens() {
        let mut batch = Batch::new(0, 1, 100, 4_096);
        batch.turns(10_000);
        assert_eq!(batch.running(), 8);
        batch.cap = 64;
        assert!(batch.window.is_news(Waits { waiting: 0, admitted: 8 }));
        batch.turns(50);
        assert_eq!(batch.slots.len(), 64);
    }

    proptest! {
        #[test]
        fn the_gate_never_starves(cap in 1_usize..300, call in 20_usize..200, before in 1_usize..100) {
            let mut batch = Batch::new(cap, before, call, 10_000);
            batch.turns(20 * (before + call));
            let (free, waited) = batch.turns(10 * (before + call));
            prop_assert!(free <= 0.01 * cap as f64, "{free} of {cap} slots idle");
            let others = batch.running() - batch.waiting;
            prop_assert!(waited <= 2 * (others + enough(others)), "{waited} waited, beside {others}");
        }

        #[test]
        fn its_queue_is_short_where_calls_are_most_of_the_work(cap in 1_usize..300, call in 20_usize..200) {
            let mut batch = Batch::new(cap, 1, call, 10_000);
            batch.turns(20 * call);
            let (_, waited) = batch.turns(10 * call);
            prop_assert!(waited <= 2 * enough(cap) + LEAST, "{waited} waited for {cap} slots");
        }

        #[test]
        fn it_follows_a_cap_that_moves(from in 1_usize..300, to in 1_usize..300, call in 20_usize..100) {
            let mut batch = Batch::new(from, 1, call, 10_000);
            batch.turns(20 * call);
            batch.cap = to;
            let ends = from * 4 * ENDS;
            batch.turns(20 * call + ends * call / to);
            let (free, waited) = batch.turns(10 * call);
            prop_assert!(free <= 0.01 * to as f64, "{free} of {to} slots idle");
            prop_assert!(waited <= 3 * enough(to), "{waited} wait for {to}");
        }

        #[test]
        fn never_more_than_the_most(most in 1_usize..50, cap in 1_usize..300, before in 1_usize..50) {
            let mut batch = Batch::new(cap, before, 50, most);
            for _ in 0..1_000 {
                batch.turn();
                prop_assert!(batch.running() <= most);
            }
            prop_assert!(batch.running() == most || batch.waiting > 0);
        }
    }
}
