//! The hedging layer: sends a late stream to a second replica as well.

use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Collected, Limited};

use crate::body::{RequestBody, ResponseBody};
use crate::call::{AttemptResult, Call, RetryCharge, outcome_of};
use crate::clock;
use crate::duration;
use crate::layers::middleware::{InnerService, Middleware, ResponseFuture, boxed, tower_layer};
use crate::metrics::HedgeOutcome;
use crate::transport::Foreign;
use tidegate_policy::outcome::AttemptOutcome;

/// Maximum time to wait for the body of a failed response: 1 s.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of the body of a failed response that is kept, in bytes: 1 MiB.
const MAX_KEPT_ERROR_BODY: usize = 1 << 20;

/// Sends a stream to a second replica if its first token takes longer than the pool's `hedge`
/// delay. The first attempt to deliver a token provides the response.
///
/// *Default*: acts in mode `enforce` on streams that are safe to repeat, to a pool that sets
/// `hedge` (default: none), over the gate's own transport. The layer must be below retry, which
/// sees both attempts as one. It must be above admission, because each attempt has its own slot.
///
/// # Cancel safety
///
/// Dropping the future ends both attempts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HedgeLayer;

tower_layer!(HedgeLayer);

impl<S: InnerService> Middleware<S> for HedgeLayer {
    fn applies_to(&self, call: &Call) -> bool {
        may_be_hedged(call)
    }

    fn call(&self, call: Call, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        let (parts, body) = request.into_parts();
        let hedge = Hedge::new(call, &parts, &body);
        let first = boxed(inner.call(Request::from_parts(parts, body)));
        match hedge {
            Some(hedge) => Box::pin(hedge.race(first, inner.clone())),
            None => first,
        }
    }
}

/// A hedge that may be sent: the call, a copy of its request, and the delay after which the copy is
/// sent.
struct Hedge {
    call: Call,
    /// Time since the first attempt was sent, without a token, after which the copy is sent.
    after: Duration,
    request: Request<RequestBody>,
}

impl Hedge {
    /// Prepares a hedge by copying the request of a call. Returns `None` if the pool sets no
    /// `hedge` delay, if the body can be sent only once, or if the request uses its client's own
    /// transport.
    fn new(call: Call, parts: &Parts, body: &RequestBody) -> Option<Self> {
        // The client's own transport serves one exchange of a call at a time.
        if parts.extensions.get::<Foreign>().is_some() {
            return None;
        }
        let after = call.target().config().pool.as_ref()?.hedge?;
        let request = Request::from_parts(parts.clone(), body.try_clone()?);
        Some(Self { call, after, request })
    }

    /// Waits for `first`, the first attempt. If its first token is late, also sends the copy of the
    /// request over `inner`, and returns the result of [`Pair::first_accepted`].
    async fn race<S: InnerService>(self, mut first: ResponseFuture, mut inner: S) -> AttemptResult {
        let Self { call, after, mut request } = self;
        tokio::select! {
            biased;
            ours = &mut first => return ours,
            () = token_is_late(&call, after) => {}
        }
        let hedge = call.hedge();
        let Some(_charge) = RetryCharge::withdraw(&hedge) else {
            call.target().metrics().on_hedge(HedgeOutcome::NoBudget);
            return first.await;
        };
        call.begin_hedge();
        request.extensions_mut().insert(hedge.clone());
        // Polled to readiness here, so that the first attempt does not wait for it.
        let second = Box::pin(async move {
            std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
            inner.call(request).await
        });
        Pair { call: &call, hedge: &hedge, is_won: false }.first_accepted(first, second).await
    }
}

/// A call and its hedge. Dropping the pair counts the hedge in the metrics, and adds the attempts
/// of the hedge to the records of the call.
struct Pair<'a> {
    call: &'a Call,
    hedge: &'a Call,
    /// `true` if the response of the hedge is returned. Set only after the call's own attempt has
    /// ended.
    is_won: bool,
}

