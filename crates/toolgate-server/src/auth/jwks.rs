//! Verification keys of a token issuer: from a file, from a URL, or from OpenID Connect discovery.
//!
//! Invariant: keys are fetched only from places the configuration names, never from a place a token names. Fetches are
//! rate limited, and the last good keys stay valid if a fetch fails.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value as Json;
use tokio::time::Instant;
use toolgate_types::issuer::{KeySource, SigningAlgorithm};

use super::issuer_client::IssuerClient;

/// Age at which cached keys are fetched again.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Minimum time between two fetches, for whatever tokens arrive.
const MIN_FETCH_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum time between two reads of a file.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Keys per issuer.
const MAX_KEYS: usize = 100;

/// Error of an issuer without usable keys.
#[derive(Debug, thiserror::Error)]
#[error("cannot load the keys of issuer `{issuer}`: {why}")]
pub struct JwksError {
    issuer: String,
    why: String,
}

impl JwksError {
    pub(super) fn new(issuer: &str, why: String) -> Self {
        Self { issuer: issuer.to_owned(), why }
    }

    pub fn hint(&self) -> &'static str {
        "`jwks_file` in `serve.jwt` must be a JWK set: `{\"keys\": […]}`"
    }
}

/// A public key that verifies signatures.
pub(super) struct VerificationKey {
    pub(super) id: Option<String>,
    pub(super) decoding: DecodingKey,
    jwk: Jwk,
}

impl VerificationKey {
    fn new(jwk: Jwk) -> Option<Self> {
        let common = &jwk.common;
        let signs = common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature)
            && common.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
        // A published symmetric key is not a secret.
        let public = !matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_));
        let decoding = DecodingKey::from_jwk(&jwk).ok().filter(|_| signs && public)?;
        Some(Self { id: common.key_id.clone(), decoding, jwk })
    }

    /// Returns true if the key verifies signatures of this algorithm.
    pub(super) fn supports(&self, algorithm: SigningAlgorithm) -> bool {
        let declared = self.jwk.common.key_algorithm;
        if declared.is_some_and(|declared| declared.to_string() != algorithm.name()) {
            return false;
        }
        match (&self.jwk.algorithm, algorithm) {
            (AlgorithmParameters::RSA(_), algorithm) => !matches!(
                algorithm,
                SigningAlgorithm::ES256 | SigningAlgorithm::ES384 | SigningAlgorithm::EdDSA
            ),
            (AlgorithmParameters::EllipticCurve(key), SigningAlgorithm::ES256) => {
                key.curve == EllipticCurve::P256
            }
            (AlgorithmParameters::EllipticCurve(key), SigningAlgorithm::ES384) => {
                key.curve == EllipticCurve::P384
            }
            (AlgorithmParameters::OctetKeyPair(key), SigningAlgorithm::EdDSA) => {
                key.curve == EllipticCurve::Ed25519
            }
            _ => false,
        }
    }
}

/// Keys of one issuer.
pub(super) struct KeySet {
    issuer: String,
    source: KeySource,
    client: IssuerClient,
    cached: Mutex<CachedKeys>,
    /// Time of the last fetch. The lock is held during a fetch.
    last_fetch: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Default, Clone)]
struct CachedKeys {
    keys: Arc<Vec<VerificationKey>>,
    at: Option<Instant>,
}

