//! Clients without a gate that retry failed calls by themselves. Several experiments compare
//! Tidegate with them.

use std::time::Duration;

use http::{Request, Response};
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tokio::time::Instant;
use tower::{ServiceExt, service_fn};

/// The retry rule of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    name: &'static str,
    /// The maximum number of attempts per call, including the first. With `None`, attempts are only
    /// limited by `deadline`.
    attempts: Option<u32>,
    /// The share of each exponential delay that is random, from 0 (no jitter) to 1 (full jitter).
    jitter: f64,
    deadline: Duration,
}

/// The delay before the first retry, as in the official SDKs. Each further delay is twice as long,
/// at most [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(500);
const MAX_DELAY: Duration = Duration::from_secs(8);
/// The longest Retry-After that the official SDKs honour. A longer one is ignored.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

impl Rule {
    /// Returns a rule with at most four attempts per call, and with full jitter: each delay is
    /// random between zero and the exponential delay.
    pub(crate) fn four(deadline: Duration) -> Self {
        Self { name: "naive, 4 attempts", attempts: Some(4), jitter: 1.0, deadline }
    }

    /// Returns the rule of the official OpenAI client: at most two retries. A quarter of each delay
    /// is random.
    pub(crate) fn openai(deadline: Duration) -> Self {
        Self { name: "openai's rule", attempts: Some(3), jitter: 0.25, deadline }
    }

    /// Returns a rule with full jitter that retries until `deadline` has passed since the call
    /// began.
    pub(crate) fn persistent(deadline: Duration) -> Self {
        Self { name: "naive, until deadline", attempts: None, jitter: 1.0, deadline }
    }

    /// Returns the name of the rule in figures and tables.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns a transport that sends each request through `transport`, and retries failures by
    /// this rule. A call that is still running when its deadline has passed fails with
    /// [`ErrorKind::Deadline`].
    pub(crate) fn over(self, transport: Transport) -> Transport {
        Transport::new(service_fn(move |request| {
            let transport = transport.clone();
            async move {
                match tokio::time::timeout(self.deadline, drive(self, transport, request)).await {
                    Ok(result) => result,
                    Err(_) => Err(Error::new(ErrorKind::Deadline, "the deadline passed")),
                }
            }
        }))
    }

    fn delay(&self, failures: u32, retry_after: Option<Duration>) -> Duration {
        match retry_after.filter(|retry_after| *retry_after <= MAX_RETRY_AFTER) {
            Some(retry_after) => retry_after,
            None => {
                let bound = FIRST_DELAY.saturating_mul(1 << (failures - 1).min(10)).min(MAX_DELAY);
                bound.mul_f64(1.0 - self.jitter * fastrand::f64())
            }
        }
    }
}

async fn drive(
    rule: Rule,
    transport: Transport,
    request: Request<RequestBody>,
) -> Result<Response<ResponseBody>, Error> {
    let by = Instant::now() + rule.deadline;
    let (parts, body) = request.into_parts();
    for failures in 1.. {
        let again = body.try_clone().unwrap_or_default();
        let result = transport.clone().oneshot(Request::from_parts(parts.clone(), again)).await;
        let retry_after = match &result {
            Ok(response) if !matches!(response.status().as_u16(), 408 | 409 | 429 | 500..) => return result,
            Ok(response) => retry_after(response),
            Err(_) => None,
        };
        let delay = rule.delay(failures, retry_after);
        if rule.attempts.is_some_and(|most| failures >= most) || Instant::now() + delay >= by {
            return result;
        }
        drop(result);
        tokio::time::sleep(delay).await;
    }
    Err(Error::new(ErrorKind::Deadline, "the deadline passed"))
}

fn retry_after(response: &Response<ResponseBody>) -> Option<Duration> {
    let header = |name| response.headers().get(name)?.to_str().ok()?.parse::<f64>().ok();
    let seconds = header("retry-after-ms").map(|ms| ms / 1e3).or_else(|| header("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}
