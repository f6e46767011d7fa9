//! Credentials in encrypted files: one per credential, named by a hash of its caller and server.
//!
//! Random data keys encrypt the files. The key ring holds them, encrypted with the key of the operator, once per key
//! that may open it. Replacing the key first adds a slot for the new one, so that a crash at any step leaves a store
//! that the old or the new key opens. Invariant: every file is replaced atomically and is 0600 from the first byte; a
//! wrong key changes nothing.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolgate_state::{FileAccess, StateDir};
use toolgate_types::Secret;

use super::seal::{KEY_BYTES, SealingKey};
use super::store_key::{KeySource, StoreKey};
use super::{
    Credential, CredentialError, CredentialId, CredentialInfo, CredentialKind, CredentialLock,
    CredentialStore, MAX_SECRET_BYTES,
};

/// File with the key ring.
const RING: &str = "ring.json";
/// Lock of all changes.
const LOCK: &str = "lock";
/// Suffix of the file of a credential.
const SUFFIX: &str = ".cred";
/// Lock files of renewals. Two credentials may share one.
const RENEWAL_LOCKS: u8 = 64;
/// Limits of the files.
const MAX_RING_BYTES: u64 = 64 << 10;
/// A control character has six bytes in JSON.
const MAX_FILE_BYTES: u64 = 6 * MAX_SECRET_BYTES as u64 + (16 << 10);
/// Maximum time to wait for the lock while another process changes the store. A new key changes every file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time to wait while another process renews a credential.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(20);
/// Attempts to read a credential while its data key is replaced.
const READ_ATTEMPTS: usize = 5;
/// Name of the key ring in its encryption.
const RING_NAME: &str = "toolgate key ring";

/// The key ring as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeyRing {
    version: u32,
    /// Random id of the store, in hexadecimal.
    id: String,
    slots: Vec<RingSlot>,
}

/// Data keys, encrypted with one key of the operator.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RingSlot {
    /// Id of the key.
    key: String,
    /// The data keys, newest first: sealed JSON, in base64.
    sealed: String,
}

/// The key ring, opened.
struct OpenRing {
    /// The file as read, to notice changes.
    file: Vec<u8>,
    ring: KeyRing,
    /// The newest first. There are two while the key is being replaced.
    data_keys: Vec<SealingKey>,
}

/// A credential as stored, before encryption.
#[derive(Serialize, Deserialize)]
struct StoredCredential {
    caller: String,
    server: String,
    kind: CredentialKind,
    #[serde(default)]
    audience: String,
    stored_at: u64,
    #[serde(default)]
    expires_at: Option<u64>,
    secret: String,
}

/// Store of a project, in its state folder.
#[derive(Clone)]
pub struct FileCredentials(Arc<StoreFolder>);

struct StoreFolder {
    path: PathBuf,
    key: KeySource,
    ring: Mutex<Option<Arc<OpenRing>>>,
}

impl FileCredentials {
    /// Opens a store. A store that does not exist is created with its first credential.
    ///
    /// # Errors
    /// If the key does not open it. Nothing was changed then.
    pub fn open(path: PathBuf, key: KeySource) -> Result<Self, CredentialError> {
        let store = StoreFolder { path, key, ring: Mutex::default() };
        match store.folder()? {
            Some(folder) => drop(store.ring(&folder)?),
            // Reported now, and not after a person has logged in.
            None if !matches!(store.key, KeySource::DefaultFolder(_)) => drop(store.key.read("")?),
            None => {}
        }
        Ok(Self(Arc::new(store)))
    }

    /// Encrypts everything with new data keys and a new key of the operator. Without `new_key`, creates one in the file
    /// of the old one. Returns the number of credentials.
    ///
    /// # Errors
    /// If the store cannot be opened or written. It opens with the old or with the new key then.
    pub fn rekey(&self, new_key: Option<StoreKey>) -> Result<usize, CredentialError> {
        self.0.rekey(new_key)
    }

    /// Runs a blocking operation on another thread.
    fn run<'a, T: Send + 'static>(
        &self,
        operation: impl FnOnce(&StoreFolder) -> Result<T, CredentialError> + Send + 'static,
    ) -> BoxFuture<'a, Result<T, CredentialError>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || operation(&store)).await {
                Ok(done) => done,
                Err(error) => Err(io::Error::other(error).into()),
            }
        })
    }
}

