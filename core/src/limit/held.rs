//! A slot in the hands of a call, and what the limit is told while it is.

use std::sync::Arc;

use bytes::Buf;
use http::Response;
use tower::BoxError;

use super::door::Door;
use super::{Head, Judge};
use crate::adaptive::{CallKind, Ended};
use crate::admission::Permit;

/// Dropping it gives the slot back. Whoever holds it drops the exchange first: who gets the slot
/// must not find the upstream still busy with us.
///
/// The limit hears how the call went when the slot is back; a call of which nothing was said had a
/// caller that went away.
pub(super) struct Held<J> {
    permit: Permit,
    door: Arc<Door<J>>,
    /// Whether its first token is still to come.
    awaits: bool,
    /// Whether its answer does stream.
    streams: bool,
    /// Whether its head has said how it ended.
    is_told: bool,
}

impl<J: Judge> Held<J> {
    pub(super) fn new(door: Arc<Door<J>>, permit: Permit, kind: CallKind) -> Self {
        Self { permit, door, awaits: kind.streams, streams: false, is_told: false }
    }

    /// The head of an answer came.
    pub(super) fn answered<B>(&mut self, response: &Response<B>) {
        match self.door.judge.head(response) {
            Head::Streams => self.streams = true,
            Head::Whole => {}
            Head::Ended(how) => {
                self.is_told = true;
                self.permit.set_ended(how);
            }
        }
    }

    /// Data of its body came.
    pub(super) fn saw<D: Buf>(&mut self, data: &D) {
        if self.streams && self.awaits && self.door.judge.is_first_token(data) {
            self.first_token();
        }
    }

    /// Its body has ended, whole.
    pub(super) fn completed(&mut self) {
        // An answer in one piece has come when all of it has; of a refusal nothing is to come.
        if self.awaits && !self.is_told {
            self.first_token();
        }
        // How many tokens it had, nobody has counted.
        self.tell(Ended::Completed { output: 0 });
    }

    /// Its body broke off. What was to be learned of how long it took is known by then: a first
    /// token that is overdue counts when it is.
    pub(super) fn broke(&mut self) {
        self.tell(Ended::Failed);
    }

    /// An error came in place of an answer.
    pub(super) fn failed(&mut self, error: &BoxError) {
        let how = self.door.judge.failed(&**error);
        self.tell(how);
    }

    fn first_token(&mut self) {
        self.awaits = false;
        self.permit.on_first_token();
    }

    fn tell(&mut self, how: Ended) {
        if !self.is_told {
            self.permit.set_ended(how);
        }
    }
}
