//! The shared part of the Python and Node bindings of Tidegate: everything that does not touch a
//! value of the host language.
//!
//! Worker threads of a tokio runtime run the calls, and event loops of the host language wait for
//! the results. The crate contains the parts of that bridge ([`ResultQueue`], [`SpawnBatch`],
//! [`StreamReader`], [`RuntimeBound`]), and the objects that each binding wraps in a class of its
//! language. A mistake of the programmer, such as an invalid argument, is an [`InvalidArgument`]; a
//! failed call is a [`tidegate::Error`].

mod argument;
mod body_stream;
mod body_upload;
mod context;
mod custom_transport;
mod error;
mod fake_target;
mod gate_queries;
mod item_window;
mod request;
mod result_queue;
mod runtime;
mod runtime_bound;
mod send_call;
mod spawn_batch;
mod stream_reader;
mod target_slot;
mod tool_slot;

pub use argument::{InvalidArgument, from_json, seconds, status_code, to_json};
pub use body_stream::{BodyStream, Chunk, open_bodies};
pub use body_upload::UploadChannel;
pub use context::{ContextOptions, remaining};
pub use custom_transport::{ExchangeHandle, ExchangeOffer, OriginalHead, transport_error, unread_body};
pub use error::{error_from_parts, response_closed, used_after_fork};
pub use fake_target::FakeTargetHandle;
pub use gate_queries::{DynamicReplicas, target_for};
pub use item_window::MapWindow;
pub use request::{append_header, new_request, remove_redundant_host};
pub use result_queue::ResultQueue;
pub use runtime::start_runtime;
pub use runtime_bound::{RuntimeBound, after_fork_in_child, generation};
pub use send_call::{FailureMode, is_event_stream, send};
pub use spawn_batch::SpawnBatch;
pub use stream_reader::{ChunkQueue, StreamReader};
pub use target_slot::SlotHandle;
pub use tool_slot::{GrantedTool, ToolRequestHandle};
