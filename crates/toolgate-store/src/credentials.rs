//! Credentials of callers for upstream servers: the interface of their store.
//!
//! A credential belongs to one caller and one server. It is stored for the URL that it was obtained for, so that a
//! server whose URL changes does not get the credentials of the old one. [`FileCredentials`] stores them encrypted,
//! [`MemoryCredentials`] while the process lives; one test suite checks the contract for both.
//! Invariant: no function but [`CredentialStore::get`] returns a secret, and only for the exact caller and server.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use toolgate_types::{CallerId, Secret, ServerName};

mod file;
mod seal;
mod store_key;

pub use file::FileCredentials;
pub use seal::SealingKey;
pub use store_key::{KeySource, StoreKey};

/// Maximum size of the secret part of a credential. Tokens with many claims have some kilobytes.
pub const MAX_SECRET_BYTES: usize = 128 << 10;

/// Owner and purpose of a credential.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialId {
    pub caller: CallerId,
    pub server: ServerName,
}

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.caller, self.server)
    }
}

/// Origin of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    /// OAuth tokens, renewed by the gateway.
    Oauth,
    /// A token or key that a person set.
    Static,
}

impl CredentialKind {
    /// Name in listings and records.
    pub fn label(self) -> &'static str {
        match self {
            Self::Oauth => "oauth",
            Self::Static => "static",
        }
    }
}

/// A stored credential.
#[derive(Debug, Clone, PartialEq)]
pub struct Credential {
    pub kind: CredentialKind,
    /// URL of the server it was obtained for; empty for a child process.
    pub audience: String,
    /// Unix time in seconds.
    pub stored_at: u64,
    /// End of its validity, if known and if it cannot be renewed. Unix time in seconds.
    pub expires_at: Option<u64>,
    pub secret: Secret,
}

/// Description of a stored credential, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CredentialInfo {
    pub caller: CallerId,
    pub server: ServerName,
    pub kind: CredentialKind,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub audience: String,
    pub stored_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

impl CredentialInfo {
    fn new(id: CredentialId, credential: &Credential) -> Self {
        let CredentialId { caller, server } = id;
        let Credential { kind, ref audience, stored_at, expires_at, .. } = *credential;
        Self { caller, server, kind, audience: audience.clone(), stored_at, expires_at }
    }
}

/// Reason why a credential cannot be read or stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CredentialError {
    #[error("the key does not open the credential store `{}`", .0.display())]
    WrongKey(PathBuf),
    #[error("the key file `{}` of the credential store is missing", .0.display())]
    MissingKey(PathBuf),
    /// The text of a key. It is named, never shown.
    #[error("{0} is not a key: expected 32 bytes in base64 or hexadecimal")]
    InvalidKey(String),
    #[error("the key ring of the credential store `{}` is missing or damaged", .0.display())]
    DamagedRing(PathBuf),
    #[error("the credential of caller `{}` for server `{}` is damaged", .0.caller, .0.server)]
    DamagedCredential(CredentialId),
    #[error("a credential has at most {MAX_SECRET_BYTES} bytes")]
    TooLarge,
    #[error("the key is not in a file, so it cannot be replaced")]
    KeyNotInFile,
    #[error("the credential store cannot be read or written")]
    Unavailable(#[source] Arc<io::Error>),
}

impl From<io::Error> for CredentialError {
    fn from(error: io::Error) -> Self {
        Self::Unavailable(Arc::new(error))
    }
}

impl CredentialError {
    /// Returns a suggested fix.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::WrongKey(_) => {
                Some("set `credentials` in toolgate.yaml to the key it was written with; nothing was changed")
            }
            Self::MissingKey(_) => Some(
                "restore the file; if the key is lost, remove the folder `.toolgate/credentials` and log in again",
            ),
            Self::InvalidKey(_) => Some("`head -c 32 /dev/urandom | base64` makes a key"),
            Self::DamagedRing(_) => Some("restore the folder from a backup, or remove it and log in again"),
            Self::DamagedCredential(_) => {
                Some("log in again, or remove it with `toolgate credentials remove`")
            }
            Self::KeyNotInFile => Some("pass the new key with `--new-key-file`"),
            Self::TooLarge | Self::Unavailable(_) => None,
        }
    }
}

/// Excludes other processes from renewing a credential until it is dropped.
#[derive(Debug)]
pub struct CredentialLock {
    _file: Option<fs_err::File>,
    _guard: Option<tokio::sync::OwnedMutexGuard<()>>,
}

/// A store of credentials. Usable as `dyn`, because a project chooses its backend at run time.
pub trait CredentialStore: Send + Sync + 'static {
    /// Returns the credential, including one that another process stored.
    fn get<'a>(&'a self, id: &'a CredentialId) -> BoxFuture<'a, Result<Option<Credential>, CredentialError>>;

    /// Stores a credential in place of an earlier one. It is durable when this returns.
    fn put<'a>(
        &'a self,
        id: &'a CredentialId,
        credential: Credential,
    ) -> BoxFuture<'a, Result<(), CredentialError>>;

    /// Removes a credential; returns true if there was one.
    fn remove<'a>(&'a self, id: &'a CredentialId) -> BoxFuture<'a, Result<bool, CredentialError>>;

    /// Describes all credentials, sorted by caller and server.
    fn list(&self) -> BoxFuture<'_, Result<Vec<CredentialInfo>, CredentialError>>;

    /// Waits until no other holder renews this credential. `None` after a timeout: an extra renewal is better than
    /// none.
    fn lock<'a>(&'a self, id: &'a CredentialId) -> BoxFuture<'a, Option<CredentialLock>>;
}

/// Credentials that last as long as the process.
#[derive(Debug, Default)]
pub struct MemoryCredentials {
    all: Mutex<BTreeMap<CredentialId, Credential>>,
    locks: Mutex<BTreeMap<CredentialId, Arc<tokio::sync::Mutex<()>>>>,
}

impl CredentialStore for MemoryCredentials {
    fn get<'a>(&'a self, id: &'a CredentialId) -> BoxFuture<'a, Result<Option<Credential>, CredentialError>> {
        Box::pin(std::future::ready(Ok(self.all.lock().get(id).cloned())))
    }

    fn put<'a>(
        &'a self,
        id: &'a CredentialId,
        credential: Credential,
    ) -> BoxFuture<'a, Result<(), CredentialError>> {
        let stored = if credential.secret.expose().len() > MAX_SECRET_BYTES {
            Err(CredentialError::TooLarge)
        } else {
            self.all.lock().insert(id.clone(), credential);
            Ok(())
        };
        Box::pin(std::future::ready(stored))
    }

    fn remove<'a>(&'a self, id: &'a CredentialId) -> BoxFuture<'a, Result<bool, CredentialError>> {
        Box::pin(std::future::ready(Ok(self.all.lock().remove(id).is_some())))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<CredentialInfo>, CredentialError>> {
        let all = self.all.lock();
        let infos = all.iter().map(|(id, credential)| CredentialInfo::new(id.clone(), credential)).collect();
        Box::pin(std::future::ready(Ok(infos)))
    }

    fn lock<'a>(&'a self, id: &'a CredentialId) -> BoxFuture<'a, Option<CredentialLock>> {
        let lock = Arc::clone(self.locks.lock().entry(id.clone()).or_default());
        Box::pin(async move { Some(CredentialLock { _file: None, _guard: Some(lock.lock_owned().await) }) })
    }
}
