//! The address of a client behind reverse proxies.
//!
//! Any client can send `Forwarded` and `X-Forwarded-For`, so they count only from peers in `serve.trusted_proxies`, and only
//! as far as trusted proxies wrote them: from the right, up to the first address that is not a trusted proxy. Invariant:
//! a client cannot choose its address.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http::header::{self, HeaderMap, HeaderName};
use toolgate_types::network::Network;

use crate::listener::ConnectionSource;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Peers whose forwarding headers count.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    pub(crate) fn new(networks: &[Network]) -> Self {
        Self(networks.to_vec())
    }

    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// The source of one request: that of its connection, with the address of the client behind trusted proxies.
    pub(crate) fn request_source<'a>(
        &self,
        connection: &'a ConnectionSource,
        headers: &HeaderMap,
    ) -> Cow<'a, ConnectionSource> {
        match connection {
            ConnectionSource::Network(ends, certificate) if self.contains(ends.peer) => {
                let mut ends = *ends;
                ends.client = self.client_address(ends.peer, headers);
                Cow::Owned(ConnectionSource::Network(ends, certificate.clone()))
            }
            _ => Cow::Borrowed(connection),
        }
    }

    /// The right-most address that is not a trusted proxy. An address that cannot be read ends the search at the proxy
    /// that reported it.
    fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let find = |addresses: Vec<Option<IpAddr>>| {
            let mut nearest = peer;
            for address in addresses.into_iter().rev() {
                let Some(address) = address else { break };
                nearest = address;
                if !self.contains(address) {
                    break;
                }
            }
            nearest
        };
        let forwarded = all_values(headers, &header::FORWARDED).map(|text| find(forwarded_for(&text)));
        let list = |text: String| find(text.split(',').map(|entry| parse_address(entry.trim())).collect());
        let x_forwarded = all_values(headers, &X_FORWARDED_FOR).map(list);
        match (forwarded, x_forwarded) {
            (Some(address), None) | (None, Some(address)) => address,
            // A proxy writes one of the two headers. If they contradict each other, the other one is from the client.
            (Some(one), Some(other)) if one == other => one,
            (Some(_), Some(_)) | (None, None) => peer,
        }
    }
}

/// Headers that proxies, load balancers and content delivery networks add, besides `X-Forwarded-*`.
const PROXY_HEADERS: [&str; 23] = [
    "ali-cdn-real-ip",
    "cdn-loop",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-ray",
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "proxy-connection",
    "true-client-ip",
    "via",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-forwarded",
    "x-original-forwarded-for",
    "x-original-host",
    "x-real-ip",
    "x-remote-addr",
];

/// Returns true if a request has a header that proxies add.
pub(super) fn has_proxy_header(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| {
        let name = name.as_str();
        name.starts_with("x-forwarded-") || PROXY_HEADERS.contains(&name)
    })
}

/// Returns true if a browser made the request for a page of another origin. Pages cannot set or remove this header.
pub(super) fn is_cross_site(headers: &HeaderMap) -> bool {
    let is_ours = |site: &[u8]| site == b"same-origin" || site == b"none";
    headers.get_all(SEC_FETCH_SITE).iter().any(|site| !is_ours(site.as_bytes()))
}

/// All values of a header as one list. `None` if there is none.
fn all_values(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values: Vec<_> =
        headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// The `for` parameter of each element of a `Forwarded` header (RFC 7239).
fn forwarded_for(text: &str) -> Vec<Option<IpAddr>> {
    let node = |element: &str| {
        let mut pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
        let (_, value) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
        parse_address(value.trim().trim_matches('"'))
    };
    // An address contains neither commas nor semicolons. A quoted string that does makes an element unreadable.
    text.split(',').map(node).collect()
}

/// Parses an address, with or without a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let plain = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address = text.parse::<IpAddr>().ok().or_else(plain);
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(headers: &[(&'static str, &str)]) -> String {
        let proxies = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        TrustedProxies::new(&proxies).client_address([10, 0, 0, 1].into(), &map).to_string()
    }

    #[test]
    fn finds_the_first_untrusted_address_from_the_right() {
        let of = |value: &str| client(&[("x-forwarded-for", value)]);
        assert_eq!(of("203.0.113.7"), "203.0.113.7");
        assert_eq!(of("1.1.1.1, 203.0.113.7, 10.0.0.2"), "203.0.113.7", "1.1.1.1 is what the client says");
        assert_eq!(of("203.0.113.7:4711"), "203.0.113.7");
        assert_eq!(of("[2001:db8::1]:4711, fd00::1"), "2001:db8::1");
        assert_eq!(of("::ffff:203.0.113.7"), "203.0.113.7");
        assert_eq!(of("10.0.0.3, 10.0.0.2"), "10.0.0.3", "all of them are proxies");
        assert_eq!(of("203.0.113.7, unknown, 10.0.0.2"), "10.0.0.2", "unreadable");
        assert_eq!(of(""), "10.0.0.1");
        let twice = [("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "203.0.113.7")];
        assert_eq!(client(&twice), "203.0.113.7", "the last line is the newest");
    }

    #[test]
    fn reads_the_standard_header() {
        let of = |value: &str| client(&[("forwarded", value)]);
        assert_eq!(of("for=203.0.113.7;proto=https;by=10.0.0.1"), "203.0.113.7");
        assert_eq!(of("for=1.1.1.1, For=\"[2001:db8::1]:80\";host=a"), "2001:db8::1");
        assert_eq!(of("for=203.0.113.7, for=10.0.0.2"), "203.0.113.7");
        assert_eq!(of("for=203.0.113.7, for=_hidden"), "10.0.0.1");
        assert_eq!(of("proto=https"), "10.0.0.1");
    }

    #[test]
    fn contradicting_headers_are_not_believed() {
        let both = |one: &str, other: &str| client(&[("forwarded", one), ("x-forwarded-for", other)]);
        assert_eq!(both("for=203.0.113.7", "203.0.113.7"), "203.0.113.7");
        assert_eq!(both("for=1.1.1.1", "203.0.113.7"), "10.0.0.1");
    }

    proptest! {
        /// The address that the trusted proxy appends is found, after anything that a client sends.
        #[test]
        fn a_client_cannot_choose_its_address(sent in "[ -~]{0,60}") {
            let header = format!("{sent}, 203.0.113.7");
            prop_assert_eq!(client(&[("x-forwarded-for", &header)]), "203.0.113.7");
            let header = format!("{sent}, for=203.0.113.7");
            prop_assert_eq!(client(&[("forwarded", &header)]), "203.0.113.7");
        }
    }
}
