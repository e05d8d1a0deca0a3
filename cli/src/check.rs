//! `tidegate check FILE`: whether a configuration can work, and what was understood.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use tidegate::Config;
use tidegate::config::{
    Matcher, Mode, OnFull, RetryConfig, TargetConfig, TenantConfig, ToolConfig, TransportConfig,
};

use crate::Failure;

/// Prints every problem of the file with its line, or, where there is none, each target, tenant and tool as it will act, every setting
/// that was left out with its default.
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The TOML file
    file: PathBuf,
    /// Say only which target takes requests to this URL
    #[arg(long)]
    url: Option<http::Uri>,
    /// The model that such a request names
    #[arg(long, requires = "url", value_name = "NAME")]
    model: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let config = Config::from_file(&args.file).map_err(|e| Failure::usage(e.to_string()))?;
    let matcher = Matcher::new(&config.targets).map_err(|e| Failure::usage(e.to_string()))?;
    match &args.url {
        Some(url) => {
            let found = matcher.find(url, args.model.as_deref()).and_then(|at| config.targets.get(at));
            println!("{}", found.map_or(OTHERS, |target| &target.name));
        }
        None => print!("{}", told(&config)),
    }
    Ok(())
}

const OTHERS: &str = "any other target (one for each origin, credential and model)";

// Each of these takes its settings apart by name, so that one that is added is not forgotten here.

fn told(config: &Config) -> String {
    let Config { mode, targets, default_target, tools, transport, .. } = config;
    let mode = match mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
        Mode::Off => "off",
    };
    let mut text = format!("mode {mode}\n");
    for target in targets {
        text += &told_target(&heading(target), target);
    }
    text += &told_target(OTHERS, default_target);
    for (name, tool) in tools {
        text += &told_tool(name, tool);
    }
    text + &told_transport(transport)
}

fn heading(target: &TargetConfig) -> String {
    let of = |words: &[String], all: &str| if words.is_empty() { all.to_owned() } else { words.join(", ") };
    let (urls, models) = (&target.matches.urls, &target.matches.models);
    format!("target {}: {} at {}", target.name, of(models, "every model"), of(urls, "every URL"))
}

fn told_target(heading: &str, target: &TargetConfig) -> String {
    let TargetConfig {
        name: _,
        matches: _,
        cap,
        queue,
        wait,
        on_full,
        deadline,
        first_token,
        idle,
        stall,
        ttft,
        aging,
        retry,
        default_tenant,
        tenants,
        ..
    } = target;
    let RetryConfig { attempts, base, max, ratio, reserve } = retry;
    let mut text = format!("{heading}\n");
    let waiting = waiting(*on_full, *queue, *wait);
    let _ = writeln!(text, "  cap {cap}; {waiting}; a step up each {}", time(*aging));
    let _ = writeln!(
        text,
        "  deadline {}; first token {}; idle {}; stall {}; TTFT objective {}",
        time(*deadline),
        bound(*first_token, "as the client's timeout"),
        bound(*idle, "as the client's timeout"),
        bound(*stall, "off"),
        bound(*ttft, "none"),
    );
    let _ = writeln!(
        text,
        "  {attempts} attempts, backing off {} to {}; {ratio} retries per call and {reserve} in reserve",
        time(*base),
        time(*max)
    );
    let _ = writeln!(text, "  any other tenant: {}", told_tenant(default_tenant));
    for (id, tenant) in tenants {
        let _ = writeln!(text, "  tenant {id}: {}", told_tenant(tenant));
    }
    text
}

fn told_tenant(tenant: &TenantConfig) -> String {
    let TenantConfig { weight, cap, queue, .. } = tenant;
    let own = |word: &str, most: Option<usize>| {
        most.map_or(format!("no {word} of its own"), |most| format!("{word} {most}"))
    };
    format!("weight {weight}, {}, {}", own("cap", *cap), own("queue", *queue))
}

fn told_tool(name: &str, tool: &ToolConfig) -> String {
    let ToolConfig { cap, queue, wait, on_full, .. } = tool;
    format!("tool {name}\n  cap {cap}; {}\n", waiting(*on_full, *queue, *wait))
}

fn told_transport(transport: &TransportConfig) -> String {
    let TransportConfig {
        connect,
        proxy_from_env,
        pool_idle,
        pool_idle_timeout,
        http2_streams,
        http2_prior_knowledge,
    } = transport;
    let proxies = if *proxy_from_env { "those of the environment" } else { "none" };
    let h2c = if *http2_prior_knowledge { "HTTP/2" } else { "HTTP/1.1" };
    format!(
        "transport\n  connecting {}; proxies: {proxies}; {pool_idle} idle connections a host, each kept {}\n  \
         {http2_streams} streams on an HTTP/2 connection; {h2c} without TLS\n",
        time(*connect),
        time(*pool_idle_timeout)
    )
}

fn waiting(on_full: OnFull, queue: usize, wait: Option<Duration>) -> String {
    match (on_full, wait) {
        (OnFull::Refuse, _) => "refuses what finds no slot".to_owned(),
        (OnFull::Wait, Some(wait)) => format!("{queue} a tenant may wait, {} each", time(wait)),
        (OnFull::Wait, None) => format!("{queue} a tenant may wait"),
    }
}

fn bound(span: Option<Duration>, none: &str) -> String {
    span.map_or_else(|| none.to_owned(), time)
}

fn time(span: Duration) -> String {
    humantime::format_duration(span).to_string()
}
