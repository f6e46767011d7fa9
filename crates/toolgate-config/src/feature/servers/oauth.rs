//! `oauth` of a server: the OAuth 2.1 login.

use std::num::NonZeroU16;

use toolgate_types::oauth::{DpopMode, IdentityProvider, OauthConfig, OauthGrant, SubjectTokenType};
use toolgate_types::{BrowserUrl, ConfigString};
use url::Url;

use crate::context::Context;
use crate::keys::{Spanned, choice, into_value, into_values, keys, read_by_parsing};
use crate::source::Span;

keys! {
    /// OAuth 2.1 login to a server. Without `client_id`, Toolgate registers itself as a client.
    struct OauthFile as "oauth" {
        /// OAuth grant: `authorization_code` logs a person in with a browser, `client_credentials` authenticates
        /// Toolgate as the client. `token_exchange` and `identity_assertion` exchange the token of the caller, and
        /// `workload_identity` uses a token that the platform issued to Toolgate; these three need `issuer`.
        grant: GrantName = "authorization_code",
        /// Issuer of the authorization server, such as `https://login.example.com`. No other one is used. Required
        /// for `client_secret` if the authorization server is not on the origin of the MCP server.
        issuer: String,
        /// File with the token to exchange, or with the token of the workload. It is read for every request, because
        /// platforms replace it. Default, with `auth: caller`: the token that the caller showed to the gateway.
        subject_token_file: ConfigString,
        /// Type of the token that is exchanged. Default: `id_token` for `identity_assertion`, otherwise `access_token`.
        subject_token_type: SubjectTypeName,
        /// Audience of the token that `token_exchange` requests, if the authorization server needs one besides the URL
        /// of the MCP server.
        audience: String,
        /// Identity provider of `identity_assertion`: it asserts the identity of the caller to `issuer`.
        identity_provider: ProviderFile,
        /// Tokens that are bound to a key of Toolgate (DPoP), so that a stolen one is of no use. `auto` uses them if the
        /// authorization server supports them, `required` rejects all others.
        dpop: DpopName = "auto",
        /// Client id, if a client is already registered.
        client_id ("clientId"): ConfigString,
        /// Client secret. Sent only to `issuer`; without `issuer`, only to the origin of the MCP server.
        client_secret ("clientSecret"): ConfigString,
        /// Private key of the client in PEM, in place of `client_secret`, for `client_credentials`.
        private_key: ConfigString,
        /// `https://` URL of a client metadata document, for authorization servers that support it. Used if
        /// there is no `client_id`.
        client_metadata_url: ConfigString,
        /// Scopes to request, in addition to those the server asks for.
        scopes: Vec<Spanned<String>>,
        /// Local port for the browser redirect. Default: any free port.
        redirect_port ("callbackPort"): NonZeroU16,
    }
}

choice! {
    /// OAuth grant used to obtain a token.
    enum GrantName as "a grant" {
        /// A person logs in with a browser.
        AuthorizationCode = "authorization_code",
        /// Toolgate authenticates as the client, without a person.
        ClientCredentials = "client_credentials",
        /// The token of the caller is exchanged for one of the server (RFC 8693).
        TokenExchange = "token_exchange",
        /// An identity provider asserts the identity of the caller to the authorization server (enterprise-managed
        /// authorization).
        IdentityAssertion = "identity_assertion",
        /// A token of the platform is exchanged, without a secret (RFC 7523).
        WorkloadIdentity = "workload_identity",
    }
}

choice! {
    /// Type of an exchanged token.
    enum SubjectTypeName as "a token type" {
        /// An OAuth access token.
        AccessToken = "access_token",
        /// An OpenID Connect ID token.
        IdToken = "id_token",
        /// Any other JWT.
        Jwt = "jwt",
    }
}

choice! {
    /// Use of tokens that are bound to a key.
    enum DpopName as "a mode of DPoP" {
        /// If the authorization server supports them.
        Auto = "auto",
        /// Always.
        Required = "required",
        /// Never.
        Off = "off",
    }
}

keys! {
    /// Identity provider that callers log in to.
    struct ProviderFile as "identity_provider" {
        /// Issuer of the identity provider, such as `https://login.example.com`.
        issuer: String; required,
        /// Client id at the identity provider.
        client_id: ConfigString,
        /// Client secret at the identity provider.
        client_secret: ConfigString,
    }
}

read_by_parsing! {
    NonZeroU16: "a port", { "type": "integer", "minimum": 1, "maximum": 65535 };
}

