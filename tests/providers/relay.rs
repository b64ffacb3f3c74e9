//! A relay between the command and a server. It records both sides and may change a request.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use tokio::time::Instant;

use super::http::{HttpMessage, connect, unchunked};

#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) sent: Value,
    pub(crate) status: String,
    pub(crate) answer: String,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// Chooses the origin of a request; may wait, and may change the body.
pub(crate) trait Route: Fn(&str, &mut Value) -> String + Send + Sync + 'static {}
impl<F: Fn(&str, &mut Value) -> String + Send + Sync + 'static> Route for F {}

pub(crate) struct Relay {
    origin: String,
    seen: Arc<Mutex<Vec<Exchange>>>,
    over: Arc<AtomicBool>,
}

impl Relay {
    pub(crate) fn to(origin: &str) -> Self {
        let origin = origin.to_owned();
        Self::start(move |_, _| origin.clone())
    }

    /// Forwards each request to the origin that `route` returns for its path and body.
    pub(crate) fn start(route: impl Route) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        let (seen, over) = (Arc::<Mutex<Vec<Exchange>>>::default(), Arc::<AtomicBool>::default());
        let (noted, ended, route) = (Arc::clone(&seen), Arc::clone(&over), Arc::new(route));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let (noted, route) = (Arc::clone(&noted), Arc::clone(&route));
                thread::spawn(move || pass(stream, &*route, &noted));
            }
        });
        Self { origin, seen, over }
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns all exchanges, in the order of the requests.
    pub(crate) fn seen(&self) -> Vec<Exchange> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn sent(&self) -> Vec<Value> {
        self.seen().into_iter().map(|exchange| exchange.sent).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        drop(connect(&self.origin));
    }
}

fn pass(mut client: TcpStream, route: &dyn Route, noted: &Mutex<Vec<Exchange>>) {
    let Some(request) = HttpMessage::request(&mut BufReader::new(&client)) else { return };
    let path = request.path().to_owned();
    let note = |change: &mut dyn FnMut(&mut Vec<Exchange>)| {
        change(&mut noted.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let mut at = 0;
    note(&mut |seen| {
        at = seen.len();
        seen.push(Exchange {
            path: path.clone(),
            headers: request.headers.clone(),
            sent: request.json(),
            status: String::new(),
            answer: String::new(),
            began: Instant::now(),
            ended: Instant::now(),
        });
    });
    let mut body = request.json();
    let mut server = connect(&route(&path, &mut body));
    let body = if request.body.is_empty() { String::new() } else { body.to_string() };
    let mut head = format!("{}\r\n", request.first);
    for (name, value) in &request.headers {
        if !matches!(&**name, "content-length" | "connection" | "host") {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    head.push_str(&format!("host: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len()));
    if server.write_all((head + &body).as_bytes()).is_err() {
        return;
    }
    // Record the answer piece by piece, because the reader may disconnect early.
    let (mut piece, mut bytes, mut announced) = ([0; 4096], Vec::new(), false);
    while let Ok(read @ 1..) = server.read(&mut piece) {
        bytes.extend_from_slice(&piece[..read]);
        let Some((head, body)) = split(&bytes) else { continue };
        note(&mut |seen| answer(&mut seen[at], &head, body));
        // The server may keep its connection open, but this relay accepts only one request per client connection.
        let out = if announced { piece[..read].to_vec() } else { [closing(&head).as_bytes(), body].concat() };
        announced = true;
        if client.write_all(&out).is_err() || is_complete(&head, body) {
            return;
        }
    }
}

fn split(bytes: &[u8]) -> Option<(HttpMessage, &[u8])> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    Some((HttpMessage::head(&mut &bytes[..end])?, &bytes[end..]))
}

/// Returns the head with a header that announces the end of the connection.
fn closing(head: &HttpMessage) -> String {
    let mut text = format!("{}\r\nconnection: close\r\n", head.first);
    for (name, value) in head.headers.iter().filter(|(name, _)| !matches!(&**name, "connection" | "keep-alive")) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text + "\r\n"
}

fn is_complete(head: &HttpMessage, body: &[u8]) -> bool {
    let length = head.header("content-length").map(|length| length.parse::<usize>().expect("a length"));
    let chunked = head.header("transfer-encoding").is_some();
    length.is_some_and(|length| body.len() >= length) || chunked && body.ends_with(b"0\r\n\r\n")
}

fn answer(exchange: &mut Exchange, head: &HttpMessage, body: &[u8]) {
    let body = if head.header("transfer-encoding").is_some() { unchunked(body) } else { body.to_vec() };
    exchange.ended = Instant::now();
    exchange.status = head.first.clone();
    exchange.answer = String::from_utf8_lossy(&body).into_owned();
}
