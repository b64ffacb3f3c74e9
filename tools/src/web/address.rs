//! Parses addresses, and decides which hosts are public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use reqwest::Url;

use crate::bounded::shown;
use crate::escape;
use crate::tool::ToolError;

/// Maximum bytes of one address.
const MAX_ADDRESS: usize = 8 << 10;
/// Maximum bytes of an address shown in an error.
const MAX_SHOWN: usize = 300;

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

/// A host listed by the user, with an optional port: `wiki.example`, `localhost:8080`, `[::1]:8080`.
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
    pub(super) fn matches(&self, url: &Url) -> bool {
        url.host_str() == Some(&*self.host) && self.port.is_none_or(|port| url.port_or_known_default() == Some(port))
    }
}

/// Parses an address and removes its fragment.
///
/// # Errors
/// If it is invalid, too long, not HTTP, or names a user.
pub(super) fn parse(text: &str) -> Result<Url, ToolError> {
    let bad = |why: &str| ToolError::bad_args(format!("`{}` {why}", named(text)));
    if text.len() > MAX_ADDRESS {
        return Err(ToolError::bad_args(format!("the address has more than {MAX_ADDRESS} bytes")));
    }
    let mut url = Url::parse(text.trim())
        .map_err(|error| bad(&format!("is not an address: {error}; write one such as `https://docs.rs/tokio`")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("is not a web address: only http and https are supported"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // The error omits it, since it may be a password.
        return Err(ToolError::bad_args(
            "the address contains a user or a password: leave them out, logins are not supported",
        ));
    }
    url.set_fragment(None);
    normalise(&mut url).map_err(|why| bad(&why))?;
    Ok(url)
}

/// Normalizes an address for rules: removes a trailing dot of the host and unnecessary escapes, which servers treat as the same address.
fn normalise(url: &mut Url) -> Result<(), String> {
    let host = url.host_str().and_then(|host| host.strip_suffix('.')).map(str::to_owned);
    if let Some(host) = host {
        url.set_host(Some(&host)).map_err(|error| format!("has no usable host: {error}"))?;
    }
    let path = unescaped(url.path());
    if path != url.path() {
        url.set_path(&path);
    }
    if let Some(query) = url.query().map(unescaped).filter(|query| url.query() != Some(query)) {
        url.set_query(Some(&query));
    }
    Ok(())
}

/// Decodes escapes of letters, digits and `-._~`, and writes other escapes in upper case.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let escape = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok().zip(Some(digits)));
        let escape = escape.filter(|(_, digits)| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let Some((byte, digits)) = escape else {
            out.push('%');
            rest = after;
            continue;
        };
        match char::from(byte) {
            plain if plain.is_ascii_alphanumeric() || "-._~".contains(plain) => out.push(plain),
            _ => out.extend(['%'].into_iter().chain(digits.chars().map(|digit| digit.to_ascii_uppercase()))),
        }
        rest = after.get(2..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// Returns an address for messages, bounded and printable.
pub(super) fn named(url: &str) -> String {
    escape::exact(&shown(url, MAX_SHOWN))
}

/// Returns the IP address of a host that is not a name.
pub(super) fn literal(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// Returns whether an address is public.
pub(super) fn is_public(ip: IpAddr) -> bool {
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

/// Checks the embedded address if an IPv6 address contains an IPv4 one.
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
    fn numeric_hosts_are_parsed_as_addresses() {
        let host = |text: &str| literal(&parse(text).unwrap()).map(|ip| ip.to_string());
        let spelled = [
            "http://2130706433/",
            "http://0x7f000001",
            "http://0177.0.0.1",
            "http://127.1",
            "http://%31%32%37.0.0.1",
            "http://１２７.0.0.1",
        ];
        assert_eq!(spelled.map(host), [(); 6].map(|()| Some("127.0.0.1".to_owned())));
        assert_eq!(host("http://[::ffff:7f00:1]/").as_deref(), Some("::ffff:127.0.0.1"));
        assert_eq!(host("http://localhost/"), None);
    }

    #[test]
    fn equivalent_addresses_are_normalized() {
        let plain = "https://example.org/a-b/c?q=d%2F";
        let spelled = [
            "https://example.org./a-b/c?q=d%2f",
            "https://example.org/%61%2D%62/c?%71=%64%2F",
            "https://EXAMPLE.org:443/x/../a%2db/./%63?q=d%2f",
        ];
        assert_eq!(spelled.map(|text| parse(text).unwrap().to_string()), [plain; 3]);
        // Escapes with a meaning of their own stay.
        for other in ["https://example.org/a%2Fb%25%20", "https://example.org/%?%2&%G1", "https://example.org/a%C3%A9"]
        {
            assert_eq!(parse(other).unwrap().as_str(), other);
        }
        assert!(parse("https://./").is_err());
    }

    #[test]
    fn invalid_web_addresses_are_refused() {
        let why = |text: &str| parse(text).unwrap_err().message;
        assert_eq!(
            why("docs.rs/tokio"),
            "`docs.rs/tokio` is not an address: relative URL without a base; write one such as `https://docs.rs/tokio`"
        );
        let other = "is not a web address: only http and https are supported";
        for text in ["file:///etc/passwd", "ftp://a/b", "data:text/plain,a", "javascript:alert(1)", "gopher://a"] {
            assert_eq!(why(text), format!("`{text}` {other}"));
        }
        for text in ["http://user@a/", "http://user:secret@a/", "http://:secret@a/", "http:user:secret@a/"] {
            assert_eq!(
                why(text),
                "the address contains a user or a password: leave them out, logins are not supported"
            );
        }
        assert_eq!(parse(" HTTPS://DOCS.RS:443/a/../b?c#d ").unwrap().as_str(), "https://docs.rs/b?c");
    }

    #[test]
    fn listed_host_matches_by_host_and_port() {
        let listed = |entry: &str, url: &str| entry.parse::<InternalHost>().unwrap().matches(&parse(url).unwrap());
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
