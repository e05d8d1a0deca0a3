//! The only place where the tower stack is composed.

use http::{Request, Response};
use tower::ServiceExt;

use crate::body::{RequestBody, ResponseBody};
use crate::error::Error;
use crate::transport::Transport;

/// Sends calls through the gate. Cheap to clone.
#[derive(Clone)]
pub struct Client(Transport);

impl Client {
    pub(crate) fn new(transport: Transport) -> Self {
        Self(transport)
    }

    /// One call: admitted, sent, retried as its target allows. Resolves when the response's head is known; the body streams.
    ///
    /// *Cancellation safety*: dropping the future or the body gives everything back and ends the upstream exchange at once.
    pub async fn call(&self, request: Request<RequestBody>) -> Result<Response<ResponseBody>, Error> {
        self.0.clone().oneshot(request).await
    }
}
