//! `serve.jwt`: token issuers whose JWTs authenticate callers.

use std::net::IpAddr;

use toolgate_types::caller::PermissionPattern;
use toolgate_types::issuer::{IssuerLogin, KeySource, SigningAlgorithm, TokenIssuer};
use toolgate_types::{ConfigString, GroupName, HumanDuration, Secret};
use url::Url;

use crate::context::Context;
use crate::feature::checks::{check_url, resolve_file};
use crate::keys::{NamedMap, Spanned, choice, into_value, into_values, keys};
use crate::resolve::ConfigBuilder;

keys! {
    /// A token issuer, such as an OpenID Connect provider. Its keys come from `jwks_file`, `jwks_uri`, or, if
    /// neither is set, from the JWKS URL in the issuer's metadata.
    struct JwtFile as "token issuer" {
        /// Exact value of `iss` in its tokens: an `https://` URL, or `http://` on this machine.
        issuer: ConfigString; required,
        /// Accepted audiences: `aud` of a token must contain one of these. Use a name of this gateway only.
        audience: Vec<Spanned<String>>; required,
        /// Accepted signature algorithms. Shared-secret algorithms (HMAC) and `none` are never accepted.
        algorithms: Vec<Spanned<AlgorithmName>> = "[RS256, PS256, ES256, ES384, EdDSA]",
        /// URL of the issuer's JWKS (JSON Web Key Set).
        jwks_uri: ConfigString,
        /// File with the issuer's JWKS. A replaced file takes effect within a second.
        jwks_file: ConfigString,
        /// Allowed clock skew.
        leeway: HumanDuration = "30s",
        /// Claim that identifies the caller.
        caller_claim: String = "sub",
        /// Prefix of the caller id, put before the claim. Default: the issuer's host and `:`.
        caller_prefix: String,
        /// Claim with the scopes, as a string or a list.
        scope_claim: String = "scope",
        /// Permissions granted by each scope. Scopes not listed here grant nothing. A caller listed in `callers`
        /// has the permissions given there, regardless of its scopes.
        scopes: NamedMap<Vec<Spanned<PermissionPattern>>>,
        /// Claim with the groups, as a string or a list. A token with a claim of another type, or with more than 500
        /// values, is rejected. Without this key, tokens name no groups.
        groups_claim: String,
        /// Group of each value of `groups_claim`. Values not listed here name no group. The issuer is trusted to
        /// make its callers members of these groups, and of no others.
        groups: NamedMap<GroupName>,
        /// Claim that names the person, such as `email`. Recorded with every call; it decides nothing. Default: none.
        person_claim: String,
        /// Login of people to the console with this issuer (authorization code with PKCE). Without this key, the
        /// console asks for an API key only.
        login: JwtLoginFile,
    }
}

keys! {
    /// The gateway as a client of a token issuer. Register `URL/oidc/callback` there as its redirect URI.
    struct JwtLoginFile as "login of a token issuer" {
        /// Id of the client at the issuer.
        client_id: ConfigString; required,
        /// Secret of the client, such as `${CLIENT_SECRET}`. Without this key, the client is a public one.
        client_secret: ConfigString,
        /// Scopes that a login asks for, besides `openid`.
        scopes: Vec<Spanned<String>>,
        /// Label of the login in the console. Default: the host of the issuer.
        label: String,
    }
}

choice! {
    /// Signature algorithm of a token.
    enum AlgorithmName as "an algorithm" {
        /// RSASSA-PKCS1-v1_5 with SHA-256.
        Rs256 = "RS256",
        /// RSASSA-PKCS1-v1_5 with SHA-384.
        Rs384 = "RS384",
        /// RSASSA-PKCS1-v1_5 with SHA-512.
        Rs512 = "RS512",
        /// RSASSA-PSS with SHA-256.
        Ps256 = "PS256",
        /// RSASSA-PSS with SHA-384.
        Ps384 = "PS384",
        /// RSASSA-PSS with SHA-512.
        Ps512 = "PS512",
        /// ECDSA with the curve P-256.
        Es256 = "ES256",
        /// ECDSA with the curve P-384.
        Es384 = "ES384",
        /// EdDSA with the curve Ed25519.
        EdDsa = "EdDSA",
    }
}

