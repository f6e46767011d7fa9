//! IP networks in CIDR notation: `10.0.0.0/8`.
//!
//! Invariant: an IPv4 address matches in whatever form it is written, also mapped into IPv6.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// IP addresses with a common prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    /// Prefix length.
    bits: u8,
}

/// The string is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a network is an IP address and a prefix length, such as `10.0.0.0/8` or `fd00::/8`")]
pub struct NetworkError;

impl Network {
    /// A network of constants. `bits` is the prefix length.
    pub const fn new(address: IpAddr, bits: u8) -> Self {
        Self { address, bits }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                network_prefix(own.to_bits().into(), 32, self.bits)
                    == network_prefix(other.to_bits().into(), 32, self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                network_prefix(own.to_bits(), 128, self.bits)
                    == network_prefix(other.to_bits(), 128, self.bits)
            }
            _ => false,
        }
    }
}

/// Returns the first `bits` bits of an address that has `all` bits.
fn network_prefix(address: u128, all: u8, bits: u8) -> u128 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_networks_and_matches_addresses() {
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
}
