//! The table of networks that are not the public internet.
//!
//! The table is our own: `is_private` and its relatives in the standard library let carrier-grade NAT and benchmarking
//! networks pass, and IPv6 addresses that embed an IPv4 address. Invariant: an address is classified by where its
//! packets would go, in whatever form it is written.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use toolgate_types::network::Network;

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

#[cfg(test)]
mod tests {
    use super::*;

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
