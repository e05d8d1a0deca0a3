//! Test scopes, called *worlds*, in which tests replace the network of the whole process.
//!
//! A test *enters* a world and *leaves* it at its end. Worlds can be nested, and the *current*
//! world is the innermost. In each world, every gate of a binding starts again from its
//! configuration ([`Worlds`]), so that tests share no cool-downs, queues or counts. Such a gate
//! shares no limits with other processes ([`config_in_world`]). After a world is left, the gates of
//! the enclosing world are used again. Outside of tests, this costs each call one comparison of two
//! numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tidegate::config::ShareStore;
use tidegate::{Config, Transport};

/// Number of the world in which the process starts, and which is never left. A world is a scope in
/// which tests may replace the network.
const PROCESS_WORLD: u64 = 0;

/// The epoch: a number that changes whenever a test world is entered or left.
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

/// Returns the current epoch. As long as the epoch is unchanged, the current world is unchanged.
pub fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// Returns the current epoch, followed by the number of the current world.
pub fn present() -> (u64, u64) {
    let worlds = WORLDS.read();
    (epoch(), worlds.last().map_or(PROCESS_WORLD, |world| world.number))
}

/// Returns `true` if the world with this number has not been left.
pub fn is_active(number: u64) -> bool {
    number == PROCESS_WORLD || WORLDS.read().iter().any(|world| world.number == number)
}

/// Returns the transport that replaces the network in the current world. Returns `None` if requests
/// use the network.
pub fn transport() -> Option<Transport> {
    WORLDS.read().iter().rev().find_map(|world| world.transport.clone())
}

/// Returns `true` if a transport replaces the network in the current world. That transport then
/// also replaces the custom transports of clients.
pub fn is_faked() -> bool {
    transport().is_some()
}

/// Returns the configuration with which to open a gate in the current world. In a test world, this
/// is `config` without a store of shared limits, because the processes that use the store have
/// another network and another time.
///
/// A configuration that a gate rejects because its limits cannot be shared is returned unchanged.
pub fn config_in_world(config: &Config) -> Config {
    let mut config = config.clone();
    let (_, world) = present();
    let is_rejected = config.share.is_on() && config.unshareable().is_some();
    if world != PROCESS_WORLD && !is_rejected {
        config.share.store = ShareStore::Off;
    }
    config
}

/// Enters a new world (a scope in which the network may be replaced) inside the current one, and
/// returns its number. `transport` replaces the network; with `None`, the enclosing world's
/// transport stays in use.
pub fn enter(transport: Option<Transport>) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    WORLDS.write().push(World { number, transport });
    EPOCH.fetch_add(1, Ordering::Release);
    number
}

/// Leaves the world with this number, even if worlds inside it have not been left. Does nothing
/// except change the epoch if no such world is active.
pub fn leave(number: u64) {
    let left = {
        let mut worlds = WORLDS.write();
        let at = worlds.iter().position(|world| world.number == number);
        at.map(|at| worlds.remove(at))
    };
    EPOCH.fetch_add(1, Ordering::Release);
    drop(left);
}

/// A separate value, for example a gate, for each active world (a scope in which tests may replace
/// the network). Reading it costs one comparison unless the epoch has changed.
#[derive(Debug)]
pub struct Worlds<T> {
    epoch: u64,
    values: Vec<(u64, T)>,
}

impl<T> Worlds<T> {
    /// Returns a set of values that contains `item` for the current world only.
    pub fn new(item: T) -> Self {
        let (epoch, number) = present();
        Self { epoch, values: vec![(number, item)] }
    }

    /// Returns the value of the current world. Returns `None` if the epoch has changed since the
    /// last call of [`Worlds::switch_world`], even if the current world has a value.
    pub fn present(&self) -> Option<&T> {
        self.values.last().filter(|_| self.epoch == epoch()).map(|(_, item)| item)
    }

    /// Returns `true` if the current world has a value for which `is_valid` returns `true`.
    pub fn has_value(&self, is_valid: impl Fn(&T) -> bool) -> bool {
        let (_, world) = present();
        self.values.iter().any(|(number, item)| *number == world && is_valid(item))
    }

    /// Makes [`Worlds::present`] return the value of the current world. If the world has no valid
    /// value, `fresh` becomes its value; if `fresh` is `None`, the world then has none.
    ///
    /// Returns the values to drop: those of worlds that were left, those for which `is_valid`
    /// returned `false`, and an unused `fresh`. Drop them without holding a lock.
    pub fn switch_world(&mut self, fresh: Option<T>, is_valid: impl Fn(&T) -> bool) -> Vec<T> {
        let (epoch, world) = present();
        let (kept, outdated): (Vec<_>, Vec<_>) = std::mem::take(&mut self.values)
            .into_iter()
            .partition(|(number, item)| is_valid(item) && is_active(*number));
        self.values = kept;
        let mut outdated: Vec<T> = outdated.into_iter().map(|(_, item)| item).collect();
        let known =
            self.values.iter().position(|(number, _)| *number == world).map(|at| self.values.remove(at));
        // If two threads arrive at once, the value of the first one is used.
        let current = match known {
            Some(known) => {
                outdated.extend(fresh);
                Some(known)
            }
            None => fresh.map(|item| (world, item)),
        };
        if let Some(current) = current {
            self.values.push(current);
            self.epoch = epoch;
        }
        outdated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter_or_create(
        worlds: &mut Worlds<&'static str>,
        fresh: &'static str,
    ) -> (Option<&'static str>, Vec<&'static str>) {
        let fresh = (!worlds.has_value(|_| true)).then_some(fresh);
        let outdated = worlds.switch_world(fresh, |_| true);
        (worlds.present().copied(), outdated)
    }

    #[test]
    fn item_is_new_in_each_world_and_restored_afterwards() {
        let mut worlds = Worlds::new("own");
        let outer = enter(None);
        assert_eq!(worlds.present(), None, "it was not asked since");
        assert_eq!(enter_or_create(&mut worlds, "outer"), (Some("outer"), vec![]));
        let inner = enter(None);
        assert_eq!(enter_or_create(&mut worlds, "inner"), (Some("inner"), vec![]));
        leave(inner);
        assert_eq!(enter_or_create(&mut worlds, "never"), (Some("outer"), vec!["inner"]));
        leave(outer);
        let other = enter(None);
        assert_eq!(enter_or_create(&mut worlds, "other"), (Some("other"), vec!["outer"]));
        leave(other);
        assert_eq!(enter_or_create(&mut worlds, "never"), (Some("own"), vec!["other"]));
        let outdated = worlds.switch_world(Some("child"), |item| *item != "own");
        assert_eq!((worlds.present(), outdated), (Some(&"child"), vec!["own"]));
    }
}
