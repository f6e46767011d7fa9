//! Private CA certificates, on both sides.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;
use url::Url;

use super::super::testing::{Server, TestRequest, id_and_method, result, whole};
use super::super::{RemoteOptions, http, websocket};
use super::*;
use crate::scan::ScanLimits;
use toolgate_types::server::ClientIdentity;

/// Serial number of every certificate in these tests.
const SERIAL: u64 = 7;
/// Time within which a replaced file must be used.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Issues a certificate; returns it with its key, in PEM.
fn issue(authority: &Authority) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.serial_number = Some(SerialNumber::from(SERIAL));
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

/// Replaces a file atomically, as certificate managers do.
fn replace(path: &Path, text: impl AsRef<[u8]>) {
    let new = path.with_extension("new");
    fs_err::write(&new, text).unwrap();
    fs_err::rename(&new, path).unwrap();
}

/// Revocation list of an authority, in PEM.
fn revocations(authority: &Authority, serials: &[u64], until: i32) -> String {
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2024, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(until, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(authority).unwrap().pem().unwrap()
}

/// Server that requires a client certificate of its authority.
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
    let answer = async |request: TestRequest| {
        assert_eq!(request.version(), hyper::Version::HTTP_2);
        whole(200, "application/json", result(&id_and_method(&request).0))
    };
    Server::start_tls(answer, Some(TlsAcceptor::from(Arc::new(config)))).await
}

fn options(server: &Server, scheme: &str, tls: UpstreamTls) -> RemoteOptions {
    let url = Url::parse(&format!("{scheme}://{}/mcp", server.address)).unwrap();
    RemoteOptions { tls, ..RemoteOptions::new(url) }
}

#[tokio::test]
async fn private_ca_and_client_certificate_with_renewal() {
    let (trusted, other) = (authority("theirs"), authority("another"));
    let server = server(&trusted).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (certificate, key) = issue(&trusted);
    fs_err::write(path("ca.pem"), other.pem()).unwrap();
    fs_err::write(path("client.pem"), certificate + &key).unwrap();
    let identity = Some(ClientIdentity { cert: path("client.pem"), key: path("client.pem") });
    let tls = UpstreamTls { ca: Some(path("ca.pem")), identity, crl: None };
    let mut link = http::open(options(&server, "https", tls.clone()), ScanLimits::default()).unwrap();
    link.request(1, "ping", None).await;
    let error = link.failure(1).await.to_string();
    assert!(error.starts_with("TLS with `https://127.0.0.1:"), "{error}");
    assert!(error.ends_with("its certificate is from an untrusted authority"), "{error}");

    // An invalid file changes nothing; the correct one is used by the next request.
    replace(&path("ca.pem"), "half a file");
    link.request(2, "ping", None).await;
    link.failure(2).await;
    replace(&path("ca.pem"), trusted.pem());
    let replaced = tokio::time::Instant::now();
    link.request(3, "ping", None).await;
    assert_eq!(link.message().await["id"], 3);
    assert!(replaced.elapsed() < RELOAD_TIMEOUT, "{:?}", replaced.elapsed());

    // The same for the client certificate: one of another authority is rejected, the next one is accepted.
    let (certificate, key) = issue(&other);
    replace(&path("client.pem"), certificate + &key);
    link.request(4, "ping", None).await;
    let error = link.failure(4).await.to_string();
    assert!(error.contains("it rejected our certificate"), "{error}");
    let (certificate, key) = issue(&trusted);
    replace(&path("client.pem"), certificate + &key);
    let replaced = tokio::time::Instant::now();
    link.request(5, "ping", None).await;
    assert_eq!(link.message().await["id"], 5);
    assert!(replaced.elapsed() < RELOAD_TIMEOUT, "{:?}", replaced.elapsed());

    // The same files are used for WebSocket, which this server does not support.
    let refused =
        websocket::open(options(&server, "wss", tls), websocket::PING_INTERVAL, ScanLimits::default()).await;
    assert!(
        matches!(refused, Err(OpenError::Link(LinkError::Io(_) | LinkError::Status { .. }))),
        "{refused:?}"
    );

    let anonymous = UpstreamTls { ca: Some(path("ca.pem")), ..UpstreamTls::default() };
    let mut link = http::open(options(&server, "https", anonymous), ScanLimits::default()).unwrap();
    link.request(1, "ping", None).await;
    let error = link.failure(1).await.to_string();
    assert!(error.ends_with("it requires a client certificate"), "{error}");
}

#[tokio::test]
async fn revoked_certificates_are_rejected() {
    let (trusted, other) = (authority("theirs"), authority("another"));
    let server = server(&trusted).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (certificate, key) = issue(&trusted);
    fs_err::write(path("ca.pem"), trusted.pem()).unwrap();
    fs_err::write(path("client.pem"), certificate + &key).unwrap();
    let identity = Some(ClientIdentity { cert: path("client.pem"), key: path("client.pem") });
    let tls = UpstreamTls { ca: Some(path("ca.pem")), identity, crl: Some(path("crl.pem")) };
    fs_err::write(path("crl.pem"), revocations(&trusted, &[SERIAL + 1], 2999)).unwrap();
    let mut link = http::open(options(&server, "https", tls), ScanLimits::default()).unwrap();
    link.request(1, "ping", None).await;
    assert_eq!(link.message().await["id"], 1);

    // Existing connections are not checked again; a new list causes a new connection.
    let lists = [
        (revocations(&trusted, &[SERIAL], 2999), "its certificate was revoked"),
        (revocations(&trusted, &[], 2025), "the revocation list is out of date"),
        (revocations(&other, &[], 2999), "no revocation list covers its certificate"),
    ];
    for (id, (list, expected)) in (2..).zip(lists) {
        replace(&path("crl.pem"), list);
        link.request(id, "ping", None).await;
        let error = link.failure(id).await.to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[tokio::test]
async fn unusable_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let url = Url::parse("https://localhost/").unwrap();
    let open = || {
        let tls = UpstreamTls { ca: Some(path.clone()), ..UpstreamTls::default() };
        let options = RemoteOptions { tls, ..RemoteOptions::new(url.clone()) };
        http::open(options, ScanLimits::default()).unwrap_err()
    };
    assert_eq!(open().to_string(), format!("cannot load certificates from `{}`", path.display()));
    fs_err::write(&path, "nothing").unwrap();
    let source = std::error::Error::source(&open()).unwrap().to_string();
    assert_eq!(source, "the file contains no certificate");
}
