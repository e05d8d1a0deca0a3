//! Text patterns in which `*` stands for any number of characters.

/// Returns `true` if the pattern matches the whole text. Upper and lower case differ.
pub(crate) fn matches_pattern(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return text.ends_with(part);
        }
        // The leftmost match leaves the most text for the remaining parts.
        match text.find(part).and_then(|at| text.get(at + part.len()..)) {
            Some(behind) => text = behind,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;

    #[test]
    fn star_matches_any_run_of_characters() {
        for (pattern, text) in
            [("gpt", "gpt"), ("gpt*", "gpt"), ("*", ""), ("a*b*c", "axxbyc"), ("*/chat/*", "/v1/chat/x")]
        {
            assert!(matches_pattern(pattern, text), "{pattern} takes {text}");
        }
        for (pattern, text) in [("gpt", "gpt-4"), ("gpt*", "a gpt"), ("a*b*b", "ab"), ("", "x"), ("*x", "xy")]
        {
            assert!(!matches_pattern(pattern, text), "{pattern} does not take {text}");
        }
    }
}
