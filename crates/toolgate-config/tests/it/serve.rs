//! `serve` and the credentials of callers.

use toolgate_config::LoadOutcome;
use toolgate_types::KeyHash;

use super::{config, loaded, messages};

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn callers(entries: &str, variables: &[(&str, &str)]) -> LoadOutcome {
    loaded(&[("toolgate.yaml", &format!("callers:\n{entries}"))], variables)
}

#[test]
fn stores_keys_as_hashes() {
    let entries = format!("  - {{id: ci, api_key: \"${{CI_KEY}}\"}}\n  - {{id: ann, key_sha256: {HASH}}}\n");
    let loaded = callers(&entries, &[("CI_KEY", "the-key-of-ci")]);
    assert_eq!(messages(&loaded), "");
    let config = loaded.config.as_ref().unwrap();
    let keys: Vec<_> = config.caller_keys.iter().map(|(id, key)| (id.as_str(), *key)).collect();
    assert_eq!(keys, [("ci", KeyHash::of("the-key-of-ci")), ("ann", KeyHash::of("abc"))]);
    let shown = format!("{config:?}{}", serde_json::to_string(config).unwrap());
    assert!(!shown.contains("the-key-of-ci") && !shown.contains(HASH), "{shown}");
    assert!(config.secrets.iter().any(|secret| secret.expose() == "the-key-of-ci"), "it is masked elsewhere");
}

