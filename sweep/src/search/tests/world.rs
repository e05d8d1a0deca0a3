//! Servers, as far as a sweep can tell them apart.

use crate::search::SearchSettings;

/// After an overload.
#[derive(Clone, Copy)]
pub(crate) struct Hysteresis {
    /// So many at once, or more, begin it,
    pub(crate) above: usize,
    /// it lasts so long,
    pub(crate) seconds: f64,
    /// so many are taken meanwhile,
    pub(crate) limit: usize,
    /// and they are so much slower.
    pub(crate) slower: f64,
}

/// A token bucket of a minute, told as the cap that uses it up.
#[derive(Clone, Copy)]
pub(crate) struct Bucket {
    pub(crate) cap: f64,
    pub(crate) seconds: f64,
    pub(crate) headers: bool,
    pub(crate) retry_after: bool,
    pub(crate) by_tokens: bool,
}

/// What is played.
#[derive(Clone)]
pub(crate) struct World {
    /// Contention and coherence: a call's speed with n at once is `1 / (1 + s (n - 1) + k n (n - 1))`.
    pub(crate) s: f64,
    pub(crate) k: f64,
    /// So many run, the rest queue in the server.
    pub(crate) running: Option<usize>,
    pub(crate) limit: Option<usize>,
    pub(crate) retry_after: Option<f64>,
    /// The limit grows from 4 to `limit` in so many seconds.
    pub(crate) grows: Option<f64>,
    /// So much faster than the last ten seconds' most a rise of what is in flight is refused.
    pub(crate) rise: Option<f64>,
    /// So many more than there are, at once and each second, are taken.
    pub(crate) growth: Option<(f64, f64)>,
    pub(crate) bucket: Option<Bucket>,
    /// Above so many at once sequences are thrown out.
    pub(crate) kv: Option<usize>,
    pub(crate) hysteresis: Option<Hysteresis>,
    /// Between these moments it is so much slower, whatever the load.
    pub(crate) stumble: Option<(f64, f64, f64)>,
    /// After so many calls the server is another.
    pub(crate) drift: Option<(usize, Box<World>)>,
    /// The client cannot hold more.
    pub(crate) client: Option<usize>,
    /// The share that fails whatever the load.
    pub(crate) background: f64,
    /// Spread of the lengths, and of the time that a call of the same length takes (of logarithms).
    pub(crate) lengths: f64,
    pub(crate) noise: f64,
    /// A refusal comes back after so many seconds.
    pub(crate) round_trip: f64,
    pub(crate) settings: SearchSettings,
}

impl World {
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

    /// Speed of each of n at once.
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

    fn last(&self) -> &World {
        self.drift.as_ref().map_or(self, |(_, then)| then.last())
    }

    /// The smallest stable cap within the tolerance of the best, the throughput at each cap (relative), and the highest stable cap.
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
