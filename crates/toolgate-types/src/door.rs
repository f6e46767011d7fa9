//! How the door is kept: where it is, for whom it opens, and what it bears.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;

use crate::issuer::Issuer;
use crate::key::KeyHash;
use crate::network::Network;
use crate::size::ByteSize;
use crate::tool::RateLimit;

/// The longest name of a host.
const LONGEST_HOST: usize = 253;

/// `serve` in the project file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoorRules {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Names under which it is reached, beside those of the machine itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostName>,
    /// The largest request.
    pub max_body: ByteSize,
    /// Connections at the same time.
    pub max_connections: NonZeroU32,
    /// Those of one address.
    pub max_connections_per_address: NonZeroU32,
    /// Networks that are not the internet and in which servers may be all the same that are registered over HTTP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_networks: Vec<Network>,
    /// Programs that servers which are registered over HTTP may run; any where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_commands: Option<Vec<String>>,
    /// By which certificate it is known; without it there is no TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<DoorTls>,
    /// Under which address the world knows it, where that is not what requests say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whose tokens say who somebody is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jwt: Vec<Issuer>,
    /// From where one may come without saying who one is.
    #[serde(skip_serializing_if = "AnonymousReach::is_usual")]
    pub anonymous: AnonymousReach,
    /// How many requests one address may make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_address: Option<RateLimit>,
    /// How many requests one caller may make.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_caller: Option<RateLimit>,
}

/// From where one may come without saying who one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AnonymousReach {
    /// This machine, and not through a proxy.
    Loopback,
    /// Anywhere.
    Everywhere,
}

impl AnonymousReach {
    fn is_usual(&self) -> bool {
        *self == Self::Loopback
    }
}

/// `serve.tls`: who we are, and by which authorities callers are known. The files are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoorTls {
    /// The certificate, with those between it and its authority.
    pub cert: PathBuf,
    /// Its private key; it may be in the same file.
    pub key: PathBuf,
    /// The authorities whose certificates callers may show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Whether nobody gets in without one.
    pub client_certificate: ClientCertificate,
}

/// Whether callers must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientCertificate {
    /// No connection without one.
    Required,
    /// Whoever shows none is known by something else.
    Optional,
}

/// By which certificate a caller is known: all that is said must fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CertificateMatch {
    /// A name in it: of a host, or a URI such as `spiffe://example.com/ci`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub san: Option<String>,
    /// The SHA-256 of the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<KeyHash>,
}

impl Default for DoorRules {
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
            allow_networks: Vec::new(),
            allow_commands: None,
            tls: None,
            url: None,
            jwt: Vec::new(),
            anonymous: AnonymousReach::Loopback,
            requests_per_address: None,
            requests_per_caller: None,
        }
    }
}

/// The name of a host, in lower case and without a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct HostName(Box<str>);

/// A text is not the name of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a host has letters, digits, `.` and `-`, such as `tools.example.com`, and no port")]
pub struct HostNameError;

impl HostName {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let fits = (1..=LONGEST_HOST).contains(&text.len()) && text.chars().all(good);
        if fits { Ok(Self(text.to_ascii_lowercase().into())) } else { Err(HostNameError) }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[test]
fn hosts() {
    assert_eq!("Tools.Example.COM".parse::<HostName>().unwrap().as_str(), "tools.example.com");
    for bad in ["", "a:80", "http://a", "a b", "*.example.com", "[::1]"] {
        assert_eq!(bad.parse::<HostName>(), Err(HostNameError), "{bad}");
    }
}
