//! `tidegate run`, as a user runs it, over real sockets.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// A running `tidegate sim`, and a folder; both gone with the test.
struct Scene {
    sim: Child,
    url: String,
    folder: PathBuf,
}

impl Scene {
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

impl Drop for Scene {
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

/// How often each `custom_id` stands there.
fn ids(text: &str) -> BTreeMap<String, u32> {
    let mut ids = BTreeMap::new();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        *ids.entry(record["custom_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    ids
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_file_is_answered_and_a_second_start_has_nothing_to_do() {
    let scene = Scene::new("whole", &[]);
    let (input, output) = (scene.write("in.jsonl", &lines(40)), scene.path("out.jsonl"));
    let ran = scene.run(&input, &output, &["--json"]);
    assert_eq!(ran.status.code(), Some(0), "{}", said(&ran));
    let told: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        (&told["good"], &told["failed"], &told["spend"]["output"]),
        (&40.into(), &0.into(), &320.into())
    );
    let text = std::fs::read_to_string(&output).unwrap();
    assert!(ids(&text).len() == 40 && ids(&text).values().all(|count| *count == 1));
    let again = scene.run(&input, &output, &[]);
    assert!(again.status.success() && said(&again).contains("40 lines are answered"), "{}", said(&again));
    assert_eq!(std::fs::read_to_string(&output).unwrap(), text);
    scene.write("in.jsonl", &lines(41).replace("c3\"", "d3\""));
    let changed = scene.run(&input, &output, &[]);
    assert_eq!(changed.status.code(), Some(1));
    assert!(
        said(&changed).contains("line 4 ") && said(&changed).contains("--overwrite"),
        "{}",
        said(&changed)
    );
}

#[test]
fn what_fails_is_kept_apart_and_can_be_asked_again() {
    let scene = Scene::new("apart", &[]);
    let text = format!(
        "{}nonsense\n{}",
        lines(30),
        lines(31).replace("\"sim\"", "\"absent\"").lines().last().unwrap()
    );
    let (input, output, errors) =
        (scene.write("in.jsonl", &text), scene.path("out.jsonl"), scene.path("errors.jsonl"));
    let apart = ["--errors", errors.to_str().unwrap()];
    let ran = scene.run(&input, &output, &apart);
    assert_eq!(ran.status.code(), Some(4), "{}", said(&ran));
    assert_eq!(ids(&std::fs::read_to_string(&output).unwrap()).len(), 30);
    let failed: Vec<_> = ids(&std::fs::read_to_string(&errors).unwrap()).into_keys().collect();
    assert_eq!(failed, ["c30", "line-31"]);
    let more = scene.run(
        &input,
        &output,
        &["--errors", errors.to_str().unwrap(), "--retry-failed", "--model", "sim"],
    );
    assert_eq!(more.status.code(), Some(4), "nonsense stays what it is: {}", said(&more));
    assert_eq!(ids(&std::fs::read_to_string(&output).unwrap()).len(), 31);
    assert_eq!(ids(&std::fs::read_to_string(&errors).unwrap()).len(), 1);
}

#[test]
fn standard_input_and_output() {
    let scene = Scene::new("pipes", &[]);
    let mut child = scene.command(Path::new("-"), Path::new("-"), &["--quiet", "--ordered"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines(20).as_bytes()).unwrap();
    let ran = child.wait_with_output().unwrap();
    assert!(ran.status.success() && ran.stderr.is_empty(), "{}", said(&ran));
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(
        text.lines().zip(0..).all(|(line, n)| line.contains(&format!("\"custom_id\":\"c{n}\"")))
            && ids(&text).len() == 20
    );
}

#[test]
fn compressed_in_and_out() {
    let scene = Scene::new("compressed", &[]);
    for extension in ["gz", "zst"] {
        let format = tidegate_batch::Format::of(Path::new(extension).with_extension(extension).as_path());
        let (input, output) =
            (scene.write("in.jsonl", &lines(20)), scene.path(&format!("out.jsonl.{extension}")));
        assert!(scene.run(&input, &output, &[]).status.success());
        let mut text = String::new();
        let file = BufReader::new(std::fs::File::open(&output).unwrap());
        format.reader(file).read_to_string(&mut text).unwrap();
        assert_eq!(ids(&text).len(), 20);
        // What was written is read as well: as bodies of nothing, but line by line.
        let dry = Command::new(TIDEGATE)
            .arg("run")
            .arg(&output)
            .args(["-o", "x", "--url", &scene.url, "--dry-run"])
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&dry.stdout).starts_with("20 lines, 20 of them no requests"));
    }
}

#[cfg(unix)]
#[test]
fn killed_again_and_again_no_line_is_lost_and_none_is_there_twice() {
    let scene = Scene::new("killed", &[]);
    let input = scene.write("in.jsonl", &lines(1_500));
    for name in ["out.jsonl", "out.jsonl.gz"] {
        let output = scene.path(name);
        let mut length = 0;
        for _ in 0..6 {
            let mut child = scene.command(&input, &output, &["--quiet"]).spawn().unwrap();
            // Killed as soon as it has written something more.
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
        let ran = scene.run(&input, &output, &[]);
        assert!(ran.status.success(), "{}", said(&ran));
        let mut text = String::new();
        let file = BufReader::new(std::fs::File::open(&output).unwrap());
        tidegate_batch::Format::of(&output).reader(file).read_to_string(&mut text).unwrap();
        let ids = ids(&text);
        assert!(ids.len() == 1_500 && ids.values().all(|count| *count == 1), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_lets_what_is_in_flight_end() {
    let scene = Scene::new("signal", &[]);
    let (input, output) = (scene.write("in.jsonl", &lines(20_000)), scene.path("out.jsonl"));
    let child = scene.command(&input, &output, &["--cap", "4"]).spawn().unwrap();
    while std::fs::metadata(&output).map_or(0, |file| file.len()) == 0 {
        std::thread::yield_now();
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ran = child.wait_with_output().unwrap();
    assert_eq!(ran.status.code(), Some(3), "{}", said(&ran));
    assert!(said(&ran).contains("goes on from here"), "{}", said(&ran));
    let answered = ids(&std::fs::read_to_string(&output).unwrap()).len();
    assert!(answered > 0 && answered < 20_000);
}

#[test]
fn what_cannot_work_is_told_before_anything_is_sent() {
    let scene = Scene::new("wrong", &[]);
    let (input, output) = (scene.write("in.jsonl", &lines(3)), scene.path("out.jsonl"));
    let run = |options: &[&str]| {
        let mut command = Command::new(TIDEGATE);
        command.arg("run").arg(&input).arg("-o").arg(&output).args(options);
        command.env_remove("OPENAI_API_KEY").env("OTHER_KEY", "a secret\u{1}").output().unwrap()
    };
    let openai = ["--url", "https://api.openai.com/v1"];
    for (options, code, named) in [
        (&["--url", "http://127.0.0.1:1/v1"][..], 1, "127.0.0.1:1"),
        (&openai[..], 2, "OPENAI_API_KEY is not set"),
        (&[openai[0], openai[1], "--key-env", "OTHER_KEY"][..], 2, "OTHER_KEY can be no key"),
        (&["--url", "/v1"][..], 2, "no base URL"),
        (&[][..], 2, "--url"),
        (&["--url", &scene.url, "--max-cost", "3"][..], 2, "--price-in"),
        (&["--url", &scene.url, "--errors", output.to_str().unwrap()][..], 2, "--errors is the output"),
    ] {
        let ran = run(options);
        assert_eq!(ran.status.code(), Some(code), "{options:?}: {}", said(&ran));
        assert!(
            said(&ran).contains(named) && !said(&ran).contains("a secret"),
            "{options:?}: {}",
            said(&ran)
        );
    }
    let same = scene.run(&input, &input, &[]);
    assert!(same.status.code() == Some(2) && std::fs::read_to_string(&input).unwrap() == lines(3));
    let notes = scene.write("notes.txt", "my notes\n");
    let foreign = scene.run(&input, &notes, &[]);
    assert!(foreign.status.code() == Some(2) && std::fs::read_to_string(&notes).unwrap() == "my notes\n");
    let absent = scene.write("absent.jsonl", &lines(50).replace("\"sim\"", "\"absent\""));
    let stopped = scene.run(&absent, &scene.path("none.jsonl"), &[]);
    assert_eq!((stopped.status.code(), std::fs::read(scene.path("none.jsonl")).unwrap().len()), (Some(1), 0));
    assert!(
        said(&stopped).contains("20 lines in a row") && said(&stopped).contains("absent"),
        "{}",
        said(&stopped)
    );
}

#[test]
fn a_dry_run_reads_everything_and_asks_nobody() {
    let scene = Scene::new("dry", &[]);
    let input = scene.write("in.jsonl", &format!("{}{}", lines(10), lines(1)));
    let output = scene.path("out.jsonl");
    let ran = scene.run(&input, &output, &["--dry-run", "--price-in", "2.5", "--price-out", "10"]);
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert_eq!(ran.status.code(), Some(4));
    for part in [
        "11 lines, 1 of them no requests",
        "duplicate_custom_id: 1",
        "line 11",
        "sim: 10 requests",
        "80 out",
        "in money",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!output.exists());
}
