//! Tests of `tidegate sweep` as a user runs it, with `tidegate sim` as the server.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// A running `tidegate sim`. Dropping it kills the process.
struct Sim {
    child: Child,
    address: String,
    url: String,
}

impl Sim {
    /// Starts a server that answers in about 400 ms and rejects calls while six others are open.
    /// 400 ms is long compared with the scheduling delays of a busy machine.
    fn start() -> Self {
        let directory = Directory::new("sim");
        std::fs::create_dir_all(&directory.0).unwrap();
        let config = directory.0.join("sim.json");
        let engine = r#"{"step": {"base_ms": 40.0, "per_prompt_token_ms": 0.0, "per_sequence_ms": 0.0}, "max_num_batched_tokens": 100000}"#;
        let text = format!(r#"{{"workers": 1, "engine": {engine}, "faults": {{"concurrency_limit": 6}}}}"#);
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(TIDEGATE);
        command.args(["sim", "--listen", "127.0.0.1:0", "--json", "--config"]).arg(&config);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let of = |key: &str| ready[key].as_str().unwrap().to_owned();
        Self { child, address: of("address"), url: of("base_url") }
    }

    /// Returns the number of requests that the server received.
    fn requests(&self) -> u64 {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET /sim/stats HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let stats: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(stats["in_flight"], 0);
        let tenants = stats["tenants"].as_object().unwrap();
        let statuses = tenants.values().flat_map(|tenant| tenant["statuses"].as_object().unwrap().values());
        statuses.map(|count| count.as_u64().unwrap()).sum()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A temporary directory. Dropping it removes the directory.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
        let path = std::env::temp_dir().join(format!("tidegate-cli-{name}-{}-{thread}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(url: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(TIDEGATE);
    command.args(["sweep", "--url", url, "--model", "sim", "--input-tokens", "40", "--output-tokens", "8"]);
    command.args(["--max-cap", "16"]).args(flags).stdin(Stdio::null());
    command
}

fn sweep(url: &str, flags: &[&str]) -> Output {
    command(url, flags).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn sweep_of_a_url_prints_a_configuration_to_paste() {
    let (sim, out) = (Sim::start(), Directory::new("whole"));
    let output = sweep(&sim.url, &["--out", out.0.to_str().unwrap(), "--price-in", "1", "--price-out", "4"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}{}", text(&output.stderr));
    for part in ["least, likely, most", "cost", "a concurrency limit", "[targets.\"sim\"]", "report.html"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let result: Value = serde_json::from_str(&out.read("result.json")).unwrap();
    assert_eq!(result["answer"]["binding"], "concurrency_limit");
    // On a busy machine, the client frees a slot later than the server does, so one more call fits.
    let cap = result["answer"]["cap"].as_u64().unwrap();
    assert!((6..=7).contains(&cap) && printed.contains(&format!("cap {cap}")), "{cap}: {printed}");
    // A request that was cancelled while it was being sent may not have arrived.
    let (sent, arrived) = (result["spend"]["attempts"].as_u64().unwrap(), sim.requests());
    assert!(arrived <= sent && sent <= arrived + 8, "{arrived} of {sent}");
    assert!(out.read("report.html").contains("<svg") && out.read("steps.csv").lines().count() > 3);
    assert!(out.read("calls.jsonl").lines().count() > 100);
    // The printed lines are a valid configuration, and its target can be swept again.
    let config = out.0.join("tidegate.toml");
    std::fs::write(&config, result["lines"].as_str().unwrap()).unwrap();
    let check = Command::new(TIDEGATE).arg("check").arg(&config).output().unwrap();
    assert!(
        check.status.success()
            && text(&check.stdout)
                .contains(&format!("  cap                {cap} slots\n  limit              fixed\n")),
        "{check:?}"
    );
    let mut again = Command::new(TIDEGATE);
    again.args(["sweep", "--target", "sim", "--config"]).arg(&config).args(["--dry-run", "--json"]);
    let plan: Value = serde_json::from_slice(&again.output().unwrap().stdout).unwrap();
    assert!(plan["calls"]["likely"].as_f64() > Some(50.0), "{plan}");
}

#[test]
fn dry_run_sends_nothing() {
    let sim = Sim::start();
    let output = sweep(&sim.url, &["--dry-run"]);
    assert!(output.status.success() && text(&output.stdout).contains("calls"), "{output:?}");
    assert_eq!(sim.requests(), 0);
}

#[test]
fn at_least_above_the_highest_cap_is_rejected() {
    let sim = Sim::start();
    let output = sweep(&sim.url, &["--at-least", "17"]);
    let printed = text(&output.stderr);
    assert!(output.status.code() == Some(2) && printed.contains("--max-cap, which is 16"), "{printed}");
    assert!(output.stdout.is_empty() && sim.requests() == 0);
}

#[test]
fn reached_ceiling_exits_without_an_answer_and_can_be_resumed() {
    let (sim, out) = (Sim::start(), Directory::new("ceiling"));
    let directory = out.0.to_str().unwrap();
    let output = sweep(&sim.url, &["--max-calls", "60", "--out", directory]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(sim.requests() <= 60);
    let resume = |flags: &[&str]| {
        let mut command = Command::new(TIDEGATE);
        command.args(["sweep", "--resume", directory]).args(flags).stdin(Stdio::null()).output().unwrap()
    };
    let other = resume(&["--seed", "9"]);
    assert!(other.status.code() == Some(2) && text(&other.stderr).contains("seed"), "{other:?}");
    let done = resume(&["--max-calls", "5000", "--json", "--at-least", "10"]);
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&result["answer"]["cap"], result["provenance"]["resumed"].as_u64()), (&6.into(), Some(1)));
    assert!(sim.requests() <= result["spend"]["attempts"].as_u64().unwrap(), "what was spent before counts");
    // The cap is below --at-least.
    assert_eq!(done.status.code(), Some(5));
}

#[test]
fn time_ceiling_during_the_preflight_call_is_not_a_failure_of_the_server() {
    // The system accepts connections, and nothing answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", silent.local_addr().unwrap());
    let output = sweep(&url, &["--max-time", "1s"]);
    let printed = text(&output.stderr);
    assert!(output.status.code() == Some(3) && printed.contains("--max-time"), "{printed}");
}

#[cfg(unix)]
#[test]
fn interrupt_writes_the_partial_result() {
    let (sim, out) = (Sim::start(), Directory::new("interrupt"));
    let mut child = command(&sim.url, &["--out", out.0.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // Wait for the end of the first step.
    lines.by_ref().map(Result::unwrap).find(|line| line.contains("calls in")).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("interrupted")), "{rest:?}");
    let result: Value = serde_json::from_str(&out.read("result.json")).unwrap();
    assert_eq!(result["ended"]["how"], "interrupted");
    assert!(!result["steps"].as_array().unwrap().is_empty());
    sim.requests();
}

#[test]
fn sweep_goes_on_without_a_reader_of_standard_error() {
    let sim = Sim::start();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(&sim.url, &["--json"]).stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["ended"]["how"], "found");
    assert!(result["steps"].as_array().unwrap().len() > 1);
}

#[test]
fn result_that_cannot_be_saved_is_printed() {
    let (sim, out) = (Sim::start(), Directory::new("unwritable"));
    std::fs::create_dir_all(out.0.join("result.json")).unwrap();
    let output = sweep(&sim.url, &["--max-calls", "60", "--json", "--out", out.0.to_str().unwrap()]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["ended"]["which"], "calls");
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("result.json: "), "{output:?}");
}

#[test]
fn gates_that_are_switched_off_are_rejected_before_a_call() {
    let (sim, out) = (Sim::start(), Directory::new("off"));
    let mut off = command(&sim.url, &["--out", out.0.to_str().unwrap()]);
    let output = off.env("TIDEGATE", "off").output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("TIDEGATE"), "{output:?}");
    assert!(sim.requests() == 0 && !out.0.exists());
}

#[test]
fn sweep_of_a_target_is_resumed_only_with_the_same_target() {
    let (sim, out) = (Sim::start(), Directory::new("target"));
    std::fs::create_dir_all(&out.0).unwrap();
    let (directory, config) = (out.0.to_str().unwrap(), out.0.join("tidegate.toml"));
    let write = |rate: &str| {
        let target =
            format!("[targets.sim]\nurl = \"{}\"\nmodels = \"sim\"\nbudget = \"account\"\n", sim.url);
        let text = format!("{target}[budgets.account]\nrpm = {rate}\n");
        std::fs::write(&config, text).unwrap();
    };
    let run = |flags: &[&str]| Command::new(TIDEGATE).arg("sweep").args(flags).output().unwrap();
    let target = ["--target", "sim", "--config", config.to_str().unwrap()];
    write("6000");
    // A flag overrides the target, and is not repeated.
    let flags = ["--name", "other", "--max-calls", "20", "--out", directory];
    let first = run(&[&target[..], &flags].concat());
    assert_eq!(first.status.code(), Some(3), "{}", text(&first.stderr));
    let requests = sim.requests();
    let resume = ["--resume", directory, "--max-calls", "40"];
    for flags in [&[][..], &target] {
        write(if flags.is_empty() { "6000" } else { "60" });
        let output = run(&[&resume[..], flags].concat());
        let printed = text(&output.stderr);
        assert!(output.status.code() == Some(2) && printed.contains("--config and --target"), "{printed}");
    }
    assert_eq!(sim.requests(), requests);
    write("6000");
    let again = run(&[&resume[..], &target].concat());
    assert_eq!(again.status.code(), Some(3), "{}", text(&again.stderr));
    assert!(sim.requests() > requests);
}

#[test]
fn target_of_a_provider_is_called_at_the_root_of_its_api() {
    let out = Directory::new("provider");
    std::fs::create_dir_all(&out.0).unwrap();
    let config = out.0.join("tidegate.toml");
    std::fs::write(&config, "[targets]\ngroq = 8\n").unwrap();
    let mut sweep = Command::new(TIDEGATE);
    sweep.args(["sweep", "--target", "groq", "--model", "m", "--dry-run", "--config"]).arg(&config);
    let output = sweep.env("GROQ_API_KEY", "key").output().unwrap();
    let expected = "sweep of m at https://api.groq.com/openai/v1/chat/completions\n";
    assert!(text(&output.stdout).starts_with(expected), "{output:?}");
}

#[test]
fn target_gives_its_model_and_its_key() {
    let out = Directory::new("key");
    std::fs::create_dir_all(&out.0).unwrap();
    let (config, variable) = (out.0.join("tidegate.toml"), "TIDEGATE_SWEEP_KEY");
    let target = format!("[targets.openai]\nmodel = \"small\"\nkey_env = \"{variable}\"\n");
    std::fs::write(&config, target).unwrap();
    let mut sweep = Command::new(TIDEGATE);
    sweep.args(["sweep", "--target", "openai", "--dry-run", "--config"]).arg(&config);
    let without = sweep.env_remove(variable).output().unwrap();
    assert!(without.status.code() == Some(2) && text(&without.stderr).contains(variable), "{without:?}");
    let with = sweep.env(variable, "key").output().unwrap();
    let expected = "sweep of small at https://api.openai.com/v1/chat/completions\n";
    assert!(text(&with.stdout).starts_with(expected), "{with:?}");
}

#[test]
fn transport_settings_of_the_configuration_apply() {
    let out = Directory::new("transport");
    std::fs::create_dir_all(&out.0).unwrap();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", server.local_addr().unwrap());
    let config = out.0.join("tidegate.toml");
    let text = format!(
        "[transport]\nhttp2_prior_knowledge = true\n\n[targets.local]\nurl = \"{url}\"\nmodels = [\"m\"]\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut sweep = Command::new(TIDEGATE);
    sweep.args(["sweep", "--target", "local", "--yes", "--config"]).arg(&config);
    let mut running = sweep.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = [0; 14];
    let read = server.accept().and_then(|(mut stream, _)| stream.read_exact(&mut first));
    running.kill().unwrap();
    running.wait().unwrap();
    read.unwrap();
    assert_eq!(&first, b"PRI * HTTP/2.0");
}

#[test]
fn only_one_process_uses_a_journal() {
    let (sim, out) = (Sim::start(), Directory::new("locked"));
    let directory = out.0.to_str().unwrap();
    let mut running = command(&sim.url, &["--out", directory])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(running.stderr.take().unwrap()).lines();
    // Wait for the end of the first step.
    lines.by_ref().map(Result::unwrap).find(|line| line.contains("calls in")).unwrap();
    let resume = || {
        let mut command = Command::new(TIDEGATE);
        command.args(["sweep", "--resume", directory, "--dry-run"]).stdin(Stdio::null()).output().unwrap()
    };
    let second = resume();
    assert!(running.try_wait().unwrap().is_none(), "the first sweep was still running");
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    let printed = text(&second.stderr);
    assert!(
        printed.contains("another sweep is writing to this journal; wait until it has ended"),
        "{printed}"
    );
    let after = resume();
    assert!(after.status.success(), "the lock ends with the process: {after:?}");
}

#[test]
fn invalid_targets_are_rejected_with_a_hint() {
    let sim = Sim::start();
    let of = |output: Output| (output.status.code(), text(&output.stderr));
    let (code, printed) = of(sweep(&sim.url, &["--model", "other"]));
    assert!(code == Some(2) && printed.contains("--model"), "{printed}");
    let mut other = Command::new(TIDEGATE);
    other.args(["sweep", "--url", &sim.url, "--model", "other"]).stdin(Stdio::null());
    let (code, printed) = of(other.output().unwrap());
    assert!(
        code == Some(1) && printed.contains("no model other") && printed.contains("available models: sim"),
        "{printed}"
    );
    for (options, expected) in [
        (&[][..], "pass --url, --target with --config, or --resume"),
        (&["--url", &sim.url], "pass --model"),
        (&["--url", &sim.url, "--model", "sim", "--start", "9", "--max-cap", "4"], "got 1, 9 and 4"),
        (
            &["--url", &sim.url, "--model", "sim", "--too-many", "2"],
            "--too-many: must be above 0 and below 1; got 2",
        ),
        (&["--url", &sim.url, "--model", "sim", "--spread", "9"], "--spread: must be 0 to 3; got 9"),
    ] {
        let mut invalid = Command::new(TIDEGATE);
        let (code, printed) = of(invalid.arg("sweep").args(options).output().unwrap());
        assert!(code == Some(2) && printed.contains(expected), "{printed}");
    }
    let (code, printed) = of(sweep("http://127.0.0.1:9", &[]));
    assert!(code == Some(1) && printed.contains("cannot be reached"), "{printed}");
    let (code, printed) = of(sweep(&sim.url, &["--key-env", "TIDEGATE_NO_SUCH_KEY"]));
    assert!(code == Some(2) && printed.contains("TIDEGATE_NO_SUCH_KEY"), "{printed}");
    let (code, printed) = of(sweep(&sim.url, &["--key-env", "sk-secret"]));
    assert!(code == Some(2) && printed.contains("pass its name") && !printed.contains("secret"), "{printed}");
    let mut openai = command("https://api.openai.com/v1", &[]);
    let (code, printed) = of(openai.env_remove("OPENAI_API_KEY").output().unwrap());
    assert!(code == Some(2) && printed.contains("OPENAI_API_KEY"), "{printed}");
    let (code, printed) = of(sweep(&sim.url, &["--max-cost", "1"]));
    assert!(code == Some(2) && printed.contains("--price-in"), "{printed}");
}
