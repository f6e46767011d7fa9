//! Settings of the gateway's listener: address, TLS, authentication and limits.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use crate::caller::GroupName;
use crate::issuer::TokenIssuer;
use crate::key::KeyHash;
use crate::network::Network;
use crate::size::ByteSize;
use crate::tool::RateLimit;

/// Longest host name DNS allows.
const MAX_HOST_LENGTH: usize = 253;

/// `serve` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServeConfig {
    /// Address the gateway listens on.
    pub listen: SocketAddr,
    /// Host names of the gateway, besides those of the machine itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostName>,
    /// Largest request body.
    pub max_body: ByteSize,
    /// Concurrent connections.
    pub max_connections: NonZeroU32,
    /// Concurrent connections from one IP address.
    pub max_connections_per_address: NonZeroU32,
    /// Concurrent streams and WebSockets of one caller.
    pub max_streams_per_caller: NonZeroU32,
    /// Reverse proxies whose forwarding headers name the client.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<Network>,
    /// Non-public networks allowed for servers registered over HTTP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_networks: Vec<Network>,
    /// Programs that servers registered over HTTP may run. `None` allows every program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_commands: Option<Vec<String>>,
    /// Certificate of the gateway. Without it the gateway speaks plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ServeTls>,
    /// Public URL of the gateway, if it differs from the `Host` of requests (behind a reverse proxy).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Issuers whose JWTs authenticate callers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jwt: Vec<TokenIssuer>,
    /// Peers whose requests need no credential.
    #[serde(skip_serializing_if = "AnonymousAccess::is_default")]
    pub anonymous: AnonymousAccess,
    /// Request rate limit of one IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_address: Option<RateLimit>,
    /// Request rate limit of one caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_caller: Option<RateLimit>,
}

/// Peers whose requests need no credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AnonymousAccess {
    /// Only this machine, and not through a proxy.
    Loopback,
    /// Every address, but not through a proxy that is not trusted.
    Everywhere,
}

impl AnonymousAccess {
    fn is_default(&self) -> bool {
        *self == Self::Loopback
    }
}

/// `serve.tls`: the gateway's certificate, and the authorities that sign client certificates. The files are reloaded
/// when they change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServeTls {
    /// Certificate chain of the gateway.
    pub cert: PathBuf,
    /// Private key of the certificate; may be in the same file.
    pub key: PathBuf,
    /// Authorities that sign client certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Requirement of a client certificate.
    pub client_certificate: ClientCertificate,
}

/// Requirement of a client certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificate {
    /// Connections without a client certificate are closed.
    Required,
    /// Clients without a certificate authenticate with another credential.
    Optional,
}

/// Client certificate that identifies a caller. Every given condition must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CertificateMatch {
    /// Subject alternative name: a host name, or a URI such as `spiffe://example.com/ci`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub san: Option<String>,
    /// SHA-256 of the whole certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<KeyHash>,
    /// Groups that the caller is in while it shows this certificate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupName>,
}

impl CertificateMatch {
    /// Returns true if two entries match the same certificates.
    pub fn has_same_conditions(&self, other: &Self) -> bool {
        self.san == other.san && self.sha256 == other.sha256
    }
}

impl Default for ServeConfig {
    fn default() -> Self {
        const fn number(number: u32) -> NonZeroU32 {
            NonZeroU32::new(number).expect("it is not zero")
        }
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7332)),
            hosts: Vec::new(),
            max_body: ByteSize::from_mib(4),
            max_connections: const { number(2000) },
            max_connections_per_address: const { number(1000) },
            max_streams_per_caller: const { number(256) },
            trusted_proxies: Vec::new(),
            allow_networks: Vec::new(),
            allow_commands: None,
            tls: None,
            url: None,
            jwt: Vec::new(),
            anonymous: AnonymousAccess::Loopback,
            requests_per_address: None,
            requests_per_caller: None,
        }
    }
}

/// Host name in lower case, without a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct HostName(Box<str>);

/// The string is not a host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a host has letters, digits, `.` and `-`, such as `tools.example.com`, and no port")]
pub struct HostNameError;

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let fits = (1..=MAX_HOST_LENGTH).contains(&text.len()) && text.chars().all(good);
        if fits { Ok(Self(text.to_ascii_lowercase().into())) } else { Err(HostNameError) }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[test]
fn parses_host_names() {
    assert_eq!("Tools.Example.COM".parse::<HostName>().unwrap().as_str(), "tools.example.com");
    for bad in ["", "a:80", "http://a", "a b", "*.example.com", "[::1]"] {
        assert_eq!(bad.parse::<HostName>(), Err(HostNameError), "{bad}");
    }
}
