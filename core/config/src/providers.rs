//! The base URLs of well-known providers. A target with the name of a provider needs no `url`.

const PROVIDERS: [(&str, &[&str]); 9] = [
    ("openai", &["https://api.openai.com", "https://us.api.openai.com", "https://eu.api.openai.com"]),
    ("anthropic", &["https://api.anthropic.com"]),
    ("gemini", &["https://generativelanguage.googleapis.com"]),
    ("groq", &["https://api.groq.com"]),
    ("mistral", &["https://api.mistral.ai"]),
    ("together", &["https://api.together.xyz", "https://api.together.ai"]),
    ("fireworks", &["https://api.fireworks.ai"]),
    ("openrouter", &["https://openrouter.ai/api"]),
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
