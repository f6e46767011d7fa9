//! The registry of tools and servers as two shared texts.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use toolgate_store::document::{DocumentError, EntryError, EntryKind, EntryOp, RegistryDocument};
use toolgate_store::store::{
    CommitError, RegistryDocuments, RegistrySnapshot, RegistrySources, Revision, Store, StoreUnavailable,
};

use crate::database::{Database, DatabaseError, NewDocument, SeenDocument};
use crate::limits::unavailable;

/// Names of the texts: those of `tools.json` and of `mcp.json`.
pub(crate) const TOOLS: &str = "tools";
pub(crate) const SERVERS: &str = "servers";
/// Attempts of a change without an expected revision against changes by other replicas.
const MAX_ATTEMPTS: usize = 32;

/// The registry of a cluster.
pub struct RegistryStore {
    database: Database,
    /// The files that the project has. A change of another one is refused.
    kinds: [bool; 2],
    parsed: Mutex<Option<ParsedRegistry>>,
    newest: Arc<watch::Sender<Revision>>,
    /// Follows the texts; ends with the store.
    _watcher: JoinSet<()>,
}

/// The texts of some versions, parsed.
#[derive(Clone)]
struct ParsedRegistry {
    versions: [i64; 2],
    snapshot: RegistrySnapshot,
}

impl RegistryStore {
    /// Opens the registry. The flags tell if the project has a file of tools, and one of servers.
    pub fn open(database: Database, tools: bool, servers: bool) -> Self {
        let newest = Arc::new(watch::Sender::new(revision_of(&seen(&database))));
        let mut watcher = JoinSet::new();
        let (following, sender) = (database.clone(), Arc::clone(&newest));
        let mut changes = database.changes();
        watcher.spawn(async move {
            let mut known = versions_of(&seen(&following));
            while changes.changed().await.is_ok() {
                let texts = seen(&following);
                if versions_of(&texts) != known {
                    known = versions_of(&texts);
                    sender.send_if_modified(|newest| {
                        let now = revision_of(&texts);
                        std::mem::replace(newest, now) != now
                    });
                }
            }
        });
        Self { database, kinds: [tools, servers], parsed: Mutex::default(), newest, _watcher: watcher }
    }

    /// Parses the texts as they were last seen, unless that was done before.
    fn parse(&self) -> ParsedRegistry {
        let texts = seen(&self.database);
        let versions = versions_of(&texts);
        if let Some(parsed) = &*self.parsed.lock()
            && parsed.versions == versions
        {
            return parsed.clone();
        }
        let cut = |at: usize, kind: EntryKind| -> Result<Option<RegistryDocument>, DocumentError> {
            if !self.kinds[at] {
                return Ok(None);
            }
            let text = texts[at].as_ref().map(|(_, body)| Arc::clone(body));
            let text = text.unwrap_or_else(|| RegistryDocument::empty_text(kind).into());
            RegistryDocument::parse(kind, &text).map(Some)
        };
        let documents = cut(0, EntryKind::Tool)
            .and_then(|tools| Ok(RegistryDocuments { tools, servers: cut(1, EntryKind::Server)? }));
        let rev = revision_of(&texts);
        let [tools, servers] = texts.map(|text| text.map(|(_, body)| body));
        let snapshot = RegistrySnapshot { rev, texts: RegistrySources { tools, servers }, documents };
        let parsed = ParsedRegistry { versions, snapshot };
        *self.parsed.lock() = Some(parsed.clone());
        parsed
    }

    fn publish(&self, rev: Revision) {
        self.newest.send_if_modified(|newest| std::mem::replace(newest, rev) != rev);
    }

    async fn try_commit(
        &self,
        expect: Option<Revision>,
        ops: &[EntryOp],
    ) -> Result<RegistrySnapshot, TryCommitError> {
        self.database.fetch(&[TOOLS, SERVERS]).await?;
        let ParsedRegistry { versions, snapshot } = self.parse();
        let current = snapshot.rev;
        if expect.is_some_and(|expect| expect != current) {
            return Err(CommitError::Conflict { current }.into());
        }
        let mut documents = snapshot.documents.map_err(EntryError::File).map_err(CommitError::from)?;
        for op in ops {
            documents.apply(op).map_err(CommitError::from)?;
        }
        let mut new = Vec::new();
        let mut texts = snapshot.texts;
        for (at, name, kind) in [(0, TOOLS, EntryKind::Tool), (1, SERVERS, EntryKind::Server)] {
            if ops.iter().any(|op| op.kind == kind)
                && let Some(document) = documents.get(kind)
            {
                let body: Arc<str> = document.text().into();
                let text = if at == 0 { &mut texts.tools } else { &mut texts.servers };
                *text = Some(Arc::clone(&body));
                new.push(NewDocument { name, expected: versions[at], body });
            }
        }
        self.database.commit(new).await?;
        let contents = [texts.tools.as_deref(), texts.servers.as_deref()].map(|text| text.map(str::as_bytes));
        let rev = Revision::of_contents(contents);
        self.publish(rev);
        Ok(RegistrySnapshot { rev, texts, documents: Ok(documents) })
    }
}

/// Failure of one attempt to commit.
enum TryCommitError {
    Database(DatabaseError),
    Commit(CommitError),
}

impl From<DatabaseError> for TryCommitError {
    fn from(error: DatabaseError) -> Self {
        Self::Database(error)
    }
}

impl From<CommitError> for TryCommitError {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl Store for RegistryStore {
    /// Returns the last known state if the database is unavailable: it is the one in use.
    async fn snapshot(&self) -> Result<RegistrySnapshot, StoreUnavailable> {
        match self.database.fetch(&[TOOLS, SERVERS]).await {
            Ok(_) | Err(DatabaseError::Unavailable(_)) => {}
            Err(error) => return Err(unavailable(error)),
        }
        let snapshot = self.parse().snapshot;
        self.publish(snapshot.rev);
        Ok(snapshot)
    }

    async fn commit(
        &self,
        expect: Option<Revision>,
        ops: Vec<EntryOp>,
    ) -> Result<RegistrySnapshot, CommitError> {
        for _ in 0..MAX_ATTEMPTS {
            match self.try_commit(expect, &ops).await {
                Ok(snapshot) => return Ok(snapshot),
                // Another replica was faster. With an expected revision, the next attempt reports that.
                Err(TryCommitError::Database(DatabaseError::Conflict)) => {}
                Err(TryCommitError::Database(error)) => return Err(unavailable(error).into()),
                Err(TryCommitError::Commit(error)) => return Err(error),
            }
        }
        Err(unavailable(DatabaseError::Conflict).into())
    }

    fn watch(&self) -> watch::Receiver<Revision> {
        self.newest.subscribe()
    }
}

fn seen(database: &Database) -> [Option<SeenDocument>; 2] {
    let state = database.inner.state.lock();
    [TOOLS, SERVERS].map(|name| state.documents.get(name).cloned())
}

fn versions_of(texts: &[Option<SeenDocument>; 2]) -> [i64; 2] {
    [0, 1].map(|at: usize| texts[at].as_ref().map_or(0, |(version, _)| *version))
}

fn revision_of(texts: &[Option<SeenDocument>; 2]) -> Revision {
    Revision::of_contents([0, 1].map(|at: usize| texts[at].as_ref().map(|(_, body)| body.as_bytes())))
}
