//! The binary, as a user runs it.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// A running `tidegate sim`, killed with the test.
struct Sim {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Sim {
    fn start(options: &[&str]) -> Self {
        let mut command = Command::new(TIDEGATE);
        command.args(["sim", "--listen", "127.0.0.1:0"]).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn check(toml: &str) -> Output {
    let file =
        std::env::temp_dir().join(format!("tidegate-check-{}-{}.toml", std::process::id(), toml.len()));
    std::fs::write(&file, toml).unwrap();
    let output = Command::new(TIDEGATE).arg("check").arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    output
}

#[test]
fn sim_says_where_it_listens_and_serves_there() {
    let mut sim = Sim::start(&["--json", "--model", "small", "--model", "large", "--time-scale", "10"]);
    let ready: serde_json::Value = serde_json::from_str(&sim.line()).unwrap();
    let address = ready["address"].as_str().unwrap();
    assert_eq!(ready["base_url"], format!("http://{address}/v1"));
    assert!(get(address, "/health").starts_with("HTTP/1.1 200"));
    let models = get(address, "/v1/models");
    assert!(models.contains(r#""id":"small""#) && models.contains(r#""id":"large""#));
}

#[test]
fn sim_has_a_line_for_people() {
    let line = Sim::start(&["--workers", "1"]).line();
    assert!(line.starts_with("serving sim on http://127.0.0.1:") && line.contains("1 workers"), "{line}");
}

#[cfg(unix)]
#[test]
fn sim_ends_on_the_signals_of_service_managers_and_terminals() {
    for signal in ["-TERM", "-INT"] {
        let mut sim = Sim::start(&[]);
        sim.line();
        assert!(Command::new("kill").args([signal, &sim.child.id().to_string()]).status().unwrap().success());
        assert!(sim.child.wait().unwrap().success(), "{signal}");
    }
}

#[test]
fn sim_names_what_cannot_work() {
    for (options, named) in [
        (["--workers", "0"], "workers"),
        (["--time-scale", "0"], "time_scale"),
        (["--faults", "no-such-file"], "no-such-file"),
        (["--listen", "nowhere"], "nowhere"),
    ] {
        let mut command = Command::new(TIDEGATE);
        let output = command.arg("sim").args(options).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && text.contains(named), "{text}");
    }
}

#[test]
fn check_tells_what_it_understood() {
    let output = check("[targets]\nopenai = 12\n[tenants]\nacme = { cap = 3 }\n[tools]\ndb = 8\n");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for part in
        ["mode enforce", "target openai", "cap 12", "tenant acme: weight 1, cap 3", "tool db\n  cap 8"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn check_names_what_is_wrong_and_what_was_meant() {
    let output = check("[targets.openai]\ncpa = 12\n");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("cpa") && text.contains("cap"), "{text}");
}
