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

use super::jwt::TokenIdentity;
use super::{AuthState, Authenticator};
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

    /// The same credential, for the caller that it authenticates now.
    pub(super) fn with_caller(self, caller: &Arc<Caller>) -> Self {
        Self { caller: Arc::clone(caller), ..self }
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
        self.current_state(lifetime).is_some()
    }

    /// Returns the state in use, if the credential authenticates the same caller in it, with the same rights.
    pub(crate) fn current_state(&self, lifetime: &CredentialLifetime) -> Option<Arc<AuthState>> {
        let state = self.state();
        let now = state.caller_of(lifetime)?;
        now.has_same_rights(&lifetime.caller).then_some(state)
    }
}

impl AuthState {
    /// Returns the caller that a credential authenticates, with the rights of this state.
    pub(super) fn caller_of(&self, lifetime: &CredentialLifetime) -> Option<Arc<Caller>> {
        match &lifetime.credential {
            Credential::NotNeeded => Some(Arc::clone(&lifetime.caller)),
            Credential::Socket => Some(Arc::clone(&self.rules.owner)),
            Credential::Anonymous(access) => {
                let anonymous = self.rules.anonymous.as_ref();
                anonymous.filter(|_| self.rules.anonymous_access == *access).map(Arc::clone)
            }
            Credential::Key(key) => self.table.find_by_key(key).map(|key| Arc::clone(&key.caller)),
            Credential::Certificate(certificate) => self.rules.caller_by_certificate(certificate),
            Credential::Token(identity) => self.token_caller(identity).map(Arc::new),
        }
    }
}
