//! What a place for shared state must do, whatever it is made of.
//!
//! The queue in `registry` sits above it, so that ordering, group commit and hot reload are the same for
//! every backend; the contract is tested by one suite that all of them run. The record of calls is not
//! kept here: it has a door of its own in `toolgate-audit`, which is written to on every call and has its
//! own rules for durability.
//! Invariant: `Ok` from [`Store::commit`] means that the change survives a crash.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::document::{Document, DocumentError, Kind, Op, Unfit};

/// Which state of the registry: the same texts have the same revision, in every process and after every
/// restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rev(u64);

impl Rev {
    /// The revision of these texts.
    pub fn of(files: [Option<&[u8]>; 2]) -> Self {
        let mut hash = Sha256::new();
        for bytes in files {
            // A file that is not there is not an empty one.
            hash.update(bytes.map_or(u64::MAX, |bytes| bytes.len() as u64).to_le_bytes());
            hash.update(bytes.unwrap_or_default());
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        Self(u64::from_be_bytes(first))
    }
}

impl fmt::Display for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Rev {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that is not a revision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a revision: 16 digits of 0-9 and a-f are expected")]
pub struct NotRev(String);

impl std::str::FromStr for Rev {
    type Err = NotRev;

    fn from_str(text: &str) -> Result<Self, NotRev> {
        let right = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let value = right.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        value.map(Self).ok_or_else(|| NotRev(text.to_owned()))
    }
}

/// The registry as texts. `None`: there is no such file, or it is no text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// `tools.json`.
    pub tools: Option<Arc<str>>,
    /// `mcp.json`.
    pub servers: Option<Arc<str>>,
}

/// The registry by its entries. `None`: the project has no file for them.
#[derive(Debug, Clone)]
pub struct Documents {
    /// `tools.json`.
    pub tools: Option<Document>,
    /// `mcp.json`.
    pub servers: Option<Document>,
}

impl Documents {
    /// The file that holds entries of a kind.
    pub fn of(&self, kind: Kind) -> Option<&Document> {
        match kind {
            Kind::Tool => self.tools.as_ref(),
            Kind::Server => self.servers.as_ref(),
        }
    }

    /// Makes a change, or says why it does not fit.
    pub fn apply(&mut self, op: &Op) -> Result<(), Unfit> {
        let document = match op.kind {
            Kind::Tool => self.tools.as_mut(),
            Kind::Server => self.servers.as_mut(),
        };
        document.ok_or(DocumentError::NoFile)?.apply(&op.name, &op.act)
    }
}

/// The registry at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Which state it is.
    pub rev: Rev,
    /// As texts.
    pub texts: Texts,
    /// By its entries, or why it cannot be changed.
    pub documents: Result<Documents, DocumentError>,
}

/// The place cannot be read or written now.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the registry cannot be read or written")]
pub struct Unavailable(#[source] pub Arc<std::io::Error>);

impl From<std::io::Error> for Unavailable {
    fn from(error: std::io::Error) -> Self {
        Self(Arc::new(error))
    }
}

/// Why nothing was committed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// The state is another one than expected.
    #[error("the registry is at revision {current}")]
    Conflict {
        /// The state that it has.
        current: Rev,
    },
    /// A change does not fit what is there.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// The place failed. Nothing of the change is visible, unless the next [`Store::snapshot`] shows all of it.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// A right that only one holder has at a time. A later one has a greater number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// A place for shared state.
///
/// Its functions are `async` by hand, so that their futures are `Send`; there is one store in a process, so
/// nothing needs it as `dyn`.
pub trait Store: Send + Sync + 'static {
    /// The state as it is now, with what others have written.
    fn snapshot(&self) -> impl Future<Output = Result<Snapshot, Unavailable>> + Send;

    /// Makes these changes, in this order, all of them or none, and returns when they are safe. With `expect`
    /// only where nobody has changed anything since. After a crash on the way, an entry is as it was or as it
    /// was to be.
    fn commit(
        &self,
        expect: Option<Rev>,
        ops: Vec<Op>,
    ) -> impl Future<Output = Result<Snapshot, CommitError>> + Send;

    /// Tells the newest revision, at least once for the last of several changes. What it skips is of no
    /// interest: whoever is told takes a snapshot.
    fn watch(&self) -> watch::Receiver<Rev>;

    /// Takes up to so many calls out of an allowance that is shared with other processes.
    fn lease_tokens(&self, key: &str, want: u32) -> impl Future<Output = Result<u32, Unavailable>> + Send;

    /// Becomes the only holder of a name for some time.
    fn lease(&self, name: &str, ttl: Duration) -> impl Future<Output = Result<Fence, Unavailable>> + Send;
}
