//! Limits how many items of a batch run at the same time: enough to keep the gate busy, and few
//! more.
//!
//! An item (of `Gate.map`, or a line of a file) makes one or more calls and does its own work
//! before and after them. Therefore the right number of running items does not follow from any
//! configured cap. The window is controlled by the number of calls of the batch that wait in the
//! gate ([`Waits`]) instead. The goal is one waiting call for each four running items that do not
//! wait, and at least 8 waiting calls. About that many slots may become free before the batch
//! begins its next items.
//!
//! - If fewer calls wait than the goal, the window grows by the number of calls admitted since it
//!   last grew, but at most by the difference to the goal. If slots are free, the window doubles
//!   within the time that a call takes to reach the gate, not within the duration of a call.
//! - If more than twice the goal wait, the window shrinks by one for every four items that end. It
//!   shrinks slowly, because calls reach the gate in waves if the work before them is long.
//! - If the number of waiting calls also exceeds twice the sum of the goal and the items that do
//!   not wait, no item begins: the cap has fallen, or the gate is blocked.
//! - The window does not grow for items that make no calls, nor in modes `observe` and `off`, in
//!   which no call waits.
//!
//! Pure: all inputs are arguments.

use crate::context::Waits;

/// Minimum size of the window in items, and minimum goal for the number of waiting calls.
const MIN_SIZE: usize = 8;
/// The goal is one waiting call for this many running items that do not wait.
const ITEMS_PER_WAITING: usize = 4;
/// Number of items that must end, while too many calls wait, before the window shrinks by one item.
const ENDS_PER_SHRINK: usize = 4;

/// Controls how many items of one batch run at the same time. The window starts with 8 items.
///
/// ```
/// use tidegate::{Waits, ItemWindow};
///
/// let mut window = ItemWindow::new(100);
/// assert!(window.begin(Waits::default()), "the first item begins at once");
/// window.end();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ItemWindow {
    /// Maximum number of items of the batch that may run at the same time now.
    size: usize,
    max_size: usize,
    running: usize,
    /// Number of items that ended while too many calls waited and that have not been used to shrink
    /// the window yet. The window shrinks by one for each [`ENDS_PER_SHRINK`] of them.
    ended: usize,
    /// Value of [`Waits::admitted`] when the window last grew.
    counted: u64,
    /// What has to happen before [`ItemWindow::begin`] can succeed again after it returned `false`.
    retry_when: BeginCondition,
}

/// A condition under which [`ItemWindow::begin`] may succeed after it returned `false`, although no
/// item has ended.
#[derive(Clone, Copy, Debug)]
enum BeginCondition {
    /// The total number of admitted calls of the batch exceeds this number.
    Admitted(u64),
    /// The number of waiting calls of the batch is below this number.
    Waiting(usize),
    /// No condition: the window has its maximum size, so another item can begin only after one has
    /// ended.
    Never,
}

impl ItemWindow {
    /// Creates a window of at most `max_size` items. 0 counts as 1.
    pub fn new(max_size: usize) -> Self {
        let max_size = max_size.max(1);
        Self {
            size: MIN_SIZE.min(max_size),
            max_size,
            running: 0,
            ended: 0,
            counted: 0,
            retry_when: BeginCondition::Admitted(0),
        }
    }

    /// Adjusts the size of the window, and begins one more item if fewer items run than the window
    /// then allows. Returns `true` if the item begins; the caller must then run it, and call
    /// [`ItemWindow::end`] when it ends.
    ///
    /// `waits` are the counters of the calls of this batch only.
    pub fn begin(&mut self, waits: Waits) -> bool {
        let others = self.running.saturating_sub(waits.waiting);
        let goal = waiting_goal(others);
        let size = self.max_size.min(match waits.waiting {
            waiting if waiting > 2 * (others + goal) => self.running,
            waiting if waiting > 2 * goal => self.size.saturating_sub(self.ended / ENDS_PER_SHRINK),
            waiting if waiting < goal && self.running >= self.size => {
                let admitted =
                    usize::try_from(waits.admitted.saturating_sub(self.counted)).unwrap_or(usize::MAX);
                self.counted = waits.admitted;
                self.size.saturating_add(admitted.min(goal - waiting))
            }
            _ => self.size,
        });
        self.ended = if waits.waiting > 2 * goal { self.ended % ENDS_PER_SHRINK } else { 0 };
        self.size = size.max(MIN_SIZE.min(self.max_size));
        self.retry_when = match waits.waiting {
            _ if self.size >= self.max_size => BeginCondition::Never,
            waiting if waiting < goal => BeginCondition::Admitted(self.counted),
            _ => BeginCondition::Waiting(goal / 2),
        };
        let begins = self.running < self.size;
        self.running += usize::from(begins);
        begins
    }

