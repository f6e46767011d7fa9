//! Names of secrets: keys, headers, flags and variables that usually hold one.

use memchr::memchr2;

/// Words that mark a name as that of a secret, anywhere in the name.
pub(crate) const SECRET_WORDS: [&str; 24] = [
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "apikey",
    "api_key",
    "access_key",
    "private_key",
    "authorization",
    "credential",
    "cookie",
    "bearer",
    "signature",
    "auth_key",
    "account_key",
    "accountkey",
    "subscription_key",
    "shared_key",
    "passcode",
    "accesskey",
    "privatekey",
    "authkey",
];

/// Words that do so at the end of a name only. Elsewhere they mean something else: `compass`, `path`.
pub(crate) const SECRET_SUFFIXES: [&str; 8] = ["auth", "key", "pass", "pat", "pin", "jwt", "otp", "sig"];
/// Names that end in one of [`SECRET_SUFFIXES`] but hold no secret.
pub(crate) const HARMLESS_KEYS: [&str; 13] = [
    "public_key",
    "primary_key",
    "foreign_key",
    "sort_key",
    "partition_key",
    "idempotency_key",
    "cache_key",
    "group_key",
    "issue_key",
    "object_key",
    "project_key",
    "routing_key",
    "row_key",
];

/// Endings of names that contain one of [`SECRET_WORDS`] but hold a cursor, a count or a type: `next_page_token`,
/// `nextPageToken`, `token_count`. Written without `_`, since names may be in camel case.
pub(crate) const HARMLESS_SUFFIXES: [&str; 18] = [
    "tokens",
    "pagetoken",
    "nexttoken",
    "continuationtoken",
    "continuetoken",
    "cursortoken",
    "resumetoken",
    "synctoken",
    "progresstoken",
    "tokencount",
    "tokentype",
    "tokenlimit",
    "tokenusage",
    "tokenbudget",
    "tokenizer",
    "functionsignature",
    "methodsignature",
    "typesignature",
];

/// Fragments of [`SECRET_WORDS`]: every word contains one of them, few other names do.
const WORD_FRAGMENTS: [&str; 10] =
    ["oke", "ecr", "ass", "pwd", "key", "auth", "cred", "cook", "bear", "gnat"];

/// Bit-parallel (Shift-And) automaton of all [`WORD_FRAGMENTS`]: a mask per letter, the first bits and the last bits of
/// the fragments. Only the low five bits of a byte count, so case is ignored and other characters alias letters.
const FRAGMENT_BITS: ([u64; 32], u64, u64) = {
    let (mut letters, mut first, mut last) = ([0; 32], 0, 0);
    let (mut bit, mut index) = (1_u64, 0);
    while index < WORD_FRAGMENTS.len() {
        let part = WORD_FRAGMENTS[index].as_bytes();
        first |= bit;
        let mut at = 0;
        while at < part.len() {
            letters[(part[at] & 31) as usize] |= bit;
            last |= if at + 1 == part.len() { bit } else { 0 };
            bit <<= 1;
            at += 1;
        }
        index += 1;
    }
    (letters, first, last)
};

/// Returns true if a key, header, flag or variable of this name usually holds a secret. Called for every name in
/// redacted text, so most names are ruled out by a cheap prefilter.
pub fn looks_secret(name: &str) -> bool {
    let (letters, first, last) = &FRAGMENT_BITS;
    let bytes = name.as_bytes();
    let (mut found, mut state) = (0, 0);
    for byte in bytes {
        // Advance all partial matches by one letter, start new ones, and drop those that this letter does not continue.
        state = (state << 1 | first) & letters[usize::from(byte & 31)];
        found |= state & last;
    }
    let ends = bytes.last_chunk::<3>().is_some_and(|[one, two, three]| {
        let end = [one | 0x20, two | 0x20, three | 0x20];
        matches!(&end, b"uth" | b"key" | b"ass" | b"pat" | b"pin" | b"jwt" | b"otp" | b"sig")
    });
    (ends || found != 0) && check_secret_name(name)
}

/// Exact check behind the prefilter. Allocates only for names longer than 64 bytes.
fn check_secret_name(name: &str) -> bool {
    let mut short = [0; 64];
    let mut long = Vec::new();
    let lower = match short.get_mut(..name.len()) {
        Some(short) => short,
        None => {
            long.resize(name.len(), 0);
            &mut long[..]
        }
    };
    for (lower, byte) in lower.iter_mut().zip(name.bytes()) {
        *lower = if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() };
    }
    let name = &*lower;
    // `…_ENV_VAR` holds the name of a variable, `author_…` data about a person.
    if name.ends_with(b"_env_var") || name.starts_with(b"author_") {
        return false;
    }
    // The part before a harmless suffix may still name a secret. Every harmless suffix has a `k` or a `g`.
    let may_match = memchr2(b'k', b'g', name).is_some();
    let stripped = HARMLESS_SUFFIXES.iter().filter(|_| may_match).find_map(|end| strip_suffix(name, end));
    let name = stripped.unwrap_or(name);
    let ends = |end: &str| name.ends_with(end.as_bytes());
    let last = name.rsplit(|byte| *byte == b'_').next().unwrap_or_default();
    let ends_secret = SECRET_SUFFIXES.iter().any(|end| end.as_bytes() == last)
        && !HARMLESS_KEYS.iter().any(|key| ends(key));
    let word_at = |at: usize| SECRET_WORDS.iter().any(|word| name[at..].starts_with(word.as_bytes()));
    ends_secret || (0..name.len()).any(word_at)
}

