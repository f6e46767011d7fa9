//! Access matrix: every endpoint with every credential and every operation.
//!
//! The cells are the product of three lists: a documented operation that is missing, or a credential with too much
//! access, fails here.

use std::io::{BufRead as _, BufReader, Write as _};

use jsonwebtoken::Algorithm;
use serde_json::{Value as Json, json};

use crate::gateway::operations::{McpRequest, OPERATIONS};
use crate::support::gateway::{Gateway, HttpResponse, OWNER, project};
use crate::support::issuer::{AUDIENCE, Issuer, Signer, now};
use crate::support::tls::{Authority, Client, Identity, secured};

/// The caller a credential authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CredentialKind {
    /// No TLS connection.
    NoConnection,
    /// Not authenticated.
    Unauthenticated,
    /// A caller without permissions here.
    Low,
    /// A caller with permission to call the tools of the server.
    Calls,
    /// The owner.
    Owner,
}

/// A credential: headers, and a client certificate by its index.
struct Credential {
    name: &'static str,
    is: CredentialKind,
    headers: Vec<String>,
    certificate: Option<usize>,
}

/// A REST request and its expected outcome for `Low`, `Calls` and `Owner`; `go` is anything but a refusal.
struct RestRequest {
    first: &'static str,
    body: Json,
    ends: [&'static str; 3],
}

fn rest_requests() -> Vec<RestRequest> {
    let call = json!({ "arguments": { "message": "x" } });
    let execute = json!({ "name": "echo", "arguments": { "message": "x" } });
    let request_case = |first, body: &Json, ends| RestRequest { first, body: body.clone(), ends };
    let (none, some) = (Json::Null, json!({}));
    vec![
        request_case("GET /v1/tools", &none, ["200", "200", "200"]),
        request_case("GET /v1/tools/echo", &none, ["404", "200", "200"]),
        request_case("GET /v1/tools/search?q=echo", &none, ["200", "200", "200"]),
        request_case("POST /v1/tools", &some, ["403", "403", "go"]),
        request_case("PUT /v1/tools/none", &some, ["403", "403", "go"]),
        request_case("PATCH /v1/tools/none", &some, ["403", "403", "go"]),
        request_case("DELETE /v1/tools/none", &none, ["403", "403", "go"]),
        request_case("POST /v1/tools/echo/call", &call, ["404", "200", "200"]),
        request_case("POST /v1/tools/execute", &execute, ["404", "200", "200"]),
        request_case("GET /v1/resources", &none, ["200", "200", "200"]),
        request_case("GET /v1/resources/read?uri=test%3A%2F%2Fone", &none, ["404", "200", "200"]),
        request_case("GET /v1/prompts", &none, ["200", "200", "200"]),
        request_case("POST /v1/prompts/get", &json!({ "name": "greet" }), ["404", "200", "200"]),
        request_case("GET /v1/results/none", &none, ["404", "404", "404"]),
        request_case("GET /v1/servers", &none, ["403", "403", "200"]),
        request_case("GET /v1/servers/s", &none, ["403", "403", "200"]),
        request_case("POST /v1/servers", &some, ["403", "403", "go"]),
        request_case("PUT /v1/servers/none", &some, ["403", "403", "go"]),
        request_case("PATCH /v1/servers/none", &some, ["403", "403", "go"]),
        request_case("DELETE /v1/servers/none", &none, ["403", "403", "go"]),
        request_case("POST /v1/servers/none/reconnect", &some, ["403", "403", "404"]),
        request_case("POST /v1/servers/none/approve", &some, ["403", "403", "404"]),
        request_case("POST /v1/servers/none/reject", &some, ["403", "403", "404"]),
        request_case("POST /v1/servers/none/login", &some, ["404", "404", "404"]),
        request_case("GET /v1/servers/s/waiting", &none, ["403", "403", "200"]),
        request_case("GET /v1/servers/s/stderr", &none, ["403", "403", "200"]),
        request_case("POST /v1/servers/test", &some, ["403", "403", "go"]),
        request_case("POST /v1/servers/import", &some, ["403", "403", "400"]),
        request_case("GET /v1/me", &none, ["200", "200", "200"]),
        request_case("GET /v1/profiles", &none, ["200", "200", "200"]),
        request_case("GET /v1/tools/echo/callers", &none, ["403", "403", "200"]),
        request_case("GET /v1/policy", &none, ["403", "403", "go"]),
        // No wildcard includes the permission.
        request_case("PUT /v1/policy", &some, ["403", "403", "403"]),
        request_case("POST /v1/policy/check", &some, ["403", "403", "400"]),
        request_case("POST /v1/policy/replay", &some, ["403", "403", "400"]),
        request_case("GET /v1/policy/matrix", &none, ["403", "403", "200"]),
        request_case("GET /v1/policy/versions", &none, ["403", "403", "go"]),
        request_case("GET /v1/policy/versions/none", &none, ["403", "403", "go"]),
        request_case("PATCH /v1/callers/none", &some, ["403", "403", "404"]),
        request_case("GET /v1/callers", &none, ["403", "403", "200"]),
        request_case("GET /v1/callers/low", &none, ["403", "403", "200"]),
        request_case("POST /v1/callers", &some, ["403", "403", "400"]),
        request_case("DELETE /v1/callers/none", &none, ["403", "403", "404"]),
        request_case("GET /v1/callers/low/keys", &none, ["403", "403", "200"]),
        request_case("POST /v1/callers/none/keys", &some, ["403", "403", "404"]),
        request_case("POST /v1/callers/none/keys/rotate", &json!({ "name": "x" }), ["403", "403", "404"]),
        request_case("POST /v1/callers/none/keys/revoke", &json!({ "name": "x" }), ["403", "403", "404"]),
        request_case("GET /v1/credentials", &none, ["200", "200", "200"]),
        request_case("PUT /v1/credentials/none", &some, ["404", "404", "404"]),
        request_case("DELETE /v1/credentials/none", &none, ["404", "404", "404"]),
        request_case("GET /v1/configuration", &none, ["403", "403", "200"]),
        // This gateway is no part of a cluster.
        request_case("GET /v1/cluster", &none, ["403", "403", "404"]),
        request_case("GET /v1/executions", &none, ["403", "403", "200"]),
        request_case("GET /v1/executions/none", &none, ["403", "403", "go"]),
        // An accepted stream would not end.
        request_case("GET /v1/executions/stream?limit=1", &none, ["403", "403", "400"]),
        request_case("DELETE /v1/executions/none", &none, ["404", "404", "404"]),
        request_case("GET /v1/figures", &none, ["200", "200", "200"]),
        request_case("GET /v1/log", &none, ["403", "403", "200"]),
        request_case("POST /v1/log/verify", &none, ["403", "403", "202"]),
        request_case("GET /v1/events?kinds=none", &none, ["400", "400", "400"]),
        request_case("GET /v1/human-input", &none, ["403", "403", "200"]),
        request_case("GET /v1/human-input/none", &none, ["403", "403", "404"]),
        request_case("POST /v1/human-input/none", &some, ["403", "403", "go"]),
        request_case("GET /v1/approvals", &none, ["403", "403", "200"]),
        request_case("GET /v1/approvals/none", &none, ["403", "403", "404"]),
        request_case("POST /v1/approvals/none", &some, ["403", "403", "go"]),
        // A valid request would not end at once.
        request_case("POST /v1/runs", &some, ["403", "403", "400"]),
        request_case("GET /v1/runs", &none, ["200", "200", "200"]),
        request_case("GET /v1/runs/none", &none, ["404", "404", "404"]),
        request_case("GET /v1/runs/none/events", &none, ["404", "404", "404"]),
        request_case("DELETE /v1/runs/none", &none, ["404", "404", "404"]),
        request_case("POST /sse/messages?session=none", &some, ["404", "404", "404"]),
        request_case("POST /mcp/none", &some, ["404", "404", "404"]),
        request_case("GET /mcp/none", &none, ["404", "404", "404"]),
        request_case("GET /sse/none", &none, ["404", "404", "404"]),
        request_case("GET /ws/none", &none, ["404", "404", "404"]),
        request_case("POST /v1/policy/why", &json!({ "tool": "echo" }), ["403", "403", "200"]),
        request_case("GET /metrics", &none, ["403", "403", "200"]),
    ]
}

/// Requests that need no credential.
const OPEN: [&str; 4] = ["GET /healthz", "GET /readyz", "GET /v1/openapi.json", "GET /v1/docs"];

/// MCP requests and their outcome: the lists, and every operation.
fn mcp_requests() -> Vec<(McpRequest, [&'static str; 3])> {
    let list = |method, ends| ((method, json!({}), ""), ends);
    let mut all = vec![
        list("tools/list", ["0 tools", "5 tools", "5 tools"]),
        list("prompts/list", ["works"; 3]),
        list("resources/list", ["works"; 3]),
        list("resources/templates/list", ["works"; 3]),
    ];
    all.extend(OPERATIONS.map(|operation| (operation.mcp(), ["refused", "works", "works"])));
    all
}

/// A gateway and how clients connect to it.
struct GatewayAccess {
    name: &'static str,
    gateway: Gateway,
    authority: Option<Authority>,
    identities: Vec<Identity>,
}

impl GatewayAccess {
    fn ask(&self, credential: &Credential, first: &str, more: &[&str], body: &str) -> Option<HttpResponse> {
        let headers = credential.headers.iter().map(String::as_str);
        let headers: Vec<_> =
            headers.chain(more.iter().copied()).chain(["Content-Type: application/json"]).collect();
        match &self.authority {
            None => Some(self.gateway.request(first, &headers, body)),
            Some(authority) => {
                let shows = credential.certificate.map(|number| &self.identities[number]);
                Client::new(authority, shows).request(&self.gateway, first, &headers, body)
            }
        }
    }

    /// Returns the status of a response that does not end.
    fn status_only(&self, credential: &Credential, first: &str, more: &[&str]) -> Option<u16> {
        let headers = credential.headers.iter().map(String::as_str).chain(more.iter().copied());
        let mut head = format!("{first} HTTP/1.1\r\nHost: localhost\r\n");
        headers.for_each(|header| head.push_str(&format!("{header}\r\n")));
        head.push_str("\r\n");
        let mut line = String::new();
        match &self.authority {
            None => {
                let mut stream = self.gateway.connect();
                stream.write_all(head.as_bytes()).ok()?;
                BufReader::new(stream).read_line(&mut line).ok()?;
            }
            Some(authority) => {
                let shows = credential.certificate.map(|number| &self.identities[number]);
                let mut stream = Client::new(authority, shows).connect(&self.gateway);
                stream.write_all(head.as_bytes()).ok()?;
                BufReader::new(stream).read_line(&mut line).ok()?;
            }
        }
        line.split(' ').nth(1)?.parse().ok()
    }

    /// Sends a request of the newest revision, which has no session.
    fn modern(&self, credential: &Credential, request: &McpRequest) -> Option<HttpResponse> {
        let (method, params, name) = request;
        let method_header = format!("Mcp-Method: {method}");
        let mut headers = vec![ACCEPT, "MCP-Protocol-Version: 2026-07-28", method_header.as_str()];
        let name_header = format!("Mcp-Name: {name}");
        if !name.is_empty() {
            headers.push(&name_header);
        }
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {} });
        let mut params = params.clone();
        params["_meta"] = meta;
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.ask(credential, "POST /mcp", &headers, &body.to_string())
    }

