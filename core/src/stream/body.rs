//! A successful response's body, watched.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;

use super::cut::Cut;
use super::outcome::failed;
use crate::body::ResponseBody;
use crate::call::{Call, ExchangeRecord};
use crate::clock;
use crate::duration;
use crate::error::{Error, ErrorKind};
use crate::placement::Placed;
use crate::wire::{Dialect, End, Observer, Signal, Verdict};

/// Passes frames untouched; stamps what they show; fails where silence or the end is wrong.
pub(super) struct Watched {
    call: Call,
    body: ResponseBody,
    observer: Observer,
    exchange: ExchangeRecord,
    /// Until when the first token must have come.
    first_token_by: Option<Instant>,
    failure: Option<Verdict>,
    /// Of a stream at a replica.
    cut: Option<Cut>,
    /// Until when the next chunk must have come.
    idle_by: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    done: bool,
    wrong_end: Option<Error>,
}

impl Watched {
    pub(super) fn new(
        call: Call,
        placed: Option<Placed>,
        body: ResponseBody,
        observer: Observer,
        exchange: ExchangeRecord,
    ) -> Self {
        let first_token_by = if call.is_enforced() && observer.is_stream() {
            call.target().config().first_token.map(|limit| duration::after(exchange.sent_at(), limit))
        } else {
            None
        };
        let cut = Cut::of(&call, placed).filter(|_| call.is_enforced());
        Self {
            call,
            body,
            observer,
            exchange,
            first_token_by,
            failure: None,
            cut,
            idle_by: None,
            timer: None,
            waiting: false,
            done: false,
            wrong_end: None,
        }
    }

    /// Whether enough was seen to know whether the attempt failed at once; at a replica, whether the caller would miss anything of it.
    pub(super) fn has_begun(&self) -> bool {
        let by_token = self.cut.is_some() && self.call.facts().dialect != Dialect::Other;
        self.observer.events() > 0 && (!by_token || self.exchange.has_token() || self.failure.is_some())
    }

    /// The error event that came before any token.
    pub(super) fn early_failure(&self) -> Option<&Verdict> {
        self.failure.as_ref().filter(|_| !self.exchange.has_token())
    }

    fn see(&mut self, chunk: Option<&[u8]>) {
        let (exchange, failure) = (&self.exchange, &mut self.failure);
        let on = |signal: Signal| match signal {
            Signal::FirstToken => exchange.on_first_token(clock::now()),
            Signal::Usage(usage) => exchange.update(|seen| seen.usage = Some(usage)),
            Signal::Terminal => exchange.update(|seen| seen.is_complete = true),
            Signal::Error(verdict) => *failure = Some(verdict),
        };
        match chunk {
            Some(chunk) => self.observer.push(chunk, on),
            None => self.observer.finish(on),
        }
        self.exchange.set_tokens(self.observer.deltas());
    }

    /// The body is over: was the answer?
    fn end(&mut self) -> Result<(), Error> {
        self.done = true;
        self.see(None);
        let deltas = self.observer.deltas();
        let end = self.observer.end();
        self.exchange.update(|seen| {
            seen.deltas = deltas;
            seen.is_complete |= end == End::Complete;
            seen.is_failed |= end == End::Failed;
        });
        if end == End::Truncated && self.call.is_enforced() {
            let text = "the response ended without the provider's terminal event: what came is incomplete";
            return Err(failed(&self.call, Error::new(ErrorKind::Truncated, text)));
        }
        Ok(())
    }

    /// The reader waits: how long may it?
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if !self.waiting {
            self.waiting = true;
            let now = clock::now();
            self.idle_by = self.call.idle_limit().map(|limit| duration::after(now, limit));
            if let Some(cut) = &mut self.cut {
                cut.silent(now);
            }
            self.arm();
        }
        loop {
            let Some(timer) = &mut self.timer else { return Poll::Pending };
            ready!(timer.as_mut().poll(cx));
            let now = clock::now();
            let cut = match &mut self.cut {
                Some(cut) => cut.look(now),
                None => Ok(()),
            };
            if let Some(error) = cut.err().or_else(|| self.late(now)) {
                self.done = true;
                return Poll::Ready(failed(&self.call, error));
            }
            self.arm();
        }
    }

    /// Sets the timer to what comes first.
    fn arm(&mut self) {
        let first = self.first_token_by.filter(|_| !self.exchange.has_token());
        let cut = self.cut.as_ref().and_then(Cut::at);
        let Some(at) = [self.idle_by, first, cut].into_iter().flatten().min() else {
            self.timer = None;
            return;
        };
        let at = tokio::time::Instant::from_std(at);
        match &mut self.timer {
            Some(timer) => timer.as_mut().reset(at),
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(at))),
        }
    }

    fn late(&self, now: Instant) -> Option<Error> {
        if self.first_token_by.is_some_and(|by| !self.exchange.has_token() && by <= now) {
            let text = "no token came within the target's `first_token` limit";
            return Some(Error::new(ErrorKind::FirstTokenTimeout, text));
        }
        let text = "the stream fell silent for longer than the `idle` limit, or the client's read timeout";
        self.idle_by.filter(|by| *by <= now).map(|_| Error::new(ErrorKind::IdleTimeout, text))
    }

    /// What broke an answer off in its middle. A replica that goes takes its streams along: they are cut short, whatever the connection says.
    fn broken(&self, error: Error) -> Error {
        if self.cut.is_none() || !self.exchange.has_token() || error.kind() != ErrorKind::Transport {
            return error;
        }
        error.cut_short("its replica broke it off, and what came is incomplete: ")
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
                this.exchange.update(|seen| seen.deltas = deltas);
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
