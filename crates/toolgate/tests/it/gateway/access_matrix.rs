//! Who gets in where: every door, every way to say who one is, every thing that can be asked for.
//!
//! The cells are made from three lists, so a request that is documented and not in the list, or a credential that
//! opens what it should not, fails here.

use std::io::{BufRead as _, BufReader, Write as _};

use jsonwebtoken::Algorithm;
use serde_json::{Value as Json, json};

use crate::door::{Answer, Door, OWNER, project};
use crate::door_tls::{Authority, Client, Identity, secured};
use crate::issuer::{AUDIENCE, Issuer, Signer, now};

/// What a credential makes of whoever shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    /// No connection at all.
    Stranger,
    /// Nobody that is known.
    Nobody,
    /// Somebody who was given nothing here.
    Low,
    /// Somebody who was given the tools of the server.
    Calls,
    /// The owner.
    Owner,
}

/// What is shown: headers, and a certificate by its number.
struct Credential {
    name: &'static str,
    is: Is,
    headers: Vec<String>,
    certificate: Option<usize>,
}

/// What is asked for, and how it ends for who is `Low`, `Calls` and `Owner`; `go` is anything but a refusal.
struct Verb {
    first: &'static str,
    body: Json,
    ends: [&'static str; 3],
}

fn verbs() -> Vec<Verb> {
    let call = json!({ "arguments": { "message": "x" } });
    let execute = json!({ "name": "echo", "arguments": { "message": "x" } });
    let verb = |first, body: &Json, ends| Verb { first, body: body.clone(), ends };
    let (none, some) = (Json::Null, json!({}));
    vec![
        verb("GET /v1/tools", &none, ["200", "200", "200"]),
        verb("GET /v1/tools/echo", &none, ["404", "200", "200"]),
        verb("GET /v1/tools/search?q=echo", &none, ["200", "200", "200"]),
        verb("POST /v1/tools", &some, ["403", "403", "go"]),
        verb("PUT /v1/tools/none", &some, ["403", "403", "go"]),
        verb("PATCH /v1/tools/none", &some, ["403", "403", "go"]),
        verb("DELETE /v1/tools/none", &none, ["403", "403", "go"]),
        verb("POST /v1/tools/echo/call", &call, ["404", "200", "200"]),
        verb("POST /v1/tools/execute", &execute, ["404", "200", "200"]),
        verb("GET /v1/servers", &none, ["403", "403", "200"]),
        verb("GET /v1/servers/s", &none, ["403", "403", "200"]),
        verb("POST /v1/servers", &some, ["403", "403", "go"]),
        verb("PUT /v1/servers/none", &some, ["403", "403", "go"]),
        verb("PATCH /v1/servers/none", &some, ["403", "403", "go"]),
        verb("DELETE /v1/servers/none", &none, ["403", "403", "go"]),
        verb("POST /v1/servers/none/reconnect", &some, ["403", "403", "404"]),
        verb("POST /v1/servers/none/approve", &some, ["403", "403", "404"]),
        verb("GET /v1/callers", &none, ["403", "403", "200"]),
        verb("GET /v1/callers/low", &none, ["403", "403", "200"]),
        verb("POST /v1/callers", &some, ["403", "403", "400"]),
        verb("DELETE /v1/callers/none", &none, ["403", "403", "404"]),
        verb("GET /v1/executions", &none, ["403", "403", "200"]),
        verb("GET /v1/executions/none", &none, ["403", "403", "go"]),
        // One that is let in would not end.
        verb("GET /v1/executions/stream?limit=1", &none, ["403", "403", "400"]),
        verb("GET /v1/human-input", &none, ["403", "403", "200"]),
        verb("GET /v1/human-input/none", &none, ["403", "403", "404"]),
        verb("POST /v1/human-input/none", &some, ["403", "403", "go"]),
        verb("GET /v1/approvals", &none, ["403", "403", "200"]),
        verb("GET /v1/approvals/none", &none, ["403", "403", "404"]),
        verb("POST /v1/approvals/none", &some, ["403", "403", "go"]),
        // One that is good would not end at once.
        verb("POST /v1/runs", &some, ["403", "403", "400"]),
        verb("GET /v1/runs", &none, ["200", "200", "200"]),
        verb("GET /v1/runs/none", &none, ["404", "404", "404"]),
        verb("GET /v1/runs/none/events", &none, ["404", "404", "404"]),
        verb("DELETE /v1/runs/none", &none, ["404", "404", "404"]),
        verb("POST /sse/messages?session=none", &some, ["404", "404", "404"]),
        verb("POST /mcp/none", &some, ["404", "404", "404"]),
        verb("GET /mcp/none", &none, ["404", "404", "404"]),
        verb("GET /sse/none", &none, ["404", "404", "404"]),
        verb("GET /ws/none", &none, ["404", "404", "404"]),
        verb("POST /v1/policy/why", &json!({ "tool": "echo" }), ["403", "403", "200"]),
        verb("GET /metrics", &none, ["403", "403", "200"]),
    ]
}

/// What anybody may ask for.
const OPEN: [&str; 4] = ["GET /healthz", "GET /readyz", "GET /v1/openapi.json", "GET /v1/docs"];

/// What MCP clients ask for in each era, and what comes of it: tools that are listed, or whether a call works.
const MCP: [(&str, [&str; 3]); 4] = [
    ("tools/list", ["0 tools", "5 tools", "5 tools"]),
    ("tools/call", ["refused", "works", "works"]),
    ("prompts/list", ["works", "works", "works"]),
    ("resources/list", ["works", "works", "works"]),
];

/// A door and how it is reached.
struct Way {
    name: &'static str,
    door: Door,
    authority: Option<Authority>,
    identities: Vec<Identity>,
}

impl Way {
    fn ask(&self, credential: &Credential, first: &str, more: &[&str], body: &str) -> Option<Answer> {
        let headers = credential.headers.iter().map(String::as_str);
        let headers: Vec<_> =
            headers.chain(more.iter().copied()).chain(["Content-Type: application/json"]).collect();
        match &self.authority {
            None => Some(self.door.request(first, &headers, body)),
            Some(authority) => {
                let shows = credential.certificate.map(|number| &self.identities[number]);
                Client::new(authority, shows).request(&self.door, first, &headers, body)
            }
        }
    }

