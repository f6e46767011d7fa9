//! API key of a caller. Only its hash is kept.
//!
//! Invariant: the key itself is never stored, shown or compared; hashes are compared in constant time.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

/// Well-known weak keys: from examples, templates and the defaults of other programs.
const WEAK_KEYS: [&str; 25] = [
    "",
    "123456",
    "12345678",
    "admin",
    "api-key",
    "api_key",
    "apikey",
    "changeit",
    "changeme",
    "change-me",
    "default",
    "demo",
    "dev",
    "example",
    "key",
    "my-api-key",
    "owner",
    "password",
    "root",
    "secret",
    "secret-api-key",
    "test",
    "token",
    "toolgate",
    "your-api-key",
];

/// SHA-256 of an API key.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

/// The string is not a SHA-256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the SHA-256 of a key has 64 hexadecimal digits; `printf %s KEY | sha256sum` prints it")]
pub struct KeyHashError;

impl KeyHash {
    /// Hashes a key.
    pub fn of(key: &str) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Hashes bytes, such as a certificate.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A hash that was computed before.
    pub fn from_bytes(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns true if the key is one of the well-known weak keys.
    pub fn is_well_known(&self) -> bool {
        WEAK_KEYS.iter().any(|known| Self::of(known) == *self)
    }
}

/// Constant time: does not depend on the position of the first difference.
impl PartialEq for KeyHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for KeyHash {}

/// For tables with a secret hash function: the bucket says nothing about the bytes.
impl Hash for KeyHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl FromStr for KeyHash {
    type Err = KeyHashError;

    fn from_str(text: &str) -> Result<Self, KeyHashError> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(KeyHashError);
        }
        let mut hash = [0; 32];
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).map_err(|_| KeyHashError)?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash")
    }
}

impl Serialize for KeyHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[test]
fn hash_round_trips() {
    let hash = KeyHash::of("abc");
    assert_eq!(hash.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(hash.to_string().to_uppercase().parse(), Ok(hash));
    for bad in ["", "abc", &"g".repeat(64), &"a".repeat(63), &"ä".repeat(32)] {
        assert_eq!(bad.parse::<KeyHash>(), Err(KeyHashError), "{bad}");
    }
    assert_ne!(hash, KeyHash::of("abd"));
}

#[test]
fn detects_weak_keys() {
    for bad in ["secret-api-key", "changeme", "admin", ""] {
        assert!(KeyHash::of(bad).is_well_known(), "{bad}");
    }
    assert!(!KeyHash::of("a long random key").is_well_known());
}
