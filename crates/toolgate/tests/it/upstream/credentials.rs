//! Credentials for servers: every grant, the encrypted store and its key, refreshes, revocation, and a server that lies.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};

use crate::support::authorization_server::{AuthorizationServer, Lie};
use crate::support::gateway::{Gateway, OWNER};
use crate::support::program::{Program, RunOutput};
use crate::support::test_server::project;

/// Adds a browser in which a person is logged in at the authorization server.
pub(super) fn with_browser(program: Program, person: &str) -> Program {
    program.write("browser", format!("#!/bin/sh\ncurl -sL -o /dev/null \"$1&user={person}\"\n"));
    let mode = std::fs::Permissions::from_mode(0o755);
    fs_err::set_permissions(program.path("browser"), mode).expect("it exists");
    let browser = program.path("browser").display().to_string();
    program.with("BROWSER", &browser)
}

/// An unsigned token that names a person.
fn token_of(person: &str) -> String {
    let payload = URL_SAFE_NO_PAD.encode(json!({ "sub": person }).to_string());
    format!("e30.{payload}.x")
}

fn whoami(program: &Program) -> String {
    let run = program.run("tools call web__whoami --json");
    assert_eq!(run.code, 0, "{run}");
    run.stdout
}

/// Runs a command with a line on stdin.
pub(super) fn run_with_input(program: &Program, arguments: &str, input: &str) -> RunOutput {
    let mut command = program.command(&arguments.split_whitespace().collect::<Vec<_>>());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    RunOutput {
        code: output.status.code().expect("no signal ended it"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
        took: Duration::ZERO,
    }
}

/// The token of each grant reaches the server, bound to a key.
#[test]
fn every_grant_gets_its_token() {
    let server = AuthorizationServer::start();
    server.demand_nonce();
    let (url, issuer) = (server.mcp("web"), server.origin.clone());
    let exchange = |grant: &str, more: Json| {
        let mut oauth = json!({
            "grant": grant, "issuer": issuer, "client_id": "us", "subject_token_file": "token.jwt", "dpop": "required" });
        oauth.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        oauth
    };
    let provider =
        json!({ "identity_provider": { "issuer": issuer, "client_id": "us", "client_secret": "s" } });
    for (oauth, expected) in [
        (exchange("token_exchange", json!({ "audience": "web" })), "token-exchange ann"),
        (exchange("identity_assertion", provider), "jwt-bearer ann"),
        (exchange("workload_identity", json!({})), "jwt-bearer ann"),
        (
            json!({ "grant": "client_credentials", "issuer": issuer, "client_id": "us", "client_secret": "s" }),
            "client_credentials the-client",
        ),
    ] {
        let program = project(json!({ "web": { "url": url, "oauth": oauth } }));
        program.write("token.jwt", token_of("ann"));
        let shown = whoami(&program);
        assert!(shown.contains(expected), "{oauth}: {shown}");
    }
    let program = with_browser(project(json!({ "web": { "url": url } })), "bob");
    let run = program.run("servers login web");
    assert_eq!(run.code, 0, "{run}");
    let shown = whoami(&program);
    assert!(shown.contains("authorization_code bob"), "{shown}");
    // Requests with a token carry the scheme of bound tokens.
    let seen = server.seen();
    assert!(seen.iter().all(|(_, header, _)| header.is_empty() || header.starts_with("DPoP ")), "{seen:?}");
}

/// Nothing is stored, and no token is sent, if the authorization server lies.
#[test]
fn lies_are_found() {
    for (lie, message) in [
        (Lie::WrongIssuer, "is for `https://other.example.com`, not for"),
        (Lie::WrongResource, "none of"),
        (Lie::WrongResponseIssuer, "the response comes from issuer `https://other.example.com`"),
        (Lie::ReplayedCode, "issued no token"),
        (Lie::Gone, "issued no token"),
    ] {
        let server = AuthorizationServer::start();
        server.lie(lie);
        let program = with_browser(project(json!({ "web": { "url": server.mcp("web") } })), "ann");
        let run = program.run("servers login web");
        assert_eq!(run.code, 1, "{lie:?}: {run}");
        assert!(lie == Lie::WrongResource || run.stderr.contains(message), "{lie:?}: {run}");
        assert!(!program.path(".toolgate/credentials/ring.json").exists(), "{lie:?}: nothing is stored");
        assert!(server.seen().iter().all(|(_, header, _)| header.is_empty()), "{lie:?}: {:?}", server.seen());
    }
    // A token for another audience is rejected by the server, and that is reported, not retried without end.
    let server = AuthorizationServer::start();
    server.lie(Lie::WrongAudience);
    let program = with_browser(project(json!({ "web": { "url": server.mcp("web") } })), "ann");
    assert_eq!(program.run("servers login web").code, 0);
    let run = program.run("tools call web__whoami");
    assert_ne!(run.code, 0, "{run}");
    assert!(server.grants().len() <= 8, "{:?}", server.grants());
}

/// A hundred calls with an expired token cause one refresh. A refresh token works once, so a second one would fail.
#[test]
fn calls_share_one_refresh() {
    let server = AuthorizationServer::start();
    let entry = json!({ "name": "web", "url": server.mcp("web"), "oauth": { "dpop": "off" }, "mode": "dynamic",
        "default_tool_config": { "max_instances": 128, "timeout": "50s" } });
    let program = Program::new(&[]).with("TOOLGATE_LOG", "off").with("TOOLGATE_API_KEY", OWNER);
    program
        .write("toolgate.yaml", json!({ "toolbox": { "max_concurrent": 256, "mcps": [entry] } }).to_string());
    let program = with_browser(program, "ann");
    assert_eq!(program.run("servers login web").code, 0);
    let gateway = Gateway::serve(program);
    assert_eq!(gateway.call(OWNER, "web__whoami", &json!({})).status, 200);
    server.expire_tokens(false);
    server.delay(Duration::from_millis(300));
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let calls: Vec<_> =
            (0..100).map(|_| scope.spawn(|| gateway.call(OWNER, "web__whoami", &json!({})).status)).collect();
        calls.into_iter().map(|call| call.join().expect("it ends")).collect()
    });
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    let refreshes = server.grants().iter().filter(|grant| *grant == "refresh_token").count();
    assert_eq!(refreshes, 1, "{:?}", server.grants());
}

