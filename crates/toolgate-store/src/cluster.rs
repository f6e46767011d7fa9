//! State that the replicas of a cluster share, besides the registry and the callers.
//!
//! [`DocumentStore`] has texts that few changes reach, [`TokenLeases`] the admissions of limits, [`TaintStore`] the
//! sessions that untrusted content has reached. `toolgate-postgres` implements them. A single gateway uses none of them.
//! Invariant: an acknowledged change is durable, and every replica decides by it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use toolgate_types::tool::RateLimit;

use crate::callers::{CallerRecords, CallerStore, KeyError, StoreStamp};
use crate::credentials::SealingKey;
use crate::store::StoreUnavailable;

/// Result of editing a document: its new text, or `None` if nothing has to be written.
pub type EditedDocument = io::Result<Option<String>>;

/// Named texts that all replicas share.
pub trait DocumentStore: fmt::Debug + Send + Sync {
    /// Returns the last known text. Does not wait: the texts are followed in the background.
    fn read(&self, name: &str) -> Option<Arc<str>>;

    /// Replaces a text by the result of `edit` on the newest one. `edit` runs again if another replica changed the text
    /// meanwhile. The new text is durable when this returns. Blocks.
    ///
    /// # Errors
    /// That of `edit`, or of the store.
    fn update(&self, name: &str, edit: &mut dyn FnMut(Option<&str>) -> EditedDocument) -> io::Result<()>;

    /// Identifies the last known text, without reading it.
    fn stamp(&self, name: &str) -> StoreStamp;

    /// Returns true if the texts may be outdated for so long that credentials in them do not count any more.
    fn is_stale(&self) -> bool;
}

/// Name of the document with the callers and their keys.
const CALLERS: &str = "callers";

/// The stored callers of a cluster.
#[derive(Debug, Clone)]
pub struct CallerDocument(Arc<dyn DocumentStore>);

impl CallerDocument {
    pub fn new(documents: Arc<dyn DocumentStore>) -> Self {
        Self(documents)
    }

    fn parse(text: Option<&str>) -> io::Result<CallerRecords> {
        Ok(text.map(serde_json::from_str).transpose()?.unwrap_or_default())
    }
}

impl CallerStore for CallerDocument {
    fn read(&self) -> Result<CallerRecords, KeyError> {
        Ok(Self::parse(self.0.read(CALLERS).as_deref())?)
    }

    fn update(
        &self,
        change: &mut dyn FnMut(&mut CallerRecords) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        let mut rejected = None;
        let updated = self.0.update(CALLERS, &mut |text| {
            let before = Self::parse(text)?;
            let mut records = before.clone();
            if let Err(error) = change(&mut records) {
                rejected = Some(error);
                return Ok(None);
            }
            rejected = None;
            if records == before { Ok(None) } else { Ok(Some(serde_json::to_string(&records)?)) }
        });
        match rejected {
            Some(error) => Err(error),
            None => Ok(updated?),
        }
    }

    fn stamp(&self) -> StoreStamp {
        self.0.stamp(CALLERS)
    }

    fn is_stale(&self) -> bool {
        self.0.is_stale()
    }
}

/// Answer to a request for tokens of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenLease {
    /// This many calls may start, at least one.
    Granted(u32),
    /// The limit is used up; time until a call is allowed again.
    Wait(Duration),
}

/// A request for tokens of a limit.
#[derive(Debug, Clone, Copy)]
pub struct TokenRequest<'a> {
    /// Limit and key, such as a tool and a caller.
    pub key: &'a str,
    /// Number of calls that are wanted; fewer may be granted.
    pub want: u32,
    pub limit: RateLimit,
    /// Time that the tokens may be kept before they are used. They count for that much longer.
    pub hold: Duration,
}

/// Admissions of limits that hold for all replicas together.
pub trait TokenLeases: fmt::Debug + Send + Sync {
    /// Takes tokens. In no window of the limit, wherever it starts, are more granted than the limit.
    fn take<'a>(&'a self, request: TokenRequest<'a>) -> BoxFuture<'a, Result<TokenLease, StoreUnavailable>>;

    /// Returns the part of a limit that belongs to this replica while the store is unavailable. The parts of all
    /// replicas add up to the limit.
    fn share(&self, limit: u32) -> u32;
}

