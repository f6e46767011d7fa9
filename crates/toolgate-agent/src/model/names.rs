//! Tool names that every provider accepts: letters, digits, `_` and `-`, at most 64 characters.
//!
//! Invariant: a pure function of the name, so that a history does not depend on the tools offered with it; two names of
//! the catalog map to different names, except for a hash collision.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

/// The shortest limit of all providers.
const MAX_NAME: usize = 64;

/// Returns the name to send to a provider.
pub(super) fn provider_name(name: &str) -> Cow<'_, str> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if name.len() <= MAX_NAME && starts && name.chars().all(good) {
        return Cow::Borrowed(name);
    }
    let hash = Sha256::digest(name);
    let suffix = format!("_{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2]);
    let mut text: String = if starts { String::new() } else { "t_".to_owned() };
    text.extend(name.chars().map(|c| if good(c) { c } else { '_' }));
    text.truncate(MAX_NAME - suffix.len());
    Cow::Owned(text + &suffix)
}

/// Returns the catalog name for a name used by a model; the name itself, truncated, if it is unknown.
pub(super) fn catalog_name<'a>(name_used: &str, names: impl Iterator<Item = &'a str>) -> String {
    let mut names = names.filter(|name| provider_name(name) == name_used || *name == name_used);
    names.next().map_or_else(|| name_used.chars().take(2 * MAX_NAME).collect(), str::to_owned)
}

#[test]
fn names_fit_every_provider_and_map_back() {
    let long = "x".repeat(128);
    let names = ["echo", "files.read", "files_read", "7zip", "a__b-c", &long];
    for name in names {
        let shown = provider_name(name);
        assert!(shown.len() <= MAX_NAME, "{shown}");
        assert!(shown.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{shown}");
        assert_eq!(catalog_name(&shown, names.into_iter()), name);
    }
    assert_eq!(provider_name("files.read"), "files_read_601e4e");
    assert_eq!(catalog_name("nothing", names.into_iter()), "nothing");
}
