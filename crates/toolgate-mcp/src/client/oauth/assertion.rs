//! Client assertions: authentication with a private key at the token endpoint (`private_key_jwt`, RFC 7523).
//!
//! Invariant: the algorithm follows from the type of the key.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use super::token_record::now;

/// Value of `client_assertion_type`.
pub(super) const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Lifetime of an assertion; it is used once, at once.
const LIFETIME_SECONDS: u64 = 300;

/// Object identifiers of key types in PKCS#8, as DER.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ELLIPTIC_CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];

/// Reason why no assertion was made.
#[derive(Debug, thiserror::Error)]
pub(super) enum AssertionError {
    #[error("`oauth.private_key` is not a private key in PEM format")]
    Pem(#[source] rustls::pki_types::pem::Error),
    #[error("`oauth.private_key` must be an RSA, P-256, P-384 or Ed25519 key")]
    KeyType,
    #[error("the authorization server does not accept {own}; it accepts {accepted}")]
    Algorithm { own: String, accepted: String },
    #[error("cannot sign with `oauth.private_key`")]
    Sign(#[source] jsonwebtoken::errors::Error),
}

/// Private key of the client.
pub(super) struct AssertionKey {
    key: EncodingKey,
    /// Algorithms for this type of key, the most common first.
    algorithms: &'static [Algorithm],
}

impl AssertionKey {
    pub(super) fn from_pem(pem: &str) -> Result<Self, AssertionError> {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(AssertionError::Pem)?;
        let key = match &key {
            PrivateKeyDer::Pkcs1(key) => Some(Self::rsa(key.secret_pkcs1_der())),
            PrivateKeyDer::Sec1(key) => Self::elliptic_curve(key.secret_sec1_der()),
            PrivateKeyDer::Pkcs8(key) => Self::from_pkcs8(key.secret_pkcs8_der()),
            _ => None,
        };
        key.ok_or(AssertionError::KeyType)
    }

    fn from_pkcs8(der: &[u8]) -> Option<Self> {
        let (key_type, key) = pkcs8_parts(der)?;
        match key_type {
            RSA => Some(Self::rsa(key)),
            ELLIPTIC_CURVE => Self::elliptic_curve(der),
            ED25519 => Some(Self { key: EncodingKey::from_ed_der(der), algorithms: &[Algorithm::EdDSA] }),
            _ => None,
        }
    }

    fn rsa(pkcs1: &[u8]) -> Self {
        let algorithms = &[
            Algorithm::RS256,
            Algorithm::PS256,
            Algorithm::RS384,
            Algorithm::PS384,
            Algorithm::RS512,
            Algorithm::PS512,
        ];
        Self { key: EncodingKey::from_rsa_der(pkcs1), algorithms }
    }

    /// Finds the curve of a key in SEC1 or PKCS#8.
    fn elliptic_curve(der: &[u8]) -> Option<Self> {
        let on_curve = |curve: &'static EcdsaSigningAlgorithm, algorithms| {
            let key = EcdsaKeyPair::from_private_key_der(curve, der).ok()?.to_pkcs8v1().ok()?;
            Some(Self { key: EncodingKey::from_ec_der(key.as_ref()), algorithms })
        };
        on_curve(&ECDSA_P256_SHA256_FIXED_SIGNING, &[Algorithm::ES256])
            .or_else(|| on_curve(&ECDSA_P384_SHA384_FIXED_SIGNING, &[Algorithm::ES384]))
    }

    /// Signs an assertion for an authorization server, with an algorithm that it accepts.
    pub(super) fn sign(
        &self,
        client_id: &str,
        issuer: &str,
        accepted: Option<&[String]>,
    ) -> Result<String, AssertionError> {
        let mut header = Header::new(self.choose_algorithm(accepted)?);
        header.typ = Some("client-authentication+jwt".to_owned());
        let mut id = [0; 16];
        aws_lc_rs::rand::fill(&mut id).expect("the system has random numbers");
        let claims = json!({
            "iss": client_id,
            "sub": client_id,
            "aud": issuer,
            "iat": now(),
            "exp": now() + LIFETIME_SECONDS,
            "jti": URL_SAFE_NO_PAD.encode(id),
        });
        jsonwebtoken::encode(&header, &claims, &self.key).map_err(AssertionError::Sign)
    }

    fn choose_algorithm(&self, accepted: Option<&[String]>) -> Result<Algorithm, AssertionError> {
        let Some(accepted) = accepted else { return Ok(self.algorithms[0]) };
        let is_accepted = |algorithm: &&Algorithm| accepted.contains(&format!("{algorithm:?}"));
        self.algorithms.iter().find(is_accepted).copied().ok_or_else(|| {
            let own: Vec<_> = self.algorithms.iter().map(|algorithm| format!("{algorithm:?}")).collect();
            AssertionError::Algorithm { own: own.join(", "), accepted: accepted.join(", ") }
        })
    }
}

/// Returns the object identifier of the key type, and the key itself.
fn pkcs8_parts(der: &[u8]) -> Option<(&[u8], &[u8])> {
    const INTEGER: u8 = 0x02;
    const OCTET_STRING: u8 = 0x04;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    const SEQUENCE: u8 = 0x30;
    let (info, _) = der_element(der, SEQUENCE)?;
    let (_version, info) = der_element(info, INTEGER)?;
    let (algorithm, info) = der_element(info, SEQUENCE)?;
    let (key_type, _parameters) = der_element(algorithm, OBJECT_IDENTIFIER)?;
    let (key, _) = der_element(info, OCTET_STRING)?;
    Some((key_type, key))
}

/// Splits off the first DER element, if it has this tag: its content, and the bytes after it.
fn der_element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, length], mut rest) = der.split_first_chunk()?;
    if found != tag {
        return None;
    }
    let mut length = usize::from(length);
    if length >= 0x80 {
        // The low bits say how many bytes of length follow. No key is longer than 64 KiB.
        let (bytes, after) = rest.split_at_checked(length & 0x7f).filter(|(bytes, _)| bytes.len() <= 2)?;
        length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = after;
    }
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests;
