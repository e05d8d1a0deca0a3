//! Budgets: rates over time. Here the retry budget; request and token budgets join it.

mod retry;

pub use retry::{Credit, RetryBudget};
