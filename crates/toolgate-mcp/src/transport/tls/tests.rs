//! Certificates of a private authority, on both sides.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;
use url::Url;

use super::super::testing::{Asked, Server, asked, result, whole};
use super::super::{RemoteOptions, http, websocket};
use super::*;
use crate::link::LinkError;
use crate::scan::Limits;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, in PEM.
fn issue(authority: &Authority) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

/// A server that lets in nobody without a certificate of its authority.
async fn server(authority: &Authority) -> Server {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let (certificate, key) = issue(authority);
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let answer = async |request: Asked| {
        assert_eq!(request.version(), hyper::Version::HTTP_2);
        whole(200, "application/json", result(&asked(&request).0))
    };
    Server::start_tls(answer, Some(TlsAcceptor::from(Arc::new(config)))).await
}

fn options(server: &Server, scheme: &str, tls: TlsFiles) -> RemoteOptions {
    let url = Url::parse(&format!("{scheme}://{}/mcp", server.address)).unwrap();
    RemoteOptions { tls, ..RemoteOptions::new(url) }
}

#[tokio::test]
async fn certificates_of_our_own_and_their_renewal() {
    let (theirs, other) = (authority(), authority());
    let server = server(&theirs).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (certificate, key) = issue(&theirs);
    fs_err::write(path("ca.pem"), other.pem()).unwrap();
    fs_err::write(path("client.pem"), certificate + &key).unwrap();
    let tls = TlsFiles { ca: Some(path("ca.pem")), certificate: Some(path("client.pem")), key: None };
    let mut link = http::open(options(&server, "https", tls.clone()), Limits::default()).unwrap();
    link.ask(1, "ping", None).await;
    let error = link.failure(1).await.to_string();
    assert!(error.starts_with("cannot connect to `https://127.0.0.1:"), "{error}");
    assert!(error.contains("certificate"), "{error}");

    // A broken file changes nothing; the right one is used by the next request.
    fs_err::write(path("ca.pem"), "half a file").unwrap();
    link.ask(2, "ping", None).await;
    link.failure(2).await;
    fs_err::write(path("ca.pem"), theirs.pem()).unwrap();
    link.ask(3, "ping", None).await;
    assert_eq!(link.message().await["id"], 3);

    // The same files serve a WebSocket, which this server does not speak.
    let refused = websocket::open(options(&server, "wss", tls), websocket::PING, Limits::default()).await;
    assert!(
        matches!(refused, Err(OpenError::Link(LinkError::Io(_) | LinkError::Status { .. }))),
        "{refused:?}"
    );

    let nobody = TlsFiles { ca: Some(path("ca.pem")), ..TlsFiles::default() };
    let mut link = http::open(options(&server, "https", nobody), Limits::default()).unwrap();
    link.ask(1, "ping", None).await;
    link.failure(1).await;
}

#[tokio::test]
async fn files_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let url = Url::parse("https://localhost/").unwrap();
    let open = || {
        let tls = TlsFiles { ca: Some(path.clone()), ..TlsFiles::default() };
        let options = RemoteOptions { tls, ..RemoteOptions::new(url.clone()) };
        http::open(options, Limits::default()).unwrap_err()
    };
    assert_eq!(open().to_string(), format!("cannot read the certificates of `{}`", path.display()));
    fs_err::write(&path, "nothing").unwrap();
    let source = std::error::Error::source(&open()).unwrap().to_string();
    assert_eq!(source, "there is no certificate in it");
}
