//! Lifetime of credentials, for streams that outlive the request that opened them.
//!
//! Invariant: a stream ends when its credential is revoked or expires, and when the rights of its caller change: the
//! client opens a new one with the rights of now.

use std::future::pending;
use std::sync::Arc;

use jiff::{Timestamp, Unit};
use tokio::time::{Instant, sleep_until};
use toolgate_types::serve::AnonymousAccess;
use toolgate_types::{Caller, KeyHash};

use super::Authenticator;
use super::jwt::TokenIdentity;
use crate::listener::tls::PeerCertificate;

/// The proof that authenticated a caller.
#[derive(Debug, Clone)]
pub(crate) enum Credential {
    /// Nothing was needed: a public route.
    NotNeeded,
    /// The Unix socket in the project directory.
    Socket,
    /// Nothing was shown, and the configuration allows that.
    Anonymous(AnonymousAccess),
    Key(KeyHash),
    Certificate(Arc<PeerCertificate>),
    Token(Arc<TokenIdentity>),
}

/// Lifetime of a credential.
#[derive(Debug, Clone)]
pub(crate) struct CredentialLifetime {
    credential: Credential,
    /// The caller, with the rights that it had.
    caller: Arc<Caller>,
    /// Time of expiry.
    end: Option<Instant>,
}

impl CredentialLifetime {
    pub(crate) fn new(credential: Credential, caller: &Arc<Caller>, end: Option<Instant>) -> Self {
        Self { credential, caller: Arc::clone(caller), end }
    }

    pub(crate) fn is_token(&self) -> bool {
        matches!(self.credential, Credential::Token(_))
    }

    /// The kind of the credential, as the REST API names it.
    pub(crate) fn credential_kind(&self) -> &'static str {
        match self.credential {
            Credential::NotNeeded | Credential::Anonymous(_) => "anonymous",
            Credential::Socket => "socket",
            Credential::Key(_) => "key",
            Credential::Certificate(_) => "certificate",
            Credential::Token(_) => "token",
        }
    }

    /// Time of expiry, to the second.
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        let left = self.end?.saturating_duration_since(Instant::now());
        Timestamp::now().checked_add(left).ok()?.round(Unit::Second).ok()
    }
}

impl Authenticator {
    /// Resolves when the credential is revoked or has expired, or its caller has other rights.
    pub(crate) async fn wait_for_expiry(&self, lifetime: CredentialLifetime) {
        let expiry = async {
            match lifetime.end {
                Some(end) => sleep_until(end).await,
                None => pending().await,
            }
        };
        let revocation = async {
            let mut changes = self.changed.subscribe();
            while self.is_current(&lifetime) && changes.changed().await.is_ok() {}
        };
        tokio::select! {
            () = expiry => {}
            () = revocation => {}
        }
    }

    /// Returns true if the credential still authenticates the same caller with the same rights.
    fn is_current(&self, lifetime: &CredentialLifetime) -> bool {
        let state = self.state.load();
        let now = match &lifetime.credential {
            Credential::NotNeeded => return true,
            Credential::Socket => Some(Arc::clone(&state.rules.owner)),
            Credential::Anonymous(access) => {
                let anonymous = state.rules.anonymous.as_ref();
                anonymous.filter(|_| state.rules.anonymous_access == *access).map(Arc::clone)
            }
            Credential::Key(key) => state.table.find_by_key(key).map(|key| Arc::clone(&key.caller)),
            Credential::Certificate(certificate) => state.rules.caller_by_certificate(certificate),
            Credential::Token(identity) => state.token_caller(identity).map(Arc::new),
        };
        now.is_some_and(|now| now.has_same_rights(&lifetime.caller))
    }
}