/// The sessions that untrusted content has reached.
pub trait TaintStore: fmt::Debug + Send + Sync {
    /// Marks a session as tainted for some time; without one, the caller. Durable when this returns.
    fn insert<'a>(
        &'a self,
        caller: &'a str,
        session: Option<&'a str>,
        lasting: Duration,
    ) -> BoxFuture<'a, Result<(), StoreUnavailable>>;

    /// Returns true if the session is tainted, or the caller if there is no session.
    fn contains<'a>(
        &'a self,
        caller: &'a str,
        session: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, StoreUnavailable>>;
}

/// A replica, as the database knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replica {
    pub name: String,
    /// Version of Toolgate.
    pub version: String,
    /// Hash of the configuration in use, without the shared parts.
    pub config: String,
    /// Version of the policy in use.
    pub policy: String,
    /// Revision of the registry in use.
    pub registry: String,
    /// Seconds since it started.
    pub up_seconds: i64,
    /// Milliseconds since it was last heard of.
    pub seen_ms_ago: i64,
    /// False if nothing was heard of it for some seconds.
    pub live: bool,
    /// True if it was asked to drain.
    pub drain: bool,
}

/// The cluster as one replica sees it.
#[derive(Debug, Clone)]
pub struct ClusterStatus {
    /// Name of this replica.
    pub name: String,
    /// Time since the last exchange with the database, if it is unavailable.
    pub away_for: Option<Duration>,
    /// The reason, if it is unavailable.
    pub reason: Option<String>,
    /// All replicas of the last day, by name.
    pub replicas: Vec<Replica>,
    /// True if another process has the name of this replica.
    pub name_taken: bool,
}

impl ClusterStatus {
    /// Returns the names of live replicas that decide by another configuration or policy than this one.
    pub fn disagreeing(&self) -> Vec<&str> {
        let Some(own) = self.replicas.iter().find(|replica| replica.name == self.name) else {
            return Vec::new();
        };
        let differs =
            |other: &&Replica| other.live && (&other.config, &other.policy) != (&own.config, &own.policy);
        self.replicas.iter().filter(differs).map(|other| other.name.as_str()).collect()
    }
}

/// The replicas of a cluster.
pub trait ClusterMembers: fmt::Debug + Send + Sync {
    fn status(&self) -> ClusterStatus;
}

/// All of them, for the parts of a gateway that share state.
#[derive(Debug, Clone)]
pub struct ClusterStores {
    pub documents: Arc<dyn DocumentStore>,
    pub limits: Arc<dyn TokenLeases>,
    pub taint: Arc<dyn TaintStore>,
    pub members: Arc<dyn ClusterMembers>,
}

/// Encrypts texts that only replicas may read, with a key derived from `cluster.secret`.
#[derive(Clone)]
pub struct ClusterSecret(Arc<SealingKey>);

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret")
    }
}

impl ClusterSecret {
    /// Derives the key. The secret has at least 32 random characters.
    pub fn new(secret: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let derived = hmac::sign(&key, b"toolgate cluster: sealing");
        let bytes = derived.as_ref().try_into().expect("SHA-256 has 32 bytes");
        Self(Arc::new(SealingKey::new(bytes)))
    }

    /// Encrypts a text under a name. The name is authenticated.
    pub fn seal(&self, name: &str, text: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.0.seal(name, text))
    }

    /// Returns the text; `None` if it was sealed with another secret or under another name.
    pub fn open(&self, name: &str, sealed: &str) -> Option<Vec<u8>> {
        self.0.open(name, &URL_SAFE_NO_PAD.decode(sealed).ok()?)
    }
}

#[test]
fn a_secret_opens_only_its_own_texts() {
    let (one, other) =
        (ClusterSecret::new("one secret of the cluster"), ClusterSecret::new("another secret"));
    let sealed = one.seal("a", b"text");
    assert_eq!(
        ClusterSecret::new("one secret of the cluster").open("a", &sealed).as_deref(),
        Some(&b"text"[..])
    );
    assert!(one.open("b", &sealed).is_none() && other.open("a", &sealed).is_none());
}

#[test]
fn names_the_replicas_that_disagree() {
    let replica = |name: &str, config: &str, live: bool| Replica {
        name: name.to_owned(),
        version: String::new(),
        config: config.to_owned(),
        policy: String::new(),
        registry: String::new(),
        up_seconds: 0,
        seen_ms_ago: 0,
        live,
        drain: false,
    };
    let replicas = vec![
        replica("a", "1", true),
        replica("b", "2", true),
        replica("c", "2", false),
        replica("d", "1", true),
    ];
    let status =
        ClusterStatus { name: "a".to_owned(), away_for: None, reason: None, replicas, name_taken: false };
    assert_eq!(status.disagreeing(), ["b"]);
}
