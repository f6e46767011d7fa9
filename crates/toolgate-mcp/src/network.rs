//! The table of networks that are not the public internet, and the addresses that a server may be connected to.
//!
//! The table is our own: `is_private` and its relatives in the standard library let carrier-grade NAT and benchmarking
//! networks pass, and IPv6 addresses that embed an IPv4 address. Invariant: an address is classified by where its
//! packets would go, in whatever form it is written; and it is checked for every connection, on the address that the
//! connection uses, so that a DNS record that changes later leads nowhere else.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use toolgate_types::browser_url::is_loopback;
use toolgate_types::network::Network;
use url::{Host, Url};

const fn ipv4(address: [u8; 4], bits: u8) -> Network {
    let [a, b, c, d] = address;
    Network::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits)
}

const fn ipv6(start: [u16; 6], bits: u8) -> Network {
    let [a, b, c, d, e, f] = start;
    Network::new(IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, 0, 0)), bits)
}

/// Networks that are not the public internet, each with a description for messages. The first match wins.
const NON_PUBLIC: [(Network, &str); 28] = [
    (ipv4([127, 0, 0, 0], 8), "this machine"),
    (ipv4([0, 0, 0, 0], 8), "this machine"),
    (ipv4([169, 254, 169, 254], 32), "a cloud metadata service"),
    (ipv4([169, 254, 0, 0], 16), "a link-local network"),
    (ipv4([168, 63, 129, 16], 32), "a cloud metadata service"),
    (ipv4([100, 100, 100, 200], 32), "a cloud metadata service"),
    (ipv4([192, 0, 0, 192], 32), "a cloud metadata service"),
    (ipv4([10, 0, 0, 0], 8), "a private network"),
    (ipv4([172, 16, 0, 0], 12), "a private network"),
    (ipv4([192, 168, 0, 0], 16), "a private network"),
    (ipv4([100, 64, 0, 0], 10), "a carrier-grade NAT network"),
    (ipv4([192, 0, 0, 0], 24), "a reserved network"),
    (ipv4([192, 0, 2, 0], 24), "a documentation network"),
    (ipv4([192, 88, 99, 0], 24), "a 6to4 relay network"),
    (ipv4([198, 18, 0, 0], 15), "a benchmarking network"),
    (ipv4([198, 51, 100, 0], 24), "a documentation network"),
    (ipv4([203, 0, 113, 0], 24), "a documentation network"),
    (ipv4([224, 0, 0, 0], 4), "a multicast network"),
    (ipv4([240, 0, 0, 0], 4), "a reserved network"),
    (ipv6([0, 0, 0, 0, 0, 0], 96), "this machine"),
    (ipv6([0x64, 0xff9b, 1, 0, 0, 0], 48), "a private network"),
    (ipv6([0x100, 0, 0, 0, 0, 0], 64), "a discard-only network"),
    (ipv6([0x2001, 0, 0, 0, 0, 0], 23), "a reserved network"),
    (ipv6([0x2001, 0xdb8, 0, 0, 0, 0], 32), "a documentation network"),
    (ipv6([0xfc00, 0, 0, 0, 0, 0], 7), "a private network"),
    (ipv6([0xfe80, 0, 0, 0, 0, 0], 10), "a link-local network"),
    (ipv6([0xfec0, 0, 0, 0, 0, 0], 10), "a private network"),
    (ipv6([0xff00, 0, 0, 0, 0, 0], 8), "a multicast network"),
];

/// Describes the network of an address. `None` if the address is on the public internet.
pub fn non_public_network(address: IpAddr) -> Option<&'static str> {
    // An IPv6 address that embeds an IPv4 address is also classified as that one: packets may end up there.
    let candidates = std::iter::once(address.to_canonical()).chain(embedded_ipv4(address).map(IpAddr::V4));
    let find = |address: IpAddr| NON_PUBLIC.iter().find(|(network, _)| network.contains(address));
    candidates.filter_map(find).map(|(_, description)| *description).next()
}

/// Returns the IPv4 address that an IPv6 address embeds: NAT64, IPv4-mapped, IPv4-translated, ISATAP, 6to4.
fn embedded_ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else { return None };
    let of = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low]
        | [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

/// An address that is not allowed. Nothing was sent to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its host `{host}` leads to {network}; that network is not allowed")]
pub struct BlockedAddress {
    pub host: String,
    pub network: &'static str,
}

impl BlockedAddress {
    /// Finds this error in a chain of sources.
    pub fn find<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(blocked) = error.downcast_ref::<Self>() {
                return Some(blocked);
            }
            // `source` of an I/O error skips the error it holds.
            cause = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(held) => Some(held),
                None => error.source(),
            };
        }
        None
    }
}

