//! The limit that finds itself: how many calls an upstream can take now, learned from how long it takes to their first tokens.
//!
//! mod docs later
mod bound;
mod class;
mod evidence;
mod flow;
mod growth;
mod limit;
mod line;
mod load;
mod percentile;
mod sample;
mod settings;
mod slots;
mod view;

pub use limit::Limit;
pub use sample::{Ended, Kind, Sample};
pub use settings::Settings;
pub use view::{Cause, Decision, LimitView};
