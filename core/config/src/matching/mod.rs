//! Finds the target of a request: the first target in the order of the configuration that has both
//! a matching URL and a matching model pattern.
//!
//! - A base URL matches by scheme, host (ignoring case), port (443 and 80 may be omitted) and whole
//!   segments of its path: `https://host/v1` matches `/v1` and `/v1/chat`, but not `/v1beta`.
//! - In a model pattern `*` matches any text, including none. A request whose model is not known
//!   (without a body, or with one that is not JSON) matches targets without models, and targets
//!   that list the model `*`.
//! - A target without URLs matches any URL, and a target without models matches any model. A
//!   request that no target matches gets the settings of targets that are not configured.
//! - A target with `url = "none"` matches no request.
//!
//! Only the order of the targets decides: a more specific pattern has no precedence. A target that
//! no request can reach is an error, unless another target falls back to it.

mod base_url;
mod coverage;
mod glob;

use http::Uri;

pub(super) use self::base_url::BaseUrl;
pub(super) use self::coverage::CoverIndex;
use self::glob::Glob;
use super::{ConfigError, ConfigProblem, TargetConfig, TargetMatch};

/// Finds the target that a request is sent to. Lookups do not allocate.
///
/// A request matches a target if its URL is a base URL of the target or below one, and its model
/// matches one of the target's model patterns. A target without URLs or without models matches any.
/// The first target that matches is used.
///
/// ```
/// use tidegate_config::{Config, Matcher};
///
/// let config = Config::from_toml("[targets.openai]\nmodels = \"gpt-*\"\n")?;
/// let matcher = Matcher::new(&config.targets)?;
/// let uri = "https://api.openai.com/v1/chat/completions".parse().expect("a valid URI");
/// assert_eq!(matcher.find(&uri, Some("gpt-4o")), Some(0));
/// assert_eq!(matcher.find(&uri, Some("o3")), None);
/// # Ok::<(), tidegate_config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Matcher {
    rules: Vec<TargetRule>,
}

impl Matcher {
    /// Parses the URLs and model patterns of these targets.
    ///
    /// # Errors
    /// Returns the first URL that is invalid. The URLs of a [`Config`](super::Config) that was read
    /// or built are valid.
    pub fn new(targets: &[TargetConfig]) -> Result<Self, ConfigError> {
        let rule = |target: &TargetConfig| {
            TargetRule::new(&target.matches).map_err(|why| {
                let key = format!("targets.{}.url", target.name);
                ConfigError::new(vec![ConfigProblem { line: None, key, message: why.to_owned() }])
            })
        };
        Ok(Self { rules: targets.iter().map(rule).collect::<Result<_, _>>()? })
    }

    /// Returns the index of the first target that matches a request, in the slice that was passed
    /// to [`Matcher::new`]. `model` is `None` if the request has no readable model. Returns `None`
    /// if no target matches.
    pub fn find(&self, uri: &Uri, model: Option<&str>) -> Option<usize> {
        let url = base_url::RequestUrl::from_uri(uri);
        self.rules.iter().position(|rule| rule.matches(url.as_ref(), model))
    }
}

/// The parsed URLs and model patterns of one target.
#[derive(Clone, Debug)]
pub(super) struct TargetRule {
    urls: Vec<BaseUrl>,
    models: Vec<Glob>,
    /// Whether the target has `url = "none"`, and therefore matches no request.
    slots_only: bool,
}

impl TargetRule {
    /// Parses the URLs and model patterns of a target, or returns why a URL is invalid.
    pub(super) fn new(matches: &TargetMatch) -> Result<Self, &'static str> {
        Ok(Self {
            urls: matches.urls.iter().map(|url| BaseUrl::parse(url)).collect::<Result<_, _>>()?,
            models: matches.models.iter().map(|model| Glob::new(model)).collect(),
            slots_only: matches.slots_only,
        })
    }

    /// Returns `true` if a request matches. `url` is `None` if it is not an absolute http or https
    /// URL, and `model` is `None` if it is not known.
    fn matches(&self, url: Option<&base_url::RequestUrl<'_>>, model: Option<&str>) -> bool {
        let url = || url.is_some_and(|url| self.urls.iter().any(|prefix| prefix.matches(url)));
        let model =
            || self.models.iter().any(|glob| model.map_or(glob.is_any(), |model| glob.matches(model)));
        !self.slots_only && (self.urls.is_empty() || url()) && (self.models.is_empty() || model())
    }

    /// Returns `true` if this rule matches every request that `other` matches.
    ///
    /// Compares one pattern with one pattern. Therefore the result may be `false` although several
    /// patterns of this rule together match all requests of `other`.
    pub(super) fn covers(&self, other: &TargetRule) -> bool {
        self.covers_urls_of(other) && (self.models.is_empty() || self.covers_models_of(other))
    }

    /// Returns `true` if this rule matches every URL that `other` matches: it has no URLs, or each
    /// URL of `other` is at or below one of its URLs.
    pub(super) fn covers_urls_of(&self, other: &TargetRule) -> bool {
        let is_covered = |theirs| self.urls.iter().any(|ours| ours.matches(theirs));
        self.urls.is_empty() || (!other.urls.is_empty() && other.urls.iter().all(is_covered))
    }

    /// Returns `true` if the model patterns of this rule cover every model that `other` matches.
    /// Returns `false` if this rule has no model patterns, although it then matches every model.
    pub(super) fn covers_models_of(&self, other: &TargetRule) -> bool {
        let is_covered = |theirs| self.models.iter().any(|ours| ours.covers(theirs));
        self.models.iter().any(Glob::is_any)
            || (!other.models.is_empty() && other.models.iter().all(is_covered))
    }

    /// Returns `true` if requests for `model` match, given that their URL matches.
    pub(super) fn matches_model(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|glob| glob.matches(model))
    }
}
