//! Tests of the whole client, over a scripted upstream under a paused clock and over real sockets.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod adaptive_limit;
mod admission;
mod ask_usage;
mod budgets;
mod caps;
mod connections;
mod custom_transports;
mod deadlines;
mod durations;
mod engine_metrics;
mod explanations;
mod fallback;
mod framing;
mod http2_connections;
mod modes;
mod named_slots;
mod pool;
mod proxies;
mod records_and_metrics;
mod rejection_advice;
mod replicas;
mod retries;
mod several_models;
mod shared_target;
mod sockets;
mod streams;
mod support;
mod token_counts;
mod tools_and_slots;
mod unconfigured_targets;
mod urls;
