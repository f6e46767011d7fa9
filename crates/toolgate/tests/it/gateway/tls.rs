//! The door behind TLS: who we are, who callers are, and certificates that are renewed.

use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value as Json, json};

use crate::door::{Answer, Door, OWNER, project, request, until};
use crate::program::{PATIENCE, Program};

/// An authority of the tests.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key, in PEM.
pub(crate) struct Identity {
    cert: String,
    key: String,
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

    /// A certificate for a host, or for a URI.
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
    /// Puts it where the door looks for it.
    pub(crate) fn install(&self, program: &Program) {
        program.write("key.pem", &self.key);
        program.write("cert.pem", &self.cert);
    }

    fn sha256(&self) -> String {
        let der = CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("a certificate");
        toolgate_types::KeyHash::of_bytes(&der).to_string()
    }
}

/// A client that trusts an authority, and shows a certificate where it has one.
pub(crate) struct Client(Arc<ClientConfig>);

impl Client {
    pub(crate) fn new(trusts: &Authority, shows: Option<&Identity>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(trusts.0.der().clone()).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider knows them")
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

    pub(crate) fn connect(&self, door: &Door) -> StreamOwned<ClientConnection, TcpStream> {
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(Arc::clone(&self.0), name).expect("a client");
        StreamOwned::new(connection, door.connect())
    }

    /// The answer to a request; `None` where there is no connection.
    pub(crate) fn request(&self, door: &Door, first: &str, headers: &[&str], body: &str) -> Option<Answer> {
        let mut stream = self.connect(door);
        stream.write_all(request(first, headers, body).as_bytes()).ok()?;
        Answer::read(&mut BufReader::new(stream))
    }

    /// The status of a call, 0 where there is no connection.
    fn calls(&self, door: &Door, headers: &[&str]) -> u16 {
        let headers: Vec<_> = headers.iter().chain(&["Content-Type: application/json"]).copied().collect();
        let answer = self.request(door, "POST /v1/tools/echo/call", &headers, r#"{"arguments":{}}"#);
        answer.map_or(0, |answer| answer.status)
    }
}

/// A project whose door has a certificate of an authority.
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

#[test]
fn https_and_nothing_else() {
    let authority = Authority::new();
    let door = Door::of(secured(&authority, json!({}), &json!({})));
    let client = Client::new(&authority, None);
    let key = format!("X-API-Key: {OWNER}");
    assert_eq!(client.calls(&door, &[&key]), 200);
    assert_eq!(client.calls(&door, &[]), 401);
    assert_eq!(Client::new(&Authority::new(), None).calls(&door, &[&key]), 0, "it is not who it should be");
    assert!(door.raw(request("GET /healthz", &[], "").as_bytes()).is_none(), "there is no HTTP beside it");
    // A page that came over HTTP could be anybody's.
    let origin = |scheme: &str| {
        let headers = [key.as_str(), "Host: localhost:1", &format!("Origin: {scheme}://localhost:1")];
        client.request(&door, "GET /v1/tools", &headers, "").map(|answer| answer.status)
    };
    assert_eq!((origin("https"), origin("http")), (Some(200), Some(403)));
    // Whoever says nothing has no connection for ever, and takes nobody's place.
    let _silent = door.connect();
    assert_eq!(client.calls(&door, &[&key]), 200);
}

/// What was renewed counts for whoever comes next; what is open goes on.
#[test]
fn certificates_are_renewed_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    let door = Door::of(secured(&old, json!({}), &json!({})));
    let (before, after) = (Client::new(&old, None), Client::new(&new, None));
    let key = format!("X-API-Key: {OWNER}");
    let mut open = before.connect(&door);
    let head = format!("GET /v1/tools HTTP/1.1\r\nHost: localhost\r\n{key}\r\n\r\n");
    open.write_all(head.as_bytes()).expect("it is sent");
    let mut open = BufReader::new(open);
    assert_eq!(Answer::read(&mut open).map(|answer| answer.status), Some(200));
    assert_eq!((before.calls(&door, &[&key]), after.calls(&door, &[&key])), (200, 0));
    door.program.write("cert.pem", "half of it");
    assert_eq!(before.calls(&door, &[&key]), 200, "what is broken changes nothing");
    new.certify("localhost").install(&door.program);
    until("the new certificate", || after.calls(&door, &[&key]) == 200);
    assert_eq!(before.calls(&door, &[&key]), 0);
    open.get_mut().write_all(head.as_bytes()).expect("it is sent");
    assert_eq!(Answer::read(&mut open).map(|answer| answer.status), Some(200), "what was open goes on");
}

#[test]
fn callers_are_known_by_their_certificates() {
    let (authority, other) = (Authority::new(), Authority::new());
    let [by_name, by_uri, by_hash, nobody] =
        ["ci.test", "spiffe://test/bot", "hash.test", "nobody.test"].map(|name| authority.certify(name));
    let stranger = other.certify("ci.test");
    let callers = json!([
        { "id": "ci", "permissions": ["s:*"], "certificate": { "san": "ci.test" } },
        { "id": "bot", "permissions": ["s:fail"], "certificate": { "san": "spiffe://test/bot" } },
        { "id": "hash", "permissions": ["s:*"], "certificate": { "sha256": by_hash.sha256() } },
    ]);
    let door = |clients: &str| {
        let tls = json!({ "client_ca": "ca.pem", "client_certificate": clients });
        Door::of(secured(&authority, tls, &json!({ "callers": callers })))
    };
    let key = format!("X-API-Key: {OWNER}");
    let with = |door: &Door, identity: Option<&Identity>, headers: &[&str]| {
        Client::new(&authority, identity).calls(door, headers)
    };
    let optional = door("optional");
    assert_eq!(with(&optional, Some(&by_name), &[]), 200);
    assert_eq!(with(&optional, Some(&by_uri), &[]), 403, "it is known, and may do something else");
    assert_eq!(with(&optional, Some(&by_hash), &[]), 200);
    assert_eq!(with(&optional, Some(&nobody), &[]), 401, "a certificate that is nobody's");
    assert_eq!(with(&optional, Some(&nobody), &[&key]), 200, "has a key");
    assert_eq!(with(&optional, Some(&stranger), &[]), 0, "of another authority");
    assert_eq!(with(&optional, Some(&stranger), &[&key]), 0, "a key does not help");
    assert_eq!((with(&optional, None, &[]), with(&optional, None, &[&key])), (401, 200));
    let who: Vec<_> =
        optional.executions_of(&authority).iter().map(|it| it["begin"]["caller"].clone()).collect();
    assert!(
        who.contains(&json!("ci")) && who.contains(&json!("hash")) && who.contains(&json!("bot")),
        "{who:?}"
    );
    let required = door("required");
    assert_eq!(
        (with(&required, None, &[]), with(&required, None, &[&key])),
        (0, 0),
        "no connection without one"
    );
    assert_eq!((with(&required, Some(&by_name), &[]), with(&required, Some(&nobody), &[])), (200, 401));
}

impl Door {
    /// The calls that were written down.
    fn executions_of(&self, authority: &Authority) -> Vec<Json> {
        let key = format!("X-API-Key: {OWNER}");
        let answer = Client::new(authority, None).request(self, "GET /v1/executions", &[&key], "");
        answer.expect("an answer").json()["executions"].as_array().expect("a list").clone()
    }
}

#[test]
fn certificates_that_do_not_start() {
    let authority = Authority::new();
    let told = |file: &str, text: &str| {
        let program = secured(&authority, json!({ "client_ca": "ca.pem" }), &json!({}));
        program.write(file, text);
        let run = program.run("serve --listen 127.0.0.1:0");
        assert_eq!(run.code, 78, "{run}");
        assert!(run.took < PATIENCE);
        run.stderr
    };
    let other = Authority::new().certify("localhost").key;
    assert!(told("cert.pem", "").contains("it contains no certificate"));
    assert!(told("key.pem", "").contains("it contains no private key"));
    assert!(told("ca.pem", "").contains("ca.pem` cannot be used for TLS: it contains no certificate"));
    let mixed = told("key.pem", &other);
    assert!(mixed.contains("cert.pem` and its key cannot be used for TLS"), "{mixed}");
    assert!(mixed.contains("hint: `serve.tls.key` must be the private key of the first certificate"), "{mixed}");
}
