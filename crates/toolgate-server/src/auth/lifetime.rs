//! Lifetime of credentials, for streams that outlive the request that opened them.
//!
//! Invariant: a stream ends when its credential is revoked or expires.

use std::future::pending;

use tokio::time::{Instant, sleep_until};
use toolgate_types::KeyHash;

use super::Authenticator;

/// Lifetime of a credential.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CredentialLifetime {
    /// Valid as long as the gateway runs: configured credentials do not change.
    Permanent,
    /// Valid until the key is revoked.
    ManagedKey(KeyHash),
    /// Valid until the token expires.
    Until(Instant),
}

impl Authenticator {
    /// Resolves when the credential is revoked or has expired.
    pub(crate) async fn wait_for_expiry(&self, lifetime: CredentialLifetime) {
        match (lifetime, &self.managed) {
            (CredentialLifetime::Until(end), _) => sleep_until(end).await,
            (CredentialLifetime::ManagedKey(key), Some(managed)) => managed.wait_for_revocation(&key).await,
            (CredentialLifetime::Permanent | CredentialLifetime::ManagedKey(_), _) => pending().await,
        }
    }
}
