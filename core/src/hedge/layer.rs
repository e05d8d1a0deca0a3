//! The tower layer: two attempts at once, where one is late.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::{Request, Response};
use http_body_util::{BodyExt, Collected, Limited};

use crate::body::{RequestBody, ResponseBody};
use crate::call::{AttemptResult, Call, RetryCharge, outcome_of};
use crate::clock;
use crate::duration;
use crate::middleware::{InnerService, Middleware, ResponseFuture, tower_layer};
use crate::observe::Hedged;
use crate::transport::Foreign;
use tidegate_policy::outcome::AttemptOutcome;

/// How long a failure's explanation is waited for, and the most that is kept of it.
const PATIENCE: Duration = Duration::from_secs(1);
const LONGEST: usize = 1 << 20;

/// Tries a stream at another replica as well, once its first token is later than the pool's `hedge`.
///
/// *Default*: does nothing; acts on streams to a pool that sets `hedge`, by the gate's own transport. Wrong order: above retry, which would drive both; below
/// admission, where the second would have no slot.
/// *Cancellation safety*: dropping the future ends both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HedgeLayer;

tower_layer!(HedgeLayer);

impl<S: InnerService> Middleware<S> for HedgeLayer {
    fn call(&self, inner: &mut S, request: Request<RequestBody>) -> ResponseFuture {
        let (request, second) = Second::beside(request);
        let first = inner.call(request);
        match second {
            Some(second) => Box::pin(second.with(Box::pin(first), inner.clone())),
            None => Box::pin(first),
        }
    }
}

/// What a second try would be made from.
struct Second {
    call: Call,
    after: Duration,
    request: Request<RequestBody>,
}

impl Second {
    /// For a request that may be hedged.
    fn beside(request: Request<RequestBody>) -> (Request<RequestBody>, Option<Self>) {
        let call = request.extensions().get::<Call>().filter(|call| may_have_two(call));
        // The client's own transport serves one exchange of a call at a time.
        let call = call.filter(|_| request.extensions().get::<Foreign>().is_none()).cloned();
        let (call, after, again) = match (call.and_then(with_limit), request.body().again()) {
            (Some((call, after)), Some(again)) => (call, after, again),
            _ => return (request, None),
        };
        let (parts, body) = request.into_parts();
        let second = Self { call, after, request: Request::from_parts(parts.clone(), again) };
        (Request::from_parts(parts, body), Some(second))
    }

    /// The first answer of the two.
    async fn with<S, F>(self, mut first: Pin<Box<F>>, mut inner: S) -> AttemptResult
    where
        S: InnerService,
        F: Future<Output = AttemptResult>,
    {
        let Self { call, after, mut request } = self;
        tokio::select! {
            biased;
            ours = &mut first => return ours,
            () = late(&call, after) => {}
        }
        let hedge = call.hedge();
        let Some(_charge) = RetryCharge::withdraw(&hedge) else {
            call.target().metrics().hedged(Hedged::NoBudget);
            return first.await;
        };
        let _count = Count(&hedge);
        // Behind what it is about: whichever way this ends, the second try is over when its story is told.
        let pair = Pair::new(&call, &hedge);
        request.extensions_mut().insert(hedge.clone());
        // A stack that takes no other call now has no second try either, and is not waited for.
        let mut second = Box::pin(async move {
            std::future::poll_fn(|cx| inner.poll_ready(cx)).await?;
            inner.call(request).await
        });
        let theirs = tokio::select! {
            biased;
            ours = &mut first => {
                if !outcome_of(&ours).is_retryable() {
                    return ours;
                }
                // Its slot is needed for nothing any more.
                let ours = let_go(ours).await;
                let theirs = second.await;
                let outcome = outcome_of(&theirs);
                if !outcome.is_accepted() {
                    pair.failed(&outcome);
                    return ours;
                }
                theirs
            }
            theirs = &mut second => {
                let outcome = outcome_of(&theirs);
                if !outcome.is_accepted() {
                    pair.failed(&outcome);
                    drop(theirs);
                    drop(pair);
                    return first.await;
                }
                theirs
            }
        };
        // Its slot goes back before the other's answer is handed up.
        drop(first);
        pair.won();
        call.target().metrics().hedged(Hedged::Won);
        theirs
    }
}

/// A call and its second try. Told apart or dropped, it makes one story of the two.
struct Pair<'a> {
    call: &'a Call,
    hedge: &'a Call,
    won: bool,
}

impl<'a> Pair<'a> {
    fn new(call: &'a Call, hedge: &'a Call) -> Self {
        Self { call, hedge, won: false }
    }

    /// The second try came first. To be told once the call's own attempt is over.
    fn won(mut self) {
        self.won = true;
    }

    /// The second try failed: its replica is none to go to next.
    fn failed(&self, outcome: &AttemptOutcome) {
        self.hedge.on_failed_attempt(outcome);
        self.call.avoid(self.hedge.placed());
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        if self.won {
            self.call.continue_as(self.hedge);
        } else {
            self.call.add_lost_hedge(self.hedge);
        }
    }
}

/// Reads what a failure says, which is at hand and short, so that the slot goes back that its body holds.
async fn let_go(failed: AttemptResult) -> AttemptResult {
    let (parts, body) = failed?.into_parts();
    let read = tokio::time::timeout(PATIENCE, Limited::new(body, LONGEST).collect()).await;
    // What is longer, or late, was no explanation.
    let text = read.ok().and_then(Result::ok).map(Collected::to_bytes).unwrap_or_default();
    let mut response = Response::from_parts(parts, ResponseBody::full(text));
    response.headers_mut().remove(CONTENT_LENGTH);
    Ok(response)
}

/// Whether two attempts at it could be under way at once.
fn may_have_two(call: &Call) -> bool {
    let facts = call.facts();
    call.is_enforced() && call.is_inference() && facts.stream && facts.repeatable && !call.was_hedged()
}

fn with_limit(call: Call) -> Option<(Call, Duration)> {
    let after = call.target().config().pool.as_ref()?.hedge?;
    Some((call, after))
}

/// Until the present attempt has been without a token for so long. What it waits for a slot is not its replica's fault.
async fn late(call: &Call, after: Duration) {
    loop {
        let now = clock::now();
        let due = duration::after(call.present_sent_at().unwrap_or(now), after);
        if due <= now {
            return;
        }
        tokio::time::sleep_until(tokio::time::Instant::from_std(due)).await;
    }
}

/// Counts a second try, however it ends.
struct Count<'a>(&'a Call);

impl Drop for Count<'_> {
    fn drop(&mut self) {
        let how = if self.0.sent() > 0 { Hedged::Sent } else { Hedged::NoSlot };
        self.0.target().metrics().hedged(how);
    }
}
