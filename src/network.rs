//! Networks of IP addresses, as `10.0.0.0/8` or as one address.

use std::fmt;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A network: every address that shares its first bits.
///
/// An IPv4 address that came in IPv6 clothes (`::ffff:10.0.0.1`, RFC 4291 section 2.5.5.2) is the IPv4 address, in a
/// network as in a question. So no IPv6 network holds an IPv4 address, `::/0` included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// The first address; every bit after the prefix is 0. Never one in IPv6 clothes.
    address: IpAddr,
    /// Bits that its addresses share.
    prefix: u8,
}

/// A text that is no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// What stands before the `/`, or all of it, is no IP address.
    #[error("is no IP address, and no network such as `10.0.0.0/8` or `fd00::/8`")]
    Address,
    /// What follows the `/` is no number of bits of such an address.
    #[error("must have a number from 0 to {most} after its `/`")]
    Prefix {
        /// The bits of the address before the `/`.
        most: u8,
    },
    /// The address has bits after its prefix, so it is one host's and not the network's.
    #[error("has bits set after the first {}; write `{network}` for the whole network", network.prefix)]
    HostBits {
        /// The network that the address lies in.
        network: Network,
    },
}

impl Network {
    /// The addresses of this host alone: `127.0.0.0/8`.
    pub const LOOPBACK: Self = Self { address: IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 0)), prefix: 8 };

    /// The network of the first `prefix` bits of `address`, later bits left away.
    fn around(address: IpAddr, prefix: u8) -> Self {
        match (address, address.to_canonical()) {
            // `::ffff:10.0.0.0/104` is `10.0.0.0/8`; a network that starts before the IPv4 part is an IPv6 one.
            (IpAddr::V6(_), inner @ IpAddr::V4(_)) if prefix >= 96 => Self::around(inner, prefix - 96),
            (IpAddr::V6(address), _) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                Self { address: Ipv6Addr::from_bits(address.to_bits() & mask).into(), prefix }
            }
            (IpAddr::V4(address), _) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                Self { address: std::net::Ipv4Addr::from_bits(address.to_bits() & mask).into(), prefix }
            }
        }
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Bits that all addresses share; 32 or 128 where the network is one address.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether `address` lies in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && Self::around(address, self.prefix).address == self.address
    }
}

impl From<IpAddr> for Network {
    /// The network of this address alone.
    fn from(address: IpAddr) -> Self {
        Self::around(address, if address.is_ipv4() { 32 } else { 128 })
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    /// Reads `10.0.0.0/8`, `fd00::/8`, or an address alone. No zone (`%eth0`), no spaces, no zero before a prefix.
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Address)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => most,
            Some(digits) => bits(digits).filter(|prefix| *prefix <= most).ok_or(NetworkError::Prefix { most })?,
        };
        let network = Self::around(address, prefix);
        let whole = network.address == address || network.address == address.to_canonical();
        if whole { Ok(network) } else { Err(NetworkError::HostBits { network }) }
    }
}

fn bits(digits: &str) -> Option<u8> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    plain.then(|| digits.parse().ok()).flatten()
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = self.prefix == if self.address.is_ipv4() { 32 } else { 128 };
        if one { write!(f, "{}", self.address) } else { write!(f, "{}/{}", self.address, self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holds(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_holds_what_shares_its_first_bits() {
        for (network, inside, outside) in [
            ("127.0.0.0/8", "127.255.255.255", "128.0.0.0"),
            ("10.1.2.0/23", "10.1.3.255", "10.1.4.0"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.0"),
            ("192.0.2.1/32", "192.0.2.1", "192.0.2.2"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("::/0", "fd00::1", "10.0.0.1"),
            ("::1", "::1", "::2"),
            ("fd00::/8", "fdff::", "fe00::"),
            ("2001:db8::/127", "2001:db8::1", "2001:db8::2"),
        ] {
            assert!(holds(network, inside), "{network} {inside}");
            assert!(!holds(network, outside), "{network} {outside}");
        }
        assert_eq!("127.0.0.0/8".parse(), Ok(Network::LOOPBACK));
    }

    #[test]
    fn ipv4_in_ipv6_clothes_is_ipv4() {
        assert!(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(holds("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(holds("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!holds("::/0", "::ffff:10.1.2.3"));
        assert!(!holds("0.0.0.0/0", "::1"));
        let network: Network = "::ffff:10.0.0.0/104".parse().unwrap();
        assert_eq!((network.address(), network.prefix()), (IpAddr::from([10, 0, 0, 0]), 8));
    }

    #[test]
    fn what_is_no_network_says_why() {
        let said = |text: &str| text.parse::<Network>().unwrap_err();
        for text in [
            "",
            "x",
            "10.0.0",
            "10.0.0.0.0",
            "/8",
            " 10.0.0.0/8",
            "fe80::1%eth0",
            "[::1]",
            "10.0.0.1:80",
            "010.0.0.0/8",
        ] {
            assert_eq!(said(text), NetworkError::Address, "{text}");
        }
        for text in
            ["10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/08", "10.0.0.0/8/8", "10.0.0.0/256"]
        {
            assert_eq!(said(text), NetworkError::Prefix { most: 32 }, "{text}");
        }
        assert_eq!(said("::/129"), NetworkError::Prefix { most: 128 });
        let message = said("10.1.2.3/8").to_string();
        assert_eq!(message, "has bits set after the first 8; write `10.0.0.0/8` for the whole network");
        assert!(said("2001:db8::1/32").to_string().contains("`2001:db8::/32`"));
        assert!(said("::ffff:10.0.0.1/104").to_string().contains("`10.0.0.0/8`"));
    }

    proptest! {
        #[test]
        fn a_network_is_read_as_it_is_written(bits in any::<u128>(), prefix in 0..=128_u8, small in any::<bool>()) {
            let address = if small { IpAddr::from((bits as u32).to_be_bytes()) } else { IpAddr::from(bits.to_be_bytes()) };
            let network = Network::around(address, if small { prefix % 33 } else { prefix });
            prop_assert_eq!(network.to_string().parse(), Ok(network));
            prop_assert!(network.contains(network.address()));
            prop_assert_eq!(network.contains(address), network.address().is_ipv4() == address.to_canonical().is_ipv4());
        }
    }
}
