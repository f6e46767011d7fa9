//! Certificates of a private authority, on both sides.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;
use url::Url;

use super::super::testing::{Asked, Server, asked, result, whole};
use super::super::{RemoteOptions, http, websocket};
use super::*;
use crate::scan::Limits;
use toolgate_types::server::Identity;

/// Of every certificate here.
const SERIAL: u64 = 7;
/// Within which a file that was replaced is to be used.
const SOON: Duration = Duration::from_secs(5);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new([]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate and its key, in PEM.
fn issue(authority: &Authority) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.serial_number = Some(SerialNumber::from(SERIAL));
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

/// Puts a file in the place of another, as those who renew certificates do.
fn replace(path: &Path, text: impl AsRef<[u8]>) {
    let new = path.with_extension("new");
    fs_err::write(&new, text).unwrap();
    fs_err::rename(&new, path).unwrap();
}

/// A list of what an authority has revoked, in PEM.
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

fn options(server: &Server, scheme: &str, tls: Tls) -> RemoteOptions {
    let url = Url::parse(&format!("{scheme}://{}/mcp", server.address)).unwrap();
    RemoteOptions { tls, ..RemoteOptions::new(url) }
}

#[tokio::test]
async fn certificates_of_our_own_and_their_renewal() {
    let (theirs, other) = (authority("theirs"), authority("another"));
    let server = server(&theirs).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (certificate, key) = issue(&theirs);
    fs_err::write(path("ca.pem"), other.pem()).unwrap();
    fs_err::write(path("client.pem"), certificate + &key).unwrap();
    let identity = Some(Identity { cert: path("client.pem"), key: path("client.pem") });
    let tls = Tls { ca: Some(path("ca.pem")), identity, crl: None };
    let mut link = http::open(options(&server, "https", tls.clone()), Limits::default()).unwrap();
    link.ask(1, "ping", None).await;
    let error = link.failure(1).await.to_string();
    assert!(error.starts_with("TLS with `https://127.0.0.1:"), "{error}");
    assert!(error.ends_with("its certificate is of an authority that is not trusted here"), "{error}");

    // A broken file changes nothing; the right one is used by the next request.
    replace(&path("ca.pem"), "half a file");
    link.ask(2, "ping", None).await;
    link.failure(2).await;
    replace(&path("ca.pem"), theirs.pem());
    let replaced = tokio::time::Instant::now();
    link.ask(3, "ping", None).await;
    assert_eq!(link.message().await["id"], 3);
    assert!(replaced.elapsed() < SOON, "{:?}", replaced.elapsed());

    // So it is with who we are: a certificate of somebody else is not taken, the next one is.
    let (certificate, key) = issue(&other);
    replace(&path("client.pem"), certificate + &key);
    link.ask(4, "ping", None).await;
    let error = link.failure(4).await.to_string();
    assert!(error.contains("it does not take what we show of us"), "{error}");
    let (certificate, key) = issue(&theirs);
    replace(&path("client.pem"), certificate + &key);
    let replaced = tokio::time::Instant::now();
    link.ask(5, "ping", None).await;
    assert_eq!(link.message().await["id"], 5);
    assert!(replaced.elapsed() < SOON, "{:?}", replaced.elapsed());

    // The same files serve a WebSocket, which this server does not speak.
    let refused = websocket::open(options(&server, "wss", tls), websocket::PING, Limits::default()).await;
    assert!(
        matches!(refused, Err(OpenError::Link(LinkError::Io(_) | LinkError::Status { .. }))),
        "{refused:?}"
    );

    let nobody = Tls { ca: Some(path("ca.pem")), ..Tls::default() };
    let mut link = http::open(options(&server, "https", nobody), Limits::default()).unwrap();
    link.ask(1, "ping", None).await;
    let error = link.failure(1).await.to_string();
    assert!(error.ends_with("it wants a certificate of ours"), "{error}");
}

#[tokio::test]
async fn certificates_that_were_revoked() {
    let (theirs, other) = (authority("theirs"), authority("another"));
    let server = server(&theirs).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (certificate, key) = issue(&theirs);
    fs_err::write(path("ca.pem"), theirs.pem()).unwrap();
    fs_err::write(path("client.pem"), certificate + &key).unwrap();
    let identity = Some(Identity { cert: path("client.pem"), key: path("client.pem") });
    let tls = Tls { ca: Some(path("ca.pem")), identity, crl: Some(path("crl.pem")) };
    fs_err::write(path("crl.pem"), revocations(&theirs, &[SERIAL + 1], 2999)).unwrap();
    let mut link = http::open(options(&server, "https", tls), Limits::default()).unwrap();
    link.ask(1, "ping", None).await;
    assert_eq!(link.message().await["id"], 1);

    // A connection that is there is not asked again; a list that is new makes a new one.
    let lists = [
        (revocations(&theirs, &[SERIAL], 2999), "its certificate was revoked"),
        (revocations(&theirs, &[], 2025), "the list of revoked certificates is out of date"),
        (revocations(&other, &[], 2999), "nothing says whether its certificate was revoked"),
    ];
    for (id, (list, expected)) in (2..).zip(lists) {
        replace(&path("crl.pem"), list);
        link.ask(id, "ping", None).await;
        let error = link.failure(id).await.to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[tokio::test]
async fn files_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    let url = Url::parse("https://localhost/").unwrap();
    let open = || {
        let tls = Tls { ca: Some(path.clone()), ..Tls::default() };
        let options = RemoteOptions { tls, ..RemoteOptions::new(url.clone()) };
        http::open(options, Limits::default()).unwrap_err()
    };
    assert_eq!(open().to_string(), format!("cannot read the certificates of `{}`", path.display()));
    fs_err::write(&path, "nothing").unwrap();
    let source = std::error::Error::source(&open()).unwrap().to_string();
    assert_eq!(source, "there is no certificate in it");
}
