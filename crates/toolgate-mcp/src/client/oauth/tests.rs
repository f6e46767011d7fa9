//! Logins against a local authorization server, and token storage.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::token_record::now;
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

    fn tokens(&self, storage: &Arc<TestStorage>, browser_login: Option<BrowserLogin>) -> TokenSource {
        let storage: Arc<dyn TokenStorage> = Arc::clone(storage) as _;
        let logins =
            LoginOptions { storage: Some(storage), browser: browser_login, ..LoginOptions::default() };
        TokenSource::new("s", self.url.clone(), OauthConfig::default(), UpstreamTls::default(), &logins)
    }

    fn token_requests(&self) -> Vec<String> {
        self.token_requests.lock().clone()
    }
}

/// Storage that several processes share.
#[derive(Default)]
struct TestStorage {
    record: Mutex<Option<Secret>>,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl TestStorage {
    fn write(&self, record: &TokenRecord) {
        *self.record.lock() = Some(record.to_secret());
    }
}

impl TokenStorage for TestStorage {
    fn load(&self) -> BoxFuture<'_, Result<Option<Secret>, StorageError>> {
        Box::pin(std::future::ready(Ok(self.record.lock().clone())))
    }

    fn save(&self, record: Secret, _: Option<u64>) -> BoxFuture<'_, Result<(), StorageError>> {
        *self.record.lock() = Some(record);
        Box::pin(std::future::ready(Ok(())))
    }

    fn remove(&self) -> BoxFuture<'_, Result<bool, StorageError>> {
        Box::pin(std::future::ready(Ok(self.record.lock().take().is_some())))
    }

    fn lock(&self) -> BoxFuture<'_, Option<Box<dyn std::any::Any + Send>>> {
        let lock = Arc::clone(&self.lock);
        Box::pin(async move { Some(Box::new(lock.lock_owned().await) as _) })
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
        lifetime: None,
        scopes: vec!["read".into()],
        dpop: false,
    };
    let mut record = TokenRecord::new(server);
    record.issuer = issuer.to_owned();
    record.grants.insert(issuer.to_owned(), IssuerGrant { client, tokens: Some(tokens) });
    record
}

async fn header(tokens: &TokenSource) -> Option<String> {
    let authorization = tokens.authorize("POST", &tokens.server).await.unwrap();
    authorization.token.map(|header| header.to_str().unwrap().to_owned())
}

fn login_demand(tokens: &TokenSource) -> LoginDemand {
    let generation = tokens.state.lock().generation;
    tokens.demand(401, Some("Bearer".to_owned()), generation).unwrap()
}

#[tokio::test]
async fn login_stores_a_token() {
    let (issuer, storage) = (TestIssuer::start().await, Arc::<TestStorage>::default());
    let refused = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&refused);
    let tokens = issuer.tokens(
        &storage,
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
    let other_process = issuer.tokens(&storage, None);
    assert_eq!(header(&other_process).await.as_deref(), Some("Bearer new"));
    let out = other_process.logout().await.unwrap();
    assert_eq!(out, LogoutOutcome { removed: true, revoked: false });
    assert_eq!(header(&issuer.tokens(&storage, None)).await, None);
}

