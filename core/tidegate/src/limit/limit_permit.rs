//! The permit of one call, which reports the response to the adaptive limit.

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
/// The exchange with the upstream must be dropped before the permit. Otherwise the next call would
/// begin while the upstream still works on this one. When the slot is released, the limit uses the
/// reported end of the call as a sample. A call without a report counts as cancelled.
pub(super) struct LimitPermit<J> {
    permit: Permit,
    state: Arc<LimitState<J>>,
    /// `true` until the first token was reported to the limit. Always `false` for calls whose
    /// [`CallKind`] does not stream.
    awaits_token: bool,
    /// `true` if the judge has classified the response as a stream.
    streams: bool,
    /// `true` if the response head has shown how the call ended, for example because it is a
    /// rejection. Later reports about the end are then ignored.
    ended_by_head: bool,
}

impl<J: Judge> LimitPermit<J> {
    pub(super) fn new(state: Arc<LimitState<J>>, permit: Permit, kind: CallKind) -> Self {
        Self { permit, state, awaits_token: kind.streams, streams: false, ended_by_head: false }
    }

    /// Classifies the response by its head, with the judge of the limit. If the head shows how the
    /// call ended, reports this to the limit.
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

    /// Reports the first token to the limit if `data`, a chunk of the response body, contains it.
    /// Has no effect afterwards, and for responses that are not streams.
    pub(super) fn on_data<D: Buf>(&mut self, data: &D) {
        if self.streams && self.awaits_token && self.state.judge.is_first_token(data) {
            self.on_first_token();
        }
    }

    /// Reports to the limit that the body has ended without an error. If the first token was not
    /// reported yet, because the response is not a stream, also reports it.
    pub(super) fn on_completed(&mut self) {
        // A response that does not stream has its first token at its end. A rejection has none.
        if self.awaits_token && !self.ended_by_head {
            self.on_first_token();
        }
        // The number of tokens is not known.
        self.set_ended(Ended::Completed { output: 0 });
    }

    /// Reports to the limit that the body failed before its end.
    pub(super) fn on_broken_body(&mut self) {
        self.set_ended(Ended::Failed);
    }

    /// Reports to the limit that the inner service returned an error instead of a response.
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
