//! Generated API keys: the owner's, at the first start, and those of callers created at runtime.
//!
//! All are stored in one file, as hashes. Invariant: a generated key is shown once and is in no file. Only its owner
//! can write the file; it is replaced atomically, and is on disk before the key is shown.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, de};
use toolgate_state::{FileAccess, StateDir};
use toolgate_types::caller::PermissionPattern;
use toolgate_types::{Caller, CallerId, KeyHash, Secret};

/// Environment variable with the owner's key.
pub const KEY_VARIABLE: &str = "TOOLGATE_API_KEY";
/// Name of the file, and its maximum size.
const KEY_FILE: &str = "keys.json";
const MAX_KEY_FILE: u64 = 16 << 20;
/// Random bytes in a generated key.
const KEY_BYTES: usize = 32;
/// Callers in the file.
const MAX_CALLERS: usize = 10_000;
/// Prefix of generated keys, so that secret scanners recognise them.
const KEY_PREFIX: &str = "tg_";

/// Errors of API keys and their file.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The key is well known.
    #[error("the key in `{KEY_VARIABLE}` is a well-known weak key")]
    WellKnown,
    /// Another caller has the same key.
    #[error("the key in `{KEY_VARIABLE}` is also the key of caller `{0}`")]
    Duplicate(CallerId),
    /// The file is malformed or has unsafe permissions.
    #[error("`{}` is not a valid key file: {why}", path.display())]
    File { path: PathBuf, why: String },
    /// The caller exists already.
    #[error("caller `{0}` already exists")]
    Exists(CallerId),
    /// The file is full.
    #[error("the limit of {MAX_CALLERS} callers is reached")]
    TooMany,
    /// The file could not be read or written.
    #[error("the key file cannot be read or written")]
    Io(#[from] io::Error),
}

impl KeyError {
    /// Returns the message with its cause, for log lines.
    pub fn with_cause(&self) -> String {
        match std::error::Error::source(self) {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }

    pub fn hint(&self) -> String {
        match self {
            Self::WellKnown => {
                format!(
                    "set `{KEY_VARIABLE}` to a random value, such as the output of `openssl rand -hex 32`"
                )
            }
            Self::Duplicate(_) => "give each caller its own key".to_owned(),
            Self::File { path, .. } => {
                format!("move `{}` away; the next start creates a new key", path.display())
            }
            Self::Exists(_) => "choose another id, or remove the existing caller first".to_owned(),
            Self::TooMany => "remove callers that are not used".to_owned(),
            Self::Io(_) => format!("set `{KEY_VARIABLE}`, so that no key has to be stored"),
        }
    }
}

/// The owner's key.
#[derive(Debug)]
pub struct OwnerKey {
    pub hash: KeyHash,
    /// The key itself, if it was generated just now.
    pub generated: Option<Secret>,
}

/// A caller created at runtime, as stored in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagedCaller {
    #[serde(deserialize_with = "parse_string")]
    pub id: CallerId,
    /// Purpose of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(deserialize_with = "parse_strings")]
    pub permissions: Vec<PermissionPattern>,
    /// Hash of its key.
    #[serde(deserialize_with = "parse_string")]
    pub sha256: KeyHash,
    /// Time of creation.
    pub created: String,
    /// Id of the caller that created it.
    pub by: String,
    /// Ids of the callers that created that one, nearest first. Kept here, because they can be removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub creators: Vec<String>,
}

impl ManagedCaller {
    /// Converts it to a caller.
    pub fn caller(&self) -> Caller {
        Caller::new(self.id.clone(), self.permissions.clone())
    }

    /// Ids of the callers that created it, directly and indirectly, nearest first.
    pub(crate) fn lineage(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.by.as_str()).chain(self.creators.iter().map(String::as_str))
    }
}

fn parse_string<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

fn parse_strings<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
}

/// Content of the key file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    keys: Vec<KeyEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    callers: Vec<ManagedCaller>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    caller: String,
    sha256: String,
}

