//! Tests of the `tidegate` binary, run as a user runs it.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// A running `tidegate sim`. Dropping it kills the process.
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
    request(address, "GET", path, "")
}

fn request(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: sim\r\nconnection: close");
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn check(toml: &str) -> Output {
    check_with(toml, &[])
}

/// Returns the standard output of `check`, with one space between each key and its value.
fn settings(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let line = |line: &str| match line.strip_prefix("  ").and_then(|line| line.split_once("  ")) {
        Some((key, value)) => format!("{key} {}\n", value.trim_start()),
        None => format!("{}\n", line.trim_start()),
    };
    text.lines().map(line).collect()
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
fn sim_prints_its_address_and_serves_the_api() {
    let mut sim = Sim::start(&["--json", "--model", "small", "--model", "large", "--time-scale", "10"]);
    let ready: serde_json::Value = serde_json::from_str(&sim.line()).unwrap();
    let address = ready["address"].as_str().unwrap();
    assert_eq!(ready["base_url"], format!("http://{address}/v1"));
    assert!(get(address, "/health").starts_with("HTTP/1.1 200"));
    let models = get(address, "/v1/models");
    assert!(models.contains(r#""id":"small""#) && models.contains(r#""id":"large""#));
    let call = r#"{"model": "small", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}"#;
    let answer = request(address, "POST", "/v1/chat/completions", call);
    assert!(answer.contains(r#""system_fingerprint":"vllm-sim""#), "{answer}");
}

#[test]
fn sim_prints_a_readable_line_without_json() {
    let line = Sim::start(&["--workers", "1"]).line();
    assert!(line.starts_with("serving sim on http://127.0.0.1:") && line.contains("1 workers"), "{line}");
}

#[cfg(unix)]
#[test]
fn sim_exits_on_sigterm_and_sigint() {
    for signal in ["-TERM", "-INT"] {
        let mut sim = Sim::start(&[]);
        sim.line();
        assert!(Command::new("kill").args([signal, &sim.child.id().to_string()]).status().unwrap().success());
        assert!(sim.child.wait().unwrap().success(), "{signal}");
    }
}

#[test]
fn sim_rejects_invalid_options_and_names_them() {
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

/// A temporary directory. Dropping it removes the directory.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn output_without_a_reader_is_no_error() {
    let folder = Folder::new("pipe");
    let file = folder.0.join("tidegate.toml");
    std::fs::write(&file, "").unwrap();
    let (file, url) = (file.to_str().unwrap(), "http://127.0.0.1:9");
    for arguments in [&["check", file][..], &["sweep", "--url", url, "--model", "sim", "--dry-run"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(TIDEGATE).args(arguments).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut check = Command::new(TIDEGATE);
    let output = check.args(["check", "-"]).stdin(Stdio::null()).stdout(full).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("standard output cannot be written"), "{text}");
}

#[cfg(unix)]
#[test]
fn check_reads_regular_files_up_to_a_limit() {
    let folder = Folder::new("files");
    let check = |path: &std::path::Path| {
        let output = Command::new(TIDEGATE).arg("check").arg(path).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let fifo = folder.0.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // A process is about to write to the FIFO, so opening the FIFO would not block.
    let mut writer = Command::new("sh").arg("-c").arg("echo mode = 7 > \"$0\"").arg(&fifo).spawn().unwrap();
    let (code, text) = check(&fifo);
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert!(text.contains("fifo: cannot be read: it is a FIFO or pipe; name a regular file"), "{text}");
    assert_eq!(code, Some(2));
    assert!(check(&folder.0).1.contains("it is a directory; name a regular file"));
    assert!(check("/dev/zero".as_ref()).1.contains("it is a device; name a regular file"));
    let large = folder.0.join("large.toml");
    std::fs::File::create(&large).unwrap().set_len((16 << 20) + 1).unwrap();
    assert!(check(&large).1.contains("large.toml: is larger than 16 MiB"));
}

#[test]
fn check_reads_standard_input() {
    let check = |text: Vec<u8>| {
        let mut check = Command::new(TIDEGATE);
        check.args(["check", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut check = check.spawn().unwrap();
        let mut stdin = check.stdin.take().unwrap();
        // The write fails if the process stops reading before the end of an oversized input.
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &text).is_ok());
        let output = check.wait_with_output().unwrap();
        writer.join().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    assert!(check(b"[tools]\ndb = 8\n".to_vec()).contains("tool db\n"));
    assert!(check(b"[tools]\ndb = 0\n".to_vec()).contains("standard input:2: tools.db: expected"));
    assert!(check(vec![b'#'; (16 << 20) + 1]).contains("standard input: is larger than 16 MiB"));
}

/// A configuration of 20,000 targets is accepted, and the target of a request is found in it. The
/// tests in `core/config/src/matching/coverage.rs` show that targets are not compared pairwise.
#[test]
fn check_takes_twenty_thousand_targets() {
    let budgets: String = (0..20_000).map(|n| format!("b{n} = {{ rpm = 60 }}\n")).collect();
    let target = |n: usize| {
        let fallback =
            if n.is_multiple_of(2) { format!(", fallback = \"t{}\"", n + 1) } else { String::new() };
        format!("t{n} = {{ url = \"http://h/{n}\", models = [\"m{n}\"], budget = \"b{n}\"{fallback} }}\n")
    };
    let targets: String = (0..20_000).map(target).collect();
    let output = check_with(
        &format!("[budgets]\n{budgets}[targets]\n{targets}"),
        &["--url", "http://h/19999/chat/completions", "--model", "m19999"],
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "t19999\n");
}

#[test]
fn check_prints_each_setting_with_its_default() {
    let output = check("[targets]\nopenai = 12\n[tenants]\nacme = { cap = 3 }\n[tools]\ndb = 8\n");
    assert!(output.status.success());
    let text = settings(&output);
    for part in [
        "mode enforce",
        "target openai",
        "cap 12 slots",
        "tenants.acme weight 1, cap 3 slots",
        "limit fixed",
        "tool db\ncap 8 slots\nlimit fixed\nlatency none\nqueue 10,000 calls per tenant\n",
        "tenants share queue (also slots and first-token capacity if the limit is adaptive)",
        "tenants share queue, slots and first-token capacity",
        "limit adaptive, objective: three times the latency of calls of the same kind at low load\n\
         limit.start 8 slots\nlimit.min 1 slots\n\
         limit.awaiting limited adaptively if decrease is \"served\", otherwise not limited\n\
         limit.decrease to the concurrency that is served\nlimit.detector exceedance\n",
        "connect 10s",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn check_prints_every_setting_that_was_set() {
    let target = "cap = 3\nqueue = 17\nwait = 19\ndeadline = 123\nfirst_token = 29\nidle = 31\nstall = 37\nttft = 41\ntpot = 1.25\naging = 43\n\
                  retry = { attempts = 47, base = 53, max = 59, ratio = 0.61, reserve = 67 }\n\
                  default_tenant = { weight = 71, cap = 2, queue = 73, tpm = 101, shed = false }\n\
                  backlog = 103\nlanes.batch = { floor = 0.107, queue = 109, wait = 113, ttft = 119 }\ncost = \"calls\"\nshort_bias = 7\n\
                  reclaim = true\npredict = \"off\"\nmax_prompt = 127\nrpm = 131\nrpd = 137\ntpm = 139\ntpd = 149\nitpm = 151\notpm = 157\n\
                  burst = 5\ncounting = \"larger\"\nheaders = \"lower\"\nkv_tokens = 163\nkv_headroom = 0.167\ntokenizer = \"vllm\"\n\
                  limit = { start = 3, min = 2, awaiting = 191, decrease = 0.77, detector = { quantile = 0.93, window = 193, tick = 5.5, \
                  band = 0.33, hold = 197 } }\n\
                  ask_usage = true\nfallback = \"spare\"\ntenants.acme = { floor = 0.173 }\n";
    let others = "[targets.spare]\nurl = \"http://h\"\nmodel = \"small\"\nkey_env = \"SPARE_KEY\"\nforward_headers = [\"x-tenant-id\", \"X-Team\"]\nbudget = \"shared\"\n\
                  [budgets.shared]\nrpm = 179\n[tools.search]\ncap = 11\nrps = 1.5\nlatency = 199\nlimit.decrease.step = 6\n[tools.shell]\ncap = 13\nrpm = 181\n";
    let transport = "connect = 79\npool_idle = 83\npool_idle_timeout = 89\nhttp2_streams = 97\n\
                     http2_prior_knowledge = true\nproxy_from_env = false\n";
    let output = check(&format!("[targets.openai]\n{target}{others}[transport]\n{transport}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = settings(&output);
    for part in [
        "cap 3 slots",
        "queue 17 calls per tenant",
        "wait 19s",
        "deadline 2m 3s",
        "first_token 29s",
        "idle 31s",
        "stall 37s",
        "ttft 41s",
        "tpot 1s 250ms",
        "aging 43s per lane",
        "retry attempts 47, base 53s, max 59s, ratio 0.61 retries per call, reserve 67 retries",
        "default_tenant weight 71, cap 2 slots, queue 73 calls, floor 0 of the slots, tpm 101 tokens per minute, \
         shed false",
        "connect 1m 19s",
        "pool_idle 83 connections per host",
        "pool_idle_timeout 1m 29s",
        "http2_streams 97 streams per connection",
        "http2_prior_knowledge true",
        "proxy_from_env false",
        "backlog 103 calls of all tenants",
        "lanes.batch floor 0.107 of the slots, queue 109 calls, wait 1m 53s, ttft 1m 59s",
        "cost calls",
        "short_bias 7s per 1000 tokens",
        "reclaim true",
        "max_prompt 127 tokens",
        "tokenizer vllm",
        "predict off",
        "rpm 131 requests per minute\nrpd 137 requests per day\ntpm 139 tokens per minute\n\
         tpd 149 tokens per day\nitpm 151 input tokens per minute\notpm 157 output tokens per minute\nburst 5s\n\
         counting larger\nheaders lower\n",
        "kv_tokens 163 tokens\nkv_headroom 0.167\n",
        "ask_usage true",
        "fallback spare",
        "model small\nkey_env SPARE_KEY\nforward_headers x-tenant-id, x-team\n",
        "tenants.acme weight 1, cap the target's, queue the target's, floor 0.173 of the slots",
        "budget shared\nfallback",
        "budget shared\nrpm 179 requests per minute",
        "tool search\ncap 11 slots",
        "rps 1.5 calls per second",
        "limit adaptive, objective: first token within 22s of sending the request\nlimit.start 3 slots\n\
         limit.min 2 slots\nlimit.awaiting 191 calls\nlimit.decrease to 0.77 of the limit\n\
         limit.detector percentile: quantile 0.93, window 3m 13s, tick 5s 500ms, band 0.33, hold 197 ticks\n",
        "limit adaptive, objective: calls within 3m 19s\nlimit.start 8 slots\nlimit.min 1 slots\n\
         limit.decrease by 6 slots\nlimit.detector exceedance\nlatency 3m 19s\n",
        "tool shell\ncap 13 slots\nlimit fixed\n",
        "rpm 181 calls per minute",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn check_prints_which_caps_processes_share() {
    let limits = "[targets]\nopenai = 12\nanthropic = { ttft = 2 }\n\
                  pool = { pool = { replicas = [\"http://localhost:1\"] } }\n\
                  full = { pool = { replicas = [\"http://localhost:2\"] }, on_full = \"refuse\" }\n\
                  [tools]\ndb = 8\nsearch = { cap = 4, latency = 1 }\n";
    let output = check(&format!("share = {{ store = \"local\", name = \"web\", strict = true }}\n{limits}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shared = "target openai the processes share the cap of 12 slots and the rates that the provider announces\n\
                 target anthropic the processes share one adaptive limit of at most 256 slots and the rates that the provider announces\n\
                 target pool the processes share the rates that the provider announces, and exchange which replica each call is sent to; the limits of a pool are those of each process\n\
                 target full the processes exchange which replica each call is sent to; the limits of a pool are those of each process\n\
                 tool db the processes share the cap of 8 slots\n\
                 tool search the processes share one adaptive limit of at most 4 slots\n";
    let text = settings(&output);
    let block = format!("share\nstore local\nname web\nstrict true\n{shared}");
    assert!(text.contains(&block), "{text}");
    let redis = settings(&check(&format!("share = \"redis://localhost\"\n{limits}")));
    assert!(redis.contains("store redis://localhost\n") && redis.contains(shared), "{redis}");

    let text = settings(&check(limits));
    assert!(!text.contains("share\nstore"), "{text}");
}

#[test]
fn check_prints_the_mode_that_the_environment_sets() {
    for (given, expected) in
        [("observe", "mode observe (TIDEGATE; the file says enforce)\n"), ("on", "mode enforce\n")]
    {
        let mut command = Command::new(TIDEGATE);
        command.args(["check", "-"]).env("TIDEGATE", given).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(String::from_utf8(output.stdout.clone()).unwrap().starts_with(expected), "{output:?}");
    }
}

#[test]
fn check_rejects_a_share_of_a_target_that_refuses_calls() {
    let output = check("share = \"local\"\n[targets.llm]\ncap = 4\non_full = \"refuse\"\n");
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    let expected = ":4: targets.llm.on_full: \"refuse\" cannot be combined with \"share\"";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn check_prints_the_proxies_of_the_environment_without_credentials() {
    let file = std::env::temp_dir().join(format!("tidegate-proxies-{}.toml", std::process::id()));
    std::fs::write(&file, "").unwrap();
    for (variable, value, expected) in [
        (
            "https_proxy",
            "user:sesame@proxy:3128",
            "in this environment: http://proxy:3128 for https URLs; 2 exceptions",
        ),
        ("https_proxy", "", "in this environment: none"),
        ("https_proxy", "gopher://user:sesame@proxy", "https_proxy is not the URL of a supported proxy"),
        ("no_proxy", "*", "in this environment: none"),
    ] {
        let mut command = Command::new(TIDEGATE);
        command.arg("check").arg(&file).env_clear();
        command.env("HTTPS_PROXY", "http://127.0.0.1:2").env("NO_PROXY", "localhost,10.0.0.0/8");
        let output = command.env(variable, value).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(expected) && !text.contains("sesame"), "{text}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn check_prints_the_objective_of_an_adaptive_limit() {
    let usual = "objective: three times the latency of calls of the same kind at low load\n";
    for (target, expected) in [
        ("tpot = 0.05", usual),
        ("tpot = 0.05", "tpot 50ms\n"),
        ("ttft = 2", "objective: first token within 1s of sending the request\n"),
        ("ttft = 2\nwait = 0.5", "first token within 1s 500ms of sending"),
        ("ttft = 2\nwait = 1.5", "first token within 1s of sending"),
        ("ttft = 2\non_full = \"refuse\"", "first token within 2s of sending"),
        ("lanes.batch.ttft = 4", "first token within 2s of sending"),
        ("limit.decrease = \"served\"", "limit.decrease to the concurrency that is served\n"),
        (
            "limit.decrease = 0.9",
            "limit.awaiting limited adaptively if decrease is \"served\", otherwise not limited\n\
             limit.decrease to 0.9 of the limit\n",
        ),
        ("limit.decrease.step = 4", "limit.decrease by 4 slots\n"),
        (
            "limit = { decrease = 0.9, awaiting = 3 }",
            "limit.awaiting 3 calls\nlimit.decrease to 0.9 of the limit\n",
        ),
        // The example in the README.
        (
            "limit = { start = 16, min = 4, decrease = 0.9, detector = \"percentile\" }",
            "limit.start 16 slots\nlimit.min 4 slots\nlimit.awaiting limited adaptively",
        ),
    ] {
        let output = check(&format!("[targets.openai]\n{target}\n"));
        let text = settings(&output);
        assert!(output.status.success() && text.contains(expected), "{target}: {expected}: {text}");
    }
}

#[test]
fn check_prints_that_the_callers_key_stays_with_its_host() {
    let toml =
        "[targets.openai]\nfallback = \"spare\"\n[targets.spare]\nurl = \"http://h\"\nmodel = \"small\"\n";
    let text = settings(&check(toml));
    let expected = "model small\nkey_env none: the caller's credential, on the same host only\n";
    assert!(text.contains(expected), "{text}");
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
fn check_rejects_a_url_that_no_call_is_sent_to() {
    let toml = "[targets]\nopenai = { cap = 1 }\n";
    let output = check_with(toml, &["--url", "api.openai.com"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("an example is https://"), "{output:?}");
    let output = check_with(toml, &["--url", "https://api.openai.com/v1/%2e%2e/admin"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("segment"));
}

#[test]
fn check_names_what_is_wrong_and_what_was_meant() {
    let output = check("[targets.openai]\ncpa = 12\n");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("cpa") && text.contains("cap"), "{text}");
}

#[test]
fn check_prints_every_setting_of_a_pool() {
    let toml = "[targets.llama]\nttft = 4\n[targets.llama.pool]\nreplicas = [\"http://10.0.0.1:8000/v1\", { url = \"http://10.0.0.2:8000\", weight = 2, \
                models = [\"a\", \"b\"], kv_tokens = 163 }]\ncap = 31\nhealth = \"/ready\"\npoll = \"310ms\"\ndown_after = 3\ncut_after = 7\nslow_start = \"none\"\n\
                session = \"x-chat\"\nhedge = 13\nkey_env = \"VLLM_API_KEY\"\n\
                [targets.dns]\ncap = 17\n[targets.dns.pool]\ndns = \"http://vllm:8000\"\ndns_every = 19\naffinity = false\nsession = \"none\"\ncap = 23\n\
                [targets.file.pool]\nfile = \"r.toml\"\nfile_every = 29\npoll = \"none\"\nhealth = \"none\"\n[targets.told.pool]\n";
    let output = check(toml);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = settings(&output);
    for part in [
        "target llama: every model at http://llama, https://llama, http://10.0.0.1:8000, http://10.0.0.2:8000\n\
         cap 65,536 slots\nlimit adaptive, objective: first token within 2s of sending the request\n",
        "pool.replicas[0] http://10.0.0.1:8000, weight 1\n\
         pool.replicas[1] http://10.0.0.2:8000, weight 2, models a, b, kv_tokens 163\n\
         pool.cap 31 slots per replica\npool.health /ready\npool.poll 310ms\npool.down_after 3s\n\
         pool.cut_after 7s\npool.slow_start full share at once\npool.session x-chat\npool.affinity true\n\
         pool.hedge 13s\npool.key_env VLLM_API_KEY\n",
        "cap 17 slots\nlimit fixed\n",
        "pool.dns http://vllm:8000\npool.dns_every 19s\npool.cap 23 slots per replica\n",
        "pool.session none\npool.affinity false\npool.hedge none\npool.key_env none\n",
        "pool.file r.toml\npool.file_every 29s\n",
        "pool.health not requested\npool.poll not requested\n",
        "pool.replicas set by the program (set_replicas)\n",
        "pool.slow_start 10s\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Returns the address of a server that answers every request with 401, as vLLM does without its
/// key.
fn denying_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream
                .write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    address
}

#[test]
fn check_asks_replicas_for_their_health_and_models() {
    let mut sim = Sim::start(&["--json", "--model", "small", "--model", "large"]);
    let ready: serde_json::Value = serde_json::from_str(&sim.line()).unwrap();
    let served = ready["address"].as_str().unwrap();
    let pool = |addresses: &[&str]| {
        let urls: Vec<_> = addresses.iter().map(|address| format!("\"http://{address}\"")).collect();
        check_with(&format!("[targets.llama]\npool.replicas = [{}]", urls.join(", ")), &["--replicas"])
    };
    let good = pool(&[served]);
    assert_eq!(good.status.code(), Some(0), "{good:?}");
    let listed = format!("  http://{served}\n    healthy\n    models: small, large\n");
    assert_eq!(String::from_utf8(good.stdout).unwrap(), format!("target llama\n{listed}"));

    let denying = denying_server();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let bad = pool(&[served, &denying, &closed]);
    assert_eq!(bad.status.code(), Some(1), "{bad:?}");
    let expected = format!(
        "target llama\n{listed}  http://{denying}\n    healthy\n    problem: /v1/models is answered with 401: \
         set the pool's `key_env` to an environment variable with the server's API key\n  http://{closed}\n    \
         problem: connections are refused\n"
    );
    assert_eq!(String::from_utf8(bad.stdout).unwrap(), expected);
    assert!(String::from_utf8(bad.stderr).unwrap().contains("2 problems were found"));

    let toml = format!(
        "[targets.llama]\npool.replicas = [\"http://{served}\"]\nfallback = \"spare\"\n\
         [targets.spare]\nmodel = \"m\"\nurl = \"http://spare/v1\"\nkey_env = \"TIDEGATE_NO_SUCH_KEY\"\n"
    );
    let other_key = check_with(&toml, &["--replicas"]);
    assert_eq!(other_key.status.code(), Some(0), "{other_key:?}");

    let none = check_with("[targets.openai]\ncap = 1", &["--replicas"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}
