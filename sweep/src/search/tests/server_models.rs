//! Models of servers with the properties that a sweep should distinguish.

use crate::search::SearchSettings;

/// An overload of the server, and its effects, which last for a while.
#[derive(Clone, Copy)]
pub(crate) struct Hysteresis {
    /// Number of concurrent calls from which on the server is overloaded.
    pub(crate) above: usize,
    /// Duration of the effects after the last overload, in seconds.
    pub(crate) seconds: f64,
    /// Concurrency limit during the effects.
    pub(crate) limit: usize,
    /// Factor by which calls take longer during the effects.
    pub(crate) slower: f64,
}

/// A token bucket that limits the server's rate. The bucket refills at the rate that `cap`
/// concurrent calls use up, and a full bucket contains the quota of `seconds` seconds.
#[derive(Clone, Copy)]
pub(crate) struct Bucket {
    pub(crate) cap: f64,
    pub(crate) seconds: f64,
    pub(crate) headers: bool,
    pub(crate) retry_after: bool,
    pub(crate) by_tokens: bool,
}

/// Another program that runs in bursts of 0.1 s to `longest` seconds, each of which slows the
/// server and the client by a factor between 2 and `slowest`.
#[derive(Clone, Copy)]
pub(crate) struct Bursts {
    pub(crate) longest: f64,
    pub(crate) slowest: f64,
    /// Shortest and longest pause between two bursts, in seconds.
    pub(crate) pauses: (f64, f64),
}

/// A model of a server. Each field that is `None` is a property that the server does not have.
#[derive(Clone)]
pub(crate) struct ServerModel {
    /// Contention of the universal scalability law. With n concurrent calls, the speed of each is
    /// `1 / (1 + s (n - 1) + k n (n - 1))`.
    pub(crate) s: f64,
    /// Coherence of the universal scalability law: `k` in the formula of [`ServerModel::s`].
    pub(crate) k: f64,
    /// Number of calls that run concurrently. Further calls wait in the server. `None`: all calls
    /// run.
    pub(crate) running: Option<usize>,
    pub(crate) limit: Option<usize>,
    pub(crate) retry_after: Option<f64>,
    /// Time in seconds in which the limit grows from 4 to `limit`. `None`: the limit is constant.
    pub(crate) grows: Option<f64>,
    /// A call is rejected if it raises the number of calls in flight above 6 and above this
    /// multiple of the maximum between 10 s and 2 s ago. `None`: the load may rise by any factor.
    pub(crate) rise: Option<f64>,
    /// Number of concurrent calls above the current load that the server accepts immediately, and
    /// the speed at which the accepted number follows a rising load, in calls per second. `None`:
    /// the load may rise at any speed.
    pub(crate) growth: Option<(f64, f64)>,
    pub(crate) bucket: Option<Bucket>,
    /// Number of concurrent calls above which sequences are preempted because the KV cache is full.
    /// `None`: never.
    pub(crate) kv: Option<usize>,
    pub(crate) hysteresis: Option<Hysteresis>,
    /// Start and end of a slow period in seconds since the sweep began, and the factor on the
    /// duration of calls in it. `None`: there is no such period.
    pub(crate) stumble: Option<(f64, f64, f64)>,
    /// Another program that slows the server and the client. `None`: the machine is quiet.
    pub(crate) bursts: Option<Bursts>,
    /// Whether the calls that run concurrently ([`ServerModel::running`]) fill the KV cache, so
    /// that sequences are preempted if more calls are sent.
    pub(crate) is_kv_bound: bool,
    /// Whether the server has an inference engine whose metrics can be polled.
    pub(crate) metrics: bool,
    /// Number of calls after which the server changes, and the changed server. `None`: it never
    /// changes.
    pub(crate) drift: Option<(usize, Box<ServerModel>)>,
    /// Maximum number of calls that the client can keep in flight. `None`: any number.
    pub(crate) client: Option<usize>,
    /// Share of attempts that fail at any load, 0 to 1.
    pub(crate) background: f64,
    /// Standard deviation of the natural logarithm of the output lengths.
    pub(crate) lengths: f64,
    /// Standard deviation of the natural logarithm of the durations of equally long calls.
    pub(crate) noise: f64,
    /// Time until a rejection is returned, in seconds.
    pub(crate) round_trip: f64,
    pub(crate) settings: SearchSettings,
}

impl ServerModel {
    pub(crate) fn usl(s: f64, k: f64) -> Self {
        Self {
            s,
            k,
            running: None,
            limit: None,
            retry_after: None,
            grows: None,
            rise: None,
            growth: None,
            bucket: None,
            kv: None,
            hysteresis: None,
            stumble: None,
            bursts: None,
            is_kv_bound: false,
            metrics: false,
            drift: None,
            client: None,
            background: 0.0,
            lengths: 0.5,
            noise: 0.1,
            round_trip: 0.01,
            settings: SearchSettings::default(),
        }
    }

    pub(crate) fn peak(peak: f64) -> Self {
        let s = 0.02;
        Self::usl(s, (1.0 - s) / (peak * peak))
    }

    /// Returns the speed of each of `n` concurrent calls, relative to a single call.
    pub(crate) fn speed(&self, n: usize) -> f64 {
        let usl = |n: f64| 1.0 / (1.0 + self.s * (n - 1.0) + self.k * n * (n - 1.0));
        let running = self.running.map_or(n, |most| n.min(most)) as f64;
        let whole = running * usl(running);
        let left = self
            .kv
            .filter(|&kv| n > kv)
            .map_or(1.0, |kv| (0.8 - 0.02 * (n - kv) as f64).max(0.3) * (kv as f64 * usl(kv as f64)) / whole);
        whole * left / n.max(1) as f64
    }

    fn last(&self) -> &ServerModel {
        self.drift.as_ref().map_or(self, |(_, then)| then.last())
    }

    /// Returns what a search should find: the smallest usable cap within 2 % of the best
    /// throughput, a function that returns the relative throughput at a cap, and the highest usable
    /// cap. The values are those of the server after its last change.
    pub(crate) fn truth(&self) -> (usize, impl Fn(usize) -> f64, usize) {
        let last = self.last().clone();
        let highest = [
            Some(last.settings.max_cap),
            last.limit,
            last.client,
            last.kv,
            last.bucket.map(|bucket| bucket.cap.floor() as usize),
            last.hysteresis.map(|hysteresis| hysteresis.above - 1),
        ];
        let highest = highest.into_iter().flatten().min().unwrap_or(1);
        let throughput = move |n: usize| n as f64 * last.speed(n);
        let best = (1..=highest).map(&throughput).fold(0.0, f64::max);
        let cap = (1..=highest).find(|&n| throughput(n) >= 0.98 * best).unwrap_or(1);
        (cap, throughput, highest)
    }
}
