//! Worlds: what tests put in place of the network, or of time, for the whole process and for a while.
//!
//! Every gate of a binding starts anew from its configuration in each world ([`Worlds`]), so that no test sees another's cool-downs, queues or
//! counts, and is what it was once the world is left. On a call's way nothing is asked but whether one number is still the same.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tidegate::Transport;

/// The process's own world, which lasts.
const PROCESS_WORLD: u64 = 0;

/// Changes with every world entered or left, and every fork.
static EPOCH: AtomicU64 = AtomicU64::new(0);
static NEXT: AtomicU64 = AtomicU64::new(PROCESS_WORLD + 1);
// Innermost last. Locked only by threads attached to the interpreter, and never across a detach: a fork finds it unlocked.
static WORLDS: RwLock<Vec<World>> = RwLock::new(Vec::new());

struct World {
    number: u64,
    /// None: that of the world around.
    transport: Option<Transport>,
}

/// What to compare before anything else is asked.
pub fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// The epoch, and the number of the innermost world.
pub fn present() -> (u64, u64) {
    let worlds = WORLDS.read();
    (epoch(), worlds.last().map_or(PROCESS_WORLD, |world| world.number))
}

/// Whether that world was not left yet.
pub fn lasts(number: u64) -> bool {
    number == PROCESS_WORLD || WORLDS.read().iter().any(|world| world.number == number)
}

/// What is in place of the network.
pub fn transport() -> Option<Transport> {
    WORLDS.read().iter().rev().find_map(|world| world.transport.clone())
}

/// Whether something is in place of the network, and so of a client's own transport too.
pub fn is_faked() -> bool {
    transport().is_some()
}

/// Enters a world inside the present one.
pub fn enter(transport: Option<Transport>) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    WORLDS.write().push(World { number, transport });
    EPOCH.fetch_add(1, Ordering::Release);
    number
}

/// Leaves it, wherever it stands. Unknown numbers are ignored.
pub fn leave(number: u64) {
    let left = {
        let mut worlds = WORLDS.write();
        let at = worlds.iter().position(|world| world.number == number);
        at.map(|at| worlds.remove(at))
    };
    EPOCH.fetch_add(1, Ordering::Release);
    drop(left);
}

/// In the child of a fork: whatever was made before it is to be looked at again.
pub fn forked() {
    EPOCH.fetch_add(1, Ordering::Release);
}

/// Something that is made anew in each world: what it is in those that last, the present one last.
#[derive(Debug)]
pub struct Worlds<T> {
    epoch: u64,
    each: Vec<(u64, T)>,
}

impl<T> Worlds<T> {
    /// What it is in the present world.
    pub fn new(item: T) -> Self {
        let (epoch, number) = present();
        Self { epoch, each: vec![(number, item)] }
    }

    /// What it is in the present world; None where it was not asked since the world changed.
    pub fn present(&self) -> Option<&T> {
        self.each.last().filter(|_| self.epoch == epoch()).map(|(_, item)| item)
    }

    /// Whether it was made for the present world already, and is still good.
    pub fn knows(&self, good: impl Fn(&T) -> bool) -> bool {
        let (_, world) = present();
        self.each.iter().any(|(number, item)| *number == world && good(item))
    }

    /// Comes to the present world, with something fresh where it was not known. Returns what is over, to be dropped without any lock.
    pub fn change(&mut self, fresh: Option<T>, good: impl Fn(&T) -> bool) -> Vec<T> {
        let (epoch, world) = present();
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.each)
            .into_iter()
            .partition(|(number, item)| good(item) && lasts(*number));
        self.each = kept;
        let mut gone: Vec<T> = gone.into_iter().map(|(_, item)| item).collect();
        let known = self.each.iter().position(|(number, _)| *number == world).map(|at| self.each.remove(at));
        // Two threads may come at once: what the first one made is it.
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