/// Resolves a token issuer. Reports a problem and returns `None` if it cannot work.
pub(super) fn resolve_issuer(
    file: JwtFile,
    builder: &ConfigBuilder,
    cx: &mut Context<'_>,
) -> Option<TokenIssuer> {
    let problems_before = cx.problems.len();
    let address = file.issuer.as_ref().and_then(|at| check_secure_url(at, cx));
    if file.audience.as_ref().is_some_and(|at| at.value.is_empty()) {
        cx.error(
            file.span,
            "`audience` of a token issuer is empty",
            "name the audience of its tokens, such as the URL of this gateway",
        );
    }
    let algorithms =
        into_values(file.algorithms).map(|names| names.into_iter().map(to_algorithm).collect::<Vec<_>>());
    if algorithms.as_ref().is_some_and(Vec::is_empty) {
        cx.error(file.span, "`algorithms` of a token issuer is empty", "name one, or leave the key out");
    }
    match (&file.groups_claim, &file.groups) {
        (Some(_), None) => cx.error(
            file.span,
            "`groups_claim` of a token issuer has no effect without `groups`",
            "map values of the claim to groups: `groups: {platform-team: ops}`",
        ),
        (None, Some(_)) => cx.error(
            file.span,
            "`groups` of a token issuer has no effect without `groups_claim`",
            "name the claim with the groups, such as `groups_claim: groups`",
        ),
        _ => {}
    }
    let groups = file.groups.into_iter().flat_map(|at| at.value.0);
    let groups = groups
        .filter_map(|(value, name)| Some((value, builder.find_group(&name, cx)?.name.clone())))
        .collect();
    let keys = match (file.jwks_file, file.jwks_uri) {
        (Some(at), Some(_)) => {
            let hint = "keys come from one place; keep one of the two";
            cx.error(at.key_span, "`jwks_file` and `jwks_uri` of a token issuer", hint);
            return None;
        }
        (Some(at), None) => KeySource::File(resolve_file("jwks_file", &at, cx)?),
        (None, Some(at)) => {
            check_secure_url(&at, cx)?;
            KeySource::Url(at.value.expose().to_owned())
        }
        (None, None) => KeySource::Discovery,
    };
    let address = address.filter(|_| cx.problems.len() == problems_before)?;
    let of_host = || format!("{}:", address.host_str().unwrap_or_default());
    let scopes = file.scopes.map(|at| at.value.0).unwrap_or_default();
    let login = match file.login {
        Some(login) => Some(resolve_login(login.value, &address, cx)?),
        None => None,
    };
    Some(TokenIssuer {
        issuer: file.issuer?.value.expose().to_owned(),
        audience: into_values(file.audience)?,
        algorithms: algorithms.unwrap_or_else(|| SigningAlgorithm::DEFAULT.to_vec()),
        keys,
        leeway: file.leeway.map_or(HumanDuration::from_secs(30), |at| at.value),
        caller_claim: into_value(file.caller_claim).unwrap_or_else(|| "sub".to_owned()),
        caller_prefix: into_value(file.caller_prefix).unwrap_or_else(of_host),
        scope_claim: into_value(file.scope_claim).unwrap_or_else(|| "scope".to_owned()),
        scopes: scopes
            .into_iter()
            .map(|(scope, at)| (scope, at.value.into_iter().map(|it| it.value).collect()))
            .collect(),
        groups_claim: into_value(file.groups_claim),
        groups,
        person_claim: into_value(file.person_claim),
        login,
    })
}

fn resolve_login(file: JwtLoginFile, issuer: &Url, cx: &mut Context<'_>) -> Option<IssuerLogin> {
    let client_id = file.client_id?;
    if client_id.value.expose().is_empty() {
        let message = "`client_id` in `login` of a token issuer is empty";
        cx.error(client_id.span, message, "register the gateway as a client of the issuer");
        return None;
    }
    let client_secret = file.client_secret.map(|at| {
        cx.add_secret("client_secret", at.value.expose());
        Secret::new(at.value.expose())
    });
    Some(IssuerLogin {
        label: into_value(file.label).unwrap_or_else(|| issuer.host_str().unwrap_or_default().to_owned()),
        client_id: client_id.value.expose().to_owned(),
        client_secret,
        scopes: into_values(file.scopes).unwrap_or_default(),
    })
}

