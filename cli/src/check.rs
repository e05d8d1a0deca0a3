//! `tidegate check FILE`: whether a configuration can work, and what was understood.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use tidegate::Config;
use tidegate::config::{Matcher, Mode, OnFull, TargetConfig, TenantConfig, ToolConfig};

use crate::Failure;

/// Prints every problem of the file with its line, or, where there is none, each target, tenant and tool as it will act.
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The TOML file
    file: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = Config::from_file(&args.file).map_err(|e| Failure::usage(e.to_string()))?;
    Matcher::new(&config.targets).map_err(|e| Failure::usage(e.to_string()))?;
    print!("{}", told(&config));
    Ok(())
}

fn told(config: &Config) -> String {
    let mode = match config.mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
        Mode::Off => "off",
    };
    let mut text = format!("mode {mode}\n");
    for target in &config.targets {
        text += &told_target(&heading(target), target);
    }
    text +=
        &told_target("any other target (one for each origin, credential and model)", &config.default_target);
    for (name, tool) in &config.tools {
        text += &told_tool(name, tool);
    }
    text
}

fn heading(target: &TargetConfig) -> String {
    let of = |words: &[String], all: &str| if words.is_empty() { all.to_owned() } else { words.join(", ") };
    let (urls, models) = (&target.matches.urls, &target.matches.models);
    format!("target {}: {} at {}", target.name, of(models, "every model"), of(urls, "every URL"))
}

fn told_target(heading: &str, target: &TargetConfig) -> String {
    let mut text = format!("{heading}\n");
    let waiting = waiting(target.on_full, target.queue, target.wait);
    let _ = writeln!(text, "  cap {}; {waiting}; deadline {}", target.cap, time(target.deadline));
    let retry = &target.retry;
    let _ = writeln!(
        text,
        "  {} attempts, {} retries per call and {} in reserve",
        retry.attempts, retry.ratio, retry.reserve
    );
    for (id, tenant) in &target.tenants {
        let _ = writeln!(text, "  tenant {id}: {}", told_tenant(tenant));
    }
    text
}

fn told_tenant(tenant: &TenantConfig) -> String {
    let cap = tenant.cap.map_or("no cap of its own".to_owned(), |cap| format!("cap {cap}"));
    format!("weight {}, {cap}", tenant.weight)
}

fn told_tool(name: &str, tool: &ToolConfig) -> String {
    format!("tool {name}\n  cap {}; {}\n", tool.cap, waiting(tool.on_full, tool.queue, tool.wait))
}

fn waiting(on_full: OnFull, queue: usize, wait: Option<Duration>) -> String {
    match (on_full, wait) {
        (OnFull::Refuse, _) => "refuses what finds no slot".to_owned(),
        (OnFull::Wait, Some(wait)) => format!("{queue} a tenant may wait, {} each", time(wait)),
        (OnFull::Wait, None) => format!("{queue} a tenant may wait"),
    }
}

fn time(span: Duration) -> String {
    humantime::format_duration(span).to_string()
}
