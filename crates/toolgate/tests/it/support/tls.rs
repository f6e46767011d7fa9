//! Test certificate authority and TLS client.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, project, request};
use crate::support::program::Program;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, in PEM.
pub(crate) struct Identity {
    cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for a host or a URI.
    pub(crate) fn certify(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        if name.contains("://") {
            params.subject_alt_names = vec![SanType::URI(name.try_into().expect("a URI"))];
        } else {
            params.subject_alt_names.push(SanType::DnsName(name.try_into().expect("a host")));
        }
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.0).expect("it is signed");
        Identity { cert: cert.pem(), key: key.serialize_pem() }
    }
}

impl Identity {
    /// Writes it to the files the config of the gateway names.
    pub(crate) fn install(&self, program: &Program) {
        program.write("key.pem", &self.key);
        program.write("cert.pem", &self.cert);
    }

    pub(crate) fn sha256(&self) -> String {
        let der = CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("a certificate");
        toolgate_types::KeyHash::of_bytes(&der).to_string()
    }
}

/// A client that trusts an authority and may have a certificate.
pub(crate) struct Client(Arc<ClientConfig>);

impl Client {
    pub(crate) fn new(trusts: &Authority, shows: Option<&Identity>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(trusts.0.der().clone()).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports the versions")
            .with_root_certificates(roots);
        let config = match shows {
            None => builder.with_no_client_auth(),
            Some(Identity { cert, key }) => {
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).expect("a certificate");
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(vec![cert], key).expect("they fit together")
            }
        };
        Self(Arc::new(config))
    }

    pub(crate) fn connect(&self, gateway: &Gateway) -> StreamOwned<ClientConnection, TcpStream> {
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::clone(&self.0), name).expect("a client");
        StreamOwned::new(connection, gateway.connect())
    }

    /// Returns the response, or `None` without a connection.
    pub(crate) fn request(
        &self,
        gateway: &Gateway,
        first: &str,
        headers: &[&str],
        body: &str,
    ) -> Option<HttpResponse> {
        let mut stream = self.connect(gateway);
        stream.write_all(request(first, headers, body).as_bytes()).ok()?;
        HttpResponse::read(&mut BufReader::new(stream))
    }

    /// Returns the status of a call, or 0 without a connection.
    pub(crate) fn calls(&self, gateway: &Gateway, headers: &[&str]) -> u16 {
        let headers: Vec<_> = headers.iter().chain(&["Content-Type: application/json"]).copied().collect();
        let response = self.request(gateway, "POST /v1/tools/echo/call", &headers, r#"{"arguments":{}}"#);
        response.map_or(0, |response| response.status)
    }
}

/// Creates a project with a server certificate of an authority.
pub(crate) fn secured(authority: &Authority, mut tls: Json, config: &Json) -> Program {
    tls["cert"] = json!("cert.pem");
    tls["key"] = json!("key.pem");
    let mut whole = config.clone();
    whole["serve"]["tls"] = tls;
    let program = project(&whole);
    authority.certify("localhost").install(&program);
    program.write("ca.pem", authority.pem());
    program
}
