//! Logins against a local authorization server, and token storage.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::token_file::{OAuthClient, now};
use super::*;

/// MCP server and authorization server in one; records requests to its token endpoint.
struct TestIssuer {
    url: Url,
    token_requests: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl TestIssuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let url = Url::parse(&format!("{origin}/mcp")).unwrap();
        let token_requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut tasks) = (Arc::clone(&token_requests), JoinSet::new());
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !is_whole(&request) && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {}
                let request = String::from_utf8(request).unwrap();
                let (status, body) = answer(&request, &origin);
                if request.starts_with("POST /token") {
                    seen.lock().push(request.split("\r\n\r\n").nth(1).unwrap().to_owned());
                }
                let (body, kind) = (body.to_string(), "content-type: application/json");
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} \r\n{kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
        });
        Self { url, token_requests, _tasks: tasks }
    }

    fn tokens(&self, folder: &std::path::Path, browser_login: Option<BrowserLogin>) -> TokenSource {
        let logins = LoginOptions { folder: Some(folder.to_owned()), browser: browser_login };
        TokenSource::new("s", self.url.clone(), OauthConfig::default(), UpstreamTls::default(), &logins)
    }

    fn token_requests(&self) -> Vec<String> {
        self.token_requests.lock().clone()
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().unwrap())
}

fn answer(request: &str, origin: &str) -> (u16, Value) {
    match request.split(' ').nth(1).unwrap() {
        "/.well-known/oauth-protected-resource/mcp" => (
            200,
            json!({ "resource": format!("{origin}/mcp"), "authorization_servers": [origin], "scopes_supported": ["read"] }),
        ),
        "/.well-known/oauth-authorization-server" => (
            200,
            json!({
                "issuer": origin,
                "authorization_endpoint": format!("{origin}/authorize"),
                "token_endpoint": format!("{origin}/token"),
                "registration_endpoint": format!("{origin}/register"),
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
            }),
        ),
        "/register" => (201, json!({ "client_id": "us", "redirect_uris": [] })),
        "/token" => (
            200,
            json!({ "access_token": "new", "token_type": "Bearer", "expires_in": 3600, "refresh_token": "again" }),
        ),
        _ => (404, json!({})),
    }
}

/// Follows the redirect as a browser would, with the given state or that of the login.
fn follow_redirect(login: &str, state: Option<&str>) -> String {
    let login = Url::parse(login).unwrap();
    let member = |name: &str| login.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
    let state = state.map_or_else(|| member("state"), str::to_owned);
    let back = Url::parse(&member("redirect_uri")).unwrap();
    get(&back, &format!("/callback?code=c&state={state}"))
}

fn get(back: &Url, target: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", back.port().unwrap())).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.lines().next().unwrap_or_default().to_owned()
}

fn browser_login(follow_redirect: impl Fn(String) + Send + Sync + Clone + 'static) -> Option<BrowserLogin> {
    let open = move |page: LoginPage| -> futures_util::future::BoxFuture<'static, ()> {
        assert_eq!(page.other_host, None, "the server is its own authorization server");
        let (follow_redirect, url) = (follow_redirect.clone(), page.url.to_string());
        std::thread::spawn(move || follow_redirect(url));
        Box::pin(std::future::ready(()))
    };
    Some(BrowserLogin { open: Arc::new(open), timeout: Duration::from_secs(10) })
}

fn record(server: &Url, issuer: &str, access_token: &str, expires_at: Option<u64>) -> TokenRecord {
    let client = OAuthClient {
        id: "us".into(),
        secret: None,
        redirect_uri: "http://127.0.0.1:1/callback".into(),
        registered: true,
    };
    let tokens = TokenSet {
        access_token: access_token.into(),
        refresh_token: Some("r1".into()),
        expires_at,
        scopes: vec!["read".into()],
    };
    let mut record = TokenRecord::new(server);
    record.issuer = issuer.to_owned();
    record.grants.insert(issuer.to_owned(), IssuerGrant { client, tokens: Some(tokens) });
    record
}

async fn header(tokens: &TokenSource) -> Option<String> {
    tokens.authorization().await.0.map(|header| header.to_str().unwrap().to_owned())
}

fn login_demand(tokens: &TokenSource) -> LoginDemand {
    let generation = tokens.state().generation;
    tokens.demand(401, Some("Bearer".to_owned()), generation).unwrap()
}

