//! What the estimator learns.

mod censored;
mod learned;