/// Addresses that connections of one server or API may use: the public internet and the listed networks.
#[derive(Debug, Clone, Default)]
pub struct AddressPolicy {
    networks: Arc<[Network]>,
    /// Address in the URL of the server.
    own: Option<IpAddr>,
    loopback: bool,
    private: bool,
}

impl AddressPolicy {
    /// Allows the public internet and these networks.
    pub fn listed(networks: &[Network]) -> Self {
        Self { networks: networks.into(), ..Self::default() }
    }

    /// Allows the networks that the operator lists for a server. Without a list, the URL decides: an address stands for
    /// itself, and a name may lead to a private network, but not to this machine or a link-local address.
    pub fn of_server(url: &Url, listed: Option<&[Network]>) -> Self {
        if let Some(networks) = listed {
            return Self::listed(networks);
        }
        let own = literal_address(url);
        let loopback = is_loopback(url);
        Self { own, loopback, private: own.map_or(!loopback, is_private), ..Self::default() }
    }

    /// Narrows the policy of a server to the URLs that it names: they may be in a private network only if the server is.
    pub(crate) async fn for_named_urls(&self, server: &Url) -> Self {
        let is_private = match literal_address(server) {
            Some(address) => is_private(address),
            None => self.private && self.leads_to_private(server).await,
        };
        Self { own: None, private: self.private && is_private, ..self.clone() }
    }

    async fn leads_to_private(&self, url: &Url) -> bool {
        let Some(host) = url.host() else { return false };
        let resolved = self.resolve(host, 0).await;
        resolved.is_ok_and(|addresses| addresses.iter().any(|address| is_private(address.ip())))
    }

    pub fn check(&self, host: &str, address: IpAddr) -> Result<(), BlockedAddress> {
        let Some(network) = non_public_network(address) else { return Ok(()) };
        let allowed = self.own == Some(address)
            || self.loopback && address.to_canonical().is_loopback()
            || self.private && is_private(address)
            || self.networks.iter().any(|network| network.contains(address));
        if allowed { Ok(()) } else { Err(BlockedAddress { host: host.to_owned(), network }) }
    }

    /// Checks the address in a URL: it passes no resolver. Names are checked when they are resolved.
    pub fn check_literal(&self, url: &Url) -> Result<(), BlockedAddress> {
        match literal_address(url) {
            Some(address) => self.check(url.host_str().unwrap_or_default(), address),
            None => Ok(()),
        }
    }

    /// Resolves a host to addresses that may be connected to. A name with one blocked address is rejected as a whole.
    ///
    /// # Errors
    /// If the name cannot be resolved, or with a [`BlockedAddress`] inside.
    pub async fn resolve<S: AsRef<str>>(&self, host: Host<S>, port: u16) -> io::Result<Vec<SocketAddr>> {
        let name = match &host {
            Host::Domain(name) => name.as_ref(),
            Host::Ipv4(address) => return self.admit(&address.to_string(), vec![(*address, port).into()]),
            Host::Ipv6(address) => return self.admit(&address.to_string(), vec![(*address, port).into()]),
        };
        let bare = name.trim_end_matches('.').to_ascii_lowercase();
        if bare != "localhost" && !bare.ends_with(".localhost") {
            let found = lookup(name, port).await?;
            return self.admit(name, found);
        }
        // Always this machine, even if DNS differs, in the address families that are allowed.
        let both = [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), (Ipv6Addr::LOCALHOST, port).into()];
        let found: Vec<_> =
            both.into_iter().filter(|address| self.check(name, address.ip()).is_ok()).collect();
        self.admit(name, if found.is_empty() { both.to_vec() } else { found })
    }

    fn admit(&self, host: &str, found: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
        found.iter().try_for_each(|address| self.check(host, address.ip())).map_err(io::Error::other)?;
        Ok(found)
    }
}

impl Resolve for AddressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.clone();
        Box::pin(async move {
            let addresses = AddressPolicy::resolve(&policy, Host::Domain(name.as_str()), 0).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(not(test))]
async fn lookup(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((name, port)).await?.collect())
}

