//! The provider that requests are sent to, with its credential and its configuration.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tidegate::config::{Config, Target, TargetConfig};
use tidegate::config_file;

use crate::Failure;
use crate::find_target::find_target;

#[derive(ClapArgs)]
pub(super) struct ProviderArgs {
    /// Base URL of the provider, as its SDK takes it (https://api.openai.com/v1)
    #[arg(long, value_name = "URL")]
    url: Option<Uri>,
    /// Configuration file (TOML) with limits and rates
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Target of the configuration to send requests to [default: its only target]
    #[arg(long, value_name = "NAME", requires = "config")]
    target: Option<String>,
    /// Environment variable that holds the API key [default: the usual variable of a well-known
    /// provider, such as OPENAI_API_KEY]
    #[arg(long, value_name = "VARIABLE")]
    key_env: Option<String>,
    /// Maximum number of concurrent calls [default: adaptive, up to 256]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    cap: Option<usize>,
    /// Request rate limit per minute [default: from the provider's headers]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    rpm: Option<u64>,
    /// Token rate limit per minute [default: from the provider's headers]
    #[arg(long, value_name = "N", conflicts_with = "config")]
    tpm: Option<u64>,
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
        let (config, target) = match &args.config {
            Some(path) => {
                let config = config_file::read(path).map_err(|e| Failure::usage(e.to_string()))?;
                let target = find_target(&config, args.target.as_deref())?.clone();
                (config, Some(target))
            }
            None => (Config::default(), None),
        };
        let base = match (&args.url, &target) {
            (Some(url), _) => url.clone(),
            (None, Some(target)) => base_url(target)?,
            (None, None) => return Err(Failure::usage("no provider given; pass --url or --config")),
        };
        let host = base.host().unwrap_or_default();
        if host.is_empty() || !matches!(base.scheme_str(), Some("http" | "https")) {
            return Err(Failure::usage(format!(
                "--url {base}: not an absolute base URL; an example is https://api.openai.com/v1"
            )));
        }
        let is_pool = target.as_ref().is_some_and(|target| target.pool.is_some());
        let config = if target.is_some() { config } else { config_from_flags(args, &base)? };
        let target_key = target.and_then(|target| target.key_env.as_deref().map(str::to_owned));
        let usual_variable = || tidegate_sweep::key_env(host).map(str::to_owned);
        let variable = args.key_env.clone().or(target_key).or_else(usual_variable);
        let headers =
            variable.as_deref().map(|variable| credential(host, variable)).transpose()?.unwrap_or_default();
        Ok(Self { base, headers, config, variable, is_pool })
    }
}

/// Returns the base URL of a target: its first URL, or `http://NAME` for a pool without one.
fn base_url(target: &TargetConfig) -> Result<Uri, Failure> {
    let url = match target.matches.urls.first() {
        Some(url) => url.clone(),
        None if target.pool.is_some() => format!("http://{}", target.name),
        None => {
            let name = &target.name;
            return Err(Failure::usage(format!("target {name} has no URL; add one, or pass --url")));
        }
    };
    url.parse().map_err(|e| Failure::usage(format!("target {}: {url}: {e}", target.name)))
}

/// Returns a configuration with one target: the provider, with the limits that the flags give.
fn config_from_flags(args: &ProviderArgs, base: &Uri) -> Result<Config, Failure> {
    let origin = format!(
        "{}://{}",
        base.scheme_str().unwrap_or_default(),
        base.authority().map(|authority| authority.as_str()).unwrap_or_default()
    );
    let mut target = Target::new(base.host().unwrap_or("provider")).url(origin).rpm(args.rpm).tpm(args.tpm);
    if let Some(cap) = args.cap {
        target = target.cap(cap);
    }
    let config = Config::builder().target(target).build();
    config.map_err(|error| {
        // The last part of each key is also the name of its flag.
        let problems = error.problems().iter().map(|problem| {
            format!("--{}: {}", problem.key.rsplit('.').next().unwrap_or_default(), problem.message)
        });
        Failure::usage(problems.collect::<Vec<_>>().join("\n"))
    })
}

/// Returns the headers with the API key in the environment variable `variable`, in the form that
/// the host expects. Error messages never contain the key.
fn credential(host: &str, variable: &str) -> Result<HeaderMap, Failure> {
    let key = std::env::var(variable).ok().filter(|key| !key.trim().is_empty());
    let Some(key) = key else {
        return Err(Failure::usage(format!(
            "{variable} is not set: put the API key for {host} in it, or pass --key-env with the name of another variable"
        )));
    };
    let key = key.trim();
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, text: &str| match HeaderValue::from_str(text) {
        Ok(mut value) => {
            value.set_sensitive(true);
            headers.insert(name, value);
            Ok(())
        }
        Err(_) => Err(Failure::usage(format!(
            "{variable} holds characters that an API key cannot have; check that the key is complete and not quoted"
        ))),
    };
    if host == "api.anthropic.com" {
        put(HeaderName::from_static("x-api-key"), key)?;
        put(HeaderName::from_static("anthropic-version"), "2023-06-01")?;
    } else if host.ends_with(".openai.azure.com") {
        put(HeaderName::from_static("api-key"), key)?;
    } else {
        put(AUTHORIZATION, &format!("Bearer {key}"))?;
    }
    Ok(headers)
}
