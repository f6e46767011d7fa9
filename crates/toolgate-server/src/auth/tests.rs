//! Authentication of requests by their headers and addresses.

use futures_util::FutureExt as _;
use hyper::Request;

use super::*;

fn authenticator(anonymous: bool) -> Authenticator {
    let caller =
        |id: &str| Arc::new(Caller { id: id.parse().unwrap(), permissions: vec!["*:*".parse().unwrap()] });
    Authenticator {
        callers: HashMap::new(),
        managed: None,
        policy_callers: Vec::new(),
        descriptions: BTreeMap::new(),
        tokens: TokenVerifier::new(&[]).unwrap(),
        anonymous_access: AnonymousAccess::Loopback,
        address_quota: None,
        caller_quota: None,
        url: None,
        keys: vec![(KeyHash::of("the owner's"), caller("owner")), (KeyHash::of("that of ci"), caller("ci"))],
        certificates: Vec::new(),
        anonymous: anonymous.then(|| caller("anonymous")),
        owner: caller("owner"),
        hosts: vec!["tools.example.com".parse().unwrap()],
        failures: KeyFailures::default(),
    }
}

/// Returns the caller id, or the error status.
fn authenticated(authenticator: &Authenticator, peer: &str, uri: &str, headers: &[(&str, &str)]) -> String {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let local = if peer.starts_with("127") { "127.0.0.1" } else { "10.0.0.1" };
    let ends = ConnectionEnds { peer: peer.parse().unwrap(), local: local.parse().unwrap(), secure: false };
    let authenticated = || authenticator.authenticate(&parts, ends, None).now_or_never().unwrap();
    match authenticator.check_host(&parts, ends).and_then(|()| authenticated()) {
        Ok((caller, _)) => caller.id.to_string(),
        Err(refusal) => refusal.status.as_u16().to_string(),
    }
}

#[test]
fn accepts_keys_in_either_header() {
    let host = ("host", "localhost:7332");
    for (headers, outcome) in [
        (vec![("authorization", "Bearer the owner's")], "owner"),
        (vec![("authorization", "bearer  that of ci ")], "ci"),
        (vec![("x-api-key", "that of ci")], "ci"),
        (vec![("x-api-key", "that of ci"), ("authorization", "Bearer that of ci")], "ci"),
        (vec![("x-api-key", "that of ci"), ("authorization", "Bearer the owner's")], "400"),
        (vec![("x-api-key", "that of ci"), ("x-api-key", "that of ci")], "400"),
        (vec![("x-api-key", "that of c")], "401"),
        (vec![("x-api-key", "")], "401"),
        (vec![("authorization", "Basic dGhhdCBvZiBjaQ==")], "401"),
        (vec![("authorization", "that of ci")], "401"),
        (vec![], "401"),
    ] {
        let headers: Vec<_> = [host].into_iter().chain(headers).collect();
        assert_eq!(authenticated(&authenticator(false), "127.0.0.1", "/", &headers), outcome, "{headers:?}");
    }
}

#[test]
fn anonymous_needs_loopback_and_no_proxy() {
    let outcome = |peer: &str, headers: &[(&str, &str)]| {
        let host = if peer.starts_with("127") { "127.0.0.1" } else { "10.0.0.1" };
        let headers: Vec<_> = [("host", host)].into_iter().chain(headers.iter().copied()).collect();
        authenticated(&authenticator(true), peer, "/", &headers)
    };
    assert_eq!(outcome("127.0.0.1", &[]), "anonymous");
    assert_eq!(outcome("127.0.0.1", &[("x-api-key", "wrong")]), "401", "a wrong key is not anonymous");
    assert_eq!(outcome("127.0.0.1", &[("x-forwarded-for", "10.0.0.7")]), "401", "a client behind a proxy");
    assert_eq!(outcome("10.0.0.7", &[]), "401");
}

#[test]
fn checks_host_and_origin() {
    let key = ("x-api-key", "that of ci");
    let outcome = |headers: &[(&str, &str)]| {
        let headers: Vec<_> = [key].into_iter().chain(headers.iter().copied()).collect();
        authenticated(&authenticator(false), "127.0.0.1", "/", &headers)
    };
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:7332", "[::1]:7332", "tools.example.com"] {
        assert_eq!(outcome(&[("host", host)]), "ci", "{host}");
    }
    for host in [
        "evil.test",
        "localhost.evil.test",
        "10.0.0.1",
        "169.254.169.254",
        "",
        "a b",
        "tools.example.com.evil",
    ] {
        assert_eq!(outcome(&[("host", host)]), "403", "{host}");
    }
    assert_eq!(outcome(&[]), "403");
    assert_eq!(outcome(&[("host", "localhost"), ("host", "localhost")]), "403");
    let host = ("host", "localhost:7332");
    assert_eq!(outcome(&[host, ("origin", "http://localhost:7332")]), "ci");
    for origin in
        ["http://evil.test", "null", "http://localhost.evil", "http://localhost:3000", "localhost:7332", ""]
    {
        assert_eq!(outcome(&[host, ("origin", origin)]), "403", "{origin}");
    }
    let twice = [host, ("origin", "http://localhost:7332"), ("origin", "http://localhost:7332")];
    assert_eq!(outcome(&twice), "403");
    // The request target and the `Host` header must agree.
    assert_eq!(
        authenticated(&authenticator(false), "127.0.0.1", "http://evil.test/", &[key, ("host", "localhost")]),
        "403"
    );
    assert_eq!(
        authenticated(&authenticator(false), "10.0.0.9", "/", &[key, ("host", "10.0.0.1:7332")]),
        "ci"
    );
    // A Kubernetes probe uses the address of the pod. An internal name is rejected.
    assert_eq!(
        authenticated(&authenticator(false), "10.0.0.9", "/readyz", &[key, ("host", "localhost")]),
        "403"
    );
}

#[test]
fn wrong_keys_are_rate_limited() {
    let authenticator = authenticator(false);
    let host = ("host", "localhost");
    let outcome = |key: &str| authenticated(&authenticator, "127.0.0.1", "/", &[host, ("x-api-key", key)]);
    let statuses: Vec<_> = (0..6).map(|_| outcome("old")).collect();
    assert_eq!(statuses, ["401", "401", "401", "401", "401", "429"]);
    assert_eq!(outcome("that of ci"), "ci", "a repeated old key does not lock out other callers");
    let statuses: Vec<_> = (0..5).map(|n| outcome(&n.to_string())).collect();
    assert_eq!(statuses, ["429"; 5]);
    assert_eq!(outcome("that of ci"), "429", "a guessing client is locked out");
}