impl KeySet {
    /// Loads keys from a file at once, so that errors appear at startup. URLs are fetched on first use.
    pub(super) fn new(issuer: &str, source: KeySource) -> Result<Self, JwksError> {
        let error_of = |why: String| JwksError::new(issuer, why);
        let keys = match &source {
            KeySource::File(path) => read_file(path).map_err(error_of)?,
            KeySource::Url(_) | KeySource::Discovery => Vec::new(),
        };
        // The configuration names this URL; it may name the URL of the keys.
        let named = match &source {
            KeySource::Url(url) => url,
            KeySource::File(_) | KeySource::Discovery => issuer,
        };
        let client = IssuerClient::new(issuer, named).map_err(error_of)?;
        let cached = Mutex::new(CachedKeys { keys: Arc::new(keys), at: None });
        Ok(Self {
            issuer: issuer.to_owned(),
            source,
            client,
            cached,
            last_fetch: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the current keys, or `None` if there were never any.
    pub(super) async fn keys(&self, now: Instant) -> Option<Arc<Vec<VerificationKey>>> {
        let CachedKeys { keys, at } = self.cached();
        let max_age = if matches!(self.source, KeySource::File(_)) { FILE_CHECK_INTERVAL } else { MAX_AGE };
        match at {
            Some(at) if now.saturating_duration_since(at) < max_age => return Some(keys),
            // Single-flight: one request fetches, the others use the cached keys.
            Some(_) => {
                if let Ok(last_fetch) = self.last_fetch.try_lock() {
                    self.fetch(last_fetch, now).await;
                }
            }
            None => self.fetch(self.last_fetch.lock().await, now).await,
        }
        let CachedKeys { keys, .. } = self.cached();
        (!keys.is_empty()).then_some(keys)
    }

    /// Fetches the keys again, for a token signed with an unknown key.
    pub(super) async fn refresh(&self, now: Instant) -> Arc<Vec<VerificationKey>> {
        self.fetch(self.last_fetch.lock().await, now).await;
        self.cached().keys
    }

    fn cached(&self) -> CachedKeys {
        self.cached.lock().clone()
    }

    async fn fetch(&self, mut last_fetch: tokio::sync::MutexGuard<'_, Option<Instant>>, now: Instant) {
        let min_interval =
            if matches!(self.source, KeySource::File(_)) { FILE_CHECK_INTERVAL } else { MIN_FETCH_INTERVAL };
        if last_fetch.is_some_and(|last| now.saturating_duration_since(last) < min_interval) {
            return;
        }
        *last_fetch = Some(now);
        let found = match &self.source {
            KeySource::File(path) => read_file(path),
            KeySource::Url(url) => self.fetch_jwks(url).await,
            KeySource::Discovery => self.discover_jwks().await,
        };
        match found {
            Ok(keys) => {
                let cached = CachedKeys { keys: Arc::new(keys), at: Some(now) };
                *self.cached.lock() = cached;
            }
            Err(why) => {
                tracing::warn!(
                    issuer = self.issuer,
                    "keys cannot be fetched, the previous ones stay in use: {why}"
                );
            }
        }
    }

    async fn fetch_jwks(&self, url: &str) -> Result<Vec<VerificationKey>, String> {
        parse_jwks(&self.client.get(url).await?)
    }

    /// Finds the keys through the metadata of the issuer.
    async fn discover_jwks(&self) -> Result<Vec<VerificationKey>, String> {
        let metadata = self.client.metadata().await?;
        let url = self.client.endpoint("jwks_uri", metadata.jwks_uri.as_deref())?;
        self.fetch_jwks(url.as_str()).await
    }
}

fn read_file(path: &Path) -> Result<Vec<VerificationKey>, String> {
    parse_jwks(&fs_err::read(path).map_err(|error| error.to_string())?)
}

/// Parses a JWK set. Keys of unsupported types are skipped.
fn parse_jwks(bytes: &[u8]) -> Result<Vec<VerificationKey>, String> {
    #[derive(Deserialize)]
    struct JwkSet {
        keys: Vec<Json>,
    }
    let JwkSet { keys } = serde_json::from_slice(bytes).map_err(|error| format!("not a JWK set: {error}"))?;
    if keys.len() > MAX_KEYS {
        return Err(format!("the JWK set has more than {MAX_KEYS} keys"));
    }
    let keys: Vec<_> =
        keys.into_iter().filter_map(|key| VerificationKey::new(serde_json::from_value(key).ok()?)).collect();
    if keys.is_empty() { Err("the JWK set has no usable key".to_owned()) } else { Ok(keys) }
}