/// Resolves the login settings. Reports a problem and returns `None` if they cannot work.
pub(super) fn resolve_oauth(
    Spanned { value: file, key_span, .. }: Spanned<OauthFile>,
    cx: &mut Context<'_>,
) -> Option<OauthConfig> {
    let given = |key: &str| file.present_keys.contains(&key);
    if let Some(secret) = file.client_secret.as_ref().filter(|_| !given("client_id")) {
        let message = format!("`client_secret` without `client_id`{}", cx.location_suffix());
        cx.error(secret.key_span, message, "add the `client_id` that the secret belongs to");
        return None;
    }
    let grant = match file.grant.as_ref().map(|at| at.value) {
        Some(GrantName::ClientCredentials) => OauthGrant::ClientCredentials,
        Some(GrantName::TokenExchange) => OauthGrant::TokenExchange,
        Some(GrantName::IdentityAssertion) => OauthGrant::IdentityAssertion,
        Some(GrantName::WorkloadIdentity) => OauthGrant::WorkloadIdentity,
        Some(GrantName::AuthorizationCode) | None => OauthGrant::AuthorizationCode,
    };
    check_exchange(grant, &file, key_span, cx)?;
    let proof = given("client_secret") || given("private_key");
    if grant == OauthGrant::ClientCredentials && !(given("client_id") && proof) {
        let message = format!("`grant: client_credentials` without credentials{}", cx.location_suffix());
        cx.error(key_span, message, "add `client_id`, and `client_secret` or `private_key`");
        return None;
    }
    if let Some(document) = &file.client_metadata_url
        && !Url::parse(document.value.expose()).is_ok_and(|url| url.scheme() == "https" && url.path() != "/")
    {
        let message =
            format!("`{}` is not the URL of a client{}", document.value.redacted(), cx.location_suffix());
        cx.error(document.span, message, "use an `https://` URL with a path");
        return None;
    }
    if let Some(issuer) = &file.issuer
        && !is_issuer(&issuer.value)
    {
        let message = format!("`{}` is not the URL of an issuer{}", issuer.value, cx.location_suffix());
        cx.error(
            issuer.span,
            message,
            "use the `https://` URL of the authorization server, as it names itself",
        );
        return None;
    }
    let identity_provider = match file.identity_provider {
        Some(provider) => Some(resolve_provider(provider.value, cx)?),
        None => None,
    };
    let subject_token_file = match &file.subject_token_file {
        // The platform may create it after the start.
        Some(at) => Some(cx.project.join(at.value.expose())),
        None => None,
    };
    let mut hidden = |name: &str, text: Option<Spanned<ConfigString>>| {
        text.map(|at| {
            cx.add_secret(name, at.value.expose());
            ConfigString::hidden(at.value.expose())
        })
    };
    Some(OauthConfig {
        grant,
        issuer: into_value(file.issuer),
        client_secret: hidden("client_secret", file.client_secret),
        private_key: hidden("private_key", file.private_key),
        client_id: into_value(file.client_id),
        client_metadata_url: into_value(file.client_metadata_url),
        scopes: into_values(file.scopes).unwrap_or_default(),
        redirect_port: into_value(file.redirect_port).map(NonZeroU16::get),
        subject_token_file,
        subject_token_type: match into_value(file.subject_token_type) {
            None => SubjectTokenType::Auto,
            Some(SubjectTypeName::AccessToken) => SubjectTokenType::AccessToken,
            Some(SubjectTypeName::IdToken) => SubjectTokenType::IdToken,
            Some(SubjectTypeName::Jwt) => SubjectTokenType::Jwt,
        },
        audience: into_value(file.audience),
        identity_provider,
        dpop: match into_value(file.dpop) {
            None | Some(DpopName::Auto) => DpopMode::Auto,
            Some(DpopName::Required) => DpopMode::Required,
            Some(DpopName::Off) => DpopMode::Off,
        },
    })
}

/// Checks the keys of the grants that exchange a token.
fn check_exchange(grant: OauthGrant, file: &OauthFile, key_span: Span, cx: &mut Context<'_>) -> Option<()> {
    let given = |key: &str| file.present_keys.contains(&key);
    let label = grant.label();
    let is_exchange = grant.exchanges_token() || grant == OauthGrant::WorkloadIdentity;
    let needed = [
        ("issuer", is_exchange, "name the authorization server: a token is sent to no other one"),
        (
            "subject_token_file",
            grant == OauthGrant::WorkloadIdentity,
            "name the file with the token of the platform",
        ),
        (
            "identity_provider",
            grant == OauthGrant::IdentityAssertion,
            "name the provider that callers log in to",
        ),
    ];
    if let Some((key, _, hint)) = needed.into_iter().find(|(key, is_needed, _)| *is_needed && !given(key)) {
        cx.error(key_span, format!("`grant: {label}` needs `{key}`{}", cx.location_suffix()), hint);
        return None;
    }
    let unused = [
        ("subject_token_file", is_exchange),
        ("subject_token_type", grant.exchanges_token()),
        ("audience", grant == OauthGrant::TokenExchange),
        ("identity_provider", grant == OauthGrant::IdentityAssertion),
    ];
    if let Some((key, _)) = unused.into_iter().find(|(key, is_used)| !is_used && given(key)) {
        let message = format!("`{key}` does not fit `grant: {label}`{}", cx.location_suffix());
        cx.error(key_span, message, "remove it, or choose another `grant`");
        return None;
    }
    Some(())
}

