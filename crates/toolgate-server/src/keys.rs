//! Keys that are made: that of the owner, at the first start, and those of callers, by whoever may make them.
//!
//! They are kept in one file, as hashes. Invariant: a key that was made is shown once, by whoever asked for it, and
//! is in no file; the file can be written by its owner alone, holds the old text or the new one, and is on the disk
//! before anybody is told.

use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize, de};
use toolgate_types::caller::PermissionPattern;
use toolgate_types::{Caller, CallerId, KeyHash, Secret};

/// The variable that gives the owner's key.
pub const VARIABLE: &str = "TOOLGATE_API_KEY";
/// Bytes of chance in a key that is made.
const KEY_BYTES: usize = 32;
/// Callers that are kept.
const MOST_CALLERS: usize = 10_000;
/// How a key of ours begins, so that it is recognised where it should not be.
const PREFIX: &str = "tg_";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Everybody knows it.
    #[error("the key in `{VARIABLE}` is one that everybody tries first")]
    WellKnown,
    /// It is another caller's, too.
    #[error("the key in `{VARIABLE}` is that of caller `{0}`, too")]
    Taken(CallerId),
    /// The file is not what we wrote.
    #[error("`{}` does not hold keys: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is such a caller.
    #[error("there is a caller `{0}` already")]
    Exists(CallerId),
    /// There are too many.
    #[error("there are {MOST_CALLERS} callers already")]
    TooMany,
    /// The system refuses.
    #[error("keys cannot be kept")]
    Io(#[from] io::Error),
}

impl KeyError {
    /// The way out.
    pub fn hint(&self) -> String {
        match self {
            Self::WellKnown => {
                format!("set `{VARIABLE}` to another, such as what `openssl rand -hex 32` prints")
            }
            Self::Taken(_) => "a key is for one caller; give each its own".to_owned(),
            Self::File { path, .. } => {
                format!("move `{}` away, and the next start makes a new key", path.display())
            }
            Self::Exists(_) => "give it another id, or remove the other first".to_owned(),
            Self::TooMany => "remove those that nobody uses".to_owned(),
            Self::Io(_) => format!("set `{VARIABLE}`, and nothing has to be kept"),
        }
    }
}

/// The owner's key.
#[derive(Debug)]
pub struct OwnerKey {
    /// Its hash.
    pub hash: KeyHash,
    /// The key itself, where it was made just now.
    pub made: Option<Secret>,
}

/// A caller that was made, and not written into the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptCaller {
    /// Who it is.
    #[serde(deserialize_with = "parsed")]
    pub id: CallerId,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it may do.
    #[serde(deserialize_with = "all_parsed")]
    pub permissions: Vec<PermissionPattern>,
    /// The hash of its key.
    #[serde(deserialize_with = "parsed")]
    pub sha256: KeyHash,
    /// When it was made.
    pub created: String,
    /// Who made it.
    pub by: String,
}

impl KeptCaller {
    /// As whoever calls.
    pub fn caller(&self) -> Caller {
        Caller { id: self.id.clone(), permissions: self.permissions.clone() }
    }
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

fn all_parsed<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(de::Error::custom)).collect()
}

/// The file of keys.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    keys: Vec<KeyEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    callers: Vec<KeptCaller>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    caller: String,
    sha256: String,
}

/// The owner's key: the one that is given, else the one that is kept in a folder, else a new one, which is
/// kept there.
///
/// # Errors
/// When the key that is given is well known, or none can be kept.
pub fn owner(given: Option<&str>, folder: &Path) -> Result<OwnerKey, KeyError> {
    if let Some(given) = given {
        let hash = KeyHash::of(given);
        return if hash.is_well_known() {
            Err(KeyError::WellKnown)
        } else {
            Ok(OwnerKey { hash, made: None })
        };
    }
    let store = KeyStore::new(folder);
    let _lock = store.lock()?;
    let mut file = store.read()?.unwrap_or_default();
    if let Some(owner) = file.keys.iter().find(|entry| entry.caller == Caller::OWNER) {
        let hash = owner.sha256.parse().map_err(|error| store.wrong(format!("{error}")))?;
        return Ok(OwnerKey { hash, made: None });
    }
    let key = fresh()?;
    let hash = KeyHash::of(key.expose());
    file.keys.push(KeyEntry { caller: Caller::OWNER.to_owned(), sha256: hash.to_string() });
    store.write(&file)?;
    Ok(OwnerKey { hash, made: Some(key) })
}

