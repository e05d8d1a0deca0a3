//! Exact token counts of prompts, for targets with `tokenizer = "bpe"` or `"vllm"`.
//!
//! Counting is a separate layer because it takes milliseconds or a round trip. It is above
//! admission, which needs the count; above retry, because all attempts have the same count; and
//! below the deadline, because it uses part of the call's time.
//!
//! # Guarantees
//!
//! - Counting *fails open*: a call that cannot be counted within [`MAX_COUNT_TIME`] continues with
//!   the learned estimate. Reasons are a missing endpoint, a response without a count, a body over
//!   [`MAX_BODY_BYTES`], or counting threads that are all busy.
//! - A server that failed to answer is not asked again for [`UNAVAILABLE_FOR`].
//! - No counting runs on the threads that serve calls. Bodies are decompressed, parsed and counted
//!   on tokio's blocking threads, at most one body per processor at the same time.

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
pub(crate) use layer::CountLayer;
use tokio::sync::Semaphore;

use tidegate_protocol::request::{MAX_DECOMPRESSED, decompress};

/// Maximum time that counting delays a call: 250 ms. A call that is not counted by then uses the
/// learned estimate.
pub const MAX_COUNT_TIME: Duration = Duration::from_millis(250);

/// Maximum length of a request body that is counted, in bytes: 1 MiB. It applies before and after
/// decompression.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;

// A body that was small enough as sent is thus never too large after decompression.
const _: () = assert!(MAX_DECOMPRESSED <= MAX_BODY_BYTES);

/// Time after a failed count during which the same target is not asked to count again: 10 s.
pub(crate) const UNAVAILABLE_FOR: Duration = Duration::from_secs(10);

/// Limits how many prompts are decompressed, parsed and counted in this process at the same time.
#[derive(Clone, Debug)]
struct Counters(Arc<Semaphore>);

impl Counters {
    fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new(processors)))
    }

    /// Runs `work` on the decompressed `body`, on one of tokio's blocking threads. Returns `None`
    /// if the body cannot be decompressed, or if `work` panics or returns `None`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future while it waits for a thread cancels `work`. Work that has begun runs to
    /// its end, which [`MAX_BODY_BYTES`] bounds.
    async fn run<T: Send + 'static>(
        &self,
        headers: HeaderMap,
        body: Bytes,
        work: impl FnOnce(&[u8]) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        let permit = self.0.clone().acquire_owned().await.ok()?;
        let counted = tokio::task::spawn_blocking(move || {
            // Held until the work ends, even if the caller is gone, because the permits limit the
            // number of busy threads.
            let _permit = permit;
            work(&decompress(&headers, &body)?)
        });
        counted.await.ok().flatten()
    }
}
