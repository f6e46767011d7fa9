//! A URL that may be opened in a browser.
//!
//! Servers and their metadata choose such URLs, and the system opens any scheme with some application. Invariant: the
//! URL is `https`, or `http` on this machine, and its host is not ambiguous.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::{Host, Url};

/// A URL that may be opened in a browser: `https`, or `http` on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrowserUrl(Url);

/// The URL must not be opened in a browser.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a URL with {0} is not opened in a browser; only `https` is, and `http` on this machine")]
pub struct BrowserUrlError(String);

impl BrowserUrl {
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Host name or address, and the port if it is not the default one.
    pub fn host(&self) -> String {
        let port = self.0.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}{port}", self.0.host_str().unwrap_or_default())
    }
}

impl fmt::Display for BrowserUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<Url> for BrowserUrl {
    type Error = BrowserUrlError;

    fn try_from(url: Url) -> Result<Self, BrowserUrlError> {
        match url.scheme() {
            // People read the part before `@` as the host.
            _ if !url.username().is_empty() || url.password().is_some() => {
                Err(BrowserUrlError("a user name".to_owned()))
            }
            "https" if url.has_host() => Ok(Self(url)),
            "http" if is_loopback(&url) => Ok(Self(url)),
            "http" => Err(BrowserUrlError("plain http".to_owned())),
            // Letters, digits, `+`, `-` and `.`: safe to show.
            scheme => {
                Err(BrowserUrlError(format!("the scheme `{}`", scheme.chars().take(32).collect::<String>())))
            }
        }
    }
}

impl FromStr for BrowserUrl {
    type Err = BrowserUrlError;

    fn from_str(text: &str) -> Result<Self, BrowserUrlError> {
        let url = Url::parse(text).map_err(|_| BrowserUrlError("no valid host".to_owned()))?;
        Self::try_from(url)
    }
}

/// Returns true if a URL names this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).to_canonical().is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_https_and_local_http() {
        for url in
            ["https://example.com/a?b=c", "http://127.0.0.1:8080/", "http://[::1]/", "http://localhost/x"]
        {
            assert!(url.parse::<BrowserUrl>().is_ok(), "{url}");
        }
        for url in [
            "http://example.com/",
            "http://10.0.0.1/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:text/html,x",
            "vscode://file/x",
            "ftp://example.com/",
            "https://good.example@evil.example/",
            "https://",
            "-https://example.com",
            "",
        ] {
            assert!(url.parse::<BrowserUrl>().is_err(), "{url}");
        }
    }

    #[test]
    fn shows_host_and_reason() {
        let url: BrowserUrl = "https://Login.Example.com:8443/x".parse().unwrap();
        assert_eq!(url.host(), "login.example.com:8443");
        assert_eq!(
            "vscode://x".parse::<BrowserUrl>().unwrap_err().to_string(),
            "a URL with the scheme `vscode` is not opened in a browser; only `https` is, and `http` on this machine"
        );
    }
}