#[test]
fn logins_end() {
    let server = AuthorizationServer::start();
    let program = with_browser(
        project(json!({ "web": { "url": server.mcp("web"), "oauth": { "dpop": "off" } } })),
        "ann",
    );
    let login = || assert_eq!(program.run("servers login web").code, 0);
    // Tokens that are about to expire are refreshed before they are used.
    server.set_lifetime(Duration::from_secs(0));
    login();
    server.set_lifetime(Duration::from_secs(3600));
    assert!(whoami(&program).contains("refresh_token ann"));
    // Revoked at the server: reported, with the command that renews it.
    server.expire_tokens(true);
    let run =
        program.command(&["tools", "call", "web__whoami"]).env_remove("BROWSER").output().expect("it runs");
    let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(stderr.contains("the login to the server has expired or was revoked"), "{stderr}");
    assert!(stderr.contains("run `toolgate servers login web`"), "{stderr}");
    // Logout revokes both tokens and deletes them.
    login();
    let run = program.run("servers logout web --json");
    assert_eq!(run.json()["revoked"], true, "{run}");
    assert_eq!(server.revoked().len(), 2, "{:?}", server.revoked());
    assert_eq!(program.run("credentials list --json").json()["credentials"], json!([]));
    let run = program.run("servers logout web --json");
    assert_eq!(
        (run.json()["forgotten"].clone(), run.json()["revoked"].clone()),
        (json!(false), json!(false))
    );
}

