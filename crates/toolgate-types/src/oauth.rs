//! How a server that wants a login is logged in to.
//!
//! Everything may be left out: most servers say where to log in and take clients they never met.

use serde::Serialize;

use crate::Text;

/// `oauth` of a server.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Oauth {
    /// How a token is come by.
    pub grant: Grant,
    /// The client, where one was registered beforehand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<Text>,
    /// Its secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Text>,
    /// Its private key as PEM, in the place of a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_key: Option<Text>,
    /// Where a document describes the client, for servers that read it there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_metadata_url: Option<Text>,
    /// What is asked for, beside what the server asks for itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The port on which the answer of the browser is awaited; any free one where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect_port: Option<u16>,
}

/// How a token is come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// A person logs in with a browser.
    #[default]
    AuthorizationCode,
    /// The client logs in by itself.
    ClientCredentials,
}
