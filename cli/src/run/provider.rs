//! The provider that requests are sent to, with its credential and its configuration.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use http::{HeaderMap, HeaderValue, Uri};
use tidegate::config::{Config, LimitConfig, LimitSettings, ShareStore, Target, TargetConfig, TargetMatch};
use tidegate::config_file;
use tidegate::protocol::Dialect;
use tidegate::protocol::api_key::{ANTHROPIC_VERSION, key_header};

use crate::Failure;
use crate::api_key::read_api_key;
use crate::find_target::find_target;
use crate::flag_values::duration;

/// Objective for the time to first token at a server that is not a well-known provider's. Half of
/// it may be spent in the queue of the server, where calls of other clients wait too.
const DEFAULT_TTFT: Duration = Duration::from_millis(500);
/// Maximum objective: the deadline of a target by default, which an objective cannot exceed.
const MAX_TTFT: Duration = Duration::from_secs(600);
/// Initial number of concurrent calls if the flags define the target. The adaptive limit doubles it
/// in each round of calls until they become slower.
const START: usize = 2;

#[derive(ClapArgs)]
pub(super) struct ProviderArgs {
    /// Base URL of the provider, as its SDK takes it (https://api.openai.com/v1)
    // Read later, because errors of clap contain the value.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Configuration file (TOML) with limits and rates
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Target of the configuration to send requests to [default: its only target]
    #[arg(long, value_name = "NAME", requires = "config")]
    target: Option<String>,
    /// Environment variable that holds the API key [default: the `key_env` of the target, otherwise
    /// the usual variable of a well-known provider, such as OPENAI_API_KEY]
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// Maximum number of concurrent calls [default: adaptive, up to 256]; without --ttft, the
    /// number is fixed
    #[arg(long, value_name = "N", conflicts_with = "config")]
    cap: Option<usize>,
    /// Objective for the time to first token (300ms, 2s): fewer calls are concurrent if first
    /// tokens take longer. A lower value leaves more room for other users of the server [default:
    /// 500ms; none with --cap and for well-known providers]
    #[arg(long, value_name = "TIME", value_parser = objective, conflicts_with = "config")]
    ttft: Option<Duration>,
    /// Request rate limit per minute [default: from the provider's headers]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    rpm: Option<u64>,
    /// Token rate limit per minute [default: from the provider's headers]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    tpm: Option<u64>,
}

fn objective(text: &str) -> Result<Duration, String> {
    let objective = duration(text)?;
    let is_valid = (Duration::from_millis(1)..=MAX_TTFT).contains(&objective);
    is_valid.then_some(objective).ok_or_else(|| "must be from 1ms to 10m".to_owned())
}

/// The provider that the flags and the configuration file define, with its credential.
pub(super) struct Provider {
    pub(super) base: Uri,
    pub(super) headers: HeaderMap,
    pub(super) config: Config,
    /// Environment variable that contains the key. `None` if requests carry no key.
    pub(super) variable: Option<String>,
    /// Whether the target is a pool. The host of the base URL is then the pool's name, which is not
    /// a network address.
    pub(super) is_pool: bool,
}

impl Provider {
    pub(super) fn new(args: &ProviderArgs) -> Result<Self, Failure> {
        let url = args.url.as_deref().map(crate::parse_url).transpose();
        let url = url.map_err(|e| Failure::usage(format!("--url: {e}")))?;
        let (config, target, base) = match (&args.config, url) {
            (Some(path), url) => {
                let mut config = config_file::read(path).map_err(|e| Failure::usage(e.to_string()))?;
                let mut target = find_target(&config, args.target.as_deref())?.clone();
                set_default_objective(&mut target, url.as_ref());
                let base = url.map_or_else(|| base_url(&target), Ok)?;
                target.matches = every_request_below(&base);
                // The first target that matches a request applies to it.
                config.targets.retain(|other| other.name != target.name);
                config.targets.insert(0, target.clone());
                (config, Some(target), base)
            }
            (None, Some(url)) => (config_from_flags(args, &url)?, None, url),
            (None, None) => return Err(Failure::usage("no provider given; pass --url or --config")),
        };
        let host = base.host().unwrap_or_default();
        let is_pool = target.as_ref().is_some_and(|target| target.pool.is_some());
        let target_key = target.and_then(|target| target.key_env.as_deref().map(str::to_owned));
        let usual_variable = || tidegate_sweep::key_env(host).map(str::to_owned);
        let variable = args.key_env.clone().or(target_key).or_else(usual_variable);
        let headers =
            variable.as_deref().map(|variable| credential(&base, variable)).transpose()?.unwrap_or_default();
        Ok(Self { base, headers, config, variable, is_pool })
    }
}

