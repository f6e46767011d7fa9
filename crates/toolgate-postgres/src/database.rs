//! The database of a cluster: its connections, the shared texts as they were last seen, and the other replicas.
//!
//! A thread of its own has the connections, so that callers that block and callers that wait use them alike. It reads changes
//! when a notification arrives, and every half second. Invariants: reading a shared text never waits; a text
//! is never replaced by an older one; while the database is away, everything stays as it was last seen.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_postgres::types::Type;
use toolgate_store::cluster::{ClusterStatus, Replica};
use toolgate_store::store::RegistrySources;

use crate::connection::{ConnectTarget, Connection};
use crate::registry::{SERVERS, TOOLS};
use crate::replicas::{self, ReplicaIdentity};
use crate::saved_copy::SavedCopy;
use crate::schema;
use crate::tls::MakeTls;

/// Time for a statement of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for a change, or for reading texts: they may have megabytes.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for the name of a replica to become free: longer than a killed one counts as live.
const NAME_TIMEOUT: Duration = Duration::from_secs(6);
/// Interval of writing the copy of the shared texts.
const COPY_INTERVAL: Duration = Duration::from_secs(1);
/// Time for a statement of the poll.
const POLL_TIMEOUT: Duration = Duration::from_secs(4);
/// Time to reach the database at startup.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// The same if there is a copy to start from.
const START_TIMEOUT_WITH_COPY: Duration = Duration::from_secs(3);
/// Time to tell the others that this replica stops.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of the checks for changes; notifications come earlier.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of the removal of expired rows.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);

/// The database cannot be used, or refused a statement.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DatabaseError {
    #[error("`cluster.database` is not a connection string of PostgreSQL: {0}")]
    Url(String),
    #[error("cannot read the certificates of `cluster.ca`: {0}")]
    Certificates(String),
    #[error("the database of the cluster is unavailable: {0}")]
    Unavailable(String),
    #[error("the tables of the cluster cannot be created: {0}")]
    Schema(String),
    /// A later version of Toolgate has changed the tables.
    #[error("the tables of the cluster have version {version}; this version of Toolgate knows version {own}")]
    Newer { version: i32, own: i32 },
    #[error("a replica named `{0}` is running already")]
    NameTaken(String),
    /// The state is not the expected one.
    #[error("another replica has changed it meanwhile")]
    Conflict,
    #[error("the database refused a statement: {0}")]
    Statement(String),
}

impl DatabaseError {
    /// Returns a suggested fix.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Url(_) => "write it as `postgres://USER:PASSWORD@HOST/DATABASE`; HOST may be a list",
            Self::Certificates(_) => "name a PEM file with the certificate of the authority",
            Self::Unavailable(_) => "check that it runs, that it can be reached from here, and its log",
            Self::Schema(_) => {
                "give the user the right to create a schema: `GRANT CREATE ON DATABASE … TO …`"
            }
            Self::Newer { .. } => "start the newer version of Toolgate",
            Self::NameTaken(_) => {
                "give each replica its own `cluster.name`; a stopped one frees it within 3 s"
            }
            Self::Conflict => "try again",
            Self::Statement(_) => "check the log of the database",
        }
    }
}

impl From<DatabaseError> for io::Error {
    fn from(error: DatabaseError) -> Self {
        Self::other(error)
    }
}

/// Connection and identity of a replica.
#[derive(Debug, Clone)]
pub struct DatabaseOptions {
    /// Connection string, with several hosts if there are standbys.
    pub url: String,
    /// File with the certificate authorities. Without it, those of the system.
    pub authorities: Option<PathBuf>,
    pub identity: ReplicaIdentity,
    /// Age of unreachable texts at that credentials in them do not count any more.
    pub stale_after: Duration,
    /// Folder for a private copy of the shared texts, to start without the database.
    pub copy_folder: Option<PathBuf>,
    /// True for a command that is no replica.
    pub observes: bool,
}

