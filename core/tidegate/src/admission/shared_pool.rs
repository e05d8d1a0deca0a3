//! The operations of [`Admission`] that concern a pool that several processes share.

use super::Admission;
use super::driver::State;
use super::share_link::{ShareEvent, ShareLink};
use crate::clock::now;
use crate::placement::Placements;

impl Admission {
    /// Tells other processes where calls of this pool are sent, from the first call on.
    pub(crate) fn share_pool(&self, link: ShareLink) {
        let _ = self.pool_share.set(link);
    }

    /// Announces what other processes must be told of the calls, if the pool is shared.
    pub(super) fn announce_placements(&self, state: &mut State) {
        let Some(link) = self.pool_share.get() else { return };
        link.join();
        if state.scheduler.take_placements_announcement() {
            link.send(ShareEvent::Observed);
        }
    }

    /// Joins a broker. Returns the first message for it, or `None` if the target is not a pool.
    pub(crate) fn join_partners(&self) -> Option<Placements> {
        self.state.lock().scheduler.join_partners()
    }

    /// Records that the broker was lost, and with it what other processes tell of their calls.
    pub(crate) fn leave_partners(&self) {
        self.state.lock().scheduler.leave_partners();
    }

    /// Returns what other processes must be told of the calls, or `None` if there is nothing more.
    pub(crate) fn take_placements(&self) -> Option<Placements> {
        self.state.lock().scheduler.take_placements()
    }

    /// Applies events of calls of another process, which has the number `process`. `None` removes
    /// the calls of all processes. `others` is the number of other processes.
    pub(crate) fn on_placements(&self, process: Option<u64>, others: usize, placements: &Placements) {
        self.state.lock().scheduler.on_placements(now(), process, others, placements);
    }
}