fn resolve_provider(file: ProviderFile, cx: &mut Context<'_>) -> Option<IdentityProvider> {
    let issuer = file.issuer?;
    if !is_issuer(&issuer.value) {
        let message = format!("`{}` is not the URL of an issuer{}", issuer.value, cx.location_suffix());
        cx.error(issuer.span, message, "use the `https://` URL of the identity provider, as it names itself");
        return None;
    }
    let client_secret = file.client_secret.map(|at| {
        cx.add_secret("client_secret", at.value.expose());
        ConfigString::hidden(at.value.expose())
    });
    Some(IdentityProvider { issuer: issuer.value, client_id: into_value(file.client_id), client_secret })
}

/// True for an `https` URL, or an `http` URL on this machine, without query and fragment.
fn is_issuer(text: &str) -> bool {
    let plain = |url: &Url| url.query().is_none() && url.fragment().is_none();
    Url::parse(text).is_ok_and(|url| plain(&url) && BrowserUrl::try_from(url).is_ok())
}

#[cfg(test)]
mod tests {
    use crate::feature::servers::tests::{bad_server, good_server};

    #[test]
    fn checks_oauth() {
        let login = |keys: &str| format!("url: 'http://h', oauth: {{{keys}}}");
        good_server(&login(""));
        good_server(&login("client_id: a, client_secret: b, scopes: [a, 'b:c'], redirect_port: 8080"));
        good_server(&login("grant: client_credentials, client_id: a, private_key: b"));
        good_server(&login("client_metadata_url: 'https://example.com/client.json'"));
        bad_server(&login("client_secret: b"), "`client_secret` without `client_id` in MCP server `a`");
        for keys in ["", ", client_id: a", ", private_key: b"] {
            bad_server(
                &login(&format!("grant: client_credentials{keys}")),
                "`grant: client_credentials` without credentials in MCP server `a`",
            );
        }
        for url in ["http://example.com/client.json", "https://example.com", "client.json"] {
            bad_server(
                &login(&format!("client_metadata_url: '{url}'")),
                &format!("`{url}` is not the URL of a client in MCP server `a`"),
            );
        }
        for port in ["0", "65536", "-1", "x"] {
            bad_server(
                &login(&format!("redirect_port: {port}")),
                &format!("`{port}` is not a port in oauth"),
            );
        }
        good_server(&login("issuer: 'https://login.example.com/tenant'"));
        good_server(&login("issuer: 'http://127.0.0.1:8080'"));
        for issuer in ["login.example.com", "http://example.com", "https://example.com/?a=b", "file:///x"] {
            bad_server(
                &login(&format!("issuer: '{issuer}'")),
                &format!("`{issuer}` is not the URL of an issuer in MCP server `a`"),
            );
        }
        let issuer = "issuer: 'https://login.example.com'";
        let workload =
            format!("grant: workload_identity, {issuer}, subject_token_file: token.jwt, dpop: required");
        good_server(&login(&workload));
        let provider =
            "identity_provider: {issuer: 'https://id.example.com', client_id: a, client_secret: b}";
        good_server(&login(&format!(
            "grant: identity_assertion, {issuer}, {provider}, subject_token_file: t, subject_token_type: jwt"
        )));
        good_server(&login(&format!("grant: token_exchange, {issuer}, subject_token_file: t, audience: a")));
        bad_server(
            &login("grant: workload_identity, subject_token_file: t"),
            "`grant: workload_identity` needs `issuer` in MCP server `a`",
        );
        bad_server(
            &login(&format!("grant: workload_identity, {issuer}")),
            "`grant: workload_identity` needs `subject_token_file` in MCP server `a`",
        );
        bad_server(
            &login(&format!("grant: identity_assertion, {issuer}, subject_token_file: t")),
            "`grant: identity_assertion` needs `identity_provider` in MCP server `a`",
        );
        bad_server(
            &login("subject_token_file: t"),
            "`subject_token_file` does not fit `grant: authorization_code` in MCP server `a`",
        );
        bad_server(&login("grant: password"), "`password` is not a grant in oauth");
        bad_server("url: 'ws://h', oauth: {}", "`oauth` does not fit a `websocket` server in MCP server `a`");
    }
}
