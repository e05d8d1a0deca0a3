//! Tests of the rate budgets with simulated providers and response headers, in virtual time.

mod closed_loop;
mod gateways;
mod headers;
mod provider;
mod recovery;
mod windows;
