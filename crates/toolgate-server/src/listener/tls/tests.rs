//! Unusable files, replaced files, and matching of client certificates.

use std::path::Path;

use super::*;

fn write_certificate(folder: &Path, name: &str, names: &[&str]) -> CertificateDer<'static> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    fs_err::write(folder.join(format!("{name}.pem")), cert.pem()).unwrap();
    fs_err::write(folder.join(format!("{name}.key")), signing_key.serialize_pem()).unwrap();
    cert.der().clone()
}

fn files(folder: &Path, cert: &str, key: &str, client_ca: Option<&str>) -> ServeTls {
    let path = |name: &str| folder.join(name);
    let (cert, key, client_ca) = (path(cert), path(key), client_ca.map(path));
    ServeTls { cert, key, client_ca, client_certificate: ClientCertificate::Required }
}

#[test]
fn rejects_unusable_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_certificate(folder, "a", &["a.test"]);
    write_certificate(folder, "b", &["b.test"]);
    fs_err::write(folder.join("empty"), "").unwrap();
    assert!(load(&files(folder, "a.pem", "a.key", Some("b.pem"))).is_ok());
    for (cert, key, ca, message) in [
        ("gone", "a.key", None, "gone"),
        ("empty", "a.key", None, "it contains no certificate"),
        ("a.pem", "empty", None, "it contains no private key"),
        ("a.pem", "a.pem", None, "it contains no private key"),
        ("a.pem", "b.key", None, "cannot be used for TLS"),
        ("a.pem", "a.key", Some("empty"), "it contains no certificate"),
    ] {
        let error = load(&files(folder, cert, key, ca)).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn reloads_replaced_files_and_ignores_broken_ones() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_certificate(folder, "a", &["a.test"]);
    let start = Instant::now();
    let tls = TlsContext::open(files(folder, "a.pem", "a.key", None), start).unwrap();
    let first = tls.current_config(start + CHECK_INTERVAL);
    assert!(Arc::ptr_eq(&first, &tls.current_config(start + CHECK_INTERVAL * 2)), "nothing has changed");
    fs_err::write(folder.join("a.key"), "half of it").unwrap();
    assert!(
        Arc::ptr_eq(&first, &tls.current_config(start + CHECK_INTERVAL * 3)),
        "a broken file changes nothing"
    );
    write_certificate(folder, "a", &["a.test"]);
    assert!(
        Arc::ptr_eq(&first, &tls.current_config(start + CHECK_INTERVAL * 3)),
        "the check interval has not passed"
    );
    assert!(!Arc::ptr_eq(&first, &tls.current_config(start + CHECK_INTERVAL * 4)), "valid files are used");
}

#[test]
fn matches_san_and_fingerprint() {
    let folder = tempfile::tempdir().unwrap();
    let der = write_certificate(folder.path(), "a", &["CI.example.com"]);
    let certificate = PeerCertificate::new(&der);
    let matches = |san: Option<&str>, sha256: Option<KeyHash>| {
        certificate.matches(&CertificateMatch { san: san.map(ToOwned::to_owned), sha256, groups: Vec::new() })
    };
    let (own, other) = (Some(KeyHash::of_bytes(&der)), Some(KeyHash::of("another")));
    assert!(
        matches(Some("ci.example.com"), None) && matches(None, own) && matches(Some("ci.example.com"), own)
    );
    assert!(
        !matches(Some("example.com"), None)
            && !matches(Some("ci.example.com"), other)
            && !matches(None, other)
    );
    assert!(!matches(None, None), "an empty rule matches nothing");
}
