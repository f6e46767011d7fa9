//! Token storage: one file per server, readable only by its owner.
//!
//! A file holds, for the MCP server at one URL, the tokens and registration of each authorization server; they are
//! never sent to another one. Invariant: the file is replaced atomically, and its mode is 0600 from the first byte.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use url::Url;

/// A token this close to its expiry is refreshed.
const REFRESH_MARGIN_SECONDS: u64 = 30;
/// Attempts to lock while another process obtains tokens.
const LOCK_ATTEMPTS: usize = 200;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Tokens of one MCP server.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct TokenRecord {
    /// URL of the MCP server.
    server: String,
    /// Authorization server of the current tokens.
    #[serde(default)]
    pub(super) issuer: String,
    /// Registration and tokens by authorization server.
    #[serde(default)]
    pub(super) grants: BTreeMap<String, IssuerGrant>,
}

/// Registration and tokens from one authorization server.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct IssuerGrant {
    pub(super) client: OAuthClient,
    #[serde(default)]
    pub(super) tokens: Option<TokenSet>,
}

/// OAuth client registration.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OAuthClient {
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<String>,
    pub(super) redirect_uri: String,
    /// True if we registered it dynamically, so that it can be reused.
    #[serde(default)]
    pub(super) registered: bool,
}

/// Tokens for the MCP server.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct TokenSet {
    pub(super) access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    /// Unix time in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<u64>,
    #[serde(default)]
    pub(super) scopes: Vec<String>,
}

impl TokenSet {
    pub(super) fn is_expiring(&self) -> bool {
        self.expires_at.is_some_and(|end| end <= now() + REFRESH_MARGIN_SECONDS)
    }
}

/// Unix time in seconds.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl TokenRecord {
    pub(super) fn new(server: &Url) -> Self {
        Self { server: server.to_string(), ..Self::default() }
    }

    /// Current tokens.
    pub(super) fn tokens(&self) -> Option<&TokenSet> {
        self.grants.get(&self.issuer)?.tokens.as_ref()
    }

    /// True if this is the current access token.
    pub(super) fn has_access_token(&self, access_token: Option<&str>) -> bool {
        self.tokens().map(|tokens| tokens.access_token.as_str()) == access_token
    }
}

/// Token file of one server; without a path tokens are kept in memory only.
#[derive(Debug, Clone)]
pub(super) struct TokenFile(Option<PathBuf>);

impl TokenFile {
    pub(super) fn new(folder: Option<&Path>, server: &Url) -> Self {
        Self(folder.map(|folder| folder.join(file_name(server))))
    }

    /// Reads the file. A file that is not valid counts as missing and is overwritten.
    pub(super) fn read(&self, server: &Url) -> std::io::Result<Option<TokenRecord>> {
        let Some(path) = &self.0 else { return Ok(None) };
        let bytes = match fs_err::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let record: Option<TokenRecord> = serde_json::from_slice(&bytes).ok();
        Ok(record.filter(|record| record.server == server.as_str()))
    }

    /// Locks out other processes until the returned file is dropped. After the timeout it goes on without the lock: an
    /// extra token is better than none.
    pub(super) async fn lock(&self) -> Option<fs_err::File> {
        let path = self.0.as_ref()?.with_extension("lock");
        make_private(path.parent()?).ok()?;
        // Not truncated: a link in its place would truncate another file.
        let mut options = fs_err::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path).ok()?;
        for _ in 0..LOCK_ATTEMPTS {
            if file.try_lock().is_ok() {
                return Some(file);
            }
            tokio::time::sleep(LOCK_RETRY_DELAY).await;
        }
        None
    }

    pub(super) fn write(&self, record: &TokenRecord) -> std::io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let folder = path.parent().expect("the file is in a folder");
        make_private(folder)?;
        // Created with mode 0600, in the destination folder so that it can be renamed into place.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    }

    /// Removes the file; returns true if there was one.
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

/// File name from the host and an FNV-1a hash of the URL, so that it is readable and unique per URL.
fn file_name(server: &Url) -> String {
    let readable: String = server.host_str().unwrap_or_default().chars().take(64).collect();
    let readable = readable.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    let hash = server.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{readable}-{hash:016x}.json")
}
