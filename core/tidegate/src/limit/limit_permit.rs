//! The permit of one call, which reports to the limit how the call goes.

use std::sync::Arc;

use bytes::Buf;
use http::Response;
use tower::BoxError;

use super::state::LimitState;
use super::{Head, Judge};
use crate::adaptive::{CallKind, Ended};
use crate::admission::Permit;

/// A slot that a call holds. Dropping it releases the slot.
///
/// The exchange must be dropped first: the next call must not find the upstream still busy with
/// this one. The limit learns how the call ended when the slot is released. A call without a report
/// counts as cancelled.
pub(super) struct LimitPermit<J> {
    permit: Permit,
    state: Arc<LimitState<J>>,
    /// Whether the first token is still to come.
    awaits_token: bool,
    /// Whether the response streams.
    streams: bool,
    /// Whether the response head has shown how the call ended.
    ended_by_head: bool,
}

impl<J: Judge> LimitPermit<J> {
    pub(super) fn new(state: Arc<LimitState<J>>, permit: Permit, kind: CallKind) -> Self {
        Self { permit, state, awaits_token: kind.streams, streams: false, ended_by_head: false }
    }

    /// Reports the head of a response.
    pub(super) fn on_response<B>(&mut self, response: &Response<B>) {
        match self.state.judge.head(response) {
            Head::Streams => self.streams = true,
            Head::Whole => {}
            Head::Ended(how) => {
                self.ended_by_head = true;
                self.permit.set_ended(how);
            }
        }
    }

    /// Reports data of the response body.
    pub(super) fn on_data<D: Buf>(&mut self, data: &D) {
        if self.streams && self.awaits_token && self.state.judge.is_first_token(data) {
            self.on_first_token();
        }
    }

    /// Reports that the body has ended and is complete.
    pub(super) fn on_completed(&mut self) {
        // A response that does not stream has its first token at its end. A rejection has none.
        if self.awaits_token && !self.ended_by_head {
            self.on_first_token();
        }
        // The number of tokens is not known.
        self.set_ended(Ended::Completed { output: 0 });
    }

    /// Reports that the body broke off. A first token that was late by then has been counted
    /// already.
    pub(super) fn on_broken_body(&mut self) {
        self.set_ended(Ended::Failed);
    }

    /// Reports an error in place of a response.
    pub(super) fn on_error(&mut self, error: &BoxError) {
        let how = self.state.judge.failed(&**error);
        self.set_ended(how);
    }

    fn on_first_token(&mut self) {
        self.awaits_token = false;
        self.permit.on_first_token();
    }

    fn set_ended(&mut self, how: Ended) {
        if !self.ended_by_head {
            self.permit.set_ended(how);
        }
    }
}
