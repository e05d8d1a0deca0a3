//! Patterns for model names.

/// A case-sensitive pattern in which `*` matches any text, including none.
#[derive(Clone, Debug)]
pub(super) struct Glob {
    /// The literal texts before, between and after the stars. One part: the pattern has no star.
    /// Two empty parts: the pattern is `*`.
    parts: Box<[Box<str>]>,
}

impl Glob {
    /// Parses a pattern. Every text is a valid pattern.
    pub(super) fn new(pattern: &str) -> Self {
        // Adjacent stars are the same as one star, so empty parts in the middle are dropped.
        let last = pattern.matches('*').count();
        let keep = |(index, part): &(usize, &str)| *index == 0 || *index == last || !part.is_empty();
        Self { parts: pattern.split('*').enumerate().filter(keep).map(|(_, part)| part.into()).collect() }
    }

    /// Returns `true` if the pattern is `*`, which also matches requests whose model is not known.
    pub(super) fn is_any(&self) -> bool {
        matches!(&*self.parts, [first, last] if first.is_empty() && last.is_empty())
    }

    /// Returns `true` if the pattern matches the whole text.
    ///
    /// Each literal part is matched at its leftmost position, which leaves the most text for later
    /// parts. Therefore the time for each part is linear in the length of the text.
    pub(super) fn matches(&self, text: &str) -> bool {
        let (first, middle, last) = match &*self.parts {
            [] => return false,
            [only] => return **only == *text,
            [first, middle @ .., last] => (first, middle, last),
        };
        let Some(mut rest) = text.strip_prefix(&**first).and_then(|rest| rest.strip_suffix(&**last)) else {
            return false;
        };
        for part in middle {
            let Some(at) = rest.find(&**part) else { return false };
            rest = rest.get(at + part.len()..).unwrap_or_default();
        }
        true
    }

    /// Returns `true` if this pattern matches every text that `other` matches.
    ///
    /// `other` is matched as if its stars were ordinary characters: only a star of this pattern can
    /// match them.
    pub(super) fn covers(&self, other: &Glob) -> bool {
        self.matches(&other.text())
    }

    /// Returns the pattern as text, with adjacent stars as one star.
    pub(super) fn text(&self) -> String {
        self.parts.join("*")
    }

    /// Returns the literal texts before the first star and after the last star, or `None` if the
    /// pattern has no star.
    pub(super) fn ends(&self) -> Option<(&str, &str)> {
        match &*self.parts {
            [start, .., end] => Some((start, end)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns `true` if `pattern` matches `text`, computed recursively from the meaning of `*`.
    /// Takes exponential time.
    fn oracle(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                oracle(rest, text) || text.split_first().is_some_and(|(_, text)| oracle(pattern, text))
            }
            (Some((p, pattern)), Some((t, text))) => p == t && oracle(pattern, text),
            _ => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn matches_agrees_with_the_definition(pattern in "[ab*]{0,7}", text in "[ab]{0,9}") {
            prop_assert_eq!(Glob::new(&pattern).matches(&text), oracle(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn covering_pattern_matches_what_the_covered_one_matches(ours in "[ab*]{0,6}", theirs in "[ab*]{0,6}", text in "[ab]{0,8}") {
            let (ours, theirs) = (Glob::new(&ours), Glob::new(&theirs));
            if ours.covers(&theirs) && theirs.matches(&text) {
                prop_assert!(ours.matches(&text));
            }
        }
    }
}
