//! Budgets: rates over time. What recent calls have earned in retries; what a provider allows in requests and tokens.

mod bucket;
mod need;
mod rates;
mod retry;

pub use bucket::Bucket;
pub use need::{Need, Room};
pub use rates::{Charge, Kind, RateBudgets};
pub use retry::{Credit, RetryBudget};
