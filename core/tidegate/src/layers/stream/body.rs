//! The body of a successful response, which is parsed while the caller reads it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::error_outcome::{failed, timed_out};
use super::idle_body::silence_error;
use super::silence::SilenceWatch;
use crate::body::ResponseBody;
use crate::call::{Call, ExchangeRecord};
use crate::clock;
use crate::duration;
use crate::error::{Error, ErrorKind};
use crate::placement::Placed;
use crate::pool::EngineMonitor;
use tidegate_policy::outcome::FailureCause;
use tidegate_protocol::vllm::identifies_vllm;
use tidegate_protocol::{Dialect, End, Observer, Signal, Verdict};

/// A response body that passes its frames on unchanged and records what they contain. It fails if
/// the upstream is silent for too long, or if the body ends without the event that ends the
/// provider's stream.
pub(super) struct ObservedBody {
    call: Call,
    body: ResponseBody,
    observer: Observer,
    exchange: ExchangeRecord,
    /// `true` while the answer is searched for the marks of vLLM.
    identifies: bool,
    /// The time by which the first token must have arrived. `None` if unlimited.
    first_token_by: Option<Instant>,
    /// The classification of an error event in the body. `None` if there was none so far.
    failure: Option<Verdict>,
    /// Checks the replica of the stream while the stream is silent. `None` if the target is not a
    /// pool, or in mode `observe`.
    silence: Option<SilenceWatch>,
    /// The time by which the next chunk must have arrived, and the side that is at fault otherwise.
    /// Set when a silence begins. `None` if unlimited.
    idle_by: Option<(Instant, FailureCause)>,
    /// The timer for the next of three checks during a silence: the first token is late, the next
    /// chunk is late, or the replica is down. `None` if there is no time to check.
    timer: Option<Pin<Box<Sleep>>>,
    /// `true` while the upstream is silent: the last poll found no frame.
    is_silent: bool,
    /// `true` once the inner body has ended or failed.
    done: bool,
    /// The error of a response that turned out to be incomplete at its last frame. The next poll
    /// returns it. `None` if there is no such error.
    wrong_end: Option<Error>,
}

impl ObservedBody {
    pub(super) fn new(
        call: Call,
        placed: Option<Placed>,
        body: ResponseBody,
        observer: Observer,
        exchange: ExchangeRecord,
        identifies: bool,
        uploaded_at: Instant,
    ) -> Self {
        let first_token_by = if call.is_enforced() && observer.is_stream() {
            call.target().config().first_token.map(|limit| duration::after(uploaded_at, limit))
        } else {
            None
        };
        let silence = SilenceWatch::new(&call, placed).filter(|_| call.is_enforced());
        Self {
            call,
            body,
            observer,
            exchange,
            identifies,
            first_token_by,
            failure: None,
            silence,
            idle_by: None,
            timer: None,
            is_silent: false,
            done: false,
            wrong_end: None,
        }
    }

    /// Returns `true` if the response comes from a replica of a pool.
    pub(super) fn is_from_replica(&self) -> bool {
        self.silence.is_some()
    }

    /// Returns `true` if an event of the body was read.
    pub(super) fn has_event(&self) -> bool {
        self.observer.events() > 0
    }

    /// Returns `true` if enough of the body was read to classify the attempt: its first token, an
    /// error or the terminal event of an answer without a token, or any event if the API is not
    /// known. In pools, also a failure whose error may follow, because nothing limits how long the
    /// error is waited for.
    pub(super) fn is_classifiable(&self) -> bool {
        let is_known = self.call.facts().dialect != Dialect::Other;
        let has_failed =
            || self.failure.is_some() || (self.is_from_replica() && self.has_unexplained_failure());
        let is_decided = || self.exchange.has_token() || has_failed() || self.is_complete();
        self.has_event() && (!is_known || is_decided())
    }

    /// Returns `true` if an event has reported a failure without the error, which may follow.
    fn has_unexplained_failure(&self) -> bool {
        self.observer.unexplained_failure().is_some()
    }

    /// Returns `true` if the terminal event has arrived.
    fn is_complete(&self) -> bool {
        self.exchange.seen().is_complete
    }

    /// Returns the classification of an error event, or of a failure without an error, that arrived
    /// before any token. `None` if there was none.
    pub(super) fn early_failure(&self) -> Option<&Verdict> {
        let failure = self.failure.as_ref().or_else(|| self.observer.unexplained_failure());
        failure.filter(|_| !self.exchange.has_token())
    }

