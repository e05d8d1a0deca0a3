//! The limit that finds itself: how many calls an upstream can take now, learned from how long it takes to their first tokens.

macro_rules! k {
    ($n:expr,$d:expr) => {{
        static K: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
        *K.get_or_init(|| std::env::var(concat!("K_", $n)).ok().and_then(|x| x.parse().ok()).unwrap_or($d))
    }};
}
use k;
mod class;
mod evidence;
mod flow;
mod growth;
mod limit;
mod sample;
mod settings;
mod view;

pub use limit::Limit;
pub use sample::{Ended, Kind, Sample};
pub use settings::Settings;
pub use view::{Cause, Decision, LimitView};