    /// Starts a session of an older revision.
    fn session(&self, credential: &Credential) -> Option<HttpResponse> {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        self.ask(credential, "POST /mcp", &[ACCEPT], &body.to_string())
    }

    fn in_session(
        &self,
        credential: &Credential,
        session: &str,
        request: &McpRequest,
    ) -> Option<HttpResponse> {
        let (method, params, _) = request;
        let session = format!("Mcp-Session-Id: {session}");
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let headers = [ACCEPT, "MCP-Protocol-Version: 2025-11-25", session.as_str()];
        self.ask(credential, "POST /mcp", &headers, &body.to_string())
    }
}

const WEBSOCKET: [&str; 4] = [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
];
const ACCEPT: &str = "Accept: application/json, text/event-stream";

/// Returns the outcome of an MCP request.
fn outcome(response: &HttpResponse) -> String {
    if matches!(response.status, 401 | 403 | 429) {
        return response.status.to_string();
    }
    let result = &response.json()["result"];
    match (result["tools"].as_array(), result.is_object() && result["isError"] != true) {
        (Some(tools), _) => format!("{} tools", tools.len()),
        (None, true) => "works".to_owned(),
        (None, false) => "refused".to_owned(),
    }
}

fn config(issuer: &Issuer) -> Json {
    let caller = |id: &str, permissions: &[&str], san: &str| json!({ "id": id, "permissions": permissions, "api_key": format!("key-of-{id}"), "certificate": { "san": san } });
    let jwt = json!([{ "issuer": issuer.url, "audience": [AUDIENCE], "scopes": { "tools": ["s:*"] } }]);
    json!({ "serve": { "jwt": jwt },
        "callers": [caller("low", &["other:thing"], "low.test"), caller("calls", &["s:*"], "calls.test")] })
}

