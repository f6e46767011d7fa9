//! Wildcard patterns: `*` matches any characters, every other character matches itself.
//!
//! The only matcher for patterns in configuration files. Crates for this add `?`, classes or escapes, which names may
//! contain: see `docs/dev/decisions/durations-and-sizes.md`.

/// Returns true if the whole text matches the pattern. Never backtracks: linear in the text for each `*`.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let (between, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in between.split('*') {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn matches_wildcards() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("", "a", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("*", "", true),
            ("**", "", true),
            ("files__*", "files__read", true),
            ("/pets*", "/pets/{id}", true),
            ("/pets/*/x", "/pets/{id}/x", true),
            ("/pets/*/x", "/pets/{id}/y", false),
            ("a*a", "a", false),
            ("a*c*e", "abcde", true),
            ("a*c*e", "abcd", false),
            ("*a*b*", "xxaybz", true),
            ("a?", "ab", false),
            ("[a]", "a", false),
            (r"\*", r"\x", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// The definition, which takes exponential time.
    fn matches_by_definition(pattern: &str, text: &str) -> bool {
        let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
        text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len())
                .filter(|at| text.is_char_boundary(*at))
                .any(|at| matches_by_definition(rest, &text[at..]))
        })
    }

    proptest! {
        #[test]
        fn equals_the_definition(pattern in "[abé*?]{0,6}", text in "[abé*?]{0,9}") {
            prop_assert_eq!(matches(&pattern, &text), matches_by_definition(&pattern, &text));
        }
    }
}
