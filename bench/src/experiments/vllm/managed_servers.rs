//! vLLM servers that `bench/vllm/run.py` starts, signals and stops while an experiment runs.
//!
//! The experiment prints a request as one line to stdout, and reads the answer as one line from
//! stdin. `run.py` prints each other line of stdout.

use std::io::{Write, stdin, stdout};

use super::engines::Profile;
use crate::Fallible;

/// A server, which is stopped when the value is dropped.
pub(super) struct ManagedServer {
    url: String,
}

/// What happens to the process of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGKILL. The server is then started again.
    Kill,
    /// SIGTERM, followed by SIGKILL if the server has not ended after 30 s. The server is then
    /// started again.
    Term,
    Stop,
    Cont,
}

impl ManagedServer {
    /// Starts a server of `profile`, and waits until it answers.
    pub(super) fn start(profile: Profile) -> Fallible<Self> {
        Ok(Self { url: request(&format!("start {}", profile.name()))? })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for ManagedServer {
    fn drop(&mut self) {
        // If this fails, `run.py` has ended, and has stopped the server.
        let _ = request(&format!("stop {}", self.url));
    }
}

/// Sends a signal to the server at `url`. Returns once the signal is sent, and does not wait for
/// its effect.
pub(super) fn signal(url: &str, signal: Signal) -> Fallible<()> {
    let name = match signal {
        Signal::Kill => "kill",
        Signal::Term => "term",
        Signal::Stop => "stop",
        Signal::Cont => "cont",
    };
    request(&format!("signal {name} {url}")).map(|_| ())
}

fn request(line: &str) -> Fallible<String> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    match answer.trim() {
        "" => Err(format!("`{line}` was not answered; start this with `python bench/vllm/run.py`").into()),
        answer => Ok(answer.to_owned()),
    }
}
