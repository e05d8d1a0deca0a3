//! Worlds: temporary replacements of the network, or of time, for the whole process.
//!
//! In each world, every gate of a binding starts anew from its configuration ([`Worlds`]), so tests
//! do not share cool-downs, queues or counts. When a world is left, the previous state is restored.
//! Outside of tests, a call only compares one number.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tidegate::Transport;

/// The world of the process, which is never left.
const PROCESS_WORLD: u64 = 0;

/// Changes whenever a world is entered or left, and at a fork.
static EPOCH: AtomicU64 = AtomicU64::new(0);
static NEXT: AtomicU64 = AtomicU64::new(PROCESS_WORLD + 1);
// Innermost world last. The lock is only taken by threads attached to the interpreter and never
// held across a detach, so a fork finds it unlocked.
static WORLDS: RwLock<Vec<World>> = RwLock::new(Vec::new());

struct World {
    number: u64,
    /// Transport that replaces the network, or `None` to use that of the enclosing world.
    transport: Option<Transport>,
}

/// Returns the current epoch, which changes whenever the current world may have changed.
pub fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// Returns the epoch and the number of the innermost world.
pub fn present() -> (u64, u64) {
    let worlds = WORLDS.read();
    (epoch(), worlds.last().map_or(PROCESS_WORLD, |world| world.number))
}

/// Returns `true` if a world has not been left.
pub fn lasts(number: u64) -> bool {
    number == PROCESS_WORLD || WORLDS.read().iter().any(|world| world.number == number)
}

/// Returns the transport that replaces the network, if any.
pub fn transport() -> Option<Transport> {
    WORLDS.read().iter().rev().find_map(|world| world.transport.clone())
}

/// Returns `true` if the network is replaced, and with it a client's own transport.
pub fn is_faked() -> bool {
    transport().is_some()
}

/// Enters a world inside the current one, and returns its number.
pub fn enter(transport: Option<Transport>) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    WORLDS.write().push(World { number, transport });
    EPOCH.fetch_add(1, Ordering::Release);
    number
}

/// Leaves a world, which need not be the innermost one. Unknown numbers are ignored.
pub fn leave(number: u64) {
    let left = {
        let mut worlds = WORLDS.write();
        let at = worlds.iter().position(|world| world.number == number);
        at.map(|at| worlds.remove(at))
    };
    EPOCH.fetch_add(1, Ordering::Release);
    drop(left);
}

/// Marks everything as outdated in the child of a fork.
pub fn forked() {
    EPOCH.fetch_add(1, Ordering::Release);
}

/// An item with a separate value in each world. The value of the current world is last.
#[derive(Debug)]
pub struct Worlds<T> {
    epoch: u64,
    each: Vec<(u64, T)>,
}

impl<T> Worlds<T> {
    /// Returns a holder with the value for the current world.
    pub fn new(item: T) -> Self {
        let (epoch, number) = present();
        Self { epoch, each: vec![(number, item)] }
    }

    /// Returns the value for the current world, or `None` if the world has changed since the last
    /// call of [`Worlds::change`].
    pub fn present(&self) -> Option<&T> {
        self.each.last().filter(|_| self.epoch == epoch()).map(|(_, item)| item)
    }

    /// Returns `true` if the current world has a value that is still valid.
    pub fn knows(&self, good: impl Fn(&T) -> bool) -> bool {
        let (_, world) = present();
        self.each.iter().any(|(number, item)| *number == world && good(item))
    }

    /// Switches to the current world, with `fresh` if it has no value yet. Returns outdated values,
    /// which must be dropped without holding a lock.
    pub fn change(&mut self, fresh: Option<T>, good: impl Fn(&T) -> bool) -> Vec<T> {
        let (epoch, world) = present();
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.each)
            .into_iter()
            .partition(|(number, item)| good(item) && lasts(*number));
        self.each = kept;
        let mut gone: Vec<T> = gone.into_iter().map(|(_, item)| item).collect();
        let known = self.each.iter().position(|(number, _)| *number == world).map(|at| self.each.remove(at));
        // If two threads arrive at once, the value of the first one is used.
        let it = match known {
            Some(known) => {
                gone.extend(fresh);
                Some(known)
            }
            None => fresh.map(|item| (world, item)),
        };
        if let Some(it) = it {
            self.each.push(it);
            self.epoch = epoch;
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come(
        worlds: &mut Worlds<&'static str>,
        fresh: &'static str,
    ) -> (Option<&'static str>, Vec<&'static str>) {
        let fresh = (!worlds.knows(|_| true)).then_some(fresh);
        let gone = worlds.change(fresh, |_| true);
        (worlds.present().copied(), gone)
    }

    #[test]
    fn item_is_new_in_each_world_and_restored_afterwards() {
        let mut worlds = Worlds::new("own");
        let outer = enter(None);
        assert_eq!(worlds.present(), None, "it was not asked since");
        assert_eq!(come(&mut worlds, "outer"), (Some("outer"), vec![]));
        let inner = enter(None);
        assert_eq!(come(&mut worlds, "inner"), (Some("inner"), vec![]));
        leave(inner);
        assert_eq!(come(&mut worlds, "never"), (Some("outer"), vec!["inner"]));
        leave(outer);
        let other = enter(None);
        assert_eq!(come(&mut worlds, "other"), (Some("other"), vec!["outer"]));
        leave(other);
        assert_eq!(come(&mut worlds, "never"), (Some("own"), vec!["other"]));
        forked();
        assert_eq!(worlds.present(), None);
        let gone = worlds.change(Some("child"), |item| *item != "own");
        assert_eq!((worlds.present(), gone), (Some(&"child"), vec!["own"]));
    }
}
