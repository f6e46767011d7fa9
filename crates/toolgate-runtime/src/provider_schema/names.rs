//! Tool and argument names that every model provider accepts: up to 64 letters, digits, `_` and `-`, starting with a
//! letter or `_`.
//!
//! Invariant: the result depends on the name alone, so a tool keeps its name beside any other tools. Valid names
//! stay unchanged.

use toolgate_types::KeyHash;

/// Longest name that all providers accept.
const MAX_LENGTH: usize = 64;
/// Length of the prefix kept of a longer name.
const KEPT_PREFIX: usize = 24;
/// Hex digits that keep different names apart.
const HASH_DIGITS: usize = 6;

/// Makes a tool name valid for every provider.
pub fn safe_name(name: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    sanitize(name, good)
}

/// Makes an argument name valid for every provider. Argument names may contain dots.
pub(super) fn safe_argument(name: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    sanitize(name, good)
}

fn sanitize(name: &str, good: impl Fn(char) -> bool) -> String {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && name.len() <= MAX_LENGTH && name.chars().all(&good) {
        return name.to_owned();
    }
    let mut plain: String = name.chars().map(|c| if good(c) { c } else { '_' }).collect();
    if !begins {
        plain.insert(0, '_');
    }
    let hash = short_hash(name);
    if plain.len() + 1 + HASH_DIGITS <= MAX_LENGTH {
        return format!("{plain}_{hash}");
    }
    // Keep the end as well: it says more than the middle.
    let end = plain.len() - (MAX_LENGTH - KEPT_PREFIX - HASH_DIGITS - 2);
    format!("{}_{hash}_{}", &plain[..KEPT_PREFIX], &plain[end..])
}

/// Hash that keeps names apart that become equal when made valid.
pub fn short_hash(name: &str) -> String {
    KeyHash::of(name).to_string().chars().take(HASH_DIGITS).collect()
}

#[test]
fn names_are_valid_for_every_provider() {
    for good in ["echo", "git-status", "_x", "A1", &"a".repeat(64)] {
        assert_eq!(safe_name(good), good);
    }
    assert_eq!(safe_name("time.now"), format!("time_now_{}", short_hash("time.now")));
    assert_ne!(safe_name("time.now"), safe_name("time:now"));
    let long = format!("a_server_with_a_long_name__{}_and_the_end", "x".repeat(60));
    let names = ["", "1st", "-x", "ä", "a b", &long, &"é".repeat(64), &".".repeat(70)];
    for name in names {
        let made = safe_name(name);
        assert!(
            made.len() <= 64 && made.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'),
            "{made}"
        );
        assert!(made.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')), "{made}");
    }
    assert!(
        safe_name(&long).starts_with("a_server_with_a_long") && safe_name(&long).ends_with("_and_the_end")
    );
    assert_eq!(safe_argument("a.b"), "a.b");
    assert_eq!(safe_argument("filter[name]"), format!("filter_name__{}", short_hash("filter[name]")));
}
