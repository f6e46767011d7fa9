//! The keys of an issuer: from a file, from an address, or from where the issuer says that they are.
//!
//! Invariant: only what the configuration names is asked, never what a token says; it is asked at a bounded rate, and
//! what was good last stays when it cannot be had.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use serde::Deserialize;
use serde_json::Value as Json;
use tokio::time::Instant;
use toolgate_types::issuer::{Algorithm, KeySource};
use url::Url;

/// How long keys count before they are asked for again.
const FRESH: Duration = Duration::from_secs(600);
/// The shortest time between two questions, whatever tokens come.
const PAUSE: Duration = Duration::from_secs(5);
/// The same for a file.
const LOOK: Duration = Duration::from_secs(1);
/// How long an issuer may take, and how much it may say.
const ANSWER: Duration = Duration::from_secs(5);
const MOST_BYTES: usize = 1 << 20;
/// Keys of one issuer.
const MOST_KEYS: usize = 100;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
#[error("the keys of issuer `{issuer}` cannot be had: {why}")]
pub struct KeysError {
    issuer: String,
    why: String,
}

impl KeysError {
    /// The way out.
    pub fn hint(&self) -> &'static str {
        "`jwks_file` in `serve.jwt` names a file with a JWK set: `{\"keys\": […]}`"
    }
}

/// A key that signatures are checked with.
pub(super) struct Key {
    pub(super) id: Option<String>,
    pub(super) decoding: DecodingKey,
    jwk: Jwk,
}

impl Key {
    fn new(jwk: Jwk) -> Option<Self> {
        let common = &jwk.common;
        let signs = common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        // A secret that is published is none.
        let public = !matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_));
        let decoding = DecodingKey::from_jwk(&jwk).ok().filter(|_| signs && public)?;
        Some(Self { id: common.key_id.clone(), decoding, jwk })
    }

    /// Whether signatures of this kind are made with it.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        let named = self.jwk.common.key_algorithm;
        if named.is_some_and(|named| named.to_string() != algorithm.name()) {
            return false;
        }
        match (&self.jwk.algorithm, algorithm) {
            (AlgorithmParameters::RSA(_), algorithm) => {
                !matches!(algorithm, Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDSA)
            }
            (AlgorithmParameters::EllipticCurve(key), Algorithm::ES256) => key.curve == EllipticCurve::P256,
            (AlgorithmParameters::EllipticCurve(key), Algorithm::ES384) => key.curve == EllipticCurve::P384,
            (AlgorithmParameters::OctetKeyPair(key), Algorithm::EdDSA) => key.curve == EllipticCurve::Ed25519,
            _ => false,
        }
    }
}

/// The keys of one issuer.
pub(super) struct KeySet {
    issuer: String,
    source: KeySource,
    client: reqwest::Client,
    known: Mutex<Known>,
    /// When they were asked for last; held by who asks.
    asked: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Default, Clone)]
struct Known {
    keys: Arc<Vec<Key>>,
    at: Option<Instant>,
}