/// Strips a suffix from a name, ignoring every `_` in the name. `None` if the name does not end in it.
fn strip_suffix<'a>(name: &'a [u8], end: &str) -> Option<&'a [u8]> {
    let mut rest = name;
    for wanted in end.bytes().rev() {
        while let [before @ .., b'_'] = rest {
            rest = before;
        }
        rest = rest.strip_suffix(&[wanted])?;
    }
    Some(rest)
}

/// Strength of a name as evidence that its value is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameStrength {
    /// Values are passwords. People choose them, so nearly any word may be one.
    Password,
    /// Values are codes of a few digits.
    Code,
    /// Values are generated.
    Strong,
    /// The word has other meanings too, such as `key`, `cookie` and `signature`.
    Weak,
}

/// Endings of names that describe a secret instead of holding it: `password_hash`, `tokenUrl`.
const DESCRIBING_SUFFIXES: [&str; 27] = [
    "hash",
    "len",
    "size",
    "properties",
    "url",
    "uri",
    "endpoint",
    "file",
    "path",
    "name",
    "type",
    "id",
    "length",
    "policy",
    "env",
    "field",
    "ref",
    "expires",
    "expiry",
    "status",
    "enabled",
    "required",
    "algorithm",
    "stdin",
    "version",
    "format",
    "label",
];

/// Returns the strength of a name that [`looks_secret`].
pub(crate) fn name_strength(name: &str) -> NameStrength {
    let name: String = name.chars().map(|c| if c == '-' { '_' } else { c.to_ascii_lowercase() }).collect();
    if DESCRIBING_SUFFIXES.iter().any(|end| name.ends_with(end)) {
        return NameStrength::Weak;
    }
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let last = name.rsplit('_').next().unwrap_or_default();
    if has(&["passcode"]) || matches!(last, "pin" | "otp") {
        NameStrength::Code
    } else if has(&["password", "passwd", "passphrase", "pwd"]) || name.ends_with("_pass") {
        NameStrength::Password
    } else if has(&[
        "token",
        "secret",
        "apikey",
        "api_key",
        "access_key",
        "private_key",
        "auth_key",
        "account_key",
    ]) || has(&[
        "accountkey",
        "accesskey",
        "privatekey",
        "authkey",
        "subscription_key",
        "shared_key",
    ]) || matches!(last, "jwt")
        || name.ends_with("_pat")
    {
        NameStrength::Strong
    } else {
        NameStrength::Weak
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Simplest implementation of [`looks_secret`], as a reference.
    fn looks_secret_reference(name: &str) -> bool {
        let name = name.to_ascii_lowercase().replace('-', "_");
        if name.ends_with("_env_var") || name.starts_with("author_") {
            return false;
        }
        // The shortest suffix that is harmless without its `_`.
        let harmless = |at: &usize| HARMLESS_SUFFIXES.contains(&name[*at..].replace('_', "").as_str());
        let ends: Vec<_> = name.char_indices().map(|(at, _)| at).filter(harmless).collect();
        let name = ends.last().map_or(name.as_str(), |at| &name[..*at]);
        let last = name.rsplit('_').next().unwrap_or_default();
        let ends_secret =
            SECRET_SUFFIXES.contains(&last) && !HARMLESS_KEYS.iter().any(|key| name.ends_with(key));
        ends_secret || SECRET_WORDS.iter().any(|word| name.contains(word))
    }

    #[test]
    fn tells_secret_names_from_harmless_ones() {
        for name in [
            "next_page_token",
            "nextPageToken",
            "pageToken",
            "NextToken",
            "continuation-token",
            "progressToken",
            "max_tokens",
            "token_count",
            "tokenType",
            "tokenizer",
            "cache_key",
            "issue_key",
            "function_signature",
            "bearer_token_env_var",
            "author_name",
        ] {
            assert!(!looks_secret(name), "{name}");
        }
        for name in [
            "token",
            "access_token",
            "accessToken",
            "session_token",
            "csrf-token",
            "password_page_token",
            "secret_token_count",
            "x-api-key",
            "OPENAI_KEY",
            "signature",
            "webhook_signature",
        ] {
            assert!(looks_secret(name), "{name}");
        }
    }

    #[test]
    fn agrees_with_reference_on_known_words() {
        for word in
            SECRET_WORDS.into_iter().chain(SECRET_SUFFIXES).chain(HARMLESS_KEYS).chain(HARMLESS_SUFFIXES)
        {
            for name in [word.to_owned(), format!("My-{word}"), format!("{word}_x"), format!("author_{word}")]
            {
                for name in [name.clone(), name.to_uppercase(), format!("{}{name}", "x".repeat(70))] {
                    assert_eq!(looks_secret(&name), looks_secret_reference(&name), "{name}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn agrees_with_reference(name in "(token|KEY|auth|or|_|-|pass|word|ä|x{0,40}|s|env_var|api|public|next|page|Count){0,6}") {
            prop_assert_eq!(looks_secret(&name), looks_secret_reference(&name));
        }
    }
}