impl CredentialStore for FileCredentials {
    fn get<'a>(&'a self, id: &'a CredentialId) -> BoxFuture<'a, Result<Option<Credential>, CredentialError>> {
        let id = id.clone();
        self.run(move |store| store.get(&id))
    }

    fn put<'a>(
        &'a self,
        id: &'a CredentialId,
        credential: Credential,
    ) -> BoxFuture<'a, Result<(), CredentialError>> {
        let id = id.clone();
        self.run(move |store| store.put(&id, &credential))
    }

    fn remove<'a>(&'a self, id: &'a CredentialId) -> BoxFuture<'a, Result<bool, CredentialError>> {
        let id = id.clone();
        self.run(move |store| store.remove(&id))
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<CredentialInfo>, CredentialError>> {
        self.run(StoreFolder::list)
    }

    fn lock<'a>(&'a self, id: &'a CredentialId) -> BoxFuture<'a, Option<CredentialLock>> {
        let number = Sha256::digest(file_name(id))[0] % RENEWAL_LOCKS;
        Box::pin(async move {
            let folder = StateDir::create(&self.0.path).ok()?;
            let file = folder.open_file(&format!("renewal-{number}.lock"), FileAccess::Create).ok()?;
            let mut waited = Duration::ZERO;
            while waited < RENEWAL_TIMEOUT {
                if file.file().try_lock().is_ok() {
                    return Some(CredentialLock { _file: Some(file), _guard: None });
                }
                tokio::time::sleep(LOCK_RETRY_DELAY).await;
                waited += LOCK_RETRY_DELAY;
            }
            None
        })
    }
}