#[tokio::test]
async fn login_stores_a_token() {
    let (issuer, folder) = (TestIssuer::start().await, tempfile::tempdir().unwrap());
    let refused = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&refused);
    let tokens = issuer.tokens(
        folder.path(),
        browser_login(move |url| {
            // Another process on this machine tries first.
            *seen.lock() = follow_redirect(&url, Some("guessed"));
            assert_eq!(follow_redirect(&url, None), "HTTP/1.1 200 OK");
        }),
    );
    assert_eq!(header(&tokens).await, None);
    tokens.login(Some(&login_demand(&tokens))).await.unwrap();
    assert_eq!(*refused.lock(), "HTTP/1.1 400 Bad Request");
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer new"));
    let sent = issuer.token_requests().concat();
    assert!(
        sent.contains("code=c&") && sent.contains("code_verifier=") && sent.contains("resource="),
        "{sent}"
    );
    let other_process = issuer.tokens(folder.path(), None);
    assert_eq!(header(&other_process).await.as_deref(), Some("Bearer new"));
    assert!(other_process.remove_tokens().unwrap());
    assert_eq!(header(&issuer.tokens(folder.path(), None)).await, None);
}

#[tokio::test]
async fn rejection_by_the_user_ends_the_login() {
    let (issuer, folder) = (TestIssuer::start().await, tempfile::tempdir().unwrap());
    let tokens = issuer.tokens(
        folder.path(),
        browser_login(|url| {
            let url = Url::parse(&url).unwrap();
            let member = |name: &str| url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
            let back = Url::parse(&member("redirect_uri")).unwrap();
            get(&back, &format!("/callback?error=access_denied&state={}", member("state")));
        }),
    );
    let error = tokens.login(None).await.unwrap_err();
    assert_eq!(error.to_string(), "the login was rejected: access_denied");
    assert!(!tokens.has_token());
}

#[tokio::test]
async fn login_needs_a_user() {
    let (issuer, folder) = (TestIssuer::start().await, tempfile::tempdir().unwrap());
    let tokens = issuer.tokens(folder.path(), None);
    assert!(matches!(tokens.login(None).await, Err(LoginError::NoUser)));
    let error = tokens.renew(&login_demand(&tokens)).await.unwrap_err();
    assert_eq!(error.to_string(), "the server requires a login: run `toolgate servers login s`");
}

#[tokio::test]
async fn rejected_token_is_refreshed_without_a_user() {
    let (issuer, folder) = (TestIssuer::start().await, tempfile::tempdir().unwrap());
    let origin = issuer.url.origin().ascii_serialization();
    let tokens = issuer.tokens(folder.path(), None);
    tokens.file.write(&record(&issuer.url, &origin, "old", None)).unwrap();
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer old"));
    let demand = login_demand(&tokens);
    tokens.renew(&demand).await.unwrap();
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer new"));
    // A second request that was rejected with the old token uses the new one.
    tokens.renew(&demand).await.unwrap();
    let sent = issuer.token_requests();
    assert!(sent.len() == 1 && sent[0].contains("refresh_token=r1"), "{sent:?}");
}

#[tokio::test]
async fn expiring_token_is_refreshed_before_use() {
    let (issuer, folder) = (TestIssuer::start().await, tempfile::tempdir().unwrap());
    let origin = issuer.url.origin().ascii_serialization();
    let tokens = issuer.tokens(folder.path(), None);
    tokens.file.write(&record(&issuer.url, &origin, "old", Some(now() + 5))).unwrap();
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer new"));
}

#[tokio::test]
async fn refresh_token_is_not_sent_to_another_issuer() {
    let (issuer, folder) = (TestIssuer::start().await, tempfile::tempdir().unwrap());
    let tokens = issuer.tokens(folder.path(), None);
    tokens.file.write(&record(&issuer.url, "https://before.example", "old", None)).unwrap();
    assert!(matches!(tokens.renew(&login_demand(&tokens)).await, Err(LinkError::LoginRequired(_))));
    assert_eq!(issuer.token_requests(), Vec::<String>::new());
}

