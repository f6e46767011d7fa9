//! Logins to hostile servers: nothing but a login page is opened, and secrets go to no other issuer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use serde_json::{Value as Json, json};

use crate::support::program::Program;
use crate::support::test_server::project;

/// MCP server and authorization server with documents by path. `ORIGIN` in them stands for its origin, and `OTHER` for
/// the same server under another host name.
struct LoginServer {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl LoginServer {
    fn start(issuer: &str, metadata: &Json) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let named = |text: String| {
            let text = text.replace("ORIGIN", &format!("http://127.0.0.1:{port}"));
            text.replace("OTHER", &format!("http://localhost:{port}"))
        };
        let mut whole = json!({
            "issuer": issuer, "authorization_endpoint": "ORIGIN/authorize", "token_endpoint": "ORIGIN/token",
            "registration_endpoint": "ORIGIN/register", "code_challenge_methods_supported": ["S256"] });
        for (key, value) in metadata.as_object().expect("members") {
            whole[key] = value.clone();
        }
        let resource = json!({ "resource": "ORIGIN/mcp", "authorization_servers": [issuer] });
        let documents = [
            ("/.well-known/oauth-protected-resource/mcp", named(resource.to_string())),
            ("/.well-known/oauth-authorization-server", named(whole.to_string())),
            ("/register", json!({ "client_id": "us" }).to_string()),
        ];
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        // It ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let request = read_request(&stream);
                let path = request.split(' ').nth(1).unwrap_or_default();
                let found = documents.iter().find(|(own, _)| *own == path);
                let (status, body) = found.map_or((404, "{}"), |(_, body)| (200, body.as_str()));
                seen.lock().expect("one writes").push(request.clone());
                let head =
                    format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close");
                let _ = write!(&stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            }
        });
        Self { port, requests }
    }

    /// Creates a project with the server, and a browser that writes its arguments to the file `opened`.
    fn project(&self, oauth: &Json) -> Program {
        let url = format!("http://127.0.0.1:{}/mcp", self.port);
        let program = project(json!({ "web": { "url": url, "oauth": oauth } }));
        program.write("browser", "#!/bin/sh\nprintf '%s\\n' \"$@\" >> opened\n");
        let mode = std::fs::Permissions::from_mode(0o755);
        fs_err::set_permissions(program.path("browser"), mode).expect("it exists");
        let browser = program.path("browser").display().to_string();
        program.with("BROWSER", &browser)
    }

    fn saw(&self, text: &str) -> bool {
        self.requests.lock().expect("one writes").iter().any(|request| request.contains(text))
    }
}

/// Reads the head of a request, and as much of its body as it announces.
fn read_request(stream: &TcpStream) -> String {
    let (mut reader, mut text, mut length) = (BufReader::new(stream), String::new(), 0);
    while reader.read_line(&mut text).is_ok_and(|read| read > 2) {
        let line = text.lines().last().unwrap_or_default().to_ascii_lowercase();
        length = line.strip_prefix("content-length: ").and_then(|n| n.parse().ok()).unwrap_or(length);
    }
    let mut body = vec![0; length];
    let _ = reader.read_exact(&mut body);
    text + &String::from_utf8_lossy(&body)
}

/// Runs a login that must fail; returns its messages.
fn refused(server: &LoginServer, oauth: &Json) -> String {
    let program = server.project(oauth);
    let run = program.run("servers login web");
    assert_eq!(run.code, 1, "{run}");
    assert!(!program.path("opened").exists(), "opened: {}", program.read("opened"));
    run.stderr
}

#[test]
fn only_login_pages_are_opened() {
    for endpoint in ["file:///etc/passwd", "javascript:alert(1)", "vscode://file/x", "http://example.com/"] {
        let server = LoginServer::start("ORIGIN", &json!({ "authorization_endpoint": endpoint }));
        let error = refused(&server, &json!({}));
        assert!(error.contains("is not opened in a browser"), "{endpoint}: {error}");
    }
}