/// A text to commit.
#[derive(Debug, Clone)]
pub(crate) struct NewDocument {
    pub(crate) name: &'static str,
    /// Version that it must still have. 0 for a new one.
    pub(crate) expected: i64,
    pub(crate) body: Arc<str>,
}

/// A shared text as it was last seen.
pub(crate) type SeenDocument = (i64, Arc<str>);

#[derive(Default)]
pub(crate) struct SharedState {
    pub(crate) documents: BTreeMap<String, SeenDocument>,
    pub(crate) replicas: Vec<Replica>,
    away_since: Option<Instant>,
    reason: Option<String>,
    /// The last time everything was read. `None` before the first.
    seen_at: Option<Instant>,
    name_taken: bool,
    /// True if a text or the set of replicas has changed since the copy was written.
    is_copy_old: bool,
    /// The last announcement.
    announced: Option<(Instant, ReplicaIdentity)>,
}

pub(crate) struct DatabaseInner {
    /// For statements of calls: short ones, with short locks.
    pub(crate) calls: Arc<Connection>,
    /// For changes and large texts.
    pub(crate) changes: Arc<Connection>,
    /// For polling, so that nothing delays it.
    polls: Arc<Connection>,
    pub(crate) state: Mutex<SharedState>,
    pub(crate) identity: Mutex<ReplicaIdentity>,
    /// Counts changes of texts and replicas.
    changed: watch::Sender<u64>,
    drain: watch::Sender<bool>,
    wake: Notify,
    stale_after: Duration,
    copy: Option<SavedCopy>,
    is_schema_ready: AtomicBool,
    has_left: AtomicBool,
    handle: Handle,
}

/// The database of a cluster. Its thread ends when the last clone is dropped.
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<DatabaseInner>,
    /// Ends the thread when it is dropped.
    _stop: Arc<oneshot::Sender<()>>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Database")
    }
}

