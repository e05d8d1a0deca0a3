//! A response's body that holds the permit until the response ends.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};

use super::recall::{Cause, Recall};
use super::{Linger, Permit, attempt, outcome};
use crate::adaptive::Ended;
use crate::body::ResponseBody;
use crate::call::Call;
use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::estimate::LengthSample;
use crate::kv::Progress;
use crate::placement::Fault;

/// Holds a permit, first for the attempt's future, then for its body. Gives it back at the end, on failure, or when dropped.
pub(super) struct Held {
    call: Call,
    permit: Option<(Permit, Linger)>,
    recall: Option<Arc<Recall>>,
    body: Option<ResponseBody>,
    /// How far the answer has come.
    progress: Progress,
    /// What the estimator has learned of its length.
    sample: LengthSample,
    /// Whether its first token is still to come, as far as the limit knows.
    awaits: bool,
    /// Whether it is the upstream that we wait for now, and not the reader.
    waits: bool,
    /// How the attempt ended, where something said so.
    ended: Option<Ended>,
}

impl Held {
    pub(super) fn new(call: Call, mut permit: Permit, linger: Linger) -> Self {
        let is_pool = permit.placed().is_some();
        let recall = if call.has_spare() && (call.facts().repeatable || !is_pool) {
            permit.recall()
        } else {
            // It could not be made again, or may have run and must not run twice: it is not called back.
            permit.answered();
            None
        };
        Self {
            progress: call.progress(),
            sample: LengthSample::default(),
            awaits: call.facts().stream,
            call,
            permit: Some((permit, linger)),
            recall,
            body: None,
            waits: true,
            ended: None,
        }
    }

    pub(super) fn permit(&mut self) -> Option<&mut Permit> {
        self.permit.as_mut().map(|(permit, _)| permit)
    }

    /// Until the call is called back, and why; never, where its target does not do that, or where it could not be made again.
    pub(super) fn recalled(&mut self) -> impl Future<Output = Cause> + use<> {
        let recall = self.recall.take();
        async move {
            match recall {
                Some(recall) => recall.told().await,
                None => std::future::pending().await,
            }
        }
    }

    /// The head of an answer came, or will not come.
    pub(super) fn answered(&mut self, result: &Result<Response<ResponseBody>, Error>) {
        let Some((permit, _)) = &mut self.permit else { return };
        permit.answered();
        self.waits = false;
        self.ended = outcome::of_head(permit, result);
        if self.ended.is_some() {
            return;
        }
        let mut streams = true;
        self.call.attempt(|attempt| streams = attempt.streams);
        if self.awaits && !streams {
            self.awaits = false;
            permit.unseen();
        }
        // The head was held back for the first event, which may have been a token.
        self.look();
    }

    /// Tells the limit of the first token, as soon as it is there, and the estimator how long the answer is at least.
    fn look(&mut self) {
        if self.permit.is_some() {
            let produced = self.progress.tokens();
            let expected = self.call.target().expected();
            expected.observe(self.call.facts(), self.call.tenant(), &mut self.sample, produced);
        }
        if self.awaits
            && self.progress.tokens() > 0
            && let Some((permit, _)) = &mut self.permit
        {
            self.awaits = false;
            permit.first_token();
        }
    }

    /// An answer broke off: that speaks against the replica that it came from.
    fn broke(&mut self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Transport | ErrorKind::Truncated)
            && let Some((permit, _)) = &mut self.permit
            && permit.placed().is_some()
        {
            permit.failed_there(Fault::Broke);
        }
    }

    pub(super) fn over(mut self, body: ResponseBody) -> Self {
        if body.is_end_stream() {
            self.release(true);
        }
        self.body = Some(body);
        self
    }

    /// The exchange goes first, then the slot: whoever gets the slot must not find the upstream still busy with us.
    fn release(&mut self, over: bool) {
        self.body = None;
        self.hand_back(over);
    }

    /// The slot alone, where the provider's own end was seen: nothing runs upstream any more, whatever the connection does.
    pub(super) fn hand_back_if_answered(&mut self) {
        let mut complete = false;
        self.call.attempt(|attempt| complete = attempt.complete);
        if complete {
            self.hand_back(false);
        }
    }

    /// `over`: the body has ended by itself.
    fn hand_back(&mut self, over: bool) {
        self.look();
        if let Some((mut permit, linger)) = self.permit.take() {
            let has_token = self.progress.tokens() > 0;
            let seen = || outcome::of_body(&self.call, over, self.waits, has_token);
            permit.ended(self.ended.unwrap_or_else(seen));
            attempt::settle(&self.call, &mut permit, &mut self.sample);
            linger.leave(permit);
            self.call.attempt(|attempt| attempt.released_at = Some(clock::now()));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release(false);
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        this.waits = true;
        let polled = Pin::new(&mut *body).poll_frame(cx);
        let over = body.is_end_stream();
        this.look();
        let frame = ready!(polled);
        this.waits = false;
        if let (Some(Ok(_)), Some((permit, _))) = (&frame, &this.permit) {
            permit.alive();
        }
        if let Some(Err(error)) = &frame {
            this.ended.get_or_insert(outcome::of_error(error, this.progress.tokens() > 0));
            this.broke(error);
        }
        let frame = frame.map(|frame| frame.map_err(|error| this.call.happened(error)));
        // Many readers never ask for the end once they have all that was announced.
        if !matches!(frame, Some(Ok(_))) || over {
            this.release(true);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(ResponseBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), ResponseBody::size_hint)
    }
}
