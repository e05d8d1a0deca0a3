//! Tests of the search against a model of servers.

mod noise;
mod policy;
mod scenarios;
mod server_models;
mod simulated_sweep;
mod table;
mod unusual_servers;
