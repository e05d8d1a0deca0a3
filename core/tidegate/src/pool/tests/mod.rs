//! Tests of the health checker under a paused clock, over scripted transports and resolvers, and over real
//! files.

mod asks;
mod keeps;
mod support;
