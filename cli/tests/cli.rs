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
    check_with(toml, &[])
}

fn check_with(toml: &str, options: &[&str]) -> Output {
    let name = format!("tidegate-check-{}-{:?}.toml", std::process::id(), std::thread::current().id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, toml).unwrap();
    let output = Command::new(TIDEGATE).arg("check").arg(&file).args(options).output().unwrap();
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
    for part in [
        "mode enforce",
        "target openai",
        "cap 12",
        "tenant acme: weight 1, cap 3",
        "tool db\n  cap 8",
        "connecting 10s",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn check_tells_every_setting_that_was_made() {
    let target = "cap = 3\nqueue = 17\nwait = 19\ndeadline = 123\nfirst_token = 29\nidle = 31\nstall = 37\nttft = 41\naging = 43\n\
                  retry = { attempts = 47, base = 53, max = 59, ratio = 0.61, reserve = 67 }\n\
                  default_tenant = { weight = 71, cap = 2, queue = 73 }\n";
    let transport = "connect = 79\npool_idle = 83\npool_idle_timeout = 89\nhttp2_streams = 97\n\
                     http2_prior_knowledge = true\nproxy_from_env = false\n";
    let output = check(&format!("[targets.openai]\n{target}[transport]\n{transport}"));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "cap 3",
        "17 a",
        "19s",
        "2m 3s",
        "29s",
        "31s",
        "37s",
        "41s",
        "43s",
        "47 att",
        "53s",
        "59s",
        "0.61",
        "67",
        "71",
        "cap 2",
        "queue 73",
        "1m 19s",
        "83",
        "1m 29s",
        "97",
        "HTTP/2 without TLS",
        "proxies: none",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn check_says_which_target_takes_a_request() {
    let toml = "[targets]\nopenai = { cap = 1, models = [\"gpt-*\"] }\n";
    for (model, target) in [("gpt-5", "openai\n"), ("o3", "any other target")] {
        let output = check_with(toml, &["--url", "https://api.openai.com/v1/responses", "--model", model]);
        assert!(String::from_utf8(output.stdout).unwrap().starts_with(target), "{model}");
    }
}

#[test]
fn check_names_what_is_wrong_and_what_was_meant() {
    let output = check("[targets.openai]\ncpa = 12\n");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("cpa") && text.contains("cap"), "{text}");
}
