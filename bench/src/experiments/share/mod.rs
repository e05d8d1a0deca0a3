//! Measures caps that several processes share, over real processes and sockets.
//!
//! The upstream runs in the process of the experiment and counts calls by itself. The members are
//! this program, started again, each with a gate of its own. The store is a local broker, whose
//! files are in a directory of the experiment, or a Redis server.

mod chaos;
mod cooldown;
mod cost;
mod fair;
mod gap;
mod headers;
mod load;
mod member;
mod provider;
mod push;
mod rate;
mod redis_chaos;
mod redis_use;
mod store;
mod timeline;
mod upstream;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) use chaos::measure as measure_chaos;
pub(crate) use cooldown::measure as measure_cooldown;
pub(crate) use cost::measure as measure_cost;
pub(crate) use fair::measure as measure_fair;
pub(crate) use gap::measure as measure_gap;
pub(crate) use headers::measure as measure_headers;
pub(crate) use member::run as run_member;
pub(crate) use rate::measure as measure_rate;
pub(crate) use redis_chaos::measure as measure_redis_chaos;
pub(crate) use redis_use::measure as measure_redis;

use member::{Member, Rates, Settings};
use upstream::Upstream;

use crate::Fallible;
use crate::experiments::hot_path::std_now;

/// The request header with the number of the member.
const MEMBER_HEADER: &str = "x-member";

/// A directory for the files of brokers, which is removed when this value is dropped.
struct Directory(PathBuf);

impl Directory {
    fn create() -> Fallible<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tidegate-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the file of the local broker of the share [`SHARE`] whose name ends with `suffix`.
    fn broker_file(&self, suffix: &str) -> PathBuf {
        self.0.join("tidegate").join(format!("v3-{SHARE}{suffix}"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The name of the share in each directory.
const SHARE: &str = "bench";

/// Returns the settings of a member with `callers` callers that shares a cap.
fn sharing(upstream: &Upstream, cap: usize, member: usize, callers: usize) -> Settings {
    Settings {
        url: upstream.url().to_owned(),
        share: Some(SHARE.to_owned()),
        strict: false,
        cap,
        member,
        weight: 1.0,
        callers,
        rate: 0.0,
        rates: Rates::default(),
        pause: Duration::ZERO,
    }
}

/// Starts members.
fn start(settings: &[Settings], directory: &Directory) -> Fallible<Vec<Member>> {
    settings.iter().map(|settings| Member::start(settings, directory.path())).collect()
}

/// Waits until all members have begun, and until `calls` calls were in flight or 10 s have passed.
fn wait_until_full(members: &[Member], upstream: &Upstream, calls: usize) -> Fallible<()> {
    for member in members {
        member.wait_for_begin()?;
    }
    let until = std_now() + Duration::from_secs(10);
    while upstream.in_flight() < calls && std_now() < until {
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn sleep(time: Duration) {
    std::thread::sleep(time);
}

fn sleep_until(at: Instant) {
    sleep(at.saturating_duration_since(std_now()));
}