impl Database {
    /// Connects, creates missing tables, and reads the shared texts. Without the database, starts from the last copy.
    /// Blocks.
    ///
    /// # Errors
    /// If the database cannot be used and there is no copy, or a replica of this name runs already.
    pub fn start(options: DatabaseOptions) -> Result<Self, DatabaseError> {
        let DatabaseOptions { url, authorities, identity, stale_after, copy_folder, observes } = options;
        let tls = MakeTls::new(authorities.as_deref())
            .map_err(|error| DatabaseError::Certificates(error.to_string()))?;
        let target = ConnectTarget::new(&url, &format!("toolgate {}", identity.name), tls)?;
        let copy = copy_folder.map(SavedCopy::new);
        let mut state = SharedState::default();
        if let Some((documents, replicas)) = copy.as_ref().and_then(SavedCopy::read) {
            (state.documents, state.replicas) = (documents, replicas);
        }
        let has_copy = !state.documents.is_empty();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| DatabaseError::Unavailable(error.to_string()))?;
        let inner = Arc::new(DatabaseInner {
            calls: Connection::new(CALL_TIMEOUT),
            changes: Connection::new(CHANGE_TIMEOUT),
            polls: Connection::new(POLL_TIMEOUT),
            state: Mutex::new(state),
            identity: Mutex::new(identity),
            changed: watch::Sender::new(0),
            drain: watch::Sender::new(false),
            wake: Notify::new(),
            stale_after,
            copy,
            is_schema_ready: AtomicBool::new(false),
            has_left: AtomicBool::new(observes),
            handle: runtime.handle().clone(),
        });
        let (stop, stopped) = oneshot::channel();
        let of_thread = Arc::clone(&inner);
        let (started, first) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("database".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = of_thread.run(target, has_copy, started) => {}
                        _ = stopped => {}
                    }
                });
            })
            .map_err(|error| DatabaseError::Unavailable(error.to_string()))?;
        let database = Self { inner, _stop: Arc::new(stop) };
        match blocking(|| first.recv()) {
            Ok(Ok(())) => Ok(database),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(DatabaseError::Unavailable("its thread ended".to_owned())),
        }
    }

    /// Notifies of changes of the texts and of the replicas.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Notifies of a request to drain this replica.
    pub fn drain_requests(&self) -> watch::Receiver<bool> {
        self.inner.drain.subscribe()
    }

    pub fn status(&self) -> ClusterStatus {
        let name = self.inner.identity.lock().name.clone();
        let state = self.inner.state.lock();
        ClusterStatus {
            name,
            away_for: state.away_since.map(|since| since.elapsed()),
            reason: state.reason.clone().filter(|_| state.away_since.is_some()),
            replicas: state.replicas.clone(),
            name_taken: state.name_taken,
        }
    }

    /// Sets the facts that this replica announces, so that the others can compare them with theirs.
    pub fn announce(&self, update: impl FnOnce(&mut ReplicaIdentity)) {
        update(&mut self.inner.identity.lock());
        self.inner.wake.notify_one();
    }

    /// Tells the others that this replica stops. It announces itself no more.
    pub async fn leave(&self) {
        self.inner.has_left.store(true, Ordering::Relaxed);
        let identity = self.inner.identity.lock().clone();
        let _ = timeout(LEAVE_TIMEOUT, identity.remove(&self.inner.changes)).await;
    }

    /// Asks a replica to drain. Returns false if there is none of this name.
    ///
    /// # Errors
    /// If the database is unavailable.
    pub async fn request_drain(&self, name: &str) -> Result<bool, DatabaseError> {
        let sql = "UPDATE toolgate.replicas SET drain = true WHERE name = $1 RETURNING pg_notify('toolgate', '')::text";
        let rows = self.inner.changes.query(sql, &[(&name, Type::TEXT)]).await?;
        Ok(!rows.is_empty())
    }

    /// Stores the first registry of a cluster. Returns false if there is one already.
    ///
    /// # Errors
    /// If the database is unavailable.
    pub async fn import_registry(
        &self,
        tools: Option<Arc<str>>,
        servers: Option<Arc<str>>,
    ) -> Result<bool, DatabaseError> {
        if !self.fetch(&[TOOLS, SERVERS]).await?.is_empty() {
            return Ok(false);
        }
        let texts = [(TOOLS, tools), (SERVERS, servers)].into_iter();
        let new = texts.filter_map(|(name, body)| Some(NewDocument { name, expected: 0, body: body? }));
        match self.commit(new.collect()).await {
            // Another replica was faster.
            Err(DatabaseError::Conflict) => Ok(false),
            committed => committed.map(|()| true),
        }
    }

    /// Replaces the registry in any state.
    ///
    /// # Errors
    /// If the database is unavailable, or a replica changes the registry meanwhile.
    pub async fn replace_registry(
        &self,
        tools: Option<Arc<str>>,
        servers: Option<Arc<str>>,
    ) -> Result<(), DatabaseError> {
        let known = self.fetch(&[TOOLS, SERVERS]).await?;
        let version = |name| known.get(name).map_or(0, |(version, _)| *version);
        let texts = [(TOOLS, tools), (SERVERS, servers)].into_iter();
        let new =
            texts.filter_map(|(name, body)| Some(NewDocument { name, expected: version(name), body: body? }));
        self.commit(new.collect()).await
    }

    /// Returns the texts of the registry as they were last seen.
    pub fn registry(&self) -> RegistrySources {
        let state = self.inner.state.lock();
        let text = |name: &str| state.documents.get(name).map(|(_, body)| Arc::clone(body));
        RegistrySources { tools: text(TOOLS), servers: text(SERVERS) }
    }

    /// Returns the version and the text of a document as it is in the database now.
    pub(crate) async fn fetch(&self, names: &[&str]) -> Result<HashMap<String, SeenDocument>, DatabaseError> {
        self.inner.refresh(names).await?;
        let state = self.inner.state.lock();
        let known = |name: &&str| Some(((*name).to_owned(), state.documents.get(*name)?.clone()));
        Ok(names.iter().filter_map(known).collect())
    }

    /// Commits texts, all or none.
    ///
    /// # Errors
    /// [`DatabaseError::Conflict`] if one does not have the expected version.
    pub(crate) async fn commit(&self, documents: Vec<NewDocument>) -> Result<(), DatabaseError> {
        self.inner.commit(documents).await
    }

    /// Runs work on the thread of the database and waits for it. For callers that block.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, DatabaseError>> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.inner.handle.spawn(async move {
            let _ = sender.send(work.await);
        });
        let ended = || DatabaseError::Unavailable("its thread ended".to_owned());
        blocking(|| receiver.recv()).unwrap_or_else(|_| Err(ended()))
    }

    /// Returns true if the texts may be outdated for so long that credentials in them do not count any more.
    pub fn is_stale(&self) -> bool {
        let state = self.inner.state.lock();
        state.away_since.is_some() && state.seen_at.is_none_or(|at| at.elapsed() > self.inner.stale_after)
    }

    pub(crate) fn is_away(&self) -> bool {
        self.inner.state.lock().away_since.is_some()
    }
}

