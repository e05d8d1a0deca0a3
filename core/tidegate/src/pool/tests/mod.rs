//! Tests of the replica monitor under a paused clock, over scripted transports and resolvers, and
//! over real files.

mod discovery;
mod polls;
mod support;
