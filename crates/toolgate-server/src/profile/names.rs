//! Names that every provider of models takes: up to 64 letters, digits, `_` and `-`, with a letter or `_` first.
//!
//! Invariant: what a name becomes depends on itself alone, so a tool is called the same whatever else there is; and a
//! name that is good stays as it is.

use toolgate_types::KeyHash;

/// The longest name that all of them take.
const LONGEST: usize = 64;
/// What is left of the start of a longer one.
const START: usize = 24;
/// Digits that tell apart what would be the same.
const MARK: usize = 6;

/// A name of a tool that no provider refuses.
pub(super) fn safe(name: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    made(name, good)
}

/// A name of an argument that no provider refuses: these may have dots.
pub(super) fn safe_argument(name: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    made(name, good)
}

fn made(name: &str, good: impl Fn(char) -> bool) -> String {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && name.len() <= LONGEST && name.chars().all(&good) {
        return name.to_owned();
    }
    let mut plain: String = name.chars().map(|c| if good(c) { c } else { '_' }).collect();
    if !begins {
        plain.insert(0, '_');
    }
    let mark = mark(name);
    if plain.len() + 1 + MARK <= LONGEST {
        return format!("{plain}_{mark}");
    }
    // The end of a long name says more than its middle.
    let end = plain.len() - (LONGEST - START - MARK - 2);
    format!("{}_{mark}_{}", &plain[..START], &plain[end..])
}

/// What tells a name from others that look the same when they are made safe.
pub(super) fn mark(name: &str) -> String {
    KeyHash::of(name).to_string().chars().take(MARK).collect()
}

#[test]
fn names_that_are_taken_everywhere() {
    for good in ["echo", "git-status", "_x", "A1", &"a".repeat(64)] {
        assert_eq!(safe(good), good);
    }
    assert_eq!(safe("time.now"), format!("time_now_{}", mark("time.now")));
    assert_ne!(safe("time.now"), safe("time:now"));
    let long = format!("a_server_with_a_long_name__{}_and_the_end", "x".repeat(60));
    let names = ["", "1st", "-x", "ä", "a b", &long, &"é".repeat(64), &".".repeat(70)];
    for name in names {
        let made = safe(name);
        assert!(
            made.len() <= 64 && made.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'),
            "{made}"
        );
        assert!(made.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')), "{made}");
    }
    assert!(safe(&long).starts_with("a_server_with_a_long") && safe(&long).ends_with("_and_the_end"));
    assert_eq!(safe_argument("a.b"), "a.b");
    assert_eq!(safe_argument("filter[name]"), format!("filter_name__{}", mark("filter[name]")));
}
