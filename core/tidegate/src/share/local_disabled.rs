//! Replaces the module `local` on systems without Unix domain sockets, where there is no local
//! broker.

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use super::Command;

/// The member of a gate. Never started, because the configuration is rejected.
pub(super) struct Member;

impl Member {
    pub(super) fn start(_: &Arc<str>, _: UnboundedReceiver<Command>) {}
}
