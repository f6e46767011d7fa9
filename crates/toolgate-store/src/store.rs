//! The interface of a storage backend for shared state.
//!
//! The queue in `registry` is built on top of it, so that ordering, group commit and hot reload are the same for every
//! backend; one test suite checks the contract for all of them. The execution log is not stored here: it has its own
//! storage in `toolgate-audit`, because it is written on every call and has its own durability rules.
//! Invariant: `Ok` from [`Store::commit`] means that the change survives a crash.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::document::{DocumentError, EntryError, EntryKind, EntryOp, RegistryDocument};

/// Identifies a state of the registry: equal file contents have equal revisions, in every process and after every
/// restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Revision(u64);

impl Revision {
    /// Hashes file contents.
    pub fn of_contents(files: [Option<&[u8]>; 2]) -> Self {
        let mut hash = Sha256::new();
        for bytes in files {
            // A missing file differs from an empty one.
            hash.update(bytes.map_or(u64::MAX, |bytes| bytes.len() as u64).to_le_bytes());
            hash.update(bytes.unwrap_or_default());
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        Self(u64::from_be_bytes(first))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The string is not a revision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a revision: expected 16 lowercase hexadecimal digits")]
pub struct ParseRevisionError(String);

impl std::str::FromStr for Revision {
    type Err = ParseRevisionError;

    fn from_str(text: &str) -> Result<Self, ParseRevisionError> {
        let right = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let value = right.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        value.map(Self).ok_or_else(|| ParseRevisionError(text.to_owned()))
    }
}

/// The registry files as strings. `None` if the file does not exist or is not UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistrySources {
    /// `tools.json`.
    pub tools: Option<Arc<str>>,
    /// `mcp.json`.
    pub servers: Option<Arc<str>>,
}

/// The parsed registry files. `None` if the project has no such file.
#[derive(Debug, Clone)]
pub struct RegistryDocuments {
    /// `tools.json`.
    pub tools: Option<RegistryDocument>,
    /// `mcp.json`.
    pub servers: Option<RegistryDocument>,
}

impl RegistryDocuments {
    /// Returns the file that holds entries of a kind.
    pub fn get(&self, kind: EntryKind) -> Option<&RegistryDocument> {
        match kind {
            EntryKind::Tool => self.tools.as_ref(),
            EntryKind::Server => self.servers.as_ref(),
        }
    }

    /// Applies a change, or returns the reason why it cannot be applied.
    pub fn apply(&mut self, op: &EntryOp) -> Result<(), EntryError> {
        let document = match op.kind {
            EntryKind::Tool => self.tools.as_mut(),
            EntryKind::Server => self.servers.as_mut(),
        };
        document.ok_or(DocumentError::NoFile)?.apply(&op.name, &op.action)
    }
}

/// The registry at one moment.
#[derive(Debug, Clone)]
pub struct RegistrySnapshot {
    pub rev: Revision,
    pub texts: RegistrySources,
    /// The parsed files, or the reason why they cannot be changed.
    pub documents: Result<RegistryDocuments, DocumentError>,
}

/// The registry cannot be read or written at the moment.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the registry cannot be read or written")]
pub struct StoreUnavailable(#[source] pub Arc<std::io::Error>);

impl From<std::io::Error> for StoreUnavailable {
    fn from(error: std::io::Error) -> Self {
        Self(Arc::new(error))
    }
}

/// Reason why nothing was committed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The registry is not at the expected revision.
    #[error("the registry is at revision {current}")]
    Conflict {
        /// Actual revision.
        current: Revision,
    },
    /// A change cannot be applied to the current entries.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The backend failed. The change is not visible, unless the next [`Store::snapshot`] shows all of it.
    #[error(transparent)]
    Unavailable(#[from] StoreUnavailable),
}

/// A storage backend for shared state.
///
/// Its functions return `impl Future + Send` instead of being `async fn`, so that their futures are `Send`; a process
/// has one store, so it need not be usable as `dyn`.
pub trait Store: Send + Sync + 'static {
    /// Returns the current state, including changes by other processes.
    fn snapshot(&self) -> impl Future<Output = Result<RegistrySnapshot, StoreUnavailable>> + Send;

    /// Applies these changes in order, all or none, and returns once they are durable. With `expect`, only if the
    /// registry is still at that revision. After a crash in between, an entry has its old or its new value.
    fn commit(
        &self,
        expect: Option<Revision>,
        ops: Vec<EntryOp>,
    ) -> impl Future<Output = Result<RegistrySnapshot, CommitError>> + Send;

    /// Notifies of the newest revision, at least once for the last of several changes. Intermediate revisions may be
    /// skipped, because receivers take a snapshot anyway.
    fn watch(&self) -> watch::Receiver<Revision>;
}
