//! Rejected calls: whether a replica is the cause of the errors with which it answers calls.
//!
//! An error that a retry would not change, such as 400, 403 or 404, is usually caused by the call.
//! But a replica may also answer each call with such an error, because of a proxy in front of it, a
//! wrong path or a missing option. It would be idle all the time, and get nearly all calls.
//!
//! # Algorithm
//!
//! A rejected call is not an accepted one: it earns nothing for the health of the replica except
//! that the replica lives. The replica is the cause of the rejections if all of the following
//! holds:
//!
//! - It has rejected [`MAX_FAILURES`] calls in a row, and [`MAX_FAILURES`] times as many more as
//!   each other replica has rejected on average meanwhile. Calls that are invalid are rejected by
//!   all replicas.
//! - Another replica has accepted a call since, or at most [`WINDOW`] before.
//!
//! The replica is then ejected. In the trial that follows, one more rejected call ejects it again.
//!
//! A caller may send an invalid request again and again, and a conversation returns to its replica.
//! So a call does not count if one of the conversations that counted last was its own.

use std::time::Instant;

use tidegate_protocol::request::Affinity;

use super::{Health, MAX_FAILURES, WINDOW};

/// The calls that one replica has rejected since it last accepted one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rejections {
    /// The calls that were rejected in a row, or `None` if there are none.
    run: Option<RejectedRun>,
    /// Whether the replica was found to be the cause since it last accepted a call.
    was_cause: bool,
    /// The conversations of the calls that counted last, the newest first: the session or the
    /// longest prefix of each call.
    conversations: [Option<u64>; MAX_FAILURES],
    /// When the replica last accepted a call, or `None` if it never did.
    last_accepted: Option<Instant>,
}

/// Calls that one replica rejected in a row.
#[derive(Clone, Copy, Debug)]
struct RejectedRun {
    /// When the first of them was rejected.
    began_at: Instant,
    /// Number of calls that all replicas had rejected before.
    before: u64,
    /// Number of calls in the row.
    calls: u64,
}

/// What the other replicas of the pool do with their calls.
#[derive(Clone, Copy, Debug)]
pub(in crate::placement) struct OtherReplicas {
    /// Number of the other replicas.
    count: u64,
    /// When one of them last accepted a call, or `None` if none ever did.
    last_accepted: Option<Instant>,
    /// Number of calls that all replicas have rejected so far.
    rejected: u64,
}

impl OtherReplicas {
    /// Sums up the health of the other replicas. `rejected` is the number of calls that all
    /// replicas of the pool have rejected so far.
    pub(in crate::placement) fn new<'a>(others: impl Iterator<Item = &'a Health>, rejected: u64) -> Self {
        let none = Self { count: 0, last_accepted: None, rejected };
        others.fold(none, |sum, health| Self {
            count: sum.count + 1,
            last_accepted: sum.last_accepted.max(health.rejections.last_accepted),
            ..sum
        })
    }
}

impl Rejections {
    /// Records that the replica accepted a call.
    pub(super) fn on_accepted(&mut self, now: Instant) {
        self.last_accepted = Some(now);
        self.run = None;
        self.was_cause = false;
    }

    /// Returns `true` if a call that was rejected continues none of the conversations that counted
    /// last. Records its conversation.
    pub(super) fn is_new(&mut self, call: &Affinity) -> bool {
        let Affinity { session, prefixes, .. } = call;
        // The next turn of a conversation has all prefixes of the turns before.
        let is_known = |hash: &u64| self.conversations.contains(&Some(*hash));
        if session.iter().chain(prefixes.iter()).any(is_known) {
            return false;
        }
        if let Some(conversation) = session.or(prefixes.last().copied()) {
            self.conversations.rotate_right(1);
            self.conversations[0] = Some(conversation);
        }
        true
    }

    /// Counts a rejected call. Returns `true` if the replica is the cause: see [the module](self).
    pub(super) fn add(&mut self, now: Instant, others: OtherReplicas) -> bool {
        let first = RejectedRun { began_at: now, before: others.rejected, calls: 0 };
        let run = self.run.get_or_insert(first);
        run.calls += 1;
        // This call is not among those of the pool yet.
        let elsewhere = (others.rejected + 1).saturating_sub(run.before + run.calls);
        let others_accept = others.last_accepted.is_some_and(|at| at + WINDOW >= run.began_at);
        others_accept && run.calls * others.count >= MAX_FAILURES as u64 * (others.count + elsewhere)
    }

    /// Records that the replica was found to be the cause. Later calls begin a new row.
    pub(super) fn on_found(&mut self) {
        self.was_cause = true;
        self.run = None;
    }

    /// Returns `true` if the replica was found to be the cause since it last accepted a call.
    pub(super) fn was_cause(&self) -> bool {
        self.was_cause
    }
}
