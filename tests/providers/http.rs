//! A minimal HTTP implementation for servers and relays.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Time limit for one read.
const LONG: Duration = Duration::from_secs(60);

/// A request or an answer: its first line, its headers in lower case, its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpMessage {
    pub(crate) first: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpMessage {
    /// Reads the first line and the headers; `None` if the connection ended before them.
    pub(crate) fn head(from: &mut impl std::io::BufRead) -> Option<Self> {
        let mut message = Self { first: line(from)?, ..Self::default() };
        while let Some(header) = line(from).filter(|line| !line.is_empty()) {
            let (name, value) = header.split_once(':').expect("a header");
            message.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Some(message)
    }

    pub(crate) fn request(from: &mut impl std::io::BufRead) -> Option<Self> {
        let mut message = Self::head(from)?;
        let length = message.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        message.body = vec![0; length];
        from.read_exact(&mut message.body).ok()?;
        Some(message)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    pub(crate) fn path(&self) -> &str {
        self.first.split(' ').nth(1).expect("a path")
    }

    /// Returns the body of a request as JSON, `Null` if it is empty.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

fn line(from: &mut impl std::io::BufRead) -> Option<String> {
    let mut line = String::new();
    (from.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
}

pub(crate) fn get(origin: &str, path: &str) -> Value {
    ask(origin, "GET", path, "")
}

fn ask(origin: &str, method: &str, path: &str, body: &str) -> Value {
    let mut stream = connect(origin);
    // HTTP/1.0, so that the answer ends with the connection.
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .expect("the server reads");
    let mut reader = BufReader::new(stream);
    let answer = HttpMessage::head(&mut reader).expect("an answer");
    assert!(answer.first.contains(" 200 "), "{method} {path}: {}", answer.first);
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("a body");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{method} {path}: {error}: {text}"))
}

pub(crate) fn connect(origin: &str) -> TcpStream {
    let stream = TcpStream::connect(origin.strip_prefix("http://").expect("an origin")).expect("the server listens");
    stream.set_read_timeout(Some(LONG)).expect("a socket");
    stream
}

/// Returns the text of a chunked body, which may be incomplete.
pub(crate) fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    let mut size = String::new();
    while bytes.read_line(&mut size).is_ok_and(|read| read > 0) {
        let Ok(length) = usize::from_str_radix(size.trim(), 16) else { break };
        let length = length.min(bytes.len());
        whole.extend_from_slice(&bytes[..length]);
        bytes = bytes.get(length + 2..).unwrap_or_default();
        size.clear();
    }
    whole
}
