//! Budgets: rates over time. What recent calls have earned in retries; what a provider allows in requests and tokens.

mod books;
mod bucket;
mod cells;
mod counting;
mod ledger;
mod need;
mod quota;
mod rates;
mod retry;
#[cfg(test)]
mod tests;
mod window;

pub use bucket::Bucket;
pub use need::{Need, Room};
pub use rates::{BudgetView, Charge, Kind, RateBudgets};
pub use retry::{Credit, RetryBudget};
