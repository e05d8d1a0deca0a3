//! Budgets: limits on rates over time.
//!
//! [`RateBudgets`] keeps a target within the requests and tokens that its provider allows per
//! minute and per day. [`RetryBudget`] limits retries to a share of recent calls. [`TokenBucket`]
//! is the rate limiter that both a target's token budget and a tenant's token rate use.
//!
//! All types are pure: time is an argument, and nothing here waits.

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
