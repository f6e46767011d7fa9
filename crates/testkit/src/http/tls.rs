//! TLS settings of the server, from PEM files.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Builds the settings from the keys `cert`, `key` and `client-ca`; `None` without a certificate.
pub(super) fn config(keys: &HashMap<&str, &str>) -> Option<Arc<ServerConfig>> {
    let certificates = |path: &str| -> Vec<CertificateDer<'static>> {
        let found = CertificateDer::pem_file_iter(path).expect("the file can be read");
        found.collect::<Result<_, _>>().expect("certificates in PEM")
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider knows them");
    let builder = match keys.get("client-ca") {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(certificates(path));
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("authorities are given"))
        }
    };
    let key = PrivateKeyDer::from_pem_file(keys.get("key")?).expect("a key in PEM");
    Some(Arc::new(builder.with_single_cert(certificates(keys.get("cert")?), key).expect("they fit together")))
}
