//! A request body that JavaScript produces chunk by chunk.

use napi::{Error, Result};
use napi_derive::napi;
use tidegate::RequestBody;
use tidegate_bindings::UploadChannel;

use crate::bridge::Port;
use crate::custom_transport::Ready;

/// The sending side of a streamed request body, whose chunks JavaScript produces. At most one chunk
/// is buffered, so that a slow upstream slows the program.
#[napi]
pub struct Upload(UploadChannel);

#[napi]
impl Upload {
    /// Creates an open upload, whose body no request has taken yet.
    #[napi(constructor)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self(UploadChannel::new())
    }

    /// Sends a chunk without waiting. Returns `true` if it was sent, `false` if the previous chunk
    /// has not been read yet, and null if the request no longer reads the body or the upload has
    /// ended.
    #[napi]
    pub fn offer(&self, chunk: &[u8]) -> Option<bool> {
        self.0.offer(chunk)
    }

    /// Completes `number` in JavaScript when the upload can take its next chunk, or when the
    /// request no longer reads the body.
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

    /// Ends the body successfully. If the upload is dropped without this call, the request fails.
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
    /// Takes the request body out of the upload.
    ///
    /// # Errors
    ///
    /// If a request has taken the body already.
    pub(crate) fn body(&self) -> Result<RequestBody> {
        self.0.take_body().ok_or_else(|| Error::from_reason("this upload was sent already"))
    }
}