/// Blocks a thread, without blocking the tasks of a runtime.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}

impl DatabaseInner {
    /// Keeps the connections and follows the database. Sends once whether the start succeeded.
    async fn run(
        self: &Arc<Self>,
        target: ConnectTarget,
        has_copy: bool,
        started: std::sync::mpsc::SyncSender<Result<(), DatabaseError>>,
    ) {
        let follow = async {
            let limit = if has_copy { START_TIMEOUT_WITH_COPY } else { START_TIMEOUT };
            let mut first = self.first_exchange(limit).await;
            if has_copy && matches!(first, Err(DatabaseError::Unavailable(_))) {
                first = Ok(());
            }
            let failed = first.is_err();
            let _ = started.send(first);
            if !failed {
                self.follow().await;
            }
        };
        let wake = || self.wake.notify_one();
        tokio::select! {
            () = follow => {}
            never = self.calls.run(target.clone(), false, || {}) => match never {},
            never = self.changes.run(target.clone(), false, || {}) => match never {},
            never = self.polls.run(target.clone(), true, wake) => match never {},
        }
    }

    async fn first_exchange(&self, limit: Duration) -> Result<(), DatabaseError> {
        let started = Instant::now();
        loop {
            let exchanged = match self.polls.wait(limit.saturating_sub(started.elapsed())).await {
                Ok(()) => self.exchange().await,
                Err(error) => Err(error),
            };
            match exchanged {
                // A stopped replica frees its name soon.
                Err(DatabaseError::NameTaken(_)) if started.elapsed() < NAME_TIMEOUT => {
                    tokio::time::sleep(POLL_INTERVAL / 4).await;
                }
                Err(DatabaseError::Unavailable(_)) if started.elapsed() < limit => {
                    tokio::time::sleep(POLL_INTERVAL / 4).await;
                }
                exchanged => {
                    self.note(&exchanged);
                    // Calls and changes need their connections, too.
                    if exchanged.is_ok() {
                        self.calls.wait(limit).await?;
                        self.changes.wait(limit).await?;
                    }
                    return exchanged;
                }
            }
        }
    }

    async fn follow(&self) {
        let mut cleaned = Instant::now();
        let mut copied: Option<Instant> = None;
        loop {
            // A notification arrives before the poll is due.
            let _ = timeout(POLL_INTERVAL, self.wake.notified()).await;
            let exchanged = self.exchange().await;
            self.note(&exchanged);
            if copied.is_none_or(|at| at.elapsed() >= COPY_INTERVAL) && self.write_copy() {
                copied = Some(Instant::now());
            }
            if cleaned.elapsed() >= CLEANUP_INTERVAL {
                cleaned = Instant::now();
                self.remove_expired().await;
            }
        }
    }

