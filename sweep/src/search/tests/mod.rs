//! The search against a model of servers.

mod edges;
mod scenarios;
mod table;
mod world;
