//! `auth: caller`: each caller's own credential reaches the server, in every way to have one, and no other's.

use serde_json::{Value as Json, json};

use super::credentials::{run_with_input, with_browser};
use crate::support::authorization_server::{AuthorizationServer, browse, browse_with};
use crate::support::browser::Browser;
use crate::support::gateway::{Gateway, HttpResponse, OWNER};
use crate::support::issuer::{AUDIENCE, Issuer, Signer, now};
use crate::support::mcp_client::{ACCEPT, McpSession, call_message, request_message};
use crate::support::program::Program;

/// A server over pipes that returns the credential in its environment.
const STDIO_SERVER: &str = r#"
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        reply["result"] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "env", "version": "1"}}
    elif method == "tools/list":
        reply["result"] = {"tools": [{"name": "whoami", "description": "Returns the credential.",
                                      "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        text = "env " + os.environ.get("SERVER_TOKEN", "none") + message["params"]["arguments"].get("say", "")
        reply["result"] = {"content": [{"type": "text", "text": text}]}
    elif method == "ping":
        reply["result"] = {}
    else:
        reply["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(reply), flush=True)
"#;

fn entry(name: &str, more: Json) -> Json {
    let mut entry = json!({ "name": name, "auth": "caller", "mode": "dynamic", "startup": "optional",
        "default_tool_config": { "max_instances": 64, "timeout": "50s" } });
    entry.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    entry
}

fn text(response: &HttpResponse) -> String {
    let body = response.json();
    body["data"][0]["text"].as_str().map_or_else(|| body.to_string(), ToOwned::to_owned)
}

fn whoami(gateway: &Gateway, token: &str, server: &str) -> String {
    text(&gateway.call(token, &format!("{server}__whoami"), &json!({})))
}

/// Callers × servers × kinds of credentials, with all callers at the same time.
#[test]
fn every_caller_has_its_own_credential() {
    let server = AuthorizationServer::start();
    let signer = Signer::new("k", jsonwebtoken::Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let oauth = |more: Json| {
        let mut oauth = json!({ "issuer": server.origin, "client_id": "us" });
        oauth.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        oauth
    };
    let provider = json!({ "issuer": server.origin, "client_id": "us" });
    let servers = json!([
        entry("login", json!({ "url": server.mcp("login") })),
        entry("bearer", json!({ "url": server.mcp("bearer") })),
        entry("keyed", json!({ "url": server.mcp("keyed"), "credential": { "header": "X-Api-Key" } })),
        entry(
            "env",
            json!({ "command": "python3", "args": ["server.py"], "credential": { "env": "SERVER_TOKEN" } })
        ),
        entry(
            "exchange",
            json!({ "url": server.mcp("exchange"), "oauth": oauth(json!({ "grant": "token_exchange" })) })
        ),
        entry(
            "asserted",
            json!({ "url": server.mcp("asserted"),
            "oauth": oauth(json!({ "grant": "identity_assertion", "identity_provider": provider })) })
        ),
        entry("forwarded", json!({ "url": server.mcp("forwarded"), "forward": true })),
    ]);
    let names = ["login", "bearer", "keyed", "env", "exchange", "asserted", "forwarded"];
    let scopes: Vec<_> = names.iter().map(|name| format!("{name}:*")).collect();
    let jwt = json!([{ "issuer": issuer.url, "audience": [AUDIENCE, server.mcp("forwarded")],
        "caller_prefix": "id:", "scopes": { "all": scopes } }]);
    let config = json!({ "toolbox": { "max_concurrent": 256, "mcps": servers }, "serve": { "jwt": jwt } });
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER);
    program.write("toolgate.yaml", config.to_string());
    program.write("server.py", STDIO_SERVER);
    let check = program.run("check");
    assert!(check.code == 0 && check.stdout.contains("forward"), "`check` shows it: {check}");
    // The owner reads the lists.
    let set = |program: &Program, server: &str, caller: &str, secret: &str| {
        let run = run_with_input(program, &format!("credentials set {server} --as {caller}"), secret);
        assert_eq!(run.code, 0, "{run}");
    };
    for name in ["login", "bearer", "exchange", "asserted", "forwarded"] {
        set(&program, name, "owner", "static-owner");
    }
    set(&program, "keyed", "owner", "key-owner");
    // Ann has everything from the command line, Bob logs in and stores his own over REST.
    let mut program = program;
    program = with_browser(program, "ann");
    assert_eq!(program.run("servers login login --as id:ann").code, 0);
    set(&program, "bearer", "id:ann", "static-ann");
    set(&program, "keyed", "id:ann", "key-ann");
    set(&program, "env", "id:ann", "env-ann");
    let gateway = Gateway::serve(program);
    let token = |person: &str| {
        let mut claims = issuer.claims(person, "all");
        claims["aud"] = json!([AUDIENCE, server.mcp("forwarded")]);
        signer.sign(&claims)
    };
    let (ann, bob) = (token("ann"), token("bob"));
    // Before Bob has logged in, nothing is sent as somebody else.
    for name in ["login", "bearer", "keyed", "env"] {
        let refused = gateway.call(&bob, &format!("{name}__whoami"), &json!({}));
        assert_eq!(refused.code(), "unauthorized", "{name}: {refused:?}");
    }
    let run = with_browser_of(&gateway, "bob", "servers login login --as id:bob");
    assert_eq!(run, Some(0));
    let put = |name: &str, secret: &str| {
        let headers = [&format!("Authorization: Bearer {bob}"), "Content-Type: application/json"];
        let body = json!({ "secret": secret }).to_string();
        gateway.request(&format!("PUT /v1/credentials/{name}"), &headers, &body).status
    };
    for (name, secret) in [("bearer", "static-bob"), ("keyed", "key-bob"), ("env", "env-bob")] {
        assert_eq!(put(name, secret), 204, "{name}");
    }
    let expected = |name: &str, person: &str| match name {
        "login" => format!("authorization_code {person}"),
        "bearer" => format!("static static-{person}"),
        "keyed" => format!("key key-{person}"),
        "env" => format!("env env-{person}"),
        "exchange" => format!("token-exchange {person}"),
        "asserted" => format!("jwt-bearer {person}"),
        _ => format!("forwarded {person}"),
    };
    // A failed attempt to connect counts for a second.
    gateway.wait("Bob's logins count", |gateway| {
        names.iter().all(|name| whoami(gateway, &bob, name) == expected(name, "bob"))
    });
    std::thread::scope(|scope| {
        for _ in 0..4 {
            for (token, person) in [(&ann, "ann"), (&bob, "bob")] {
                let (gateway, expected) = (&gateway, &expected);
                scope.spawn(move || {
                    for name in names {
                        assert_eq!(whoami(gateway, token, name), expected(name, person), "{name}");
                    }
                });
            }
        }
    });
    // The gateway's own tokens went to no server but the one that is their audience.
    for (name, header, _) in server.seen() {
        let is_own = header.contains(&ann) || header.contains(&bob);
        assert!(!is_own || name == "forwarded", "{name}");
    }
    // Neither the list nor the record shows a secret.
    let list = gateway.request("GET /v1/credentials", &[&format!("Authorization: Bearer {bob}")], "");
    let listed = list.json();
    assert_eq!(listed["credentials"].as_array().map(Vec::len), Some(4), "{listed}");
    assert!(
        listed["credentials"].as_array().into_iter().flatten().all(|it| it["caller"] == "id:bob"),
        "{listed}"
    );
    let shown = format!("{listed} {}", json!(gateway.executions("limit=200")));
    for secret in ["static-bob", "key-bob", "env-bob"] {
        assert!(!listed.to_string().contains(secret), "{listed}");
    }
    assert!(!shown.contains("access-") && !shown.contains("refresh-"), "{shown}");
    // The servers return the static credentials of their callers; the records mask them.
    for secret in ["static-bob", "key-bob", "env-bob", "static-ann", "key-ann", "env-ann"] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
    let records = gateway.executions("caller=id:ann&limit=200");
    let has_name =
        |name: &str| records.iter().any(|it| it["end"]["upstream_credential"] == format!("id:ann at {name}"));
    assert!(names.iter().all(|name| has_name(name)), "the record names the credential");
    let account = |name: &str| {
        let credential = format!("id:ann at {name}");
        let mut ends = records.iter().map(|it| &it["end"]);
        ends.find(|end| end["upstream_credential"] == *credential).expect("a record")["upstream_account"]
            .clone()
    };
    // The account is that in the token; opaque tokens and keys name none.
    assert_eq!(["exchange", "asserted", "forwarded"].map(account), ["ann", "ann", "ann"]);
    assert_eq!(["login", "bearer", "keyed", "env"].map(account), [const { Json::Null }; 4]);
    // A removed credential counts from the next second on, and is Bob's alone.
    let headers = [format!("Authorization: Bearer {bob}")];
    let remove =
        |name: &str| gateway.request(&format!("DELETE /v1/credentials/{name}"), &[&headers[0]], "").status;
    for name in ["login", "bearer", "keyed", "env"] {
        assert_eq!(remove(name), 204, "{name}");
        gateway.wait("the removal counts", |gateway| {
            gateway.call(&bob, &format!("{name}__whoami"), &json!({})).status != 200
        });
        assert_eq!(whoami(&gateway, &ann, name), expected(name, "ann"));
        assert_eq!(remove(name), 404, "{name}");
    }
    assert_eq!(server.revoked().len(), 2, "the login was revoked");
    assert_eq!(put("nothing", "x"), 404);
    assert_eq!(put("keyed", "two\nlines"), 422);
}

/// A stored secret is masked in the records of its caller, in arguments and results, and in no other records: it may be a
/// common word.
#[test]
fn secrets_are_masked_for_their_caller() {
    let callers = json!([
        { "id": "ann", "permissions": ["env:*"], "api_key": "key-of-ann-0123456789" },
        { "id": "bob", "permissions": ["env:*"], "api_key": "key-of-bob-0123456789" }]);
    let env = json!({ "command": "python3", "args": ["server.py"], "credential": { "env": "SERVER_TOKEN" } });
    let config = json!({ "callers": callers, "toolbox": { "mcps": [entry("env", env)] } });
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER);
    program.write("toolgate.yaml", config.to_string());
    program.write("server.py", STDIO_SERVER);
    // Without a shape that gives it away. Stored by a command, and over REST.
    let (tulips, roses) = ("tulips and lilies", "roses and violets");
    assert_eq!(run_with_input(&program, "credentials set env --as ann", tulips).code, 0);
    let gateway = Gateway::serve(program);
    let key = [&format!("X-API-Key: {BOB}"), "Content-Type: application/json"];
    let stored = gateway.request("PUT /v1/credentials/env", &key, &json!({ "secret": roses }).to_string());
    assert_eq!(stored.status, 204, "{stored:?}");
    let say = json!({ "say": format!(", {tulips}, {roses}") });
    for (key, own) in [(ANN, tulips), (BOB, roses)] {
        let shown = text(&gateway.call(key, "env__whoami", &say));
        assert_eq!(shown, format!("env {own}, {tulips}, {roses}"), "results are not masked");
    }
    for (caller, own, other) in [("ann", tulips, roses), ("bob", roses, tulips)] {
        let records = json!(gateway.executions(&format!("caller={caller}&limit=9"))).to_string();
        let count = |text: &str| records.matches(text).count();
        assert_eq!((count(own), count(other)), (0, 2), "of {caller}: {records}");
    }
}

/// Runs a command with the browser of a person, beside a running gateway.
fn with_browser_of(gateway: &Gateway, person: &str, arguments: &str) -> Option<i32> {
    gateway.program.write("browser", format!("#!/bin/sh\ncurl -sL -o /dev/null \"$1&user={person}\"\n"));
    gateway
        .program
        .command(&arguments.split(' ').collect::<Vec<_>>())
        .output()
        .expect("it runs")
        .status
        .code()
}

fn login_gateway(server: &AuthorizationServer) -> Gateway {
    let callers = json!([
        { "id": "ann", "permissions": ["web:*"], "api_key": "key-of-ann-0123456789" },
        { "id": "bob", "permissions": ["web:*"], "api_key": "key-of-bob-0123456789" }]);
    let servers = json!([entry("web", json!({ "url": server.mcp("web") }))]);
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER);
    program.write("toolgate.yaml", json!({ "callers": callers, "toolbox": { "mcps": servers } }).to_string());
    assert_eq!(run_with_input(&program, "credentials set web", "static-owner").code, 0);
    Gateway::serve(program)
}

/// Finds the login link in a text.
fn link_in(text: &str) -> String {
    let start = text.find("http://127.0.0.1").unwrap_or_else(|| panic!("no link: {text}"));
    text[start..].split([' ', '"']).next().expect("a link").to_owned()
}

/// Follows a login link as a person. Returns the last page.
fn follow(link: &str, person: &str) -> (u16, String) {
    follow_login(link, person, "web")
}

fn follow_login(link: &str, person: &str, server: &str) -> (u16, String) {
    let page = browse(link, None);
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.body.contains("<button>") && page.body.contains(server), "{}", page.body);
    let started = browse_with("POST", link, "");
    assert_eq!(started.status, 303, "{}", started.body);
    let cookie =
        started.header("set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
    let login = format!("{}&user={person}", started.header("location").expect("a redirect"));
    let back = browse(&login, None).header("location").expect("a redirect").to_owned();
    // Another browser cannot finish it.
    let stolen = browse(&back, None);
    assert_eq!(stolen.status, 400, "{}", stolen.body);
    let done = browse_with("GET", &back, &cookie);
    // Nor can the same one, twice.
    assert_eq!(browse_with("GET", &back, &cookie).status, 404);
    (done.status, done.body)
}

const ANN: &str = "key-of-ann-0123456789";
const BOB: &str = "key-of-bob-0123456789";

/// The REST error contains a link to the login.
#[test]
fn rest_callers_get_a_link() {
    let server = AuthorizationServer::start();
    let gateway = login_gateway(&server);
    let refused = gateway.call(ANN, "web__whoami", &json!({}));
    assert_eq!(refused.code(), "unauthorized", "{refused:?}");
    let link = link_in(&refused.body);
    assert!(refused.body.contains("toolgate servers login web --as ann"), "{}", refused.body);
    let (status, page) = follow(&link, "ann");
    assert_eq!(status, 200, "{page}");
    assert!(page.contains("<b>ann</b>"), "{page}");
    gateway.wait("the login counts", |gateway| whoami(gateway, ANN, "web") == "authorization_code ann");
    // Bob gets a link of his own, and nothing of Ann's.
    let refused = gateway.call(BOB, "web__whoami", &json!({}));
    assert_eq!(refused.code(), "unauthorized", "{refused:?}");
    assert_ne!(link_in(&refused.body), link);
    assert_eq!(browse(&link, None).status, 404, "a link is used once");
    // A link that was guessed leads nowhere.
    let guessed = format!("{}x", link_in(&refused.body));
    assert_eq!(browse(&guessed, None).status, 404);
    // After the tokens were revoked, the login is offered again.
    server.expire_tokens(true);
    let refused = gateway.call(ANN, "web__whoami", &json!({}));
    assert!(refused.body.contains("has expired or was revoked"), "{}", refused.body);
    assert_eq!(follow(&link_in(&refused.body), "ann").0, 200);
    gateway.wait("the login counts", |gateway| whoami(gateway, ANN, "web") == "authorization_code ann");
}

/// A browser sends headers that the other tests leave out, such as `Origin` with the form.
#[test]
#[ignore = "needs the browser that `cargo xtask test` installs"]
fn a_person_logs_in_with_a_browser() {
    let server = AuthorizationServer::start();
    let gateway = login_gateway(&server);
    let link = link_in(&gateway.call(ANN, "web__whoami", &json!({})).body);
    let browser = Browser::start();
    let mut tab = browser.tab();
    tab.open(&link);
    tab.follow("button");
    tab.wait("document.querySelector('h1')?.textContent === 'Logged in'");
    gateway.wait("the login counts", |gateway| whoami(gateway, ANN, "web").starts_with("authorization_code"));
}

/// A client with URL elicitation is asked to open the page, in both eras, and the call goes on after the login.
#[test]
fn clients_are_asked_to_open_the_login() {
    let server = AuthorizationServer::start();
    let gateway = login_gateway(&server);
    let session = McpSession::begin(&gateway, ANN, "2025-11-25", &json!({ "elicitation": { "url": {} } }));
    let mut stream = session.stream(&call_message(1, "web__whoami", &json!({})));
    let question = stream.message();
    assert_eq!(
        (&question["method"], &question["params"]["mode"]),
        (&json!("elicitation/create"), &json!("url"))
    );
    let link = question["params"]["url"].as_str().expect("a link").to_owned();
    assert_eq!(follow(&link, "ann").0, 200);
    let accepted = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    assert_eq!(session.post(&accepted).status, 202);
    let end = std::iter::from_fn(|| stream.next()).find(|message| message.get("result").is_some());
    let end = end.expect("a result");
    assert_eq!(end["result"]["content"][0]["text"], "authorization_code ann", "{end}");

    let call = |more: &Json| {
        let mut call = call_message(1, "web__whoami", &json!({}));
        call["params"]["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "url": {} } } });
        for (name, value) in more.as_object().expect("members") {
            call["params"][name] = value.clone();
        }
        let headers = [
            &format!("X-API-Key: {BOB}"),
            ACCEPT,
            "Content-Type: application/json",
            "MCP-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/call",
            "Mcp-Name: web__whoami",
        ];
        gateway.request("POST /mcp", &headers, &call.to_string()).json()
    };
    let pending = call(&json!({}));
    assert_eq!(pending["result"]["resultType"], "input_required", "{pending}");
    let requests = pending["result"]["inputRequests"].as_object().expect("requests");
    let (name, request) = requests.iter().next().expect("one request");
    assert_eq!(follow(request["params"]["url"].as_str().expect("a link"), "bob").0, 200);
    let state = &pending["result"]["requestState"];
    let end =
        call(&json!({ "requestState": state, "inputResponses": { name.as_str(): { "action": "accept" } } }));
    assert_eq!(end["result"]["content"][0]["text"], "authorization_code bob", "{end}");
    // A client that declines gets the error with the link.
    server.expire_tokens(true);
    let mut stream = session.stream(&call_message(2, "web__whoami", &json!({})));
    let question = stream.message();
    let declined = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } });
    assert_eq!(session.post(&declined).status, 202);
    let end = stream.message();
    assert!(end.to_string().contains("/login/"), "{end}");
}

