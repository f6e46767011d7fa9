//! TLS: trusted roots and client certificate.
//!
//! One configuration for every transport. The platform's root certificates are trusted, plus a private CA if one is
//! configured. Invariant: certificates that are renewed on disk apply from the next connection on, and an invalid file
//! at that moment changes nothing.

use std::error::Error as StdError;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use rustls_platform_verifier::Verifier;
use toolgate_types::server::UpstreamTls;

use super::{OpenError, root_cause};
use crate::link::LinkError;

/// Alerts with which servers reject our certificate.
const REJECTION_ALERTS: [AlertDescription; 9] = [
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::AccessDenied,
    AlertDescription::DecryptError,
    AlertDescription::HandshakeFailure,
];

/// Version of each certificate file; `None` if the file is missing.
///
/// Includes the inode, to detect a file that was replaced within one tick of the clock.
pub(super) type FileStamps = [Option<(SystemTime, u64, u64)>; 4];

pub(super) fn file_stamps(tls: &UpstreamTls) -> FileStamps {
    let (cert, key) = tls.identity.as_ref().map(|identity| (&identity.cert, &identity.key)).unzip();
    [tls.ca.as_ref(), cert, key, tls.crl.as_ref()].map(|path| {
        let file_error = fs_err::metadata(path?).ok()?;
        Some((file_error.modified().ok()?, file_error.len(), file_error.ino()))
    })
}

/// Loads the configuration from the files as they are now.
pub(crate) fn load(tls: &UpstreamTls) -> Result<Arc<ClientConfig>, OpenError> {
    // Platform roots are many; load them once if nothing is added to them.
    static PLATFORM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if !tls.is_default() {
        return build(tls).map(Arc::new);
    }
    if let Some(config) = PLATFORM.get() {
        return Ok(Arc::clone(config));
    }
    let config = Arc::new(build(tls)?);
    Ok(Arc::clone(PLATFORM.get_or_init(|| config)))
}

fn build(tls: &UpstreamTls) -> Result<ClientConfig, OpenError> {
    let provider: Arc<CryptoProvider> = Arc::new(aws_lc_rs::default_provider());
    let extra = tls.ca.as_deref().map(certificates).transpose()?.unwrap_or_default();
    let trusted = Verifier::new_with_extra_roots(extra.clone(), Arc::clone(&provider))
        .map_err(unusable_certificates)?;
    let verifier: Arc<dyn ServerCertVerifier> = match &tls.crl {
        None => Arc::new(trusted),
        Some(path) => Arc::new(RevocationVerifier {
            trusted,
            revocation_verifier: revocation_verifier(path, extra, &provider)?,
        }),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable_certificates)?
        .dangerous() // Required for any custom verifier; this one does verify.
        .with_custom_certificate_verifier(verifier);
    let Some(identity) = &tls.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let key = PrivateKeyDer::from_pem_slice(&read(&identity.key)?);
    let key = key.map_err(|error| file_error(&identity.key, error))?;
    builder.with_client_auth_cert(certificates(&identity.cert)?, key).map_err(unusable_certificates)
}

/// Builds a verifier for certificates of the private CAs that checks their revocation lists.
///
/// The end-entity certificate must be covered by a list that is not expired. Intermediate certificates are managed in
/// the CA file.
fn revocation_verifier(
    path: &Path,
    authorities: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, OpenError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(unusable_certificates)?;
    }
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&read(path)?).collect();
    let lists = lists.map_err(|error| file_error(path, error))?;
    if lists.is_empty() {
        return Err(file_error(path, "the file contains no revocation list"));
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .with_crls(lists)
        .only_check_end_entity_revocation()
        .enforce_revocation_expiration()
        .build()
        .map_err(|error| file_error(path, error))
}

/// Trusts the platform's and the private CAs, except for certificates that a private CA revoked.
#[derive(Debug)]
struct RevocationVerifier {
    trusted: Verifier,
    revocation_verifier: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for RevocationVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.trusted.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)?;
        match self.revocation_verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        ) {
            // Issued by a platform CA: the private revocation lists do not apply.
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => Ok(verified),
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trusted.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trusted.supported_verify_schemes()
    }
}

/// Converts an error to [`LinkError::Tls`] if TLS caused it.
pub(super) fn tls_error(error: &(dyn StdError + 'static), url: &str) -> Option<LinkError> {
    let (what, hint) = describe(&find_tls_error(error).cloned().or_else(|| alert_in_message(error))?);
    Some(LinkError::Tls { url: url.to_owned(), reason: what, hint })
}

/// Finds the TLS error in a chain. `io::Error` does not expose its inner error as `source`.
fn find_tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    None
}

/// Finds a TLS alert by its text: HTTP/2 keeps only the message of the error that closed the connection.
fn alert_in_message(error: &(dyn StdError + 'static)) -> Option<Error> {
    let words = root_cause(error);
    std::iter::once(AlertDescription::CertificateRequired)
        .chain(REJECTION_ALERTS)
        .map(Error::AlertReceived)
        .find(|alert| words.contains(&alert.to_string()))
}

/// Describes the error, with a hint for the fix where there is one.
fn describe(error: &Error) -> (String, Option<&'static str>) {
    use CertificateError as Bad;
    let description = match error {
        Error::InvalidCertificate(bad) => match bad {
            // The signature is wrong where an authority was made anew under its old name.
            Bad::UnknownIssuer | Bad::BadSignature => (
                "its certificate is from an untrusted authority",
                "set `tls.ca` of the server to the CA file",
            ),
            Bad::Expired | Bad::ExpiredContext { .. } => {
                ("its certificate has expired", "renew the server's certificate, or correct the clock")
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                ("its certificate is not valid yet", "correct the local clock, or the server's certificate")
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => (
                "its certificate is for another name",
                "use a host name in `url` that the server's certificate contains",
            ),
            Bad::Revoked => (
                "its certificate was revoked",
                "it is listed in `tls.crl`; the server needs a new certificate",
            ),
            Bad::UnknownRevocationStatus => (
                "no revocation list covers its certificate",
                "add the revocation list of its authority to `tls.crl`",
            ),
            Bad::ExpiredRevocationList | Bad::ExpiredRevocationListContext { .. } => {
                ("the revocation list is out of date", "renew the file in `tls.crl`")
            }
            _ => return (error.to_string(), None),
        },
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            ("it requires a client certificate", "set `tls.cert` and `tls.key` of the server")
        }
        Error::AlertReceived(alert) if REJECTION_ALERTS.contains(alert) => {
            let what = format!("it rejected our certificate ({error})");
            return (what, Some("check `tls.cert` and `tls.key` of the server"));
        }
        Error::InvalidMessage(_) => {
            ("it does not speak TLS", "should the URL start with `http://` or `ws://`?")
        }
        _ => return (error.to_string(), None),
    };
    (description.0.to_owned(), Some(description.1))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.map_err(|error| file_error(path, error))?;
    if found.is_empty() {
        return Err(file_error(path, "the file contains no certificate"));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    fs_err::read(path).map_err(|error| file_error(path, error))
}

fn file_error(path: &Path, source: impl Into<Box<dyn StdError + Send + Sync>>) -> OpenError {
    OpenError::File { path: path.to_owned(), source: source.into() }
}

fn unusable_certificates(error: Error) -> OpenError {
    OpenError::Tls(error.into())
}

#[cfg(test)]
mod tests;
