//! Logins against an authorization server of our own, and what is kept of them.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::file::{Client, now};
use super::*;

/// An MCP server and its authorization server in one; remembers what its token endpoint was sent.
struct Issuer {
    url: Url,
    asked: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

impl Issuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let url = Url::parse(&format!("{origin}/mcp")).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut tasks) = (Arc::clone(&asked), JoinSet::new());
        tasks.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !is_whole(&request) && stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {}
                let request = String::from_utf8(request).unwrap();
                let (status, body) = answer(&request, &origin);
                if request.starts_with("POST /token") {
                    seen.lock().unwrap().push(request.split("\r\n\r\n").nth(1).unwrap().to_owned());
                }
                let (body, kind) = (body.to_string(), "content-type: application/json");
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} \r\n{kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
        });
        Self { url, asked, _tasks: tasks }
    }

    fn tokens(&self, folder: &std::path::Path, person: Option<Person>) -> TokenSource {
        let logins = Logins { folder: Some(folder.to_owned()), person };
        TokenSource::new("s", self.url.clone(), Oauth::default(), Tls::default(), &logins)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
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

/// Goes where a browser would be sent to: with this state, or with that of the login.
fn come_back(login: &str, state: Option<&str>) -> String {
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

fn person(come_back: impl Fn(String) + Send + Sync + Clone + 'static) -> Option<Person> {
    let open = move |_: &str, url: &str| {
        let (come_back, url) = (come_back.clone(), url.to_owned());
        std::thread::spawn(move || come_back(url));
    };
    Some(Person { open: Arc::new(open), patience: Duration::from_secs(10) })
}

fn kept(server: &Url, issuer: &str, access_token: &str, expires_at: Option<u64>) -> Kept {
    let client = Client {
        id: "us".into(),
        secret: None,
        redirect_uri: "http://127.0.0.1:1/callback".into(),
        registered: true,
    };
    let tokens = Tokens {
        access_token: access_token.into(),
        refresh_token: Some("r1".into()),
        expires_at,
        scopes: vec!["read".into()],
    };
    let mut kept = Kept::new(server);
    kept.issuer = issuer.to_owned();
    kept.grants.insert(issuer.to_owned(), Granted { client, tokens: Some(tokens) });
    kept
}

async fn header(tokens: &TokenSource) -> Option<String> {
    tokens.authorization().await.0.map(|header| header.to_str().unwrap().to_owned())
}

fn demanded(tokens: &TokenSource) -> Demand {
    let generation = tokens.held().generation;
    tokens.demand(401, Some("Bearer".to_owned()), generation).unwrap()
}

#[tokio::test]
async fn a_login_brings_a_token_that_is_kept() {
    let (issuer, folder) = (Issuer::start().await, tempfile::tempdir().unwrap());
    let refused = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&refused);
    let tokens = issuer.tokens(
        folder.path(),
        person(move |url| {
            // Somebody else on this machine tries first.
            *seen.lock().unwrap() = come_back(&url, Some("guessed"));
            assert_eq!(come_back(&url, None), "HTTP/1.1 200 OK");
        }),
    );
    assert_eq!(header(&tokens).await, None);
    tokens.login(Some(&demanded(&tokens))).await.unwrap();
    assert_eq!(*refused.lock().unwrap(), "HTTP/1.1 400 Bad Request");
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer new"));
    let sent = issuer.asked().concat();
    assert!(
        sent.contains("code=c&") && sent.contains("code_verifier=") && sent.contains("resource="),
        "{sent}"
    );
    let another_process = issuer.tokens(folder.path(), None);
    assert_eq!(header(&another_process).await.as_deref(), Some("Bearer new"));
    assert!(another_process.forget().unwrap());
    assert_eq!(header(&issuer.tokens(folder.path(), None)).await, None);
}

#[tokio::test]
async fn a_refusal_of_the_person_ends_the_login() {
    let (issuer, folder) = (Issuer::start().await, tempfile::tempdir().unwrap());
    let tokens = issuer.tokens(
        folder.path(),
        person(|url| {
            let url = Url::parse(&url).unwrap();
            let member = |name: &str| url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
            let back = Url::parse(&member("redirect_uri")).unwrap();
            get(&back, &format!("/callback?error=access_denied&state={}", member("state")));
        }),
    );
    let error = tokens.login(None).await.unwrap_err();
    assert_eq!(error.to_string(), "the login was refused: access_denied");
    assert!(!tokens.has_token());
}

#[tokio::test]
async fn without_a_person_there_is_no_login() {
    let (issuer, folder) = (Issuer::start().await, tempfile::tempdir().unwrap());
    let tokens = issuer.tokens(folder.path(), None);
    assert!(matches!(tokens.login(None).await, Err(LoginError::Nobody)));
    let error = tokens.renew(&demanded(&tokens)).await.unwrap_err();
    assert_eq!(error.to_string(), "the server wants a login: `toolgate servers login s`");
}

#[tokio::test]
async fn a_refused_token_is_refreshed_without_a_person() {
    let (issuer, folder) = (Issuer::start().await, tempfile::tempdir().unwrap());
    let origin = issuer.url.origin().ascii_serialization();
    let tokens = issuer.tokens(folder.path(), None);
    tokens.file.write(&kept(&issuer.url, &origin, "old", None)).unwrap();
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer old"));
    let demand = demanded(&tokens);
    tokens.renew(&demand).await.unwrap();
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer new"));
    // Who was refused with the old token as well takes the new one.
    tokens.renew(&demand).await.unwrap();
    let sent = issuer.asked();
    assert!(sent.len() == 1 && sent[0].contains("refresh_token=r1"), "{sent:?}");
}

#[tokio::test]
async fn a_token_near_its_end_is_refreshed_before_it_is_used() {
    let (issuer, folder) = (Issuer::start().await, tempfile::tempdir().unwrap());
    let origin = issuer.url.origin().ascii_serialization();
    let tokens = issuer.tokens(folder.path(), None);
    tokens.file.write(&kept(&issuer.url, &origin, "old", Some(now() + 5))).unwrap();
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer new"));
}

#[tokio::test]
async fn another_authorization_server_never_sees_a_refresh_token() {
    let (issuer, folder) = (Issuer::start().await, tempfile::tempdir().unwrap());
    let tokens = issuer.tokens(folder.path(), None);
    tokens.file.write(&kept(&issuer.url, "https://before.example", "old", None)).unwrap();
    assert!(matches!(tokens.renew(&demanded(&tokens)).await, Err(LinkError::Login(_))));
    assert_eq!(issuer.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn of_two_processes_one_refreshes() {
    let (issuer, folder) = (Issuer::start().await, tempfile::tempdir().unwrap());
    let origin = issuer.url.origin().ascii_serialization();
    let [one, other] = [issuer.tokens(folder.path(), None), issuer.tokens(folder.path(), None)];
    one.file.write(&kept(&issuer.url, &origin, "old", None)).unwrap();
    let (first, second) = (demanded(&one), demanded(&other));
    let (first, second) = tokio::join!(one.renew(&first), other.renew(&second));
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(header(&other).await, header(&one).await);
    assert_eq!(issuer.asked().len(), 1);
}

#[tokio::test]
async fn a_token_of_another_process_is_taken() {
    let (issuer, folder) = (Issuer::start().await, tempfile::tempdir().unwrap());
    let tokens = issuer.tokens(folder.path(), None);
    let demand = demanded(&tokens);
    tokens.file.write(&kept(&issuer.url, "https://issuer.example", "theirs", None)).unwrap();
    tokens.renew(&demand).await.unwrap();
    assert_eq!(header(&tokens).await.as_deref(), Some("Bearer theirs"));
}

#[tokio::test(start_paused = true)]
async fn a_login_that_nobody_finishes_ends() {
    let callback = Callback::bind(0).await.unwrap();
    assert_eq!(callback.wait("state", Duration::from_secs(300)).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_the_same_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let logins = Logins { folder: Some(folder.path().to_owned()), person: None };
    let url = Url::parse("https://example.com/mcp").unwrap();
    let tokens = TokenSource::new("s", url, Oauth::default(), Tls::default(), &logins);
    let ask = |scope: &str| tokens.not_again(scope.to_owned()).is_ok();
    assert_eq!([ask("a"), ask("a"), ask("a"), ask("b")], [true, true, false, true]);
    tokio::time::advance(SAME_WITHIN).await;
    assert!(ask("a"));
}

#[test]
fn what_counts_as_a_demand() {
    let url = Url::parse("https://example.com/mcp").unwrap();
    let tokens = TokenSource::new("s", url, Oauth::default(), Tls::default(), &Logins::default());
    let check = |status, challenge: &str, wanted: Option<bool>| {
        let challenge = Some(challenge.to_owned()).filter(|challenge| !challenge.is_empty());
        let demand = tokens.demand(status, challenge, 0);
        assert_eq!(demand.map(|demand| demand.more_scope), wanted, "{status}");
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
fn the_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("toolgate/tokens");
    let url = Url::parse("https://ann@example.com/mcp").unwrap();
    TokenFile::new(Some(&tokens), &url).write(&kept(&url, "i", "t", None)).unwrap();
    let mode = |path: &std::path::Path| fs_err::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&tokens), 0o700);
    let files: Vec<_> = fs_err::read_dir(&tokens).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "nothing is left beside it: {files:?}");
    assert_eq!(mode(&files[0]), 0o600);
}

#[test]
fn a_reader_never_sees_a_part_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = Url::parse("https://example.com/mcp").unwrap();
    let file = TokenFile::new(Some(folder.path()), &url);
    file.write(&kept(&url, "i", "t", None)).unwrap();
    let (writer, of) = (file.clone(), url.clone());
    let writing = std::thread::spawn(move || {
        for length in 0..200 {
            writer.write(&kept(&of, "i", &"t".repeat(length * 100), None)).unwrap();
        }
    });
    while !writing.is_finished() {
        assert!(file.read(&url).unwrap().is_some());
    }
    writing.join().unwrap();
}

#[test]
fn another_server_has_another_file() {
    let folder = tempfile::tempdir().unwrap();
    let [here, there] =
        ["https://example.com/a", "https://example.com/b"].map(|url| Url::parse(url).unwrap());
    TokenFile::new(Some(folder.path()), &here).write(&kept(&here, "i", "t", None)).unwrap();
    assert!(TokenFile::new(Some(folder.path()), &there).read(&there).unwrap().is_none());
    // A file that was copied to the name of another server is not taken for its own.
    assert!(TokenFile::new(Some(folder.path()), &here).read(&there).unwrap().is_none());
}
