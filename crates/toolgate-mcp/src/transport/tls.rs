//! TLS: whom we trust, and who we are.
//!
//! One configuration for every transport. The roots are those of the platform, with a private
//! authority beside them where a file names one. Invariant: certificates that were renewed on disk
//! are used from the next connection on, and a file that is broken at that moment changes nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_platform_verifier::Verifier;

use super::OpenError;

/// Files with certificates of our own, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities to trust, beside those of the platform.
    pub ca: Option<PathBuf>,
    /// Who we are: our certificate, with those between it and its authority.
    pub certificate: Option<PathBuf>,
    /// The key of our certificate; in the file of the certificate where it is `None`.
    pub key: Option<PathBuf>,
}

/// When each file was changed; a file that is gone has no time.
pub(super) type Stamp = [Option<SystemTime>; 3];

impl TlsFiles {
    pub(super) fn stamp(&self) -> Stamp {
        [&self.ca, &self.certificate, &self.key]
            .map(|path| fs_err::metadata(path.as_ref()?).ok()?.modified().ok())
    }

    /// What these files say, read now.
    pub(crate) fn load(&self) -> Result<Arc<ClientConfig>, OpenError> {
        // The roots of the platform are many; they are read once where nothing is added to them.
        static PLATFORM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
        if *self != Self::default() {
            return self.build().map(Arc::new);
        }
        if let Some(config) = PLATFORM.get() {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(self.build()?);
        Ok(Arc::clone(PLATFORM.get_or_init(|| config)))
    }

    fn build(&self) -> Result<ClientConfig, OpenError> {
        let provider: Arc<CryptoProvider> = Arc::new(aws_lc_rs::default_provider());
        let extra = self.ca.as_deref().map(certificates).transpose()?.unwrap_or_default();
        let verifier = Verifier::new_with_extra_roots(extra, Arc::clone(&provider)).map_err(tls)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(tls)?
            .dangerous() // The name of the only door to a verifier of one's own; this one verifies.
            .with_custom_certificate_verifier(Arc::new(verifier));
        let Some(path) = &self.certificate else {
            return Ok(builder.with_no_client_auth());
        };
        let key_path = self.key.as_ref().unwrap_or(path);
        let key = PrivateKeyDer::from_pem_slice(&read(key_path)?).map_err(|error| file(key_path, error))?;
        builder.with_client_auth_cert(certificates(path)?, key).map_err(tls)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.map_err(|error| file(path, error))?;
    if found.is_empty() {
        return Err(file(path, "there is no certificate in it"));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    fs_err::read(path).map_err(|error| file(path, error))
}

fn file(path: &Path, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> OpenError {
    OpenError::File { path: path.to_owned(), source: source.into() }
}

fn tls(error: rustls::Error) -> OpenError {
    OpenError::Tls(error.into())
}

#[cfg(test)]
mod tests;