/// Returns the owner's key: the given one, else the stored one, else a new one, which is stored.
///
/// # Errors
/// Fails if the given key is well known, or a new key could not be stored.
pub fn load_owner_key(given: Option<&str>, folder: &Path) -> Result<OwnerKey, KeyError> {
    if let Some(given) = given {
        let hash = KeyHash::of(given);
        return if hash.is_well_known() {
            Err(KeyError::WellKnown)
        } else {
            Ok(OwnerKey { hash, generated: None })
        };
    }
    let store = KeyStore::new(folder);
    let _lock = store.lock()?;
    let mut file = store.read()?.unwrap_or_default();
    if let Some(owner) = file.keys.iter().find(|entry| entry.caller == Caller::OWNER) {
        let hash = owner.sha256.parse().map_err(|error| store.invalid_file(format!("{error}")))?;
        return Ok(OwnerKey { hash, generated: None });
    }
    let key = generate_key()?;
    let hash = KeyHash::of(key.expose());
    file.keys.push(KeyEntry { caller: Caller::OWNER.to_owned(), sha256: hash.to_string() });
    store.write(&file)?;
    Ok(OwnerKey { hash, generated: Some(key) })
}

/// The key file.
#[derive(Debug, Clone)]
pub struct KeyStore {
    folder: PathBuf,
    path: PathBuf,
}

/// Modification time, length and inode of the file.
pub(crate) type FileStamp = Option<(SystemTime, u64, u64)>;

impl KeyStore {
    /// Opens the key file in a directory. The directory may not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), path: folder.join(KEY_FILE) }
    }

    /// Lists the stored callers.
    ///
    /// # Errors
    /// Fails if the file is malformed.
    pub fn callers(&self) -> Result<Vec<ManagedCaller>, KeyError> {
        Ok(self.read()?.unwrap_or_default().callers)
    }

    /// Adds a caller and returns its key, which cannot be shown again.
    ///
    /// # Errors
    /// Fails if the id exists, or the file could not be written.
    pub fn add(
        &self,
        caller: &Caller,
        description: Option<String>,
        by: &str,
        now: jiff::Timestamp,
    ) -> Result<(ManagedCaller, Secret), KeyError> {
        let _lock = self.lock()?;
        let mut file = self.read()?.unwrap_or_default();
        if file.callers.iter().any(|kept| kept.id == caller.id) {
            return Err(KeyError::Exists(caller.id.clone()));
        }
        if file.callers.len() >= MAX_CALLERS {
            return Err(KeyError::TooMany);
        }
        let key = generate_key()?;
        let creator = file.callers.iter().find(|known| known.id.as_str() == by);
        let creators = creator.iter().flat_map(|creator| creator.lineage().map(str::to_owned)).collect();
        let kept = ManagedCaller {
            id: caller.id.clone(),
            description,
            permissions: caller.permissions.clone(),
            sha256: KeyHash::of(key.expose()),
            created: now.strftime("%FT%TZ").to_string(),
            by: by.to_owned(),
            creators,
        };
        file.callers.push(kept.clone());
        self.write(&file)?;
        Ok((kept, key))
    }

    /// Removes a caller with its key. Returns false if there was none.
    ///
    /// # Errors
    /// Fails if the file is malformed or could not be written.
    pub fn remove(&self, id: &CallerId) -> Result<bool, KeyError> {
        let _lock = self.lock()?;
        let mut file = self.read()?.unwrap_or_default();
        let before = file.callers.len();
        file.callers.retain(|kept| kept.id != *id);
        let removed = file.callers.len() < before;
        if removed {
            self.write(&file)?;
        }
        Ok(removed)
    }

    pub(crate) fn stamp(&self) -> FileStamp {
        let file = fs_err::symlink_metadata(&self.path).ok()?;
        Some((file.modified().ok()?, file.len(), file.ino()))
    }

    /// Locks the file against writers in other processes.
    fn lock(&self) -> Result<fs_err::File, KeyError> {
        let lock = StateDir::create(&self.folder)?.open_file("keys.lock", FileAccess::Create)?;
        lock.file().lock()?;
        Ok(lock)
    }

    fn invalid_file(&self, why: String) -> KeyError {
        KeyError::File { path: self.path.clone(), why }
    }

    /// Reads the file. Returns `None` if it does not exist.
    fn read(&self) -> Result<Option<KeyFile>, KeyError> {
        let opened =
            StateDir::open(&self.folder).and_then(|folder| folder.open_file(KEY_FILE, FileAccess::Read));
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        if file.metadata()?.mode() & 0o022 != 0 {
            return Err(self.invalid_file("other users can write to it".to_owned()));
        }
        let mut text = String::new();
        file.take(MAX_KEY_FILE).read_to_string(&mut text)?;
        let file: KeyFile =
            serde_json::from_str(&text).map_err(|error| self.invalid_file(error.to_string()))?;
        if file.keys.is_empty() && file.callers.is_empty() {
            return Err(self.invalid_file("it contains no keys".to_owned()));
        }
        Ok(Some(file))
    }

    /// Replaces the file atomically, because a key that was shown must not be lost. Removes the file if it is empty.
    fn write(&self, file: &KeyFile) -> Result<(), KeyError> {
        if file.keys.is_empty() && file.callers.is_empty() {
            let folder = StateDir::create(&self.folder)?;
            folder.remove(KEY_FILE)?;
            return Ok(folder.sync()?);
        }
        let mut text = serde_json::to_string_pretty(file).map_err(io::Error::from)?;
        text.push('\n');
        Ok(StateDir::create(&self.folder)?.replace(KEY_FILE, text.as_bytes())?)
    }
}

