//! Tokens of one MCP server, and the interface of their storage.
//!
//! A record holds, for the MCP server at one URL, the tokens and registration of each authorization server; they are
//! never sent to another one.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use toolgate_types::Secret;
use url::Url;

/// A token this close to its expiry is refreshed.
const REFRESH_MARGIN_SECONDS: u64 = 30;

/// Reason why tokens cannot be read or stored.
pub type StorageError = Box<dyn std::error::Error + Send + Sync>;

/// Storage of the tokens of one server, for one caller.
pub trait TokenStorage: Send + Sync + 'static {
    /// Returns the record, including one that another process stored.
    fn load(&self) -> BoxFuture<'_, Result<Option<Secret>, StorageError>>;

    /// Stores the record. It is durable when this returns. `expires_at` is the end of the login, if it is known.
    fn save(&self, record: Secret, expires_at: Option<u64>) -> BoxFuture<'_, Result<(), StorageError>>;

    /// Removes the record; returns true if there was one.
    fn remove(&self) -> BoxFuture<'_, Result<bool, StorageError>>;

    /// Excludes other processes until the returned value is dropped. `None` after a timeout: an extra token is better
    /// than none.
    fn lock(&self) -> BoxFuture<'_, Option<Box<dyn Any + Send>>>;
}

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
    /// Private key that tokens are bound to, as PKCS#8 in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dpop_key: Option<String>,
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
    /// Validity at the time of issue, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lifetime: Option<u64>,
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    /// True if the token is bound to the key of the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) dpop: bool,
}

impl TokenSet {
    pub(super) fn is_expiring(&self) -> bool {
        // A short-lived token is used for most of its life.
        let margin =
            self.lifetime.map_or(REFRESH_MARGIN_SECONDS, |life| (life / 4).min(REFRESH_MARGIN_SECONDS));
        self.expires_at.is_some_and(|end| end <= now() + margin)
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

    /// Parses a stored record; `None` if it is not one of this server.
    pub(super) fn parse(text: &Secret, server: &Url) -> Option<Self> {
        let record: Self = serde_json::from_str(text.expose()).ok()?;
        (record.server == server.as_str()).then_some(record)
    }

    pub(super) fn to_secret(&self) -> Secret {
        Secret::new(serde_json::to_string(self).expect("a record is JSON"))
    }

    /// End of the login, if it cannot be renewed.
    pub(super) fn expires_at(&self) -> Option<u64> {
        self.tokens().filter(|tokens| tokens.refresh_token.is_none()).and_then(|tokens| tokens.expires_at)
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

/// Maximum size of a token file of an earlier version.
const MAX_LEGACY_BYTES: u64 = 256 << 10;

/// Name of the file that earlier versions stored the tokens of a server in: the host and an FNV-1a hash of the URL.
pub fn legacy_file_name(server: &Url) -> String {
    let readable: String = server.host_str().unwrap_or_default().chars().take(64).collect();
    let readable = readable.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    let hash = server.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{readable}-{hash:016x}.json")
}

/// Reads a token file of an earlier version; `None` if there is none for this server.
///
/// # Errors
/// If it cannot be read.
pub fn read_legacy_file(path: &Path, server: &str) -> std::io::Result<Option<Secret>> {
    let file = match fs_err::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MAX_LEGACY_BYTES).read_to_string(&mut text)?;
    let (text, server) = (Secret::new(text), Url::parse(server).ok());
    // A file that is not valid counts as missing, and stays.
    Ok(server.and_then(|server| TokenRecord::parse(&text, &server)).map(|_| text))
}