fn credentials(issuer: &Issuer, signer: &Signer, revoked: &str) -> Vec<Credential> {
    let credential =
        |name, is, headers: &[String]| Credential { name, is, headers: headers.to_vec(), certificate: None };
    let key = |key: &str| vec![format!("X-API-Key: {key}")];
    let bearer = |token: &str| vec![format!("Authorization: Bearer {token}")];
    let claims = |key: &str, value: Json| {
        // Each credential has a caller of its own.
        let mut claims =
            issuer.claims(&format!("{key}-{}", value.as_str().unwrap_or_default().len()), "tools");
        claims[key] = value;
        claims
    };
    let outsider = Signer::new("one", Algorithm::ES256);
    vec![
        credential("nothing", CredentialKind::Unauthenticated, &[]),
        credential("an empty key", CredentialKind::Unauthenticated, &key("")),
        credential("a wrong key", CredentialKind::Unauthenticated, &key("wrong")),
        credential("a key that was taken back", CredentialKind::Unauthenticated, &key(revoked)),
        credential(
            "a name and a password",
            CredentialKind::Unauthenticated,
            &["Authorization: Basic b3duZXI6b3duZXI=".to_owned()],
        ),
        credential(
            "a token that has expired",
            CredentialKind::Unauthenticated,
            &bearer(&signer.sign(&claims("exp", json!(now(-60))))),
        ),
        credential(
            "a token for others",
            CredentialKind::Unauthenticated,
            &bearer(&signer.sign(&claims("aud", json!("https://other.test")))),
        ),
        credential(
            "a token of another issuer",
            CredentialKind::Unauthenticated,
            &bearer(&outsider.sign(&claims("sub", json!("ann")))),
        ),
        credential(
            "a token without a scope",
            CredentialKind::Low,
            &bearer(&signer.sign(&claims("scope", json!("other")))),
        ),
        credential("a token", CredentialKind::Calls, &bearer(&signer.sign(&claims("sub", json!("ann"))))),
        credential("a key without permission", CredentialKind::Low, &key("key-of-low")),
        credential("a key", CredentialKind::Calls, &key("key-of-calls")),
        credential("a key as a bearer's", CredentialKind::Calls, &bearer("key-of-calls")),
        credential("the owner's key", CredentialKind::Owner, &key(OWNER)),
        Credential { certificate: Some(0), ..credential("a certificate", CredentialKind::Calls, &[]) },
        Credential {
            certificate: Some(1),
            ..credential("a certificate without permission", CredentialKind::Low, &[])
        },
        Credential {
            certificate: Some(2),
            ..credential("a certificate without a caller", CredentialKind::Unauthenticated, &[])
        },
        Credential {
            certificate: Some(3),
            ..credential("a certificate of another authority", CredentialKind::NoConnection, &[])
        },
        Credential {
            certificate: Some(3),
            ..credential("that, and the owner's key", CredentialKind::NoConnection, &key(OWNER))
        },
    ]
}

