//! DPoP: proofs that a token is used by the holder of its key (RFC 9449).
//!
//! Each login has its own key pair, stored with its tokens. Every request with a bound token carries a new proof for its
//! method and URL. Invariant: the private key leaves the process only into the token storage.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderName};
use serde_json::{Value, json};
use url::Url;

use super::token_record::now;

/// The only algorithm of our keys.
pub(super) const ALGORITHM: &str = "ES256";
/// Header of a proof.
pub(crate) const DPOP: HeaderName = HeaderName::from_static("dpop");
const DPOP_NONCE: HeaderName = HeaderName::from_static("dpop-nonce");
/// Error code of a server that wants its nonce in the proof.
pub(super) const USE_NONCE: &str = "use_dpop_nonce";
/// Longest nonce that is accepted.
const MAX_NONCE_BYTES: usize = 512;

/// Key pair of a login.
pub(super) struct DpopKey {
    pair: EcdsaKeyPair,
    /// PKCS#8 in base64.
    stored: String,
    /// Public key as a JSON Web Key.
    jwk: Value,
}

impl DpopKey {
    pub(super) fn generate() -> Self {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let document = document.expect("the system has random numbers");
        Self::parse(&STANDARD.encode(document.as_ref())).expect("a generated key is valid")
    }

    /// Parses a stored key.
    pub(super) fn parse(stored: &str) -> Option<Self> {
        let der = STANDARD.decode(stored).ok()?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der).ok()?;
        // An uncompressed point: a mark, then both coordinates.
        let (mark, point) = pair.public_key().as_ref().split_first()?;
        let (x, y) = point.split_at_checked(32).filter(|(_, y)| *mark == 4 && y.len() == 32)?;
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let jwk = json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y });
        Some(Self { pair, stored: stored.to_owned(), jwk })
    }

    pub(super) fn stored(&self) -> &str {
        &self.stored
    }

    /// Signs a proof for one request. With a token, the proof is of use only with this token.
    pub(super) fn proof(&self, method: &str, url: &Url, nonce: Option<&str>, token: Option<&str>) -> String {
        let mut id = [0; 16];
        aws_lc_rs::rand::fill(&mut id).expect("the system has random numbers");
        let mut target = url.clone();
        target.set_query(None);
        target.set_fragment(None);
        let _ = (target.set_username(""), target.set_password(None));
        let header = json!({ "typ": "dpop+jwt", "alg": ALGORITHM, "jwk": self.jwk });
        let mut claims = json!({
            "jti": URL_SAFE_NO_PAD.encode(id),
            "htm": method,
            "htu": target.as_str(),
            "iat": now(),
        });
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        if let Some(token) = token {
            claims["ath"] = URL_SAFE_NO_PAD.encode(digest(&SHA256, token.as_bytes())).into();
        }
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature.expect("a P-256 key signs"));
        format!("{signed}.{signature}")
    }
}

/// The latest nonce of a server.
#[derive(Default)]
pub(super) struct ServerNonce(Mutex<Option<String>>);

impl ServerNonce {
    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Takes the nonce of a response; returns true if it is a new one.
    pub(super) fn update(&self, headers: &HeaderMap) -> bool {
        let nonce = headers.get(DPOP_NONCE).and_then(|value| value.to_str().ok());
        let Some(nonce) = nonce.filter(|nonce| (1..=MAX_NONCE_BYTES).contains(&nonce.len())) else {
            return false;
        };
        let mut known = self.0.lock();
        let is_new = known.as_deref() != Some(nonce);
        if is_new {
            *known = Some(nonce.to_owned());
        }
        is_new
    }
}

#[test]
fn proofs_are_signed_and_bound() {
    use jsonwebtoken::jwk::Jwk;
    use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
    let key = DpopKey::parse(DpopKey::generate().stored()).unwrap();
    let url = Url::parse("https://ann:pw@example.com/mcp?a=b#c").unwrap();
    let proof = key.proof("POST", &url, Some("n"), Some("token"));
    let jwk: Jwk = decode_header(&proof).unwrap().jwk.unwrap();
    let mut validation = Validation::new(Algorithm::ES256);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    let claims = decode::<Value>(&proof, &DecodingKey::from_jwk(&jwk).unwrap(), &validation).unwrap().claims;
    assert_eq!(claims["htu"], "https://example.com/mcp");
    assert_eq!((&claims["htm"], &claims["nonce"]), (&"POST".into(), &"n".into()));
    assert_eq!(claims["ath"], URL_SAFE_NO_PAD.encode(digest(&SHA256, b"token")));
    assert_ne!(proof, key.proof("POST", &url, Some("n"), Some("token")), "each proof is used once");
    assert!(!proof.contains(key.stored()));
}
