//! The transports: bytes on one side, a [`Link`](crate::Link) on the other.
//!
//! All four behave alike for whoever holds the link. Invariant: what one message may hold in memory
//! is bounded by [`Limits::size`](crate::scan::Limits) on every road, a reader never waits for a
//! writer, nothing follows a redirect, and no error text shows more of an address than
//! [`shown`] does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use toolgate_types::Secret;
use toolgate_types::server::Tls;
use url::Url;

use crate::link::LinkError;
use crate::oauth::TokenSource;

pub mod events;
pub mod http;
pub mod lines;
pub mod sse;
pub(crate) mod tls;
pub mod websocket;

/// What is shown of an address that a server chose.
const LONGEST_SHOWN: usize = 256;

/// A pause, with up to half of it more: many who begin to wait at the same moment do not come back at the same one.
pub fn spread(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + fastrand::f64() / 2.0)
}

/// Where a server is, and how it is spoken to.
#[derive(Debug, Clone)]
pub struct RemoteOptions {
    /// Its address.
    pub url: Url,
    /// Headers of every request, as names and values.
    pub headers: Vec<(String, Secret)>,
    /// How long a connection may take to be made, with everything that must happen before the
    /// first message can be sent.
    pub connect_timeout: Duration,
    /// How long a stream may be silent; see [`http`] for what counts as silence.
    pub sse_read_timeout: Duration,
    /// Whether the session is ended on the server when we are done.
    pub terminate_on_close: bool,
    /// Certificates of our own.
    pub tls: Tls,
    /// Tokens for every request over HTTP, where the headers hold none.
    pub tokens: Option<Arc<TokenSource>>,
}

impl RemoteOptions {
    /// The usual options for an address.
    pub fn new(url: Url) -> Self {
        Self {
            url,
            headers: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            sse_read_timeout: Duration::from_secs(300),
            terminate_on_close: true,
            tls: Tls::default(),
            tokens: None,
        }
    }
}

/// Why a connection could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is of no use to this transport.
    #[error("`{url}` is not an address for this transport, which takes {takes}")]
    Address {
        /// The address.
        url: String,
        /// What it should start with.
        takes: &'static str,
    },
    /// A header cannot be sent.
    #[error("header `{0}` has a name or a value that cannot be sent")]
    Header(String),
    /// A file with certificates cannot be read.
    #[error("cannot read the certificates of `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The certificates do not fit together.
    #[error("the certificates cannot be used")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The server did not let us in.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// An address as it may be shown: without user, password, query and fragment, where secrets are.
pub fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// A redirect that we do not follow; `to` is what the server says.
fn redirect(from: &Url, to: Option<&[u8]>) -> LinkError {
    let to = to.and_then(|to| std::str::from_utf8(to).ok()).and_then(|to| from.join(to).ok());
    LinkError::Redirect(to.map(|to| shown(&to).chars().take(LONGEST_SHOWN).collect()))
}

/// The innermost reason of an error, which is the one that a reader can do something about.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod testing;

#[test]
fn addresses_are_shown_without_secrets() {
    let url = Url::parse("https://ann:pass@example.com:8443/mcp?token=t#f").unwrap();
    assert_eq!(shown(&url), "https://example.com:8443/mcp");
}
