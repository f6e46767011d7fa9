//! Rules of the full tool contract that concern a single string.
//!
//! `toolgate check` and the Rust SDK share them; a tool written in Rust does not build if it breaks one. Invariant:
//! every rule is a `const fn`, so that it can be checked at compile time.

/// Minimum characters of a description. A shorter one does not tell a model when to use the tool.
pub const MIN_DESCRIPTION_LENGTH: usize = 50;

/// Returns true if a name is verb and noun in kebab-case, such as `create-card`.
pub const fn is_verb_noun(name: &str) -> bool {
    let (bytes, mut at, mut word, mut words) = (name.as_bytes(), 0, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'-' if word == 0 => return false,
            b'-' => (word, words) = (0, words + 1),
            b'a'..=b'z' | b'0'..=b'9' => word += 1,
            _ => return false,
        }
        at += 1;
    }
    word > 0 && words > 0
}

/// Returns true if a version has three numbers, such as `1.2.3`. A suffix after `-` or `+` is not checked.
pub const fn is_semantic_version(version: &str) -> bool {
    let (bytes, mut at, mut digits, mut numbers) = (version.as_bytes(), 0, 0, 1);
    while at < bytes.len() {
        match bytes[at] {
            b'-' | b'+' => break,
            b'.' if digits == 0 => return false,
            b'.' => (digits, numbers) = (0, numbers + 1),
            b'0'..=b'9' => digits += 1,
            _ => return false,
        }
        at += 1;
    }
    digits > 0 && numbers == 3
}

/// Counts the characters of a string. `str::chars` is not available in a `const fn`.
pub const fn count_characters(text: &str) -> usize {
    let (bytes, mut at, mut count) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        // Skip UTF-8 continuation bytes.
        if bytes[at] & 0b1100_0000 != 0b1000_0000 {
            count += 1;
        }
        at += 1;
    }
    count
}

/// Returns true if a description has at least [`MIN_DESCRIPTION_LENGTH`] characters.
pub const fn is_sufficient_description(text: &str) -> bool {
    count_characters(text.trim_ascii()) >= MIN_DESCRIPTION_LENGTH
}

/// Returns true if a string is a permission: `resource:action`.
pub const fn is_permission(text: &str) -> bool {
    let (bytes, mut at, mut word, mut colons) = (text.as_bytes(), 0, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b':' if word == 0 => return false,
            b':' => (word, colons) = (0, colons + 1),
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') => word += 1,
            _ => return false,
        }
        at += 1;
    }
    word > 0 && colons == 1
}

#[test]
fn checks_names() {
    for good in ["create-card", "search-decks", "get-card-2", "a-b-c"] {
        assert!(is_verb_noun(good), "{good}");
    }
    for bad in ["card", "create_card", "Create-card", "-card", "card-", "a--b", ""] {
        assert!(!is_verb_noun(bad), "{bad}");
    }
}

#[test]
fn checks_versions() {
    for good in ["1.2.3", "0.0.0", "1.2.3-beta.1", "1.2.3+x"] {
        assert!(is_semantic_version(good), "{good}");
    }
    for bad in ["1.2", "1.2.3.4", "v1.2.3", "1..3", "1.2.", "", "1.2.x"] {
        assert!(!is_semantic_version(bad), "{bad}");
    }
}

#[test]
fn description_length_counts_characters() {
    assert!(is_sufficient_description(&"ß".repeat(50)));
    assert!(!is_sufficient_description(&format!("  {}  ", "ß".repeat(49))));
}
