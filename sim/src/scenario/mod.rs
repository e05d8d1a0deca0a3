//! Calibration.

mod arrivals;
mod calibration;
mod noisy_neighbour;
mod summary;

pub use self::arrivals::Arrivals;
pub use self::calibration::{Figure, What, calibration};
pub use self::noisy_neighbour::{OUTPUT_TOKENS, PROMPT_TOKENS, Report, Run, Tenant, noisy_neighbour};
pub use self::summary::{Call, Summary, quantile, summarise};
