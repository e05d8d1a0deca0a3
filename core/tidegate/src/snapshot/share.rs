//! The part of a shared limit that a process may use, as a snapshot shows it.

use serde::Serialize;

use tidegate_share::LeaseView;

/// The state of a cap that several processes share.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ShareSnapshot {
    /// Number of slots that this process may use now without asking.
    pub slots: usize,
    /// The cap that all processes share: the smallest that any of them has configured.
    pub cap: usize,
    /// Number of processes that share the cap, as last heard.
    pub processes: usize,
    /// Number of slots that the other processes hold, as last heard.
    pub elsewhere: usize,
    /// `true` if another process waits for a slot.
    pub others_wait: bool,
    /// `true` if the broker of the share is lost, so that this process uses a part of the cap, or
    /// cannot be reached, so that it uses the whole cap alone.
    pub safe_mode: bool,
}

impl From<&LeaseView> for ShareSnapshot {
    fn from(view: &LeaseView) -> Self {
        Self {
            slots: view.slots,
            cap: view.cap,
            processes: view.members,
            elsewhere: view.elsewhere,
            others_wait: view.others_short,
            safe_mode: view.is_safe_mode,
        }
    }
}
