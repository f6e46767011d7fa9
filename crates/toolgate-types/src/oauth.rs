//! OAuth settings of a server that requires a login.
//!
//! Every key is optional: most servers publish their authorization server and support dynamic client registration.

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
}
