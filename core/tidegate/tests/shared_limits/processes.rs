//! Members in processes of their own: this test binary, started again.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use tokio::sync::mpsc;

use super::{call, gate};

/// The environment variable with the settings of a member: the URL, the name of the share, the cap,
/// and the number of callers.
const MEMBER: &str = "TIDEGATE_TEST_MEMBER";

/// A process with a gate and callers.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    /// One item for each answered call, and none after the end of the process.
    pub(crate) answers: mpsc::UnboundedReceiver<String>,
}

impl Process {
    /// Starts a process with `callers` callers, which make one call after the other.
    pub(crate) fn start(url: &str, share: &str, cap: usize, callers: usize) -> Self {
        Self::start_in(url, share, cap, callers, None)
    }

    /// Starts a process whose brokers are in `runtime_directory`, or beside it while it does not
    /// exist.
    pub(crate) fn start_in(
        url: &str,
        share: &str,
        cap: usize,
        callers: usize,
        runtime_directory: Option<&std::path::Path>,
    ) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["processes::member", "--exact", "--nocapture", "--include-ignored"])
            .env(MEMBER, format!("{url} {share} {cap} {callers}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(directory) = runtime_directory {
            command.env("XDG_RUNTIME_DIR", directory).env("TMPDIR", directory.parent().unwrap());
        }
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, answers) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some(outcome) = line.strip_prefix("call ") {
                    let _ = sender.send(outcome.to_owned());
                }
            }
        });
        Self { stdin: child.stdin.take(), child, answers }
    }

    /// Sends a signal, such as `KILL`. Returns after a process that gets `STOP` has stopped.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
        while name == "STOP" && !self.has_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns whether the process has stopped, or cannot be asked on this system.
    fn has_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        // The state follows the name, which is in parentheses.
        stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
            || !std::path::Path::new("/proc").exists()
    }

    /// Lets the callers end after their current calls, and waits for the process.
    pub(crate) fn finish(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program of a [`Process`].
#[test]
#[ignore = "runs only in processes that other tests start"]
fn member() {
    let Ok(settings) = std::env::var(MEMBER) else { return };
    let settings: Vec<&str> = settings.split(' ').collect();
    let [url, share, cap, callers] = settings[..] else { panic!("four settings") };
    let (url, share, cap, callers) =
        (url.to_owned(), share.to_owned(), cap.parse().unwrap(), callers.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (ends, ended) = tokio::sync::watch::channel(false);
    std::thread::spawn(move || {
        let _ = std::io::stdin().lines().count();
        let _ = ends.send(true);
    });
    runtime.block_on(async move {
        let gate = gate(&url, &share, cap);
        let callers: Vec<_> = (0..callers)
            .map(|_: usize| {
                let (gate, ended, url) = (gate.clone(), ended.clone(), url.clone());
                tokio::spawn(async move {
                    while !*ended.borrow() {
                        let outcome = tokio::time::timeout(Duration::from_secs(60), call(&gate, &url)).await;
                        let outcome = outcome.map_or("no answer within 60 s".to_owned(), |outcome| outcome);
                        let mut stdout = std::io::stdout().lock();
                        writeln!(stdout, "call {outcome}").unwrap();
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        tidegate::return_shared_slots();
    });
}
