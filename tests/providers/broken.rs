//! A server with byte-level faults that the mock cannot produce.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::http::HttpMessage;

#[derive(Clone, Debug)]
pub(crate) enum ServerAction {
    /// Sends these bytes and closes the connection.
    Send(String),
    /// Sends these bytes, then hangs.
    Hang(String),
}

impl ServerAction {
    pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::Send(format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"))
    }
}

pub(crate) struct BrokenServer {
    origin: String,
    requests: Arc<Mutex<Vec<HttpMessage>>>,
}

impl BrokenServer {
    pub(crate) fn new(acts: Vec<ServerAction>) -> Self {
        Self::making(move |at, _| acts.get(at).or(acts.last()).expect("an act").clone())
    }

    /// Answers each request with the result of `act` for its number, from 0, and its content.
    pub(crate) fn making(act: impl Fn(usize, &HttpMessage) -> ServerAction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        let requests = Arc::<Mutex<Vec<HttpMessage>>>::default();
        let (noted, act) = (Arc::clone(&requests), Arc::new(act));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (noted, act) = (Arc::clone(&noted), Arc::clone(&act));
                thread::spawn(move || serve(stream, &*act, &noted));
            }
        });
        Self { origin, requests }
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    pub(crate) fn requests(&self) -> Vec<HttpMessage> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(mut stream: TcpStream, act: &dyn Fn(usize, &HttpMessage) -> ServerAction, noted: &Mutex<Vec<HttpMessage>>) {
    let Some(request) = HttpMessage::request(&mut BufReader::new(&stream)) else { return };
    let at = {
        let mut requests = noted.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(request.clone());
        requests.len() - 1
    };
    match act(at, &request) {
        ServerAction::Send(bytes) => drop(stream.write_all(bytes.as_bytes())),
        ServerAction::Hang(bytes) => {
            drop(stream.write_all(bytes.as_bytes()));
            drop(stream.read(&mut [0; 1]));
        }
    }
}
