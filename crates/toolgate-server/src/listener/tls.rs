//! TLS of the listener: the server certificate, and the authorities of client certificates.
//!
//! Invariant: replaced files count from the next connection on, a broken file changes nothing, and open connections
//! continue.

use std::error::Error as StdError;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use toolgate_types::KeyHash;
use toolgate_types::serve::{CertificateMatch, ClientCertificate, ServeTls};

/// Time limit of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum time between two checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Errors of the TLS files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or malformed.
    #[error("`{}` cannot be used for TLS: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    /// The certificate and the key do not match.
    #[error("`{}` and its key cannot be used for TLS: {reason}", cert.display())]
    Unusable { cert: PathBuf, reason: String },
}

impl TlsError {
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } => "`serve.tls` needs readable files in PEM format",
            Self::Unusable { .. } => {
                "`serve.tls.key` must be the private key of the first certificate in `cert`"
            }
        }
    }
}

/// Modification time, length and inode of each file.
type FileStamps = [Option<(SystemTime, u64, u64)>; 3];

/// TLS configuration that follows its files.
pub(crate) struct TlsContext {
    files: ServeTls,
    state: Mutex<TlsState>,
}

struct TlsState {
    config: Arc<ServerConfig>,
    stamps: FileStamps,
    checked_at: Instant,
}

impl TlsContext {
    pub(crate) fn open(files: ServeTls, now: Instant) -> Result<Self, TlsError> {
        let stamps = stamps(&files);
        let state = TlsState { config: Arc::new(load(&files)?), stamps, checked_at: now };
        Ok(Self { files, state: Mutex::new(state) })
    }

    /// Returns the current configuration. Reloads it if the files have changed.
    fn current_config(&self, now: Instant) -> Arc<ServerConfig> {
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.checked_at) >= CHECK_INTERVAL {
            state.checked_at = now;
            let stamps = stamps(&self.files);
            if stamps != state.stamps {
                match load(&self.files) {
                    Ok(config) => {
                        state.config = Arc::new(config);
                        state.stamps = stamps;
                        tracing::info!("TLS certificates reloaded");
                    }
                    // The files may be half replaced; the next check tries again.
                    Err(error) => {
                        tracing::warn!("cannot reload TLS certificates, the old ones stay in use: {error}")
                    }
                }
            }
        }
        Arc::clone(&state.config)
    }

    /// Performs the handshake. Returns the verified client certificate, if any.
    pub(crate) async fn accept<S>(&self, stream: S) -> Result<(TlsStream<S>, Option<PeerCertificate>), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.current_config(Instant::now()));
        let stream = match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
            Ok(stream) => stream.map_err(|error| error.to_string())?,
            Err(_) => return Err("the handshake timed out".to_owned()),
        };
        let certificate =
            stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(PeerCertificate::new);
        Ok((stream, certificate))
    }
}

/// A client certificate, verified against the configured authorities.
#[derive(Debug, Clone)]
pub(crate) struct PeerCertificate {
    sha256: KeyHash,
    names: Vec<String>,
}

impl PeerCertificate {
    fn new(der: &CertificateDer<'_>) -> Self {
        let names = webpki::EndEntityCert::try_from(der).map(|certificate| {
            certificate
                .valid_dns_names()
                .chain(certificate.valid_uri_names())
                .map(ToOwned::to_owned)
                .collect()
        });
        Self { sha256: KeyHash::of_bytes(der), names: names.unwrap_or_default() }
    }

    /// Returns true if the certificate matches the rule of a caller.
    pub(crate) fn matches(&self, CertificateMatch { san, sha256, .. }: &CertificateMatch) -> bool {
        // Host names are case-insensitive, URIs are not.
        let same = |san: &str, name: &str| match san.contains("://") {
            true => san == name,
            false => san.eq_ignore_ascii_case(name),
        };
        let named = san.as_ref().is_none_or(|san| self.names.iter().any(|name| same(san, name)));
        let hashed = sha256.is_none_or(|sha256| sha256 == self.sha256);
        named && hashed && (san.is_some() || sha256.is_some())
    }
}

fn stamps(files: &ServeTls) -> FileStamps {
    [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()].map(|path| {
        let file = fs_err::metadata(path?).ok()?;
        // The inode detects a file replaced within one tick of the clock.
        Some((file.modified().ok()?, file.len(), file.ino()))
    })
}

fn load(files: &ServeTls) -> Result<ServerConfig, TlsError> {
    let unusable = |reason: String| TlsError::Unusable { cert: files.cert.clone(), reason };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| file_error(path, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match files.client_certificate {
                ClientCertificate::Required => verifier,
                ClientCertificate::Optional => verifier.allow_unauthenticated(),
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| file_error(path, error))?)
        }
    };
    let key = fs_err::read(&files.key).map_err(|error| file_error(&files.key, error))?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| file_error(&files.key, format!("it contains no private key ({error})")))?;
    let mut config = builder
        .with_single_cert(certificates(&files.cert)?, key)
        .map_err(|error| unusable(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = fs_err::read(path).map_err(|error| file_error(path, error))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| file_error(path, error))?;
    if certificates.is_empty() {
        Err(file_error(path, "it contains no certificate"))
    } else {
        Ok(certificates)
    }
}

fn file_error(path: &Path, reason: impl Into<Box<dyn StdError + Send + Sync>>) -> TlsError {
    TlsError::File { path: path.to_owned(), reason: reason.into().to_string() }
}

#[cfg(test)]
mod tests;