/// Names of tests, without DNS: `10-0-0-1.test` is `10.0.0.1`, and `flip.test` changes with every lookup.
#[cfg(test)]
async fn lookup(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static LOOKUPS: AtomicUsize = AtomicUsize::new(0);
    let flips = ["93.184.216.34", "127.0.0.1", "93.184.216.34", "169.254.169.254"];
    let names: Vec<String> = match name.strip_suffix(".test") {
        Some("flip") => vec![flips[LOOKUPS.fetch_add(1, Ordering::Relaxed) % flips.len()].to_owned()],
        Some(name) => name.split("--").map(|address| address.replace('-', ".")).collect(),
        None => return Ok(tokio::net::lookup_host((name, port)).await?.collect()),
    };
    Ok(names.iter().map(|address| SocketAddr::new(address.parse().expect("an address"), port)).collect())
}

pub(crate) fn literal_address(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

/// True if an address is in a private network, including overlay networks that use carrier-grade NAT addresses.
fn is_private(address: IpAddr) -> bool {
    matches!(non_public_network(address), Some("a private network" | "a carrier-grade NAT network"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn connects(policy: &AddressPolicy, host: &str) -> String {
        match policy.resolve(Host::parse(host).unwrap(), 1).await {
            Ok(found) => found.iter().map(|one| one.ip().to_string()).collect::<Vec<_>>().join(" "),
            Err(error) => {
                BlockedAddress::find(&error).map_or("unknown", |blocked| blocked.network).to_owned()
            }
        }
    }

    fn of_server(url: &str) -> AddressPolicy {
        AddressPolicy::of_server(&Url::parse(url).unwrap(), None)
    }

    /// Every connection resolves the name again, and checks its own address.
    #[tokio::test]
    async fn dns_flips_are_blocked() {
        for policy in [of_server("https://flip.test/mcp"), AddressPolicy::listed(&[])] {
            let mut seen = Vec::new();
            for _ in 0..4 {
                seen.push(connects(&policy, "flip.test").await);
            }
            assert_eq!(seen, ["93.184.216.34", "this machine", "93.184.216.34", "a cloud metadata service"]);
        }
    }

    #[tokio::test]
    async fn url_of_the_operator_decides_without_a_list() {
        let name = of_server("http://tools.test:8080/mcp");
        assert_eq!(connects(&name, "10-0-0-1.test").await, "10.0.0.1");
        assert_eq!(connects(&name, "127-0-0-1.test").await, "this machine");
        assert_eq!(connects(&name, "93-184-216-34--127-0-0-1.test").await, "this machine");
        assert_eq!(connects(&name, "localhost").await, "this machine");
        let local = of_server("http://localhost:8080/mcp");
        assert_eq!(connects(&local, "localhost").await, "127.0.0.1 ::1");
        assert_eq!(connects(&local, "10.0.0.1").await, "a private network");
        let literal = of_server("http://169.254.1.1/mcp");
        assert_eq!(connects(&literal, "169.254.1.1").await, "169.254.1.1");
        assert_eq!(connects(&literal, "169.254.1.2").await, "a link-local network");
        assert_eq!(connects(&literal, "169-254-1-2.test").await, "a link-local network");
    }

    #[tokio::test]
    async fn list_of_the_operator_decides() {
        let listed = AddressPolicy::of_server(
            &Url::parse("http://127.0.0.1/mcp").unwrap(),
            Some(&["10.1.0.0/16".parse().unwrap()]),
        );
        assert_eq!(connects(&listed, "127.0.0.1").await, "this machine");
        assert_eq!(connects(&listed, "10-1-2-3.test").await, "10.1.2.3");
        assert_eq!(connects(&listed, "10-2-2-3.test").await, "a private network");
    }

    #[tokio::test]
    async fn named_urls_are_where_the_server_is() {
        let narrowed = async |server: &str| {
            let url = Url::parse(server).unwrap();
            AddressPolicy::of_server(&url, None).for_named_urls(&url).await
        };
        assert_eq!(connects(&narrowed("https://10-0-0-1.test/").await, "10.0.0.2").await, "10.0.0.2");
        let public = narrowed("https://93-184-216-34.test/").await;
        assert_eq!(connects(&public, "10.0.0.2").await, "a private network");
        assert_eq!(
            connects(&narrowed("http://169.254.1.1/").await, "169.254.1.1").await,
            "a link-local network"
        );
    }

    #[test]
    fn classifies_non_public_addresses() {
        for address in [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "168.63.129.16",
            "100.100.100.200",
            "100.64.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2606:4700::5efe:10.0.0.1",
            "100::1",
        ] {
            assert!(non_public_network(address.parse().unwrap()).is_some(), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "169.253.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "64:ff9b::808:808",
            "2002:808:808::",
            "::ffff:8.8.8.8",
            "2a00:1450::1",
        ] {
            assert_eq!(non_public_network(address.parse().unwrap()), None, "{address}");
        }
    }
}
