//! The permit: the right to have one attempt in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Admission;
use super::cancel::CancelSignal;
use super::gatehouse::News;
use crate::adaptive::Ended;
use crate::cooldown::{Failure, Hold};
use crate::fairness::Tag;
use crate::kv::Progress;
use crate::placement::{Fault, Placed};
use crate::schedule::{Grant, Settled};
use crate::wire::RateHeaders;

/// One slot, held. Dropping it gives the slot back, exactly once, and lets the next call in, whatever way the call ended: end of
/// body, drop of body or future, panic.
#[must_use = "dropping the permit gives the slot back"]
pub struct Permit {
    admission: Arc<Admission>,
    grant: Option<Grant>,
    queued_at: Instant,
    admitted_at: Instant,
}

impl Permit {
    pub(super) fn new(
        admission: Arc<Admission>,
        grant: Grant,
        queued_at: Instant,
        admitted_at: Instant,
    ) -> Self {
        Self { admission, grant: Some(grant), queued_at, admitted_at }
    }

    /// Returns what a retry of the same call carries, so that it keeps its place.
    pub fn charged(&self) -> Option<Tag> {
        self.grant.as_ref().map(Grant::charged)
    }

    /// The replica that it is placed at, where its target is a pool.
    pub fn placed(&self) -> Option<&Placed> {
        self.grant.as_ref().and_then(Grant::placed)
    }

    /// What the wait took of the call's wait budget.
    pub fn spent(&self) -> Duration {
        self.grant.as_ref().map(Grant::spent).unwrap_or_default()
    }

    /// How long the call waited for it.
    pub fn waited(&self) -> Duration {
        self.admitted_at.saturating_duration_since(self.queued_at)
    }

    /// Slots of the target that were held just after it was given, itself included.
    pub fn in_flight(&self) -> usize {
        self.grant.as_ref().map_or(0, Grant::in_flight)
    }

    /// When the slot was given.
    pub fn admitted_at(&self) -> Instant {
        self.admitted_at
    }

    /// The attempt is handed to its transport: from here on its provider may count it.
    pub fn sent(&mut self) {
        if let Some(grant) = &mut self.grant {
            grant.sent();
        }
    }

    /// The first token of its answer came. Another call may go then, where it was first tokens that held it back.
    pub fn first_token(&mut self) {
        self.tell(News::FirstToken);
    }

    /// Its answer was to stream and has begun, but nothing of it can be read on its way: it is judged as one that does not stream.
    pub fn unseen(&mut self) {
        self.tell(News::Unseen);
    }

    /// Nothing will be told of how its call goes: it holds a slot, and the limit learns nothing from it.
    pub fn untold(&mut self) {
        self.tell(News::Untold);
    }

    fn tell(&mut self, news: News) {
        // Where the limit is fixed nobody asks, and nothing is locked.
        if let Some(grant) = self.grant.as_mut().filter(|grant| grant.is_tracked()) {
            self.admission.tell(news, grant);
        }
    }

    /// How the attempt ended: what the limit is told when the slot goes back. Else it counts as cancelled.
    pub fn ended(&mut self, how: Ended) {
        if let Some(grant) = &mut self.grant {
            grant.ended(how);
        }
    }

    /// Whether the rate budgets have no room now for another call like it.
    pub(crate) fn is_spent(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| self.admission.is_spent(grant))
    }

    /// What tells the call that it is called back, where its target reclaims what it has lent, or is a pool.
    pub(crate) fn cancel_signal(&self) -> Option<Arc<CancelSignal>> {
        self.admission.cancel_signals().register(self.grant.as_ref()?.id())
    }

    /// The head of an answer came: it is not called back any more.
    pub(crate) fn answered(&mut self) {
        if let Some(grant) = &mut self.grant {
            self.admission.answered(grant);
        }
    }

    /// It turned out that nothing of it was sent.
    pub fn unsent(&mut self) {
        if let Some(grant) = &mut self.grant {
            grant.unsent();
        }
    }

    /// What the head of an answer says of the provider's budgets, be it nothing: every answer is to be told. `limited`: it is a refusal for rate.
    pub fn heard(&mut self, sent_at: Instant, headers: &RateHeaders, limited: bool) {
        if let Some(grant) = &mut self.grant {
            self.admission.heard(grant, sent_at, headers, limited);
        }
    }

    /// What the attempt took is known: its tenant's account and the budgets are put right.
    pub fn settle(&mut self, settled: &Settled) {
        if let Some(grant) = &mut self.grant {
            self.admission.settle(grant, settled);
        }
    }

    /// How far its answer has come: to be told as it comes.
    pub fn progress(&self) -> Progress {
        self.grant.as_ref().and_then(Grant::progress).cloned().unwrap_or_default()
    }

    /// The upstream accepted the attempt: the target is up.
    pub fn succeeded(&mut self) {
        if let Some(grant) = &mut self.grant {
            self.admission.succeeded(grant);
        }
    }

    /// The upstream failed the attempt in a way that a retry may mend: the target may have to cool down.
    pub fn failed(&mut self, call: u64, failure: Failure, delay: Option<Duration>) -> Hold {
        match &mut self.grant {
            Some(grant) => self.admission.failed(grant, call, failure, delay),
            None => Hold::No,
        }
    }

    /// The replica failed the attempt. Says [`Hold::Elsewhere`] where nothing ran there.
    pub fn failed_there(&mut self, fault: Fault) -> Hold {
        match &mut self.grant {
            Some(grant) => self.admission.failed_there(grant, fault),
            None => Hold::No,
        }
    }

    /// Something of the answer came: its replica lives. To be told of every chunk.
    pub(crate) fn alive(&self) {
        if let Some(grant) = &self.grant {
            self.admission.alive(grant);
        }
    }

    /// Takes the slot out, so that the drop does nothing.
    pub(super) fn disarm(mut self) -> Option<Grant> {
        self.grant.take()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.admission.release(grant);
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit").field("at", &self.admission.name()).finish_non_exhaustive()
    }
}
