//! Real Redis servers on free loopback ports.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Delay before a command is sent again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The number of commands after which a server that does not answer counts as broken.
const MAX_ATTEMPTS: usize = 1_000;

/// A server, which is killed when it is dropped.
pub(crate) struct RedisServer {
    child: Child,
    directory: PathBuf,
    pub(crate) port: u16,
}

impl RedisServer {
    /// Starts an empty server on a free port, with these further options of the command line.
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_on(free_port(), options)
    }

    /// Starts an empty server on a port.
    pub(crate) fn start_on(port: u16, options: &[&str]) -> Self {
        Self::start_as(&[], port, &[&["--save", "", "--appendonly", "no"], options].concat())
    }

    /// Starts a Sentinel with a file of settings.
    pub(crate) fn start_sentinel(configuration: &str) -> Self {
        Self::start_as(&[configuration, "--sentinel"], free_port(), &[])
    }

    fn start_as(mode: &[&str], port: u16, options: &[&str]) -> Self {
        let directory = std::env::temp_dir().join(format!("tidegate-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let text = port.to_string();
        let child = Command::new("redis-server")
            .args(mode)
            .args(["--port", &text, "--bind", "127.0.0.1"])
            .args(options)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server of version 7 is installed (Debian: apt-get install redis-server)");
        let server = Self { child, directory, port };
        server.until(&["ping"], |answer| answer.contains("PONG") || answer.contains("NOAUTH"));
        server
    }

    /// Returns the URL.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends a command, and returns the answer as text. An error is an answer, too.
    pub(crate) fn command(&self, command: &[&str]) -> String {
        let port = self.port.to_string();
        let output = Command::new("redis-cli").args(["-p", &port]).args(command).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Sends a command until the answer is as expected.
    pub(crate) fn until(&self, command: &[&str], is_expected: impl Fn(&str) -> bool) {
        let mut answer = String::new();
        for _ in 0..MAX_ATTEMPTS {
            answer = self.command(command);
            if is_expected(&answer) {
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        panic!("{command:?} answers {answer:?}");
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns a port that is free now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
