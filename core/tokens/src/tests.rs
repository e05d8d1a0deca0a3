//! Tests of [`Estimator`](crate::Estimator).

mod censored;
mod learned;