    /// The status of what begins and does not end.
    fn begins(&self, credential: &Credential, first: &str, more: &[&str]) -> Option<u16> {
        let headers = credential.headers.iter().map(String::as_str).chain(more.iter().copied());
        let mut head = format!("{first} HTTP/1.1\r\nHost: localhost\r\n");
        headers.for_each(|header| head.push_str(&format!("{header}\r\n")));
        head.push_str("\r\n");
        let mut line = String::new();
        match &self.authority {
            None => {
                let mut stream = self.door.connect();
                stream.write_all(head.as_bytes()).ok()?;
                BufReader::new(stream).read_line(&mut line).ok()?;
            }
            Some(authority) => {
                let shows = credential.certificate.map(|number| &self.identities[number]);
                let mut stream = Client::new(authority, shows).connect(&self.door);
                stream.write_all(head.as_bytes()).ok()?;
                BufReader::new(stream).read_line(&mut line).ok()?;
            }
        }
        line.split(' ').nth(1)?.parse().ok()
    }

    /// A request of the newest revision, which stands alone.
    fn modern(&self, credential: &Credential, method: &str) -> Option<Answer> {
        let method_header = format!("Mcp-Method: {method}");
        let mut headers = vec![ACCEPT, "MCP-Protocol-Version: 2026-07-28", method_header.as_str()];
        if method == "tools/call" {
            headers.push("Mcp-Name: echo");
        }
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {} });
        let mut params = params(method);
        params["_meta"] = meta;
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.ask(credential, "POST /mcp", &headers, &body.to_string())
    }

    /// A session of an older one.
    fn session(&self, credential: &Credential) -> Option<Answer> {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        self.ask(credential, "POST /mcp", &[ACCEPT], &body.to_string())
    }

    fn in_session(&self, credential: &Credential, session: &str, method: &str) -> Option<Answer> {
        let session = format!("Mcp-Session-Id: {session}");
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params(method) });
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

fn params(method: &str) -> Json {
    if method == "tools/call" {
        json!({ "name": "echo", "arguments": { "message": "x" } })
    } else {
        json!({})
    }
}

