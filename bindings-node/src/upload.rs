//! A request body that JavaScript produces chunk by chunk.

use napi::{Error, Result};
use napi_derive::napi;
use tidegate::RequestBody;
use tidegate_bindings::UploadChannel;

use crate::bridge::Port;
use crate::custom_transport::Ready;

/// The producer's side of a streamed request body. At most one chunk is in transit, so that a slow
/// upstream slows the producer.
#[napi]
pub struct Upload(UploadChannel);

#[napi]
impl Upload {
    /// Creates an upload, whose body no request has taken yet.
    #[napi(constructor)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(UploadChannel::new())
    }

    /// Sends a chunk if there is room. Returns `true` if it was sent, `false` if there is no room
    /// yet, and null if the reader of the body is gone.
    #[napi]
    pub fn offer(&self, chunk: &[u8]) -> Option<bool> {
        self.0.offer(chunk)
    }

    /// Reports to JavaScript, under `number`, when there is room for a chunk, or when the reader of
    /// the body is gone.
    ///
    /// # Errors
    ///
    /// If the upload has ended.
    #[napi]
    pub fn ready(&self, port: &Port, number: u32) -> Result<()> {
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

    /// Ends the body with an error, which fails its request.
    #[napi]
    pub fn abandon(&self) {
        self.0.abandon();
    }
}

impl Upload {
    /// Returns the request body.
    ///
    /// # Errors
    ///
    /// If a request has taken the body already.
    pub(crate) fn body(&self) -> Result<RequestBody> {
        self.0.take_body().ok_or_else(|| Error::from_reason("this upload was sent already"))
    }
}
