//! Clients that retry by themselves: what callers use without a gate.

use std::time::Duration;

use http::{Request, Response};
use tidegate::{Error, ErrorKind, RequestBody, ResponseBody, Transport};
use tokio::time::Instant;
use tower::{ServiceExt, service_fn};

/// The retry rule of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    name: &'static str,
    /// The maximum number of attempts per call. `None` means unlimited until the deadline.
    attempts: Option<u32>,
    /// The share of the exponential delay that is random, from 0 to 1.
    jitter: f64,
    deadline: Duration,
}

/// The delay before the first retry, as in the official SDKs. The delay doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(8);
/// The longest Retry-After that the official SDKs honour.
const LONGEST_TOLD: Duration = Duration::from_secs(60);

impl Rule {
    /// Returns a rule of four attempts with full jitter.
    pub(crate) fn four(deadline: Duration) -> Self {
        Self { name: "naive, 4 attempts", attempts: Some(4), jitter: 1.0, deadline }
    }

    /// Returns the rule of the official OpenAI client: two retries, with a quarter of the delay
    /// random.
    pub(crate) fn openai(deadline: Duration) -> Self {
        Self { name: "openai's rule", attempts: Some(3), jitter: 0.25, deadline }
    }

    /// Returns a rule that retries until the deadline.
    pub(crate) fn persistent(deadline: Duration) -> Self {
        Self { name: "naive, until deadline", attempts: None, jitter: 1.0, deadline }
    }

    /// Returns the rule's name in results.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns a client that sends through `transport` and retries by this rule.
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

    fn delay(&self, failures: u32, told: Option<Duration>) -> Duration {
        match told.filter(|told| *told <= LONGEST_TOLD) {
            Some(told) => told,
            None => {
                let bound = FIRST.saturating_mul(1 << (failures - 1).min(10)).min(LONGEST);
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
        let told = match &result {
            Ok(response) if !matches!(response.status().as_u16(), 408 | 409 | 429 | 500..) => return result,
            Ok(response) => told(response),
            Err(_) => None,
        };
        let delay = rule.delay(failures, told);
        if rule.attempts.is_some_and(|most| failures >= most) || Instant::now() + delay >= by {
            return result;
        }
        drop(result);
        tokio::time::sleep(delay).await;
    }
    Err(Error::new(ErrorKind::Deadline, "the deadline passed"))
}

fn told(response: &Response<ResponseBody>) -> Option<Duration> {
    let header = |name| response.headers().get(name)?.to_str().ok()?.parse::<f64>().ok();
    let seconds = header("retry-after-ms").map(|ms| ms / 1e3).or_else(|| header("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}
