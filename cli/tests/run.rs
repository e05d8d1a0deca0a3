//! Tests of `tidegate run` as a user runs it, with `tidegate sim` as the provider.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// A running `tidegate sim` and a temporary directory. Dropping it kills the process and removes
/// the directory.
struct Fixture {
    sim: Child,
    url: String,
    folder: PathBuf,
}

impl Fixture {
    fn new(name: &str, options: &[&str]) -> Self {
        let mut command = Command::new(TIDEGATE);
        command.args(["sim", "--listen", "127.0.0.1:0", "--json", "--time-scale", "20"]).args(options);
        let mut sim = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(sim.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let folder = std::env::temp_dir().join(format!("tidegate-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self { sim, url: ready["base_url"].as_str().unwrap().to_owned(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn command(&self, input: &Path, output: &Path, options: &[&str]) -> Command {
        let mut command = Command::new(TIDEGATE);
        command.arg("run").arg(input).arg("-o").arg(output).args(["--url", &self.url]).args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, input: &Path, output: &Path, options: &[&str]) -> Output {
        self.command(input, output, options).output().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.sim.kill();
        let _ = self.sim.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn lines(count: u32) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        writeln!(text, r#"{{"custom_id":"c{n}","method":"POST","url":"/v1/chat/completions","body":{{"model":"sim","max_tokens":8,"messages":[{{"role":"user","content":"{n}"}}]}}}}"#).unwrap();
        text
    })
}

/// Returns the number of records of each `custom_id` in an output.
fn ids(text: &str) -> BTreeMap<String, u32> {
    let mut ids = BTreeMap::new();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        *ids.entry(record["custom_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    ids
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn second_run_of_an_answered_file_sends_nothing() {
    let fixture = Fixture::new("whole", &[]);
    let (input, output) = (fixture.write("in.jsonl", &lines(40)), fixture.path("out.jsonl"));
    let ran = fixture.run(&input, &output, &["--json"]);
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    let summary: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        (&summary["good"], &summary["failed"], &summary["spend"]["output"]),
        (&40.into(), &0.into(), &320.into())
    );
    let text = std::fs::read_to_string(&output).unwrap();
    assert!(ids(&text).len() == 40 && ids(&text).values().all(|count| *count == 1));
    let again = fixture.run(&input, &output, &[]);
    assert!(
        again.status.success() && stderr(&again).contains("resuming after 40 answered"),
        "{}",
        stderr(&again)
    );
    assert_eq!(std::fs::read_to_string(&output).unwrap(), text);
    fixture.write("in.jsonl", &lines(41).replace("c3\"", "d3\""));
    let changed = fixture.run(&input, &output, &[]);
    assert_eq!(changed.status.code(), Some(1));
    assert!(
        stderr(&changed).contains("line 4 ") && stderr(&changed).contains("--overwrite"),
        "{}",
        stderr(&changed)
    );
}

#[test]
fn failed_lines_go_to_the_errors_file_and_can_be_retried() {
    let fixture = Fixture::new("apart", &[]);
    let text = format!(
        "{}nonsense\n{}",
        lines(30),
        lines(31).replace("\"sim\"", "\"absent\"").lines().last().unwrap()
    );
    let (input, output, errors) =
        (fixture.write("in.jsonl", &text), fixture.path("out.jsonl"), fixture.path("errors.jsonl"));
    let apart = ["--errors", errors.to_str().unwrap()];
    let ran = fixture.run(&input, &output, &apart);
    assert_eq!(ran.status.code(), Some(4), "{}", stderr(&ran));
    assert_eq!(ids(&std::fs::read_to_string(&output).unwrap()).len(), 30);
    let failed: Vec<_> = ids(&std::fs::read_to_string(&errors).unwrap()).into_keys().collect();
    assert_eq!(failed, ["c30", "line-31"]);
    let more = fixture.run(
        &input,
        &output,
        &["--errors", errors.to_str().unwrap(), "--retry-failed", "--model", "sim"],
    );
    assert_eq!(more.status.code(), Some(4), "the invalid line fails again: {}", stderr(&more));
    assert_eq!(ids(&std::fs::read_to_string(&output).unwrap()).len(), 31);
    assert_eq!(ids(&std::fs::read_to_string(&errors).unwrap()).len(), 1);
}

#[test]
fn corrected_line_is_sent_again_with_retry_failed() {
    let fixture = Fixture::new("corrected", &[]);
    let input = fixture.write("in.jsonl", &format!("{}nonsense\n", lines(3)));
    let (output, errors) = (fixture.path("out.jsonl"), fixture.path("errors.jsonl"));
    let apart = ["--errors", errors.to_str().unwrap()];
    let retry = [apart[0], apart[1], "--retry-failed"];
    assert_eq!(fixture.run(&input, &output, &apart).status.code(), Some(4));
    let failed = std::fs::read_to_string(&errors).unwrap();

    // A run that does not accept the input or its options keeps the failures.
    let other = fixture.write("other.jsonl", &lines(5).replace("c0", "d0"));
    let changed = fixture.run(&other, &output, &retry);
    assert_eq!(changed.status.code(), Some(1), "{}", stderr(&changed));
    assert!(stderr(&changed).contains("line 1 of the input has changed"), "{}", stderr(&changed));
    let limited = fixture.run(&input, &output, &[&retry[..], &["--limit", "2"]].concat());
    assert_eq!(limited.status.code(), Some(2), "{}", stderr(&limited));
    assert!(stderr(&limited).contains("--limit"), "{}", stderr(&limited));
    assert_eq!(std::fs::read_to_string(&errors).unwrap(), failed);

    fixture.write("in.jsonl", &lines(4));
    let refused = fixture.run(&input, &output, &apart);
    let text = stderr(&refused);
    assert!(text.contains("line 4 of the input has changed since it failed; pass --retry-failed"), "{text}");
    let ran = fixture.run(&input, &output, &retry);
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    assert_eq!(ids(&std::fs::read_to_string(&output).unwrap()).len(), 4);
    assert_eq!(std::fs::read_to_string(&errors).unwrap(), "");
}

#[test]
fn overwrite_keeps_the_old_answers_if_the_input_is_damaged() {
    let fixture = Fixture::new("damaged", &[]);
    let input = fixture.write("in.jsonl.gz", "not compressed");
    let output = fixture.write("out.jsonl", "earlier answers");
    let ran = fixture.run(&input, &output, &["--overwrite"]);
    assert_eq!(ran.status.code(), Some(1), "{}", stderr(&ran));
    assert!(stderr(&ran).contains("cannot read the input"), "{}", stderr(&ran));
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "earlier answers");
}

#[test]
fn run_that_gives_up_prints_its_summary() {
    let fixture = Fixture::new("gives-up", &[]);
    // More lines than are read before the run gives up.
    let input = fixture.write("in.jsonl", &lines(5_000).replace("\"sim\"", "\"absent\""));
    let ran = fixture.run(&input, &fixture.path("out.jsonl"), &["--json"]);
    assert_eq!(ran.status.code(), Some(1), "{}", stderr(&ran));
    let summary: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(summary["read"].as_u64().unwrap() >= 20 && summary["spend"].is_object(), "{summary}");
    assert_eq!((&summary["good"], &summary["ended"]), (&0.into(), &Value::Null));
}

#[test]
fn resume_of_an_output_with_failed_lines_exits_with_4() {
    let fixture = Fixture::new("failed-before", &[]);
    let input = fixture.write("in.jsonl", &format!("nonsense\n{}", lines(3)));
    let (output, errors) = (fixture.path("out.jsonl"), fixture.path("errors.jsonl"));
    let first = fixture.run(&input, &output, &["--limit", "2"]);
    assert_eq!(first.status.code(), Some(4), "{}", stderr(&first));
    let apart = ["--errors", errors.to_str().unwrap()];
    for options in [&[][..], &[], &apart] {
        let more = fixture.run(&input, &output, options);
        assert_eq!(more.status.code(), Some(4), "{}", stderr(&more));
        let text = stderr(&more);
        assert!(text.contains("1 lines failed, 1 of them in previous runs; see "), "{text}");
        assert!(text.contains(output.to_str().unwrap()), "{text}");
    }
    assert_eq!(ids(&std::fs::read_to_string(&output).unwrap()).len(), 4);

    // A line of the errors file that another run without --errors has answered does not count
    // twice.
    let (twice, errors) = (fixture.path("twice.jsonl"), fixture.path("twice-errors.jsonl"));
    let twice_apart = ["--errors", errors.to_str().unwrap()];
    for options in [&twice_apart[..], &[], &twice_apart] {
        let ran = fixture.run(&input, &twice, options);
        assert_eq!(ran.status.code(), Some(4), "{}", stderr(&ran));
        assert!(stderr(&ran).contains("1 lines failed"), "{}", stderr(&ran));
    }

    // A line that is retried and succeeds has not failed any more.
    let absent = lines(2).replacen("\"sim\"", "\"absent\"", 1);
    let (input, output) = (fixture.write("absent.jsonl", &absent), fixture.path("retried.jsonl"));
    assert_eq!(fixture.run(&input, &output, &apart).status.code(), Some(4));
    assert_eq!(fixture.run(&input, &output, &apart).status.code(), Some(4));
    let retry = [apart[0], apart[1], "--retry-failed", "--model", "sim"];
    let retried = fixture.run(&input, &output, &retry);
    assert_eq!(retried.status.code(), Some(0), "{}", stderr(&retried));
}

#[test]
fn final_line_states_the_last_failure_and_that_failed_lines_are_not_sent_again() {
    fn states_reason(text: &str) -> bool {
        text.split_once("; last failure: ").is_some_and(|(_, reason)| reason.contains("absent"))
    }

    let fixture = Fixture::new("reason", &[]);
    let absent = lines(2).replacen("\"sim\"", "\"absent\"", 1);
    let (input, output) = (fixture.write("in.jsonl", &absent), fixture.path("out.jsonl"));
    let advice = "; failed lines in the output are not sent again: use --overwrite, or --errors FILE from the first run on";
    let first = fixture.run(&input, &output, &["--json"]);
    assert_eq!(first.status.code(), Some(4), "{}", stderr(&first));
    let text = stderr(&first);
    assert!(text.contains(&format!("1 lines failed; see {}{advice}", output.display())), "{text}");
    assert!(states_reason(&text), "{text}");
    let summary: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert!(summary["last_failure"].as_str().unwrap().contains("absent"), "{summary}");

    let second = fixture.run(&input, &output, &[]);
    let text = stderr(&second);
    assert!(text.contains("0 answered, 0 failed, 2 skipped as already in the output; "), "{text}");
    assert!(text.contains(advice) && !text.contains("last failure"), "{text}");

    let errors = fixture.path("errors.jsonl");
    let apart = fixture.run(&input, &fixture.path("apart.jsonl"), &["--errors", errors.to_str().unwrap()]);
    let text = stderr(&apart);
    assert!(states_reason(&text) && !text.contains("not sent again"), "{text}");
}

#[cfg(unix)]
#[test]
fn output_that_is_the_input_under_another_name_is_rejected() {
    use std::os::unix::fs::symlink;

    let fixture = Fixture::new("same", &[]);
    let (input, output) = (fixture.write("in.jsonl", &lines(2)), fixture.path("out.jsonl"));
    let (hard, soft) = (fixture.path("hard.jsonl"), fixture.path("soft.jsonl"));
    std::fs::hard_link(&input, &hard).unwrap();
    symlink(&hard, &soft).unwrap();
    let errors = ["--errors", hard.to_str().unwrap()];
    let rejected = |ran: &Output, expected: &str| {
        assert_eq!(ran.status.code(), Some(2), "{}", stderr(ran));
        assert!(stderr(ran).contains(expected), "{}", stderr(ran));
        assert_eq!(std::fs::read_to_string(&input).unwrap(), lines(2));
    };
    let same = "is the same file as the input; write to another file";
    for name in [&input, &hard, &soft] {
        rejected(&fixture.run(&input, name, &["--overwrite"]), same);
        rejected(&fixture.run(&input, name, &[]), same);
    }
    rejected(&fixture.run(&input, &output, &errors), same);
    let append = || std::fs::OpenOptions::new().append(true).open(&input).unwrap();
    for stdout in ["-", "/dev/stdout"] {
        let mut command = fixture.command(&hard, Path::new(stdout), &[]);
        rejected(&command.stdout(append()).output().unwrap(), same);
    }
    let mut command = fixture.command(Path::new("-"), &hard, &["--overwrite"]);
    rejected(&command.stdin(std::fs::File::open(&input).unwrap()).output().unwrap(), same);

    let (out, link) = (fixture.write("out.jsonl", ""), fixture.path("link.jsonl"));
    std::fs::hard_link(&out, &link).unwrap();
    rejected(&fixture.run(&input, &out, &["--errors", link.to_str().unwrap()]), "--errors is the output");
}

#[cfg(target_os = "linux")]
#[test]
fn writes_to_pipes_and_devices() {
    let fixture = Fixture::new("devices", &[]);
    let input = fixture.write("in.jsonl", &format!("{}nonsense\n", lines(3)));
    let (null, fifo) = (Path::new("/dev/null"), fixture.path("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());

    // The output is a pipe by its device name, and the errors file is a named pipe.
    let child = fixture
        .command(&input, Path::new("/dev/stdout"), &["--errors", fifo.to_str().unwrap()])
        .spawn()
        .unwrap();
    let failed = std::fs::read_to_string(&fifo).unwrap();
    let ran = child.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(4), "{}", stderr(&ran));
    assert_eq!(ids(&failed).into_keys().collect::<Vec<_>>(), ["line-4"]);
    assert_eq!(ids(&String::from_utf8(ran.stdout).unwrap()).len(), 3);

    let errors = ["--errors", "/dev/null"];
    for more in [&[][..], &["--overwrite"]] {
        let ran = fixture.run(&input, null, &[&errors, more].concat());
        assert!(ran.status.code() == Some(4) && stderr(&ran).contains("3 answered"), "{}", stderr(&ran));
    }
    let retried =
        fixture.run(&input, &fixture.path("out.jsonl"), &[&errors[..], &["--retry-failed"]].concat());
    assert_eq!(retried.status.code(), Some(2));
    assert!(stderr(&retried).contains("/dev/null: is not a regular file"), "{}", stderr(&retried));
    let mixed = fixture.run(&input, Path::new("/dev/stdout"), &["--json"]);
    assert_eq!(mixed.status.code(), Some(2));
    assert!(stderr(&mixed).contains("both write to standard output"), "{}", stderr(&mixed));

    let full = ["--errors", "/dev/full"];
    for (output, options) in
        [("/dev/full", &[][..]), ("/dev/full", &["--overwrite"]), ("/dev/null", &full), ("/dev/full", &full)]
    {
        let ran = fixture.run(&input, Path::new(output), options);
        assert_eq!(ran.status.code(), Some(1), "{output} {options:?}: {}", stderr(&ran));
        let text = stderr(&ran);
        assert!(text.contains("cannot write the output: /dev/full: No space left"), "{text}");
        assert!(!text.contains("panicked"), "{text}");
    }
}

#[test]
fn reads_standard_input_and_writes_standard_output() {
    let fixture = Fixture::new("pipes", &[]);
    let mut child =
        fixture.command(Path::new("-"), Path::new("-"), &["--quiet", "--ordered"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines(20).as_bytes()).unwrap();
    let ran = child.wait_with_output().unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{}", stderr(&ran));
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(
        text.lines().zip(0..).all(|(line, n)| line.contains(&format!("\"custom_id\":\"c{n}\"")))
            && ids(&text).len() == 20
    );
}

#[cfg(unix)]
#[test]
fn reads_a_named_pipe_once() {
    let fixture = Fixture::new("fifo", &[]);
    let input = fixture.path("in.jsonl");
    for (options, expected) in [(&[][..], "20 answered"), (&["--dry-run"], "20 lines, 0 of them invalid")] {
        assert!(Command::new("mkfifo").arg(&input).status().unwrap().success());
        let run = fixture.command(&input, Path::new("-"), options).spawn().unwrap();
        std::fs::write(&input, lines(20)).unwrap();
        // Opening the pipe again would wait for another writer.
        std::fs::remove_file(&input).unwrap();
        let ran = run.wait_with_output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
        let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), stderr(&ran));
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn reads_and_writes_compressed_files() {
    let fixture = Fixture::new("compressed", &[]);
    for extension in ["gz", "zst"] {
        let format =
            tidegate_batch::Compression::from_path(Path::new(extension).with_extension(extension).as_path());
        let (input, output) =
            (fixture.write("in.jsonl", &lines(20)), fixture.path(&format!("out.jsonl.{extension}")));
        assert!(fixture.run(&input, &output, &[]).status.success());
        let mut text = String::new();
        let file = BufReader::new(std::fs::File::open(&output).unwrap());
        format.reader(file).read_to_string(&mut text).unwrap();
        assert_eq!(ids(&text).len(), 20);
        // The compressed output can be read back, although its lines are not requests.
        let dry = Command::new(TIDEGATE)
            .arg("run")
            .arg(&output)
            .args(["-o", "x", "--url", &fixture.url, "--dry-run"])
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&dry.stdout).starts_with("20 lines, 20 of them invalid"));
    }
}

#[cfg(unix)]
#[test]
fn repeated_kills_neither_lose_nor_duplicate_lines() {
    let fixture = Fixture::new("killed", &[]);
    let input = fixture.write("in.jsonl", &lines(1_500));
    for name in ["out.jsonl", "out.jsonl.gz"] {
        let output = fixture.path(name);
        let mut length = 0;
        for _ in 0..6 {
            let mut child = fixture.command(&input, &output, &["--quiet"]).spawn().unwrap();
            // The process is killed as soon as the output grows.
            while child.try_wait().unwrap().is_none() {
                let now = std::fs::metadata(&output).map_or(0, |file| file.len());
                if now > length {
                    length = now;
                    break;
                }
                std::thread::yield_now();
            }
            let _ = child.kill();
            child.wait().unwrap();
        }
        let ran = fixture.run(&input, &output, &[]);
        assert!(ran.status.success(), "{}", stderr(&ran));
        let mut text = String::new();
        let file = BufReader::new(std::fs::File::open(&output).unwrap());
        tidegate_batch::Compression::from_path(&output).reader(file).read_to_string(&mut text).unwrap();
        let ids = ids(&text);
        assert!(ids.len() == 1_500 && ids.values().all(|count| *count == 1), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn signal_ends_a_run_that_waits_for_a_reader_of_its_output() {
    let fixture = Fixture::new("unopened", &[]);
    let input = fixture.write("in.jsonl", &lines(3));
    let (output, fifo) = (fixture.path("out.jsonl"), fixture.path("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut child =
        fixture.command(&input, &output, &["--errors", fifo.to_str().unwrap(), "--json"]).spawn().unwrap();
    // The output is created just before the pipe is opened.
    while !output.exists() {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let is_ended = (0..100).any(|_| is_over(&mut child));
    let _ = child.kill();
    let ran = child.wait_with_output().unwrap();
    assert!(is_ended && ran.status.code() == Some(3), "{}", stderr(&ran));
    assert!(stderr(&ran).contains("stopped before anything was sent"), "{}", stderr(&ran));
    assert_eq!(serde_json::from_slice::<Value>(&ran.stdout).unwrap()["ended"], "stopped");
}

#[cfg(unix)]
#[test]
fn first_signal_lets_in_flight_calls_finish() {
    let fixture = Fixture::new("signal", &[]);
    let (input, output) = (fixture.write("in.jsonl", &lines(20_000)), fixture.path("out.jsonl"));
    let child = fixture.command(&input, &output, &["--cap", "4"]).spawn().unwrap();
    while std::fs::metadata(&output).map_or(0, |file| file.len()) == 0 {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = child.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(3), "{}", stderr(&ran));
    assert!(stderr(&ran).contains("same command again to resume"), "{}", stderr(&ran));
    // The calls in the queue are not in flight.
    let in_flight =
        (0..=4).any(|count| stderr(&ran).contains(&format!("waiting for {count} calls in flight")));
    assert!(in_flight, "{}", stderr(&ran));
    let answered = ids(&std::fs::read_to_string(&output).unwrap()).len();
    assert!(answered > 0 && answered < 20_000);
}

/// Reads a request from a connection up to the end of its header.
fn read_header(connection: &std::net::TcpStream) -> String {
    let lines = BufReader::new(connection).lines().map(Result::unwrap);
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(unix)]
#[test]
fn first_signal_is_reported_after_all_lines_were_read() {
    let fixture = Fixture::new("note", &[]);
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let input = fixture.write("in.jsonl", &lines(1));
    let mut command = Command::new(TIDEGATE);
    command.arg("run").arg(&input).arg("-o").arg(fixture.path("out.jsonl"));
    command.args(["--url", &format!("http://{}/v1", server.local_addr().unwrap()), "--cap", "1"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let answer = |mut connection: std::net::TcpStream| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
        write!(connection, "{head}content-length: 2\r\n\r\n{{}}").unwrap();
    };
    let (models, _) = server.accept().unwrap();
    assert!(read_header(&models).starts_with("GET /v1/models"));
    answer(models);
    let (call, _) = server.accept().unwrap();
    assert!(read_header(&call).starts_with("POST /v1/chat/completions"));
    // Time to find the end of the input, and to report the signal.
    let wait = || std::thread::sleep(std::time::Duration::from_millis(300));
    wait();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    wait();
    answer(call);
    let ran = child.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    assert!(stderr(&ran).contains("waiting for 1 calls in flight"), "{}", stderr(&ran));
}

#[test]
fn two_names_of_one_new_file_are_rejected() {
    let fixture = Fixture::new("names", &[]);
    let input = fixture.write("in.jsonl", &lines(1));
    std::fs::create_dir_all(fixture.path("folder")).unwrap();
    let output = fixture.path("new.jsonl");
    for errors in [fixture.path("./new.jsonl"), fixture.path("folder/../new.jsonl")] {
        let ran = fixture.run(&input, &output, &["--errors", errors.to_str().unwrap()]);
        assert_eq!(ran.status.code(), Some(2), "{}", stderr(&ran));
        assert!(stderr(&ran).contains("--errors is the output file"), "{}", stderr(&ran));
        assert!(!output.exists());
    }
}

#[test]
fn invalid_options_are_rejected_before_anything_is_sent() {
    let fixture = Fixture::new("wrong", &[]);
    let (input, output) = (fixture.write("in.jsonl", &lines(3)), fixture.path("out.jsonl"));
    let run = |options: &[&str]| {
        let mut command = Command::new(TIDEGATE);
        command.arg("run").arg(&input).arg("-o").arg(&output).args(options);
        command.env_remove("OPENAI_API_KEY").env("OTHER_KEY", "a secret\u{1}").output().unwrap()
    };
    let openai = ["--url", "https://api.openai.com/v1"];
    for (options, code, named) in [
        (&["--url", "http://127.0.0.1:1/v1"][..], 1, "127.0.0.1:1"),
        (&openai[..], 2, "OPENAI_API_KEY is not set"),
        (
            &[openai[0], openai[1], "--key-env", "OTHER_KEY"][..],
            2,
            "OTHER_KEY holds characters that an API key cannot have",
        ),
        (&["--url", "/v1"][..], 2, "not an absolute base URL"),
        (&["--url", "htps://me:a%20secret@h/v1"][..], 2, "not an absolute base URL"),
        (&["--url", "https://me:a%20secret@h/v1"][..], 2, "contains a user name"),
        (
            &["--url", "http://127.0.0.1:1/v1?key=a%20secret"][..],
            1,
            "http://127.0.0.1:1/v1 cannot be reached",
        ),
        (&["--url", &fixture.url, "--cap", "0"][..], 2, "--cap: expected a whole number from 1"),
        (&["--url", &fixture.url, "--timeout", "x"][..], 2, "examples are 90, 90s and 10m"),
        (&["--url", &fixture.url, "--timeout", "0"][..], 2, "must be longer than 0"),
        (&[][..], 2, "pass --url or --config"),
        (&["--url", &fixture.url, "--max-cost", "3"][..], 2, "--price-in"),
        (&["--url", &fixture.url, "--errors", output.to_str().unwrap()][..], 2, "--errors is the output"),
    ] {
        let ran = run(options);
        assert_eq!(ran.status.code(), Some(code), "{options:?}: {}", stderr(&ran));
        assert!(
            stderr(&ran).contains(named) && !stderr(&ran).replace("%20", " ").contains("a secret"),
            "{options:?}: {}",
            stderr(&ran)
        );
    }
    let same = fixture.run(&input, &input, &[]);
    assert!(same.status.code() == Some(2) && std::fs::read_to_string(&input).unwrap() == lines(3));
    let notes = fixture.write("notes.txt", "my notes\n");
    let foreign = fixture.run(&input, &notes, &[]);
    assert!(foreign.status.code() == Some(2) && std::fs::read_to_string(&notes).unwrap() == "my notes\n");
    let absent = fixture.write("absent.jsonl", &lines(50).replace("\"sim\"", "\"absent\""));
    let stopped = fixture.run(&absent, &fixture.path("none.jsonl"), &[]);
    assert_eq!(
        (stopped.status.code(), std::fs::read(fixture.path("none.jsonl")).unwrap().len()),
        (Some(1), 0)
    );
    assert!(
        stderr(&stopped).contains("20 lines in a row") && stderr(&stopped).contains("absent"),
        "{}",
        stderr(&stopped)
    );
}

#[test]
fn dry_run_reads_the_input_and_sends_nothing() {
    let fixture = Fixture::new("dry", &[]);
    let input = fixture.write("in.jsonl", &format!("{}{}", lines(10), lines(1)));
    let output = fixture.path("out.jsonl");
    let prices = ["--dry-run", "--price-in", "2.5", "--price-out", "10"];
    let units = ["--timeout", "90", "--max-tokens", "500k"];
    let ran = fixture.run(&input, &output, &[&prices[..], &units].concat());
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert_eq!(ran.status.code(), Some(4));
    for part in [
        "11 lines, 1 of them invalid",
        "duplicate_custom_id: 1",
        "line 11",
        "sim: 10 requests",
        "80 out",
        "cost",
        "1,024 tokens per answer plus its thinking limit",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!output.exists());

    // The lines that the output answers are not sent again.
    assert!(fixture.run(&input, &output, &["--limit", "4"]).status.success());
    let answered = std::fs::read_to_string(&output).unwrap();
    let again = fixture.run(&input, &output, &prices);
    let text = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(text.contains("4 of them are in the output") && text.contains("sim: 6 requests"), "{text}");
    let all = fixture.run(&input, &output, &[&prices[..], &["--overwrite"]].concat());
    assert!(String::from_utf8_lossy(&all.stdout).contains("sim: 10 requests"));
    assert_eq!(std::fs::read_to_string(&output).unwrap(), answered);
}

#[test]
fn variable_that_disables_gates_is_rejected() {
    let fixture = Fixture::new("mode", &[]);
    let (input, output) = (fixture.write("in.jsonl", &lines(3)), fixture.path("out.jsonl"));
    for mode in ["off", "observe"] {
        let ran = fixture.command(&input, &output, &["--cap", "2"]).env("TIDEGATE", mode).output().unwrap();
        assert_eq!(ran.status.code(), Some(2), "{}", stderr(&ran));
        assert!(stderr(&ran).contains("TIDEGATE or `mode` in the configuration"), "{}", stderr(&ran));
    }
}

#[test]
fn redirect_of_the_provider_is_reported_before_anything_is_sent() {
    let fixture = Fixture::new("redirect", &[]);
    let (input, output) = (fixture.write("in.jsonl", &lines(3)), fixture.path("out.jsonl"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4_096]).unwrap();
        let head = "HTTP/1.1 301 Moved Permanently\r\nlocation: https://me:pw@moved.example/v1/models?key=secret\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
    });
    std::fs::write(&output, "earlier answers").unwrap();
    let ran = Command::new(TIDEGATE)
        .arg("run")
        .arg(&input)
        .arg("-o")
        .arg(&output)
        .args(["--overwrite", "--url", &url])
        .output();
    server.join().unwrap();
    let ran = ran.unwrap();
    assert_eq!(ran.status.code(), Some(1), "{}", stderr(&ran));
    assert!(stderr(&ran).contains("redirects to https://moved.example/v1/models (301)"), "{}", stderr(&ran));
    assert_eq!(std::fs::read_to_string(&output).unwrap(), "earlier answers");
}

#[test]
fn run_whose_messages_nobody_reads_exits_with_0() {
    let fixture = Fixture::new("unread", &[]);
    let (input, output) = (fixture.write("in.jsonl", &lines(3)), fixture.path("out.jsonl"));
    for answered in [0, 3] {
        let mut child = fixture.command(&input, &output, &["--json"]).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(child.wait().unwrap().code(), Some(0), "{answered} lines were answered before");
    }
    assert_eq!(ids(&std::fs::read_to_string(&output).unwrap()).len(), 3);
}

/// Waits for 100 ms. Returns `true` if the process has then ended.
#[cfg(unix)]
fn is_over(child: &mut Child) -> bool {
    std::thread::sleep(std::time::Duration::from_millis(100));
    child.try_wait().unwrap().is_some()
}

#[cfg(unix)]
#[test]
fn signals_end_a_run_whose_answers_nobody_reads() {
    let fixture = Fixture::new("blocked", &[]);
    // Long records fill the pipe within the first second.
    let long_ids = lines(5_000).replace(":\"c", &format!(":\"{}", "c".repeat(500)));
    let input = fixture.write("in.jsonl", &long_ids);
    let mut child = fixture.command(&input, Path::new("-"), &["--quiet", "--cap", "64"]).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    for _ in 0..2 {
        assert!(!(0..30).any(|_| is_over(&mut child)), "the answers fill the pipe");
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    }
    let is_ended = (0..100).any(|_| is_over(&mut child));
    let _ = child.kill();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(is_ended && child.wait().unwrap().code() == Some(3), "{text}");
    assert!(text.contains("ended before all answers were written"), "{text}");
}