/// A page on another host than the server is opened, and its host is shown.
#[test]
fn other_hosts_are_shown() {
    let server = LoginServer::start("ORIGIN", &json!({ "authorization_endpoint": "OTHER/authorize" }));
    let program = server.project(&json!({}));
    let mut child = program.command(&["servers", "login", "web"]);
    let mut child = child.stderr(std::process::Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let shown = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("its host is")));
    let _ = child.kill();
    let _ = child.wait();
    let shown = shown.expect("the host is shown").expect("UTF-8");
    assert!(shown.contains(&format!("`localhost:{}`", server.port)), "{shown}");
}

#[test]
fn pkce_is_required() {
    for (methods, message) in
        [(json!(["plain"]), "does not support PKCE with S256"), (json!(null), "does not list PKCE with S256")]
    {
        let server = LoginServer::start("ORIGIN", &json!({ "code_challenge_methods_supported": methods }));
        let error = refused(&server, &json!({}));
        assert!(error.contains(message), "{methods}: {error}");
        assert!(!server.saw("POST /register"), "a client is not registered for nothing");
    }
}

/// A server can name any issuer, and an issuer any token endpoint. The secret of a client goes to the origin of the
/// server, or to the issuer that the configuration names.
#[test]
fn secrets_go_to_the_configured_issuer() {
    const SECRET: &str = "s3cr3t-of-the-client";
    let server = LoginServer::start("OTHER", &json!({ "token_endpoint": "OTHER/token" }));
    let other = format!("http://localhost:{}", server.port);
    for grant in ["authorization_code", "client_credentials"] {
        let client = json!({ "grant": grant, "client_id": "us", "client_secret": SECRET });
        let error = refused(&server, &client);
        assert!(error.contains(&format!("`client_secret` is not sent to `{other}`")), "{error}");
        assert!(error.contains("set `oauth.issuer`"), "{error}");
        let mut pinned = client.clone();
        pinned["issuer"] = "https://login.example.com".into();
        let error = refused(&server, &pinned);
        assert!(error.contains("but `oauth.issuer` is `https://login.example.com`"), "{error}");
        assert!(!server.saw(SECRET), "the secret was sent");
    }
    let pinned = json!({
        "grant": "client_credentials", "client_id": "us", "client_secret": SECRET, "issuer": other });
    assert!(refused(&server, &pinned).contains("issued no token"));
    assert!(server.saw(SECRET), "the configured issuer gets it");

    let server = LoginServer::start("ORIGIN", &json!({ "token_endpoint": "OTHER/token" }));
    let origin = format!("http://127.0.0.1:{}", server.port);
    for grant in ["authorization_code", "client_credentials"] {
        let client = json!({ "grant": grant, "client_id": "us", "client_secret": SECRET });
        let error = refused(&server, &client);
        let endpoint = format!("http://localhost:{}/token", server.port);
        assert!(error.contains(&format!("`client_secret` is not sent to `{endpoint}`")), "{error}");
        assert!(error.contains(&format!("set `oauth.issuer` to `{origin}`")), "{error}");
        assert!(!server.saw(SECRET), "the secret was sent");
    }
    let pinned = json!({
        "grant": "client_credentials", "client_id": "us", "client_secret": SECRET, "issuer": origin });
    assert!(refused(&server, &pinned).contains("issued no token"));
    assert!(server.saw(SECRET), "the configured issuer chose the token endpoint");
}

/// No URL in metadata leads to another network than the server itself.
#[test]
fn metadata_leads_to_no_other_network() {
    let server = LoginServer::start("ORIGIN", &json!({ "token_endpoint": "https://169.254.169.254/token" }));
    let issuer = format!("http://127.0.0.1:{}", server.port);
    let client =
        json!({ "grant": "client_credentials", "client_id": "us", "client_secret": "s", "issuer": issuer });
    let error = refused(&server, &client);
    assert!(error.contains("is on a cloud metadata service, which is not allowed"), "{error}");
}