/// The place where keys are kept.
#[derive(Debug, Clone)]
pub struct KeyStore {
    folder: PathBuf,
    path: PathBuf,
}

/// What tells the file from what was there before.
pub(crate) type Stamp = Option<(SystemTime, u64, u64)>;

impl KeyStore {
    /// That in a folder, which need not be there yet.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), path: folder.join("keys.json") }
    }

    /// The callers that were made.
    ///
    /// # Errors
    /// When the file is not what we wrote.
    pub fn callers(&self) -> Result<Vec<KeptCaller>, KeyError> {
        Ok(self.read()?.unwrap_or_default().callers)
    }

    /// Makes a caller, and the key that it is known by, which nobody can be told again.
    ///
    /// # Errors
    /// When there is one with this id, or it cannot be kept.
    pub fn add(
        &self,
        caller: &Caller,
        description: Option<String>,
        by: &str,
        now: jiff::Timestamp,
    ) -> Result<(KeptCaller, Secret), KeyError> {
        let _lock = self.lock()?;
        let mut file = self.read()?.unwrap_or_default();
        if file.callers.iter().any(|kept| kept.id == caller.id) {
            return Err(KeyError::Exists(caller.id.clone()));
        }
        if file.callers.len() >= MOST_CALLERS {
            return Err(KeyError::TooMany);
        }
        let key = fresh()?;
        let kept = KeptCaller {
            id: caller.id.clone(),
            description,
            permissions: caller.permissions.clone(),
            sha256: KeyHash::of(key.expose()),
            created: now.strftime("%FT%TZ").to_string(),
            by: by.to_owned(),
        };
        file.callers.push(kept.clone());
        self.write(&file)?;
        Ok((kept, key))
    }

    /// Takes a caller away, and its key with it. Says whether there was one.
    ///
    /// # Errors
    /// When the file is not what we wrote, or cannot be written.
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

    pub(crate) fn stamp(&self) -> Stamp {
        let file = fs_err::metadata(&self.path).ok()?;
        Some((file.modified().ok()?, file.len(), file.ino()))
    }

    /// One writes at a time, whichever process it is.
    fn lock(&self) -> Result<fs_err::File, KeyError> {
        fs_err::create_dir_all(&self.folder)?;
        let lock = fs_err::File::create(self.folder.join("keys.lock"))?;
        lock.file().lock()?;
        Ok(lock)
    }

    fn wrong(&self, why: String) -> KeyError {
        KeyError::File { path: self.path.clone(), why }
    }

    /// What is kept; nothing where there is no file.
    fn read(&self) -> Result<Option<KeyFile>, KeyError> {
        let text = match fs_err::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        if fs_err::metadata(&self.path)?.mode() & 0o022 != 0 {
            return Err(self.wrong("others can write to it".to_owned()));
        }
        let file: KeyFile = serde_json::from_str(&text).map_err(|error| self.wrong(error.to_string()))?;
        if file.keys.is_empty() && file.callers.is_empty() {
            return Err(self.wrong("there is none in it".to_owned()));
        }
        Ok(Some(file))
    }

    /// All of it, or nothing: a key that was shown must not be forgotten half way.
    fn write(&self, file: &KeyFile) -> Result<(), KeyError> {
        if file.keys.is_empty() && file.callers.is_empty() {
            fs_err::remove_file(&self.path)?;
            fs_err::File::open(&self.folder)?.sync_all()?;
            return Ok(());
        }
        let text = serde_json::to_string_pretty(file).map_err(io::Error::from)?;
        // For its owner alone, as temporary files are.
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        fs_err::File::open(&self.folder)?.sync_all()?;
        Ok(())
    }
}