/// Requires `https`, or `http` on this machine, so that responses cannot be forged in transit.
fn check_secure_url(at: &Spanned<ConfigString>, cx: &mut Context<'_>) -> Option<Url> {
    check_url(at, &["https", "http"], cx)?;
    let url = Url::parse(at.value.expose()).ok()?;
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if url.scheme() == "https" || here {
        return Some(url);
    }
    let message = format!("`{}` is not a secure URL{}", at.value.redacted(), cx.location_suffix());
    cx.error(at.span, message, "use `https://`; `http://` is only allowed for this machine");
    None
}

fn to_algorithm(name: AlgorithmName) -> SigningAlgorithm {
    match name {
        AlgorithmName::Rs256 => SigningAlgorithm::RS256,
        AlgorithmName::Rs384 => SigningAlgorithm::RS384,
        AlgorithmName::Rs512 => SigningAlgorithm::RS512,
        AlgorithmName::Ps256 => SigningAlgorithm::PS256,
        AlgorithmName::Ps384 => SigningAlgorithm::PS384,
        AlgorithmName::Ps512 => SigningAlgorithm::PS512,
        AlgorithmName::Es256 => SigningAlgorithm::ES256,
        AlgorithmName::Es384 => SigningAlgorithm::ES384,
        AlgorithmName::EdDsa => SigningAlgorithm::EdDSA,
    }
}

#[cfg(test)]
mod tests {
    use crate::test_support::{loaded, messages};

    #[test]
    fn token_issuers() {
        let with =
            |serve: &str| loaded(&[("toolgate.yaml", &format!("serve: {{{serve}}}\n")), ("k.json", "")], &[]);
        let good = with("jwt: [{issuer: 'https://id.test', audience: [tools], jwks_file: k.json}]");
        assert_eq!(messages(&good), "");
        let issuer = &good.config.as_ref().unwrap().serve.jwt[0];
        assert_eq!((issuer.caller_prefix.as_str(), issuer.caller_claim.as_str()), ("id.test:", "sub"));
        assert_eq!(issuer.algorithms, toolgate_types::issuer::SigningAlgorithm::DEFAULT);
        let login = with(
            "jwt: [{issuer: 'https://id.test', audience: [tools], jwks_file: k.json, login: {client_id: gate, client_secret: a-secret-of-the-client}}]",
        );
        assert_eq!(messages(&login), "");
        let config = login.config.unwrap();
        let login = config.serve.jwt[0].login.as_ref().unwrap();
        assert_eq!((login.label.as_str(), login.client_id.as_str()), ("id.test", "gate"));
        assert!(!serde_json::to_string(&config).unwrap().contains("a-secret-of-the-client"));
        let mistakes = [
            with("jwt: [{issuer: 'https://id.test', audience: [a], login: {}}]"),
            with("jwt: [{issuer: 'https://id.test', audience: [a], login: {client_id: ''}}]"),
            with("jwt: [{issuer: 'http://id.test', audience: [tools]}]"),
            with("jwt: [{issuer: 'https://id.test'}]"),
            with("jwt: [{issuer: 'https://id.test', audience: []}]"),
            with("jwt: [{issuer: 'https://id.test', audience: [a], algorithms: [HS256]}]"),
            with("jwt: [{issuer: 'https://id.test', audience: [a], algorithms: [none]}]"),
            with("jwt: [{issuer: 'https://id.test', audience: [a], algorithms: []}]"),
            with("jwt: [{issuer: 'https://id.test', audience: [a], jwks_uri: 'http://id.test/keys'}]"),
            with(
                "jwt: [{issuer: 'https://id.test', audience: [a], jwks_uri: 'https://id.test/k', jwks_file: k.json}]",
            ),
            with("jwt: [{issuer: 'https://id.test', audience: [a], jwks_file: gone.json}]"),
            with("jwt: [{issuer: 'https://id.test', audience: [a], scopes: {mail: [everything]}}]"),
            with(
                "jwt: [{issuer: 'https://id.test', audience: [a]}, {issuer: 'https://id.test', audience: [b]}]",
            ),
            with("url: tools, anonymous: nowhere, rate_limit: {per_address: 0}"),
        ];
        let mistakes: Vec<_> = mistakes.iter().map(messages).collect();
        insta::assert_snapshot!(mistakes.join("\n"), @"
        error toolgate.yaml:1:65 missing key `client_id` in login of a token issuer (add `client_id`: a string)
        error toolgate.yaml:1:77 `client_id` in `login` of a token issuer is empty (register the gateway as a client of the issuer)
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
}
