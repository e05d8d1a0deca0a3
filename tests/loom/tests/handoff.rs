//! Loom tests of the hand-over of a slot to a waiting call that may give up at the same moment.
//! Loom runs them in every interleaving of the threads.
//!
//! The tests model the part of `admission/driver.rs` that keeps a counter of slots and a queue of
//! calls behind one lock. A thread that releases a slot removes the next call from the queue while
//! it holds the lock, and sends the slot to the call after it has released the lock. The call can
//! give up in between. The tests check that the counter is exact at the end, that no slot is lost
//! or duplicated, and that each waiting call is woken.

#[path = "../../../core/tidegate/src/admission/handoff.rs"]
#[allow(unreachable_pub, missing_docs)]
mod handoff;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll};

use handoff::{Receiver, Sender, handoff};
use loom::future::block_on;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// An acquired slot. Panics if it is dropped without having been returned, because the slot would
/// be lost.
struct Slot {
    returned: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        assert!(self.returned || std::thread::panicking(), "a slot was lost");
    }
}

struct Inner {
    free: usize,
    line: VecDeque<(u32, Sender<Slot>)>,
}

#[derive(Clone)]
struct Door(Arc<Mutex<Inner>>);

impl Door {
    fn new(free: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner { free, line: VecDeque::new() })))
    }

    fn with<R>(&self, act: impl FnOnce(&mut Inner) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn try_take(&self) -> Option<Slot> {
        self.with(|inner| {
            inner.free = inner.free.checked_sub(1)?;
            Some(Slot { returned: false })
        })
    }

    fn queue(&self, number: u32) -> Receiver<Slot> {
        let (sender, receiver) = handoff();
        self.with(|inner| inner.line.push_back((number, sender)));
        receiver
    }

    /// Releases a slot: sends it to the next waiting call or, if no call waits, adds it to the
    /// counter of free slots. Models `Admission::release`.
    fn release(&self, mut slot: Slot) {
        loop {
            slot.returned = true;
            drop(slot);
            let next = self.with(|inner| {
                inner.free += 1;
                let (_, sender) = inner.line.pop_front()?;
                inner.free -= 1;
                Some(sender)
            });
            let Some(sender) = next else { return };
            match sender.send(Slot { returned: false }) {
                Ok(()) => return,
                // The caller gave up, so the next call gets the slot.
                Err(unused) => slot = unused,
            }
        }
    }

    /// Ends the wait of a call: removes the call with this number from the queue or, if a slot was
    /// sent to it already, releases the slot. Models the drop of a `QueueEntry`.
    fn leave(&self, number: u32, mut receiver: Receiver<Slot>) {
        match receiver.close() {
            Some(slot) => self.release(slot),
            None => self.with(|inner| inner.line.retain(|(other, _)| *other != number)),
        }
    }

    fn assert_settled(&self, free: usize) {
        self.with(|inner| {
            assert_eq!(inner.free, free, "the count is exact");
            assert!(inner.line.is_empty(), "nobody is left behind");
        });
    }
}

/// Polls the receiver once with a waker that does nothing. Returns the slot if it has arrived.
fn poll_once(receiver: &mut Receiver<Slot>) -> Option<Slot> {
    let mut context = Context::from_waker(std::task::Waker::noop());
    match Pin::new(receiver).poll(&mut context) {
        Poll::Ready(slot) => Some(slot),
        Poll::Pending => None,
    }
}

#[test]
fn a_grant_that_races_with_giving_up_is_neither_lost_nor_doubled() {
    loom::model(|| {
        let door = Door::new(1);
        let held = door.try_take().expect("one is free");
        let mut receiver = door.queue(1);
        let holder = thread::spawn({
            let door = door.clone();
            move || door.release(held)
        });
        match poll_once(&mut receiver) {
            Some(slot) => {
                door.leave(1, receiver);
                door.release(slot);
            }
            None => door.leave(1, receiver),
        }
        holder.join().expect("no panic");
        door.assert_settled(1);
    });
}

#[test]
fn a_slot_refused_by_who_has_gone_reaches_who_waits() {
    loom::model(|| {
        let door = Door::new(1);
        let held = door.try_take().expect("one is free");
        let gives_up = door.queue(1);
        let stays = door.queue(2);
        let holder = thread::spawn({
            let door = door.clone();
            move || door.release(held)
        });
        let leaver = thread::spawn({
            let door = door.clone();
            move || door.leave(1, gives_up)
        });
        // A lost wake-up would be a deadlock, which loom reports.
        let slot = block_on(stays);
        door.release(slot);
        holder.join().expect("no panic");
        leaver.join().expect("no panic");
        door.assert_settled(1);
    });
}

/// Two slots are released while one of two waiting calls gives up. Loom runs the interleavings
/// with at most two preemptions, because all of them would take minutes.
#[test]
fn two_releases_and_two_that_wait() {
    let mut bounded = loom::model::Builder::new();
    bounded.preemption_bound = Some(2);
    bounded.check(|| {
        let door = Door::new(2);
        let held = [(); 2].map(|()| door.try_take().expect("two are free"));
        let first = door.queue(1);
        let second = door.queue(2);
        let holders = held.map(|slot| {
            let door = door.clone();
            thread::spawn(move || door.release(slot))
        });
        door.leave(1, first);
        door.release(block_on(second));
        for holder in holders {
            holder.join().expect("no panic");
        }
        door.assert_settled(2);
    });
}

/// If a receiver is polled first with one waker and then with another, sending the slot wakes the
/// second one.
#[test]
fn the_last_waker_is_woken() {
    loom::model(|| {
        let (sender, mut receiver) = handoff();
        assert!(poll_once(&mut receiver).is_none());
        let given = Arc::new(AtomicBool::new(false));
        let other = thread::spawn({
            let given = given.clone();
            move || {
                given.store(true, Ordering::Release);
                assert!(sender.send(Slot { returned: false }).is_ok());
            }
        });
        let mut slot = block_on(receiver);
        assert!(given.load(Ordering::Acquire));
        slot.returned = true;
        other.join().expect("no panic");
    });
}
