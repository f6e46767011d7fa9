//! Files that are wrong, files that are replaced, and what a certificate is known by.

use std::path::Path;

use super::*;

fn made(folder: &Path, name: &str, names: &[&str]) -> CertificateDer<'static> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    fs_err::write(folder.join(format!("{name}.pem")), cert.pem()).unwrap();
    fs_err::write(folder.join(format!("{name}.key")), signing_key.serialize_pem()).unwrap();
    cert.der().clone()
}

fn rules(folder: &Path, cert: &str, key: &str, client_ca: Option<&str>) -> DoorTls {
    let path = |name: &str| folder.join(name);
    let (cert, key, client_ca) = (path(cert), path(key), client_ca.map(path));
    DoorTls { cert, key, client_ca, client_certificate: ClientCertificate::Required }
}

#[test]
fn files_that_are_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    made(folder, "a", &["a.test"]);
    made(folder, "b", &["b.test"]);
    fs_err::write(folder.join("empty"), "").unwrap();
    assert!(load(&rules(folder, "a.pem", "a.key", Some("b.pem"))).is_ok());
    for (cert, key, ca, told) in [
        ("gone", "a.key", None, "gone"),
        ("empty", "a.key", None, "there is no certificate in it"),
        ("a.pem", "empty", None, "there is no private key in it"),
        ("a.pem", "a.pem", None, "there is no private key in it"),
        ("a.pem", "b.key", None, "cannot be used for TLS"),
        ("a.pem", "a.key", Some("empty"), "there is no certificate in it"),
    ] {
        let error = load(&rules(folder, cert, key, ca)).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_replaced_is_read_anew_and_what_is_broken_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    made(folder, "a", &["a.test"]);
    let start = Instant::now();
    let tls = Tls::open(rules(folder, "a.pem", "a.key", None), start).unwrap();
    let first = tls.current(start + LOOK);
    assert!(Arc::ptr_eq(&first, &tls.current(start + LOOK * 2)), "nothing has changed");
    fs_err::write(folder.join("a.key"), "half of it").unwrap();
    assert!(Arc::ptr_eq(&first, &tls.current(start + LOOK * 3)), "what is broken changes nothing");
    made(folder, "a", &["a.test"]);
    assert!(Arc::ptr_eq(&first, &tls.current(start + LOOK * 3)), "it is not looked at all the time");
    assert!(!Arc::ptr_eq(&first, &tls.current(start + LOOK * 4)), "what is whole counts");
}

#[test]
fn what_a_certificate_is_known_by() {
    let folder = tempfile::tempdir().unwrap();
    let der = made(folder.path(), "a", &["CI.example.com"]);
    let shown = Shown::new(&der);
    let fits = |san: Option<&str>, sha256: Option<KeyHash>| {
        shown.fits(&CertificateMatch { san: san.map(ToOwned::to_owned), sha256 })
    };
    let (own, other) = (Some(KeyHash::of_bytes(&der)), Some(KeyHash::of("another")));
    assert!(fits(Some("ci.example.com"), None) && fits(None, own) && fits(Some("ci.example.com"), own));
    assert!(!fits(Some("example.com"), None) && !fits(Some("ci.example.com"), other) && !fits(None, other));
    assert!(!fits(None, None), "whoever says nothing is nobody");
}
