//! The cluster of a gateway: connects to the database, and puts the shared state in the place of local files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};
use toolgate_config::{ClusterConfig, Config, RegistryPaths};
use toolgate_mcp::server::SessionKeys;
use toolgate_postgres::{Database, DatabaseError, DatabaseOptions, ReplicaIdentity};
use toolgate_store::cluster::{ClusterSecret, ClusterStatus, ClusterStores, DocumentStore};
use toolgate_store::store::RegistrySources;

use crate::project::StateFolder;
use crate::reload::settings;
use crate::session_keys::is_old;

/// Names of shared texts: a check of the secret, and the keys of sessions.
const SECRET_CHECK: &str = "cluster";
const SESSION_KEYS: &str = "session_keys";
/// Text whose encryption shows that the replicas have one secret.
const CHECKED_TEXT: &[u8] = b"toolgate cluster";

/// The cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("`cluster.secret` is not that of the other replicas")]
    Secret,
    /// Commands of a single process would have limits and state of their own.
    #[error("this project is a cluster, so only `toolgate serve` starts its tools")]
    NoGateway,
    #[error("the shared tools and servers do not go with this configuration")]
    Registry(#[source] crate::project::InvalidProject),
    #[error("the owner has no key")]
    NoOwnerKey,
}

impl ClusterError {
    /// Returns a suggested fix.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Database(error) => error.hint(),
            Self::Secret => "give every replica the same `cluster.secret`",
            Self::NoGateway => "run the command on the machine of a replica while its gateway runs",
            Self::Registry(_) => {
                "`toolgate cluster pull` writes the shared files into this folder, to check them"
            }
            Self::NoOwnerKey => {
                "set `TOOLGATE_API_KEY` to the same random value at every replica: a cluster creates no key by itself"
            }
        }
    }

    /// Returns true if the configuration has to change.
    pub fn is_invalid_config(&self) -> bool {
        !matches!(self, Self::Database(DatabaseError::Unavailable(_)))
    }
}

/// This replica in its cluster.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) database: Database,
    secret: ClusterSecret,
}

/// Keys of sessions, sealed, with their creation.
#[derive(Serialize, Deserialize)]
struct SealedKeys {
    sealed: String,
    created: Timestamp,
}

