//! Where tokens are kept: one file per server, for its owner's eyes only.
//!
//! A file holds what each authorization server gave for the MCP server at one address: tokens and
//! registrations are never shown to another authorization server. Invariant: a reader sees the file
//! as it was or as it is to be, never a part, and its mode is 0600 from the first byte.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use url::Url;

/// A token this close to its end is as good as over.
const NEARLY_OVER_SECONDS: u64 = 30;
/// How long another process may take to get tokens.
const LOCK_TRIES: usize = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// What is kept for one MCP server.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The address of the MCP server.
    server: String,
    /// The authorization server that gave the newest tokens.
    #[serde(default)]
    pub(super) issuer: String,
    /// What each authorization server gave.
    #[serde(default)]
    pub(super) grants: BTreeMap<String, Granted>,
}

/// What an authorization server gave.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Granted {
    pub(super) client: Client,
    #[serde(default)]
    pub(super) tokens: Option<Tokens>,
}

/// Who we are for an authorization server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<String>,
    /// Where it sends the browser back to.
    pub(super) redirect_uri: String,
    /// Whether it was registered by us, and so may be used again as it is.
    #[serde(default)]
    pub(super) registered: bool,
}

/// What opens the MCP server.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Tokens {
    pub(super) access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    /// In seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<u64>,
    #[serde(default)]
    pub(super) scopes: Vec<String>,
}

impl Tokens {
    pub(super) fn nearly_over(&self) -> bool {
        self.expires_at.is_some_and(|end| end <= now() + NEARLY_OVER_SECONDS)
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Kept {
    pub(super) fn new(server: &Url) -> Self {
        Self { server: server.to_string(), ..Self::default() }
    }

    /// The newest tokens.
    pub(super) fn tokens(&self) -> Option<&Tokens> {
        self.grants.get(&self.issuer)?.tokens.as_ref()
    }

    /// Whether an access token is the one that was last given.
    pub(super) fn holds(&self, access_token: Option<&str>) -> bool {
        self.tokens().map(|tokens| tokens.access_token.as_str()) == access_token
    }
}

/// The file of one server; without a folder, nothing outlives the process.
#[derive(Debug, Clone)]
pub(super) struct TokenFile(Option<PathBuf>);

impl TokenFile {
    pub(super) fn new(folder: Option<&Path>, server: &Url) -> Self {
        Self(folder.map(|folder| folder.join(file_name(server))))
    }

    /// What is kept. A file that cannot be read as ours is as good as none: it is written anew.
    pub(super) fn read(&self, server: &Url) -> std::io::Result<Option<Kept>> {
        let Some(path) = &self.0 else { return Ok(None) };
        let bytes = match fs_err::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let kept: Option<Kept> = serde_json::from_slice(&bytes).ok();
        Ok(kept.filter(|kept| kept.server == server.as_str()))
    }

    /// Keeps other processes from getting tokens for the same server, until it is dropped. Who waits
    /// for too long goes on without: a token too many is better than none.
    pub(super) async fn alone(&self) -> Option<fs_err::File> {
        let path = self.0.as_ref()?.with_extension("lock");
        make_private(path.parent()?).ok()?;
        let file = fs_err::File::create(path).ok()?;
        for _ in 0..LOCK_TRIES {
            if file.try_lock().is_ok() {
                return Some(file);
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        None
    }

    pub(super) fn write(&self, kept: &Kept) -> std::io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let folder = path.parent().expect("the file is in a folder");
        make_private(folder)?;
        // Made with mode 0600, in the folder of its destination so that it can be moved there.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&serde_json::to_vec_pretty(kept)?)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }

    /// Forgets everything; says whether there was something.
    pub(super) fn remove(&self) -> std::io::Result<bool> {
        let Some(path) = &self.0 else { return Ok(false) };
        match fs_err::remove_file(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(unix)]
fn make_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> std::io::Result<()> {
    fs_err::create_dir_all(folder)
}

/// Readable, and another one for every address: FNV-1a tells apart what reads alike.
fn file_name(server: &Url) -> String {
    let readable: String = server.host_str().unwrap_or_default().chars().take(64).collect();
    let readable = readable.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    let hash = server.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{readable}-{hash:016x}.json")
}
