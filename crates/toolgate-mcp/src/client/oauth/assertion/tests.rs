//! Key types, and the content of an assertion.

use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
    SignatureAlgorithm,
};
use serde_json::Value;

use super::*;

fn pem(algorithm: &'static SignatureAlgorithm) -> String {
    KeyPair::generate_for(algorithm).unwrap().serialize_pem()
}

/// Wraps DER in PEM with another label.
fn labelled(der: &[u8], label: &str) -> String {
    let der = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{der}\n-----END {label}-----\n")
}

fn header_and_claims(assertion: &str) -> (Value, Value) {
    let mut parts = assertion.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap());
    let mut next = || serde_json::from_slice(&parts.next().unwrap()).unwrap();
    (next(), next())
}

#[test]
fn algorithm_follows_from_the_key_type() {
    let check = |pem: &str, expected: &str| {
        let assertion = AssertionKey::from_pem(pem).unwrap().sign("us", "https://issuer", None).unwrap();
        let (header, _) = header_and_claims(&assertion);
        assert_eq!(header, json!({ "typ": "client-authentication+jwt", "alg": expected }));
    };
    let [rsa, p256, p384] = [&PKCS_RSA_SHA256, &PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384].map(pem);
    check(&rsa, "RS256");
    check(&p256, "ES256");
    check(&p384, "ES384");
    check(&pem(&PKCS_ED25519), "EdDSA");
    // As `openssl pkcs12` writes it: longer than some RSA keys.
    let attributes = "Bag Attributes\n    friendlyName: client\n".repeat(40);
    check(&format!("{attributes}{p256}"), "ES256");
    let der = |pem: &str| PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let inner = |pem: &str, label| labelled(pkcs8_parts(der(pem).secret_der()).unwrap().1, label);
    check(&inner(&rsa, "RSA PRIVATE KEY"), "RS256");
    check(&inner(&p256, "EC PRIVATE KEY"), "ES256");
    check(&inner(&p384, "EC PRIVATE KEY"), "ES384");
}

#[test]
fn other_keys_are_rejected() {
    let check = |pem: &str, expected: &str| {
        assert_eq!(AssertionKey::from_pem(pem).err().unwrap().to_string(), expected);
    };
    check("secret", "`oauth.private_key` is not a private key in PEM format");
    let wrong_type = "`oauth.private_key` must be an RSA, P-256, P-384 or Ed25519 key";
    for der in
        [&[][..], &[0x30], &[0x30, 0x82], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff], &[0x30, 0x03, 2, 1, 0]]
    {
        check(&labelled(der, "PRIVATE KEY"), wrong_type);
        check(&labelled(der, "EC PRIVATE KEY"), wrong_type);
    }
}

#[test]
fn algorithm_is_one_that_the_server_accepts() {
    let check = |pem: &str, accepted: &[&str], expected: Result<&str, &str>| {
        let accepted: Vec<_> = accepted.iter().map(|&name| name.to_owned()).collect();
        let chosen = AssertionKey::from_pem(pem).unwrap().choose_algorithm(Some(&accepted));
        let chosen = chosen.map(|algorithm| format!("{algorithm:?}")).map_err(|error| error.to_string());
        assert_eq!(chosen, expected.map(str::to_owned).map_err(str::to_owned));
    };
    let rsa = pem(&PKCS_RSA_SHA256);
    check(&rsa, &["ES256", "RS256"], Ok("RS256"));
    check(&rsa, &["PS512", "PS256"], Ok("PS256"));
    let refused = "the authorization server does not accept ES256; it accepts RS256, PS256";
    check(&pem(&PKCS_ECDSA_P256_SHA256), &["RS256", "PS256"], Err(refused));
}

#[test]
fn assertion_names_client_and_issuer() {
    let key = AssertionKey::from_pem(&pem(&PKCS_ECDSA_P256_SHA256)).unwrap();
    let sign = || header_and_claims(&key.sign("us", "https://issuer", None).unwrap()).1;
    let (claims, other) = (sign(), sign());
    assert_eq!([&claims["iss"], &claims["sub"], &claims["aud"]], ["us", "us", "https://issuer"]);
    assert!(claims["exp"].as_u64().unwrap() - now() <= LIFETIME_SECONDS);
    assert_ne!(claims["jti"], other["jti"]);
}
