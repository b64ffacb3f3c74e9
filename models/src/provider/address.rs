use std::fmt;
use std::net::IpAddr;

use reqwest::Url;
use subtend_session::ids::Hash;

use super::protocol::Protocol;

/// Path endings that users copy from examples, but that are not part of the base URL.
const ENDPOINTS: [&[&str]; 4] = [&["chat", "completions"], &["messages"], &["responses"], &["models"]];

/// The base address of a server: `http` or `https`, a host, and possibly a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address(Url);

impl Address {
    /// Parses a base address, or returns the reason why it is invalid.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let url =
            Url::parse(text.trim()).map_err(|_| "it is not an address: write http://HOST:PORT or https://HOST")?;
        match url.scheme() {
            "http" | "https" => {}
            _ => return Err("only http and https addresses can be used"),
        }
        if !url.has_host() {
            return Err("it has no host");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it has a user name or a password, which errors would show. Set the key in its variable");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("it must not have a `?` or a `#`");
        }
        Ok(Self(url))
    }

    pub(super) fn home(protocol: Protocol) -> Result<Self, &'static str> {
        Self::parse(protocol.default_base_url())
    }

    /// Parses the variable `OLLAMA_HOST`: `HOST`, `HOST:PORT` or an address.
    pub(super) fn of_ollama_host(text: &str) -> Result<Self, &'static str> {
        let text = text.trim().trim_end_matches('/');
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let mut address = Self::parse(&whole)?;
        let bare = whole.split_once("://").is_some_and(|(_, rest)| !rest.trim_start_matches('[').contains(':'));
        if bare && address.0.scheme() == "http" && address.0.port().is_none() {
            address.0.set_port(Some(11434)).map_err(|()| "it has no host")?;
        }
        // A server that listens on all interfaces is reached at the local address.
        if address.0.host_str() == Some("0.0.0.0") {
            address.0.set_host(Some("127.0.0.1")).map_err(|_| "it has no host")?;
        }
        Ok(address)
    }

    /// Returns the base URL for the paths of `protocol`, with a slash at the end. Adds the version of the API if the path does not contain one.
    pub(super) fn base(&self, protocol: Protocol) -> String {
        let mut parts: Vec<&str> = self.0.path().split('/').filter(|part| !part.is_empty()).collect();
        if let Some(end) = ENDPOINTS.iter().find(|end| parts.ends_with(end)) {
            parts.truncate(parts.len().saturating_sub(end.len()));
        }
        match protocol.version() {
            Some(version) if !parts.iter().any(|part| is_version(part)) => parts.push(version),
            Some(_) => {}
            None if matches!(parts.last(), Some(&("api" | "v1"))) => {
                parts.pop();
            }
            None => {}
        }
        let mut base = self.origin();
        for part in parts {
            base.push('/');
            base.push_str(part);
        }
        base.push('/');
        base
    }

    /// Returns scheme, host and port, for errors.
    pub(super) fn origin(&self) -> String {
        format!("{}://{}", self.0.scheme(), self.host())
    }

    /// Returns the name of the server for quotas of `protocol`. Addresses with different ports or paths are different
    /// servers: one must not pause calls of another. A path is hashed, because it may contain a key.
    pub(super) fn server(&self, protocol: Protocol) -> String {
        let port = if self.0.scheme() == "http" && self.0.port().is_none() { ":80" } else { "" };
        let (host, base) = (self.host(), self.base(protocol));
        let path = base.strip_prefix(&self.origin()).unwrap_or(&base).trim_matches('/');
        match path == protocol.version().unwrap_or_default() {
            true => format!("{host}{port}"),
            false => format!("{host}{port}#{}", Hash::of(path.as_bytes())),
        }
    }

    fn host(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        self.0.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    pub(super) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Returns whether the server is on this machine.
    pub(super) fn is_local(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default();
        let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str, protocol: Protocol) -> String {
        Address::parse(text).map_or_else(str::to_owned, |address| address.base(protocol))
    }

    #[test]
    fn base_url_is_normalised_with_version_and_slash() {
        for text in ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/chat/completions"] {
            assert_eq!(base(text, Protocol::OpenAi), "http://h:1/v1/", "{text}");
        }
        assert_eq!(base("http://h:1/v1/messages", Protocol::Anthropic), "http://h:1/v1/");
        assert_eq!(base("https://h/anthropic", Protocol::Anthropic), "https://h/anthropic/v1/");
        assert_eq!(base("https://h/api/paas/v4/", Protocol::OpenAi), "https://h/api/paas/v4/");
        assert_eq!(base("https://h/v1beta/openai/", Protocol::OpenAi), "https://h/v1beta/openai/");
        assert_eq!(base("https://h", Protocol::Gemini), "https://h/v1beta/");
        for text in ["http://h:1", "http://h:1/api", "http://h:1/v1/"] {
            assert_eq!(base(text, Protocol::Ollama), "http://h:1/", "{text}");
        }
        assert_eq!(base(" http://[::1]:8080 ", Protocol::Ollama), "http://[::1]:8080/");
    }

    #[test]
    fn addresses_of_this_machine_are_recognized() {
        let is_local = |text: &str| Address::parse(text).unwrap().is_local();
        let local =
            ["http://localhost:1", "http://127.0.0.1", "https://127.9.9.9:1/v1", "http://[::1]:1", "http://2130706433"];
        assert_eq!(local.map(is_local), [true; 5]);
        assert_eq!(["http://localhost.example", "http://10.0.0.1", "http://[::2]"].map(is_local), [false; 3]);
    }

    #[test]
    fn invalid_address_is_refused_with_the_reason() {
        for (text, why) in [
            ("localhost:8080", "only http and https"),
            ("ftp://h", "only http and https"),
            ("h", "it is not an address"),
            ("", "it is not an address"),
            ("http://", "it is not an address"),
            ("http://me:secret@h", "errors would show"),
            ("http://h/?key=1", "must not have a `?`"),
        ] {
            let message = Address::parse(text).map_or_else(str::to_owned, |address| address.to_string());
            assert!(message.contains(why), "{text}: {message}");
        }
    }

    #[test]
    fn ollama_host_is_parsed_like_ollama_does() {
        for (text, address) in [
            ("box", "http://box:11434/"),
            ("box:99", "http://box:99/"),
            ("0.0.0.0", "http://127.0.0.1:11434/"),
            ("https://box", "https://box/"),
            ("http://box:80/", "http://box/"),
        ] {
            let read = Address::of_ollama_host(text).map_or_else(str::to_owned, |address| address.to_string());
            assert_eq!(read, address, "{text}");
        }
    }
}