/// Keys are hidden whatever the mistake and wherever the string occurs.
#[test]
fn reports_mistakes_in_keys() {
    let entries = "
  - {id: a, api_key: changeme}
  - {id: b, api_key: the-blue-heron}
  - {id: c, api_key: the-blue-heron}
  - {id: d, key_sha256: the-red-heron}
  - {id: e, api_key: [the-grey-heron]}
  - {id: f, key_sha256: 4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2}
";
    let loaded = callers(entries, &[]);
    insta::assert_snapshot!(messages(&loaded), @"
    error toolgate.yaml:3:22 the key of caller `a` is a well-known weak key (generate one: `openssl rand -hex 32`)
    error toolgate.yaml:5:22 caller `c` has the key of caller `b` (a key is for one caller; give each its own)
    error toolgate.yaml:6:25 `***` is not the SHA-256 of a key in caller (the SHA-256 of a key has 64 hexadecimal digits; `printf %s KEY | sha256sum` prints it)
    error toolgate.yaml:7:22 a list does not fit `api_key` in caller (a string is expected)
    error toolgate.yaml:8:25 the key of caller `f` is a well-known weak key (generate one: `openssl rand -hex 32`)
    ");
    let report = loaded.report.render();
    assert!(!report.contains("heron") && !report.contains("changeme"), "{report}");
}

#[test]
fn reads_serve_settings() {
    let text = "serve: {listen: \"[::1]:80\", hosts: [Tools.example.com], max_body: 1MiB, max_connections: 7, max_connections_per_address: 3}\n";
    let loaded = loaded(&[("toolgate.yaml", text)], &[]);
    assert_eq!(messages(&loaded), "");
    insta::assert_snapshot!(config(&loaded)["serve"].to_string(), @r#"{"listen":"[::1]:80","hosts":["tools.example.com"],"max_body":"1MiB","max_connections":7,"max_connections_per_address":3}"#);
    assert_eq!(config(&loaded)["origins"]["serve.max_body"], "toolgate.yaml:1:67");
}

#[test]
fn reports_mistakes_in_serve() {
    let text =
        "serve: {listen: localhost, hosts: [\"a:80\", \"*.b\"], max_connections: 0, max_connection: 1}\n";
    insta::assert_snapshot!(messages(&loaded(&[("toolgate.yaml", text)], &[])), @"
    error toolgate.yaml:1:17 `localhost` is not an IP address with a port in serve (invalid socket address syntax)
    error toolgate.yaml:1:36 `a:80` is not a host name in serve (a host has letters, digits, `.` and `-`, such as `tools.example.com`, and no port)
    error toolgate.yaml:1:44 `*.b` is not a host name in serve (a host has letters, digits, `.` and `-`, such as `tools.example.com`, and no port)
    error toolgate.yaml:1:69 `0` is not a positive whole number in serve (write a whole number from 1 on)
    error toolgate.yaml:1:72 unknown key `max_connection` in serve (did you mean `max_connections`?)
    ");
}

#[test]
fn serve_tls() {
    let door = |tls: &str, caller: &str| {
        let text = format!("serve: {{tls: {{{tls}}}}}\ncallers: [{{id: ci, certificate: {{{caller}}}}}]\n");
        let mut files = vec![("toolgate.yaml", text.as_str())];
        files.extend(["c.pem", "k.pem", "ca.pem"].map(|name| (name, "")));
        loaded(&files, &[])
    };
    let good = door("cert: c.pem, key: k.pem, client_ca: ca.pem", &format!("san: ci.test, sha256: {HASH}"));
    assert_eq!(messages(&good), "");
    assert_eq!(config(&good)["serve"]["tls"]["client_certificate"], "required", "where nothing is said");
    assert_eq!(good.config.unwrap().caller_certificates[0].1.sha256, Some(KeyHash::of("abc")));
    let mistakes = [
        door("cert: c.pem", "san: ci.test"),
        door("cert: c.pem, key: gone.pem, client_ca: ca.pem", "san: ci.test"),
        door("cert: c.pem, key: k.pem, client_certificate: optional", "san: ci.test"),
        door("cert: c.pem, key: k.pem", "san: ci.test"),
        door("cert: c.pem, key: k.pem, client_ca: ca.pem, client_certificate: maybe", ""),
        door("cert: c.pem, key: k.pem, client_ca: ca.pem", "sha256: abc"),
    ];
    let mistakes: Vec<_> = mistakes.iter().map(messages).collect();
    insta::assert_snapshot!(mistakes.join("\n"), @"
    error toolgate.yaml:1:15 missing key `key` in serve tls (add `key`: a string)
    error toolgate.yaml:2:33 caller `ci` needs `client_ca` for its certificate (add `serve.tls` with `client_ca`, the authority that issued it)
    error toolgate.yaml:1:33 there is no file `gone.pem` for `key` (create it, or correct the path; paths start at the project folder)
    error toolgate.yaml:2:33 caller `ci` needs `client_ca` for its certificate (add `serve.tls` with `client_ca`, the authority that issued it)
    error toolgate.yaml:1:40 `client_certificate` without `client_ca` in serve tls (add the `client_ca` that issues client certificates)
    error toolgate.yaml:2:33 caller `ci` needs `client_ca` for its certificate (add `serve.tls` with `client_ca`, the authority that issued it)
    error toolgate.yaml:2:33 caller `ci` needs `client_ca` for its certificate (add `serve.tls` with `client_ca`, the authority that issued it)
    error toolgate.yaml:1:79 `maybe` is not a client certificate mode in serve tls (`required` or `optional` is expected)
    error toolgate.yaml:2:33 the certificate of caller `ci` has no conditions (add `san` or `sha256`)
    error toolgate.yaml:2:42 `abc` is not the SHA-256 of a certificate in certificate (it has 64 hexadecimal digits, with colons or without)
    ");
}

#[test]
fn token_issuers() {
    let door =
        |serve: &str| loaded(&[("toolgate.yaml", &format!("serve: {{{serve}}}\n")), ("k.json", "")], &[]);
    let good = door("jwt: [{issuer: 'https://id.test', audience: [tools], jwks_file: k.json}]");
    assert_eq!(messages(&good), "");
    let issuer = &good.config.as_ref().unwrap().serve.jwt[0];
    assert_eq!((issuer.caller_prefix.as_str(), issuer.caller_claim.as_str()), ("id.test:", "sub"));
    assert_eq!(issuer.algorithms, toolgate_types::issuer::SigningAlgorithm::DEFAULT);
    let mistakes = [
        door("jwt: [{issuer: 'http://id.test', audience: [tools]}]"),
        door("jwt: [{issuer: 'https://id.test'}]"),
        door("jwt: [{issuer: 'https://id.test', audience: []}]"),
        door("jwt: [{issuer: 'https://id.test', audience: [a], algorithms: [HS256]}]"),
        door("jwt: [{issuer: 'https://id.test', audience: [a], algorithms: [none]}]"),
        door("jwt: [{issuer: 'https://id.test', audience: [a], algorithms: []}]"),
        door("jwt: [{issuer: 'https://id.test', audience: [a], jwks_uri: 'http://id.test/keys'}]"),
        door(
            "jwt: [{issuer: 'https://id.test', audience: [a], jwks_uri: 'https://id.test/k', jwks_file: k.json}]",
        ),
        door("jwt: [{issuer: 'https://id.test', audience: [a], jwks_file: gone.json}]"),
        door("jwt: [{issuer: 'https://id.test', audience: [a], scopes: {mail: [everything]}}]"),
        door("jwt: [{issuer: 'https://id.test', audience: [a]}, {issuer: 'https://id.test', audience: [b]}]"),
        door("url: tools, anonymous: nowhere, rate_limit: {per_address: 0}"),
    ];
    let mistakes: Vec<_> = mistakes.iter().map(messages).collect();
    insta::assert_snapshot!(mistakes.join("\n"), @"
    error toolgate.yaml:1:24 `http://id.test` is not a secure URL (use `https://`; `http://` is only allowed for this machine)
    error toolgate.yaml:1:16 missing key `audience` in token issuer (add `audience`: list of strings)
    error toolgate.yaml:1:15 `audience` of a token issuer is empty (name the audience of its tokens, such as the URL of this gateway)
    error toolgate.yaml:1:15 `algorithms` of a token issuer is empty (name one, or leave the key out)
    error toolgate.yaml:1:71 `HS256` is not an algorithm in token issuer (`RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384` or `EdDSA` is expected)
    error toolgate.yaml:1:15 `algorithms` of a token issuer is empty (name one, or leave the key out)
    error toolgate.yaml:1:71 `none` is not an algorithm in token issuer (`RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384` or `EdDSA` is expected)
    error toolgate.yaml:1:15 `algorithms` of a token issuer is empty (name one, or leave the key out)
    error toolgate.yaml:1:68 `http://id.test/keys` is not a secure URL (use `https://`; `http://` is only allowed for this machine)
    error toolgate.yaml:1:89 `jwks_file` and `jwks_uri` of a token issuer (keys come from one place; keep one of the two)
    error toolgate.yaml:1:69 there is no file `gone.json` for `jwks_file` (create it, or correct the path; paths start at the project folder)
    error toolgate.yaml:1:74 `everything` is not a permission pattern in token issuer (a permission is given as `resource:action`, each a word or `*`, such as `cards:*`)
    error toolgate.yaml:1:59 issuer `https://id.test` is named twice (keep one of the two)
    error toolgate.yaml:1:14 `tools` is not a URL: relative URL without a base (write a complete URL, such as `https://localhost:8080/mcp`)
    error toolgate.yaml:1:32 `nowhere` is not an `anonymous` mode in serve (`loopback` or `everywhere` is expected)
    error toolgate.yaml:1:67 `0` is not a positive whole number in serve rate_limit (write a whole number from 1 on)
    ");
}
