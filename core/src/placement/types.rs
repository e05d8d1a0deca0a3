//! What passes between the pool's policy and those around it.

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::config::ReplicaConfig as Member;
use crate::wire::request::Affinity;
use crate::wire::vllm::{EngineMetrics, Model};

/// A replica's name within its pool, for as long as the pool lives: one that left and came back has another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// A replica that a call was placed at: what its permit names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Which.
    pub id: ReplicaId,
    /// Where: [`Member::url`].
    pub url: Arc<str>,
}

/// What was seen of a replica by somebody who asked it.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// It answers, and says that it is well.
    ProbeOk,
    /// It answers, and says that it is not (5xx).
    ProbeFailed,
    /// Nothing listens there: the connection was refused, or could not be made.
    ConnectRefused,
    /// It did not answer in time.
    ProbeTimeout,
    /// How it stands.
    Metrics(EngineMetrics),
    /// It was asked how it stands, and did not say.
    MetricsUnreadable,
    /// What it serves.
    Models(Vec<Model>),
}

/// Something to ask a replica.
#[derive(Clone, Debug, PartialEq)]
pub struct PollRequest {
    /// Which.
    pub to: ReplicaId,
    /// Where: [`Member::url`].
    pub url: Arc<str>,
    /// What.
    pub kind: PollKind,
}

/// See [`PollRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollKind {
    /// Whether it is well: [`Observation::ProbeOk`], `Unwell`, `Gone` or `Silent` is the answer.
    Health,
    /// How it stands: `EngineMetrics` or `Unknown`.
    Load,
    /// What it serves: `Models`, or nothing.
    Models,
}

/// What is to be asked now, and when there will be more to ask, if nothing happens before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PollRequests {
    /// Now.
    pub due: Vec<PollRequest>,
    /// Then; `None`: there is nothing to ask until a call comes.
    pub next: Option<Instant>,
}

/// What a call asks of the replica that it is placed at, and what it would like. Made once a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wants {
    /// The model that it names.
    pub model: Option<Arc<str>>,
    /// What it shares with others, whose memory it could use.
    pub affinity: Affinity,
    /// Replicas that failed it, to which it does not go again while there are others.
    pub avoid: Vec<ReplicaId>,
}

/// What a call will cost the replica that it goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Prompt tokens.
    pub input: u64,
    /// Tokens of the answer, as expected.
    pub output: u64,
}

/// How an attempt at a replica failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has no room (503), and maybe said for how long. It is busy, not ill.
    Full(Option<Duration>),
    /// It limits the rate (429), and maybe said for how long.
    Limited(Option<Duration>),
    /// Nobody listens there.
    ConnectRefused,
    /// No connection came about, for a reason that may lie on the way there (names, TLS, routes, time). Nothing ran.
    Unreached,
    /// The exchange broke, or it answered with another 5xx.
    Broke,
}