/// Returns the match of all requests of a run: any model, and the URLs below its base URL.
fn every_request_below(base: &Uri) -> TargetMatch {
    TargetMatch { urls: vec![format!("{}{}", origin(base), base.path())], ..TargetMatch::default() }
}

/// Returns the scheme, the host and the port of a base URL.
fn origin(base: &Uri) -> String {
    let authority = base.authority().map(|authority| authority.as_str()).unwrap_or_default();
    format!("{}://{authority}", base.scheme_str().unwrap_or_default())
}

/// Returns `true` if a host is that of a well-known provider. Other hosts may be servers with few
/// slots, which other clients share.
fn is_well_known(host: &str) -> bool {
    tidegate_sweep::key_env(host).is_some()
}

/// Gives a target of a configuration the default objective if its limit is adaptive, it has no
/// objective, and requests do not go to a well-known provider. `url` is the base URL that overrides
/// that of the target.
fn set_default_objective(target: &mut TargetConfig, url: Option<&Uri>) {
    let own = || target.matches.urls.first().and_then(|url| url.parse().ok());
    let base: Option<Uri> = url.cloned().or_else(own);
    let is_provider = base.as_ref().and_then(Uri::host).is_some_and(is_well_known);
    let has_objective =
        target.ttft.is_some() || target.tpot.is_some() || target.lanes.iter().any(|lane| lane.ttft.is_some());
    if matches!(target.limit, LimitConfig::Adaptive(_)) && !has_objective && !is_provider {
        target.ttft = Some(DEFAULT_TTFT);
    }
}

/// Returns the base URL of a target: that for clients of OpenAI's API, or `http://NAME` for a pool
/// without one.
fn base_url(target: &TargetConfig) -> Result<Uri, Failure> {
    let url = match target.openai_base_url() {
        Some(url) => url,
        None if target.pool.is_some() => format!("http://{}", target.name),
        None => {
            let name = &target.name;
            return Err(Failure::usage(format!("target {name} has no URL; add one, or pass --url")));
        }
    };
    crate::parse_url(&url).map_err(|e| Failure::usage(format!("target {}: url: {e}", target.name)))
}

/// Returns a configuration with one target: the provider, with the limits that the flags give.
fn config_from_flags(args: &ProviderArgs, base: &Uri) -> Result<Config, Failure> {
    let host = base.host().unwrap_or("provider");
    let mut target = Target::new(host).url(origin(base)).rpm(args.rpm).tpm(args.tpm);
    if let Some(cap) = args.cap {
        target = target.cap(cap);
    }
    let default = (args.cap.is_none() && !is_well_known(host)).then_some(DEFAULT_TTFT);
    if let Some(ttft) = args.ttft.or(default) {
        let start = args.cap.map_or(START, |cap| START.min(cap.max(1)));
        target = target.ttft(ttft).limit(LimitSettings::new().start(start));
    }
    let config = Config::builder().target(target).build();
    let mut config = config.map_err(|error| {
        // The last part of each key, without an index, is also the name of its flag.
        let problems = error.problems().iter().map(|problem| {
            let last = problem.key.rsplit('.').next();
            let flag = last.and_then(|key| key.split('[').next()).unwrap_or_default();
            format!("--{flag}: {}", problem.message)
        });
        Failure::usage(problems.collect::<Vec<_>>().join("\n"))
    })?;
    // No flag lets runs share their limits, so a warning that they do not would be of no use.
    config.share.store = ShareStore::Off;
    Ok(config)
}

