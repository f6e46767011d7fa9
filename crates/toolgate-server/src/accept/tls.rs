//! TLS of the door: who we are, and whose certificates callers may show.
//!
//! Invariant: files that were replaced are used from the next connection on, a file that is broken at that moment
//! changes nothing, and connections that are open go on.

use std::error::Error as StdError;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

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
use toolgate_types::door::{CertificateMatch, ClientCertificate, DoorTls};

/// How long the two sides may take to agree.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often the files are looked at, at most.
const LOOK: Duration = Duration::from_secs(1);

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not what it should be.
    #[error("`{}` cannot be used for TLS: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The files do not fit together.
    #[error("`{}` and its key cannot be used for TLS: {why}", cert.display())]
    Unusable {
        /// The certificate.
        cert: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl TlsError {
    /// The way out.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::File { .. } => "`serve.tls` names files in PEM; make it readable, or name another",
            Self::Unusable { .. } => "`serve.tls.key` is the private key of the first certificate in `cert`",
        }
    }
}

/// What tells each file from what was there before.
type Stamp = [Option<(SystemTime, u64, u64)>; 3];

/// TLS as the files say.
pub(crate) struct Tls {
    rules: DoorTls,
    state: Mutex<State>,
}

struct State {
    config: Arc<ServerConfig>,
    stamp: Stamp,
    looked: Instant,
}

impl Tls {
    pub(crate) fn open(rules: DoorTls, now: Instant) -> Result<Self, TlsError> {
        let stamp = stamp(&rules);
        let state = State { config: Arc::new(load(&rules)?), stamp, looked: now };
        Ok(Self { rules, state: Mutex::new(state) })
    }

    /// What counts now.
    fn current(&self, now: Instant) -> Arc<ServerConfig> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.looked) >= LOOK {
            state.looked = now;
            let stamp = stamp(&self.rules);
            if stamp != state.stamp {
                match load(&self.rules) {
                    Ok(config) => {
                        state.config = Arc::new(config);
                        state.stamp = stamp;
                        tracing::info!("the certificates of the door were read anew");
                    }
                    // Half of what is to come may be there; it is looked at again.
                    Err(error) => tracing::warn!("the certificates stay as they were: {error}"),
                }
            }
        }
        Arc::clone(&state.config)
    }

    /// Agrees with whoever is on the other side, and says what it showed of itself.
    pub(crate) async fn accept<S>(&self, stream: S) -> Result<(TlsStream<S>, Option<Shown>), String>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.current(Instant::now()));
        let stream = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
            Ok(stream) => stream.map_err(|error| error.to_string())?,
            Err(_) => return Err("it took too long".to_owned()),
        };
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(Shown::new);
        Ok((stream, shown))
    }
}

/// The certificate that a caller showed, which one of our authorities vouches for.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    sha256: KeyHash,
    names: Vec<String>,
}

impl Shown {
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

    /// Whether it is what a caller is known by.
    pub(crate) fn fits(&self, CertificateMatch { san, sha256 }: &CertificateMatch) -> bool {
        // A host has no case, a URI does.
        let same = |san: &str, name: &str| match san.contains("://") {
            true => san == name,
            false => san.eq_ignore_ascii_case(name),
        };
        let named = san.as_ref().is_none_or(|san| self.names.iter().any(|name| same(san, name)));
        let hashed = sha256.is_none_or(|sha256| sha256 == self.sha256);
        named && hashed && (san.is_some() || sha256.is_some())
    }
}

fn stamp(rules: &DoorTls) -> Stamp {
    [Some(&rules.cert), Some(&rules.key), rules.client_ca.as_ref()].map(|path| {
        let file = fs_err::metadata(path?).ok()?;
        // The number tells one that was put in the place of another within a tick of the clock.
        Some((file.modified().ok()?, file.len(), file.ino()))
    })
}

fn load(rules: &DoorTls) -> Result<ServerConfig, TlsError> {
    let unusable = |why: String| TlsError::Unusable { cert: rules.cert.clone(), why };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    let builder = match &rules.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| file(path, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match rules.client_certificate {
                ClientCertificate::Required => verifier,
                ClientCertificate::Optional => verifier.allow_unauthenticated(),
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| file(path, error))?)
        }
    };
    let key = fs_err::read(&rules.key).map_err(|error| file(&rules.key, error))?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| file(&rules.key, format!("there is no private key in it ({error})")))?;
    let mut config = builder
        .with_single_cert(certificates(&rules.cert)?, key)
        .map_err(|error| unusable(error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = fs_err::read(path).map_err(|error| file(path, error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| file(path, error))?;
    if found.is_empty() { Err(file(path, "there is no certificate in it")) } else { Ok(found) }
}

fn file(path: &Path, why: impl Into<Box<dyn StdError + Send + Sync>>) -> TlsError {
    TlsError::File { path: path.to_owned(), why: why.into().to_string() }
}

#[cfg(test)]
mod tests;