/// With a wrong key nothing starts and nothing is lost; a new key replaces the old one.
#[test]
fn the_store_needs_its_key() {
    let server = AuthorizationServer::start();
    let program =
        project(json!({ "web": { "url": server.mcp("web"), "credential": { "header": "X-Api-Key" } } }));
    let secret = "s3cr3t-of-the-owner";
    let run = run_with_input(&program, "credentials set web", &format!("{secret}\n"));
    assert_eq!(
        (run.code, run.stdout.contains(secret), run.stderr.contains(secret)),
        (0, false, false),
        "{run}"
    );
    assert!(whoami(&program).contains(&format!("key {secret}")));
    let list = program.run("credentials list --json");
    assert_eq!(list.json()["credentials"][0]["kind"], "static", "{list}");
    assert!(!list.stdout.contains(secret), "{list}");
    let stored: Vec<_> = program
        .files()
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains("credentials/"))
        .collect();
    assert!(
        !stored.is_empty() && stored.iter().all(|(_, text)| !String::from_utf8_lossy(text).contains(secret))
    );
    let write_key = |key: &str| {
        program.write("toolgate.yaml", format!("registries: {{ mcp: mcp.json }}\ncredentials: {key}\n"));
    };
    write_key(r#"{ key: "${STORE_KEY}" }"#);
    let wrong = [("STORE_KEY", "0".repeat(64))];
    for arguments in ["tools list", "serve --listen 127.0.0.1:0", "credentials list", "credentials rekey"] {
        let words: Vec<_> = arguments.split(' ').collect();
        let run = program.command(&words).envs(wrong.clone()).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(
            run.status.code(),
            Some(if arguments.starts_with("tools") { 1 } else { 78 }),
            "{arguments}: {stderr}"
        );
        assert!(stderr.contains("the key does not open the credential store"), "{arguments}: {stderr}");
    }
    fs_err::remove_file(program.path("toolgate.yaml")).expect("it exists");
    let after: Vec<_> = program
        .files()
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains("credentials/"))
        .collect();
    assert_eq!(after, stored);
    assert!(whoami(&program).contains(&format!("key {secret}")));
    // A key of the operator: from a file, then from a program.
    let run = program.run("credentials rekey --json");
    assert_eq!(run.json()["credentials"], 1, "{run}");
    program.write("new.key", format!("{}\n", "ab".repeat(32)));
    assert_eq!(program.run("credentials rekey --new-key-file new.key").code, 0);
    assert_eq!(program.run("credentials list").code, 78, "the old key opens nothing");
    write_key("{ key_file: new.key }");
    assert!(whoami(&program).contains(&format!("key {secret}")));
    write_key("{ key_command: [cat, new.key] }");
    assert!(whoami(&program).contains(&format!("key {secret}")));
    write_key("{ key_command: ['false'] }");
    let run = program.run("credentials list");
    assert!(
        run.code == 78 && run.stderr.contains("`false` of `credentials.key_command` gave no key"),
        "{run}"
    );
    write_key("{ key_file: new.key }");
    assert_eq!(program.run("credentials remove web --json").json()["removed"], true);
    assert_ne!(program.run("tools call web__whoami").code, 0);
}

/// Tokens of earlier versions are moved to the store: they are used once more, and no plain text is left.
#[test]
fn earlier_logins_are_moved() {
    let server = AuthorizationServer::start();
    let program = with_browser(
        project(json!({ "web": { "url": server.mcp("web"), "oauth": { "dpop": "off" } } })),
        "ann",
    );
    assert_eq!(program.run("servers login web").code, 0);
    assert_eq!(program.run("credentials remove web --json").json()["removed"], true);
    // The record as an earlier version wrote it, with the tokens of a login.
    let refresh = server.refresh_token_of("ann", "web");
    let url = server.mcp("web");
    let tokens = json!({ "access_token": "gone", "refresh_token": refresh, "scopes": [] });
    let client = json!({ "id": "us", "redirect_uri": "http://127.0.0.1:1/callback", "registered": true });
    let record = json!({
        "server": url, "issuer": server.origin,
        "grants": { server.origin.clone(): { "client": client, "tokens": tokens } } });
    let hash = url.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let old = format!("~/.local/state/toolgate/tokens/127.0.0.1-{hash:016x}.json");
    program.write(&old, record.to_string());
    assert!(whoami(&program).contains("refresh_token ann"));
    assert!(!program.path(&old).exists(), "no plain text is left");
    assert!(whoami(&program).contains("refresh_token ann"));
    assert_eq!(program.run("credentials list --json").json()["credentials"][0]["kind"], "oauth");
}
