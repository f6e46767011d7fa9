//! JWTs: authentication, permissions and the metadata for clients.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::PublicKeyData as _;
use serde_json::{Value as Json, json};

use crate::support::gateway::{Gateway, HttpResponse, OWNER, project, wait_until};
use crate::support::issuer::{AUDIENCE, Issuer, Signer, now};
use crate::support::mcp_client::{ACCEPT, McpSession, call_message};
use crate::support::test_server::TestServer;

/// Returns a config with an issuer and more keys.
fn issuer_config(issuer: &Issuer, more: &Json) -> Json {
    let mut entry = json!({ "issuer": issuer.url, "audience": [AUDIENCE], "caller_prefix": "id:",
        "scopes": { "echo": ["s:echo"], "all": ["s:*"] } });
    let entry_map = entry.as_object_mut().expect("a map");
    entry_map.extend(more.as_object().expect("a map").clone());
    json!({ "jwt": [entry] })
}

fn call(gateway: &Gateway, token: &str) -> HttpResponse {
    gateway.call(token, "echo", &json!({ "message": "x" }))
}

fn status(gateway: &Gateway, token: &str) -> u16 {
    call(gateway, token).status
}

#[test]
fn permissions_follow_the_claims() {
    let signers = [Algorithm::ES256, Algorithm::RS256, Algorithm::EdDSA]
        .map(|algorithm| Signer::new(&format!("{algorithm:?}"), algorithm));
    let issuer = Issuer::start(&signers.iter().collect::<Vec<_>>());
    let callers = json!([{ "id": "id:bob", "permissions": ["s:fail"] }]);
    let gateway = Gateway::start(&json!({ "serve": issuer_config(&issuer, &json!({})), "callers": callers }));
    for signer in &signers {
        assert_eq!(status(&gateway, &signer.sign(&issuer.claims("ann", "echo other"))), 200, "{}", signer.id);
    }
    let signer = &signers[0];
    let token = |sub: &str, scope: &str| signer.sign(&issuer.claims(sub, scope));
    assert_eq!(gateway.executions("caller=id:ann").len(), 3, "the record names the caller");
    assert_eq!(status(&gateway, &token("auth0|7", "echo")), 200);
    assert_eq!(gateway.executions("caller=id:auth0/7C7").len(), 1);
    // Scopes without a mapping grant nothing.
    assert_eq!(
        call(&gateway, &token("ann", "s:* *:*")).status_and_code(),
        (404, "tool_not_found".to_owned())
    );
    let lacking = gateway.call(&token("ann", "echo"), "fail", &json!({}));
    assert_eq!(lacking.status, 403);
    let challenge = lacking.header("www-authenticate").expect("a challenge");
    assert!(
        challenge.starts_with(r#"bearer error="insufficient_scope", resource_metadata="http://"#),
        "{challenge}"
    );
    assert!(challenge.ends_with(r#"scope="all""#), "{challenge}");
    // A caller in the config has the permissions configured there.
    assert_eq!(status(&gateway, &token("bob", "all")), 403);
    assert_eq!(gateway.call(&token("bob", ""), "fail", &json!({})).status, 200);
    let mut lists = issuer.claims("ann", "");
    lists["aud"] = json!(["https://other.test", AUDIENCE]);
    lists["scope"] = json!(["echo"]);
    assert_eq!(status(&gateway, &signer.sign(&lists)), 200);
    assert_eq!(issuer.request_count(), 2, "metadata and keys are fetched once");
    let as_key = format!("X-API-Key: {}", token("ann", "echo"));
    assert_eq!(gateway.request("GET /v1/tools", &[&as_key], "").status, 401, "a token is a bearer's");
}

/// An MCP client gets the missing scope in a challenge; if no scope would help, the model gets the error in a result.
#[test]
fn a_missing_scope_is_named() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let callers = json!([{ "id": "id:bob", "permissions": ["s:echo"] },
        { "id": "key", "permissions": ["s:echo"], "api_key": "a-key-of-a-caller" }]);
    let scopes = json!({ "scopes": { "echo": ["s:echo"], "fails": ["s:fail"] } });
    let gateway = Gateway::start(&json!({ "serve": issuer_config(&issuer, &scopes), "callers": callers }));
    let token = |sub: &str, scope: &str| signer.sign(&issuer.claims(sub, scope));
    let modern = |token: &str, tool: &str| {
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {} });
        let mut call = call_message(1, tool, &json!({}));
        call["params"]["_meta"] = meta;
        let headers = [
            &format!("Authorization: Bearer {token}"),
            ACCEPT,
            "Content-Type: application/json",
            "MCP-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/call",
            &format!("Mcp-Name: {tool}"),
        ];
        gateway.request("POST /mcp", &headers, &call.to_string())
    };
    let session = |token: &str, tool: &str| {
        McpSession::begin(&gateway, token, "2025-11-25", &json!({})).post(&call_message(1, tool, &json!({})))
    };
    let ann = token("ann", "echo");
    for answer in [modern(&ann, "fail"), session(&ann, "fail")] {
        assert_eq!(answer.status_and_code(), (403, "unauthorized".to_owned()), "{answer:?}");
        let challenge = answer.header("www-authenticate").expect("a challenge");
        let metadata_path = "/.well-known/oauth-protected-resource/mcp";
        assert!(
            challenge.starts_with(r#"bearer error="insufficient_scope", resource_metadata="#),
            "{challenge}"
        );
        assert!(challenge.ends_with(&format!(r#"{metadata_path}", scope="fails""#)), "{challenge}");
    }
    for (what, token, tool) in [
        ("no scope gives it", ann.as_str(), "picture"),
        ("the configuration says what it may", &token("bob", "echo"), "fail"),
        ("a key has no scopes", "a-key-of-a-caller", "fail"),
    ] {
        for answer in [modern(token, tool), session(token, tool)] {
            assert_eq!(answer.status, 200, "{what}: {answer:?}");
            assert_eq!(answer.json()["result"]["isError"], true, "{what}: {answer:?}");
        }
    }
    assert_eq!(gateway.executions("status=denied").len() + gateway.executions("status=error").len(), 8);
    assert!(gateway.seen().is_empty());
    assert_eq!(modern(&token("ann", "echo fails"), "fail").status, 200);
    assert_eq!(gateway.seen().len(), 1);
    // Other calls of a batch were made: a challenge would make the client repeat them.
    let batch =
        json!([call_message(1, "echo", &json!({ "message": "x" })), call_message(2, "fail", &json!({}))]);
    let answer = McpSession::begin(&gateway, &ann, "2025-03-26", &json!({})).post(&batch);
    assert_eq!((answer.status, answer.json().as_array().map(Vec::len)), (200, Some(2)), "{answer:?}");
}

/// A `sub` must not become the id of another caller.
#[test]
fn a_token_cannot_authenticate_as_the_owner() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let open = json!({ "caller_prefix": "" });
    let callers = json!([{ "id": "anonymous", "permissions": ["s:*"] }]);
    let gateway = Gateway::start(&json!({ "serve": issuer_config(&issuer, &open), "callers": callers }));
    for who in ["owner", "anonymous"] {
        assert_eq!(status(&gateway, &signer.sign(&issuer.claims(who, "all"))), 401, "{who}");
    }
    assert_eq!(status(&gateway, &signer.sign(&issuer.claims("ann", "all"))), 200);
    assert_eq!(gateway.executions("caller=ann").len(), 1);
}

#[test]
fn rejects_invalid_tokens() {
    let signer = Signer::new("one", Algorithm::ES256);
    let rsa = Signer::new("rsa", Algorithm::RS256);
    let outsider = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer, &rsa]);
    let elsewhere = Issuer::start(&[&outsider]);
    let mut serve = issuer_config(&issuer, &json!({ "algorithms": ["ES256", "RS256"] }));
    serve["jwt"][0]["jwks_uri"] = json!(format!("{}/keys", issuer.url));
    let gateway = Gateway::start(&json!({ "serve": serve }));
    let good = issuer.claims("ann", "all");
    assert_eq!(status(&gateway, &signer.sign(&good)), 200);
    let with = |key: &str, value: Json| {
        let mut claims = good.clone();
        claims[key] = value;
        signer.sign(&claims)
    };
    let without = |key: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().expect("a map").remove(key);
        signer.sign(&claims)
    };
    let headed = |change: &dyn Fn(&mut Header)| {
        let mut head = signer.head();
        change(&mut head);
        outsider.sign_as(&head, &good)
    };
    let part = |json: Json| URL_SAFE_NO_PAD.encode(json.to_string());
    let secret = |secret: &[u8]| {
        let mut head = Header::new(Algorithm::HS256);
        head.kid = Some("rsa".to_owned());
        encode(&head, &good, &EncodingKey::from_secret(secret)).expect("it is signed")
    };
    let signed = signer.sign(&good);
    let (text, signature) = signed.rsplit_once('.').expect("a signature");
    let keys = format!("{}/keys", elsewhere.url);
    let refused = [
        ("expired", with("exp", json!(now(-31)))),
        ("no exp", without("exp")),
        ("exp is a text", with("exp", json!("never"))),
        ("not yet", with("nbf", json!(now(60)))),
        ("another audience", with("aud", json!("https://other.test"))),
        ("no audience", without("aud")),
        ("an empty audience", with("aud", json!([]))),
        ("another issuer", with("iss", json!(elsewhere.url))),
        ("two issuers", with("iss", json!([issuer.url, elsewhere.url]))),
        ("no issuer", without("iss")),
        ("no subject", without("sub")),
        ("another key of the same name", outsider.sign(&good)),
        ("a key by its address", headed(&|head| head.jku = Some(keys.clone()))),
        ("a certificate by its address", headed(&|head| head.x5u = Some(keys.clone()))),
        (
            "a key that it brings along",
            headed(&|head| head.jwk = serde_json::from_value(outsider.jwk()).ok()),
        ),
        ("a key by its path", headed(&|head| head.kid = Some("../../etc/passwd".to_owned()))),
        ("a key by a question", headed(&|head| head.kid = Some("' or 1=1 --".to_owned()))),
        ("a key that is not there", headed(&|head| head.kid = Some("two".to_owned()))),
        ("another kind", headed(&|head| head.typ = Some("logout+jwt".to_owned()))),
        ("nested", {
            let mut head = signer.head();
            head.cty = Some("JWT".to_owned());
            signer.sign_as(&head, &json!(good))
        }),
        ("no signature", format!("{}.{}.", part(json!({ "alg": "none" })), part(good.clone()))),
        ("no signature, differently", format!("{}.{}.", part(json!({ "alg": "nOnE" })), part(good.clone()))),
        ("the signature taken off", format!("{text}.")),
        (
            "the signature of another",
            format!("{text}.{}", outsider.sign(&good).rsplit('.').next().expect("one")),
        ),
        ("encrypted", format!("{text}.{signature}.x.y")),
        ("the key as a secret, in PEM", secret(rsa.pair.public_key_pem().as_bytes())),
        ("the key as a secret, in DER", secret(&rsa.pair.subject_public_key_info())),
        ("the key as a secret, as shown", secret(rsa.jwk()["n"].as_str().expect("a number").as_bytes())),
        (
            "critical",
            format!(
                "{}.{}.{signature}",
                part(json!({ "alg": "ES256", "crit": ["x"], "x": 1 })),
                part(good.clone())
            ),
        ),
        (
            "said twice",
            format!(
                "{}.{}.{signature}",
                URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","alg":"RS256"}"#),
                part(good.clone())
            ),
        ),
        ("ten kilobytes", with("padding", json!("x".repeat(10 << 10)))),
    ];
    let fetched = issuer.request_count();
    for (what, token) in &refused {
        let answer = call(&gateway, token);
        assert_eq!(answer.status_and_code(), (401, "unauthenticated".to_owned()), "{what}");
        let challenge = answer.header("www-authenticate").expect("a challenge");
        assert!(challenge.contains(r#"error="invalid_token""#), "{what}: {challenge}");
        assert!(challenge.contains("resource_metadata="), "{what}: {challenge}");
    }
    assert_eq!(gateway.seen().len(), 1, "only the good one reached the server");
    assert_eq!(elsewhere.request_count(), 0, "the issuer in a token is never contacted");
    assert!(
        issuer.request_count() <= fetched + 2,
        "invalid tokens cause no further requests: {}",
        issuer.request_count()
    );
    assert_eq!(status(&gateway, &signer.sign(&good)), 200, "a valid token still works");
}

/// Every key that configures how tokens are validated.
#[test]
fn validation_follows_the_config() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let more = json!({ "leeway": "1s", "caller_claim": "email", "caller_prefix": "mail:", "scope_claim": "scp",
        "algorithms": ["ES256"] });
    let gateway = Gateway::start(&json!({ "serve": issuer_config(&issuer, &more) }));
    let mut claims = issuer.claims("ann", "");
    claims["email"] = json!("ann@example.com");
    claims["scp"] = json!("echo");
    assert_eq!(status(&gateway, &signer.sign(&claims)), 200);
    assert_eq!(gateway.executions("caller=mail:ann@example.com").len(), 1);
    claims["exp"] = json!(now(-3));
    assert_eq!(status(&gateway, &signer.sign(&claims)), 401, "the leeway is small");
    let strict =
        Gateway::start(&json!({ "serve": issuer_config(&issuer, &json!({ "algorithms": ["RS256"] })) }));
    assert_eq!(
        status(&strict, &signer.sign(&issuer.claims("ann", "echo"))),
        401,
        "the algorithm is not allowed"
    );
    let default =
        Gateway::start(&json!({ "serve": { "jwt": [{ "issuer": issuer.url, "audience": [AUDIENCE] }] },
        "callers": [{ "id": "127.0.0.1:ann", "permissions": ["s:*"] }] }));
    assert_eq!(
        status(&default, &signer.sign(&issuer.claims("ann", ""))),
        200,
        "the issuer's host comes first"
    );
    let mut late = issuer.claims("ann", "");
    late["exp"] = json!(now(-10));
    assert_eq!(status(&default, &signer.sign(&late)), 200, "clocks differ");
}

/// New keys are fetched, cached keys stay valid while the issuer is down, and foreign metadata is ignored.
#[test]
fn keys_are_rotated() {
    let (old, new) = (Signer::new("old", Algorithm::ES256), Signer::new("new", Algorithm::ES256));
    let issuer = Issuer::start(&[&old]);
    issuer.answer_with(Some("gone"));
    let gateway = Gateway::start(&json!({ "serve": issuer_config(&issuer, &json!({})) }));
    let claims = issuer.claims("ann", "echo");
    let away = call(&gateway, &old.sign(&claims));
    assert_eq!(away.status_and_code(), (503, "service_unavailable".to_owned()));
    assert!(away.header("retry-after").is_some());
    issuer.answer_with(None);
    wait_until("its keys", || status(&gateway, &old.sign(&claims)) == 200);
    issuer.show(&[&new]);
    wait_until("its new key", || status(&gateway, &new.sign(&claims)) == 200);
    assert_eq!(status(&gateway, &old.sign(&claims)), 401, "the key was removed");
    issuer.answer_with(Some("gone again"));
    assert_eq!((status(&gateway, &new.sign(&claims)), status(&gateway, &old.sign(&claims))), (200, 401));
}

#[test]
fn keys_in_a_file() {
    let (old, new) = (Signer::new("old", Algorithm::ES256), Signer::new("new", Algorithm::EdDSA));
    let issuer = Issuer::start(&[]);
    let program = project(&json!({ "serve": issuer_config(&issuer, &json!({ "jwks_file": "keys.json" })) }));
    let claims = issuer.claims("ann", "echo");
    program.write("keys.json", r#"{"keys": []}"#);
    let run = program.run("serve --listen 127.0.0.1:0");
    assert_eq!(run.code, 78, "{run}");
    assert!(run.stderr.contains("the JWK set has no usable key"), "{run}");
    // A world-readable secret is rejected.
    let secret = json!({ "kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "HS256" });
    program.write("keys.json", json!({ "keys": [old.jwk(), secret] }).to_string());
    let gateway = Gateway::serve(program);
    assert_eq!(status(&gateway, &old.sign(&claims)), 200);
    let mut head = Header::new(Algorithm::HS256);
    head.kid = Some("secret".to_owned());
    let forged = encode(&head, &claims, &EncodingKey::from_secret(b"secret")).expect("it is signed");
    assert_eq!(status(&gateway, &forged), 401);
    gateway.program.write("keys.json", json!({ "keys": [new.jwk()] }).to_string());
    wait_until("the new file", || status(&gateway, &new.sign(&claims)) == 200);
    assert_eq!(status(&gateway, &old.sign(&claims)), 401);
    assert_eq!(issuer.request_count(), 0);
}

/// Metadata and challenges tell clients where to get a token.
#[test]
fn protected_resource_metadata() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let gateway = Gateway::start(&json!({ "serve": issuer_config(&issuer, &json!({})) }));
    let get = |path: &str| gateway.request(&format!("GET {path}"), &["Host: localhost:7"], "");
    let metadata_path = "/.well-known/oauth-protected-resource";
    let document = get(metadata_path).json();
    assert_eq!(document["resource"], "http://localhost:7");
    assert_eq!(document["authorization_servers"], json!([issuer.url]));
    assert_eq!(document["scopes_supported"], json!(["all", "echo"]));
    assert_eq!(document["bearer_methods_supported"], json!(["header"]));
    assert_eq!(get(&format!("{metadata_path}/mcp")).json()["resource"], "http://localhost:7/mcp");
    assert_eq!(get(&format!("{metadata_path}/other")).status, 404);
    // Unauthenticated requests cannot tell if a profile exists.
    assert_eq!(get(&format!("{metadata_path}/mcp/desk")).json()["resource"], "http://localhost:7/mcp/desk");
    let challenge = |path: &str| {
        let answer = gateway.request(
            &format!("POST {path}"),
            &["Host: localhost:7", "Content-Type: application/json"],
            "{}",
        );
        assert_eq!(answer.status, 401, "{path}");
        answer.header("www-authenticate").expect("a challenge").to_owned()
    };
    let expected = |metadata_path: &str| {
        format!(
            r#"bearer realm="toolgate", resource_metadata="http://localhost:7/.well-known/oauth-protected-resource{metadata_path}", scope="all echo""#
        )
    };
    assert_eq!((challenge("/mcp"), challenge("/v1/tools")), (expected("/mcp"), expected("")));
    assert_eq!(challenge("/mcp/desk"), expected("/mcp/desk"));
    let mut serve = issuer_config(&issuer, &json!({}));
    serve["url"] = json!("https://tools.example.com/");
    let named = Gateway::start(&json!({ "serve": serve }));
    assert_eq!(
        named.get(&format!("{metadata_path}/mcp"), "").json()["resource"],
        "https://tools.example.com/mcp"
    );
    // Without issuers there is no metadata.
    let keys = Gateway::start(&json!({}));
    assert_eq!(keys.get(metadata_path, OWNER).status, 404);
}

/// Credentials of callers are never forwarded to servers.
#[test]
fn no_token_is_forwarded() {
    let signer = Signer::new("one", Algorithm::ES256);
    let issuer = Issuer::start(&[&signer]);
    let token = signer.sign(&issuer.claims("ann", "web"));
    for (kind, path) in [("http", "mcp"), ("sse", "sse"), ("websocket", "ws")] {
        let kit = TestServer::start("good");
        let scheme = if kind == "websocket" { "ws" } else { "http" };
        let mcps = json!([{ "name": "web", "transport": kind, "url": kit.url(scheme, path), "mode": "dynamic",
            "headers": { "X-Upstream-Key": "the-key-for-upstream" },
            "default_tool_config": { "max_instances": 2, "timeout": "30s" } }]);
        let mut serve = issuer_config(&issuer, &json!({}));
        serve["jwt"][0]["scopes"] = json!({ "web": ["web:*"] });
        let gateway = Gateway::start(&json!({ "mcps": mcps, "serve": serve }));
        let bearer = format!("Authorization: Bearer {token}");
        let headers = [bearer.as_str(), "Cookie: session=the-cookie", "Content-Type: application/json"];
        let response =
            gateway.request("POST /v1/tools/echo/call", &headers, r#"{"arguments":{"message":"x"}}"#);
        assert_eq!(response.status, 200, "{kind}: {response:?}");
        let keyed = gateway.call(OWNER, "echo", &json!({ "message": "x" }));
        assert_eq!(keyed.status, 200, "{kind}: {keyed:?}");
        let seen = json!(kit.seen()).to_string();
        assert!(seen.contains("the-key-for-upstream"), "{kind}: {seen}");
        for secret in [token.as_str(), "the-cookie", OWNER] {
            assert!(!seen.contains(secret), "{kind}: {seen}");
        }
    }
}