    /// Passes a chunk of the body to the [`Observer`], or the end of the body if `chunk` is `None`.
    /// Stores what the observer reports (first token, usage, end, errors) in the exchange record.
    fn observe(&mut self, chunk: Option<&[u8]>) {
        let (exchange, failure) = (&self.exchange, &mut self.failure);
        let on = |signal: Signal| match signal {
            Signal::FirstToken => exchange.on_first_token(clock::now()),
            Signal::Usage(usage) => exchange.update(|seen| seen.usage = Some(usage)),
            Signal::Terminal => exchange.update(|seen| seen.is_complete = true),
            Signal::Error(verdict) => {
                exchange.update(|seen| seen.is_failed = true);
                *failure = Some(verdict);
            }
        };
        if self.identifies && chunk.is_some_and(identifies_vllm) {
            self.identifies = false;
            self.call.target().engine().into_iter().for_each(EngineMonitor::on_vllm_answer);
        }
        match chunk {
            Some(chunk) => self.observer.push(chunk, on),
            None => self.observer.finish(on),
        }
        if self.has_unexplained_failure() {
            self.exchange.update(|seen| seen.is_failed = true);
        }
        self.exchange.set_deltas(self.observer.deltas());
    }

    /// Completes the exchange record at the end of the body.
    ///
    /// # Errors
    /// `Truncated` if the terminal event is missing. In mode `observe`, this is not an error.
    fn end(&mut self) -> Result<(), Error> {
        self.done = true;
        self.observe(None);
        let end = self.observer.end();
        self.exchange.update(|seen| seen.is_complete |= end == End::Complete);
        if end == End::Truncated && self.call.is_enforced() {
            let text = "the response ended without the provider's terminal event: it is incomplete";
            return Err(failed(&self.call, Error::new(ErrorKind::Truncated, text)));
        }
        Ok(())
    }

    /// Polls the timer while no frame is available, and sets it when the silence begins. Resolves
    /// with the error of the body when the silence has lasted too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if !self.is_silent {
            self.is_silent = true;
            let now = clock::now();
            self.exchange.on_all_read(now);
            self.idle_by = self.call.idle_limit().map(|(limit, cause)| (duration::after(now, limit), cause));
            if let Some(silence) = &mut self.silence {
                silence.start(now);
            }
            self.set_timer();
        }
        loop {
            let Some(timer) = &mut self.timer else { return Poll::Pending };
            ready!(timer.as_mut().poll(cx));
            let now = clock::now();
            let silence = match &mut self.silence {
                Some(silence) => silence.check(now),
                None => Ok(()),
            };
            let down = silence.err().map(|error| failed(&self.call, error));
            if let Some(error) = down.or_else(|| self.timeout(now)) {
                self.done = true;
                return Poll::Ready(error);
            }
            self.set_timer();
        }
    }

    /// Returns `true` if the first token may still arrive.
    fn awaits_first_token(&self) -> bool {
        !self.exchange.has_token() && !self.is_complete()
    }

    /// Sets the timer to the earliest time at which the silence must be checked. Removes the timer
    /// if there is no such time.
    fn set_timer(&mut self) {
        let first = self.first_token_by.filter(|_| self.awaits_first_token());
        let silence = self.silence.as_ref().and_then(|silence| silence.next_check);
        let Some(at) = [self.idle_by.map(|(by, _)| by), first, silence].into_iter().flatten().min() else {
            self.timer = None;
            return;
        };
        let at = tokio::time::Instant::from_std(at);
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(at),
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(at))),
        }
    }

    /// Returns the timeout error if the first token or the next chunk is overdue at `now`. `None`
    /// if neither is overdue.
    fn timeout(&self, now: Instant) -> Option<Error> {
        if self.first_token_by.is_some_and(|by| self.awaits_first_token() && by <= now) {
            let text = "no token arrived within the target's `first_token` limit";
            let error = Error::new(ErrorKind::FirstTokenTimeout, text);
            return Some(timed_out(&self.call, error, FailureCause::Upstream));
        }
        let (_, cause) = self.idle_by.filter(|(by, _)| *by <= now)?;
        Some(timed_out(&self.call, silence_error(), cause))
    }

    /// Returns the error for a response whose exchange failed with `error`. After the first token
    /// of a stream from a replica, a transport error becomes `Truncated`. Other errors stay
    /// unchanged.
    fn broken(&self, error: Error) -> Error {
        if self.silence.is_none() || !self.exchange.has_token() || error.kind() != ErrorKind::Transport {
            return error;
        }
        error.into_truncated("the replica broke the response off, so it is incomplete: ")
    }
}

impl Body for ObservedBody {
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
        if std::mem::take(&mut this.is_silent) {
            this.exchange.on_awaited_data(clock::now());
        }
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.observe(Some(data));
                }
                // Readers that know the length of a body may not poll for its end. They must do so
                // if the response is incomplete.
                if this.body.is_end_stream() {
                    this.wrong_end = this.end().err();
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                this.done = true;
                Some(Err(failed(&this.call, this.broken(error))))
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
