//! Termination signals: the first requests a graceful end of a subcommand, the second ends it
//! immediately.

use tokio::sync::watch;

use crate::Failure;

/// Starts to count termination signals, and returns a receiver that holds their number so far. The
/// signals are SIGINT and SIGTERM, or Ctrl-C and Ctrl-Break on Windows. Must be called inside a
/// tokio runtime.
pub(crate) fn count_signals() -> Result<watch::Receiver<usize>, Failure> {
    let (count, receiver) = watch::channel(0);
    let mut next = TerminationSignals::new()
        .map_err(|e| Failure::runtime(format!("cannot install signal handlers: {e}")))?;
    tokio::spawn(async move {
        loop {
            next.next().await;
            count.send_modify(|signals| *signals += 1);
        }
    });
    Ok(receiver)
}

/// Waits until at least `count` signals have been received.
pub(crate) async fn received(mut signals: watch::Receiver<usize>, count: usize) {
    if signals.wait_for(|seen| *seen >= count).await.is_err() {
        std::future::pending().await
    }
}

/// Returns a request that has its default value before the first signal, and after each signal the
/// next of `requests`. Must be called inside a tokio runtime.
pub(crate) fn stop_requests<T: Default + Send + Sync + 'static>(
    signals: watch::Receiver<usize>,
    requests: impl IntoIterator<Item = T, IntoIter: Send + 'static>,
) -> watch::Receiver<T> {
    let (send, request) = watch::channel(T::default());
    let requests = requests.into_iter();
    tokio::spawn(async move {
        for (before, request) in requests.enumerate() {
            received(signals.clone(), before + 1).await;
            let _ = send.send(request);
        }
        // The sender is kept alive: its drop would look as if no stop could be requested any more.
        std::future::pending::<()>().await
    });
    request
}

#[cfg(unix)]
struct TerminationSignals(tokio::signal::unix::Signal, tokio::signal::unix::Signal);

#[cfg(unix)]
impl TerminationSignals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self(signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    }

    async fn next(&mut self) {
        tokio::select! { _ = self.0.recv() => {} _ = self.1.recv() => {} }
    }
}

#[cfg(windows)]
struct TerminationSignals(tokio::signal::windows::CtrlC, tokio::signal::windows::CtrlBreak);

#[cfg(windows)]
impl TerminationSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self(tokio::signal::windows::ctrl_c()?, tokio::signal::windows::ctrl_break()?))
    }

    async fn next(&mut self) {
        tokio::select! { _ = self.0.recv() => {} _ = self.1.recv() => {} }
    }
}
