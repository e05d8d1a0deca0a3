//! The limit that finds itself: how many calls an upstream can take now, learned from how long it takes to their first tokens.

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
