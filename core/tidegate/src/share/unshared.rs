//! Notices that another process of the same user has the same limits without sharing them.
//!
//! Each process binds an abstract Unix domain socket, whose name is a hash of the names and limits.
//! The kernel releases it when the process ends, and there are no files. Nobody connects to it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::{Config, LimitConfig, RateConfig};

/// The sockets of this process, by hash.
static SOCKETS: Mutex<BTreeMap<u64, UnixListener>> = Mutex::new(BTreeMap::new());
/// Whether this process has logged the warning.
static HAS_REPORTED: AtomicBool = AtomicBool::new(false);
/// Maximum time to wait for [`SOCKETS`], which another thread may have locked when the process was
/// forked.
const LOCKED_WITHIN: Duration = Duration::from_millis(100);

/// Logs one warning if another process of the same user has a gate with the same names and limits.
/// Does nothing for a configuration without limits that can be shared.
pub(super) fn report_neighbours(config: &Config) {
    let cap = |limit: &LimitConfig, cap| Some((*limit == LimitConfig::Fixed, cap));
    let targets = config.targets.iter().map(|target| {
        let rates = Some(config.rates_of(target)).filter(|rates| rates.is_limited());
        let cap = cap(&target.limit, target.cap).filter(|_| target.pool.is_none());
        (target.name.to_string(), cap, rates.map(RateConfig::settings))
    });
    let tools = config.tools.iter();
    let tools = tools.map(|(name, tool)| (format!("tool {name}"), cap(&tool.limit, tool.cap), None));
    let limits: Vec<_> =
        targets.chain(tools).filter(|(_, cap, rates)| cap.is_some() || rates.is_some()).collect();
    if limits.is_empty() {
        return;
    }
    let mut hasher = DefaultHasher::new();
    limits.hash(&mut hasher);
    if has_neighbour(hasher.finish()) && !HAS_REPORTED.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "another process of this user has a gate with the same names and limits, and each uses its limits alone: `share = \"local\"` makes them one, and `share = \"off\"` ends this message"
        );
    }
}

/// Returns `true` if another process has the same limits. Of several processes, only the first gets
/// `false`.
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
