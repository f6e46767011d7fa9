//! The owner's key: given by the environment, or made at the first start and kept as a hash.
//!
//! Invariant: a key that was made is shown once, by whoever asked for it, and is in no file; the file that
//! holds its hash can be written by its owner alone.

use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use toolgate_types::{Caller, CallerId, KeyHash, Secret};

/// The variable that gives the owner's key.
pub const VARIABLE: &str = "TOOLGATE_API_KEY";
/// Bytes of chance in a key that is made.
const KEY_BYTES: usize = 32;
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
    /// The system refuses.
    #[error("the owner's key cannot be kept")]
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

/// The file of keys.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    keys: Vec<KeyEntry>,
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
    let path = folder.join("keys.json");
    if let Some(hash) = kept(&path)? {
        return Ok(OwnerKey { hash, made: None });
    }
    let key = fresh()?;
    let hash = KeyHash::of(key.expose());
    keep(folder, &path, hash)?;
    Ok(OwnerKey { hash, made: Some(key) })
}

fn kept(path: &Path) -> Result<Option<KeyHash>, KeyError> {
    let wrong = |why: String| KeyError::File { path: path.to_owned(), why };
    let text = match fs_err::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    if fs_err::metadata(path)?.mode() & 0o022 != 0 {
        return Err(wrong("others can write to it".to_owned()));
    }
    let file: KeyFile = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let owner = file.keys.iter().find(|entry| entry.caller == Caller::OWNER);
    let owner = owner.ok_or_else(|| wrong("there is none of the owner".to_owned()))?;
    owner.sha256.parse().map(Some).map_err(|error| wrong(format!("{error}")))
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

/// All of it, or nothing: a key that was shown must not be forgotten half way.
fn keep(folder: &Path, path: &Path, hash: KeyHash) -> Result<(), KeyError> {
    fs_err::create_dir_all(folder)?;
    let entry = KeyEntry { caller: Caller::OWNER.to_owned(), sha256: hash.to_string() };
    let text = serde_json::to_string_pretty(&KeyFile { keys: vec![entry] }).map_err(io::Error::from)?;
    // For its owner alone, as temporary files are.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    fs_err::File::open(folder)?.sync_all()?;
    Ok(())
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
