//! Words with `*` in them, which stands for any text.

/// Whether a text is what a word with `*` in it says. Linear in the text for each `*`.
pub fn fits(word: &str, text: &str) -> bool {
    let Some((start, rest)) = word.split_once('*') else { return word == text };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(end)
}

#[test]
fn words_with_stars() {
    for (word, text, expected) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "ab", true),
        ("*b", "ab", true),
        ("*", "", true),
        ("/pets*", "/pets/{id}", true),
        ("/pets/*/x", "/pets/{id}/x", true),
        ("/pets/*/x", "/pets/{id}/y", false),
        ("a*a", "a", false),
        ("*a*b*", "xxaybz", true),
    ] {
        assert_eq!(fits(word, text), expected, "{word} {text}");
    }
}