    /// Records that a running item has ended, whether it succeeded or failed.
    pub fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
        self.ended += 1;
    }

    /// Returns `true` if [`begin`](ItemWindow::begin) may succeed again with the counters `waits`.
    /// Call this after `begin` has returned `false`, to find out when to retry although no item has
    /// ended since.
    pub fn may_begin_now(&self, waits: Waits) -> bool {
        match self.retry_when {
            BeginCondition::Admitted(count) => waits.admitted > count,
            BeginCondition::Waiting(few) => waits.waiting < few,
            BeginCondition::Never => false,
        }
    }
}

/// Returns the goal for the number of calls that wait in the gate, if `others` running items do not
/// wait.
fn waiting_goal(others: usize) -> usize {
    (others / ITEMS_PER_WAITING).max(MIN_SIZE)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A simulated batch with infinitely many items, at a gate with the limit `cap`. Time is
    /// counted in turns. The call of an item reaches the gate `before` turns after the item begins,
    /// and holds its slot for `call` turns.
    struct Batch {
        window: ItemWindow,
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
            let window = ItemWindow::new(most);
            let (coming, slots) = (VecDeque::new(), VecDeque::new());
            Self { window, cap, before, call, coming, waiting: 0, slots, admitted: 0, now: 0 }
        }

        fn running(&self) -> usize {
            self.coming.len() + self.waiting + self.slots.len()
        }

        /// Advances the simulation by one turn, then begins as many items as allowed. Returns the
        /// number of free slots.
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

        /// Advances the simulation by `count` turns. Returns the mean number of free slots and the
        /// maximum number of waiting calls.
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
    fn items_without_calls_do_not_grow_the_window() {
        let mut window = ItemWindow::new(1_000);
        assert_eq!((0..1_000).filter(|_| window.begin(Waits::default())).count(), 8);
        assert!(!window.may_begin_now(Waits::default()));
        window.end();
        assert!(window.begin(Waits::default()) && !window.begin(Waits::default()));
    }

    #[test]
    fn no_item_begins_while_no_call_is_admitted() {
        let mut batch = Batch::new(0, 1, 100, 4_096);
        batch.turns(10_000);
        assert_eq!(batch.running(), 8);
        batch.cap = 64;
        assert!(batch.window.may_begin_now(Waits { waiting: 0, admitted: 8 }));
        batch.turns(50);
        assert_eq!(batch.slots.len(), 64);
    }

    proptest! {
        #[test]
        fn window_keeps_slots_in_use(cap in 1_usize..300, call in 20_usize..200, before in 1_usize..100) {
            let mut batch = Batch::new(cap, before, call, 10_000);
            batch.turns(20 * (before + call));
            let (free, waited) = batch.turns(10 * (before + call));
            prop_assert!(free <= 0.01 * cap as f64, "{free} of {cap} slots idle");
            let others = batch.running() - batch.waiting;
            prop_assert!(waited <= 2 * (others + waiting_goal(others)), "{waited} waited, beside {others}");
        }

        #[test]
        fn queue_stays_short_if_items_are_mostly_calls(cap in 1_usize..300, call in 20_usize..200) {
            let mut batch = Batch::new(cap, 1, call, 10_000);
            batch.turns(20 * call);
            let (_, waited) = batch.turns(10 * call);
            prop_assert!(waited <= 2 * waiting_goal(cap) + MIN_SIZE, "{waited} waited for {cap} slots");
        }

        #[test]
        fn window_follows_a_changed_cap(from in 1_usize..300, to in 1_usize..300, call in 20_usize..100) {
            let mut batch = Batch::new(from, 1, call, 10_000);
            batch.turns(20 * call);
            batch.cap = to;
            let ends = from * 4 * ENDS_PER_SHRINK;
            batch.turns(20 * call + ends * call / to);
            let (free, waited) = batch.turns(10 * call);
            prop_assert!(free <= 0.01 * to as f64, "{free} of {to} slots idle");
            prop_assert!(waited <= 3 * waiting_goal(to) + MIN_SIZE, "{waited} wait for {to}");
        }

        #[test]
        fn window_never_exceeds_its_maximum(most in 1_usize..50, cap in 1_usize..300, before in 1_usize..50) {
            let mut batch = Batch::new(cap, before, 50, most);
            for _ in 0..1_000 {
                batch.turn();
                prop_assert!(batch.running() <= most);
            }
            prop_assert!(batch.running() == most || batch.waiting > 0);
        }
    }
}
