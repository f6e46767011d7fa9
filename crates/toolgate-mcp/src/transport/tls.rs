//! TLS: whom we trust, and who we are.
//!
//! One configuration for every transport. The roots are those of the platform, with a private
//! authority beside them where a file names one. Invariant: certificates that were renewed on disk
//! are used from the next connection on, and a file that is broken at that moment changes nothing.

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
use toolgate_types::server::Tls;

use super::{OpenError, root};
use crate::link::LinkError;

/// What servers say of a certificate that they do not take.
const NOT_TAKEN: [AlertDescription; 9] = [
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

/// What tells each file from what was there before; a file that is gone has nothing.
///
/// The number of the file is there for one that was put in the place of another within a tick of the clock.
pub(super) type Stamp = [Option<(SystemTime, u64, u64)>; 4];

pub(super) fn stamp(tls: &Tls) -> Stamp {
    let (cert, key) = tls.identity.as_ref().map(|identity| (&identity.cert, &identity.key)).unzip();
    [tls.ca.as_ref(), cert, key, tls.crl.as_ref()].map(|path| {
        let file = fs_err::metadata(path?).ok()?;
        Some((file.modified().ok()?, file.len(), file.ino()))
    })
}

/// What these files say, read now.
pub(crate) fn load(tls: &Tls) -> Result<Arc<ClientConfig>, OpenError> {
    // The roots of the platform are many; they are read once where nothing is added to them.
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

fn build(tls: &Tls) -> Result<ClientConfig, OpenError> {
    let provider: Arc<CryptoProvider> = Arc::new(aws_lc_rs::default_provider());
    let extra = tls.ca.as_deref().map(certificates).transpose()?.unwrap_or_default();
    let trusted = Verifier::new_with_extra_roots(extra.clone(), Arc::clone(&provider)).map_err(unusable)?;
    let verifier: Arc<dyn ServerCertVerifier> = match &tls.crl {
        None => Arc::new(trusted),
        Some(path) => Arc::new(Revoking { trusted, current: current(path, extra, &provider)? }),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .dangerous() // The name of the only door to a verifier of one's own; this one verifies.
        .with_custom_certificate_verifier(verifier);
    let Some(identity) = &tls.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let key = PrivateKeyDer::from_pem_slice(&read(&identity.key)?);
    let key = key.map_err(|error| file(&identity.key, error))?;
    builder.with_client_auth_cert(certificates(&identity.cert)?, key).map_err(unusable)
}

/// Certificates of the private authorities that are still good, as their lists say.
///
/// The last certificate of a chain must be covered by a list that is not out of date. Those between
/// it and the root are changed in the file of the authorities.
fn current(
    path: &Path,
    authorities: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, OpenError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(unusable)?;
    }
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&read(path)?).collect();
    let lists = lists.map_err(|error| file(path, error))?;
    if lists.is_empty() {
        return Err(file(path, "there is no revocation list in it"));
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .with_crls(lists)
        .only_check_end_entity_revocation()
        .enforce_revocation_expiration()
        .build()
        .map_err(|error| file(path, error))
}

/// Trusts whom the platform and the private authorities trust, without those that the latter revoked.
#[derive(Debug)]
struct Revoking {
    trusted: Verifier,
    current: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Revoking {
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
        match self.current.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // Of an authority of the platform: the lists of the private ones do not concern it.
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

/// What TLS says about the end of a connection, where TLS ended it.
pub(super) fn failure(error: &(dyn StdError + 'static), place: &str) -> Option<LinkError> {
    let (what, hint) = explain(&find(error).cloned().or_else(|| reported(error))?);
    Some(LinkError::Tls { place: place.to_owned(), what, hint })
}

/// The error of TLS in a chain. `io::Error` hides what it holds from its `source`.
fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
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

/// The alert of a server over HTTP/2, which keeps no more than the words of what broke its connection.
fn reported(error: &(dyn StdError + 'static)) -> Option<Error> {
    let words = root(error);
    std::iter::once(AlertDescription::CertificateRequired)
        .chain(NOT_TAKEN)
        .map(Error::AlertReceived)
        .find(|alert| words.contains(&alert.to_string()))
}

/// What happened, and the way out where there is one to name.
fn explain(error: &Error) -> (String, Option<&'static str>) {
    use CertificateError as Bad;
    let known = match error {
        Error::InvalidCertificate(bad) => match bad {
            // The signature is wrong where an authority was made anew under its old name.
            Bad::UnknownIssuer | Bad::BadSignature => (
                "its certificate is of an authority that is not trusted here",
                "name the file with the authority in `tls.ca` of the server",
            ),
            Bad::Expired | Bad::ExpiredContext { .. } => {
                ("its certificate has expired", "renew the certificate of the server, or correct the clock")
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => (
                "its certificate is not valid yet",
                "correct the clock here, or the certificate of the server",
            ),
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => (
                "its certificate is for another name",
                "use a name in `url` that the certificate of the server holds",
            ),
            Bad::Revoked => (
                "its certificate was revoked",
                "the list in `tls.crl` says so; the server needs a new certificate",
            ),
            Bad::UnknownRevocationStatus => (
                "nothing says whether its certificate was revoked",
                "add the list of its authority to `tls.crl`",
            ),
            Bad::ExpiredRevocationList | Bad::ExpiredRevocationListContext { .. } => {
                ("the list of revoked certificates is out of date", "renew the file in `tls.crl`")
            }
            _ => return (error.to_string(), None),
        },
        Error::AlertReceived(AlertDescription::CertificateRequired) => (
            "it wants a certificate of ours",
            "name one in `tls.cert` of the server, and its key in `tls.key`",
        ),
        Error::AlertReceived(alert) if NOT_TAKEN.contains(alert) => {
            let what = format!("it does not take what we show of us ({error})");
            return (what, Some("look at `tls.cert` and `tls.key` of the server"));
        }
        Error::InvalidMessage(_) => ("it does not speak TLS", "is this an address for `http://` or `ws://`?"),
        _ => return (error.to_string(), None),
    };
    (known.0.to_owned(), Some(known.1))
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

fn file(path: &Path, source: impl Into<Box<dyn StdError + Send + Sync>>) -> OpenError {
    OpenError::File { path: path.to_owned(), source: source.into() }
}

fn unusable(error: Error) -> OpenError {
    OpenError::Tls(error.into())
}

#[cfg(test)]
mod tests;
