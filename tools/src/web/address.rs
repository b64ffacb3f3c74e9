//! Parses and normalizes web addresses.

use percent_encoding::percent_decode_str;
use reqwest::Url;

use crate::bounded::shorten;
use crate::escape;
use crate::tool::ToolError;

/// Maximum bytes of one address.
const MAX_ADDRESS: usize = 8 << 10;
/// Maximum bytes of a host, as for a domain name. Hosts are measured before they are parsed: the conversion of a long one takes many
/// milliseconds.
const MAX_HOST: usize = 253;
/// Maximum number of times that a path is decoded for rules.
const MAX_DECODED: usize = 4;
/// Maximum bytes of an address shown in an error.
const MAX_SHOWN: usize = 300;

/// Parses an address and removes its fragment.
///
/// # Errors
/// If the address is invalid, too long, not HTTP, or contains a user.
pub(super) fn parse(text: &str) -> Result<Url, ToolError> {
    let bad = |why: &str| ToolError::bad_args(format!("`{}` {why}", harmless_url(text)));
    if text.len() > MAX_ADDRESS {
        return Err(ToolError::bad_args(format!("the address has more than {MAX_ADDRESS} bytes")));
    }
    let bytes = host_part(text).len();
    if bytes > MAX_HOST {
        return Err(ToolError::bad_args(format!("the host of the address has {bytes} bytes; the limit is {MAX_HOST}")));
    }
    let mut url = Url::parse(text.trim())
        .map_err(|error| bad(&format!("is not an address: {error}; write one such as `https://docs.rs/tokio`")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("is not a web address: only http and https are supported"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // The error omits the address, which may contain a password.
        return Err(ToolError::bad_args(
            "the address contains a user or a password: leave them out, logins are not supported",
        ));
    }
    url.set_fragment(None);
    normalize(&mut url).map_err(|why| bad(&why))?;
    Ok(url)
}

/// Returns at least the host of an address, as it is written.
fn host_part(address: &str) -> &str {
    let rest = address.split_once(':').map_or(address, |(_, rest)| rest);
    let rest = rest.trim_start_matches(|c: char| matches!(c, '/' | '\\') || c.is_ascii_whitespace());
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    host.trim_end_matches('.')
}

/// Resolves the target of a redirect of `from`.
pub(super) fn join(from: &Url, to: &str) -> Option<Url> {
    (to.len() <= MAX_ADDRESS).then(|| from.join(to).ok())?
}

/// Normalizes an address for rules: removes a trailing dot of the host and unnecessary escapes, which do not change the meaning.
fn normalize(url: &mut Url) -> Result<(), String> {
    let host = url.host_str().and_then(|host| host.strip_suffix('.')).map(str::to_owned);
    if let Some(host) = host {
        url.set_host(Some(&host)).map_err(|error| format!("has no usable host: {error}"))?;
    }
    let path = unescape(url.path());
    if path != url.path() {
        url.set_path(&path);
    }
    if let Some(query) = url.query().map(unescape).filter(|query| url.query() != Some(query)) {
        url.set_query(Some(&query));
    }
    Ok(())
}

/// Decodes escapes of letters, digits and `-._~`, and writes other escapes in upper case.
fn unescape(text: &str) -> String {
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

/// Returns all spellings that rules must allow: the address, and its path as servers may read it. Servers may decode escapes, read `\` as
/// `/`, remove parameters of segments, resolve dots, and join repeated slashes.
pub(super) fn spellings(url: &Url) -> Vec<Url> {
    let mut path = url.path().to_owned();
    // Decode repeatedly, because a proxy and a server may both decode the path.
    for _ in 0..MAX_DECODED {
        let next = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        if next == path {
            break;
        }
        path = next;
    }
    let path = path.replace('\\', "/");
    let plain: Vec<&str> =
        path.split('/').map(|segment| segment.split_once(';').map_or(segment, |(segment, _)| segment)).collect();
    let mut joined = plain.clone();
    let mut at = 0_usize;
    let last = joined.len().saturating_sub(1);
    joined.retain(|segment| {
        let is_end = at == 0 || at == last;
        at = at.saturating_add(1);
        is_end || !segment.is_empty()
    });
    let mut all = vec![url.clone()];
    for segments in [plain, joined] {
        let mut other = url.clone();
        other.set_path(&segments.join("/"));
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

/// Returns an address for messages, shortened and escaped.
pub(super) fn harmless_url(url: &str) -> String {
    escape::exact(&shorten(url, MAX_SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::hosts::literal;

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
        // Escapes of reserved characters remain.
        for other in ["https://example.org/a%2Fb%25%20", "https://example.org/%?%2&%G1", "https://example.org/a%C3%A9"]
        {
            assert_eq!(parse(other).unwrap().as_str(), other);
        }
        assert!(parse("https://./").is_err());
    }

    #[test]
    fn rules_apply_to_each_reading_of_a_path() {
        let read = |path: &str| -> Vec<String> {
            let url = parse(&format!("https://example.org{path}")).unwrap();
            spellings(&url).iter().map(|url| url.path().to_owned()).collect()
        };
        assert_eq!(read("/a/b.txt?q=%2F"), ["/a/b.txt"]);
        assert_eq!(read("//secret/a"), ["//secret/a", "/secret/a"]);
        assert_eq!(read("/secret%2fa"), ["/secret%2Fa", "/secret/a"]);
        assert_eq!(read("/secret%252fa"), ["/secret%252fa", "/secret/a"]);
        assert_eq!(read("/x/..%2fsecret/"), ["/x/..%2Fsecret/", "/secret/"]);
        assert_eq!(read("/x/..%5csecret"), ["/x/..%5Csecret", "/secret"]);
        assert_eq!(read("/secret;x=1/a"), ["/secret;x=1/a", "/secret/a"]);
        assert_eq!(read("/x%2F%2F..%2Fsecret"), ["/x%2F%2F..%2Fsecret", "/x/secret", "/secret"]);
    }

    /// The control: a host of as many bytes as are accepted, and long other parts.
    #[test]
    fn long_hosts_are_refused_before_they_are_parsed() {
        let host = |bytes: usize| "a.".repeat(bytes).split_at(bytes).0.to_owned();
        let long = "界".repeat(900);
        let why = |bytes: usize| Err(format!("the host of the address has {bytes} bytes; the limit is 253"));
        let refused = |text: &str| parse(text).map(drop).map_err(|error| error.message);
        let accepted = [
            format!("https://{}:8443/", host(253)),
            format!("https://{}./", host(253)),
            format!("https://a.b/{long}/?x:y@{long}"),
        ];
        assert_eq!(accepted.map(|text| refused(&text)), [(); 3].map(Ok));
        for before in ["https://", "https:", "http:\\\\", " https:/\t/", "https://user:secret@", "https://a@b@"] {
            for after in ["", ":80", "/a", "\\a", "?a", "#a@b", "./"] {
                assert_eq!(refused(&format!("{before}{long}.{long}{after}")), why(5_401), "{before} {after}");
            }
        }
        assert_eq!(refused(&format!("https://{}/", host(255))), why(255));
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
}