    /// Notes the outcome of an exchange.
    fn note(&self, exchanged: &Result<(), DatabaseError>) {
        let mut state = self.state.lock();
        let was_away = state.away_since.is_some();
        match exchanged {
            Ok(()) => (state.away_since, state.reason, state.seen_at) = (None, None, Some(Instant::now())),
            Err(DatabaseError::NameTaken(_)) => {}
            Err(error) => {
                if state.away_since.is_none() {
                    tracing::warn!("{error}");
                }
                state.away_since.get_or_insert_with(Instant::now);
                state.reason = Some(error.to_string());
            }
        }
        let is_away = state.away_since.is_some();
        drop(state);
        if was_away != is_away {
            if !is_away {
                tracing::info!("the database of the cluster is available again");
            }
            self.changed.send_modify(|number| *number += 1);
        }
    }

    /// Reads changed texts and, unless that was done just now, announces this replica and reads the others.
    async fn exchange(&self) -> Result<(), DatabaseError> {
        if !self.is_schema_ready.load(Ordering::Relaxed) {
            // Nothing else uses the connection: the migrations are one transaction of several statements.
            let client = self.polls.client()?;
            schema::migrate(&client).await?;
            self.is_schema_ready.store(true, Ordering::Relaxed);
        }
        let identity = self.identity.lock().clone();
        let is_announced = {
            let state = self.state.lock();
            let is_recent = |(at, known): &(Instant, ReplicaIdentity)| {
                at.elapsed() < POLL_INTERVAL.mul_f64(0.8) && *known == identity
            };
            state.announced.as_ref().is_some_and(is_recent)
        };
        // A burst of notifications is about the texts.
        if is_announced { self.read_changed(&self.polls, None).await } else { self.announce(identity).await }
    }

    /// Announces this replica, reads the others, and reads changed texts.
    async fn announce(&self, identity: ReplicaIdentity) -> Result<(), DatabaseError> {
        let name = identity.name.clone();
        let announced = if self.has_left.load(Ordering::Relaxed) {
            Ok(false)
        } else {
            identity.announce(&self.polls).await
        };
        let (drain, taken) = match announced {
            Ok(drain) => (drain, false),
            Err(DatabaseError::NameTaken(_)) => (false, true),
            Err(error) => return Err(error),
        };
        let replicas = replicas::list(&self.polls).await?;
        let has_new = {
            let mut state = self.state.lock();
            let facts = |replicas: &[Replica]| -> Vec<_> {
                let fact =
                    |one: &Replica| (one.name.clone(), one.live, one.config.clone(), one.policy.clone());
                replicas.iter().map(fact).collect()
            };
            let differs = facts(&state.replicas) != facts(&replicas) || state.name_taken != taken;
            state.replicas = replicas;
            state.name_taken = taken;
            state.is_copy_old |= differs;
            if !taken {
                state.announced = Some((Instant::now(), identity));
            }
            differs
        };
        if has_new {
            self.changed.send_modify(|number| *number += 1);
        }
        if drain {
            self.drain.send_if_modified(|requested| !std::mem::replace(requested, true));
        }
        self.read_changed(&self.polls, None).await?;
        if taken { Err(DatabaseError::NameTaken(name)) } else { Ok(()) }
    }

    /// Reads these texts if they have changed.
    async fn refresh(&self, names: &[&str]) -> Result<(), DatabaseError> {
        self.read_changed(&self.changes, Some(names)).await
    }

