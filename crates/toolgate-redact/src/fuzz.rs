//! Entry point of the fuzz target: an arbitrary secret in an arbitrary text.

use toolgate_types::Secret;

use crate::sanitize::{first_hidden, sanitize};
use crate::{KnownSecrets, contains_credential, is_unprintable, mask, may_contain_secret, printable};

/// Masks the first line in the rest of the text. The result is without the secret, and masking it changes nothing.
///
/// # Panics
/// If the invariant does not hold.
pub fn known_secret(text: &str) {
    let (secret, text) = text.split_once('\n').unwrap_or((text, ""));
    let known = KnownSecrets::new(&[Secret::new(secret)]);
    let is_known = known.is_in(secret);
    let masked = known.mask(text);
    assert!(!is_known || !text.contains(secret) || known.is_in(text), "it is found as written");
    // A secret of asterisks is in its mask.
    if !secret.contains('*') {
        assert!(!is_known || !masked.contains(secret), "the secret is in {masked}");
        assert!(!known.is_in(&masked), "a form of the secret is in {masked}");
    }
    let all = mask(text, &[Secret::new(secret)]);
    assert!(secret.contains('*') || !is_known || !all.contains(secret), "the secret is in {all}");
    assert_eq!(mask(&all, &[Secret::new(secret)]), all, "masking is idempotent");
    assert!(may_contain_secret(text) || mask(text, &[]) == text, "the prefilter misses a secret");
    contains_credential(text, &known);
    assert_eq!(first_hidden(&sanitize(text)), None);
    assert!(!printable(text).contains(is_unprintable));
}
