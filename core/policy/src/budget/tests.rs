//! The budgets against models of providers, closed loop, in virtual time.

mod closed_loop;
mod gateways;
mod headers;
mod provider;
mod recovery;
mod windows;
