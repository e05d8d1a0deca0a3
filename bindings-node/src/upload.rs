//! A request body that JavaScript produces chunk by chunk.

use napi::{Error, Result};
use napi_derive::napi;
use tidegate::RequestBody;
use tidegate_bindings::UploadChannel;

use crate::bridge::Port;
use crate::custom_transport::Ready;

/// The producer's side of a request body. At most one chunk is in transit, so that a slow upstream
/// slows the producer.
#[napi]
pub struct Upload(UploadChannel);

#[napi]
impl Upload {
    /// Returns an upload that no request has taken.
    #[napi(constructor)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(UploadChannel::new())
    }

    /// Sends a chunk if there is room. Returns `true` if it was sent, `false` if there is no room
    /// yet, and undefined if the reader of the body is gone.
    #[napi]
    pub fn offer(&self, chunk: &[u8]) -> Option<bool> {
        self.0.offer(chunk)
    }

    /// Resolves the number once there is room or the reader is gone.
    #[napi]
    pub fn room(&self, port: &Port, number: u32) -> Result<()> {
        let sender = self.0.sender().ok_or_else(|| Error::from_reason("this upload is finished"))?;
        port.submit(number, async move {
            drop(sender.reserve().await);
            Ready
        });
        Ok(())
    }

    /// Ends the body successfully. An upload that ends without this fails its request.
    #[napi]
    pub fn finish(&self) {
        self.0.finish();
    }

    /// Fails the request, because the producer failed.
    #[napi]
    pub fn give_up(&self) {
        self.0.abandon();
    }
}

impl Upload {
    /// Returns the request body, once.
    pub(crate) fn body(&self) -> Result<RequestBody> {
        self.0.take_body().ok_or_else(|| Error::from_reason("this upload was sent already"))
    }
}
