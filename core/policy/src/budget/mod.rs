//! Limits on rates over time.
//!
//! [`RateBudgets`] keeps a target within the requests and tokens that its provider allows per
//! minute and per day. [`RetryBudget`] limits retries to a share of the recent calls.
//! [`TokenBucket`] limits the tokens per minute of a target and of a tenant.
//!
//! All types are pure: the time is an argument, and nothing here waits.

mod budget_kind;
mod counting;
mod limit_history;
mod need;
mod provider_window;
mod quota;
mod rates;
mod request_rate;
mod retry_budget;
mod shared;
#[cfg(test)]
mod tests;
mod window_inference;

pub use budget_kind::{BudgetKind, LimitOrigin};
pub use need::{AvailableBudget, Need};
pub use rates::{BudgetView, Charge, Lack, RateBudgets};
pub use retry_budget::{RetryBudget, RetryToken};
pub use shared::SharedSet;
pub use tidegate_share::rates::TokenBucket;
