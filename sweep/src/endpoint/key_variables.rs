//! Environment variables in which the SDKs of well-known providers expect the API key.

/// Host names, each with the environment variable of its API key. A name that starts with a dot
/// matches every host below it.
const KEYS: [(&str, &str); 17] = [
    ("api.openai.com", "OPENAI_API_KEY"),
    (".api.openai.com", "OPENAI_API_KEY"),
    (".openai.azure.com", "AZURE_OPENAI_API_KEY"),
    ("api.anthropic.com", "ANTHROPIC_API_KEY"),
    ("api.groq.com", "GROQ_API_KEY"),
    ("api.mistral.ai", "MISTRAL_API_KEY"),
    ("api.deepseek.com", "DEEPSEEK_API_KEY"),
    ("api.together.xyz", "TOGETHER_API_KEY"),
    ("api.together.ai", "TOGETHER_API_KEY"),
    ("api.fireworks.ai", "FIREWORKS_API_KEY"),
    ("api.cerebras.ai", "CEREBRAS_API_KEY"),
    ("api.x.ai", "XAI_API_KEY"),
    ("api.perplexity.ai", "PERPLEXITY_API_KEY"),
    ("api.sambanova.ai", "SAMBANOVA_API_KEY"),
    ("openrouter.ai", "OPENROUTER_API_KEY"),
    (".openrouter.ai", "OPENROUTER_API_KEY"),
    ("generativelanguage.googleapis.com", "GEMINI_API_KEY"),
];

/// Returns the environment variable in which the SDK of the provider at `host` expects the API key,
/// or `None` for unknown hosts.
///
/// ```
/// assert_eq!(tidegate_sweep::key_env("api.openai.com"), Some("OPENAI_API_KEY"));
/// assert_eq!(tidegate_sweep::key_env("llm.example"), None);
/// ```
pub fn key_env(host: &str) -> Option<&'static str> {
    let is_known = |known: &str| host == known || (known.starts_with('.') && host.ends_with(known));
    KEYS.iter().find(|(known, _)| is_known(known)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_never_read_for_a_host_that_only_ends_like_a_provider() {
        assert_eq!(key_env("openrouter.ai"), Some("OPENROUTER_API_KEY"));
        assert_eq!(key_env("jp.api.openai.com"), Some("OPENAI_API_KEY"));
        assert_eq!(key_env("mine.openai.azure.com"), Some("AZURE_OPENAI_API_KEY"));
        for host in ["myopenrouter.ai", "notapi.x.ai", "api.openai.com.example", "openai.azure.com"] {
            assert_eq!(key_env(host), None, "{host}");
        }
    }
}
