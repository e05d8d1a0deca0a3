//! Measures clients of a gateway in front of two backends. The gateway's answers announce the
//! limits of both backends in turn, and both are higher than the limit that the gateway enforces.
//!
//! Only its 429s show the true limit. The results are compared with those of a gateway that always
//! announces the same limit, which is too high as well.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use tidegate::{Error, RequestBody, ResponseBody, Transport};
use tokio::time::Instant;
use tower::{ServiceExt, service_fn};

use super::load::Load;
use super::{Contestant, PEER_SEEDS, Scene, TERMS, TPM, figures, local_bucket, play};
use crate::Fallible;
use crate::quota_provider::{Counts, Terms};
use crate::report::{Op, Report};
use crate::retrying_clients::Rule;
use crate::seeds::Seeds;
use crate::virtual_time;

/// The limits that the steady gateway announces, in tokens per minute.
const STEADY: &[u64] = &[2 * TPM];
/// The limits that the other gateway announces in turn, in tokens per minute.
const IN_TURN: &[u64] = &[2 * TPM, TPM * 6 / 5];

/// Simulates both gateways on `seeds`, and records figures and pass criteria in `report`.
pub(super) fn measure(report: &mut Report, seeds: Seeds) -> Fallible<()> {
    let loads = virtual_time::each(seeds, |seed| Ok(Arc::new(Load::new("conv", seed)?)))?;
    let mut refusals = Vec::new();
    for (name, announced) in [("steady", STEADY), ("in turn", IN_TURN)] {
        let terms = Terms { counts: Counts::Actual, announced: Some(announced), ..TERMS };
        let scene = Scene { name, terms, configured: false, counting_configured: true };
        let key = |what: &str| format!("gateway, limits {name}: {what}");
        let run = |who, seeds: Seeds| {
            virtual_time::each(seeds, |seed| {
                let load = loads.iter().find(|load| load.seed == seed).ok_or("no load of that seed")?;
                play(scene, who, load.clone(), seed)
            })
        };
        let (used, refused) = figures(&terms, &run(Contestant::Tidegate, seeds)?);
        report.figure(key("share of the quota used"), used);
        report.figure(key("429s a thousand calls"), refused);
        report.bar(key("share of the quota used"), used.least, Op::AtLeast, 0.8);
        refusals.push(refused.median);
        let (used, refused) = figures(&terms, &run(Contestant::Forgetful, seeds.take(PEER_SEEDS))?);
        report.peer("forgets at each limit", key("share of the quota used"), used);
        report.peer("forgets at each limit", key("429s a thousand calls"), refused);
    }
    if let [steady, in_turn] = refusals[..] {
        let what = "gateway: 429s a thousand calls, limits in turn over a steady one (medians)";
        report.bar(what, in_turn - steady, Op::AtMost, MORE);
    }
    Ok(())
}

/// The maximum number of additional 429s per thousand calls with alternating limits, compared with
/// a steady one, for the experiment to pass.
const MORE: f64 = 1.0;

/// A client with a token bucket that refills at a share of the announced limit. Each 429 decreases
/// the share. When another limit is announced, the share is reset to 1.
#[derive(Clone)]
pub(super) struct Forgetful {
    bucket: Arc<Mutex<Bucket>>,
    transport: Transport,
}

struct Bucket {
    /// The announced limit, in tokens per minute.
    limit: f64,
    /// The share of the announced limit that the client uses, from 0 to 1.
    share: f64,
    /// Tokens in the bucket.
    level: f64,
    at: Instant,
}

impl Bucket {
    /// Takes `cost` tokens and returns `None`. If the bucket has too few tokens, takes none and
    /// returns the time after which to try again.
    fn take(&mut self, cost: f64) -> Option<Duration> {
        let (now, rate) = (Instant::now(), self.share * self.limit / 60.0);
        self.level = (self.level + rate * (now - self.at).as_secs_f64()).min(rate * DEPTH);
        self.at = now;
        let missing = cost.min(rate * DEPTH) - self.level;
        if missing > 0.0 {
            return Some(Duration::from_secs_f64(missing / rate + 0.001));
        }
        self.level -= cost;
        None
    }

    fn read_headers(&mut self, response: &Response<ResponseBody>) {
        let limit = response.headers().get("x-ratelimit-limit-tokens");
        if let Some(limit) = limit.and_then(|limit| limit.to_str().ok()?.parse().ok())
            && limit != self.limit
        {
            (self.limit, self.share) = (limit, 1.0);
        }
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            self.share *= CUT;
        }
    }
}

/// The depth of the bucket, in seconds of its rate.
const DEPTH: f64 = 10.0;
/// The factor by which a 429 multiplies [`Bucket::share`], the share of the announced limit that
/// the client uses.
const CUT: f64 = 0.9;

impl Forgetful {
    pub(super) fn over(transport: Transport) -> Transport {
        let bucket = Bucket { limit: TPM as f64, share: 1.0, level: 0.0, at: Instant::now() };
        let forgetful = Self { bucket: Arc::new(Mutex::new(bucket)), transport };
        Rule::openai(Duration::from_secs(600))
            .over(Transport::new(service_fn(move |request| forgetful.clone().exchange(request))))
    }

    async fn exchange(self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
        let cost = local_bucket::used(&request);
        loop {
            let Some(wait) = self.bucket.lock().take(cost) else { break };
            tokio::time::sleep(wait).await;
        }
        let response = self.transport.oneshot(request).await?;
        self.bucket.lock().read_headers(&response);
        Ok(response)
    }
}