fn generate_key() -> Result<Secret, KeyError> {
    let mut bytes = [0; KEY_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(io::Error::from)?;
    }
    Ok(Secret::new(format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_key_is_generated_once_and_stored_as_a_hash() {
        let folder = tempfile::tempdir().unwrap();
        let first = load_owner_key(None, folder.path()).unwrap();
        let key = first.generated.unwrap();
        assert!(key.expose().len() >= 43 + KEY_PREFIX.len(), "256 bits");
        assert_eq!(first.hash, KeyHash::of(key.expose()));
        let second = load_owner_key(None, folder.path()).unwrap();
        assert!(second.generated.is_none() && second.hash == first.hash);
        let path = folder.path().join("keys.json");
        assert!(!fs_err::read_to_string(&path).unwrap().contains(key.expose()));
        assert_eq!(fs_err::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let given = load_owner_key(Some("one of my own"), folder.path()).unwrap();
        assert!(given.hash == KeyHash::of("one of my own") && given.generated.is_none());
    }

    #[test]
    fn callers_are_stored_next_to_the_owner_key() {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyStore::new(folder.path());
        let ann = Caller::new("ann".parse().unwrap(), vec!["mail:*".parse().unwrap()]);
        let now = jiff::Timestamp::UNIX_EPOCH;
        assert!(store.callers().unwrap().is_empty());
        let (kept, key) = store.add(&ann, Some("Ann".to_owned()), "owner", now).unwrap();
        assert_eq!(kept.sha256, KeyHash::of(key.expose()));
        assert_eq!((kept.caller(), kept.created.as_str()), (ann.clone(), "1970-01-01T00:00:00Z"));
        assert!(matches!(store.add(&ann, None, "owner", now), Err(KeyError::Exists(_))));
        assert!(load_owner_key(None, folder.path()).unwrap().generated.is_some(), "the owner has none yet");
        assert!(load_owner_key(None, folder.path()).unwrap().generated.is_none());
        assert_eq!(KeyStore::new(folder.path()).callers().unwrap(), [kept]);
        let path = folder.path().join("keys.json");
        assert!(!fs_err::read_to_string(&path).unwrap().contains(key.expose()));
        assert_eq!(fs_err::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(store.remove(&ann.id).unwrap() && !store.remove(&ann.id).unwrap());
        assert!(load_owner_key(None, folder.path()).unwrap().generated.is_none(), "the owner's stays");
    }

    #[test]
    fn concurrent_additions_are_all_stored() {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyStore::new(folder.path());
        std::thread::scope(|scope| {
            for number in 0..20 {
                let store = &store;
                scope.spawn(move || {
                    let caller = Caller::new(format!("c{number}").parse().unwrap(), vec![]);
                    store.add(&caller, None, "owner", jiff::Timestamp::UNIX_EPOCH).unwrap();
                });
            }
        });
        assert_eq!(store.callers().unwrap().len(), 20);
    }

    #[test]
    fn rejects_weak_keys_and_broken_files() {
        let folder = tempfile::tempdir().unwrap();
        for bad in ["", "changeme", "admin", "secret-api-key"] {
            assert!(matches!(load_owner_key(Some(bad), folder.path()), Err(KeyError::WellKnown)), "{bad}");
        }
        let path = folder.path().join("keys.json");
        for bad in ["", "{", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"caller":"owner","sha256":"abc"}]}"#] {
            fs_err::write(&path, bad).unwrap();
            assert!(matches!(load_owner_key(None, folder.path()), Err(KeyError::File { .. })), "{bad}");
        }
        fs_err::remove_file(&path).unwrap();
        load_owner_key(None, folder.path()).unwrap();
        let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
        fs_err::set_permissions(&path, open).unwrap();
        assert!(
            matches!(load_owner_key(None, folder.path()), Err(KeyError::File { .. })),
            "anyone could write there"
        );
    }
}
