//! Budgets: rates over time. What recent calls have earned in retries; what a provider allows in requests and tokens.

mod counting;
mod kind;
mod limit_history;
mod need;
mod provider_window;
mod quota;
mod rates;
mod request_rate;
mod retry_budget;
mod sliding_window;
#[cfg(test)]
mod tests;
mod token_bucket;
mod window_hint;

pub use kind::BudgetKind;
pub use need::{Need, Room};
pub use rates::{BudgetView, Charge, RateBudgets};
pub use retry_budget::{RetryBudget, RetryToken};
pub use token_bucket::TokenBucket;