impl StoreFolder {
    /// Opens the folder; `None` if the store does not exist.
    fn folder(&self) -> Result<Option<StateDir>, CredentialError> {
        match StateDir::open(&self.path) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Locks out other changes, of this and of other processes.
    fn lock(folder: &StateDir) -> Result<fs_err::File, CredentialError> {
        let file = folder.open_file(LOCK, FileAccess::Create)?;
        let mut waited = Duration::ZERO;
        loop {
            match file.file().try_lock() {
                Ok(()) => return Ok(file),
                Err(std::fs::TryLockError::Error(error)) => return Err(error.into()),
                Err(std::fs::TryLockError::WouldBlock) if waited >= LOCK_TIMEOUT => {
                    let message = "another process is changing the credential store";
                    return Err(io::Error::new(ErrorKind::TimedOut, message).into());
                }
                Err(std::fs::TryLockError::WouldBlock) => {
                    std::thread::sleep(LOCK_RETRY_DELAY);
                    waited += LOCK_RETRY_DELAY;
                }
            }
        }
    }

    /// Opens the key ring; `None` if the store is empty.
    fn ring(&self, folder: &StateDir) -> Result<Option<Arc<OpenRing>>, CredentialError> {
        let file = match folder.read(RING, MAX_RING_BYTES) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let has_credentials = folder.names()?.iter().any(|name| name.ends_with(SUFFIX));
                return if has_credentials { Err(self.damaged()) } else { Ok(None) };
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(open) = self.ring.lock().as_ref().filter(|open| open.file == file) {
            return Ok(Some(Arc::clone(open)));
        }
        let ring: KeyRing = serde_json::from_slice(&file).map_err(|_| self.damaged())?;
        // The id is part of a path, and the folder may come from another person.
        let is_id = ring.id.len() == 32 && ring.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if ring.version != 1 || !is_id {
            return Err(self.damaged());
        }
        let key = self.key.read(&ring.id)?;
        let data_keys = self.data_keys(&ring, &key)?;
        let open = Arc::new(OpenRing { file, ring, data_keys });
        *self.ring.lock() = Some(Arc::clone(&open));
        Ok(Some(open))
    }

    fn data_keys(&self, ring: &KeyRing, key: &StoreKey) -> Result<Vec<SealingKey>, CredentialError> {
        let id = key.id();
        let slot = ring.slots.iter().find(|slot| slot.key == id);
        let slot = slot.ok_or_else(|| CredentialError::WrongKey(self.path.clone()))?;
        let sealed = STANDARD.decode(&slot.sealed).map_err(|_| self.damaged())?;
        let name = format!("{RING_NAME} {}", ring.id);
        let keys = SealingKey::new(key.bytes()).open(&name, &sealed).ok_or_else(|| self.damaged())?;
        let keys: Vec<String> = serde_json::from_slice(&keys).map_err(|_| self.damaged())?;
        let keys: Option<Vec<SealingKey>> = keys
            .iter()
            .map(|key| Some(SealingKey::new(<[u8; KEY_BYTES]>::try_from(STANDARD.decode(key).ok()?).ok()?)))
            .collect();
        keys.filter(|keys| !keys.is_empty()).ok_or_else(|| self.damaged())
    }

    /// Returns the key ring, or creates it. The store must be locked.
    fn ring_or_new(&self, folder: &StateDir) -> Result<Arc<OpenRing>, CredentialError> {
        if let Some(open) = self.ring(folder)? {
            return Ok(open);
        }
        let mut id = [0; 16];
        aws_lc_rs::rand::fill(&mut id).expect("the system has random numbers");
        let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        let key = self.key.create(&id)?;
        let ring = KeyRing { version: 1, id, slots: Vec::new() };
        self.write_ring(folder, ring, &[&key], &[&SealingKey::generate()])?;
        self.ring(folder)?.ok_or_else(|| self.damaged())
    }

    /// Writes a key ring with one slot for each key.
    fn write_ring(
        &self,
        folder: &StateDir,
        mut ring: KeyRing,
        keys: &[&StoreKey],
        data_keys: &[&SealingKey],
    ) -> Result<(), CredentialError> {
        let data_keys: Vec<String> = data_keys.iter().map(|key| STANDARD.encode(key.bytes())).collect();
        let text = serde_json::to_vec(&data_keys).expect("strings are JSON");
        let name = format!("{RING_NAME} {}", ring.id);
        let slot = |key: &&StoreKey| RingSlot {
            key: key.id(),
            sealed: STANDARD.encode(SealingKey::new(key.bytes()).seal(&name, &text)),
        };
        ring.slots = keys.iter().map(slot).collect();
        folder.replace(RING, &serde_json::to_vec_pretty(&ring).expect("a key ring is JSON"))?;
        Ok(())
    }

    fn get(&self, id: &CredentialId) -> Result<Option<Credential>, CredentialError> {
        let Some(folder) = self.folder()? else { return Ok(None) };
        let name = file_name(id);
        let mut last_file = None;
        for _ in 0..READ_ATTEMPTS {
            let Some(ring) = self.ring(&folder)? else { return Ok(None) };
            let Some(sealed) = read_file(&folder, &name)? else { return Ok(None) };
            if let Some(stored) = open_credential(&ring, &name, &sealed) {
                let is_this = stored.caller == id.caller.as_str() && stored.server == id.server.as_str();
                return if is_this {
                    Ok(Some(stored.into()))
                } else {
                    Err(CredentialError::DamagedCredential(id.clone()))
                };
            }
            // The ring was replaced after it was read, unless both are as before.
            let seen = Some((sealed, ring.file.clone()));
            if last_file == seen {
                break;
            }
            last_file = seen;
        }
        Err(CredentialError::DamagedCredential(id.clone()))
    }

    fn put(&self, id: &CredentialId, credential: &Credential) -> Result<(), CredentialError> {
        if credential.secret.expose().len() > MAX_SECRET_BYTES {
            return Err(CredentialError::TooLarge);
        }
        let folder = StateDir::create(&self.path)?;
        let _lock = Self::lock(&folder)?;
        let ring = self.ring_or_new(&folder)?;
        let stored = StoredCredential {
            caller: id.caller.as_str().to_owned(),
            server: id.server.as_str().to_owned(),
            kind: credential.kind,
            audience: credential.audience.clone(),
            stored_at: credential.stored_at,
            expires_at: credential.expires_at,
            secret: credential.secret.expose().to_owned(),
        };
        let name = file_name(id);
        let text = serde_json::to_vec(&stored).expect("a credential is JSON");
        folder.replace(&name, &ring.data_keys[0].seal(&name, &text))?;
        Ok(())
    }

    fn remove(&self, id: &CredentialId) -> Result<bool, CredentialError> {
        let Some(folder) = self.folder()? else { return Ok(false) };
        let _lock = Self::lock(&folder)?;
        // Fails with a wrong key: its holder is not the owner of the store.
        self.ring(&folder)?;
        match folder.remove(&file_name(id)) {
            Ok(()) => {
                folder.sync()?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn list(&self) -> Result<Vec<CredentialInfo>, CredentialError> {
        let Some(folder) = self.folder()? else { return Ok(Vec::new()) };
        let Some(ring) = self.ring(&folder)? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for name in folder.names()?.into_iter().filter(|name| name.ends_with(SUFFIX)) {
            let Some(sealed) = read_file(&folder, &name)? else { continue };
            let Some(stored) = open_credential(&ring, &name, &sealed) else {
                tracing::warn!("the credential file `{name}` is damaged");
                continue;
            };
            let (Ok(caller), Ok(server)) = (stored.caller.parse(), stored.server.parse()) else { continue };
            all.push(CredentialInfo::new(CredentialId { caller, server }, &stored.into()));
        }
        all.sort_by(|one, other| (&one.caller, &one.server).cmp(&(&other.caller, &other.server)));
        Ok(all)
    }

    fn rekey(&self, new_key: Option<StoreKey>) -> Result<usize, CredentialError> {
        let Some(folder) = self.folder()? else { return Ok(0) };
        let _lock = Self::lock(&folder)?;
        let Some(open) = self.ring(&folder)? else { return Ok(0) };
        let old_key = self.key.read(&open.ring.id)?;
        let key_file = self.key.file(&open.ring.id);
        let (new_key, key_file) = match (new_key, key_file) {
            (Some(key), _) => (key, None),
            (None, Some(file)) => (StoreKey::generate(), Some(file)),
            (None, None) => return Err(CredentialError::KeyNotInFile),
        };
        let new_data_key = SealingKey::generate();
        let data_keys: Vec<&SealingKey> = std::iter::once(&new_data_key).chain(&open.data_keys).collect();
        // From here on, both keys open the store.
        self.write_ring(&folder, open.ring.clone(), &[&old_key, &new_key], &data_keys)?;
        if let Some(file) = key_file {
            new_key.write_file(&file)?;
        }
        let mut count = 0;
        for name in folder.names()?.into_iter().filter(|name| name.ends_with(SUFFIX)) {
            let Some(sealed) = read_file(&folder, &name)? else { continue };
            let Some(text) = data_keys.iter().find_map(|key| key.open(&name, &sealed)) else {
                tracing::warn!("the credential file `{name}` is damaged and stays as it is");
                continue;
            };
            folder.replace(&name, &new_data_key.seal(&name, &text))?;
            count += 1;
        }
        // No file needs the old data keys, so the old key opens nothing from here on.
        self.write_ring(&folder, open.ring.clone(), &[&new_key], &[&new_data_key])?;
        Ok(count)
    }

    fn damaged(&self) -> CredentialError {
        CredentialError::DamagedRing(self.path.clone())
    }
}

fn read_file(folder: &StateDir, name: &str) -> Result<Option<Vec<u8>>, CredentialError> {
    match folder.read(name, MAX_FILE_BYTES) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open_credential(ring: &OpenRing, name: &str, sealed: &[u8]) -> Option<StoredCredential> {
    let text = ring.data_keys.iter().find_map(|key| key.open(name, sealed))?;
    serde_json::from_slice(&text).ok()
}

/// File name of a credential. The length of the first part separates it from the second, so that no other pair of
/// names has the same hash.
fn file_name(id: &CredentialId) -> String {
    let (caller, server) = (id.caller.as_str(), id.server.as_str());
    let hash = Sha256::new()
        .chain_update((caller.len() as u64).to_le_bytes())
        .chain_update(caller)
        .chain_update(server)
        .finalize();
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}{SUFFIX}")
}

impl From<StoredCredential> for Credential {
    fn from(stored: StoredCredential) -> Self {
        let StoredCredential { kind, audience, stored_at, expires_at, secret, .. } = stored;
        Self { kind, audience, stored_at, expires_at, secret: Secret::new(secret) }
    }
}