#[tokio::test]
async fn concurrent_processes_refresh_once() {
    let (issuer, folder) = (TestIssuer::start().await, tempfile::tempdir().unwrap());
    let origin = issuer.url.origin().ascii_serialization();
    let [one, other] = [issuer.tokens(folder.path(), None), issuer.tokens(folder.path(), None)];
    one.file.write(&record(&issuer.url, &origin, "old", None)).unwrap();
    let (first, second) = (login_demand(&one), login_demand(&other));
    let (first, second) = tokio::join!(one.renew(&first), other.renew(&second));
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(header(&other).await, header(&one).await);
    assert_eq!(issuer.token_requests().len(), 1);
}

#[tokio::test]
async fn token_of_another_process_is_used() {
    let (issuer, folder) = (TestIssuer::start().await, tempfile::tempdir().unwrap());
    let tokens = issuer.tokens(folder.path(), None);
    let demand = login_demand(&tokens);
    tokens.file.write(&record(&issuer.url, "https://issuer.example", "theirs", None)).unwrap();
    tokens.renew(&demand).await.unwrap();
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer theirs"));
}

#[tokio::test(start_paused = true)]
async fn unfinished_login_times_out() {
    let callback = CallbackListener::bind(0).await.unwrap();
    assert_eq!(callback.wait("state", Duration::from_secs(300)).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn repeated_logins_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let logins = LoginOptions { folder: Some(folder.path().to_owned()), browser: None };
    let url = Url::parse("https://example.com/mcp").unwrap();
    let tokens = TokenSource::new("s", url, OauthConfig::default(), UpstreamTls::default(), &logins);
    let ask = |scope: &str| tokens.check_login_loop(scope.to_owned()).is_ok();
    assert_eq!([ask("a"), ask("a"), ask("a"), ask("b")], [true, true, false, true]);
    tokio::time::advance(SAME_LOGIN_WINDOW).await;
    assert!(ask("a"));
}

#[test]
fn login_demands_by_status_and_challenge() {
    let url = Url::parse("https://example.com/mcp").unwrap();
    let tokens =
        TokenSource::new("s", url, OauthConfig::default(), UpstreamTls::default(), &LoginOptions::default());
    let check = |status, challenge: &str, expected: Option<bool>| {
        let challenge = Some(challenge.to_owned()).filter(|challenge| !challenge.is_empty());
        let demand = tokens.demand(status, challenge, 0);
        assert_eq!(demand.map(|demand| demand.more_scope), expected, "{status}");
    };
    check(401, "", Some(false));
    check(401, r#"Bearer error="invalid_token""#, Some(false));
    check(403, r#"Bearer error="insufficient_scope", scope="write""#, Some(true));
    check(403, "", None);
    check(403, r#"Bearer error="access_denied""#, None);
    check(200, "", None);
}

#[cfg(unix)]
#[test]
fn token_file_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("toolgate/tokens");
    let url = Url::parse("https://ann@example.com/mcp").unwrap();
    TokenFile::new(Some(&tokens), &url).write(&record(&url, "i", "t", None)).unwrap();
    let mode = |path: &std::path::Path| fs_err::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&tokens), 0o700);
    let files: Vec<_> = fs_err::read_dir(&tokens).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "no temporary files are left: {files:?}");
    assert_eq!(mode(&files[0]), 0o600);
}

#[test]
fn token_file_is_replaced_atomically() {
    let folder = tempfile::tempdir().unwrap();
    let url = Url::parse("https://example.com/mcp").unwrap();
    let file = TokenFile::new(Some(folder.path()), &url);
    file.write(&record(&url, "i", "t", None)).unwrap();
    let (writer, of) = (file.clone(), url.clone());
    let writing = std::thread::spawn(move || {
        for length in 0..200 {
            writer.write(&record(&of, "i", &"t".repeat(length * 100), None)).unwrap();
        }
    });
    while !writing.is_finished() {
        assert!(file.read(&url).unwrap().is_some());
    }
    writing.join().unwrap();
}

#[test]
fn token_files_are_separate_per_server() {
    let folder = tempfile::tempdir().unwrap();
    let [here, there] =
        ["https://example.com/a", "https://example.com/b"].map(|url| Url::parse(url).unwrap());
    TokenFile::new(Some(folder.path()), &here).write(&record(&here, "i", "t", None)).unwrap();
    assert!(TokenFile::new(Some(folder.path()), &there).read(&there).unwrap().is_none());
    // A file copied to the name of another server is not accepted.
    assert!(TokenFile::new(Some(folder.path()), &here).read(&there).unwrap().is_none());
}
