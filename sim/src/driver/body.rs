//! The body of a response: one document or a stream, with the faults that interrupt it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::call_guards::CallGuard;
use super::clock::SimClock;
use super::state::SequenceEvent;
use super::stats::AttemptEnd;
use crate::api::{ApiError, Encoder, error_stream};
use crate::faults::StreamPlan;

/// The body of a response: one document, or a stream whose events follow as the engine generates
/// tokens.
///
/// # Cancel safety
///
/// Dropping the body before its end aborts the sequence in its engine at once, whether it waits or
/// runs.
pub struct SimBody(BodyKind);

enum BodyKind {
    Whole(Option<Bytes>),
    Stream(Box<StreamBody>),
}

/// An error that ends a body before its regular end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The connection was reset by
    /// [`Faults::reset_mid_stream`](crate::faults::Faults::reset_mid_stream), or because an outage
    /// killed the server.
    #[error("connection reset by the simulator")]
    Reset,
}

struct StreamBody {
    call: CallGuard,
    encoder: Encoder,
    plan: StreamPlan,
    /// The pause in progress. `None` without a pause, and `Some(None)` during a pause that never
    /// ends.
    pause: Option<Option<Pin<Box<Sleep>>>>,
    clock: SimClock,
    opened: bool,
    done: bool,
}

impl SimBody {
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(BodyKind::Whole(Some(bytes.into()).filter(|b: &Bytes| !b.is_empty())))
    }

    pub(super) fn stream(call: CallGuard, encoder: Encoder, plan: StreamPlan, clock: SimClock) -> Self {
        let (pause, opened, done) = (None, false, false);
        Self(BodyKind::Stream(Box::new(StreamBody { call, encoder, plan, pause, clock, opened, done })))
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let next = match &mut self.0 {
            BodyKind::Whole(bytes) => Poll::Ready(bytes.take().map(Ok)),
            BodyKind::Stream(stream) => stream.poll_next(cx),
        };
        next.map(|item| item.map(|result| result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodyKind::Whole(bytes) => bytes.is_none(),
            BodyKind::Stream(stream) => stream.done,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodyKind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            BodyKind::Stream(_) => SizeHint::default(),
        }
    }
}

impl StreamBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.done {
            return Poll::Ready(None);
        }
        if !std::mem::replace(&mut self.opened, true)
            && let Some(bytes) = self.encoder.open()
        {
            return Poll::Ready(Some(Ok(bytes)));
        }
        loop {
            ready!(self.poll_pause(cx));
            let sent = self.call.attempt.sent();
            if self.plan.reset_after == Some(sent) {
                return self.end(AttemptEnd::Reset, Some(Err(BodyError::Reset)));
            }
            if self.plan.truncate_after == Some(sent) {
                return self.end(AttemptEnd::Truncated, None);
            }
            match ready!(self.call.poll_signal(cx)) {
                Some(SequenceEvent::Token(index)) => {
                    self.call.attempt.token_sent();
                    let events = self.encoder.token(index);
                    // Some protocols have no event for a token of a tool call.
                    if !events.is_empty() {
                        return Poll::Ready(Some(Ok(events)));
                    }
                }
                Some(SequenceEvent::Finished) => {
                    let last = self.encoder.close(sent);
                    return self.end(AttemptEnd::Completed, Some(Ok(last)));
                }
                Some(SequenceEvent::Died) => {
                    let last = error_stream(self.encoder.protocol(), &ApiError::engine_dead());
                    return self.end(AttemptEnd::Truncated, Some(Ok(last)));
                }
                None => return self.end(AttemptEnd::Reset, Some(Err(BodyError::Reset))),
            }
        }
    }

    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sent = self.call.attempt.sent();
        if let Some((_, pause)) = self.plan.stall.take_if(|(after, _)| *after == sent) {
            self.pause = Some(pause.map(|p| Box::pin(tokio::time::sleep(self.clock.client(p)))));
        }
        match &mut self.pause {
            None => Poll::Ready(()),
            Some(None) => Poll::Pending,
            Some(Some(sleep)) => {
                ready!(sleep.as_mut().poll(cx));
                self.pause = None;
                Poll::Ready(())
            }
        }
    }

    fn end<T>(&mut self, outcome: AttemptEnd, last: T) -> Poll<T> {
        self.done = true;
        self.call.attempt.end(outcome);
        Poll::Ready(last)
    }
}
