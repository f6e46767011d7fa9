//! TLS: server certificates, client certificates and renewal.

use std::io::{BufReader, Write};

use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, request, wait_until};
use crate::support::program::HANG_TIMEOUT;
use crate::support::tls::{Authority, Client, Identity, secured};

#[test]
fn plain_http_is_refused() {
    let authority = Authority::new();
    let gateway = Gateway::serve(secured(&authority, json!({}), &json!({})));
    let client = Client::new(&authority, None);
    let key = format!("X-API-Key: {OWNER}");
    assert_eq!(client.calls(&gateway, &[&key]), 200);
    assert_eq!(client.calls(&gateway, &[]), 401);
    assert_eq!(
        Client::new(&Authority::new(), None).calls(&gateway, &[&key]),
        0,
        "the certificate has another authority"
    );
    assert!(gateway.raw(request("GET /healthz", &[], "").as_bytes()).is_none(), "no plain HTTP");
    // A page loaded over HTTP can be forged.
    let origin = |scheme: &str| {
        let headers = [key.as_str(), "Host: localhost:1", &format!("Origin: {scheme}://localhost:1")];
        client.request(&gateway, "GET /v1/tools", &headers, "").map(|response| response.status)
    };
    assert_eq!((origin("https"), origin("http")), (Some(200), Some(403)));
    // Stalled handshakes time out and do not block other connections.
    let _silent = gateway.connect();
    assert_eq!(client.calls(&gateway, &[&key]), 200);
}

/// Renewed certificates apply to new connections; open ones continue.
#[test]
fn certificates_are_renewed_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    let gateway = Gateway::serve(secured(&old, json!({}), &json!({})));
    let (before, after) = (Client::new(&old, None), Client::new(&new, None));
    let key = format!("X-API-Key: {OWNER}");
    let mut open = before.connect(&gateway);
    let head = format!("GET /v1/tools HTTP/1.1\r\nHost: localhost\r\n{key}\r\n\r\n");
    open.write_all(head.as_bytes()).expect("it is sent");
    let mut open = BufReader::new(open);
    assert_eq!(HttpResponse::read(&mut open).map(|response| response.status), Some(200));
    assert_eq!((before.calls(&gateway, &[&key]), after.calls(&gateway, &[&key])), (200, 0));
    gateway.program.write("cert.pem", "half of it");
    assert_eq!(before.calls(&gateway, &[&key]), 200, "an invalid certificate changes nothing");
    new.certify("localhost").install(&gateway.program);
    wait_until("the new certificate", || after.calls(&gateway, &[&key]) == 200);
    assert_eq!(before.calls(&gateway, &[&key]), 0);
    open.get_mut().write_all(head.as_bytes()).expect("it is sent");
    assert_eq!(
        HttpResponse::read(&mut open).map(|response| response.status),
        Some(200),
        "the open connection continues"
    );
}

#[test]
fn client_certificates_authenticate_callers() {
    let (authority, other) = (Authority::new(), Authority::new());
    let [by_name, by_uri, by_hash, unmapped] =
        ["ci.test", "spiffe://test/bot", "hash.test", "unmapped.test"].map(|name| authority.certify(name));
    let outsider = other.certify("ci.test");
    let callers = json!([
        { "id": "ci", "permissions": ["s:*"], "certificate": { "san": "ci.test" } },
        { "id": "bot", "permissions": ["s:fail"], "certificate": { "san": "spiffe://test/bot" } },
        { "id": "hash", "permissions": ["s:*"], "certificate": { "sha256": by_hash.sha256() } },
    ]);
    let gateway = |clients: &str| {
        let tls = json!({ "client_ca": "ca.pem", "client_certificate": clients });
        Gateway::serve(secured(&authority, tls, &json!({ "callers": callers })))
    };
    let key = format!("X-API-Key: {OWNER}");
    let with = |gateway: &Gateway, identity: Option<&Identity>, headers: &[&str]| {
        Client::new(&authority, identity).calls(gateway, headers)
    };
    let optional = gateway("optional");
    assert_eq!(with(&optional, Some(&by_name), &[]), 200);
    assert_eq!(with(&optional, Some(&by_uri), &[]), 403, "authenticated, without the permission");
    assert_eq!(with(&optional, Some(&by_hash), &[]), 200);
    assert_eq!(with(&optional, Some(&unmapped), &[]), 401, "a certificate without a caller");
    assert_eq!(with(&optional, Some(&unmapped), &[&key]), 200, "has a key");
    assert_eq!(with(&optional, Some(&outsider), &[]), 0, "of another authority");
    assert_eq!(with(&optional, Some(&outsider), &[&key]), 0, "a key does not help");
    assert_eq!((with(&optional, None, &[]), with(&optional, None, &[&key])), (401, 200));
    let who: Vec<_> =
        optional.executions_of(&authority).iter().map(|it| it["begin"]["caller"].clone()).collect();
    assert!(
        who.contains(&json!("ci")) && who.contains(&json!("hash")) && who.contains(&json!("bot")),
        "{who:?}"
    );
    let required = gateway("required");
    assert_eq!(
        (with(&required, None, &[]), with(&required, None, &[&key])),
        (0, 0),
        "no connection without one"
    );
    assert_eq!((with(&required, Some(&by_name), &[]), with(&required, Some(&unmapped), &[])), (200, 401));
}

impl Gateway {
    /// Returns the records of the calls.
    fn executions_of(&self, authority: &Authority) -> Vec<Json> {
        let key = format!("X-API-Key: {OWNER}");
        let response = Client::new(authority, None).request(self, "GET /v1/executions", &[&key], "");
        response.expect("an answer").json()["executions"].as_array().expect("a list").clone()
    }
}

#[test]
fn invalid_certificates_are_rejected_at_startup() {
    let authority = Authority::new();
    let startup_error = |file: &str, text: &str| {
        let program = secured(&authority, json!({ "client_ca": "ca.pem" }), &json!({}));
        program.write(file, text);
        let run = program.run("serve --listen 127.0.0.1:0");
        assert_eq!(run.code, 78, "{run}");
        assert!(run.took < HANG_TIMEOUT);
        run.stderr
    };
    let other = Authority::new().certify("localhost").key;
    assert!(startup_error("cert.pem", "").contains("it contains no certificate"));
    assert!(startup_error("key.pem", "").contains("it contains no private key"));
    assert!(
        startup_error("ca.pem", "").contains("ca.pem` cannot be used for TLS: it contains no certificate")
    );
    let mixed = startup_error("key.pem", &other);
    assert!(mixed.contains("cert.pem` and its key cannot be used for TLS"), "{mixed}");
    assert!(
        mixed.contains("hint: `serve.tls.key` must be the private key of the first certificate"),
        "{mixed}"
    );
}
