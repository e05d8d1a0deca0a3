//! Measures the memory of an open event stream: resident pages of the client process with 1,000 and
//! 5,000 streams open.
//!
//! Server and client are separate processes, so that only the client's pages count. Each figure has
//! a fresh client. The client opens a few streams and closes them, so that connections, TLS roots
//! and worker threads exist. Then it reads its resident size, opens all streams, reads the first
//! events of each, waits, and reads its size again.

mod client;
mod server;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};

pub(crate) use client::{Client, hold, resident};
pub(crate) use server::serve;

use crate::Fallible;
use crate::report::{Op, Report, Spread};

const STREAMS: [usize; 2] = [1_000, 5_000];
const ROUNDS: usize = 3;

/// Measures each client with each number of streams, and returns the report.
pub(crate) fn measure() -> Fallible<Report> {
    let mut report = Report::new("memory", []);
    let server = Server::start()?;
    for streams in STREAMS {
        for (client, version) in [(Client::Gate, "HTTP/1.1"), (Client::GateHttp2, "HTTP/2")] {
            let key = format!("{version}, {streams} streams, KiB each");
            let ours = rounds(&server, client, streams)?;
            report.figure(&key, ours);
            report.bar(&key, ours.most, Op::AtMost, 16.0);
        }
        let bare = rounds(&server, Client::Reqwest, streams)?;
        report.peer("reqwest", format!("HTTP/1.1, {streams} streams, KiB each"), bare);
    }
    Ok(report)
}

fn rounds(server: &Server, client: Client, streams: usize) -> Fallible<Spread> {
    let kib: Vec<f64> = (0..ROUNDS).map(|_| once(server, client, streams)).collect::<Fallible<_>>()?;
    eprintln!("{client:?}, {streams} streams: {kib:.1?} KiB each");
    Ok(Spread::of(kib))
}

fn once(server: &Server, client: Client, streams: usize) -> Fallible<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["memory-client", client.name(), &server.url, &streams.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// The upstream's process. It exits when its standard input closes, which happens when this value
/// is dropped.
struct Server {
    url: String,
    child: Child,
    input: Option<ChildStdin>,
}

impl Server {
    fn start() -> Fallible<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("memory-server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut url = String::new();
        let output = child.stdout.take().ok_or("the server has no output")?;
        BufReader::new(output).read_line(&mut url)?;
        let input = child.stdin.take();
        Ok(Self { url: url.trim().to_owned(), child, input })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
