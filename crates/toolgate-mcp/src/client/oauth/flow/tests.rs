//! Requests to one authorization server, and how its responses are taken.

use std::error::Error as _;

use toolgate_types::ConfigString;

use super::super::discovery::ServerMetadata;
use super::super::testing::{DocumentResponse, TestServer};
use super::*;

const TOKEN: &str = r#"{"access_token":"a","token_type":"Bearer","expires_in":60}"#;

/// Starts a server with this metadata; `ORIGIN` stands for its origin.
async fn start(metadata: &str, responses: &[DocumentResponse<'_>]) -> (TestServer, LoginFlow) {
    let server = TestServer::start(responses).await;
    let metadata = metadata.replace("ORIGIN", &server.origin);
    let metadata: ServerMetadata = serde_json::from_str(&metadata).unwrap();
    let url = server.url("/mcp");
    let addresses = AddressPolicy::of_server(&url, None);
    let fetcher = Fetcher::new(&url, &UpstreamTls::default(), &addresses).await.unwrap();
    let discovered = DiscoveredServer {
        metadata,
        is_published: true,
        resource: server.url("/mcp").into(),
        scopes: vec!["r".to_owned()],
    };
    let issuer = server.origin.clone();
    let flow = LoginFlow {
        fetcher,
        discovered,
        issuer,
        is_pinned: false,
        origin: url.origin(),
        dpop_key: None,
        dpop_mode: DpopMode::Auto,
    };
    (server, flow)
}

fn client(secret: Option<&str>) -> OAuthClient {
    OAuthClient {
        id: "us".to_owned(),
        secret: secret.map(str::to_owned),
        redirect_uri: "http://127.0.0.1:1/callback".to_owned(),
        registered: false,
    }
}

/// The error and its causes.
fn describe(error: &LoginError) -> String {
    let causes = std::iter::successors(error.source(), |error| (*error).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[tokio::test]
async fn client_credentials_are_sent_as_the_server_supports_them() {
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let given = |text: &str| Some(ConfigString::hidden(text));
    let secret = OauthConfig { client_id: given("us"), client_secret: given("s"), ..OauthConfig::default() };
    let key = OauthConfig { client_id: given("us"), private_key: given(&key), ..OauthConfig::default() };
    let check = async |options: &OauthConfig, methods: &str, expected: &str| {
        let metadata = format!(r#"{{"issuer":"ORIGIN","token_endpoint":"ORIGIN/token"{methods}}}"#);
        let (server, flow) = start(&metadata, &[("/token", 200, "", TOKEN)]).await;
        let found = match flow.client_credentials(options, vec!["r".to_owned()]).await {
            Ok((client, tokens)) => {
                assert_eq!((client.secret, tokens.access_token.as_str()), (None, "a"));
                let body = server.last_body();
                let pairs = url::form_urlencoded::parse(body.as_bytes());
                let names: Vec<_> = pairs.map(|(name, _)| name.into_owned()).collect();
                names.join(" ")
            }
            Err(error) => describe(&error),
        };
        assert_eq!(found, expected, "{methods}");
    };
    let in_body = "grant_type scope client_id client_secret resource";
    check(&secret, "", in_body).await;
    let methods = |names: &str| format!(r#","token_endpoint_auth_methods_supported":[{names}]"#);
    check(&secret, &methods(r#""client_secret_basic","client_secret_post""#), in_body).await;
    check(&secret, &methods(r#""client_secret_basic""#), "grant_type scope resource").await;
    let asserted = "grant_type scope client_id resource client_assertion_type client_assertion";
    check(&key, "", asserted).await;
    check(&key, &methods(r#""private_key_jwt""#), asserted).await;
    check(
        &key,
        &methods(r#""none""#),
        "the authorization server issued no token: the authorization server does not support private_key_jwt; \
         it supports none",
    )
    .await;
    let nothing = OauthConfig { client_id: given("us"), ..OauthConfig::default() };
    check(&nothing, "", "`grant: client_credentials` needs `client_id` and `client_secret`").await;
}

#[tokio::test]
async fn refresh_keeps_the_refresh_token_or_asks_for_a_login() {
    let metadata =
        r#"{"issuer":"ORIGIN","token_endpoint":"ORIGIN/token","scopes_supported":["offline_access"]}"#;
    let old = TokenSet {
        access_token: "old".to_owned(),
        refresh_token: Some("r1".to_owned()),
        expires_at: None,
        lifetime: None,
        scopes: vec!["r".to_owned()],
        dpop: false,
    };
    let refresh = async |status, body: &str| {
        let (server, flow) = start(metadata, &[("/token", status, "", body)]).await;
        let refreshed = flow.refresh(&client(None), &old).await;
        (server, refreshed)
    };
    let (server, refreshed) = refresh(200, TOKEN).await;
    let refreshed = refreshed.unwrap().unwrap();
    assert_eq!(refreshed.refresh_token.as_deref(), Some("r1"));
    assert_eq!(refreshed.scopes, ["r", OFFLINE_SCOPE]);
    assert!(server.last_body().contains("refresh_token=r1&scope=r+offline_access&client_id=us&resource="));
    assert!(refresh(400, r#"{"error":"invalid_grant"}"#).await.1.unwrap().is_none());
    for (status, body, expected) in [
        (400, r#"{"error":"invalid_client"}"#, "Server returned error response: invalid_client"),
        (502, "<html>", "Request failed: `ORIGIN/token` responded with 502 Bad Gateway"),
        (
            200,
            r#"{"access_token":"a","access_token":"b"}"#,
            "Request failed: the response of `ORIGIN/token` is invalid: duplicate key `access_token`",
        ),
    ] {
        let (server, refreshed) = refresh(status, body).await;
        let found = describe(&refreshed.err().unwrap()).replace(&server.origin, "ORIGIN");
        assert_eq!(found, format!("the authorization server issued no token: {expected}"));
    }
}

#[tokio::test]
async fn authorization_request_is_checked() {
    let check = async |metadata: &str, expected: Option<&str>| {
        let methods = if metadata.contains("code_challenge") {
            ""
        } else {
            r#""code_challenge_methods_supported":["S256"],"#
        };
        let metadata = format!(r#"{{"token_endpoint":"ORIGIN/token",{methods}{metadata}}}"#);
        let (_server, flow) = start(&metadata, &[]).await;
        let request = flow.authorization_request(&client(None), vec!["a".to_owned(), "b".to_owned()]);
        let error = request.as_ref().err().map(describe);
        assert_eq!(
            error,
            expected.map(|expected| format!("OAuth discovery failed: {expected}")),
            "{metadata}"
        );
        request.ok()
    };
    let request = check(r#""authorization_endpoint":"ORIGIN/authorize?x=y""#, None).await.unwrap();
    let url = Url::parse(request.url.as_str()).unwrap();
    let names: Vec<_> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
    let expected =
        "x response_type client_id state code_challenge code_challenge_method redirect_uri scope resource";
    assert_eq!(names.join(" "), expected);
    assert!(request.state.len() > 16);
    let endpoint = r#""authorization_endpoint":"https://login.example.com""#;
    check(endpoint, None).await;
    check(r#""issuer":"x""#, Some("the authorization server has no authorization endpoint")).await;
    for (url, reason) in [
        ("file:///bin/sh", "the scheme `file`"),
        ("vscode://x", "the scheme `vscode`"),
        ("http://example.com/", "plain http"),
    ] {
        let refused = format!(
            "a URL with {reason} is not opened in a browser; only `https` is, and `http` on this machine"
        );
        check(&format!(r#""authorization_endpoint":"{url}""#), Some(&refused)).await;
    }
    let methods = format!(r#"{endpoint},"code_challenge_methods_supported":["plain"]"#);
    check(&methods, Some("the authorization server does not support PKCE with S256")).await;
    let types = format!(r#"{endpoint},"response_types_supported":["token"]"#);
    check(&types, Some("the authorization server does not support authorization codes")).await;
}

#[tokio::test]
async fn issuer_of_the_response_is_checked() {
    let check = async |metadata: &str, received: Option<&str>, expected: bool| {
        let metadata = format!(r#"{{"token_endpoint":"ORIGIN/token"{metadata}}}"#);
        let (_server, flow) = start(&metadata, &[]).await;
        assert_eq!(flow.check_response_issuer(received).is_ok(), expected, "{metadata} {received:?}");
    };
    let known = r#","issuer":"https://a""#;
    let required = r#","issuer":"https://a","authorization_response_iss_parameter_supported":true"#;
    check(known, None, true).await;
    check(known, Some("https://a"), true).await;
    check(known, Some("https://a/"), false).await;
    check(required, None, false).await;
    check(required, Some("https://a"), true).await;
    check("", None, true).await;
    check("", Some("https://a"), false).await;
}

#[tokio::test]
async fn scopes_are_combined() {
    let metadata = r#"{"token_endpoint":"ORIGIN/token","scopes_supported":["offline_access"]}"#;
    let (_server, flow) = start(metadata, &[]).await;
    let check = |configured: &[&str], granted: &[&str], expected: &[&str]| {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let scopes = flow.scopes(&owned(configured), &owned(granted), Some(r#"Bearer scope="w""#));
        assert_eq!(scopes, expected);
    };
    check(&[], &[], &["r", OFFLINE_SCOPE]);
    check(&[], &["g", "r"], &["g", "r", OFFLINE_SCOPE]);
    check(&["c"], &["g"], &["g", "c", "w", OFFLINE_SCOPE]);
}
