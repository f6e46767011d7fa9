//! Networks: addresses that belong together, as `10.0.0.0/8`; and which of them are not the internet.
//!
//! The table is our own: what the standard library calls private lets through carriers' and benchmark networks,
//! and the ways in which the newer addresses hold the older ones. Invariant: an address is judged by where packets to
//! it would go, however it is spelled.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Addresses with a common beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    /// Bits that all of them have in common.
    bits: u8,
}

/// A text is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a network is an address and how many bits of it count, such as `10.0.0.0/8` or `fd00::/8`")]
pub struct NetworkError;

impl Network {
    /// Whether an address belongs to it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                shifted(own.to_bits().into(), 32, self.bits) == shifted(other.to_bits().into(), 32, self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                shifted(own.to_bits(), 128, self.bits) == shifted(other.to_bits(), 128, self.bits)
            }
            _ => false,
        }
    }
}

/// The bits that count, of so many.
fn shifted(address: u128, all: u8, bits: u8) -> u128 {
    address.checked_shr(u32::from(all - bits)).unwrap_or(0)
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| NetworkError)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(all);
        if bits > all || address != address.to_canonical() {
            return Err(NetworkError);
        }
        Ok(Self { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

const fn four(address: [u8; 4], bits: u8) -> Network {
    let [a, b, c, d] = address;
    Network { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
}

const fn six(start: [u16; 6], bits: u8) -> Network {
    let [a, b, c, d, e, f] = start;
    Network { address: IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, 0, 0)), bits }
}

/// What is not the internet, and what it is.
const INSIDE: [(Network, &str); 28] = [
    (four([127, 0, 0, 0], 8), "this machine"),
    (four([0, 0, 0, 0], 8), "this machine"),
    (four([169, 254, 169, 254], 32), "a cloud's metadata"),
    (four([169, 254, 0, 0], 16), "a link"),
    (four([168, 63, 129, 16], 32), "a cloud's metadata"),
    (four([100, 100, 100, 200], 32), "a cloud's metadata"),
    (four([192, 0, 0, 192], 32), "a cloud's metadata"),
    (four([10, 0, 0, 0], 8), "a private network"),
    (four([172, 16, 0, 0], 12), "a private network"),
    (four([192, 168, 0, 0], 16), "a private network"),
    (four([100, 64, 0, 0], 10), "a carrier's network"),
    (four([192, 0, 0, 0], 24), "a reserved network"),
    (four([192, 0, 2, 0], 24), "a network of examples"),
    (four([192, 88, 99, 0], 24), "a relay"),
    (four([198, 18, 0, 0], 15), "a network of benchmarks"),
    (four([198, 51, 100, 0], 24), "a network of examples"),
    (four([203, 0, 113, 0], 24), "a network of examples"),
    (four([224, 0, 0, 0], 4), "a group of machines"),
    (four([240, 0, 0, 0], 4), "a reserved network"),
    (six([0, 0, 0, 0, 0, 0], 96), "this machine"),
    (six([0x64, 0xff9b, 1, 0, 0, 0], 48), "a private network"),
    (six([0x100, 0, 0, 0, 0, 0], 64), "nowhere"),
    (six([0x2001, 0, 0, 0, 0, 0], 23), "a reserved network"),
    (six([0x2001, 0xdb8, 0, 0, 0, 0], 32), "a network of examples"),
    (six([0xfc00, 0, 0, 0, 0, 0], 7), "a private network"),
    (six([0xfe80, 0, 0, 0, 0, 0], 10), "a link"),
    (six([0xfec0, 0, 0, 0, 0, 0], 10), "a private network"),
    (six([0xff00, 0, 0, 0, 0, 0], 8), "a group of machines"),
];

/// Where an address leads, where that is not the internet.
pub fn inside(address: IpAddr) -> Option<&'static str> {
    let spelled = std::iter::once(address.to_canonical()).chain(carried(address).map(IpAddr::V4));
    let found = |address: IpAddr| INSIDE.iter().find(|(network, _)| network.contains(address));
    spelled.filter_map(found).map(|(_, what)| *what).next()
}

/// The older address that a newer one stands for: by translation, by a tunnel, or mapped.
fn carried(address: IpAddr) -> Option<Ipv4Addr> {
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
    fn networks() {
        for (network, address, holds) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "::1", false),
            ("127.0.0.0/8", "::ffff:127.0.0.1", true),
            ("fd00::/8", "fd12::1", true),
            ("::/0", "2606:4700::1", true),
            ("::1/128", "::2", false),
        ] {
            let known: Network = network.parse().unwrap();
            assert_eq!(known.contains(address.parse().unwrap()), holds, "{address} in {network}");
        }
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "localhost", "10.0.0.0/x", "::ffff:10.0.0.0/104"]
        {
            assert_eq!(bad.parse::<Network>(), Err(NetworkError), "{bad}");
        }
        assert_eq!("10.0.0.0/8".parse::<Network>().unwrap().to_string(), "10.0.0.0/8");
    }

    #[test]
    fn what_is_not_the_internet() {
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
            assert!(inside(address.parse().unwrap()).is_some(), "{address}");
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
            assert_eq!(inside(address.parse().unwrap()), None, "{address}");
        }
    }
}