/// Returns the headers with the API key in the environment variable `variable`, in the form that
/// the API at `base` expects. Error messages never contain the key.
fn credential(base: &Uri, variable: &str) -> Result<HeaderMap, Failure> {
    let host = base.host().unwrap_or_default();
    let key = read_api_key(host, variable)?;
    let is_anthropic = host == "api.anthropic.com";
    let dialect = if is_anthropic { Dialect::AnthropicMessages } else { Dialect::OpenAiChat };
    let (name, scheme) = key_header(dialect, base);
    let mut value = HeaderValue::try_from(format!("{scheme}{}", key.trim())).map_err(|_| {
        Failure::usage(format!(
            "{variable} holds characters that an API key cannot have; check that the key is complete and not quoted"
        ))
    })?;
    value.set_sensitive(true);
    Ok([(name, value)].into_iter().chain(is_anthropic.then_some(ANTHROPIC_VERSION)).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;
    use tidegate::config::Matcher;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        provider: ProviderArgs,
    }

    fn parse(flags: &str) -> Result<ProviderArgs, String> {
        let cli = Cli::try_parse_from(["run"].into_iter().chain(flags.split_whitespace()));
        cli.map(|cli| cli.provider).map_err(|error| error.to_string())
    }

    /// Returns the objective of the target that flags define, and the initial number of slots of
    /// its adaptive limit.
    fn limit(flags: &str) -> (Option<Duration>, Option<usize>) {
        let args = parse(flags).unwrap();
        let base = crate::parse_url(args.url.as_deref().unwrap()).unwrap();
        let config = config_from_flags(&args, &base).ok().unwrap();
        let target = &config.targets[0];
        let start = match &target.limit {
            LimitConfig::Adaptive(adaptive) => Some(adaptive.start),
            LimitConfig::Fixed => None,
        };
        (target.ttft, start)
    }

    #[test]
    fn own_server_has_an_objective_unless_flags_say_otherwise() {
        let own = "--url http://gpu.example:8000/v1";
        assert_eq!(limit(own), (Some(DEFAULT_TTFT), Some(2)));
        assert_eq!(limit(&format!("{own} --ttft 2s")), (Some(Duration::from_secs(2)), Some(2)));
        assert_eq!(limit(&format!("{own} --cap 4")), (None, None), "a cap alone is a fixed limit");
        assert_eq!(limit(&format!("{own} --cap 1 --ttft 2s")), (Some(Duration::from_secs(2)), Some(1)));
        assert_eq!(limit("--url https://api.openai.com/v1"), (None, Some(8)));
    }

    #[test]
    fn target_of_a_configuration_has_an_objective_unless_it_says_otherwise() {
        let own = || Target::new("own").url("http://gpu.example:8000");
        let ttft = |target: Target, url: Option<&str>| {
            let mut config = Config::builder().target(target).build().unwrap();
            set_default_objective(&mut config.targets[0], url.map(|url| url.parse().unwrap()).as_ref());
            config.targets[0].ttft
        };
        assert_eq!(ttft(own(), None), Some(DEFAULT_TTFT));
        assert_eq!(ttft(own().ttft(Duration::from_secs(3)), None), Some(Duration::from_secs(3)));
        assert_eq!(ttft(own().cap(64), None), None);
        assert_eq!(ttft(own().tpot(Duration::from_secs(3)), None), None);
        assert_eq!(ttft(own(), Some("https://api.openai.com/v1")), None);
    }

    #[test]
    fn target_of_a_provider_is_called_at_the_root_of_its_api() {
        let config = Config::from_toml("[targets]\ngemini = 8\n").unwrap();
        let base = base_url(&config.targets[0]).ok().unwrap();
        assert_eq!(base, "https://generativelanguage.googleapis.com/v1beta/openai");
    }

    #[test]
    fn selected_target_of_a_configuration_applies_to_every_request() {
        let path = std::env::temp_dir().join(format!("tidegate-selected-{}.toml", std::process::id()));
        let text = r#"
            [targets]
            first = { url = "http://a.example", models = "m" }
            second = { url = "http://a.example/v1", models = "m*", cap = 1, fallback = "third" }
            third = { url = "http://b.example", models = "m" }
        "#;
        std::fs::write(&path, text).unwrap();
        let flags = format!("--config {} --target second", path.display());
        for (more, url) in [
            ("", "http://a.example/v1/chat/completions"),
            (" --url http://c.example", "http://c.example/v1/chat/completions"),
            (
                " --url http://c.example/deployments/d?api-version=1",
                "http://c.example/deployments/d/completions",
            ),
        ] {
            let provider = Provider::new(&parse(&format!("{flags}{more}")).unwrap()).ok().unwrap();
            let names = provider.config.targets.iter().map(|target| &*target.name);
            assert!(names.eq(["second", "first", "third"]));
            let matcher = Matcher::new(&provider.config.targets).unwrap();
            for model in [None, Some("m"), Some("other")] {
                assert_eq!(matcher.find(&url.parse().unwrap(), model), Some(0), "{url} {model:?}");
            }
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn error_names_the_flag_of_an_invalid_url() {
        let args = parse("--url http://127.1:8000").unwrap();
        let base = crate::parse_url(args.url.as_deref().unwrap()).unwrap();
        let error = config_from_flags(&args, &base).err().unwrap().text;
        assert!(error.starts_with("--url: ") && error.contains("an unusual form"), "{error}");
    }

    #[test]
    fn bad_objective_is_rejected_with_its_range() {
        for bad in ["0s", "11m"] {
            let error = parse(&format!("--ttft {bad}")).err().unwrap();
            assert!(error.contains("--ttft") && error.contains("from 1ms to 10m"), "{error}");
        }
        assert!(parse("--ttft soon").err().unwrap().contains("examples are 90, 90s and 10m"));
        let both = parse("--config tidegate.toml --ttft 2s").err().unwrap();
        assert!(both.contains("--ttft") && both.contains("--config"), "{both}");
    }
}
