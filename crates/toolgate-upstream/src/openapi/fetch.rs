//! A document at an address: fetched when Toolgate starts, and kept for a start without a network.
//!
//! Invariant: what is kept is put in place in one step, under a name that its address makes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};
use toolgate_types::{ApiSpec, Text};
use url::Url;

use super::send::{SendError, Sender};

/// The largest document.
const LARGEST: usize = 16 << 20;
/// How long it may take to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a document cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// It is at no address.
    #[error("`{0}` is not an address")]
    Url(String),
    /// It did not come.
    #[error("{0}")]
    Send(#[from] SendError),
    /// It did not come in time.
    #[error("there is no answer within {PATIENCE:?}")]
    Late,
    /// Something else came.
    #[error("the answer is {0}")]
    Status(u16),
    /// It is not text.
    #[error("it is not UTF-8")]
    Utf8,
}

/// The text of a document: what is there now, else what was there last.
pub(super) async fn text(spec: &ApiSpec, sender: &Sender, url: &Text) -> Result<String, FetchError> {
    let kept = kept(spec, url);
    let error = match now(sender, url).await {
        Ok(text) => {
            if let Err(error) = keep(&kept, &text) {
                tracing::warn!("the document of API '{}' is not kept: {error}", spec.name);
            }
            return Ok(text);
        }
        Err(error) => error,
    };
    match fs_err::read_to_string(&kept) {
        Ok(text) => {
            tracing::warn!(
                "the document of API '{}' cannot be had, the last one is used: {error}",
                spec.name
            );
            Ok(text)
        }
        Err(_) => Err(error),
    }
}

async fn now(sender: &Sender, url: &Text) -> Result<String, FetchError> {
    let address = Url::parse(url.expose()).map_err(|_| FetchError::Url(url.shown().to_owned()))?;
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, application/yaml, */*;q=0.5"));
    let sent = sender.send("GET", address, headers, None, LARGEST);
    let answer = tokio::time::timeout(PATIENCE, sent).await.map_err(|_| FetchError::Late)??;
    if answer.status != 200 {
        return Err(FetchError::Status(answer.status));
    }
    String::from_utf8(answer.bytes).map_err(|_| FetchError::Utf8)
}

/// Another address is another document.
fn kept(spec: &ApiSpec, url: &Text) -> PathBuf {
    let digest = Sha256::digest(url.expose());
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    spec.cache.join(format!("{}-{hex}", spec.name.prefix()))
}

fn keep(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs_err::create_dir_all(folder)?;
    let beside = path.with_extension(format!("{}.tmp", std::process::id()));
    fs_err::write(&beside, text)?;
    fs_err::rename(&beside, path)
}
