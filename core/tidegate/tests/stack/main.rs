//! Tests of the whole client, over a scripted upstream under a paused clock and over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod admission;
mod ask_usage;
mod budgets;
mod caps;
mod counting;
mod custom_transports;
mod deadlines;
mod durations;
mod explanations;
mod fallback;
mod framing;
mod limit;
mod modes;
mod pool;
mod proxies;
mod records_and_metrics;
mod replicas;
mod retries;
mod shared_target;
mod slots;
mod sockets;
mod streams;
mod support;
mod tools_and_slots;
mod unconfigured_targets;
mod urls;
