//! Admits as many calls to each language model as that model can serve at the moment.
//!
//! A [`Gate`] is the object that a process shares. It holds *targets* (models and pools of
//! replicas, each with its own limit) and *tools*. A [`Client`] sends HTTP requests through the
//! gate: it finds the target, waits for a slot, sends the request, retries within a budget, and
//! releases the slot when the response ends, fails or is dropped.
//!
//! # Example
//!
//! ```
//! use tidegate::config::Target;
//! use tidegate::{Context, Error, Gate, Lane, RequestBody};
//!
//! # async fn example() -> Result<(), Error> {
//! let gate = Gate::builder().target(Target::new("openai").cap(64)).tool("db", 8).build()?;
//!
//! let mut request = http::Request::post("https://api.openai.com/v1/chat/completions")
//!     .header("authorization", "Bearer ...")
//!     .header("content-type", "application/json")
//!     .body(RequestBody::from(r#"{"model": "gpt-4o-mini", "messages": []}"#))
//!     .expect("a valid request");
//! let tenant = Some("acme".into());
//! request.extensions_mut().insert(Context { tenant, lane: Lane::Batch, ..Context::default() });
//!
//! let response = gate.client().call(request).await?; // waits for a slot; the body holds it
//! println!("{}, {:?}", response.status(), gate.snapshot());
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | the configuration keys, with types, units, ranges and defaults |
//! | [`config_file`] | reads a configuration from a file or from text |
//! | [`limit`] | the adaptive limit alone, as a tower layer around any HTTP service |
//! | [`transport`] | the HTTP client of the gate, proxies, and transports of the caller |
//! | [`snapshot`], [`explain`] | the state of a gate, and why a call waits |
//! | [`policy`], [`tokens`], [`protocol`] | the crates that this crate uses: scheduling and retry decisions, token estimates, parsing of requests and responses |
//!
//! # Features
//!
//! - `pool` (default): targets that are pools of replicas.
//! - `redis` (default): limits that are shared over Redis or Valkey.
//! - `reqwest`: the layer of [`limit`] tells the timeouts of reqwest from its other errors.
//! - `bpe`: counts the prompts of OpenAI's models exactly. Adds 50 MB to a binary.

// A build without pools does not use some methods of what calls and pools share.
#![cfg_attr(not(feature = "pool"), allow(dead_code))]

mod active_calls;
mod admission;
mod body;
mod call;
mod client;
mod clock;
pub mod config_file;
mod context;
mod credential;
mod error;
mod error_response;
pub mod explain;
mod framing;
mod gate;
mod identify;
mod item_window;
mod layers;
pub mod limit;
mod log_lines;
mod metrics;
#[cfg(feature = "pool")]
mod pool;
#[cfg(not(feature = "pool"))]
#[path = "pool_disabled.rs"]
mod pool;
mod read_file;
mod share;
mod slot;
pub mod snapshot;
mod target;
mod tool;
pub mod transport;
mod unknown_name;

pub use tidegate_config as config;
pub use tidegate_policy as policy;
pub use tidegate_protocol as protocol;
pub use tidegate_protocol::duration;
pub use tidegate_tokens as tokens;

use tidegate_policy::{adaptive, budget, cooldown, fairness, kv, placement, schedule};

pub use body::{RequestBody, ResponseBody};
pub use client::Client;
pub use config::Config;
pub use context::{CallGroup, Chain, Context, Lane, TaskId, Timeouts, Waits};
pub use error::{Error, ErrorKind, Reason};
pub use explain::{CallName, CallStatus, Explanation};
pub use gate::{Gate, GateBuilder};
pub use item_window::ItemWindow;
pub use layers::observe::{AttemptRecord, CallRecord};
pub use log_lines::{LogLevel, forward_log_lines};
#[cfg(feature = "pool")]
pub use pool::{PoolCheck, ReplicaCheck};
pub use share::return_shared_slots;
pub use slot::Slot;
pub use snapshot::Snapshot;
pub use tool::{HeldSlots, PendingToolPermit, ToolPermit};
pub use transport::Transport;

/// Parts that Tidegate's own tests, benchmarks and bindings use. Not covered by semantic
/// versioning.
#[doc(hidden)]
pub mod internals {
    pub use crate::admission::handoff::handoff;
    pub use crate::admission::{Admission, BudgetSet, Permit};
    pub use crate::call::Call;
    pub use crate::gate::mode::from_env as mode_from_env;
    pub use crate::layers::admission::AdmissionLayer;
    pub use crate::layers::count::MAX_COUNT_TIME;
    pub use crate::layers::deadline::DeadlineLayer;
    pub use crate::layers::observe::LOGGED_CALLS;
    pub use crate::transport::gate_request::GateRequest;
}

/// The Rust code of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
