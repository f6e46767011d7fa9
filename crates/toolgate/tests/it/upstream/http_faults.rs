//! Misbehaving HTTP servers: errors, times and memory.

use std::path::Path;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, date_time_ymd,
};
use serde_json::{Map, Value as Json, json};

use crate::support::program::HANG_TIMEOUT;
use crate::support::test_server::{TestServer, project, testkit};

/// Memory a bad response may use beyond a good one.
const MEMORY: u64 = 24 << 20;

/// Returns the state and the reason of every server.
fn states(run: &crate::support::program::RunOutput) -> Vec<(String, String)> {
    let all: Vec<Json> = serde_json::from_str(&run.stdout).expect("one JSON document");
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    all.iter().map(|one| (text(&one["state"]), text(&one["reason"]))).collect()
}

#[test]
fn redirects_are_not_followed() {
    let other = TestServer::start("good");
    let kits: Vec<_> = [301, 302, 303, 307, 308]
        .map(|status| TestServer::start(&format!("redirect status={status} to={}", other.port)))
        .into();
    let server = |url: String, kind: &str| json!({ "url": url, "type": kind, "headers": { "Authorization": "Bearer s3cret-value", "X-API-Key": "k3y-value" } });
    let mut servers = Map::new();
    for kit in &kits {
        servers.insert(format!("http{}", kit.port), server(kit.url("http", "mcp"), "http"));
        servers.insert(format!("sse{}", kit.port), server(kit.url("http", "sse"), "sse"));
    }
    let program = project(Json::Object(servers));
    let run = program.run("servers --json");
    for (state, reason) in states(&run) {
        assert_eq!(state, "unavailable");
        let expected =
            format!("the server redirects to `{}`, which is not followed", other.url("http", "mcp"));
        assert!(reason.starts_with(&expected), "{reason}");
    }
    let run = program.run(&format!("tools call http{}__echo message=x --json", kits[0].port));
    assert_eq!(run.code, 69);
    assert!(run.json()["error"].as_str().expect("a text").contains("redirects"), "{run}");
    assert!(kits.iter().all(|kit| kit.count("request") > 0), "every server got a request");
    assert_eq!(other.count("connected"), 0, "no request was redirected");
}

/// Calls the tool of a misbehaving server; returns the outcome and the peak memory.
fn call(server: Json) -> (String, u64) {
    let program = project(json!({ "kit": server }));
    let (run, peak) = program.run_measured("tools call kit__echo message=x --json");
    if run.code == 0 {
        return ("good".to_owned(), peak);
    }
    let error = &run.json()["error"];
    // Errors before the call have no envelope and no code.
    let message = error.as_str().or_else(|| error["message"].as_str());
    (message.expect("a text").to_owned(), peak)
}

#[test]
fn compressed_bodies_are_limited_by_their_decompressed_size() {
    let good = TestServer::start("good");
    let (outcome, base) = call(json!({ "url": good.url("http", "mcp") }));
    assert_eq!(outcome, "good");
    let unoffered = |name: &str| format!("the server used content encoding `{name}`, which was not offered");
    let too_large = "the server sent more than 4194304 bytes in one message".to_owned();
    for (line, expected) in [
        ("gzip-bomb", too_large),
        ("nested-gzip", unoffered("gzip, gzip")),
        ("encoding name=br", unoffered("br")),
        ("encoding name=zstd", unoffered("zstd")),
        ("encoding name=deflate", unoffered("deflate")),
    ] {
        let kit = TestServer::start(line);
        // A user in the URL selects the client that decompresses, as TLS does.
        let url = kit.url("http", "mcp").replace("//", "//ann@");
        let (outcome, peak) = call(json!({ "url": url }));
        assert_eq!(outcome, format!("MCP server `kit`: {expected}"), "{line}");
        assert!(peak < base + MEMORY, "{line}: {peak} bytes, a good call uses {base}");
    }
    // Without TLS no compression is offered.
    let kit = TestServer::start("gzip-bomb");
    let (outcome, _) = call(json!({ "url": kit.url("http", "mcp") }));
    assert_eq!(outcome, format!("MCP server `kit`: {}", unoffered("gzip")));
}

