//! Tests of the rate budgets with simulated providers and response headers, in virtual time.

mod announced_limits;
mod closed_loop;
mod cluster;
mod gateways_with_backends;
mod provider;
mod recovery;
mod response_headers;
mod several_processes;
mod windows;
