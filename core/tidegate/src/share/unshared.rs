//! Notices that another process of the same user has the same caps without sharing them.
//!
//! Each process binds an abstract Unix domain socket, whose name is a hash of the names and caps. The
//! kernel releases it when the process ends, and there are no files. Nobody connects to it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::{Config, LimitConfig};

/// The sockets of this process, by hash.
static SOCKETS: Mutex<BTreeMap<u64, UnixListener>> = Mutex::new(BTreeMap::new());
/// Whether this process has logged the line.
static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
/// Maximum time to wait for [`SOCKETS`], which another thread may have locked when the process was forked.
const LOCKED_WITHIN: Duration = Duration::from_millis(100);

/// Logs one line if another process of the same user has a gate with the same names and caps. Does
/// nothing for a configuration without fixed caps.
pub(super) fn report_neighbours(config: &Config) {
    let targets = config.targets.iter().filter(|target| target.limit == LimitConfig::Fixed);
    let targets = targets.map(|target| (target.name.to_string(), target.cap));
    let tools = config.tools.iter().filter(|(_, tool)| tool.limit == LimitConfig::Fixed);
    let caps: Vec<_> = targets.chain(tools.map(|(name, tool)| (format!("tool {name}"), tool.cap))).collect();
    if caps.is_empty() {
        return;
    }
    let mut hasher = DefaultHasher::new();
    caps.hash(&mut hasher);
    if has_neighbour(hasher.finish()) && !HAS_REPORTED.swap(true, Ordering::Relaxed) {
        tracing::info!(
            "another process of this user has a gate with the same names and caps, and each uses its caps alone: `share = \"local\"` makes them one, and `share = \"off\"` ends this message"
        );
    }
}

/// Whether another process has the same caps. Of several processes, only the first gets `false`.
fn has_neighbour(hash: u64) -> bool {
    let Some(mut sockets) = SOCKETS.try_lock_for(LOCKED_WITHIN) else { return false };
    if sockets.contains_key(&hash) {
        return false;
    }
    let user = rustix::process::geteuid().as_raw();
    let name = format!("tidegate-unshared-{user}-{hash:016x}");
    let Ok(address) = SocketAddr::from_abstract_name(name) else { return false };
    match UnixListener::bind_addr(&address) {
        Ok(socket) => {
            sockets.insert(hash, socket);
            false
        }
        Err(error) => error.kind() == std::io::ErrorKind::AddrInUse,
    }
}
