//! A successful response's body, watched.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use crate::body::ResponseBody;
use crate::call::Call;
use crate::clock;
use crate::error::{Error, ErrorKind};
use crate::kv::Progress;
use crate::wire::{End, Observer, Signal, Verdict};

/// Passes frames untouched; stamps what they show; fails where silence or the end is wrong.
pub(super) struct Watched {
    call: Call,
    body: ResponseBody,
    observer: Observer,
    progress: Progress,
    /// Until when the first token must have come.
    first_token_by: Option<Instant>,
    has_token: bool,
    failure: Option<Verdict>,
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    done: bool,
    wrong_end: Option<Error>,
}

impl Watched {
    pub(super) fn new(call: Call, body: ResponseBody, observer: Observer, sent_at: Instant) -> Self {
        let first_token_by = if call.is_enforced() && observer.is_stream() {
            call.target().config().first_token.map(|limit| sent_at + limit)
        } else {
            None
        };
        Self {
            progress: call.progress(),
            call,
            body,
            observer,
            first_token_by,
            has_token: false,
            failure: None,
            timer: None,
            waiting: false,
            done: false,
            wrong_end: None,
        }
    }

    /// Whether enough was seen to know whether the attempt failed at once.
    pub(super) fn has_begun(&self) -> bool {
        self.observer.events() > 0
    }

    /// The error event that came before any token.
    pub(super) fn early_failure(&self) -> Option<&Verdict> {
        self.failure.as_ref().filter(|_| !self.has_token)
    }

    fn see(&mut self, chunk: Option<&[u8]>) {
        let (call, has_token, failure) = (&self.call, &mut self.has_token, &mut self.failure);
        let on = |signal: Signal| match signal {
            Signal::FirstToken => {
                *has_token = true;
                call.attempt(|attempt| attempt.first_token_at = Some(clock::now()));
            }
            Signal::Usage(usage) => call.set_usage(usage),
            Signal::Terminal => call.attempt(|attempt| attempt.complete = true),
            Signal::Error(verdict) => *failure = Some(verdict),
        };
        match chunk {
            Some(chunk) => self.observer.push(chunk, on),
            None => self.observer.finish(on),
        }
        self.progress.reached(self.observer.deltas());
    }

    /// The body is over: was the answer?
    fn end(&mut self) -> Result<(), Error> {
        self.done = true;
        self.see(None);
        let deltas = self.observer.deltas();
        let end = self.observer.end();
        self.call.attempt(|attempt| {
            attempt.deltas = deltas;
            attempt.complete |= end == End::Complete;
            attempt.failed |= end == End::Failed;
        });
        if end == End::Truncated && self.call.is_enforced() {
            return Err(Error::new(
                ErrorKind::Truncated,
                "the response ended without the provider's terminal event: what came is incomplete",
            )
            .at(self.call.target().name()));
        }
        Ok(())
    }

    /// The reader waits: how long may it?
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if !self.waiting {
            self.waiting = true;
            let idle = self.call.idle_limit().map(|limit| clock::now() + limit);
            let first = self.first_token_by.filter(|_| !self.has_token);
            let Some(at) = [idle, first].into_iter().flatten().min() else {
                self.timer = None;
                return Poll::Pending;
            };
            let at = tokio::time::Instant::from_std(at);
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(at),
                None => self.timer = Some(Box::pin(tokio::time::sleep_until(at))),
            }
        }
        let Some(timer) = &mut self.timer else { return Poll::Pending };
        ready!(timer.as_mut().poll(cx));
        self.done = true;
        let late = self.first_token_by.is_some_and(|by| !self.has_token && by <= clock::now());
        let error = if late {
            Error::new(ErrorKind::FirstTokenTimeout, "no token came within the target's `first_token` limit")
        } else {
            Error::new(
                ErrorKind::IdleTimeout,
                "the stream fell silent for longer than the `idle` limit, or the client's read timeout",
            )
        };
        Poll::Ready(error.at(self.call.target().name()))
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if this.done {
            return Poll::Ready(this.wrong_end.take().map(Err));
        }
        let frame = match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => return this.poll_silence(cx).map(|error| Some(Err(error))),
        };
        this.waiting = false;
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.see(Some(data));
                }
                // A body of known length says by this that it is over; its reader may not ask again. If its end is wrong, it must ask.
                if this.body.is_end_stream() {
                    this.wrong_end = this.end().err();
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                this.done = true;
                let deltas = this.observer.deltas();
                this.call.attempt(|attempt| attempt.deltas = deltas);
                Some(Err(error.at(this.call.target().name())))
            }
            None => this.end().err().map(Err),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.done && self.wrong_end.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
