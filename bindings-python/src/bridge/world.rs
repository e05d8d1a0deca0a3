//! Worlds: what tests put in place of the network, or of time, for the whole process and for a while.
//!
//! Every gate starts anew from its configuration in each world, so that no test sees another's cool-downs, queues or counts, and is what it
//! was once the world is left. Nothing asks about worlds on a call's way: a gate compares one number, as it must for forks anyway.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tidegate::Transport;

/// The process's own world, which lasts.
const OWN: u64 = 0;

/// Changes with every world entered or left, and every fork.
static EPOCH: AtomicU64 = AtomicU64::new(0);
static NEXT: AtomicU64 = AtomicU64::new(OWN + 1);
// Innermost last. Locked only by threads attached to the interpreter, and never across a detach: a fork finds it unlocked.
static WORLDS: RwLock<Vec<World>> = RwLock::new(Vec::new());

struct World {
    number: u64,
    /// None: that of the world around.
    transport: Option<Transport>,
}

/// What to compare before anything else is asked.
pub(crate) fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// The epoch, and the number of the innermost world.
pub(crate) fn present() -> (u64, u64) {
    let worlds = WORLDS.read();
    (epoch(), worlds.last().map_or(OWN, |world| world.number))
}

/// Whether that world was not left yet.
pub(crate) fn lasts(number: u64) -> bool {
    number == OWN || WORLDS.read().iter().any(|world| world.number == number)
}

/// What is in place of the network.
pub(crate) fn transport() -> Option<Transport> {
    WORLDS.read().iter().rev().find_map(|world| world.transport.clone())
}

/// Whether something is in place of the network, and so of a client's own transport too.
pub(crate) fn is_faked() -> bool {
    transport().is_some()
}

/// Enters a world inside the present one.
pub(crate) fn enter(transport: Option<Transport>) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    WORLDS.write().push(World { number, transport });
    EPOCH.fetch_add(1, Ordering::Release);
    number
}

/// Leaves it, wherever it stands. Unknown numbers are ignored.
pub(crate) fn leave(number: u64) {
    let left = {
        let mut worlds = WORLDS.write();
        let at = worlds.iter().position(|world| world.number == number);
        at.map(|at| worlds.remove(at))
    };
    EPOCH.fetch_add(1, Ordering::Release);
    drop(left);
}

/// In the child of a fork gates start anew, over what was in place of the network.
pub(crate) fn forked() {
    EPOCH.fetch_add(1, Ordering::Release);
}