impl Cluster {
    /// Connects, and checks that the secret is that of the other replicas. Blocks.
    pub(crate) fn start(
        config: &Config,
        cluster: &ClusterConfig,
        state: &StateFolder,
    ) -> Result<Self, ClusterError> {
        let identity = ReplicaIdentity {
            name: cluster.name.clone().unwrap_or_else(machine_name),
            run: format!("{:016x}", fastrand::u64(..)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config: config_hash(config),
            policy: policy_version(config),
            registry: String::new(),
        };
        let database = Database::start(DatabaseOptions {
            identity,
            copy_folder: Some(state.path().to_owned()),
            observes: false,
            ..connection(cluster)
        })?;
        let secret = ClusterSecret::new(cluster.secret.expose());
        let cluster = Self { database, secret };
        cluster.check_secret()?;
        Ok(cluster)
    }

    fn check_secret(&self) -> Result<(), ClusterError> {
        let is_ours = |text: &str| self.secret.open(SECRET_CHECK, text).as_deref() == Some(CHECKED_TEXT);
        if let Some(text) = self.database.read(SECRET_CHECK) {
            return if is_ours(&text) { Ok(()) } else { Err(ClusterError::Secret) };
        }
        let mut fits = true;
        let stored = self.database.update(SECRET_CHECK, &mut |text| match text {
            None => Ok(Some(self.secret.seal(SECRET_CHECK, CHECKED_TEXT))),
            Some(text) => {
                fits = is_ours(text);
                Ok(None)
            }
        });
        stored.map_err(|error| DatabaseError::Unavailable(error.to_string()))?;
        if fits { Ok(()) } else { Err(ClusterError::Secret) }
    }

    /// The state that the parts of the gateway share.
    pub(crate) fn stores(&self) -> ClusterStores {
        let database = Arc::new(self.database.clone());
        ClusterStores {
            documents: Arc::clone(&database) as _,
            limits: Arc::clone(&database) as _,
            taint: Arc::clone(&database) as _,
            members: database,
        }
    }

    pub(crate) fn documents(&self) -> Arc<dyn DocumentStore> {
        Arc::new(self.database.clone())
    }

    /// Stores the registry files of this project if the cluster has none yet. Returns the shared ones, by the paths that
    /// they take the place of.
    pub(crate) async fn share_registry(
        &self,
        paths: &RegistryPaths,
    ) -> Result<BTreeMap<PathBuf, Arc<str>>, ClusterError> {
        let RegistrySources { tools, servers } = read_registries(paths);
        match self.database.import_registry(tools, servers).await {
            Ok(true) => tracing::info!("the tools and servers of this folder are those of the cluster now"),
            // Started from the last copy.
            Ok(false) | Err(DatabaseError::Unavailable(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let RegistrySources { tools, servers } = self.database.registry();
        let pairs = [(&paths.tools, tools), (&paths.servers, servers)];
        Ok(pairs.into_iter().filter_map(|(path, text)| Some((path.clone()?, text?))).collect())
    }

    /// Returns the keys of MCP sessions and of the console. The first replica creates them, and one rotates them.
    pub(crate) fn session_keys(&self, now: Timestamp) -> io::Result<SessionKeys> {
        let parse = |text: &str| -> io::Result<(SessionKeys, Timestamp)> {
            let SealedKeys { sealed, created } = serde_json::from_str(text)?;
            let bytes = self.secret.open(SESSION_KEYS, &sealed);
            let keys = bytes.as_deref().and_then(keys_of_bytes);
            Ok((keys.ok_or_else(|| io::Error::other("they were sealed with another secret"))?, created))
        };
        if let Some(text) = self.database.read(SESSION_KEYS) {
            let (keys, created) = parse(&text)?;
            if !is_old(created, now) {
                return Ok(keys);
            }
        }
        let mut current = None;
        let updated = self.database.update(SESSION_KEYS, &mut |text| {
            let keys = match text.map(parse).transpose()? {
                Some((keys, created)) if !is_old(created, now) => {
                    current = Some(keys);
                    return Ok(None);
                }
                Some((keys, _)) => keys.rotated(),
                None => SessionKeys::random(),
            };
            let previous = keys.previous.iter().flatten();
            let bytes: Vec<u8> = keys.current.iter().chain(previous).copied().collect();
            current = Some(keys);
            let sealed = self.secret.seal(SESSION_KEYS, &bytes);
            Ok(Some(serde_json::to_string(&SealedKeys { sealed, created: now })?))
        });
        match (updated, current, self.database.read(SESSION_KEYS)) {
            (Ok(()), Some(keys), _) => Ok(keys),
            // Without the database, old keys go on.
            (_, _, Some(text)) => Ok(parse(&text)?.0),
            (Err(error), ..) => Err(error),
            (Ok(()), None, None) => Err(io::Error::other("there are none")),
        }
    }

    /// Announces the configuration and the policy in use to the other replicas.
    pub(crate) fn announce_config(&self, config: &Config) {
        let (hash, policy) = (config_hash(config), policy_version(config));
        self.database.announce(|identity| (identity.config, identity.policy) = (hash, policy));
    }

    pub(crate) fn announce_registry(&self, revision: String) {
        self.database.announce(|identity| identity.registry = revision);
    }
}

fn keys_of_bytes(bytes: &[u8]) -> Option<SessionKeys> {
    let (current, rest) = bytes.split_first_chunk::<{ SessionKeys::BYTES }>()?;
    let previous = if rest.is_empty() { None } else { Some(rest.try_into().ok()?) };
    Some(SessionKeys { current: *current, previous })
}

/// Connection options without an identity.
fn connection(cluster: &ClusterConfig) -> DatabaseOptions {
    DatabaseOptions {
        url: cluster.database.expose().to_owned(),
        authorities: cluster.ca.clone(),
        identity: ReplicaIdentity {
            name: "command".to_owned(),
            run: String::new(),
            version: String::new(),
            config: String::new(),
            policy: String::new(),
            registry: String::new(),
        },
        stale_after: cluster.stale_keys.get(),
        copy_folder: None,
        observes: true,
    }
}

/// Reads the registry files of a folder.
fn read_registries(paths: &RegistryPaths) -> RegistrySources {
    let read = |path: &Option<PathBuf>| {
        let bytes = toolgate_state::read_regular(path.as_ref()?, MAX_REGISTRY_FILE).ok()?;
        Some(Arc::from(String::from_utf8(bytes).ok()?))
    };
    RegistrySources { tools: read(&paths.tools), servers: read(&paths.servers) }
}

/// Bytes of a registry file that are read, as in `toolgate-config`.
const MAX_REGISTRY_FILE: u64 = 64 << 20;

fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "replica".to_owned() } else { name }
}

fn policy_version(config: &Config) -> String {
    config.policy.as_ref().map_or("permissions", |policy| &policy.version).to_owned()
}

/// Hashes everything of a configuration that replicas should have in common: not where each of them listens, nor where
/// it has its files.
fn config_hash(config: &Config) -> String {
    let mut settings = settings(config);
    if let Some(sections) = settings.as_object_mut() {
        sections.remove("cluster");
    }
    for (section, key) in [("serve", "listen"), ("audit", "folder"), ("policy", "file")] {
        if let Some(section) = settings.get_mut(section).and_then(Json::as_object_mut) {
            section.remove(key);
        }
    }
    let mut hash = String::new();
    for byte in &Sha256::digest(settings.to_string())[..8] {
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

/// The cluster of a project, for commands.
pub struct ProjectCluster {
    database: Database,
    paths: RegistryPaths,
}

impl ProjectCluster {
    /// Connects as a command, not as a replica. Blocks. `None` if the project is no cluster.
    ///
    /// # Errors
    /// If the database cannot be used.
    pub fn connect(config: &Config) -> Result<Option<Self>, DatabaseError> {
        let Some(cluster) = &config.cluster else { return Ok(None) };
        let database = Database::start(connection(cluster))?;
        Ok(Some(Self { database, paths: config.registries.clone() }))
    }

    /// Returns the replicas, and whether they agree.
    pub fn status(&self) -> ClusterStatus {
        self.database.status()
    }

    /// Asks a replica to drain. Returns false if there is none of this name.
    ///
    /// # Errors
    /// If the database is unavailable.
    pub async fn request_drain(&self, name: &str) -> Result<bool, DatabaseError> {
        self.database.request_drain(name).await
    }

    /// Stores the registry files of the folder in the database. Returns the paths of those that were stored.
    ///
    /// # Errors
    /// If the database is unavailable, or a replica changes the registry meanwhile.
    pub async fn push(&self) -> Result<Vec<PathBuf>, DatabaseError> {
        let RegistrySources { tools, servers } = read_registries(&self.paths);
        let pairs = [(&self.paths.tools, tools.is_some()), (&self.paths.servers, servers.is_some())];
        let stored = pairs.into_iter().filter(|(_, is_read)| *is_read);
        let stored = stored.filter_map(|(path, _)| path.clone()).collect();
        self.database.replace_registry(tools, servers).await?;
        Ok(stored)
    }

    /// Writes the registry of the database into the files of the folder. Returns their paths.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn pull(&self) -> io::Result<Vec<PathBuf>> {
        let RegistrySources { tools, servers } = self.database.registry();
        let mut written = Vec::new();
        for (path, text) in [(&self.paths.tools, tools), (&self.paths.servers, servers)] {
            if let (Some(path), Some(text)) = (path, text) {
                let before = toolgate_state::read_regular(path, MAX_REGISTRY_FILE).ok();
                let before = before.and_then(|bytes| String::from_utf8(bytes).ok());
                crate::admin::replace_file(path, before.as_deref(), &text)?;
                written.push(path.clone());
            }
        }
        Ok(written)
    }
}
