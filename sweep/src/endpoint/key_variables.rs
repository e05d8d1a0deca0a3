//! Environment variables from which the SDKs of well-known providers read the API key.

/// Variables by host name suffix.
const KEYS: [(&str, &str); 14] = [
    ("api.openai.com", "OPENAI_API_KEY"),
    (".openai.azure.com", "AZURE_OPENAI_API_KEY"),
    ("api.anthropic.com", "ANTHROPIC_API_KEY"),
    ("api.groq.com", "GROQ_API_KEY"),
    ("api.mistral.ai", "MISTRAL_API_KEY"),
    ("api.deepseek.com", "DEEPSEEK_API_KEY"),
    ("api.together.xyz", "TOGETHER_API_KEY"),
    ("api.fireworks.ai", "FIREWORKS_API_KEY"),
    ("api.cerebras.ai", "CEREBRAS_API_KEY"),
    ("api.x.ai", "XAI_API_KEY"),
    ("api.perplexity.ai", "PERPLEXITY_API_KEY"),
    ("api.sambanova.ai", "SAMBANOVA_API_KEY"),
    ("openrouter.ai", "OPENROUTER_API_KEY"),
    ("generativelanguage.googleapis.com", "GEMINI_API_KEY"),
];

/// Returns the variable for a host, if the host belongs to a known provider.
pub(super) fn key_env(host: &str) -> Option<&'static str> {
    KEYS.iter().find(|(end, _)| host.ends_with(end)).map(|(_, name)| *name)
}
