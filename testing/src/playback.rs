//! A scripted body, played on tokio's clock.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tidegate::{Error, ErrorKind};
use tokio::time::{Instant, Sleep};

use crate::in_flight::InFlight;

/// An answer that is ready to be played.
pub(crate) struct Played {
    pub(crate) answer: &'static str,
    /// Time until the head or the refusal.
    pub(crate) after: Duration,
    /// `None` if the connection is refused.
    pub(crate) head: Option<Head>,
    pub(crate) steps: VecDeque<Step>,
}

/// The head of an answer.
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) length: Option<u64>,
}

impl Played {
    /// Returns an answer whose body is sent at once.
    pub(crate) fn whole(status: StatusCode, mut headers: HeaderMap, body: Bytes) -> Self {
        let length = body.len() as u64;
        headers.insert(CONTENT_LENGTH, length.into());
        let steps = if body.is_empty() {
            VecDeque::new()
        } else {
            [Step { at: Duration::ZERO, what: What::Chunk(body) }].into()
        };
        Self {
            answer: "status",
            after: Duration::ZERO,
            head: Some(Head { status, headers, length: Some(length) }),
            steps,
        }
    }
}

/// What comes, and when: seconds after the head.
pub(crate) struct Step {
    pub(crate) at: Duration,
    pub(crate) what: What,
}

pub(crate) enum What {
    Chunk(Bytes),
    /// Nothing, for ever.
    Silence,
    /// The exchange fails so.
    Fail(ErrorKind, &'static str),
}

/// A body that is played. Its attempt ends with its last step, or is cancelled where it is dropped before that.
pub(crate) struct Playback {
    start: Instant,
    steps: VecDeque<Step>,
    sleep: Option<Pin<Box<Sleep>>>,
    length: Option<u64>,
    in_flight: Option<InFlight>,
}

impl Playback {
    pub(crate) fn new(steps: VecDeque<Step>, length: Option<u64>, in_flight: InFlight) -> Self {
        let mut body = Self { start: Instant::now(), steps, sleep: None, length, in_flight: Some(in_flight) };
        body.end_if_over();
        body
    }

    fn end_if_over(&mut self) {
        if self.steps.is_empty()
            && let Some(in_flight) = self.in_flight.take()
        {
            in_flight.answered();
        }
    }
}

impl Body for Playback {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(step) = self.steps.front() else { return Poll::Ready(None) };
        let due = self.start + step.at;
        if due > Instant::now() {
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            ready!(sleep.as_mut().poll(cx));
        }
        self.sleep = None;
        if matches!(self.steps.front(), Some(Step { what: What::Silence, .. })) {
            return Poll::Pending;
        }
        let step = self.steps.pop_front();
        self.end_if_over();
        Poll::Ready(match step.map(|step| step.what) {
            Some(What::Chunk(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(What::Fail(kind, why)) => Some(Err(Error::new(kind, why))),
            Some(What::Silence) | None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map(SizeHint::with_exact).unwrap_or_default()
    }
}
