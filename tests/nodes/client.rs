//! A client of nodes that opens one connection for each request.

use std::io::{BufRead as _, BufReader, Error, ErrorKind, Read as _, Result, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Longer than any request may wait for an owner.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct NodeClient {
    pub(crate) token: String,
}

/// A response whose body has not been read yet.
pub(crate) struct Streamed {
    pub(crate) status: u16,
    /// Its headers, one in a line.
    pub(crate) headers: String,
    pub(crate) body: BufReader<Chunks>,
}

impl NodeClient {
    pub(crate) fn ask(&self, port: u16, request: &str, headers: &str, body: &str) -> Result<(u16, Value)> {
        let mut answer = self.open(port, request, headers, body)?;
        let mut text = String::new();
        answer.body.read_to_string(&mut text)?;
        let json =
            if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap_or(Value::String(text)) };
        Ok((answer.status, json))
    }

    pub(crate) fn open(&self, port: u16, request: &str, headers: &str, body: &str) -> Result<Streamed> {
        self.open_as(port, request, &format!("content-type: application/json\r\n{headers}"), body)
    }

    /// As [`Self::open`], without a type of the body.
    pub(crate) fn open_as(&self, port: u16, request: &str, headers: &str, body: &str) -> Result<Streamed> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        let (length, token) = (body.len(), &self.token);
        let head = format!(
            "{request} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
             content-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(head.as_bytes())?;
        let mut reader = BufReader::new(stream);
        let (mut status, mut headers, mut chunked) = (None, String::new(), false);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(Error::new(ErrorKind::UnexpectedEof, "the connection ended before the answer"));
            }
            match line.trim_end() {
                "" => break,
                line if status.is_none() => status = line.split(' ').nth(1).and_then(|code| code.parse().ok()),
                header => {
                    chunked |= header.eq_ignore_ascii_case("transfer-encoding: chunked");
                    headers.push_str(&line);
                }
            }
        }
        let status = status.ok_or_else(|| Error::new(ErrorKind::InvalidData, "no status"))?;
        Ok(Streamed { status, headers, body: BufReader::new(Chunks { reader, chunked, left: 0, ended: false }) })
    }
}

/// The body of a response, without its chunk sizes.
pub(crate) struct Chunks {
    reader: BufReader<TcpStream>,
    chunked: bool,
    left: usize,
    ended: bool,
}

impl std::io::Read for Chunks {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        if !self.chunked {
            return self.reader.read(bytes);
        }
        if self.ended {
            return Ok(0);
        }
        if self.left == 0 {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            let cut = || Error::new(ErrorKind::UnexpectedEof, "the answer is truncated");
            self.left = usize::from_str_radix(line.trim(), 16).map_err(|_| cut())?;
            if self.left == 0 {
                self.ended = true;
                return Ok(0);
            }
        }
        let most = bytes.len().min(self.left);
        let count = self.reader.read(&mut bytes[..most])?;
        if count == 0 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the answer is truncated"));
        }
        self.left -= count;
        if self.left == 0 {
            let mut end = [0; 2];
            self.reader.read_exact(&mut end)?;
        }
        Ok(count)
    }
}
