//! Authenticated encryption of one text: AES-256-GCM-SIV tolerates a repeated nonce.
//!
//! Sealed bytes are a mark with the version, the nonce, and the encrypted text with its tag. The name of the text is
//! authenticated too, so that a sealed text cannot take the place of another one.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 32;
/// Mark and version of sealed bytes.
const MARK: &[u8] = b"TGC1";

/// Key that seals and opens texts.
pub struct SealingKey {
    key: LessSafeKey,
    bytes: [u8; KEY_BYTES],
}

impl SealingKey {
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM_SIV, &bytes).expect("the key has the length of the cipher");
        Self { key: LessSafeKey::new(key), bytes }
    }

    pub(super) fn generate() -> Self {
        let mut bytes = [0; KEY_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
        Self::new(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }

    /// Encrypts a text. Its name is authenticated, not stored.
    pub fn seal(&self, name: &str, text: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).expect("the system has random numbers");
        let mut body = text.to_vec();
        let name = Aad::from(name.as_bytes());
        let sealed = self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), name, &mut body);
        sealed.expect("a credential is not too long to encrypt");
        [MARK, &nonce, &body].concat()
    }

    /// Returns the text; `None` if the key is wrong, or the bytes or the name were changed.
    pub fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, body) = sealed.strip_prefix(MARK)?.split_first_chunk::<NONCE_LEN>()?;
        let mut body = body.to_vec();
        let name = Aad::from(name.as_bytes());
        let length =
            self.key.open_in_place(Nonce::assume_unique_for_key(*nonce), name, &mut body).ok()?.len();
        body.truncate(length);
        Some(body)
    }
}

#[test]
fn opens_only_what_it_sealed() {
    let (key, other) = (SealingKey::generate(), SealingKey::generate());
    let sealed = key.seal("a", b"text");
    assert_eq!(key.open("a", &sealed).as_deref(), Some(&b"text"[..]));
    assert_ne!(sealed, key.seal("a", b"text"), "each nonce is used once");
    assert!(key.open("b", &sealed).is_none());
    assert!(other.open("a", &sealed).is_none());
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        assert!(key.open("a", &changed).is_none(), "byte {at}");
        assert!(key.open("a", &sealed[..at]).is_none(), "the first {at} bytes");
    }
}
