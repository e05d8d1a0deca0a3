//! Another program that uses one core in bursts.

use std::io::{Read, stdin};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use crate::Fallible;

/// The duration of a burst, and of the pause after it.
const BURST: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_secs(6);

/// The process that uses a core in bursts. It is killed when the value is dropped.
pub(super) struct BusyProcess(Child);

impl BusyProcess {
    pub(super) fn start() -> Fallible<Self> {
        let program = std::env::current_exe()?;
        let child =
            Command::new(program).arg("vllm-busy").stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        Ok(Self(child))
    }
}

impl Drop for BusyProcess {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Computes in bursts until stdin is closed, which happens when the parent process ends.
pub(crate) fn compute_in_bursts() -> Fallible<String> {
    let parent = std::thread::spawn(|| stdin().read_to_end(&mut Vec::new()));
    while !parent.is_finished() {
        let began = Instant::now();
        while began.elapsed() < BURST {
            std::hint::spin_loop();
        }
        std::thread::sleep(PAUSE);
    }
    Ok(String::new())
}
