//! URL policy, and limits of responses.

use super::super::testing::{DocumentResponse, TestServer};
use super::*;

async fn policy(server: &str) -> UrlPolicy {
    let server = Url::parse(server).unwrap();
    UrlPolicy::new(&server, &AddressPolicy::of_server(&server, None)).await
}

async fn fetcher(server: &TestServer) -> Fetcher {
    let url = server.url("/mcp");
    Fetcher::new(&url, &UpstreamTls::default(), &AddressPolicy::of_server(&url, None)).await.unwrap()
}

#[tokio::test]
async fn policy_decides_by_scheme_and_address() {
    let check = async |server: &str, url: &str, expected: &str| {
        let checked = policy(server).await.check(&Url::parse(url).unwrap());
        let found = checked.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(found, expected, "{url} for {server}");
    };
    let (public, local, private) =
        ("https://93-184-216-34.test/mcp", "http://localhost:1/mcp", "https://10.1.1.1/");
    check(public, "https://login.example.com/token?x=y", "").await;
    check(public, "https://93.184.216.34/token", "").await;
    check(public, "file:///etc/passwd", "`file:///etc/passwd` is not an http or https URL").await;
    check(
        public,
        "http://login.example.com/token?x=y",
        "`http://login.example.com/token` must be https; plain http is accepted on this machine only",
    )
    .await;
    let on = |url: &str, network: &str| {
        format!("`{url}` is on {network}, which is not allowed for the login to this server")
    };
    for (url, network) in [
        ("https://127.0.0.1/", "this machine"),
        ("http://[::1]:6379/", "this machine"),
        ("https://localhost/", "this machine"),
        ("https://a.localhost./", "this machine"),
        ("https://10.0.0.1/", "a private network"),
        ("https://[fd00::1]/", "a private network"),
        ("https://[::ffff:10.0.0.1]/", "a private network"),
        ("https://169.254.169.254/", "a cloud metadata service"),
    ] {
        let shown = Url::parse(url).unwrap().to_string();
        check(public, url, &on(&shown, network)).await;
    }
    check(local, "http://127.0.0.1:2/token", "").await;
    check(local, "http://localhost:3/token", "").await;
    check(local, "https://10.0.0.1/", &on("https://10.0.0.1/", "a private network")).await;
    check(private, "https://192.168.1.1/", "").await;
    check(private, "https://100.64.0.1/", "").await;
    check(private, "https://127.0.0.1/", &on("https://127.0.0.1/", "this machine")).await;
    let metadata = on("https://100.100.100.200/", "a cloud metadata service");
    check(private, "https://100.100.100.200/", &metadata).await;
    // The user configured this origin.
    check("http://mcp:8080/mcp", "http://mcp:8080/token", "").await;
    check("http://169.254.0.1/mcp", "http://169.254.0.1/token", "").await;
}

#[tokio::test]
async fn resolved_addresses_are_checked() {
    let resolve = async |server: &str| {
        let resolved = policy(server).await.resolve("127-0-0-1.test".parse().unwrap()).await;
        resolved.map(Iterator::count).map_err(|error| error.to_string())
    };
    assert_eq!(resolve("http://127.0.0.1/mcp").await, Ok(1));
    let refused = "its host `127-0-0-1.test` leads to this machine; that network is not allowed".to_owned();
    assert_eq!(resolve("https://93-184-216-34.test/").await, Err(refused));
}

#[tokio::test]
async fn documents_are_limited() {
    let large = format!("[\"{}\"]", "x".repeat(RESPONSE_LIMITS.size));
    let deep = format!("{}{}", "[".repeat(40), "]".repeat(40));
    let responses: &[DocumentResponse<'_>] = &[
        ("/good", 200, "", "[1]"),
        ("/missing", 404, "", "[1]"),
        ("/html", 200, "", "<html>"),
        ("/twice", 200, "", r#"{"a":1,"a":2}"#),
        ("/deep", 200, "", &deep),
        ("/large", 200, "", &large),
        ("/busy", 503, "", "[1]"),
        ("/moved", 302, "location: /good", ""),
        ("/away", 302, "location: https://example.com/x?y", ""),
        ("/loop", 307, "location: /loop", ""),
    ];
    let server = TestServer::start(responses).await;
    let fetcher = fetcher(&server).await;
    for (path, expected) in [
        ("/good", "document"),
        ("/missing", "none"),
        ("/html", "none"),
        ("/twice", "none"),
        ("/deep", "none"),
        ("/large", "the response of `ORIGIN/large` is invalid"),
        ("/busy", "`ORIGIN/busy` responded with 503 Service Unavailable"),
        ("/moved", "document"),
        (
            "/away",
            "`ORIGIN/away` redirects to `https://example.com/x`; redirects to another origin are not followed",
        ),
        ("/loop", "`ORIGIN/loop` redirects more than 5 times"),
    ] {
        let found = match fetcher.get::<serde_json::Value>(&server.url(path)).await {
            Ok(Some(_)) => "document".to_owned(),
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected.replace("ORIGIN", &server.origin), "{path}");
    }
}

#[tokio::test]
async fn errors_of_servers_are_shown_without_control_characters() {
    let body = r#"{"error":"invalid_redirect_uri","error_description":"not \u001b[31mallowed"}"#;
    let server = TestServer::start(&[("/register", 400, "", body), ("/moved", 307, "location: /", "")]).await;
    let fetcher = fetcher(&server).await;
    let post = async |path: &str| {
        let posted = fetcher.post::<serde_json::Value>(server.url(path), b"{}".to_vec()).await;
        posted.unwrap_err().to_string().replace(&server.origin, "")
    };
    let expected = "`/register` responded with 400 Bad Request: invalid_redirect_uri: not [31mallowed";
    assert_eq!(post("/register").await, expected);
    assert_eq!(post("/moved").await, "`/moved` responded with 307 Temporary Redirect");
}