    async fn read_changed(
        &self,
        connection: &Connection,
        only: Option<&[&str]>,
    ) -> Result<(), DatabaseError> {
        let rows = match only {
            None => connection.query("SELECT name, version FROM toolgate.documents", &[]).await?,
            Some(names) => {
                let sql = "SELECT name, version FROM toolgate.documents WHERE name = ANY ($1)";
                connection.query(sql, &[(&names, Type::TEXT_ARRAY)]).await?
            }
        };
        let newer: Vec<String> = {
            let state = self.state.lock();
            let is_newer = |name: &String, version: i64| {
                state.documents.get(name).is_none_or(|(known, _)| *known < version)
            };
            rows.iter()
                .map(|row| (row.get::<_, String>(0), row.get(1)))
                .filter(|(name, version)| is_newer(name, *version))
                .map(|(name, _)| name)
                .collect()
        };
        if newer.is_empty() {
            return Ok(());
        }
        let sql = "SELECT name, version, body FROM toolgate.documents WHERE name = ANY ($1)";
        let rows = connection.query(sql, &[(&newer, Type::TEXT_ARRAY)]).await?;
        let read = rows.iter().map(|row| (row.get(0), row.get(1), Arc::from(row.get::<_, &str>(2))));
        self.keep(read.collect());
        Ok(())
    }

    /// Remembers texts, unless newer ones are known.
    fn keep(&self, read: Vec<(String, i64, Arc<str>)>) {
        let mut has_new = false;
        let mut state = self.state.lock();
        for (name, version, body) in read {
            if state.documents.get(&name).is_none_or(|(known, _)| *known < version) {
                state.documents.insert(name, (version, body));
                has_new = true;
            }
        }
        state.is_copy_old |= has_new;
        drop(state);
        if has_new {
            self.changed.send_modify(|number| *number += 1);
        }
    }

    /// Writes the copy of the shared texts if they have changed. Returns true if it was written.
    fn write_copy(&self) -> bool {
        let Some(saved) = &self.copy else { return false };
        let (documents, replicas) = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.is_copy_old) {
                return false;
            }
            (state.documents.clone(), state.replicas.clone())
        };
        if let Err(error) = saved.write(&documents, &replicas) {
            tracing::warn!("the copy of the shared state is not stored: {error}");
        }
        true
    }

    async fn commit(&self, mut documents: Vec<NewDocument>) -> Result<(), DatabaseError> {
        if documents.is_empty() {
            return Ok(());
        }
        documents.sort_by_key(|document| document.name);
        let names: Vec<&str> = documents.iter().map(|document| document.name).collect();
        let expected: Vec<i64> = documents.iter().map(|document| document.expected).collect();
        let bodies: Vec<&str> = documents.iter().map(|document| &*document.body).collect();
        let replica = self.identity.lock().name.clone();
        let sql = "SELECT toolgate.commit_documents($1, $2, $3, $4)";
        let rows = self
            .changes
            .query(
                sql,
                &[
                    (&names, Type::TEXT_ARRAY),
                    (&expected, Type::INT8_ARRAY),
                    (&bodies, Type::TEXT_ARRAY),
                    (&replica, Type::TEXT),
                ],
            )
            .await?;
        let versions: Vec<i64> = rows.first().map(|row| row.get(0)).unwrap_or_default();
        let new = documents.iter().zip(versions);
        self.keep(
            new.map(|(document, version)| (document.name.to_owned(), version, Arc::clone(&document.body)))
                .collect(),
        );
        Ok(())
    }

    /// Removes rows that count no more. Rows that are in use by another statement wait for the next time.
    async fn remove_expired(&self) {
        for (table, key) in [("admissions", "key"), ("taints", "(caller, session)")] {
            let columns = key.trim_matches(['(', ')']);
            let sql = format!(
                "DELETE FROM toolgate.{table} WHERE {key} IN (SELECT {columns} FROM toolgate.{table} \
                 WHERE until < now() ORDER BY {columns} LIMIT 10000 FOR UPDATE SKIP LOCKED)"
            );
            if let Err(error) = self.polls.query(&sql, &[]).await {
                tracing::debug!("expired rows stay: {error}");
            }
        }
    }
}
