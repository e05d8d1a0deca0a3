//! One limit for several processes, as pure state machines.
//!
//! A *resource* is a target or tool with a cap that several processes, the *members*, must not
//! exceed together. A *broker* divides the cap into *leases*. A lease is a number of slots that one
//! member may use without asking.
//!
//! - [`Broker`] is the state of the broker: who holds how many slots of each resource.
//! - [`Lease`] is the state of one resource in a member. It belongs to the member's scheduler, so a
//!   call within the lease costs no message, unless the limit is adaptive.
//! - [`rates`] is the same for limits of requests and tokens per time.
//! - [`LimitRole`] says which member finds an adaptive limit for all.
//! - [`Placements`] tell which replicas of a pool the calls of each member use.
//! - [`Peers`] notices that messages of a member were lost, or that it has ended.
//! - [`ToBroker`] and [`ToMember`] are the messages between them.
//!
//! # Exchange
//!
//! Messages are sent when something changes, and not periodically:
//!
//! 1. A member whose calls lack a slot of the lease reports how many slots it *wants*.
//! 2. If the broker has free slots, it grants them at once. Otherwise it tells the other members
//!    that somebody is *short*, and what the *fair* number of slots of each is.
//! 3. While others are short, a member returns idle slots at once, and slots above its fair number
//!    as their calls end: at once if another member holds fewer than its fair number, otherwise
//!    after 0.25 s. No call is cancelled.
//! 4. The broker grants returned slots to members that are short, without being asked again.
//!
//! Grants and returns are differences, because both may be on their way at the same time.
//!
//! # Fairness
//!
//! The fair numbers divide the cap by max-min fairness with weights (water-filling): what a member
//! does not need goes to the others. Fair numbers are whole, so the rest of the division is a few
//! *contended* slots. A member returns a contended slot with the first call that ends 0.25 s later,
//! and the broker grants it by start-time fair queueing. The weight there is the fraction that a
//! member lost when its fair number was rounded down. If there are more members than slots, all
//! slots are contended, and are returned at once.
//!
//! # Guarantees
//!
//! These are the guarantees of [`Broker`]. A remote store differs in when it takes the slots of a
//! member that it does not hear.
//!
//! - The leases of connected members never exceed the smallest cap that a member has reported,
//!   except if members claim more when they reconnect, or if a cap is lowered. Then nothing is
//!   granted until enough slots were returned.
//! - The slots of a member that leaves are free at once.
//! - The broker takes nothing from a member: a slot is free again when its member returns it. So a
//!   stopped process keeps its slots, which its open calls use at the upstream.
//! - A new broker honours the claims of the members of its predecessor. It grants nothing before
//!   all of them have rejoined, at most for [`REJOIN_TIME`].
//! - A process that was stopped admits nothing before it has heard the broker again. If it joins
//!   another broker, it returns the slots of its calls when they end, because others may have them.
//! - A member that has lost the broker admits as many calls as its part of the cap when its lease
//!   has ended ([`LeaseTimes`]), or none in strict mode.
//! - A member that sends false reports can withhold the slots that it holds or claims, and lower
//!   the cap. It cannot make the others exceed the cap. It can change an adaptive limit, up to the
//!   cap.

mod broker;
mod division;
mod lease;
mod limit_events;
mod limit_role;
mod member;
mod message;
mod peers;
mod placements;
pub mod rates;

use std::time::Duration;

pub use broker::{Broker, FIRST_TOKENS, MAX_COOL_DOWN};
pub use division::{MAX_CAP, MIN_PART, Predecessor};
pub use lease::{Lease, LeaseView, SlotUse};
pub use limit_events::{CallEvent, CallKind, CallStep, Ended, LimitEvents, MAX_EVENTS};
pub use limit_role::{Appointment, LimitRole};
pub use member::{MemberId, WEIGHTS};
pub use message::{LeaseUpdate, Report, ToBroker, ToMember, cool_down_ms};
pub use peers::{MessageOrder, Peers};
pub use placements::{MAX_PLACEMENTS, MAX_PREFIXES, PlacementEvent, PlacementStep, Placements};

/// Time between two heartbeats of a member of a local broker: 0.5 s.
pub const LOCAL_HEARTBEAT: Duration = Duration::from_millis(500);
/// Time after the last message of a local broker until a member admits nothing: 1.5 s. If the
/// member was stopped in the meantime, its slots may be used by others.
pub const RENEWAL_TIME: Duration = Duration::from_millis(1_500);
/// Time for which a new broker waits for the members of its predecessor: 1.6 s. Longer than
/// [`RENEWAL_TIME`], so a member that does not rejoin admits nothing when its slots are granted.
pub const REJOIN_TIME: Duration = Duration::from_millis(1_600);
/// Time without a broker after which a member that has no lease uses a part of the limits: 1 s.
pub(crate) const BROKER_SEARCH_TIME: Duration = Duration::from_secs(1);
/// Time after the last message of a member until a remote store frees its slots: 8 s.
pub const LEASE_TIME: Duration = Duration::from_secs(8);

/// How long a lease is good after the last message of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// The time until a member that takes itself to be connected admits nothing.
    pub renewal: Duration,
    /// The time until the lease of a member that has lost the connection ends.
    pub lease: Duration,
    /// The maximum time for which an advance of rates may be used. See [`rates`].
    pub advance: Duration,
}

impl LeaseTimes {
    /// The times of a local broker. It frees the slots of a member when the connection ends, and
    /// honours claims of [`LEASE_TIME`].
    pub const LOCAL: Self =
        Self { renewal: RENEWAL_TIME, lease: LEASE_TIME, advance: Duration::from_millis(500) };
    /// The times of a remote store, which frees the slots of a member [`LEASE_TIME`] after its last
    /// message: 7.5 s, so that the member stops before.
    pub const REMOTE: Self = Self {
        renewal: Duration::from_millis(7_500),
        lease: Duration::from_millis(7_500),
        advance: Duration::from_millis(750),
    };
}
