//! Providers that need no `url`: what their clients send to unless told otherwise.

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

/// The base URLs of a provider, by the name of a target.
pub(super) fn base_urls(name: &str) -> Option<&'static [&'static str]> {
    PROVIDERS.iter().find(|(known, _)| *known == name).map(|(_, urls)| *urls)
}

/// The names that are known.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PROVIDERS.iter().map(|(name, _)| *name)
}
