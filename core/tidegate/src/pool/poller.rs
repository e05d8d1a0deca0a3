//! Polls one server for its health, its load or its models.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use tokio::time::timeout;
use tower::ServiceExt;

use crate::body::{RequestBody, ResponseBody};
use crate::error::{Error, ErrorKind};
use crate::placement::{Observation, PollKind, PollRequest};
use crate::transport::Transport;
use crate::transport::gate_request::GateRequest;
use tidegate_protocol::vllm::{self, EngineMetrics};

/// Timeout of a health probe: 500 ms.
const HEALTH_TIMEOUT: Duration = Duration::from_millis(500);
/// Timeout of a poll of metrics or models: 1 s.
const METRICS_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a response with metrics or models, in bytes: 4 MiB. Engines send some hundred
/// kilobytes of metrics.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// Maximum length of a health response that is read to its end, in bytes: 64 KiB. The body is
/// ignored; reading it allows the connection to be reused.
const MAX_DRAINED_BYTES: usize = 64 << 10;

/// Polls model servers for their health, load and models.
pub(super) struct Poller {
    pub(super) transport: Transport,
    /// Path of the health endpoint. `None` means `/health`. See
    /// [`PoolConfig::health`](crate::config::PoolConfig::health).
    pub(super) health: Option<Arc<str>>,
    /// The value of the `authorization` header for polls of models. `None` sends no such header.
    /// See [`PoolConfig::key_env`](crate::config::PoolConfig::key_env).
    pub(super) key: Option<HeaderValue>,
}

/// What a server answers that is asked for the metrics of its engine.
pub(super) enum MetricsAnswer {
    Metrics(EngineMetrics),
    /// A response without metrics of an engine.
    NoMetrics,
    /// No complete response in time.
    NoAnswer,
}

impl Poller {
    /// Returns why the models of a replica are not known that answered the poll with `status`, and
    /// what the user can do.
    pub(super) fn models_problem(&self, status: u16) -> String {
        let advice = match (status, &self.key) {
            (401 | 403, None) => {
                ": set the pool's `key_env` to an environment variable with the server's API key"
            }
            (401 | 403, Some(_)) => ": the key in the pool's `key_env` is not the server's API key",
            (200, _) => ", but not with a list of models",
            _ => "",
        };
        format!("/v1/models is answered with {status}{advice}")
    }

    /// Polls a replica as `poll_request` states. Returns what was observed, or `None` if the poll
    /// shows nothing about the replica, for example because it failed on this machine.
    pub(super) async fn poll(&self, poll_request: &PollRequest) -> Option<Observation> {
        match poll_request.kind {
            PollKind::Health => self.health(&poll_request.url).await,
            PollKind::Load => Some(match self.metrics(&poll_request.url).await {
                MetricsAnswer::Metrics(metrics) => Observation::Metrics(metrics),
                MetricsAnswer::NoMetrics | MetricsAnswer::NoAnswer => Observation::MetricsUnreadable,
            }),
            PollKind::Models => {
                let (status, body) = self.read(&poll_request.url, "/v1/models", self.key.as_ref()).await?;
                let models = vllm::parse_models(&body).filter(|_| status == StatusCode::OK);
                Some(models.map_or(Observation::ModelsUnreadable(status.as_u16()), Observation::Models))
            }
        }
    }

    /// Asks the server at the base URL `server` for the metrics of its engine. Sends no
    /// credentials.
    pub(super) async fn metrics(&self, server: &str) -> MetricsAnswer {
        let Some((status, text)) = self.read(server, "/metrics", None).await else {
            return MetricsAnswer::NoAnswer;
        };
        let metrics = vllm::parse_metrics(&text).filter(|_| status == StatusCode::OK);
        metrics.map_or(MetricsAnswer::NoMetrics, MetricsAnswer::Metrics)
    }

    /// Probes the health of the replica with the base URL `replica`. Returns `None` after a failure
    /// on this machine, such as a lack of file descriptors.
    async fn health(&self, replica: &str) -> Option<Observation> {
        let path = self.health.as_deref().unwrap_or("/health");
        match timeout(HEALTH_TIMEOUT, self.get(GateRequest::HealthProbe, replica, path, None)).await {
            Ok(Ok(response)) => {
                let status = response.status();
                // The body is read to its end, within limits, so that the connection can be reused.
                // The status alone decides.
                let _ =
                    timeout(HEALTH_TIMEOUT, Limited::new(response.into_body(), MAX_DRAINED_BYTES).collect())
                        .await;
                Some(if status.is_server_error() { Observation::ProbeFailed } else { Observation::ProbeOk })
            }
            // A local failure, such as a lack of file descriptors, says nothing about the replica.
            Ok(Err(error)) if error.is_local() => None,
            Ok(Err(error)) if error.is_connect_refused() => Some(Observation::ConnectRefused),
            Ok(Err(error)) => Some(match error.kind() {
                // Name resolution, TLS or routing failed: the replica was not reached.
                ErrorKind::Connect | ErrorKind::ConnectTimeout => Observation::ProbeTimeout,
                // Something listens there and closed the connection.
                _ => Observation::ProbeFailed,
            }),
            Err(_) => Some(Observation::ProbeTimeout),
        }
    }

    /// Requests `path` from a replica, and returns the status and the body of the response. Returns
    /// `None` if there is no complete response. `key` is as for [`Self::get`].
    async fn read(
        &self,
        replica: &str,
        path: &str,
        key: Option<&HeaderValue>,
    ) -> Option<(StatusCode, Bytes)> {
        let exchange = async {
            let response = self.get(GateRequest::Query, replica, path, key).await.ok()?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await.ok()?;
            Some((status, body.to_bytes()))
        };
        timeout(METRICS_TIMEOUT, exchange).await.ok().flatten()
    }

    /// Sends a GET request to a replica, with the marker `kind`. `key` is the value of its
    /// `authorization` header, or `None` to send no such header.
    async fn get(
        &self,
        kind: GateRequest,
        replica: &str,
        path: &str,
        key: Option<&HeaderValue>,
    ) -> Result<Response<ResponseBody>, Error> {
        let mut request = Request::get(format!("{replica}{path}"))
            .body(RequestBody::default())
            .map_err(|error| Error::new(ErrorKind::Request, error.to_string()))?;
        request.extensions_mut().insert(kind);
        if let Some(key) = key {
            request.headers_mut().insert(AUTHORIZATION, key.clone());
        }
        self.transport.clone().oneshot(request).await
    }
}
