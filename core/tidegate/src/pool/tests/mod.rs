//! Tests of the health checker under a paused clock, over scripted transports and resolvers, and
//! over real files.

mod discovery;
mod polls;
mod support;
