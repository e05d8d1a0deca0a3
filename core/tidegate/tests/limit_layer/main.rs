//! Tests of the adaptive limit as a separate tower layer, around a scripted service under a paused
//! clock.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod adaptation;
mod slots;
mod support;
mod with_other_layers;
