//! The adaptive limit as a layer of its own, around a scripted service, under the paused clock.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod moves;
mod slots;
mod stacks;
mod support;
