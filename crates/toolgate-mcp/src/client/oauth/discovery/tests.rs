//! Discovery against tables of documents.

use toolgate_types::server::UpstreamTls;

use super::super::testing::{DocumentResponse, TestServer};
use super::*;
use crate::network::AddressPolicy;

const RESOURCE: &str =
    r#"{"resource":"ORIGIN/mcp","authorization_servers":["ORIGIN"],"scopes_supported":["r"]}"#;
const ROOT: &str =
    r#"{"issuer":"ORIGIN","authorization_endpoint":"ORIGIN/authorize","token_endpoint":"ORIGIN/token"}"#;
const TENANT: &str = r#"{"issuer":"ORIGIN/t","token_endpoint":"ORIGIN/t/token"}"#;
const TENANT_RESOURCE: &str = r#"{"resource":"ORIGIN/","authorization_servers":["ORIGIN/t"]}"#;

/// Expects `issuer resource scopes`, or the error.
async fn check(challenge: Option<&str>, responses: &[DocumentResponse<'_>], expected: &str) -> Vec<String> {
    let server = TestServer::start(responses).await;
    let url = server.url("/mcp");
    let fetcher =
        Fetcher::new(&url, &UpstreamTls::default(), &AddressPolicy::of_server(&url, None)).await.unwrap();
    let found = match discover(&fetcher, &url, None, challenge).await {
        Ok(DiscoveredServer { metadata, is_published, resource, scopes }) => {
            let issuer = metadata.issuer.unwrap_or_else(|| "none".to_owned());
            assert_eq!(is_published, issuer != "none");
            format!("{issuer} {resource} {}", scopes.join("+"))
        }
        Err(error) => error.to_string(),
    };
    assert_eq!(found.replace(&server.origin, "ORIGIN"), expected, "{responses:?}");
    server.request_lines()
}

#[tokio::test]
async fn resource_metadata_is_found() {
    let root = ("/.well-known/oauth-authorization-server", 200, "", ROOT);
    // By the challenge of the request: no probe is needed.
    let requests = check(
        Some(r#"Bearer resource_metadata="/meta", scope="a b""#),
        &[("/meta", 200, "", RESOURCE), root],
        "ORIGIN ORIGIN/mcp a+b",
    )
    .await;
    assert_eq!(requests, ["GET /meta", "GET /.well-known/oauth-authorization-server"]);
    // By the challenge of a probe.
    let probe = r#"www-authenticate: Bearer resource_metadata="ORIGIN/meta", scope="c""#;
    let probed = &[("/mcp", 401, probe, ""), ("/meta", 200, "", RESOURCE), root];
    check(None, probed, "ORIGIN ORIGIN/mcp c").await;
    check(Some(r#"Bearer scope="a""#), probed, "ORIGIN ORIGIN/mcp a").await;
    // At a well-known URL, also if the challenge points to a URL that must not be fetched.
    for path in [
        "/.well-known/oauth-protected-resource/mcp",
        "/mcp/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource",
    ] {
        let responses = &[(path, 200, "", RESOURCE), root];
        check(None, responses, "ORIGIN ORIGIN/mcp r").await;
        let hint = "Bearer resource_metadata=https://169.254.169.254/meta";
        check(Some(hint), responses, "ORIGIN ORIGIN/mcp r").await;
    }
}

#[tokio::test]
async fn resource_metadata_must_be_for_this_server() {
    let other = r#"{"resource":"ORIGIN/other","authorization_servers":["ORIGIN"]}"#;
    let root = ("/.well-known/oauth-authorization-server", 200, "", ROOT);
    let hint = Some(r#"Bearer resource_metadata="/meta""#);
    let wrong =
        "the protected resource metadata at `ORIGIN/meta` is for `ORIGIN/other`, not for `ORIGIN/mcp`";
    check(hint, &[("/meta", 200, "", other), root], wrong).await;
    let nothing = "the protected resource metadata at `ORIGIN/meta` names no resource";
    check(hint, &[("/meta", 200, "", "{}"), root], nothing).await;
    // At a guessed URL it is any document.
    let well_known = "/.well-known/oauth-protected-resource";
    check(None, &[(well_known, 200, "", other), root], "ORIGIN ORIGIN/mcp ").await;
    let covers = |resource: &str| {
        covers(&Url::parse(resource).unwrap(), &Url::parse("https://example.com/a/b?c").unwrap())
    };
    for resource in [
        "https://example.com",
        "https://example.com/a",
        "https://example.com:443/a/b",
        "https://example.com/a/",
    ] {
        assert!(covers(resource), "{resource}");
    }
    for resource in [
        "http://example.com/a/b",
        "https://example.org/a/b",
        "https://example.com:8443/a/b",
        "https://example.com/a/bc",
        "https://example.com/a/b/c",
        "https://example.com/a/b#c",
    ] {
        assert!(!covers(resource), "{resource}");
    }
}

#[tokio::test]
async fn authorization_server_metadata_is_found() {
    let resource = ("/.well-known/oauth-protected-resource", 200, "", TENANT_RESOURCE);
    for path in [
        "/.well-known/oauth-authorization-server/t",
        "/.well-known/openid-configuration/t",
        "/t/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server",
    ] {
        check(None, &[resource, (path, 200, "", TENANT)], "ORIGIN/t ORIGIN/ ").await;
    }
    let document =
        r#"{"resource":"ORIGIN/","authorization_server":"ORIGIN/.well-known/oauth-authorization-server/t"}"#;
    let responses = &[
        ("/.well-known/oauth-protected-resource", 200, "", document),
        ("/.well-known/oauth-authorization-server/t", 200, "", TENANT),
    ];
    check(None, responses, "ORIGIN/t ORIGIN/ ").await;
    let none = "none of the authorization servers has metadata: ORIGIN/t";
    check(None, &[resource], none).await;
}

#[tokio::test]
async fn issuer_must_match() {
    let resource = ("/.well-known/oauth-protected-resource", 200, "", TENANT_RESOURCE);
    let path = "/.well-known/oauth-authorization-server/t";
    let wrong = "the authorization server metadata at `ORIGIN/.well-known/oauth-authorization-server/t` \
                 is for `ORIGIN`, not for `ORIGIN/t`";
    check(None, &[resource, (path, 200, "", ROOT)], wrong).await;
    let missing = "the authorization server metadata at `ORIGIN/.well-known/oauth-authorization-server/t` \
                   names no issuer (expected `ORIGIN/t`)";
    check(None, &[resource, (path, 200, "", r#"{"token_endpoint":"ORIGIN/token"}"#)], missing).await;
    let check = |issuer: &str, expected: &str, matches: bool| {
        let metadata = ServerMetadata { issuer: Some(issuer.to_owned()), ..ServerMetadata::default() };
        let url = Url::parse("https://a.example/").unwrap();
        assert_eq!(check_issuer(&url, &metadata, expected).is_ok(), matches, "{issuer} {expected}");
    };
    check("https://a.example", "https://a.example/", true);
    check("https://a.example/", "https://a.example", true);
    check("https://a.example/t", "https://a.example/t/", false);
    check("https://a.example.evil/", "https://a.example/", false);
}

#[tokio::test]
async fn servers_without_resource_metadata_are_their_own_authorization_server() {
    let own = r#"{"issuer":"ORIGIN/mcp","token_endpoint":"ORIGIN/token"}"#;
    let path = "/.well-known/oauth-authorization-server/mcp";
    check(None, &[(path, 200, "", own)], "ORIGIN/mcp ORIGIN/mcp ").await;
    check(None, &[("/.well-known/openid-configuration", 200, "", ROOT)], "ORIGIN ORIGIN/mcp ").await;
    check(None, &[], "none ORIGIN/mcp ").await;
    let endpoints = default_endpoints(&Url::parse("https://example.com/mcp?x=y").unwrap());
    assert_eq!(endpoints.token_endpoint, "https://example.com/token");
}

#[tokio::test]
async fn authorization_servers_in_other_networks_are_refused() {
    let resource = r#"{"resource":"ORIGIN/mcp","authorization_servers":["https://10.0.0.1"]}"#;
    let refused =
        "`https://10.0.0.1/` is on a private network, which is not allowed for the login to this server";
    check(None, &[("/.well-known/oauth-protected-resource", 200, "", resource)], refused).await;
}

/// With an issuer in the configuration, no other one is used.
#[tokio::test]
async fn pinned_issuer_is_the_only_one() {
    let check = async |resource: Option<&str>, pinned: &str, expected: &str| {
        let root = ("/.well-known/oauth-authorization-server", 200, "", ROOT);
        let tenant = ("/.well-known/oauth-authorization-server/t", 200, "", TENANT);
        let mut responses = vec![root, tenant];
        responses.extend(resource.map(|text| ("/.well-known/oauth-protected-resource", 200, "", text)));
        let server = TestServer::start(&responses).await;
        let url = server.url("/mcp");
        let addresses = AddressPolicy::of_server(&url, None);
        let fetcher = Fetcher::new(&url, &UpstreamTls::default(), &addresses).await.unwrap();
        let pinned = pinned.replace("ORIGIN", &server.origin);
        let found = match discover(&fetcher, &url, Some(&pinned), None).await {
            Ok(discovered) => discovered.metadata.issuer.unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found.replace(&server.origin, "ORIGIN"), expected, "{resource:?} {pinned}");
    };
    let both = r#"{"resource":"ORIGIN/mcp","authorization_servers":["ORIGIN","ORIGIN/t"]}"#;
    check(Some(both), "ORIGIN/t", "ORIGIN/t").await;
    check(Some(both), "ORIGIN", "ORIGIN").await;
    let other = |found: &str| {
        format!("the server uses the authorization server `{found}`, but `oauth.issuer` is `https://a`")
    };
    check(Some(both), "https://a", &other("ORIGIN`, `ORIGIN/t")).await;
    check(None, "https://a", &other("ORIGIN")).await;
    check(None, "ORIGIN/", "ORIGIN").await;
}
