//! What all limits know of a member.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The number of a connection to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u64);

/// The smallest and the largest weight that a member may have. Others are clamped.
pub const WEIGHTS: (f64, f64) = (1e-3, 1e6);
/// Time without a message after which a member counts as stopped. Longer than three heartbeats.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// Which members are connected, and when they were last heard.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    heard: BTreeMap<MemberId, Instant>,
    /// The members in the broker's own process. If it dies, their slots are free.
    own: BTreeSet<MemberId>,
}

impl Presence {
    pub(crate) fn add_own(&mut self, own: MemberId) {
        self.own.insert(own);
    }

    /// Returns `true` if the member is the only one in the broker's own process, so that it ends
    /// when the broker does.
    pub(crate) fn is_only_own(&self, member: MemberId) -> bool {
        self.own.len() == 1 && self.own.contains(&member)
    }

    /// Records that a message of the member has arrived. If nobody was heard for long, the broker
    /// itself was stopped, and messages of the others are waiting.
    pub(crate) fn on_heard(&mut self, now: Instant, member: MemberId) {
        let was_stopped = self.heard.values().max().is_some_and(|last| *last + HEARD_WITHIN / 2 < now);
        if was_stopped {
            self.heard.values_mut().for_each(|at| *at = now);
        }
        self.heard.insert(member, now);
    }

    /// Returns `true` if the member was heard lately.
    pub(crate) fn is_heard(&self, now: Instant, member: MemberId) -> bool {
        self.heard.get(&member).is_some_and(|at| now < *at + HEARD_WITHIN)
    }

    /// Records that a member does not read its messages, as if it had not been heard since.
    pub(crate) fn on_unread(&mut self, member: MemberId) {
        self.heard.remove(&member);
    }

    pub(crate) fn remove(&mut self, member: MemberId) {
        self.heard.remove(&member);
        self.own.remove(&member);
    }
}
