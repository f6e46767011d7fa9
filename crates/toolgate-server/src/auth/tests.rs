//! Authentication of requests by their headers and addresses.

use futures_util::FutureExt as _;
use http::Request;
use toolgate_types::serve::AnonymousAccess;

use super::*;
use crate::listener::ConnectionSource;

fn authenticator(anonymous: bool) -> Authenticator {
    authenticator_with(anonymous, ServeConfig::default())
}

fn authenticator_with(anonymous: bool, config: ServeConfig) -> Authenticator {
    let ids = ["owner", "ci"].into_iter().chain(anonymous.then_some("anonymous"));
    let callers = ids.map(|id| Caller::new(id.parse().unwrap(), vec!["*:*".parse().unwrap()])).collect();
    let key = |(key, id): (&str, &str)| (id.parse().unwrap(), KeyHash::of(key), "test".to_owned());
    let keys = [("the owner's", "owner"), ("that of ci", "ci")].map(key).into();
    let config = ServeConfig { hosts: vec!["tools.example.com".parse().unwrap()], ..config };
    Authenticator::new(&config, CallerDirectory { callers, keys, ..CallerDirectory::default() }).unwrap()
}

/// Returns the caller id, or the error status.
fn authenticated(authenticator: &Authenticator, peer: &str, uri: &str, headers: &[(&str, &str)]) -> String {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let local = if peer.starts_with("127") { "127.0.0.1" } else { "10.0.0.1" };
    let (peer, local) = (peer.parse().unwrap(), local.parse().unwrap());
    let source = ConnectionSource::Network(ConnectionEnds { peer, client: peer, local, secure: false }, None);
    let rules = authenticator.rules();
    let source = rules.proxies.request_source(&source, &parts.headers);
    let ConnectionSource::Network(ends, _) = *source else { unreachable!("it is from the network") };
    let authenticated = || authenticator.authenticate(&parts, ends, None).now_or_never().unwrap();
    match authenticator.check_host(&parts, ends).and_then(|()| authenticated()) {
        Ok((caller, ..)) => caller.id.to_string(),
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

/// Every header that a proxy may add, and requests that a browser makes for other pages.
#[test]
fn anonymous_needs_loopback_and_no_proxy() {
    let authenticator = |anonymous, proxies: &[&str]| {
        let trusted_proxies = proxies.iter().map(|it| it.parse().unwrap()).collect();
        authenticator_with(true, ServeConfig { anonymous, trusted_proxies, ..ServeConfig::default() })
    };
    let outcome = |authenticator: &Authenticator, peer: &str, headers: &[(&str, &str)]| {
        let host = if peer.starts_with("127") { "127.0.0.1" } else { "10.0.0.1" };
        let headers: Vec<_> = [("host", host)].into_iter().chain(headers.iter().copied()).collect();
        authenticated(authenticator, peer, "/", &headers)
    };
    let forwarded = [
        ("forwarded", "for=10.0.0.7"),
        ("x-forwarded-for", "10.0.0.7"),
        ("x-forwarded-host", "a"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "10.0.0.7"),
        ("via", "1.1 proxy"),
    ];
    let local = authenticator(AnonymousAccess::Loopback, &[]);
    assert_eq!(outcome(&local, "127.0.0.1", &[]), "anonymous");
    assert_eq!(
        outcome(&local, "127.0.0.1", &[("x-api-key", "wrong")]),
        "401",
        "a wrong key is not anonymous"
    );
    assert_eq!(outcome(&local, "10.0.0.7", &[]), "401");
    let behind = authenticator(AnonymousAccess::Loopback, &["127.0.0.1"]);
    assert_eq!(outcome(&behind, "127.0.0.1", &[]), "401", "the proxy may add no header");
    let everywhere = authenticator(AnonymousAccess::Everywhere, &[]);
    assert_eq!(outcome(&everywhere, "10.0.0.7", &[]), "anonymous");
    let trusting = authenticator(AnonymousAccess::Everywhere, &["10.0.0.0/8"]);
    for header in forwarded {
        assert_eq!(outcome(&local, "127.0.0.1", &[header]), "401", "{header:?}");
        assert_eq!(outcome(&behind, "127.0.0.1", &[header]), "401", "{header:?}");
        assert_eq!(outcome(&everywhere, "10.0.0.7", &[header]), "401", "{header:?}: an unknown proxy");
        assert_eq!(outcome(&trusting, "10.0.0.7", &[header]), "anonymous", "{header:?}");
    }
    for (site, expected) in [
        ("same-origin", "anonymous"),
        ("none", "anonymous"),
        ("same-site", "401"),
        ("cross-site", "401"),
        ("", "401"),
    ] {
        for authenticator in [&local, &everywhere, &trusting] {
            let from = if std::ptr::eq(authenticator, &local) { "127.0.0.1" } else { "10.0.0.7" };
            assert_eq!(outcome(authenticator, from, &[("sec-fetch-site", site)]), expected, "{site}");
        }
    }
    let both = [("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")];
    assert_eq!(outcome(&local, "127.0.0.1", &both), "401");
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

/// Wrong keys are slowed down; a right key from the same address is always accepted.
#[test]
fn wrong_keys_are_rate_limited() {
    let authenticator = authenticator(false);
    let host = ("host", "localhost");
    let outcome = |key: &str| authenticated(&authenticator, "127.0.0.1", "/", &[host, ("x-api-key", key)]);
    let statuses: Vec<_> = (0..10).map(|n| outcome(&n.to_string())).collect();
    assert_eq!(statuses[..5], ["401"; 5]);
    assert_eq!(statuses[5..], ["429"; 5]);
    assert_eq!(outcome("that of ci"), "ci", "others behind the same address");
    assert_eq!(outcome("another"), "429", "a right key does not reset the count");
}

/// Behind a trusted proxy, each client has its own count; without trust, all of them are the proxy.
#[test]
fn wrong_keys_count_for_the_client_behind_a_proxy() {
    let statuses = |trusted: bool| {
        let trusted_proxies = if trusted { vec!["10.0.0.9".parse().unwrap()] } else { Vec::new() };
        let authenticator =
            authenticator_with(false, ServeConfig { trusted_proxies, ..ServeConfig::default() });
        let outcome = |client: u8| {
            // The client sends an address of its own; the proxy appends the real one.
            let forwarded = format!("1.2.3.{}, 203.0.113.{client}", fastrand::u8(..));
            let headers = [("host", "10.0.0.1"), ("x-api-key", "wrong"), ("x-forwarded-for", &forwarded)];
            authenticated(&authenticator, "10.0.0.9", "/", &headers)
        };
        (0..6).for_each(|_| drop(outcome(1)));
        (outcome(1), outcome(2))
    };
    assert_eq!(statuses(true), ("429".to_owned(), "401".to_owned()));
    assert_eq!(statuses(false), ("429".to_owned(), "429".to_owned()));
}

/// Configured credentials are replaced as a whole, and streams end when the rights of their caller change.
#[tokio::test]
async fn a_changed_configuration_counts_at_once() {
    let authenticator = authenticator(false);
    let host = ("host", "localhost");
    let outcome = |key: &str| authenticated(&authenticator, "127.0.0.1", "/", &[host, ("x-api-key", key)]);
    let lifetime = |key: &str| {
        let caller = authenticator.caller("ci").unwrap();
        CredentialLifetime::new(Credential::Key(KeyHash::of(key)), &caller, None)
    };
    let replace = |permission: &str, key: &str| {
        let ci: CallerId = "ci".parse().unwrap();
        let callers = vec![Caller::new(ci.clone(), vec![permission.parse().unwrap()])];
        let keys = vec![(ci, KeyHash::of(key), "test".to_owned())];
        let directory = CallerDirectory { callers, keys, ..CallerDirectory::default() };
        authenticator.replace(&ServeConfig::default(), directory).unwrap();
    };
    let mut unchanged = Box::pin(authenticator.wait_for_expiry(lifetime("that of ci")));
    assert!((&mut unchanged).now_or_never().is_none());
    replace("*:*", "that of ci");
    assert!((&mut unchanged).now_or_never().is_none(), "the same key and the same rights");
    assert_eq!((outcome("that of ci"), outcome("the owner's")), ("ci".to_owned(), "401".to_owned()));
    replace("mail:*", "that of ci");
    assert!((&mut unchanged).now_or_never().is_some(), "other rights");
    let mut revoked = Box::pin(authenticator.wait_for_expiry(lifetime("that of ci")));
    assert!((&mut revoked).now_or_never().is_none());
    replace("mail:*", "a new key");
    assert!((&mut revoked).now_or_never().is_some(), "a removed key");
    assert_eq!((outcome("that of ci"), outcome("a new key")), ("401".to_owned(), "ci".to_owned()));
}
