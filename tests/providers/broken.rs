//! A server that does wrong what the mock cannot: byte by byte as it is told.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::http::Message;

/// What it does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Sends these bytes and closes the connection.
    Send(String),
    /// Sends these bytes and then nothing, for ever.
    Hang(String),
}

impl Act {
    /// A whole answer.
    pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::Send(format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"))
    }
}

/// It, on a port of its own.
pub(crate) struct Broken {
    origin: String,
    asked: Arc<Mutex<Vec<Message>>>,
}

impl Broken {
    /// Does one act for each request, the last one again and again.
    pub(crate) fn new(acts: Vec<Act>) -> Self {
        Self::making(move |at, _| acts.get(at).or(acts.last()).expect("an act").clone())
    }

    /// Does what `act` makes of the number of the request, from 0, and the request.
    pub(crate) fn making(act: impl Fn(usize, &Message) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::<Mutex<Vec<Message>>>::default();
        let (noted, act) = (Arc::clone(&asked), Arc::new(act));
        // It ends with the process: a connection that hangs has nobody to wait for it.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (noted, act) = (Arc::clone(&noted), Arc::clone(&act));
                thread::spawn(move || serve(stream, &*act, &noted));
            }
        });
        Self { origin, asked }
    }

    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// What it was sent.
    pub(crate) fn asked(&self) -> Vec<Message> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(mut stream: TcpStream, act: &dyn Fn(usize, &Message) -> Act, noted: &Mutex<Vec<Message>>) {
    let Some(request) = Message::request(&mut BufReader::new(&stream)) else { return };
    let at = {
        let mut asked = noted.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(request.clone());
        asked.len() - 1
    };
    match act(at, &request) {
        Act::Send(bytes) => drop(stream.write_all(bytes.as_bytes())),
        Act::Hang(bytes) => {
            drop(stream.write_all(bytes.as_bytes()));
            // Until the other side has had enough.
            drop(stream.read(&mut [0; 1]));
        }
    }
}
