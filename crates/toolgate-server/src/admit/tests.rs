//! Who gets in, by what a request says.

use futures_util::FutureExt as _;
use hyper::Request;

use super::*;

fn gate(anonymous: bool) -> Gate {
    let caller =
        |id: &str| Arc::new(Caller { id: id.parse().unwrap(), permissions: vec!["*:*".parse().unwrap()] });
    Gate {
        callers: HashMap::new(),
        kept: None,
        ruled: Vec::new(),
        descriptions: BTreeMap::new(),
        tokens: Tokens::new(&[]).unwrap(),
        reach: AnonymousReach::Loopback,
        addresses: None,
        requests: None,
        url: None,
        keys: vec![(KeyHash::of("the owner's"), caller("owner")), (KeyHash::of("that of ci"), caller("ci"))],
        certificates: Vec::new(),
        anonymous: anonymous.then(|| caller("anonymous")),
        owner: caller("owner"),
        hosts: vec!["tools.example.com".parse().unwrap()],
        failures: Failures::default(),
    }
}

/// Who it is, or the status.
fn admitted(gate: &Gate, peer: &str, uri: &str, headers: &[(&str, &str)]) -> String {
    let mut request = Request::builder().uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    let local = if peer.starts_with("127") { "127.0.0.1" } else { "10.0.0.1" };
    let ends = Ends { peer: peer.parse().unwrap(), local: local.parse().unwrap(), secure: false };
    let admitted = || gate.admit(&parts, ends, None).now_or_never().unwrap();
    match gate.place(&parts, ends).and_then(|()| admitted()) {
        Ok((caller, _)) => caller.id.to_string(),
        Err(refusal) => refusal.status.as_u16().to_string(),
    }
}

#[test]
fn keys() {
    let host = ("host", "localhost:7332");
    for (headers, who) in [
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
        assert_eq!(admitted(&gate(false), "127.0.0.1", "/", &headers), who, "{headers:?}");
    }
}

#[test]
fn who_says_nothing() {
    let who = |peer: &str, headers: &[(&str, &str)]| {
        let host = if peer.starts_with("127") { "127.0.0.1" } else { "10.0.0.1" };
        let headers: Vec<_> = [("host", host)].into_iter().chain(headers.iter().copied()).collect();
        admitted(&gate(true), peer, "/", &headers)
    };
    assert_eq!(who("127.0.0.1", &[]), "anonymous");
    assert_eq!(who("127.0.0.1", &[("x-api-key", "wrong")]), "401", "a wrong key is not no key");
    assert_eq!(who("127.0.0.1", &[("x-forwarded-for", "10.0.0.7")]), "401", "somebody behind a proxy");
    assert_eq!(who("10.0.0.7", &[]), "401");
}

#[test]
fn places() {
    let key = ("x-api-key", "that of ci");
    let who = |headers: &[(&str, &str)]| {
        let headers: Vec<_> = [key].into_iter().chain(headers.iter().copied()).collect();
        admitted(&gate(false), "127.0.0.1", "/", &headers)
    };
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1:7332", "[::1]:7332", "tools.example.com"] {
        assert_eq!(who(&[("host", host)]), "ci", "{host}");
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
        assert_eq!(who(&[("host", host)]), "403", "{host}");
    }
    assert_eq!(who(&[]), "403");
    assert_eq!(who(&[("host", "localhost"), ("host", "localhost")]), "403");
    let host = ("host", "localhost:7332");
    assert_eq!(who(&[host, ("origin", "http://localhost:7332")]), "ci");
    for origin in
        ["http://evil.test", "null", "http://localhost.evil", "http://localhost:3000", "localhost:7332", ""]
    {
        assert_eq!(who(&[host, ("origin", origin)]), "403", "{origin}");
    }
    let twice = [host, ("origin", "http://localhost:7332"), ("origin", "http://localhost:7332")];
    assert_eq!(who(&twice), "403");
    // A request that names its host twice must name the same.
    assert_eq!(
        admitted(&gate(false), "127.0.0.1", "http://evil.test/", &[key, ("host", "localhost")]),
        "403"
    );
    assert_eq!(admitted(&gate(false), "10.0.0.9", "/", &[key, ("host", "10.0.0.1:7332")]), "ci");
    // As a probe of Kubernetes comes to a pod: for the address it has, and not under a name of the inside.
    assert_eq!(admitted(&gate(false), "10.0.0.9", "/readyz", &[key, ("host", "localhost")]), "403");
}

#[test]
fn wrong_keys_wait() {
    let gate = gate(false);
    let host = ("host", "localhost");
    let who = |key: &str| admitted(&gate, "127.0.0.1", "/", &[host, ("x-api-key", key)]);
    let told: Vec<_> = (0..6).map(|_| who("old")).collect();
    assert_eq!(told, ["401", "401", "401", "401", "401", "429"]);
    assert_eq!(who("that of ci"), "ci", "an old key is in nobody's way");
    let told: Vec<_> = (0..5).map(|n| who(&n.to_string())).collect();
    assert_eq!(told, ["429"; 5]);
    assert_eq!(who("that of ci"), "429", "whoever guesses is told nothing");
}
