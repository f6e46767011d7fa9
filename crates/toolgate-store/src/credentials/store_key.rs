//! The key of a credential store, and the places it may be in.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use toolgate_state::{StateDir, read_regular};
use toolgate_types::Secret;

use super::CredentialError;
use super::seal::KEY_BYTES;

/// Maximum size of a key file: a key, and white space around it.
const MAX_KEY_FILE_BYTES: u64 = 4 << 10;

/// Key of a store: 32 bytes.
#[derive(Debug, Clone)]
pub struct StoreKey(Secret);

impl StoreKey {
    /// Creates a random key.
    ///
    /// # Panics
    /// If the system has no random numbers.
    pub fn generate() -> Self {
        let mut bytes = [0; KEY_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
        Self(Secret::new(STANDARD.encode(bytes)))
    }

    /// Parses a key in base64 or hexadecimal. `name` says where it comes from.
    ///
    /// # Errors
    /// If it does not have 32 bytes.
    pub fn parse(text: &str, name: &str) -> Result<Self, CredentialError> {
        let text = text.trim();
        let decoded = match decode_hex(text) {
            Some(bytes) => Some(bytes),
            None => [STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD]
                .iter()
                .find_map(|encoding| encoding.decode(text).ok()),
        };
        match decoded.filter(|bytes| bytes.len() == KEY_BYTES) {
            Some(bytes) => Ok(Self(Secret::new(STANDARD.encode(bytes)))),
            None => Err(CredentialError::InvalidKey(name.to_owned())),
        }
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// If there is no such file, or it contains no key.
    pub fn read_file(path: &Path) -> Result<Self, CredentialError> {
        let bytes = match read_regular(path, MAX_KEY_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(CredentialError::MissingKey(path.to_owned()));
            }
            Err(error) => return Err(error.into()),
        };
        let name = format!("`{}`", path.display());
        Self::parse(&String::from_utf8_lossy(&bytes), &name)
    }

    pub(super) fn bytes(&self) -> [u8; KEY_BYTES] {
        let bytes = STANDARD.decode(self.0.expose()).expect("a key is stored in base64");
        bytes.try_into().expect("a key has its length")
    }

    /// Public name of the key: it identifies the right key, and says nothing else about it.
    pub(super) fn id(&self) -> String {
        let hash =
            Sha256::new().chain_update(b"toolgate credential key").chain_update(self.bytes()).finalize();
        hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Writes the key to a file that only its owner can read, atomically.
    pub(super) fn write_file(&self, path: &Path) -> Result<(), CredentialError> {
        let (folder, name) = (path.parent(), path.file_name().and_then(|name| name.to_str()));
        let (Some(folder), Some(name)) = (folder, name) else {
            return Err(std::io::Error::from(ErrorKind::InvalidInput).into());
        };
        StateDir::create(folder)?.replace(name, format!("{}\n", self.0.expose()).as_bytes())?;
        Ok(())
    }
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    if text.len() != 2 * KEY_BYTES || !text.is_ascii() {
        return None;
    }
    (0..KEY_BYTES).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()).collect()
}

/// Place of the key of a store.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// The key itself, from a variable or a command.
    Given(StoreKey),
    /// A file of the operator. It must exist.
    File(PathBuf),
    /// A folder with a file per store, created with the first credential. It is not in the folder of the
    /// store, so that a copy of a project does not contain both.
    DefaultFolder(PathBuf),
}

impl KeySource {
    /// Reads the key of a store. Files are read again, because another process may have replaced the key.
    pub(super) fn read(&self, store: &str) -> Result<StoreKey, CredentialError> {
        match (self, self.file(store)) {
            (Self::Given(key), _) => Ok(key.clone()),
            (_, Some(path)) => StoreKey::read_file(&path),
            (_, None) => unreachable!("a key that is not given is in a file"),
        }
    }

    /// Reads the key for a new store, or creates it.
    pub(super) fn create(&self, store: &str) -> Result<StoreKey, CredentialError> {
        match (self, self.file(store)) {
            // No other process knows the id of a new store.
            (Self::DefaultFolder(_), Some(path)) => {
                let key = StoreKey::generate();
                key.write_file(&path)?;
                Ok(key)
            }
            _ => self.read(store),
        }
    }

    /// The file of the key, if it is in one.
    pub(super) fn file(&self, store: &str) -> Option<PathBuf> {
        match self {
            Self::Given(_) => None,
            Self::File(path) => Some(path.clone()),
            Self::DefaultFolder(folder) => Some(folder.join(format!("{store}.key"))),
        }
    }
}

#[test]
fn reads_both_encodings() {
    let key = StoreKey::generate();
    let hex: String = key.bytes().iter().map(|byte| format!("{byte:02X}")).collect();
    for text in [hex, format!(" {}\n", STANDARD.encode(key.bytes())), URL_SAFE_NO_PAD.encode(key.bytes())] {
        assert_eq!(StoreKey::parse(&text, "it").unwrap().bytes(), key.bytes(), "{text}");
    }
    for text in ["", "short", &"0".repeat(63), &STANDARD.encode([0; 31]), &STANDARD.encode([0; 33])] {
        let error = StoreKey::parse(text, "`KEY`").unwrap_err().to_string();
        assert!(error.starts_with("`KEY` is not a key"), "{error}");
    }
    assert!(!format!("{key:?}").contains(key.0.expose()));
}
