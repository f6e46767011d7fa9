//! Names of tools as protocols allow them: letters, digits, `_` and `-`, at most 64 of them.
//!
//! Invariant: a pure function of the name, so that a history says the same whatever tools are shown beside it; two
//! names of ours are never one name there, but for a collision of hashes.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

/// The most that every protocol takes.
const LONGEST: usize = 64;

/// A name as a model sees it.
pub(super) fn shown(name: &str) -> Cow<'_, str> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if name.len() <= LONGEST && starts && name.chars().all(good) {
        return Cow::Borrowed(name);
    }
    let hash = Sha256::digest(name);
    let mark = format!("_{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2]);
    let mut text: String = if starts { String::new() } else { "t_".to_owned() };
    text.extend(name.chars().map(|c| if good(c) { c } else { '_' }));
    text.truncate(LONGEST - mark.len());
    Cow::Owned(text + &mark)
}

/// Which of these names a model means; what it says, cut short, where it is none of them.
pub(super) fn meant<'a>(said: &str, names: impl Iterator<Item = &'a str>) -> String {
    let mut names = names.filter(|name| shown(name) == said || *name == said);
    names.next().map_or_else(|| said.chars().take(2 * LONGEST).collect(), str::to_owned)
}

#[test]
fn names_fit_every_protocol_and_come_back() {
    let long = "x".repeat(128);
    let names = ["echo", "files.read", "files_read", "7zip", "a__b-c", &long];
    for name in names {
        let shown = shown(name);
        assert!(shown.len() <= LONGEST, "{shown}");
        assert!(shown.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{shown}");
        assert_eq!(meant(&shown, names.into_iter()), name);
    }
    assert_eq!(shown("files.read"), "files_read_601e4e");
    assert_eq!(meant("nothing", names.into_iter()), "nothing");
}
