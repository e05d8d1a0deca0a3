//! Admits as many calls to each language model as that model can serve at the moment.
//!
//! A [`Gate`] is the object that a process shares. It holds *targets* (models and pools of replicas,
//! each with its own limit) and *tools*. A [`Client`] sends HTTP requests through the gate: it finds
//! the target, waits for a slot, sends the request, retries within a budget, and releases the slot
//! when the response ends, fails or is dropped.
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
//! # Crates
//!
//! | re-exported as | what it has |
//! |---|---|
//! | [`config`] | the configuration's keys, with types, units, ranges and defaults |
//! | [`schedule`], [`adaptive`], [`placement`], ... | the decisions, as pure state machines (`tidegate-policy`) |
//! | [`tokens`] | token estimates |
//! | [`protocol`] | what providers send |
//!
//! The layers ([`admission`], [`retry`], [`stream`], ...) are ordinary tower layers; [`client`] is the
//! only place that composes them.

mod active;
pub mod admission;
pub mod ask_usage;
pub mod body;
pub mod call;
pub mod client;
mod clock;
pub mod config_file;
pub mod context;
pub mod count;
mod credential;
pub mod deadline;
pub mod error;
pub mod explain;
mod fallback;
mod files;
mod framing;
pub mod gate;
pub mod hedge;
mod identify;
pub mod limit;
mod middleware;
pub mod observe;
pub mod pool;
mod refusal;
pub mod retry;
pub mod slot;
pub mod stream;
pub mod target;
pub mod tool;
pub mod transport;
mod unknown;
pub mod window;

pub use tidegate_config as config;
pub use tidegate_policy::{adaptive, backoff, budget, cooldown, fairness, kv, placement, schedule};
pub use tidegate_protocol as protocol;
pub use tidegate_protocol::duration;
pub use tidegate_tokens as tokens;

pub use body::{RequestBody, ResponseBody};
pub use client::Client;
pub use config::Config;
pub use context::{Chain, Context, Crowd, Lane, TaskId, Timeouts, Waits};
pub use error::{Error, ErrorKind, Reason};
pub use explain::{CallName, CallState, Explanation};
pub use gate::{Gate, GateBuilder};
pub use observe::Snapshot;
pub use slot::Slot;
pub use tool::{HeldSlots, ToolPermit};
pub use transport::Transport;
pub use window::Window;

/// The Rust code of the README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
