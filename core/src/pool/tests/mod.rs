//! Tests of the keeper under a paused clock, over scripted transports and resolvers, and over real
//! files.

mod asks;
mod keeps;
mod support;