impl Pair<'_> {
    /// Waits for `first`, the call's own attempt, and `second`, the attempt of the hedge. Returns
    /// the result of the attempt that is accepted first. If both fail, or if `first` fails in a way
    /// that allows no retry, returns the result of `first`.
    async fn first_accepted(
        mut self,
        mut first: ResponseFuture,
        mut second: ResponseFuture,
    ) -> AttemptResult {
        // `self` is dropped after `second`, so that the hedge is over when its records are merged.
        // The outcome of `first` if it has failed. `first` then reads the body of the failure.
        let mut failure = None;
        let mut detached = None;
        let theirs = loop {
            tokio::select! {
                biased;
                ours = &mut first, if detached.is_none() => {
                    if failure.is_some() {
                        detached = Some(ours);
                        continue;
                    }
                    let outcome = outcome_of(&ours);
                    if !outcome.is_retryable() {
                        return ours;
                    }
                    failure = Some(outcome);
                    // Releases the slot of the failed attempt, and does not delay the hedge.
                    first = Box::pin(detach_body(ours));
                }
                theirs = &mut second => break theirs,
            }
        };
        let outcome = outcome_of(&theirs);
        if !outcome.is_accepted() {
            self.on_failed_hedge(&outcome);
            drop(theirs);
            drop(self);
            return match detached {
                Some(ours) => ours,
                None => first.await,
            };
        }
        if let Some(failure) = failure {
            // The retry layer counts only the result that it gets.
            self.call.on_failed_attempt(&failure);
        }
        // The loser's slot is released before the winner's response is handed up.
        drop(first);
        self.is_won = true;
        let metrics = self.call.target().metrics();
        drop(self);
        metrics.on_hedge(HedgeOutcome::Won);
        theirs
    }

    /// Counts a failed attempt of the hedge in the metrics, and makes the next attempt of the call
    /// avoid the replica of the hedge.
    fn on_failed_hedge(&self, outcome: &AttemptOutcome) {
        self.hedge.on_failed_attempt(outcome);
        self.call.avoid(self.hedge.placed());
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        let how = if self.hedge.sent_attempts() > 0 { HedgeOutcome::Sent } else { HedgeOutcome::NoSlot };
        self.call.target().metrics().on_hedge(how);
        if self.is_won {
            self.call.continue_as(self.hedge);
        } else {
            self.call.add_lost_hedge(self.hedge);
        }
    }
}

/// Reads the body of a failed response, which releases its slot. A body that is longer than
/// [`MAX_KEPT_ERROR_BODY`], takes longer than [`ERROR_BODY_TIMEOUT`] or breaks off is replaced by
/// an empty one. Returns an error unchanged.
async fn detach_body(failed: AttemptResult) -> AttemptResult {
    let (parts, body) = failed?.into_parts();
    let read =
        tokio::time::timeout(ERROR_BODY_TIMEOUT, Limited::new(body, MAX_KEPT_ERROR_BODY).collect()).await;
    // A longer or later body is dropped: it explains nothing.
    let text = read.ok().and_then(Result::ok).map(Collected::to_bytes).unwrap_or_default();
    let mut response = Response::from_parts(parts, ResponseBody::full(text));
    response.headers_mut().remove(CONTENT_LENGTH);
    Ok(response)
}

/// Returns `true` if the call itself allows a second attempt: the mode is `enforce`, and the call
/// runs a model, streams and is safe to repeat. [`Hedge::new`] checks further conditions of the
/// pool and the request.
fn may_be_hedged(call: &Call) -> bool {
    let facts = call.facts();
    call.is_enforced() && call.is_inference() && facts.stream && facts.repeatable
}

/// Resolves when the current attempt of the call was sent at least `after` ago. The wait for a slot
/// does not count.
async fn token_is_late(call: &Call, after: Duration) {
    loop {
        let now = clock::now();
        let due = duration::after(call.current_sent_at().unwrap_or(now), after);
        if due <= now {
            return;
        }
        tokio::time::sleep_until(tokio::time::Instant::from_std(due)).await;
    }
}
