//! Marks the requests that a gate sends of its own accord.

/// A marker in the extensions of a request that the gate sends of its own accord, and not as an
/// attempt of a call. A transport that stands in for servers in tests can answer such requests
/// separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateRequest {
    /// Asks whether a replica is healthy.
    HealthProbe,
    /// Asks for the metrics or the models of a server, or for the number of tokens in a prompt.
    Query,
}
