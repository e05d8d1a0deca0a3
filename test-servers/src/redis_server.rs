//! Real Redis servers on free loopback ports.

use std::io;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Delay before a command is sent again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The number of commands after which a server that does not answer counts as broken.
const MAX_ATTEMPTS: usize = 1_000;

/// A process of `redis-server`, which is killed when this value is dropped.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    directory: PathBuf,
    port: u16,
}

impl RedisServer {
    /// Starts an empty server on a free port, with these further options of the command line.
    ///
    /// # Errors
    /// `redis-server` is not installed, or does not answer.
    pub fn start(options: &[&str]) -> io::Result<Self> {
        Self::start_on(free_port()?, options)
    }

    /// Starts an empty server on a port.
    ///
    /// # Errors
    /// As [`RedisServer::start`].
    pub fn start_on(port: u16, options: &[&str]) -> io::Result<Self> {
        Self::start_as(&[], port, &[&["--save", "", "--appendonly", "no"], options].concat())
    }

    /// Starts a Sentinel with a file of settings, which it changes.
    ///
    /// # Errors
    /// As [`RedisServer::start`].
    pub fn start_sentinel(configuration: &str) -> io::Result<Self> {
        Self::start_as(&[configuration, "--sentinel"], free_port()?, &[])
    }

    fn start_as(mode: &[&str], port: u16, options: &[&str]) -> io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("tidegate-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let child = Command::new("redis-server")
            .args(mode)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(options)
            .current_dir(&directory)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| {
                let text =
                    "redis-server (version 7 or newer) is needed, such as Debian's package redis-server";
                io::Error::new(error.kind(), format!("{text}: {error}"))
            })?;
        let server = Self { child, directory, port };
        server.until(&["ping"], |answer| ["PONG", "NOAUTH"].iter().any(|text| answer.contains(text)))?;
        Ok(server)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends a command with `redis-cli`, and returns the answer as text. An error of the server is
    /// an answer, too.
    ///
    /// # Errors
    /// `redis-cli` is not installed.
    pub fn command(&self, command: &[&str]) -> io::Result<String> {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(command).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sends a command until the answer is as expected, for 20 s.
    ///
    /// # Errors
    /// The answer is another one.
    pub fn until(&self, command: &[&str], is_expected: impl Fn(&str) -> bool) -> io::Result<()> {
        let mut answer = String::new();
        for _ in 0..MAX_ATTEMPTS {
            answer = self.command(command)?;
            if is_expected(&answer) {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(io::Error::other(format!("{command:?} answers {answer:?}")))
    }

    /// Sends a signal, such as `STOP`.
    ///
    /// # Errors
    /// The process does not exist.
    pub fn signal(&self, name: &str) -> io::Result<()> {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(io::Error::other(format!("no signal {name} can be sent"))) }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns a loopback port that is free now.
///
/// # Errors
/// The system has none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
