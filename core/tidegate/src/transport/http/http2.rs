//! HTTP/2 connections, based on hyper: each runs in a task of its own and carries many exchanges.

use std::sync::Arc;

use http::{Request, Response, header};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::errors;
use super::stream::Stream;
use crate::body::RequestBody;
use crate::error::Error;

/// An HTTP/2 connection. Clones share it, and each clone counts as an exchange in flight.
#[derive(Clone)]
pub(super) struct Connection {
    sender: SendRequest<RequestBody>,
    /// Counts the clones.
    in_flight: Arc<()>,
}

impl Connection {
    /// Starts HTTP/2 on a stream, and spawns the task that runs it until the server closes it, or
    /// the last clone is dropped.
    ///
    /// # Errors
    /// `Connect` if the connection fails at once.
    pub(super) async fn start(stream: Stream) -> Result<Self, Error> {
        let started = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = started.map_err(|error| errors::connect(&error))?;
        // Its errors reach the exchanges.
        tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender, in_flight: Arc::default() })
    }

    /// Returns the number of exchanges in flight. The clone that is asked does not count.
    pub(super) fn in_flight(&self) -> usize {
        Arc::strong_count(&self.in_flight) - 1
    }

    /// Returns whether the server has closed the connection, or said that it will.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request, and returns the response when its head has arrived.
    ///
    /// # Errors
    /// The failure contains the request again if nothing was sent.
    ///
    /// # Cancel safety
    /// Dropping the future or the response's body resets the stream.
    pub(super) async fn exchange(
        &mut self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Box<Failure>> {
        // The pseudo-header `:authority` says the same.
        let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
        let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
        if host.is_some() && host == authority.as_deref() {
            request.headers_mut().remove(header::HOST);
        }
        self.sender.try_send_request(request).await.map_err(|mut failure| {
            let unsent = failure.take_message();
            Box::new(Failure { error: errors::exchange(failure.error()), unsent })
        })
    }
}

/// Why there is no response.
pub(super) struct Failure {
    pub(super) error: Error,
    /// The request, if nothing of it was sent.
    pub(super) unsent: Option<Request<RequestBody>>,
}
