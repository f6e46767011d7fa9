//! HMAC-SHA-256 of values that clients hold for us, such as session ids.
//!
//! Not the TLS library: the tools of the SDK would build it for this alone. Invariant: verification takes constant time.

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// A key, and the state after it was hashed.
pub(super) struct Key(Hmac<Sha256>);

/// The signature does not belong to the content.
#[derive(Debug, thiserror::Error)]
#[error("the signature is wrong")]
pub(super) struct WrongSignature;

impl Key {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        Self(Hmac::new_from_slice(key).expect("a key may have any length"))
    }
}

pub(super) fn sign(key: &Key, content: &[u8]) -> [u8; 32] {
    key.0.clone().chain_update(content).finalize().into_bytes().into()
}

pub(super) fn verify(key: &Key, content: &[u8], signature: &[u8]) -> Result<(), WrongSignature> {
    key.0.clone().chain_update(content).verify_slice(signature).map_err(|_| WrongSignature)
}

#[test]
fn signs_and_verifies() {
    let (key, other) = (Key::new(&[7; 32]), Key::new(&[8; 32]));
    let signature = sign(&key, b"content");
    assert!(verify(&key, b"content", &signature).is_ok());
    for (key, content, signature) in [
        (&other, &b"content"[..], &signature[..]),
        (&key, b"contents", &signature),
        (&key, b"content", &signature[..31]),
        (&key, b"content", b""),
    ] {
        assert!(verify(key, content, signature).is_err());
    }
    // The first test case of RFC 4231, with its key padded by zeros, which does not change the result.
    let mut key = [0; 32];
    key[..20].fill(0x0b);
    let hex: String = sign(&Key::new(&key), b"Hi There").iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}