/// What came of a question of MCP.
fn outcome(answer: &Answer) -> String {
    if matches!(answer.status, 401 | 403 | 429) {
        return answer.status.to_string();
    }
    let result = &answer.json()["result"];
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
        // Each of them is about somebody of its own.
        let mut claims =
            issuer.claims(&format!("{key}-{}", value.as_str().unwrap_or_default().len()), "tools");
        claims[key] = value;
        claims
    };
    let stranger = Signer::new("one", Algorithm::ES256);
    vec![
        credential("nothing", Is::Nobody, &[]),
        credential("an empty key", Is::Nobody, &key("")),
        credential("a wrong key", Is::Nobody, &key("wrong")),
        credential("a key that was taken back", Is::Nobody, &key(revoked)),
        credential(
            "a name and a password",
            Is::Nobody,
            &["Authorization: Basic b3duZXI6b3duZXI=".to_owned()],
        ),
        credential(
            "a token that has expired",
            Is::Nobody,
            &bearer(&signer.sign(&claims("exp", json!(now(-60))))),
        ),
        credential(
            "a token for others",
            Is::Nobody,
            &bearer(&signer.sign(&claims("aud", json!("https://other.test")))),
        ),
        credential("a token of others", Is::Nobody, &bearer(&stranger.sign(&claims("sub", json!("ann"))))),
        credential(
            "a token without a scope",
            Is::Low,
            &bearer(&signer.sign(&claims("scope", json!("other")))),
        ),
        credential("a token", Is::Calls, &bearer(&signer.sign(&claims("sub", json!("ann"))))),
        credential("a key without permission", Is::Low, &key("key-of-low")),
        credential("a key", Is::Calls, &key("key-of-calls")),
        credential("a key as a bearer's", Is::Calls, &bearer("key-of-calls")),
        credential("the owner's key", Is::Owner, &key(OWNER)),
        Credential { certificate: Some(0), ..credential("a certificate", Is::Calls, &[]) },
        Credential { certificate: Some(1), ..credential("a certificate without permission", Is::Low, &[]) },
        Credential { certificate: Some(2), ..credential("a certificate of nobody", Is::Nobody, &[]) },
        Credential {
            certificate: Some(3),
            ..credential("a certificate of another authority", Is::Stranger, &[])
        },
        Credential {
            certificate: Some(3),
            ..credential("that, and the owner's key", Is::Stranger, &key(OWNER))
        },
    ]
}

/// Fails unless it ended as it should.
fn check(way: &Way, credential: &Credential, what: &str, ends: [&str; 3], ended: Option<String>) {
    let expected = match credential.is {
        Is::Stranger => return assert_eq!(ended, None, "{} with {}: {what}", way.name, credential.name),
        Is::Nobody => "401",
        Is::Low => ends[0],
        Is::Calls => ends[1],
        Is::Owner => ends[2],
    };
    let ended = ended.unwrap_or_else(|| "no connection".to_owned());
    let fits = match expected {
        "go" => !["401", "403", "429", "no connection"].contains(&ended.as_str()),
        // From the sixth of a minute on a wrong key is told to wait.
        "401" => ended == "401" || ended == "429",
        expected => ended == expected,
    };
    assert!(fits, "{} with {}: {what} ended with {ended}, not {expected}", way.name, credential.name);
}

fn ways(issuer: &Issuer) -> [Way; 2] {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut identities: Vec<_> =
        ["calls.test", "low.test", "nobody.test"].iter().map(|name| authority.certify(name)).collect();
    identities.push(other.certify("calls.test"));
    let tls = json!({ "client_ca": "ca.pem", "client_certificate": "optional" });
    let secure = Door::of(secured(&authority, tls, &config(issuer)));
    let mut plain = config(issuer);
    for caller in plain["callers"].as_array_mut().expect("a list") {
        caller.as_object_mut().expect("a map").remove("certificate");
    }
    let plain = Door::of(project(&plain));
    [
        Way { name: "http", door: plain, authority: None, identities: Vec::new() },
        Way { name: "https", door: secure, authority: Some(authority), identities },
    ]
}

/// A key that was good.
fn revoked(way: &Way) -> String {
    let owner = Credential {
        name: "owner",
        is: Is::Owner,
        headers: vec![format!("X-API-Key: {OWNER}")],
        certificate: None,
    };
    let body = json!({ "id": "gone", "permissions": ["*:*"] }).to_string();
    let made = way.ask(&owner, "POST /v1/callers", &[], &body).expect("an answer").json();
    let removed = way.ask(&owner, "DELETE /v1/callers/gone", &[], "").expect("an answer");
    assert_eq!(removed.status, 204);
    made["key"].as_str().expect("a key").to_owned()
}

