//! Tidegate stands between a program and the language models it calls, and lets through as many calls as each of them can take right now.
//!
//! [`Gate`] holds targets and tools; [`Client`] sends calls through it. How a call goes is told by [`client`]; what is
//! decided, by the pure policies ([`schedule`], [`fairness`], [`cooldown`], [`budget`], [`backoff`], [`estimate`]); what providers say, by [`wire`].

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
#[cfg(test)]
mod testing;
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
