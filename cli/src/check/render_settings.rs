//! Renders a configuration as text: one line for each setting, with its key and its value.

use std::fmt::Write as _;

use tidegate::Config;
use tidegate::config::{HeaderPolicy, LimitConfig, Mode, RateConfig, TargetConfig, ToolConfig};
use tidegate::policy::schedule;
use tidegate::transport::ProxyRules;

/// Heading of the settings that apply to requests that no configured target matches.
pub(super) const OTHERS: &str = "any other target (one for each origin, credential and model)";

/// Text for the latency objective of an adaptive limit if the configuration sets no latency.
const DEFAULT_OBJECTIVE: &str = "three times the latency of calls of the same kind at low load";

/// Returns the settings of `config`. `from_env` is the mode that the environment sets, if it does.
pub(super) fn render(config: &Config, from_env: Option<Mode>) -> String {
    let Config { mode, targets, default_target, budgets, tools, share, transport } = config;
    let mut text = match from_env.filter(|given| given != mode) {
        Some(given) => format!("mode {} (TIDEGATE; the file says {})\n", given.as_str(), mode.as_str()),
        None => format!("mode {}\n", mode.as_str()),
    };
    for target in targets {
        block(&mut text, &heading(target), target_lines(target));
    }
    block(&mut text, OTHERS, target_lines(default_target));
    for (name, rates) in budgets {
        block(&mut text, &format!("budget {name}"), rates.settings());
    }
    for (name, tool) in tools {
        block(&mut text, &format!("tool {name}"), tool_lines(tool));
    }
    if share.is_on() {
        block(&mut text, "share", share_lines(config));
    }
    let mut lines = transport.settings();
    if transport.proxy_from_env {
        // A Python or Node process reads its environment by the rules of httpx or undici.
        let proxies = ProxyRules::from_process_env()
            .map_or_else(|error| error.message().to_owned(), |rules| format!("in this environment: {rules}"));
        lines.push(("proxies".to_owned(), proxies));
    }
    block(&mut text, "transport", lines);
    text
}

/// Appends a heading, and one line per setting with its key and value. Aligns the values.
fn block(text: &mut String, heading: &str, lines: Vec<(String, String)>) {
    let width = lines.iter().map(|(key, _)| key.chars().count()).max().unwrap_or_default();
    let _ = writeln!(text, "\n{heading}");
    for (key, value) in lines {
        let _ = writeln!(text, "  {key:width$}  {value}");
    }
}

fn heading(target: &TargetConfig) -> String {
    let list = |words: &[String], all: &str| if words.is_empty() { all.to_owned() } else { words.join(", ") };
    let matches = &target.matches;
    if matches.slots_only {
        return format!("target {}: no requests, only slots by name", target.name);
    }
    let (models, urls) = (list(&matches.models, "every model"), list(&matches.urls, "every URL"));
    format!("target {}: {models} at {urls}", target.name)
}

fn target_lines(target: &TargetConfig) -> Vec<(String, String)> {
    let upstream = schedule::SchedulerSettings::from(target).adaptive.and_then(|settings| settings.objective);
    let objective = upstream.map_or_else(
        || DEFAULT_OBJECTIVE.to_owned(),
        |upstream| {
            format!("first token within {} of sending the request", humantime::format_duration(upstream))
        },
    );
    let mut lines = with_objective(target.settings(), &target.limit, objective);
    let shared = match target.limit {
        LimitConfig::Adaptive(_) => "queue, slots and first-token capacity",
        LimitConfig::Fixed => "queue (also slots and first-token capacity if the limit is adaptive)",
    };
    lines.push(("tenants share".to_owned(), shared.to_owned()));
    lines
}

fn tool_lines(tool: &ToolConfig) -> Vec<(String, String)> {
    let latency = tool.latency.map(|latency| format!("calls within {}", humantime::format_duration(latency)));
    with_objective(tool.settings(), &tool.limit, latency.unwrap_or_else(|| DEFAULT_OBJECTIVE.to_owned()))
}

/// Returns the settings of shared limits, and for each target and tool what the processes share.
fn share_lines(config: &Config) -> Vec<(String, String)> {
    let targets = config.targets.iter().map(|target| {
        let rates = config.can_share_rates(target).then(|| shared_rates(config.rates_of(target))).flatten();
        let text = match &target.pool {
            Some(_) => shared_of_pool(rates),
            None => shared_limits(&target.limit, target.cap, rates),
        };
        (format!("target {}", target.name), text)
    });
    let tools = config.tools.iter().map(|(name, tool)| {
        let rates = (tool.rps.is_some() || tool.rpm.is_some()).then_some("the rates");
        (format!("tool {name}"), shared_limits(&tool.limit, tool.cap, rates))
    });
    config.share.settings().into_iter().chain(targets).chain(tools).collect()
}

/// Returns which rates of a target the processes share, or `None` if there can be none.
fn shared_rates(rates: &RateConfig) -> Option<&'static str> {
    match (rates.is_limited(), rates.headers == HeaderPolicy::Ignore) {
        (true, _) => Some("the rates"),
        (false, false) => Some("the rates that the provider announces"),
        (false, true) => None,
    }
}

/// Returns what the processes share of a pool.
fn shared_of_pool(rates: Option<&str>) -> String {
    let rates = rates.map_or(String::new(), |rates| format!("share {rates}, and "));
    format!(
        "the processes {rates}exchange which replica each call is sent to; the limits of a pool are those of each process"
    )
}

/// Returns what the processes share of a target or tool with this limit.
fn shared_limits(limit: &LimitConfig, cap: usize, rates: Option<&str>) -> String {
    let limit = match limit {
        LimitConfig::Fixed => format!("the cap of {cap} slots"),
        LimitConfig::Adaptive(_) => format!("one adaptive limit of at most {cap} slots"),
    };
    let rates = rates.map_or(String::new(), |rates| format!(" and {rates}"));
    format!("the processes share {limit}{rates}")
}

/// If the limit is adaptive, replaces the value of the setting `limit` by a text that contains the
/// objective.
fn with_objective(
    mut lines: Vec<(String, String)>,
    limit: &LimitConfig,
    objective: String,
) -> Vec<(String, String)> {
    if let (LimitConfig::Adaptive(_), Some((_, text))) =
        (limit, lines.iter_mut().find(|(key, _)| key == "limit"))
    {
        *text = format!("adaptive, objective: {objective}");
    }
    lines
}