impl KeySet {
    /// Of a file the keys must be there from the beginning.
    pub(super) fn new(issuer: &str, source: KeySource) -> Result<Self, KeysError> {
        let wrong = |why: String| KeysError { issuer: issuer.to_owned(), why };
        let keys = match &source {
            KeySource::File(path) => of_file(path).map_err(wrong)?,
            KeySource::Address(_) | KeySource::Discovery => Vec::new(),
        };
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER)
            .no_proxy()
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let known = Mutex::new(Known { keys: Arc::new(keys), at: None });
        Ok(Self { issuer: issuer.to_owned(), source, client, known, asked: tokio::sync::Mutex::default() })
    }

    /// The keys. `None` where there never were any.
    pub(super) async fn keys(&self, now: Instant) -> Option<Arc<Vec<Key>>> {
        let Known { keys, at } = self.known();
        let fresh = if matches!(self.source, KeySource::File(_)) { LOOK } else { FRESH };
        match at {
            Some(at) if now.saturating_duration_since(at) < fresh => return Some(keys),
            // One asks; the others go on with what there is.
            Some(_) => {
                if let Ok(asked) = self.asked.try_lock() {
                    self.ask(asked, now).await;
                }
            }
            None => self.ask(self.asked.lock().await, now).await,
        }
        let Known { keys, .. } = self.known();
        (!keys.is_empty()).then_some(keys)
    }

    /// The keys once more, for a token whose key is not among them.
    pub(super) async fn newer(&self, now: Instant) -> Arc<Vec<Key>> {
        self.ask(self.asked.lock().await, now).await;
        self.known().keys
    }

    fn known(&self) -> Known {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn ask(&self, mut asked: tokio::sync::MutexGuard<'_, Option<Instant>>, now: Instant) {
        let pause = if matches!(self.source, KeySource::File(_)) { LOOK } else { PAUSE };
        if asked.is_some_and(|last| now.saturating_duration_since(last) < pause) {
            return;
        }
        *asked = Some(now);
        let found = match &self.source {
            KeySource::File(path) => of_file(path),
            KeySource::Address(address) => self.fetched(address).await,
            KeySource::Discovery => self.discovered().await,
        };
        match found {
            Ok(keys) => {
                let known = Known { keys: Arc::new(keys), at: Some(now) };
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
            }
            Err(why) => {
                tracing::warn!(issuer = self.issuer, "keys cannot be had, those before stay: {why}");
            }
        }
    }

    async fn fetched(&self, address: &str) -> Result<Vec<Key>, String> {
        parse(&self.get(address).await?)
    }

    /// The keys that the issuer's metadata leads to: OpenID Connect, or RFC 8414.
    async fn discovered(&self) -> Result<Vec<Key>, String> {
        let base = Url::parse(&self.issuer).map_err(|error| error.to_string())?;
        let path = base.path().trim_end_matches('/');
        let mut last = Err("nothing was asked".to_owned());
        for place in [
            format!("{path}/.well-known/openid-configuration"),
            format!("/.well-known/oauth-authorization-server{path}"),
        ] {
            let mut address = base.clone();
            address.set_path(&place);
            last = self.get(address.as_str()).await;
            if last.is_ok() {
                break;
            }
        }
        let document: Metadata = serde_json::from_slice(&last?).map_err(|error| error.to_string())?;
        if document.issuer != self.issuer {
            return Err("its metadata is that of another issuer".to_owned());
        }
        let address = Url::parse(&document.jwks_uri).map_err(|error| error.to_string())?;
        if address.scheme() != "https" && address.origin() != base.origin() {
            return Err("its metadata leads to keys without TLS".to_owned());
        }
        self.fetched(address.as_str()).await
    }

    async fn get(&self, address: &str) -> Result<Vec<u8>, String> {
        let told = |error: reqwest::Error| error.without_url().to_string();
        let mut response = self.client.get(address).send().await.map_err(told)?;
        if response.status() != reqwest::StatusCode::OK {
            return Err(format!("the answer is {}", response.status()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(told)? {
            if bytes.len() + chunk.len() > MOST_BYTES {
                return Err(format!("the answer has more than {MOST_BYTES} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }
}

/// What an issuer says of itself.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

fn of_file(path: &Path) -> Result<Vec<Key>, String> {
    parse(&fs_err::read(path).map_err(|error| error.to_string())?)
}

/// The keys of a set that can be used; others are for others.
fn parse(bytes: &[u8]) -> Result<Vec<Key>, String> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Json>,
    }
    let Set { keys } = serde_json::from_slice(bytes).map_err(|error| format!("not a JWK set: {error}"))?;
    if keys.len() > MOST_KEYS {
        return Err(format!("there are more than {MOST_KEYS} keys"));
    }
    let keys: Vec<_> =
        keys.into_iter().filter_map(|key| Key::new(serde_json::from_value(key).ok()?)).collect();
    if keys.is_empty() { Err("there is no key in it that can be used".to_owned()) } else { Ok(keys) }
}
