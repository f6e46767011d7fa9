//! OAuth settings of a server that requires a login.
//!
//! Every key is optional: most servers publish their authorization server and support dynamic client registration.

use std::path::PathBuf;

use serde::Serialize;

use crate::ConfigString;

/// `oauth` of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OauthConfig {
    pub grant: OauthGrant,
    /// Issuer of the only authorization server that is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Client ID, if a client was registered beforehand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<ConfigString>,
    /// Client secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<ConfigString>,
    /// Private key of the client as PEM, used instead of a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key: Option<ConfigString>,
    /// URL of a client metadata document, for authorization servers that support it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_metadata_url: Option<ConfigString>,
    /// Scopes to request, besides those the server asks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Local port of the redirect URI. Any free port if omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_port: Option<u16>,
    /// File with the token that is exchanged, or with the identity of the workload. Read for every request, because
    /// platforms replace it. `None` exchanges the token of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_token_file: Option<PathBuf>,
    /// Type of the exchanged token.
    #[serde(skip_serializing_if = "SubjectTokenType::is_default")]
    pub subject_token_type: SubjectTokenType,
    /// Audience of the token that is requested by an exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Identity provider that asserts the identity of the caller to the authorization server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_provider: Option<IdentityProvider>,
    /// Use of tokens that are bound to a key.
    #[serde(skip_serializing_if = "DpopMode::is_default")]
    pub dpop: DpopMode,
}

/// `identity_provider` of `oauth`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdentityProvider {
    /// Issuer whose metadata names the token endpoint.
    pub issuer: String,
    /// Client ID at the identity provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<ConfigString>,
    /// Client secret at the identity provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<ConfigString>,
}

/// Type of a token that is exchanged (RFC 8693).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SubjectTokenType {
    /// An ID token for the identity assertion grant, otherwise an access token.
    #[default]
    Auto,
    AccessToken,
    IdToken,
    Jwt,
}

impl SubjectTokenType {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Use of tokens that are bound to a key of the gateway (DPoP, RFC 9449).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DpopMode {
    /// If the authorization server supports them.
    #[default]
    Auto,
    /// Always. A token that is not bound is rejected.
    Required,
    Off,
}

impl DpopMode {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Grant type used to obtain a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OauthGrant {
    /// A person logs in with a browser.
    #[default]
    AuthorizationCode,
    /// The client authenticates as itself.
    ClientCredentials,
    /// The token of the caller is exchanged for one of the server (RFC 8693).
    TokenExchange,
    /// The identity provider asserts the identity of the caller to the authorization server of the server (identity
    /// assertion grant, used by enterprise-managed authorization).
    IdentityAssertion,
    /// A JWT that the platform issued to this workload is the grant (RFC 7523).
    WorkloadIdentity,
}

impl OauthGrant {
    /// Name in configuration and messages.
    pub fn label(self) -> &'static str {
        match self {
            Self::AuthorizationCode => "authorization_code",
            Self::ClientCredentials => "client_credentials",
            Self::TokenExchange => "token_exchange",
            Self::IdentityAssertion => "identity_assertion",
            Self::WorkloadIdentity => "workload_identity",
        }
    }

    /// Returns true if a person has to log in with a browser.
    pub fn needs_browser(self) -> bool {
        self == Self::AuthorizationCode
    }

    /// Returns true if it exchanges the token of a caller.
    pub fn exchanges_token(self) -> bool {
        matches!(self, Self::TokenExchange | Self::IdentityAssertion)
    }
}
