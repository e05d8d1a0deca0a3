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
//!   each witness has rejected on average meanwhile. Calls that are invalid are rejected by all
//!   replicas.
//! - There is a witness: another eligible replica that has accepted a call since, or at most
//!   [`WINDOW`] before, and that is not rejecting as many calls in a row itself. Several replicas
//!   may have the same fault.
//!
//! A call without any answer until its deadline or the timeout of its caller counts as a rejected
//! one. The caller may be impatient or the call long, which all replicas show, or the engine hangs.
//!
//! The replica is then ejected. In the trial that follows, one more rejected call ejects it again.
//!
//! A caller may send an invalid request again and again, and a conversation returns to its replica.
//! So a call does not count if one of the conversations that counted last was its own.

use std::time::Instant;

use tidegate_protocol::request::Affinity;

use super::{Health, MAX_FAILURES, WINDOW};

/// The calls that one replica has rejected since it last accepted one.
#[derive(Clone, Debug, Default)]
pub(super) struct Rejections {
    /// Number of calls that the replica has rejected since it joined.
    rejected: u64,
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
#[derive(Clone, Debug)]
struct RejectedRun {
    /// When the first of them was rejected.
    began_at: Instant,
    /// The indices of the other replicas, each with the number of calls that it had rejected
    /// before.
    before: Vec<(usize, u64)>,
    /// Number of calls in the row.
    calls: u64,
}

/// What another replica of the pool does with its calls.
#[derive(Clone, Copy, Debug)]
pub(in crate::placement) struct OtherReplica {
    /// The replica's index.
    index: usize,
    /// When the replica last accepted a call, or `None` if it never did or is not a witness now.
    last_accepted: Option<Instant>,
    /// Number of calls that the replica has rejected since it joined.
    rejected: u64,
}

impl OtherReplica {
    /// Reads the health of the replica at an index.
    pub(in crate::placement) fn new(index: usize, health: &Health) -> Self {
        let Rejections { rejected, last_accepted, .. } = health.rejections;
        let may_witness = health.is_eligible() && !health.rejections.may_be_cause();
        Self { index, last_accepted: last_accepted.filter(|_| may_witness), rejected }
    }

    /// Returns the number of calls that the replica has rejected since a row of rejected calls of
    /// another replica began. Returns `None` if it is no witness of that row.
    fn rejected_during(&self, run: &RejectedRun) -> Option<u64> {
        self.last_accepted.filter(|at| *at + WINDOW >= run.began_at)?;
        let before = run.before.iter().find(|(index, _)| *index == self.index);
        Some(self.rejected.saturating_sub(before.map_or(0, |(_, before)| *before)))
    }
}

impl Rejections {
    /// Records that the replica accepted a call.
    pub(super) fn on_accepted(&mut self, now: Instant) {
        self.last_accepted = Some(now);
        self.run = None;
        self.was_cause = false;
    }

    /// Records the conversation of a rejected call. Returns `true` if it is none of the
    /// conversations that counted last.
    pub(super) fn record_conversation(&mut self, call: &Affinity) -> bool {
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

    /// Counts a rejected call. If the replica is the cause, returns when the first call of the row
    /// was rejected: see [the module](self).
    pub(super) fn add(&mut self, now: Instant, others: &[OtherReplica]) -> Option<Instant> {
        self.rejected += 1;
        let run = self.run.get_or_insert_with(|| RejectedRun {
            began_at: now,
            before: others.iter().map(|other| (other.index, other.rejected)).collect(),
            calls: 0,
        });
        run.calls += 1;
        let witnesses: Vec<u64> = others.iter().filter_map(|other| other.rejected_during(run)).collect();
        let (count, elsewhere) = (witnesses.len() as u64, witnesses.iter().sum::<u64>());
        let is_cause = count > 0 && run.calls * count >= MAX_FAILURES as u64 * (count + elsewhere);
        is_cause.then_some(run.began_at)
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

    /// Returns `true` if the replica was found to be the cause since it last accepted a call, or
    /// has rejected so many calls in a row that it may be the cause.
    fn may_be_cause(&self) -> bool {
        self.was_cause || self.run.as_ref().is_some_and(|run| run.calls >= MAX_FAILURES as u64)
    }

    /// Returns when the replica last accepted a call, or `None` if it never did.
    pub(super) fn last_accepted(&self) -> Option<Instant> {
        self.last_accepted
    }
}
