//! The messages between a member and the broker.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limit_events::LimitEvents;
use crate::limit_role::{Appointment, LimitRole};
use crate::placements::Placements;
use crate::rates::{Advance, Draw};

/// A message of a member to the broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToBroker {
    /// Reports what the member needs of a resource. The first report of a resource joins it.
    Report {
        /// The name of the resource.
        resource: Arc<str>,
        /// What the member needs.
        #[serde(flatten)]
        report: Report,
        /// The number of a heartbeat that is sent with the report, or `None`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heartbeat: Option<u64>,
    },
    /// Asks for amounts of limits per time. The first draw from a resource joins it.
    Draw {
        /// The name of the resource.
        resource: Arc<str>,
        /// What the member asks for.
        #[serde(flatten)]
        draw: Draw,
    },
    /// Leaves a resource, and returns all of its slots.
    Leave {
        /// The name of the resource.
        resource: Arc<str>,
    },
    /// Announces that the provider asked callers to wait.
    CoolDown {
        /// The name of the resource.
        resource: Arc<str>,
        /// The remaining time in milliseconds.
        for_ms: u64,
    },
    /// Tells the observers of an adaptive limit what happened to calls. Sent while there are any.
    #[serde(rename = "evidence")]
    LimitEvents {
        /// The name of the resource.
        resource: Arc<str>,
        /// What happened.
        #[serde(flatten)]
        limit_events: LimitEvents,
    },
    /// Tells the other members where calls of a pool were sent. The first message of a pool joins
    /// it.
    Placements {
        /// The name of the resource.
        resource: Arc<str>,
        /// What happened.
        #[serde(flatten)]
        placements: Placements,
    },
    /// Asks the broker for a sign of life.
    Heartbeat {
        /// The number of the heartbeat, which the answer repeats.
        number: u64,
    },
}

/// What a member needs of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The configured cap, at least 1. The smallest one of all members counts.
    pub cap: usize,
    /// The weight of the calls that wait, positive and finite. Shares follow weights.
    pub weight: f64,
    /// The number of further slots that the member could use now. Replaces the number of the last
    /// report.
    pub want: usize,
    /// The number of slots of the lease that the member returns.
    pub returned: usize,
    /// The slots that the member holds from an earlier broker. Read in the first report only.
    pub claim: usize,
    /// [`LeaseUpdate::survivors`] of the earlier broker, or 0 if the member had none. Read in the
    /// first report only.
    pub known_survivors: usize,
    /// [`LeaseUpdate::total`] of the earlier broker, or 0 if the member had none. Read in the first
    /// report only.
    pub known_total: usize,
    /// The slots that the member's adaptive limit has found, or `None` if its limit is fixed. Those
    /// of the leader bound the sum of all leases, besides the smallest cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<usize>,
    /// What the member does for the adaptive limit, if this resource must have the same leader as
    /// another one. In the first report: what the member did at an earlier broker. Whoever has seen
    /// the calls of all is preferred as the leader. `None`: the broker decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<LimitRole>,
}

/// A message of the broker to a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToMember {
    /// Changes the lease of a resource.
    Lease {
        /// The name of the resource.
        resource: Arc<str>,
        /// What has changed.
        #[serde(flatten)]
        update: LeaseUpdate,
    },
    /// Answers a draw.
    Advance {
        /// The name of the resource.
        resource: Arc<str>,
        /// What the member may use.
        #[serde(flatten)]
        advance: Advance,
    },
    /// Forwards that the provider asked callers to wait.
    CoolDown {
        /// The name of the resource.
        resource: Arc<str>,
        /// The remaining time in milliseconds.
        for_ms: u64,
    },
    /// Tells an observer of an adaptive limit what happened to calls of another member.
    #[serde(rename = "evidence")]
    LimitEvents {
        /// The name of the resource.
        resource: Arc<str>,
        /// The number of the member.
        member: u64,
        /// What happened.
        #[serde(flatten)]
        limit_events: LimitEvents,
    },
    /// Tells where another member has sent calls of a pool.
    Placements {
        /// The name of the resource.
        resource: Arc<str>,
        /// The number of the member. `None` stands for all other members: messages were dropped, so
        /// the receiver must forget their calls.
        member: Option<u64>,
        /// The number of other members of the pool.
        others: usize,
        /// What happened.
        #[serde(flatten)]
        placements: Placements,
    },
    /// Answers a heartbeat.
    Alive {
        /// The number of the heartbeat.
        number: u64,
    },
}

/// A change of a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseUpdate {
    /// The number of slots that are added to the lease.
    pub granted: usize,
    /// Whether another member wants slots while none is free, or more slots are leased than the cap
    /// has.
    pub others_short: bool,
    /// Whether the member must return all slots above its fair number as its calls end: another
    /// member that holds fewer than its fair number, or none, wants some, or more slots are leased
    /// than the cap has.
    pub others_owed: bool,
    /// The number of slots that the member may keep while others are short.
    pub fair: usize,
    /// The cap that is divided: the smallest of all members or, if that is less, what the leader of
    /// an adaptive limit has found.
    pub cap: usize,
    /// The number of members of the resource.
    pub members: usize,
    /// The number of members that remain when the broker ends, or one more if its process has
    /// several members. While the broker waits for members of its predecessor, at least the number
    /// that it waits for, or [`usize::MAX`] if that is not known.
    pub survivors: usize,
    /// The total of all leases, also of those that a stopped predecessor of the broker may still
    /// use.
    pub total: usize,
    /// What the member does for the adaptive limit of all, or `None` if the limit is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub appointment: Option<Appointment>,
}

/// Returns the milliseconds of a cool-down, rounded up so that nobody begins too early.
pub fn cool_down_ms(time: Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
