//! Replaces the module `member` on systems without Unix domain sockets, where no limits are shared.

use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::admission::Admission;
use tidegate_share::Report;

/// What the schedulers tell the member.
#[derive(Debug)]
#[allow(dead_code, reason = "nobody receives them")]
pub(super) enum Command {
    Join(Arc<str>, Weak<Admission>),
    Report(Arc<str>, Report),
    CoolDown(Arc<str>, Instant),
    Leave(Arc<str>),
}

/// The member of a gate. Never started, because the configuration is rejected.
pub(super) struct Member;

impl Member {
    pub(super) fn start(_: &Arc<str>, _: UnboundedReceiver<Command>) {}
}
