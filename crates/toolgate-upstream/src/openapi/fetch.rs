//! Fetches a document from its URL at startup, and caches it for a start without a network.
//!
//! Invariant: cache files are replaced atomically, and their name depends on the URL.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use toolgate_state::StateDir;
use toolgate_types::{ApiSpec, ConfigString};
use url::Url;

use super::send::{HttpSender, SendError};

/// The largest document in bytes.
const MAX_BYTES: usize = 16 << 20;
/// The timeout for the whole document.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// A document that cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The URL is invalid.
    #[error("`{0}` is not a valid URL")]
    Url(String),
    /// No response arrived.
    #[error("{0}")]
    Send(#[from] SendError),
    /// The response did not arrive in time.
    #[error("no answer within {FETCH_TIMEOUT:?}")]
    Late,
    /// The response status is not 200.
    #[error("the server answered {0}")]
    Status(u16),
    /// The document is not UTF-8.
    #[error("it is not UTF-8")]
    Utf8,
}

/// The text of a document: fetched now, else from the cache.
pub(super) async fn load_text(
    spec: &ApiSpec,
    sender: &HttpSender,
    url: &ConfigString,
) -> Result<String, FetchError> {
    let cache = cache_path(spec, url);
    let error = match fetch(sender, url).await {
        Ok(text) => {
            if let Err(error) = write_cache(&cache, &text) {
                tracing::warn!("cannot cache the document of API '{}': {error}", spec.name);
            }
            return Ok(text);
        }
        Err(error) => error,
    };
    match read_cache(&cache) {
        Ok(text) => {
            tracing::warn!("cannot fetch the document of API '{}', using the cached one: {error}", spec.name);
            Ok(text)
        }
        Err(_) => Err(error),
    }
}

async fn fetch(sender: &HttpSender, url: &ConfigString) -> Result<String, FetchError> {
    let parsed = Url::parse(url.expose()).map_err(|_| FetchError::Url(url.redacted().to_owned()))?;
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, application/yaml, */*;q=0.5"));
    let sent = sender.send("GET", parsed, headers, None, MAX_BYTES);
    let answer = tokio::time::timeout(FETCH_TIMEOUT, sent).await.map_err(|_| FetchError::Late)??;
    if answer.status != 200 {
        return Err(FetchError::Status(answer.status));
    }
    String::from_utf8(answer.bytes).map_err(|_| FetchError::Utf8)
}

/// The cache file of a document. The name contains a hash of the URL, so that another URL is another document.
fn cache_path(spec: &ApiSpec, url: &ConfigString) -> PathBuf {
    let digest = Sha256::digest(url.expose());
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    spec.cache.join(format!("{}-{hex}", spec.name.prefix()))
}

fn write_cache(path: &Path, text: &str) -> std::io::Result<()> {
    let (folder, name) = cache_entry(path);
    StateDir::create(folder)?.replace_unsynced(&name, text.as_bytes())
}

fn read_cache(path: &Path) -> std::io::Result<String> {
    let (folder, name) = cache_entry(path);
    let bytes = StateDir::open(folder)?.read(&name, MAX_BYTES as u64)?;
    String::from_utf8(bytes).map_err(std::io::Error::other)
}

/// Folder and name of a cache file.
fn cache_entry(path: &Path) -> (&Path, String) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    (path.parent().unwrap_or(Path::new(".")), name)
}
