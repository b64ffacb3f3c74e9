//! Decides which hosts are public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use reqwest::Url;

use crate::escape;

/// IPv4 ranges that are not public: first address and prefix length.
const INTERNAL: [([u8; 4], u32); 17] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    // Carrier-grade NAT; contains the metadata service of one cloud.
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    // Link-local; contains the metadata services of most clouds.
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
    // Metadata service of a cloud at a public address that only its machines can reach.
    ([168, 63, 129, 16], 32),
    // The same for another cloud.
    ([192, 29, 0, 254], 32),
];

/// A host that the user lists as reachable even if its address is not public, with an optional port: `wiki.example`,
/// `localhost:8080`, `[::1]:8080`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalHost {
    host: String,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid host `{0}`: write its name or address, optionally with a port, such as `localhost:8080`")]
pub struct BadHost(pub String);

impl FromStr for InternalHost {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<Self, BadHost> {
        let bad = || BadHost(escape::exact(text));
        if text.is_empty() || text.contains(['/', '\\', '?', '#', '@', '*']) || text.contains(char::is_whitespace) {
            return Err(bad());
        }
        let [plain, secure] = ["http", "https"].map(|scheme| Url::parse(&format!("{scheme}://{text}/")));
        let (plain, secure) = (plain.map_err(|_| bad())?, secure.map_err(|_| bad())?);
        // Parsing drops the default port of each scheme.
        let port = plain.port().or(secure.port());
        let host = plain.host_str().ok_or_else(bad)?;
        let host = host.strip_suffix('.').unwrap_or(host).to_owned();
        Ok(Self { host, port })
    }
}

impl InternalHost {
    pub(crate) fn matches(&self, url: &Url) -> bool {
        url.host_str() == Some(&*self.host) && self.port.is_none_or(|port| url.port_or_known_default() == Some(port))
    }
}

/// Returns the IP address of a host that is not a name.
pub(crate) fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// Returns whether an address is on this machine. No proxy is used for it: the proxy would reach another machine.
pub(crate) fn is_local(url: &Url) -> bool {
    url.host_str() == Some("localhost") || literal(url).is_some_and(|ip| ip.is_loopback())
}

pub(crate) fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let within = |(first, length): &([u8; 4], u32)| {
        let mask = u32::MAX.checked_shl(32_u32.saturating_sub(*length)).unwrap_or(0);
        ip.to_bits() & mask == Ipv4Addr::from(*first).to_bits()
    };
    !INTERNAL.iter().any(within)
}

/// Checks the embedded address if an IPv6 address contains an IPv4 address.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match ip.segments() {
        // IPv4-mapped, and NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments, including Teredo and benchmarks, and documentation ranges.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_addresses_are_not_public_in_any_notation() {
        let internal = [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.192",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:a9fe:a9fe",
            "::7f00:1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "3fff::1",
        ];
        let public = [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.1.1",
            "198.20.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2002:101:101::",
            "2a00::1",
        ];
        let public_flags =
            |all: &[&str]| -> Vec<bool> { all.iter().map(|ip| is_public(ip.parse().unwrap())).collect() };
        assert_eq!(public_flags(&internal), [false; 31]);
        assert_eq!(public_flags(&public), [true; 12]);
    }

    #[test]
    fn addresses_of_this_machine_are_recognized() {
        let is_local = |text: &str| super::is_local(&Url::parse(text).unwrap());
        let local =
            ["http://localhost:1", "https://127.0.0.1", "http://127.9.9.9:1/v1", "http://[::1]:1", "http://2130706433"];
        assert_eq!(local.map(is_local), [true; 5]);
        assert_eq!(["http://localhost.example", "http://10.0.0.1", "http://[::2]"].map(is_local), [false; 3]);
    }

    #[test]
    fn listed_host_matches_by_host_and_port() {
        let listed = |entry: &str, url: &str| entry.parse::<InternalHost>().unwrap().matches(&Url::parse(url).unwrap());
        for (entry, url, expected) in [
            ("localhost", "http://localhost:99/", true),
            ("LocalHost:8080", "http://localhost:8080/a", true),
            ("localhost:8080", "http://localhost/", false),
            ("localhost:80", "http://localhost/", true),
            ("localhost:443", "https://localhost/", true),
            ("localhost:443", "http://localhost/", false),
            ("example.org", "http://a.example.org/", false),
            ("[::1]:80", "http://[0::1]/", true),
            ("127.0.0.1", "http://2130706433/", true),
        ] {
            assert_eq!(listed(entry, url), expected, "{entry} {url}");
        }
        for bad in ["", "http://a", "a/b", "*.example.org", "u@a", "a b", "a:b"] {
            assert_eq!(bad.parse::<InternalHost>(), Err(BadHost(bad.to_owned())));
        }
    }
}