/// Fails unless the outcome is the expected one.
fn check(
    access: &GatewayAccess,
    credential: &Credential,
    what: &str,
    ends: [&str; 3],
    outcome_seen: Option<String>,
) {
    let expected = match credential.is {
        CredentialKind::NoConnection => {
            return assert_eq!(outcome_seen, None, "{} with {}: {what}", access.name, credential.name);
        }
        CredentialKind::Unauthenticated => "401",
        CredentialKind::Low => ends[0],
        CredentialKind::Calls => ends[1],
        CredentialKind::Owner => ends[2],
    };
    let outcome_seen = outcome_seen.unwrap_or_else(|| "no connection".to_owned());
    let fits = match expected {
        "go" => !["401", "403", "429", "no connection"].contains(&outcome_seen.as_str()),
        // From the sixth failure within a minute on, invalid keys get 429.
        "401" => outcome_seen == "401" || outcome_seen == "429",
        expected => outcome_seen == expected,
    };
    assert!(
        fits,
        "{} with {}: {what} ended with {outcome_seen}, not {expected}",
        access.name, credential.name
    );
}

fn all_access(issuer: &Issuer) -> [GatewayAccess; 2] {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut identities: Vec<_> =
        ["calls.test", "low.test", "unmapped.test"].iter().map(|name| authority.certify(name)).collect();
    identities.push(other.certify("calls.test"));
    let tls = json!({ "client_ca": "ca.pem", "client_certificate": "optional" });
    let secure = Gateway::serve(secured(&authority, tls, &config(issuer)));
    let mut plain = config(issuer);
    for caller in plain["callers"].as_array_mut().expect("a list") {
        caller.as_object_mut().expect("a map").remove("certificate");
    }
    let plain = Gateway::serve(project(&plain));
    [
        GatewayAccess { name: "http", gateway: plain, authority: None, identities: Vec::new() },
        GatewayAccess { name: "https", gateway: secure, authority: Some(authority), identities },
    ]
}

