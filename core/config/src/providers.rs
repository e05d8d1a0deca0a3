//! The base URLs of well-known providers. A target with the name of a provider needs no `url`.
//!
//! Calls that fall back to such a target are sent to its first base URL.

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
