//! The base URLs of well-known providers. A target with the name of a provider needs no `url`.
//!
//! Calls that fall back to such a target are sent to its first base URL.

use http::Uri;
use tidegate_protocol::base_url::BaseUrl;

use crate::TargetConfig;

/// The base URLs of OpenAI, which has a host for each region in which data may have to stay.
const OPENAI: [&str; 11] = [
    "https://api.openai.com",
    "https://us.api.openai.com",
    "https://eu.api.openai.com",
    "https://au.api.openai.com",
    "https://in.api.openai.com",
    "https://jp.api.openai.com",
    "https://ca.api.openai.com",
    "https://sg.api.openai.com",
    "https://kr.api.openai.com",
    "https://gb.api.openai.com",
    "https://ae.api.openai.com",
];

/// The base URLs of OpenRouter, which has a host for each of two regions.
const OPENROUTER: [&str; 3] =
    ["https://openrouter.ai/api", "https://eu.openrouter.ai/api", "https://us.openrouter.ai/api"];

/// The well-known providers: name and base URLs.
const PROVIDERS: [(&str, &[&str]); 9] = [
    ("openai", &OPENAI),
    ("anthropic", &["https://api.anthropic.com"]),
    ("gemini", &["https://generativelanguage.googleapis.com"]),
    ("groq", &["https://api.groq.com"]),
    ("mistral", &["https://api.mistral.ai"]),
    ("together", &["https://api.together.xyz", "https://api.together.ai"]),
    ("fireworks", &["https://api.fireworks.ai"]),
    ("openrouter", &OPENROUTER),
    ("deepseek", &["https://api.deepseek.com"]),
];

/// Returns the base URLs of the well-known provider called `name`, or `None` if there is none of
/// that name.
pub(super) fn base_urls(name: &str) -> Option<&'static [&'static str]> {
    PROVIDERS.iter().find(|(known, _)| *known == name).map(|(_, urls)| *urls)
}

/// Returns the names of the well-known providers.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().map(|(name, _)| *name)
}

/// Returns `true` if a target has the name of a well-known provider, and only base URLs of that
/// provider.
pub(super) fn has_provider_urls(target: &TargetConfig) -> bool {
    let urls = &target.matches.urls;
    let is_known = |known: &[&str]| urls.iter().all(|url| known.contains(&url.as_str()));
    !urls.is_empty() && base_urls(&target.name).is_some_and(is_known)
}

impl TargetConfig {
    /// Returns the base URL that clients of OpenAI's API use for this target: its first URL, or for
    /// a well-known provider the root of the OpenAI-compatible API there. Returns `None` if the
    /// target has no URL.
    ///
    /// ```
    /// let config = tidegate_config::Config::from_toml("[targets]\ngroq = 8\n")?;
    /// let url = config.targets[0].openai_base_url();
    /// assert_eq!(url.as_deref(), Some("https://api.groq.com/openai/v1"));
    /// # Ok::<(), tidegate_config::ConfigError>(())
    /// ```
    pub fn openai_base_url(&self) -> Option<String> {
        let first = self.matches.urls.first()?;
        if !has_provider_urls(self) {
            return Some(first.clone());
        }
        let request = Uri::from_static("https://host/v1/chat/completions");
        let url = BaseUrl::parse(first)?.rebase(&request, None)?.to_string();
        url.strip_suffix("/chat/completions").map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn well_known_provider_has_the_root_of_its_openai_compatible_api() {
        let expected = [
            ("openai", "https://api.openai.com/v1"),
            ("anthropic", "https://api.anthropic.com/v1"),
            ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai"),
            ("groq", "https://api.groq.com/openai/v1"),
            ("mistral", "https://api.mistral.ai/v1"),
            ("together", "https://api.together.xyz/v1"),
            ("fireworks", "https://api.fireworks.ai/inference/v1"),
            ("openrouter", "https://openrouter.ai/api/v1"),
            ("deepseek", "https://api.deepseek.com/v1"),
        ];
        assert!(names().eq(expected.map(|(name, _)| name)));
        for (name, url) in expected {
            let config = Config::from_toml(&format!("targets.{name} = 8")).unwrap();
            assert_eq!(config.targets[0].openai_base_url().as_deref(), Some(url));
        }
    }

    #[test]
    fn other_target_keeps_its_first_url() {
        let text = "targets.groq.url = [\"https://gateway.example/groq\", \"https://api.groq.com\"]";
        let config = Config::from_toml(text).unwrap();
        assert_eq!(config.targets[0].openai_base_url().as_deref(), Some("https://gateway.example/groq"));
        assert_eq!(TargetConfig::new("groq").openai_base_url(), None);
    }
}