#[tokio::test]
async fn rejection_by_the_user_ends_the_login() {
    let (issuer, storage) = (TestIssuer::start().await, Arc::<TestStorage>::default());
    let tokens = issuer.tokens(
        &storage,
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
    let (issuer, storage) = (TestIssuer::start().await, Arc::<TestStorage>::default());
    let tokens = issuer.tokens(&storage, None);
    assert!(matches!(tokens.login(None).await, Err(LoginError::NoUser)));
    let error = tokens.renew(&login_demand(&tokens)).await.unwrap_err();
    assert_eq!(error.to_string(), "the server requires a login: run `toolgate servers login s`");
}

#[tokio::test]
async fn rejected_token_is_refreshed_without_a_user() {
    let (issuer, storage) = (TestIssuer::start().await, Arc::<TestStorage>::default());
    let origin = issuer.url.origin().ascii_serialization();
    let tokens = issuer.tokens(&storage, None);
    storage.write(&record(&issuer.url, &origin, "old", None));
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
    let (issuer, storage) = (TestIssuer::start().await, Arc::<TestStorage>::default());
    let origin = issuer.url.origin().ascii_serialization();
    let tokens = issuer.tokens(&storage, None);
    storage.write(&record(&issuer.url, &origin, "old", Some(now() + 5)));
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer new"));
}

#[tokio::test]
async fn refresh_token_is_not_sent_to_another_issuer() {
    let (issuer, storage) = (TestIssuer::start().await, Arc::<TestStorage>::default());
    let tokens = issuer.tokens(&storage, None);
    storage.write(&record(&issuer.url, "https://before.example", "old", None));
    assert!(matches!(tokens.renew(&login_demand(&tokens)).await, Err(LinkError::LoginRequired(_))));
    assert_eq!(issuer.token_requests(), Vec::<String>::new());
}

#[tokio::test]
async fn concurrent_processes_refresh_once() {
    let (issuer, storage) = (TestIssuer::start().await, Arc::<TestStorage>::default());
    let origin = issuer.url.origin().ascii_serialization();
    let [one, other] = [issuer.tokens(&storage, None), issuer.tokens(&storage, None)];
    storage.write(&record(&issuer.url, &origin, "old", None));
    let (first, second) = (login_demand(&one), login_demand(&other));
    let (first, second) = tokio::join!(one.renew(&first), other.renew(&second));
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(header(&other).await, header(&one).await);
    assert_eq!(issuer.token_requests().len(), 1);
}

#[tokio::test]
async fn token_of_another_process_is_used() {
    let (issuer, storage) = (TestIssuer::start().await, Arc::<TestStorage>::default());
    let tokens = issuer.tokens(&storage, None);
    assert_eq!(header(&tokens).await, None);
    let demand = login_demand(&tokens);
    storage.write(&record(&issuer.url, "https://issuer.example", "theirs", None));
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
    let logins = LoginOptions::default();
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

/// A record that was copied to the place of another server is not accepted.
#[tokio::test]
async fn records_are_of_one_server() {
    let (issuer, storage) = (TestIssuer::start().await, Arc::<TestStorage>::default());
    let elsewhere = Url::parse("https://example.com/mcp").unwrap();
    storage.write(&record(&elsewhere, "https://issuer.example", "theirs", None));
    assert_eq!(header(&issuer.tokens(&storage, None)).await, None);
}

#[tokio::test]
async fn expired_logins_are_reported_as_such() {
    let (issuer, storage) = (TestIssuer::start().await, Arc::<TestStorage>::default());
    let logins = LoginOptions {
        storage: Some(Arc::clone(&storage) as _),
        caller: Some("ann".into()),
        ..LoginOptions::default()
    };
    let options = OauthConfig::default();
    let tokens = TokenSource::new("s", issuer.url.clone(), options, UpstreamTls::default(), &logins);
    storage.write(&record(&issuer.url, "https://before.example", "old", None));
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer old"));
    let error = tokens.renew(&login_demand(&tokens)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the login to the server has expired or was revoked: run `toolgate servers login s --as ann`"
    );
}

/// A server of `auth: caller` gets no request without a token.
#[tokio::test]
async fn required_tokens_are_required() {
    let issuer = TestIssuer::start().await;
    let logins = LoginOptions { required: true, caller: Some("ann".into()), ..LoginOptions::default() };
    let options = OauthConfig::default();
    let tokens = TokenSource::new("s", issuer.url.clone(), options, UpstreamTls::default(), &logins);
    let refused = tokens.authorize("POST", &issuer.url).await.err().unwrap();
    assert_eq!(refused.to_string(), "the server requires a login: run `toolgate servers login s --as ann`");
}
