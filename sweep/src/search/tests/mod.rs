//! Tests of the search against a model of servers.

mod edges;
mod play;
mod scenarios;
mod table;
mod world;
