//! The keeper under a paused clock, over transports and resolvers with a script, and over real files.

mod asks;
mod keeps;
mod support;
