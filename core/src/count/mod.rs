//! Exact counts of prompts, for targets that ask for them (`tokenizer = "bpe"` or `"vllm"`).
//!
//! Why a layer of its own, and here: counting takes milliseconds or a round trip, so it cannot be part of identifying a call; it is needed before the
//! call asks for admission; and it is the same for each attempt, so it stands above retry. Below the deadline: it takes of the call's time.
//!
//! It *fails open*. What cannot be counted within [`LONGEST`] (no such endpoint, an answer that says nothing, a body over [`LARGEST`], a queue before the
//! counters) goes on with the learned estimate, as every other call does. A server that failed to answer is not asked again for [`SILENT`].
//!
//! Nothing of it runs on a thread that serves calls: bodies are decoded, walked and counted on tokio's blocking threads, as many at once as there are
//! processors.

#[cfg(feature = "bpe")]
mod bpe;
mod layer;
#[cfg(test)]
mod tests;
mod vllm;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
pub use layer::CountLayer;
use tokio::sync::Semaphore;

use tidegate_protocol::request::{MAX_DECOMPRESSED, decompress};

/// The longest that counting holds a call up.
pub const LONGEST: Duration = Duration::from_millis(250);

/// The longest body that is counted, as it is sent, and as it is without its compression.
pub const LARGEST: usize = 1 << 20;

// More is not decoded, so that what was short enough as it was sent still is.
const _: () = assert!(MAX_DECOMPRESSED <= LARGEST);

/// For so long a server is left alone that did not answer.
pub const SILENT: Duration = Duration::from_secs(10);

/// The threads that count.
#[derive(Clone, Debug)]
struct Counters(Arc<Semaphore>);

impl Counters {
    fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new(processors)))
    }

    /// Does this with the content of a body, on a thread of its own.
    ///
    /// *Cancellation safety*: dropping the future gives up the place in the queue; what has begun ends by itself, bounded by [`LARGEST`].
    async fn run<T: Send + 'static>(
        &self,
        headers: HeaderMap,
        body: Bytes,
        work: impl FnOnce(&[u8]) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let permit = self.0.clone().acquire_owned().await.ok()?;
        let counted = tokio::task::spawn_blocking(move || {
            // Held to the end, also when nobody waits for it any more: the threads are what is bounded.
            let _permit = permit;
            work(&decompress(&headers, &body)?)
        });
        counted.await.ok().flatten()
    }
}