#[test]
fn every_door_every_credential_every_verb() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let mut cells = 0;
    for way in ways(&issuer) {
        let credentials = credentials(&issuer, &signer, &revoked(&way));
        for credential in credentials.iter().filter(|it| it.certificate.is_none() || way.authority.is_some())
        {
            for Verb { first, body, ends } in verbs() {
                let body = if body.is_null() { String::new() } else { body.to_string() };
                let ended = way.ask(credential, first, &[], &body).map(|answer| answer.status.to_string());
                check(&way, credential, first, ends, ended);
                cells += 1;
            }
            for first in OPEN {
                let ended = way.ask(credential, first, &[], "").map(|answer| answer.status);
                let expected = (credential.is != Is::Stranger).then_some(200);
                assert_eq!(ended, expected, "{} with {}: {first}", way.name, credential.name);
                cells += 1;
            }
            let began = way.session(credential);
            let session = began.as_ref().and_then(|answer| answer.session()).map(ToOwned::to_owned);
            check(&way, credential, "initialize", ["works"; 3], began.as_ref().map(outcome));
            for (method, ends) in MCP {
                let modern = way.modern(credential, method);
                check(&way, credential, method, ends, modern.as_ref().map(outcome));
                let session = session.as_deref().unwrap_or("none");
                let legacy = way.in_session(credential, session, method);
                check(&way, credential, method, ends, legacy.as_ref().map(outcome));
                cells += 2;
            }
            for (first, headers, status) in [("GET /sse", &[][..], "200"), ("GET /ws", &WEBSOCKET, "101")] {
                let ended = way.begins(credential, first, headers);
                check(&way, credential, first, [status; 3], ended.map(|status| status.to_string()));
                // A page of another origin opens nothing, whatever it knows.
                let evil: Vec<_> = headers.iter().chain(&["Origin: http://evil.test"]).copied().collect();
                let ended = way.begins(credential, first, &evil);
                let expected = (credential.is != Is::Stranger).then_some(403);
                assert_eq!(ended, expected, "{} with {}: {first} from a page", way.name, credential.name);
                cells += 2;
            }
            for first in ["GET /mcp", "DELETE /mcp"] {
                let ended = way.ask(credential, first, &[], "").map(|answer| answer.status);
                match credential.is {
                    Is::Stranger => assert_eq!(ended, None),
                    Is::Nobody => assert!(
                        matches!(ended, Some(401 | 429)),
                        "{first} with {}: {ended:?}",
                        credential.name
                    ),
                    Is::Low | Is::Calls | Is::Owner => {
                        assert!(ended.is_some_and(|it| (400..500).contains(&it)), "{ended:?}")
                    }
                }
                cells += 1;
            }
        }
    }
    assert!(cells > 1000, "{cells}");
}

/// A session is its caller's: with the key of another, bent, or cut it is not there, and stays as it was.
#[test]
fn a_session_is_its_callers_alone() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let [way, _] = ways(&issuer);
    let keyed = |key: &str| Credential {
        name: "key",
        is: Is::Calls,
        headers: vec![format!("X-API-Key: {key}")],
        certificate: None,
    };
    let (ann, owner) = (keyed("key-of-calls"), keyed(OWNER));
    let began = way.session(&ann).expect("an answer");
    assert_eq!(began.status, 200, "{began:?}");
    let session = began.session().expect("a session").to_owned();
    let status = |credential: &Credential, session: &str, first: &str| {
        let session = format!("Mcp-Session-Id: {session}");
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} }).to_string();
        let body = if first.starts_with("POST") { body } else { String::new() };
        let headers = [ACCEPT, "MCP-Protocol-Version: 2025-11-25", session.as_str()];
        way.ask(credential, first, &headers, &body).map(|answer| answer.status)
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
        let shown = way.door.request(&format!("GET {path}"), &[&format!("X-API-Key: {OWNER}")], "");
        assert!(!shown.body.contains(&session), "{path}");
    }
}