/// A key that was revoked.
fn revoked(access: &GatewayAccess) -> String {
    let owner = Credential {
        name: "owner",
        is: CredentialKind::Owner,
        headers: vec![format!("X-API-Key: {OWNER}")],
        certificate: None,
    };
    let body = json!({ "id": "gone", "permissions": ["*:*"] }).to_string();
    let made = access.ask(&owner, "POST /v1/callers", &[], &body).expect("an answer").json();
    let removed = access.ask(&owner, "DELETE /v1/callers/gone", &[], "").expect("an answer");
    assert_eq!(removed.status, 204);
    made["key"].as_str().expect("a key").to_owned()
}

#[test]
fn every_endpoint_with_every_credential_and_operation() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let mut cells = 0;
    for access in all_access(&issuer) {
        let credentials = credentials(&issuer, &signer, &revoked(&access));
        for credential in
            credentials.iter().filter(|it| it.certificate.is_none() || access.authority.is_some())
        {
            for RestRequest { first, body, ends } in rest_requests() {
                let body = if body.is_null() { String::new() } else { body.to_string() };
                let outcome_seen =
                    access.ask(credential, first, &[], &body).map(|response| response.status.to_string());
                check(&access, credential, first, ends, outcome_seen);
                cells += 1;
            }
            for first in OPEN {
                let outcome_seen = access.ask(credential, first, &[], "").map(|response| response.status);
                let expected = (credential.is != CredentialKind::NoConnection).then_some(200);
                assert_eq!(outcome_seen, expected, "{} with {}: {first}", access.name, credential.name);
                cells += 1;
            }
            let began = access.session(credential);
            let session = began.as_ref().and_then(|response| response.session()).map(ToOwned::to_owned);
            check(&access, credential, "initialize", ["works"; 3], began.as_ref().map(outcome));
            for (request, ends) in mcp_requests() {
                let method = request.0;
                // The newest revision subscribes on a stream of its own.
                if method != "resources/subscribe" {
                    let modern = access.modern(credential, &request);
                    check(&access, credential, method, ends, modern.as_ref().map(outcome));
                }
                let session = session.as_deref().unwrap_or("none");
                let legacy = access.in_session(credential, session, &request);
                check(&access, credential, method, ends, legacy.as_ref().map(outcome));
                cells += 2;
            }
            for (first, headers, status) in [("GET /sse", &[][..], "200"), ("GET /ws", &WEBSOCKET, "101")] {
                let outcome_seen = access.status_only(credential, first, headers);
                check(&access, credential, first, [status; 3], outcome_seen.map(|status| status.to_string()));
                // A page of another origin is refused even with a valid key.
                let evil: Vec<_> = headers.iter().chain(&["Origin: http://evil.test"]).copied().collect();
                let outcome_seen = access.status_only(credential, first, &evil);
                let expected = (credential.is != CredentialKind::NoConnection).then_some(403);
                assert_eq!(
                    outcome_seen, expected,
                    "{} with {}: {first} from a page",
                    access.name, credential.name
                );
                cells += 2;
            }
            for first in ["GET /mcp", "DELETE /mcp"] {
                let outcome_seen = access.ask(credential, first, &[], "").map(|response| response.status);
                match credential.is {
                    CredentialKind::NoConnection => assert_eq!(outcome_seen, None),
                    CredentialKind::Unauthenticated => assert!(
                        matches!(outcome_seen, Some(401 | 429)),
                        "{first} with {}: {outcome_seen:?}",
                        credential.name
                    ),
                    CredentialKind::Low | CredentialKind::Calls | CredentialKind::Owner => {
                        assert!(outcome_seen.is_some_and(|it| (400..500).contains(&it)), "{outcome_seen:?}")
                    }
                }
                cells += 1;
            }
        }
    }
    assert!(cells > 1000, "{cells}");
}