fn fresh() -> Result<Secret, KeyError> {
    let mut bytes = [0; KEY_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(io::Error::from)?;
    }
    Ok(Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_made_once_and_kept_as_a_hash() {
        let folder = tempfile::tempdir().unwrap();
        let first = owner(None, folder.path()).unwrap();
        let key = first.made.unwrap();
        assert!(key.expose().len() >= 43 + PREFIX.len(), "256 bits");
        assert_eq!(first.hash, KeyHash::of(key.expose()));
        let second = owner(None, folder.path()).unwrap();
        assert!(second.made.is_none() && second.hash == first.hash);
        let path = folder.path().join("keys.json");
        assert!(!fs_err::read_to_string(&path).unwrap().contains(key.expose()));
        assert_eq!(fs_err::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let given = owner(Some("one of my own"), folder.path()).unwrap();
        assert!(given.hash == KeyHash::of("one of my own") && given.made.is_none());
    }

    #[test]
    fn callers_are_kept_beside_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyStore::new(folder.path());
        let ann = Caller { id: "ann".parse().unwrap(), permissions: vec!["mail:*".parse().unwrap()] };
        let now = jiff::Timestamp::UNIX_EPOCH;
        assert!(store.callers().unwrap().is_empty());
        let (kept, key) = store.add(&ann, Some("Ann".to_owned()), "owner", now).unwrap();
        assert_eq!(kept.sha256, KeyHash::of(key.expose()));
        assert_eq!((kept.caller(), kept.created.as_str()), (ann.clone(), "1970-01-01T00:00:00Z"));
        assert!(matches!(store.add(&ann, None, "owner", now), Err(KeyError::Exists(_))));
        assert!(owner(None, folder.path()).unwrap().made.is_some(), "the owner has none yet");
        assert!(owner(None, folder.path()).unwrap().made.is_none());
        assert_eq!(KeyStore::new(folder.path()).callers().unwrap(), [kept]);
        let path = folder.path().join("keys.json");
        assert!(!fs_err::read_to_string(&path).unwrap().contains(key.expose()));
        assert_eq!(fs_err::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(store.remove(&ann.id).unwrap() && !store.remove(&ann.id).unwrap());
        assert!(owner(None, folder.path()).unwrap().made.is_none(), "the owner's stays");
    }

    #[test]
    fn many_at_once_are_all_kept() {
        let folder = tempfile::tempdir().unwrap();
        let store = KeyStore::new(folder.path());
        std::thread::scope(|scope| {
            for number in 0..20 {
                let store = &store;
                scope.spawn(move || {
                    let caller = Caller { id: format!("c{number}").parse().unwrap(), permissions: vec![] };
                    store.add(&caller, None, "owner", jiff::Timestamp::UNIX_EPOCH).unwrap();
                });
            }
        });
        assert_eq!(store.callers().unwrap().len(), 20);
    }

    #[test]
    fn what_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for bad in ["", "changeme", "admin", "secret-api-key"] {
            assert!(matches!(owner(Some(bad), folder.path()), Err(KeyError::WellKnown)), "{bad}");
        }
        let path = folder.path().join("keys.json");
        for bad in ["", "{", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"caller":"owner","sha256":"abc"}]}"#] {
            fs_err::write(&path, bad).unwrap();
            assert!(matches!(owner(None, folder.path()), Err(KeyError::File { .. })), "{bad}");
        }
        fs_err::remove_file(&path).unwrap();
        owner(None, folder.path()).unwrap();
        let open = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666);
        fs_err::set_permissions(&path, open).unwrap();
        assert!(matches!(owner(None, folder.path()), Err(KeyError::File { .. })), "anyone could write there");
    }
}
