//! The rules of the full contract that a text keeps or does not.
//!
//! They stand here once, for `toolgate check` and for tools written in Rust, which cannot be built without
//! keeping them. Invariant: every one can be asked while a program is compiled.

/// A description with fewer characters tells no model when to use a tool.
pub const SHORTEST_DESCRIPTION: usize = 50;

/// Whether a name is a verb and a noun in kebab-case, such as `create-card`.
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

/// Whether a version is three numbers, such as `1.2.3`. What may follow `-` or `+` is not looked at.
pub const fn is_semantic(version: &str) -> bool {
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

/// How many characters a text has.
pub const fn characters(text: &str) -> usize {
    let (bytes, mut at, mut count) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        // All but the bytes that go on with a character.
        if bytes[at] & 0b1100_0000 != 0b1000_0000 {
            count += 1;
        }
        at += 1;
    }
    count
}

/// Whether a description is long enough to choose by.
pub const fn is_description(text: &str) -> bool {
    characters(text.trim_ascii()) >= SHORTEST_DESCRIPTION
}

/// Whether a text is a permission: `resource:action`.
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
fn names() {
    for good in ["create-card", "search-decks", "get-card-2", "a-b-c"] {
        assert!(is_verb_noun(good), "{good}");
    }
    for bad in ["card", "create_card", "Create-card", "-card", "card-", "a--b", ""] {
        assert!(!is_verb_noun(bad), "{bad}");
    }
}

#[test]
fn versions() {
    for good in ["1.2.3", "0.0.0", "1.2.3-beta.1", "1.2.3+x"] {
        assert!(is_semantic(good), "{good}");
    }
    for bad in ["1.2", "1.2.3.4", "v1.2.3", "1..3", "1.2.", "", "1.2.x"] {
        assert!(!is_semantic(bad), "{bad}");
    }
}

#[test]
fn descriptions_are_counted_in_characters() {
    assert!(is_description(&"ß".repeat(50)));
    assert!(!is_description(&format!("  {}  ", "ß".repeat(49))));
}