#[test]
fn results_are_limited_on_every_transport() {
    for era in ["legacy", "modern"] {
        let stdio = |mode: &str| json!({ "command": testkit(), "args": [mode, era] });
        let base = call(stdio("good")).1;
        check_too_large("stdio", era, base, stdio("huge"));
        let transports = [
            ("http-json", "huge-json", "http", "mcp"),
            ("http-sse", "huge-events", "http", "mcp"),
            ("sse", "huge-events", "http", "sse"),
            ("websocket", "huge-json", "ws", "ws"),
        ];
        for (transport, mode, scheme, path) in transports {
            let kind = match path {
                "mcp" => "http",
                "ws" => "websocket",
                other => other,
            };
            let good = TestServer::start(&format!("good era={era}"));
            let (outcome, base) = call(json!({ "url": good.url(scheme, path), "type": kind }));
            assert_eq!(outcome, "good", "{transport} {era}");
            let kit = TestServer::start(&format!("{mode} era={era}"));
            check_too_large(transport, era, base, json!({ "url": kit.url(scheme, path), "type": kind }));
        }
    }
}

fn check_too_large(transport: &str, era: &str, base: u64, server: Json) {
    let (outcome, peak) = call(server);
    let expected = "MCP server `kit`: the server sent more than 4194304 bytes in one message";
    assert_eq!(outcome, expected, "{transport} {era}");
    assert!(peak < base + MEMORY, "{transport} {era}: {peak} bytes, a good call uses {base}");
}

#[test]
fn a_hanging_call_times_out_and_closes_its_connection() {
    std::thread::scope(|scope| {
        for mode in ["progress", "comments", "drip"] {
            scope.spawn(move || check_given_up(mode));
        }
    });
}

fn check_given_up(mode: &str) {
    let kit = TestServer::start(mode);
    let program = project(json!({ "kit": { "url": kit.url("http", "mcp"), "request_timeout": "2s" } }));
    let run = program.run("tools call kit__echo message=x --json");
    assert_eq!(run.code, 1, "{mode}: {run}");
    let error = &run.json()["error"];
    assert_eq!((&error["code"], &error["outcome"]), (&json!("timeout"), &json!("unknown")), "{mode}");
    assert_eq!(error["message"], "MCP server `kit`: no answer within 2s", "{mode}");
    // The server may notice the end slightly later.
    kit.wait("its connection is closed", |kit| kit.count("closed") > 0);
    let seen = kit.seen();
    let call_seen =
        seen.iter().find(|seen| seen["message"]["method"] == "tools/call").expect("the server got the call");
    let closed = |seen: &&Json| seen["event"] == "closed" && seen["connection"] == call_seen["connection"];
    let closed = seen.iter().find(closed).expect("its connection is closed");
    let at = |event: &Json| event["at"].as_u64().expect("a time");
    let took = at(closed) - at(call_seen);
    // Request and close take a while to reach the server.
    assert!(took > 200 && Duration::from_millis(took) < HANG_TIMEOUT, "{mode}: {took} ms");
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new([]).expect("no names are no wrong names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("it signs itself")
}

/// Writes a certificate and its key to `{name}.pem` and `{name}.key`.
fn issue(folder: &Path, name: &str, authority: &Authority, host: &str, wait_until: i32, serial: u64) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new([host.to_owned()]).expect("a host");
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(wait_until, 1, 1);
    params.serial_number = Some(serial.into());
    let certificate = params.signed_by(&key, authority).expect("it is signed");
    fs_err::write(folder.join(format!("{name}.pem")), certificate.pem()).expect("the folder is writable");
    fs_err::write(folder.join(format!("{name}.key")), key.serialize_pem()).expect("the folder is writable");
}