/// Nor is it anywhere else: another process knows no session of this one, and whoever tries takes nothing away.
#[test]
fn a_session_is_its_doors_alone() {
    let callers = json!([
        { "id": "ann", "permissions": ["*:*"], "api_key": "key-of-ann" },
        { "id": "owner", "permissions": ["*:*", "servers:exec"] },
    ]);
    let [here, there] = [(); 2].map(|()| {
        let program = project(&json!({ "callers": callers, "registries": { "mcp": "mcp.json" } }));
        program.write("mcp.json", r#"{"servers": {}}"#);
        Door::of(program)
    });
    let session = |door: &Door| {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "t", "version": "1" } });
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        door.post("/mcp", "key-of-ann", &body).session().expect("a session").to_owned()
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
    let send_as = |door: &Door, key: &str, id: &str, first: &str| {
        let headers = headers(key, id);
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
        let body = if first.starts_with("POST") { body } else { String::new() };
        let mut stream = door.connect();
        let headers: Vec<_> = headers.iter().map(String::as_str).collect();
        let request = crate::door::request(first, &headers, &body);
        std::io::Write::write_all(&mut stream, request.as_bytes()).expect("it is sent");
        stream
    };
    let send = |door: &Door, key: &str, first: &str| send_as(door, key, &id, first);
    let status = |stream| Answer::read(&mut std::io::BufReader::new(stream)).expect("an answer").status;
    let mut stream = crate::client::Events::read(send(&here, "key-of-ann", "GET /mcp"));
    assert_eq!(stream.status, 200);
    for first in ["POST /mcp", "GET /mcp", "DELETE /mcp"] {
        for (door, key) in [(&there, "key-of-ann"), (&there, OWNER), (&here, OWNER)] {
            assert_eq!(status(send(door, key, first)), 404, "{first} with {key}");
        }
    }
    // Its stream is still there, and all that it gets is its own.
    let added = json!({ "name": "new", "command": crate::servers::testkit(), "args": ["good"] });
    assert_eq!(here.post("/v1/servers", OWNER, &added).status, 201);
    assert_eq!(stream.message()["method"], "notifications/tools/list_changed");
    assert!(!here.program.read("seen").contains(&id) && !here.program.run("log --json").stdout.contains(&id));
    // One that was ended is over, and so is one of a process that is gone.
    let ended = session(&here);
    assert!((200..300).contains(&status(send_as(&here, "key-of-ann", &ended, "DELETE /mcp"))));
    let Door { program, running, .. } = there;
    drop(running);
    let there = Door::of(program);
    for first in ["POST /mcp", "GET /mcp", "DELETE /mcp"] {
        assert_eq!(status(send_as(&here, "key-of-ann", &ended, first)), 404, "{first}");
        assert_eq!(status(send_as(&there, "key-of-ann", &of_before, first)), 404, "{first}");
    }
    assert_eq!(status(send(&here, "key-of-ann", "POST /mcp")), 200, "that of somebody else goes on");
}

/// What is documented is in the list.
#[test]
fn the_matrix_has_all_that_can_be_asked_for() {
    let page = include_str!("../../../../docs/serve.md");
    let rows = page
        .lines()
        .skip_while(|line| *line != "## What can be asked for")
        .filter(|line| line.starts_with("| `"));
    let mut documented = Vec::new();
    for row in rows.take_while(|row| !row.starts_with("| 4")) {
        let cell = row.split(" | ").next().expect("a cell");
        let mut methods = Vec::new();
        for part in cell.trim_start_matches("| ").split(", ").map(|part| part.trim_matches('`')) {
            methods.push(part.split(' ').next().expect("a method").to_owned());
            if let Some((_, path)) = part.split_once(' ') {
                documented.extend(methods.drain(..).map(|method| format!("{method} {path}")));
            }
        }
    }
    assert!(documented.len() > 20, "{documented:?}");
    let shape = |first: &str| -> Vec<String> {
        let path = first.split('?').next().unwrap_or_default();
        path.split(['/', ' ']).map(ToOwned::to_owned).collect()
    };
    let listed: Vec<_> = verbs().iter().map(|verb| shape(verb.first)).chain(OPEN.map(shape)).collect();
    for first in &documented {
        let fits = |listed: &Vec<String>| {
            let documented = shape(first);
            documented.len() == listed.len()
                && documented.iter().zip(listed).all(|(one, other)| one == other || one.starts_with('{'))
        };
        assert!(listed.iter().any(fits), "`{first}` is in docs/serve.md and not in the matrix");
    }
}