/// A session belongs to its caller: with the key of another caller, or with a changed id, it does not exist and stays
/// intact.
#[test]
fn a_session_belongs_to_its_caller() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let [access, _] = all_access(&issuer);
    let keyed = |key: &str| Credential {
        name: "key",
        is: CredentialKind::Calls,
        headers: vec![format!("X-API-Key: {key}")],
        certificate: None,
    };
    let (ann, owner) = (keyed("key-of-calls"), keyed(OWNER));
    let began = access.session(&ann).expect("an answer");
    assert_eq!(began.status, 200, "{began:?}");
    let session = began.session().expect("a session").to_owned();
    let status = |credential: &Credential, session: &str, first: &str| {
        let session = format!("Mcp-Session-Id: {session}");
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} }).to_string();
        let body = if first.starts_with("POST") { body } else { String::new() };
        let headers = [ACCEPT, "MCP-Protocol-Version: 2025-11-25", session.as_str()];
        access.ask(credential, first, &headers, &body).map(|response| response.status)
    };
    assert_eq!(status(&ann, &session, "POST /mcp"), Some(200));
    let mut bent = session.clone().into_bytes();
    let middle = bent.len() / 2;
    bent[middle] = if bent[middle] == b'a' { b'b' } else { b'a' };
    let bent = String::from_utf8(bent).expect("UTF-8");
    for first in ["POST /mcp", "GET /mcp", "DELETE /mcp"] {
        assert_eq!(status(&owner, &session, first), Some(404), "{first} with the key of another");
        assert_eq!(status(&ann, &bent, first), Some(404), "{first} bent");
        assert_eq!(status(&ann, &session[..session.len() - 1], first), Some(404), "{first} cut");
    }
    assert_eq!(status(&ann, &session, "POST /mcp"), Some(200), "it stays as it was");
    for path in ["/healthz", "/readyz", "/metrics"] {
        let shown = access.gateway.request(&format!("GET {path}"), &[&format!("X-API-Key: {OWNER}")], "");
        assert!(!shown.body.contains(&session), "{path}");
    }
}