/// Returns a revocation list with one certificate.
fn revoke(authority: &Authority, serial: u64) -> String {
    let revoked = RevokedCertParams {
        serial_number: serial.into(),
        revocation_time: date_time_ymd(2024, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(2999, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: vec![revoked],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    list.signed_by(authority).and_then(|list| list.pem()).expect("it is signed")
}

#[test]
fn invalid_certificates_are_reported_and_nothing_is_sent() {
    const REVOKED: u64 = 13;
    let program = project(json!({}));
    let (ours, other) = (authority("ours"), authority("another"));
    let folder = &program.project;
    program.write("ca.pem", ours.pem());
    program.write("crl.pem", revoke(&ours, REVOKED));
    issue(folder, "client", &ours, "client", 2999, 1);
    issue(folder, "good", &ours, "127.0.0.1", 2999, 2);
    issue(folder, "foreign", &other, "127.0.0.1", 2999, 3);
    issue(folder, "old", &ours, "127.0.0.1", 2021, 4);
    issue(folder, "elsewhere", &ours, "example.com", 2999, 5);
    issue(folder, "revoked", &ours, "127.0.0.1", 2999, REVOKED);
    let trust = json!({ "ca": "ca.pem" });
    let full = json!({ "ca": "ca.pem", "crl": "crl.pem", "cert": "client.pem", "key": "client.key" });
    // The server certificate, the client certificates it requires, the client's own, and the expected error.
    let cases = [
        ("good", "", &trust, ""),
        ("good", "client-ca", &full, ""),
        ("foreign", "", &trust, "its certificate is from an untrusted authority (set `tls.ca`"),
        ("old", "", &trust, "its certificate has expired (renew"),
        ("elsewhere", "", &trust, "its certificate is for another name (use a host name in `url`"),
        ("good", "client-ca", &trust, "it requires a client certificate (set `tls.cert`"),
        ("revoked", "client-ca", &full, "its certificate was revoked (it is listed in `tls.crl`"),
    ];
    let start = |(certificate, demand, ..): &(&str, &str, &Json, &str)| {
        let path = |name: &str| folder.join(name).display().to_string();
        let demand = if demand.is_empty() { String::new() } else { format!("client-ca={}", path("ca.pem")) };
        let (cert, key) = (path(&format!("{certificate}.pem")), path(&format!("{certificate}.key")));
        TestServer::start(&format!("good cert={cert} key={key} {demand}"))
    };
    let kits: Vec<_> = cases.iter().map(start).collect();
    for (scheme, path) in [("https", "mcp"), ("wss", "ws")] {
        let server = |(kit, case): (&TestServer, &(&str, &str, &Json, &str))| {
            let url = kit.url(scheme, path);
            (format!("s{}", kit.port), json!({ "url": url, "tls": case.2 }))
        };
        // `testkit` has no WebSocket over TLS.
        let skipped = if scheme == "wss" { 2 } else { 0 };
        let (kits, cases) = (&kits[skipped..], &cases[skipped..]);
        let servers: Map<_, _> = kits.iter().zip(cases).map(server).collect();
        program.write("mcp.json", json!({ "servers": servers }).to_string());
        let run = program.run("servers --json");
        assert!(run.took < HANG_TIMEOUT, "{:?}", run.took);
        for (((state, reason), case), kit) in states(&run).iter().zip(cases).zip(kits) {
            if case.3.is_empty() {
                assert_eq!(state, "ready", "{scheme} {case:?}: {reason}");
                continue;
            }
            assert_eq!(state, "unavailable", "{scheme} {case:?}: {reason}");
            let expected = format!("TLS with `{}` failed: {}", kit.url(scheme, path), case.3);
            assert!(reason.starts_with(&expected), "{scheme}: {reason}");
            assert_eq!(kit.count("request"), 0, "{case:?}");
        }
    }
}
