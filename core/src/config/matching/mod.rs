//! Which target a request belongs to: the first, in the order of the configuration, whose URL *and* model both match.
//!
//! - A base URL matches by scheme, host (whatever its case) and port (443 and 80 go without saying), and by whole segments of
//!   its path: `https://host/v1` takes `/v1` and `/v1/chat`, not `/v1beta`.
//! - A model pattern is exact but for `*`, any run of characters, also none. A request whose model is not known (no body, or
//!   one that is no JSON) matches targets without models, and those that list a lone `*`.
//! - No URLs means any URL, no models any model; a request that no target takes is under the default one.
//!
//! Order decides, never how specific a pattern is, so that reading the file from the top tells what happens; a target that
//! could never be reached is a configuration error.
//! - A target with `url = "none"` takes no request: it is there for slots that are held by name.

mod base_url;
mod coverage;
mod glob;

use http::Uri;

pub(super) use self::base_url::BaseUrl;
pub(super) use self::coverage::CoverIndex;
use self::glob::Glob;
use super::{ConfigError, ConfigProblem, TargetConfig, TargetMatch};

/// The targets' patterns, parsed once. Finding allocates nothing.
#[derive(Clone, Debug)]
pub struct Matcher {
    rules: Vec<TargetRule>,
}

impl Matcher {
    /// Prepares these targets.
    ///
    /// # Errors
    /// A URL that is none; a [`Config`](super::Config) that was read or built has only good ones.
    pub fn new(targets: &[TargetConfig]) -> Result<Self, ConfigError> {
        let rule = |target: &TargetConfig| {
            TargetRule::new(&target.matches).map_err(|why| {
                let key = format!("targets.{}.url", target.name);
                ConfigError::new(vec![ConfigProblem { line: None, key, message: why.to_owned() }])
            })
        };
        Ok(Self { rules: targets.iter().map(rule).collect::<Result<_, _>>()? })
    }

    /// The index, among the targets given to [`Matcher::new`], of the one that takes this request.
    pub fn find(&self, uri: &Uri, model: Option<&str>) -> Option<usize> {
        let url = base_url::RequestUrl::from_uri(uri);
        self.rules.iter().position(|rule| rule.matches(url.as_ref(), model))
    }
}

/// One target's patterns.
#[derive(Clone, Debug)]
pub(super) struct TargetRule {
    urls: Vec<BaseUrl>,
    models: Vec<Glob>,
    matches_none: bool,
}

impl TargetRule {
    pub(super) fn new(matches: &TargetMatch) -> Result<Self, &'static str> {
        Ok(Self {
            urls: matches.urls.iter().map(|url| BaseUrl::parse(url)).collect::<Result<_, _>>()?,
            models: matches.models.iter().map(|model| Glob::new(model)).collect(),
            matches_none: matches.slots_only,
        })
    }

    fn matches(&self, url: Option<&base_url::RequestUrl<'_>>, model: Option<&str>) -> bool {
        let url = || url.is_some_and(|url| self.urls.iter().any(|prefix| prefix.matches(url)));
        let model =
            || self.models.iter().any(|glob| model.map_or(glob.is_any(), |model| glob.matches(model)));
        !self.matches_none && (self.urls.is_empty() || url()) && (self.models.is_empty() || model())
    }

    /// Whether every request of `other` would be this one's too. Judged pattern by pattern: what only several patterns
    /// together cover is not seen, so `true` is certain and `false` is not.
    pub(super) fn covers(&self, other: &TargetRule) -> bool {
        self.covers_urls_of(other) && (self.models.is_empty() || self.covers_models_of(other))
    }

    /// Whether it takes every URL that `other` takes, each URL by itself.
    pub(super) fn covers_urls_of(&self, other: &TargetRule) -> bool {
        self.urls.is_empty()
            || (!other.urls.is_empty()
                && other.urls.iter().all(|theirs| self.urls.iter().any(|ours| ours.covers(theirs))))
    }

    /// Whether it names every model that `other` takes, each name or pattern by itself.
    pub(super) fn covers_models_of(&self, other: &TargetRule) -> bool {
        self.models.iter().any(Glob::is_any)
            || (!other.models.is_empty()
                && other.models.iter().all(|theirs| self.models.iter().any(|ours| ours.covers(theirs))))
    }

    /// Whether requests for this model are its, at the right URL.
    pub(super) fn matches_model(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|glob| glob.matches(model))
    }
}