/// A session is unknown to other processes, and a request there does not affect it.
#[test]
fn a_session_belongs_to_its_process() {
    let callers = json!([
        { "id": "ann", "permissions": ["*:*"], "api_key": "key-of-ann" },
        { "id": "owner", "permissions": ["*:*", "servers:exec"] },
    ]);
    let [here, there] = [(); 2].map(|()| {
        let program = project(&json!({ "callers": callers, "registries": { "mcp": "mcp.json" } }));
        program.write("mcp.json", r#"{"servers": {}}"#);
        Gateway::serve(program)
    });
    let session = |gateway: &Gateway| {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "t", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        gateway.post("/mcp", "key-of-ann", &body).session().expect("a session").to_owned()
    };
    let (id, of_before) = (session(&here), session(&there));
    let headers = |key: &str, id: &str| {
        vec![
            format!("X-API-Key: {key}"),
            ACCEPT.to_owned(),
            "Content-Type: application/json".to_owned(),
            "MCP-Protocol-Version: 2025-11-25".to_owned(),
            format!("Mcp-Session-Id: {id}"),
        ]
    };
    let send_as = |gateway: &Gateway, key: &str, id: &str, first: &str| {
        let headers = headers(key, id);
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
        let body = if first.starts_with("POST") { body } else { String::new() };
        let mut stream = gateway.connect();
        let headers: Vec<_> = headers.iter().map(String::as_str).collect();
        let request = crate::support::gateway::request(first, &headers, &body);
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("it is sent");
        stream
    };
    let send = |gateway: &Gateway, key: &str, first: &str| send_as(gateway, key, &id, first);
    let status = |stream| HttpResponse::read(&mut std::io::BufReader::new(stream)).expect("an answer").status;
    let mut stream = crate::support::mcp_client::EventStream::read(send(&here, "key-of-ann", "GET /mcp"));
    assert_eq!(stream.status, 200);
    for first in ["POST /mcp", "GET /mcp", "DELETE /mcp"] {
        for (gateway, key) in [(&there, "key-of-ann"), (&there, OWNER), (&here, OWNER)] {
            assert_eq!(status(send(gateway, key, first)), 404, "{first} with {key}");
        }
    }
    // The stream is still open and receives its own messages only. Changes are announced to clients with a list.
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let headers_here = headers("key-of-ann", &id);
    let headers_here: Vec<_> = headers_here.iter().map(String::as_str).collect();
    assert_eq!(here.request("POST /mcp", &headers_here, &list.to_string()).status, 200);
    let added = json!({ "name": "new", "command": crate::support::test_server::testkit(), "args": ["good"] });
    assert_eq!(here.post("/v1/servers", OWNER, &added).status, 201);
    // The server also has prompts and resources; the order of the lists is not fixed.
    loop {
        let message = stream.message();
        let method = message["method"].as_str().unwrap_or_default();
        assert!(method.ends_with("/list_changed"), "{message}");
        if method == "notifications/tools/list_changed" {
            break;
        }
    }
    assert!(!here.program.read("seen").contains(&id) && !here.program.run("log --json").stdout.contains(&id));
    // A deleted session is over. A session continues after a restart of its gateway, for its own caller.
    let outcome_seen = session(&here);
    assert!((200..300).contains(&status(send_as(&here, "key-of-ann", &outcome_seen, "DELETE /mcp"))));
    let Gateway { program, running, .. } = there;
    drop(running);
    let there = Gateway::serve(program);
    for first in ["POST /mcp", "GET /mcp", "DELETE /mcp"] {
        assert_eq!(status(send_as(&here, "key-of-ann", &outcome_seen, first)), 404, "{first}");
        assert_eq!(status(send_as(&there, OWNER, &of_before, first)), 404, "{first}");
    }
    assert_eq!(status(send_as(&there, "key-of-ann", &of_before, "POST /mcp")), 200);
    assert_eq!(
        status(send(&here, "key-of-ann", "POST /mcp")),
        200,
        "the session of the other caller continues"
    );
}

/// Every documented request is in the list.
#[test]
fn the_matrix_has_every_documented_request() {
    let page = include_str!("../../../../../docs/reference/rest.md");
    let cells = page.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next());
    // Requests for tools that are named like an endpoint are those for `{name}`.
    let is_named =
        |first: &str| ["search", "execute"].iter().any(|name| first.ends_with(&format!("/v1/tools/{name}")));
    let is_tool =
        |first: &str| is_named(first) && !["GET /v1/tools/search", "POST /v1/tools/execute"].contains(&first);
    let documented: Vec<_> = cells.filter(|cell| cell.contains(" /") && !is_tool(cell)).collect();
    assert!(documented.len() > 60, "{documented:?}");
    let shape = |first: &str| -> Vec<String> {
        let path = first.split('?').next().unwrap_or_default();
        path.split(['/', ' ']).map(ToOwned::to_owned).collect()
    };
    let listed: Vec<_> =
        rest_requests().iter().map(|request_case| shape(request_case.first)).chain(OPEN.map(shape)).collect();
    for first in documented {
        let fits = |listed: &Vec<String>| {
            let documented = shape(first);
            documented.len() == listed.len()
                && documented.iter().zip(listed).all(|(one, other)| one == other || one.starts_with('{'))
        };
        assert!(listed.iter().any(fits), "`{first}` is in docs/reference/rest.md and not in the matrix");
    }
}