/// A token that is not for the server is not forwarded, and one that registers a server cannot take tokens.
#[test]
fn tokens_go_to_their_audience_only() {
    let server = AuthorizationServer::start();
    let signer = Signer::new("k", jsonwebtoken::Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let jwt = json!([{ "issuer": issuer.url, "audience": [AUDIENCE, server.mcp("web")],
        "scopes": { "all": ["web:*", "servers:write"] } }]);
    let servers = json!([entry("web", json!({ "url": server.mcp("web"), "forward": true }))]);
    let config = json!({ "toolbox": { "mcps": servers }, "serve": { "jwt": jwt }, "registries": { "mcp": "mcp.json" } });
    let program = Program::new(&[("mcp.json", r#"{"servers":{}}"#)]);
    let program = program.with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER);
    program.write("toolgate.yaml", config.to_string());
    assert_eq!(run_with_input(&program, "credentials set web", "static-owner").code, 0);
    let gateway = Gateway::serve(program);
    let claims = |aud: Json| json!({ "iss": issuer.url, "aud": aud, "sub": "ann", "scope": "all", "exp": now(300), "nbf": now(-5) });
    let for_both = signer.sign(&claims(json!([AUDIENCE, server.mcp("web")])));
    assert_eq!(whoami(&gateway, &for_both, "web"), "forwarded ann");
    // Another caller, with a token for the gateway alone.
    let mut alone = claims(json!(AUDIENCE));
    alone["sub"] = json!("bob");
    let alone = signer.sign(&alone);
    let refused = gateway.call(&alone, "web__whoami", &json!({}));
    assert!(refused.body.contains("is not for this server, so it is not sent"), "{}", refused.body);
    assert!(server.seen().iter().all(|(_, header, _)| !header.contains(&alone)));
    for entry in [
        json!({ "forward": true, "auth": "caller" }),
        json!({ "auth": "caller", "oauth": { "grant": "token_exchange", "issuer": "https://evil.example.com" } }),
        json!({ "oauth": { "subject_token_file": "/etc/passwd" } }),
    ] {
        let mut entry = entry;
        entry["name"] = "evil".into();
        entry["url"] = "https://example.com/mcp".into();
        let refused = gateway.post("/v1/servers", &for_both, &entry);
        assert_eq!(refused.status, 422, "{entry}: {refused:?}");
        assert!(refused.body.contains("cannot be set over HTTP"), "{}", refused.body);
    }
}

/// Sends a request; returns the answer to it.
fn answer(session: &McpSession<'_>, message: &Json) -> Json {
    let mut stream = session.stream(message);
    let answer = std::iter::from_fn(|| stream.next()).find(|answer| answer["id"] == message["id"]);
    answer.expect("an answer")
}

/// A caller sees the tools and resources that its own login lists, and without one the tool that logs it in.
#[test]
fn lists_are_those_of_the_caller() {
    let server = AuthorizationServer::start();
    let callers = json!([
        { "id": "ann", "permissions": ["scoped:*"], "api_key": ANN },
        { "id": "bob", "permissions": ["scoped:*"], "api_key": BOB },
        { "id": "eve", "permissions": ["other:*"], "api_key": "key-of-eve-0123456789" }]);
    let servers = json!([entry("scoped", json!({ "url": server.mcp("scoped") }))]);
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER);
    program.write("toolgate.yaml", json!({ "callers": callers, "toolbox": { "mcps": servers } }).to_string());
    assert_eq!(run_with_input(&program, "credentials set scoped", "static-owner").code, 0);
    assert_eq!(run_with_input(&program, "credentials set scoped --as bob", "static-bob").code, 0);
    let gateway = Gateway::serve(program);
    let names = |list: &Json, member: &str| -> Vec<String> {
        let items = list.as_array().expect("a list").iter();
        items.filter_map(|item| item[member].as_str()).map(str::to_owned).collect()
    };
    let tools = |key: &str| {
        let session = McpSession::begin(&gateway, key, "2025-11-25", &json!({}));
        let listed = answer(&session, &request_message(2, "tools/list", &json!({})));
        let rest = names(&gateway.get("/v1/tools", key).json()["tools"], "name");
        (names(&listed["result"]["tools"], "name"), rest)
    };
    let resources = |key: &str| names(&gateway.get("/v1/resources", key).json()["resources"], "uri");
    let of = |persons: &[&str]| {
        let own = persons.iter().map(|person| format!("of_{person}"));
        std::iter::once("whoami".to_owned()).chain(own).collect::<Vec<_>>()
    };
    let all = of(&["owner", "ann", "bob"]);
    assert_eq!(tools(OWNER), (all.clone(), all), "the catalog");
    assert_eq!(tools(BOB), (of(&["bob"]), of(&["bob"])));
    assert_eq!(resources(BOB), ["doc://bob"]);
    // The description of a tool of others is not shown by its name either.
    assert_eq!(gateway.get("/v1/tools/of_owner", BOB).status, 404);
    assert_eq!(gateway.get("/v1/tools/of_bob", BOB).status, 200);
    // Without a login there is only that.
    let log_in = "scoped__log_in".to_owned();
    assert_eq!(tools(ANN), (vec![log_in.clone()], Vec::new()));
    assert_eq!(resources(ANN), [""; 0]);
    assert_eq!(tools("key-of-eve-0123456789"), (Vec::new(), Vec::new()));
    let session = McpSession::begin(&gateway, ANN, "2025-11-25", &json!({}));
    assert_eq!(
        names(&answer(&session, &request_message(2, "tools/list", &json!({})))["result"]["tools"], "name"),
        [log_in.as_str()]
    );
    let mut changes = session.listen(None);
    let offered = answer(&session, &call_message(3, &log_in, &json!({})));
    assert_eq!(offered["result"]["isError"], true, "{offered}");
    assert_eq!(follow_login(&link_in(&offered.to_string()), "ann", "scoped").0, 200);
    let change = std::iter::from_fn(|| changes.next())
        .find(|message| message["method"] == "notifications/tools/list_changed");
    assert!(change.is_some(), "the client lists the tools again");
    gateway.wait("the login counts", |_| tools(ANN) == (of(&["ann"]), of(&["ann"])));
    assert_eq!(resources(ANN), ["doc://ann"]);
    let done = answer(&session, &call_message(4, &log_in, &json!({})));
    assert!(done.to_string().contains("You are logged in"), "{done}");
    // Callers that may not use the server do not learn that it is there.
    let eve = gateway.call("key-of-eve-0123456789", &log_in, &json!({}));
    assert_eq!(eve.status, 404, "{eve:?}");
}
